package rows

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// guarded is a tensor somewhere in a buffer of noise, every element of which is known.
type guarded struct {
	whole, tensor *flash.Tensor
	shape         [4]int
	strides       [4]int
	offset        int
	values        []float32 // of the buffer, as the type has them
}

var refTypes = map[flash.DType]ref.DType{flash.F32: ref.F32, flash.F16: ref.F16, flash.BF16: ref.BF16}

// inUnits and oddBlocks are layouts of newGuarded and newBytes, which differ to the latter.
const inUnits, oddBlocks = 3, 7

// newGuarded lays a tensor out with gaps between rows, heads and batch entries, or heads and rows exchanged, or without any gap; inUnits
// with heads and rows exchanged, gaps, and every row at 16 bytes.
func newGuarded(t *testing.T, d *flash.Device, r *rand.Rand, dtype flash.DType, shape [4]int, layout int) *guarded {
	t.Helper()
	g := &guarded{shape: shape, offset: 4}
	switch layout {
	case 0:
		g.strides = [4]int{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1}
	case 1:
		row := shape[3] + 3
		g.strides, g.offset = [4]int{shape[1]*(shape[2]*row+1) + 5, shape[2]*row + 1, row, 1}, 7
	case inUnits, oddBlocks:
		column := (shape[3] + 7) / 8 * 8
		row := shape[1]*column + 8
		g.strides, g.offset = [4]int{shape[2]*row + 16, column, row, 1}, 8
	default:
		row := shape[1]*(shape[3]+1) + 2
		g.strides, g.offset = [4]int{shape[2]*row + 7, shape[3] + 1, row, 1}, 5
	}
	last := g.offset
	for i, s := range g.strides {
		last += s * (shape[i] - 1)
	}
	g.values = make([]float32, last+9)
	for i := range g.values {
		g.values[i] = float32(r.NormFloat64())
	}
	if dtype == flash.Int32 {
		for i := range g.values {
			g.values[i] = float32(r.IntN(1000) + 1000000)
		}
	} else {
		refTypes[dtype].RoundAll(g.values)
	}
	var err error
	g.whole, err = d.NewTensor(dtype, 1, 1, 1, len(g.values))
	require.NoError(t, err)
	g.tensor, err = g.whole.View(uint64(g.offset*dtype.Size()), dtype, shape, g.strides)
	require.NoError(t, err)
	g.send(t)
	return g
}

func (g *guarded) send(t *testing.T) { require.NoError(t, g.whole.Upload(t.Context(), g.values)) }

// row is where a row begins in the buffer.
func (g *guarded) row(b, h, i int) int {
	return g.offset + b*g.strides[0] + h*g.strides[1] + i*g.strides[2]
}

// elements are those of the tensor in the words of the oracle.
func (g *guarded) elements() ref.Tensor {
	x := ref.NewTensor(g.shape[0], g.shape[1], g.shape[2], g.shape[3])
	for _, r := range ref.AllRows(x) {
		copy(x.Row(r.B, r.H, r.I), g.values[g.row(r.B, r.H, r.I):])
	}
	return x
}

// expect compares the buffer with what should be in it: exactly, but where off says by how much an element may be off.
func (g *guarded) expect(t *testing.T, want []float64, off map[int]float64) {
	t.Helper()
	got := make([]float32, len(g.values))
	require.NoError(t, g.whole.Download(t.Context(), got))
	for i, x := range got {
		if math.Abs(float64(x)-want[i]) > off[i] || x != x {
			t.Fatalf("element %d of the buffer is %v and should be %v, within %g", i, x, want[i], off[i])
		}
	}
}

func wide(values []float32) []float64 {
	out := make([]float64, len(values))
	for i, x := range values {
		out[i] = float64(x)
	}
	return out
}

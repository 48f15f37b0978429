package ranks

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// noise is normally distributed numbers that rows of any tensor are cut from, each at a place of its own: so a row is known wherever it
// lies, and none of a long sequence's gigabytes have to be kept. Tensors have numbers of their own: a query that is also a key would have a
// score of √D with it, as random rows have not.
type noise struct {
	dtype  attn.DType
	values []float32 // as the type has them
	raw    []byte
}

const noiseLength = 1<<20 + 7 // of a tensor

func newNoise(dtype flash.DType) *noise {
	n := &noise{dtype: attn.DType(dtype), values: make([]float32, tensors*noiseLength)}
	rng := rand.New(rand.NewPCG(20260101, 17))
	for i := range n.values {
		n.values[i] = float32(rng.NormFloat64())
	}
	n.raw = make([]byte, n.dtype.Bytes(len(n.values)))
	attn.Encode(n.dtype, n.raw, n.values)
	attn.Decode(n.dtype, n.values, n.raw)
	return n
}

// at is where the row of a tensor begins.
func (n *noise) at(tensor, head, row, columns int) int {
	x := uint64(tensor)<<56 ^ uint64(head)<<40 ^ uint64(row)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return tensor*noiseLength + int((x^x>>31)%uint64(noiseLength-columns))
}

// row is the row as numbers.
func (n *noise) row(tensor, head, row, columns int) []float32 {
	at := n.at(tensor, head, row, columns)
	return n.values[at : at+columns]
}

// Tensors by number.
const (
	ofQ = iota
	ofK
	ofV
	ofDO
	tensors
)

// tensor makes one of shape [1, heads, rows of the spans, columns].
func (n *noise) tensor(ctx context.Context, d *flash.Device, number, heads, columns int, spans []ring.Span) (*flash.Tensor, error) {
	rows := 0
	for _, s := range spans {
		rows += s.Len()
	}
	t, err := d.NewTensor(flash.DType(n.dtype), 1, heads, rows, columns)
	if err != nil {
		return nil, err
	}
	size := n.dtype.Size()
	raw := make([]byte, heads*rows*columns*size)
	at := 0
	for h := range heads {
		for _, s := range spans {
			for i := s.Begin; i < s.End; i++ {
				from := n.at(number, h, i, columns) * size
				at += copy(raw[at:at+columns*size], n.raw[from:])
			}
		}
	}
	return t, t.UploadBytes(ctx, raw)
}

// host makes one in memory of the host.
func (n *noise) host(number, heads, columns, rows int) (*hostmem.Memory, error) {
	size := n.dtype.Size()
	m, err := hostmem.New(heads * rows * columns * size)
	if err != nil {
		return nil, err
	}
	at := 0
	for h := range heads {
		for i := range rows {
			from := n.at(number, h, i, columns) * size
			at += copy(m.Bytes()[at:at+columns*size], n.raw[from:])
		}
	}
	return m, nil
}

// checkedRows is how many rows of o each rank compares with a reference.
const checkedRows = 6

// checkOf is the check of a row, whose ranks are off by so much at most.
func checkOf(off float64, ranks int) result.Check {
	return result.Check{MaxErr: &off, ErrRows: checkedRows * ranks}
}

// check compares some rows of o with float64, and says how far the worst is off.
func (n *noise) check(ctx context.Context, p flash.Problem, o *flash.Tensor, spans []ring.Span) (float64, error) {
	all := make([]byte, o.Bytes())
	if err := o.DownloadBytes(ctx, all); err != nil {
		return 0, err
	}
	rng := rand.New(rand.NewPCG(4, 4))
	worst := 0.0
	rows := o.Shape()[2]
	for range checkedRows {
		h, local := rng.IntN(p.Heads), rng.IntN(rows)
		i, left := 0, local
		for _, s := range spans {
			if left < s.Len() {
				i = s.Begin + left
				break
			}
			left -= s.Len()
		}
		keys := p.KeyLen
		if p.Causal != flash.CausalNone {
			keys = i + p.KeyLen - p.QueryLen + 1
		}
		kh := h / (p.Heads / p.KeyHeads)
		in := ref.Problem{Q: ref.NewTensor(1, 1, 1, p.HeadDim), K: ref.NewTensor(1, 1, keys, p.HeadDim),
			V: ref.NewTensor(1, 1, keys, p.ValueDim), Options: ref.Options{Scale: p.Scale}}
		copy(in.Q.Data, n.row(ofQ, h, i, p.HeadDim))
		for j := range keys {
			copy(in.K.Row(0, 0, j), n.row(ofK, kh, j, p.HeadDim))
			copy(in.V.Row(0, 0, j), n.row(ofV, kh, j, p.ValueDim))
		}
		want, _, err := ref.Forward(in)
		if err != nil {
			return 0, err
		}
		got := make([]float32, p.ValueDim)
		size := n.dtype.Size()
		attn.Decode(n.dtype, got, all[(h*rows+local)*p.ValueDim*size:])
		for c, x := range got {
			off := math.Abs(float64(x) - want.Data[c])
			worst = max(worst, off)
			if may := map[attn.DType]float64{attn.F32: 1e-4, attn.F16: 5e-3, attn.BF16: 4e-2}[n.dtype]; !(off <= may) {
				return worst, fmt.Errorf("o of head %d, query %d, column %d is %g and should be %g", h, i, c, x, want.Data[c])
			}
		}
	}
	return worst, nil
}

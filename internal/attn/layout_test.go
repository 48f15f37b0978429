package attn

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// addresses lists the bytes that a layout touches.
func addresses(l *Layout) map[uint64]int {
	out := map[uint64]int{}
	for b := range l.Shape[0] {
		for h := range l.Shape[1] {
			for n := range l.Shape[2] {
				for d := range l.Shape[3] {
					e := uint64(b*l.Strides[0] + h*l.Strides[1] + n*l.Strides[2] + d*l.Strides[3])
					if d%l.Per != 0 { // a unit holds elements of one row alone
						continue
					}
					for i := range l.Size {
						out[l.Offset+e/uint64(l.Per)*l.Size+i]++
					}
				}
			}
		}
	}
	return out
}

func drawLayout(t *rapid.T, name string) Layout {
	dtype := rapid.SampledFrom([]DType{F32, F16, Bit, Q8_0, Q4_1, Q5_0, F8E4M3, F8E5M2}).Draw(t, name+"dtype")
	var shape, strides [4]int
	for i := range shape {
		shape[i] = rapid.IntRange(1, 3).Draw(t, name+"dim")
		strides[i] = rapid.IntRange(0, 24).Draw(t, name+"stride")
	}
	if per := dtype.unit().elements; per > 1 {
		shape[3] = rapid.IntRange(1, 3).Draw(t, name+"units") * dtype.Block()
		for i := range strides {
			strides[i] *= per
		}
	}
	if dtype == Bit {
		shape[3] = rapid.IntRange(1, 30).Draw(t, name+"bits")
	}
	strides[3] = 1
	offset := uint64(rapid.IntRange(0, 40).Draw(t, name+"offset") * dtype.unit().align)
	l, err := NewLayout(offset, dtype, shape, strides, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestOverlapNeverMissed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawLayout(t, "a"), drawLayout(t, "b")
		in := addresses(&a)
		shared := false
		for addr := range addresses(&b) {
			shared = shared || in[addr] > 0
		}
		if shared && (!a.Overlaps(&b) || !b.Overlaps(&a)) {
			t.Fatalf("%+v and %+v share memory", a, b)
		}
		double := false
		for _, n := range in {
			double = double || n > 1
		}
		if double && !a.SelfOverlaps() {
			t.Fatalf("%+v overlaps itself", a)
		}
		if a.Gapless() && uint64(len(in)) != a.Span {
			t.Fatalf("%+v has gaps", a)
		}
	})
}

// TestPackedQKVDoesNotOverlap: q, k, v and o as slices of one buffer [B, N, 4, H, D].
func TestPackedQKVDoesNotOverlap(t *testing.T) {
	const B, N, H, D = 2, 5, 3, 8
	var parts [4]Layout
	for i := range parts {
		l, err := NewLayout(uint64(2*i*H*D), F16, [4]int{B, H, N, D}, [4]int{N * 4 * H * D, D, 4 * H * D, 1}, 2*B*N*4*H*D)
		require.NoError(t, err)
		require.False(t, l.SelfOverlaps())
		require.False(t, l.Gapless())
		parts[i] = l
	}
	for i := range parts {
		for j := range parts {
			require.Equal(t, i == j, parts[i].Overlaps(&parts[j]), "%d %d", i, j)
		}
	}
}

func TestLayoutErrors(t *testing.T) {
	for _, c := range []struct {
		name           string
		offset         uint64
		dtype          DType
		shape, strides [4]int
		size           uint64
		argument       string
	}{
		{"unknown dtype", 0, F8E5M2 + 1, [4]int{1, 1, 1, 1}, [4]int{}, 100, "dtype"},
		{"zero dimension", 0, F16, [4]int{1, 0, 1, 1}, [4]int{}, 100, "shape"},
		{"negative dimension", 0, F16, [4]int{1, 1, -1, 1}, [4]int{}, 100, "shape"},
		{"too many elements", 0, F16, [4]int{1 << 20, 1 << 20, 1 << 20, 1 << 20}, [4]int{}, 100, "shape"},
		{"last stride", 0, F16, [4]int{1, 1, 2, 2}, [4]int{4, 4, 4, 2}, 100, "strides"},
		{"negative stride", 0, F16, [4]int{1, 1, 2, 2}, [4]int{4, 4, -2, 1}, 100, "strides"},
		{"stride overflow", 0, F16, [4]int{3, 1, 2, 2}, [4]int{1 << 31, 4, 2, 1}, 1 << 40, "strides"},
		{"misaligned", 3, F16, [4]int{1, 1, 2, 2}, [4]int{}, 100, "offset"},
		{"too small", 94, F16, [4]int{1, 1, 2, 2}, [4]int{}, 100, "offset"},
		{"rows of bits inside bytes", 0, Bit, [4]int{1, 1, 2, 5}, [4]int{16, 16, 5, 1}, 100, "strides"},
		{"bits beyond the end", 97, Bit, [4]int{1, 1, 2, 9}, [4]int{}, 100, "offset"},
		{"far past the end", 1 << 63, F16, [4]int{1, 1, 2, 2}, [4]int{}, 100, "offset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewLayout(c.offset, c.dtype, c.shape, c.strides, c.size)
			var arg *ArgumentError
			require.ErrorAs(t, err, &arg)
			require.Equal(t, c.argument, arg.Argument)
			require.NotEmpty(t, arg.Rule)
		})
	}
	_, err := NewLayout(92, F16, [4]int{1, 1, 2, 2}, [4]int{}, 100)
	require.NoError(t, err)
}

// TestBitRows: rows of bits begin at bytes, one after the other unless strides say otherwise, and end with the byte of their last bit.
func TestBitRows(t *testing.T) {
	l, err := NewLayout(3, Bit, [4]int{2, 1, 3, 17}, [4]int{}, 3+2*3*3)
	require.NoError(t, err)
	require.Equal(t, [4]int{72, 72, 24, 1}, l.Strides)
	require.Equal(t, uint64(18), l.Span)
	require.True(t, l.Gapless())
	require.False(t, l.Dense(), "seven bits of each third byte are between rows")
	l, err = NewLayout(0, Bit, [4]int{1, 1, 4, 16}, [4]int{}, 8)
	require.NoError(t, err)
	require.True(t, l.Dense())
	_, err = NewLayout(97, Bit, [4]int{1, 1, 1, 17}, [4]int{5, 5, 5, 1}, 100)
	require.NoError(t, err, "strides of dimensions of 1 are not used")
}

// TestBitsOfBytes: what NumPy's packbits(…, bitorder="little") makes of twelve booleans, there and back; the four bits behind them are 0.
func TestBitsOfBytes(t *testing.T) {
	raw := []byte{0xff, 0xff, 0xff}
	Encode(Bit, raw, []float32{1, 1, 0, 0, 0, 0, 0, 1, 0, 0, -3, 1})
	require.Equal(t, []byte{0x83, 0x0c, 0xff}, raw)
	back := make([]float32, 12)
	Decode(Bit, back, raw)
	require.Equal(t, []float32{1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1}, back)
}

package flash

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBitTensors: tensors of bits hold what they are given, in rows that end inside a byte, at one or at a word, one after the other or
// apart, and leave what lies between rows alone.
func TestBitTensors(t *testing.T) {
	d := testDevice(t)
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rng.IntN(2))
		}
		return values
	}
	for _, keys := range []int{1, 7, 8, 9, 32, 45} {
		x, err := d.NewTensor(Bit, 2, 1, 3, keys)
		require.NoError(t, err)
		require.Equal(t, uint64(6*((keys+7)/8)), x.Bytes())
		require.Equal(t, 6*keys, x.Elements())
		in, out := draw(6*keys), make([]float32, 6*keys)
		require.NoError(t, x.Upload(bg, in))
		require.NoError(t, x.Download(bg, out))
		require.Equal(t, in, out)
		raw := make([]byte, x.Bytes())
		require.NoError(t, x.DownloadBytes(bg, raw))
		row := Bit.Bytes(keys)
		for i, v := range in { // element j of a row is bit j%8 of its byte j/8
			require.Equal(t, byte(v), raw[i/keys*row+i%keys/8]>>(i%keys%8)&1, "%d keys, element %d", keys, i)
		}

		// Rows of seven bytes more, from the second byte on.
		pitch := 8 * (row + 7)
		whole, err := d.NewTensor(Bool, 1, 1, 1, 1+6*(row+7))
		require.NoError(t, err)
		around := make([]byte, whole.Bytes())
		for i := range around {
			around[i] = 0xa5
		}
		require.NoError(t, whole.UploadBytes(bg, around))
		y, err := whole.View(1, Bit, [4]int{2, 1, 3, keys}, [4]int{3 * pitch, 3 * pitch, pitch, 1})
		require.NoError(t, err)
		require.NoError(t, y.Upload(bg, in))
		require.NoError(t, y.Download(bg, out))
		require.Equal(t, in, out)
		require.NoError(t, whole.DownloadBytes(bg, around))
		for i, b := range around {
			if at := i - 1; at < 0 || at%(row+7) >= row {
				require.Equal(t, byte(0xa5), b, "byte %d lies between rows", i)
			}
		}
	}
	bnhd, err := d.NewTensorBNHD(Bit, 1, 2, 3, 11)
	require.NoError(t, err)
	require.Equal(t, [4]int{96, 16, 32, 1}, bnhd.Strides())
	in, out := draw(66), make([]float32, 66)
	require.NoError(t, bnhd.Upload(bg, in))
	require.NoError(t, bnhd.Download(bg, out))
	require.Equal(t, in, out)
}

// TestBitsAreBytes: a mask of bits hides what the same mask of bytes does, to the last bit of the output, in rows of whole words and of
// less.
func TestBitsAreBytes(t *testing.T) {
	d := testDevice(t)
	for _, keys := range []int{64, 45} {
		p := Problem{Batch: 2, Heads: 2, QueryLen: 9, KeyLen: keys, HeadDim: 16, DType: F16}
		s := newSample(t, p)
		values := make([]float32, 2*9*keys)
		rng := rand.New(rand.NewPCG(1, uint64(keys)))
		for i := range values {
			values[i] = float32(rng.IntN(2))
		}
		var outputs [2][]float32
		for i, dtype := range []DType{Bool, Bit} {
			p.Mask = PerScore{DType: dtype, Batch: 2, Heads: 1, Queries: 9, Keys: keys}
			f := s.tensors(t, d, plainly(t, d))
			var err error
			f.Mask, err = d.NewTensor(dtype, 2, 1, 9, keys)
			require.NoError(t, err)
			require.NoError(t, f.Mask.Upload(bg, values))
			require.NoError(t, mustPlan(t, d, p, WithTier(TierScalar)).Forward(bg, f))
			outputs[i] = make([]float32, f.O.Elements())
			require.NoError(t, f.O.Download(bg, outputs[i]))
		}
		require.Equal(t, outputs[0], outputs[1])
	}
}

// TestBadBitMasks: errors name what does not fit.
func TestBadBitMasks(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 2, Heads: 2, QueryLen: 9, KeyLen: 45, HeadDim: 16, DType: F16, Mask: PerScore{DType: Bit, Batch: 2, Heads: 1,
		Queries: 9, Keys: 45}}
	s := newSample(t, Problem{Batch: 2, Heads: 2, QueryLen: 9, KeyLen: 45, HeadDim: 16, DType: F16})
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	for name, c := range map[string]struct {
		dtype DType
		keys  int
		says  string
	}{
		"bytes":          {Bool, 45, "must be of type bit"},
		"words of bits":  {Bit, 64, "must have shape [2 1 9 45]"},
		"not of a mask":  {F16, 45, "must be of type bit"},
		"as it is meant": {Bit, 45, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := s.tensors(t, d, plainly(t, d))
			var err error
			f.Mask, err = d.NewTensor(c.dtype, 2, 1, 9, c.keys)
			require.NoError(t, err)
			require.NoError(t, f.Mask.Upload(bg, make([]float32, f.Mask.Elements())))
			err = plan.Forward(bg, f)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			requireRefused(t, "Forward.Mask", err)
			require.ErrorContains(t, err, c.says)
		})
	}
	p.Mask.DType = F16
	_, err := p.Normalize()
	require.EqualError(t, err, "flash: Problem.Mask is float16: must be one of [bool bit]")
	p.Mask, p.Bias = PerScore{}, PerScore{DType: Bit, Batch: 1, Heads: 1, Queries: 9, Keys: 45}
	_, err = p.Normalize()
	require.EqualError(t, err, "flash: Problem.Bias is bit: must be one of [float32 float16]")

	words, err := d.NewTensor(F32, 1, 1, 1, 4)
	require.NoError(t, err)
	_, err = words.View(0, Bit, [4]int{1, 1, 3, 20}, [4]int{60, 60, 20, 1})
	requireRefused(t, "strides", err)
	require.ErrorContains(t, err, "multiples of 8")
	_, err = words.View(15, Bit, [4]int{1, 1, 1, 9}, [4]int{})
	requireRefused(t, "offset", err)
}

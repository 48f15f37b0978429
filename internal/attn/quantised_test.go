package attn

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every fp8 number is itself again, numbers between two go to the nearer one, halves to the even one, and what is too large to the largest.
func TestF8(t *testing.T) {
	byteOf := func(v float32) byte {
		var out [1]byte
		Encode(F8E4M3, out[:], []float32{v})
		return out[0]
	}
	var all [256]float32
	codes := make([]byte, 256)
	for i := range codes {
		codes[i] = byte(i)
	}
	Decode(F8E4M3, all[:], codes)
	for i, v := range all {
		if i&0x7f == 0x7f {
			assert.True(t, math.IsNaN(float64(v)), "%#x", i)
			continue
		}
		require.Equal(t, byte(i), byteOf(v), "%g", v)
	}
	assert.Equal(t, float32(448), all[0x7e])
	assert.Equal(t, float32(1.0/512), all[1])
	assert.Equal(t, float32(1), all[0x38])
	for i := range 0x7e {
		low, high := all[i], all[i+1]
		middle := (low + high) / 2
		require.Equal(t, byte(i), byteOf(math.Nextafter32(middle, 0)), "below the middle of %g and %g", low, high)
		require.Equal(t, byte(i+1), byteOf(math.Nextafter32(middle, 1e9)), "above the middle of %g and %g", low, high)
		require.Equal(t, byte(i+i&1), byteOf(middle), "the middle of %g and %g", low, high)
		require.Equal(t, byte(i+i&1)|0x80, byteOf(-middle))
	}
	for _, v := range []float32{448, 449, 1e30, float32(math.Inf(1))} {
		assert.Equal(t, byte(0x7e), byteOf(v))
		assert.Equal(t, byte(0xfe), byteOf(-v))
	}
	assert.Equal(t, byte(0x7f), byteOf(float32(math.NaN())))
}

// Blocks by hand: the scale, and numbers at both ends and at a half.
func TestBlocks(t *testing.T) {
	x := make([]float32, 32)
	x[0], x[1], x[2], x[31] = 127, -127, 2.5, -0.4
	raw := make([]byte, Q8_0.Bytes(32))
	require.Len(t, raw, 34)
	Encode(Q8_0, raw, x)
	assert.Equal(t, []byte{0x00, 0x3c, 127, 0x81, 3}, raw[:5], "d is 1, and halves go away from zero")
	assert.Equal(t, byte(0), raw[33])

	x[0], x[1], x[16], x[17], x[2] = 8, -7, 0, 3.5, 0
	raw = make([]byte, Q4_0.Bytes(32))
	require.Len(t, raw, 18)
	Encode(Q4_0, raw, x)
	assert.Equal(t, []byte{0x00, 0xbc}, raw[:2], "d is -1, for the number of largest magnitude is positive")
	assert.Equal(t, byte(0x80), raw[2], "8 is -8 times d, and 0 lies in the middle")
	assert.Equal(t, byte(0x5f), raw[3], "-7 is 7 times d, and 3.5 is -3.5 times d, a half up")
}

// A block comes back within half a step of its scale, d itself being rounded to fp16; zeros come back as they are.
func TestBlocksComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range []DType{Q8_0, Q4_0} {
		for range 200 {
			x, y := make([]float32, 64), make([]float32, 64)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			clear(x[32:]) // a block of nothing
			raw := make([]byte, dtype.Bytes(64))
			Encode(dtype, raw, x)
			Decode(dtype, y, raw)
			most := float32(0)
			for _, v := range x {
				most = max(most, float32(math.Abs(float64(v))))
			}
			step := most / 127
			if dtype == Q4_0 {
				step = most / 8 * 2 // the end opposite to the number of largest magnitude is a step short
			}
			for i := range x {
				require.InDelta(t, x[i], y[i], float64(step)*0.501+float64(most)/1024, "%v element %d", dtype, i)
			}
			require.Equal(t, x[32:], y[32:])
		}
	}
}

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
	for _, x := range []struct {
		dtype         DType
		most          byte // of the largest number
		none          byte // of the first that is none or infinite
		largest, unit float32
		one           byte
	}{{F8E4M3, 0x7e, 0x7f, 448, 1.0 / 512, 0x38}, {F8E5M2, 0x7b, 0x7c, 57344, 1.0 / 65536, 0x3c}} {
		t.Run(x.dtype.String(), func(t *testing.T) {
			byteOf := func(v float32) byte {
				var out [1]byte
				Encode(x.dtype, out[:], []float32{v})
				return out[0]
			}
			var all [256]float32
			codes := make([]byte, 256)
			for i := range codes {
				codes[i] = byte(i)
			}
			Decode(x.dtype, all[:], codes)
			for i, v := range all {
				switch code := byte(i & 0x7f); {
				case code == 0x7c && x.dtype == F8E5M2:
					assert.True(t, math.IsInf(float64(v), 1-2*(i>>7)), "%#x", i)
				case code >= x.none:
					assert.True(t, math.IsNaN(float64(v)), "%#x", i)
				default:
					require.Equal(t, byte(i), byteOf(v), "%g", v)
				}
			}
			assert.Equal(t, x.largest, all[x.most])
			assert.Equal(t, x.unit, all[1])
			assert.Equal(t, float32(1), all[x.one])
			for i := range int(x.most) {
				low, high := all[i], all[i+1]
				middle := (low + high) / 2
				require.Equal(t, byte(i), byteOf(math.Nextafter32(middle, 0)), "below the middle of %g and %g", low, high)
				require.Equal(t, byte(i+1), byteOf(math.Nextafter32(middle, 1e9)), "above the middle of %g and %g", low, high)
				require.Equal(t, byte(i+i&1), byteOf(middle), "the middle of %g and %g", low, high)
				require.Equal(t, byte(i+i&1)|0x80, byteOf(-middle))
			}
			for _, v := range []float32{x.largest, x.largest + 1, 1.1 * x.largest, 1e30, float32(math.Inf(1))} {
				assert.Equal(t, x.most, byteOf(v))
				assert.Equal(t, x.most|0x80, byteOf(-v))
			}
			assert.Equal(t, byte(0x7f), byteOf(float32(math.NaN())))
		})
	}
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

	clear(x)
	x[0], x[1], x[16], x[17] = 5, -10, 2.5, -9.4
	raw = make([]byte, Q4_1.Bytes(32))
	require.Len(t, raw, 20)
	Encode(Q4_1, raw, x)
	assert.Equal(t, []byte{0x00, 0x3c, 0x00, 0xc9, 0xdf, 0x10}, raw[:6], "d is 1 and m -10: 15 and a half up, 0 and 0.6")
	raw = make([]byte, Q5_1.Bytes(32))
	require.Len(t, raw, 24)
	x[0] = 21
	Encode(Q5_1, raw, x)
	assert.Equal(t, []byte{0x00, 0x3c, 0x00, 0xc9, 0x01, 0x00, 0x00, 0x00, 0xdf, 0x10}, raw[:10], "31 has the one fifth bit")

	x[0], x[1], x[16], x[17] = 16, -15, 0, -1
	raw = make([]byte, Q5_0.Bytes(32))
	require.Len(t, raw, 22)
	Encode(Q5_0, raw, x)
	assert.Equal(t, []byte{0x00, 0xbc, 0xfe, 0xff, 0xff, 0xff, 0x00, 0x1f}, raw[:8], "d is -1; all but 16 are from 16 up: 31, 17")

	x[0], x[1], x[16], x[17] = 127, -113, 10, 4.5
	clear(x[2:16])
	clear(x[18:])
	raw = make([]byte, IQ4_NL.Bytes(32))
	require.Len(t, raw, 18)
	Encode(IQ4_NL, raw, x)
	assert.Equal(t, []byte{0x00, 0xbc, 0x70, 0x8f}, raw[:4], "d is -1, for 127; -10 is in the table, and of -4.5 the middle the larger")
	assert.Equal(t, byte(0x88), raw[4], "zeros are 1 in the table")
}

// A block comes back within half a step of its scale, d itself being rounded to fp16; zeros come back as they are.
func TestBlocksComeBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, dtype := range QuantisedTypes() {
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
			step := map[DType]float32{Q8_0: most / 127, Q4_1: 2 * most / 15, Q5_1: 2 * most / 31,
				Q4_0: most / 8 * 2, Q5_0: most / 16 * 2, // the end opposite to the number of largest magnitude is a step short
				IQ4_NL: most * 32 / 127, // likewise, and d is not that of the largest number
				F8E4M3: most / 8, F8E5M2: most / 4}[dtype]
			for i := range x {
				require.InDelta(t, x[i], y[i], float64(step)*0.501+float64(most)/1024, "%v element %d", dtype, i)
			}
			require.Equal(t, x[32:], y[32:])
		}
	}
}

package score_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// TestFiniteScoresAreFiniteBits: in units of log 2 finite scores are finite, in order, and above fp32's lowest number, which stands in
// kernels for no score at all. Only -inf is infinite. Up to 1.8e38 they are the scores themselves.
func TestFiniteScoresAreFiniteBits(t *testing.T) {
	d := newDevice(t)
	infinity := math.Inf(1)
	values := []float64{
		-infinity, -math.MaxFloat32, -3.3895314e38, -3e38, -2.4e38, -1.9e38, -1.7e38, -1e31, -1e9, -1, 0, 1, 1e31, 1.7e38, 2.4e38,
		math.MaxFloat32,
	}
	n := len(values)
	c, zero, one := score.Capture("c", n), score.Capture("zero", 1).At(score.ConstInt(0)), score.Capture("one", 1).At(score.ConstInt(0))
	of, lowest := c.At(score.Batch()), score.Const(-math.MaxFloat32)
	masked := score.Key().Less(score.ConstInt(1)) // the other key is not
	for name, x := range map[string]struct {
		e       score.Float
		not     func(c float64) bool
		of, off func(c float64) float64 // scores of key 0 and key 1
	}{
		"captured":           {e: of.Add(score.Key().Float().Mul(zero))},
		"selected":           {e: masked.Select(of, score.S()), off: func(float64) float64 { return 0 }},
		"added":              {e: score.S().Add(of)},
		"a sum of the batch": {e: score.S().Add(of.Mul(score.Const(0.75)).Add(of.Mul(score.Const(0.25))))},
		"times a mask": {
			e: score.S().Add(masked.Select(one, zero).Mul(of)), off: func(float64) float64 { return 0 },
			not: func(c float64) bool { return math.IsInf(c, 0) }, // times 0
		},
		"times the key": {
			e: score.S().Add(score.ConstInt(1).Sub(score.Key()).Float().Mul(of)), off: func(float64) float64 { return 0 },
			not: func(c float64) bool { return math.IsInf(c, 0) },
		},
		"lowest, selected": {
			e: masked.Select(lowest, score.S()), of: func(float64) float64 { return -math.MaxFloat32 },
			off: func(float64) float64 { return 0 },
		},
		"lowest times a mask of the batch": {
			e: score.S().Add(score.Const(1).Sub(zero).Mul(lowest)), of: func(float64) float64 { return -math.MaxFloat32 },
		},
		"lowest times a mask of keys": {
			e: score.S().Add(score.Const(1).Sub(score.Key().Float()).Mul(lowest)), of: func(float64) float64 { return -math.MaxFloat32 },
			off: func(float64) float64 { return 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := score.New(x.e)
			require.NoError(t, err)
			code := score.Code{Score: f, FirstBinding: 3}
			spliced, err := score.Splice(spirv(t, "hooks"), code)
			require.NoError(t, err)
			validate(t, "vulkan1.1", spliced)
			tensors, err := code.Captures()
			require.NoError(t, err)
			data := score.Data{"zero": []float32{0}, "one": []float32{1}}
			var points, scores []uint32
			captured := make([]float32, n)
			for i, v := range values {
				captured[i] = float32(v)
				points, scores = append(points, uint32(i), 0, 0, 0), append(scores, 0, 0)
			}
			data["c"] = captured
			got := floatsOf(d.run(spliced, []uint32{uint32(n), 2, math.Float32bits(1)}, 1, 9*2*n, contents(tensors, data), points, scores))
			for key, should := range []func(float64) float64{x.of, x.off} {
				if should == nil && (key == 0 || x.of == nil) {
					should = func(c float64) float64 { return c }
				} else if should == nil {
					should = x.of
				}
				before, score := math.Inf(-1), math.Inf(-1)
				for i, v := range values {
					if x.not != nil && x.not(v) {
						continue
					}
					want := should(v)
					for _, place := range []int{6, 7} { // bits, and with a slope, times ln 2
						bits := float64(got[9*(2*i+key)+place])
						if math.Abs(want) <= 1.8e38 || math.IsInf(want, 0) {
							require.True(t, bits == want || math.Abs(bits-want) <= 1e-6*math.Abs(want), "score %v of key %d is %v",
								want, key, bits)
						} else {
							require.Less(t, math.Abs(bits), math.MaxFloat32*math.Ln2, "score %v of key %d", want, key)
							require.Greater(t, math.Abs(bits), 1.7999e38, "score %v of key %d", want, key)
							require.Equal(t, want < 0, bits < 0)
						}
						if want > score {
							assert.Greater(t, bits, before, "score %v of key %d is not above %v", want, key, score)
						}
						if place == 7 {
							before, score = bits, want
						}
					}
				}
			}
		})
	}
}

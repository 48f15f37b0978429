package score_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
)

func value(t *testing.T, f score.Function, data score.Data, p score.Point) (v, slope float64) {
	t.Helper()
	e, err := f.Bind(data)
	require.NoError(t, err)
	v, slope = e.Slope(p)
	assert.Equal(t, v, e.Value(p))
	return v, slope
}

func TestSoftcap(t *testing.T) {
	for _, s := range []float64{0, 0.1, -3, 29, 1e4, -1e30, math.Inf(1), math.Inf(-1)} {
		v, slope := value(t, score.Softcap(30), nil, score.Point{S: s})
		assert.InDelta(t, 30*math.Tanh(s/30), v, 1e-12)
		assert.InDelta(t, 1-math.Pow(math.Tanh(s/30), 2), slope, 1e-12)
	}
}

// The error that Softcap promises, on a device, from scores near 0 to those that are capped.
func TestSoftcapPrecision(t *testing.T) {
	d := newDevice(t)
	const pairs, keys = 64, 1024
	for _, limit := range []float64{1, 30, 50} {
		code, err := score.Splice(spirv(t, "hooks"), score.Code{Score: score.Softcap(limit), FirstBinding: 3})
		require.NoError(t, err)
		scores := make([]float32, pairs*keys)
		for i := range scores {
			scores[i] = float32(math.Exp(float64(i)/float64(len(scores))*30-20) * limit)
			if i%2 == 1 {
				scores[i] = -scores[i]
			}
		}
		got := floatsOf(d.run(code, []uint32{pairs, keys, math.Float32bits(1)}, 1, 9*pairs*keys, nil, make([]uint32, 4*pairs),
			bitsOf(scores)))
		worst, steepest := 0.0, 0.0
		for i, s := range scores {
			th := math.Tanh(float64(s) / limit)
			for _, at := range []int{0, 6, 7} {
				worst = max(worst, math.Abs(float64(got[9*i+at])-limit*th)/limit)
			}
			for _, at := range []int{2, 8} {
				steepest = max(steepest, math.Abs(float64(got[9*i+at])-(1-th*th)))
			}
		}
		t.Logf("softcap %v: value within %.2g·c, slope within %.2g", limit, worst, steepest)
		assert.LessOrEqual(t, worst, 1e-6)
		assert.LessOrEqual(t, steepest, 2e-6)
	}
}

func TestALiBi(t *testing.T) {
	slopes := []float32{0.5, 0.25, 1, 2}
	for b := range 2 {
		for h := range 2 {
			for i := range 5 {
				for j := range 9 {
					p := score.Point{S: 3, Batch: b, Head: h, Query: i, Key: j, Position: i + 4}
					distance := math.Abs(float64(i + 4 - j))
					v, slope := value(t, score.ALiBi(slopes[:2]), nil, p)
					assert.Equal(t, []float64{3 - float64(slopes[h])*distance, 1}, []float64{v, slope})
					v, _ = value(t, score.ALiBiFrom(score.Capture("slopes", 2, 2)), score.Data{"slopes": slopes}, p)
					assert.Equal(t, 3-float64(slopes[2*b+h])*distance, v)
				}
			}
		}
	}
}

// Buckets worked out by hand from the formula of Hugging Face Transformers.
func TestT5Bucket(t *testing.T) {
	for r, want := range map[int][2]float64{ // key − position: bidirectional with 32 buckets, and not
		0: {0, 0}, 1: {17, 0}, -1: {1, 1}, 7: {23, 0}, -7: {7, 7}, 8: {24, 0}, -8: {8, 8}, -15: {9, 15}, -16: {10, 16}, 16: {26, 0},
		-32: {12, 21}, -64: {14, 26},
		64: {30, 0}, -127: {15, 31}, 127: {31, 0}, -128: {15, 31}, 128: {31, 0}, -100000: {15, 31}, 100000: {31, 0},
	} {
		for n, bidirectional := range []bool{true, false} {
			f, err := score.New(score.T5Bucket(bidirectional, 32, 128).Float())
			require.NoError(t, err)
			v, _ := value(t, f, nil, score.Point{Position: 200000, Key: 200000 + r})
			assert.Equal(t, want[n], v, "%d, bidirectional %v", r, bidirectional)
		}
	}
}

// Swin's index is a number for each pair of offsets, equal for pairs of equal offsets.
func TestSwinBucket(t *testing.T) {
	const h, w, heads = 3, 4, 2
	table := make([]float32, (2*h-1)*(2*w-1)*heads)
	for i := range table {
		table[i] = float32(i)
	}
	f := score.RelativeBias(score.Table(table, (2*h-1)*(2*w-1), heads), score.SwinBucket(h, w))
	for i := range h * w {
		for j := range h * w {
			v, slope := value(t, f, nil, score.Point{S: 1, Head: 1, Query: i, Key: j})
			bucket := (i/w-j/w+h-1)*(2*w-1) + i%w - j%w + w - 1
			assert.Equal(t, []float64{float64(bucket*heads+1) + 1, 1}, []float64{v, slope})
		}
	}
}

func TestMasks(t *testing.T) {
	ids := []int32{0, 0, 1, 1, 1, 2, 2, 3}
	for name, c := range map[string]struct {
		m    score.MaskFunction
		want func(b, i, p, j int) bool
	}{
		"prefix":    {score.PrefixLM(3), func(_, _, p, j int) bool { return j < 3 || j <= p }},
		"documents": {score.Documents(score.TableInt(ids, 8)), func(_, _, p, j int) bool { return ids[max(p, 0)] == ids[j] }},
		"documents of batch": {score.Documents(score.CaptureInt("ids", 2, 4)),
			func(b, _, p, j int) bool { return ids[4*b+min(max(p, 0), 3)] == ids[4*b+min(j, 3)] }},
		"two kinds of ids": {score.DocumentsOf(score.TableInt(ids[2:], 6), score.CaptureInt("ids", 2, 4)),
			func(b, i, _, j int) bool { return ids[2+min(i, 5)] == ids[4*b+min(j, 3)] }},
		"dilated":           {score.Dilated(3, 1), func(_, _, p, j int) bool { return (p-j)%3 == 0 && max(p-j, j-p) <= 3 }},
		"dilated, no limit": {score.Dilated(2, -1), func(_, _, p, j int) bool { return (p-j)%2 == 0 }},
		"nothing":           {score.MaskFunction{}, func(_, _, _, _ int) bool { return true }},
	} {
		e, err := c.m.Bind(score.Data{"ids": ids})
		require.NoError(t, err)
		for b := range 2 {
			for i := range 8 {
				for j := range 8 {
					p := i - 2
					assert.Equal(t, c.want(b, i, p, j), e.Allows(score.Point{Batch: b, Query: i, Key: j, Position: p}), "%s: %d %d %d",
						name, b, i, j)
				}
			}
		}
	}
	both, err := score.ComposeMasks(score.PrefixLM(0), score.Dilated(2, -1))
	require.NoError(t, err)
	e, err := both.Bind(nil)
	require.NoError(t, err)
	assert.True(t, e.Allows(score.Point{Position: 4, Key: 2}))
	assert.False(t, e.Allows(score.Point{Position: 4, Key: 3}))
	assert.False(t, e.Allows(score.Point{Position: 4, Key: 6}))
}

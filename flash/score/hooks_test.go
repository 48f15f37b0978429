package score_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
)

// The four hooks in a loop over keys, on a device against float64.
func TestHooks(t *testing.T) {
	d := newDevice(t)
	slopes := score.Table([]float32{0.5, 0.25, 0.125, 0.0625, 1, 2}, 2, 3)
	soft := score.Softcap(5)
	bias := score.RelativeBias(score.Capture("bias", 8, 3), score.T5Bucket(true, 8, 12))
	ids := []int32{0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 4, 4, 5, 5}
	for name, c := range map[string]struct {
		functions []score.Function
		mask      score.MaskFunction
		gradient  string
	}{
		"nothing":         {},
		"alibi":           {functions: []score.Function{score.ALiBi([]float32{0.5, 0.25, 0.125})}, mask: score.PrefixLM(4)},
		"alibi per batch": {functions: []score.Function{score.ALiBiFrom(slopes)}, mask: score.Dilated(3, 2)},
		"bias, then cap":  {functions: []score.Function{bias, soft}, mask: score.Documents(score.TableInt(ids, 16)), gradient: "bias"},
		"cap, then bias": {functions: []score.Function{soft, bias}, mask: score.Documents(score.CaptureInt("ids", 1, 16)),
			gradient: "bias"},
		"captured slopes": {functions: []score.Function{score.ALiBiFrom(score.Capture("bias", 8, 3))}, gradient: "bias",
			mask: score.Dilated(4, -1)},
		"bias of a window": {functions: []score.Function{score.RelativeBias(score.Capture("bias", 8, 3), score.SwinBucket(4, 4))},
			gradient: "bias"},
		"only a mask":       {mask: score.PrefixLM(2)},
		"everything masked": {mask: score.PrefixLM(-1000)},
	} {
		for _, module := range []string{"hooks", "hooks16", "hooksfloat"} {
			t.Run(fmt.Sprint(name, "/", module), func(t *testing.T) { testHooks(t, d, module, c.functions, c.mask, c.gradient, ids) })
		}
	}
}

func testHooks(t *testing.T, d *device, module string, functions []score.Function, mask score.MaskFunction, gradient string, ids []int32) {
	const pairs, keys = 24, 16
	f, err := score.Compose(functions...)
	require.NoError(t, err)
	c := score.Code{Score: f, Mask: mask, FirstBinding: 3}
	if gradient != "" {
		c.Gradient, err = f.Gradient(gradient)
		require.NoError(t, err)
	}
	code, err := score.Splice(spirv(t, module), c)
	require.NoError(t, err)
	validate(t, map[string]string{"hooks16": "vulkan1.3"}[module]+map[bool]string{true: "vulkan1.1"}[module != "hooks16"], code)
	tensors, err := c.Captures()
	require.NoError(t, err)

	bias := make([]float32, 24)
	for i := range bias {
		bias[i] = float32(i%7) - 2.5
	}
	data := score.Data{"bias": bias, "ids": ids}
	var points, scores []uint32
	var at []score.Point
	for n := range pairs {
		p := score.Point{Batch: n % 2, Head: n % 3, Query: n % 16, Position: n%16 - 3}
		points = append(points, uint32(p.Batch), uint32(p.Head), uint32(p.Query), uint32(int32(p.Position)))
		for key := range keys {
			s := float32(math.Sin(float64(n*keys+key))) * float32(key)
			switch key {
			case 3:
				s = float32(math.Inf(-1))
			case 4:
				s = 1e30
			}
			q := p
			q.S, q.Key = float64(s), key
			at, scores = append(at, q), append(scores, math.Float32bits(s))
		}
	}
	got := floatsOf(d.run(code, []uint32{pairs, keys, math.Float32bits(1)}, 1, 9*pairs*keys, contents(tensors, data), points, scores))

	value, err := f.Bind(data)
	require.NoError(t, err)
	seen, err := mask.Bind(data)
	require.NoError(t, err)
	weight, err := c.Gradient.Bind(data)
	require.NoError(t, err)
	for i, p := range at {
		v, slope := value.Slope(p)
		w, index := weight.At(p)
		allowed := 0.0
		if seen.Allows(p) {
			allowed = 1
		}
		for n, want := range []float64{v, v, slope, allowed, w, float64(index), v, v, slope} {
			if g := float64(got[9*i+n]); !(g == want || math.Abs(g-want) <= 1e-5+1e-6*math.Abs(want)) {
				t.Fatalf("%+v: result %d is %v, want %v (%v; mask %v)", p, n, g, want, f, mask)
			}
		}
	}
}

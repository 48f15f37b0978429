package score_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
)

// deep is a sum of n terms, one within the other.
func deep(n int) score.Float {
	x := score.S()
	for range n {
		x = x.Add(score.Const(1))
	}
	return x
}

// Mistakes are kept in the expression and told when the function is made: which, and what must be.
func TestMistakes(t *testing.T) {
	s, h := score.S(), score.Head()
	table := score.Table([]float32{1, 2, 3, 4}, 2, 2)
	wide := s
	for i := range 600 {
		wide = wide.Add(s.Mul(score.Const(float64(i))))
	}
	for name, c := range map[string]struct {
		e    score.Float
		says string
	}{
		"zero expression":      {score.Float{}, "zero value"},
		"zero operand":         {s.Add(score.Float{}), "Add: an operand is a zero value"},
		"zero receiver":        {score.Float{}.Tanh(), "Tanh: an operand is a zero value"},
		"zero int":             {score.Int{}.Float(), "Float: an operand"},
		"zero bool":            {score.Bool{}.Select(s, s), "Select: an operand"},
		"zero of a selection":  {s.Less(s).Select(s, score.Float{}), "Select: an operand"},
		"zero index":           {table.At(h, score.Int{}), "At: an operand"},
		"zero tensor":          {score.FloatTensor{}.At(h), "At: the tensor is a zero value"},
		"zero int tensor":      {score.IntTensor{}.At(h).Float(), "At: the tensor is a zero value"},
		"NaN":                  {score.Const(math.NaN()), "must be finite"},
		"infinity":             {s.Add(score.Const(math.Inf(1))), "must be finite"},
		"too large for fp32":   {score.Const(1e39), "must be finite"},
		"integer too large":    {score.ConstInt(1 << 31).Float(), "must fit 32 bits"},
		"one index of two":     {table.At(h), "1 indices into a table of shape [2 2]"},
		"three indices of two": {table.At(h, h, h), "3 indices"},
		"no index":             {table.At(), "0 indices"},
		"too few values":       {score.Table([]float32{1}, 2).At(h), "1 values for a shape [2]"},
		"no values":            {score.Table(nil, 2).At(h), "0 values"},
		"NaN in a table":       {score.Table([]float32{1, float32(math.NaN())}, 2).At(h), "value 1 is NaN"},
		"+∞ in a table":        {score.Table([]float32{float32(math.Inf(1))}, 1).At(h), "+∞"},
		"no name":              {score.Capture("", 2).At(h), "must have a name"},
		"no shape":             {score.Capture("x").At(), "0 dimensions"},
		"five dimensions":      {score.Capture("x", 1, 1, 1, 1, 1).At(h, h, h, h, h), "5 dimensions"},
		"an empty dimension":   {score.Capture("x", 3, 0).At(h, h), "at least 1"},
		"a negative dimension": {score.Capture("x", -1).At(h), "at least 1"},
		"too many elements":    {score.Capture("x", 1<<20, 1<<20).At(h, h), "2³¹−1 elements"},
		"an overflowing shape": {score.Capture("x", math.MaxInt, math.MaxInt, 2).At(h, h, h), "2³¹−1 elements"},
		"two shapes":           {score.Capture("x", 2).At(h).Add(score.Capture("x", 3).At(h)), `"x" is fp32 [2] and also fp32 [3]`},
		"two types":            {score.Capture("x", 2).At(score.CaptureInt("x", 2).At(h)), `"x" is`},
		"too deep":             {deep(2000), "deep"},
		"too large":            {wide, "more than 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := score.New(c.e)
			require.ErrorContains(t, err, c.says)
			assert.True(t, strings.HasPrefix(err.Error(), "score: "), err)
			assert.ErrorContains(t, f.Err(), c.says)
			_, err = score.Compose(score.Function{}, f)
			assert.ErrorContains(t, err, c.says)
			_, err = f.Bind(nil)
			assert.ErrorContains(t, err, c.says)
			_, err = f.Gradient("x")
			assert.ErrorContains(t, err, c.says)
			_, err = score.Splice(spirv(t, "hooks"), score.Code{Score: f})
			assert.ErrorContains(t, err, c.says)
			assert.NotPanics(t, func() { _, _, _ = f.String(), f.CacheKey(), f.Captures() })
		})
	}
}

func TestMistakesOfMasks(t *testing.T) {
	for says, e := range map[string]score.Bool{
		"zero value":             {},
		"may not read S":         score.S().Less(score.Const(1)),
		"And: an operand":        score.Key().Less(score.Query()).And(score.Bool{}),
		"Not: an operand":        score.Bool{}.Not(),
		"Less or Greater: an op": score.Key().Greater(score.Int{}),
	} {
		m, err := score.NewMask(e)
		require.ErrorContains(t, err, says)
		_, err = score.ComposeMasks(m)
		assert.ErrorContains(t, err, says)
		_, err = m.Bind(nil)
		assert.ErrorContains(t, err, says)
		_, err = score.Splice(spirv(t, "hooks"), score.Code{Mask: m})
		assert.ErrorContains(t, err, says)
	}
	for _, m := range []score.MaskFunction{score.Dilated(0, 1), score.Dilated(-2, -1), score.PrefixLM(math.MaxInt),
		score.Documents(score.IntTensor{}),
		score.DocumentsOf(score.CaptureInt("q", 2, 3), score.IntTensor{}), score.Documents(score.CaptureInt("ids", 1, 2, 3))} {
		assert.Error(t, m.Err())
	}
	for _, f := range []score.Function{score.Softcap(0), score.Softcap(-1), score.Softcap(math.NaN()), score.Softcap(math.Inf(1)),
		score.ALiBi(nil),
		score.ALiBiFrom(score.FloatTensor{}), score.RelativeBias(score.FloatTensor{}, score.Key()),
		score.RelativeBias(score.Capture("t", 4), score.Key()),
		score.RelativeBias(score.Capture("t", 4, 2), score.T5Bucket(true, 3, 128)),
		score.RelativeBias(score.Capture("t", 4, 2), score.T5Bucket(false, 32, 16)),
		score.RelativeBias(score.Capture("t", 4, 2), score.T5Bucket(false, math.MaxInt, math.MaxInt)),
		score.RelativeBias(score.Capture("t", 4, 2), score.SwinBucket(0, 3))} {
		assert.Error(t, f.Err())
	}
}

// Functions applied in order count together.
func TestComposeIsLimited(t *testing.T) {
	f, err := score.New(deep(300)) // 300 additions and as many constants
	require.NoError(t, err)
	_, err = score.Compose(f, f)
	assert.ErrorContains(t, err, "more than 1000")
}

// A formula that doubles at every step is long, and its expression small.
func TestSharedExpressions(t *testing.T) {
	for name, step := range map[string]func(x score.Float) score.Float{
		"products":        func(x score.Float) score.Float { return x.Add(x.Mul(x)).Mul(score.Const(0.25)) },
		"sums and bounds": func(x score.Float) score.Float { return x.Add(score.Const(0.5)).Max(x.Neg()) },
	} {
		x := score.S()
		for range 200 {
			x = step(x)
		}
		f, err := score.New(x)
		require.NoError(t, err, name)
		assert.Less(t, len(f.String()), 400, name)
		e, err := f.Bind(nil)
		require.NoError(t, err, name)
		_, slope := e.Slope(score.Point{S: 0.5})
		assert.False(t, math.IsNaN(slope), name)
		code, err := score.Splice(spirv(t, "hooks"), score.Code{Score: f, FirstBinding: 3})
		require.NoError(t, err, name)
		validate(t, "vulkan1.1", code)
	}
}

// What is bound must be there, of the type and the number declared.
func TestBindChecks(t *testing.T) {
	f, err := score.New(score.S().Add(score.Capture("x", 2, 3).At(score.Head(), score.Key())))
	require.NoError(t, err)
	for _, d := range []score.Data{nil, {}, {"y": make([]float32, 6)}, {"x": make([]float32, 5)}, {"x": make([]int32, 6)}, {"x": nil},
		{"x": "six"}} {
		_, err := f.Bind(d)
		assert.ErrorContains(t, err, `"x", a tensor of shape [2 3]`)
	}
	g, err := f.Gradient("x")
	require.NoError(t, err)
	_, err = g.Bind(nil)
	assert.Error(t, err)
}

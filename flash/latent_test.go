package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
)

// latent is a sample whose values are the first columns of its keys.
func latent(t *testing.T, p Problem) *sample {
	s := newSample(t, p)
	for row := range s.p.Batch * s.p.KeyHeads * s.p.KeyLen {
		copy(s.v[row*s.p.ValueDim:(row+1)*s.p.ValueDim], s.k[row*s.p.HeadDim:])
	}
	s.answer(t)
	return s
}

// inKeys puts the view of K that its values are in V's place.
func inKeys(t *testing.T, p Problem, f *Forward) {
	k, v := p.KShape(), p.VShape()
	view, err := f.K.View(0, p.DType, v, [4]int{k[1] * k[2] * k[3], k[2] * k[3], k[3], 1})
	require.NoError(t, err)
	f.V = view
}

// TestKeysInValues: where keys are the first columns of values, which are wider, they begin at one place too, and values are read as such.
func TestKeysInValues(t *testing.T) {
	d := matrixDecodeDevice(t)
	s := newSample(t, Problem{Batch: 1, Heads: 9, KeyHeads: 1, QueryLen: 1, KeyLen: 40, HeadDim: 16, ValueDim: 264, DType: F16})
	for row := range s.p.KeyLen {
		copy(s.k[row*s.p.HeadDim:(row+1)*s.p.HeadDim], s.v[row*s.p.ValueDim:])
	}
	s.answer(t)
	plan := mustPlan(t, d, s.p, WithTier(TierMatrix), WithTuning(map[string]int{"decode": 1}))
	require.Equal(t, "matrix_latent", plan.kernel.Name)
	f := s.tensors(t, d, plainly(t, d))
	var err error
	f.K, err = f.V.View(0, F16, s.p.KShape(), f.V.Strides())
	require.NoError(t, err)
	require.NoError(t, plan.Forward(bg, f))
	s.check(t, plan, f)
}

// TestFloat8InKeys: values that are the first columns of keys of a byte are read with them; their scale is their own.
func TestFloat8InKeys(t *testing.T) {
	d := matrixDecodeDevice(t)
	for _, dtype := range []DType{F8E4M3, F8E5M2} {
		p := Problem{Batch: 2, Heads: 12, KeyHeads: 1, QueryLen: 1, KeyLen: 43, HeadDim: 264, ValueDim: 40, DType: F16,
			KeyType: dtype, ValueType: dtype}
		s := newSample(t, p)
		rows := stored(dtype, s.k, p.HeadDim)
		s.k = rows
		for row := range p.Batch * p.KeyLen {
			for c := range p.ValueDim {
				s.v[row*p.ValueDim+c] = 2 * rows[row*p.HeadDim+c]
			}
		}
		s.answer(t)
		plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"decode": 1}))
		require.Equal(t, "matrix_latent", plan.kernel.Name)
		f := s.tensors(t, d, plainly(t, d))
		f.K, f.KeyScales, f.ValueScales = mustTensor(t, d, dtype, p.KShape()), mustTensor(t, d, F32, [4]int{1, 1, p.Batch, 1}),
			mustTensor(t, d, F32, [4]int{1, 1, p.Batch, 1})
		require.NoError(t, f.K.Upload(bg, rows))
		require.NoError(t, f.KeyScales.Upload(bg, []float32{1, 1}))
		require.NoError(t, f.ValueScales.Upload(bg, []float32{2, 2}))
		var err error
		f.V, err = f.K.View(0, dtype, p.VShape(), f.K.Strides())
		require.NoError(t, err)
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	}
}

// TestLatentTiles: many rows on few wide keys on matrices, whatever the rows, their parts and those of keys and columns; values apart, and
// in the keys.
func TestLatentTiles(t *testing.T) {
	d := matrixDecodeDevice(t)
	grouped := Problem{Batch: 2, Heads: 24, KeyHeads: 2, QueryLen: 2, KeyLen: 83, HeadDim: 264, ValueDim: 40, DType: F16,
		Causal: CausalBottomRight}
	ragged := Problem{Batch: 1, Heads: 19, KeyHeads: 1, QueryLen: 1, KeyLen: 45, HeadDim: 267, ValueDim: 33, DType: F16}
	tall := Problem{Batch: 1, Heads: 40, KeyHeads: 1, QueryLen: 1, KeyLen: 70, HeadDim: 264, ValueDim: 264, DType: F16}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
		short  bool
	}{
		{"as it is chosen", grouped, nil, true},
		{"teams", grouped, map[string]int{"w": 4, "teams": 2, "split": 2, "keys": 1, "stages": 1}, false},
		{"columns in parts", grouped, map[string]int{"w": 8, "teams": 2, "split": 4, "keys": 2, "parts": 3}, false},
		{"an owner of four", grouped, map[string]int{"w": 8, "teams": 1, "split": 4, "keys": 2, "parts": 2, "prefetch": 3,
			"stages": 1}, false},
		{"ragged", ragged, map[string]int{"w": 8, "teams": 2, "split": 4, "keys": 1}, true},
		{"several dispatches", tall, map[string]int{"w": 8, "teams": 2, "split": 4, "keys": 2, "max_groups": 2, "parts": 2}, false},
		{"rows that see nothing", Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 8, KeyLen: 5, HeadDim: 264, ValueDim: 16, DType: F16,
			Causal: CausalBottomRight}, map[string]int{"w": 4, "teams": 1, "split": 4, "keys": 1}, false},
		{"window", Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 5, KeyLen: 90, HeadDim: 264, ValueDim: 8, DType: F16,
			Causal: CausalBottomRight, Window: SlidingWindow(40, 0)}, map[string]int{"parts": 2}, false},
		{"negative scale", Problem{Batch: 1, Heads: 9, KeyHeads: 1, QueryLen: 1, KeyLen: 50, HeadDim: 264, ValueDim: 8, DType: F16,
			Scale: -0.1}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.short {
				vktest.Long(t, "these one at a time, and wide heads of the conformance suite")
			}
			step := stepOf(matrixFragment(d))
			tuning := map[string]int{"decode": 1}
			for name, n := range test.tuning {
				if tuning[name] = n; name == "keys" {
					tuning[name] = n * step
				}
			}
			for _, within := range []bool{false, true} {
				s := newSample(t, test.p)
				if within {
					s = latent(t, test.p)
				}
				plan := mustPlan(t, d, s.p, WithTier(TierMatrix), WithTuning(tuning))
				require.Equal(t, "matrix_latent", plan.kernel.Name)
				f := s.tensors(t, d, plainly(t, d))
				if within {
					inKeys(t, s.p, &f)
				}
				require.NoError(t, plan.Forward(bg, f))
				first := s.check(t, plan, f)
				s.poison(t, f)
				require.NoError(t, plan.Forward(bg, f))
				require.Equal(t, first, download(t, f.O), "the same inputs, the same bits")
			}
		})
	}
}

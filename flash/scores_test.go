package flash

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// TestScores: the scores and the weights that standard attention stores are those of attention in float64, whatever the matrix is cut into,
// and nothing that a query does not see shows in them.
func TestScores(t *testing.T) {
	d := testDevice(t)
	for i, causal := range []Causal{CausalNone, CausalBottomRight, CausalTopLeft} {
		window := []Window{{}, SlidingWindow(30, -1), {}}[i]
		p := Problem{Window: window, Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: 139, HeadDim: 8,
			DType: []DType{F16, F32, F32}[i], Causal: causal, Scale: 0.7}
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			for _, slab := range []int{0, 70000} {
				if slab > 0 {
					opts = append(opts, WithTuning(map[string]int{"max_slab": slab}))
				}
				plan, err := d.Plan(p, opts...)
				if err != nil { // there are no slabs in other kernels
					require.ErrorIs(t, err, ErrArgument)
					continue
				}
				s := newSample(t, p)
				f := s.tensors(t, d, plainly(t, d))
				got := make([]float32, 2*4*150*139)
				if plan.Implementation() != Standard {
					require.ErrorContains(t, plan.Scores(bg, f, got), "others store no scores")
					require.NoError(t, plan.Close())
					return
				}
				for stage, what := range map[ref.Stage]func() error{
					ref.Masked: func() error { return plan.Scores(bg, Forward{Q: f.Q, K: f.K}, got) },
					ref.Weights: func() error {
						w, err := plan.NewWeights()
						require.NoError(t, err)
						f := f
						f.Weights = w
						require.NoError(t, plan.Forward(bg, f))
						require.NoError(t, w.Download(bg, got))
						return w.Close()
					},
				} {
					require.NoError(t, what())
					want, err := ref.Matrix(s.in, stage)
					require.NoError(t, err)
					tolerance := map[DType]float64{F32: 2e-6, F16: 2e-3}[p.DType]
					for i, w := range want.Data {
						if g := float64(got[i]); g != w && (math.IsInf(w, 0) || !(math.Abs(g-w) <= tolerance*(1+math.Abs(w)))) {
							t.Fatalf("%v[%d] is %v, want %v", stage, i, g, w)
						}
					}
				}
				require.NoError(t, plan.Close())
			}
		})
	}
}

// TestScoresOfLengths: of batch entries with lengths, too, the scores and weights that are stored are those of attention in float64, and
// what lies beyond the lengths is hidden, whatever stood there.
func TestScoresOfLengths(t *testing.T) {
	d := testDevice(t)
	for i, causal := range []Causal{CausalNone, CausalBottomRight, CausalTopLeft} {
		p := Problem{Batch: 4, Heads: 2, KeyHeads: 1, QueryLen: 50, KeyLen: 61, HeadDim: 8, DType: []DType{F16, F32, F32}[i],
			Causal: causal, KeyLengths: true, QueryLengths: i != 2}
		if i == 1 {
			p.ScoreFunction = score.Softcap(3)
		}
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			plan, err := d.Plan(p, opts...)
			require.NoError(t, err)
			defer func() { require.NoError(t, plan.Close()) }()
			if plan.Implementation() != Standard {
				return
			}
			m, s := newPackedTensors(t, d), newSample(t, p)
			f := s.tensors(t, d, plainly(t, d))
			s.in.Score, s.in.KeyLens = p.ScoreFunction, []int{61, 0, 17, 40}
			f.KeyLengths = m.ints(s.in.KeyLens...)
			if p.QueryLengths {
				s.in.QueryLens = []int{50, 50, 20, 0}
				f.QueryLengths = m.ints(s.in.QueryLens...)
			}
			w, err := plan.NewWeights()
			require.NoError(t, err)
			defer func() { require.NoError(t, w.Close()) }()
			f.Weights = w
			got := make([]float32, p.Batch*p.Heads*p.QueryLen*p.KeyLen)
			for stage, make := range map[ref.Stage]func() error{
				ref.Masked:  func() error { return plan.Scores(bg, f, got) },
				ref.Weights: func() error { return errors.Join(plan.Forward(bg, f), w.Download(bg, got)) },
			} {
				require.NoError(t, make())
				want, err := ref.Matrix(s.in, stage)
				require.NoError(t, err)
				tolerance := map[DType]float64{F32: 3e-6, F16: 2e-3}[p.DType]
				for i, w := range want.Data {
					if g := float64(got[i]); g != w && (math.IsInf(w, 0) || !(math.Abs(g-w) <= tolerance*(1+math.Abs(w)))) {
						t.Fatalf("%v[%d] is %v, want %v", stage, i, g, w)
					}
				}
			}
		})
	}
}

// TestDroppedWeights: dropout sets signs.
func TestDroppedWeights(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 30, HeadDim: 8, DType: F32, Dropout: 0.5}
	plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar))
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	var err error
	f.Weights, err = plan.NewWeights()
	require.NoError(t, err)
	require.NoError(t, plan.Forward(bg, f))
	got := make([]float32, 2*20*30)
	require.NoError(t, f.Weights.Download(bg, got))
	want, err := ref.Matrix(s.in, ref.Weights)
	require.NoError(t, err)
	dropped := 0
	for i, w := range want.Data {
		require.InDelta(t, w, math.Abs(float64(got[i])), 2e-6)
		if math.Signbit(float64(got[i])) {
			dropped++
		}
	}
	require.InDelta(t, 600, dropped, 120)
	require.NoError(t, f.Weights.Close())
	require.NoError(t, plan.Close())
}

// TestBadScores: what does not fit is named, and nothing is left behind.
func TestBadScores(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, KeyLen: 30, HeadDim: 8, DType: F32}
	plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar))
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	room := make([]float32, 2*20*30)
	before := d.Usage().Asked
	for _, test := range []struct {
		f    Forward
		room []float32
		want string
	}{
		{Forward{K: f.K}, room, "Forward.Q is nil"},
		{Forward{Q: f.Q}, room, "Forward.K is nil"},
		{Forward{Q: f.K, K: f.K}, room, "Forward.Q is float32[1 2 30 8]"},
		{f, room[1:], "len(s) is 1199: must be 1200, for shape [1 2 20 30]"},
	} {
		err := plan.Scores(bg, test.f, test.room)
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, test.want)
	}
	ended, cancel := context.WithCancel(bg)
	cancel()
	require.ErrorIs(t, plan.Scores(ended, f, room), context.Canceled)
	w, err := plan.NewWeights()
	require.NoError(t, err)
	require.ErrorContains(t, w.Download(bg, room[1:]), "len(p) is 1199")
	require.NoError(t, w.Close())
	require.ErrorIs(t, w.Download(bg, room), ErrClosed)
	require.ErrorIs(t, (*Weights)(nil).Download(bg, room), ErrArgument)
	require.ErrorIs(t, new(Weights).Download(bg, room), ErrArgument)
	require.Equal(t, before, d.Usage().Asked)
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Scores(bg, f, room), ErrClosed)
	require.ErrorIs(t, new(Plan).Scores(bg, f, room), ErrArgument)
}

// TestScoresBesideSinks: a problem's sinks come behind its scores, which are the same without them, and are not asked for.
func TestScoresBesideSinks(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 9, KeyLen: 11, HeadDim: 8, DType: F32, Causal: CausalBottomRight}
	s := newSample(t, p)
	f := s.tensors(t, d, plainly(t, d))
	want, got := make([]float32, 2*9*11), make([]float32, 2*9*11)
	require.NoError(t, mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar)).Scores(bg, Forward{Q: f.Q, K: f.K}, want))
	p.Sinks = true
	require.NoError(t, mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar)).Scores(bg, Forward{Q: f.Q, K: f.K}, got))
	require.Equal(t, want, got)
	require.NotZero(t, got[0])
}

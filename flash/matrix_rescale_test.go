package flash

import (
	"fmt"
	"maps"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestMatrixRescalesInTime: where chunks are looked at, by the maximum or by the sum, a row's reference follows before a weight passes the
// largest fp16, however fast scores grow from tile to tile. In form 2 weights pass through memory as halves; in form 1 a driver may leave
// them as they are, as lavapipe does.
func TestMatrixRescalesInTime(t *testing.T) {
	d := matrixDevice(t)
	step := stepOf(matrixFragment(d))
	p := Problem{Batch: 1, Heads: 1, QueryLen: 9, KeyLen: 6 * step, HeadDim: 8, DType: F16, Scale: math.Ln2}
	for _, first := range []int{0, 1} {
		t.Run(fmt.Sprintf("max_first=%d", first), func(t *testing.T) {
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, map[string]int{"w": 1, "rm": 1, "bc": 1,
				"ck": 1, "late": 0, "max_first": first, "form": kernel.FormRows})))
			testRescaling(t, d, plan, step, 13, 17, 25)
			require.NoError(t, plan.Close())
		})
	}
}

// TestMatrixLate: with late=1 growth is looked for behind the loop without masks, which then runs again with a look at each chunk. Here
// scores grow in the first tiles, in the last, past the tiles after which sums are looked at, or nowhere; in every way of fetching, with
// weights summed by lanes and by products.
func TestMatrixLate(t *testing.T) {
	d := matrixDevice(t)
	f := matrixFragment(d)
	step := stepOf(f)
	for i, test := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{KeyLen: 130 * step}, map[string]int{"prefetch": 0, "max_first": 1, "pipe": 1, "bc": 2}},
		{Problem{KeyLen: 7 * step}, map[string]int{"prefetch": 1, "max_first": 1, "form": kernel.FormRows}},
		{Problem{KeyLen: 7*step - 3, Causal: CausalBottomRight}, map[string]int{"prefetch": 2, "max_first": 0, "bc": 2}},
		{Problem{KeyLen: 12 * step, Causal: CausalBottomRight, Window: SlidingWindow(5*step, -1)},
			map[string]int{"prefetch": 3, "max_first": 1}},
		{Problem{KeyLen: 9 * step, Causal: CausalTopLeft, QueryLen: 9 * step},
			map[string]int{"prefetch": 4, "max_first": 1, "steps": 1, "form": kernel.FormRows}},
		{Problem{KeyLen: 9 * step}, map[string]int{"prefetch": 5, "max_first": 1, "steps": 1}},
		{Problem{KeyLen: 132 * step}, map[string]int{"prefetch": 3, "max_first": 1, "pipe": 1, "bc": 4, "ck": 2,
			"sums": 1, "look_apart": 1}},
		{Problem{KeyLen: 67*step - 3, Causal: CausalBottomRight}, map[string]int{"prefetch": 4, "bc": 2, "ck": 2, "sums": 1}},
		{Problem{KeyLen: 7 * step}, map[string]int{"prefetch": 1, "max_first": 1, "form": kernel.FormRows, "sums": 1}},
		{Problem{KeyLen: 67 * step}, map[string]int{"prefetch": 5, "max_first": 1, "steps": 1, "look_apart": 1}},
	} {
		p := test.p
		p.Batch, p.Heads, p.HeadDim, p.DType, p.Scale = 1, 2, 8, F16, math.Ln2
		if p.QueryLen == 0 {
			p.QueryLen = 2*f.M + 3
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if i%2 == 0 {
				vktest.Long(t, "every other way of fetching")
			}
			tuning := map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "late": 1 + i%2}
			maps.Copy(tuning, test.tuning)
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
			require.Equal(t, tuning["late"], plan.ForwardInfo().Tuning["late"])
			require.Equal(t, tuning["sums"], plan.ForwardInfo().Tuning["sums"])
			require.Equal(t, tuning["look_apart"], plan.ForwardInfo().Tuning["look_apart"])
			testRescaling(t, d, plan, step, 0, 0.1, 4, 17)
			require.NoError(t, plan.Close())
		})
	}
}

// TestMatrixLateTurned: with late=3 the tiles that go first are those of the diagonal or, of functions without a mask, of a block's own
// positions; rows get their references there. Scores fall, so that the first keys are the largest, or grow, in every way of fetching.
func TestMatrixLateTurned(t *testing.T) {
	d := matrixDevice(t)
	f := matrixFragment(d)
	step := stepOf(f)
	alibi := score.ALiBi([]float32{0.4, 0.02})
	length := score.ConstInt(8 * step)
	documents := madeMask(t, score.Query().Div(length).Equal(score.Key().Div(length)))
	tiles := Blocks{Queries: 4 * step, Keys: 2 * step}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"causal", Problem{KeyLen: 7*step - 3, Causal: CausalBottomRight}, map[string]int{"prefetch": 0, "max_first": 1, "bc": 2}},
		{"rows without keys", Problem{KeyLen: 3 * step, QueryLen: 5*step + 1, Causal: CausalBottomRight},
			map[string]int{"prefetch": 1, "max_first": 1}},
		{"rows that see all", Problem{KeyLen: 3 * step, QueryLen: 9 * step, Causal: CausalTopLeft},
			map[string]int{"prefetch": 2, "max_first": 1}},
		{"a row ends with a tile", Problem{KeyLen: 9*step - 1, QueryLen: 4 * step, Causal: CausalBottomRight},
			map[string]int{"prefetch": 3, "max_first": 1, "form": kernel.FormRows}},
		{"window", Problem{KeyLen: 12 * step, QueryLen: 12 * step, Causal: CausalBottomRight, Window: SlidingWindow(5*step, -1)},
			map[string]int{"prefetch": 4, "max_first": 1, "steps": 1, "pipe": 1}},
		{"window, narrow", Problem{KeyLen: 6 * step, QueryLen: 6 * step, Window: SlidingWindow(step/2, 2)},
			map[string]int{"prefetch": 3, "max_first": 1}},
		{"many tiles", Problem{KeyLen: 130 * step}, map[string]int{"prefetch": 5, "max_first": 1, "steps": 1}},
		{"alibi", Problem{KeyLen: 10 * step, QueryLen: 10 * step, ScoreFunction: alibi}, map[string]int{"prefetch": 4, "max_first": 1}},
		{"alibi, causal", Problem{KeyLen: 8*step + 1, Causal: CausalBottomRight, ScoreFunction: alibi},
			map[string]int{"prefetch": 1, "max_first": 0}},
		{"softcap, in parts", Problem{KeyLen: 12 * step, ScoreFunction: score.Softcap(50)},
			map[string]int{"prefetch": 1, "max_first": 1, "parts": 3}},
		{"causal, in parts", Problem{KeyLen: 9 * step, QueryLen: 5 * step, Causal: CausalBottomRight},
			map[string]int{"prefetch": 2, "max_first": 1, "parts": 3}},
		{"documents", Problem{KeyLen: 16 * step, QueryLen: 16 * step, Causal: CausalTopLeft, MaskFunction: documents, MaskBlocks: tiles},
			map[string]int{"prefetch": 4, "max_first": 1, "steps": 1}},
		{"documents, no edges", Problem{KeyLen: 16 * step, QueryLen: 16 * step, MaskFunction: documents, MaskBlocks: tiles},
			map[string]int{"prefetch": 1, "max_first": 1}},
	} {
		p := test.p
		p.Batch, p.Heads, p.HeadDim, p.DType, p.Scale = 1, 2, 8, F16, math.Ln2
		if p.QueryLen == 0 {
			p.QueryLen = 2*f.M + 3
		}
		t.Run(test.name, func(t *testing.T) {
			tuning := map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "late": 3}
			maps.Copy(tuning, test.tuning)
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
			require.Equal(t, 3, plan.ForwardInfo().Tuning["late"])
			testRescaling(t, d, plan, step, -17, -4, -0.1, 4)
			require.NoError(t, plan.Close())
		})
	}
}

// testRescaling runs a plan on scores that grow so much, in log 2, from one step of keys to the next, and checks the outputs. The plan's
// scale is ln 2.
func testRescaling(t *testing.T, d *Device, plan *Plan, step int, growths ...float32) {
	t.Helper()
	p := plan.Problem()
	for _, growth := range growths {
		t.Run(fmt.Sprint(growth), func(t *testing.T) {
			s := newSample(t, p)
			clear(s.q)
			clear(s.k)
			for i := range p.QueryLen {
				s.q[i*p.HeadDim] = 1 / float32(1+i%3)
			}
			for j := range p.KeyLen {
				s.k[j*p.HeadDim] = growth * float32(j/step)
			}
			s.in.Score, s.in.Sees = p.ScoreFunction, p.MaskFunction
			s.answer(t)
			f := s.tensors(t, d, plainly(t, d))
			if !p.MaskFunction.Everything() {
				m, err := d.NewMaskBlocks(bg, p)
				require.NoError(t, err)
				defer m.Close()
				f.MaskBlocks = m
			}
			require.NoError(t, plan.Forward(bg, f))
			s.check(t, plan, f)
		})
	}
}

// answer computes what is right anew, of inputs that were changed.
func (s *sample) answer(t *testing.T) {
	t.Helper()
	tensor := func(shape [4]int, data []float32) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		copy(x.Data, ref.DType(s.p.DType).RoundAll(data))
		return x
	}
	rp := s.in
	rp.Q, rp.K, rp.V = tensor(s.p.QShape(), s.q), tensor(s.p.KShape(), s.k), tensor(s.p.VShape(), s.v)
	o, lse, err := ref.Forward(rp)
	require.NoError(t, err)
	plain, plainLSE, err := ref.PlainForward(rp, ref.DType(s.p.DType))
	require.NoError(t, err)
	s.o, s.lse, s.plain, s.plainLSE = o.Data, lse.Data, plain.Data, plainLSE.Data
}

// TestLateRefused: growth that cannot be looked for behind the loop is a named error where it is asked for, and no row's choice.
func TestLateRefused(t *testing.T) {
	d := matrixDevice(t)
	base := Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 8, DType: F16}
	logits, blocks := base, base
	logits.MaxLogit = true
	blocks.Blocks = Blocks{Queries: 32, Keys: 32}
	cached, single := base, base
	cached.Pages, single.DType = Pages{Size: 16, Count: 8, PerSequence: 4}, F32
	for name, x := range map[string]struct {
		p      Problem
		of     Implementation
		tuning map[string]int
	}{
		"largest score": {logits, Flash, nil},
		"form 3":        {base, Flash, map[string]int{"form": kernel.FormShared}},
		"blocks":        {blocks, Flash, nil},
		"keys outside":  {base, Flash1, nil},
		"cache":         {cached, Flash, nil},
		"fp32":          {single, Flash, nil},
	} {
		opts := []PlanOption{WithImplementation(x.of), WithTier(TierMatrix)}
		plan := mustPlan(t, d, x.p, append(opts, WithTuning(x.tuning))...)
		require.Zero(t, plan.ForwardInfo().Tuning["late"], name)
		tuning := map[string]int{"late": 3}
		if x.p.Pages == (Pages{}) && x.p.DType != F32 { // others only may not begin with masked tiles
			tuning["late"] = 1
		}
		maps.Copy(tuning, x.tuning)
		_, err := d.Plan(x.p, append(opts, WithTuning(tuning))...)
		require.ErrorIs(t, err, ErrArgument, name)
		require.ErrorContains(t, err, "late", name)
	}
	classed := base // which may begin with masked tiles
	classed.MaskFunction, classed.MaskBlocks = madeMask(t, score.Query().GreaterEqual(score.Key())), blocks.Blocks
	_, err := d.Plan(classed, WithTier(TierMatrix), WithTuning(map[string]int{"late": 1}))
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "with classes of blocks it must be 0 or 3")
	mustPlan(t, d, classed, WithTier(TierMatrix), WithTuning(map[string]int{"late": 3}))
}

// TestSumsRefused: sums by products without the loop they are for are a named error where they are asked for.
func TestSumsRefused(t *testing.T) {
	d := matrixDevice(t)
	base := Problem{Batch: 1, Heads: 2, QueryLen: 64, KeyLen: 64, HeadDim: 8, DType: F16}
	dropped, window := base, base
	dropped.Dropout = 0.25
	window.Window = SlidingWindow(13, -1)
	for name, x := range map[string]struct {
		p    Problem
		late int
	}{"a look at each chunk": {base, 0}, "dropout": {dropped, 1}, "a window": {window, 1}} {
		_, err := d.Plan(x.p, WithTier(TierMatrix), WithTuning(map[string]int{"late": x.late, "sums": 1}))
		require.ErrorIs(t, err, ErrArgument, name)
		require.ErrorContains(t, err, "sums", name)
	}
}

package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/maskdraw"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// madeMask is the mask function of a condition.
func madeMask(t *testing.T, allowed score.Bool) score.MaskFunction {
	m, err := score.NewMask(allowed)
	require.NoError(t, err)
	return m
}

// tensorOfInts puts a captured tensor on a device.
func tensorOfInts(t *testing.T, d *Device, values []int32) *Tensor {
	x, err := d.NewTensor(Int32, 1, 1, 1, len(values))
	require.NoError(t, err)
	require.NoError(t, x.Upload(bg, floatsOf(values)))
	return x
}

func floatsOf(values []int32) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}

// TestMaskClasses: over random expressions, shapes, bounds and blocks the device's bits are those of asking every pair, of rows and of
// columns, and no bit stands beyond the last block; so are they in a second run over what the first one left.
func TestMaskClasses(t *testing.T) {
	d := testDevice(t)
	r := rand.New(rand.NewPCG(3, 5))
	var all [3]int // blocks of each class
	cases := 60
	if testing.Short() {
		cases = 20
	}
	for i := range cases {
		p := Problem{Batch: 1 + r.IntN(3), Heads: 1 + r.IntN(3), QueryLen: 1 + r.IntN(200), KeyLen: 1 + r.IntN(200), HeadDim: 8,
			Causal:     Causal(r.IntN(3)),
			MaskBlocks: Blocks{Queries: 1 + r.IntN(40), Keys: 1 + r.IntN(40)}, MaskFunction: madeMask(t, maskdraw.Condition(r))}
		if i%10 == 0 { // more than one word
			p.KeyLen, p.QueryLen, p.MaskBlocks = 100+r.IntN(100), 100+r.IntN(100), Blocks{Queries: 1 + r.IntN(3), Keys: 1 + r.IntN(3)}
		}
		if r.IntN(3) == 0 {
			p.Window = SlidingWindow(r.IntN(100)-1, r.IntN(100)-1)
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		m, err := d.NewMaskBlocks(bg, p)
		require.NoError(t, err)
		require.NoError(t, m.Update(bg))

		sees, err := p.MaskFunction.Bind(nil)
		require.NoError(t, err)
		shape := p.MaskShape()
		require.Equal(t, p.MaskBlocks.PerBatch, p.MaskFunction.ByBatch())
		some, hidden := make([]bool, shape[0]*shape[1]*shape[2]), make([]bool, shape[0]*shape[1]*shape[2])
		left, right := p.Window.Reach()
		for b := range p.Batch { // all of them, whatever the expression depends on
			for h := range p.Heads {
				mask := 0
				if p.MaskBlocks.PerBatch {
					mask = b
				}
				if p.MaskBlocks.PerHead {
					mask = mask*p.Heads + h
				}
				for q := range p.QueryLen {
					for k := range p.KeyLen {
						at := q + p.KeyLen - p.QueryLen
						if p.Causal == CausalBottomRight && k > at || p.Causal == CausalTopLeft && k > q || left >= 0 && k < at-left ||
							right >= 0 && k > at+right {
							continue
						}
						block := (mask*shape[1]+q/p.MaskBlocks.Queries)*shape[2] + k/p.MaskBlocks.Keys
						if sees.Allows(score.Point{Batch: b, Head: h, Query: q, Key: k, Position: at}) {
							some[block] = true
						} else {
							hidden[block] = true
						}
					}
				}
			}
		}
		whole := make([]bool, len(some))
		var of [3]int
		for j := range some {
			whole[j] = some[j] && !hidden[j]
			switch {
			case whole[j]:
				of[1]++
			case some[j]:
				of[2]++
			default:
				of[0]++
			}
		}
		raw := make([]byte, 4*kernel.ClassWords(attnOf(p)))
		require.NoError(t, m.words.DownloadBytes(bg, raw))
		require.Equal(t, kernel.PackClasses(shape, some, whole), raw, "%v", p)
		none, wholes, edges, err := m.Count(bg)
		require.NoError(t, err)
		require.Equal(t, of, [3]int{none, wholes, edges})
		for c := range all {
			all[c] += of[c]
		}
		require.NoError(t, m.Close())
	}
	for c, n := range all {
		require.Greater(t, n, 1000, "blocks of class %d", c)
	}
}

// classed runs both passes of a problem, whose mask functions capture documents of the keys, times times, and gives o, lse, dq, dk and dv.
func classed(t *testing.T, d *Device, plan *Plan, s *sample, m *MaskBlocks, ids *Tensor, times int) (out [5][]float32) {
	p := plan.Problem()
	f := s.tensors(t, d, plainly(t, d))
	f.MaskBlocks = m
	if ids != nil {
		f.Captured[0] = ids
	}
	do := randomValues(rand.New(rand.NewPCG(1, 9)), p.DType, p.OShape())
	like := plainly(t, d)
	b := Backward{Forward: f, DO: like(p.DType, p.OShape()), DQ: like(p.DType, p.QShape()), DK: like(p.DType, p.KShape()),
		DV: like(p.DType, p.VShape())}
	require.NoError(t, b.DO.Upload(bg, do))
	defer closeAll(t, f.Q, f.K, f.V, f.O, f.LSE, b.DO, b.DQ, b.DK, b.DV)
	for i := range times {
		s.poison(t, f)
		require.NoError(t, plan.Forward(bg, f))
		require.NoError(t, plan.Backward(bg, b))
		now := [5][]float32{download(t, f.O), download(t, f.LSE), download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
		if i > 0 {
			for j := range now {
				require.True(t, slices.EqualFunc(now[j], out[j],
					func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }), "output %d of run %d", j, i)
			}
		}
		out = now
	}
	return out
}

// right checks the outputs of classed against float64.
func right(t *testing.T, p Problem, s *sample, out [5][]float32) {
	t.Helper()
	wrong, err := kernel.CompareForward(attnOf(p), &s.in, out[0], out[1])
	require.NoError(t, err)
	require.Empty(t, wrong)
	do := ref.NewTensor(p.Batch, p.Heads, p.QueryLen, p.ValueDim)
	copy(do.Data, randomValues(rand.New(rand.NewPCG(1, 9)), p.DType, p.OShape()))
	want, err := ref.Backward(s.in, do, nil)
	require.NoError(t, err)
	closeTo(t, p, [3][]float32(out[2:]), want)
}

// TestMaskTiles: whatever the tiles are and whatever is fetched ahead, both passes give what float64 gives, and 50 runs the same bits:
// blocks of whole tiles and of others, none, whole and edges, with bounds that cut them or without.
func TestMaskTiles(t *testing.T) {
	vktest.Long(t, "mask functions of the conformance suite")
	d := testDevice(t)
	documents := func(keys, each int) (ids []int32) {
		for j := range keys {
			ids = append(ids, int32(j/each))
		}
		return ids
	}
	problem := func(keys int, dtype DType, causal Causal, b Blocks) Problem {
		return Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: keys, HeadDim: 8, ValueDim: 16, DType: dtype, Causal: causal,
			MaskBlocks: b}
	}
	with := func(p Problem, set func(*Problem)) Problem { set(&p); return p }
	window := func(p *Problem) { p.Window = SlidingWindow(110, 20) }
	capped := func(p *Problem) { p.ScoreFunction = score.Softcap(2) }
	byHead := func(p *Problem) {
		p.MaskFunction = madeMask(t,
			score.Key().Div(score.ConstInt(45)).Add(score.Query().Div(score.ConstInt(70))).Add(score.Head()).Add(score.Batch()).
				Mod(score.ConstInt(3)).Greater(score.ConstInt(0)))
	}
	tiles, odd := Blocks{Queries: 32, Keys: 32}, Blocks{Queries: 20, Keys: 12}
	forward := func(bc, prefetch int, more ...any) map[string]int {
		m := map[string]int{"w": 2, "rm": 1, "bc": bc, "ck": 1, "prefetch": prefetch}
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1].(int)
		}
		return m
	}
	backward := func(bc, prefetch int, form ...int) map[string]int {
		m := map[string]int{}
		for _, part := range []string{"kv_", "q_"} {
			m[part+"w"], m[part+"rm"], m[part+"bc"], m[part+"ck"], m[part+"prefetch"] = 2, 1, bc, 1, prefetch
		}
		if len(form) > 0 {
			m["form"] = form[0]
		}
		return m
	}
	for _, c := range []struct {
		name          string
		p             Problem
		tier          Tier
		tune, tuneOwn map[string]int
		times         int
		long          bool // -short leaves it out
	}{
		{"as chosen", with(problem(230, F32, CausalBottomRight, odd), byHead), TierScalar, nil, nil, 1, false},
		{"tiles", problem(230, F16, CausalBottomRight, tiles), TierScalar, nil, map[string]int{"kv_br": 32, "kv_bc": 32, "q_br": 32,
			"q_bc": 32}, 50, false},
		{"nothing ahead", problem(230, F16, CausalBottomRight, tiles), TierMatrix, forward(1, 0), backward(2, 0), 1, true},
		{"a tile ahead", with(problem(230, F16, CausalTopLeft, tiles), byHead), TierMatrix, forward(2, 1, "pipe", 1, "late", 3),
			backward(2, 1), 1, true},
		{"a tile ahead, odd", with(problem(230, F16, CausalBottomRight, odd), capped), TierMatrix, forward(1, 2, "max_first", 1),
			backward(2, 1), 1, true},
		{"two tiles", with(problem(230, F16, CausalBottomRight, tiles), window), TierMatrix, forward(1, 3, "late", 3),
			backward(1, 2), 50, false},
		{"two tiles, heads", with(problem(256, F16, CausalNone, tiles), byHead), TierMatrix, forward(2, 4, "steps", 1, "whole", 1),
			backward(2, 2), 1, true},
		{"two tiles, odd", with(problem(256, F16, CausalNone, odd), window), TierMatrix, forward(1, 5, "late", 3), backward(1, 2), 1, true},
		{"form 2", with(problem(230, F16, CausalNone, tiles), capped), TierMatrix,
			forward(1, 3, "form", 2, "late", 3), backward(1, 1, 2), 1, true},
		{"form 3", with(problem(230, F16, CausalBottomRight, tiles), byHead), TierMatrix, forward(2, 1, "form", 3),
			backward(1, 2, 3), 1, true},
	} {
		t.Run(c.name+"/"+string(c.tier), func(t *testing.T) {
			if c.long {
				vktest.Long(t, "the same ways with other masks")
			}
			vktest.Budget(t)
			var ids []int32
			var captured *Tensor
			if c.p.MaskFunction.Everything() {
				c.p.MaskFunction = score.Documents(score.CaptureInt("ids", c.p.KeyLen))
				ids = documents(c.p.KeyLen, 75)
				captured = tensorOfInts(t, d, ids)
				defer closeAll(t, captured)
			}
			p, err := c.p.Normalize()
			require.NoError(t, err)
			if c.tier == TierMatrix {
				c.tune, c.tuneOwn = forwardTile(t, d, Flash, p, c.tune), backwardTile(t, d, Flash, p, c.tuneOwn)
			}
			plan, err := d.Plan(p, WithTier(c.tier), WithTuning(c.tune), WithBackwardTuning(c.tuneOwn))
			if no := (*UnsupportedError)(nil); errors.As(err, &no) && !no.Denied {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer plan.Close()
			require.Contains(t, plan.String(), fmt.Sprintf("classes %v", p.MaskBlocks))
			info, err := plan.BackwardInfo()
			require.NoError(t, err)
			require.Equal(t, c.tier, info.Tier)
			s := newSample(t, p)
			s.in.Sees, s.in.Score = p.MaskFunction, p.ScoreFunction
			var given []*Tensor
			if captured != nil {
				given, s.in.Captured = append(given, captured), score.Data{"ids": ids}
			}
			m, err := d.NewMaskBlocks(bg, p, given...)
			require.NoError(t, err)
			defer m.Close()
			none, whole, edge, err := m.Count(bg)
			require.NoError(t, err)
			require.Positive(t, none)
			require.Positive(t, whole)
			require.Positive(t, edge)
			right(t, p, s, classed(t, d, plan, s, m, captured, c.times))
		})
	}
}

// TestMaskAsks: of blocks that are whole functions are not asked, and those of none are left out, in either pass: when what the functions
// capture changes behind the mask's back, they stay what they were. An edge is asked.
func TestMaskAsks(t *testing.T) {
	d := testDevice(t)
	for _, tier := range []Tier{TierScalar, TierMatrix} {
		const n, block = 128, 32
		p, err := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: n, KeyLen: n, HeadDim: 16, DType: F16,
			MaskBlocks:   Blocks{Queries: block, Keys: block},
			MaskFunction: score.Documents(score.CaptureInt("ids", n))}).Normalize()
		require.NoError(t, err)
		tune := map[string]int{"br": 32, "bc": 32}
		if tier == TierMatrix { // tiles of blocks
			tune = forwardTile(t, d, Flash, p, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1})
		}
		backward := map[string]int{}
		for _, part := range []string{"kv_", "q_"} {
			if tier == TierMatrix {
				backward[part+"w"], backward[part+"rm"], backward[part+"bc"], backward[part+"ck"] = 2, 1, 2, 1
			} else {
				backward[part+"br"], backward[part+"bc"] = 32, 32
			}
		}
		if tier == TierMatrix {
			backward = backwardTile(t, d, Flash, p, backward)
		}
		plan, err := d.Plan(p, WithTier(tier), WithTuning(tune), WithBackwardTuning(backward))
		if no := (*UnsupportedError)(nil); errors.As(err, &no) && !no.Denied {
			t.Log(err)
			continue
		}
		require.NoError(t, err)
		ids := make([]int32, n)
		for j := range ids {
			ids[j] = int32(min(j/64, 1))
			if j >= 96 && j%2 == 0 { // blocks with the last keys are edges
				ids[j] = 2
			}
		}
		x := tensorOfInts(t, d, ids)
		m, err := d.NewMaskBlocks(bg, p, x)
		require.NoError(t, err)
		none, whole, edge, err := m.Count(bg)
		require.NoError(t, err)
		// By rows: two documents of two blocks; the second one's are whole, edge / edge, edge.
		require.Equal(t, [3]int{8, 5, 3}, [3]int{none, whole, edge})
		s := newSample(t, p)
		s.in.Sees, s.in.Captured = p.MaskFunction, score.Data{"ids": ids}
		right(t, p, s, classed(t, d, plan, s, m, x, 1))

		now := make([]int32, n)
		for j := range now { // all apart, but for the keys of edges, which are what they were, and queries that see them
			now[j] = int32(j)
			if j >= 64 {
				now[j] = ids[j]
			}
		}
		require.NoError(t, x.Upload(bg, floatsOf(now)))
		right(t, p, s, classed(t, d, plan, s, m, x, 1))
		for j := range now { // one document: edges are seen whole now, and nothing else
			now[j] = 7
		}
		require.NoError(t, x.Upload(bg, floatsOf(now)))
		s.in.Captured = score.Data{"ids": documentsOf(n, 64)}
		right(t, p, s, classed(t, d, plan, s, m, x, 1))
		require.NoError(t, m.Update(bg, x))
		none, whole, edge, err = m.Count(bg)
		require.NoError(t, err)
		require.Equal(t, [3]int{0, 16, 0}, [3]int{none, whole, edge})
		s.in.Captured = score.Data{"ids": now}
		right(t, p, s, classed(t, d, plan, s, m, x, 1))
		require.NoError(t, errors.Join(m.Close(), plan.Close(), x.Close()))
	}
}

func documentsOf(keys, each int) (ids []int32) {
	for j := range keys {
		ids = append(ids, int32(j/each))
	}
	return ids
}

// TestBadMasks: what does not fit gives an error that names the argument.
func TestBadMasks(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, MaskBlocks: Blocks{Queries: 4, Keys: 4}, MaskFunction: score.PrefixLM(3)}
	bad := func(set func(*Problem), text string) {
		q := p
		set(&q)
		_, err := q.Normalize()
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, text)
	}
	bad(func(p *Problem) { p.MaskBlocks.Keys = 0 }, "Problem.MaskBlocks.Keys is 0: must be from 1")
	bad(func(p *Problem) { p.MaskFunction = score.MaskFunction{} }, "Problem.MaskBlocks is 4x4: must be zero: Problem.MaskFunction lets "+
		"all pairs take part")
	bad(func(p *Problem) { p.Blocks = Blocks{Queries: 4, Keys: 4} }, "must be zero beside Problem.Blocks")
	bad(func(p *Problem) { p.QueryLen, p.MaskBlocks = 1<<14, Blocks{Queries: 1 << 20, Keys: 1<<12 + 1} },
		"Problem.MaskBlocks is 1048576x4097: must have at most 67108864 pairs of the problem in a block, not 67125248")
	wide := p // blocks beyond the problem's end are cut
	wide.MaskBlocks = Blocks{Queries: 1 << 20, Keys: 1 << 20}
	_, err := wide.Normalize()
	require.NoError(t, err)
	for _, set := range []func(*Problem){func(p *Problem) { p.KeyLengths = true }, func(p *Problem) { p.Packed = Packed{9, 9} }} {
		bad(set, "must be zero beside lengths and packed sequences, which move the Position")
	}
	for _, impl := range []Implementation{Standard, Flash1} {
		_, err := d.Plan(p, WithImplementation(impl))
		require.ErrorIs(t, err, ErrUnsupported)
	}
	plain := p
	plain.MaskBlocks = Blocks{}
	_, err = d.NewMaskBlocks(bg, plain)
	require.ErrorContains(t, err, "Problem.MaskBlocks is 0x0: must be the sizes")
	plan := mustPlan(t, d, p)
	f := newSample(t, p).tensors(t, d, plainly(t, d))
	other := func(set func(*Problem)) *MaskBlocks {
		q := p
		set(&q)
		m, err := d.NewMaskBlocks(bg, q)
		require.NoError(t, err)
		return m
	}
	foreign, err := testDevice(t).NewMaskBlocks(bg, p)
	require.NoError(t, err)
	for _, m := range []*MaskBlocks{nil, {}, foreign, other(func(p *Problem) { p.MaskFunction = score.PrefixLM(4) }),
		other(func(p *Problem) { p.Causal = CausalTopLeft }),
		other(func(p *Problem) { p.KeyLen = 7 }), other(func(p *Problem) { p.MaskBlocks.Queries = 2 })} {
		f.MaskBlocks = m
		_, err = plan.SubmitForward(f)
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "Forward.MaskBlocks")
	}
	good := other(func(p *Problem) { p.HeadDim, p.DType, p.Dropout = 32, F16, 0.5 }) // none of which matters to it
	f.MaskBlocks = good
	_, err = mustPlan(t, d, plain).SubmitForward(f)
	require.ErrorContains(t, err, "Forward.MaskBlocks")
	require.NoError(t, plan.Forward(bg, f))
	require.NoError(t, good.Close())
	require.NoError(t, good.Close())
	require.ErrorIs(t, plan.Forward(bg, f), ErrClosed)
	require.ErrorIs(t, good.Update(bg), ErrClosed)
	require.NotEmpty(t, (*MaskBlocks)(nil).String())
	require.NotEmpty(t, good.String())

	ids := tensorOfInts(t, d, make([]int32, 8))
	captures := p
	captures.MaskFunction = score.Documents(score.CaptureInt("ids", 8))
	_, err = d.NewMaskBlocks(bg, captures)
	require.ErrorIs(t, err, ErrArgument)
	_, err = d.NewMaskBlocks(bg, captures, ids, ids)
	require.ErrorContains(t, err, "the functions capture 1 tensors by name")
	_, err = d.NewMaskBlocks(bg, captures, make([]*Tensor, MaxCaptured+1)...)
	require.ErrorContains(t, err, "len(captured) is 9: must be at most 8")

	used := d.Usage()
	m, err := d.NewMaskBlocks(bg, captures, ids)
	require.NoError(t, err)
	require.NoError(t, plan.Close())
	require.Greater(t, d.Usage().Current, used.Current)
	require.NoError(t, m.Close())

	s := newSample(t, p)
	o, err := d.Attention(bg, s.q, s.k, s.v, p)
	require.NoError(t, err)
	want, err := d.Attention(bg, s.q, s.k, s.v, plain)
	require.NoError(t, err)
	for i := range want {
		require.InDelta(t, want[i], o[i], 1e-5)
	}
}

// TestMaskRecordingsAllocateNothing: in steady state, either pass.
func TestMaskRecordingsAllocateNothing(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 8, MaskBlocks: Blocks{Queries: 16, Keys: 16}, MaskFunction: score.PrefixLM(20)}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	p = plan.Problem()
	m, err := d.NewMaskBlocks(bg, p)
	require.NoError(t, err)
	defer m.Close()
	f := newSample(t, p).tensors(t, d, plainly(t, d))
	f.MaskBlocks = m
	like := plainly(t, d)
	b := Backward{Forward: f, DO: like(p.DType, p.OShape()), DQ: like(p.DType, p.QShape()), DK: like(p.DType, p.KShape()),
		DV: like(p.DType, p.VShape())}
	forward, err := plan.NewRecording()
	require.NoError(t, err)
	backward, err := plan.NewRecording(ForBackward())
	require.NoError(t, err)
	run := func() {
		f.Offset++ // which makes it another pass
		b.Offset++
		if err := errors.Join(forward.Forward(f), backward.Backward(b)); err != nil {
			t.Fatal(err)
		}
	}
	run()
	require.Zero(t, testing.AllocsPerRun(20, run))
	require.NoError(t, errors.Join(forward.Close(), backward.Close(), plan.Close()))
	closeAll(t, f.Q, f.K, f.V, f.O, f.LSE, b.DO, b.DQ, b.DK, b.DV)
}

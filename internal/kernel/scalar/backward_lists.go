package scalar

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// BackwardLists is the backward pass where queries have lists of keys, in fp32 arithmetic: shaders/common/backward_delta.comp, then
// lists_invert.comp, which finds the queries of each key, and scalar/scalar_backward_lists.comp, once for keys and once for queries.
var BackwardLists = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           "scalar_backward_lists",
		Implementation: kernel.Flash,
		Tier:           kernel.TierScalar,
		MostDim:        attn.MostDim,
		Can:            attn.WithLists | attn.OfScores | attn.WithSinks | attn.WithLengths,
		Needs:          attn.WithLists,
		Parameters:     kernel.GroupBound,
		Unsupported: func(c *kernel.Capabilities, p *attn.Problem) string {
			if why := backwardLacks(c, p); why != "" {
				return why
			}
			return c.LacksShuffles()
		},
	},
	Plan: planBackwardLists,
}

// Labels of the dispatches, and names of the modules.
const (
	InvertLabel      = "lists_invert"
	listsKeysLabel   = "scalar_backward_lists_kv"
	listQueriesLabel = "scalar_backward_lists_q"
)

// Scratch of the pass: how often chunks of queries list keys, where the queries of each key begin, and these queries.
const (
	listCounts  = "list counts"
	listStarts  = "list starts"
	listEntries = "list entries"
)

// ListsTile is the shape of the work of either kernel: the shader says what each number means.
type ListsTile struct {
	Rows  int // own rows of a workgroup
	W     int // subgroups of a workgroup
	Lanes int // of a subgroup
	LPR   int // lanes of a row
	U     int // items of a lane in a batch
}

func (t *ListsTile) threads() int { return t.W * t.Lanes }

// words is what a lane holds of own rows and of their sums, in fp32.
func (t *ListsTile) words(p *attn.Problem, keys bool) int {
	unit := 16 / p.DType.Size()
	columns := func(n int) int { return attn.CeilDiv(attn.CeilDiv(n, unit), t.LPR) * unit }
	d, dv := columns(p.HeadDim), columns(p.ValueDim)
	if keys {
		return 2*d + 2*dv
	}
	return t.Rows * (2*d + dv)
}

// shared is the shared memory of a workgroup in bytes: a row of sums of each subgroup.
func (t *ListsTile) shared(p *attn.Problem) int {
	unit := 16 / p.DType.Size()
	return 4 * t.W * attn.CeilDiv(max(p.HeadDim, p.ValueDim), unit) * unit
}

// chooseListsTile takes as few lanes for a row as have the registers, and of queries as many heads as are left registers for.
func chooseListsTile(c *kernel.Capabilities, p *attn.Problem, keys bool) (ListsTile, error) {
	const words, lanes, subgroups = 128, 8, 4
	t := ListsTile{Rows: 1, W: subgroups, Lanes: int(c.Facts.Subgroup.Size), U: 2}
	t.LPR = min(lanes, t.Lanes)
	if !keys {
		t.Rows = p.Group()
	}
	for t.words(p, keys) > words && t.LPR < t.Lanes {
		t.LPR *= 2
	}
	for blocks := 2; t.words(p, keys) > words && t.Rows > 1; blocks++ {
		t.Rows = attn.CeilDiv(p.Group(), blocks)
	}
	limits := &c.Facts.Limits
	for t.W > 1 && kernel.CheckLimits(t.threads(), t.shared(p), limits) != "" {
		t.W /= 2
	}
	if why := kernel.CheckLimits(t.threads(), t.shared(p), limits); why != "" {
		return t, &kernel.Declined{Why: why}
	}
	return t, nil
}

// Constants are the specialization constants of scalar_backward_lists.
func (t *ListsTile) Constants(p *attn.Problem, aligned, accumulate bool) kernel.Constants {
	return kernel.Constants{"WG": t.threads(), "ROWS": t.Rows, "SG": t.Lanes, "LPR": t.LPR, "U": t.U, "D": p.HeadDim, "DV": p.ValueDim,
		"ALIGNED": kernel.BoolInt(aligned), "ACCUMULATE": kernel.BoolInt(accumulate)}.And(kernel.MaskConstants(p),
		kernel.ScoreConstants(p), kernel.LengthConstants(p), kernel.ListConstants(p))
}

// Inverted is how lists are turned round.
type Inverted struct {
	problem *attn.Problem
	chunks  int // that queries are cut into
	threads int
	grids   [3]kernel.Grid // of its steps
	scratch []pass.Scratch
}

// Steps of lists_invert.
const invertCounts, invertSums, invertFills = 0, 1, 2

// NewInverted fits it to a problem. The more chunks there are, the more workgroups are busy and the more memory counts take.
func NewInverted(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*Inverted, error) {
	const leastQueries, mostChunks, mostBytes = 32, 32, 64 << 20
	lists := uint64(p.Batch) * uint64(p.Lists.Heads(p))
	bytes := func(chunks int) uint64 { return 4 * lists * uint64(chunks) * uint64(p.KeyLen) }
	s := &Inverted{problem: p, chunks: min(mostChunks, attn.CeilDiv(p.QueryLen, leastQueries)), threads: e.RowTableThreads()}
	s.threads = min(s.threads, 256)
	for s.chunks > 1 && bytes(s.chunks) > mostBytes {
		s.chunks /= 2
	}
	s.chunks = attn.CeilDiv(p.QueryLen, attn.CeilDiv(p.QueryLen, s.chunks)) // none of them empty
	s.scratch = []pass.Scratch{{Name: listCounts, Bytes: bytes(s.chunks)}, {Name: listStarts, Bytes: 4 * lists * uint64(p.KeyLen+1)},
		{Name: listEntries, Bytes: 4 * lists * uint64(p.QueryLen) * uint64(p.Lists.Keys)}}
	for _, x := range s.scratch {
		if err := e.Caps.Holds([]uint64{x.Bytes}); err != nil {
			return nil, err
		}
	}
	for step := range s.grids {
		groups := lists * uint64(s.chunks)
		if step == invertSums {
			groups = lists
		}
		// An entry is looked at once in each of two steps: reckon with 64 operations.
		var err error
		if s.grids[step], err = kernel.GridFor(e, groups, 64*float64(lists)*p.PaperPairs(), kernel.ScalarPace, t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Constants are the specialization constants of a step.
func (s *Inverted) Constants(step int) kernel.Constants {
	return kernel.Constants{"WG": s.threads, "STEP": step, "CHUNKS": s.chunks}.And(kernel.MaskConstants(s.problem),
		kernel.LengthConstants(s.problem), kernel.ListConstants(s.problem))
}

// stages are its steps, one after the other.
func (s *Inverted) stages() (out []pass.Stage) {
	modes := [3][3]pipeline.Mode{invertCounts: {pipeline.ReadWrite, pipeline.Unused, pipeline.Unused},
		invertSums:  {pipeline.ReadWrite, pipeline.Write, pipeline.Unused},
		invertFills: {pipeline.ReadWrite, pipeline.Unused, pipeline.Write}}
	for step := range s.grids {
		bind := pass.Scores(s.problem, 0)
		for i, name := range []string{listCounts, listStarts, listEntries} {
			bind = append(bind, pass.Bind{Name: []string{"ListCounts_", "ListStarts_", "ListEntries_"}[i], To: name, Mode: modes[step][i]})
		}
		out = append(out, pass.Stage{Label: InvertLabel, Module: InvertLabel, Grid: s.grids[step], Constants: s.Constants(step),
			Args: pass.Args{As: pass.AsTable, Problem: s.problem}, Idle: listCounts, Bind: bind})
	}
	return out
}

// backwardLists is the kernels fitted to a problem.
type backwardLists struct {
	env     *kernel.Env
	problem *attn.Problem
	delta   *kernel.DeltaProgram
	invert  *Inverted
	kv, q   ListsTile
	grids   [2]kernel.Grid // of keys and of queries
}

func planBackwardLists(e *kernel.Env, problem *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	p := *problem
	s, err := fitBackwardLists(e, &p, t)
	if err != nil {
		return nil, err
	}
	named := fmt.Sprintf("kv 1x%d, q %dx%d", s.kv.Lanes/s.kv.LPR*s.kv.U, s.q.Rows, s.q.Lanes/s.q.LPR*s.q.U)
	return pass.NewBackward(&pass.Fitted{Env: e, Problem: &p, Name: "scalar_backward_lists " + named, Named: named,
		Trusted: e.Caps.FullSubgroups(),
		Moves: traffic.BackwardLists{Delta: kernel.DeltaLabel, Invert: InvertLabel, Keys: listsKeysLabel, Queries: listQueriesLabel,
			Rows: s.q.Rows},
		Pass: s.pass, SelfCheck: s.selfCheck})
}

func fitBackwardLists(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (*backwardLists, error) {
	s := &backwardLists{env: e, problem: p}
	var err error
	if s.kv, err = chooseListsTile(&e.Caps, p, true); err != nil {
		return nil, err
	}
	if s.q, err = chooseListsTile(&e.Caps, p, false); err != nil {
		return nil, err
	}
	return s, s.fit(p, t)
}

// fit fits all but the tiles to a problem.
func (s *backwardLists) fit(p *attn.Problem, t *kernel.Tuning) (err error) {
	s.problem = p
	if s.delta, err = kernel.NewDeltaProgram(s.env, p, t); err != nil {
		return err
	}
	if s.invert, err = NewInverted(s.env, p, t); err != nil {
		return err
	}
	// Of the seven products, four are of the kernel of keys. Forward has two.
	keys, queries := p.KeyRows()*uint64(p.KeyHeads), kernel.RowBlocks{Rows: s.q.Rows}.Most(p)*uint64(p.KeyHeads)
	if s.grids[0], err = kernel.GridFor(s.env, keys, 2*p.ForwardFLOPs(), kernel.ScalarPace, t); err != nil {
		return err
	}
	s.grids[1], err = kernel.GridFor(s.env, queries, 1.5*p.ForwardFLOPs(), kernel.ScalarPace, t)
	return err
}

// pass is the row term, the lists turned round, then the kernel of keys, then that of queries.
func (s *backwardLists) pass(v pass.Variant) *pass.Pass {
	p := s.problem
	out := pass.BackwardOf(s.env, p, s.delta, v, s.invert.scratch)
	out.Stages = append(out.Stages, s.invert.stages()...)
	for i, x := range []struct {
		label, x, y string
		tile        *ListsTile
		more        []pass.Bind
	}{{listsKeysLabel, "DK", "DV", &s.kv, []pass.Bind{{Name: "ListStarts_", To: listStarts, Mode: pipeline.Read},
		{Name: "ListEntries_", To: listEntries, Mode: pipeline.Read}}}, {listQueriesLabel, "DQ", "", &s.q, nil}} {
		bind := append(pass.BackwardViews.Inputs(), pass.BackwardViews.Gradients(v, x.x, x.y)...)
		out.Stages = append(out.Stages, pass.Stage{Label: x.label, Module: x.label + "." + p.DType.Suffix(), Proves: true,
			Made: s.env.Subgroups(true), Grid: s.grids[i], Idle: "Q", Constants: x.tile.Constants(p, v.Aligned, v.Accumulate),
			Args: pass.Args{As: pass.AsBackward, Problem: p, X: x.x, Y: x.y}, Bind: append(append(bind, x.more...), pass.Scores(p, 0)...)})
	}
	return out
}

// selfCheck is a small problem: for each kernel more of what it walks over than all subgroups of a workgroup take at a time.
func (s *backwardLists) selfCheck(v pass.Variant) (*pass.Pass, error) {
	p, small := kernel.SelfCheckOf(s.problem), *s
	p.KeyHeads, p.Heads = 2, 2*s.problem.Group()
	batch := func(t *ListsTile) int { return t.W * t.Lanes / t.LPR * t.U }
	p.Lists.Keys = batch(&s.q) + 3
	p.KeyLen = p.Lists.Keys + 5
	p.QueryLen = attn.CeilDiv(2*batch(&s.kv), p.Group()) + 3
	if err := small.fit(&p, kernel.NewTuning(nil)); err != nil {
		return nil, err
	}
	return small.pass(v), nil
}

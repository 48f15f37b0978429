package matrix

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Forward is FlashAttention-2 on cooperative matrices: shaders/matrix/matrix_forward.comp.
var Forward = &kernel.Kernel{
	Offer: kernel.Offer{
		Name:           "matrix_forward",
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can: attn.WithDropout | attn.WithPartsOfWholes | attn.OfScores | attn.WithSinks | attn.WithLengths | attn.WithPacked |
			attn.WithPages | attn.WithQuantised | attn.WithMaxLogit,
		Parameters: tileRanges.And(headRanges, lateRange, repeatRange, kernel.IndirectRange,
			kernel.Parameters{kernel.DecodeParameter: kernel.OnOff, keyTermsParameter: kernel.Between(0, 2)}),
		Reserved:    kernel.ReservedOnCPU,
		Unsupported: kernel.MatrixLacks,
	},
	Plan:       planForward,
	Candidates: ForwardCandidates,
}

func planForward(e *kernel.Env, p *attn.Problem, t *kernel.Tuning) (kernel.Program, error) {
	return fitForward("matrix_forward", "matrix_forward", p.DType, e, p, t, ChooseTile)
}

// fitForward plans the kernel of this name, with a block mask or without, of a module with operands of a type, and a tile that choose
// takes.
func fitForward(name, module string, operands attn.DType, e *kernel.Env, p *attn.Problem, t *kernel.Tuning,
	choose func(*kernel.Capabilities, *attn.Problem, kernel.Fragment, int, *kernel.Tuning) (Tile, error)) (kernel.Program, error) {
	fragment, layout, form, err := e.ChooseForm(operands, t)
	if err != nil {
		return nil, err
	}
	tile, err := choose(&e.Caps, p, fragment, form, t)
	if err != nil {
		return nil, err
	}
	switch {
	case tile.Late > 0 && tile.Late != lateTurned && p.Blocks.Classed:
		return nil, t.Bad("late", "with classes of blocks it must be 0 or %d", lateTurned)
	case tile.Late > 0 && (!tile.canBeLate(p, form) && tile.Late != lateTurned || tile.readsBiasAhead(p, &layout)):
		return nil, t.Bad("late", "form 3, block masks, the largest score and a bias that is read ahead look at each chunk: it must be 0")
	case tile.Late > 0 && !tile.canBeLate(p, form):
		return nil, t.Bad("late", "form 3, block masks but those of functions, the largest score, caches and fp32 do not begin with "+
			"masked tiles: it must not be %d", lateTurned)
	}
	asked := func(name string) bool { return t.Given[name] != 0 } // else a row of tiles did, for another late
	off := func(to *bool, name string) { *to, t.Effect[name] = false, 0 }
	if tile.Repeat && (!canRepeat(p, form) || tile.Late == lateTurned || tile.KeepMasks) {
		if asked("repeat") {
			return nil, t.Bad("repeat", "form 3, masks, keep_masks, dropout, caches, the largest score, late=3, and scores that are more "+
				"than products of queries and keys, look at single keys: it must be 0")
		}
		off(&tile.Repeat, "repeat")
	}
	if tile.LookApart && (tile.Late == 0 || tile.Late == lateTurned) {
		if asked("look_apart") {
			return nil, t.Bad("look_apart", "sums are looked at where late is 1 or 2 alone: it must be 0")
		}
		off(&tile.LookApart, "look_apart")
	}
	if why, err := tile.findSums(e, p, operands, &layout); err != nil {
		return nil, err
	} else if why != "" {
		if asked("sums") {
			return nil, t.Bad("sums", "%s: it must be 0", why)
		}
		off(&tile.Sums, "sums")
	}
	return tile.fused(name, module, operands, p, &layout).Forward(e, p, t)
}

// findSums takes the narrowest fragments by which weights can be summed, if the tile wants that, or says why it cannot be. Rows of their
// accumulators must lie in the lanes where those of scores do.
func (t *Tile) findSums(e *kernel.Env, p *attn.Problem, operands attn.DType, scores *kernel.FragmentLayout) (why string, err error) {
	const most = 8 // components that the shader has slots for
	switch {
	case !t.Sums:
		return "", nil
	case t.Late == 0 || t.Late == lateTurned:
		return "weights are summed by products in the loop of late 1 and 2 alone", nil
	case t.Drop || t.Terms > 0:
		return "what dropout leaves, or terms, are not the weights that are summed", nil
	case p.Mask().Low > -attn.Unbounded: // the loop's sums take the place of what there is
		return "lanes have summed the tiles at the beginning of a window before the loop", nil
	}
	narrow := t.Fragment
	for _, f := range e.Caps.Fragments(operands) {
		if f.M == narrow.M && f.K == narrow.K && f.N < narrow.N {
			narrow = f
		}
	}
	l := *scores
	if narrow != t.Fragment {
		if l, err = e.Layout(operands, narrow); err != nil {
			return "", err
		}
	}
	if l.Form == kernel.FormShared || len(l.SlotOfComp) > most || !slices.Equal(l.RowLane, scores.RowLane) ||
		!slices.Equal(l.RowOfSlot, scores.RowOfSlot) {
		return fmt.Sprintf("rows of %v fragments do not lie as those of %v do", narrow, t.Fragment), nil
	}
	t.SumColumns = narrow.N
	t.SlotOfSum, _ = kernel.Nibbles(l.SlotOfComp)
	return "", nil
}

// buffers are the names of shaders/include/matrix_types.glsl.
var buffers = &pass.Buffers{Q: "Q4_", K: "K4_", V: "V4_", O: "O4_", LSE: "LSE_", Sums: "Sums_", Statistics: "Statistics_"}

// fused is the kernel of this name with this tile.
func (t Tile) fused(name, module string, operands attn.DType, p *attn.Problem, l *kernel.FragmentLayout) *pass.Fused {
	module = kernel.CacheModule(module, p)
	if t.Ahead = t.readsBiasAhead(p, l); t.Ahead {
		module += "_bias"
	}
	if t.Parts > 1 {
		module += "_parts"
	}
	k := &pass.Fused{Label: name, Module: module + "." + operands.Suffix(), Tile: t.String(), Parts: t.Parts, Groups: t.Groups,
		Rows: t.blocks, FLOPs: kernel.PaddedFLOPs(p) * float64(t.products()), Pace: kernel.MatrixPace, Moves: t.moves(name, p),
		Buffers: buffers, Made: t.Fragment.Subgroups(), SelfCheck: t.selfCheck, WholeBias: l.PairsOfBias(p, t.Form),
		Constants: func(p *attn.Problem, v kernel.Variant) kernel.Constants { return t.Constants(p, l, v) }}
	if t.Terms > 0 {
		k.Bound = splitSelfCheckBound
	}
	return k
}

// moves is the model of what it does and moves.
func (t *Tile) moves(name string, p *attn.Problem) traffic.Model {
	w := traffic.QueriesOutside{Label: name, Rows: t.Rows(), Keys: t.BC, Packed: t.Pack, Parts: t.Parts,
		Combine: kernel.CombineLabel(t.Parts), NoneUnseen: true, AheadAgain: !t.masks(p) && !t.repeats(p) || !t.Ragged(p)}
	switch t.Prefetch {
	case 1:
		w.KeysAhead, w.ValuesAhead = 1, 1
	case 2:
		w.KeysAhead = 1
	case 3:
		w.KeysAhead, w.ValuesAhead = 2, 2
	}
	return w
}

// Constants are the specialization constants of matrix_forward.
func (t *Tile) Constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	c := t.constants(p, l, v)
	if p.Cached() {
		c["KEY_TERMS"] = t.KeyTerms * kernel.BoolInt(!t.WholeKeys)
	}
	if t.Terms == 0 && !p.Cached() && !t.Ahead {
		c["REPEAT"] = kernel.BoolInt(t.repeats(p))
	}
	beside := kernel.PartsOrBlocks(p, t.Parts)
	if p.Cached() && t.Parts == 1 { // builds for caches have no block masks
		beside = kernel.LengthConstants(p)
	}
	return c.And(beside, kernel.WithinConstants(p))
}

// constants are those that matrix_forward and matrix_flash1 have in common.
func (t *Tile) constants(p *attn.Problem, l *kernel.FragmentLayout, v kernel.Variant) kernel.Constants {
	f, sh := &t.Fragment, t.Shared(p.HeadDim, p.ValueDim)
	c := kernel.Constants{"WG": t.Threads(), "BR": t.Rows(), "FM": f.M, "FN": f.N, "FK": f.K, "SG": f.Lanes, "FORM": t.Form,
		"K_PITCH": sh.KPitch, "V_PITCH": sh.VPitch, "KV_LEN": sh.Kv, "Q_PITCH": sh.QPitch, "Q_LEN": sh.Q, "X_LEN": sh.X, "H_LEN": sh.H,
		"PATCH": sh.Patch, "MASKS": kernel.BoolInt(t.masks(p)), "DROPOUT": kernel.BoolInt(t.Drop), "DROP_LEN": sh.Drop,
		"SUM_N": cmp.Or(t.SumColumns, f.N), "SLOT_OF_SUM": t.SlotOfSum,
		"BY_LANE":    kernel.BoolInt(t.Drop && l.ColumnsOfDraws(t.Form) && kernel.SharesDraws(t.BC)),
		"RAGGED":     kernel.BoolInt(t.Ragged(p)),
		"BIAS_PAIRS": kernel.BoolInt(v.Aligned && !t.Ahead && l.PairsOfBias(p, t.Form))}
	if t.Ahead {
		c["BIAS_EIGHTS"] = kernel.BoolInt(v.Aligned)
	}
	return c.And(tileFields.Constants(t), cutFields.Constants(t), kernel.ForwardConstants(p, v), l.Constants(), t.splitConstants(&sh),
		kernel.MaxLogitConstants(p))
}

// selfCheck is a small problem for the tile: two blocks of queries, the second ragged, some whole tiles of keys and, where the pipeline
// takes it, a ragged one, the diagonal across them when causal.
func (t *Tile) selfCheck(p *attn.Problem) attn.Problem {
	small := smallForward(p, t.Rows(), t.BC, t.Fragment.M, t.Pack, t.masks(p) || t.repeats(p))
	kernel.GrowForBlocks(&small, t.masks(p))
	kernel.GrowForBias(&small, p)
	if !t.Ragged(p) {
		small.KeyLen = attn.CeilDiv(small.KeyLen, t.BC) * t.BC
	}
	kernel.PackSelfCheck(&small)
	if t.Terms > 0 {
		small.Scale *= splitSelfCheckScores
	}
	return small
}

// smallForward is a small problem for blocks of so many rows, and keys: two of queries, the second ragged, and some of keys, the last one
// too where the kernel masks.
func smallForward(p *attn.Problem, rows, keys, fragment int, pack, masks bool) attn.Problem {
	small := kernel.SelfCheckOf(p)
	small.KeyHeads = 2
	small.QueryLen = rows + fragment/2 + 1
	if pack {
		group := p.Group()
		small.KeyHeads, small.Heads = 1, group
		small.QueryLen = attn.CeilDiv(small.QueryLen, group)
	}
	small.KeyLen = rows/2 + 2*keys + 3
	if !masks {
		small.KeyLen = 3 * keys
	}
	return small
}

// ForwardCandidates are the rows that suit the device, whatever problem they are for, and some neighbours.
func ForwardCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	if !canRepeat(p, kernel.FormRegisters) {
		return candidatesOf(c, "matrix_forward", "repeat")
	}
	return candidatesOf(c, "matrix_forward")
}

// candidatesOf are tunings for the rows of a kernel that suit the device, and for neighbours, with growth noticed in every way that a
// kernel has, but without the numbers that are left out.
func candidatesOf(c *kernel.Capabilities, name string, leftOut ...string) []map[string]int {
	var out tunings
	add := func(t Tile) {
		values := tileFields.Values(&t)
		for _, number := range leftOut {
			delete(values, number)
		}
		out.add(c, t.W, t.RM, values)
	}
	f, lanes := c.Family(), int(c.Facts.Subgroup.Size)
	for _, row := range f.Rows(name) {
		if row.SuitsLanes(lanes) {
			add(TileOf(row))
		}
	}
	for _, row := range f.Candidates(name) {
		if row.SuitsLanes(lanes) {
			t := TileOf(row)
			add(t)
			t.MaxFirst = 1
			add(t)
			if t.Late = 2; !slices.Contains(leftOut, "late") {
				add(t)
				t.Sums, t.LookApart = true, true
				add(t)
			}
		}
	}
	return out
}

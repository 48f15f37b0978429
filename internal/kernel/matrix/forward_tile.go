package matrix

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Tile is the shape of the work of matrix_forward or, with KeysOutside, matrix_flash1; shaders/matrix/matrix_forward.comp says what
// each number means. A workgroup of W subgroups takes BR = W·RM·M queries; the head dimensions are rounded up to whole fragments
// in the tile only.
type Tile struct {
	Fragment      kernel.Fragment
	Form          int
	W             int  // subgroups of a workgroup
	RM            int  // row fragments of a subgroup
	BC, CK        int  // keys of a tile, and of a chunk of it
	Prefetch      int  // 0 none, 1 the next K and V in registers, 2 only K, 3 two tiles in shared memory, 4 and 5 as 3 and 1 under a branch
	Pipe          int  // 1: the next chunk's scores before this chunk's weighted sum
	MaxFirst      int  // 1: growth is noticed by the lane's maximum, else by its sum
	Late          int  // 1, 2, 3: growth is looked for behind the loop without masks; which references that has, LATE in GLSL says
	Sums          bool // with Late: weights are summed by products with ones
	LookApart     bool // with Late: sums are looked at in a loop around the one over tiles
	QReg          int  // slices of Q in registers, the rest in shared memory
	HeadsTogether int  // heads whose blocks of one place follow one another
	Pack          bool // the query heads of a key head share a tile
	Drop          bool // weights are dropped
	KeysOutside   bool // matrix_flash1: keys stay while queries pass by
	KeepMasks     bool // the loop with masks stays even where no tile needs it: the driver then happens to spill less
	Steps         bool // places of K and V by steps that all invocations share: fewer instructions, but some tiles run at half the pace
	Whole         bool // where keys are whole tiles, none is clamped: pays at some head dimensions, costs at others
	Repeat        bool // where keys end within a tile, its rest is the last key again and no score is masked (repeats)
	Parts         int  // parts of the keys, each for workgroups of its own (parts.go); 0 and 1: all in one
	Terms         int  // matrix_forward_split: numbers that an operand is the sum of; 0 in other kernels
	Scaled        bool // matrix_forward_split: rows are scaled by powers of two
	Ahead         bool // the bias is read eight elements of a row at a time and ahead, where tensors lie so (readsBiasAhead)
	KeyTerms      int  // elements that a key of a cache is the sum of: 2 of blocks with a least number, 1 elsewhere; 0 of tensors
	SumColumns    int  // of the fragments that sum weights, with Sums
	SlotOfSum     int  // and the slots of their accumulators' components, a nibble each
	WholeKeys     bool // keys of blocks are staged as whole numbers, and products multiplied by their scales
}

// tileFields are the numbers of a Tile that rows of tables name.
var tileFields = kernel.Fields[Tile]{
	{Name: "w", Of: func(t *Tile) any { return &t.W }},
	{Name: "rm", Constant: "RM", Of: func(t *Tile) any { return &t.RM }},
	{Name: "bc", Constant: "BC", Of: func(t *Tile) any { return &t.BC }},
	{Name: "ck", Constant: "CK", Of: func(t *Tile) any { return &t.CK }},
	{Name: "prefetch", Constant: "PREFETCH", Of: func(t *Tile) any { return &t.Prefetch }},
	{Name: "pipe", Constant: "PIPE", Of: func(t *Tile) any { return &t.Pipe }},
	{Name: "max_first", Constant: "MAX_FIRST", Of: func(t *Tile) any { return &t.MaxFirst }},
	{Name: "late", Constant: "LATE", Of: func(t *Tile) any { return &t.Late }},
	{Name: "sums", Constant: "SUMS", Of: func(t *Tile) any { return &t.Sums }},
	{Name: "look_apart", Constant: "LOOK_APART", Of: func(t *Tile) any { return &t.LookApart }},
	{Name: "q_reg", Constant: "Q_REG", Of: func(t *Tile) any { return &t.QReg }, Open: true},
	{Name: "keep_masks", Of: func(t *Tile) any { return &t.KeepMasks }, Open: true},
	{Name: "steps", Constant: "STEPS", Of: func(t *Tile) any { return &t.Steps }},
	{Name: "whole", Of: func(t *Tile) any { return &t.Whole }},
	{Name: "repeat", Of: func(t *Tile) any { return &t.Repeat }},
	{Name: "heads_together", Constant: "HEADS_TOGETHER", Of: func(t *Tile) any { return &t.HeadsTogether }, Open: true},
}

// cutFields are those that no row names, since they follow from the problem.
var cutFields = kernel.Fields[Tile]{
	{Name: "pack", Constant: "PACK", Of: func(t *Tile) any { return &t.Pack }},
	{Name: "parts", Of: func(t *Tile) any { return &t.Parts }},
}

func (t *Tile) Rows() int    { return t.W * t.RM * t.Fragment.M }
func (t *Tile) Threads() int { return t.W * t.Fragment.Lanes }

func (t *Tile) String() string {
	s := fmt.Sprintf("%dx%d %v form %d", t.Rows(), t.BC, t.Fragment, t.Form)
	if t.Terms > 0 {
		s += fmt.Sprintf(" %d terms", t.Terms)
	}
	if t.Pack {
		s += " packed"
	}
	return s + kernel.PartsSuffix(t.Parts)
}

// tileShared is the lengths of the shader's shared arrays and the pitches of their rows, in units of 16 bytes except for x,
// which counts floats. The shader sizes its arrays with these numbers.
type tileShared struct {
	KPitch, VPitch, Kv int // K and V tiles, and patches for rows of Q and O
	QPitch, Q          int // slices of Q that are not in registers
	X, H               int // exchange of forms 2 and 3
	Patch              int // a row of the patch through which Q enters and O leaves
	Drop               int // words: what dropout keeps
	Rows               int // patches beside K and V, with KeysOutside
	Exponents          int // words: of the rows of Q, K and V, with Scaled
	Scales             int // words: of the blocks of keys, in builds for caches
}

// leastDrop is the least length of the array of dropout's draws, in words, though without dropout nothing is there:
// NVIDIA's compiler (580) takes an array of one element for a promise that indices into it are 0, in code that is left out too, and
// computes the places of subgroups in other arrays from that; forms 2 and 3 were wrong.
const leastDrop = 64

func (s tileShared) Bytes() int {
	return 16*(s.Kv+s.Q+s.H+s.Rows) + 4*(s.X+s.Drop+s.Exponents+s.Scales)
}

// tilesShared is the number of tiles of keys in shared memory.
func (t *Tile) tilesShared() int {
	if t.Prefetch == 3 || t.Prefetch == 4 {
		return 2
	}
	return 1
}

// Shared lays shared memory out for head dimensions d and dv. Rows have an odd pitch, which spreads them over the banks.
func (t *Tile) Shared(d, dv int) tileShared {
	f := &t.Fragment
	s := tileShared{KPitch: attn.CeilDiv(d, f.K)*f.K/8 | 1, VPitch: attn.CeilDiv(dv, f.N)*f.N/8 | 1, QPitch: 1, Q: 1, X: 1, H: 1}
	s.Drop = leastDrop
	if t.Drop {
		s.Drop = max(leastDrop, 16*t.Rows()*drawGroups(t.BC))
	}
	tiles := t.tilesShared()
	// Rows of the patch hold whole fragments of Q (2 bytes a number) and of O (4), up to 128 bytes where rows are that long and the
	// patch takes no memory from keys.
	s.Patch = max(f.K/8, f.N/4, 1)
	for !t.KeysOutside && s.Patch < max(s.KPitch-1, 2*(s.VPitch-1)) && 2*s.Patch <= 8 {
		s.Patch *= 2
	}
	if t.Terms > 0 {
		s.Patch = max(attn.CeilDiv(d, f.K)*f.K/8, f.N/4) // rows of Q are whole in it
	}
	s.Kv = tiles * t.BC * (s.KPitch*max(1, t.KeyTerms) + s.VPitch) * t.terms()
	switch {
	case t.WholeKeys:
		s.Scales = t.BC * attn.CeilDiv(d, 32) * tiles
	case t.KeyTerms > 0:
		s.Scales = leastDrop * tiles
	}
	if patches := t.W * f.M * (s.Patch | 1); t.KeysOutside {
		s.Rows = patches
	} else {
		s.Kv = max(s.Kv, patches)
	}
	if rest := attn.CeilDiv(d, f.K) - t.QReg; rest > 0 {
		s.QPitch = f.K/8*rest | 1
		s.Q = t.Rows() * s.QPitch * t.terms()
	}
	switch t.Form {
	case kernel.FormRows:
		s.X = t.W * f.M * t.CK
		s.H = t.W * f.M * t.CK / 8 * t.terms()
	case kernel.FormShared:
		s.X = t.W * (f.M*t.CK + f.M*f.N + 3*t.RM*f.M)
		s.H = t.W * f.M * t.CK / 8 * t.terms()
	}
	if t.Terms > 0 {
		s.Exponents = 1
	}
	if t.Scaled {
		s.Exponents = t.Rows() + 2*t.BC*tiles
	}
	return s
}

// drawGroups is the number of groups of 64 keys, which share draws of dropout's generator, that a tile of n keys may touch.
func drawGroups(n int) int {
	switch {
	case n < 1:
		return 0
	case n%64 == 0:
		return n / 64
	case 64%n == 0:
		return 1
	}
	return n/64 + 2
}

// readsBiasAhead says whether a build for it is taken (shaders/include/matrix_bias_ahead.glsl): there is none of sums of terms, and none
// with a block mask.
func (t *Tile) readsBiasAhead(p *attn.Problem, l *kernel.FragmentLayout) bool {
	return l.PairsOfBias(p, t.Form) && l.ColumnsOfDraws(t.Form) && t.BC%32 == 0 && (t.CK%32 == 0 || 32%t.CK == 0) && t.MaxFirst == 1 &&
		t.W&(t.W-1) == 0 &&
		!t.Drop && t.Parts <= 1 && t.Terms == 0 && p.Blocks.None() && !p.Cached()
}

// canBeLate says whether growth can be looked for behind the loop in this way: in form 3 references are in shared memory, the largest score
// wants a look at each chunk, and block masks walk over tiles of their own, of which those of classes take edges first. Builds for caches
// and for sums of terms do not begin with masked tiles.
func (t *Tile) canBeLate(p *attn.Problem, form int) bool {
	if form == kernel.FormShared || p.MaxLogit {
		return false
	}
	if t.Late == lateTurned {
		return (p.Blocks.None() || p.Blocks.Classed) && !p.Cached() && t.Terms == 0
	}
	return p.Blocks.None()
}

// lateTurned is the Late that begins with masked tiles.
const lateTurned = 3

// masks says whether any tile of keys needs the loop with masks; a pipeline without it has registers to spare.
func (t *Tile) masks(p *attn.Problem) bool {
	return t.KeepMasks || p.Masked() || t.endsWithin(p) && !t.repeats(p)
}

// endsWithin says whether keys may end within a tile.
func (t *Tile) endsWithin(p *attn.Problem) bool { return p.Padded() || p.KeyLen%t.BC != 0 }

// canRepeat says whether the last key may stand for those that a tile lacks. Their weights are taken off the row's sum in the end: so every
// row sees all keys, scores are a matter of a key's row alone, and lanes know whose weights they hold.
func canRepeat(p *attn.Problem, form int) bool {
	return form != kernel.FormShared && !p.Masked() && p.DropThreshold() == 0 && kernel.Bare(p)
}

// repeats says whether it does.
func (t *Tile) repeats(p *attn.Problem) bool { return t.Repeat && t.endsWithin(p) }

// Ragged says whether keys are clamped to the last one in tiles with masks, or that repeat it.
func (t *Tile) Ragged(p *attn.Problem) bool { return !t.Whole || t.endsWithin(p) }

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *Tile) Check(d, dv int, c *kernel.Capabilities) string {
	f := &t.Fragment
	switch {
	case t.W < 1 || t.RM < 1:
		return fmt.Sprintf("w = %d and rm = %d must be at least 1", t.W, t.RM)
	case t.CK < 1 || t.CK%f.N != 0 || t.CK%f.K != 0:
		return fmt.Sprintf("ck = %d must be a multiple of the fragment's N = %d and K = %d", t.CK, f.N, f.K)
	case t.BC < 1 || t.BC%t.CK != 0:
		return fmt.Sprintf("bc = %d must be a multiple of ck = %d", t.BC, t.CK)
	case t.KeysOutside && (t.Prefetch < 0 || t.Prefetch > 1):
		return fmt.Sprintf("prefetch = %d must be 0 or 1", t.Prefetch)
	case t.Prefetch < 0 || t.Prefetch > 5:
		return fmt.Sprintf("prefetch = %d must be from 0 to 5", t.Prefetch)
	case t.Pipe < 0 || t.Pipe > 1 || t.MaxFirst < 0 || t.MaxFirst > 1:
		return fmt.Sprintf("pipe = %d and max_first = %d must be 0 or 1", t.Pipe, t.MaxFirst)
	case t.Late < 0 || t.Late > lateTurned:
		return fmt.Sprintf("late = %d must be from 0 to %d", t.Late, lateTurned)
	case t.QReg < 1:
		return fmt.Sprintf("q_reg = %d must be at least 1", t.QReg)
	case t.HeadsTogether < 1 || t.HeadsTogether > 1<<16:
		return fmt.Sprintf("heads_together = %d must be from 1 to 65536", t.HeadsTogether)
	}
	return kernel.CheckSubgroups(t.W, t.Fragment.Lanes, t.Shared(d, dv).Bytes(), c)
}

// TileOf is the tile that a row of matrix_forward or matrix_flash1 says. What is given for fragments of 16×16×16 goes for others: chunks
// and tiles of keys are rounded up to whole fragments.
func TileOf(r *tiles.Row) (t Tile) {
	tileFields.Read(&t, r)
	return t
}

// CausalHeadsTogether is the number of heads whose blocks of one place follow one another in the causal forward kernel. Long blocks first
// keep the tail short, over the more heads the better; at small head dimensions it weighs more from some thousand keys on that keys and
// values of those heads stay in a cache.
func CausalHeadsTogether(k *kernel.Prediction, p *attn.Problem) int {
	if p.KeyLen <= 2048 || max(p.HeadDim, p.ValueDim) > 64 {
		return 64
	}
	return HeadsTogether(k, p)
}

// HeadsTogether is the number of heads whose keys and values stay in a cache; the backward kernels' number.
func HeadsTogether(k *kernel.Prediction, p *attn.Problem) int {
	perHead := p.KeyLen * (p.HeadDim + p.ValueDim) * p.DType.Size()
	return min(max(k.CacheMiB<<20/perHead, 4), 64)
}

// packedHeadsTogether is the same of packed sequences, for shaders/include/items.glsl: the keys and values of all sequences. Blocks that
// see all keys of a sequence follow one another by themselves.
func packedHeadsTogether(k *kernel.Prediction, p *attn.Problem) int {
	if !p.Uneven() {
		return p.Heads
	}
	perHead := p.KeyRows() * uint64((p.HeadDim+p.ValueDim)*p.DType.Size())
	return min(int(max(uint64(k.CacheMiB)<<20/perHead, 4)), p.Heads)
}

// ChooseTile takes the first row that fits; overrides from t replace single numbers. A tile that few workgroups would use is made
// smaller (see shrink).
func ChooseTile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, form int, t *kernel.Tuning) (Tile, error) {
	k := c.Prediction()
	terms, err := keyTerms(p, s, form, t)
	if err != nil {
		return Tile{}, err
	}
	return firstTile(c.Suiting(kernel.Asked(p, s), "matrix_forward"), c, p, t, func(tile Tile) Tile {
		if p.Cached() {
			tile.KeyTerms, tile.WholeKeys = max(terms, 1), terms == 0
		}
		return tile.Complete(&k, p, s, form)
	})
}

// firstTile takes the first row that fits once it is completed and overridden.
func firstTile(rows []*tiles.Row, c *kernel.Capabilities, p *attn.Problem, t *kernel.Tuning, complete func(Tile) Tile) (Tile, error) {
	why := "no row of tiles is for the problem"
	for _, row := range rows {
		tile := complete(TileOf(row))
		tile.override(t)
		if why = tile.Check(p.HeadDim, p.ValueDim, c); why == "" {
			tile.recut(c, p, t)
			why = kernel.CheckParts(tile.Parts, p)
		}
		if why == "" {
			t.Took(row)
			return tile, nil
		}
	}
	for name := range numberRanges.And(headRanges, lateRange, repeatRange) {
		if _, given := t.Given[name]; given {
			return Tile{}, t.NoTile(why)
		}
	}
	return Tile{}, &kernel.Declined{Why: why} // whatever else was given, no row of tiles fits the device
}

// Complete fills in what a row of the table leaves open.
func (t Tile) Complete(k *kernel.Prediction, p *attn.Problem, s kernel.Fragment, form int) Tile {
	t.cut(p, s, form)
	// A packed tile reads keys and values once for all query heads of a key head.
	t.Pack = p.Group() > 1 && p.QueryLen < t.Rows()
	if k.Fill {
		t = t.fill(k, p)
	}
	switch {
	case !p.Packed.None(): // a table has the order of the blocks of each head
		t.HeadsTogether = packedHeadsTogether(k, p)
	case p.Uneven():
		t.HeadsTogether = CausalHeadsTogether(k, p)
	case t.HeadsTogether == 0:
		t.HeadsTogether = 1
	}
	return t
}

// cut rounds a row of the table to whole fragments.
func (t *Tile) cut(p *attn.Problem, s kernel.Fragment, form int) {
	t.Fragment, t.Form, t.Drop, t.Parts = s, form, p.DropThreshold() > 0, 1
	whole := max(s.N, s.K) // one divides the other
	t.CK = attn.CeilDiv(t.CK, whole) * whole
	t.BC = attn.CeilDiv(t.BC, t.CK) * t.CK
	if !t.canBeLate(p, form) {
		t.Late, t.Sums, t.LookApart = 0, false, false
	}
	t.Repeat = t.Repeat && t.Terms == 0 && !t.KeysOutside && t.Late != lateTurned && canRepeat(p, form)
	if t.QReg == 0 {
		t.QReg = attn.CeilDiv(p.HeadDim, s.K)
	}
}

// keyTerms is the number of elements that a key is staged as. Those of fp8 are exact in one. Those of blocks have up to 18 bits, more than
// bf16's eight and fp16's eleven: the rounding of one would move lse by several times what it may be off, with large scores in fp16 too.
// 0 stands for the whole numbers that they are without their block's scale, by which products are multiplied, where fragments are of one
// block each and lanes know the keys of their scores; blocks that have a least number besides need two elements.
func keyTerms(p *attn.Problem, s kernel.Fragment, form int, t *kernel.Tuning) (int, error) {
	if p.KeyType.Block() > 1 {
		why := ""
		switch {
		case attn.HasLeast(p.KeyType):
			why = fmt.Sprintf("blocks of %v have a least number besides", p.KeyType)
		case form == kernel.FormShared || p.KeyType.Block()%s.K != 0:
			why = fmt.Sprintf("scores of fragments of %d columns in form %d cannot be multiplied by the scales of blocks", s.K, form)
		}
		terms := t.Get(keyTermsParameter, kernel.BoolInt(why != "")*2)
		if terms == 0 && why != "" {
			return 0, t.Bad(keyTermsParameter, "%s", why)
		}
		return terms, nil
	}
	if _, given := t.Given[keyTermsParameter]; given {
		t.Get(keyTermsParameter, 0)
		return 0, t.Bad(keyTermsParameter, "goes with keys of blocks, such as %v, and these are %v", attn.Q8_0, p.KeyType)
	}
	return 1, nil
}

const keyTermsParameter = "key_terms"

// rowsOf is the number of rows that blocks are cut from, and of which heads; packed, the rows of a key head are one behind another.
func rowsOf(p *attn.Problem, packed bool) (rows, heads int) {
	if packed {
		return p.QueryLen * p.Group(), p.Batch * p.KeyHeads
	}
	return p.QueryLen, p.Batch * p.Heads
}

func (t *Tile) Groups(p *attn.Problem) uint64 {
	_, heads := rowsOf(p, t.Pack)
	return t.blocks(p).Most(p) * uint64(heads/p.Batch)
}

// blocks is how queries are cut.
func (t *Tile) blocks(p *attn.Problem) kernel.RowBlocks {
	b := kernel.RowBlocks{Rows: t.Rows(), Columns: t.BC, Members: 1}
	if t.Pack {
		b.Members = p.Group()
	}
	return b
}

// fill takes fewer rows a workgroup, or cuts the keys into parts, where that is predicted to be faster: where there are too few
// workgroups to fill the device.
func (t Tile) fill(k *kernel.Prediction, p *attn.Problem) Tile {
	best, least, small := t, math.Inf(1), k.SmallPace
	if t.Terms > 0 {
		small = k.SplitSmallPace
	}
	for tile, more := t, true; more; more = tile.shrink(p) {
		pace := float64(tile.products())
		if tile.RM < t.RM {
			pace *= k.HalfPace
		}
		if tile.W < t.W {
			pace *= small
		}
		if cost := tile.cutKeys(k, p, pace); cost < least {
			best, least = tile, cost
		}
	}
	return best
}

// cutKeys cuts the keys into as many parts as are predicted to be fastest with this tile, and gives the cost.
func (t *Tile) cutKeys(k *kernel.Prediction, p *attn.Problem, pace float64) float64 {
	parts, least := 1, math.Inf(1)
	for t.Parts = 1; t.Parts <= kernel.MostPartsOf(p); t.Parts++ {
		if cost := t.predict(k, p, pace); cost < least {
			parts, least = t.Parts, cost
		}
	}
	t.Parts = parts
	return least
}

// recut does the same where the caller gave another tile than fill chose the parts for, unless parts are given too.
func (t *Tile) recut(c *kernel.Capabilities, p *attn.Problem, o *kernel.Tuning) {
	given := func(name string) bool { _, ok := o.Given[name]; return ok }
	if t.KeysOutside || given("parts") || !given("w") && !given("rm") && !given("br") {
		return
	}
	k := c.Prediction()
	if !k.Fill {
		return
	}
	t.cutKeys(&k, p, float64(t.products()))
	o.Effect["parts"] = t.Parts
}

func (t *Tile) predict(k *kernel.Prediction, p *attn.Problem, pace float64) float64 {
	return predict(k, p, t.Rows(), t.W, t.Groups(p), t.Parts, pace)
}

// predict gives the cost of a pass with this number of workgroups for each part of the keys, of these rows and subgroups, in pairs of a row
// and a key on one multiprocessor; pace is the cost of a pair. A multiprocessor's workgroups share it. They take as long as the one with
// most keys, or as all of them together. docs/notes/caches.md has the measurements that the constants are from.
func predict(k *kernel.Prediction, p *attn.Problem, rows, subgroups int, workgroups uint64, inParts int, pace float64) float64 {
	count := float64(k.Count)
	beside := float64(max(1, k.ResidentSubgroups/subgroups)) // workgroups on a multiprocessor
	parts, groups := float64(inParts), float64(workgroups)
	rounds := math.Ceil(groups * parts / (count * beside))
	if beside > 1 && groups*parts <= count {
		pace *= k.AlonePace
	}
	cost := float64(rows) * pace * beside * max(float64(p.MostKeys()), rounds*p.Mask().MeanKeys()) / parts
	if inParts > 1 {
		all := float64(p.Heads) * float64(p.QueryRows())
		cost += k.CombinePairs + k.PartRowPairs/count*parts*all
	}
	return cost
}

// shrink takes fewer rows a workgroup, if it may be smaller. The tile of keys shrinks along, for fewer invocations share the loading
// of it.
func (t *Tile) shrink(p *attn.Problem) bool {
	leastSubgroups := 4 // fewer hide no latency
	if rows, _ := rowsOf(p, t.Pack); max(p.HeadDim, p.ValueDim) > 128 && rows > t.Rows()/2 {
		leastSubgroups = 8
	}
	switch {
	case t.RM > 1:
		t.RM = attn.CeilDiv(t.RM, 2)
		if t.W <= leastSubgroups && t.tilesShared() > 1 { // there are registers for the next tile now, and half as many barriers to wait at
			t.Prefetch = 1
			t.BC *= 2
		}
	case t.W > leastSubgroups:
		t.W = max(leastSubgroups, attn.CeilDiv(t.W, 2))
		if t.tilesShared() > 1 { // else two workgroups do not fit beside each other
			t.Prefetch = 1
		}
	default:
		return false
	}
	const mostPieces = 8 // of 16 bytes, that an invocation holds of the next tile
	for t.Prefetch > 0 && t.BC > t.CK && attn.CeilDiv(t.BC*attn.CeilDiv(p.HeadDim+p.ValueDim, 8), t.Threads()) > mostPieces {
		t.BC -= t.CK
	}
	return true
}

// override replaces single numbers by the caller's. br is another way to say w.
func (t *Tile) override(o *kernel.Tuning) {
	tileFields.Take(t, o, "", "rm", "w")
	if per := t.RM * t.Fragment.M; per > 0 {
		if br := o.Get("br", t.W*per); br != t.W*per {
			t.W = 0 // not a whole number of subgroups: check says so
			if br%per == 0 {
				t.W = br / per
			}
			o.Effect["w"] = t.W
		}
	}
	tileFields.Take(t, o, "", "ck")
	if _, given := o.Given["bc"]; !given && t.CK > 0 && t.BC%t.CK != 0 {
		t.BC = attn.CeilDiv(t.BC, t.CK) * t.CK
	}
	tileFields.Take(t, o, "", "bc", "prefetch", "pipe", "max_first", "q_reg", "keep_masks", "steps", "whole")
	if t.KeysOutside { // a workgroup is a head
		return
	}
	tileFields.Take(t, o, "", "late", "sums", "look_apart", "heads_together")
	if t.Terms == 0 {
		tileFields.Take(t, o, "", "repeat")
	}
	cutFields.Take(t, o, "")
}

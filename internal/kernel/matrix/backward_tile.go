package matrix

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Which sums the kernel of keys makes: PARTS in shaders/include/matrix_backward.glsl.
const (
	onlyDK   = 1
	onlyDV   = 2
	dkAndDV  = 3
	wideHead = 128 // dimensions beyond which dk and dv are two dispatches, whose sums do not fit into registers together
)

// BackwardTile is the shape of the work of one of the two matrix backward kernels; shaders/include/matrix_backward.glsl
// says what each number means. Rows are keys in one and queries in the other.
type BackwardTile struct {
	Fragment      kernel.Fragment
	Form          int
	Keys          bool // the kernel of keys
	split         bool // dk and dv apart
	W, RM         int  // subgroups of a workgroup, row fragments of each
	BC, CK        int  // columns of a tile, and of a chunk of it
	Prefetch      int  // 1: the next tile waits in registers; 2: it fills a second one in shared memory, chunk by chunk
	AReg, BReg    int  // slices of the rows' operands in registers
	HeadsTogether int
	ByLane        int // how weights find what dropout draws for them

	Tangents bool // of forward mode: rows are queries and their tangents, and a tile has keys, values and the tangents of both
	ToMemory bool // P and dS go to memory, and nothing is summed: Weights
	Slice    int  // then, of wide heads: columns of all operands that are staged together; 0: whole rows are
	KeepsDS  bool // of the kernel of keys: dSᵀ goes to memory: Keys
	DBias    bool // then, and in the kernel of queries: dS leaves, where it is wanted, as the gradient with respect to the bias
}

// backwardFields are the numbers of a BackwardTile that rows of tables name.
var backwardFields = kernel.Fields[BackwardTile]{
	{Name: "w", Of: func(t *BackwardTile) any { return &t.W }},
	{Name: "rm", Constant: "RM", Of: func(t *BackwardTile) any { return &t.RM }},
	{Name: "bc", Constant: "BC", Of: func(t *BackwardTile) any { return &t.BC }},
	{Name: "ck", Constant: "CK", Of: func(t *BackwardTile) any { return &t.CK }},
	{Name: "prefetch", Constant: "PREFETCH", Of: func(t *BackwardTile) any { return &t.Prefetch }},
	{Name: "a_reg", Constant: "A_REG", Of: func(t *BackwardTile) any { return &t.AReg }, Open: true},
	{Name: "b_reg", Constant: "B_REG", Of: func(t *BackwardTile) any { return &t.BReg }, Open: true},
}

// sliceFields is the number that rows of wide heads name besides.
var sliceFields = kernel.Fields[BackwardTile]{
	{Name: "slice", Constant: "SLICE", Of: func(t *BackwardTile) any { return &t.Slice }},
}

// leastTogether is how many heads go side by side at least where dS is kept.
const leastTogether = 16

// backwardHeads is the number that no row names, since it follows from the problem.
var backwardHeads = kernel.Fields[BackwardTile]{
	{Name: "heads_together", Constant: "HEADS_TOGETHER", Of: func(t *BackwardTile) any { return &t.HeadsTogether }},
}

// Ways in which weights find what dropout draws for them: BY_LANE in shaders/include/matrix_backward.glsl.
const (
	DrawEach  = 0  // each its word
	DrawWords = 1  // one word for all that a lane has of a query and 16 keys
	DrawBits  = 2  // the same, of 16 bits a draw; where columns are keys, of the lane's own draws
	bitsDim   = 64 // dimensions up to which bits are faster than words, where sums take registers: beyond, these are scarcer
)

// LaneOfDraws is the best way that the layout and the tile allow.
func (t *BackwardTile) LaneOfDraws(p *attn.Problem, l *kernel.FragmentLayout) int {
	switch {
	case p.DropThreshold() == 0 || t.rows() < 1 || t.BC < 1: // Check says what is wrong with such a tile
		return DrawEach
	case !t.Keys && l.OwnDraws(t.Form) && kernel.SharesDraws(t.BC) && t.BC%16 == 0 && !t.Tangents &&
		(max(p.HeadDim, p.ValueDim) <= bitsDim || t.ToMemory && t.Slice == 0): // of wide heads not timed
		return DrawBits
	case t.Keys && !(t.Fragment.M%16 == 0 && l.RowsOfDraws(t.Form) && kernel.SharesDraws(t.rows())):
		return DrawEach
	case !t.Keys && !(t.CK%16 == 0 && l.ColumnsOfDraws(t.Form) && kernel.SharesDraws(t.BC)):
		return DrawEach
	case t.Keys && max(p.HeadDim, p.ValueDim) <= bitsDim && t.Fragment.M == 16 && 4%t.RM == 0 && l.PairsOfQueries():
		return DrawBits
	}
	return DrawWords
}

func (t *BackwardTile) rows() int { return t.W * t.RM * t.Fragment.M }

// BlockRows is the rows of a workgroup.
func (t *BackwardTile) BlockRows() int { return t.rows() }

func (t *BackwardTile) String() string {
	return fmt.Sprintf("%dx%d", t.rows(), t.BC)
}

// pieces lists the dispatches by what they sum.
func (t *BackwardTile) pieces() []int {
	if t.Keys && t.split {
		return piecesApart
	}
	return piecesTogether
}

var piecesApart, piecesTogether = []int{onlyDK, onlyDV}, []int{dkAndDV}

func (t *BackwardTile) groups(p *attn.Problem) uint64 {
	if t.Keys {
		return t.blocks().Most(p) * uint64(p.KeyHeads)
	}
	return t.blocks().Most(p) * uint64(p.Heads)
}

// blocks is how rows, of keys or of queries, are cut.
func (t *BackwardTile) blocks() kernel.RowBlocks {
	return kernel.RowBlocks{Keys: t.Keys, Rows: t.rows(), Columns: t.BC}
}

// masks says whether any tile needs the loop with masks. It is the one that looks at single scores.
func (t *BackwardTile) masks(p *attn.Problem) bool {
	return p.Masked() || !t.Keys && (p.Padded() || p.KeyLen%t.BC != 0) || p.Blocks.Classed || !p.Blocks.None() && !t.inBlocks(p.Blocks)
}

// inBlocks says whether every tile lies in one block.
func (t *BackwardTile) inBlocks(b attn.Blocks) bool {
	if t.Keys {
		return b.OfTiles(t.BC, t.rows())
	}
	return b.OfTiles(t.rows(), t.BC)
}

// Within cuts a tile down so that it lies in one block of the problem's mask, and leaves it as it is where that would make it too small to
// be worth it. As many rows as fit; among as many, subgroups before row fragments until there are enough of them.
func (t BackwardTile) Within(b attn.Blocks) BackwardTile {
	const (
		leastRows      = 32
		leastSubgroups = 4 // fewer hide no latency
	)
	own, walked := b.Queries, b.Keys
	if t.Keys {
		own, walked = walked, own
	}
	cut := t
	cut.W, cut.RM = 0, 0
	for rm := 1; rm <= t.RM; rm++ {
		for w := 1; w <= t.W*t.RM/rm; w++ {
			more, try := w*rm-cut.W*cut.RM, t
			try.W, try.RM = w, rm
			if own%try.rows() == 0 && (more > 0 || more == 0 && w >= leastSubgroups) {
				cut.W, cut.RM = w, rm
			}
		}
	}
	for cut.BC > 0 && walked%cut.BC != 0 {
		cut.BC -= t.CK
	}
	if cut.rows() < min(t.rows(), leastRows) || cut.BC <= 0 {
		return t
	}
	return cut
}

// matrixBackwardShared is the lengths of the shader's shared arrays: tile, rows and h in units of 16 bytes, stats in 8, the others in 4.
type matrixBackwardShared struct {
	aPitch, bPitch, Tile, rows, h, patch int
	Stats, x, Drop                       int
}

func (s matrixBackwardShared) bytes() int { return 16*(s.Tile+s.rows+s.h) + 8*s.Stats + 4*(s.x+s.Drop) }

func (t *BackwardTile) Shared(p *attn.Problem) matrixBackwardShared {
	f := &t.Fragment
	width := func(d int) int { return max(attn.CeilDiv(d, f.K)*f.K, attn.CeilDiv(d, f.N)*f.N) / 8 }
	s := matrixBackwardShared{aPitch: width(p.HeadDim) | 1, bPitch: width(p.ValueDim) | 1, h: 1, x: 1, Stats: 1, Drop: leastDrop}
	s.patch = max(f.K/8, f.N/4, 1)
	for s.patch < max(s.aPitch, s.bPitch)-1 && 2*s.patch <= 8 {
		s.patch *= 2
	}
	tiles := 1
	if t.Prefetch == 2 {
		tiles = 2
	}
	s.Tile = max(tiles*t.BC*(s.aPitch+s.bPitch), t.W*f.M*(s.patch|1))
	rest := func(n int) int {
		if n <= 0 {
			return 0
		}
		return n*f.K/8 | 1
	}
	of := p.ValueDim
	if t.Tangents {
		of = p.HeadDim
		s.Tile = max(2*tiles*t.BC*(s.aPitch+s.bPitch), t.W*f.M*(s.patch|1))
	}
	s.rows = max(1, t.rows()*(rest(attn.CeilDiv(p.HeadDim, f.K)-t.AReg)+rest(attn.CeilDiv(of, f.K)-t.BReg)))
	switch {
	case t.Slice > 0:
		s.aPitch, s.bPitch, s.rows, s.Tile = 1, 1, 1, (t.rows()+t.BC)*(t.Slice/8|1)
		if t.Form != kernel.FormRegisters {
			s.x = t.W * 2 * f.M * t.CK
		} else {
			s.Tile = max(s.Tile, t.W*t.outOfSubgroup())
		}
	case t.Form != kernel.FormRegisters:
		s.x, s.h = t.W*2*f.M*t.CK, t.W*2*f.M*t.CK/8
	case t.DBias && !t.ToMemory:
		s.h = t.W * f.M * (t.CK/4 + 2)
	case t.ToMemory:
		s.h = t.W * t.outOfSubgroup()
	}
	switch {
	case t.Keys:
		s.Stats = tiles * t.BC
	case t.Form != kernel.FormRegisters || t.Tangents:
		s.Stats = t.rows()
	}
	if p.DropThreshold() > 0 {
		keys, queries := t.BC, t.rows()
		if t.Keys {
			keys, queries = queries, keys
		}
		words := 16
		switch {
		case t.ByLane == DrawBits && t.Keys:
			words = 4
		case t.ByLane == DrawBits: // in registers
			words = 0
		}
		s.Drop = max(leastDrop, words*drawGroups(keys)*(queries+8))
	}
	return s
}

// outOfSubgroup is what P and dS of a row fragment and chunk take in shared memory on their way out, in units of 16 bytes.
func (t *BackwardTile) outOfSubgroup() int {
	if t.DBias {
		return t.Fragment.M * (t.CK/8 | 1 + t.CK/4 + 2)
	}
	return t.Fragment.M * 2 * (t.CK/8 | 1)
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *BackwardTile) Check(prefix string, p *attn.Problem, c *kernel.Capabilities) string {
	f := &t.Fragment
	switch {
	case t.W < 1 || t.RM < 1:
		return fmt.Sprintf("%sw = %d and %srm = %d must be at least 1", prefix, t.W, prefix, t.RM)
	case t.CK < 1 || t.CK%f.N != 0 || t.CK%f.K != 0:
		return fmt.Sprintf("%sck = %d must be a multiple of the fragment's N = %d and K = %d", prefix, t.CK, f.N, f.K)
	case t.BC < 1 || t.BC%t.CK != 0:
		return fmt.Sprintf("%sbc = %d must be a multiple of %sck = %d", prefix, t.BC, prefix, t.CK)
	case t.Prefetch < 0 || t.Prefetch > 2:
		return fmt.Sprintf("%sprefetch = %d must be 0, 1 or 2", prefix, t.Prefetch)
	case t.AReg < 1 || t.BReg < 1:
		return fmt.Sprintf("%sa_reg = %d and %sb_reg = %d must be at least 1", prefix, t.AReg, prefix, t.BReg)
	case t.Slice > 0 && (t.Slice%f.K != 0 || t.BC != t.CK || t.Prefetch > 1):
		return fmt.Sprintf("%[1]sslice = %[2]d must be a multiple of the fragment's K = %[3]d, %[1]sbc = %[4]d be %[1]sck = %[5]d, and "+
			"%[1]sprefetch = %[6]d 0 or 1", prefix, t.Slice, f.K, t.BC, t.CK, t.Prefetch)
	case f.N%8 != 0 || f.K%8 != 0:
		return fmt.Sprintf("fragments of %v: N and K must be multiples of 8", *f)
	}
	return kernel.CheckSubgroups(t.W, f.Lanes, t.Shared(p).bytes(), c)
}

// shrink takes fewer rows a workgroup while there are not enough workgroups to fill a GPU, or not enough rows to fill one.
func (t *BackwardTile) shrink(k *kernel.Prediction, p *attn.Problem) {
	const leastSubgroups = 4 // fewer hide no latency
	rows := p.QueryLen
	if t.Keys {
		rows = p.KeyLen
	}
	for t.groups(p) < uint64(k.Few) || rows <= t.rows()/2 {
		switch {
		case t.RM > 1:
			t.RM = attn.CeilDiv(t.RM, 2)
		case t.W > leastSubgroups:
			t.W = max(leastSubgroups, attn.CeilDiv(t.W, 2))
		default:
			return
		}
		width := p.HeadDim + p.ValueDim // of all that a tile has of a key
		if t.Tangents {
			width *= 2
		}
		const mostPieces = 12 // of 16 bytes, that an invocation holds of the next tile; with Prefetch 2 of a chunk of it, whatever BC
		for t.Prefetch == 1 && t.BC > t.CK && attn.CeilDiv(t.BC*attn.CeilDiv(width, 8), t.W*t.Fragment.Lanes) > mostPieces {
			t.BC -= t.CK
		}
	}
}

// backwardCandidates are the rows of either kernel that suit the device, whatever problem they are for, and candidates for the problem.
func backwardCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	var out tunings
	out.addBackward(c, p, keysLabel, prefixOf(keysLabel))
	out.addBackward(c, p, queriesLabel, prefixOf(queriesLabel))
	return out
}

// KeysCandidates are those of the kernel of keys where dS is left in memory, and of it where it is not, which are as good to try.
func KeysCandidates(c *kernel.Capabilities, p *attn.Problem) []map[string]int {
	var out tunings
	out.addBackward(c, p, keepingLabel, prefixOf(keysLabel))
	out.addBackward(c, p, keysLabel, prefixOf(keysLabel))
	return out
}

// addBackward adds the rows of a kernel that suit the device, and candidates for the problem, as parameters with a prefix.
func (all *tunings) addBackward(c *kernel.Capabilities, p *attn.Problem, name, prefix string) {
	f, lanes, asked := c.Family(), int(c.Facts.Subgroup.Size), kernel.Asked(p, c.Lanes())
	add := func(row *tiles.Row) {
		m := map[string]int{prefix + "prefetch": 0}
		for value, n := range row.Values {
			if value != kernel.KeepDSParameter { // of another kernel than this one
				m[prefix+value] = n
			}
		}
		all.add(c, row.Get("w"), row.Get("rm"), m)
	}
	for _, row := range f.Rows(name) {
		if row.SuitsLanes(lanes) {
			add(row)
		}
	}
	for _, row := range f.Candidates(name) {
		if row.Suits(asked) {
			add(row)
		}
	}
}

// prefixOf is that of a kernel's tuning parameters.
func prefixOf(label string) string { return strings.TrimPrefix(label, "matrix_backward_") + "_" }

// ChooseBackwardTile takes the first row that fits; AReg and BReg of 0 keep all slices in registers; overrides from t, whose names begin
// with prefix, replace numbers.
func ChooseBackwardTile(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int, prefix string,
	t *kernel.Tuning) (BackwardTile, error) {
	return chooseBackwardTile(c, p, l, f, form, prefix, "matrix_backward_"+strings.TrimSuffix(prefix, "_"), t)
}

// chooseBackwardTile is the same with the rows of a kernel, which may be the one that puts weights into memory.
func chooseBackwardTile(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int, prefix, rows string,
	t *kernel.Tuning) (BackwardTile, error) {
	k, why := c.Prediction(), "no tile fits"
	for _, row := range c.Suiting(kernel.Asked(p, f), rows) {
		var tile BackwardTile
		backwardFields.Read(&tile, row)
		tile.Tangents = rows == jvpLabel
		tile.KeepsDS = rows == keepingLabel
		tile.ToMemory = rows == weightsLabel || rows == wideWeightsLabel
		if rows == wideWeightsLabel {
			sliceFields.Read(&tile, row)
			sliceFields.Take(&tile, t, prefix)
			tile.Slice = attn.CeilDiv(tile.Slice, f.K) * f.K
			tile.AReg, tile.BReg = 1, 1 // there are none
		}
		tile.DBias = tile.ToMemory && form == kernel.FormRegisters && !p.Bias.None() && ownOf(p) == allOwn &&
			p.Packed.None() && // or elements of it belong to queries that no sequence has
			p.Features()&attn.WithSlopes == 0 // or it is of other dS than dQ and dK
		tile.Fragment, tile.Form, tile.Keys, tile.split = f, form, prefix == "kv_", max(p.HeadDim, p.ValueDim) > wideHead
		whole := max(f.N, f.K) // one divides the other
		tile.CK = attn.CeilDiv(tile.CK, whole) * whole
		tile.BC = attn.CeilDiv(tile.BC, tile.CK) * tile.CK
		if k.Fill {
			tile.shrink(&k, p)
		}
		if !p.Blocks.None() {
			tile = tile.Within(p.Blocks)
		}
		switch tile.HeadsTogether = 1; {
		case !p.Packed.None():
			tile.HeadsTogether = packedHeadsTogether(&k, p)
		case p.Uneven():
			tile.HeadsTogether = HeadsTogether(&k, p)
			if tile.KeepsDS { // more of them than a cache has room for, so that the longest blocks come sooner
				tile.HeadsTogether = max(tile.HeadsTogether, leastTogether)
			}
		}
		of := p.ValueDim
		if tile.Tangents {
			of = p.HeadDim
		}
		tile.AReg, tile.BReg = cmp.Or(tile.AReg, attn.CeilDiv(p.HeadDim, f.K)), cmp.Or(tile.BReg, attn.CeilDiv(of, f.K))
		if tile.Slice > 0 {
			backwardFields.Take(&tile, t, prefix, "w", "rm", "bc", "ck", "prefetch")
		} else {
			backwardFields.Take(&tile, t, prefix)
		}
		if !tile.ToMemory { // those of a slab
			backwardHeads.Take(&tile, t, prefix)
		}
		if tile.Keys && !tile.KeepsDS {
			tile.split = t.Get("kv_split", kernel.BoolInt(tile.split)) != 0
		}
		tile.ByLane = tile.LaneOfDraws(p, l)
		if why = tile.Check(prefix, p, c); why == "" {
			t.Took(row)
			return tile, nil
		}
	}
	aboutTiles := len(t.Given)
	for _, name := range []string{kernel.SlabsParameter, kernel.KeepDSParameter, dBiasParameter} { // are about none
		if _, given := t.Given[name]; given {
			aboutTiles--
		}
	}
	if aboutTiles > 0 {
		return BackwardTile{}, attn.BadArgument("WithBackwardTuning", fmt.Sprint(t.Given), "%s", why)
	}
	return BackwardTile{}, &kernel.Declined{Why: why}
}

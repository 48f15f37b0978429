package flash

import (
	"cmp"
	"fmt"
	"strings"
)

// Which sums the kernel of keys makes: PARTS in shaders/include/matrix_backward.glsl.
const (
	onlyDK   = 1
	onlyDV   = 2
	dkAndDV  = 3
	wideHead = 128 // dimensions beyond which dk and dv are two dispatches, whose sums do not fit into registers together
)

// matrixBackwardTile is the shape of the work of one of the two matrix backward kernels; shaders/include/matrix_backward.glsl
// says what each number means. Rows are keys in one and queries in the other.
type matrixBackwardTile struct {
	fragment      matrixShape
	Form          int
	keys          bool // the kernel of keys
	split         bool // dk and dv apart
	W, RM         int  // subgroups of a workgroup, row fragments of each
	BC, CK        int  // columns of a tile, and of a chunk of it
	Prefetch      int  // 1: the next tile waits in registers; 2: it fills a second one in shared memory, chunk by chunk
	AReg, BReg    int  // slices of the rows' operands in registers
	HeadsTogether int
	ByLane        int // how weights find what dropout draws for them
}

// Ways in which weights find what dropout draws for them: BY_LANE in shaders/include/matrix_backward.glsl.
const (
	drawEach  = 0  // each its word
	drawWords = 1  // one word for all that a lane has of a query and 16 keys
	drawBits  = 2  // the same, of 16 bits a draw
	bitsDim   = 64 // dimensions up to which bits are faster than words: beyond, registers are scarcer than shared memory
)

// byLane is the best way that the layout and the tile allow.
func (t *matrixBackwardTile) byLane(p *Problem, l *matrixLayout) int {
	switch {
	case p.dropThreshold() == 0 || t.rows() < 1 || t.BC < 1: // check says what is wrong with such a tile
		return drawEach
	case t.keys && !(t.fragment.M%16 == 0 && l.rowsOfDraws(t.Form) && sharesDraws(t.rows())):
		return drawEach
	case !t.keys && !(t.CK%16 == 0 && l.columnsOfDraws(t.Form) && sharesDraws(t.BC)):
		return drawEach
	case max(p.HeadDim, p.ValueDim) > bitsDim || t.keys && !(t.fragment.M == 16 && 4%t.RM == 0 && l.pairsOfQueries()):
		return drawWords
	}
	return drawBits
}

func (t *matrixBackwardTile) rows() int      { return t.W * t.RM * t.fragment.M }
func (t *matrixBackwardTile) String() string { return fmt.Sprintf("%dx%d", t.rows(), t.BC) }

// pieces lists the dispatches by what they sum.
func (t *matrixBackwardTile) pieces() []int {
	if t.keys && t.split {
		return piecesApart
	}
	return piecesTogether
}

var piecesApart, piecesTogether = []int{onlyDK, onlyDV}, []int{dkAndDV}

func (t *matrixBackwardTile) groups(p *Problem) uint64 {
	if t.keys {
		return uint64(ceilDiv(p.KeyLen, t.rows())) * uint64(p.Batch) * uint64(p.KeyHeads)
	}
	return uint64(ceilDiv(p.QueryLen, t.rows())) * uint64(p.Batch) * uint64(p.Heads)
}

// masks says whether any tile needs the loop with masks.
func (t *matrixBackwardTile) masks(p *Problem) bool {
	return p.Causal != CausalNone || !t.keys && p.KeyLen%t.BC != 0
}

// matrixBackwardShared is the lengths of the shader's shared arrays: tile, rows and h in units of 16 bytes, stats in 8, the others in 4.
type matrixBackwardShared struct {
	aPitch, bPitch, tile, rows, h, patch int
	stats, x, drop                       int
}

func (s matrixBackwardShared) bytes() int { return 16*(s.tile+s.rows+s.h) + 8*s.stats + 4*(s.x+s.drop) }

func (t *matrixBackwardTile) shared(p *Problem) matrixBackwardShared {
	f := &t.fragment
	width := func(d int) int { return max(ceilDiv(d, f.K)*f.K, ceilDiv(d, f.N)*f.N) / 8 }
	s := matrixBackwardShared{aPitch: width(p.HeadDim) | 1, bPitch: width(p.ValueDim) | 1, h: 1, x: 1, stats: 1, drop: leastDrop}
	s.patch = max(f.K/8, f.N/4, 1)
	for s.patch < max(s.aPitch, s.bPitch)-1 && 2*s.patch <= 8 {
		s.patch *= 2
	}
	tiles := 1
	if t.Prefetch == 2 {
		tiles = 2
	}
	s.tile = max(tiles*t.BC*(s.aPitch+s.bPitch), t.W*f.M*(s.patch|1))
	rest := func(n int) int {
		if n <= 0 {
			return 0
		}
		return n*f.K/8 | 1
	}
	s.rows = max(1, t.rows()*(rest(ceilDiv(p.HeadDim, f.K)-t.AReg)+rest(ceilDiv(p.ValueDim, f.K)-t.BReg)))
	if t.Form != formRegisters {
		s.x, s.h = t.W*2*f.M*t.CK, t.W*2*f.M*t.CK/8
	}
	switch {
	case t.keys:
		s.stats = tiles * t.BC
	case t.Form != formRegisters:
		s.stats = t.rows()
	}
	if p.dropThreshold() > 0 {
		keys, queries := t.BC, t.rows()
		if t.keys {
			keys, queries = queries, keys
		}
		words := 16
		if t.ByLane == drawBits {
			words = 4
		}
		s.drop = max(leastDrop, words*drawGroups(keys)*(queries+8))
	}
	return s
}

// check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *matrixBackwardTile) check(prefix string, p *Problem, c *capabilities) string {
	f := &t.fragment
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
	case f.N%8 != 0 || f.K%8 != 0:
		return fmt.Sprintf("fragments of %v: N and K must be multiples of 8", *f)
	}
	return checkSubgroups(t.W, f.Lanes, t.shared(p).bytes(), c)
}

// shrink takes fewer rows a workgroup while there are not enough workgroups to fill a GPU, or not enough rows to fill one.
func (t *matrixBackwardTile) shrink(k *prediction, p *Problem) {
	const leastSubgroups = 4 // fewer hide no latency
	rows := p.QueryLen
	if t.keys {
		rows = p.KeyLen
	}
	for t.groups(p) < uint64(k.few) || rows <= t.rows()/2 {
		switch {
		case t.RM > 1:
			t.RM = ceilDiv(t.RM, 2)
		case t.W > leastSubgroups:
			t.W = max(leastSubgroups, ceilDiv(t.W, 2))
		default:
			return
		}
		const mostPieces = 12 // of 16 bytes, that an invocation holds of the next tile; with Prefetch 2 of a chunk of it, whatever BC
		for t.Prefetch == 1 && t.BC > t.CK && ceilDiv(t.BC*ceilDiv(p.HeadDim+p.ValueDim, 8), t.W*t.fragment.Lanes) > mostPieces {
			t.BC -= t.CK
		}
	}
}

// chooseMatrixBackwardTile takes the first row that fits; AReg and BReg of 0 keep all slices in registers; overrides from t, whose names begin with prefix, replace numbers.
func chooseMatrixBackwardTile(c *capabilities, p *Problem, l *matrixLayout, f matrixShape, form int, prefix string, t *tuning) (matrixBackwardTile, error) {
	k, why := c.prediction(), "no tile fits"
	for _, row := range c.suiting(asked(p, f), "matrix_backward_"+strings.TrimSuffix(prefix, "_")) {
		tile := matrixBackwardTile{W: row.Get("w"), RM: row.Get("rm"), BC: row.Get("bc"), CK: row.Get("ck"), Prefetch: row.Get("prefetch"),
			AReg: row.Get("a_reg"), BReg: row.Get("b_reg")}
		tile.fragment, tile.Form, tile.keys, tile.split = f, form, prefix == "kv_", max(p.HeadDim, p.ValueDim) > wideHead
		whole := max(f.N, f.K) // one divides the other
		tile.CK = ceilDiv(tile.CK, whole) * whole
		tile.BC = ceilDiv(tile.BC, tile.CK) * tile.CK
		if k.Fill {
			tile.shrink(&k, p)
		}
		tile.HeadsTogether = 1
		if p.Causal != CausalNone {
			tile.HeadsTogether = headsTogether(&k, p)
		}
		for _, x := range []struct {
			name  string
			value *int
			def   int
		}{
			{"w", &tile.W, tile.W}, {"rm", &tile.RM, tile.RM}, {"bc", &tile.BC, tile.BC}, {"ck", &tile.CK, tile.CK}, {"prefetch", &tile.Prefetch, tile.Prefetch},
			{"a_reg", &tile.AReg, cmp.Or(tile.AReg, ceilDiv(p.HeadDim, f.K))}, {"b_reg", &tile.BReg, cmp.Or(tile.BReg, ceilDiv(p.ValueDim, f.K))},
			{"heads_together", &tile.HeadsTogether, tile.HeadsTogether},
		} {
			*x.value = t.get(prefix+x.name, x.def)
		}
		if tile.keys {
			tile.split = t.get("kv_split", boolInt(tile.split)) != 0
		}
		if tile.HeadsTogether < 1 {
			return tile, t.bad(prefix+"heads_together", "must be at least 1")
		}
		tile.ByLane = tile.byLane(p, l)
		if why = tile.check(prefix, p, c); why == "" {
			t.took(row)
			return tile, nil
		}
	}
	if len(t.given) > 0 {
		return matrixBackwardTile{}, badArgument("WithBackwardTuning", fmt.Sprint(t.given), "%s", why)
	}
	return matrixBackwardTile{}, &declined{why: why}
}

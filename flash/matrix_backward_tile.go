package flash

import (
	"fmt"

	"github.com/vkattn/vkattn/vk"
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
	Prefetch      int  // 1: the next tile waits in registers
	AReg, BReg    int  // slices of the rows' operands in registers
	HeadsTogether int
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

// matrixBackwardShared is the lengths of the shader's shared arrays: tile, rows and h in units of 16 bytes, the others in 4.
type matrixBackwardShared struct {
	aPitch, bPitch, tile, rows, h, patch int
	stats, x, drop                       int
}

func (s matrixBackwardShared) bytes() int { return 16*(s.tile+s.rows+s.h) + 4*(s.stats+s.x+s.drop) }

func (t *matrixBackwardTile) shared(p *Problem) matrixBackwardShared {
	f := &t.fragment
	width := func(d int) int { return max(ceilDiv(d, f.K)*f.K, ceilDiv(d, f.N)*f.N) / 8 }
	s := matrixBackwardShared{aPitch: width(p.HeadDim) | 1, bPitch: width(p.ValueDim) | 1, h: 1, x: 1, stats: 1, drop: 1}
	s.patch = max(f.K/8, f.N/4, 1)
	for s.patch < max(s.aPitch, s.bPitch)-1 && 2*s.patch <= 8 {
		s.patch *= 2
	}
	s.tile = max(t.BC*(s.aPitch+s.bPitch), t.W*f.M*(s.patch|1))
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
		s.stats = 2 * t.BC
	case t.Form != formRegisters:
		s.stats = 2 * t.rows()
	}
	if p.dropThreshold() > 0 {
		keys, queries := t.BC, t.rows()
		if t.keys {
			keys, queries = queries, keys
		}
		s.drop = 4 * drawGroups(keys) * queries
	}
	return s
}

// check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *matrixBackwardTile) check(prefix string, p *Problem, c *capabilities) string {
	l, s, f := &c.facts.Limits, &c.facts.Subgroup, &t.fragment
	switch {
	case t.W < 1 || t.RM < 1:
		return fmt.Sprintf("%sw = %d and %srm = %d must be at least 1", prefix, t.W, prefix, t.RM)
	case t.CK < 1 || t.CK%f.N != 0 || t.CK%f.K != 0:
		return fmt.Sprintf("%sck = %d must be a multiple of the fragment's N = %d and K = %d", prefix, t.CK, f.N, f.K)
	case t.BC < 1 || t.BC%t.CK != 0:
		return fmt.Sprintf("%sbc = %d must be a multiple of %sck = %d", prefix, t.BC, prefix, t.CK)
	case t.Prefetch < 0 || t.Prefetch > 1:
		return fmt.Sprintf("%sprefetch = %d must be 0 or 1", prefix, t.Prefetch)
	case t.AReg < 1 || t.BReg < 1:
		return fmt.Sprintf("%sa_reg = %d and %sb_reg = %d must be at least 1", prefix, t.AReg, prefix, t.BReg)
	case f.N%8 != 0 || f.K%8 != 0:
		return fmt.Sprintf("fragments of %v: N and K must be multiples of 8", *f)
	case t.W*f.Lanes > int(l.MaxWorkgroupInvocations) || t.W*f.Lanes > int(l.MaxWorkgroupSize[0]):
		return fmt.Sprintf("a workgroup of %d invocations passes the device's %d", t.W*f.Lanes, min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]))
	case s.MaxWorkgroupSubgroups > 0 && t.W > int(s.MaxWorkgroupSubgroups):
		return fmt.Sprintf("a workgroup of %d subgroups passes the device's %d", t.W, s.MaxWorkgroupSubgroups)
	}
	if n := t.shared(p).bytes(); n > int(l.MaxSharedMemory) {
		return fmt.Sprintf("%d bytes of shared memory pass the device's %d", n, l.MaxSharedMemory)
	}
	return ""
}

// matrixBackwardTiles are the tiles tried, best first, by the larger of D and Dv. Starting points from experiments, not
// measured. AReg and BReg of 0 keep all slices in registers.
var matrixBackwardTiles = []struct {
	cpu    bool
	maxDim int
	tile   matrixBackwardTile
}{
	{true, 256, matrixBackwardTile{W: 2, RM: 1, BC: 16, CK: 8}},
	{false, 64, matrixBackwardTile{W: 8, RM: 1, BC: 64, CK: 16, Prefetch: 1}},
	{false, 128, matrixBackwardTile{W: 4, RM: 1, BC: 32, CK: 16}},
	{false, 256, matrixBackwardTile{W: 2, RM: 1, BC: 16, CK: 16, AReg: 8, BReg: 8}},
	{false, 256, matrixBackwardTile{W: 2, RM: 1, BC: 16, CK: 16}},
	{false, 256, matrixBackwardTile{W: 1, RM: 1, BC: 8, CK: 8}},
}

// chooseMatrixBackwardTile takes the first tile that fits; overrides from t, whose names begin with prefix, replace numbers.
func chooseMatrixBackwardTile(c *capabilities, p *Problem, f matrixShape, form int, prefix string, t *tuning) (matrixBackwardTile, error) {
	why := "no tile fits"
	dim := max(p.HeadDim, p.ValueDim)
	for _, row := range matrixBackwardTiles {
		if row.cpu && c.facts.Type != vk.DeviceCPU || dim > row.maxDim {
			continue
		}
		tile := row.tile
		tile.fragment, tile.Form, tile.keys, tile.split = f, form, prefix == "kv_", dim > wideHead
		whole := max(f.N, f.K) // one divides the other
		tile.CK = ceilDiv(tile.CK, whole) * whole
		tile.BC = ceilDiv(tile.BC, tile.CK) * tile.CK
		tile.HeadsTogether = 1
		if p.Causal != CausalNone {
			tile.HeadsTogether = headsTogether(p)
		}
		for _, x := range []struct {
			name  string
			value *int
			def   int
		}{
			{"w", &tile.W, tile.W}, {"rm", &tile.RM, tile.RM}, {"bc", &tile.BC, tile.BC}, {"ck", &tile.CK, tile.CK}, {"prefetch", &tile.Prefetch, tile.Prefetch},
			{"a_reg", &tile.AReg, orElse(tile.AReg, ceilDiv(p.HeadDim, f.K))}, {"b_reg", &tile.BReg, orElse(tile.BReg, ceilDiv(p.ValueDim, f.K))},
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
		if why = tile.check(prefix, p, c); why == "" {
			return tile, nil
		}
	}
	if len(t.given) > 0 {
		return matrixBackwardTile{}, badArgument("WithBackwardTuning", fmt.Sprint(t.given), "%s", why)
	}
	return matrixBackwardTile{}, &declined{why}
}

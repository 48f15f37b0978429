package flash

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/vk"
)

// matrixTile is the shape of the work of matrix_forward or, with KeysOutside, matrix_flash1; shaders/matrix/matrix_forward.comp says what
// each number means. A workgroup of W subgroups takes BR = W·RM·M queries; the head dimensions are rounded up to whole fragments
// in the tile only.
type matrixTile struct {
	fragment      matrixShape
	Form          int
	W             int  // subgroups of a workgroup
	RM            int  // row fragments of a subgroup
	BC, CK        int  // keys of a tile, and of a chunk of it
	Prefetch      int  // 0 none, 1 the next K and V in registers, 2 only K, 3 two tiles in shared memory, 4 and 5 as 3 and 1 under a branch
	Pipe          int  // 1: the next chunk's scores before this chunk's weighted sum
	MaxFirst      int  // 1: growth is noticed by the lane's maximum, else by its sum
	QReg          int  // slices of Q in registers, the rest in shared memory
	HeadsTogether int  // heads whose blocks of one place follow one another
	Pack          bool // the query heads of a key head share a tile
	Drop          bool // weights are dropped
	KeysOutside   bool // matrix_flash1: keys stay while queries pass by
	KeepMasks     bool // the loop with masks stays even where no tile needs it: the driver then happens to spill less
	Steps         bool // places of K and V by steps that all invocations share: fewer instructions, but some tiles run at half the pace
	Whole         bool // where keys are whole tiles, none is clamped: pays at some head dimensions, costs at others
	Parts         int  // parts of the keys, each for workgroups of its own (parts.go); 0 and 1: all in one
}

func (t *matrixTile) rows() int    { return t.W * t.RM * t.fragment.M }
func (t *matrixTile) threads() int { return t.W * t.fragment.Lanes }

func (t *matrixTile) String() string {
	s := fmt.Sprintf("%dx%d %v form %d", t.rows(), t.BC, t.fragment, t.Form)
	if t.Pack {
		s += " packed"
	}
	return s + partsSuffix(t.Parts)
}

// matrixShared is the lengths of the shader's shared arrays and the pitches of their rows, in units of 16 bytes except for x,
// which counts floats. The shader sizes its arrays with these numbers.
type matrixShared struct {
	kPitch, vPitch, kv int // K and V tiles, and patches for rows of Q and O
	qPitch, q          int // slices of Q that are not in registers
	x, h               int // exchange of forms 2 and 3
	patch              int // a row of the patch through which Q enters and O leaves
	drop               int // words: what dropout keeps
	rows               int // patches beside K and V, with KeysOutside
}

// leastDrop is the least length of the array of dropout's draws, in words, though without dropout nothing is there:
// NVIDIA's compiler (580) takes an array of one element for a promise that indices into it are 0, in code that is left out too, and
// computes the places of subgroups in other arrays from that; forms 2 and 3 were wrong.
const leastDrop = 64

func (s matrixShared) bytes() int { return 16*(s.kv+s.q+s.h+s.rows) + 4*(s.x+s.drop) }

// tilesShared is the number of tiles of keys in shared memory.
func (t *matrixTile) tilesShared() int {
	if t.Prefetch == 3 || t.Prefetch == 4 {
		return 2
	}
	return 1
}

// shared lays shared memory out for head dimensions d and dv. Rows have an odd pitch, which spreads them over the banks.
func (t *matrixTile) shared(d, dv int) matrixShared {
	f := &t.fragment
	s := matrixShared{kPitch: ceilDiv(d, f.K)*f.K/8 | 1, vPitch: ceilDiv(dv, f.N)*f.N/8 | 1, qPitch: 1, q: 1, x: 1, h: 1}
	s.drop = leastDrop
	if t.Drop {
		s.drop = max(leastDrop, 16*t.rows()*drawGroups(t.BC))
	}
	tiles := t.tilesShared()
	// Rows of the patch hold whole fragments of Q (2 bytes a number) and of O (4), up to 128 bytes where rows are that long and the
	// patch takes no memory from keys.
	s.patch = max(f.K/8, f.N/4, 1)
	for !t.KeysOutside && s.patch < max(s.kPitch-1, 2*(s.vPitch-1)) && 2*s.patch <= 8 {
		s.patch *= 2
	}
	s.kv = tiles * t.BC * (s.kPitch + s.vPitch)
	if patches := t.W * f.M * (s.patch | 1); t.KeysOutside {
		s.rows = patches
	} else {
		s.kv = max(s.kv, patches)
	}
	if rest := ceilDiv(d, f.K) - t.QReg; rest > 0 {
		s.qPitch = f.K/8*rest | 1
		s.q = t.rows() * s.qPitch
	}
	switch t.Form {
	case formRows:
		s.x = t.W * f.M * t.CK
		s.h = t.W * f.M * t.CK / 8
	case formShared:
		s.x = t.W * (f.M*t.CK + f.M*f.N + 3*t.RM*f.M)
		s.h = t.W * f.M * t.CK / 8
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

// masks says whether any tile of keys needs the loop with masks; a pipeline without it has registers to spare.
func (t *matrixTile) masks(p *Problem) bool {
	return t.KeepMasks || p.Causal != CausalNone || p.KeyLen%t.BC != 0
}

// ragged says whether keys are clamped to the last one in tiles with masks.
func (t *matrixTile) ragged(p *Problem) bool { return !t.Whole || p.KeyLen%t.BC != 0 }

// check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *matrixTile) check(d, dv int, c *capabilities) string {
	f := &t.fragment
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
	case t.QReg < 1:
		return fmt.Sprintf("q_reg = %d must be at least 1", t.QReg)
	case t.HeadsTogether < 1 || t.HeadsTogether > 1<<16:
		return fmt.Sprintf("heads_together = %d must be from 1 to 65536", t.HeadsTogether)
	}
	return checkSubgroups(t.W, t.fragment.Lanes, t.shared(d, dv).bytes(), c)
}

// checkSubgroups names the limit of the device that a workgroup exceeds, by its number of subgroups or its bytes of shared memory; "" for none.
func checkSubgroups(subgroups, lanes, shared int, c *capabilities) string {
	if n := c.facts.Subgroup.MaxWorkgroupSubgroups; n > 0 && subgroups > int(n) {
		return fmt.Sprintf("a workgroup of %d subgroups passes the device's %d", subgroups, n)
	}
	return checkLimits(subgroups*lanes, shared, &c.facts.Limits)
}

// matrixRow is a row of the table of tiles. Zeros say any.
type matrixRow struct {
	cpu    bool // for a CPU driver
	lanes  int  // subgroup size
	maxDim int  // the larger of D and Dv
	keys   int  // keys that the problem has at least
	mask   maskKind
	dtype  DType // F32, which matrices do not take: any
	drop   bool  // for dropout, whose draws take shared memory and registers
	plain  bool  // for neither dropout nor block masks
	whole  bool  // for keys that are whole tiles
	tile   matrixTile
}

// suits says whether the row is for a problem, and for subgroups of this number of lanes.
func (r *matrixRow) suits(c *capabilities, p *Problem, lanes int) bool {
	dropped := p.dropThreshold() != 0
	switch {
	case r.cpu && c.facts.Type != vk.DeviceCPU, r.lanes != 0 && r.lanes != lanes, r.dtype != F32 && r.dtype != p.DType:
		return false
	case r.maxDim != 0 && max(p.HeadDim, p.ValueDim) > r.maxDim, p.KeyLen < r.keys, r.whole && p.KeyLen%r.tile.BC != 0:
		return false
	}
	return r.mask.includes(p.Causal) && (!r.drop || dropped) && !(r.plain && (dropped || !p.Blocks.none()))
}

// maskKind is a kind of problem that a row of the table is for.
type maskKind int

const (
	anyMask  maskKind = iota
	unmasked          // not causal
	causal
)

func (m maskKind) includes(c Causal) bool { return m == anyMask || (m == causal) == (c != CausalNone) }

// matrixTiles are the tiles tried, best first; the first that the device's limits allow is taken. What is given for fragments
// of 16×16×16 goes for others: chunks and tiles of keys are rounded up to whole fragments. A tile that few workgroups would use
// is made smaller afterwards (see shrink). On a CPU the shader's unrolled code takes seconds to compile, so all is small.
var matrixTiles = []matrixRow{
	{cpu: true, tile: matrixTile{W: 2, RM: 1, BC: 16, CK: 8}},

	// Measured on an H200 (subgroups of 32, 16×16×16, 48 KiB); docs/notes.md has what else was tried.
	{lanes: 32, maxDim: 64, drop: true, tile: matrixTile{W: 8, RM: 2, BC: 64, CK: 16, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 32, tile: matrixTile{W: 8, RM: 2, BC: 64, CK: 16, Prefetch: 1, Pipe: 1, KeepMasks: true}},
	{lanes: 32, maxDim: 64, mask: unmasked, keys: 1024, tile: matrixTile{W: 8, RM: 2, BC: 128, CK: 16, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 64, mask: unmasked, plain: true, tile: matrixTile{W: 4, RM: 2, BC: 64, CK: 16, Prefetch: 5, Pipe: 1, MaxFirst: 1, Steps: true}},
	{lanes: 32, maxDim: 64, mask: unmasked, tile: matrixTile{W: 4, RM: 2, BC: 64, CK: 16, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 64, mask: causal, keys: 4096, tile: matrixTile{W: 8, RM: 2, BC: 64, CK: 16, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 64, mask: causal, plain: true, tile: matrixTile{W: 4, RM: 2, BC: 64, CK: 32, Prefetch: 1, Pipe: 1, MaxFirst: 1, Steps: true}},
	{lanes: 32, maxDim: 64, tile: matrixTile{W: 4, RM: 2, BC: 64, CK: 32, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 80, tile: matrixTile{W: 8, RM: 2, BC: 64, CK: 16, Prefetch: 1, Pipe: 1, KeepMasks: true}},
	{lanes: 32, maxDim: 96, mask: unmasked, tile: matrixTile{W: 8, RM: 2, BC: 64, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 96, tile: matrixTile{W: 4, RM: 2, BC: 32, CK: 16, Prefetch: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 128, drop: true, tile: matrixTile{W: 8, RM: 1, BC: 64, CK: 32, Prefetch: 1, Pipe: 1, MaxFirst: 1}},
	{lanes: 32, maxDim: 128, mask: unmasked, plain: true, tile: matrixTile{W: 8, RM: 2, BC: 32, CK: 16, Prefetch: 3, MaxFirst: 1, QReg: 7, Steps: true, HeadsTogether: 8}},
	{lanes: 32, maxDim: 128, mask: unmasked, tile: matrixTile{W: 8, RM: 2, BC: 32, CK: 16, Prefetch: 3, MaxFirst: 1, QReg: 7}},
	{lanes: 32, maxDim: 128, dtype: BF16, tile: matrixTile{W: 4, RM: 2, BC: 16, CK: 16, Prefetch: 3, MaxFirst: 1}},
	{lanes: 32, maxDim: 128, mask: causal, plain: true, whole: true, tile: matrixTile{W: 4, RM: 2, BC: 16, CK: 16, Prefetch: 4, MaxFirst: 1, QReg: 7, Steps: true, Whole: true}},
	{lanes: 32, maxDim: 128, tile: matrixTile{W: 4, RM: 2, BC: 16, CK: 16, Prefetch: 3, MaxFirst: 1, QReg: 7}},
	{lanes: 32, maxDim: 192, tile: matrixTile{W: 8, RM: 1, BC: 32, CK: 32, Prefetch: 1, MaxFirst: 1, KeepMasks: true}},
	{lanes: 32, maxDim: 256, mask: unmasked, plain: true, tile: matrixTile{W: 8, RM: 1, BC: 16, CK: 16, Prefetch: 4, MaxFirst: 1, Steps: true}},
	{lanes: 32, maxDim: 256, mask: causal, plain: true, whole: true, tile: matrixTile{W: 8, RM: 1, BC: 16, CK: 16, Prefetch: 4, MaxFirst: 1, Steps: true, Whole: true}},
	{lanes: 32, maxDim: 256, tile: matrixTile{W: 8, RM: 1, BC: 16, CK: 16, Prefetch: 3, MaxFirst: 1, KeepMasks: true}},
	{lanes: 32, maxDim: 256, tile: matrixTile{W: 8, RM: 1, BC: 16, CK: 16, Prefetch: 1, MaxFirst: 1}},

	// Starting points for other devices, not measured.
	{maxDim: 64, tile: matrixTile{W: 4, RM: 1, BC: 64, CK: 32, Prefetch: 1}},
	{maxDim: 128, tile: matrixTile{W: 4, RM: 1, BC: 32, CK: 16, Prefetch: 1}},
	{maxDim: 256, tile: matrixTile{W: 4, RM: 1, BC: 16, CK: 16, Prefetch: 2}},
	{tile: matrixTile{W: 2, RM: 1, BC: 16, CK: 16}},
	{tile: matrixTile{W: 1, RM: 1, BC: 8, CK: 8}},
	{tile: matrixTile{W: 1, RM: 1, BC: 8, CK: 8, QReg: 1}},
}

// causalHeadsTogether is the number of heads whose blocks of one place follow one another in the causal forward kernel. Long blocks first
// keep the tail short, over the more heads the better; at small head dimensions it weighs more from some thousand keys on that keys and
// values of those heads stay in a cache.
func causalHeadsTogether(p *Problem) int {
	if p.KeyLen <= 2048 || max(p.HeadDim, p.ValueDim) > 64 {
		return 64
	}
	return headsTogether(p)
}

// headsTogether is the number of heads whose keys and values stay in a cache of some ten megabytes; the backward kernels' number.
func headsTogether(p *Problem) int {
	const cache = 16 << 20
	perHead := p.KeyLen * (p.HeadDim + p.ValueDim) * p.DType.Size()
	return min(max(cache/perHead, 4), 64)
}

// fewGroups is the number of workgroups below which a large GPU is not full.
const fewGroups = 128

// chooseMatrixTile takes the first row of the table that fits; overrides from t replace single numbers.
func chooseMatrixTile(c *capabilities, p *Problem, s matrixShape, form int, t *tuning) (matrixTile, error) {
	return firstMatrixTile(matrixTiles, c, p, s, t, func(tile matrixTile) matrixTile { return tile.complete(c, p, s, form) })
}

// firstMatrixTile takes the first row of a table that fits once it is completed and overridden.
func firstMatrixTile(table []matrixRow, c *capabilities, p *Problem, s matrixShape, t *tuning, complete func(matrixTile) matrixTile) (matrixTile, error) {
	why := "the table of tiles is empty"
	for i := range table {
		row := &table[i]
		if !row.suits(c, p, s.Lanes) {
			continue
		}
		tile := complete(row.tile)
		tile.override(t)
		if why = tile.check(p.HeadDim, p.ValueDim, c); why == "" {
			tile.recut(c, p, t)
			why = checkParts(tile.Parts, p)
		}
		if why == "" {
			return tile, nil
		}
	}
	if len(t.given) > 0 {
		return matrixTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return matrixTile{}, &declined{why}
}

// complete fills in what a row of the table leaves open.
func (t matrixTile) complete(c *capabilities, p *Problem, s matrixShape, form int) matrixTile {
	t.cut(p, s, form)
	// A packed tile reads keys and values once for all query heads of a key head.
	t.Pack = p.group() > 1 && p.QueryLen < t.rows()
	if c.facts.Type != vk.DeviceCPU {
		t = t.fill(c, p)
	}
	switch {
	case p.Causal != CausalNone:
		t.HeadsTogether = causalHeadsTogether(p)
	case t.HeadsTogether == 0:
		t.HeadsTogether = 1
	}
	return t
}

// cut rounds a row of the table to whole fragments.
func (t *matrixTile) cut(p *Problem, s matrixShape, form int) {
	t.fragment, t.Form, t.Drop, t.Parts = s, form, p.dropThreshold() > 0, 1
	whole := max(s.N, s.K) // one divides the other
	t.CK = ceilDiv(t.CK, whole) * whole
	t.BC = ceilDiv(t.BC, t.CK) * t.CK
	if t.QReg == 0 {
		t.QReg = ceilDiv(p.HeadDim, s.K)
	}
}

// queries is the number of rows that blocks are cut from, and of which heads.
func (t *matrixTile) queries(p *Problem) (rows, heads int) {
	if t.Pack {
		return p.QueryLen * p.group(), p.Batch * p.KeyHeads
	}
	return p.QueryLen, p.Batch * p.Heads
}

func (t *matrixTile) groups(p *Problem) uint64 {
	rows, heads := t.queries(p)
	return uint64(ceilDiv(rows, t.rows())) * uint64(heads)
}

// fill takes fewer rows a workgroup, or cuts the keys into parts, where that is predicted to be faster: where there are too few
// workgroups to fill the device.
func (t matrixTile) fill(c *capabilities, p *Problem) matrixTile {
	best, least := t, math.Inf(1)
	for tile, more := t, true; more; more = tile.shrink(p) {
		pace := 1.0
		if tile.RM < t.RM {
			pace *= halfPace
		}
		if tile.W < t.W {
			pace *= smallPace
		}
		if cost := tile.cutKeys(c, p, pace); cost < least {
			best, least = tile, cost
		}
	}
	return best
}

// cutKeys cuts the keys into as many parts as are predicted to be fastest with this tile, and gives the cost.
func (t *matrixTile) cutKeys(c *capabilities, p *Problem, pace float64) float64 {
	parts, least := 1, math.Inf(1)
	for t.Parts = 1; t.Parts <= mostPartsOf(p); t.Parts++ {
		if cost := t.predict(c, p, pace); cost < least {
			parts, least = t.Parts, cost
		}
	}
	t.Parts = parts
	return least
}

// recut does the same where the caller gave another tile than fill chose the parts for, unless parts are given too.
func (t *matrixTile) recut(c *capabilities, p *Problem, o *tuning) {
	given := func(name string) bool { _, ok := o.given[name]; return ok }
	if t.KeysOutside || c.facts.Type == vk.DeviceCPU || given("parts") || !given("w") && !given("rm") && !given("br") {
		return
	}
	t.cutKeys(c, p, 1)
	o.effect["parts"] = t.Parts
}

// What a forward pass costs is predicted in pairs of a row and a key on one multiprocessor. docs/notes.md has the measurements
// that these numbers are from.
const (
	residentSubgroups = 8     // of a multiprocessor, by their registers
	halfPace          = 1.5   // of a pair where a fragment of keys serves one row fragment and not two
	smallPace         = 1.05  // where fewer subgroups share a tile of keys
	alonePace         = 0.8   // of a workgroup whose multiprocessor would hold another, as long as it has none
	combinePairs      = 20000 // for the second dispatch
	partRowPairs      = 220   // to store a row of a part, and load it again
)

// predict gives the cost of a pass with this tile and its parts; pace is the cost of a (query, key) pair. A multiprocessor's workgroups share it. They take as
// long as the one with most keys, or as all of them together.
func (t *matrixTile) predict(c *capabilities, p *Problem, pace float64) float64 {
	count := float64(c.multiprocessors())
	beside := float64(max(1, residentSubgroups/t.W)) // workgroups on a multiprocessor
	parts, groups := float64(t.Parts), float64(t.groups(p))
	rounds := math.Ceil(groups * parts / (count * beside))
	if beside > 1 && groups*parts <= count {
		pace *= alonePace
	}
	cost := float64(t.rows()) * pace * beside * max(float64(p.mostKeys()), rounds*p.mask().MeanKeys()) / parts
	if t.Parts > 1 {
		rows := float64(p.Batch) * float64(p.Heads) * float64(p.QueryLen)
		cost += combinePairs + partRowPairs/count*parts*rows
	}
	return cost
}

// shrink takes fewer rows a workgroup, if it may be smaller. The tile of keys shrinks along, for fewer invocations share the loading
// of it.
func (t *matrixTile) shrink(p *Problem) bool {
	leastSubgroups := 4 // fewer hide no latency
	if rows, _ := t.queries(p); max(p.HeadDim, p.ValueDim) > 128 && rows > t.rows()/2 {
		leastSubgroups = 8
	}
	switch {
	case t.RM > 1:
		t.RM = ceilDiv(t.RM, 2)
		if t.W <= leastSubgroups && t.tilesShared() > 1 { // there are registers for the next tile now, and half as many barriers to wait at
			t.Prefetch = 1
			t.BC *= 2
		}
	case t.W > leastSubgroups:
		t.W = max(leastSubgroups, ceilDiv(t.W, 2))
		if t.tilesShared() > 1 { // else two workgroups do not fit beside each other
			t.Prefetch = 1
		}
	default:
		return false
	}
	const mostPieces = 8 // of 16 bytes, that an invocation holds of the next tile
	for t.Prefetch > 0 && t.BC > t.CK && ceilDiv(t.BC*ceilDiv(p.HeadDim+p.ValueDim, 8), t.threads()) > mostPieces {
		t.BC -= t.CK
	}
	return true
}

// override replaces single numbers by the caller's. br is another way to say w.
func (t *matrixTile) override(o *tuning) {
	t.RM = o.get("rm", t.RM)
	t.W = o.get("w", t.W)
	if per := t.RM * t.fragment.M; per > 0 {
		if br := o.get("br", t.W*per); br != t.W*per {
			t.W = 0 // not a whole number of subgroups: check says so
			if br%per == 0 {
				t.W = br / per
			}
			o.effect["w"] = t.W
		}
	}
	t.CK = o.get("ck", t.CK)
	if _, given := o.given["bc"]; !given && t.CK > 0 && t.BC%t.CK != 0 {
		t.BC = ceilDiv(t.BC, t.CK) * t.CK
	}
	t.BC = o.get("bc", t.BC)
	t.Prefetch = o.get("prefetch", t.Prefetch)
	t.Pipe = o.get("pipe", t.Pipe)
	t.MaxFirst = o.get("max_first", t.MaxFirst)
	t.QReg = o.get("q_reg", t.QReg)
	t.KeepMasks = o.get("keep_masks", boolInt(t.KeepMasks)) != 0
	t.Steps = o.get("steps", boolInt(t.Steps)) != 0
	t.Whole = o.get("whole", boolInt(t.Whole)) != 0
	if t.KeysOutside { // a workgroup is a head
		return
	}
	t.HeadsTogether = o.get("heads_together", t.HeadsTogether)
	t.Pack = o.get("pack", boolInt(t.Pack)) != 0
	t.Parts = o.get("parts", t.Parts)
}

package flash

import (
	"fmt"
	"math/bits"

	"github.com/vkattn/vkattn/vk"
)

// scalarTile is the shape of scalar_forward's work; shaders/scalar/scalar_forward.comp says what each number means. BR, BC, MR and
// MC are chosen; the rest follows from what fits into shared memory.
type scalarTile struct {
	BR, BC int // queries of a workgroup, keys of a tile
	MR, MC int // piece of the scores that one invocation owns

	DK        int  // columns of K staged at a time
	VC        int  // keys of V staged at a time
	PC        int  // keys of P in shared memory at a time
	QResident bool // Q is staged once, whole
	VEarly    bool // V of the whole tile is staged with K
	Subgroup  bool // rows are reduced by shuffles
	Parts     int  // parts of the keys, each for workgroups of its own (parts.go); 1: all in one
}

// groups is the number of workgroups for one part.
func (t *scalarTile) groups(p *Problem) uint64 {
	return uint64(ceilDiv(p.QueryLen, t.BR)) * uint64(p.Batch) * uint64(p.Heads)
}

func (t *scalarTile) tx() int      { return t.BC / t.MC }
func (t *scalarTile) ty() int      { return t.BR / t.MR }
func (t *scalarTile) threads() int { return t.tx() * t.ty() }

func (t *scalarTile) String() string { return fmt.Sprintf("%dx%d", t.BR, t.BC) + partsSuffix(t.Parts) }

// scalarShared is the layout of shared memory, in units of 16 bytes: where K, V and P begin, and the length. reduce is the
// length in floats of the array for row reductions. The shader sizes its arrays with these numbers.
type scalarShared struct {
	kAt, vAt, pAt, length int
	reduce                int
}

func (s scalarShared) bytes() int { return 16*s.length + 4*s.reduce }

// shared lays shared memory out for head dimensions d and dv.
func (t *scalarTile) shared(d, dv int) scalarShared {
	dk4 := t.DK / 4
	chunks := ceilDiv(d, t.DK)
	q := t.BR * (dk4 | 1)
	if t.QResident {
		q = t.BR * (chunks*dk4 | 1)
	}
	k := t.BC * (dk4 | 1)
	p := t.BR * (t.PC/4 | 1)
	vRows := t.VC
	if t.VEarly {
		vRows = t.BC
	}
	v := vRows * t.tx() * ceilDiv(ceilDiv(dv, 4), t.tx())

	s := scalarShared{kAt: q, reduce: 1}
	switch {
	case t.VEarly: // all four at once
		s.vAt = q + k
		s.pAt = s.vAt + v
	case t.QResident: // V takes K's place
		s.vAt = q
		s.pAt = q + v
	default: // V and P take the place of Q and K
		s.vAt = 0
		s.pAt = v
	}
	s.length = max(q+k, s.vAt+v, s.pAt+p)
	if !t.Subgroup {
		s.reduce = t.BR * t.tx()
	}
	return s
}

// check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *scalarTile) check(d, dv, elem int, l *vk.Limits) string {
	if why := checkPieces("", t.BR, t.BC, t.MR, t.MC, t.DK, elem); why != "" {
		return why
	}
	switch {
	case t.PC < 1 || t.PC%(4*t.tx()) != 0 || t.BC%t.PC != 0:
		return fmt.Sprintf("pc = %d must be a multiple of 4·bc/mc = %d that divides bc = %d", t.PC, 4*t.tx(), t.BC)
	case t.VC < 4 || t.VC%4 != 0 || t.PC%t.VC != 0:
		return fmt.Sprintf("vc = %d must be a multiple of 4 that divides pc = %d", t.VC, t.PC)
	case t.VEarly && t.DK < d:
		return fmt.Sprintf("v_early needs dk = %d to be at least the head dimension %d", t.DK, d)
	}
	return checkLimits(t.threads(), t.shared(d, dv).bytes(), l)
}

// checkPieces gives the rule that every scalar kernel has for its tile of br × bc scores, cut into pieces of mr × mc that
// invocations own, and for the dk columns of a staged operand whose elements have elem bytes; "" when none is broken. prefix is
// that of the parameters' names.
func checkPieces(prefix string, br, bc, mr, mc, dk, elem int) string {
	unit := 4 // columns that are staged in one load
	if elem == 2 {
		unit = 8
	}
	switch {
	case mr < 1 || mc < 4 || mc%4 != 0:
		return fmt.Sprintf("%[1]smr must be at least 1 and %[1]smc a multiple of 4", prefix)
	case br < 1 || br%mr != 0:
		return fmt.Sprintf("%[1]sbr = %[2]d must be a multiple of %[1]smr = %[3]d", prefix, br, mr)
	case bc < 1 || bc%mc != 0:
		return fmt.Sprintf("%[1]sbc = %[2]d must be a multiple of %[1]smc = %[3]d", prefix, bc, mc)
	case bc/mc%2 != 0:
		return fmt.Sprintf("%[1]sbc/%[1]smc = %[2]d must be even", prefix, bc/mc)
	case dk < unit || dk%unit != 0:
		return fmt.Sprintf("%sdk = %d must be a multiple of %d", prefix, dk, unit)
	}
	return ""
}

// checkLimits gives the limit of the device that a workgroup's invocations or its bytes of shared memory pass, "" for none.
func checkLimits(threads, shared int, l *vk.Limits) string {
	if most := min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]); threads > int(most) {
		return fmt.Sprintf("a workgroup of %d invocations passes the device's %d", threads, most)
	}
	if shared > int(l.MaxSharedMemory) {
		return fmt.Sprintf("%d bytes of shared memory pass the device's %d", shared, l.MaxSharedMemory)
	}
	return ""
}

// scalarShapes are the shapes tried, best first, by the kind of device, the number of queries there are and the larger of D
// and Dv. Wide heads spread a row of O over more invocations so that it stays in registers; few queries take fewer rows. A
// CPU compiles what is unrolled for as long as a small problem runs: the large shape, the fastest there too (15 against 11
// GFLOP/s on two cores), only pays from a few hundred queries on.
//
// The rows for NVIDIA give the staging too: as little at a time as the pieces allow, which leaves room for more workgroups
// on a multiprocessor; docs/notes.md has what they measured.
var scalarShapes = []struct {
	on                 deviceClass
	maxQueries, maxDim int
	tile               scalarTile
}{
	{onCPU, 8, 256, scalarTile{BR: 8, BC: 32, MR: 2, MC: 4}},
	{onCPU, 128, 256, scalarTile{BR: 32, BC: 32, MR: 2, MC: 4}},
	{onCPU, anyQueries, 256, scalarTile{BR: 64, BC: 64, MR: 8, MC: 8}},
	{onAny, 8, 256, scalarTile{BR: 8, BC: 64, MR: 1, MC: 4}},
	{onAny, 16, 256, scalarTile{BR: 16, BC: 64, MR: 2, MC: 4}},
	{onAny, 32, 256, scalarTile{BR: 32, BC: 64, MR: 4, MC: 4}},
	{onNVIDIA, 64, 64, scalarTile{BR: 64, BC: 64, MR: 8, MC: 4, DK: 64, VC: 32, PC: 64, QResident: true}},
	{onNVIDIA, anyQueries, 32, scalarTile{BR: 128, BC: 64, MR: 8, MC: 8, DK: 32, VC: 64, PC: 64}},
	{onNVIDIA, anyQueries, 64, scalarTile{BR: 128, BC: 64, MR: 8, MC: 8, DK: 16, VC: 16, PC: 32}},
	{onNVIDIA, 64, 128, scalarTile{BR: 64, BC: 128, MR: 8, MC: 8, DK: 32, VC: 16, PC: 64}},
	{onNVIDIA, anyQueries, 128, scalarTile{BR: 128, BC: 128, MR: 8, MC: 8, DK: 16, VC: 16, PC: 64}},
	{onNVIDIA, anyQueries, 256, scalarTile{BR: 32, BC: 128, MR: 4, MC: 8, DK: 32, VC: 8, PC: 64}},
	{onAny, anyQueries, 64, scalarTile{BR: 64, BC: 64, MR: 8, MC: 8}},
	{onAny, anyQueries, 64, scalarTile{BR: 64, BC: 32, MR: 8, MC: 4}},
	{onAny, anyQueries, 128, scalarTile{BR: 64, BC: 64, MR: 8, MC: 4}},
	{onAny, anyQueries, 256, scalarTile{BR: 32, BC: 64, MR: 4, MC: 4}},
	{onAny, anyQueries, 256, scalarTile{BR: 16, BC: 32, MR: 2, MC: 4}},
	{onAny, anyQueries, 256, scalarTile{BR: 8, BC: 16, MR: 1, MC: 4}},
}

// deviceClass says which devices a row of a table is for.
type deviceClass int

const (
	onAny deviceClass = iota
	onCPU
	onNVIDIA
)

const vendorNVIDIA = 0x10de // PCI

func (c *capabilities) is(class deviceClass) bool {
	switch class {
	case onCPU:
		return c.facts.Type == vk.DeviceCPU
	case onNVIDIA:
		return c.facts.VendorID == vendorNVIDIA
	}
	return true
}

const anyQueries = 1 << 31

// subgroupRows says whether rows can be reduced by shuffles among tx invocations: subgroups must be full, of one known size,
// and hold whole rows.
func (c *capabilities) subgroupRows(tx, threads int) bool {
	s := &c.facts.Subgroup
	size := int(s.Size)
	return s.Compute && s.Ops&vk.SubgroupBasic != 0 && s.Ops&vk.SubgroupShuffle != 0 &&
		c.enabled.ComputeFullSubgroups && s.FullSubgroups && c.enabled.SubgroupSizeControl && s.RequiredSizeCompute &&
		bits.OnesCount(uint(tx)) == 1 && size%tx == 0 && threads%size == 0 &&
		(s.MaxWorkgroupSubgroups == 0 || threads <= size*int(s.MaxWorkgroupSubgroups))
}

// chooseScalarTile takes the first shape that fits, with the staging that needs the fewest passes; overrides from t replace
// single numbers.
// With a block mask, a shape that lies in one block goes before those that do not.
func chooseScalarTile(c *capabilities, p *Problem, t *tuning) (scalarTile, error) {
	if !p.Blocks.none() {
		if tile, err := firstScalarTile(c, p, t, func(s *scalarTile) bool { return p.Blocks.ofTiles(s.BR, s.BC) }); err == nil {
			return tile, nil
		}
	}
	return firstScalarTile(c, p, t, func(*scalarTile) bool { return true })
}

// partsToFill is the number of parts with which almost two workgroups fall to each multiprocessor, more where some blocks see few keys and
// others many, and never a few workgroups too many, which would run alone.
func (t *scalarTile) partsToFill(c *capabilities, p *Problem) int {
	if c.facts.Type == vk.DeviceCPU {
		return 1
	}
	enough := 2 * float64(c.multiprocessors()) * float64(p.mostKeys()) / max(1, p.mask().MeanKeys())
	return max(1, min(mostPartsOf(p), int(enough/float64(t.groups(p)))))
}

// firstScalarTile takes the first shape that suits and fits.
func firstScalarTile(c *capabilities, p *Problem, t *tuning, suits func(*scalarTile) bool) (scalarTile, error) {
	dim, why := max(p.HeadDim, p.ValueDim), ""
	for _, s := range scalarShapes {
		if p.QueryLen > s.maxQueries || dim > s.maxDim || !c.is(s.on) {
			continue
		}
		tile := s.tile
		tile.BR, tile.BC = t.get("br", tile.BR), t.get("bc", tile.BC)
		tile.MR, tile.MC = t.get("mr", tile.MR), t.get("mc", tile.MC)
		if !suits(&tile) {
			continue
		}
		if why = tile.fit(c, p, t); why == "" {
			tile.Parts = t.get("parts", tile.partsToFill(c, p))
			if why = checkParts(tile.Parts, p); why == "" {
				return tile, nil
			}
		}
		if len(t.given) > 0 {
			break // the caller's numbers do not fit: say so rather than look for others that go with them
		}
	}
	if len(t.given) > 0 {
		return scalarTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return scalarTile{}, &declined{why}
}

// fit completes a tile whose shape is set. It gives the rule that cannot be kept, "" when all are.
func (tile *scalarTile) fit(c *capabilities, p *Problem, t *tuning) string {
	elem := p.DType.Size()
	limits := &c.facts.Limits
	if tile.MR < 1 || tile.MC < 1 || tile.BR < tile.MR || tile.BC < tile.MC {
		return "br and bc must be at least mr and mc, and those at least 1"
	}
	whole := ceilDiv(p.HeadDim, 8) * 8
	type staging struct {
		dk, pc, vc int
		resident   bool
		early      bool
	}
	var tries []staging
	if tile.DK > 0 && tile.DK <= whole {
		tries = append(tries, staging{tile.DK, tile.PC, tile.VC, tile.QResident, tile.VEarly})
	}
	tries = append(tries, staging{whole, tile.BC, tile.BC, true, true})
	for _, resident := range []bool{true, false} {
		for _, dk := range []int{whole, 128, 64, 32, 16, 8} {
			if dk > whole || (!resident && dk > 64) || (resident && dk < 32 && dk < whole) {
				continue
			}
			for pc := tile.BC; pc >= 4*tile.tx() && pc%(4*tile.tx()) == 0; pc /= 2 {
				for vc := pc; vc >= min(8, pc) && vc%4 == 0; vc /= 2 {
					tries = append(tries, staging{dk, pc, vc, resident, false})
				}
			}
		}
	}
	why := "no staging fits"
	for _, s := range tries {
		tile.DK, tile.PC, tile.VC = t.get("dk", s.dk), t.get("pc", s.pc), t.get("vc", s.vc)
		tile.QResident = t.get("q_resident", boolInt(s.resident)) != 0
		tile.VEarly = t.get("v_early", boolInt(s.early)) != 0
		tile.Subgroup = t.get("subgroup", boolInt(c.subgroupRows(tile.tx(), tile.threads()))) != 0
		if tile.Subgroup && !c.subgroupRows(tile.tx(), tile.threads()) {
			return "subgroup = 1 needs full subgroups of a required size, shuffles, and rows that fit into one"
		}
		if why = tile.check(p.HeadDim, p.ValueDim, elem, limits); why == "" {
			return ""
		}
	}
	return why
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

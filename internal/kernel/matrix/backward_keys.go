package matrix

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// keepingLabel is where rows of tiles of Keys stand.
const keepingLabel = "matrix_backward_keeping"

// Keys is the kernel of keys of Backward where it leaves dSᵀ in memory, so that dQ is a plain product of it:
// shaders/matrix/matrix_backward_kv.comp with KEEP_DS.
type Keys struct {
	Tile   BackwardTile
	Layout kernel.FragmentLayout
}

// KeysRanges are the ranges of its tuning parameters.
var KeysRanges = backwardMatrixRanges.Of("kv_")

// ChooseKeys takes the first row of tiles that fits. taken is that row's word on whether a device takes the kernel where the caller says
// nothing.
func ChooseKeys(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int,
	t *kernel.Tuning) (k *Keys, taken bool, err error) {
	tile, err := chooseBackwardTile(c, p, l, f, form, "kv_", keepingLabel, t)
	if err != nil {
		return nil, false, err
	}
	return &Keys{tile, *l}, t.Rows[len(t.Rows)-1].Get(kernel.KeepDSParameter) != 0, nil
}

// Constants are its specialization constants, for slabs of so many query heads, but for the last.
func (k *Keys) Constants(p *attn.Problem, v pass.Variant, heads int) kernel.Constants {
	t := k.Tile
	t.HeadsTogether = k.Together(p, heads)
	return t.Constants(p, &k.Layout, v, dkAndDV)
}

// Together is the key heads of a slab of so many query heads whose blocks of one place follow one another. Workgroups are numbered through
// all slabs, of which each but the last has a power of two of heads, and these groups must not cross from one into the next.
func (k *Keys) Together(p *attn.Problem, heads int) int {
	of := heads / p.Group()
	together := min(k.Tile.HeadsTogether, of)
	if p.Packed.None() && of < p.Batch*p.KeyHeads {
		together = 1 << (bits.Len(uint(together)) - 1)
	}
	return together
}

// Unit is how much smaller than dS what it leaves is, on average: CUT of shaders/include/matrix_types.glsl, for operands of bf16 are cut
// off.
func (k *Keys) Unit(t attn.DType) float64 {
	if t == attn.BF16 {
		return 1 + 0.7213475/256
	}
	return 1
}

// Model is how it walks over queries.
func (k *Keys) Model(p *attn.Problem) traffic.BackwardTile { return k.Tile.model(keysLabel, p) }

// Blocks is how it cuts rows of keys.
func (k *Keys) Blocks() kernel.RowBlocks { return k.Tile.blocks() }

// Grid is its workgroups over a slab, numbered among those of all heads, as those of Weights are. Of packed sequences a dispatch has one
// row of them, for what is rounded up would be the next slab's.
func (k *Keys) Grid(p *attn.Problem, b *pass.Slab, step uint32) kernel.Grid {
	blocks, group := attn.CeilDiv(p.KeyLen, k.Tile.rows()), p.Group()
	if !p.Packed.None() {
		blocks, step = int(k.Blocks().Most(p)), min(step, kernel.MaxGroupsX)
	}
	return kernel.Grid{First: uint32(b.Head0 / group * blocks), Total: uint32((b.Head0 + b.Heads) / group * blocks), Step: step}
}

// Groups are those of all slabs.
func (k *Keys) Groups(p *attn.Problem) uint64 { return k.Tile.groups(p) }

// Stage makes dK and dV of a slab's heads, and puts dSᵀ of them into scratch of this name. Slabs, of which first is the first, begin at
// multiples of a power of two of key heads. Its table of packed sequences is the first.
func (k *Keys) Stage(p *attn.Problem, v pass.Variant, c kernel.Constants, g kernel.Grid, first pass.Slab, grads string) pass.Stage {
	bind := append(gradientBuffers.Inputs(), gradientBuffers.Gradients(v, "DK", "DV")...)
	total := uint32(0) // what the slab ends with
	if !p.Packed.None() {
		total = uint32(k.Groups(p)) // from which the most blocks of a head follow
	}
	return pass.Stage{Label: keysLabel, Module: keysLabel + "." + p.DType.Suffix(), Proves: true, Last: true,
		Made: k.Tile.Fragment.Subgroups(), Grid: g, Total: total, Idle: "Q", Constants: c,
		Args: pass.Args{As: pass.AsBackward, Problem: p, X: "DK", Y: "DV", Slab: first},
		Bind: append(append(bind, pass.Bind{Name: "DS_", To: grads, Mode: pipeline.Write}), pass.Scores(p, 0)...)}
}

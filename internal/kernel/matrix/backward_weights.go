package matrix

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// Names of the modules of Weights and of its dispatches, and where its rows of tiles stand; that of wide heads stages slices of rows.
const (
	weightsLabel     = "matrix_backward_weights"
	wideWeightsLabel = "matrix_backward_weights_wide"
)

// Weights is the kernel that puts P and dS into memory, on which plain products follow: shaders/include/matrix_backward_weights.glsl.
type Weights struct {
	Tile   BackwardTile
	Layout kernel.FragmentLayout
	label  string
}

// WeightsRanges are the ranges of its tuning parameters.
var WeightsRanges = kernel.RowRanges(wideWeightsLabel).But(kernel.SlabsParameter).And(backwardTileRanges).Of("weights_")

// ChooseWeights takes the first row of tiles that fits. taken is that row's word on whether a device takes the kernel where the caller says
// nothing.
func ChooseWeights(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int,
	t *kernel.Tuning) (w *Weights, taken bool, err error) {
	label, foreign, rule := weightsLabel, []string{"weights_slice"}, "is of head dimensions above %d: others stage whole rows"
	if kernel.IsWide(p) {
		label, foreign, rule = wideWeightsLabel, []string{"weights_a_reg", "weights_b_reg"},
			"is of head dimensions up to %d: rows of others are not kept"
	}
	for _, name := range foreign {
		if v, given := t.Given[name]; given {
			return nil, false, attn.BadArgument("WithBackwardTuning["+name+"]", fmt.Sprint(v), rule, kernel.PlainDims)
		}
	}
	tile, err := chooseBackwardTile(c, p, l, f, form, "weights_", label, t)
	if err != nil {
		return nil, false, err
	}
	return &Weights{tile, *l, label}, t.Rows[len(t.Rows)-1].Get(kernel.SlabsParameter) != 0, nil
}

// Constants are its specialization constants: zero is how many columns behind the last key of a row are read, and heads the heads of the
// first slab.
func (w *Weights) Constants(p *attn.Problem, v pass.Variant, heads, zero int) kernel.Constants {
	t := w.Tile
	if p.Uneven() && p.Packed.None() {
		t.HeadsTogether = heads // the longest blocks of all of them first
	}
	t.DBias = v.DBias
	slice := kernel.Constants{}
	if t.Slice > 0 {
		slice = sliceFields.Constants(&t)
	}
	return t.constants(p, t.Shared(p), &w.Layout, v.Aligned, v.Accumulate && v.DBias).And(ofEither(p, &t), t.ofBias(p, &w.Layout, v), slice,
		kernel.Constants{"ZERO": zero})
}

// MakesBias says whether it writes the gradient with respect to the bias: in form 1, of a bias with an element for each score.
func (w *Weights) MakesBias() bool { return w.Tile.DBias }

// staysInRegisters notes that neither P nor dS is put into memory, and declines where the caller insists on that.
func staysInRegisters(t *kernel.Tuning) error {
	if t.Get(kernel.SlabsParameter, 0) != 0 {
		return &kernel.Declined{Why: "WithBackwardTuning[" + kernel.SlabsParameter + "] asks for P and dS in memory"}
	}
	if t.Get(kernel.KeepDSParameter, 0) != 0 {
		return &kernel.Declined{Why: "WithBackwardTuning[" + kernel.KeepDSParameter + "] asks for dS in memory"}
	}
	return nil
}

// Model is how it walks over keys.
func (w *Weights) Model(p *attn.Problem) traffic.BackwardTile {
	m := w.Tile.model(w.label, p)
	m.RowReaders = w.Tile.rowReaders(&w.Layout)
	return m
}

// Blocks is how it cuts rows of queries.
func (w *Weights) Blocks() kernel.RowBlocks { return w.Tile.blocks() }

// Grid is its workgroups over a slab. What each has is told from its number among those of all heads, so these begin behind the slabs
// before. Of packed sequences, whose blocks a table has, they are numbered slab by slab.
func (w *Weights) Grid(p *attn.Problem, b *pass.Slab, step uint32) kernel.Grid {
	if !p.Packed.None() {
		return kernel.Grid{Total: uint32(w.Blocks().Most(p)) * uint32(b.Heads), Step: step}
	}
	blocks := attn.CeilDiv(p.QueryLen, w.Tile.rows())
	return kernel.Grid{First: uint32(b.Head0 * blocks), Total: uint32((b.Head0 + b.Heads) * blocks), Step: step}
}

// Stage puts P and dS of the slab in a into scratch of these names. Its table of packed sequences is the first.
func (w *Weights) Stage(v pass.Variant, c kernel.Constants, g kernel.Grid, a pass.Args, weights, grads string) pass.Stage {
	a.As, a.Y = pass.AsWeights, "DBias"
	bind := append(gradientBuffers.Inputs(), pass.Bind{Name: gradientBuffers.X, To: weights, Mode: pipeline.Write},
		pass.Bind{Name: gradientBuffers.Y, To: grads, Mode: pipeline.Write}, pass.Given("Z4_", "DBias", v.DBias, v.Written(), "Q"))
	return pass.Stage{Label: w.label, Module: w.label + "." + a.Problem.DType.Suffix(), Proves: true, Last: true,
		Made: w.Tile.Fragment.Subgroups(), Grid: g, Idle: "Q", Constants: c, Args: a, Bind: append(bind, pass.Scores(a.Problem, 0)...)}
}

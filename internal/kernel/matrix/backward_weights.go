package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// weightsLabel is the name of the module of Weights and of its dispatches, and where its rows of tiles stand.
const weightsLabel = "matrix_backward_weights"

// Weights is the kernel that puts P and dS into memory, on which plain products follow: shaders/include/matrix_backward_weights.glsl.
type Weights struct {
	Tile   BackwardTile
	Layout kernel.FragmentLayout
}

// WeightsRanges are the ranges of its tuning parameters.
var WeightsRanges = backwardTileRanges.Of("weights_")

// ChooseWeights takes the first row of tiles that fits. taken is that row's word on whether a device takes the kernel where the caller says
// nothing.
func ChooseWeights(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int,
	t *kernel.Tuning) (w *Weights, taken bool, err error) {
	tile, err := chooseBackwardTile(c, p, l, f, form, "weights_", weightsLabel, t)
	if err != nil {
		return nil, false, err
	}
	return &Weights{tile, *l}, t.Rows[len(t.Rows)-1].Get(kernel.SlabsParameter) != 0, nil
}

// Compiled is its build for a problem: zero is how many columns behind the last key of a row are read, and heads the heads of a slab.
func (w *Weights) Compiled(p *attn.Problem, v pass.Variant, heads, zero int) kernel.Compiled {
	t := w.Tile
	if p.Uneven() {
		t.HeadsTogether = heads // the longest blocks of all of them first
	}
	t.DBias = v.DBias
	c := t.constants(p, t.Shared(p), &w.Layout, v.Aligned, v.Accumulate).And(ofEither(p, &t), t.ofBias(p, &w.Layout, v),
		kernel.Constants{"ZERO": zero})
	return kernel.Compiled{Module: weightsLabel + "." + p.DType.Suffix(), Constants: c}
}

// MakesBias says whether it writes the gradient with respect to the bias: in form 1, of a bias with an element for each score.
func (w *Weights) MakesBias() bool { return w.Tile.DBias }

// BiasLies says whether the bias, if it is read two elements at a time, lies so.
func (w *Weights) BiasLies(p *attn.Problem, g *kernel.Gradients) bool {
	return w.Layout.BiasLies(p, w.Tile.Form, &g.Scores)
}

// staysInRegisters notes that P and dS are not put into memory, and declines where the caller insists on that.
func staysInRegisters(t *kernel.Tuning) error {
	if t.Get(kernel.SlabsParameter, 0) != 0 {
		return &kernel.Declined{Why: "WithBackwardTuning[" + kernel.SlabsParameter + "] asks for P and dS in memory"}
	}
	return nil
}

// Info is what its pipelines need of subgroups.
func (w *Weights) Info() pipeline.KernelInfo {
	return w.Tile.Fragment.Subgroups()
}

// Model is how it walks over keys.
func (w *Weights) Model(p *attn.Problem) traffic.BackwardTile {
	m := w.Tile.model(weightsLabel, p)
	m.RowReaders = w.Tile.rowReaders(&w.Layout)
	return m
}

// Record makes P and dS of the heads from first on, heads of them, rows of pitch elements. What each workgroup has is told from its number
// among those of all heads, so these begin behind the slabs before.
func (w *Weights) Record(r *kernel.Recorder, k *pipeline.Kernel, p *attn.Problem, g *kernel.Gradients, delta *kernel.Operand, first, heads,
	pitch int, step uint32, weights, gradients pipeline.Binding) error {
	x := kernel.Operand{Binding: weights, Strides: [3]uint32{uint32(first), uint32(p.QueryLen * pitch), uint32(pitch)}}
	at := r.Push.Backward(p, g, delta, &x, &g.DBias)
	r.BackwardInputs(g, delta)
	r.Access[6] = pipeline.Access{Binding: weights, Mode: pipeline.Write}
	r.Access[7] = pipeline.Access{Binding: gradients, Mode: pipeline.Write}
	access := r.BackwardScores(k, p, g)
	if g.DBias.Given() && w.MakesBias() {
		access[14] = g.Output(&g.DBias)
	}
	blocks := attn.CeilDiv(p.QueryLen, w.Tile.rows())
	return r.DispatchPart(k, access, at, uint32(first*blocks), kernel.Grid{Total: uint32((first + heads) * blocks), Step: step},
		weightsLabel)
}

package matrix

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// BackwardAtomic is the backward pass of FlashAttention-2 on cooperative matrices as its paper has it, with five products and atomic additions to
// dQ: shaders/common/backward_delta.comp, matrix_backward_kv.comp with ATOMIC_DQ, and matrix_backward_sum.comp. dQ is summed in fp32 in the
// recording's workspace, which is filled with zeros first.
var BackwardAtomic = &kernel.BackwardKernel{
	Offer: kernel.Offer{
		Name:           atomicLabel,
		Implementation: kernel.Flash,
		Tier:           kernel.TierMatrix,
		MostDim:        kernel.PlainDims,
		Can:            Backward.Can,
		Parameters:     kernel.FormRanges.And(kernel.GroupBound, atomicMatrixRanges.And(kernel.IndirectRange).Of("kv_"), kernel.IndirectRange.Of("q_"), kernel.Parameters{kernel.OneParameter: kernel.OnOff}),
		AnyOrder:       true,
		Yields:         true, // to the kernels that have tiles of their own for dQ
		Reserved:       kernel.ReservedOnCPU,
		Unsupported:    atomicLacks,
	},
	Plan: planAtomic,
}

// Labels of its dispatches and of the filling; atomicLabel is also where its rows of tiles stand.
const (
	atomicLabel = "matrix_backward_atomic"
	zeroLabel   = "matrix_backward_zero"
	sumLabel    = "matrix_backward_sum"

	atomically = "_atomic" // behind the name of the module of keys
)

func atomicLacks(c *kernel.Capabilities, p *attn.Problem) string {
	if why := BackwardLacks(c, p); why != "" {
		return why
	}
	return c.LacksAtomicAdd()
}

func planAtomic(e *kernel.Env, p *attn.Problem, _ kernel.Program, t *kernel.Tuning) (kernel.BackwardProgram, error) {
	fragment, layout, form, err := e.ChooseForm(p.DType, t)
	if err != nil {
		return nil, err
	}
	s := &BackwardProgram{env: e, Problem: *p, Layout: layout, sums: sumBytes(p, &fragment)}
	s.Kv.Keys, s.Q.module = true, sumLabel+"."+p.DType.Suffix()
	if s.Kv.Tile, err = ChooseAtomicTile(&e.Caps, p, &layout, fragment, form, t); err != nil {
		return nil, err
	}
	s.Kv.module = s.Kv.Tile.module() + "." + p.DType.Suffix()
	s.Q.Tile = sumTile(&s.Kv.Tile)
	if err := e.Caps.Holds([]uint64{s.sums}); err != nil {
		return nil, &kernel.Declined{Why: "dQ in fp32: " + err.Error()}
	}
	return s, s.prepare(t)
}

// ChooseAtomicTile is the tile of keys with atomic sums, or a *Declined where it is not known to be faster than two kernels. Rows say where it is; the
// tuning parameter one goes before them.
func ChooseAtomicTile(c *kernel.Capabilities, p *attn.Problem, l *kernel.FragmentLayout, f kernel.Fragment, form int, t *kernel.Tuning) (BackwardTile, error) {
	tile, err := chooseBackwardTile(c, p, l, f, form, "kv_", atomicLabel, t)
	if err != nil {
		return tile, err
	}
	_, given := t.Given[kernel.OneParameter]
	switch one := t.Get(kernel.OneParameter, t.Rows[len(t.Rows)-1].Get("one")); {
	case one != 0:
		return tile, nil
	case given:
		return tile, &kernel.Declined{Why: "WithBackwardTuning[" + kernel.OneParameter + "] is 0"}
	}
	return tile, &kernel.Declined{Why: "one kernel is not known to be faster here than two that sum in order; WithBackwardTuning[" + kernel.OneParameter + "] = 1 insists"}
}

// staysOrdered notes that there are two kernels. It refuses where the caller insists on one: has not allowed what comes of it, or is told why that one
// cannot be.
func staysOrdered(t *kernel.Tuning) error {
	one, given := t.Given[kernel.OneParameter]
	if given || t.AnyOrder {
		t.Effect[kernel.OneParameter] = 0
	}
	switch {
	case one == 0:
		return nil
	case t.AnyOrder:
		return &kernel.Declined{Why: "WithBackwardTuning[" + kernel.OneParameter + "] asks for " + atomicLabel}
	}
	t.Effect[kernel.OneParameter] = one
	return t.Bad(kernel.OneParameter, "sums dq in an order that differs from run to run, which WithAnyOrder must allow")
}

// sumBytes is the size of dQ in fp32, in whole fragments: shaders/include/matrix_backward_sums.glsl.
func sumBytes(p *attn.Problem, f *kernel.Fragment) uint64 {
	rows := uint64(p.Batch) * uint64(p.Heads) * uint64(attn.CeilDiv(p.QueryLen, f.M))
	if n := p.Packed.Queries; n > 0 {
		rows = uint64(p.Heads) * uint64(n/f.M+p.Batch)
	}
	return 4 * rows * uint64(f.M) * uint64(attn.CeilDiv(p.HeadDim, f.N)*f.N)
}

// sumTile is how matrix_backward_sum cuts queries: by fragments, without columns.
func sumTile(kv *BackwardTile) BackwardTile {
	f := kv.Fragment
	whole := max(f.N, f.K)
	return BackwardTile{Fragment: f, Form: kv.Form, W: min(kv.W, 4), RM: 1, BC: whole, CK: whole, AReg: 1, BReg: 1, HeadsTogether: 1}
}

// AtomicConstants are the specialization constants of matrix_backward_kv with atomic sums; parts says which sums it makes.
func AtomicConstants(p *attn.Problem, t *BackwardTile, l *kernel.FragmentLayout, parts int, aligned, accumulate bool) kernel.Constants {
	sh := t.atomicShared(p)
	return keysConstants(p, t, l, parts, aligned, accumulate).And(kernel.Constants{"K_REG": t.KReg, "K_LEN": sh.keys, "DS_LEN": sh.ds})
}

// SumConstants are those of matrix_backward_sum after it, of whose shared arrays it has but the patch.
func SumConstants(p *attn.Problem, kv *BackwardTile, l *kernel.FragmentLayout, aligned, accumulate bool) kernel.Constants {
	t := sumTile(kv)
	sh := t.Shared(p)
	sh.Tile, sh.rows, sh.x, sh.h, sh.Stats, sh.Drop = t.W*t.Fragment.M*(sh.patch|1), 1, 1, 1, 1, leastDrop
	return t.constants(p, sh, l, aligned, accumulate).And(kernel.Constants{"MASKS": 0, "SLOPES": 0, "BIAS_PAIRS": 0})
}

// name is the kernel's.
func (s *BackwardProgram) name() string {
	if s.sums > 0 {
		return atomicLabel
	}
	return orderedLabel
}

// label is that of a part's dispatches.
func (s *BackwardProgram) label(part *BackwardPart) string {
	switch {
	case part.Keys && s.sums > 0:
		return atomicLabel
	case part.Keys:
		return keysLabel
	case s.sums > 0:
		return sumLabel
	}
	return queriesLabel
}

// sumsAt is where dQ is summed: behind the program's other workspace, and before that of gradients by what goes with scores.
func (s *BackwardProgram) sumsAt(r *kernel.Recorder) pipeline.Binding {
	return r.Scratch[1+len(s.rows)]
}

// recordZero makes the sums 0.
func (s *BackwardProgram) recordZero(r *kernel.Recorder) error {
	if s.sums == 0 {
		return nil
	}
	return r.Rec.Fill(s.sumsAt(r), 0, zeroLabel)
}

// bindSums binds the sums of a kernel that has them, after everything else of a dispatch.
func (s *BackwardProgram) bindSums(r *kernel.Recorder, k *pipeline.Kernel, m pipeline.Mode) {
	if at, ok := k.Buffer("Sums_"); ok {
		r.Access[at] = pipeline.Access{Binding: s.sumsAt(r), Mode: m}
	}
}

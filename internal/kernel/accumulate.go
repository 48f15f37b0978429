package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Accumulate is what becomes of sums in fp32 and of what is added to them: shaders/common/accumulate.comp has the mathematics.
type Accumulate struct {
	Rule       int // AccumulateCopy and its like
	Shape      [4]int
	DType      attn.DType
	XF32, YF32 bool // whatever DType
}

// Rules, as the shader has them.
const (
	AccumulateCopy = iota
	AccumulateAdd
	AccumulateJoin
)

// AccumulateOperands are its tensors.
type AccumulateOperands struct{ X, Y, XLSE, YLSE, NewLSE Operand }

// AccumulateProgram is the kernel, fitted to a problem.
type AccumulateProgram struct {
	env     *Env
	of      Accumulate
	items   [2]uint32 // elements, or where rows are aligned pieces of 16 bytes
	grids   [2]Grid
	kernels [2]atomic.Pointer[pipeline.Kernel] // by alignment
	bound   int
}

const accumulateThreads = 128 // of a workgroup; every device allows it

// AccumulateLabel is the label of its dispatches, and the beginning of its module's name.
const AccumulateLabel = "accumulate"

// LacksAccumulate says what the device lacks for it, of a type.
func (c *Capabilities) LacksAccumulate(t attn.DType) string {
	if why := c.LacksArguments(&PassArgs().Accumulate); why != "" {
		return why
	}
	return c.LacksScalar(t)
}

// NewAccumulateProgram builds it.
func NewAccumulateProgram(e *Env, a *Accumulate) (*AccumulateProgram, error) {
	p := &AccumulateProgram{env: e, of: *a}
	rows := uint64(a.Shape[0]) * uint64(a.Shape[1]) * uint64(a.Shape[2])
	if elements := rows * uint64(a.Shape[3]); elements > MaxGroups {
		return nil, attn.BadArgument("AccumulateProblem.Shape", a.Shape, "has more than %d elements", uint64(MaxGroups))
	}
	unit := 16 / a.DType.Size()
	for i, own := range [2]int{1, unit} {
		items := rows * uint64(attn.CeilDiv(a.Shape[3], own))
		p.items[i] = uint32(items)
		var err error
		// It reads and writes and no more: reckon with 16 operations a number.
		p.grids[i], err = GridFor(e, (items+accumulateThreads-1)/accumulateThreads, 16*float64(items)*float64(own), ScalarPace,
			NewTuning(nil))
		if err != nil {
			return nil, err
		}
	}
	k, err := p.kernel(a.Shape[3]%unit == 0) // the usual case
	p.bound = k.Bindings()
	return p, err
}

// Dispatches is the number of its dispatches at most, and Bindings that of the buffers that each binds.
func (p *AccumulateProgram) Dispatches() int {
	return max(p.grids[0].Dispatches(), p.grids[1].Dispatches())
}
func (p *AccumulateProgram) Bindings() int { return p.bound }

// AccumulateConstants are its specialization constants.
func AccumulateConstants(a *Accumulate, aligned bool) Constants {
	return Constants{"WG": accumulateThreads, "DV": a.Shape[3], "ALIGNED": BoolInt(aligned), "RULE": a.Rule,
		"X_F32": BoolInt(a.XF32), "Y_F32": BoolInt(a.YF32)}
}

func (p *AccumulateProgram) kernel(aligned bool) (*pipeline.Kernel, error) {
	at := &p.kernels[BoolInt(aligned)]
	if k := at.Load(); k != nil {
		return k, nil
	}
	k, err := p.env.Build(AccumulateLabel+"."+p.of.DType.Suffix(), AccumulateConstants(&p.of, aligned), pipeline.KernelInfo{}, score.Code{})
	if err != nil {
		return nil, err
	}
	at.Store(k)
	return k, nil
}

// Record writes it. In steady state that allocates nothing.
func (p *AccumulateProgram) Record(r *Recorder, o *AccumulateOperands) error {
	aligned := o.X.Aligned && o.Y.Aligned && p.of.Shape[3]%(16/p.of.DType.Size()) == 0
	k, err := p.kernel(aligned)
	if err != nil {
		return err
	}
	mode := pipeline.Write
	if p.of.Rule != AccumulateCopy {
		mode = pipeline.ReadWrite
	}
	b := r.bind(k, o.X.Binding)
	b.to("xView1", o.X.Binding, pipeline.Read)
	b.to("yView1", o.Y.Binding, mode)
	if p.of.Rule == AccumulateJoin {
		b.to("LseX", o.XLSE.Binding, pipeline.Read)
		b.to("LseY", o.YLSE.Binding, pipeline.Read)
		b.to("LseOut", o.NewLSE.Binding, pipeline.Write)
	}
	access, err := b.done(AccumulateLabel)
	if err != nil {
		return err
	}
	at := r.Push.accumulate(&p.of, o)
	return r.Dispatch(k, access, at, p.grids[BoolInt(aligned)], p.items[BoolInt(aligned)], AccumulateLabel)
}

// accumulate fills in its arguments.
func (p *Pushes) accumulate(a *Accumulate, o *AccumulateOperands) (baseAt int) {
	l := &PassArgs().Accumulate
	p.layout, p.n = l, l.Size()
	clear(p.data[:p.n])
	var none Operand
	p.PutInt(argQueries, a.Shape[2])
	p.PutInt(argRowHeads, a.Shape[1])
	p.Put(ArgOffsets, Offsets(&o.X, &o.Y, &o.XLSE, &none))
	p.Put(argMoreOffsets, Offsets(&o.YLSE, &o.NewLSE, &none, &none))
	p.Strides(argX, &o.X)
	p.Strides(argY, &o.Y)
	at := l.at[argLSEStrides]
	p.Set(at, o.XLSE.Strides[0])
	p.Set(at+4, o.XLSE.Strides[1])
	return l.at[argBase]
}

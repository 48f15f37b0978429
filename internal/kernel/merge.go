package kernel

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// Merge is attention over disjoint keys that is put together: shaders/common/merge.comp has the mathematics.
type Merge struct {
	Parts                            int
	Stacked                          bool // they lie in one tensor
	Batch, Heads, QueryLen, ValueDim int
	DType                            attn.DType
	PartsF32, ResultF32              bool // whatever DType
}

// MostMerged is the most parts of a merge.
const MostMerged = 4096

// MergePart is one part, or all that lie in one tensor.
type MergePart struct{ O, LSE Operand }

// MergeOperands are the tensors of a merge.
type MergeOperands struct {
	Parts  []MergePart
	O, LSE Operand
	HasLSE bool
}

// MergeProgram is the kernel that merges, fitted to a merge.
type MergeProgram struct {
	env     *Env
	merge   Merge
	items   [2]uint32 // elements, or where rows are aligned pieces of 16 bytes
	grids   [2]Grid
	bound   int
	kernels [2][mergeTensors]atomic.Pointer[pipeline.Kernel] // by alignment and the number of tensors
}

const (
	mergeThreads = 128 // of a workgroup; every device allows it
	mergeTensors = 4   // that one dispatch takes
)

// mergeBuffers are the names of those of o and lse of parts.
var mergeBuffers = [mergeTensors][2]string{{"o0_View1", "Lse0"}, {"o1_View1", "Lse1"}, {"o2_View1", "Lse2"}, {"o3_View1", "Lse3"}}

// Bits of the argument chain, above two offsets.
const (
	mergeContinues = 1 << (16 + iota)
	mergeContinued
	mergeOdd
	mergeLSE
)

// MergeLabel is the label of its dispatches, and the beginning of its module's name.
const MergeLabel = "merge"

// LacksMerge says what the device lacks for merges of a type.
func (c *Capabilities) LacksMerge(t attn.DType) string {
	if why := c.LacksArguments(&PassArgs().Merge); why != "" {
		return why
	}
	return c.LacksScalar(t)
}

// NewMergeProgram builds it.
func NewMergeProgram(e *Env, m *Merge) (*MergeProgram, error) {
	p := &MergeProgram{env: e, merge: *m}
	if err := e.Caps.Holds(p.Scratch()); err != nil {
		return nil, err
	}
	rows := uint64(m.Batch) * uint64(m.Heads) * uint64(m.QueryLen)
	if elements := rows * uint64(m.ValueDim); elements > MaxGroups {
		return nil, attn.BadArgument("MergeProblem", elements, "has more than %d elements in the result", uint64(MaxGroups))
	}
	unit := 16 / m.DType.Size()
	for i, own := range [2]int{1, unit} {
		items := rows * uint64(attn.CeilDiv(m.ValueDim, own))
		p.items[i] = uint32(items)
		var err error
		// It reads the parts and no more: reckon with 16 operations a number.
		p.grids[i], err = GridFor(e, (items+mergeThreads-1)/mergeThreads, 16*float64(items)*float64(own)*float64(m.Parts), ScalarPace,
			NewTuning(nil))
		if err != nil {
			return nil, err
		}
	}
	for first := 0; first < p.tensors(); first += mergeTensors { // the usual case; at most two kernels
		k, err := p.kernel(m.ValueDim%unit == 0, min(p.tensors()-first, mergeTensors))
		if err != nil {
			return nil, err
		}
		p.bound = k.Bindings()
	}
	return p, nil
}

// tensors is how many hold the parts.
func (p *MergeProgram) tensors() int {
	if p.merge.Stacked {
		return 1
	}
	return p.merge.Parts
}

// links is the number of dispatches in the chain, each of which a grid may split.
func (p *MergeProgram) links() int { return attn.CeilDiv(p.tensors(), mergeTensors) }

// Dispatches is the number of its dispatches at most, and Bindings that of the buffers that each binds.
func (p *MergeProgram) Dispatches() int {
	return p.links() * max(p.grids[0].Dispatches(), p.grids[1].Dispatches())
}
func (p *MergeProgram) Bindings() int { return p.bound }

// Scratch is the memory between the dispatches of a chain: weighted sums, and twice the statistics of a row.
func (p *MergeProgram) Scratch() []uint64 {
	if p.links() == 1 {
		return nil
	}
	rows := uint64(p.merge.Batch) * uint64(p.merge.Heads) * uint64(p.merge.QueryLen)
	return []uint64{4 * rows * uint64(p.merge.ValueDim), 16 * rows}
}

// MergeConstants are its specialization constants.
func MergeConstants(m *Merge, aligned bool, tensors int) Constants {
	return Constants{"WG": mergeThreads, "DV": m.ValueDim, "ALIGNED": BoolInt(aligned), "TENSORS": tensors, "STACKED": BoolInt(m.Stacked),
		"PARTS_F32": BoolInt(m.PartsF32), "RESULT_F32": BoolInt(m.ResultF32)}
}

// kernel gives the one for a number of tensors, building it when it is first asked for.
func (p *MergeProgram) kernel(aligned bool, tensors int) (*pipeline.Kernel, error) {
	at := &p.kernels[BoolInt(aligned)][tensors-1]
	if k := at.Load(); k != nil {
		return k, nil
	}
	k, err := p.env.Build(MergeLabel+"."+p.merge.DType.Suffix(), MergeConstants(&p.merge, aligned, tensors), pipeline.KernelInfo{},
		score.Code{})
	if err != nil {
		return nil, err
	}
	at.Store(k)
	return k, nil
}

// Record writes them. In steady state that allocates nothing.
func (p *MergeProgram) Record(r *Recorder, o *MergeOperands) error {
	aligned := o.O.Aligned
	for i := range o.Parts {
		aligned = aligned && o.Parts[i].O.Aligned
	}
	for link := range p.links() {
		parts := o.Parts[link*mergeTensors : min((link+1)*mergeTensors, len(o.Parts))]
		k, err := p.kernel(aligned, len(parts))
		if err != nil {
			return err
		}
		chain := uint32(0)
		if link > 0 {
			chain |= mergeContinues
		}
		if link%2 == 1 {
			chain |= mergeOdd
		}
		if link < p.links()-1 {
			chain |= mergeContinued
		} else if o.HasLSE {
			chain |= mergeLSE
		}
		access, err := r.merging(k, parts, o, chain)
		if err != nil {
			return err
		}
		at := r.Push.merging(&p.merge, parts, o, chain)
		if err := r.Dispatch(k, access, at, p.grids[BoolInt(aligned)], p.items[BoolInt(aligned)], MergeLabel); err != nil {
			return err
		}
	}
	return nil
}

// merging binds what a link of the chain reads and writes.
func (r *Recorder) merging(k *pipeline.Kernel, parts []MergePart, o *MergeOperands, chain uint32) ([]pipeline.Access, error) {
	b := r.bind(k, o.O.Binding)
	for i := range parts {
		b.to(mergeBuffers[i][0], parts[i].O.Binding, pipeline.Read)
		b.to(mergeBuffers[i][1], parts[i].LSE.Binding, pipeline.Read)
	}
	mode := pipeline.Unused
	if chain&mergeContinues != 0 {
		mode |= pipeline.Read
	}
	if chain&mergeContinued != 0 {
		mode |= pipeline.Write
	} else {
		b.to("oView1", o.O.Binding, pipeline.Write)
	}
	if chain&mergeLSE != 0 {
		b.to("Lse", o.LSE.Binding, pipeline.Write)
	}
	if mode != pipeline.Unused {
		b.to("Sums1", r.Scratch[0], mode)
		b.to("Statistics", r.Scratch[1], mode)
	}
	return b.done(MergeLabel)
}

// merging fills in the arguments of a link of the chain.
func (p *Pushes) merging(m *Merge, parts []MergePart, o *MergeOperands, chain uint32) (baseAt int) {
	l := &PassArgs().Merge
	p.layout, p.n = l, l.Size()
	clear(p.data[:p.n])
	p.PutInt(argQueries, m.QueryLen)
	p.PutInt(argRowHeads, m.Heads)
	p.PutInt(argBatch, m.Batch)
	p.PutInt(argParts, m.Parts)
	var none Operand
	p.Put(argChain, chain|Offsets(&o.O, &o.LSE, &none, &none))
	var outputs, statistics uint32
	for i := range parts {
		outputs |= parts[i].O.Offset << (8 * i)
		statistics |= parts[i].LSE.Offset << (8 * i)
		for j, s := range parts[i].O.Strides {
			p.Set(l.at[argPartStrides]+12*i+4*j, s)
		}
		p.Set(l.at[argRowStrides]+8*i, parts[i].LSE.Strides[0])
		p.Set(l.at[argRowStrides]+8*i+4, parts[i].LSE.Strides[1])
	}
	p.Put(ArgOffsets, outputs)
	p.Put(argMoreOffsets, statistics)
	p.Strides(ArgO, &o.O)
	return l.at[argBase]
}

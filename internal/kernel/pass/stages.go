package pass

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Scores binds what goes with scores, as far as the problem has it and a module reads it: of packed sequences table i of those that tables
// made.
func Scores(p *attn.Problem, i int) (out []Bind) {
	bind := func(in bool, name, to string) {
		if in {
			out = append(out, Bind{Name: name, To: to, Mode: pipeline.Read, May: true})
		}
	}
	table := table(p, i)
	bind(!p.Blocks.None(), "Blocks_", Blocks)
	bind(table != "", "RowTable_", table)
	for i := range attn.ForwardOperands {
		switch o := &attn.ForwardOperands[i]; {
		case o.When == nil || o.Output:
		case !p.Packed.None() && slices.Contains(tablesRead, o.Name):
		case o.Name == "Bias": // one of the names of its buffer
			bind(o.In(p), "Bias32_", o.Name)
		default:
			bind(o.In(p), o.Name+"_", o.Name)
		}
	}
	if p.MaxLogit { // by atomics, in numbers that ClearMaxLogits has made -inf
		out = append(out, Bind{Name: "MaxLogit_", To: "MaxLogit", Mode: pipeline.ReadWrite, May: true})
	}
	return append(out, further(p)...)
}

// tablesRead are the operands of packed sequences that tables are made of: other stages read the tables.
var tablesRead = []string{"QueryStarts", "KeyStarts", "KeyLengths", "QueryLengths"}

// ClearMaxLogits begins a forward pass with what makes the largest scores -inf, where the problem has them.
func (p *Pass) ClearMaxLogits() {
	if !p.Problem.MaxLogit {
		return
	}
	p.Stages = slices.Insert(p.Stages, 0, Stage{Label: kernel.MaxLogitLabel, Module: kernel.MaxLogitLabel,
		Constants: kernel.MaxLogitClears(), Args: Args{As: AsTable, Problem: p.Problem}, Total: uint32(p.Problem.Batch * p.Problem.Heads),
		Idle: "MaxLogit", Bind: []Bind{{Name: "MaxLogit_", To: "MaxLogit", Mode: pipeline.Write},
			{Name: "MaxLogitPlace_", To: More, Mode: pipeline.Unused}}})
}

// further binds the further arguments, which the host has written before anything is submitted.
func further(p *attn.Problem) []Bind {
	if !kernel.NeedsMore(p) {
		return nil
	}
	return []Bind{{Name: "More", To: More, Mode: pipeline.Unused, May: true}}
}

// Buffers are the names that modules give the buffers of a forward pass's tensors, and of sums and statistics of parts of the keys in place
// of its outputs. Where a buffer has several names, as one that is read by pieces of several sizes has, any will do.
type Buffers struct{ Q, K, V, O, LSE, Sums, Statistics string }

// Views are those of shaders/include/dtype.glsl.
var Views = &Buffers{Q: "qView1", K: "kView1", V: "vView1", O: "oView1", LSE: "Lse", Sums: "Sums", Statistics: "Statistics"}

// Inputs binds q, k and v.
func (b *Buffers) Inputs() []Bind {
	return []Bind{{Name: b.Q, To: "Q", Mode: pipeline.Read}, {Name: b.K, To: "K", Mode: pipeline.Read},
		{Name: b.V, To: "V", Mode: pipeline.Read}}
}

// outputs binds o and, where it is written, lse.
func (b *Buffers) outputs(v Variant) []Bind {
	return []Bind{{Name: b.O, To: "O", Mode: pipeline.Write}, Given(b.LSE, "LSE", v.LSE, pipeline.Write, "O")}
}

// BackwardBuffers are the names of those of kernels of a backward pass: what they read, and the gradients that they write.
type BackwardBuffers struct{ Q, K, V, DO, LSE, Delta, X, Y string }

// BackwardViews are those of shaders/include/dtype.glsl and scalar_backward.glsl.
var BackwardViews = &BackwardBuffers{Q: "qView1", K: "kView1", V: "vView1", DO: "gView1", LSE: "Lse", Delta: "Delta", X: "xView1",
	Y: "yView1"}

// Inputs binds what they read.
func (b *BackwardBuffers) Inputs() []Bind {
	return []Bind{{Name: b.Q, To: "Q", Mode: pipeline.Read}, {Name: b.K, To: "K", Mode: pipeline.Read},
		{Name: b.V, To: "V", Mode: pipeline.Read}, {Name: b.DO, To: "DO", Mode: pipeline.Read},
		{Name: b.LSE, To: "LSE", Mode: pipeline.Read}, {Name: b.Delta, To: Delta, Mode: pipeline.Read}}
}

// Gradients binds what they write, y where it is not "".
func (b *BackwardBuffers) Gradients(v Variant, x, y string) []Bind {
	out := []Bind{{Name: b.X, To: x, Mode: v.Written()}}
	if y != "" {
		out = append(out, Bind{Name: b.Y, To: y, Mode: v.Written()})
	}
	return out
}

// Given is mode where there is such a tensor; else its place is bound to what is not touched.
func Given(name, to string, in bool, mode pipeline.Mode, otherwise string) Bind {
	if !in {
		to, mode = otherwise, pipeline.Unused
	}
	return Bind{Name: name, To: to, Mode: mode}
}

// table is the name of scratch that a table of packed sequences is in.
func table(p *attn.Problem, i int) string {
	if p.Packed.None() {
		return ""
	}
	return fmt.Sprintf("table %d", i)
}

// tables adds the tables of packed sequences that stages read, one for each way to cut rows; none where rows are a batch.
func (p *Pass) tables(e *kernel.Env, all ...kernel.RowBlocks) {
	if p.Problem.Packed.None() {
		return
	}
	q := p.Problem
	for i, b := range all {
		name := table(q, i)
		p.Scratch = append(p.Scratch, Scratch{name, b.TableBytes(q)})
		p.Stages = append(p.Stages, Stage{Label: kernel.RowTableLabel, Module: kernel.RowTableLabel,
			Constants: kernel.RowTableConstants(q, b, e.RowTableThreads()), Args: Args{As: AsTable, Problem: q},
			Total: max(b.Grid.Total, 1),
			Idle:  name, Bind: append([]Bind{
				Given("QueryStarts", "QueryStarts", q.Packed.Queries > 0, pipeline.Read, name),
				Given("KeyStarts", "KeyStarts", q.Packed.Keys > 0, pipeline.Read, name),
				Given("KeyLengths_", "KeyLengths", q.KeyLengths, pipeline.Read, name),
				Given("QueryLengths_", "QueryLengths", q.QueryLengths, pipeline.Read, name),
				{Name: "Table", To: name, Mode: pipeline.ReadWrite}}, further(q)...)})
	}
}

// CountsOf is where a table has the workgroups of the kernel whose rows it cuts.
func CountsOf(p *attn.Problem, b kernel.RowBlocks, i int) Counts {
	if p.Packed.None() || !b.Counted {
		return Counts{}
	}
	return Counts{table(p, i), b.CountsAt(p)}
}

// Scratch of passes.
const (
	sums       = "sums"       // of each part of the keys o, and
	statistics = "statistics" // lse
	Delta      = "delta"      // δ of each row
)

// combine adds the step that puts keys in parts together.
func (p *Pass) combine(c *kernel.Combiner, v Variant) {
	p.Stages = append(p.Stages, Stage{Label: kernel.CombinerLabel, Module: c.Module,
		Constants: c.Constants(kernel.Variant{Aligned: v.Output, LSE: v.LSE}), Grid: c.Grid, Total: c.Items,
		Args: Args{As: AsForward, Problem: p.Problem}, Idle: sums,
		Bind: append([]Bind{{Name: "Sums", To: sums, Mode: pipeline.Read}, {Name: "Statistics", To: statistics, Mode: pipeline.Read},
			{Name: "oView1", To: "O", Mode: pipeline.Write}, Given("Lse", "LSE", v.LSE, pipeline.Write, "O")},
			Scores(p.Problem, 0)...)})
}

// Behind is what finds δ and table 0 in memory, where others have put it, and more scratch between them.
func Behind(p *attn.Problem, more ...Scratch) *Pass {
	out := &Pass{Problem: p, Operands: attn.BackwardOperands[:], Scratch: append([]Scratch{{Name: Delta}}, more...)}
	if name := table(p, 0); name != "" {
		out.Scratch = append(out.Scratch, Scratch{Name: name})
	}
	return out
}

// BackwardOf begins a backward pass: tables of packed sequences, then the row term.
func BackwardOf(e *kernel.Env, p *attn.Problem, d *kernel.DeltaProgram, v Variant, more []Scratch, rows ...kernel.RowBlocks) *Pass {
	out := &Pass{Problem: p, Operands: attn.BackwardOperands[:], Scratch: append([]Scratch{{Delta, d.Bytes()}}, more...)}
	out.tables(e, rows...)
	out.Stages = append(out.Stages, Stage{Label: kernel.DeltaLabel, Module: d.Module, Constants: d.Constants(v.Output, v.LSE), Grid: d.Grid,
		Total: d.Rows, Args: Args{As: AsDelta, Problem: d.Problem}, Idle: "O",
		Bind: []Bind{{Name: "gView1", To: "DO", Mode: pipeline.Read}, {Name: "oView1", To: "O", Mode: pipeline.Read},
			Given("Dlse", "DLSE", v.LSE, pipeline.Read, "O"), {Name: "Delta", To: Delta, Mode: pipeline.Write}}})
	return out
}

// Written is how a gradient is touched.
func (v Variant) Written() pipeline.Mode {
	if v.Accumulate {
		return pipeline.ReadWrite
	}
	return pipeline.Write
}

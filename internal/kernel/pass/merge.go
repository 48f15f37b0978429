package pass

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Merge puts parts together: a chain of stages, each of which takes some pairs of tensors, with sums in memory between them.
type Merge struct{ program }

// NewMerge makes the pipelines of dense tensors.
func NewMerge(e *kernel.Env, of *kernel.Merge) (*Merge, error) {
	s := &Merge{}
	return s, s.begin(fitMerge(e, of))
}

func fitMerge(e *kernel.Env, of *kernel.Merge) (*Fitted, error) {
	m := *of
	rows := uint64(m.Batch) * uint64(m.Heads) * uint64(m.QueryLen)
	if elements := rows * uint64(m.ValueDim); elements > kernel.MaxGroups {
		return nil, attn.BadArgument("MergeProblem", elements, "has more than %d elements in the result", uint64(kernel.MaxGroups))
	}
	pieces, err := kernel.PiecesOf(e, rows, m.ValueDim, m.DType, m.Parts)
	return &Fitted{Env: e, Problem: rowsOf(m.ValueDim, m.DType), Name: kernel.MergeLabel, Pass: func(v Variant) *Pass {
		out := &Pass{Problem: &attn.Problem{}, Operands: []attn.Operand{{Name: "O"}, {Name: "LSE"}}}
		if m.Links() > 1 { // weighted sums, and twice the statistics of a row
			out.Scratch = []Scratch{{sums, 4 * rows * uint64(m.ValueDim)}, {statistics, 16 * rows}}
		}
		for i := range m.Links() {
			out.Stages = append(out.Stages, mergeStage(&m, i, v.Aligned, &pieces[kernel.BoolInt(v.Aligned)]))
		}
		return out
	}}, err
}

// mergeStage is a link of the chain.
func mergeStage(m *kernel.Merge, link int, aligned bool, by *kernel.Pieces) Stage {
	first, end := m.Link(link)
	s := Stage{Label: kernel.MergeLabel, Module: kernel.MergeLabel + "." + m.DType.Suffix(), Grid: by.Grid, Total: by.Items,
		Constants: kernel.MergeConstants(m, aligned, end-first), Args: Args{As: AsMerge, Merge: m, Link: link}, Idle: "O"}
	if before, _ := m.Link(link - 1); link > 0 && end-first == first-before {
		s.Again = 1
	}
	for i := range end - first {
		s.Bind = append(s.Bind, Bind{Name: fmt.Sprintf("o%d_View1", i), To: partO(first + i), Mode: pipeline.Read},
			Bind{Name: fmt.Sprintf("Lse%d", i), To: partLSE(first + i), Mode: pipeline.Read})
	}
	mode := pipeline.Unused
	if link > 0 {
		mode |= pipeline.Read
	}
	if link < m.Links()-1 {
		mode |= pipeline.Write
	} else {
		s.Bind = append(s.Bind, Bind{Name: "oView1", To: "O", Mode: pipeline.Write},
			Bind{Name: "Lse", To: "LSE", Mode: pipeline.Write, Given: true})
	}
	if mode != pipeline.Unused {
		s.Bind = append(s.Bind, Bind{Name: "Sums1", To: sums, Mode: mode}, Bind{Name: "Statistics", To: statistics, Mode: mode})
	}
	return s
}

// Record writes the dispatches for o, lse, which may be none, and then o and lse of each pair of tensors that holds parts. In steady state
// that allocates nothing.
func (s *Merge) Record(r *kernel.Recorder, all []*kernel.Operand) error {
	aligned := all[0].Aligned
	for i := 2; i < len(all); i += 2 {
		aligned = aligned && all[i].Aligned
	}
	return s.recordAs(r, Variant{Aligned: aligned, Output: aligned}, &tensors{operands: all})
}

// rowsOf is a problem whose tensors have rows of so many columns, and nothing else: what Dense asks.
func rowsOf(columns int, t attn.DType) *attn.Problem {
	return &attn.Problem{HeadDim: columns, ValueDim: columns, DType: t}
}

package pass

import (
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Rows moves rows: into a cache, turned by their positions, or both.
type Rows struct{ program }

// NewRows makes the pipeline.
func NewRows(e *kernel.Env, of *kernel.Rows) (*Rows, error) {
	s := &Rows{}
	return s, s.begin(fitRows(e, of))
}

func fitRows(e *kernel.Env, of *kernel.Rows) (*Fitted, error) {
	r := *of
	grid, err := r.Grid(e)
	return &Fitted{Env: e, Problem: rowsOf(r.Dim, r.DType), Name: kernel.RowsLabel, Pass: func(v Variant) *Pass {
		return &Pass{Problem: &attn.Problem{}, Operands: kernel.RowTensors[:], Stages: []Stage{{Label: kernel.RowsLabel,
			Module: r.Module(), Constants: kernel.RowConstants(&r), Grid: grid, Args: Args{As: AsMoving, Rows: &r},
			Bind: bindRows(&r, v.Accumulate), Idle: "X"}}}
	}}, err
}

// bindRows binds what there is of rows, which may stay in place: of rows in a cache that is said of queries.
func bindRows(r *kernel.Rows, inPlace bool) (out []Bind) {
	tabled, moved := r.Turn == kernel.ByTable || r.Turn == kernel.ByToken, r.Scattered || !inPlace
	written, queries := pipeline.Write, pipeline.Read
	if r.Scattered || inPlace { // most of a cache stays as it is
		written = pipeline.ReadWrite
	}
	if inPlace {
		queries = pipeline.Unused
	}
	for _, b := range [...]struct {
		name, to string
		mode     pipeline.Mode
		in       bool
	}{
		{"K_", "K", pipeline.Read, moved}, {"V_", "V", pipeline.Read, r.ValueDim > 0},
		{"X_", "X", written, true}, {"Y_", "Y", pipeline.ReadWrite, r.ValueDim > 0},
		{"At_", "At", pipeline.Read, r.Scattered}, {"Positions_", "Positions", pipeline.Read, r.Positions},
		{"Cos_", "Cos", pipeline.Read, tabled}, {"Sin_", "Sin", pipeline.Read, tabled},
		{"Frequencies_", "Frequencies", pipeline.Read, r.Turn == kernel.ByFrequencies},
		{"Q_", "Q", queries, r.QueryHeads > 0},
		{"Z_", "Z", pipeline.ReadWrite, r.QueryHeads > 0}, // rows that no token of an entry names stay as they are
		{"PageTable_", "Table", pipeline.Read, !r.Pages.None()}, {"PageStarts_", "Starts", pipeline.Read, r.Pages.Compressed()},
		{"Counts_", "Counts", pipeline.Read, r.Counts},
		{"KeyScales_", "KeyScales", pipeline.Read, r.KeyType.Float8()},
		{"ValueScales_", "ValueScales", pipeline.Read, r.ValueType.Float8()},
	} {
		if b.in {
			out = append(out, Bind{Name: b.name, To: b.to, Mode: b.mode})
		}
	}
	return out
}

// Record writes the dispatches. In steady state that allocates nothing.
func (s *Rows) Record(r *kernel.Recorder, o *kernel.RowOperands) error {
	all, v := o.List(), s.usual
	v.Accumulate = o.InPlace
	return s.recordAs(r, v, &tensors{operands: all[:], moving: o})
}

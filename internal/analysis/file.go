package analysis

import (
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/bench"
)

// FromFile analyses the rows of a result file that keep accepts (nil: all), with the peaks of its header. Tilings are read
// from the rows' kernels.
func FromFile(f *bench.File, nonzero float64, keep func(bench.Case) bool) (*Result, error) {
	if len(f.Headers) == 0 {
		return nil, fmt.Errorf("%s: it has no header of vkattn, whose measured peaks an analysis needs", f.Path)
	}
	h := f.Headers[len(f.Headers)-1]
	r := &Result{Machine: Machine{Device: h.Device, Peaks: h.Peaks}}
	var met models
	seen := map[string]bool{}
	for _, row := range f.Rows {
		key := row.Library + " " + row.Case.String()
		if keep != nil && !keep(row.Case) || row.Error != "" || seen[key] {
			continue
		}
		seen[key] = true
		algorithm, ok := AlgorithmOf(row.Impl)
		if !ok {
			r.note(fmt.Sprintf("there is no model of %q", row.Impl))
			continue
		}
		e, err := r.measured(row, algorithm, nonzero, &met)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", f.Path, row.Case, err)
		}
		r.Entries = append(r.Entries, e...)
	}
	if len(r.Entries) == 0 {
		return nil, fmt.Errorf("%s: it has no measured row of that kind", f.Path)
	}
	if len(met.list) == 0 {
		return r, nil
	}
	for _, t := range met.standIns(nonzero) {
		met.add(forwardModel(string(t.Algorithm), t))
	}
	return r, r.Lecture(met.last, met.list)
}

// measured analyses the passes that a row has figures of, and adds their tilings to the models.
func (r *Result) measured(row bench.Row, algorithm flash.Algorithm, nonzero float64, met *models) (out []Entry, err error) {
	if row.Fwd.Ms > 0 {
		var tiling *flash.Tiling
		if row.Kernel != "" {
			t, err := flash.ParseTiling(algorithm, row.Kernel)
			if err != nil {
				return nil, err
			}
			if algorithm == flash.AlgorithmBlockSparse {
				t.Nonzero = orElse(row.Density, nonzero)
			}
			tiling = &t
			if algorithm == flash.AlgorithmStandard && row.Fwd.Bytes == 0 {
				r.note("standard's block of the product is not in the file: taken as its block of scores, 32 keys a step")
			}
		}
		e, err := Forward(r.Machine, row, tiling)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		met.forward(row, tiling)
	}
	if row.Bwd.Ms > 0 {
		var tiling *flash.BackwardTiling
		if t, err := flash.ParseBackwardTiling(row.BwdKernel); err == nil { // peers, and kernels that the model does not know, have none
			tiling = &t
		}
		e, err := Backward(r.Machine, row, tiling)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
		met.backward(row, tiling)
	}
	return out, nil
}

func (r *Result) note(text string) {
	for _, n := range r.Notes {
		if n == text {
			return
		}
	}
	r.Notes = append(r.Notes, text)
}

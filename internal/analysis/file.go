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
	tilings := map[string]flash.Tiling{}
	var impls []string
	var last flash.Problem
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
		var tiling *flash.Tiling
		if row.Kernel != "" {
			t, err := flash.ParseTiling(algorithm, row.Kernel)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", f.Path, row.Case, err)
			}
			if algorithm == flash.AlgorithmBlockSparse {
				t.Nonzero = nonzero
			}
			tiling = &t
			if _, ok := tilings[row.Impl]; !ok {
				impls = append(impls, row.Impl)
			}
			tilings[row.Impl] = t
			if last, _ = row.Problem(); algorithm == flash.AlgorithmStandard {
				r.note("standard's block of the product is not in the file: taken as its block of scores, 32 keys a step")
			}
		}
		if row.Fwd.Ms > 0 {
			e, err := Forward(r.Machine, row, tiling)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", f.Path, row.Case, err)
			}
			r.Entries = append(r.Entries, e)
		}
		if row.Bwd.Ms > 0 {
			e, err := Backward(r.Machine, row)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", f.Path, row.Case, err)
			}
			r.Entries = append(r.Entries, e)
		}
	}
	if len(r.Entries) == 0 {
		return nil, fmt.Errorf("%s: it has no measured row of that kind", f.Path)
	}
	if len(tilings) == 0 {
		return r, nil
	}
	models(tilings, &impls, nonzero)
	return r, r.Lecture(last, tilings, impls)
}

func (r *Result) note(text string) {
	for _, n := range r.Notes {
		if n == text {
			return
		}
	}
	r.Notes = append(r.Notes, text)
}

// models adds the algorithms that were not measured, on flash2's tile, to compare with.
func models(tilings map[string]flash.Tiling, impls *[]string, nonzero float64) {
	base, ok := tilings["flash2"]
	if !ok {
		return
	}
	for _, a := range []flash.Algorithm{flash.AlgorithmFlash1, flash.AlgorithmBlockSparse} {
		if _, have := tilings[string(a)]; have {
			continue
		}
		t := base
		t.Algorithm, t.Nonzero, t.Packed = a, nonzero, false
		tilings[string(a)] = t
		*impls = append(*impls, string(a))
	}
}

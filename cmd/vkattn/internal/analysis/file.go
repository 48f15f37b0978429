package analysis

import (
	"fmt"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// FromFile analyses the rows of a result file that keep accepts (nil: all), with the peaks of its header, by the models that the rows hold.
// Block-sparse rows that do not say how many of their blocks are nonzero have the share nonzero of them.
func FromFile(f *result.File, nonzero float64, keep func(result.Case) bool) (*Result, error) {
	if len(f.Headers) == 0 {
		return nil, fmt.Errorf("%s: it has no header of vkattn, whose measured peaks an analysis needs", f.Path)
	}
	f = figure.Settle(f) // as figures have it
	h := f.Headers[len(f.Headers)-1]
	r := &Result{Machine: Machine{Device: h.Device, CPU: h.CPU, Peaks: h.Peaks}}
	var met models
	for _, row := range merged(f.Rows) {
		if keep != nil && !keep(row.Case) || row.Error != "" {
			continue
		}
		if _, ok := implementationOf(row.Impl); !ok {
			r.note(unknown(row.Impl).Error())
			continue
		}
		if row.Impl == result.BlockSparse {
			row.Density = orElse(row.Density, nonzero)
		}
		if err := r.measured(row, &met); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", f.Path, row.Case, err)
		}
	}
	if len(r.Entries) == 0 {
		return nil, fmt.Errorf("%s: it has no measured row of that kind", f.Path)
	}
	if _, err := met.standIns(nonzero); err != nil {
		return nil, err
	}
	return r, r.Lecture(met.last, met.list)
}

// merged are the rows with one for each library and case, as reports have them: passes may have been measured one after the other.
func merged(rows []result.Row) (out []result.Row) {
	type key struct {
		library string
		c       result.Case
	}
	at := map[key]int{}
	for _, row := range rows {
		k := key{row.Library, row.Case}
		if i, again := at[k]; again {
			out[i] = row.After(out[i])
			continue
		}
		at[k] = len(out)
		out = append(out, row)
	}
	return out
}

// measured analyses the passes that a row has figures of, and adds their models.
func (r *Result) measured(row result.Row, met *models) error {
	for _, pass := range []struct {
		figures result.Pass
		analyse func(Machine, result.Row) (Entry, error)
		add     func(result.Row) error
	}{{row.Fwd, Forward, met.forward}, {row.Bwd, Backward, met.backward}} {
		if pass.figures.Ms == 0 {
			continue
		}
		e, err := pass.analyse(r.Machine, row)
		if err != nil {
			return err
		}
		switch {
		case !Ours(e):
		case !row.Counted():
			r.note(uncounted)
		case pass.figures.Model.IsZero():
			r.note("rows of an older vkattn lack the models of their kernels: bytes by step, and of other lengths, are not known")
		}
		r.Entries = append(r.Entries, e)
		if err := pass.add(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *Result) note(text string) {
	for _, n := range r.Notes {
		if n == text {
			return
		}
	}
	r.Notes = append(r.Notes, text)
}

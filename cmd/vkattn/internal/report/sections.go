package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// Section is a table of rows that differ in what no axis of a figure shows. Like figures, its numbers are those of the rows.
type Section struct {
	ID, Title string
	Fixed     string // how to read it
	Shared    string // what all of its rows have in common
	Table     FigureTable
	Others    []string // what others measured, as figure.Figure.Others
}

// spread heads the columns of figure.Span.
const spread = "20th to 80th percentile and rounds"

// sections are the tables that the rows of a run can make.
func (r *Run) sections() []Section {
	var out []Section
	for _, s := range []Section{r.blockSizes(), r.dropouts(), r.scores(), r.sparsity(), r.rings()} {
		if len(s.Table.Rows) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// unit is what the tables of a run show rates in, as its rows do.
func (r *Run) unit() result.Unit { return rateUnit(r.Results.Header.CPU, r.Results.Rows) }

// rows are those of the run and of others beside it. An earlier run of ours is a run of the page's own, and has its own sections.
func (r *Run) rows() []result.Row {
	others := slices.DeleteFunc(slices.Clone(r.Results.Peers), IsOurs)
	return slices.Concat(r.Results.Rows, others)
}

// blockSizes compares tiles of one shape: the library's choice first, then those of the tunings in the order of the file.
func (r *Run) blockSizes() Section {
	unit := r.unit()
	s := Section{ID: "block-size", Title: "Tiles of flash: time and bytes",
		Table: FigureTable{Header: []string{"problem", "kernel", "tuning", "forward, ms", spread, unit.Name, "GB asked for",
			"time / the library's choice's"}},
		Fixed: "GB asked for: what the workgroups load from and store to device memory, as the tiling counts it; caches serve part of it.",
		Others: []string{
			figure.OnA100 + "40.3 GB moved in 41.7 ms by standard attention, 4.4 GB in 7.3 ms by FlashAttention.",
		}}
	rows := r.Results.Rows
	var shapes []result.Case
	for _, row := range rows {
		if row.Tuning != "" && !slices.Contains(shapes, row.Shape()) {
			shapes = append(shapes, row.Shape())
		}
	}
	for _, shape := range shapes {
		var own result.Row // the library's choice
		var tiles []result.Row
		for _, row := range rows {
			switch {
			case row.Shape() != shape:
			case row.Tuning != "":
				tiles = append(tiles, row)
			case slices.ContainsFunc(rows, func(t result.Row) bool { return t.Tuning != "" && t.Impl == row.Impl && t.Shape() == shape }):
				own = row
				tiles = slices.Insert(tiles, 0, row)
			}
		}
		for _, row := range tiles {
			line := []string{shape.String(), row.Kernel, string(row.Tuning), "", "", "", "", ""}
			if row.Tuning == "" {
				line[2] = "the library's choice"
			}
			if row.Error != "" {
				line[3] = row.Reason.Word()
			}
			if row.Fwd.Ms > 0 {
				line[3], line[4], line[5] = figure.Shown(row.Fwd.Ms), between(row.Fwd), figure.Shown(row.Fwd.TFLOPS*unit.Scale)
				if row.Fwd.Bytes > 0 {
					line[6] = figure.Shown(row.Fwd.Bytes / 1e9)
				}
				if own.Fwd.Ms > 0 {
					line[7] = result.Fixed(row.Fwd.Ms/own.Fwd.Ms, 3)
				}
			}
			s.Table.Rows = append(s.Table.Rows, line)
		}
	}
	s.Table.trim()
	return s
}

// dropouts sets each pass with dropout beside the same without.
func (r *Run) dropouts() Section {
	s := Section{ID: "dropout", Title: "Dropout and masking: what they cost",
		Table: FigureTable{Header: []string{"implementation", "problem", "causal", "dropout", "pass", "ms without", "ms with",
			"time with / without"}}}
	rows := r.rows()
	for _, row := range rows {
		if row.Dropout == 0 || row.Tuning != "" {
			continue
		}
		c := row.Case
		c.Dropout = 0
		i := slices.IndexFunc(rows, func(o result.Row) bool { return o.Case == c && o.Library == row.Library })
		if i < 0 {
			continue
		}
		name, shape := row.Impl, c.Shape()
		shape.Causal = false
		if !IsOurs(row) {
			name += " (" + row.Library + ")"
		}
		line := func(pass string, without, with result.Pass, err string) {
			if without.Ms == 0 && with.Ms == 0 && err == "" {
				return
			}
			ratio := ""
			if without.Ms > 0 && with.Ms > 0 {
				ratio = result.Fixed(with.Ms/without.Ms, 3)
			}
			cell := func(p result.Pass) string {
				if p.Ms > 0 {
					return figure.Shown(p.Ms)
				}
				return err
			}
			s.Table.Rows = append(s.Table.Rows, []string{name, shape.String(), map[bool]string{false: "no", true: "yes"}[c.Causal],
				figure.Shown(row.Dropout), pass, cell(without), cell(with), ratio})
		}
		failed, failedBackward := "", ""
		if row.Error != "" {
			failed = row.Reason.Word()
		}
		if row.BwdFailure.Error != "" {
			failedBackward = row.BwdFailure.Reason.Word()
		}
		line("forward", rows[i].Fwd, row.Fwd, failed)
		line("backward", rows[i].Bwd, row.Bwd, failedBackward)
	}
	return s
}

// scores sets what becomes of scores beside the same problem with plain ones, those of peers too.
func (r *Run) scores() Section {
	unit := r.unit()
	s := Section{ID: "scores", Title: "Functions, masks, biases and sinks of scores, and where keys lie: what they cost",
		Table: FigureTable{Header: []string{"implementation", "problem", "pass", "ms plain", "ms", unit.Name + " plain", unit.Name,
			"rate / plain"}},
		Fixed: unit.Name + ": of the pairs of queries and keys that are seen. The last column is 1 where nothing is lost."}
	rows := r.rows()
	for _, row := range rows {
		plain, costs := row.Plain()
		i := slices.IndexFunc(rows, func(o result.Row) bool { return costs && o.Case == plain && o.Library == row.Library })
		if i < 0 || row.Tuning != "" {
			continue
		}
		name := row.Impl
		if !IsOurs(row) {
			name += " (" + row.Library + ")"
		}
		for _, p := range []struct {
			name       string
			plain, own result.Pass
			failed     string
		}{{"forward", rows[i].Fwd, row.Fwd, choose(row.Error, row.Reason)},
			{"backward", rows[i].Bwd, row.Bwd, choose(row.BwdFailure.Error, row.BwdFailure.Reason)}} {
			if p.own.Ms == 0 && p.failed == "" {
				continue
			}
			line := []string{name, row.Shape().String(), p.name, "", p.failed, "", "", ""}
			if p.plain.Ms > 0 {
				line[3], line[5] = figure.Shown(p.plain.Ms), figure.Shown(p.plain.TFLOPS*unit.Scale)
			}
			if p.own.Ms > 0 {
				line[4], line[6] = figure.Shown(p.own.Ms), figure.Shown(p.own.TFLOPS*unit.Scale)
			}
			if p.plain.TFLOPS > 0 && p.own.TFLOPS > 0 {
				line[7] = result.Fixed(p.own.TFLOPS/p.plain.TFLOPS, 3)
			}
			s.Table.Rows = append(s.Table.Rows, line)
		}
	}
	return s
}

// choose is the word for a reason where there is an error.
func choose(err string, reason result.Reason) string {
	if err == "" {
		return ""
	}
	return reason.Word()
}

// sparsity sets attention with block masks beside that of flash without, which the other implementations of the shape are.
func (r *Run) sparsity() Section {
	unit := r.unit()
	s := Section{ID: "block-sparsity", Title: "Block sparsity: time against the share of nonzero blocks",
		Table: FigureTable{Header: []string{"problem", "nonzero blocks", "kernel", "forward, ms", spread, unit.Name, "time / flash2's",
			"time / flash2's / share"}},
		Fixed: unit.Name + ": of the operations in nonzero blocks alone. The last column is what a nonzero block costs, against one of " +
			"flash2."}
	rows := r.Results.Rows
	for _, row := range rows {
		if row.Density == 0 || row.Tuning != "" {
			continue
		}
		line := []string{row.Shape().String(), fmt.Sprintf("%.4g %%", 100*row.Density), row.Kernel, "", "", "", "", ""}
		if row.Error != "" {
			line[3] = row.Reason.Word()
		}
		if row.Fwd.Ms > 0 {
			line[3], line[4], line[5] = figure.Shown(row.Fwd.Ms), between(row.Fwd), figure.Shown(row.Fwd.TFLOPS*unit.Scale)
			dense := row.Shape()
			dense.Impl = "flash2"
			if i := slices.IndexFunc(rows, func(o result.Row) bool { return o.Case == dense && o.Library == row.Library }); i >= 0 &&
				rows[i].Fwd.Ms > 0 {
				ratio := row.Fwd.Ms / rows[i].Fwd.Ms
				line[6], line[7] = result.Fixed(ratio, 3), result.Fixed(ratio/row.Density, 3)
			}
		}
		s.Table.Rows = append(s.Table.Rows, line)
	}
	s.Table.trim()
	return s
}

func between(p result.Pass) string {
	lo, hi := figure.Span(p)
	if lo <= 0 {
		return ""
	}
	return figure.Shown(lo) + " to " + figure.Shown(hi)
}

// trim drops the columns after the second that say nothing.
func (t *FigureTable) trim() {
	for i := len(t.Header) - 1; i > 1; i-- {
		if !slices.ContainsFunc(t.Rows, func(r []string) bool { return r[i] != "" }) {
			t.Header = slices.Delete(t.Header, i, i+1)
			for j := range t.Rows {
				t.Rows[j] = slices.Delete(t.Rows[j], i, i+1)
			}
		}
	}
}

// apart says before the table what all of its rows, three or more, have in common, and drops those columns: a telephone has no room
// for what is said once.
func (s Section) apart() Section {
	rows := s.Table.Rows
	if len(rows) < 3 {
		return s
	}
	var shared []string
	keep := FigureTable{Rows: make([][]string, len(rows))}
	for i, name := range s.Table.Header {
		value := rows[0][i]
		if value != "" && !slices.ContainsFunc(rows, func(r []string) bool { return r[i] != value }) {
			shared = append(shared, name+" "+value)
			continue
		}
		keep.Header = append(keep.Header, name)
		for j, r := range rows {
			keep.Rows[j] = append(keep.Rows[j], r[i])
		}
	}
	if len(keep.Header) == 0 || len(shared) == 0 {
		return s
	}
	s.Table, s.Shared = keep, strings.Join(shared, " · ")
	return s
}

package report

import (
	"fmt"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
)

// FigureTable is the numbers of a figure.
type FigureTable struct {
	Header []string
	Rows   [][]string
}

// Table lists the numbers of a figure, in the unit of its axis.
func Table(f *figure.Figure) FigureTable {
	t := FigureTable{Header: []string{"series", f.X, f.Y, spread, "kernel"}}
	switch f.Kind {
	case figure.Map:
		t.Header = []string{"series", f.X, f.Y, "value", spread, "kernel"}
	case figure.Bars:
		t.Header = []string{"series", f.X, "worst to best", "shapes"}
	case figure.Stacked, figure.Timeline:
		return partsTable(f)
	}
	for _, s := range f.Series {
		for _, p := range s.Points {
			between, kernel := "", ""
			if p.Lo > 0 {
				between = figure.Shown(f.Value(p.Lo)) + " to " + figure.Shown(f.Value(p.Hi))
			}
			if p.Row != nil {
				kernel = kernelOf(p.Row, p.Pass)
			}
			y := figure.Shown(f.Value(p.Y))
			if p.Doubtful() {
				y += " ○"
			}
			switch f.Kind {
			case figure.Map:
				t.Rows = append(t.Rows, []string{s.Name, figure.Number(p.X), figure.Number(p.X2), y, between, kernel})
			case figure.Bars:
				t.Rows = append(t.Rows, []string{s.Name, y, between, fmt.Sprint(p.Shapes)})
			default:
				t.Rows = append(t.Rows, []string{s.Name, figure.Number(p.X), y, between, kernel})
			}
		}
	}
	t.trim()
	return t
}

// partsTable lists the times of what bars and lanes are made of.
func partsTable(f *figure.Figure) FigureTable {
	t := FigureTable{Header: []string{"pass", "ms"}}
	if f.Kind == figure.Timeline {
		t.Header = []string{"lane", "ms"}
	}
	for _, part := range f.Parts {
		t.Header = append(t.Header, part+", ms")
	}
	for _, s := range f.Series {
		name := s.Name
		if f.Kind == figure.Timeline {
			name = fmt.Sprintf("rank %d, %s", s.Rank, s.Name)
		}
		sums := make([]float64, len(f.Parts))
		for _, p := range s.Points {
			sums[int(p.X)] += p.Y
		}
		row := []string{name, figure.Shown(s.Whole)}
		for _, v := range sums {
			row = append(row, figure.Shown(v))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// kernelOf is the kernel that ran a pass of a row.
func kernelOf(r *result.Row, pass string) string {
	if pass == "bwd" {
		return r.BwdKernel
	}
	return r.Kernel
}

package result

import (
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Column is one thing that is known of a row. Result files, CSV and the tables of reports have it from the table in columns.go, so a
// new one is a line there, beside the field of Row or Pass and the place where it is measured.
type Column struct {
	Name     string // over the column of a table; "": only files have it. {rate} and {peer} stand for what a view says
	Key      string // in files; "": only tables have it
	Left     bool   // text; figures stand right
	Legend   string // explains the column below a table; "": it explains itself
	Axis     *Axis  // the axis of the problem that it shows
	Backward bool   // of the backward pass
	PerPeer  bool   // a column for each implementation that rows are compared with

	// field points to the value in a row; nil: the column is derived, and result files lack it.
	field func(r *Row) any
	show  func(c *Cell) string // in a table
	csv   func(c *Cell) string // in CSV; nil: the field's value

	sure     bool // result files have the key even where the value is zero
	exact    bool // result files have all digits
	noCSV    bool
	positive bool // a negative value is refused
}

// View is what cells depend on beside their row.
type View struct {
	Peaks Peaks
	Rate  [2]Unit // of TFLOP/s, forward and backward
	Tuned bool    // rows have tunings
}

// Unit is what figures are shown in.
type Unit struct {
	Name  string
	Scale float64 // to it
}

// RateUnit is what rates in TFLOP/s that stand together are shown in: GFLOP/s for a CPU, and where none reaches a tenth of a TFLOP/s.
func RateUnit(cpu bool, tflops ...float64) Unit {
	if most := slices.Max(append(tflops, 0)); cpu || most > 0 && most < 0.1 {
		return Unit{Name: "GFLOP/s", Scale: 1000}
	}
	return Unit{Name: "TFLOP/s", Scale: 1}
}

// Ratios say how many times faster a row is than others. 0: not known.
type Ratios struct {
	Standard float64
	Plain    float64   // the rate over that of the plain case (Case.Plain), each on the pairs that it sees
	Peers    []float64 // in the order of the columns that are PerPeer
}

// Cell is a row as a column shows it.
type Cell struct {
	*View
	Row    *Row
	Ratios [2]Ratios // forward, backward
	Peer   int       // of a column that is PerPeer
}

// Show is the column's text for people.
func (c *Column) Show(cell *Cell) string {
	if c.show == nil {
		return ""
	}
	return c.show(cell)
}

// CSV is the column's text in CSV: six digits, "" for what was not measured.
func (c *Column) CSV(cell *Cell) string {
	switch {
	case c.csv != nil:
		return c.csv(cell)
	case c.field == nil:
		return c.Show(cell)
	}
	switch v := c.field(cell.Row).(type) {
	case *float64:
		return number(*v)
	case **float64:
		if *v == nil {
			return ""
		}
		return strconv.FormatFloat(**v, 'g', 6, 64)
	case *int:
		if *v == 0 {
			return ""
		}
		return strconv.Itoa(*v)
	case *bool:
		return strconv.FormatBool(*v)
	default: // kinds of text
		return reflect.ValueOf(v).Elem().String()
	}
}

// stored is a value as result files have it: six significant digits, and nothing that JSON cannot hold.
func (c *Column) stored(r *Row) any {
	v := c.field(r)
	switch p := v.(type) {
	case *float64:
		if !c.exact {
			return Round(*p)
		}
	case **float64:
		if *p = finite(*p); *p != nil && !c.exact {
			rounded := Round(**p)
			*p = &rounded
		}
	case *[]float64:
		out := make([]float64, len(*p))
		for i, v := range *p {
			out[i] = Round(v)
		}
		return out
	}
	return v
}

// finite drops what JSON cannot hold; the row's error then says what was wrong.
func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

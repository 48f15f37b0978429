package report

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Digits keeps three or four significant digits and no exponent.
func Digits(v float64) string { return result.Digits(v) }

// rateUnit is that of the rates of rows.
func rateUnit(cpu bool, rows []result.Row) result.Unit {
	var rates []float64
	for _, r := range rows {
		rates = append(rates, r.Fwd.TFLOPS)
	}
	return result.RateUnit(cpu, rates...)
}

// column is one of bench's table, or for one peer implementation one of those that it has for each.
type column struct {
	result.Column
	peer int
}

// headed repeats the columns that are for each peer implementation.
func headed(columns []result.Column, impls []string) (out []column) {
	for _, c := range columns {
		if !c.PerPeer {
			out = append(out, column{Column: c})
			continue
		}
		for i, impl := range impls {
			one := column{c, i}
			one.Key = strings.ReplaceAll(c.Key, "{peer}", impl)
			if impl == standard {
				impl = "peer's standard" // ours has a column of its own, in both passes
			}
			one.Name = strings.ReplaceAll(c.Name, "{peer}", impl)
			out = append(out, one)
		}
	}
	return out
}

// pass is the index of a column's pass in cells.
func pass(c column) int {
	if c.Backward {
		return 1
	}
	return 0
}

// seen are rows as columns show them.
type seen struct {
	view result.View
	rows []result.Cell
}

func see(r *Results, x *index, rows []result.Row, peer []bool) *seen {
	out := &seen{view: result.View{Peaks: r.Header.Peaks}}
	back := backwardOf(r)
	backRows, _ := ordered(back)
	out.view.Rate = [2]result.Unit{rateUnit(r.Header.CPU, rows), rateUnit(r.Header.CPU, backRows)}
	y := newIndex(back)
	y.impls = x.impls // both passes have the columns of all rows
	for i := range rows {
		row := &rows[i]
		out.view.Tuned = out.view.Tuned || row.Tuning != ""
		cell := result.Cell{View: &out.view, Row: row}
		if !peer[i] { // a peer's own ratio to itself says nothing
			cell.Ratios[0] = x.of(*row)
		}
		if IsOurs(*row) {
			backward := *row
			backward.Fwd = row.Bwd
			cell.Ratios[1] = y.of(backward)
		}
		out.rows = append(out.rows, cell)
	}
	return out
}

// at is a row as a column shows it.
func (c *seen) at(i int, of column) *result.Cell {
	c.rows[i].Peer = of.peer
	return &c.rows[i]
}

// grid is a table of text.
type grid struct {
	columns []result.Column
	cells   [][]string
	groups  []int    // index of each row's shape: a rule is drawn where it changes
	peer    []bool   // the row is the peer's
	shared  []string // what all rows have in common
	notes   []string // why rows have no figures, and remarks
}

// build lays the rows out, those of a shape together with the peer's.
func build(r *Results) *grid {
	x := newIndex(r)
	rows, peer := ordered(r)
	g := &grid{peer: peer}
	shapes := map[result.Case]int{}
	for _, row := range rows {
		if _, ok := shapes[row.Shape()]; !ok {
			shapes[row.Shape()] = len(shapes)
		}
		g.groups = append(g.groups, shapes[row.Shape()])
	}
	all := see(r, x, rows, peer)
	for _, c := range headed(result.Columns, x.impls) {
		if c.Name == "" {
			continue
		}
		c.Name = strings.ReplaceAll(c.Name, "{rate}", all.view.Rate[pass(c)].Name)
		var values []string
		same, empty := true, true
		for i := range rows {
			v := c.Show(all.at(i, c))
			if c.Key == "impl" && earlierRow(rows[i], peer[i]) {
				v += earlierMark
			}
			values = append(values, v)
			same = same && v == values[0]
			empty = empty && v == ""
		}
		switch {
		case c.Axis != nil && same && (c.Axis.Key != "N" || len(rows) > 1):
			if len(values) > 0 {
				if text := c.Axis.Told(values[0]); text != "" {
					g.shared = append(g.shared, text)
				}
			}
			continue
		case empty:
			continue
		}
		g.columns = append(g.columns, c.Column)
		for len(g.cells) < len(rows) {
			g.cells = append(g.cells, nil)
		}
		for i, v := range values {
			g.cells[i] = append(g.cells[i], v)
		}
	}
	g.notes = notes(rows)
	return g
}

// largestGroup is the number of rows of the shape that has most.
func (g *grid) largestGroup() int {
	sizes := map[int]int{}
	most := 0
	for _, at := range g.groups {
		sizes[at]++
		most = max(most, sizes[at])
	}
	return most
}

// earlierMark follows the implementation, and the library, of a row of an earlier run.
const earlierMark = " (earlier)"

// earlierRow says whether a row that stands beside ours is our own, of an earlier run.
func earlierRow(row result.Row, peer bool) bool { return peer && IsOurs(row) }

// ordered puts each peer row behind our rows of its shape, and all tiles and masks of an earlier run; peers of shapes that
// we did not measure are left out. The library of an earlier run's rows is marked.
func ordered(r *Results) (rows []result.Row, peer []bool) {
	byShape := map[result.Case][]result.Row{}
	wanted := map[string]bool{}
	for _, impl := range r.PeerImpls {
		wanted[impl] = true
	}
	seen := map[peerKey]bool{}
	for _, p := range r.Peers {
		k := peerKey{p.Shape(), p.Impl}
		if IsOurs(p) {
			k = peerKey{p.Case, sameImpl}
		}
		if (wanted[p.Impl] || IsOurs(p)) && !seen[k] {
			seen[k] = true
			byShape[p.Shape()] = append(byShape[p.Shape()], p)
		}
	}
	for i, row := range r.Rows {
		rows, peer = append(rows, row), append(peer, false)
		if i+1 < len(r.Rows) && r.Rows[i+1].Shape() == row.Shape() {
			continue
		}
		for _, p := range byShape[row.Shape()] {
			if earlierRow(p, true) {
				p.Library += earlierMark
			}
			rows, peer = append(rows, p), append(peer, true)
		}
		delete(byShape, row.Shape())
	}
	return rows, peer
}

// notes lists reasons and remarks, each once with the rows it is about.
func notes(rows []result.Row) []string {
	var order []string
	about := map[string][]string{}
	skipped := 0
	for _, row := range rows {
		if row.PredictedMs > 0 { // the table says it
			skipped++
			continue
		}
		text := row.Error
		if text == "" {
			text = row.Note
		}
		for _, text := range []string{text, row.BwdFailure.Error, row.JVPFailure.Error} {
			if text == "" {
				continue
			}
			if _, ok := about[text]; !ok {
				order = append(order, text)
			}
			about[text] = append(about[text], row.Case.String())
		}
	}
	var out []string
	if skipped > 0 {
		out = append(out, fmt.Sprintf("skipped: %d of %d rows, each predicted to take longer than its time limit (--limit)", skipped,
			len(rows)))
	}
	for _, text := range order {
		who := about[text]
		if len(who) > 3 {
			who = append(who[:2:2], fmt.Sprintf("%d more", len(who)-2))
		}
		out = append(out, strings.Join(who, "; ")+": "+text)
	}
	return out
}

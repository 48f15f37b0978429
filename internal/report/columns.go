package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vkattn/vkattn/internal/bench"
)

// column is one column of the tables for people.
type column struct {
	name string
	left bool // text; figures stand right
	axis bool // part of the problem: left out when the same in all rows, and told above the table
	// shared says the value of an axis that all rows have in common, for the line above the table.
	shared func(v string) string
	value  func(row *bench.Row, q *ratios) string
}

func axis(name string, shared func(string) string, value func(r *bench.Row) string) column {
	return column{name: name, axis: true, shared: shared, value: func(r *bench.Row, _ *ratios) string { return value(r) }}
}

func named(format string) func(string) string {
	return func(v string) string { return fmt.Sprintf(format, v) }
}

// problemColumns are the axes of the sweeps.
func problemColumns() []column {
	itoa := strconv.Itoa
	dtype := axis("dtype", named("%s"), func(r *bench.Row) string { return r.DType })
	dtype.left = true
	causal := axis("causal", func(v string) string {
		if v == "yes" {
			return "causal"
		}
		return "not causal"
	}, func(r *bench.Row) string {
		if r.Causal {
			return "yes"
		}
		return "no"
	})
	causal.left = true
	return []column{
		dtype,
		axis("head dim", named("head dim %s"), func(r *bench.Row) string { return headDims(r) }),
		axis("emb dim", named("emb dim %s"), func(r *bench.Row) string { return strconv.Itoa(r.EmbDim()) }),
		axis("batch", named("batch %s"), func(r *bench.Row) string { return itoa(r.B) }),
		axis("heads", named("%s heads"), func(r *bench.Row) string { return heads(r) }),
		axis("q len", func(v string) string {
			if v == "" {
				return ""
			}
			if v == "1" {
				return "1 query"
			}
			return v + " queries"
		}, func(r *bench.Row) string {
			if r.Nq == r.N {
				return ""
			}
			return itoa(r.Nq)
		}),
		axis("seq", named("seq %s"), func(r *bench.Row) string { return itoa(r.N) }),
		causal,
		axis("dropout", func(v string) string {
			if v == "" {
				return ""
			}
			return "dropout " + v
		}, func(r *bench.Row) string { return number(r.Dropout) }),
	}
}

func headDims(r *bench.Row) string {
	if r.Dv != r.D {
		return fmt.Sprintf("%d/%d", r.D, r.Dv)
	}
	return strconv.Itoa(r.D)
}

func heads(r *bench.Row) string {
	if r.Hkv != r.H {
		return fmt.Sprintf("%d on %d", r.H, r.Hkv)
	}
	return strconv.Itoa(r.H)
}

// figureColumns are what was measured.
func figureColumns(r *Results, x *index) []column {
	rows, _ := ordered(r)
	unit, scale := rateUnit(rows)
	tuned := slices.ContainsFunc(rows, func(r bench.Row) bool { return r.Tuning != "" })
	cols := []column{
		{name: "impl", left: true, value: func(r *bench.Row, _ *ratios) string { return r.Impl }},
		{name: "kernel", left: true, value: func(r *bench.Row, _ *ratios) string { return kernel(r) }},
		{name: "density", value: func(r *bench.Row, _ *ratios) string { return number(r.Density) }},
		{name: "tuning", left: true, value: func(r *bench.Row, _ *ratios) string { return string(r.Tuning) }},
		{name: "ms", value: func(r *bench.Row, _ *ratios) string {
			if r.Error != "" && r.Fwd.Ms == 0 && r.Bwd.Ms == 0 {
				return outcome(r)
			}
			return Digits(r.Fwd.Ms)
		}},
		{name: "±", value: func(r *bench.Row, _ *ratios) string { return spread(r.Fwd) }},
		{name: unit, value: func(r *bench.Row, _ *ratios) string { return Digits(r.Fwd.TFLOPS * scale) }},
		{name: "% peak", value: func(row *bench.Row, _ *ratios) string { return percentOfPeak(row, r) }},
		{name: "peak MiB", value: func(r *bench.Row, _ *ratios) string {
			if r.Fwd.PeakMiB == nil {
				return ""
			}
			return mib(*r.Fwd.PeakMiB)
		}},
		{name: "in all", value: func(r *bench.Row, _ *ratios) string {
			if r.Fwd.TotalMiB == 0 {
				return ""
			}
			return mib(r.Fwd.TotalMiB)
		}},
		{name: "GB asked for", value: func(r *bench.Row, _ *ratios) string {
			if !tuned { // what tiles are compared by
				return ""
			}
			return Digits(r.Fwd.Bytes / 1e9)
		}},
		{name: "max err", value: func(r *bench.Row, _ *ratios) string {
			if r.MaxErr == nil {
				return ""
			}
			return fmt.Sprintf("%.1e", *r.MaxErr)
		}},
		{name: "checked", value: func(r *bench.Row, _ *ratios) string {
			if r.ErrRows == 0 {
				return ""
			}
			return strconv.Itoa(r.ErrRows)
		}},
		{name: "× standard", value: func(_ *bench.Row, q *ratios) string { return times(q.standard) }},
	}
	for i, impl := range x.impls {
		if impl == standard {
			impl = "peer's standard" // ours has a column of its own
		}
		cols = append(cols, column{name: "× " + impl, value: func(_ *bench.Row, q *ratios) string { return times(q.peers[i]) }})
	}
	return cols
}

// percentOfPeak is the share of the ceiling that was measured in the same run; "" for a peer's row, perhaps of another device.
func percentOfPeak(row *bench.Row, r *Results) string {
	if p := peakOf(row, r.Header.Peaks); IsOurs(*row) && p > 0 && row.Fwd.TFLOPS > 0 {
		return fmt.Sprintf("%.1f", 100*row.Fwd.TFLOPS/p)
	}
	return ""
}

// rateUnit is TFLOP/s, or GFLOP/s for a device that reaches no tenth of the former.
func rateUnit(rows []bench.Row) (string, float64) {
	most := 0.0
	for _, r := range rows {
		most = max(most, r.Fwd.TFLOPS)
	}
	if most > 0 && most < 0.1 {
		return "GFLOP/s", 1000
	}
	return "TFLOP/s", 1
}

// kernel names what ran; for a peer, the library.
func kernel(r *bench.Row) string {
	if r.Kernel == "" {
		if r.PredictedMs > 0 {
			return "predicted: " + time.Duration(r.PredictedMs*float64(time.Millisecond)).Round(100*time.Millisecond).String()
		}
		if !IsOurs(*r) {
			return r.Library
		}
		return ""
	}
	return r.Kernel
}

// outcome is the word that stands where the time would.
func outcome(r *bench.Row) string {
	return reasonWord(r.Reason)
}

func reasonWord(r bench.Reason) string {
	switch r {
	case bench.ReasonMemory:
		return "no memory"
	case bench.ReasonLimit:
		return "skipped"
	case bench.ReasonUnsupported:
		return "unsupported"
	case bench.ReasonCheck:
		return "WRONG"
	}
	return "FAILED"
}

// peakOf is the ceiling of a row in TFLOP/s: the faster of matrix and fp32
// arithmetic for 16-bit types, fp32 for itself.
func peakOf(r *bench.Row, p bench.Peaks) float64 {
	if r.DType != "float32" {
		return max(p.MatrixTFLOPS, p.FP32TFLOPS)
	}
	return p.FP32TFLOPS
}

// spread is half the distance of the 20th and 80th percentiles, in percent of the median.
func spread(p bench.Pass) string {
	if p.Ms <= 0 || p.P80 <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 50*(p.P80-p.P20)/p.Ms)
}

// Digits keeps three or four significant digits and no exponent.
func Digits(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return ""
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.3f", v)
	case a >= 0.001:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

func mib(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	if v >= 0.1 || v == 0 {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.1g", v)
}

func times(v float64) string {
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return ""
	}
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 0.1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// grid is a table of text.
type grid struct {
	columns []column
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
	var all []ratios
	shapes := map[bench.Case]int{}
	for _, row := range rows {
		all = append(all, x.of(row))
		if _, ok := shapes[row.Shape()]; !ok {
			shapes[row.Shape()] = len(shapes)
		}
		g.groups = append(g.groups, shapes[row.Shape()])
	}
	for i := range rows { // a peer's own ratio to itself says nothing
		if peer[i] {
			all[i].standard = 0
			clear(all[i].peers)
		}
	}
	for _, c := range slices.Concat(problemColumns(), figureColumns(r, x), backwardColumns(r, x)) {
		var values []string
		same, empty := true, true
		for i := range rows {
			v := c.value(&rows[i], &all[i])
			values = append(values, v)
			same = same && v == values[0]
			empty = empty && v == ""
		}
		switch {
		case c.axis && same && (c.name != "seq" || len(rows) > 1):
			if len(values) > 0 {
				if text := c.shared(values[0]); text != "" {
					g.shared = append(g.shared, text)
				}
			}
			continue
		case empty:
			continue
		}
		g.columns = append(g.columns, c)
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

// ordered puts each peer row behind our rows of its shape; peers of shapes that
// we did not measure are left out.
func ordered(r *Results) (rows []bench.Row, peer []bool) {
	byShape := map[bench.Case][]bench.Row{}
	wanted := map[string]bool{}
	for _, impl := range r.PeerImpls {
		wanted[impl] = true
	}
	seen := map[peerKey]bool{}
	for _, p := range r.Peers {
		k := peerKey{p.Shape(), p.Impl}
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
			rows, peer = append(rows, p), append(peer, true)
		}
		delete(byShape, row.Shape())
	}
	return rows, peer
}

// notes lists reasons and remarks, each once with the rows it is about.
func notes(rows []bench.Row) []string {
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
		for _, text := range []string{text, row.BwdError} {
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
		out = append(out, fmt.Sprintf("skipped: %d of %d rows, each predicted to take longer than its time limit (--limit)", skipped, len(rows)))
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

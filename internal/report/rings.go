package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/bench"
)

// ringColumn is a column of rows of several devices.
type ringColumn struct {
	name, legend string
	left         bool
	value        func(r *bench.RingRow) string
}

// ringColumns are all of them, in the order of tables.
var ringColumns = slices.Concat([]ringColumn{
	{name: "tokens", value: func(r *bench.RingRow) string { return fmt.Sprint(r.Tokens) }},
	{name: "ranks", value: func(r *bench.RingRow) string { return fmt.Sprint(r.Ranks) }},
	{name: "over", left: true, value: func(r *bench.RingRow) string {
		if r.Chosen {
			return r.Over + ", chosen"
		}
		return r.Over
	}},
	{name: "order", left: true, value: func(r *bench.RingRow) string { return r.Order }},
}, ringPass("fwd", func(r *bench.RingRow) *bench.RingPass { return &r.Fwd }), ringPass("bwd", func(r *bench.RingRow) *bench.RingPass { return &r.Bwd }), []ringColumn{
	{name: "both ×", value: func(r *bench.RingRow) string { return measuredRing(r, r.Both) }},
	{name: "ring MB", legend: "ring MB: what the rank that receives most does, were it a ring", value: func(r *bench.RingRow) string { return measuredRing(r, r.RingBytes/1e6) }},
	{name: "heads MB", legend: "heads MB: the same with heads over devices; empty: they do not divide", value: func(r *bench.RingRow) string { return measuredRing(r, r.HeadsBytes/1e6) }},
	{name: "link GB/s", legend: "link GB/s: that the choice was made from", value: func(r *bench.RingRow) string { return measuredRing(r, r.LinkGBps) }},
	{name: "block MB", value: func(r *bench.RingRow) string { return measuredRing(r, float64(r.BlockBytes)/1e6) }},
	{name: "mem 1", value: func(r *bench.RingRow) string { return measuredRing(r, float64(r.MemoryOne)/1e6) }},
	{name: "mem rank", value: func(r *bench.RingRow) string { return measuredRing(r, float64(r.MemoryRank)/1e6) }},
	{name: "max err", value: func(r *bench.RingRow) string {
		if r.Error != "" {
			return ""
		}
		return fmt.Sprintf("%.1e", r.MaxErr)
	}},
	{name: "", left: true, value: func(r *bench.RingRow) string {
		switch {
		case r.Error != "":
			return strings.Join(strings.Fields(r.Error), " ") // several errors are lines
		case !r.Direct && r.Ranks > 1:
			return "bytes by way of the host"
		}
		return ""
	}},
})

// ringPass are the columns of one pass.
func ringPass(name string, of func(r *bench.RingRow) *bench.RingPass) []ringColumn {
	show := func(v func(p *bench.RingPass) float64) func(r *bench.RingRow) string {
		return func(r *bench.RingRow) string { return measuredRing(r, v(of(r))) }
	}
	return []ringColumn{
		{name: name + " 1", value: show(func(p *bench.RingPass) float64 { return p.One })},
		{name: name, value: show(func(p *bench.RingPass) float64 { return p.Ranks })},
		{name: name + " ×", value: show(func(p *bench.RingPass) float64 { return p.Speed })},
		{name: name + " waited", legend: "waited: by the host, for what had not arrived", value: show(func(p *bench.RingPass) float64 { return p.Waited })},
		{name: name + " hidden %", legend: "hidden %: of the time of copies, while the rank's device computed", value: func(r *bench.RingRow) string {
			share, known := of(r).HiddenPercent()
			if !known || r.Error != "" {
				return ""
			}
			return fmt.Sprintf("%.0f", share)
		}},
	}
}

// measuredRing is empty for what was not measured.
func measuredRing(r *bench.RingRow, v float64) string {
	if v == 0 || r.Error != "" {
		return ""
	}
	return Digits(v)
}

// leastOfRings are columns in the order in which they are left out where a screen is narrow.
var leastOfRings = []string{"max err", "link GB/s", "mem 1", "mem rank", "block MB", "heads MB", "ring MB", "order", "bwd waited", "fwd waited"}

// RingText is rows of several devices as text of at most that width, with what its columns mean below.
func RingText(rows []bench.RingRow, width int) string {
	header, cells, align := ringTable(rows)
	t := NewText(header, align).Fit(width, leastOfRings...)
	for _, line := range cells {
		t.Row(line...)
	}
	text := t.String()
	parts := []string{"times in ms"}
	for _, c := range ringColumns {
		if c.legend != "" && slices.Contains(header, c.name) && !slices.Contains(t.Dropped(), c.name) && !slices.Contains(parts, c.legend) {
			parts = append(parts, c.legend)
		}
	}
	text += "\n" + Fold(strings.Join(parts, " · "), width, "  ")
	if dropped := t.Dropped(); len(dropped) > 0 {
		text += "\n" + Fold(NotShown(dropped, width), width, "  ")
	}
	return text
}

// ringTable is rows by columns, those left out that are empty throughout.
func ringTable(rows []bench.RingRow) (header []string, cells [][]string, align string) {
	cells = make([][]string, len(rows))
	for _, c := range ringColumns {
		var values []string
		some := false
		for i := range rows {
			v := c.value(&rows[i])
			values = append(values, v)
			some = some || v != ""
		}
		if !some {
			continue
		}
		header = append(header, c.name)
		align += map[bool]string{true: "l", false: "r"}[c.left]
		for i, v := range values {
			cells[i] = append(cells[i], v)
		}
	}
	return header, cells, align
}

// rings is the table of a run's rows of several devices.
func (r *Run) rings() Section {
	s := Section{ID: "rings", Title: "Several devices beside one",
		Fixed: "Times in ms, of the wall: medians, from when every rank begins until the last has ended; 1: one device. Waited: by the host, for what had not arrived. " +
			"Hidden: of the time of copies, while the rank's device computed. Ring, heads MB: what the rank that receives most does with either exchange."}
	s.Table.Header, s.Table.Rows, _ = ringTable(r.Rings)
	return s
}

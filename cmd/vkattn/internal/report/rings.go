package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// ringColumn is a column of rows of several devices.
type ringColumn struct {
	name   string // with its unit
	legend string // what it is; "" of the column of remarks alone
	left   bool
	value  func(r *result.RingRow) string
}

// ringColumns are all of them, in the order of tables.
var ringColumns = slices.Concat([]ringColumn{
	{name: "tokens", legend: "of the whole sequence", value: func(r *result.RingRow) string { return fmt.Sprint(r.Tokens) }},
	{name: "ranks", legend: "how many have a part of the work", value: func(r *result.RingRow) string { return fmt.Sprint(r.Ranks) }},
	{name: "over", legend: "what goes from rank to rank: keys and values (ring), tokens of a share of the heads (heads), these " +
		"within hosts of so many ranks and keys and values between hosts (both), or keys and values from the host to one device (host); " +
		"chosen: by the plan", left: true, value: func(r *result.RingRow) string {
		switch {
		case r.Chosen:
			return r.Over + ", chosen"
		case r.PerHost > 0:
			return fmt.Sprintf("%s, %d a host", r.Over, r.PerHost)
		}
		return r.Over
	}},
	{name: "order", legend: "which chunks of the sequence a rank has, or how many blocks come from the host", left: true,
		value: func(r *result.RingRow) string { return r.Order }},
}, ringPass("fwd", func(r *result.RingRow) *result.RingPass { return &r.Fwd }),
	ringPass("bwd", func(r *result.RingRow) *result.RingPass { return &r.Bwd }), []ringColumn{
		{name: "fwd+bwd ×", legend: "speed-up of both passes together",
			value: func(r *result.RingRow) string { return measuredRing(r, r.Both) }},
		{name: "ring MB", legend: "10⁶ bytes that the rank which receives most does in these passes, were it a ring",
			value: func(r *result.RingRow) string { return measuredRing(r, r.RingBytes/1e6) }},
		{name: "heads MB", legend: "the same with heads over devices; empty: they do not divide",
			value: func(r *result.RingRow) string { return measuredRing(r, r.HeadsBytes/1e6) }},
		{name: "both MB", legend: "the same with heads within hosts of so many ranks and a ring over hosts",
			value: func(r *result.RingRow) string { return measuredRing(r, r.BothBytes/1e6) }},
		{name: "link GB/s", legend: "10⁹ bytes a second of the slowest link, that predictions, and a choice, are made from",
			value: func(r *result.RingRow) string { return measuredRing(r, r.LinkGBps) }},
		{name: "block MB", legend: "10⁶ bytes of keys and values of a rank, or of a block",
			value: func(r *result.RingRow) string { return measuredRing(r, float64(r.BlockBytes)/1e6) }},
		{name: "one MB", legend: "10⁶ bytes that one device holds at most: tensors and workspace",
			value: func(r *result.RingRow) string { return measuredRing(r, float64(r.MemoryOne)/1e6) }},
		{name: "rank MB", legend: "the same of the rank that has most",
			value: func(r *result.RingRow) string { return measuredRing(r, float64(r.MemoryRank)/1e6) }},
		{name: "max err", legend: "the largest |o − float64| of the rows that were compared", value: func(r *result.RingRow) string {
			if r.Error != "" || r.MaxErr == nil {
				return ""
			}
			return fmt.Sprintf("%.1e", *r.MaxErr)
		}},
		{name: "", left: true, value: func(r *result.RingRow) string {
			switch {
			case r.Error != "":
				return strings.Join(strings.Fields(r.Error), " ") // several errors are lines
			case !r.Direct && r.Ranks > 1:
				return "bytes by way of the host"
			}
			return ""
		}},
	})

// ringPass are the columns of one pass. What a column of the one pass means is said with the first of them.
func ringPass(name string, of func(r *result.RingRow) *result.RingPass) []ringColumn {
	show := func(v func(p *result.RingPass) float64) func(r *result.RingRow) string {
		return func(r *result.RingRow) string { return measuredRing(r, v(of(r))) }
	}
	all := []ringColumn{
		{name: "one ms", legend: "on one device", value: show(func(p *result.RingPass) float64 { return p.One })},
		{name: "ms", legend: "on all ranks, from when each of them begins until the last has ended",
			value: show(func(p *result.RingPass) float64 { return p.Ranks })},
		{name: "×", legend: "speed-up: one ms / ms", value: show(func(p *result.RingPass) float64 { return p.Speed })},
		{name: "model ×", legend: "speed-up that ring.Model predicts from one ms and the link, without launches, sums and the host's part",
			value: show(func(p *result.RingPass) float64 { return p.Predicted })},
		{name: "waited ms", legend: "of the host of the rank that waited longest, for what had not arrived",
			value: show(func(p *result.RingPass) float64 { return p.Waited })},
		{name: "hidden %", legend: "of the time of copies, while the rank's device computed", value: func(r *result.RingRow) string {
			share, known := of(r).HiddenPercent()
			if !known || r.Error != "" {
				return ""
			}
			return fmt.Sprintf("%.0f", share)
		}},
	}
	for i := range all {
		all[i].name = name + " " + all[i].name
	}
	return all
}

// ringLegends says what some columns are; those of a pass once for both.
func ringLegends(shown func(name string) bool) string {
	parts := []string{"ms: times of the wall, medians"}
	said := map[string]bool{}
	for _, c := range ringColumns {
		name := strings.TrimPrefix(strings.TrimPrefix(c.name, "fwd "), "bwd ")
		if c.legend == "" || !shown(c.name) || said[name] {
			continue
		}
		said[name] = true
		parts = append(parts, name+": "+c.legend)
	}
	return strings.Join(parts, " · ")
}

// measuredRing is empty for what was not measured.
func measuredRing(r *result.RingRow, v float64) string {
	if v == 0 || r.Error != "" {
		return ""
	}
	return Digits(v)
}

// leastOfRings are columns in the order in which they are left out where a screen is narrow.
var leastOfRings = []string{"max err", "link GB/s", "one MB", "rank MB", "block MB", "both MB", "heads MB", "ring MB", "order",
	"bwd waited ms", "fwd waited ms", "bwd model ×", "fwd model ×"}

// RingText is rows of several devices as text of at most that width, with what its columns mean below.
func RingText(rows []result.RingRow, width int) string {
	header, cells, align := ringTable(rows)
	t := NewText(header, align).Fit(width, leastOfRings...)
	for _, line := range cells {
		t.Row(line...)
	}
	text := t.String()
	legends := ringLegends(func(name string) bool { return slices.Contains(header, name) && !slices.Contains(t.Dropped(), name) })
	text += "\n" + Fold(legends, width, "  ")
	if dropped := t.Dropped(); len(dropped) > 0 {
		text += "\n" + Fold(NotShown(dropped, width), width, "  ")
	}
	return text
}

// ringTable is rows by columns, those left out that are empty throughout.
func ringTable(rows []result.RingRow) (header []string, cells [][]string, align string) {
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
	s := Section{ID: "rings", Title: "Several devices beside one"}
	s.Table.Header, s.Table.Rows, _ = ringTable(r.Rings)
	s.Fixed = ringLegends(func(name string) bool { return slices.Contains(s.Table.Header, name) })
	return s
}

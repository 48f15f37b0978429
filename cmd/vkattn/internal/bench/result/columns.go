package result

import (
	"fmt"
	"slices"
	"time"
)

// Columns is all that is known of rows, in the order of tables for people: the axes of the problem, who computed it, then the
// figures of each pass.
var Columns = slices.Concat(
	inOrder(axisColumns(problemLoops), []string{"dtype", "head dim", "emb dim", "batch", "heads", "q len", "seq", "causal", "window",
		"dropout"}, nameOf),
	inOrder(slices.Concat(axisColumns(ownLoops), about, passColumns(false), passColumns(true), forwardMode, remarks),
		[]string{"impl", "kernel"}, nameOf))

func nameOf(c Column) string { return c.Name }

// Files that people and programs have keep the order of their keys: these first, in the order in which they came to be, and what is
// not named here after them. A new column needs no place here.
var (
	fileOrder = []string{"library", "impl", "dtype", "B", "H", "Hkv", "Nq", "N", "D", "Dv", "causal", "window", "dropout", "density",
		"tuning", "tier", "kernel", "device", "driver",
		"fwd_peak_MiB", "fwd_block_MiB", "fwd_total_MiB", "fwd_ms", "fwd_tflops", "fwd_p20_ms", "fwd_p80_ms", "fwd_wall_ms",
		"fwd_rounds_ms", "n", "fwd_bytes", "fwd_model",
		"bwd_peak_MiB", "bwd_block_MiB", "bwd_total_MiB", "bwd_ms", "bwd_tflops", "bwd_p20_ms", "bwd_p80_ms", "bwd_wall_ms",
		"bwd_rounds_ms", "bwd_n", "bwd_bytes", "bwd_model",
		"bwd_kernel", "bwd_max_err", "bwd_err_bound", "bwd_err_rows", "bwd_error", "bwd_reason", "max_err", "err_bound", "err_rows", "note",
		"error", "reason", "predicted_ms"}
	csvOrder = []string{"library", "impl", "dtype", "B", "H", "Hkv", "Nq", "N", "D", "Dv", "emb_dim", "causal", "tier", "kernel",
		"device", "driver",
		"fwd_ms", "fwd_p20_ms", "fwd_p80_ms", "fwd_wall_ms", "fwd_tflops", "pct_peak", "fwd_peak_MiB", "fwd_block_MiB", "fwd_total_MiB",
		"n", "max_err", "err_bound", "err_rows",
		"vs_standard", "vs_{peer}", "dropout", "density", "tuning", "fwd_bytes", "bwd_bytes", "bwd_kernel", "bwd_ms", "bwd_p20_ms",
		"bwd_p80_ms", "bwd_wall_ms", "bwd_tflops",
		"bwd_peak_MiB", "bwd_block_MiB", "bwd_total_MiB", "bwd_n", "bwd_max_err", "bwd_err_bound", "bwd_err_rows", "bwd_error",
		"note", "error"}
)

// axisColumns are columns that show axes.
func axisColumns(axes []Axis) (out []Column) {
	for _, a := range axes {
		if a.Key == "" {
			continue
		}
		c := Column{Name: a.Label, Key: a.Key, Left: a.Left, sure: a.Sure, exact: true}
		if !a.Own {
			c.Axis = AxisOf(a.Name)
		}
		if a.Cell != nil {
			c.show = func(c *Cell) string { return a.Cell(c.Row.Case) }
		}
		if a.in(new(Case)) != nil {
			c.field = func(r *Row) any { return a.in(&r.Case) }
		}
		out = append(out, c)
	}
	return out
}

// about is who computed a row.
var about = []Column{
	{Key: "library", sure: true, field: func(r *Row) any { return &r.Library }},
	{Key: "tier", field: func(r *Row) any { return &r.Tier }},
	{Name: "tiles", Key: "classes", Left: true, Legend: "blocks of scores by what the mask leaves of them: none is not computed, whole " +
		"is without the mask",
		field: func(r *Row) any { return &r.Classes }, show: func(c *Cell) string { return c.Row.Classes }},
	{Key: "device", field: func(r *Row) any { return &r.Device }},
	{Key: "driver", field: func(r *Row) any { return &r.Driver }},
}

// remarks are what must be known beside figures, or in place of them.
var remarks = []Column{
	{Key: "bwd_error", field: func(r *Row) any { return &r.BwdFailure.Error }},
	{Key: "bwd_reason", noCSV: true, field: func(r *Row) any { return &r.BwdFailure.Reason }},
	{Key: "note", field: func(r *Row) any { return &r.Note }},
	{Key: "error", field: func(r *Row) any { return &r.Error }},
	{Key: "reason", noCSV: true, field: func(r *Row) any { return &r.Reason }},
	{Key: "predicted_ms", noCSV: true, field: func(r *Row) any { return &r.PredictedMs }},
}

// forwardMode is what is measured of a pass in forward mode, beside the forward pass.
var forwardMode = []Column{
	{Key: "jvp_kernel", field: func(r *Row) any { return &r.JVPKernel }},
	{Name: "jvp ms", Key: "jvp_ms", positive: true, field: func(r *Row) any { return &r.JVP.Ms }, show: func(c *Cell) string {
		if why := c.Row.JVPFailure; why.Error != "" {
			return why.Reason.Word()
		}
		return Digits(c.Row.JVP.Ms)
	}},
	{Name: "× fwd", Legend: "the time of forward mode in times of the forward pass: 2.5 as many products", show: func(c *Cell) string {
		if c.Row.JVP.Ms <= 0 || c.Row.Fwd.Ms <= 0 {
			return ""
		}
		return Digits(c.Row.JVP.Ms / c.Row.Fwd.Ms)
	}},
	{Key: "jvp_p20_ms", noCSV: true, field: func(r *Row) any { return &r.JVP.P20 }},
	{Key: "jvp_p80_ms", noCSV: true, field: func(r *Row) any { return &r.JVP.P80 }},
	{Key: "jvp_wall_ms", noCSV: true, field: func(r *Row) any { return &r.JVP.WallMs }},
	{Key: "jvp_rounds_ms", noCSV: true, field: func(r *Row) any { return &r.JVP.Rounds }},
	{Key: "jvp_tflops", positive: true, field: func(r *Row) any { return &r.JVP.TFLOPS }},
	{Key: "jvp_peak_MiB", field: func(r *Row) any { return &r.JVP.PeakMiB }},
	{Key: "jvp_block_MiB", noCSV: true, field: func(r *Row) any { return &r.JVP.BlockMiB }},
	{Key: "jvp_total_MiB", noCSV: true, field: func(r *Row) any { return &r.JVP.TotalMiB }},
	{Key: "jvp_bytes", field: func(r *Row) any { return &r.JVP.Bytes }},
	{Key: "jvp_least_bytes", noCSV: true, field: func(r *Row) any { return &r.JVP.LeastBytes }},
	{Key: "jvp_model", noCSV: true, field: func(r *Row) any { return &r.JVP.Model }},
	{Key: "jvp_n", noCSV: true, field: func(r *Row) any { return &r.JVP.N }},
	{Key: "jvp_max_err", exact: true, field: func(r *Row) any { return &r.JVPCheck.MaxErr }},
	{Key: "jvp_err_bound", exact: true, field: func(r *Row) any { return &r.JVPCheck.ErrMax }},
	{Key: "jvp_err_rows", field: func(r *Row) any { return &r.JVPCheck.ErrRows }},
	{Key: "jvp_error", field: func(r *Row) any { return &r.JVPFailure.Error }},
	{Key: "jvp_reason", noCSV: true, field: func(r *Row) any { return &r.JVPFailure.Reason }},
}

// figure is a column of a pass. Names and keys are made for each pass: "ms" and "bwd ms", "fwd_ms" and "bwd_ms".
type figure struct {
	Column
	bare bool                          // forward's key has no fwd_
	once bool                          // tables show it of forward alone
	both bool                          // it is of both passes together, and stands among backward's
	of   func(r *Row, p *Pass) any     // Column.field
	show func(c *Cell, p *Pass) string // Column.show
}

// passColumns are what is measured of a pass, and what follows from it: a line here is a column of each pass. What a Pass holds, of
// points to there; errors and kernels stand in the row itself.
func passColumns(backward bool) (out []Column) {
	at := 0
	if backward {
		at = 1
	}
	check := func(r *Row) *Check { return []*Check{&r.Check, &r.BwdCheck}[at] }
	figures := []figure{
		{Column: Column{Name: "kernel", Key: "kernel", Left: true}, bare: true, once: true,
			of:   func(r *Row, _ *Pass) any { return []*string{&r.Kernel, &r.BwdKernel}[at] },
			show: func(c *Cell, _ *Pass) string { return c.Row.ran() }},
		{Column: Column{Name: "ms", Key: "ms", positive: true}, of: func(_ *Row, p *Pass) any { return &p.Ms },
			show: func(c *Cell, p *Pass) string {
				if r := c.Row; backward && r.BwdFailure.Error != "" {
					return r.BwdFailure.Reason.Word()
				} else if !backward && r.Error != "" && r.Fwd.Ms == 0 && r.Bwd.Ms == 0 {
					return r.Reason.Word()
				}
				return Digits(p.Ms)
			}},
		{Column: Column{Key: "p20_ms"}, of: func(_ *Row, p *Pass) any { return &p.P20 }},
		{Column: Column{Key: "p80_ms"}, of: func(_ *Row, p *Pass) any { return &p.P80 }},
		{Column: Column{Key: "wall_ms"}, of: func(_ *Row, p *Pass) any { return &p.WallMs }},
		{Column: Column{Key: "rounds_ms", noCSV: true}, of: func(_ *Row, p *Pass) any { return &p.Rounds }},
		{Column: Column{Name: "±", Legend: "half of 20th–80th percentile"}, show: func(_ *Cell, p *Pass) string { return p.spread() }},
		{Column: Column{Name: "{rate}", Key: "tflops", positive: true}, of: func(_ *Row, p *Pass) any { return &p.TFLOPS },
			show: func(c *Cell, p *Pass) string { return Digits(p.TFLOPS * c.Rate[at].Scale) }},
		{Column: Column{Name: "% peak", Key: "pct_peak", Legend: "of the arithmetic peak that the row's own run measured"}, bare: true,
			once: true,
			show: func(c *Cell, p *Pass) string { return c.percentOfPeak(p) }},
		{Column: Column{Name: "peak MiB", Key: "peak_MiB", Legend: "beyond inputs and outputs, in all: with them"},
			of:   func(_ *Row, p *Pass) any { return &p.PeakMiB },
			show: func(_ *Cell, p *Pass) string { return optional(p.PeakMiB, mib) }},
		{Column: Column{Name: "fwd+bwd ms"}, both: true, show: func(c *Cell, _ *Pass) string { return c.Row.together() }},
		{Column: Column{Key: "block_MiB"}, of: func(_ *Row, p *Pass) any { return &p.BlockMiB }},
		{Column: Column{Name: "in all", Key: "total_MiB"}, once: true, of: func(_ *Row, p *Pass) any { return &p.TotalMiB },
			show: func(_ *Cell, p *Pass) string { return unlessZero(p.TotalMiB, mib) }},
		{Column: Column{Name: "GB asked for", Key: "bytes", Legend: "of device memory by the workgroups, as the tiling counts; caches " +
			"serve part of it"}, once: true,
			of: func(_ *Row, p *Pass) any { return &p.Bytes },
			show: func(c *Cell, p *Pass) string {
				if !c.Tuned { // what tiles are compared by
					return ""
				}
				return Digits(p.Bytes / 1e9)
			}},
		{Column: Column{Name: "MB", Key: "least_bytes", Legend: "inputs, as they are stored, and outputs, each moved once"}, once: true,
			of: func(_ *Row, p *Pass) any { return &p.LeastBytes },
			show: func(c *Cell, p *Pass) string {
				if !c.Row.readsKeys() { // what such cases are bound by
					return ""
				}
				return Digits(p.LeastBytes / 1e6)
			}},
		{Column: Column{Name: "% copy", Key: "pct_copy", Legend: "of the measured bandwidth of copying, were no more moved than that"},
			bare: true, once: true,
			show: func(c *Cell, p *Pass) string { return c.percentOfCopy(p) }},
		{Column: Column{Name: "tokens/s", Key: "tokens_per_s", Legend: "queries of all batch entries, of this attention alone"}, bare: true,
			once: true,
			show: func(c *Cell, p *Pass) string {
				if !c.Row.readsKeys() || p.Ms <= 0 {
					return ""
				}
				return Digits(float64(c.Row.B*c.Row.Nq) / p.Ms * 1e3)
			}},
		{Column: Column{Key: "model", noCSV: true}, of: func(_ *Row, p *Pass) any { return &p.Model }},
		{Column: Column{Key: "n"}, bare: true, of: func(_ *Row, p *Pass) any { return &p.N }},
		{Column: Column{Name: "max err", Key: "max_err", Legend: "against float64 over that many rows", exact: true}, bare: true,
			of:   func(r *Row, _ *Pass) any { return &check(r).MaxErr },
			show: func(c *Cell, _ *Pass) string { return optional(check(c.Row).MaxErr, scientific) }},
		{Column: Column{Key: "err_bound", exact: true}, bare: true,
			of: func(r *Row, _ *Pass) any { return &check(r).ErrMax }},
		{Column: Column{Name: "checked", Key: "err_rows"}, bare: true, once: true,
			of:   func(r *Row, _ *Pass) any { return &check(r).ErrRows },
			show: func(c *Cell, _ *Pass) string { return unlessZero(float64(c.Row.ErrRows), whole) }},
		{Column: Column{Name: "× standard", Key: "vs_standard", csv: func(c *Cell) string { return number(c.Ratios[at].Standard) }},
			bare: true,
			show: func(c *Cell, _ *Pass) string { return Times(c.Ratios[at].Standard) }},
		{Column: Column{Name: "× plain", Key: "vs_plain", Legend: "rate over that without score, bias, mask, sinks, window, lists, " +
			"packing, unused keys, pages and quantised keys, each rate on the pairs that are seen",
			csv: func(c *Cell) string { return number(c.Ratios[at].Plain) }}, bare: true,
			show: func(c *Cell, _ *Pass) string { return Times(c.Ratios[at].Plain) }},
		{Column: Column{Name: "× {peer}", Key: "vs_{peer}", PerPeer: true,
			csv: func(c *Cell) string { return number(c.Ratios[at].peer(c.Peer)) }}, bare: true,
			show: func(c *Cell, _ *Pass) string { return Times(c.Ratios[at].peer(c.Peer)) }},
	}
	for _, f := range figures {
		if !f.both || backward {
			out = append(out, f.column(backward))
		}
	}
	return out
}

// column is the figure of one pass. What follows from other figures, files have of forward alone.
func (f figure) column(backward bool) Column {
	c := f.Column
	pass := func(r *Row) *Pass { return &r.Fwd }
	prefix := "fwd_"
	if f.bare {
		prefix = ""
	}
	if backward {
		pass = func(r *Row) *Pass { return &r.Bwd }
		prefix = "bwd_"
		c.Backward, c.Legend = true, ""
		if !f.both {
			c.Name = unlessEmpty("bwd ", c.Name)
		}
		if f.once {
			c.Name = ""
		}
		if f.of == nil {
			c.Key = ""
		}
	}
	c.Key = unlessEmpty(prefix, c.Key)
	if f.of != nil {
		c.field = func(r *Row) any { return f.of(r, pass(r)) }
	}
	if f.show != nil {
		c.show = func(c *Cell) string { return f.show(c, pass(c.Row)) }
	}
	return c
}

// percentOfCopy is the share of the bandwidth at which memory was copied in the same run, where a case is bound by it; "" for a peer's row.
func (c *Cell) percentOfCopy(p *Pass) string {
	copied := c.peaks().CopyGBps
	if !c.Row.Ours() || !c.Row.readsKeys() || copied <= 0 || p.Ms <= 0 || p.LeastBytes <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", 100*p.LeastBytes/p.Ms/1e6/copied)
}

// peaks are those of the run that measured the row, or where no file says so, of the run that shows it.
func (c *Cell) peaks() Peaks {
	if c.Row.peaks != (Peaks{}) {
		return c.Row.peaks
	}
	return c.Peaks
}

func (r Ratios) peer(i int) float64 {
	if i >= len(r.Peers) {
		return 0
	}
	return r.Peers[i]
}

// together is the time of both passes.
func (r *Row) together() string {
	if r.Fwd.Ms == 0 || r.Bwd.Ms == 0 {
		return ""
	}
	return Digits(r.Fwd.Ms + r.Bwd.Ms)
}

// ran names the kernel that ran; for a peer, the library.
func (r *Row) ran() string {
	switch {
	case r.Kernel != "":
		return r.Kernel
	case r.PredictedMs > 0:
		return "predicted: " + threeDigits(time.Duration(r.PredictedMs*float64(time.Millisecond))).String()
	case !r.Ours():
		return r.Library
	}
	return ""
}

// spread is half the distance of the 20th and 80th percentiles, in percent of the median.
func (p *Pass) spread() string {
	if p.Ms <= 0 || p.P80 <= 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%%", 50*(p.P80-p.P20)/p.Ms)
}

// percentOfPeak is the share of the ceiling that was measured in the same run; "" for a peer's row, perhaps of another device.
// The ceiling is the faster of matrix and fp32 arithmetic for 16-bit types, and for float32 on matrices; fp32 for float32 elsewhere.
func (c *Cell) percentOfPeak(p *Pass) string {
	peaks := c.peaks()
	peak := peaks.FP32TFLOPS
	if c.Row.DType != "float32" || OnMatrices(c.Row.DType, c.Row.Tier) {
		peak = max(peaks.MatrixTFLOPS, peak)
	}
	if c.Row.Ours() && peak > 0 && p.TFLOPS > 0 {
		return fmt.Sprintf("%.1f", 100*p.TFLOPS/peak)
	}
	return ""
}

// CSVColumns are the columns of CSV in their order.
func CSVColumns() []Column {
	return slices.DeleteFunc(keyed(csvOrder), func(c Column) bool { return c.noCSV })
}

// fileColumns are the columns of result files in their order.
var fileColumns = slices.DeleteFunc(keyed(fileOrder), func(c Column) bool { return c.field == nil })

func keyed(order []string) []Column {
	all := inOrder(Columns, order, func(c Column) string { return c.Key })
	return slices.DeleteFunc(all, func(c Column) bool { return c.Key == "" })
}

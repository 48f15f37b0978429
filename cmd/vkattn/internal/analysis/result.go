package analysis

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
	"github.com/vkattn/vkattn/flash"
)

// Result is everything that `vkattn analyze` prints.
type Result struct {
	Machine
	Entries   []Entry        `json:"entries"`
	Intensity []IntensityRow `json:"intensity_by_length,omitempty"`
	Models    []string       `json:"-"` // columns of Intensity
	HeadDim   int            `json:"head_dim,omitempty"`
	Block     []BlockRow     `json:"transformer_block,omitempty"`
	Embedding int            `json:"embedding,omitempty"`
	Causal    bool           `json:"causal"`
	Notes     []string       `json:"notes,omitempty"`
	Width     int            `json:"-"` // of the screen in columns, for tables; 0: any
}

// Lecture adds the lecture's tables for the shape of a problem: its head dimension, embedding and mask.
func (r *Result) Lecture(p flash.Problem, models []Model) error {
	var err error
	r.HeadDim, r.Embedding, r.Causal = p.HeadDim, p.Heads*p.HeadDim, p.Causal != flash.CausalNone
	for _, m := range models {
		r.Models = append(r.Models, m.Name)
	}
	if len(models) > 0 {
		r.Intensity, err = IntensityTable(p, models, Lengths)
	}
	r.Block = BlockTable(r.Embedding, r.Causal, Lengths)
	return err
}

// Write prints the result as "table" or "json".
func (r *Result) Write(w io.Writer, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(r)
	case "table":
		_, err := io.WriteString(w, r.text())
		return err
	}
	return fmt.Errorf("format %q: it must be table or json", format)
}

// text shows the steps of the last shape one by one, then for each shape a line for each entry, then the lecture's tables.
func (r *Result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Device)
	p := r.Peaks
	if p.CopyGBps > 0 {
		var peaks []string
		matrix, fp32 := report.PeakRates(r.CPU, p)
		if matrix != "" {
			peaks = append(peaks, "matrix "+matrix)
		}
		if fp32 != "" {
			peaks = append(peaks, "fp32 "+fp32)
		}
		fmt.Fprintf(&b, "measured peaks: %s\n", strings.Join(append(peaks, "copy "+report.Digits(p.CopyGBps)+" GB/s"), " · "))
		fmt.Fprintf(&b, "ridge: %s operations a byte on matrices, %s in fp32\n", number(r.Ridge("float16", "matrix")),
			number(r.Ridge("float32", "scalar")))
	}
	var shapes []result.Case
	for _, e := range r.Entries {
		if s := e.Case.Shape(); !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	if stepped := slices.DeleteFunc(slices.Clone(shapes), func(s result.Case) bool { return !s.Counted() }); len(stepped) > 0 {
		last := stepped[len(stepped)-1]
		fmt.Fprintf(&b, "\nSteps, %s\n\n%s\n", last, r.stepTable(last))
	}
	for _, s := range shapes {
		fmt.Fprintf(&b, "\nBounds, %s\n\n%s\n", s, r.boundTable(s))
	}
	if len(shapes) > 0 {
		for line := range strings.Lines(`
GFLOP     operations of the products, as the papers count them
MB        bytes asked for: what the kernel's workgroups load and store, caches or not; FLOP/B is GFLOP over them
least MB  bytes that must cross memory once, were caches endless; ideal FLOP/B is GFLOP over those
bound     by memory where that intensity is below the ridge, else by arithmetic
least ms  the longer of GFLOP at the measured peak and least MB at the measured bandwidth
asked ms  the same with MB: were there no cache
× least   measured over least
`) {
			b.WriteString(report.Fold(strings.TrimSuffix(line, "\n"), r.Width, "          ") + "\n")
		}
	}
	if len(r.Intensity) > 0 {
		fmt.Fprintf(&b, "\nArithmetic intensity against the sequence length: operations for each byte asked for, and MB asked for\n(one "+
			"head of dimension %d, with the kernels above)\n\n", r.HeadDim)
		header := []string{"N"}
		for _, name := range r.Models {
			header = append(header, strings.Replace(name, " backward", " bwd", 1), "MB")
		}
		t := report.NewText(header, strings.Repeat("r", len(header)))
		for _, row := range r.Intensity {
			cells := []string{figure.Number(float64(row.N))}
			for _, name := range r.Models {
				cells = append(cells, number(row.Intensity[name]), number(row.Bytes[name]/1e6))
			}
			t.Row(cells...)
		}
		b.WriteString(r.table(t.Fit(r.Width, "MB")) + "\n")
	}
	if len(r.Block) > 0 {
		mask := "not causal"
		if r.Causal {
			mask = "causal"
		}
		fmt.Fprintf(&b, "\nOperations of a transformer block, GFLOP for one sequence (embedding %d, MLP 4 × as wide, %s)\n\n",
			r.Embedding, mask)
		t := report.NewText([]string{"N", "projections", "attention", "MLP", "forward", "backward", "attention's share"}, "rrrrrrr")
		for _, row := range r.Block {
			t.Row(figure.Number(float64(row.N)), number(row.Projections/1e9), number(row.Attention/1e9), number(row.MLP/1e9),
				number(row.Forward/1e9), number(row.Backward/1e9), fmt.Sprintf("%.1f %%", 100*row.Share))
		}
		b.WriteString(t.String() + "\n")
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "! %s\n", n)
	}
	return b.String()
}

// stepTable shows the operations and bytes of each step of what ran, or would run, here. Steps of which nothing is known but
// their operations are the same for all, and shown once.
func (r *Result) stepTable(shape result.Case) string {
	t := report.NewText([]string{"impl", "pass", "kernel", "step", "GFLOP", "read MB", "written MB", "FLOP/B"}, "llllrrrr").Fit(r.Width,
		"FLOP/B", "kernel")
	bare := map[string]bool{}
	first := true
	for _, e := range r.Entries {
		if e.Case.Shape() != shape || !Ours(e) || e.Bytes == 0 && bare[e.Pass] {
			continue
		}
		bare[e.Pass] = bare[e.Pass] || e.Bytes == 0
		if !first {
			t.Rule()
		}
		first = false
		impl, pass := e.Impl, e.Pass
		for _, s := range e.Steps {
			intensity := 0.0
			if s.Bytes() > 0 {
				intensity = s.FLOPs / s.Bytes()
			}
			t.Row(impl, pass, s.Kernel, s.Name, number(s.FLOPs/1e9), number(s.Read/1e6), number(s.Written/1e6), number(intensity))
			impl, pass = "", "" // said once
		}
	}
	return r.table(t)
}

// boundTable shows what bounds each entry of a shape.
func (r *Result) boundTable(shape result.Case) string {
	t := report.NewText([]string{"impl", "pass", "kernel", "GFLOP", "MB", "FLOP/B", "least MB", "ideal FLOP/B", "ridge", "bound",
		"least ms", "asked ms", "ms", "× least"}, "lllrrrrrrlrrrr").
		Fit(r.Width, "ridge", "FLOP/B", "ideal FLOP/B", "asked ms", "least MB", "kernel", "MB", "GFLOP")
	for _, e := range r.Entries {
		if e.Case.Shape() != shape {
			continue
		}
		kernel := e.Kernel
		if !Ours(e) {
			kernel = e.Library
		} else if e.Case.Tuning != "" {
			kernel += " " + string(e.Case.Tuning)
		}
		t.Row(e.Impl, e.Pass, kernel, number(e.FLOPs/1e9), number(e.Bytes/1e6), number(e.Intensity), number(e.Least/1e6), number(e.Ideal),
			number(e.Ridge), e.Bound,
			number(e.LeastMs), number(e.NoCacheMs), number(e.Ms), number(e.Over))
	}
	return r.table(t)
}

// Ours says whether this program's kernels did, or would do, the work.
func Ours(e Entry) bool { return e.Library == "" || strings.HasPrefix(e.Library, "vkattn") }

// number is report.Digits with a dash in place of nothing.
func number(v float64) string {
	if s := report.Digits(v); s != "" {
		return s
	}
	return "–"
}

// Roofline places every measured entry under the device's ceilings, by the bytes that must cross memory; a thin line leads
// to where the bytes that its kernel asks for would put it, were there no cache.
func (r *Result) Roofline() *figure.Roofline {
	f := &figure.Roofline{Device: r.Device, CopyGBps: r.Peaks.CopyGBps,
		Intensity: "operations a byte that must cross memory (+: a byte asked for)",
		Ceilings:  []figure.Ceiling{{Name: "matrix", TFLOPS: r.Peaks.MatrixTFLOPS}, {Name: "fp32", TFLOPS: r.Peaks.FP32TFLOPS}}}
	for _, e := range r.Entries {
		if e.TFLOPS <= 0 {
			continue
		}
		name := e.Impl
		if !Ours(e) {
			name += " (" + strings.SplitN(e.Library, "+", 2)[0] + ")"
		}
		v := figure.Usual
		if e.Pass == "backward" {
			name, v = name+", backward", figure.Backward
		}
		f.Points = append(f.Points, figure.RooflinePoint{Name: name, Impl: e.Impl, Peer: !Ours(e), Variant: v, X: e.Ideal, Y: e.TFLOPS,
			Asked: e.Intensity})
	}
	return f
}

// WriteRoofline writes roofline.svg and roofline.png to a folder.
func (r *Result) WriteRoofline(dir string) error {
	f := r.Roofline()
	if len(f.Points) == 0 {
		return fmt.Errorf("a roofline needs measured rows, and there are none")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, draw := range map[string]func() ([]byte, error){"roofline.svg": f.SVG, "roofline.png": f.PNG} {
		data, err := draw()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// table is a table with the names of the columns that it has no room for.
func (r *Result) table(t *report.Text) string {
	out := t.String()
	if dropped := t.Dropped(); len(dropped) > 0 {
		out += "\n" + report.Fold(report.NotShown(slices.Compact(dropped), r.Width), r.Width, "  ")
	}
	return out
}

package analysis

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/report"
	"github.com/vkattn/vkattn/internal/report/figure"
)

// Result is everything that `vkattn analyze` prints.
type Result struct {
	Machine
	Entries   []Entry        `json:"entries"`
	Intensity []IntensityRow `json:"intensity_by_length,omitempty"`
	Impls     []string       `json:"-"` // columns of Intensity
	HeadDim   int            `json:"head_dim,omitempty"`
	Block     []BlockRow     `json:"transformer_block,omitempty"`
	Embedding int            `json:"embedding,omitempty"`
	Causal    bool           `json:"causal"`
	Notes     []string       `json:"notes,omitempty"`
}

// Lecture adds the lecture's tables for the shape of a problem: its head dimension, embedding and mask.
func (r *Result) Lecture(p flash.Problem, tilings map[string]flash.Tiling, impls []string) error {
	var err error
	r.HeadDim, r.Embedding, r.Causal, r.Impls = p.HeadDim, p.Heads*p.HeadDim, p.Causal != flash.CausalNone, impls
	r.Intensity, err = IntensityTable(p, tilings, Lengths)
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

// text shows the steps of the last shape one by one, then a line for each entry, then the lecture's tables.
func (r *Result) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Device)
	p := r.Peaks
	if p.CopyGBps > 0 {
		fmt.Fprintf(&b, "measured peaks: matrix %s TFLOP/s · fp32 %s TFLOP/s · copy %s GB/s", report.Digits(p.MatrixTFLOPS), report.Digits(p.FP32TFLOPS), report.Digits(p.CopyGBps))
		fmt.Fprintf(&b, " · ridge at %s operations a byte on matrices, %s in fp32\n", number(r.Ridge("float16", "matrix")), number(r.Ridge("float32", "scalar")))
	}
	if len(r.Entries) > 0 {
		shape := r.Entries[len(r.Entries)-1].Case.Shape()
		fmt.Fprintf(&b, "\nSteps, %s\n\n", shape)
		t := report.NewText([]string{"impl", "pass", "step", "GFLOP", "read MB", "written MB"}, "lllrrr")
		for _, e := range r.Entries {
			if e.Case.Shape() != shape || !Ours(e) {
				continue
			}
			for _, s := range e.Steps {
				t.Row(e.Impl, e.Pass, s.Name, number(s.FLOPs/1e9), number(s.Read/1e6), number(s.Written/1e6))
			}
			t.Rule()
		}
		b.WriteString(t.String() + "\n\n")

		t = report.NewText([]string{"row", "pass", "kernel", "GFLOP", "MB", "FLOP/B", "least MB", "bound", "least ms", "no cache ms", "ms", "× least"}, "lllrrrrlrrrr")
		for _, e := range r.Entries {
			name := e.Name
			if !Ours(e) {
				name = e.Library + " " + name
			}
			t.Row(name, e.Pass, e.Kernel, number(e.FLOPs/1e9), number(e.Bytes/1e6), number(e.Intensity), number(e.Least/1e6), e.Bound,
				number(e.LeastMs), number(e.NoCacheMs), number(e.Ms), number(e.Over))
		}
		b.WriteString(t.String() + "\n")
		b.WriteString("GFLOP: of the products, as the papers count · MB: that workgroups ask for by the tiling in use; caches serve part of it · least MB: that must cross memory once, were caches endless · least ms: the larger of operations at the peak and least MB at the bandwidth · no cache ms: with MB instead\n")
	}
	if len(r.Intensity) > 0 {
		fmt.Fprintf(&b, "\nArithmetic intensity against the sequence length, operations a byte asked for (head dimension %d, these tilings)\n\n", r.HeadDim)
		header := []string{"N"}
		for _, impl := range r.Impls {
			header = append(header, impl, impl+" MB a head")
		}
		t := report.NewText(header, strings.Repeat("r", len(header)))
		for _, row := range r.Intensity {
			cells := []string{figure.Number(float64(row.N))}
			for _, impl := range r.Impls {
				cells = append(cells, number(row.Intensity[impl]), number(row.Bytes[impl]/1e6))
			}
			t.Row(cells...)
		}
		b.WriteString(t.String() + "\n")
	}
	if len(r.Block) > 0 {
		mask := "not causal"
		if r.Causal {
			mask = "causal"
		}
		fmt.Fprintf(&b, "\nOperations of a transformer block, GFLOP for one sequence (embedding %d, MLP 4 × as wide, %s)\n\n", r.Embedding, mask)
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

// Ours says whether this program's kernels did, or would do, the work.
func Ours(e Entry) bool { return e.Library == "" || strings.HasPrefix(e.Library, "vkattn") }

// number is report.Digits with a dash in place of nothing.
func number(v float64) string {
	if s := report.Digits(v); s != "" {
		return s
	}
	return "–"
}

// Roofline places every measured entry under the device's ceilings, by the bytes that must cross memory; a dotted line leads
// to where the bytes that its tiling asks for would put it, were there no cache.
func (r *Result) Roofline() *figure.Roofline {
	f := &figure.Roofline{Device: r.Device, CopyGBps: r.Peaks.CopyGBps, Intensity: "operations a byte that must cross memory (dotted: a byte asked for)",
		Ceilings: []figure.Ceiling{{Name: "matrix", TFLOPS: r.Peaks.MatrixTFLOPS}, {Name: "fp32", TFLOPS: r.Peaks.FP32TFLOPS}}}
	for _, e := range r.Entries {
		if e.TFLOPS <= 0 {
			continue
		}
		name := e.Impl
		if !Ours(e) {
			name += " (" + strings.SplitN(e.Library, "+", 2)[0] + ")"
		}
		if e.Pass == "backward" {
			name += ", backward"
		}
		f.Points = append(f.Points, figure.RooflinePoint{Name: name, Impl: e.Impl, Backward: e.Pass == "backward", X: e.Ideal, Y: e.TFLOPS, Asked: e.Intensity})
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

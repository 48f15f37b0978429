package soak

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
)

// Summary is what a differential run did: the figures that are kept of it.
type Summary struct {
	Device   string `json:"device"`
	Driver   string `json:"driver"`
	Seed     uint64 `json:"seed"`
	Families int    `json:"families"` // sets of problems that share compiled kernels
	Asked    int    `json:"asked"`    // problems to be run
	Problems int    `json:"problems"` // problems run: each with data, places in memory and seeds of its own
	Plans    int    `json:"plans"`    // different shapes among them
	Passes   int    `json:"passes"`   // forward and backward passes compared
	Repeated int    `json:"repeated"` // problems run twice, for the same bits
	Wrong    int    `json:"wrong"`
	// problems so badly conditioned, or so small, that plain attention's luck is no measure: judged by bounds of rounding
	Rounding  int            `json:"rounding"`
	Seconds   float64        `json:"seconds"`
	PerSecond float64        `json:"problems_per_second"`
	Rows      []Row          `json:"rows"`
	Features  map[string]int `json:"features"`           // problems that have it
	Declined  []string       `json:"declined,omitempty"` // families that their target does not take, with the reason
	Failures  []string       `json:"failures,omitempty"`
}

// Row counts the problems of one kernel, storage type and pass.
type Row struct {
	Kernel   string  `json:"kernel"`
	DType    string  `json:"dtype"`
	Pass     string  `json:"pass"` // fwd or bwd
	Problems int     `json:"problems"`
	Wrong    int     `json:"wrong"`
	Rounding int     `json:"rounding"`            // judged by bounds of rounding; not among the worst
	Worst    float64 `json:"worst"`               // the largest error of o, or of a gradient, as a share of its bound
	At       string  `json:"at"`                  // the problem that has it
	LSE      float64 `json:"worst_lse,omitempty"` // the same of lse
}

type rowKey struct{ kernel, dtype, pass string }

// kernels are the names under which a family's problems are counted.
type kernels struct{ forward, backward string }

// kernelsOf names a plan's kernels with what tells their forms apart.
func kernelsOf(p *flash.Plan, f *family) (kernels, error) {
	forward := p.ForwardInfo()
	k := kernels{forward: withForm(forward.KernelName, forward.Tuning)}
	if forward.Tuning["parts"] > 1 {
		k.forward += ", parts"
	}
	if !f.gradients {
		return k, nil
	}
	info, err := p.BackwardInfo()
	if err != nil {
		return k, err
	}
	k.backward = withForm(info.KernelName, info.Tuning)
	return k, nil
}

// withForm is a kernel's name with the form of the matrices it works on, where it has one.
func withForm(name string, tuning map[string]int) string {
	if form, ok := tuning["form"]; ok {
		name += fmt.Sprintf(" form %d", form)
	}
	return name
}

// tally counts.
type tally struct {
	mu    sync.Mutex
	began time.Time
	s     Summary
	rows  map[rowKey]*Row
}

func (t *tally) begin(dev *flash.Device, o *Options) {
	info := dev.Info()
	t.began, t.rows = time.Now(), map[rowKey]*Row{}
	t.s = Summary{Device: info.Name, Driver: info.Driver, Seed: o.Seed, Families: o.Families, Asked: o.Problems, Features: map[string]int{}}
}

func (t *tally) planned() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Plans++
}

func (t *tally) declined(f *family, why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Declined = append(t.s.Declined, fmt.Sprintf("family %d, %v: %v", f.index, f, why))
}

func (t *tally) wrong(f Failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Failures = append(t.s.Failures, f.String())
}

// add counts a problem that was run.
func (t *tally) add(f *family, names kernels, c *conformance.Case, how conformance.How, r *conformance.Result, more features) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.s.Problems++
	if how.Times > 1 {
		t.s.Repeated++
	}
	if !r.Pass {
		t.s.Wrong++
	}
	if r.ByRounding != "" {
		t.s.Rounding++
	}
	t.count(rowKey{names.forward, r.DType.String(), "fwd"}, r, share(r.MaxErr, r.Bound), share(r.LSEErr, r.LSEBound))
	if r.GradBound > 0 {
		t.count(rowKey{names.backward, r.DType.String(), "bwd"}, r, share(r.GradErr, r.GradBound), 0)
		t.s.Features["gradients"]++
		if how.Accumulate {
			t.s.Features["gradients added to what is there"]++
		}
	}
	p := c.Problem
	for name, has := range map[string]bool{
		"query heads share key heads": p.Heads > p.KeyHeads, "value dimension differs": p.ValueDim != p.HeadDim, "dropout": p.Dropout > 0,
		"no lse": c.NoLSE, "block mask": p.Blocks != flash.Blocks{}, "classes": p.MaskBlocks != flash.Blocks{}, "scale given": p.Scale != 0,
		"scale negative":     p.Scale < 0,
		"several dispatches": f.tuning["max_groups"] > 0, "more queries than keys": p.QueryLen > p.KeyLen,
		"fewer queries than keys": p.QueryLen < p.KeyLen,
	} {
		if has {
			t.s.Features[name]++
		}
	}
	for _, name := range more {
		t.s.Features[name]++
	}
}

func (t *tally) count(key rowKey, r *conformance.Result, worst, lse float64) {
	row := t.rows[key]
	if row == nil {
		row = &Row{Kernel: key.kernel, DType: key.dtype, Pass: key.pass}
		t.rows[key] = row
	}
	t.s.Passes++
	row.Problems++
	switch {
	case !r.Pass:
		row.Wrong++
	case worst > 1 || lse > 1:
		row.Rounding++
		return
	}
	if worst > row.Worst {
		row.Worst, row.At = worst, r.Case
	}
	row.LSE = max(row.LSE, lse)
}

// share is an error as a share of its bound; what is no number counts as beyond it, and stays one that JSON can hold.
func share(err, bound float64) float64 {
	switch x := err / bound; {
	case err == 0:
		return 0
	case math.IsNaN(x) || x > 1e6:
		return 1e6
	default:
		return x
	}
}

// summary gives what there is so far.
func (t *tally) summary() *Summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.s
	s.Features = maps.Clone(s.Features)
	s.Declined, s.Failures = slices.Clone(s.Declined), slices.Clone(s.Failures)
	s.Seconds = math.Round(time.Since(t.began).Seconds()*10) / 10
	s.PerSecond = math.Round(float64(s.Problems) / max(time.Since(t.began).Seconds(), 1e-3))
	for _, row := range t.rows {
		r := *row
		r.Worst, r.LSE = round3(r.Worst), round3(r.LSE)
		s.Rows = append(s.Rows, r)
	}
	slices.SortFunc(s.Rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(a.Pass, b.Pass), cmp.Compare(a.Kernel, b.Kernel), cmp.Compare(a.DType, b.DType))
	})
	return &s
}

func round3(x float64) float64 { return math.Round(x*1000) / 1000 }

// Line says in one line how far a run has come.
func (s *Summary) Line() string {
	return fmt.Sprintf("%d of %d problems, %.0f a second, %d plans, wrong: %d", s.Problems, s.Asked, s.PerSecond, s.Plans, s.Wrong)
}

// Print writes the table of kernels, the features and the verdict.
func (s *Summary) Print(w io.Writer) {
	fmt.Fprintf(w, "%s, %s; seed %d, %d families\n\n", s.Device, s.Driver, s.Seed, s.Families)
	fmt.Fprintf(w, "%-36s %-9s %-4s %9s %7s %9s %9s %9s  %s\n", "kernel", "dtype", "pass", "problems", "wrong", "rounding", "worst",
		"worst lse", "at")
	for _, r := range s.Rows {
		lse := ""
		if r.Pass == "fwd" {
			lse = fmt.Sprintf("%.3f", r.LSE)
		}
		fmt.Fprintf(w, "%-36s %-9s %-4s %9d %7d %9d %9.3f %9s  %s\n", r.Kernel, r.DType, r.Pass, r.Problems, r.Wrong, r.Rounding,
			r.Worst, lse, r.At)
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(s.Features)) {
		fmt.Fprintf(w, "%9d  %s\n", s.Features[name], name)
	}
	if len(s.Declined) > 0 {
		fmt.Fprintf(w, "\n%d families that the device's kernels decline:\n  %s\n", len(s.Declined), strings.Join(s.Declined, "\n  "))
	}
	fmt.Fprintf(w, "\n%d problems of %d shapes, %d passes compared with float64, %d run twice, in %.1f s (%.0f a second)\nbeyond twice "+
		"(gradients: three times) plain attention's error, and within the bounds of rounding: %d\nwrong: %d\n",
		s.Problems, s.Plans, s.Passes, s.Repeated, s.Seconds, s.PerSecond, s.Rounding, s.Wrong)
}

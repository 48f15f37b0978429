package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/bench"
	"golang.org/x/perf/benchmath"
)

// Change is one case of one pass in two runs.
type Change struct {
	Case     bench.Case
	Library  string
	Pass     string // "fwd" or "bwd"
	Old, New float64
	Ratio    float64 // New / Old: above 1, it became slower
	// Evidence says how Significant was decided: "p=0.002 n=6+6" (Mann-Whitney U test on the rounds' medians), "percentiles
	// apart" or "percentiles overlap" (too few rounds for a test), or "no spread known" (then any difference counts).
	Evidence    string
	Significant bool
	// Lost is the reason why the new run has no figures where the old one had.
	Lost string
}

// Changes are the cases that two files have in common.
type Changes struct {
	Rows             []Change
	OnlyOld, OnlyNew []string // the names of rows with figures that the other file has not
}

// leastRounds is the number of rounds of both runs from which the U test can reach p < 0.05.
const leastRounds = 4

// changeKey is what rows of two files have in common.
type changeKey struct {
	library string // without its version
	c       bench.Case
}

func (k changeKey) name() string { return (&Change{Case: k.c, Library: k.library}).name() }

func measured(rows []bench.Row) bool {
	return slices.ContainsFunc(rows, func(r bench.Row) bool { return r.Fwd.Ms > 0 || r.Bwd.Ms > 0 })
}

// Diff compares the rows of two files, ours and peers' alike: the same library (its version aside), implementation and case.
func Diff(older, newer *bench.File) (*Changes, error) {
	collect := func(f *bench.File) (map[changeKey][]bench.Row, []changeKey) {
		rows := map[changeKey][]bench.Row{}
		var order []changeKey
		for _, r := range f.Rows {
			library, _, _ := strings.Cut(r.Library, " ")
			k := changeKey{library, r.Case}
			if rows[k] == nil {
				order = append(order, k)
			}
			rows[k] = append(rows[k], r)
		}
		return rows, order
	}
	before, order := collect(older)
	after, newOrder := collect(newer)
	out := &Changes{}
	for _, k := range newOrder {
		if before[k] == nil && measured(after[k]) {
			out.OnlyNew = append(out.OnlyNew, k.name())
		}
	}
	for _, k := range order {
		if after[k] == nil {
			if measured(before[k]) {
				out.OnlyOld = append(out.OnlyOld, k.name())
			}
			continue
		}
		for _, pass := range []string{"fwd", "bwd"} {
			a, b := samples(before[k], pass), samples(after[k], pass)
			if len(a.medians) == 0 {
				continue
			}
			c := Change{Case: k.c, Library: k.library, Pass: pass, Old: bench.Middle(a.medians)}
			if len(b.medians) == 0 {
				if c.Lost = lastError(after[k]); c.Lost == "" {
					c.Lost = "the row has no " + pass + " figures any more"
				}
				out.Rows = append(out.Rows, c)
				continue
			}
			c.New = bench.Middle(b.medians)
			c.Ratio = c.New / c.Old
			c.judge(a, b)
			out.Rows = append(out.Rows, c)
		}
	}
	if len(out.Rows) == 0 {
		return nil, fmt.Errorf("%s and %s have no row in common", older.Path, newer.Path)
	}
	return out, nil
}

// timed is what is known of one case: the rounds' medians, and the percentiles of all runs.
type timed struct {
	medians  []float64
	p20, p80 float64
}

func samples(rows []bench.Row, pass string) timed {
	var s timed
	for _, r := range rows {
		p := r.Fwd
		if pass == "bwd" {
			p = r.Bwd
		}
		if p.Ms <= 0 || r.Error != "" {
			continue
		}
		if len(p.Rounds) > 0 {
			s.medians = append(s.medians, p.Rounds...)
		} else {
			s.medians = append(s.medians, p.Ms)
		}
		if p.P20 > 0 && (s.p20 == 0 || p.P20 < s.p20) {
			s.p20 = p.P20
		}
		s.p80 = max(s.p80, p.P80)
	}
	return s
}

func lastError(rows []bench.Row) string {
	for _, r := range slices.Backward(rows) {
		if r.Error != "" {
			return r.Error
		}
	}
	return ""
}

// judge decides whether the difference is more than noise.
func (c *Change) judge(a, b timed) {
	switch {
	case len(a.medians) >= leastRounds && len(b.medians) >= leastRounds:
		t := &benchmath.DefaultThresholds
		// NewSample sorts what it is given.
		res := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(a.medians), t), benchmath.NewSample(slices.Clone(b.medians), t))
		c.Evidence, c.Significant = res.String(), res.P < res.Alpha
	case a.p20 > 0 && b.p20 > 0:
		c.Significant = a.p80 < b.p20 || b.p80 < a.p20
		c.Evidence = map[bool]string{true: "percentiles apart", false: "percentiles overlap"}[c.Significant]
	default:
		c.Evidence, c.Significant = "no spread known", c.Old != c.New
	}
}

// Slower gives the rows that became significantly slower than the factor allows, and those that were lost.
func (c *Changes) Slower(factor float64) []Change {
	var out []Change
	for _, r := range c.Rows {
		if r.Lost != "" || r.Significant && r.Ratio > factor {
			out = append(out, r)
		}
	}
	return out
}

// Mean is the geometric mean of the ratios; 1 without any.
func (c *Changes) Mean() (float64, int) {
	var v []float64
	for _, r := range c.Rows {
		if r.Lost == "" {
			v = append(v, r.Ratio)
		}
	}
	if len(v) == 0 {
		return 1, 0
	}
	return bench.GeoMean(v), len(v)
}

// ChangeFormats lists what WriteChanges takes.
var ChangeFormats = []string{"table", "md"}

// changeColumns are the columns of a comparison.
var changeColumns = []struct {
	name  string
	left  bool
	value func(c *Change) string
}{
	{"row", true, (*Change).name},
	{"old ms", false, func(c *Change) string { return Digits(c.Old) }},
	{"new ms", false, func(c *Change) string { return Digits(c.New) }},
	{"new / old", false, func(c *Change) string {
		if c.Lost != "" {
			return ""
		}
		return fmt.Sprintf("%.3f", c.Ratio)
	}},
	{"change", false, func(c *Change) string {
		switch {
		case c.Lost != "":
			return "LOST"
		case c.Significant:
			return fmt.Sprintf("%+.1f %%", 100*(c.Ratio-1))
		}
		return "~"
	}},
	{"evidence", true, func(c *Change) string {
		if c.Lost != "" {
			return c.Lost
		}
		return c.Evidence
	}},
}

func (c *Change) name() string {
	name := c.Case.String()
	if c.Library != "vkattn" {
		name = c.Library + " " + name
	}
	if c.Pass == "bwd" {
		name += " backward"
	}
	return name
}

// WriteChanges prints a line for each row and the geometric mean. A table is at most width columns wide, 0 for any.
func WriteChanges(w io.Writer, format string, c *Changes, width int) error {
	var header, rules []string
	align := ""
	for _, column := range changeColumns {
		header = append(header, column.name)
		if column.left {
			align, rules = align+"l", append(rules, "---")
		} else {
			align, rules = align+"r", append(rules, "---:")
		}
	}
	var lines [][]string
	for i := range c.Rows {
		var line []string
		for _, column := range changeColumns {
			line = append(line, column.value(&c.Rows[i]))
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	switch format {
	case "table":
		t := NewText(header, align).Fit(width, "evidence", "old ms")
		for _, line := range lines {
			t.Row(line...)
		}
		b.WriteString(t.String() + "\n")
		if dropped := t.Dropped(); len(dropped) > 0 {
			b.WriteString(Fold(NotShown(dropped, width), width, "  ") + "\n")
		}
		b.WriteString("\n")
	case "md":
		b.WriteString("| " + strings.Join(header, " | ") + " |\n| " + strings.Join(rules, " | ") + " |\n")
		for _, line := range lines {
			for i := range line {
				line[i] = escape(line[i])
			}
			b.WriteString("| " + strings.Join(line, " | ") + " |\n")
		}
		b.WriteString("\n")
	default:
		return fmt.Errorf("format %q: it must be one of %s", format, strings.Join(ChangeFormats, ", "))
	}
	if mean, n := c.Mean(); n > 0 {
		fmt.Fprintf(&b, "geometric mean of %d rows: new / old = %.3f\n", n, mean)
	}
	only(&b, "old", c.OnlyOld)
	only(&b, "new", c.OnlyNew)
	_, err := io.WriteString(w, b.String())
	return err
}

// only names the rows that one file alone has.
func only(b *strings.Builder, file string, names []string) {
	const most = 20
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "only in the %s file: %d\n", file, len(names))
	for _, name := range names[:min(len(names), most)] {
		fmt.Fprintf(b, "- %s\n", name)
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(b, "- and %d more\n", more)
	}
}

// CheckFactor says whether a factor of --fail-above makes sense.
func CheckFactor(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 1 {
		return errors.New("it must be a number of at least 1, such as 1.05: 5 % slower")
	}
	return nil
}

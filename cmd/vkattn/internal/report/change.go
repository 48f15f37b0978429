package report

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"golang.org/x/perf/benchmath"
)

// Change is one case of one pass in two runs.
type Change struct {
	Case     result.Case
	Library  string
	Pass     string // "fwd", "bwd" or "jvp"
	Old, New float64
	Ratio    float64 // New / Old: above 1, it became slower
	// Evidence says how Significant was decided: "p=0.002 n=6+6" (Mann-Whitney U test on the rounds' medians), "percentiles
	// apart" or "percentiles overlap" (too few rounds for a test), or "no spread known" (then any difference counts).
	Evidence    string
	Significant bool
	// Peak names what the pass is bound by, and PeakRatio is New's over Old's, where changes are relative to it: Ratio then has times ×
	// peaks. Of a pass that another peak bounds now Peak names both, PeakRatio is 0, and Ratio has times alone.
	Peak      string
	PeakRatio float64
	// Lost is the reason why the new run has no figures where the old one had.
	Lost string
}

// Changes are the cases that two files have in common.
type Changes struct {
	Rows             []Change
	OnlyOld, OnlyNew []string // the names of rows with figures that the other file has not
	Relative         bool     // to what the rows are bound by, as each run has measured it
	NoPeak           []string // rows that were left out for want of that
	Unjudged         []string // those of them that are ours: a peer has no peaks
}

// leastRounds is the number of rounds of both runs from which the U test can reach p < 0.05.
const leastRounds = 4

// changeKey is what rows of two files have in common.
type changeKey struct {
	library string // without its version
	c       result.Case
}

func (k changeKey) name() string { return (&Change{Case: k.c, Library: k.library}).name() }

func measured(rows []result.Row) bool {
	return slices.ContainsFunc(rows, func(r result.Row) bool { return r.Fwd.Ms > 0 || r.Bwd.Ms > 0 || r.JVP.Ms > 0 })
}

// Diff compares the rows of two files, ours and peers' alike: the same library (its version aside), implementation and case.
func Diff(older, newer *result.File) (*Changes, error) { return diff(older, newer, false) }

// DiffRelative compares how much of their ceilings rows reach: times × the peak of arithmetic, or of copying, that their own run measured.
// So runs on two cards of one kind, whose clocks differ, can be compared. Rows without such a peak, as peers' have none, are left out.
// Those that another peak bounds now, as a kernel of a slower tier is, are compared by their times.
func DiffRelative(older, newer *result.File) (*Changes, error) { return diff(older, newer, true) }

func diff(older, newer *result.File, relative bool) (*Changes, error) {
	collect := func(f *result.File) (map[changeKey][]result.Row, []changeKey) {
		rows := map[changeKey][]result.Row{}
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
	out := &Changes{Relative: relative}
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
		for _, pass := range []string{"fwd", "bwd", "jvp"} {
			a, b := samples(before[k], pass, relative), samples(after[k], pass, relative)
			if len(a.medians) == 0 {
				continue
			}
			c := Change{Case: k.c, Library: k.library, Pass: pass, Old: result.Middle(a.raw)}
			if len(b.medians) > 0 && relative {
				if !a.known || !b.known {
					out.NoPeak = append(out.NoPeak, c.name())
					if IsOurs(after[k][0]) {
						out.Unjudged = append(out.Unjudged, c.name())
					}
					continue
				}
				c.Peak, c.PeakRatio = strings.Join(a.bounds, ", "), b.peak/a.peak
				if len(a.bounds) > 1 || !slices.Equal(a.bounds, b.bounds) {
					c.Peak, c.PeakRatio = c.Peak+" → "+strings.Join(b.bounds, ", "), 0
					a, b = samples(before[k], pass, false), samples(after[k], pass, false)
				}
			}
			if len(b.medians) == 0 {
				if c.Lost = lastError(after[k]); c.Lost == "" {
					c.Lost = "the row has no " + pass + " figures any more"
				}
				out.Rows = append(out.Rows, c)
				continue
			}
			c.New = result.Middle(b.raw)
			c.Ratio = result.Middle(b.medians) / result.Middle(a.medians)
			c.judge(a, b)
			out.Rows = append(out.Rows, c)
		}
	}
	if len(out.Rows) == 0 && len(out.NoPeak) > 0 {
		return nil, fmt.Errorf("%s and %s have no row in common whose runs both measured what it is bound by: compare them without "+
			"--relative", older.Path, newer.Path)
	}
	if len(out.Rows) == 0 {
		return nil, fmt.Errorf("%s and %s have no row in common", older.Path, newer.Path)
	}
	return out, nil
}

// timed is what is known of one case: the rounds' medians, and the percentiles of all runs.
type timed struct {
	raw      []float64 // medians in ms
	medians  []float64 // the same, or where changes are relative to peaks, times these
	p20, p80 float64   // of these
	bounds   []string  // what the rows are bound by
	peak     float64   // of the last one
	known    bool      // every row's is
}

func samples(rows []result.Row, pass string, relative bool) timed {
	var s timed
	for _, r := range rows {
		p := map[string]result.Pass{"fwd": r.Fwd, "bwd": r.Bwd, "jvp": r.JVP}[pass]
		if p.Ms <= 0 || r.Error != "" {
			continue
		}
		factor := 1.0
		if relative {
			var bound string
			bound, s.peak = r.Ceiling()
			factor = s.peak
			if !slices.Contains(s.bounds, bound) {
				s.bounds = append(s.bounds, bound)
			}
		}
		rounds := p.Rounds
		if len(rounds) == 0 {
			rounds = []float64{p.Ms}
		}
		for _, ms := range rounds {
			s.raw, s.medians = append(s.raw, ms), append(s.medians, ms*factor)
		}
		if p20 := p.P20 * factor; p20 > 0 && (s.p20 == 0 || p20 < s.p20) {
			s.p20 = p20
		}
		s.p80 = max(s.p80, p.P80*factor)
		s.known = s.peak > 0 && (s.known || len(s.raw) == len(rounds))
	}
	return s
}

func lastError(rows []result.Row) string {
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
		res := benchmath.AssumeNothing.Compare(benchmath.NewSample(slices.Clone(a.medians), t),
			benchmath.NewSample(slices.Clone(b.medians), t))
		c.Evidence, c.Significant = res.String(), res.P < res.Alpha
	case a.p20 > 0 && b.p20 > 0:
		c.Significant = a.p80 < b.p20 || b.p80 < a.p20
		c.Evidence = map[bool]string{true: "percentiles apart", false: "percentiles overlap"}[c.Significant]
	default:
		c.Evidence, c.Significant = "no spread known", c.Ratio != 1
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

// Worst names rows that are slower or lost, those that were lost first and then the slowest: at most n, and how many more there are.
func Worst(slower []Change, n int) string {
	slower = slices.Clone(slower)
	slices.SortStableFunc(slower, func(a, b Change) int {
		switch {
		case (a.Lost != "") != (b.Lost != ""):
			return map[bool]int{true: -1, false: 1}[a.Lost != ""]
		case a.Ratio != b.Ratio:
			return map[bool]int{true: -1, false: 1}[a.Ratio > b.Ratio]
		}
		return 0
	})
	var names []string
	for _, c := range slower[:min(n, len(slower))] {
		if c.Lost != "" {
			names = append(names, c.name()+" (lost)")
		} else {
			names = append(names, fmt.Sprintf("%s (%s ×)", c.name(), result.Fixed(c.Ratio, 2)))
		}
	}
	if more := len(slower) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, "; ")
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
	return result.GeoMean(v), len(v)
}

// ChangeFormats lists what WriteChanges takes.
var ChangeFormats = []string{"table", "md"}

const peakColumn = "peak new / old"

// changeColumns are the columns of a comparison.
var changeColumns = []struct {
	name  string
	left  bool
	value func(c *Change) string
}{ // "peak" is there where changes are relative to peaks
	{"row", true, (*Change).name},
	{"old ms", false, func(c *Change) string { return Digits(c.Old) }},
	{"new ms", false, func(c *Change) string { return Digits(c.New) }},
	{peakColumn, true, func(c *Change) string {
		if c.PeakRatio == 0 {
			return c.Peak
		}
		return fmt.Sprintf("%s × %s", c.Peak, result.Fixed(c.PeakRatio, 3))
	}},
	{"new / old", false, func(c *Change) string {
		if c.Lost != "" {
			return ""
		}
		return result.Fixed(c.Ratio, 3)
	}},
	{"change", false, func(c *Change) string {
		switch {
		case c.Lost != "":
			return "LOST"
		case c.Significant:
			if change := 100 * (c.Ratio - 1); math.Abs(change) >= 1e9 {
				return fmt.Sprintf("%+.3g %%", change)
			}
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
	return name + map[string]string{"bwd": " backward", "jvp": " forward mode"}[c.Pass]
}

// WriteChanges prints a line for each row and the geometric mean. A table is at most width columns wide, 0 for any.
func WriteChanges(w io.Writer, format string, c *Changes, width int) error {
	var header, rules []string
	align := ""
	for _, column := range changeColumns {
		if column.name == peakColumn && !c.Relative {
			continue
		}
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
			if column.name == peakColumn && !c.Relative {
				continue
			}
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
		fmt.Fprintf(&b, "geometric mean of %d rows: new / old = %s\n", n, result.Fixed(mean, 3))
	}
	if c.Relative {
		b.WriteString(Fold("new / old is of times × the peak that bounds each row, as its own run measured it; of times alone where "+
			"an arrow stands between two", width, "  ") + "\n")
	}
	listed(&b, "left out, for no peak is known of", c.NoPeak)
	listed(&b, "only in the old file", c.OnlyOld)
	listed(&b, "only in the new file", c.OnlyNew)
	_, err := io.WriteString(w, b.String())
	return err
}

// listed names rows.
func listed(b *strings.Builder, title string, names []string) {
	const most = 20
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "%s: %d\n", title, len(names))
	for _, name := range names[:min(len(names), most)] {
		fmt.Fprintf(b, "- %s\n", name)
	}
	if more := len(names) - most; more > 0 {
		fmt.Fprintf(b, "- and %d more\n", more)
	}
}

// ParseTolerance reads how much slower a row may be, in percent: "5%" or "5". It gives the factor, 1.05.
func ParseTolerance(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "%")), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
		return 0, errors.New("it must be a percentage that is not negative, such as 5%")
	}
	return 1 + v/100, nil
}

// CheckFactor says whether a factor of --fail-above makes sense.
func CheckFactor(v float64) error {
	if math.IsNaN(v) || math.IsInf(v, 0) || v < 1 {
		return errors.New("it must be a number of at least 1, such as 1.05: 5 % slower")
	}
	return nil
}

package compiled

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Pass is one pass of a problem as a device would run it.
type Pass struct {
	Problem string // and which pass, and the tier where it was asked for
	Kernel  string // with its tile; "" where there is none
	Refused string // why there is none
	Stages  []Stage
}

// Stage is a kernel of a pass.
type Stage struct {
	Module  string
	Seconds float64 // that compiling it took
	Stats
}

// columns are those of a stage behind its module.
var columns = []struct {
	title string
	of    func(*Stage) *float64
}{
	{"registers", func(s *Stage) *float64 { return &s.Registers }},
	{"spills", func(s *Stage) *float64 { return &s.Spills }},
	{"scratch", func(s *Stage) *float64 { return &s.Scratch }},
	{"shared", func(s *Stage) *float64 { return &s.Shared }},
	{"occupancy", func(s *Stage) *float64 { return &s.Occupancy }},
	{"instructions", func(s *Stage) *float64 { return &s.Instructions }},
	{"cycles", func(s *Stage) *float64 { return &s.Cycles }},
	{"throughput", func(s *Stage) *float64 { return &s.Throughput }},
	{"seconds", func(s *Stage) *float64 { return &s.Seconds }},
}

const (
	indent  = "  "
	refused = "refused: "
)

// Write writes passes as text that Read takes.
func Write(to io.Writer, passes []Pass) error {
	w := bufio.NewWriter(to)
	var all []Stage
	for _, p := range passes {
		all = append(all, p.Stages...)
	}
	width := writeTitles(w, all)
	for _, p := range passes {
		if p.Kernel == "" {
			fmt.Fprintf(w, "%s: %s%s\n", p.Problem, refused, strings.Join(strings.Fields(p.Refused), " "))
			continue
		}
		fmt.Fprintf(w, "%s: %s\n", p.Problem, p.Kernel)
		writeStages(w, width, p.Stages)
	}
	return w.Flush()
}

// WriteStages writes the lines of one pass under their titles.
func WriteStages(to io.Writer, stages []Stage) error {
	w := bufio.NewWriter(to)
	writeStages(w, writeTitles(w, stages), stages)
	return w.Flush()
}

// writeTitles gives the width of the first column.
func writeTitles(w io.Writer, stages []Stage) (width int) {
	for _, s := range stages {
		width = max(width, len(s.Module))
	}
	fmt.Fprintf(w, "# %-*s", width, "stage")
	for _, c := range columns {
		fmt.Fprintf(w, "  %s", c.title)
	}
	fmt.Fprintln(w)
	return width
}

func writeStages(w io.Writer, width int, stages []Stage) {
	for _, s := range stages {
		fmt.Fprintf(w, "%s%-*s", indent, width, s.Module)
		for _, c := range columns {
			text := "-"
			if v := *c.of(&s); v >= 0 {
				text = strconv.FormatFloat(v, 'f', -1, 64)
			}
			fmt.Fprintf(w, "  %*s", len(c.title), text)
		}
		fmt.Fprintln(w)
	}
}

// Read reads what Write wrote; lines that begin with # are comments, of which made is the first, "" where the file does not begin with one.
func Read(from io.Reader) (passes []Pass, made string, err error) {
	in := bufio.NewScanner(from)
	in.Buffer(nil, 1<<20)
	for line := 1; in.Scan(); line++ {
		text := in.Text()
		if line == 1 && strings.HasPrefix(text, "#") {
			made = text
		}
		switch {
		case strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#"):
		case !strings.HasPrefix(text, indent):
			problem, kernel, ok := strings.Cut(text, ": ")
			if !ok {
				return nil, "", fmt.Errorf("line %d: neither PROBLEM: KERNEL nor an indented stage", line)
			}
			p := Pass{Problem: problem, Kernel: kernel}
			if why, none := strings.CutPrefix(kernel, refused); none {
				p.Kernel, p.Refused = "", why
			}
			passes = append(passes, p)
		default:
			words := strings.Fields(text)
			if len(passes) == 0 || len(words) != 1+len(columns) {
				return nil, "", fmt.Errorf("line %d: %d words, and a stage of a problem above it has %d", line, len(words), 1+len(columns))
			}
			s := Stage{Module: words[0]}
			for i, c := range columns {
				v := -1.0
				if words[1+i] != "-" {
					if v, err = strconv.ParseFloat(words[1+i], 64); err != nil {
						return nil, "", fmt.Errorf("line %d: %s is %q, no number", line, c.title, words[1+i])
					}
				}
				*c.of(&s) = v
			}
			last := &passes[len(passes)-1]
			last.Stages = append(last.Stages, s)
		}
	}
	return passes, made, in.Err()
}

// Compare says what is worse than before: a problem that is refused now, a stage that spills more, or of which fewer run at once; the last
// two if the same compiler made both tables, for every version has registers of its own. What only one of the tables has is not compared:
// a driver's cover, say, with the whole. compared counts the passes that both have.
func Compare(before, now []Pass, same bool) (worse []string, compared int) {
	for _, n := range now {
		at := slices.IndexFunc(before, func(b Pass) bool { return b.Problem == n.Problem })
		if at < 0 {
			continue
		}
		compared++
		b := before[at]
		if b.Kernel != "" && n.Kernel == "" {
			worse = append(worse, fmt.Sprintf("%s: %s before, and now refused: %s", n.Problem, b.Kernel, n.Refused))
		}
		if !same {
			continue
		}
		for i, s := range n.Stages {
			// Those of one module are told apart by their order.
			nth := 0
			for _, other := range n.Stages[:i] {
				if other.Module == s.Module {
					nth++
				}
			}
			for _, o := range b.Stages {
				if o.Module != s.Module {
					continue
				}
				if nth--; nth >= 0 {
					continue
				}
				if s.Spills > max(o.Spills, 0) {
					worse = append(worse, fmt.Sprintf("%s, %s: spills %g before, %g now", n.Problem, s.Module, o.Spills, s.Spills))
				}
				if s.Occupancy >= 0 && s.Occupancy < o.Occupancy {
					worse = append(worse, fmt.Sprintf("%s, %s: occupancy %g before, %g now", n.Problem, s.Module, o.Occupancy, s.Occupancy))
				}
				break
			}
		}
	}
	return worse, compared
}

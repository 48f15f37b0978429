package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/internal/tally"
)

// account is what the processes of a test run told: the lines of their tally, those that are alike together.
type account map[tally.Line]*sum // Seconds is 0 in the keys

type sum struct {
	count   int
	seconds float64
}

// readAccount reads a tally; "" is none. A file that no process wrote is empty.
func readAccount(path string) (account, error) {
	a := account{}
	if path == "" {
		return a, nil
	}
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	defer f.Close()
	lines, err := tally.Read(f)
	for _, l := range lines {
		seconds, count := l.Seconds, 1
		if l.Seconds = 0; l.Kind == tally.FirstRun {
			l.Kind, count = tally.Pipeline, 0
		}
		s := a[l]
		if s == nil {
			s = &sum{}
			a[l] = s
		}
		s.count += count
		s.seconds += seconds
	}
	return a, err
}

// of are the lines of a kind, the most expensive first, then the most frequent.
func (a account) of(kind string) []tally.Line {
	return slices.SortedFunc(func(yield func(tally.Line) bool) {
		for l := range maps.Keys(a) {
			if l.Kind == kind && !yield(l) {
				return
			}
		}
	}, func(x, y tally.Line) int {
		return cmp.Or(cmp.Compare(a[y].seconds, a[x].seconds), cmp.Compare(a[y].count, a[x].count),
			cmp.Compare(x.Name, y.Name), cmp.Compare(x.Detail, y.Detail))
	})
}

// dearest is how many pipelines are shown.
const dearest = 10

func (a account) print(w io.Writer) {
	if pipelines := a.of(tally.Pipeline); len(pipelines) > 0 {
		var all sum
		for _, l := range pipelines {
			all.count += a[l].count
			all.seconds += a[l].seconds
		}
		fmt.Fprintf(w, "pipelines: %d compiled, %d different, %.1f s together with their first runs; the dearest, and how often they "+
			"were compiled:\n",
			all.count, len(pipelines), all.seconds)
		for _, l := range pipelines[:min(dearest, len(pipelines))] {
			fmt.Fprintf(w, "%7.1f s %4d ×  %s  %s\n", a[l].seconds, a[l].count, l.Name, constants(l.Detail, 90))
		}
		fmt.Fprintln(w)
	}
	if messages := a.of(tally.PassedOver); len(messages) > 0 {
		fmt.Fprintf(w, "messages of the validation layers that were passed over, since no program can help them:\n")
		for _, l := range messages {
			fmt.Fprintf(w, "  %4d  %s: %s\n", a[l].count, l.Name, l.Detail)
		}
		fmt.Fprintln(w)
	}
	for _, l := range a.of(tally.Unvalidated) {
		fmt.Fprintf(w, "WITHOUT VALIDATION  %d test processes: %s\n", a[l].count, l.Name)
	}
}

// constants are specialization constants, NAME=VALUE each, but those that are 0, as far as there is room: short names first, which are
// tiles' and dimensions'.
func constants(all string, room int) string {
	set := slices.DeleteFunc(strings.Fields(all), func(c string) bool { return strings.HasSuffix(c, "=0") })
	slices.SortFunc(set, func(a, b string) int {
		return cmp.Or(cmp.Compare(strings.Index(a, "="), strings.Index(b, "=")), cmp.Compare(a, b))
	})
	var out []string
	for _, c := range set {
		if room -= len(c) + 1; room < 0 {
			out = append(out, "…")
			break
		}
		out = append(out, c)
	}
	return strings.Join(out, " ")
}

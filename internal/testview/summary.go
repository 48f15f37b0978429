package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// leftOut begins the reasons of skips for lack of time: vktest.LeftOut, whose package takes Vulkan with it.
const leftOut = "left out for lack of time"

// summary is what ran: of each kernel family and tier that tests name (vktest.Tag), and of all tests together.
type summary struct {
	passed, failed, skipped int
	failedPackages          int
	unfinished              []string
	families                map[[2]string]*counts
	reasons                 map[string]*skips // by the reason without its numbers
	account                 account
}

type counts struct {
	passed, failed, skipped int
	seconds                 float64
	dtypes                  map[string]bool
}

// skips are tests that were skipped for the same reason, but for numbers in it.
type skips struct {
	count   int
	text    string // the reason, of the first
	differs bool   // others had other numbers
	example string
}

func (s *summary) add(e event, t *test) {
	count := func(passed, failed, skipped *int) {
		switch e.Action {
		case "pass":
			*passed++
		case "fail":
			*failed++
		case "skip":
			*skipped++
		}
	}
	count(&s.passed, &s.failed, &s.skipped)
	if e.Action == "skip" {
		s.skip(reason(t.output), shortPackage(e.Package)+" "+e.Test)
	}
	family := t.attrs["family"]
	if family == "" {
		return
	}
	if s.families == nil {
		s.families = map[[2]string]*counts{}
	}
	key := [2]string{family, t.attrs["tier"]}
	f := s.families[key]
	if f == nil {
		f = &counts{dtypes: map[string]bool{}}
		s.families[key] = f
	}
	count(&f.passed, &f.failed, &f.skipped)
	f.seconds += e.Elapsed
	if e.Action == "pass" {
		f.dtypes[t.attrs["dtype"]] = true
	}
}

var numbers = regexp.MustCompile(`\d+`)

func (s *summary) skip(why, test string) {
	if s.reasons == nil {
		s.reasons = map[string]*skips{}
	}
	key := numbers.ReplaceAllString(why, "N")
	r := s.reasons[key]
	if r == nil {
		r = &skips{text: why, example: test}
		s.reasons[key] = r
	}
	r.count++
	r.differs = r.differs || r.text != why
}

func (s *summary) print(w io.Writer, packages int, took time.Duration) {
	if s.passed+s.failed+s.skipped == 0 {
		return // nothing ran: go test has said why
	}
	fmt.Fprintln(w)
	s.printFamilies(w)
	s.printSkips(w)
	s.account.print(w)
	for _, name := range s.unfinished {
		fmt.Fprintf(w, "NOT ENDED  %s\n", name)
	}
	fmt.Fprintf(w, "%d tests and cases passed, %d failed, %d skipped; %d packages, %d failed; %v\n",
		s.passed, s.failed+len(s.unfinished), s.skipped, packages, s.failedPackages, took.Round(100*time.Millisecond))
}

func (s *summary) printFamilies(w io.Writer) {
	if len(s.families) == 0 {
		return
	}
	wide := len("family")
	for key := range s.families {
		wide = max(wide, len(key[0]))
	}
	line := func(cells ...any) {
		fmt.Fprintf(w, fmt.Sprintf("%%-%ds  %%-6s  %%9v  %%6v  %%7v  %%7v  %%s\n", wide), cells...)
	}
	line("family", "tier", "cases run", "failed", "skipped", "seconds", "types")
	keys := slices.SortedFunc(maps.Keys(s.families),
		func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	for _, key := range keys {
		f := s.families[key]
		line(key[0], key[1], f.passed+f.failed, f.failed, f.skipped, fmt.Sprintf("%.1f", f.seconds),
			strings.Join(slices.Sorted(maps.Keys(f.dtypes)), " "))
	}
	fmt.Fprintln(w)
}

// printSkips prints reasons with their counts: first what there was no time for, then the most frequent.
func (s *summary) printSkips(w io.Writer) {
	all := slices.SortedFunc(maps.Values(s.reasons), func(a, b *skips) int {
		late := func(r *skips) int {
			if strings.HasPrefix(r.text, leftOut) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(late(a), late(b)), cmp.Compare(b.count, a.count), cmp.Compare(a.text, b.text))
	})
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "skipped, by reason:\n")
	for _, r := range all {
		text := r.text
		if r.differs {
			text += " (and other numbers)"
		}
		if strings.HasPrefix(text, leftOut) {
			text = strings.ToUpper(text[:1]) + text[1:]
			fmt.Fprintf(w, "! %4d  %s\n         the first: %s\n", r.count, text, r.example)
			continue
		}
		fmt.Fprintf(w, "  %4d  %s\n", r.count, text)
	}
	fmt.Fprintln(w)
}

package result

import (
	"fmt"
	"slices"
)

// Axis is one thing that a sweep varies and that tells its rows apart. A line of the table in axes.go is an axis; the flags of
// `vkattn bench`, the loops of a Grid, the keys of result files, of CSV and of a peer's questions, the text of a Case and the
// columns of tables all come from there.
type Axis struct {
	Name  string // of the flag, and in errors
	Usage string // of the flag
	Usual string // of the flag: what counts where it is not given
	Alone string // of the flag: what it means without a value; "": it needs one
	Whole bool   // the flag's value is not a comma list; several values are several flags
	Size  bool   // a size: a sweep that names one is no longer the suite "quick"

	Key  string // in files, though only in CSV where a case has no such field; "": in none
	Sure bool   // files have the key even where the value is zero
	// Own says that the axis is about who computes, not about the problem: rows that differ in nothing else have one shape, and are
	// compared with one another.
	Own bool

	Label string              // over the column of a table; "": another axis shows it
	Cell  func(c Case) string // in that column
	Left  bool                // the column is text; figures stand right
	// Told says the value that all rows share, in the line above a table; "": it goes without saying.
	Told func(cell string) string
	// Text is the axis in the name of a case, such as "B16"; "" where it is as usual, and nil where another axis tells it.
	Text func(c Case) string

	axisValues
}

// axisValues are an axis's values, in grids and in cases.
type axisValues interface {
	parse(g *Grid, name string, list []string) error // what the flag was given
	given(g *Grid) bool
	override(g, o *Grid) // where o has values, g takes them
	fill(g *Grid)        // what counts where none are given
	clean(g *Grid) error // makes the values those that files spell
	vary([]Case, *Grid) ([]Case, error)
	wants(g *Grid, c *Case) bool // the grid has no values, or the case's is among them

	in(c *Case) any     // a pointer to the value in a case; nil: a case has none
	clear(c *Case)      // takes the value out of a case
	derive(c *Case)     // puts what zero stands for
	read(c *Case) error // after a file: makes the value the one that files spell
	check(name string, c *Case) error
}

// values are those of an axis that is a list in a Grid and a field of a Case. Functions that are nil do nothing.
type values[T comparable] struct {
	list  func(g *Grid) *[]T
	field func(c *Case) *T
	from  func(list []string) ([]T, error) // reads a flag; errors begin with the flag's name
	spell func(v T) (T, error)             // the spelling of files
	zero  func(c Case) T                   // what the zero value stands for
	rule  func(v T) string                 // what is wrong with a value; "": nothing
	only  func(c Case) bool                // the cases that it is about
	tied  bool                             // another axis does its loop, and its defaults
}

func (a values[T]) parse(g *Grid, _ string, list []string) (err error) {
	*a.list(g), err = a.from(list)
	return err
}

func (a values[T]) given(g *Grid) bool { return len(*a.list(g)) > 0 }

func (a values[T]) override(g, o *Grid) {
	if a.given(o) {
		*a.list(g) = *a.list(o)
	}
}

func (a values[T]) fill(g *Grid) {
	if !a.given(g) && !a.tied {
		var zero T
		*a.list(g) = []T{zero}
	}
}

func (a values[T]) clean(g *Grid) error {
	if a.spell == nil {
		return nil
	}
	list := slices.Clone(*a.list(g)) // the caller's stays as it is
	for i, v := range list {
		var err error
		if list[i], err = a.spell(v); err != nil {
			return err
		}
	}
	*a.list(g) = list
	return nil
}

func (a values[T]) vary(cases []Case, g *Grid) ([]Case, error) {
	if a.field == nil || a.tied {
		return cases, nil
	}
	list := *a.list(g)
	out := make([]Case, 0, len(cases)*len(list))
	for _, c := range cases {
		for _, v := range list {
			one := c
			if a.only == nil || a.only(c) {
				*a.field(&one) = v
				a.derive(&one)
			}
			out = append(out, one)
		}
	}
	return out, nil
}

func (a values[T]) wants(g *Grid, c *Case) bool {
	return !a.given(g) || a.field == nil || slices.Contains(*a.list(g), *a.field(c))
}

func (a values[T]) in(c *Case) any {
	if a.field == nil {
		return nil
	}
	return a.field(c)
}

func (a values[T]) clear(c *Case) {
	var zero T
	*a.field(c) = zero
}

func (a values[T]) derive(c *Case) {
	var zero T
	if a.zero != nil && *a.field(c) == zero {
		*a.field(c) = a.zero(*c)
	}
}

func (a values[T]) read(c *Case) (err error) {
	if a.spell != nil {
		*a.field(c), err = a.spell(*a.field(c))
	}
	return err
}

func (a values[T]) check(name string, c *Case) error {
	if a.field == nil || a.rule == nil {
		return nil
	}
	if v := *a.field(c); a.rule(v) != "" {
		return fmt.Errorf("%s is %v: it must be %s", name, v, a.rule(v))
	}
	return nil
}

// inOrder sorts what is named first, in that order, and leaves the rest as it stands.
func inOrder[T any](all []T, first []string, name func(T) string) []T {
	rank := make(map[string]int, len(first))
	for i, s := range first {
		rank[s] = i - len(first)
	}
	out := slices.Clone(all)
	slices.SortStableFunc(out, func(a, b T) int { return rank[name(a)] - rank[name(b)] })
	return out
}

package view

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/lists"
)

// Subject is what is looked at: queries and keys of one or more layers.
type Subject struct {
	Name   string
	Layers []Layer
	Text   []rune // a character of each key, at which the last queries stand; nil where there is no text
}

// Layer is the attention of one layer.
type Layer struct {
	Name            string
	Heads, KeyHeads int // KeyHeads divides Heads
	Queries, Keys   int
	Dim             int
	Causal          bool         // as the model has it
	Window          int          // likewise: keys to the left of a query's own; 0: none
	Temperature     float64      // likewise: scores are q·k/√Dim over it; 0 means 1
	Q, K            []float32    // [Heads, Queries, Dim] and [KeyHeads, Keys, Dim]
	Lists           *lists.Lists // which keys each query lists; nil: there are none
}

// listed says whether a layer has lists.
func (s *Subject) listed() bool {
	return slices.ContainsFunc(s.Layers, func(l Layer) bool { return l.Lists != nil })
}

// check says what is wrong with a subject.
func (s *Subject) check() error {
	if len(s.Layers) == 0 {
		return fmt.Errorf("view: %s has no layer", s.Name)
	}
	for _, l := range s.Layers {
		switch {
		case l.Heads < 1 || l.KeyHeads < 1 || l.Heads%l.KeyHeads != 0:
			return fmt.Errorf("view: %s: %d query heads on %d key heads: the second must divide the first", l.Name, l.Heads, l.KeyHeads)
		case l.Queries < 1 || l.Keys < 1 || l.Dim < 1:
			return fmt.Errorf("view: %s: %d queries, %d keys, head dimension %d: each must be at least 1", l.Name, l.Queries, l.Keys, l.Dim)
		case len(l.Q) != l.Heads*l.Queries*l.Dim || len(l.K) != l.KeyHeads*l.Keys*l.Dim:
			return fmt.Errorf("view: %s: %d numbers of q and %d of k do not suit its shape", l.Name, len(l.Q), len(l.K))
		case l.Lists != nil && (l.Lists.Queries != l.Queries || l.Lists.Keys != l.Keys || l.KeyHeads%l.Lists.Heads != 0):
			return fmt.Errorf("view: %s: lists of %d heads, %d queries and %d keys do not suit its shape", l.Name, l.Lists.Heads,
				l.Lists.Queries, l.Lists.Keys)
		}
	}
	return nil
}

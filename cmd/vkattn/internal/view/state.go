package view

import (
	"math"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/picture"
)

// Rect is a part of the matrix of weights.
type Rect struct{ Query, Key, Queries, Keys int }

// Pool is what a cell of a map shows of its weights.
type Pool int

// The kinds of pooling.
const (
	PoolMax Pool = iota
	PoolMean
	PoolSum
	pools
)

// String returns the word for it.
func (p Pool) String() string { return [...]string{"largest", "mean", "sum"}[p] }

// decades of weights below the peak that a logarithmic scale shows.
const decades = 4

// State is what is shown. Keys and the mouse change it.
type State struct {
	Subject *Subject
	Layer   int // shown
	Head    int // that is shown large
	Options Options
	View    Rect // of the head that is shown large
	Pool    Pool
	Lists   Lists
	Colors  int  // of picture.Scales
	Log     bool // logarithmic colours
	Common  bool // one scale for all heads
	Help    bool
	Running bool // attention is computed in every frame
	Quit    bool

	Width, Height int     // of the window, in pixels
	Scale         float64 // of the display: 2 on one with twice the pixels

	pointer   struct{ x, y int }
	inside    bool // the pointer is in the window
	dragging  drag
	dragFrom  Rect // of the view, when the drag began
	dragX     int
	dragY     int
	dragIndex int // of the slider
}

type drag int

const (
	noDrag drag = iota
	dragView
	dragSlider
)

// New shows a subject from its beginning. The error says what is wrong with it.
func New(subject *Subject, width, height int) (*State, error) {
	if err := subject.check(); err != nil {
		return nil, err
	}
	s := &State{Subject: subject, Log: true, Scale: 1}
	s.Resize(width, height, 1)
	s.show(0)
	return s, nil
}

// LayerShown is the layer that is shown.
func (s *State) LayerShown() *Layer { return &s.Subject.Layers[s.Layer] }

// show goes to a layer. The view stays where it is if it can.
func (s *State) show(layer int) {
	before := *s.LayerShown()
	s.Layer = (layer + len(s.Subject.Layers)) % len(s.Subject.Layers)
	l := s.LayerShown()
	s.Options = usualOptions(l)
	s.Head = min(s.Head, l.Heads-1)
	if s.View == (Rect{}) || before.Queries != l.Queries || before.Keys != l.Keys {
		s.View = s.whole()
	}
}

// listing is what is shown of the layer's lists.
func (s *State) listing() Lists {
	if s.LayerShown().Lists == nil {
		return NoLists
	}
	return s.Lists
}

func (s *State) whole() Rect { l := s.LayerShown(); return Rect{0, 0, l.Queries, l.Keys} }

// Resize notes the window's size in pixels and the display's scale.
func (s *State) Resize(width, height int, scale float64) {
	s.Width, s.Height = max(width, 1), max(height, 1)
	if s.Scale = scale; !(scale >= 0.5 && scale <= 8) {
		s.Scale = 1
	}
}

// leastZoom is how many queries and keys a view has at least.
const leastZoom = 4

// zoom makes the view smaller by a factor about a point of it, whose place is given from 0 to 1.
func (s *State) zoom(factor, atX, atY float64) {
	whole := s.whole()
	axis := func(first, n, all int, at float64) (int, int) {
		size := min(max(int(math.Round(float64(n)/factor)), min(leastZoom, all)), all)
		if factor > 1 && size == n && n > min(leastZoom, all) {
			size-- // so that every step does something
		}
		fixed := float64(first) + at*float64(n)
		return min(max(int(math.Round(fixed-at*float64(size))), 0), all-size), size
	}
	s.View.Key, s.View.Keys = axis(s.View.Key, s.View.Keys, whole.Keys, atX)
	s.View.Query, s.View.Queries = axis(s.View.Query, s.View.Queries, whole.Queries, atY)
}

// pan moves the view to a first query and key, or as near as there is something to see.
func (s *State) pan(query, key int) {
	whole := s.whole()
	s.View.Query = min(max(query, 0), whole.Queries-s.View.Queries)
	s.View.Key = min(max(key, 0), whole.Keys-s.View.Keys)
}

// Work is what the picture needs computed. Each part is comparable: where it is as before, what was computed is still right.
type Work struct {
	Attention AttentionWork // attention, for lse
	Grid      MapWork       // of all heads
	Large     MapWork       // of one
	Hover     HoverWork
}

// AttentionWork is what attention depends on.
type AttentionWork struct {
	Layer   int
	Options Options
	Listed  bool // over the listed keys alone
}

// MapWork is what a map depends on besides.
type MapWork struct {
	Of            AttentionWork
	Head, Heads   int // the first, and how many
	View          Rect
	Rows, Columns int
	Pool          Pool
}

// HoverWork is the pair whose weight is told; Valid says whether there is one.
type HoverWork struct {
	Of               AttentionWork
	Head, Query, Key int
	Valid            bool
}

// Work says what is needed for the picture as it is now.
func (s *State) Work() Work {
	l, a := s.LayerShown(), AttentionWork{s.Layer, s.Options, s.listing() == OnlyLists}
	lay := s.Layout()
	w := Work{Attention: a}
	if lay.Large.W > 0 {
		w.Large = MapWork{a, s.Head, 1, s.View, min(lay.Large.H, s.View.Queries), min(lay.Large.W, s.View.Keys), s.Pool}
	}
	if lay.ThumbSide > 0 {
		w.Grid = MapWork{a, 0, l.Heads, s.whole(), min(lay.ThumbSide, l.Queries), min(lay.ThumbSide, l.Keys), s.Pool}
	}
	if h, ok := s.Hover(); ok {
		w.Hover = HoverWork{a, h.Head, h.Query, h.Key, true}
	}
	return w
}

// Hover is what the pointer is over.
type Hover struct {
	Head       int
	Query, Key int  // the pair in the middle of the cell, or the pair itself
	Cell       Rect // all pairs of the cell
}

// Hover says what the pointer is over, and whether it is over a map.
func (s *State) Hover() (Hover, bool) {
	if !s.inside || s.Help || s.dragging == dragSlider {
		return Hover{}, false
	}
	l, lay := s.LayerShown(), s.Layout()
	if lay.Large.has(s.pointer.x, s.pointer.y) {
		return s.hoverIn(lay.Large, s.Head, s.View, min(lay.Large.H, s.View.Queries), min(lay.Large.W, s.View.Keys)), true
	}
	for h, box := range lay.Thumbs {
		if box.has(s.pointer.x, s.pointer.y) {
			return s.hoverIn(box, h, s.whole(), min(lay.ThumbSide, l.Queries), min(lay.ThumbSide, l.Keys)), true
		}
	}
	return Hover{}, false
}

// hoverIn finds the cell as the shader does: cell y of n holds what stands from floor(y·length/n) on.
func (s *State) hoverIn(b Box, head int, view Rect, rows, columns int) Hover {
	row, column := (s.pointer.y-b.Y)*rows/b.H, (s.pointer.x-b.X)*columns/b.W
	q0, q1 := partBegin(row, view.Queries, rows), partBegin(row+1, view.Queries, rows)
	k0, k1 := partBegin(column, view.Keys, columns), partBegin(column+1, view.Keys, columns)
	cell := Rect{view.Query + q0, view.Key + k0, q1 - q0, k1 - k0}
	return Hover{Head: head, Query: cell.Query + cell.Queries/2, Key: cell.Key + cell.Keys/2, Cell: cell}
}

// partBegin is where the n-th of so many parts of a length begins.
func partBegin(n, length, parts int) int { return n * length / parts }

// Joint says whether one peak scales the colours of all heads: they are all there to be scaled.
func (s *State) Joint() bool { return s.Common && s.Layout().ThumbSide > 0 }

// ColorMap is the one in use.
func (s *State) ColorMap() *picture.Colors { return picture.Scales[s.Colors] }

// Range is where numbers stand on the colours, the largest of which is the peak.
func (s *State) Range(peak float64) picture.Range {
	if s.Log {
		return picture.Decades(peak, decades)
	}
	return picture.Range{High: peak}
}

// Decades is the reach of a logarithmic scale, 0 where it is linear.
func (s *State) Decades() float64 {
	if s.Log {
		return decades
	}
	return 0
}

package view

import "math"

// Kind is what an item draws.
type Kind uint32

// The kinds. shaders/view/view_draw.comp knows them by number.
const (
	Fill    Kind = iota // Color, over what is there as far as its alpha says
	Letter              // Color, as far as the letter covers a pixel
	Picture             // a map, through the table of colours
	Ramp                // the colours of the table from left to right
)

// Color is 0xAARRGGBB.
type Color uint32

// Item is a rectangle of the picture. Items of one layer do not overlap.
type Item struct {
	Kind  Kind
	Box   Box
	Whole Box // that Box is a piece of; a Letter's, Picture's and Ramp's content is spread over it
	Color Color

	// Of a Letter, where its coverage begins. Of a Picture, its first cell in the maps, with rows and columns of cells.
	At            int
	Rows, Columns int
	Peak          int // which of the peaks stands for the last colour
	Decades       float64
	Table         int // of the colours

	// Of a Picture with lists: the word after that in which the bits of its head begin, 0 without lists, the words of a row of bits, and
	// the pairs that the picture is of.
	Marks, Pitch int
	View         Rect
}

// ItemWords is the length of an item as the shader reads it.
const ItemWords = 17

// tile is the side of the largest piece: what one workgroup draws.
const tile = 64

// appendItem cuts an item into pieces of at most tile × tile pixels that lie within the window.
func appendItem(words []uint32, i Item, width, height int) []uint32 {
	if i.Whole == (Box{}) {
		i.Whole = i.Box
	}
	x0, y0 := max(i.Box.X, 0), max(i.Box.Y, 0)
	x1, y1 := min(i.Box.X+i.Box.W, width), min(i.Box.Y+i.Box.H, height)
	pair := func(a, b int) uint32 { return uint32(a)&0xffff | uint32(b)<<16 }
	for y := y0; y < y1; y += tile {
		for x := x0; x < x1; x += tile {
			words = append(words, uint32(i.Kind), pair(x, y), pair(min(x+tile, x1)-x, min(y+tile, y1)-y), pair(i.Whole.X, i.Whole.Y),
				pair(i.Whole.W, i.Whole.H), uint32(i.Color), uint32(i.At), pair(i.Columns, i.Rows),
				uint32(i.Peak), math.Float32bits(float32(i.Decades)), uint32(i.Table),
				uint32(i.Marks), uint32(i.Pitch), uint32(i.View.Query), uint32(i.View.Key), uint32(i.View.Queries), uint32(i.View.Keys))
		}
	}
	return words
}

// Scene is a picture: layers of items, each over those before.
type Scene struct {
	Width, Height int
	Layers        [][]Item
}

// Encode gives all items as the shader reads them, and how many there are in each layer. It reuses words.
func (s *Scene) Encode(words []uint32) (_ []uint32, counts []int) {
	words = words[:0]
	for _, layer := range s.Layers {
		before := len(words)
		for _, i := range layer {
			words = appendItem(words, i, s.Width, s.Height)
		}
		counts = append(counts, (len(words)-before)/ItemWords)
	}
	return words, counts
}

package view

import (
	"fmt"
	"math"
)

// Options are what of the attention can be changed while it is looked at.
type Options struct {
	Causal      bool
	Window      int     // keys to the left of a query's own, and without Causal as many to its right; 0: all
	Slope       float64 // ALiBi's slope of head h is Slope · 2^(−8(h+1)/Heads); 0: none
	Softcap     float64 // c of c·tanh(s/c); 0: none
	Temperature float64 // scores are divided by it
	Blocks      Blocks
}

// Blocks are block masks to look at attention through.
type Blocks int

// The block masks, of blocks of BlockSize queries and keys.
const (
	NoBlocks      Blocks = iota
	LocalBlocks          // a query's own block, its neighbours, and the first: sliding window with global tokens (Longformer, 2020)
	StridedBlocks        // the own block, and every fourth before or after it (Sparse Transformers, 2019)
	blockMasks
)

// String returns the mask's name.
func (b Blocks) String() string { return [...]string{"off", "local", "strided"}[b] }

// Sees says whether the mask has block column c in block row r.
func (b Blocks) Sees(r, c int) bool {
	switch b {
	case LocalBlocks:
		return c == 0 || c >= r-1 && c <= r+1
	case StridedBlocks:
		return (c-r)%4 == 0
	}
	return true
}

// Lists are what is shown of lists of keys.
type Lists int

// What lists do to the picture, in layers that have some.
const (
	MarkLists Lists = iota // weights of all keys, those of pairs that are not listed in grey
	OnlyLists              // attention over the listed keys alone
	NoLists                // as if there were none
	listModes
)

// String returns the word for it.
func (l Lists) String() string { return [...]string{"marked", "only", "off"}[l] }

// BlockSize is the side of a block: 64, or less where there would be too few to see.
func (l *Layer) BlockSize() int {
	for size := 64; size > 8; size /= 2 {
		if min(l.Queries, l.Keys) >= 8*size {
			return size
		}
	}
	return 8
}

func usualOptions(l *Layer) Options {
	o := Options{Causal: l.Causal, Window: l.Window, Temperature: 1}
	if l.Temperature > 0 {
		o.Temperature = l.Temperature
	}
	return o
}

// slider is an option with a range.
type slider struct {
	name string
	get  func(o *Options, l *Layer) float64 // its place, from 0 to 1
	set  func(o *Options, l *Layer, at float64)
	text func(o *Options) string
}

// Ends of the sliders.
const (
	mostSlope                         = 4
	leastSoftcap, mostSoftcap         = 0.1, 100
	leastTemperature, mostTemperature = 0.1, 10
)

// place is where a number stands on a logarithmic scale, from 0 to 1; value is its inverse.
func place(x, least, most float64) float64  { return math.Log(x/least) / math.Log(most/least) }
func value(at, least, most float64) float64 { return least * math.Pow(most/least, at) }

// off is where a slider that ends in "none" begins to mean it.
const off = 0.995

var sliders = []slider{
	{"window", func(o *Options, l *Layer) float64 {
		if o.Window == 0 {
			return 1
		}
		return place(float64(o.Window), 1, float64(max(l.Keys, 2))) * off
	}, func(o *Options, l *Layer, at float64) {
		if o.Window = 0; at < off {
			o.Window = max(1, int(math.Round(value(at/off, 1, float64(max(l.Keys, 2))))))
		}
	}, func(o *Options) string {
		if o.Window == 0 {
			return "all"
		}
		return fmt.Sprint(o.Window)
	}},
	{"ALiBi slope", func(o *Options, _ *Layer) float64 { return math.Sqrt(o.Slope / mostSlope) },
		func(o *Options, _ *Layer, at float64) { o.Slope = at * at * mostSlope },
		func(o *Options) string {
			if o.Slope == 0 {
				return "off"
			}
			return fmt.Sprintf("%.3g", o.Slope)
		}},
	{"softcap", func(o *Options, _ *Layer) float64 {
		if o.Softcap == 0 {
			return 1
		}
		return place(o.Softcap, leastSoftcap, mostSoftcap) * off
	}, func(o *Options, _ *Layer, at float64) {
		if o.Softcap = 0; at < off {
			o.Softcap = value(at/off, leastSoftcap, mostSoftcap)
		}
	}, func(o *Options) string {
		if o.Softcap == 0 {
			return "off"
		}
		return fmt.Sprintf("%.3g", o.Softcap)
	}},
	{"temperature", func(o *Options, _ *Layer) float64 { return place(o.Temperature, leastTemperature, mostTemperature) },
		func(o *Options, _ *Layer, at float64) {
			if o.Temperature = value(at, leastTemperature, mostTemperature); math.Abs(at-0.5) < 0.01 {
				o.Temperature = 1 // easy to find again
			}
		},
		func(o *Options) string { return fmt.Sprintf("%.3g", o.Temperature) }},
}

// step moves a slider by a part of its way.
func (s *State) step(which int, by float64) {
	sl, l := &sliders[which], s.LayerShown()
	sl.set(&s.Options, l, min(max(sl.get(&s.Options, l)+by, 0), 1))
}

// Package picture draws maps of attention weights: numbers as colours that eyes of every kind tell apart, and grids of them with axes, as
// PNG and SVG.
package picture

import (
	"image/color"
	"math"
)

// Colors is a scale of colours, of which lightness alone tells the number: darker is less in all of them.
type Colors struct {
	Name string
	at   func(t float64) (r, g, b float64) // of 0 to 1, each 0 to 1
}

// Scales are the colours there are, the one that is usual first.
var Scales = []*Colors{
	// Made for eyes with and without colour blindness: Nuñez, Anderton, Renslow, "Optimizing colormaps with consideration for color vision
	// deficiency", PLoS ONE 13 (2018); the polynomials are those of d3-scale-chromatic (M. Bostock, ISC licence).
	{"cividis", func(t float64) (r, g, b float64) {
		return (-4.54 - t*(35.34-t*(2381.73-t*(6402.7-t*(7024.72-t*2710.57))))) / 255,
			(32.49 + t*(170.73+t*(52.82-t*(131.46-t*(176.58-t*67.37))))) / 255,
			(81.24 + t*(442.36-t*(2482.43-t*(6167.24-t*(6614.94-t*2475.67))))) / 255
	}},
	// S. van der Walt and N. Smith, matplotlib's default (2015); the polynomials are M. Zucker's fit (CC0), within 2 of 255.
	{"viridis", func(t float64) (r, g, b float64) {
		of := func(c [7]float64) (y float64) {
			for i := len(c) - 1; i >= 0; i-- {
				y = y*t + c[i]
			}
			return y
		}
		return of([7]float64{0.2777273272234177, 0.1050930431085774, -0.3308618287255563, -4.634230498983486, 6.228269936347081,
				4.776384997670288, -5.435455855934631}),
			of([7]float64{0.005407344544966578, 1.404613529898575, 0.214847559468213, -5.799100973351585, 14.17993336680509,
				-13.74514537774601, 4.645852612178535}),
			of([7]float64{0.3340998053353061, 1.384590162594685, 0.09509516302823659, -19.33244095627987, 56.69055260068105,
				-65.35303263337234, 26.3124352495832})
	}},
	{"grey", func(t float64) (r, g, b float64) { return t, t, t }},
}

// ColorsNamed is the scale of a name, nil for none.
func ColorsNamed(name string) *Colors {
	for _, c := range Scales {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// At is the colour of a number from 0 to 1; what lies outside, and what is no number, is taken to the nearest, or 0.
func (c *Colors) At(t float64) color.NRGBA {
	if !(t > 0) {
		t = 0
	}
	r, g, b := c.at(math.Min(t, 1))
	byteOf := func(x float64) uint8 { return uint8(math.Round(255 * math.Min(math.Max(x, 0), 1))) }
	return color.NRGBA{byteOf(r), byteOf(g), byteOf(b), 255}
}

// Table is 256 colours, evenly spaced, as bytes R, G, B, A: what a shader looks numbers up in.
func (c *Colors) Table() (rgba [4 * 256]byte) {
	for i := range 256 {
		x := c.At(float64(i) / 255)
		copy(rgba[4*i:], []byte{x.R, x.G, x.B, x.A})
	}
	return rgba
}

// Range is how numbers become places on a scale of colours: 0 or less stands at Low, High or more at its end.
type Range struct {
	Low, High float64
	Log       bool // by their logarithms, Low > 0
}

// Decades is a logarithmic range of so many powers of ten below the highest number.
func Decades(high, n float64) Range {
	return Range{Low: high * math.Pow(10, -n), High: high, Log: true}
}

// Of is the place of a number, from 0 to 1.
func (r Range) Of(x float64) float64 {
	switch {
	case !(x > r.Low) || !(r.High > r.Low):
		return 0
	case x >= r.High:
		return 1
	case r.Log:
		return math.Log(x/r.Low) / math.Log(r.High/r.Low)
	}
	return (x - r.Low) / (r.High - r.Low)
}

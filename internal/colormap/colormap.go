// Package colormap turns numbers into colours that keep their order for every reader.
//
// The lightness of each map rises evenly from its first colour to its last, so that a larger number looks larger on paper in black and white and to readers
// who see red and green alike; no map rests on hue.
package colormap

import "math"

// RGB is a colour of the sRGB space as 0xRRGGBB.
type RGB uint32

// Channels are red, green and blue.
func (c RGB) Channels() (r, g, b uint8) { return uint8(c >> 16), uint8(c >> 8), uint8(c) }

// Size is the number of colours of a map.
const Size = 256

// Map is a sequence of colours, from that of the smallest number to that of the largest.
type Map struct {
	Name   string
	Colors [Size]RGB
}

// Maps are all there are, the usual one first.
//
// viridis and magma are matplotlib's (Stéfan van der Walt and Nathaniel Smith, 2015; CC0), every fifth of their 256 colours, and what lies between on straight
// lines. cividis is Nuñez, Anderton and Renslow, "Optimizing colormaps with consideration for color vision deficiency", 2018, at sixteen places.
var Maps = []Map{
	make256("viridis",
		0x440154, 0x46085c, 0x471063, 0x481769, 0x481d6f, 0x482475, 0x472a7a, 0x46307e, 0x453781, 0x433d84, 0x414287, 0x3f4889, 0x3d4e8a,
		0x3a538b, 0x38598c, 0x355e8d, 0x33638d, 0x31688e, 0x2e6d8e, 0x2c718e, 0x2a768e, 0x297b8e, 0x27808e, 0x25848e, 0x23898e, 0x218e8d,
		0x20928c, 0x1f978b, 0x1e9c89, 0x1fa188, 0x21a585, 0x24aa83, 0x28ae80, 0x2eb37c, 0x35b779, 0x3dbc74, 0x46c06f, 0x50c46a, 0x5ac864,
		0x65cb5e, 0x70cf57, 0x7cd250, 0x89d548, 0x95d840, 0xa2da37, 0xb0dd2f, 0xbddf26, 0xcae11f, 0xd8e219, 0xe5e419, 0xf1e51d, 0xfde725),
	make256("magma",
		0x000004, 0x02020b, 0x050416, 0x090720, 0x0e0b2b, 0x140e36, 0x1a1042, 0x21114e, 0x29115a, 0x311165, 0x390f6e, 0x420f75, 0x4a1079,
		0x52137c, 0x5a167e, 0x621980, 0x6a1c81, 0x721f81, 0x792282, 0x812581, 0x892881, 0x912b81, 0x992d80, 0xa1307e, 0xaa337d, 0xb2357b,
		0xba3878, 0xc23b75, 0xca3e72, 0xd2426f, 0xd9466b, 0xe04c67, 0xe75263, 0xec5860, 0xf1605d, 0xf4695c, 0xf7725c, 0xf97b5d, 0xfb8560,
		0xfc8e64, 0xfd9869, 0xfea16e, 0xfeaa74, 0xfeb47b, 0xfebd82, 0xfec68a, 0xfecf92, 0xfed89a, 0xfde2a3, 0xfdebac, 0xfcf4b6, 0xfcfdbf),
	make256("cividis",
		0x002051, 0x022c65, 0x14386d, 0x2b446e, 0x42506e, 0x575c6e, 0x696970, 0x787573, 0x868276, 0x948f78, 0xa49d78, 0xb6ab73, 0xcaba6a,
		0xe0c95d, 0xf2d950, 0xfdea45),
	make256("grey", 0x000000, 0xffffff),
}

// make256 draws straight lines between colours that stand at equal distances.
func make256(name string, stops ...RGB) Map {
	m := Map{Name: name}
	for i := range m.Colors {
		at := float64(i) / (Size - 1) * float64(len(stops)-1)
		n := min(int(at), len(stops)-2)
		f := at - float64(n)
		r0, g0, b0 := stops[n].Channels()
		r1, g1, b1 := stops[n+1].Channels()
		between := func(a, b uint8) RGB { return RGB(math.Round(float64(a) + f*(float64(b)-float64(a)))) }
		m.Colors[i] = between(r0, r1)<<16 | between(g0, g1)<<8 | between(b0, b1)
	}
	return m
}

// Position is where a number from 0 to peak stands on a map, from 0 to 1: its share of peak, or with decades > 0 on a logarithmic
// scale that ends at peak and begins that many powers of ten below. It is 0 where peak is.
func Position(value, peak, decades float64) float64 {
	if !(peak > 0) || !(value > 0) {
		return 0
	}
	p := value / peak
	if decades > 0 {
		p = 1 + math.Log10(p)/decades
	}
	return min(max(p, 0), 1)
}

// Index is the number of the colour at a position.
func Index(position float64) int { return int(math.Floor(position*(Size-1) + 0.5)) }

package figure

import (
	"fmt"
	"image/color"
	"math"
	"strings"
)

// tone is one colour of a figure on a light and on a dark page. Drawings hold the light one; Inline puts a variable of the
// page in its place. None is plain black, which SVG leaves unsaid.
type tone struct{ name, light, dark string }

var (
	ink   = tone{"ink", "#1B1F24", "#E6E8EB"}
	muted = tone{"muted", "#5E6772", "#9AA4B0"}
	rule  = tone{"rule", "#DDE1E6", "#343B44"}
	paper = tone{"paper", "#FFFFFF", "#15191E"}

	// Colours near those of Okabe and Ito (jfly.uni-koeln.de/color), which are told apart by eyes of every kind. Some of theirs are too
	// pale for thin lines on white, and on black others are too dark: these were moved until each stands out from the page (contrast
	// of 3 at the least) and each pair is apart for normal eyes and for all three kinds of colour blindness, as simulated after
	// Machado, Oliveira and Fernandes (2009): TestColoursAreToldApart.
	series = []tone{
		{"c0", "#1E649B", "#6994F0"}, // flash2
		{"c1", "#133C46", "#D6ECFF"}, // standard
		{"c2", "#269069", "#54CC85"}, // flash1
		{"c3", "#E1649C", "#C5A4CD"}, // blocksparse
		{"c4", "#C2510C", "#FF8108"}, // fa2
		{"c5", "#B88B0E", "#F1CE1E"}, // cudnn
		{"c6", "#4498DD", "#6A6AE7"}, // efficient
		{"c7", "#8B3B12", "#A77461"}, // flex
		{"c8", "#858B94", "#8B939E"}, // others
	}
)

func tones() []tone { return append([]tone{ink, muted, rule, paper}, series...) }

// Variables is the CSS that defines the colours of inlined figures, for light or dark pages.
func Variables(dark bool) string {
	var b strings.Builder
	for _, t := range tones() {
		v := t.light
		if dark {
			v = t.dark
		}
		fmt.Fprintf(&b, "--%s:%s;", t.name, v)
	}
	return b.String()
}

func (t tone) color() color.Color { return parse(t.light) }

func parse(hex string) color.Color {
	var c color.NRGBA
	c.A = 255
	_, _ = fmt.Sscanf(hex, "#%02x%02x%02x", &c.R, &c.G, &c.B)
	return c
}

// toneOf is the colour of an implementation, the same in every figure.
func toneOf(impl string) tone {
	for i, name := range []string{"flash2", "standard", "flash1", "blocksparse", "fa2", "cudnn", "efficient", "flex"} {
		if impl == name {
			return series[i]
		}
	}
	return series[len(series)-1]
}

// heatColor runs from a pale to a deep blue, one hue whose lightness alone tells; text on it is the one of dark and white that stands
// out more.
func heatColor(share float64) (fill, text color.Color) {
	lo, hi := [3]float64{222, 235, 247}, [3]float64{8, 48, 107}
	mix := func(i int) uint8 { return uint8(math.Round(lo[i] + (hi[i]-lo[i])*share)) }
	fill = color.NRGBA{mix(0), mix(1), mix(2), 255}
	dark, light := parse("#000002"), parse("#FFFFFE") // not the page's, nor plain black, which SVG leaves unsaid
	if contrast(fill, dark) > contrast(fill, light) {
		return fill, dark
	}
	return fill, light
}

// contrast is that of WCAG 2: (L₁ + 0.05) / (L₂ + 0.05) of the relative luminances, the larger one first.
func contrast(a, b color.Color) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

func luminance(c color.Color) float64 {
	v := linear(c)
	return 0.2126*v[0] + 0.7152*v[1] + 0.0722*v[2]
}

// linear undoes the gamma of sRGB.
func linear(c color.Color) (out [3]float64) {
	r, g, b, _ := c.RGBA()
	for i, v := range []uint32{r, g, b} {
		s := float64(v) / 0xffff
		if s <= 0.04045 {
			out[i] = s / 12.92
		} else {
			out[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return out
}

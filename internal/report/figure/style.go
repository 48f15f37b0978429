package figure

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot/vg/draw"
)

// tone is one colour of a figure on a light and on a dark page. Drawings hold the light one; Inline puts a variable of the
// page in its place. None is plain black, which SVG leaves unsaid.
type tone struct{ name, light, dark string }

var (
	ink   = tone{"ink", "#1B1F24", "#E6E8EB"}
	muted = tone{"muted", "#5E6772", "#9AA4B0"}
	rule  = tone{"rule", "#DDE1E6", "#343B44"}
	paper = tone{"paper", "#FFFFFF", "#15191E"}

	series = []tone{
		{"c0", "#1D4ED8", "#7AA2FF"}, // flash2
		{"c1", "#C2410C", "#FF9A5C"}, // standard
		{"c2", "#0F766E", "#3CCFBF"}, // flash1
		{"c3", "#7E22CE", "#C896FF"}, // blocksparse
		{"c4", "#15803D", "#5DD58A"}, // fa2
		{"c5", "#BE185D", "#FF86B4"}, // cudnn
		{"c6", "#A16207", "#E5B84B"}, // others
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
	for i, name := range []string{"flash2", "standard", "flash1", "blocksparse", "fa2", "cudnn"} {
		if impl == name {
			return series[i]
		}
	}
	return series[6]
}

// markers tell sources apart.
var markers = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{}}

func markerOf(s Series) draw.GlyphDrawer {
	if s.Dashed && s.Source == 0 {
		return draw.RingGlyph{}
	}
	return markers[s.Source%len(markers)]
}

// heatColor runs from a pale to a deep blue; ink on it is dark or light.
func heatColor(share float64) (fill, text color.Color) {
	lo, hi := [3]float64{219, 234, 254}, [3]float64{23, 37, 120}
	mix := func(i int) uint8 { return uint8(lo[i] + (hi[i]-lo[i])*share) }
	fill = color.NRGBA{mix(0), mix(1), mix(2), 255}
	if share > 0.45 {
		return fill, parse("#FDFDFE")
	}
	return fill, parse("#0B1220")
}

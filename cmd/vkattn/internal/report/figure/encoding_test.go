package figure

import (
	"fmt"
	"image/color"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// sight is what a kind of colour blindness makes of linear sRGB: the matrices of Machado, Oliveira and Fernandes, A Physiologically-based
// Model for Simulation of Color Vision Deficiency, IEEE TVCG 15(6), 2009, at severity 1.
var sight = map[string][9]float64{
	"normal":       {1, 0, 0, 0, 1, 0, 0, 0, 1},
	"protanopia":   {0.152286, 1.052583, -0.204868, 0.114503, 0.786281, 0.099216, -0.003882, -0.048116, 1.051998},
	"deuteranopia": {0.367322, 0.860646, -0.227968, 0.280085, 0.672501, 0.047413, -0.011820, 0.042940, 0.968881},
	"tritanopia":   {1.255528, -0.076749, -0.178779, -0.078411, 0.930809, 0.147602, 0.004733, 0.691367, 0.303900},
}

// oklab is Ottosson's perceptual space, in which the distance of colours is about what eyes make of it: 0.02 is just seen.
func oklab(c color.Color, m [9]float64) (out [3]float64) {
	v := linear(c)
	var seen [3]float64
	for i := range seen {
		seen[i] = min(1, max(0, m[3*i]*v[0]+m[3*i+1]*v[1]+m[3*i+2]*v[2]))
	}
	r, g, b := seen[0], seen[1], seen[2]
	l := math.Cbrt(0.4122214708*r + 0.5363325363*g + 0.0514459929*b)
	n := math.Cbrt(0.2119034982*r + 0.6806995451*g + 0.1073969566*b)
	s := math.Cbrt(0.0883024619*r + 0.2817188376*g + 0.6299787005*b)
	return [3]float64{0.2104542553*l + 0.7936177850*n - 0.0040720468*s, 1.9779984951*l - 2.4285922050*n + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*n - 0.8086757660*s}
}

func distance(a, b [3]float64) float64 {
	return math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2])
}

// Every two named implementations are apart by four times what is just seen, for eyes of every kind, and each stands out from the page.
func TestColoursAreToldApart(t *testing.T) {
	for _, dark := range []bool{false, true} {
		of := func(x tone) color.Color {
			if dark {
				return parse(x.dark)
			}
			return parse(x.light)
		}
		named := series[:len(series)-1]
		for i, a := range named {
			require.GreaterOrEqual(t, contrast(of(a), of(paper)), 3.0, "%s, dark %t", a.name, dark)
			for _, b := range named[:i] {
				for name, m := range sight {
					require.Greater(t, distance(oklab(of(a), m), oklab(of(b), m)), 0.08, "%s and %s, %s, dark %t", a.name, b.name,
						name, dark)
				}
			}
		}
	}
}

func TestNumbersOfAMapAreRead(t *testing.T) {
	for i := range 101 {
		fill, text := heatColor(float64(i) / 100)
		require.GreaterOrEqual(t, contrast(fill, text), 4.5, i)
	}
}

// Eight files and two programs: every series of a figure has a look of its own, in all figures the same.
func TestNoTwoSeriesLookAlike(t *testing.T) {
	var files []*result.File
	for i := range 8 {
		f := &result.File{Path: fmt.Sprintf("run%d.jsonl", i), Headers: []result.Header{{VKAttn: "1", Device: "GPU"}}}
		for _, impl := range []string{"flash2", "standard", "another", "a third"} {
			for _, library := range []string{"vkattn 1", "torch 2", fmt.Sprintf("other %d", i)} {
				for n := 128; n <= 512; n *= 2 {
					r := small(impl, n, float64(n+i))
					r.Library, r.Bwd = library, result.Pass{Ms: float64(2*n + i)}
					causal := r
					causal.Causal = true
					f.Rows = append(f.Rows, r, causal)
				}
			}
		}
		files = append(files, f)
	}
	type appearance struct {
		tone    tone
		peer    bool
		mark    int
		variant Variant
	}
	marks := map[string]int{}
	for _, f := range Build(NewSources(files)) {
		seen := map[appearance]string{}
		for _, s := range f.Series {
			a := appearance{toneOf(s.Impl), s.Peer, s.Mark, s.Variant}
			require.Empty(t, seen[a], "%s: %s", f.ID, s.Name)
			seen[a] = s.Name
			name, _, _ := strings.Cut(s.Name, ", ")
			if mark, ok := marks[name]; ok {
				require.Equal(t, mark, s.Mark, "%s in %s", name, f.ID)
			}
			marks[name] = s.Mark
			require.Equal(t, strings.Contains(s.Name, "("), s.Peer, s.Name)
			require.Equal(t, strings.HasSuffix(s.Name, ", backward"), s.Variant == Backward, s.Name)
			require.Equal(t, strings.HasSuffix(s.Name, ", causal"), s.Variant == Causal, s.Name)
		}
		if len(f.Series) > 0 {
			_, err := f.SVG()
			require.NoError(t, err, f.ID)
		}
	}
	require.Greater(t, len(marks), 50)
}

// A series of one point has a mark in the legend and no line: flash1 at one batch.
func TestALonelyPointHasNoLine(t *testing.T) {
	lines := func(points int) int {
		f := &Figure{ID: "x", X: "x", Y: "y", LogX: true}
		s := Series{Name: "s", Impl: "flash2"}
		for i := range points {
			s.Points = append(s.Points, Point{X: float64(i + 1), Y: 1})
		}
		f.Series = []Series{s}
		svg, err := f.SVG()
		require.NoError(t, err)
		return strings.Count(string(svg), "stroke:"+series[0].light+";stroke-width:1.6")
	}
	require.Zero(t, lines(1))
	require.Equal(t, 2, lines(2), "the line, and the legend's sample")
}

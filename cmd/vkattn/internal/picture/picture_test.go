package picture

import (
	"bytes"
	"image/png"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestColors: lightness grows all along each scale, so that eyes that see no colours read it too; the ends are those of its authors'
// tables.
func TestColors(t *testing.T) {
	ends := map[string][2][3]uint8{"cividis": {{0, 32, 77}, {255, 234, 70}}, "viridis": {{68, 1, 84}, {253, 231, 37}},
		"grey": {{0, 0, 0}, {255, 255, 255}}}
	for _, c := range Scales {
		table, last := c.Table(), -1.0
		for i := range 256 {
			lin := func(x uint8) float64 { return math.Pow(float64(x)/255, 2.2) }
			light := 0.2126*lin(table[4*i]) + 0.7152*lin(table[4*i+1]) + 0.0722*lin(table[4*i+2])
			require.Greater(t, light, last-1e-3, "%s at %d", c.Name, i)
			last = math.Max(last, light)
			require.EqualValues(t, 255, table[4*i+3])
		}
		for i, want := range ends[c.Name] {
			for j := range 3 {
				require.InDelta(t, want[j], table[4*255*i+j], 6, "%s, end %d", c.Name, i)
			}
		}
		require.Equal(t, c.At(0), c.At(math.NaN()))
		require.Equal(t, c.At(0), c.At(-1))
		require.Equal(t, c.At(1), c.At(7))
		require.Same(t, c, ColorsNamed(c.Name))
	}
	require.Nil(t, ColorsNamed("jet"))
}

func TestRange(t *testing.T) {
	log := Decades(0.5, 2)
	require.InDelta(t, 0.005, log.Low, 1e-12)
	require.InDelta(t, 0.5, log.Of(0.05), 1e-12)
	require.Zero(t, log.Of(0))
	require.Zero(t, log.Of(math.NaN()))
	require.EqualValues(t, 1, log.Of(3))
	require.InDelta(t, 0.25, Range{High: 8}.Of(2), 1e-12)
	require.Zero(t, Range{}.Of(1))
}

func TestTicks(t *testing.T) {
	for _, c := range []struct {
		first, end int
		want       []int
	}{{0, 1, []int{0}}, {0, 512, []int{0, 200, 400}}, {100, 164, []int{100, 120, 140, 160}}, {7, 11, []int{7, 8, 9, 10}}} {
		require.Equal(t, c.want, Ticks(c.first, c.end))
	}
}

// TestGrid: both forms are drawn; a pixel of each cell has the cell's colour.
func TestGrid(t *testing.T) {
	cells := []float32{0, 0.25, 0.5, 1}
	g := &Grid{Title: "t", Caption: []string{"below"}, Panels: []Panel{{"head 0", 2, 2, cells}}, Queries: [2]int{0, 2}, Keys: [2]int{0, 2},
		Colors: Scales[0], Range: Range{High: 1}, Unit: "weight"}
	img := g.pixels(&g.Panels[0], 100, 100)
	for i, x := range cells {
		b := img.Bounds()
		require.Equal(t, g.Colors.At(float64(x)), img.At((2*(i%2)+1)*b.Dx()/4, (2*(i/2)+1)*b.Dy()/4))
	}
	data, err := g.PNG()
	require.NoError(t, err)
	_, err = png.Decode(bytes.NewReader(data))
	require.NoError(t, err)
	svg, err := g.SVG()
	require.NoError(t, err)
	for _, text := range []string{"head 0", "below", "query (token)", "key (token)"} {
		require.Contains(t, string(svg), text)
	}
	g.Panels[0].Columns = 3
	_, err = g.PNG()
	require.ErrorContains(t, err, "4 cells of 2 × 3")
	_, err = (&Grid{}).SVG()
	require.Error(t, err)
}

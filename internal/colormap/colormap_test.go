package colormap

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// lightness is L* of CIELAB, from 0 to 100.
func lightness(c RGB) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	r, g, b := c.Channels()
	y := 0.2126*linear(r) + 0.7152*linear(g) + 0.0722*linear(b)
	if y <= 216.0/24389 {
		return y * 24389 / 27
	}
	return 116*math.Cbrt(y) - 16
}

// What makes a map readable in grey and for everybody: it grows lighter from each eighth to the next, by about as much, and spans
// most of what there is.
func TestLightnessRises(t *testing.T) {
	for _, m := range Maps {
		var steps []float64
		for i := 32; i < Size; i += 32 {
			steps = append(steps, lightness(m.Colors[i])-lightness(m.Colors[i-32]))
		}
		whole := lightness(m.Colors[Size-1]) - lightness(m.Colors[0])
		require.Greater(t, whole, 70.0, m.Name)
		for i, s := range steps {
			require.InDelta(t, whole/8, s, 0.55*whole/8, "%s, step %d", m.Name, i)
		}
		for i := 1; i < Size; i++ {
			require.Greater(t, lightness(m.Colors[i])-lightness(m.Colors[i-1]), -0.6, "%s grows darker at %d", m.Name, i)
		}
	}
}

func TestEnds(t *testing.T) {
	require.EqualValues(t, 0x440154, Maps[0].Colors[0])
	require.EqualValues(t, 0xfde725, Maps[0].Colors[255])
	require.EqualValues(t, 0x46085c, Maps[0].Colors[5], "a stop is met where it stands")
	require.EqualValues(t, 0x808080, Maps[3].Colors[128])
	r, g, b := RGB(0x102030).Channels()
	require.Equal(t, [3]uint8{0x10, 0x20, 0x30}, [3]uint8{r, g, b})
}

func TestPosition(t *testing.T) {
	for _, c := range []struct{ value, peak, decades, want float64 }{
		{0, 1, 0, 0}, {0.25, 1, 0, 0.25}, {1, 1, 0, 1}, {2, 1, 0, 1}, {3, 4, 0, 0.75}, {1, 0, 0, 0}, {0, 0, 4, 0},
		{1, 1, 4, 1}, {0.01, 1, 4, 0.5}, {1e-4, 1, 4, 0}, {1e-9, 1, 4, 0}, {0.2, 2, 2, 0.5}, {math.NaN(), 1, 0, 0},
	} {
		require.InDelta(t, c.want, Position(c.value, c.peak, c.decades), 1e-12, "%+v", c)
	}
	require.Equal(t, 0, Index(0))
	require.Equal(t, 255, Index(1))
	require.Equal(t, 128, Index(0.5))
}

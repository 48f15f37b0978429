package picture

import (
	"image/color"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// lightness is L* of CIELAB, from 0 to 100.
func lightness(c color.NRGBA) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	y := 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
	if y <= 216.0/24389 {
		return y * 24389 / 27
	}
	return 116*math.Cbrt(y) - 16
}

// What makes a scale readable in grey and for everybody: it grows lighter from each eighth to the next, by about as much, and spans most of
// what there is.
func TestLightnessRises(t *testing.T) {
	for _, c := range Scales {
		whole := lightness(c.At(1)) - lightness(c.At(0))
		require.Greater(t, whole, 70.0, c.Name)
		for i := range 8 {
			step := lightness(c.At(float64(i+1)/8)) - lightness(c.At(float64(i)/8))
			require.InDelta(t, whole/8, step, 0.55*whole/8, "%s, step %d", c.Name, i)
		}
		table := c.Table()
		for i := 4; i < len(table); i += 4 {
			before, now := color.NRGBA{table[i-4], table[i-3], table[i-2], 255}, color.NRGBA{table[i], table[i+1], table[i+2], 255}
			require.Greater(t, lightness(now)-lightness(before), -0.6, "%s grows darker at %d", c.Name, i/4)
		}
	}
}

package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/sfnt"
)

// The font has every letter that is shown, one that it has not is shown as a box, and letters cover something.
func TestLetters(t *testing.T) {
	parsed, err := sfnt.Parse(gomono.TTF)
	require.NoError(t, err)
	var b sfnt.Buffer
	for _, r := range letters {
		i, err := parsed.GlyphIndex(&b, r)
		require.NoError(t, err)
		require.NotZero(t, i, "%c", r)
	}
	for _, size := range []float64{14.5, 29, 43} {
		f := newFont(size)
		require.NotEqual(t, f.letter('a'), f.letter('b'))
		require.Equal(t, f.letter('□'), f.letter('漢'))
		require.Equal(t, f.letter('¶'), f.letter('\n'))
		for r, at := range f.at {
			sum := 0
			for _, c := range f.Coverage[at : at+f.Width*f.Height] {
				sum += int(c)
			}
			require.Equal(t, r == ' ', sum == 0, "%q at size %g", r, size)
			require.Zero(t, at%4)
		}
	}
}

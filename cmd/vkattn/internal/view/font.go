package view

import (
	"image"
	"math"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gomono"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// Font is Go Mono at one size: how much of each pixel a letter covers, for all letters that are shown.
type Font struct {
	Width, Height int     // of each letter's cell
	Coverage      []uint8 // cell after cell, row by row; each begins at a multiple of 4
	at            map[rune]int
}

// letters are those that there are besides ASCII's; another is shown as the last.
const letters = "×·→←↑↓µ…−°±≤≥²—–‘’“”éèàçöüäß¶□"

const usualFontSize = 14.5 // pixels, on a display with Scale 1

var fonts sync.Map // of size in quarters of a pixel

// Font is the font of the display's scale.
func (s *State) Font() *Font {
	quarters := int(math.Round(usualFontSize * s.Scale * 4))
	if f, ok := fonts.Load(quarters); ok {
		return f.(*Font)
	}
	f, _ := fonts.LoadOrStore(quarters, newFont(float64(quarters)/4))
	return f.(*Font)
}

func newFont(size float64) *Font {
	parsed, err := opentype.Parse(gomono.TTF)
	if err != nil {
		panic(err) // of a font that is part of the program
	}
	face, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: font.HintingFull})
	if err != nil {
		panic(err)
	}
	defer face.Close()
	advance, _ := face.GlyphAdvance('m')
	metrics := face.Metrics()
	f := &Font{Width: advance.Ceil(), Height: (metrics.Ascent + metrics.Descent).Ceil() + 1, at: map[rune]int{}}
	var all []rune
	for r := rune(' '); r < 0x7f; r++ {
		all = append(all, r)
	}
	cell := (f.Width*f.Height + 3) &^ 3
	for _, r := range append(all, []rune(letters)...) {
		picture := image.NewAlpha(image.Rect(0, 0, f.Width, f.Height))
		d := font.Drawer{Dst: picture, Src: image.Opaque, Face: face, Dot: fixed.Point26_6{Y: metrics.Ascent}}
		d.DrawString(string(r))
		f.at[r] = len(f.Coverage)
		f.Coverage = append(f.Coverage, picture.Pix...)
		f.Coverage = append(f.Coverage, make([]uint8, cell-len(picture.Pix))...)
	}
	return f
}

// letter is where the coverage of a letter begins.
func (f *Font) letter(r rune) int {
	switch r {
	case '\n', '\r':
		r = '¶'
	case '\t', '\u00a0':
		r = ' '
	}
	if at, ok := f.at[r]; ok {
		return at
	}
	return f.at['□']
}

package view

import (
	"fmt"
	"strings"
	"time"
)

// Facts are what the device told, of this frame or the one before.
type Facts struct {
	Device, Kernel string
	Attention, Map time.Duration // 0: not known
	Frame          time.Duration
	FLOPs          float64 // of one attention
	Peak           float64 // of the large map
	Weight         float64 // under the pointer
	Entropy        float64 // of the weights of the query under the pointer, in nats
	Distance       float64 // their mean distance from it
	HasWeight      bool
	Note           string // what cannot be shown, and why; "": nothing

	GridAt, LargeAt int // first cells of the maps
	PeakOf          func(head int) int
	LargePeak       int // number of the large map's peak
}

// Colours of everything but the maps.
const (
	background Color = 0xff15171c
	plate      Color = 0xff20242c
	ink        Color = 0xffe6e9ef
	faint      Color = 0xff929aa8
	accent     Color = 0xffffb454 // of what is chosen; apart from all colours of maps by its outline
	track      Color = 0xff3a404c
	cross      Color = 0x60ffffff
	veil       Color = 0xff101216
	Empty      Color = 0xff2b2e35 // of cells without any weight
)

// builder collects a scene.
type builder struct {
	s                                      *State
	l                                      Layout
	f                                      *Font
	facts                                  *Facts
	ground, maps, marks, text, veils, over []Item
}

// Scene makes the picture.
func (s *State) Scene(facts *Facts) *Scene {
	b := &builder{s: s, l: s.Layout(), f: s.Font(), facts: facts}
	b.ground = []Item{{Kind: Fill, Box: Box{0, 0, s.Width, s.Height}, Color: background}}
	b.large()
	if b.l.Head.W > 0 {
		b.title()
		b.axes()
		b.bar()
		b.panel()
		b.thumbs()
		b.footer()
		if s.Help {
			b.help()
		}
	}
	return &Scene{s.Width, s.Height, [][]Item{b.ground, b.maps, b.marks, b.text, b.veils, b.over}}
}

// write puts text into a layer, cut off where there is no room for it, and gives its end.
func (b *builder) write(to *[]Item, x, y, room int, c Color, text string) int {
	letters := []rune(text)
	if n := max(room/b.f.Width, 0); len(letters) > n {
		if letters = letters[:n]; n > 1 {
			letters[n-1] = '…'
		}
	}
	for _, r := range letters {
		if r != ' ' {
			*to = append(*to, Item{Kind: Letter, Box: Box{x, y, b.f.Width, b.f.Height}, Color: c, At: b.f.letter(r)})
		}
		x += b.f.Width
	}
	return x
}

// outline draws the border of a box, within it.
func outline(to *[]Item, o Box, thick int, c Color) {
	*to = append(*to,
		Item{Kind: Fill, Box: Box{o.X, o.Y, o.W, thick}, Color: c},
		Item{Kind: Fill, Box: Box{o.X, o.Y + o.H - thick, o.W, thick}, Color: c},
		Item{Kind: Fill, Box: Box{o.X, o.Y + thick, thick, o.H - 2*thick}, Color: c},
		Item{Kind: Fill, Box: Box{o.X + o.W - thick, o.Y + thick, thick, o.H - 2*thick}, Color: c})
}

func (b *builder) picture(box Box, head, at, peak int, w MapWork) {
	i := Item{Kind: Picture, Box: box, Color: Empty, At: at, Rows: w.Rows, Columns: w.Columns, Peak: peak, Decades: b.s.Decades(),
		Table: b.s.Colors}
	if b.s.listing() == MarkLists {
		l := b.s.LayerShown()
		i.Pitch, i.View = l.Lists.Pitch(), w.View
		if l.Lists.Shown(l.Heads) == 1 {
			head = 0
		}
		i.Marks = 1 + head*l.Queries*i.Pitch
	}
	b.maps = append(b.maps, i)
}

func (b *builder) large() {
	w := b.s.Work()
	if b.l.Large.W == 0 || b.facts.PeakOf == nil {
		return
	}
	peak := b.facts.LargePeak
	if b.s.Joint() {
		peak = b.facts.PeakOf(-1)
	}
	b.picture(b.l.Large, b.s.Head, b.facts.LargeAt, peak, w.Large)
	if h, ok := b.s.Hover(); ok && h.Head == b.s.Head && b.l.Large.has(b.s.pointer.x, b.s.pointer.y) {
		b.crosshair(h)
	}
}

// crosshair marks the row and the column of the cell.
func (b *builder) crosshair(h Hover) {
	l, v := b.l.Large, b.s.View
	x0, x1 := l.X+(h.Cell.Key-v.Key)*l.W/v.Keys, l.X+(h.Cell.Key-v.Key+h.Cell.Keys)*l.W/v.Keys
	y0, y1 := l.Y+(h.Cell.Query-v.Query)*l.H/v.Queries, l.Y+(h.Cell.Query-v.Query+h.Cell.Queries)*l.H/v.Queries
	x1, y1 = max(x1, x0+1), max(y1, y0+1)
	thin := func(from, to int) (int, int) { // lines beside a cell that is large, through one that is not
		if to-from > 3 {
			return from, 1
		}
		return (from + to) / 2, 1
	}
	x, w := thin(x0, x1)
	y, t := thin(y0, y1)
	b.marks = append(b.marks, Item{Kind: Fill, Box: Box{x, l.Y, w, max(y0-l.Y, 0)}, Color: cross},
		Item{Kind: Fill, Box: Box{x, y1, w, max(l.Y+l.H-y1, 0)}, Color: cross},
		Item{Kind: Fill, Box: Box{l.X, y, max(x0-l.X, 0), t}, Color: cross}, Item{Kind: Fill, Box: Box{x1, y, max(l.X+l.W-x1, 0), t},
			Color: cross})
	if x1-x0 > 3 && y1-y0 > 3 {
		outline(&b.marks, Box{x0, y0, x1 - x0, y1 - y0}, 1, accent)
	}
}

func (b *builder) title() {
	s, l := b.s, b.s.LayerShown()
	text := s.Subject.Name
	if len(s.Subject.Layers) > 1 {
		text += fmt.Sprintf(" · %s (%d of %d)", l.Name, s.Layer+1, len(s.Subject.Layers))
	}
	text += fmt.Sprintf(" · head %d of %d", s.Head+1, l.Heads)
	x := b.write(&b.text, b.l.Head.X, b.l.Head.Y, b.l.Head.W, ink, text)
	more := fmt.Sprintf("   %d queries × %d keys, head dimension %d", l.Queries, l.Keys, l.Dim)
	b.write(&b.text, x, b.l.Head.Y, b.l.Head.X+b.l.Head.W-x-9*b.f.Width, faint, more)
	b.write(&b.text, b.l.Head.X+b.l.Head.W-8*b.f.Width, b.l.Head.Y, 8*b.f.Width, faint, "? keys")
}

// tickStep is the least step of 1, 2 or 5 times a power of ten that leaves so much room.
func tickStep(n, pixels, room int) int {
	for power := 1; ; power *= 10 {
		for _, m := range []int{1, 2, 5} {
			if step := m * power; step*pixels >= room*n {
				return step
			}
		}
	}
}

// axes names keys above the map and queries beside it, by their characters where those fit.
func (b *builder) axes() {
	l, v, f, text := b.l.Large, b.s.View, b.f, b.s.Subject.Text
	y := l.Y - f.Height - 2
	if text != nil && l.W >= v.Keys*(f.Width+2) {
		for k := range v.Keys {
			x := l.X + (2*k+1)*l.W/(2*v.Keys) - f.Width/2
			b.write(&b.text, x, y, f.Width, faint, charAt(text, v.Key+k))
		}
	} else {
		step := tickStep(v.Keys, l.W, 8*f.Width)
		for k := (v.Key + step - 1) / step * step; k < v.Key+v.Keys; k += step {
			x, label := l.X+(2*(k-v.Key)+1)*l.W/(2*v.Keys), fmt.Sprint(k)
			b.marks = append(b.marks, Item{Kind: Fill, Box: Box{x, l.Y - 3, 1, 3}, Color: faint})
			b.write(&b.text, min(max(x-len(label)*f.Width/2, l.X), l.X+l.W-len(label)*f.Width), y, len(label)*f.Width, faint, label)
		}
	}
	b.write(&b.text, b.l.Pad, y, 5*f.Width, faint, "key →")
	if text != nil && l.H >= v.Queries*f.Height {
		for q := range v.Queries {
			b.write(&b.text, l.X-2*f.Width, max(l.Y+(2*q+1)*l.H/(2*v.Queries)-f.Height/2, l.Y-2), f.Width, faint,
				charAt(text, b.keyOf(v.Query+q)))
		}
	} else {
		step := tickStep(v.Queries, l.H, 3*f.Height)
		for q := (v.Query + step - 1) / step * step; q < v.Query+v.Queries; q += step {
			at, label := l.Y+(2*(q-v.Query)+1)*l.H/(2*v.Queries), fmt.Sprint(q)
			b.marks = append(b.marks, Item{Kind: Fill, Box: Box{l.X - 3, at, 3, 1}, Color: faint})
			b.write(&b.text, l.X-5-len(label)*f.Width, max(at-f.Height/2, l.Y-2), len(label)*f.Width, faint, label)
		}
	}
}

func charAt(text []rune, i int) string {
	if i < 0 || i >= len(text) {
		return " "
	}
	return string(text[i])
}

// bar is the scale of colours below the large map.
func (b *builder) bar() {
	box, f := b.l.Bar, b.f
	b.maps = append(b.maps, Item{Kind: Ramp, Box: box, Table: b.s.Colors})
	y, peak := box.Y+box.H+2, b.facts.Peak
	if !(peak > 0) {
		return
	}
	ends := [2]string{"0", number(peak)}
	if b.s.Log {
		ends[0] = "≤ " + number(peak/1e4)
	}
	b.write(&b.text, box.X, y, box.W/2, faint, ends[0])
	b.write(&b.text, box.X+box.W-len([]rune(ends[1]))*f.Width, y, box.W/2, faint, ends[1])
	marked := b.s.listing() == MarkLists
	middle := b.s.Pool.String() + " weight of a cell"
	if !marked {
		middle += "'s pairs"
	}
	if w := b.s.Work().Large; w.Rows == w.View.Queries && w.Columns == w.View.Keys {
		middle = "weight"
	}
	if marked {
		middle += ", grey: not listed"
	}
	room := 2 * (max(len([]rune(ends[0])), len([]rune(ends[1]))) + 2)
	if n := len([]rune(middle)); (n+room)*f.Width < box.W {
		b.write(&b.text, box.X+(box.W-n*f.Width)/2, y, n*f.Width, faint, middle)
	}
}

// number is a weight with three digits.
func number(x float64) string {
	if x == 0 {
		return "0"
	}
	if x >= 0.0001 {
		return fmt.Sprintf("%.3g", x)
	}
	return strings.Replace(fmt.Sprintf("%.1e", x), "e-0", "e-", 1)
}

func (b *builder) panel() {
	f := b.f
	for i, box := range b.l.Switches {
		sw := &switches[i]
		x := b.write(&b.text, box.X, box.Y, box.W, faint, fmt.Sprintf("%c ", rune(sw.key)))
		x = b.write(&b.text, x, box.Y, box.X+box.W-x, faint, sw.name+" ")
		b.write(&b.text, x, box.Y, box.X+box.W-x, ink, sw.text(b.s))
	}
	for i, box := range b.l.Sliders {
		sl, l := &sliders[i], b.s.LayerShown()
		x := b.write(&b.text, box.X-sliderLabel*f.Width, box.Y, 12*f.Width, faint, sl.name)
		x = max(x, box.X-8*f.Width)
		b.write(&b.text, x, box.Y, box.X-x, ink, sl.text(&b.s.Options))
		middle := box.Y + box.H/2
		at := box.X + int(sl.get(&b.s.Options, l)*float64(box.W-1)+0.5)
		c := faint
		if b.s.Options != usualOptions(l) && sl.text(&b.s.Options) != sl.text(ptr(usualOptions(l))) {
			c = accent
		}
		knob := max(f.Width/2, 3)
		b.marks = append(b.marks,
			Item{Kind: Fill, Box: Box{box.X, middle - 1, max(at-knob/2-box.X, 0), 3}, Color: c},
			Item{Kind: Fill, Box: Box{at + knob - knob/2, middle - 1, max(box.X+box.W-at-knob+knob/2, 0), 3}, Color: track},
			Item{Kind: Fill, Box: Box{at - knob/2, box.Y + 2, knob, box.H - 4}, Color: c})
	}
}

func ptr[T any](x T) *T { return &x }

func (b *builder) thumbs() {
	s, side := b.s, b.l.ThumbSide
	if side == 0 || b.facts.PeakOf == nil {
		return
	}
	w := s.Work().Grid
	for h, box := range b.l.Thumbs {
		peak := b.facts.PeakOf(h)
		if s.Common {
			peak = b.facts.PeakOf(-1)
		}
		b.picture(box, h, b.facts.GridAt+h*w.Rows*w.Columns, peak, w)
		c := faint
		if h == s.Head {
			c = accent
			outline(&b.marks, Box{box.X - 2, box.Y - 2, box.W + 4, box.H + 4}, 2, accent)
			if v, whole := s.View, s.whole(); v != whole { // what of it is seen large
				x0, x1 := v.Key*side/whole.Keys, (v.Key+v.Keys)*side/whole.Keys
				y0, y1 := v.Query*side/whole.Queries, (v.Query+v.Queries)*side/whole.Queries
				outline(&b.text, Box{box.X + x0, box.Y + y0, max(x1-x0, 4), max(y1-y0, 4)}, 1, ink)
			}
		}
		if label := fmt.Sprint(h + 1); len(label)*b.f.Width <= side {
			b.write(&b.text, box.X, box.Y-b.f.Height-2, side, c, label)
		}
	}
}

// footer tells what the pointer is over, and times.
func (b *builder) footer() {
	s, at, f := b.s, b.l.Footer, b.f
	line := func(n int, c Color, text string) { b.write(&b.text, at.X, at.Y+n*f.Height, at.W, c, text) }
	if h, ok := s.Hover(); ok {
		pair := fmt.Sprintf("query %s → key %s", b.named(h.Query, b.keyOf(h.Query)), b.named(h.Key, h.Key))
		if s.LayerShown().Heads > 1 {
			pair = fmt.Sprintf("head %d · ", h.Head+1) + pair
		}
		if h.Cell.Queries > 1 || h.Cell.Keys > 1 {
			pair += fmt.Sprintf("   in a cell of %d × %d", h.Cell.Queries, h.Cell.Keys)
		}
		if b.facts.HasWeight {
			pair += "   weight " + number(b.facts.Weight) + fmt.Sprintf("   the query's entropy %.3g, mean distance %.3g", b.facts.Entropy,
				b.facts.Distance)
		}
		line(0, ink, pair+b.listed(h))
		if s.Subject.Text != nil {
			b.context(h, at.Y+f.Height)
		}
	} else {
		line(0, faint, "The pointer over a map tells query, key and weight.")
	}
	if b.facts.Note != "" {
		line(2, accent, b.facts.Note)
	} else {
		line(2, ink, b.times())
	}
	line(3, faint, b.facts.Device+" · "+b.facts.Kernel)
}

// listed says whether the query under the pointer lists the key.
func (b *builder) listed(h Hover) string {
	l := b.s.LayerShown()
	if b.s.listing() == NoLists {
		return ""
	}
	n, in := 0, "   not listed, "
	for _, key := range l.Lists.Of(h.Head, l.Heads, h.Query) {
		if key >= 0 {
			n++
		}
		if int(key) == h.Key {
			in = "   listed, "
		}
	}
	return in + fmt.Sprintf("of %d", n)
}

// keyOf is the key at a query's own position.
func (b *builder) keyOf(query int) int {
	l := b.s.LayerShown()
	return query + l.Keys - l.Queries
}

// named is a query's or key's number, with the character of a key where there is text.
func (b *builder) named(i, key int) string {
	if b.s.Subject.Text == nil {
		return fmt.Sprint(i)
	}
	return fmt.Sprintf("%d %q", i, charAt(b.s.Subject.Text, key))
}

// context shows the text around query and key.
func (b *builder) context(h Hover, y int) {
	const around = 18
	x, room := b.l.Footer.X, b.l.Footer.X+b.l.Footer.W
	text := func(c Color, t string) { x = b.write(&b.text, x, y, room-x, c, t) }
	for i, at := range []int{b.keyOf(h.Query), h.Key} {
		if i == 1 {
			text(faint, "   →   ")
		}
		for j := at - around; j <= at+around; j++ {
			c := faint
			if j == at {
				c = accent
			}
			text(c, charAt(b.s.Subject.Text, j))
		}
	}
}

func (b *builder) times() string {
	fa := b.facts
	var parts []string
	if fa.Attention > 0 {
		text := "attention " + duration(fa.Attention)
		if rate := fa.FLOPs / fa.Attention.Seconds(); rate > 0 {
			text += ", " + Rate(rate)
		}
		parts = append(parts, text)
	}
	if fa.Map > 0 {
		parts = append(parts, "maps "+duration(fa.Map))
	}
	if fa.Frame > 0 {
		parts = append(parts, "frame "+duration(fa.Frame))
	}
	return strings.Join(parts, " · ")
}

// Rate is a number of operations a second with its unit.
func Rate(rate float64) string {
	for _, u := range []struct {
		least float64
		name  string
	}{{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}} {
		if rate >= u.least {
			return fmt.Sprintf("%.3g %s", rate/u.least, u.name)
		}
	}
	return fmt.Sprintf("%.3g MFLOP/s", rate/1e6)
}

// duration has three digits.
func duration(d time.Duration) string {
	if d < time.Millisecond {
		return fmt.Sprintf("%.3g µs", float64(d.Nanoseconds())/1e3)
	}
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

// help lists all keys.
func (b *builder) help() {
	at, f := b.l.Help, b.f
	b.veils = append(b.veils, Item{Kind: Fill, Box: at, Color: veil})
	outline(&b.over, at, 1, faint)
	x, y := at.X+2*f.Width, at.Y+f.Height
	for _, k := range Bindings {
		b.write(&b.over, x, y, 8*f.Width, accent, k.Name)
		b.write(&b.over, x+9*f.Width, y, at.X+at.W-x-10*f.Width, ink, k.Help)
		y += f.Height
	}
	b.write(&b.over, x, y+f.Height/2, at.X+at.W-x-f.Width, faint, helpNote)
}

const helpNote = "A click on a small map shows it large; sliders and switches take clicks."

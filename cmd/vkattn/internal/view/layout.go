package view

// Box is a rectangle of pixels.
type Box struct{ X, Y, W, H int }

func (b Box) has(x, y int) bool { return x >= b.X && x < b.X+b.W && y >= b.Y && y < b.Y+b.H }

// Layout is where everything stands. Parts that there is no room for are empty.
type Layout struct {
	Pad       int
	Head      Box   // the title
	Large     Box   // the map of one head, square
	Bar       Box   // of colours
	Footer    Box   // what the pointer is over, and times
	Switches  []Box // in the order of switches
	Sliders   []Box // their tracks, in the order of sliders
	Thumbs    []Box // of all heads, square
	ThumbSide int
	Help      Box
}

// footerLines are what the pointer is over, its text, and times.
const footerLines = 4

// Columns of letters in the panel beside the map.
const (
	panelColumns  = 44
	sliderLabel   = 21 // of a slider's name and number
	switchColumns = 22
)

// Layout finds it for the window's size.
func (s *State) Layout() Layout {
	f := s.Font()
	cw, ch := f.Width, f.Height
	pad := ch / 2
	l := Layout{Pad: pad}
	axis := 7*cw + pad // room for the numbers of queries
	top := pad + ch + pad + ch + 2
	below := pad + 2*ch + pad + footerLines*ch + pad
	side := s.Height - top - below
	wide := s.Width - axis - pad
	panel := s.Width >= axis+28*cw+panelColumns*cw+3*pad // else keys do what it does
	if panel {
		wide -= panelColumns*cw + 2*pad
	}
	side = min(side, wide)
	if side < 4*cw { // a stamp: nothing but the map
		l.Large = Box{0, 0, min(s.Width, s.Height), min(s.Width, s.Height)}
		return l
	}
	l.Head = Box{pad, pad, s.Width - 2*pad, ch}
	l.Large = Box{axis, top, side, side}
	l.Bar = Box{axis, top + side + pad, side, ch * 2 / 3}
	l.Footer = Box{pad, l.Bar.Y + 2*ch + pad, s.Width - 2*pad, footerLines * ch}
	if panel {
		s.layoutPanel(&l, Box{axis + side + 2*pad, pad + ch + pad, s.Width - axis - side - 3*pad, l.Bar.Y + 2*ch - 2*pad - ch})
	}
	columns, rows := len(helpNote), len(Bindings)+2
	for _, b := range Bindings {
		columns = max(columns, 9+len([]rune(b.Help)))
	}
	w, h := min((columns+4)*cw, s.Width), min((rows+1)*ch, s.Height)
	l.Help = Box{(s.Width - w) / 2, (s.Height - h) / 2, w, h}
	return l
}

// layoutPanel divides what stands beside the large map.
func (s *State) layoutPanel(l *Layout, at Box) {
	f := s.Font()
	cw, ch := f.Width, f.Height
	line := ch + ch/4
	y := at.Y
	n := len(switches)
	if !s.Subject.listed() {
		n-- // the last is about lists
	}
	for i := range n {
		l.Switches = append(l.Switches, Box{at.X + i%2*switchColumns*cw, y + i/2*line, (switchColumns - 1) * cw, ch})
	}
	y += (n+1)/2*line + l.Pad
	for range sliders {
		l.Sliders = append(l.Sliders, Box{at.X + sliderLabel*cw, y, at.W - sliderLabel*cw, ch})
		y += line
	}
	y += l.Pad
	s.layoutThumbs(l, Box{at.X, y, at.W, at.Y + at.H - y})
}

// layoutThumbs makes the maps of all heads as large as they can be.
func (s *State) layoutThumbs(l *Layout, at Box) {
	n, ch, gap := s.LayerShown().Heads, s.Font().Height, l.Pad
	side, columns := 0, 1
	for c := 1; c <= n; c++ {
		rows := (n + c - 1) / c
		if x := min((at.W+gap)/c-gap, (at.H+gap)/rows-gap-ch); x > side {
			side, columns = x, c
		}
	}
	if side < 8 {
		return
	}
	l.ThumbSide = side
	for h := range n {
		l.Thumbs = append(l.Thumbs, Box{at.X + h%columns*(side+gap), at.Y + ch + h/columns*(side+gap+ch), side, side})
	}
}

// toggle is an option with a few values, which a click changes as its key does.
type toggle struct {
	name string
	key  Key
	text func(s *State) string
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

var switches = []toggle{
	{"causal", 'c', func(s *State) string { return onOff(s.Options.Causal) }},
	{"colours", 'm', func(s *State) string { return s.ColorMap().Name }},
	{"blocks", 'b', func(s *State) string { return s.Options.Blocks.String() }},
	{"scale", 'l', func(s *State) string {
		if s.Log {
			return "log"
		}
		return "linear"
	}},
	{"cell", 'p', func(s *State) string { return s.Pool.String() }},
	{"scaled to", 'n', func(s *State) string {
		if s.Common {
			return "all heads"
		}
		return "each head"
	}},
	{"lists", 'i', func(s *State) string {
		if s.LayerShown().Lists == nil {
			return "none"
		}
		return s.Lists.String()
	}},
}

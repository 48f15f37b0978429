package view

import "github.com/vkattn/vkattn/cmd/vkattn/internal/picture"

// Key is a key of the keyboard: the character that it types, or one of those below.
type Key rune

// Keys that type no character.
const (
	Escape Key = 0xf0000 + iota // from a plane that Unicode leaves to whoever wants it
	Tab
	Left
	Right
	Up
	Down
	PageUp
	PageDown
	Home
)

// Binding is what keys do.
type Binding struct {
	Keys []Key
	Name string // as the list of keys shows them
	Help string
	do   func(s *State, k Key)
}

// Bindings are all keys, in the order of the list that ? shows.
var Bindings = []Binding{
	{[]Key{'?', 'h'}, "? h", "this list", func(s *State, _ Key) { s.Help = !s.Help }},
	{[]Key{Tab, '.'}, "Tab .", "next head", func(s *State, _ Key) { s.head(1) }},
	{[]Key{','}, ",", "previous head", func(s *State, _ Key) { s.head(-1) }},
	{[]Key{PageDown, ']'}, "PgDn ]", "next layer", func(s *State, _ Key) { s.show(s.Layer + 1) }},
	{[]Key{PageUp, '['}, "PgUp [", "previous layer", func(s *State, _ Key) { s.show(s.Layer - 1) }},
	{[]Key{'+', '='}, "+", "closer; so does the wheel, at the pointer", func(s *State, _ Key) { s.zoom(1.5, 0.5, 0.5) }},
	{[]Key{'-', '_'}, "-", "farther", func(s *State, _ Key) { s.zoom(1/1.5, 0.5, 0.5) }},
	{[]Key{Left, Right, Up, Down}, "arrows", "move; so does dragging", (*State).arrow},
	{[]Key{Home, 'r'}, "Home r", "the whole matrix", func(s *State, _ Key) { s.View = s.whole() }},
	{[]Key{'c'}, "c", "causal order", func(s *State, _ Key) { s.Options.Causal = !s.Options.Causal }},
	{[]Key{'w', 'W'}, "w W", "window, smaller and larger", stepping(0, 'w')},
	{[]Key{'A', 'a'}, "a A", "ALiBi's slope, larger and smaller", stepping(1, 'A')},
	{[]Key{'s', 'S'}, "s S", "softcap, smaller and larger", stepping(2, 's')},
	{[]Key{'t', 'T'}, "t T", "temperature, lower and higher", stepping(3, 't')},
	{[]Key{'b'}, "b", "block mask: off, local, strided", func(s *State, _ Key) { s.Options.Blocks = (s.Options.Blocks + 1) % blockMasks }},
	{[]Key{'0'}, "0", "all of these as the model has them", func(s *State, _ Key) { s.Options = usualOptions(s.LayerShown()) }},
	{[]Key{'i'}, "i", "lists of keys: marked, only these, off", func(s *State, _ Key) { s.Lists = (s.Lists + 1) % listModes }},
	{[]Key{'l'}, "l", "logarithmic or linear colours", func(s *State, _ Key) { s.Log = !s.Log }},
	{[]Key{'m'}, "m", "colour map", func(s *State, _ Key) { s.Colors = (s.Colors + 1) % len(picture.Scales) }},
	{[]Key{'n'}, "n", "one scale for all heads, or each its own", func(s *State, _ Key) { s.Common = !s.Common }},
	{[]Key{'p'}, "p", "a cell shows the largest weight, mean or sum", func(s *State, _ Key) { s.Pool = (s.Pool + 1) % pools }},
	{[]Key{' '}, "Space", "compute attention in every frame", func(s *State, _ Key) { s.Running = !s.Running }},
	{[]Key{'q', Escape}, "q Esc", "end", func(s *State, k Key) {
		if k == Escape && s.Help {
			s.Help = false
			return
		}
		s.Quit = true
	}},
}

// sliderStep is how far a key moves a slider.
const sliderStep = 1.0 / 32

// stepping moves a slider towards its beginning by one key, by others towards its end.
func stepping(which int, back Key) func(*State, Key) {
	return func(s *State, k Key) {
		if k == back {
			s.step(which, -sliderStep)
		} else {
			s.step(which, sliderStep)
		}
	}
}

func (s *State) head(by int) { n := s.LayerShown().Heads; s.Head = (s.Head + by + n) % n }

// arrow moves by an eighth of what is seen.
func (s *State) arrow(k Key) {
	dq, dk := max(s.View.Queries/8, 1), max(s.View.Keys/8, 1)
	switch k {
	case Left:
		s.pan(s.View.Query, s.View.Key-dk)
	case Right:
		s.pan(s.View.Query, s.View.Key+dk)
	case Up:
		s.pan(s.View.Query-dq, s.View.Key)
	case Down:
		s.pan(s.View.Query+dq, s.View.Key)
	}
}

// Press does what a key does, and says whether it does anything.
func (s *State) Press(k Key) bool {
	for i := range Bindings {
		for _, key := range Bindings[i].Keys {
			if key == k {
				Bindings[i].do(s, k)
				return true
			}
		}
	}
	return false
}

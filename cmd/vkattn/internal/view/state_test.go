package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/lists"
)

// subject has heads on one key head, of zeros: nothing here looks at numbers.
func subject(heads, queries, keys int) *Subject {
	return &Subject{Name: "zeros", Layers: []Layer{{Name: "layer", Heads: heads, KeyHeads: 1, Queries: queries, Keys: keys, Dim: 4,
		Causal: true,
		Q:      make([]float32, heads*queries*4), K: make([]float32, keys*4)}}}
}

func newState(t require.TestingT, queries, keys, heads int) *State {
	s, err := New(subject(heads, queries, keys), 1280, 800)
	require.NoError(t, err)
	return s
}

// Every key does something, no two do the same key's work, and all stand in the list.
func TestBindings(t *testing.T) {
	seen := map[Key]bool{}
	for _, b := range Bindings {
		require.NotEmpty(t, b.Name)
		require.NotEmpty(t, b.Help)
		for _, k := range b.Keys {
			require.False(t, seen[k], "%s has a key that another has", b.Name)
			seen[k] = true
			s := newState(t, 300, 200, 3)
			s.Subject.Layers = append(s.Subject.Layers, s.Subject.Layers[0])
			s.zoom(4, 0.5, 0.5)
			s.Options = Options{Causal: true, Window: 17, Slope: 1, Softcap: 5, Temperature: 2, Blocks: LocalBlocks}
			before := *s
			require.True(t, s.Press(k))
			require.NotEqual(t, before, *s, "%s does nothing", b.Name)
		}
	}
	require.False(t, newState(t, 8, 8, 1).Press('Z'))
	for _, sw := range switches {
		require.True(t, seen[sw.key], sw.name)
	}
}

// Lists of a layer are marked until i is pressed, and say whether a pair is listed; a subject without lists has no switch for them.
func TestLists(t *testing.T) {
	plain := newState(t, 6, 6, 2)
	require.Len(t, plain.Layout().Switches, len(switches)-1)
	require.False(t, plain.Work().Attention.Listed)

	of := subject(2, 6, 6)
	of.Layers[0].Lists = &lists.Lists{Heads: 1, Queries: 6, Keys: 6, Longest: 2,
		Numbers: []float32{0, -1, 0, 1, 2, 0, 3, 1, 4, -1, 5, 0}}
	of.Layers = append(of.Layers, subject(2, 6, 6).Layers[0])
	s, err := New(of, 1280, 800)
	require.NoError(t, err)
	pictures := func() (marked int) {
		scene := s.Scene(&Facts{PeakOf: func(int) int { return 0 }})
		for _, i := range scene.Layers[1] {
			if i.Kind == Picture && i.Marks > 0 {
				marked++
			}
		}
		return marked
	}
	sw := s.Layout().Switches
	require.Len(t, sw, len(switches))
	lay := s.Layout()
	at := func(query, key int) string {
		s.Move(lay.Large.X+(2*key+1)*lay.Large.W/12, lay.Large.Y+(2*query+1)*lay.Large.H/12, true)
		h, ok := s.Hover()
		require.True(t, ok)
		b := builder{s: s}
		return b.listed(h)
	}
	require.Equal(t, 3, pictures(), "the large map and two small ones")
	require.Equal(t, "   listed, of 2", at(3, 1))
	require.Equal(t, "   not listed, of 1", at(4, 0))
	s.Press('i')
	require.True(t, s.Work().Attention.Listed)
	require.Zero(t, pictures())
	s.Move(sw[len(sw)-1].X, sw[len(sw)-1].Y, true)
	s.Button(true)
	require.Equal(t, NoLists, s.Lists)
	require.Empty(t, at(3, 1))
	s.Press('i')
	s.Press(']')
	require.Zero(t, pictures(), "this layer has no lists")
	require.Empty(t, at(3, 1))

	of.Layers[0].Lists.Queries = 5
	_, err = New(of, 1280, 800)
	require.ErrorContains(t, err, "lists of 1 heads, 5 queries and 6 keys do not suit its shape")
}

// Whatever is pressed, dragged and turned: the view stays within the matrix and has something in it, the head is one of the layer's,
// options have values that they can have, and the work asked for can be done.
func TestAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, least, most int) int { return rapid.IntRange(least, most).Draw(t, name) }
		s := newState(t, n("queries", 1, 400), n("keys", 1, 400), n("heads", 1, 40))
		s.Subject.Layers = append(s.Subject.Layers, subject(2, n("queries", 1, 50), n("keys", 1, 50)).Layers[0])
		for range n("events", 1, 40) {
			switch n("event", 0, 5) {
			case 0:
				b := Bindings[n("binding", 0, len(Bindings)-1)]
				s.Press(b.Keys[n("key", 0, len(b.Keys)-1)])
			case 1:
				s.Move(n("x", -50, 2000), n("y", -50, 2000), rapid.Bool().Draw(t, "inside"))
			case 2:
				s.Button(rapid.Bool().Draw(t, "down"))
			case 3:
				s.Wheel(rapid.Float64Range(-20, 20).Draw(t, "wheel"))
			case 4:
				s.Resize(n("width", 0, 3000), n("height", 0, 2000), rapid.SampledFrom([]float64{0, 1, 1.5, 2, 3}).Draw(t, "scale"))
			case 5:
				s.zoom(rapid.Float64Range(0.1, 10).Draw(t, "factor"), rapid.Float64Range(0, 1).Draw(t, "x"),
					rapid.Float64Range(0, 1).Draw(t, "y"))
			}
			l, v, o := s.LayerShown(), s.View, s.Options
			require.True(t, v.Query >= 0 && v.Queries >= 1 && v.Query+v.Queries <= l.Queries, "%+v of %d queries", v, l.Queries)
			require.True(t, v.Key >= 0 && v.Keys >= 1 && v.Key+v.Keys <= l.Keys, "%+v of %d keys", v, l.Keys)
			require.True(t, s.Head >= 0 && s.Head < l.Heads)
			require.True(t, o.Window >= 0 && o.Slope >= 0 && o.Slope <= mostSlope && o.Softcap >= 0 && o.Temperature >= 0.09 &&
				o.Temperature <= 10.01, "%+v", o)
			w := s.Work()
			for _, m := range []MapWork{w.Large, w.Grid} {
				require.True(t, m.Rows <= m.View.Queries && m.Columns <= m.View.Keys, "%+v", m)
			}
			require.Positive(t, w.Large.Rows*w.Large.Columns)
			if h, ok := s.Hover(); ok {
				require.True(t, h.Query >= 0 && h.Query < l.Queries && h.Key >= 0 && h.Key < l.Keys, "%+v", h)
				require.True(t, h.Cell.Queries >= 1 && h.Cell.Keys >= 1 && h.Query < h.Cell.Query+h.Cell.Queries, "%+v", h)
			}
			checkScene(t, s)
		}
	})
}

// checkScene: pieces lie within the window, and letters and pictures read what there is.
func checkScene(t *rapid.T, s *State) {
	facts := Facts{PeakOf: func(h int) int { return h + 1 }, Peak: 0.5, HasWeight: true}
	scene := s.Scene(&facts)
	words, counts := scene.Encode(nil)
	total := 0
	for _, n := range counts {
		total += n
	}
	require.Equal(t, len(words), total*ItemWords)
	for at := 0; at < len(words); at += ItemWords {
		x, y, w, h := words[at+1]&0xffff, words[at+1]>>16, words[at+2]&0xffff, words[at+2]>>16
		require.True(t, w >= 1 && h >= 1 && w <= tile && h <= tile && int(x+w) <= s.Width && int(y+h) <= s.Height, "piece %d %d %d %d",
			x, y, w, h)
		wx, wy, ww, wh := words[at+3]&0xffff, words[at+3]>>16, words[at+4]&0xffff, words[at+4]>>16
		switch Kind(words[at]) {
		case Picture:
			// A box may begin left of the window or above it, and then its coordinates wrap: pictures do not.
			require.True(t, x >= wx && y >= wy && x+w <= wx+ww && y+h <= wy+wh)
			require.Positive(t, words[at+7]&0xffff*(words[at+7]>>16))
		case Letter:
			require.Less(t, int(words[at+6])+s.Font().Width*s.Font().Height, len(s.Font().Coverage)+1)
		}
	}
}

// What stands in one layer does not overlap, so that no two workgroups draw one pixel.
func TestNothingOverlaps(t *testing.T) {
	for _, size := range [][2]int{{1280, 800}, {700, 500}, {500, 900}, {3000, 2000}, {120, 90}} {
		for _, keys := range []string{"", "++++++", "?", "lA", "+?"} {
			s := newState(t, 500, 300, 12)
			s.Subject.Text = []rune("no text as long as that, but some")
			s.Resize(size[0], size[1], 1)
			for _, k := range keys {
				s.Press(Key(k))
			}
			lay := s.Layout()
			s.Move(lay.Large.X+lay.Large.W/3, lay.Large.Y+lay.Large.H/2, true)
			scene := s.Scene(&Facts{PeakOf: func(h int) int { return h + 1 }, Peak: 0.5, HasWeight: true, Device: "device", Attention: 1,
				Map: 1, Frame: 1})
			for n, layer := range scene.Layers {
				taken := make([]bool, s.Width*s.Height)
				for _, i := range layer {
					for y := max(i.Box.Y, 0); y < min(i.Box.Y+i.Box.H, s.Height); y++ {
						for x := max(i.Box.X, 0); x < min(i.Box.X+i.Box.W, s.Width); x++ {
							if taken[y*s.Width+x] {
								t.Fatalf("%v %q layer %d: pixel (%d, %d) twice, by %+v", size, keys, n, x, y, i)
							}
							taken[y*s.Width+x] = true
						}
					}
				}
			}
		}
	}
}

// Zooming keeps what is under the pointer there, and goes down to single pairs.
func TestZoom(t *testing.T) {
	s := newState(t, 5000, 5000, 2)
	lay := s.Layout()
	s.Move(lay.Large.X+lay.Large.W*3/4, lay.Large.Y+lay.Large.H/4, true)
	before, ok := s.Hover()
	require.True(t, ok)
	require.Greater(t, before.Cell.Keys, 1)
	for range 8 {
		s.Wheel(1)
		h, _ := s.Hover()
		require.InDelta(t, before.Key, h.Key, float64(before.Cell.Keys)+2)
		require.InDelta(t, before.Query, h.Query, float64(before.Cell.Queries)+2)
	}
	for range 80 {
		s.Wheel(2)
	}
	require.Equal(t, leastZoom, s.View.Keys)
	h, _ := s.Hover()
	require.Equal(t, [2]int{1, 1}, [2]int{h.Cell.Queries, h.Cell.Keys})
	for range 80 {
		s.Wheel(-2)
	}
	require.Equal(t, Rect{0, 0, 5000, 5000}, s.View)
}

// Dragging moves what is under the pointer along with it.
func TestDrag(t *testing.T) {
	s := newState(t, 1000, 1000, 2)
	s.zoom(10, 0.5, 0.5)
	b := s.Layout().Large
	s.Move(b.X+b.W/2, b.Y+b.H/2, true)
	before, _ := s.Hover()
	s.Button(true)
	s.Move(b.X+b.W/4, b.Y+b.H*3/4, true)
	after, _ := s.Hover()
	require.InDelta(t, before.Key, after.Key, 1)
	require.InDelta(t, before.Query, after.Query, 1)
	s.Button(false)
	v := s.View
	s.Move(b.X, b.Y, true)
	require.Equal(t, v, s.View)
}

// A slider's handle stands where it was put, and the ends mean what they say.
func TestSliders(t *testing.T) {
	s := newState(t, 1000, 1000, 2)
	l := s.LayerShown()
	for i, sl := range sliders {
		for at := 0.0; at <= 1; at += 1.0 / 64 {
			o := usualOptions(l)
			sl.set(&o, l, at)
			require.InDelta(t, at, sl.get(&o, l), 0.09, "%s at %g: %s", sl.name, at, sl.text(&o))
		}
		track := s.Layout().Sliders[i]
		s.Move(track.X, track.Y+1, true)
		s.Button(true)
		first := sl.text(&s.Options)
		s.Move(track.X+track.W+50, 0, true)
		require.NotEqual(t, first, sl.text(&s.Options), sl.name)
		s.Button(false)
	}
	require.Zero(t, s.Options.Window)
	require.EqualValues(t, mostSlope, s.Options.Slope)
	require.Zero(t, s.Options.Softcap)
	require.InDelta(t, mostTemperature, s.Options.Temperature, 1e-9)
	s.Press('0')
	require.Equal(t, usualOptions(l), s.Options)
}

// What is computed again is what changed: colours need nothing, a view needs one map, options need everything.
func TestWork(t *testing.T) {
	s := newState(t, 400, 400, 4)
	before := s.Work()
	for _, k := range "lmn?" {
		s.Press(Key(k))
		require.Equal(t, before, s.Work(), string(k))
	}
	s.Press('?')
	s.Press('+')
	w := s.Work()
	require.Equal(t, before.Attention, w.Attention)
	require.Equal(t, before.Grid, w.Grid)
	require.NotEqual(t, before.Large, w.Large)
	s.Press('t')
	require.NotEqual(t, before.Attention, s.Work().Attention)
	require.NotEqual(t, before.Grid, s.Work().Grid)
}

func TestBlocksSee(t *testing.T) {
	for b, want := range map[Blocks][]bool{NoBlocks: {true, true, true, true, true, true, true, true},
		LocalBlocks:   {true, false, false, false, true, true, true, false},
		StridedBlocks: {false, true, false, false, false, true, false, false}} {
		for c, w := range want {
			require.Equal(t, w, b.Sees(5, c), "%v, block column %d", b, c)
		}
	}
}

// A subject that cannot be is refused.
func TestCheck(t *testing.T) {
	require.NoError(t, subject(2, 3, 4).check())
	for want, change := range map[string]func(l *Layer){
		"must divide":           func(l *Layer) { l.KeyHeads = 4 },
		"must be at least 1":    func(l *Layer) { l.Dim = 0 },
		"do not suit its shape": func(l *Layer) { l.K = l.K[1:] },
	} {
		s := subject(6, 3, 4)
		change(&s.Layers[0])
		_, err := New(s, 10, 10)
		require.ErrorContains(t, err, want)
	}
	_, err := New(&Subject{}, 10, 10)
	require.ErrorContains(t, err, "no layer")
}

// A model's own temperature is what 0 goes back to.
func TestUsualOptions(t *testing.T) {
	s := subject(1, 4, 4)
	s.Layers[0].Temperature, s.Layers[0].Window = 2, 3
	st, err := New(s, 100, 100)
	require.NoError(t, err)
	want := Options{Causal: true, Window: 3, Temperature: 2}
	require.Equal(t, want, st.Options)
	st.Press('t')
	require.NotEqual(t, want, st.Options)
	st.Press('0')
	require.Equal(t, want, st.Options)
}

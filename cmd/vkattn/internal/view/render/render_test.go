package render

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/lists"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/picture"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/input"
	"github.com/vkattn/vkattn/flash"
	oracle "github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// random are random heads.
func random(t *testing.T, seed uint64, heads, keyHeads, queries, keys, dim int) *view.Subject {
	s, err := input.Random(seed, heads, keyHeads, queries, keys, dim)
	require.NoError(t, err)
	return s
}

// TestModules: pipelines that draw are made with what their modules declare.
func TestModules(t *testing.T) {
	for _, m := range modules {
		info, err := shaders.Describe(m.name)
		require.NoError(t, err)
		require.Equal(t, map[string]uint32{"WG": 0}, info.Interface.Constants, m.name)
		require.Len(t, info.Interface.Bindings, m.bindings, m.name)
		require.Equal(t, m.push, 4*len(info.Interface.Push), m.name)
	}
}

// shared is the device of the rigs.
var shared = vktest.Shared[device]{Open: func(onMessage func(vk.Message)) (device, error) {
	layers := onMessage != nil
	in, err := vk.NewInstance(vk.InstanceOptions{Validation: layers, SyncValidation: layers, OnMessage: onMessage})
	if err != nil {
		return device{}, err
	}
	d, err := vktest.FirstDevice(in)
	if err != nil {
		return device{}, errors.Join(err, in.Close())
	}
	dev, err := d.Open(vk.DeviceOptions{})
	if err != nil {
		return device{}, errors.Join(err, in.Close())
	}
	return device{dev, in}, nil
}}

// device is closed with its instance.
type device struct {
	*vk.Device
	in *vk.Instance
}

func (d device) Close() error { return errors.Join(d.Device.Close(), d.in.Close()) }

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// rig draws a subject off screen.
type rig struct {
	*Offscreen
	state *view.State
}

func newRig(t *testing.T, subject *view.Subject, width, height int) *rig {
	t.Helper()
	r, err := New(shared.Device(t).Device, subject, Options{DType: flash.F32})
	require.NoError(t, err)
	o, err := NewOffscreen(r)
	require.NoError(t, err)
	state, err := view.New(subject, width, height)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(o.Close(), r.Close())) })
	return &rig{o, state}
}

// weights computes softmax of a layer's scores in float64, as the options change them, [heads][queries][keys].
func weights(l *view.Layer, o view.Options) [][][]float64 {
	return weightsOf(l, o, func(_, _, _ int) bool { return true })
}

// weightsOf computes them over the keys that each query of each head sees.
func weightsOf(l *view.Layer, o view.Options, sees func(h, i, j int) bool) [][][]float64 {
	all := make([][][]float64, l.Heads)
	for h := range all {
		slope := o.Slope * math.Exp2(-8*float64(h+1)/float64(l.Heads))
		key := h / (l.Heads / l.KeyHeads)
		for i := range l.Queries {
			row, sum, at := make([]float64, l.Keys), 0.0, i+l.Keys-l.Queries
			for j := range row {
				size := l.BlockSize()
				if o.Causal && j > at || o.Window > 0 && (j < at-o.Window || j > at+o.Window) || !sees(h, i, j) ||
					!o.Blocks.Sees(i/size+(l.Keys-l.Queries)/size, j/size) {
					continue
				}
				s := 0.0
				for c := range l.Dim {
					s += float64(l.Q[(h*l.Queries+i)*l.Dim+c]) * float64(l.K[(key*l.Keys+j)*l.Dim+c])
				}
				if s /= math.Sqrt(float64(l.Dim)) * o.Temperature; o.Softcap > 0 {
					s = o.Softcap * math.Tanh(s/o.Softcap)
				}
				row[j] = math.Exp(s - slope*math.Abs(float64(at-j)))
				sum += row[j]
			}
			for j := range row {
				if sum > 0 {
					row[j] /= sum
				}
			}
			all[h] = append(all[h], row)
		}
	}
	return all
}

// entry is the colour of the table for a place from 0 to 1, as 0xRRGGBB.
func entry(c *picture.Colors, at float64) uint32 {
	x := c.At(math.Floor(min(max(at, 0), 1)*255+0.5) / 255)
	return uint32(x.R)<<16 | uint32(x.G)<<8 | uint32(x.B)
}

// colorAt is a pixel as 0xRRGGBB.
func colorAt(p *image.RGBA, x, y int) uint32 {
	c := p.RGBAAt(x, y)
	return uint32(c.R)<<16 | uint32(c.G)<<8 | uint32(c.B)
}

// Every option changes the weights as it should: single pairs of each head, and what the pointer is told, against softmax in float64.
func TestWeights(t *testing.T) {
	g := newRig(t, random(t, 5, 4, 2, 60, 80, 8), 1000, 700)
	all := []view.Options{
		{Causal: true, Temperature: 1}, {Temperature: 1}, {Temperature: 0.5}, {Causal: true, Window: 7, Temperature: 1},
		{Window: 9, Temperature: 2},
		{Causal: true, Slope: 0.7, Temperature: 1}, {Softcap: 1.5, Temperature: 1}, {Softcap: 3, Slope: 0.1, Window: 30, Temperature: 0.8},
		{Causal: true, Blocks: view.LocalBlocks, Temperature: 1}, {Blocks: view.StridedBlocks, Softcap: 2, Temperature: 1},
		{Causal: true, Slope: 0.2, Temperature: 1}, // functions that there were, with other numbers
		{Causal: true, Blocks: view.StridedBlocks, Temperature: 1},
	}
	for _, o := range all {
		if testing.Short() && o.Softcap > 0 && o.Slope == 0 {
			continue // each set of functions is compiled anew
		}
		g.state.Options = o
		want := weights(g.state.LayerShown(), o)
		lay := g.state.Layout()
		g.state.Move(lay.Large.X+lay.Large.W/3, lay.Large.Y+lay.Large.H/2, true)
		_, err := g.Draw(g.state)
		require.NoError(t, err)
		require.Empty(t, g.r.Facts().Note)
		w := g.state.Work()
		require.Equal(t, [4]int{60, 80, 60, 80}, [4]int{w.Large.Rows, w.Large.Columns, w.Grid.Rows, w.Grid.Columns})
		for h := -1; h < 4; h++ {
			cells, err := g.r.Cells(context.Background(), w.Large, h >= 0, max(h, 0))
			require.NoError(t, err)
			for i, c := range cells {
				require.InDelta(t, want[max(h, 0)][i/80][i%80], c, 2e-5, "%+v, head %d, query %d, key %d", o, h, i/80, i%80)
			}
		}
		hover, ok := g.state.Hover()
		require.True(t, ok)
		f := g.r.Facts()
		require.True(t, f.HasWeight)
		require.InDelta(t, want[0][hover.Query][hover.Key], f.Weight, 2e-5)
		var entropy, distance float64
		for j, p := range want[0][hover.Query] {
			if p > 0 {
				entropy -= p * math.Log(p)
			}
			distance += p * math.Abs(float64(hover.Query+20-j))
		}
		require.InDelta(t, entropy, f.Entropy, 1e-3)
		require.InDelta(t, distance, f.Distance, 1e-3*(1+distance))
		require.Greater(t, f.FLOPs, 0.0)
	}
}

// Pixels are the colours of cells, for cells larger and smaller than pixels, each scale and each table.
func TestPixels(t *testing.T) {
	for _, size := range [][2]int{{1000, 700}, {333, 257}} {
		g := newRig(t, random(t, 6, 3, 1, 300, 200, 8), size[0], size[1])
		for _, keys := range []string{"", "l", "m", "n", "+", "p", "l", "p", "m"} {
			for _, k := range keys {
				require.True(t, g.state.Press(view.Key(k)))
			}
			picture, err := g.Picture(g.state)
			require.NoError(t, err)
			lay, w := g.state.Layout(), g.state.Work()
			cells, err := g.r.Cells(context.Background(), w.Large, false, 0)
			require.NoError(t, err)
			peak := float32(g.r.Facts().Peak)
			if !g.state.Joint() {
				peak = 0
				for _, c := range cells {
					peak = max(peak, c)
				}
				require.EqualValues(t, peak, g.r.Facts().Peak)
			}
			box, colors := lay.Large, g.state.ColorMap()
			for i := range box.W * box.H {
				x, y := i%box.W, i/box.W
				value := cells[y*w.Large.Rows/box.H*w.Large.Columns+x*w.Large.Columns/box.W]
				got := colorAt(picture, box.X+x, box.Y+y)
				at := g.state.Range(float64(peak)).Of(float64(value))
				a, b := entry(colors, at-1e-4), entry(colors, at+1e-4) // between two colours either is right
				if value == 0 && got != uint32(view.Empty&0xffffff) || value > 0 && got != a && got != b {
					t.Fatalf("%v %q, pixel (%d, %d) is %06x, and the cell %g of %g", size, keys, x, y, got, value, peak)
				}
			}
		}
	}
}

// listed is a subject whose queries list six keys or fewer.
func listed(t *testing.T, queryHeads, keyHeads, heads, queries, keys int) *view.Subject {
	s := random(t, 9, queryHeads, keyHeads, queries, keys, 8)
	rng := rand.New(rand.NewPCG(1, 2))
	var data []byte
	for range heads * queries {
		for n, key := range rng.Perm(keys)[:6] {
			if n == 5 && key%2 == 0 {
				key = -1
			}
			data = binary.LittleEndian.AppendUint32(data, uint32(int32(key)))
		}
	}
	l, err := lists.Parse("lists", oracle.Stored{DType: "I32", Shape: []int{heads, queries, 6}, Data: data}, keyHeads, queries, keys)
	require.NoError(t, err)
	s.Layers[0].Lists = l
	return s
}

// Lists of keys: weights over the listed keys alone against softmax in float64, lists of key heads and lists for all; with lists marked
// they are those over all keys.
func TestLists(t *testing.T) {
	for _, heads := range []int{1, 2} {
		s := listed(t, 4, 2, heads, 60, 80)
		g, l := newRig(t, s, 1000, 700), &s.Layers[0]
		in := func(h, i, j int) bool { return slices.Contains(l.Lists.Of(h, 4, i), float32(j)) }
		for _, c := range []struct {
			keys string
			want [][][]float64
		}{{"", weights(l, g.state.Options)}, {"i", weightsOf(l, g.state.Options, in)}, {"i", weights(l, g.state.Options)}} {
			for _, k := range c.keys {
				require.True(t, g.state.Press(view.Key(k)))
			}
			lay := g.state.Layout()
			g.state.Move(lay.Thumbs[3].X+lay.Thumbs[3].W/4, lay.Thumbs[3].Y+lay.Thumbs[3].H*3/4, true)
			_, err := g.Draw(g.state)
			require.NoError(t, err)
			require.Empty(t, g.r.Facts().Note)
			for h := range 4 {
				cells, err := g.r.Cells(context.Background(), g.state.Work().Grid, true, h)
				require.NoError(t, err)
				for i, x := range cells {
					require.InDelta(t, c.want[h][i/80][i%80], x, 2e-5, "%v, head %d, query %d, key %d", g.state.Lists, h, i/80, i%80)
				}
			}
			hover, _ := g.state.Hover()
			require.InDelta(t, c.want[3][hover.Query][hover.Key], g.r.Facts().Weight, 2e-5)
		}
		for _, c := range [][2]string{{"iib", "Problem.Lists"}, {"i", ""}, {"b", ""}} { // lists take no blocks beside them
			for _, k := range c[0] {
				g.state.Press(view.Key(k))
			}
			_, err := g.Draw(g.state)
			require.NoError(t, err)
			require.Contains(t, g.r.Facts().Note, c[1])
			require.Equal(t, c[1] == "", g.r.Facts().Note == "")
		}
	}
}

// Where lists are marked, cells without a listed key are a third as light and grey, and a line runs round others that are large enough: in
// a view that begins within a word of bits, with cells of one pair and of several.
func TestMarkedPixels(t *testing.T) {
	s := listed(t, 2, 2, 2, 300, 200)
	l := &s.Layers[0]
	for _, c := range []struct {
		size [2]int
		view view.Rect
		line bool
	}{
		{[2]int{1000, 700}, view.Rect{Query: 37, Key: 21, Queries: 24, Keys: 40}, true},
		{[2]int{333, 257}, view.Rect{Query: 3, Key: 5, Queries: 290, Keys: 190}, false},
	} {
		g := newRig(t, s, c.size[0], c.size[1])
		g.state.Options.Causal, g.state.Head, g.state.View = false, 1, c.view
		g.state.Press('m') // a scale without grey
		plain, marked := g.picture(t, "ii"), g.picture(t, "i")
		box, w := g.state.Layout().Large, g.state.Work().Large
		in := func(x, y int) bool { // whether the cell of a pixel has a listed pair
			row, column := y*w.Rows/box.H, x*w.Columns/box.W
			for i := row * c.view.Queries / w.Rows; i < (row+1)*c.view.Queries/w.Rows; i++ {
				for _, key := range l.Lists.Of(1, 2, c.view.Query+i) {
					if j := int(key) - c.view.Key; j >= column*c.view.Keys/w.Columns && j < (column+1)*c.view.Keys/w.Columns {
						return true
					}
				}
			}
			return false
		}
		lines, listed := 0, 0
		for i := range box.W * box.H {
			x, y := i%box.W, i/box.W
			was, got := colorAt(plain, box.X+x, box.Y+y), colorAt(marked, box.X+x, box.Y+y)
			want := was
			if !in(x, y) {
				want = (was>>16*54 + was>>8&255*183 + was&255*19) / 768 * 0x010101
			} else if listed++; c.line && (x > 0 && !in(x-1, y) || x+1 < box.W && !in(x+1, y) || y > 0 && !in(x, y-1) ||
				y+1 < box.H && !in(x, y+1)) {
				want = 0xffb454
				lines++
			}
			if got != want {
				t.Fatalf("%v: pixel (%d, %d) is %06x, and without lists %06x: want %06x", c.view, x, y, got, was, want)
			}
		}
		require.Equal(t, c.line, lines > 0)
		require.NotZero(t, listed)
		require.Less(t, listed, box.W*box.H)
	}
}

// picture draws after some keys were pressed.
func (g *rig) picture(t *testing.T, keys string) *image.RGBA {
	t.Helper()
	for _, k := range keys {
		require.True(t, g.state.Press(view.Key(k)))
	}
	_, err := g.Draw(g.state)
	require.NoError(t, err)
	require.Empty(t, g.r.Facts().Note)
	p, err := g.Picture(g.state)
	require.NoError(t, err)
	return p
}

// The same state gives the same picture, whatever was drawn before.
func TestSamePicture(t *testing.T) {
	g := newRig(t, random(t, 6, 3, 1, 130, 130, 8), 800, 600)
	_, err := g.Draw(g.state)
	require.NoError(t, err)
	first, err := g.Picture(g.state)
	require.NoError(t, err)
	times := g.state.Layout().Footer // which tells times
	for _, keys := range []string{"c", "+", "ccc", "r", "b", "bb"} {
		for _, k := range keys {
			g.state.Press(view.Key(k))
		}
		_, err := g.Draw(g.state)
		require.NoError(t, err)
	}
	g.state.Press('0')
	g.state.View = view.Rect{Queries: 130, Keys: 130}
	_, err = g.Draw(g.state)
	require.NoError(t, err)
	again, err := g.Picture(g.state)
	require.NoError(t, err)
	for y := range times.Y {
		for x := range 800 {
			if colorAt(first, x, y) != colorAt(again, x, y) {
				t.Fatalf("pixel (%d, %d) is %06x, and was %06x", x, y, colorAt(again, x, y), colorAt(first, x, y))
			}
		}
	}
}

// Layers with other numbers of heads, queries and keys take turns.
func TestLayers(t *testing.T) {
	s := random(t, 6, 3, 1, 130, 130, 8)
	s.Layers = append(s.Layers, random(t, 7, 8, 4, 20, 90, 16).Layers...)
	g := newRig(t, s, 800, 600)
	for range 3 {
		for i := range s.Layers {
			_, err := g.Draw(g.state)
			require.NoError(t, err)
			want := weights(&s.Layers[i], g.state.Options)
			w := g.state.Work()
			cells, err := g.r.Cells(context.Background(), w.Large, false, 0)
			require.NoError(t, err)
			require.InDelta(t, want[0][5][7], cells[5*w.Large.Columns+7], 2e-5)
			g.state.Press(']')
		}
	}
}

// What the library does not take is told, and drawn.
func TestNote(t *testing.T) {
	const tooMany = flash.MaxHeadDim + 1
	g := newRig(t, &view.Subject{Layers: []view.Layer{{Heads: 1, KeyHeads: 1, Queries: 1, Keys: 1, Dim: tooMany,
		Q: make([]float32, tooMany), K: make([]float32, tooMany)}}}, 1000, 700)
	for range 2 {
		_, err := g.Draw(g.state)
		require.NoError(t, err)
		require.Contains(t, g.r.Facts().Note, "HeadDim")
	}
	require.True(t, g.r.Settled(g.state))
}

// Calls of each kind fail in turn while a renderer is made, draws and is closed: there is an error, and nothing is left behind.
func TestFaults(t *testing.T) {
	f := vk.NewFaults()
	owner := vktest.Device(t).External() // not a new one each time, which a GPU's driver takes long to open
	subject := listed(t, 2, 1, 1, 16, 16)
	draw := func() (err error) {
		dev, err := vk.AttachWithFaults(owner, f)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		r, err := New(dev, subject, Options{DType: flash.F32, Attach: []flash.DeviceOption{flash.WithoutDiskCache()}})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		o, err := NewOffscreen(r)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Close()) }()
		s, err := view.New(subject, 300, 200)
		if err != nil {
			return err
		}
		for range 2 {
			if _, err := o.Picture(s); err != nil {
				return err
			}
			if note := r.Facts().Note; note != "" {
				return fmt.Errorf("%s", note)
			}
			s.Press('+')
			s.Press('i')
		}
		return nil
	}
	require.NoError(t, draw())
	before := f.Live()
	for kind, result := range map[string]vk.Result{"alloc": 0, "buffer": 0, "submit": vk.ErrDeviceLost, "wait": vk.ErrDeviceLost,
		"pipeline": 0, "descriptorset": 0,
		"descriptorpool": 0, "commandpool": 0, "begin": 0, "end": 0, "fence": 0, "querypool": 0, "query": 0} {
		if testing.Short() && !slices.Contains([]string{"alloc", "submit", "descriptorset", "query"}, kind) {
			continue
		}
		fired := vktest.Walk{Faults: f, Kind: kind, Result: result, Run: draw, Check: func(t testing.TB, n int, call string, err error) {
			require.Empty(t, vktest.Leaked(before, f.Live()), "%s: left behind after %v", call, err)
			if call != "vkAllocateMemory" { // another kind of memory may do
				require.Error(t, err, "%s number %d", call, n)
			}
		}}.Do(t)
		require.Positive(t, fired, kind)
	}
	require.NoError(t, draw())
}

// A frame is there in time for the eye where the device is a CPU, too: with nothing to compute, and with the large map and the weight under
// the pointer computed anew, as while one zooms. The least of several counts: the machine may be busy with other things.
func TestFrameTime(t *testing.T) {
	dev := vktest.Open(t, vktest.Options{NoValidation: true})
	subject := random(t, 1, 8, 8, 1024, 1024, 64)
	r, err := New(dev, subject, Options{DType: flash.F16})
	require.NoError(t, err)
	o, err := NewOffscreen(r)
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(o.Close(), r.Close())) }()
	s, err := view.New(subject, 1280, 800)
	require.NoError(t, err)
	lay := s.Layout()
	s.Move(lay.Large.X+lay.Large.W/2, lay.Large.Y+lay.Large.H/2, true)
	least := func(what string, change func()) time.Duration {
		least := time.Hour
		for range 4 {
			change()
			begin := time.Now()
			_, err := o.Draw(s)
			require.NoError(t, err)
			least = min(least, time.Since(begin))
		}
		t.Logf("%s: %v", what, least)
		return least
	}
	_, err = o.Draw(s)
	require.NoError(t, err)
	require.Empty(t, r.Facts().Note)
	require.Less(t, least("nothing new", func() {}), 200*time.Millisecond)
	require.Less(t, least("another view", func() { s.Wheel(1) }), 200*time.Millisecond)
	s.Press('r')
	s.Running = true
	if !testing.Short() {
		least("attention and all maps", func() {})
	}
}

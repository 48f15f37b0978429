//go:build view && cgo

package window

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-gl/glfw/v3.3/glfw"
	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/picture"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/input"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/view/render"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/displaytest"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// random are random heads.
func random(t *testing.T, seed uint64, heads, keyHeads, queries, keys, dim int) *view.Subject {
	s, err := input.Random(seed, heads, keyHeads, queries, keys, dim)
	require.NoError(t, err)
	return s
}

// opened is a window under test.
type opened struct {
	*Window
	t       *testing.T
	display *displaytest.Display
	faults  *vk.Faults
	before  map[string]int // objects that lived before it
}

const usualWidth, usualHeight = 900, 640

// open opens a window on a display of its own, under the validation of synchronisation. It is closed, and nothing may be left behind, when
// the test ends.
func open(t *testing.T, subject *view.Subject) *opened {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	display := displaytest.Start(t, 1200, 900)
	o := &opened{t: t, display: display, faults: vk.NewFaults()}
	o.before = o.faults.Live()
	var mu sync.Mutex
	var messages []string
	options := Options{Title: t.Name(), Width: usualWidth, Height: usualHeight,
		Instance: vk.InstanceOptions{SyncValidation: true, Faults: o.faults, OnMessage: func(m vk.Message) {
			mu.Lock()
			messages = append(messages, m.String())
			mu.Unlock()
		}},
		Choose: func(all []*vk.PhysicalDevice) (*vk.PhysicalDevice, error) {
			want := os.Getenv("VKATTN_TEST_DEVICE")
			for _, d := range all {
				if strings.Contains(d.Facts().Name, want) {
					return d, nil
				}
			}
			return nil, flash.ErrNoDevice
		},
		Render: render.Options{DType: flash.F32}}
	var err error
	o.Window, err = Open(subject, options)
	if vktest.Unvalidated(err) {
		options.Instance.SyncValidation = false
		o.Window, err = Open(subject, options)
	}
	if errors.Is(err, flash.ErrNoDevice) {
		displaytest.Missing(t, err.Error())
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, o.Window.Close())
		require.Empty(t, vktest.Leaked(o.before, o.faults.Live()))
		mu.Lock()
		defer mu.Unlock()
		require.Empty(t, messages, "validation")
	})
	display.Do("mousemove", "1199", "899") // over no map
	o.steps(1)
	return o
}

// steps takes the events there are and draws, until nothing changes any more but at least so often.
func (o *opened) steps(n int) {
	o.t.Helper()
	end := time.Now().Add(2 * time.Minute)
	for i := 0; i < n || o.dirty || o.stale || !o.renderer.Settled(o.State); i++ {
		on, err := o.Step(time.Millisecond)
		require.NoError(o.t, err)
		require.True(o.t, on, "the window closed")
		require.True(o.t, time.Now().Before(end), "it does not settle")
	}
	told, err := o.settle()
	require.NoError(o.t, err)
	if told {
		o.dirty = true
		o.steps(1)
	}
}

// until steps until something is so.
func (o *opened) until(what string, so func() bool) {
	o.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); {
		_, err := o.Step(time.Millisecond)
		require.NoError(o.t, err)
		require.True(o.t, time.Now().Before(end), what)
	}
	o.steps(1)
}

// shows checks that the display shows the maps: each pixel of the large one and of the small ones has the colour of its cell's value. The
// pointer must be over none of them.
func (o *opened) shows() {
	o.t.Helper()
	o.steps(1)
	var err error
	// The display's own work is not part of any fence.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err = o.compare(); err == nil || time.Now().After(end) {
			break
		}
	}
	require.NoError(o.t, err)
}

func (o *opened) compare() error {
	lay, w, pixels := o.State.Layout(), o.State.Work(), o.display.Pixels()
	heads := o.State.LayerShown().Heads
	for h := -1; h < heads; h++ {
		box, of := lay.Large, w.Large
		if h >= 0 {
			if lay.ThumbSide == 0 {
				break
			}
			box, of = lay.Thumbs[h], w.Grid
		}
		cells, err := o.renderer.Cells(context.Background(), of, h >= 0, max(h, 0))
		if err != nil {
			return err
		}
		var peak float32
		for _, c := range cells {
			peak = max(peak, c)
		}
		for y := range box.H {
			for x := range box.W {
				value := cells[y*of.Rows/box.H*of.Columns+x*of.Columns/box.W]
				at := o.State.Range(float64(peak)).Of(float64(value))
				got := pixels[(box.Y+y)*o.display.Width+box.X+x]
				if value == 0 && got == uint32(view.Empty&0xffffff) {
					continue
				}
				if h == o.State.Head && got == 0xe6e9ef && w.Large.View != w.Grid.View {
					continue // the outline of what is seen large
				}
				// A position that lies between two colours may be rounded to either.
				colors := o.State.ColorMap()
				if value == 0 || got != entry(colors, at-1e-4) && got != entry(colors, at+1e-4) {
					return fmt.Errorf("head %d, pixel (%d, %d): the display shows %06x, and the cell is %g of %g", h, x, y, got,
						value, peak)
				}
			}
		}
	}
	return nil
}

// entry is the colour of the table for a place from 0 to 1, as 0xRRGGBB.
func entry(c *picture.Colors, at float64) uint32 {
	x := c.At(math.Floor(min(max(at, 0), 1)*255+0.5) / 255)
	return uint32(x.R)<<16 | uint32(x.G)<<8 | uint32(x.B)
}

func small(t *testing.T) *view.Subject { return random(t, 3, 3, 1, 96, 96, 16) }

// The window shows what attends to what: the display's pixels are the map's values through the table of colours, whichever table, scale,
// pooling and options.
func TestShowsMap(t *testing.T) {
	o := open(t, small(t))
	o.shows()
	for _, keys := range []string{"l", "m", "l", "p", "c", "b", "0", "+", "m", "r"} {
		for _, k := range keys {
			require.True(t, o.State.Press(view.Key(k)))
		}
		o.dirty = true
		o.shows()
	}
}

// A hundred frames, each with attention computed anew, are presented by turns of what is in flight.
func TestHundredFrames(t *testing.T) {
	o := open(t, small(t))
	o.State.Running = true
	from := o.Frames
	begin := time.Now()
	for o.Frames < from+100 {
		_, err := o.Step(0)
		require.NoError(t, err)
	}
	t.Logf("%v a frame", time.Since(begin)/100)
	o.State.Running = false
	o.dirty = true
	o.shows()
}

// The window is made larger and smaller, hides and comes back, and shows what it should after each.
func TestResize(t *testing.T) {
	o := open(t, small(t))
	for _, size := range [][2]int{{1100, 800}, {300, 200}, {64, 48}, {1, 1}, {usualWidth, usualHeight}, {700, 701}} {
		o.glfw.SetSize(size[0], size[1])
		o.until(fmt.Sprint("the size ", size), func() bool { return o.State.Width == size[0] && o.State.Height == size[1] })
		if size[0] >= 64 {
			o.shows()
		}
	}
	o.glfw.Hide()
	o.dirty = true
	o.steps(3)
	o.glfw.Show()
	o.dirty = true
	o.shows()
}

// A window manager minimises the window and brings it back. Meanwhile it goes on taking keys' consequences, and then it shows them.
func TestMinimise(t *testing.T) {
	o := open(t, small(t))
	o.display.Manage()
	iconified := func() bool { return o.glfw.GetAttrib(glfw.Iconified) == glfw.True }
	for range 2 {
		o.until("the window is minimised", func() bool {
			o.glfw.Iconify() // again until the window manager is there
			return iconified()
		})
		require.True(t, o.State.Press('m'))
		o.dirty = true
		o.steps(3)
		require.True(t, iconified())
		o.glfw.Restore()
		o.until("the window is back", func() bool { return !iconified() })
		o.shows()
	}
}

// A surface that is lost when it is asked what it takes is made anew, too.
func TestLostWhenAsked(t *testing.T) {
	o := open(t, small(t))
	require.NoError(t, o.dropChain())
	require.NoError(t, o.faults.Arm("surface", 1, vk.ErrSurfaceLost))
	o.stale = true
	o.until("another surface", func() bool { return o.chain != nil && !o.stale })
	o.shows()
}

// Swapchains that go out of date, and surfaces that are lost, when images are acquired and when they are presented, are made anew: the next
// frames show.
func TestLostSurface(t *testing.T) {
	o := open(t, small(t))
	for _, c := range []struct {
		kind   string
		result vk.Result
	}{{"acquire", vk.ErrOutOfDate}, {"present", vk.ErrOutOfDate}, {"acquire", vk.ErrSurfaceLost}, {"present", vk.ErrSurfaceLost},
		{"acquire", vk.Suboptimal}, {"present", vk.Suboptimal}, {"swapchain", vk.ErrSurfaceLost}} {
		chain, surface := o.chain, o.surface
		require.NoError(t, o.faults.Arm(c.kind, 1, c.result))
		o.dirty = true
		o.stale = c.kind == "swapchain"
		o.until(fmt.Sprint(c), func() bool { return o.faults.Fired() != "" && !o.stale && !o.dirty && o.chain != nil })
		require.NotSame(t, chain, o.chain, "%v", c)
		require.Equal(t, c.result == vk.ErrSurfaceLost, surface != o.surface, "%v", c)
		o.shows()
	}
}

// A lost device ends the window with an error that says so, and closing it leaves nothing behind.
func TestLostDevice(t *testing.T) {
	o := open(t, small(t))
	require.NoError(t, o.faults.Arm("submit", 1, vk.ErrDeviceLost))
	o.dirty = true
	var err error
	for i := 0; i < 100 && err == nil; i++ {
		_, err = o.Step(0)
	}
	require.ErrorIs(t, err, vk.ErrDeviceLost)
}

// Keys, clicks, drags and the wheel do what they do when a user does them.
func TestKeysAndMouse(t *testing.T) {
	o := open(t, small(t))
	at := func(x, y int) []string { return []string{"mousemove", fmt.Sprint(x), fmt.Sprint(y)} }
	o.display.Do(at(usualWidth/2, usualHeight-20)...)
	o.display.Do("key", "c")
	o.until("c", func() bool { return !o.State.Options.Causal })
	o.display.Do("key", "question")
	o.until("?", func() bool { return o.State.Help })
	o.display.Do("key", "Escape")
	o.until("Escape", func() bool { return !o.State.Help })
	o.display.Do("key", "Tab")
	o.until("Tab", func() bool { return o.State.Head == 1 })
	o.shows()

	lay := o.State.Layout()
	middle := func(b view.Box) (int, int) { return b.X + b.W/2, b.Y + b.H/2 }
	x, y := middle(lay.Thumbs[2])
	o.display.Do(append(at(x, y), "click", "1")...)
	o.until("a click on a small map", func() bool { return o.State.Head == 2 })

	x, y = middle(lay.Large)
	o.display.Do(append(at(x, y), "click", "4", "click", "4")...)
	o.until("the wheel", func() bool { return o.State.View.Keys < 70 })
	hover, over := o.State.Hover()
	require.True(t, over)
	o.until("the weight under the pointer", func() bool { return o.shown.HasWeight })
	require.Equal(t, o.State.Head, hover.Head)
	view0 := o.State.View
	o.display.Do("mousedown", "1")
	o.display.Do(at(x-100, y-60)...)
	o.until("a drag", func() bool { return o.State.View.Key > view0.Key && o.State.View.Query > view0.Query })
	o.display.Do("mouseup", "1")

	s := lay.Sliders[3]
	o.display.Do(append(at(s.X+s.W/4, s.Y+s.H/2), "click", "1")...)
	o.until("a click on a slider", func() bool { return o.State.Options.Temperature < 0.7 })
	o.shows()

	o.display.Do("key", "q")
	for end := time.Now().Add(2 * time.Minute); ; {
		on, err := o.Step(time.Millisecond)
		require.NoError(t, err)
		if !on {
			break
		}
		require.True(t, time.Now().Before(end), "q")
	}
}

// Without a display the error says so, and nothing is left of what was begun.
func TestNoDisplay(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	t.Setenv("DISPLAY", "")
	t.Setenv("WAYLAND_DISPLAY", "")
	if runtime.GOOS != "linux" {
		t.Skip("other systems have one display, or none")
	}
	_, err := Open(small(t), Options{Width: 64, Height: 64})
	require.ErrorIs(t, err, ErrNoDisplay)
}

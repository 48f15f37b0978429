//go:build view && cgo

package window

import (
	"math"

	"github.com/go-gl/glfw/v3.3/glfw"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/view"
)

// named are GLFW's keys that type no character.
var named = map[glfw.Key]view.Key{
	glfw.KeyEscape: view.Escape, glfw.KeyTab: view.Tab, glfw.KeyLeft: view.Left, glfw.KeyRight: view.Right, glfw.KeyUp: view.Up,
	glfw.KeyDown: view.Down, glfw.KeyPageUp: view.PageUp, glfw.KeyPageDown: view.PageDown, glfw.KeyHome: view.Home,
}

// listen hands the window's events to the state.
func (w *Window) listen() {
	w.glfw.SetCharCallback(func(_ *glfw.Window, r rune) { w.dirty = w.State.Press(view.Key(r)) || w.dirty })
	w.glfw.SetKeyCallback(func(_ *glfw.Window, key glfw.Key, _ int, action glfw.Action, _ glfw.ModifierKey) {
		if k, ok := named[key]; ok && action != glfw.Release {
			w.dirty = w.State.Press(k) || w.dirty
		}
	})
	w.glfw.SetCursorPosCallback(func(g *glfw.Window, x, y float64) { w.move(g, x, y, true) })
	w.glfw.SetCursorEnterCallback(func(g *glfw.Window, entered bool) {
		x, y := g.GetCursorPos()
		w.move(g, x, y, entered)
	})
	w.glfw.SetMouseButtonCallback(func(_ *glfw.Window, button glfw.MouseButton, action glfw.Action, _ glfw.ModifierKey) {
		if button == glfw.MouseButtonLeft {
			w.State.Button(action == glfw.Press)
			w.dirty = true
		}
	})
	w.glfw.SetScrollCallback(func(_ *glfw.Window, _, y float64) { w.State.Wheel(y); w.dirty = true })
	w.glfw.SetFramebufferSizeCallback(func(*glfw.Window, int, int) { w.stale = true })
	w.glfw.SetContentScaleCallback(func(*glfw.Window, float32, float32) { w.stale = true })
	w.glfw.SetIconifyCallback(func(_ *glfw.Window, iconified bool) { w.stale = w.stale || !iconified })
	w.glfw.SetRefreshCallback(func(*glfw.Window) { w.dirty = true })
}

// move tells the state where the pointer is, in pixels rather than the window system's units.
func (w *Window) move(g *glfw.Window, x, y float64, inside bool) {
	width, height := g.GetSize()
	if width == 0 || height == 0 {
		return
	}
	across, down := g.GetFramebufferSize()
	px, py := int(math.Floor(x*float64(across)/float64(width))), int(math.Floor(y*float64(down)/float64(height)))
	w.State.Move(px, py, inside && px >= 0 && py >= 0 && px < across && py < down)
	w.dirty = true
}

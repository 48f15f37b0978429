package attn

import "fmt"

// Window limits how far from its own position, i + Nk − Nq, query i sees: allowed are keys from left before it to right after it, both
// included. The zero value is no limit.
type Window struct{ left, right int } // one more than the distances; 0: no limit

// NewWindow is the window of these distances; −1 is no limit.
func NewWindow(left, right int) Window { return Window{left + 1, right + 1} }

// None says that there is no limit.
func (w Window) None() bool { return w == Window{} }

// Reach is the distances, −1 where there is no limit.
func (w Window) Reach() (left, right int) { return w.left - 1, w.right - 1 }

// String gives the distances, for example "1023 left, 0 right".
func (w Window) String() string {
	side := func(n int, name string) string {
		if n < 0 {
			return "all " + name
		}
		return fmt.Sprintf("%d %s", n, name)
	}
	left, right := w.Reach()
	return side(left, "left") + ", " + side(right, "right")
}

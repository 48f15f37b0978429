package flash

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
)

// Window is a sliding window: query i may attend to key j only if
//
//	i + Nk − Nq − left ≤ j ≤ i + Nk − Nq + right
//
// so that the last query's own position is the last key, as with CausalBottomRight (FlashAttention's window_size; Beltagy et al.,
// "Longformer", 2020, section 3.1; Jiang et al., "Mistral 7B", 2023, section 2). Tiles outside of it are neither read nor computed. The
// zero Window is none.
type Window attn.Window

// SlidingWindow is the window of left keys before a query's own position, right keys after it, and the one at it; −1 is no limit on that
// side. A model's causal window of 1024 keys is SlidingWindow(1023, 0), or SlidingWindow(1023, -1) with a causal mask.
func SlidingWindow(left, right int) Window { return Window(attn.NewWindow(left, right)) }

// Reach is the two distances, −1 for no limit.
func (w Window) Reach() (left, right int) { return attn.Window(w).Reach() }

// String gives the distances, for example "1023 left, 0 right".
func (w Window) String() string { return attn.Window(w).String() }

func (w Window) check() error {
	left, right := w.Reach()
	for _, side := range []struct {
		name string
		n    int
	}{{"left", left}, {"right", right}} {
		if side.n < -1 || side.n > math.MaxInt32/2 {
			return badArgument("Problem.Window", side.n, "keys to the %s must be from -1, no limit, to %d", side.name, math.MaxInt32/2)
		}
	}
	return nil
}

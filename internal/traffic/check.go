package traffic

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
)

// Models come from result files as well as from plans, and they walk over blocks: what is far from any kernel's numbers is refused, as it
// would overflow or take hours to count.
const (
	mostSide  = 1 << 16 // of a block, or numbers like the blocks of a run
	mostWalks = 1 << 25 // blocks that are counted one by one: tenths of a second
	mostTiles = 1 << 28 // tiles of walks by a block mask: a second or two
)

// Error names what cannot be counted with, what it was, and what it must be.
type Error struct{ Name, Value, Rule string }

// Error says so in one line.
func (e *Error) Error() string { return fmt.Sprintf("traffic: %s is %s: %s", e.Name, e.Value, e.Rule) }

func bad(name string, value any, rule string, a ...any) error {
	return &Error{name, fmt.Sprint(value), fmt.Sprintf(rule, a...)}
}

// block checks the sides of a block.
func block(name string, rows, columns int) error {
	if min(rows, columns) < 1 || max(rows, columns) > mostSide {
		return bad(name, fmt.Sprintf("%dx%d", rows, columns), "must have rows and columns from 1 to %d", mostSide)
	}
	return nil
}

// numbers checks what else a model has numbers of: parts, readers, tiles ahead.
func numbers(name string, values ...int) error {
	for _, v := range values {
		if v < 0 || v > mostSide {
			return bad(name, v, "must count parts, readers and the like from 0 to %d", mostSide)
		}
	}
	return nil
}

// countable refuses a problem that blocks of such sizes cut into too many.
func countable(name string, p attn.Problem, blocks ...float64) error {
	sum := 0.0
	for _, n := range blocks {
		sum += n
	}
	return atMost(mostWalks, name, p, sum)
}

func atMost(most float64, name string, p attn.Problem, blocks float64) error {
	if blocks > most {
		return bad(name, fmt.Sprintf("%.3g blocks of %v", blocks, p), "must be at most %.0f, as they are counted one by one", most)
	}
	return nil
}

// blocksOf is the number of blocks into which n is cut, each of this number of rows. It is a float, which does not overflow.
func blocksOf(n, rows int) float64 { return float64(attn.CeilDiv(n, max(rows, 1))) }

// unmasked refuses a problem with a block mask, for models of kernels that have none.
func unmasked(name string, p attn.Problem) error {
	if !p.Blocks.None() {
		return bad("the problem's block mask", p.Blocks, "%s kernels have none", name)
	}
	return nil
}

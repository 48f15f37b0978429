package ring

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/access"
	"github.com/vkattn/vkattn/internal/attn"
)

// within is what flash keeps to itself.
var within = access.Get[*flash.Device, *flash.Plan, flash.Problem, *flash.Tensor, *flash.Recording]()

// What a ring asks of the masks of a problem: no other file here names one, and this one those alone that it treats in ways of its own.

// byPosition is which keys each query sees by its position, in a sequence of queries and keys to which a normalized problem applies.
func byPosition(p *flash.Problem, queries, keys int) attn.Mask {
	return within.ByPosition(*p).Band(queries, keys)
}

// unmask takes the masks by position from the problem of a launch all of whose queries see all of its keys.
func unmask(p *flash.Problem) { within.Unmask(p) }

// positional says that what becomes of a pair depends on more than the distance of its positions.
func positional(p *flash.Problem) bool {
	return p.Dropout != 0 || !p.ScoreFunction.Identity() || !p.MaskFunction.Everything() || p.Bias != flash.PerScore{} ||
		p.Mask != flash.PerScore{} || p.Blocks != flash.Blocks{}
}

// growing says that the later a query is, the more keys it sees.
func growing(p *flash.Problem) bool {
	return p.Causal != flash.CausalNone && p.Window == (flash.Window{})
}

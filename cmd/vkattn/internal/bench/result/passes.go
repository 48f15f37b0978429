package result

import (
	"fmt"
	"strings"
)

// Passes says which passes are timed. The zero value is forward alone.
type Passes struct {
	Fwd, Bwd bool
	JVP      bool // forward mode, beside the forward pass: of this library alone
}

// ParsePasses reads a list of fwd, bwd, both and jvp; the passes of an empty list
// are the zero value.
func ParsePasses(list []string) (p Passes, err error) {
	for _, s := range list {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "fwd", "forward":
			p.Fwd = true
		case "bwd", "backward":
			p.Bwd = true
		case "both":
			p.Fwd, p.Bwd = true, true
		case "jvp":
			p.Fwd, p.JVP = true, true
		default:
			return p, fmt.Errorf("pass %q: it must be fwd, bwd, both or jvp", s)
		}
	}
	return p, nil
}

// OrDefault is the passes, forward alone in place of the zero value.
func (p Passes) OrDefault() Passes {
	if p == (Passes{}) {
		p.Fwd = true
	}
	return p
}

// And is the passes of either.
func (p Passes) And(o Passes) Passes {
	p, o = p.OrDefault(), o.OrDefault()
	return Passes{p.Fwd || o.Fwd, p.Bwd || o.Bwd, p.JVP || o.JVP}
}

// names are those of the peer's protocol.
func (p Passes) names() (out []string) {
	p = p.OrDefault()
	if p.Fwd {
		out = append(out, "fwd")
	}
	if p.Bwd {
		out = append(out, "bwd")
	}
	return out
}

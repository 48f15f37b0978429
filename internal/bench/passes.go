package bench

import (
	"fmt"
	"strings"
)

// Passes says which passes are timed. The zero value is forward alone.
type Passes struct{ Fwd, Bwd bool }

// ParsePasses reads a list of fwd, bwd and both.
func ParsePasses(list []string) (p Passes, err error) {
	for _, s := range list {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "fwd", "forward":
			p.Fwd = true
		case "bwd", "backward":
			p.Bwd = true
		case "both":
			p = Passes{true, true}
		default:
			return p, fmt.Errorf("pass %q: it must be fwd, bwd or both", s)
		}
	}
	return p.orDefault(), nil
}

func (p Passes) orDefault() Passes {
	if p == (Passes{}) {
		p.Fwd = true
	}
	return p
}

// names are those of the peer's protocol, which always times forward.
func (p Passes) names() []string {
	if p.Bwd {
		return []string{"fwd", "bwd"}
	}
	return []string{"fwd"}
}

// Done says whether a row has what is asked for, or the reason why it never will.
func (p Passes) Done(r Row) bool {
	p = p.orDefault()
	return r.Error != "" || (!p.Fwd || r.Fwd.Ms > 0) && (!p.Bwd || r.Bwd.Ms > 0 || r.Note != "")
}

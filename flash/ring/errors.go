package ring

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/flash"
)

// badArgument makes the library's error for an argument that cannot be.
func badArgument(name string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

// ShardError says in what ranks disagree: nothing was computed.
type ShardError struct {
	Rank        int          // that found it
	Differences []Difference // from what this rank has
}

// Difference is what another rank has otherwise.
type Difference struct {
	Rank        int
	What        string // for example "Problem.Heads"
	Mine, Their string
}

// Error names the differences.
func (e *ShardError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ring: ranks disagree on what they compute:")
	for i, d := range e.Differences {
		if i > 0 {
			b.WriteByte(';')
		}
		fmt.Fprintf(&b, " %s is %s of rank %d and %s of rank %d", d.What, d.Mine, e.Rank, d.Their, d.Rank)
	}
	return b.String()
}

// Unwrap makes the error ErrShards.
func (e *ShardError) Unwrap() error { return ErrShards }

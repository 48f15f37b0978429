package attn

import (
	"errors"
	"fmt"
)

// ErrArgument marks every error about what a caller passed.
var ErrArgument = errors.New("flash: bad argument")

// ArgumentError names the argument that is wrong, what it was, and the rule it breaks. The public package makes its own of it.
type ArgumentError struct{ Argument, Value, Rule string }

// Error says which argument is what, and what it must be.
func (e *ArgumentError) Error() string {
	return fmt.Sprintf("flash: %s is %s: %s", e.Argument, e.Value, e.Rule)
}

// Unwrap makes errors.Is(err, ErrArgument) true.
func (e *ArgumentError) Unwrap() error { return ErrArgument }

// BadArgument makes the error; a are for the verbs in rule.
func BadArgument(name string, value any, rule string, a ...any) error {
	return &ArgumentError{Argument: name, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

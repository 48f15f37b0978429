package kernel

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Tuning is the overrides a caller gave, and the values in effect as kernels take them.
type Tuning struct {
	option string // that gave them, for errors
	Given  map[string]int
	Effect map[string]int
	Rows   []*tiles.Row // of tiles, that were taken
}

func NewTuning(given map[string]int) *Tuning {
	return &Tuning{option: "WithTuning", Given: given, Effect: map[string]int{}}
}

func NewBackwardTuning(given map[string]int) *Tuning {
	return &Tuning{option: "WithBackwardTuning", Given: given, Effect: map[string]int{}}
}

// Get takes a parameter: the caller's value, else the kernel's.
func (t *Tuning) Get(name string, otherwise int) int {
	v, ok := t.Given[name]
	if !ok {
		v = otherwise
	}
	t.Effect[name] = v
	return v
}

// Took notes the row of tiles that a kernel takes.
func (t *Tuning) Took(r *tiles.Row) { t.Rows = append(t.Rows, r) }

// Bad is the error of a parameter's value that breaks a rule.
func (t *Tuning) Bad(name string, rule string, a ...any) error {
	return attn.BadArgument(t.option+"["+name+"]", t.Effect[name], rule, a...)
}

// NoTile is the error of a kernel of which no tile fits, for the last one's reason: a bad argument where the caller gave numbers, else why
// the kernel is not taken.
func (t *Tuning) NoTile(why string) error {
	if len(t.Given) > 0 {
		return attn.BadArgument(t.option, fmt.Sprint(t.Given), "%s", why)
	}
	return &Declined{Why: why}
}

// BadTile is NoTile where the parameter that breaks the rule is known.
func (t *Tuning) BadTile(name, why string) error {
	if _, given := t.Given[name]; given {
		return t.Bad(name, "%s", why)
	}
	if len(t.Given) > 0 {
		why = name + ": " + why
	}
	return t.NoTile(why)
}

// DecodeParameter is the tuning parameter that turns the kernel of few rows off (0) or insists on it (1).
const DecodeParameter = "decode"

// Decodes declines a kernel where the caller's parameter decode asks for the other: the one for few rows, or one for any number.
func (t *Tuning) Decodes(o *Offer) error {
	on, given := t.Given[DecodeParameter]
	if _, has := o.Parameters[DecodeParameter]; !has {
		return nil
	}
	if !given {
		if o.MostRows > 0 {
			t.Effect[DecodeParameter] = 1
		}
		return nil
	}
	t.Effect[DecodeParameter] = on
	switch {
	case on != 0 && o.MostRows == 0:
		return &Declined{Why: "WithTuning[" + DecodeParameter + "] asks for the kernel of few rows"}
	case on == 0 && o.MostRows > 0:
		return &Declined{Why: "WithTuning[" + DecodeParameter + "] is 0"}
	}
	return nil
}

// SlabsParameter is the tuning parameter that turns the backward pass by way of P and dS in memory off (0) or insists on it (1).
const SlabsParameter = "slabs"

// KeepDSParameter is the one that turns the backward pass off (0) in which the kernel of keys leaves dS in memory for dq, or insists on it
// (1).
const KeepDSParameter = "keep_ds"

func SameTuning(a, b map[string]int) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

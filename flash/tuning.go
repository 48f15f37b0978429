package flash

import "github.com/vkattn/vkattn/internal/tiles"

// tuning is the overrides a caller gave, and the values in effect as kernels take them.
type tuning struct {
	option string // that gave them, for errors
	given  map[string]int
	effect map[string]int
	rows   []*tiles.Row // of tiles, that were taken
}

func newTuning(given map[string]int) *tuning {
	return &tuning{option: "WithTuning", given: given, effect: map[string]int{}}
}

func newBackwardTuning(given map[string]int) *tuning {
	return &tuning{option: "WithBackwardTuning", given: given, effect: map[string]int{}}
}

// get takes a parameter: the caller's value, else the kernel's.
func (t *tuning) get(name string, otherwise int) int {
	v, ok := t.given[name]
	if !ok {
		v = otherwise
	}
	t.effect[name] = v
	return v
}

// took notes the row of tiles that a kernel takes.
func (t *tuning) took(r *tiles.Row) { t.rows = append(t.rows, r) }

// bad is the error of a parameter's value that breaks a rule.
func (t *tuning) bad(name string, rule string, a ...any) error {
	return badArgument(t.option+"["+name+"]", t.effect[name], rule, a...)
}

// decodeParameter is the tuning parameter that turns the kernel of few rows off (0) or insists on it (1).
const decodeParameter = "decode"

// decodes declines a kernel where the caller's parameter decode asks for the other: the one for few rows, or one for any number.
func (t *tuning) decodes(o *offer) error {
	on, given := t.given[decodeParameter]
	if _, has := o.parameters[decodeParameter]; !has {
		return nil
	}
	if !given {
		if o.mostRows > 0 {
			t.effect[decodeParameter] = 1
		}
		return nil
	}
	t.effect[decodeParameter] = on
	switch {
	case on != 0 && o.mostRows == 0:
		return &declined{why: "WithTuning[" + decodeParameter + "] asks for the kernel of few rows"}
	case on == 0 && o.mostRows > 0:
		return &declined{why: "WithTuning[" + decodeParameter + "] is 0"}
	}
	return nil
}

func sameTuning(a, b map[string]int) bool {
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

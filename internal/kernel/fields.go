package kernel

import (
	"slices"

	"github.com/vkattn/vkattn/internal/tiles"
)

// Field is a number or a switch of a tile of type T: how tables of tiles and tuning parameters call it, and where it stands.
type Field[T any] struct {
	Name     string
	Constant string         // the specialization constant that it is, "" for none of its own
	Of       func(t *T) any // *int or *bool
	// Open: 0 says that the kernel chooses, so candidates leave it out.
	Open bool
}

// Fields are those of a tile. Rows of tables, tuning parameters, specialization constants and candidates follow from them; ranges are those
// of the tables (internal/tiles/generic.tiles), see RowRanges.
type Fields[T any] []Field[T]

func (f *Field[T]) get(t *T) int {
	switch p := f.Of(t).(type) {
	case *int:
		return *p
	case *bool:
		return BoolInt(*p)
	}
	panic("kernel: field " + f.Name + " is neither a number nor a switch")
}

func (f *Field[T]) set(t *T, v int) {
	switch p := f.Of(t).(type) {
	case *int:
		*p = v
	case *bool:
		*p = v != 0
	}
}

// Read takes what a row says; what it does not name is 0.
func (all Fields[T]) Read(t *T, r *tiles.Row) {
	for i := range all {
		all[i].set(t, r.Get(all[i].Name))
	}
}

// Take puts the caller's numbers, whose names begin with prefix, in the place of those that are there: of the fields of these names, or of
// all where none is named.
func (all Fields[T]) Take(t *T, o *Tuning, prefix string, names ...string) {
	for i := range all {
		if f := &all[i]; len(names) == 0 || slices.Contains(names, f.Name) {
			f.set(t, o.Get(prefix+f.Name, f.get(t)))
		}
	}
}

// Constants are the specialization constants that fields are.
func (all Fields[T]) Constants(t *T) Constants {
	out := Constants{}
	for i := range all {
		if f := &all[i]; f.Constant != "" {
			out[f.Constant] = f.get(t)
		}
	}
	return out
}

// Values are the fields as tuning parameters.
func (all Fields[T]) Values(t *T) map[string]int {
	out := map[string]int{}
	for i := range all {
		if v := all[i].get(t); v != 0 || !all[i].Open {
			out[all[i].Name] = v
		}
	}
	return out
}

// RowRanges are the ranges of what rows of a kernel may name, as those of tuning parameters.
func RowRanges(kernel string) Parameters {
	out := Parameters{}
	for name, r := range tiles.Ranges(kernel) {
		out[name] = Between(r[0], r[1])
	}
	return out
}

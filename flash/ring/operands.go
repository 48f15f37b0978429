package ring

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// operandsWanted lists those tensors of a pass that the problem has, besides queries, keys, values and what is made of them. Bias and mask
// are of the rank's queries and all keys; starts, lengths and the block mask are of the whole.
func (w *pass) operandsWanted() (all []wanted) {
	g, o := &w.problem, w.of
	for _, x := range []wanted{{"Bias", o.Bias, w.BiasShape()}, {"Mask", o.Mask, w.MaskShape()},
		{"Sinks", o.Sinks, [4]int{1, 1, 1, g.Heads}},
		{"QueryStarts", o.QueryStarts, [4]int{1, 1, 1, g.Batch + 1}}, {"KeyStarts", o.KeyStarts, [4]int{1, 1, 1, g.Batch + 1}},
		{"QueryLengths", o.QueryLengths, [4]int{1, 1, 1, g.Batch}}, {"KeyLengths", o.KeyLengths, [4]int{1, 1, 1, g.Batch}}} {
		if has(g, x.name) {
			all = append(all, x)
		}
	}
	return all
}

// has says whether a problem has what a field of a pass is about; true of fields that every problem has.
func has(g *flash.Problem, field string) bool {
	switch field {
	case "Bias", "DBias":
		return g.Bias != flash.PerScore{}
	case "Mask":
		return g.Mask != flash.PerScore{}
	case "Sinks", "DSinks":
		return g.Sinks
	case "QueryStarts", "KeyStarts":
		return g.Packed != flash.Packed{}
	case "QueryLengths":
		return g.QueryLengths
	case "KeyLengths":
		return g.KeyLengths
	case "MaxLogit":
		return g.MaxLogit
	case "Blocks":
		return g.Blocks != flash.Blocks{}
	case "DCaptured":
		return len(g.Captures()) > 0
	}
	return slices.Contains([]string{"Q", "K", "V", "O", "LSE", "DO", "DLSE", "DQ", "DK", "DV", "Accumulate", "Captured", "Seed", "Offset"},
		field)
}

// refuse says which field of a [flash.Forward] or [flash.Backward] is given that a rank's pass would leave unread.
func (w *pass) refuse(call string, in any) error {
	v := reflect.ValueOf(in)
	for _, f := range reflect.VisibleFields(v.Type()) {
		field := v.FieldByIndex(f.Index)
		switch {
		case f.Anonymous || field.IsZero(): // what is embedded has fields of its own in the list
		case has(&w.problem, f.Name):
			if err := undeclared(call+"."+f.Name, field.Interface()); err != nil {
				return err
			}
		default:
			return badArgument(call+"."+f.Name, "given", "must be nil: the problem has none")
		}
	}
	return nil
}

// undeclared refuses tensors of a declared use: it is of one recording, and a rank's pass is many.
func undeclared(name string, field any) error {
	var all flash.Captured
	switch field := field.(type) {
	case *flash.Tensor:
		all[0] = field
	case flash.Captured:
		all = field
	}
	for _, t := range all {
		if t.Use() != (flash.TensorUse{}) {
			return badArgument(name, t, "must be without a declared use: it is of a recording, and a rank's pass is none")
		}
	}
	return nil
}

// maskOf is a launch's mask: a part of the caller's, or of keys that begin with copies of the first, what leaves these out where the caller
// has none.
func (w *pass) maskOf(l *launch) *flash.Tensor {
	if l.pad == 0 || w.of.Mask != nil {
		return w.slice(w.of.Mask, l.problem.Mask, l)
	}
	t := w.buffer("pad.mask", flash.Bool, 2*granule, func(t *flash.Tensor) error {
		return t.UploadBytes(w.ctx, append(make([]byte, granule), bytes.Repeat([]byte{1}, granule)...))
	})
	return w.view(t, uint64(granule-l.pad), flash.Bool, [4]int{1, 1, 1, l.problem.KeyLen}, [4]int{})
}

// biasOf is a launch's bias: a part of the caller's, with −∞ for copies of the first key before the keys where a mask does not leave them
// out.
func (w *pass) biasOf(l *launch) *flash.Tensor {
	of := l.problem.Bias
	if l.pad == 0 || w.of.Mask == nil {
		return w.slice(w.of.Bias, of, l)
	}
	if w.of.Bias == nil {
		t := w.buffer("pad.bias", flash.F32, 2*granule, func(t *flash.Tensor) error {
			values := make([]float32, 2*granule)
			for i := range granule {
				values[i] = float32(math.Inf(-1))
			}
			return t.Upload(w.ctx, values)
		})
		return w.view(t, uint64(4*(granule-l.pad)), flash.F32, [4]int{1, 1, 1, of.Keys}, [4]int{})
	}
	shape := [4]int{of.Batch, of.Heads, of.Queries, of.Keys}
	t := w.likeBias("pad.bias", of.DType, shape)
	w.copies(w.slice(w.of.Bias, of, l), t)
	shape[3] = l.pad
	w.fill(w.view(t, t.Offset(), of.DType, shape, t.Strides()), float32(math.Inf(-1)))
	return t
}

// keysOf is a launch's keys and values of a block, with copies of the first ones before them where it wants some: numbers that functions of
// the scores are made for.
func (w *pass) keysOf(l *launch, block pair) pair {
	own := w.pairRows(block, l.keys)
	if l.pad == 0 {
		return own
	}
	padded := w.pair("pad", w.problem.DType, l.problem.KeyLen)
	first, before := w.pairRows(own, Span{0, 1}), w.pairRows(padded, Span{0, l.pad})
	if w.err != nil {
		return padded
	}
	for _, x := range [][2]*flash.Tensor{{first.k, before.k}, {first.v, before.v}} {
		strides := x[0].Strides()
		strides[2] = 0
		w.copies(w.view(x[0], x[0].Offset(), w.problem.DType, x[1].Shape(), strides), x[1])
	}
	w.copyPair(own, w.pairRows(padded, Span{l.pad, l.problem.KeyLen}))
	return padded
}

// pairRows is some rows of both.
func (w *pass) pairRows(p pair, of Span) pair { return pair{w.rows(p.k, of), w.rows(p.v, of)} }

// copyPair submits copies of both.
func (w *pass) copyPair(from, to pair) { w.copies(from.k, to.k, from.v, to.v) }

// fillPair submits the writing of one number everywhere in both.
func (w *pass) fillPair(p pair, value float32) {
	w.fill(p.k, value)
	w.fill(p.v, value)
}

// copies submits copies: from, to, from, to, and so on.
func (w *pass) copies(all ...*flash.Tensor) {
	for i := 0; i < len(all); i += 2 {
		w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: all[i], Y: all[i+1]})
	}
}

// fill submits the writing of one number everywhere in a tensor.
func (w *pass) fill(t *flash.Tensor, value float32) {
	shape := t.Shape()
	columns := 1024
	for columns < shape[3] {
		columns *= 2
	}
	row := w.buffer(fmt.Sprintf("%d times %g", columns, value), flash.F32, columns, func(t *flash.Tensor) error {
		values := make([]float32, columns)
		for i := range values {
			values[i] = value
		}
		return t.Upload(w.ctx, values)
	})
	w.copies(w.view(row, 0, flash.F32, shape, [4]int{0, 0, 0, 1}), t)
}

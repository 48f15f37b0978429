package ring

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// operands are what a pass is given besides queries, keys, values and what is made of them.
type operands struct {
	bias, mask             *flash.Tensor // of the rank's queries and all keys
	sinks                  *flash.Tensor
	queryStarts, keyStarts *flash.Tensor // of the whole, as are lengths

	queryLengths, keyLengths *flash.Tensor

	blocks   *flash.BlockMask // of the whole
	captured flash.Captured
	seed     uint64
	offset   uint32
}

func ofForward(f *flash.Forward) operands {
	return operands{bias: f.Bias, mask: f.Mask, sinks: f.Sinks, queryStarts: f.QueryStarts, keyStarts: f.KeyStarts,
		queryLengths: f.QueryLengths, keyLengths: f.KeyLengths,
		blocks: f.Blocks, captured: f.Captured, seed: f.Seed, offset: f.Offset}
}

// wanted lists those that the problem has.
func (o *operands) wanted(p *Plan) (all []wanted) {
	g := &p.problem
	for _, x := range []wanted{{"Bias", o.bias, p.BiasShape()}, {"Mask", o.mask, p.MaskShape()},
		{"Sinks", o.sinks, [4]int{1, 1, 1, g.Heads}},
		{"QueryStarts", o.queryStarts, [4]int{1, 1, 1, g.Batch + 1}}, {"KeyStarts", o.keyStarts, [4]int{1, 1, 1, g.Batch + 1}},
		{"QueryLengths", o.queryLengths, [4]int{1, 1, 1, g.Batch}}, {"KeyLengths", o.keyLengths, [4]int{1, 1, 1, g.Batch}}} {
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

// maskOf is a launch's mask: a part of the caller's, or of keys that begin with rows of zeros, what leaves these out where the caller has
// none.
func (w *pass) maskOf(l *launch) (*flash.Tensor, error) {
	if l.pad == 0 || w.of.mask != nil {
		return slice(w.of.mask, l.problem.Mask, l)
	}
	t, err := w.constant("pad.mask", flash.Bool, 2*granule, func(t *flash.Tensor) error {
		return t.UploadBytes(w.ctx, append(make([]byte, granule), bytes.Repeat([]byte{1}, granule)...))
	})
	if err != nil {
		return nil, err
	}
	return t.View(t.Offset()+uint64(granule-l.pad), flash.Bool, [4]int{1, 1, 1, l.problem.KeyLen}, [4]int{})
}

// biasOf is a launch's bias: a part of the caller's, with −∞ for rows of zeros before the keys where a mask does not leave them out.
func (w *pass) biasOf(l *launch) (*flash.Tensor, error) {
	of := l.problem.Bias
	if l.pad == 0 || w.of.mask == nil {
		return slice(w.of.bias, of, l)
	}
	if w.of.bias == nil {
		t, err := w.constant("pad.bias", flash.F32, 2*granule, func(t *flash.Tensor) error {
			values := make([]float32, 2*granule)
			for i := range granule {
				values[i] = float32(math.Inf(-1))
			}
			return t.Upload(w.ctx, values)
		})
		if err != nil {
			return nil, err
		}
		return t.View(uint64(4*(granule-l.pad)), flash.F32, [4]int{1, 1, 1, of.Keys}, [4]int{})
	}
	shape := [4]int{of.Batch, of.Heads, of.Queries, of.Keys}
	t, err := w.likeBias("pad.bias", of.DType, shape)
	if err != nil {
		return nil, err
	}
	part, err := slice(w.of.bias, of, l)
	if err != nil {
		return nil, err
	}
	if err := w.copies(part, t); err != nil {
		return nil, err
	}
	shape[3] = l.pad
	hidden, err := t.View(t.Offset(), of.DType, shape, t.Strides())
	if err != nil {
		return nil, err
	}
	return t, w.fill(hidden, float32(math.Inf(-1)))
}

// keysOf is a launch's keys and values of a block, with zeros before them where it wants such.
func (w *pass) keysOf(l *launch, block pair) (out pair, err error) {
	if out, err = w.pairRows(block, l.keys); err != nil || l.pad == 0 {
		return out, err
	}
	padded, err := w.pair("pad", w.problem.DType, l.problem.KeyLen)
	if err != nil {
		return out, err
	}
	before, err := padded.rows(Span{0, l.pad})
	if err != nil {
		return out, err
	}
	behind, err := padded.rows(Span{l.pad, l.problem.KeyLen})
	if err != nil {
		return out, err
	}
	for _, t := range []*flash.Tensor{before.k, before.v} {
		if err := w.fill(t, 0); err != nil {
			return out, err
		}
	}
	return padded, w.copies(out.k, behind.k, out.v, behind.v)
}

// pairRows is some rows of both, of the caller's or of the rank's own.
func (w *pass) pairRows(p pair, of Span) (out pair, err error) {
	if out.k, err = w.rows(p.k, of); err == nil {
		out.v, err = w.rows(p.v, of)
	}
	return out, err
}

// rows is some rows of both, of the rank's own.
func (p pair) rows(of Span) (out pair, err error) {
	if out.k, err = rows(p.k, of); err == nil {
		out.v, err = rows(p.v, of)
	}
	return out, err
}

// copies submits copies: from, to, from, to, and so on.
func (w *pass) copies(all ...*flash.Tensor) error {
	for i := 0; i < len(all); i += 2 {
		if err := w.accumulate(flash.AccumulateCopy, flash.Accumulate{X: all[i], Y: all[i+1]}); err != nil {
			return err
		}
	}
	return nil
}

// fill submits the writing of one number everywhere in a tensor.
func (w *pass) fill(t *flash.Tensor, value float32) error {
	shape := t.Shape()
	columns := 1024
	for columns < shape[3] {
		columns *= 2
	}
	row, err := w.constant(fmt.Sprintf("%d times %g", columns, value), flash.F32, columns, func(t *flash.Tensor) error {
		values := make([]float32, columns)
		for i := range values {
			values[i] = value
		}
		return t.Upload(w.ctx, values)
	})
	if err != nil {
		return err
	}
	x, err := row.View(0, flash.F32, shape, [4]int{0, 0, 0, 1})
	if err != nil {
		return err
	}
	return w.copies(x, t)
}

// constant is a tensor of the plan's that is filled once.
func (p *Plan) constant(name string, dtype flash.DType, elements int, put func(*flash.Tensor) error) (*flash.Tensor, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.buffers[name]; t != nil {
		return t, nil
	}
	t, err := p.ring.dev.NewTensor(dtype, 1, 1, 1, elements)
	if err != nil {
		return nil, err
	}
	p.buffers[name] = t
	return t, put(t)
}

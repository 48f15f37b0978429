package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// arena is a buffer on the device with a tensor somewhere inside it.
type arena struct {
	placement
	whole  *flash.Tensor // the buffer as one row of elements
	tensor *flash.Tensor // the tensor that kernels are given
}

func newArena(dev *flash.Device, p placement) (*arena, error) {
	whole, err := dev.NewTensor(p.dtype, 1, 1, 1, p.total)
	if err != nil {
		return nil, err
	}
	tensor, err := whole.View(uint64(p.dtype.Bytes(p.offset)), p.dtype, p.shape, p.strides)
	if err != nil {
		whole.Close()
		return nil, err
	}
	return &arena{p, whole, tensor}, nil
}

func (a *arena) close() {
	if a != nil {
		a.whole.Close()
	}
}

// input fills the buffer: values where the tensor's elements are, NaN and infinities everywhere else.
func (a *arena) input(ctx context.Context, values []float32) error {
	raw := make([]byte, a.bytes())
	a.fill(raw, values)
	return a.whole.UploadBytes(ctx, raw)
}

// poison fills the buffer for a run.
func (a *arena) poison(ctx context.Context, run int) error { return a.begin(ctx, run, nil) }

// begin fills the buffer for a run, and the tensor with values; nil: like the rest.
func (a *arena) begin(ctx context.Context, run int, values []float32) error {
	raw := make([]byte, a.bytes())
	a.placement.poison(raw, run)
	if values != nil {
		a.write(raw, values)
	}
	return a.whole.UploadBytes(ctx, raw)
}

// output reads the tensor's elements back, packed, after checking that every one was written and
// nothing else was.
func (a *arena) output(ctx context.Context, name string, run int) ([]byte, error) {
	raw := make([]byte, a.bytes())
	if err := a.whole.DownloadBytes(ctx, raw); err != nil {
		return nil, err
	}
	return a.collect(raw, name, run)
}

// bytes is the size of the buffer.
func (p placement) bytes() int { return p.dtype.Bytes(p.total) }

// fill writes the bytes of an input's buffer: values where the tensor's elements are, NaN and infinities everywhere else.
func (p placement) fill(raw []byte, values []float32) {
	if attn.DType(p.dtype).Quantised() {
		repeat(raw[:p.bytes()], []byte{0xff}) // no number in any of them
		p.write(raw, values)
		return
	}
	around := refType(p.dtype).Encode([]float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.NaN()), float32(math.Inf(-1))})
	repeat(raw[:p.bytes()], around)
	p.write(raw, values)
}

// write writes the tensor's elements alone.
func (p placement) write(raw []byte, values []float32) {
	if attn.DType(p.dtype).Quantised() {
		p.writeQuantised(raw, values)
		return
	}
	t, size := refType(p.dtype), p.dtype.Size()
	d, n := p.shape[3], 0
	p.rows(func(at int) {
		if at >= 0 {
			t.EncodeTo(raw[at*size:], values[n:n+d])
		}
		n += d
	})
}

// writeQuantised leaves rows as they are whose first number is none: their scales are to be none either, which quantising does not make of
// them.
func (p placement) writeQuantised(raw []byte, values []float32) {
	d, n := p.shape[3], 0
	p.rows(func(at int) {
		if row := values[n : n+d]; row[0] == row[0] {
			attn.Encode(attn.DType(p.dtype), raw[p.dtype.Bytes(at):], row)
		}
		n += d
	})
}

// poison writes the bytes of an output's buffer before a run: the run's pattern, everywhere.
func (p placement) poison(raw []byte, run int) {
	var one [4]byte
	binary.LittleEndian.PutUint32(one[:], pattern(p.dtype, run))
	repeat(raw[:p.bytes()], one[:p.dtype.Size()])
}

// repeat fills raw with what it is given, over and over.
func repeat(raw, what []byte) {
	for n := copy(raw, what); n > 0 && n < len(raw); n *= 2 {
		copy(raw[n:], raw[:n])
	}
}

// pattern is the NaN that outputs are filled with: one that no arithmetic produces, another in each run.
func pattern(dtype flash.DType, run int) uint32 {
	var bits uint32
	switch dtype {
	case flash.F16:
		bits = 0x7c5a
	case flash.BF16:
		bits = 0x7f9a
	default:
		bits = 0x7f9a5a5a
	}
	return bits + uint32(run)
}

// collect takes the tensor's elements, packed, out of the bytes of an output's buffer after a run. The error says which element was not
// written, or where memory outside the tensor was. It spoils raw.
func (p placement) collect(raw []byte, name string, run int) ([]byte, error) {
	size, d := p.dtype.Size(), p.shape[3]
	want := make([]byte, p.bytes())
	p.poison(want, run)
	out := make([]byte, 0, p.elements()*size)
	var failure error
	p.rows(func(at int) {
		if at < 0 {
			for range d {
				out = binary.LittleEndian.AppendUint32(out, p.none)[:len(out)+size]
			}
			return
		}
		row := raw[at*size : (at+d)*size]
		out = append(out, row...)
		for i := 0; i < len(row) && failure == nil; i += size {
			if bytes.Equal(row[i:i+size], want[:size]) {
				failure = fmt.Errorf("%s: element %d was not written (run %d)", name, (len(out)-len(row)+i)/size, run+1)
			}
		}
		copy(row, want) // so that what is left to differ lies outside
	})
	if failure != nil {
		return nil, failure
	}
	if !bytes.Equal(raw[:len(want)], want) {
		for i := range want {
			if raw[i] != want[i] {
				return nil, fmt.Errorf("%s: memory outside the tensor was overwritten at element %d of the buffer, %d from the tensor's "+
					"first (run %d)",
					name, i/size, i/size-p.offset, run+1)
			}
		}
	}
	return out, nil
}

// refType is the same type in package ref.
func refType(t flash.DType) ref.DType {
	switch t {
	case flash.F16:
		return ref.F16
	case flash.BF16:
		return ref.BF16
	}
	return ref.F32
}

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
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
	tensor, err := whole.View(uint64(p.offset*p.dtype.Size()), p.dtype, p.shape, p.strides)
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
	t := refType(a.dtype)
	size := t.Size()
	raw := make([]byte, a.total*size)
	poison := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.NaN()), float32(math.Inf(-1))}
	around := make([]float32, a.total)
	for i := range around {
		around[i] = poison[i%len(poison)]
	}
	t.EncodeTo(raw, around)
	d, n := a.shape[3], 0
	a.rows(func(at int) {
		t.EncodeTo(raw[at*size:], values[n:n+d])
		n += d
	})
	return a.whole.UploadBytes(ctx, raw)
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

// poisoned is the whole buffer filled with that NaN.
func (a *arena) poisoned(run int) []byte {
	raw := make([]byte, a.total*a.dtype.Size())
	bits := pattern(a.dtype, run)
	for i := 0; i < len(raw); i += a.dtype.Size() {
		if a.dtype.Size() == 4 {
			binary.LittleEndian.PutUint32(raw[i:], bits)
		} else {
			binary.LittleEndian.PutUint16(raw[i:], uint16(bits))
		}
	}
	return raw
}

// poison fills the buffer for a run.
func (a *arena) poison(ctx context.Context, run int) error {
	return a.whole.UploadBytes(ctx, a.poisoned(run))
}

// output reads the tensor's elements back, packed, after checking that every one was written and
// nothing else was.
func (a *arena) output(ctx context.Context, name string, run int) ([]byte, error) {
	raw := make([]byte, a.total*a.dtype.Size())
	if err := a.whole.DownloadBytes(ctx, raw); err != nil {
		return nil, err
	}
	size := a.dtype.Size()
	want := a.poisoned(run)
	d := a.shape[3]
	out := make([]byte, 0, a.elements()*size)
	var failure error
	a.rows(func(at int) {
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
	if !bytes.Equal(raw, want) {
		for i := range raw {
			if raw[i] != want[i] {
				return nil, fmt.Errorf("%s: memory outside the tensor was overwritten at element %d of the buffer, %d from the tensor's first (run %d)",
					name, i/size, i/size-a.offset, run+1)
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

package flash

import (
	"context"
	"encoding/binary"
)

// Upload16 copies values of 16 bits to a tensor of F16 or BF16 as they are, in the order b, h, n, d: what a program has as float16 or
// bfloat16 already, in a type such as uint16 or float16.Float16 of github.com/x448/float16. [Tensor.Upload] converts from float32, and
// [Tensor.UploadBytes] takes a row-major tensor as it stands in a file. There must be Elements values; gaps of a strided tensor keep their
// contents. The error is an [*ArgumentError] for a tensor of another type, or another number of values.
func Upload16[T ~uint16](ctx context.Context, t *Tensor, values []T) (err error) {
	defer during("Upload16", &err)
	if err := t.check16(len(values)); err != nil {
		return err
	}
	defer t.copied(&err)
	dim := t.layout.Shape[3]
	return t.uploadRows(ctx, func(row int, dst []byte) {
		for i, v := range values[row*dim : (row+1)*dim] {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(v))
		}
	})
}

// Download16 copies a tensor of F16 or BF16 into values as they are, after work that was submitted earlier: Upload16 the other way, with
// the same rules.
func Download16[T ~uint16](ctx context.Context, t *Tensor, values []T) (err error) {
	defer during("Download16", &err)
	if err := t.check16(len(values)); err != nil {
		return err
	}
	defer t.copied(&err)
	raw := make([]byte, t.layout.Span)
	if err := t.dev.env.Ctx.Download(ctx, t.bytesAt(0, len(raw)), raw); err != nil {
		return t.dev.fail(err)
	}
	dim := t.layout.Shape[3]
	t.layout.Rows(func(row, start int) {
		for i := range values[row*dim : (row+1)*dim] {
			values[row*dim+i] = T(binary.LittleEndian.Uint16(raw[2*(start+i):]))
		}
	})
	return nil
}

// check16 is checkTransfer of values of 16 bits.
func (t *Tensor) check16(n int) error {
	if err := t.checkTransfer("values", n, uint64(t.Elements())); err != nil {
		return err
	}
	if t.dtype != F16 && t.dtype != BF16 {
		t.letGo()
		return badArgument("Tensor", t, "must be of F16 or BF16, whose elements have 16 bits")
	}
	return nil
}

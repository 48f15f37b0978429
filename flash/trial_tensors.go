package flash

import (
	"context"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

func product(shape [4]int) int { return shape[0] * shape[1] * shape[2] * shape[3] }

// trialTensors are the buffers of a trial.
type trialTensors struct {
	env     *environment
	buffers []*pipeline.Buffer
}

func (t *trialTensors) close() {
	for _, b := range t.buffers {
		b.Close()
	}
}

func (t *trialTensors) alloc(size uint64) (*pipeline.Buffer, error) {
	b, err := t.env.ctx.Alloc("self-check", (size+15)/16*16, vk.DeviceLocal)
	if err == nil {
		t.buffers = append(t.buffers, b)
	}
	return b, err
}

// allocAll gives a buffer of each size.
func (t *trialTensors) allocAll(sizes []uint64) (all []pipeline.Binding, err error) {
	for _, size := range sizes {
		b, err := t.alloc(size)
		if err != nil {
			return nil, err
		}
		all = append(all, b.All())
	}
	return all, nil
}

// trialLayout is row-major; not aligned, every row is one element longer than it need be and the first begins at the second
// element.
func trialLayout(dtype DType, s [4]int, aligned bool) (layout, error) {
	if aligned {
		return newLayout(0, dtype, s, [4]int{}, 1<<63)
	}
	n := s[3] + 1
	return newLayout(uint64(dtype.Size()), dtype, s, [4]int{s[1] * s[2] * n, s[2] * n, n, 1}, 1<<63)
}

// add makes a tensor with these values; nil makes an output, full of NaNs.
func (t *trialTensors) add(dtype DType, shape [4]int, aligned bool, values []float32) (operand, error) {
	l, err := trialLayout(dtype, shape, aligned)
	if err != nil {
		return operand{}, err
	}
	raw := make([]byte, (l.offset+l.span+15)/16*16)
	for i := range raw {
		raw[i] = 0xff // a NaN in every type: gaps between rows must not be read, outputs must be written
	}
	if values != nil {
		size := int(l.size)
		l.rows(func(row, start int) {
			encode(dtype, raw[int(l.offset)+start*size:], values[row*shape[3]:(row+1)*shape[3]])
		})
	}
	b, err := t.alloc(uint64(len(raw)))
	if err != nil {
		return operand{}, err
	}
	if err := t.env.ctx.Upload(context.Background(), b.All(), raw); err != nil {
		return operand{}, err
	}
	binding, rest, err := t.env.ctx.BindAligned(b.Buffer, l.offset, l.span, l.size)
	if err != nil {
		return operand{}, err
	}
	x := operand{binding: binding, offset: rest, aligned: l.aligned16()}
	for i := range x.strides {
		x.strides[i] = uint32(l.strides[i])
	}
	return x, nil
}

// download reads an output that add made.
func (t *trialTensors) download(dtype DType, shape [4]int, x *operand) ([]float32, error) {
	raw := make([]byte, x.binding.Size)
	if err := t.env.ctx.Download(context.Background(), x.binding, raw); err != nil {
		return nil, err
	}
	values := make([]float32, product(shape))
	size := dtype.Size()
	l := layout{shape: shape, strides: [4]int{int(x.strides[0]), int(x.strides[1]), int(x.strides[2]), 1}, size: uint64(size)}
	l.rows(func(row, start int) {
		decode(dtype, values[row*shape[3]:(row+1)*shape[3]], raw[(int(x.offset)+start)*size:])
	})
	return values, nil
}

package kernel

import (
	"context"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

func Product(shape [4]int) int { return shape[0] * shape[1] * shape[2] * shape[3] }

// selfCheckTensors are the buffers of a self-check.
type selfCheckTensors struct {
	env     *Env
	buffers []*pipeline.Buffer
}

func (t *selfCheckTensors) close() {
	for _, b := range t.buffers {
		b.Close()
	}
}

func (t *selfCheckTensors) alloc(size uint64) (*pipeline.Buffer, error) {
	b, err := t.env.Ctx.Alloc("self-check", (size+15)/16*16, vk.DeviceLocal)
	if err == nil {
		t.buffers = append(t.buffers, b)
	}
	return b, err
}

// allocAll gives a buffer of each size.
func (t *selfCheckTensors) allocAll(sizes []uint64) (all []pipeline.Binding, err error) {
	for _, size := range sizes {
		b, err := t.alloc(size)
		if err != nil {
			return nil, err
		}
		all = append(all, b.All())
	}
	return all, nil
}

// blocks puts the block mask of a self-check, or the classes of its blocks, into a buffer, where the problem has one.
func (t *selfCheckTensors) blocks(p *attn.Problem, in *ref.Problem) (at pipeline.Binding, err error) {
	var mask []byte
	switch {
	case p.Blocks.Classed:
		if mask, err = selfCheckClasses(p, in); err != nil {
			return at, err
		}
	case in.Blocks == nil:
		return at, nil
	default:
		mask = PackMask(p.MaskShape(), in.Blocks.Data)
	}
	b, err := t.alloc(uint64(len(mask)))
	if err != nil {
		return at, err
	}
	at = b.All()
	return at, t.env.Ctx.Upload(context.Background(), pipeline.Binding{Buffer: at.Buffer, Offset: at.Offset, Size: uint64(len(mask))}, mask)
}

// recorder puts what a pass has beside its tensors into device memory, and gives what it is recorded into, with scratch of these sizes.
func (t *selfCheckTensors) recorder(p *attn.Problem, in *ref.Problem, to *Operands, scratch []uint64) (r *Recorder, err error) {
	if err = t.captured(p, in, &to.Captured); err != nil {
		return nil, err
	}
	if to.Blocks, err = t.blocks(p, in); err != nil {
		return nil, err
	}
	r = &Recorder{Count: t.env.Counting}
	if r.Scratch, err = t.allocAll(scratch); err != nil {
		return nil, err
	}
	r.More, err = t.more(p)
	return r, err
}

// run runs what record records.
func (t *selfCheckTensors) run(r *Recorder, record func() error) error {
	return t.env.Once(func(rec *pipeline.Recording) error { r.Rec = rec; return record() }, selfCheckDispatches)
}

// selfCheckLayout is row-major; not aligned, every row is one element longer than it need be and the first begins at the second
// element, or of bits at the second byte.
func selfCheckLayout(dtype attn.DType, s [4]int, aligned bool) (attn.Layout, error) {
	if aligned {
		return attn.NewLayout(0, dtype, s, [4]int{}, 1<<63)
	}
	n := dtype.Pitch(s[3] + 1)
	return attn.NewLayout(uint64(dtype.Bytes(1)), dtype, s, [4]int{s[1] * s[2] * n, s[2] * n, n, 1}, 1<<63)
}

// place makes the tensor of an operand with these values, those of a batch; statistics are never unaligned.
func (t *selfCheckTensors) place(to *Operand, o *attn.Operand, p *attn.Problem, aligned bool, values []float32) (err error) {
	*to, err = t.add(o.DType(p), o.Shape(p), aligned || o.Statistics, packed(p, o, values))
	if o.When != nil && !o.Statistics {
		to.ScoreStrides(o.Shape(p))
	}
	return err
}

// add makes a tensor with these values; nil makes an output, full of NaNs.
func (t *selfCheckTensors) add(dtype attn.DType, shape [4]int, aligned bool, values []float32) (Operand, error) {
	l, err := selfCheckLayout(dtype, shape, aligned)
	if err != nil {
		return Operand{}, err
	}
	raw := make([]byte, (l.Offset+l.Span+15)/16*16)
	for i := range raw {
		raw[i] = 0xff // a NaN in every type: gaps between rows must not be read, outputs must be written
	}
	if values != nil {
		l.Rows(func(row, start int) {
			numbers := values[row*shape[3] : (row+1)*shape[3]]
			if dtype.Quantised() && numbers[0] != numbers[0] { // quantising does not make scales that are no numbers
				return
			}
			attn.Encode(dtype, raw[int(l.Offset)+dtype.Bytes(start):], numbers)
		})
	}
	b, err := t.alloc(uint64(len(raw)))
	if err != nil {
		return Operand{}, err
	}
	if err := t.env.Ctx.Upload(context.Background(), b.All(), raw); err != nil {
		return Operand{}, err
	}
	binding, rest, err := t.env.Ctx.BindAligned(b.Buffer, l.Offset, uint64(len(raw))-l.Offset, l.Align)
	if err != nil {
		return Operand{}, err
	}
	x := Operand{Binding: binding, Offset: l.Steps(rest), Aligned: l.Aligned()}
	for i := range x.Strides {
		x.Strides[i] = uint32(l.Strides[i])
	}
	return x, nil
}

// download reads an output that add made.
func (t *selfCheckTensors) download(dtype attn.DType, shape [4]int, x *Operand) ([]float32, error) {
	raw := make([]byte, x.Binding.Size)
	if err := t.env.Ctx.Download(context.Background(), x.Binding, raw); err != nil {
		return nil, err
	}
	values := make([]float32, Product(shape))
	size := dtype.Size()
	l := attn.Layout{Shape: shape, Strides: [4]int{int(x.Strides[0]), int(x.Strides[1]), int(x.Strides[2]), 1}, Size: uint64(size)}
	l.Rows(func(row, start int) {
		attn.Decode(dtype, values[row*shape[3]:(row+1)*shape[3]], raw[(int(x.Offset)+start)*size:])
	})
	return values, nil
}

package kernel

import (
	"context"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

func Product(shape [4]int) int { return shape[0] * shape[1] * shape[2] * shape[3] }

// selfCheckTensors are the buffers of a self-check. Whatever is put into them, run or read may fail: the first error stays in err, after it
// nothing is done, and what is read is 0.
type selfCheckTensors struct {
	env     *Env
	buffers []*pipeline.Buffer
	err     error
}

func (t *selfCheckTensors) close() {
	for _, b := range t.buffers {
		b.Close()
	}
}

func (t *selfCheckTensors) buffer(size uint64, kind vk.MemoryKind) *pipeline.Buffer {
	if t.err != nil {
		return nil
	}
	b, err := t.env.Ctx.Alloc("self-check", size, kind)
	if err == nil {
		t.buffers = append(t.buffers, b)
	}
	t.err = err
	return b
}

func (t *selfCheckTensors) alloc(size uint64) (at pipeline.Binding) {
	if b := t.buffer((size+15)/16*16, vk.DeviceLocal); t.err == nil {
		at = b.All()
	}
	return at
}

// allocAll gives a buffer of each size.
func (t *selfCheckTensors) allocAll(sizes []uint64) (all []pipeline.Binding) {
	for _, size := range sizes {
		all = append(all, t.alloc(size))
	}
	return all
}

// upload puts bytes into a buffer of their own.
func (t *selfCheckTensors) upload(raw []byte) pipeline.Binding {
	at := t.alloc(uint64(len(raw)))
	at.Size = uint64(len(raw))
	if t.err == nil {
		t.err = t.env.Ctx.Upload(context.Background(), at, raw)
	}
	return at
}

// blocks puts the block mask of a self-check, or the classes of its blocks, into a buffer, where the problem has one.
func (t *selfCheckTensors) blocks(p *attn.Problem, in *ref.Problem) (at pipeline.Binding) {
	var mask []byte
	switch {
	case p.Blocks.Classed:
		var err error
		if mask, err = selfCheckClasses(p, in); t.err == nil {
			t.err = err
		}
	case in.Blocks == nil:
		return at
	default:
		mask = PackMask(p.MaskShape(), in.Blocks.Data)
	}
	return t.upload(mask)
}

// recorder puts what a pass has beside its tensors into device memory, and gives what it is recorded into, with scratch of these sizes.
func (t *selfCheckTensors) recorder(p *attn.Problem, in *ref.Problem, to *Operands, scratch []uint64) *Recorder {
	t.captured(p, in, &to.Captured)
	to.Blocks = t.blocks(p, in)
	r := &Recorder{Count: t.env.Counting, Scratch: t.allocAll(scratch)}
	if NeedsMore(p) {
		r.More = t.more()
	}
	return r
}

// more is the buffer of further arguments.
func (t *selfCheckTensors) more() *pipeline.Buffer { return t.buffer(MoreBytes, vk.Upload) }

// run runs what record records.
func (t *selfCheckTensors) run(r *Recorder, record func() error) {
	if t.err == nil {
		t.err = t.env.Once(func(rec *pipeline.Recording) error { r.Rec = rec; return record() }, selfCheckDispatches)
	}
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
func (t *selfCheckTensors) place(to *Operand, o *attn.Operand, p *attn.Problem, aligned bool, values []float32) {
	*to = t.add(o.DType(p), o.Shape(p), aligned || o.Statistics, packed(p, o, values))
	if o.When != nil && !o.Statistics {
		to.ScoreStrides(o.Shape(p))
	}
}

// add makes a tensor with these values; nil makes an output, full of NaNs.
func (t *selfCheckTensors) add(dtype attn.DType, shape [4]int, aligned bool, values []float32) (x Operand) {
	l, err := selfCheckLayout(dtype, shape, aligned)
	if err != nil && t.err == nil {
		t.err = err
	}
	if t.err != nil {
		return x
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
	at := t.upload(raw)
	if t.err != nil {
		return x
	}
	binding, rest, err := t.env.Ctx.BindAligned(at.Buffer, l.Offset, at.Size-l.Offset, l.Align)
	t.err = err
	x = Operand{Binding: binding, Offset: l.Steps(rest), Aligned: l.Aligned()}
	for i := range x.Strides {
		x.Strides[i] = uint32(l.Strides[i])
	}
	return x
}

// download reads an output that add made.
func (t *selfCheckTensors) download(dtype attn.DType, shape [4]int, x *Operand) []float32 {
	values, raw := make([]float32, Product(shape)), make([]byte, x.Binding.Size)
	if t.err == nil {
		t.err = t.env.Ctx.Download(context.Background(), x.Binding, raw)
	}
	if t.err != nil {
		return values
	}
	size := dtype.Size()
	l := attn.Layout{Shape: shape, Strides: [4]int{int(x.Strides[0]), int(x.Strides[1]), int(x.Strides[2]), 1}, Size: uint64(size)}
	l.Rows(func(row, start int) {
		attn.Decode(dtype, values[row*shape[3]:(row+1)*shape[3]], raw[(int(x.Offset)+start)*size:])
	})
	return values
}

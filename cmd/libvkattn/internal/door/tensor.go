package door

import (
	"errors"
	"math"
	"unsafe"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// Tensor is vkattn_tensor: elements in memory of the host, or in a VkBuffer.
type Tensor struct {
	DType   uint32
	Data    unsafe.Pointer // of the host; nil where Buffer is given
	Buffer  uint64         // VkBuffer; 0 where Data is given
	Bytes   uint64         // from Data on, or of the buffer
	Offset  uint64         // of the first element, in bytes
	Shape   [4]int64
	Strides [4]int64 // elements; all zero: row-major
}

// most is what numbers of a shape may be, so that they fit an int wherever this is built.
const most = math.MaxInt32

// layout is where the elements are, checked against the bytes that there are.
func (t *Tensor) layout(name string) (l attn.Layout, err error) {
	switch {
	case (t.Data == nil) == (t.Buffer == 0):
		return l, bad(name+".data", t.Data, "either data or buffer must be given")
	case t.DType > uint32(flash.Int32):
		return l, bad(name+".dtype", t.DType, "must be one of VKATTN_F32 to VKATTN_INT32")
	case t.Data != nil && (t.Bytes > math.MaxInt64 || uint64(uintptr(t.Data))+t.Bytes < t.Bytes):
		return l, bad(name+".bytes", t.Bytes, "no memory is that large")
	}
	var shape, strides [4]int
	for i := range shape {
		if t.Shape[i] < 1 || t.Shape[i] > most {
			return l, bad(name+".shape", t.Shape, "dimension %d must be from 1 to 2³¹−1", i)
		}
		if t.Strides[i] < 0 || t.Strides[i] > most {
			return l, bad(name+".strides", t.Strides, "each must be from 0 to 2³¹−1 elements")
		}
		shape[i], strides[i] = int(t.Shape[i]), int(t.Strides[i])
	}
	if l, err = attn.NewLayout(t.Offset, attn.DType(t.DType), shape, strides, t.Bytes); err != nil {
		return l, of(name, err)
	}
	return l, nil
}

// of puts the tensor's name in front of what an error calls shape, strides or offset.
func of(name string, err error) error {
	var layout *attn.ArgumentError
	if errors.As(err, &layout) {
		return bad(name+"."+layout.Argument, layout.Value, "%s", layout.Rule)
	}
	var argument *flash.ArgumentError
	if errors.As(err, &argument) {
		return bad(name+"."+argument.Argument, argument.Value, "%s", argument.Rule)
	}
	return err
}

// swapped gives axes 1 and 2 in the other order: a tensor [batch, length, heads, dimension] as [batch, heads, length, dimension].
func swapped(l attn.Layout) attn.Layout {
	l.Shape[1], l.Shape[2] = l.Shape[2], l.Shape[1]
	l.Strides[1], l.Strides[2] = l.Strides[2], l.Strides[1]
	return l
}

// host are the bytes from the first element to the end of the last.
func (t *Tensor) host(l *attn.Layout) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(t.Data, l.Offset)), l.Span)
}

// gather copies the elements of a layout whose first is at from[0] into to, in row-major order.
func gather(to, from []byte, l *attn.Layout) {
	row := l.Shape[3] * int(l.Size)
	l.Rows(func(n, start int) { copy(to[n*row:][:row], from[start*int(l.Size):]) })
}

// probe reads from every page, so that memory that is not there is a fault here, and not where flash holds locks.
func probe(data []byte) (sum byte) {
	const page = 4096 // the smallest that there is
	for at := 0; at < len(data); at += page {
		sum += data[at]
	}
	return sum + data[len(data)-1]
}

// scatter is gather the other way; bytes between elements stay as they are.
func scatter(to, from []byte, l *attn.Layout) {
	row := l.Shape[3] * int(l.Size)
	l.Rows(func(n, start int) { copy(to[start*int(l.Size):][:row], from[n*row:]) })
}

// pass is one call's tensors. Those of the host are copied to tensors of the device, in row-major order, and outputs back.
type pass struct {
	device  *device
	bnhd    bool
	made    []*flash.Tensor // to be closed
	placed  []placed        // on the host
	outputs []output
}

// placed is a tensor of the host that the pass has, at its address.
type placed struct {
	name   string
	layout attn.Layout
	output bool
}

// output is a tensor of the host that receives a tensor of the device.
type output struct {
	to     *Tensor
	layout attn.Layout
	from   *flash.Tensor
}

// role is how a pass uses a tensor.
type role struct {
	heads bool // has heads and lengths, whose order the layout of the call says
	write bool
	keep  bool // and adds to what is there
}

var (
	input      = role{heads: true}
	statistics = role{}
	result     = role{heads: true, write: true}
	resultOf   = role{write: true}
)

// tensor gives the device's tensor of one of the caller's, nil of nil. What is behind a tensor of the host is copied in where it is read.
func (p *pass) tensor(name string, t *Tensor, r role) (*flash.Tensor, error) {
	if t == nil {
		return nil, nil
	}
	l, err := t.layout(name)
	if err != nil {
		return nil, err
	}
	if r.heads && p.bnhd {
		l = swapped(l)
	}
	if t.Buffer != 0 {
		return p.onBuffer(name, t, &l)
	}
	if r.write && l.SelfOverlaps() {
		return nil, bad(name+".strides", l.Strides, "elements of an output must not share memory")
	}
	if err := p.place(name, t, l, r.write); err != nil {
		return nil, err
	}
	out, err := p.device.NewTensor(flash.DType(t.DType), l.Shape[0], l.Shape[1], l.Shape[2], l.Shape[3])
	if err != nil {
		return nil, of(name, err)
	}
	p.made = append(p.made, out)
	if r.write {
		p.outputs = append(p.outputs, output{t, l, out})
	}
	if r.write && !r.keep {
		return out, nil
	}
	data := t.host(&l)
	if l.Dense() {
		probe(data)
	} else {
		data = make([]byte, out.Bytes())
		gather(data, t.host(&l), &l)
	}
	return out, out.UploadBytes(never, data)
}

// onBuffer lays a tensor over a buffer of the caller's.
func (p *pass) onBuffer(name string, t *Tensor, l *attn.Layout) (*flash.Tensor, error) {
	if !p.device.attached {
		return nil, bad(name+".buffer", t.Buffer, "buffers are of a device that was attached (vkattn_device_attach)")
	}
	ref := flash.BufferRef{Handle: uintptr(t.Buffer), Size: t.Bytes}
	out, err := p.device.TensorOn(ref, t.Offset, flash.DType(t.DType), l.Shape, l.Strides)
	if err != nil {
		return nil, of(name, err)
	}
	p.made = append(p.made, out)
	return out, nil
}

// place refuses an output of the host that shares memory with another tensor of the pass. flash does so for tensors on buffers, and sees
// copies of these.
func (p *pass) place(name string, t *Tensor, l attn.Layout, write bool) error {
	l.Offset += uint64(uintptr(t.Data))
	for i := range p.placed {
		if o := &p.placed[i]; (write || o.output) && l.Overlaps(&o.layout) {
			return bad(name, t.Data, "an output must not overlap another tensor of the pass: %s is %#x", o.name, o.layout.Offset)
		}
	}
	p.placed = append(p.placed, placed{name, l, write})
	return nil
}

// deliver copies outputs to the host, after the pass. They go through memory of our own: see probe.
func (p *pass) deliver() error {
	for i := range p.outputs {
		o := &p.outputs[i]
		data := make([]byte, o.from.Bytes())
		if err := o.from.DownloadBytes(never, data); err != nil {
			return err
		}
		scatter(o.to.host(&o.layout), data, &o.layout)
	}
	return nil
}

// close frees the tensors of the call; buffers of the caller's are left alone.
func (p *pass) close() (err error) {
	for _, t := range p.made {
		err = errors.Join(err, t.Close())
	}
	return err
}

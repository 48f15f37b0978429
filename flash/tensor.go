package flash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// BufferRef names a VkBuffer that the caller owns. It must have been created with the usage storage buffer, and for Download and Upload
// with transfer source and destination.
type BufferRef struct {
	Handle uintptr // VkBuffer
	Size   uint64  // bytes
}

// Tensor is a view of a buffer: element [b, h, n, d] stands at byte offset + size·(b·s0 + h·s1 + n·s2 + d), with strides in
// elements and the last stride 1; of type Bit it is bit x = b·s0 + h·s1 + n·s2 + d from the lowest one of the byte at offset on, and
// of Q8_0 and Q4_0 it is element x%32 of the block x/32 from there.
// It may be used by several recordings at once.
type Tensor struct {
	dev    *Device
	mem    *memory
	dtype  DType
	layout attn.Layout
	bound  kernel.Operand // what kernels are given
	folded bool           // elements share memory: never an output
	use    TensorUse      // outside of recordings
}

// memory is a buffer shared by a tensor and its views.
type memory struct {
	dev    *Device
	buf    *vk.Buffer
	own    *pipeline.Buffer // nil for a caller's buffer
	closed atomic.Bool
	busy   atomic.Int32   // submissions that use it and that nobody has waited for
	copies sync.WaitGroup // copies to and from it that somebody waits for
}

// NewTensor allocates a tensor of shape [batch, heads, length, dim] in row-major order, rows of bits up to the next byte. Its contents are
// undefined. The error is an [*ArgumentError] for a shape that is empty or passes what the device can bind, a [*MemoryError] where there is
// no room.
func (d *Device) NewTensor(dtype DType, batch, heads, length, dim int) (_ *Tensor, err error) {
	defer during("NewTensor", &err)
	shape := [4]int{batch, heads, length, dim}
	return d.allocate("tensor", dtype, shape, attn.Contiguous)
}

// NewTensorBNHD allocates a tensor of shape [batch, heads, length, dim] whose memory is laid out [batch, length, heads, dim].
// Its contents are undefined.
func (d *Device) NewTensorBNHD(dtype DType, batch, heads, length, dim int) (_ *Tensor, err error) {
	defer during("NewTensorBNHD", &err)
	shape := [4]int{batch, heads, length, dim}
	return d.allocate("tensor", dtype, shape, attn.ContiguousBNHD)
}

// NewLSE allocates the fp32 tensor of row statistics, of shape [batch, heads, length, 1].
func (d *Device) NewLSE(batch, heads, length int) (_ *Tensor, err error) {
	defer during("NewLSE", &err)
	return d.allocate("lse", F32, [4]int{batch, heads, length, 1}, attn.Contiguous)
}

func (d *Device) allocate(label string, dtype DType, shape [4]int, strides func([4]int) [4]int) (*Tensor, error) {
	if err := d.usable(); err != nil {
		return nil, err
	}
	l, err := attn.NewLayout(0, attn.DType(dtype), shape, [4]int{}, 1<<63)
	if err != nil {
		return nil, public(err)
	}
	l.Strides = strides([4]int{shape[0], shape[1], shape[2], attn.DType(dtype).Pitch(shape[3])})
	if most := d.env.Caps.Facts.Limits.MaxStorageBufferRange; l.Span > most {
		return nil, badArgument("shape", shape, "a tensor of %d bytes passes the %d bytes that one binding can hold on this device",
			l.Span, most)
	}
	// Kernels read fp16 and bf16 in words of up to 16 bytes and copies move words of 4: the buffer is whole words.
	own, err := d.env.Ctx.Alloc(label, (l.Span+15)/16*16, vk.DeviceLocal)
	if err != nil {
		return nil, d.fail(err)
	}
	m := &memory{dev: d, buf: own.Buffer, own: own}
	t, err := m.tensor(dtype, l)
	if err == nil {
		err = d.adopt(m)
	}
	if err != nil {
		own.Close()
		return nil, err
	}
	return t, nil
}

// TensorFrom allocates a tensor as [Device.NewTensor] does and uploads values to it, in the order b, h, n, d: [Tensor.Upload] has the
// rules.
func (d *Device) TensorFrom(ctx context.Context, dtype DType, values []float32, batch, heads, length, dim int) (*Tensor, error) {
	t, err := d.NewTensor(dtype, batch, heads, length, dim)
	if err != nil {
		return nil, err
	}
	if err := t.Upload(ctx, values); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// TensorOn lays a tensor over a buffer of the caller's on the same VkDevice. The offset is in bytes, a multiple of the element size, of 2
// for Q8_0 and Q4_0; strides are in elements, the last one 1, the others of bits multiples of 8 and of blocks multiples of 32; all-zero
// strides mean row-major order, rows of bits up to the next byte. The buffer must outlive the tensor and all work on it; Close leaves it
// alone. [Tensor.Used] says who else uses it. The error is an [*ArgumentError] that names what does not fit.
func (d *Device) TensorOn(buffer BufferRef, offset uint64, dtype DType, shape, strides [4]int) (_ *Tensor, err error) {
	defer during("TensorOn", &err)
	if err := d.usable(); err != nil {
		return nil, err
	}
	if buffer.Handle == 0 {
		return nil, badArgument("buffer.Handle", 0, "must be a VkBuffer")
	}
	if buffer.Size == 0 {
		return nil, badArgument("buffer.Size", 0, "must be the buffer's size in bytes")
	}
	l, err := attn.NewLayout(offset, attn.DType(dtype), shape, strides, buffer.Size)
	if err != nil {
		return nil, public(err)
	}
	buf, err := d.dev.WrapBuffer(buffer.Handle, buffer.Size)
	if err != nil {
		return nil, d.fail(err)
	}
	m := &memory{dev: d, buf: buf}
	t, err := m.tensor(dtype, l)
	if err == nil {
		err = d.adopt(m)
	}
	if err != nil {
		buf.Close()
		return nil, err
	}
	return t, nil
}

// View lays another tensor over the same buffer, of the same declared use; the offset in bytes counts from the buffer's start. Closing any
// of the tensors that share a buffer closes all of them.
func (t *Tensor) View(offset uint64, dtype DType, shape, strides [4]int) (*Tensor, error) {
	if err := t.usable("Tensor"); err != nil {
		return nil, err
	}
	l, err := attn.NewLayout(offset, attn.DType(dtype), shape, strides, t.mem.buf.Size())
	if err != nil {
		return nil, public(err)
	}
	view, err := t.mem.tensor(dtype, l)
	if err != nil {
		return nil, err
	}
	view.use = t.use
	return view, nil
}

// tensor makes a tensor from a checked layout.
func (m *memory) tensor(dtype DType, l attn.Layout) (*Tensor, error) {
	limits := &m.dev.env.Caps.Facts.Limits
	if slack := limits.MinStorageBufferAlignment; l.Span+l.Offset%max(slack, 1) > limits.MaxStorageBufferRange {
		return nil, badArgument("shape", l.Shape, "a tensor of %d bytes at offset %d passes the %d bytes that one binding can hold on "+
			"this device",
			l.Span, l.Offset, limits.MaxStorageBufferRange)
	}
	span := l.Span
	if t := attn.DType(dtype); l.Size == 1 || t.Quantised() { // kernels read these in words
		if span = (l.Offset+span+3)/4*4 - l.Offset; l.Offset+span > m.buf.Capacity() {
			return nil, badArgument("buffer.Size", m.buf.Capacity(), "must be at least %d: bytes are read in words of four", l.Offset+span)
		}
	}
	binding, rest, err := m.dev.env.Ctx.BindAligned(m.buf, l.Offset, span, l.Align)
	if err != nil {
		return nil, m.dev.fail(err)
	}
	t := &Tensor{dev: m.dev, mem: m, dtype: dtype, layout: l, folded: l.SelfOverlaps()}
	if dtype == Bit && binding.Size > math.MaxUint32/8 { // kernels number them from where the binding begins
		return nil, badArgument("shape", l.Shape, "bits must end within %d bytes of where the device can bind them",
			uint32(math.MaxUint32/8))
	}
	t.bound = kernel.Operand{Binding: binding, Offset: l.Steps(rest), Aligned: l.Aligned()}
	for i := range t.bound.Strides {
		if l.Shape[i] > 1 { // the stride of a dimension of 1 is never used, and must not spoil the arithmetic either
			t.bound.Strides[i] = uint32(l.Strides[i])
		}
	}
	return t, nil
}

// Shape is the number of elements in batch, heads, length and dimension.
func (t *Tensor) Shape() [4]int { return t.place().Shape }

// Strides are the distances between neighbours in batch, heads, length and dimension, in elements; the last is 1.
func (t *Tensor) Strides() [4]int { return t.place().Strides }

// DType is the storage type.
func (t *Tensor) DType() DType {
	if t == nil {
		return 0
	}
	return t.dtype
}

// place is where the elements lie: nowhere for no tensor.
func (t *Tensor) place() attn.Layout {
	if t == nil {
		return attn.Layout{}
	}
	return t.layout
}

// Elements is the number of elements: the product of the shape.
func (t *Tensor) Elements() int {
	n, _ := attn.Elements(t.place().Shape)
	return int(n)
}

// Offset is where the first element stands in the buffer, in bytes.
func (t *Tensor) Offset() uint64 { return t.place().Offset }

// Buffer is the buffer the tensor lies in.
func (t *Tensor) Buffer() BufferRef {
	if t == nil || t.mem == nil {
		return BufferRef{}
	}
	return BufferRef{Handle: t.mem.buf.Handle(), Size: t.mem.buf.Size()}
}

// Bytes is the distance from the tensor's first element to the end of its last: what UploadBytes and DownloadBytes move.
func (t *Tensor) Bytes() uint64 { return t.place().Span }

// String describes the tensor.
func (t *Tensor) String() string {
	if t == nil || t.mem == nil {
		return "no tensor"
	}
	return fmt.Sprintf("%v%v strides %v at byte %d", t.dtype, t.layout.Shape, t.layout.Strides, t.layout.Offset)
}

// usable says whether the tensor can be used; name is what errors call it.
func (t *Tensor) usable(name string) error {
	if t == nil || t.mem == nil {
		return badArgument(name, "nil or zero", "must be a tensor made by a Device")
	}
	if t.mem.closed.Load() {
		return fmt.Errorf("%w: %s", ErrClosed, name)
	}
	return t.dev.usable()
}

// hold keeps the tensor's memory for a copy, until letGo: whoever closes it waits.
func (t *Tensor) hold() error {
	if err := t.usable("Tensor"); err != nil {
		return err
	}
	t.dev.submitting.RLock()
	defer t.dev.submitting.RUnlock()
	err := t.usable("Tensor") // it may have been closed since
	if err == nil {
		t.mem.copies.Add(1)
	}
	return err
}

// letGo is the end of a copy that hold kept the tensor's memory for.
func (t *Tensor) letGo() { t.mem.copies.Done() }

// begun is letGo where work that uses the tensor was submitted and may not have ended: who closes the tensor waits for the device.
func (t *Tensor) begun() {
	t.mem.busy.Add(1)
	t.letGo()
}

// copied is the end of a copy with what became of it.
func (t *Tensor) copied(err *error) {
	if errors.Is(*err, pipeline.ErrUnended) {
		t.begun()
		return
	}
	t.letGo()
}

// overlaps says whether two tensors share memory; nil shares none.
func (t *Tensor) overlaps(o *Tensor) bool {
	return o != nil && (o == t || o.mem.buf.Handle() == t.mem.buf.Handle() && t.layout.Overlaps(&o.layout))
}

// Close frees the buffer if the tensor's device allocated it; it waits for work of this library that uses it. Closing again
// does nothing.
func (t *Tensor) Close() (err error) {
	defer during("Tensor.Close", &err)
	if t == nil || t.mem == nil || t.mem.closed.Load() {
		return nil
	}
	t.dev.disown(t.mem)
	return t.mem.release()
}

func (m *memory) release() error {
	m.dev.submitting.Lock()
	closed := m.closed.Swap(true)
	m.dev.submitting.Unlock()
	if closed {
		return nil
	}
	m.copies.Wait() // none begins any more
	var err error
	if m.busy.Load() > 0 {
		err = m.dev.fail(m.dev.dev.WaitIdle())
		if err != nil && !errors.Is(err, ErrDeviceLost) && !errors.Is(err, ErrClosed) {
			m.closed.Store(false) // the device may be using it: it must stay for now
			return errors.Join(err, m.dev.adopt(m))
		}
	}
	if m.own != nil {
		m.own.Close()
		return err
	}
	m.buf.Close()
	return err
}

// transferElements is how many elements are converted at a time.
const transferElements = 1 << 20

// Upload converts values, in the order b, h, n, d, to the tensor's type (to nearest even) and copies them to the device; work that
// was submitted earlier and uses the tensor is waited for by the device. There must be Elements values. Memory between the
// elements of a strided tensor keeps its contents, but for the rest of the last byte of a row of bits.
func (t *Tensor) Upload(ctx context.Context, values []float32) (err error) {
	defer during("Upload", &err)
	if err := t.checkTransfer("values", len(values), uint64(t.Elements())); err != nil {
		return err
	}
	defer t.copied(&err)
	if dim := t.layout.Shape[3]; !t.layout.Dense() {
		return t.uploadRows(ctx, func(row int, dst []byte) { attn.Encode(attn.DType(t.dtype), dst, values[row*dim:(row+1)*dim]) })
	}
	buf := make([]byte, t.dtype.Bytes(min(len(values), transferElements)))
	for at := 0; at < len(values); at += transferElements {
		part := values[at:min(at+transferElements, len(values))]
		bytes := buf[:t.dtype.Bytes(len(part))]
		attn.Encode(attn.DType(t.dtype), bytes, part)
		if err := t.dev.env.Ctx.Upload(ctx, t.bytesAt(t.dtype.Bytes(at), len(bytes)), bytes); err != nil {
			return t.dev.fail(err)
		}
	}
	return nil
}

// uploadRows copies rows, which put writes from the first byte of dst on, to where they lie. What lies between them stays as it is.
func (t *Tensor) uploadRows(ctx context.Context, put func(row int, dst []byte)) error {
	raw := make([]byte, t.layout.Span)
	if !t.layout.Gapless() {
		if err := t.dev.env.Ctx.Download(ctx, t.bytesAt(0, len(raw)), raw); err != nil {
			return t.dev.fail(err)
		}
	}
	t.layout.Rows(func(row, start int) { put(row, raw[t.dtype.Bytes(start):]) })
	return t.dev.fail(t.dev.env.Ctx.Upload(ctx, t.bytesAt(0, len(raw)), raw))
}

// Download copies the tensor into values, in the order b, h, n, d, as fp32, after work that was submitted earlier. There must be
// room for Elements values, no more.
func (t *Tensor) Download(ctx context.Context, values []float32) (err error) {
	defer during("Download", &err)
	if err := t.checkTransfer("values", len(values), uint64(t.Elements())); err != nil {
		return err
	}
	defer t.copied(&err)
	dim := t.layout.Shape[3]
	if !t.layout.Dense() {
		raw := make([]byte, t.layout.Span)
		if err := t.dev.env.Ctx.Download(ctx, t.bytesAt(0, len(raw)), raw); err != nil {
			return t.dev.fail(err)
		}
		t.layout.Rows(func(row, start int) {
			attn.Decode(attn.DType(t.dtype), values[row*dim:(row+1)*dim], raw[t.dtype.Bytes(start):])
		})
		return nil
	}
	buf := make([]byte, t.dtype.Bytes(min(len(values), transferElements)))
	for at := 0; at < len(values); at += transferElements {
		part := values[at:min(at+transferElements, len(values))]
		bytes := buf[:t.dtype.Bytes(len(part))]
		if err := t.dev.env.Ctx.Download(ctx, t.bytesAt(t.dtype.Bytes(at), len(bytes)), bytes); err != nil {
			return t.dev.fail(err)
		}
		attn.Decode(attn.DType(t.dtype), part, bytes)
	}
	return nil
}

// UploadBytes copies Bytes() raw bytes to the tensor's place in the buffer, gaps between strided elements included.
func (t *Tensor) UploadBytes(ctx context.Context, data []byte) (err error) {
	defer during("UploadBytes", &err)
	if err := t.checkTransfer("data", len(data), t.Bytes()); err != nil {
		return err
	}
	defer t.copied(&err)
	return t.dev.fail(t.dev.env.Ctx.Upload(ctx, t.bytesAt(0, len(data)), data))
}

// DownloadBytes copies Bytes() raw bytes out of the buffer, gaps between strided elements included.
func (t *Tensor) DownloadBytes(ctx context.Context, data []byte) (err error) {
	defer during("DownloadBytes", &err)
	if err := t.checkTransfer("data", len(data), t.Bytes()); err != nil {
		return err
	}
	defer t.copied(&err)
	return t.dev.fail(t.dev.env.Ctx.Download(ctx, t.bytesAt(0, len(data)), data))
}

// checkTransfer holds the tensor for a copy of so many values or bytes, if these are as many as it has.
func (t *Tensor) checkTransfer(name string, got int, want uint64) error {
	if err := t.hold(); err != nil {
		return err
	}
	if uint64(got) != want {
		t.letGo()
		return badArgument("len("+name+")", got, "must be %d, as the tensor is %v", want, t)
	}
	return nil
}

// bytesAt binds n bytes of the tensor's span.
func (t *Tensor) bytesAt(at, n int) pipeline.Binding {
	return pipeline.Binding{Buffer: t.mem.buf, Offset: t.layout.Offset + uint64(at), Size: uint64(n)}
}

package pipeline

import (
	"fmt"

	"github.com/vkattn/vkattn/vk"
)

// Binding is a range of a buffer.
type Binding struct {
	Buffer *vk.Buffer
	Offset uint64 // bytes from the buffer's start; of a kernel's binding a multiple of minStorageBufferOffsetAlignment
	Size   uint64 // bytes
}

// Access is a binding and what an operation does with it.
type Access struct {
	Binding
	Mode Mode // what the operation does to it, from which barriers follow
}

// BindAligned binds the bytes [byteOffset, byteOffset+size) of a buffer although a binding's offset must be a multiple of the
// device's minStorageBufferOffsetAlignment: the binding begins at the multiple at or below byteOffset, and remainder says
// how many elements of elemSize bytes further the range begins. byteOffset must be a multiple of elemSize, a power of two up
// to 16.
func (c *Context) BindAligned(buf *vk.Buffer, byteOffset, size, elemSize uint64) (b Binding, remainder uint32, err error) {
	if buf == nil {
		return b, 0, argErr("BindAligned", "buf", "nil", "it must be an open buffer")
	}
	if elemSize == 0 || elemSize > 16 || elemSize&(elemSize-1) != 0 {
		return b, 0, argErr("BindAligned", "elemSize", elemSize, "it must be 1, 2, 4, 8 or 16")
	}
	if byteOffset%elemSize != 0 {
		return b, 0, argErr("BindAligned", "byteOffset", byteOffset, fmt.Sprintf("it must be a multiple of the element size %d", elemSize))
	}
	total := buf.Capacity()
	if size == 0 || byteOffset > total || size > total-byteOffset {
		return b, 0, argErr("BindAligned", "byteOffset, size", [2]uint64{byteOffset, size},
			fmt.Sprintf("the range must lie within the buffer's %d bytes and not be empty", total))
	}
	// Both are powers of two, so the rest is a multiple of the element size whichever of them is larger.
	rest := byteOffset % max(c.facts.Limits.MinStorageBufferAlignment, 1)
	b = Binding{Buffer: buf, Offset: byteOffset - rest, Size: size + rest}
	if m := c.facts.Limits.MaxStorageBufferRange; b.Size > m {
		return Binding{}, 0, argErr("BindAligned", "size", b.Size, fmt.Sprintf("one binding may hold at most %d bytes on this device", m))
	}
	return b, uint32(rest / elemSize), nil
}

// check returns why a binding cannot be used by a command of the named operation, or nil. offsetAlign is what the offset must
// be a multiple of.
func (c *Context) check(b *Binding, offsetAlign uint64) (name string, value any, rule string) {
	switch {
	case b.Buffer == nil || b.Buffer.Handle() == 0:
		return "Buffer", "nil or closed", "it must be an open buffer"
	case b.Buffer.Device() != c.dev:
		return "Buffer", "of another device", "it must be of the context's device"
	case b.Offset%offsetAlign != 0:
		return "Offset", b.Offset, fmt.Sprintf("it must be a multiple of %d; BindAligned makes it one", offsetAlign)
	}
	if total := b.Buffer.Capacity(); b.Size == 0 || b.Offset > total || b.Size > total-b.Offset {
		return "Offset, Size", [2]uint64{b.Offset, b.Size},
			fmt.Sprintf("the range must lie within the buffer's %d bytes and not be empty", total)
	}
	return "", nil, ""
}

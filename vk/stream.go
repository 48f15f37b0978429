package vk

import (
	"encoding/binary"
	"fmt"
)

// Stage is a VkPipelineStageFlags.
type Stage uint32

// The stages that compute meets.
const (
	StageTop      Stage = 1 << 0
	StageIndirect Stage = 1 << 1 // reads the workgroups of an indirect dispatch
	StageCompute  Stage = 1 << 11
	StageTransfer Stage = 1 << 12
	StageBottom   Stage = 1 << 13
	StageHost     Stage = 1 << 14
	StageAll      Stage = 1 << 16
)

// Access is a VkAccessFlags.
type Access uint32

// The accesses that compute meets.
const (
	AccessIndirectRead  Access = 1 << 0
	AccessShaderRead    Access = 1 << 5
	AccessShaderWrite   Access = 1 << 6
	AccessTransferRead  Access = 1 << 11
	AccessTransferWrite Access = 1 << 12
	AccessHostRead      Access = 1 << 13
	AccessHostWrite     Access = 1 << 14
	AccessMemoryRead    Access = 1 << 15
	AccessMemoryWrite   Access = 1 << 16
)

// WholeSize stands for everything from an offset to the end of a buffer.
const WholeSize = ^uint64(0)

// BufferRange is part of a buffer. A Size of WholeSize reaches to its end.
type BufferRange struct {
	Buffer *Buffer
	Offset uint64
	Size   uint64
}

// Opcodes of an encoded stream, which deviceTable.execute decodes. A command is one word, opcode | length<<8 with the length in words
// including itself, and its operands.
const (
	opBind = iota + 1
	opPush
	opDispatch
	opBarrier
	opCopy
	opFill
	opTimestamp
	opResetQueries
	opLabel
	opEndLabel
	opImageBarrier
	opCopyToImage
	opCopyFromImage
	opDispatchIndirect
)

// Stream is a list of commands, encoded in plain words, that [CommandBuffer.Execute] records.
//
// The zero value is an empty stream. Reset keeps the memory, so that encoding into a warm stream allocates nothing. A
// stream may be executed any number of times. It holds handles, not objects: everything it names must stay open until the
// command buffers it was executed into have finished. The first error sticks; see [Stream.Err].
type Stream struct {
	words    []uint64
	dev      *Device
	pipeline *ComputePipeline
	err      error
	labels   int
}

// Reset empties the stream and forgets its error.
func (s *Stream) Reset() {
	s.words = s.words[:0]
	s.dev, s.pipeline, s.err, s.labels = nil, nil, nil, 0
}

// Grow makes room for n more words; a dispatch with its bind, push constants and barrier takes about 40.
func (s *Stream) Grow(n int) {
	if cap(s.words)-len(s.words) < n {
		w := make([]uint64, len(s.words), len(s.words)+n)
		copy(w, s.words)
		s.words = w
	}
}

// Len returns the length of the encoded stream in words.
func (s *Stream) Len() int { return len(s.words) }

// Err returns the first error of any call since Reset. A stream with an error is not executed.
func (s *Stream) Err() error { return s.err }

func (s *Stream) fail(call, name string, value any, rule string) {
	if s.err == nil {
		s.err = argErr("Stream."+call, name, value, rule)
	}
}

// use notes that the stream meets an object of dev; all must be of one device.
func (s *Stream) use(dev *Device, call, name string) bool {
	if s.err != nil {
		return false
	}
	if s.dev == nil {
		s.dev = dev
	} else if s.dev != dev {
		s.fail(call, name, "of another device", "all objects of a stream must be of one device")
		return false
	}
	return true
}

// op begins a command with n operand words.
func (s *Stream) op(code, n uint64) { s.words = append(s.words, code|(n+1)<<8) }

// Bind binds a pipeline and, unless it has no bindings, a descriptor set for it. Push and Dispatch refer to it.
func (s *Stream) Bind(p *ComputePipeline, set DescriptorSet) {
	if p == nil || p.handle.Load() == 0 {
		s.fail("Bind", "pipeline", "nil or closed", "it must be open")
		return
	}
	if !s.use(p.dev, "Bind", "pipeline") {
		return
	}
	if p.bindings > 0 && set.handle == 0 {
		s.fail("Bind", "set", "empty", fmt.Sprintf("pipeline %q has %d bindings", p.name, p.bindings))
		return
	}
	if p.bindings == 0 {
		set.handle = 0
	}
	s.pipeline = p
	s.op(opBind, 3)
	s.words = append(s.words, uint64(p.handle.Load()), uint64(p.layout), uint64(set.handle))
}

// Push sets the push constants of the bound pipeline, from byte 0 on. len(data) must be a multiple of 4 and at most the
// pipeline's PushBytes. The bytes are copied.
func (s *Stream) Push(data []byte) {
	if s.err != nil {
		return
	}
	if s.pipeline == nil {
		s.fail("Push", "pipeline", "not bound", "Bind must come first")
		return
	}
	if len(data) == 0 || len(data)%4 != 0 || len(data) > s.pipeline.pushBytes {
		s.fail("Push", "len(data)", len(data), fmt.Sprintf("it must be a positive multiple of 4 and at most %d, the PushBytes of %q",
			s.pipeline.pushBytes, s.pipeline.name))
		return
	}
	n := (len(data) + 7) / 8
	s.op(opPush, uint64(2+n))
	s.words = append(s.words, uint64(s.pipeline.layout), uint64(len(data)))
	for ; len(data) >= 8; data = data[8:] {
		s.words = append(s.words, binary.NativeEndian.Uint64(data))
	}
	if len(data) > 0 {
		var last [8]byte
		copy(last[:], data)
		s.words = append(s.words, binary.NativeEndian.Uint64(last[:]))
	}
}

// Dispatch runs the bound pipeline on x·y·z workgroups.
func (s *Stream) Dispatch(x, y, z uint32) {
	if s.err != nil {
		return
	}
	if s.pipeline == nil {
		s.fail("Dispatch", "pipeline", "not bound", "Bind must come first")
		return
	}
	lim := &s.dev.facts.Limits.MaxWorkgroupCount
	if x == 0 || y == 0 || z == 0 || x > lim[0] || y > lim[1] || z > lim[2] {
		s.fail("Dispatch", "x, y, z", [3]uint32{x, y, z}, fmt.Sprintf("each must be at least 1 and at most %v", *lim))
		return
	}
	s.op(opDispatch, 3)
	s.words = append(s.words, uint64(x), uint64(y), uint64(z))
}

// DispatchIndirectBytes is what DispatchIndirect reads: VkDispatchIndirectCommand, the numbers of workgroups x, y and z in 32 bits each.
const DispatchIndirectBytes = 12

// DispatchIndirect runs the bound pipeline on as many workgroups as the three numbers at a byte offset of a buffer say once the device
// comes to it: StageIndirect reads them, with AccessIndirectRead. None may be above MaxWorkgroupCount, which nothing checks; where one is
// 0, nothing runs. The offset must be a multiple of 4, and the buffer one of NewBuffer, or have the usage indirect.
func (s *Stream) DispatchIndirect(b *Buffer, offset uint64) {
	if s.err != nil {
		return
	}
	if s.pipeline == nil {
		s.fail("DispatchIndirect", "pipeline", "not bound", "Bind must come first")
		return
	}
	if r := (BufferRange{b, offset, DispatchIndirectBytes}); !s.checkRange("DispatchIndirect", "groups", &r, 4) {
		return
	}
	s.op(opDispatchIndirect, 2)
	s.words = append(s.words, uint64(b.handle.Load()), offset)
}

// Barrier makes what srcStage did through srcAccess visible to dstAccess of dstStage: for the given buffer ranges, or for
// all memory when there are none.
func (s *Stream) Barrier(srcStage Stage, srcAccess Access, dstStage Stage, dstAccess Access, buffers ...BufferRange) {
	if s.err != nil {
		return
	}
	if srcStage == 0 || dstStage == 0 {
		s.fail("Barrier", "srcStage, dstStage", [2]Stage{srcStage, dstStage}, "neither may be empty")
		return
	}
	for i := range buffers {
		if !s.checkRange("Barrier", "buffers", &buffers[i], 1) {
			return
		}
	}
	s.op(opBarrier, uint64(4+3*len(buffers)))
	s.words = append(s.words, uint64(srcStage), uint64(srcAccess), uint64(dstStage), uint64(dstAccess))
	for i := range buffers {
		s.words = append(s.words, uint64(buffers[i].Buffer.handle.Load()), buffers[i].Offset, buffers[i].Size)
	}
}

// Copy copies size bytes from src at srcOffset to dst at dstOffset.
func (s *Stream) Copy(dst *Buffer, dstOffset uint64, src *Buffer, srcOffset, size uint64) {
	d := BufferRange{dst, dstOffset, size}
	r := BufferRange{src, srcOffset, size}
	if s.err != nil || !s.checkRange("Copy", "dst", &d, 1) || !s.checkRange("Copy", "src", &r, 1) {
		return
	}
	if size == WholeSize {
		s.fail("Copy", "size", "WholeSize", "it must be a number of bytes")
		return
	}
	if dst.handle.Load() == src.handle.Load() && dstOffset < srcOffset+size && srcOffset < dstOffset+size {
		s.fail("Copy", "dstOffset", dstOffset, fmt.Sprintf("it must not overlap the source at %d with size %d in the same buffer",
			srcOffset, size))
		return
	}
	s.op(opCopy, 5)
	s.words = append(s.words, uint64(src.handle.Load()), uint64(dst.handle.Load()), srcOffset, dstOffset, size)
}

// Fill sets a range of a buffer to a repeated 32-bit value. Offset and size must be multiples of 4, or size WholeSize.
func (s *Stream) Fill(r BufferRange, value uint32) {
	if s.err != nil || !s.checkRange("Fill", "range", &r, 4) {
		return
	}
	s.op(opFill, 4)
	s.words = append(s.words, uint64(r.Buffer.handle.Load()), r.Offset, r.Size, uint64(value))
}

// WriteTimestamp writes the time at which all earlier commands have passed the stage into query i.
func (s *Stream) WriteTimestamp(pool *QueryPool, i int, stage Stage) {
	if !s.checkQuery("WriteTimestamp", pool, i, 1) {
		return
	}
	s.op(opTimestamp, 3)
	s.words = append(s.words, uint64(pool.handle.Load()), uint64(i), uint64(stage))
}

// ResetQueries makes n queries from the first on ready to be written.
func (s *Stream) ResetQueries(pool *QueryPool, first, n int) {
	if !s.checkQuery("ResetQueries", pool, first, n) {
		return
	}
	s.op(opResetQueries, 3)
	s.words = append(s.words, uint64(pool.handle.Load()), uint64(first), uint64(n))
}

// Label opens a named region that debuggers show. Without VK_EXT_debug_utils it does nothing.
func (s *Stream) Label(name string) {
	if s.err != nil {
		return
	}
	n := len(name)/8 + 1 // at least one zero byte ends it
	s.op(opLabel, uint64(n))
	for i := 0; i < n; i++ {
		var w [8]byte
		copy(w[:], name[min(8*i, len(name)):])
		s.words = append(s.words, binary.NativeEndian.Uint64(w[:]))
	}
	s.labels++
}

// EndLabel closes the region that Label opened last.
func (s *Stream) EndLabel() {
	if s.err != nil {
		return
	}
	if s.labels == 0 {
		s.fail("EndLabel", "label", "none open", "Label must come first")
		return
	}
	s.labels--
	s.op(opEndLabel, 0)
}

func (s *Stream) checkQuery(call string, pool *QueryPool, first, n int) bool {
	if s.err != nil {
		return false
	}
	if pool == nil || pool.handle.Load() == 0 {
		s.fail(call, "pool", "nil or closed", "it must be open")
		return false
	}
	if first < 0 || n < 1 || first+n > pool.count {
		s.fail(call, "query", first, fmt.Sprintf("the pool has %d queries and %d are asked for", pool.count, n))
		return false
	}
	return s.use(pool.dev, call, "pool")
}

func (s *Stream) checkRange(call, name string, r *BufferRange, align uint64) bool {
	b := r.Buffer
	if b == nil || b.handle.Load() == 0 {
		s.fail(call, name, "nil or closed", "it must be open")
		return false
	}
	if !s.use(b.dev, call, name) {
		return false
	}
	if r.Offset >= b.capacity || r.Size == 0 || (r.Size != WholeSize && r.Size > b.capacity-r.Offset) {
		s.fail(call, name, fmt.Sprintf("offset %d, size %d", r.Offset, r.Size),
			fmt.Sprintf("it must lie within the buffer's %d bytes and not be empty", b.capacity))
		return false
	}
	if r.Offset%align != 0 || (r.Size != WholeSize && r.Size%align != 0) {
		s.fail(call, name, fmt.Sprintf("offset %d, size %d", r.Offset, r.Size), fmt.Sprintf("both must be multiples of %d", align))
		return false
	}
	return true
}

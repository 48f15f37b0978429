package vk

import "fmt"

// Layout is a VkImageLayout: how an image's pixels lie, which depends on what is done with them next.
type Layout uint32

// The layouts that an image of a swapchain meets.
const (
	LayoutUndefined   Layout = 0 // what it held is lost
	LayoutTransferSrc Layout = 6
	LayoutTransferDst Layout = 7
	LayoutPresent     Layout = 1000001002 // for Queue.Present
)

// ImageBarrier makes what srcStage did to the image through srcAccess visible to dstAccess of dstStage, and changes its layout
// between the two.
func (s *Stream) ImageBarrier(i Image, from, to Layout, srcStage Stage, srcAccess Access, dstStage Stage, dstAccess Access) {
	if !s.checkImage("ImageBarrier", i) {
		return
	}
	if srcStage == 0 || dstStage == 0 {
		s.fail("ImageBarrier", "srcStage, dstStage", [2]Stage{srcStage, dstStage}, "neither may be empty")
		return
	}
	if to == LayoutUndefined {
		s.fail("ImageBarrier", "to", to, "an image can come from LayoutUndefined, not go there")
		return
	}
	s.op(opImageBarrier, 7)
	s.words = append(s.words, uint64(srcStage), uint64(srcAccess), uint64(dstStage), uint64(dstAccess), uint64(from), uint64(to),
		uint64(i.Handle()))
}

// CopyToImage fills the image, in LayoutTransferDst, with pixels from a buffer: four bytes each, in the order of Swapchain.BGRA, row by row
// from the top without gaps.
func (s *Stream) CopyToImage(dst Image, src *Buffer, srcOffset uint64) {
	s.copyImage("CopyToImage", opCopyToImage, dst, src, srcOffset)
}

// CopyFromImage reads the pixels of an image in LayoutTransferSrc into a buffer, as CopyToImage takes them. The swapchain must be Readable.
func (s *Stream) CopyFromImage(dst *Buffer, dstOffset uint64, src Image) {
	if s.err == nil && src.chain != nil && !src.chain.readable {
		s.fail("CopyFromImage", "src", "of a swapchain that is not Readable", "the surface must offer images to copy from")
		return
	}
	s.copyImage("CopyFromImage", opCopyFromImage, src, dst, dstOffset)
}

func (s *Stream) copyImage(call string, op uint64, i Image, b *Buffer, offset uint64) {
	if !s.checkImage(call, i) {
		return
	}
	w, h := uint64(i.chain.width), uint64(i.chain.height)
	if !s.checkRange(call, "buffer", &BufferRange{b, offset, 4 * w * h}, 4) {
		return
	}
	s.op(op, 5)
	s.words = append(s.words, uint64(i.Handle()), uint64(b.handle.Load()), offset, w, h)
}

func (s *Stream) checkImage(call string, i Image) bool {
	if s.err != nil {
		return false
	}
	if i.Handle() == 0 {
		s.fail(call, "image", fmt.Sprintf("number %d of a swapchain that is nil, closed or has no such", i.index),
			"it must be one of an open swapchain")
		return false
	}
	return s.use(i.chain.dev, call, "image")
}

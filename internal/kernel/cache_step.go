package kernel

import (
	"encoding/binary"

	"github.com/vkattn/vkattn/internal/attn"
)

// CachePools are pools of a cache that are alike and lie in one buffer, one behind another.
type CachePools struct {
	Pools                int
	PageBytes, PoolBytes uint64 // multiples of PoolUnit
}

// CacheStep is the most of a step that is brought to the device: shaders/cache/cache_step.comp says what it does.
type CacheStep struct{ Copies, Edits int }

const (
	// PoolUnit is the bytes that are copied at a time.
	PoolUnit = 16
	// CacheStepModule is the name of the module, and the label of its dispatches.
	CacheStepModule = "cache_step"

	cacheStepThreads = 128 // of a workgroup; every device allows it
	editBytes        = 8   // of an edit, of a copy and of the counts before them

	// Invocations go through edits and copies in strides, so that any grid is right. Most steps have no copies and some edits a row:
	// workgroups for all that there could be would cost more than the work.
	mostEditGroups   = 64
	mostCopyGroups   = 1024
	mostPageGroups   = 16 // of one page of one pool
	mostCopiesAtOnce = 16
)

// EditGroups are the workgroups that make edits.
func (s *CacheStep) EditGroups() [3]uint32 {
	return [3]uint32{uint32(min(attn.CeilDiv(s.Edits, cacheStepThreads), mostEditGroups)), 1, 1}
}

// CopyGroups are those that copy pages of pools.
func (s *CacheStep) CopyGroups(p *CachePools) [3]uint32 {
	x := int(min((p.PageBytes/PoolUnit+cacheStepThreads-1)/cacheStepThreads, mostPageGroups))
	return [3]uint32{uint32(x), uint32(p.Pools), uint32(min(max(mostCopyGroups/(x*p.Pools), 1), mostCopiesAtOnce, s.Copies))}
}

// CacheStepConstants are its specialization constants: where it copies pages in pools, else where it makes edits.
func CacheStepConstants(copies int, p *CachePools) Constants {
	c := Constants{"WG": cacheStepThreads, "COPY": BoolInt(p != nil), "COPIES": copies, "PAGE": 1, "POOL": 1}
	if p != nil {
		c["PAGE"], c["POOL"] = int(p.PageBytes/PoolUnit), int(p.PoolBytes/PoolUnit)
	}
	return c
}

// Bytes is the size of the memory that a step is written to.
func (s *CacheStep) Bytes() uint64 { return editBytes * (1 + uint64(s.Copies) + uint64(s.Edits)) }

// StepWriter writes a step into memory of Bytes, from the front to the back of edits and copies, and reads nothing: it may be uncached.
type StepWriter struct {
	to            []byte
	first         int // byte of the first edit
	edits, copies int
}

// Write begins a step.
func (s *CacheStep) Write(to []byte) StepWriter {
	return StepWriter{to: to, first: editBytes * (1 + s.Copies)}
}

// pair writes two words.
func (w *StepWriter) pair(at int, a, b int32) {
	binary.NativeEndian.PutUint32(w.to[at:], uint32(a))
	binary.NativeEndian.PutUint32(w.to[at+4:], uint32(b))
}

// Edit makes word number index this value. No index is named twice.
func (w *StepWriter) Edit(index int, value int32) {
	w.pair(w.first+editBytes*w.edits, int32(index), value)
	w.edits++
}

// Copy copies a page.
func (w *StepWriter) Copy(from, to int32) {
	w.copies++
	w.pair(editBytes*w.copies, from, to)
}

// End ends the step and says how many bytes from the beginning on were written, or passed over.
func (w *StepWriter) End() uint64 {
	w.pair(0, int32(w.edits), int32(w.copies))
	return uint64(w.first + editBytes*w.edits)
}

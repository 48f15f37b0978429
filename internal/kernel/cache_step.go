package kernel

import (
	"encoding/binary"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// CachePools are pools of a cache that are alike and lie in one buffer, one behind another.
type CachePools struct {
	Pools                int
	PageBytes, PoolBytes uint64 // multiples of PoolUnit
}

// CacheStep is the kernel that brings a step over a cache to the device: shaders/cache/cache_step.comp says what it does.
type CacheStep struct {
	copies, edits int // the most of a step
	edit          *pipeline.Kernel
	groups        uint32
	pools         []poolCopy
}

// poolCopy copies pages of the pools of a buffer.
type poolCopy struct {
	kernel *pipeline.Kernel
	groups [3]uint32
}

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

// NewCacheStep builds it, for steps of so many copies and edits at most.
func NewCacheStep(e *Env, copies, edits int, of []CachePools) (*CacheStep, error) {
	s := &CacheStep{copies: copies, edits: edits, groups: uint32(min(attn.CeilDiv(edits, cacheStepThreads), mostEditGroups))}
	build := func(p *CachePools) (*pipeline.Kernel, error) {
		return e.Build(CacheStepModule, CacheStepConstants(copies, p), pipeline.KernelInfo{}, score.Code{})
	}
	var err error
	if s.edit, err = build(nil); err != nil {
		return nil, err
	}
	for i := range of {
		p := &of[i]
		k, err := build(p)
		if err != nil {
			return nil, err
		}
		x := int(min((p.PageBytes/PoolUnit+cacheStepThreads-1)/cacheStepThreads, mostPageGroups))
		z := min(max(mostCopyGroups/(x*p.Pools), 1), mostCopiesAtOnce, copies)
		s.pools = append(s.pools, poolCopy{k, [3]uint32{uint32(x), uint32(p.Pools), uint32(z)}})
	}
	return s, nil
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
func (s *CacheStep) Bytes() uint64 { return editBytes * (1 + uint64(s.copies) + uint64(s.edits)) }

// Dispatches is the number of its dispatches, Bindings that of their bindings.
func (s *CacheStep) Dispatches() int { return 1 + len(s.pools) }
func (s *CacheStep) Bindings() int   { return s.edit.Bindings() * s.Dispatches() }

// Record writes the commands for the step that lies in memory, with the words that are edited and the buffers of pools.
func (s *CacheStep) Record(r *Recorder, step, words pipeline.Binding, pools []pipeline.Binding) error {
	b := r.bind(s.edit, step)
	b.to("Step_", step, pipeline.Read)
	b.to("Words_", words, pipeline.Write)
	access, err := b.done(CacheStepModule)
	if err != nil {
		return err
	}
	if err := r.Rec.Dispatch(s.edit, access, nil, [3]uint32{s.groups, 1, 1}, CacheStepModule); err != nil {
		return err
	}
	for i := range s.pools {
		b.to("Pools_", pools[i], pipeline.ReadWrite)
		if access, err = b.done(CacheStepModule); err != nil {
			return err
		}
		if err := r.Rec.Dispatch(s.pools[i].kernel, access, nil, s.pools[i].groups, CacheStepModule); err != nil {
			return err
		}
	}
	return nil
}

// StepWriter writes a step into memory of Bytes, from the front to the back of edits and copies, and reads nothing: it may be uncached.
type StepWriter struct {
	to            []byte
	first         int // byte of the first edit
	edits, copies int
}

// Write begins a step.
func (s *CacheStep) Write(to []byte) StepWriter {
	return StepWriter{to: to, first: editBytes * (1 + s.copies)}
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

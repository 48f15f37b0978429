package pipeline

import "github.com/vkattn/vkattn/vk"

// hazards derives the barriers of one recording from the accesses that its operations declare.
//
// For every range of a buffer it remembers the last write and the reads since, and which stages have been made to wait for
// each. An access that is not yet ordered behind what it depends on (read after write, write after write, write after read)
// asks for a barrier. Barriers are global memory barriers: one covers every dependency known so far that has the same source
// stages, so two dependent chains that advance together need one barrier a step, not two.
//
// Only compute and transfer commands occur inside a recording, and the reads of an indirect dispatch's workgroups. A barrier therefore
// makes all accesses of its destination stage wait, and the state needs stages only.
type hazards struct {
	ranges []rangeState
	prior  priorState // what ranges start from that nobody declared
}

// priorState is a dependency on what came before the recording, and the stages that already wait for it.
type priorState struct {
	use     Use
	visible vk.Stage
}

// rangeState is the history of bytes [lo, hi) of one buffer within the recording.
type rangeState struct {
	buffer uintptr
	lo, hi uint64

	prior    priorState
	declared bool // prior was declared for exactly this range; else hazards.prior holds
	next     Use
	own      uint64 // where what prior and next were declared of begins, where that is behind lo: bytes before it are a neighbour's

	write       vk.Stage       // stages of the last write; 0 when the recording has not written
	writeSeenBy vk.Stage       // stages ordered behind it, with its data visible
	reads       [readers]reads // since the last write: by compute, by transfer, of the workgroups of dispatches
}

// readers is the number of stages that read.
const readers = 3

// reads are what one stage has read.
type reads struct {
	stage  vk.Stage // 0 when it has not
	seenBy vk.Stage // stages ordered behind it
}

// barrier is one global memory barrier; nothing is needed when both stage masks are 0.
type barrier struct {
	srcStages   vk.Stage
	srcAccesses vk.Access
	dstStages   vk.Stage
	dstAccesses vk.Access
}

func (b *barrier) merge(o barrier) {
	b.srcStages |= o.srcStages
	b.srcAccesses |= o.srcAccesses
	b.dstStages |= o.dstStages
	b.dstAccesses |= o.dstAccesses
}

// allAccesses returns every access that an operation of the given stages can make.
func allAccesses(stages vk.Stage) (a vk.Access) {
	if stages&vk.StageCompute != 0 {
		a |= vk.AccessShaderRead | vk.AccessShaderWrite
	}
	if stages&vk.StageTransfer != 0 {
		a |= vk.AccessTransferRead | vk.AccessTransferWrite
	}
	if stages&vk.StageIndirect != 0 {
		a |= vk.AccessIndirectRead
	}
	return a
}

// writes returns the write accesses of operations of the given stages.
func writes(stages vk.Stage) vk.Access { return allAccesses(stages) & writeAccesses }

func (h *hazards) reset() {
	h.ranges = h.ranges[:0]
	h.prior = priorState{use: DefaultPrior}
}

// at returns the state of exactly this range, making it when it is new.
func (h *hazards) at(buffer uintptr, lo, hi uint64) *rangeState {
	for i := range h.ranges {
		if r := &h.ranges[i]; r.buffer == buffer && r.lo == lo && r.hi == hi {
			return r
		}
	}
	h.ranges = append(h.ranges, rangeState{buffer: buffer, lo: lo, hi: hi})
	return &h.ranges[len(h.ranges)-1]
}

// ofAll says whether what was declared of r, which it overlaps, holds of all that an access to bytes [lo, hi) touches.
func (r *rangeState) ofAll(lo, hi uint64) bool { return r.lo <= lo && hi <= r.hi }

// ofSome says whether it holds of some of that. An access that begins before own and ends behind it is one to a binding that was moved
// down.
func (r *rangeState) ofSome(lo, hi uint64) bool { return max(r.lo, r.own) < hi && lo < r.hi }

func (h *hazards) declarePrior(buffer uintptr, lo, hi uint64, u Use) {
	r := h.at(buffer, lo, hi)
	r.declared = u != (Use{})
	r.prior = priorState{use: u}
}

// belongs says that what is declared of exactly this range is of its bytes from own on.
func (h *hazards) belongs(buffer uintptr, lo, hi, own uint64) { h.at(buffer, lo, hi).own = own }

func (h *hazards) declareNext(buffer uintptr, lo, hi uint64, u Use) {
	h.at(buffer, lo, hi).next = u
}

// need adds to b what an access in the given stage to bytes [lo, hi) of a buffer must wait for.
func (h *hazards) need(b *barrier, buffer uintptr, lo, hi uint64, stage vk.Stage, mode Mode) {
	if mode == Unused || lo >= hi {
		return
	}
	h.at(buffer, lo, hi)
	covered := false // a declared prior that covers the whole access replaces the default one
	for i := range h.ranges {
		r := &h.ranges[i]
		if r.buffer != buffer || r.hi <= lo || hi <= r.lo {
			continue
		}
		if r.declared && r.ofSome(lo, hi) {
			b.behindPrior(&r.prior, stage, mode)
			covered = covered || r.ofAll(lo, hi)
		}
		if r.write != 0 && r.writeSeenBy&stage == 0 {
			b.merge(barrier{r.write, writes(r.write), stage, allAccesses(stage)})
		}
		for _, read := range r.reads {
			if mode&Write != 0 && read.stage != 0 && read.seenBy&stage == 0 {
				b.merge(barrier{read.stage, 0, stage, 0})
			}
		}
	}
	if !covered {
		b.behindPrior(&h.prior, stage, mode)
	}
	// An indirect dispatch is of two stages: where one alone has memory to see and the other waits for reads, what the barrier makes
	// available is visible to both all the same, as passed takes it to be.
	if b.dstAccesses != 0 {
		b.dstAccesses |= allAccesses(b.dstStages)
	}
}

// behindPrior adds the dependency on what preceded the recording: on its writes for any access, on its reads for a write.
func (b *barrier) behindPrior(p *priorState, stage vk.Stage, mode Mode) {
	if p.use.untouched() || p.visible&stage != 0 {
		return
	}
	if p.use.Accesses&writeAccesses != 0 || mode&Write != 0 {
		b.merge(barrier{p.use.Stages, p.use.Accesses & writeAccesses, stage, allAccesses(stage)})
	}
}

// passed notes that barrier b has been recorded. What waits behind b may follow from b itself, or from an earlier barrier that
// led to a stage which b in turn waits for: dependencies chain, and data once made available can be made visible later.
func (h *hazards) passed(b barrier) {
	covers := func(stages vk.Stage, accesses vk.Access, seenBy vk.Stage) bool {
		direct := stages&^b.srcStages == 0 && accesses&^b.srcAccesses == 0
		chained := seenBy&b.srcStages != 0 && (accesses == 0 || b.dstAccesses != 0)
		return direct || chained
	}
	prior := func(p *priorState) {
		if covers(p.use.Stages, p.use.Accesses&writeAccesses, p.visible) {
			p.visible |= b.dstStages
		}
	}
	prior(&h.prior)
	for i := range h.ranges {
		r := &h.ranges[i]
		if r.declared {
			prior(&r.prior)
		}
		if r.write != 0 && covers(r.write, writes(r.write), r.writeSeenBy) {
			r.writeSeenBy |= b.dstStages
		}
		for k := range r.reads {
			if read := &r.reads[k]; read.stage != 0 && covers(read.stage, 0, read.seenBy) {
				read.seenBy |= b.dstStages
			}
		}
	}
}

// did notes an access that need asked about, after its barrier was recorded.
func (h *hazards) did(buffer uintptr, lo, hi uint64, stage vk.Stage, mode Mode) {
	if mode == Unused || lo >= hi {
		return
	}
	r := h.at(buffer, lo, hi)
	if mode&Write != 0 {
		// Ranges inside the written one have nothing left to wait for that this write does not imply: it waited for them. A neighbour's
		// has uses of its own.
		for i := range h.ranges {
			if o := &h.ranges[i]; o.buffer == buffer && lo <= o.lo && o.hi <= hi && o.hi > r.own {
				o.write, o.writeSeenBy, o.reads = 0, 0, [readers]reads{}
				o.prior, o.declared = priorState{use: Untouched}, true
			}
		}
		r.write = stage
		return
	}
	k := 0
	switch stage {
	case vk.StageTransfer:
		k = 1
	case vk.StageIndirect:
		k = 2
	}
	r.reads[k] = reads{stage: stage}
}

// final returns the barrier between the recording and what follows it: everything written becomes visible to the next uses,
// and nothing that follows overwrites what is still being read.
func (h *hazards) final() (b barrier) {
	for i := range h.ranges {
		r := &h.ranges[i]
		if r.write == 0 && r.reads == ([readers]reads{}) {
			continue
		}
		covered := false
		for j := range h.ranges {
			o := &h.ranges[j]
			if o.next == (Use{}) || o.buffer != r.buffer || !o.ofSome(r.lo, r.hi) {
				continue
			}
			b.before(r, o.next)
			covered = covered || o.ofAll(r.lo, r.hi)
		}
		if !covered {
			b.before(r, DefaultNext)
		}
	}
	return b
}

// before adds the dependency of a next use on what the recording did to range r.
func (b *barrier) before(r *rangeState, next Use) {
	if next.untouched() {
		return
	}
	stages := next.Stages &^ vk.StageTop
	if r.write != 0 {
		b.merge(barrier{r.write, writes(r.write), stages, next.Accesses})
	}
	if read := r.reads[0].stage | r.reads[1].stage | r.reads[2].stage; read != 0 && next.Accesses&writeAccesses != 0 {
		b.merge(barrier{read, 0, stages, next.Accesses})
	}
}

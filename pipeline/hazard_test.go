package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
	"pgregory.net/rapid"
)

// event is an operation or a barrier in the order of recording.
type event struct {
	isBarrier bool
	barrier   barrier
	stage     vk.Stage
	touches   []touch
}

type touch struct {
	buffer uintptr
	lo, hi uint64
	mode   Mode
}

func conflict(a, b []touch) (conflicts, wrote bool) {
	for _, x := range a {
		for _, y := range b {
			if x.buffer == y.buffer && x.lo < y.hi && y.lo < x.hi && (x.mode|y.mode)&Write != 0 && x.mode != Unused && y.mode != Unused {
				conflicts = true
				wrote = wrote || x.mode&Write != 0
			}
		}
	}
	return conflicts, wrote
}

// ordered says whether a chain of barriers leads from operation i to operation j, with the writes of i made available by its
// first link and visible by its last one when memory matters.
func ordered(events []event, i, j int, memory bool) bool {
	from, to := events[i], events[j]
	reached := map[int]bool{}
	for k := i + 1; k < j; k++ {
		if !events[k].isBarrier {
			continue
		}
		b := events[k].barrier
		start := b.srcStages&from.stage != 0 && (!memory || writes(from.stage)&^b.srcAccesses == 0)
		for p := range reached {
			start = start || events[p].barrier.dstStages&b.srcStages != 0
		}
		if !start {
			continue
		}
		reached[k] = true
		need := allAccesses(to.stage)
		if to.stage == vk.StageHost {
			need = vk.AccessHostRead
		}
		if b.dstStages&to.stage != 0 && (!memory || need&^b.dstAccesses == 0) {
			return true
		}
	}
	return false
}

// unordered returns an operation from first on that conflicts with operation j and that no chain of barriers orders.
func unordered(events []event, first, j int) (int, bool) {
	for i := first; i < j; i++ {
		if events[i].isBarrier {
			continue
		}
		if c, wrote := conflict(events[i].touches, events[j].touches); c && !ordered(events, i, j, wrote) {
			return i, true
		}
	}
	return 0, false
}

func describe(events []event) (s string) {
	for i, e := range events {
		if e.isBarrier {
			s += fmt.Sprintf("%d: barrier %x/%x → %x/%x\n", i, e.barrier.srcStages, e.barrier.srcAccesses, e.barrier.dstStages,
				e.barrier.dstAccesses)
		} else {
			s += fmt.Sprintf("%d: stage %x %v\n", i, e.stage, e.touches)
		}
	}
	return s
}

// run plays operations through hazards, between a world that computed and transferred everywhere before and one that does so
// after.
func run(ops []event) []event {
	world := []touch{{1, 0, 1 << 40, ReadWrite}, {2, 0, 1 << 40, ReadWrite}}
	events := []event{{stage: vk.StageCompute, touches: world}, {stage: vk.StageTransfer, touches: world}}
	var h hazards
	h.reset()
	for _, op := range ops {
		var b barrier
		for _, t := range op.touches {
			h.need(&b, t.buffer, t.lo, t.hi, op.stage, t.mode)
		}
		if b.srcStages != 0 {
			h.passed(b)
			events = append(events, event{isBarrier: true, barrier: b})
		}
		for _, t := range op.touches {
			h.did(t.buffer, t.lo, t.hi, op.stage, t.mode)
		}
		events = append(events, op)
	}
	if b := h.final(); b.srcStages != 0 {
		events = append(events, event{isBarrier: true, barrier: b})
	}
	host := []touch{{1, 0, 1 << 40, Read}, {2, 0, 1 << 40, Read}}
	return append(events, event{stage: vk.StageCompute, touches: world}, event{stage: vk.StageTransfer, touches: world},
		event{stage: vk.StageHost, touches: host})
}

// TestHazardsOrderEveryConflict plays random operations and checks every conflicting pair against the specification's rule for chains of
// dependencies, and, where all operations are dispatches, that every barrier was needed by the one that follows it. (Between stages, a few
// barriers could be spared by telling what is ordered from what is visible as well.)
func TestHazardsOrderEveryConflict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		genTouch := rapid.Custom(func(t *rapid.T) touch {
			lo := rapid.Uint64Range(0, 5).Draw(t, "lo")
			return touch{
				buffer: uintptr(rapid.IntRange(1, 2).Draw(t, "buffer")),
				lo:     lo, hi: lo + rapid.Uint64Range(1, 4).Draw(t, "len"),
				mode: Mode(rapid.IntRange(0, 3).Draw(t, "mode")),
			}
		})
		ops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event {
			e := event{
				stage: rapid.SampledFrom([]vk.Stage{vk.StageCompute, vk.StageCompute, vk.StageTransfer, vk.StageIndirect}).Draw(t,
					"stage"),
				touches: rapid.SliceOfN(genTouch, 1, 3).Draw(t, "touches"),
			}
			for i := range e.touches {
				if e.stage == vk.StageIndirect {
					e.touches[i].mode &= Read
				}
			}
			return e
		}), 1, 12).Draw(t, "ops")
		events := run(ops)
		computeOnly := !slices.ContainsFunc(ops, func(e event) bool { return e.stage != vk.StageCompute })
		after := len(events) - 3 // the three operations of the world after the recording
		for j, e := range events {
			if e.isBarrier || j < 2 {
				continue
			}
			if j >= after {
				if i, bad := unordered(events[:j+1:j+1], 2, j); bad && i < after {
					t.Fatalf("operation %d and what follows (%d) conflict and are not ordered:\n%s", i, j, describe(events))
				}
				continue
			}
			if i, bad := unordered(events, 0, j); bad {
				t.Fatalf("operations %d and %d conflict and are not ordered:\n%s", i, j, describe(events))
			}
			if events[j-1].isBarrier && computeOnly {
				without := append(append([]event{}, events[:j-1]...), e)
				if _, needed := unordered(without, 0, len(without)-1); !needed {
					t.Fatalf("barrier %d is not needed:\n%s", j-1, describe(events))
				}
			}
		}
	})
}

func TestHazardsCountBarriers(t *testing.T) {
	read := func(b uintptr) touch { return touch{b, 0, 64, Read} }
	write := func(b uintptr) touch { return touch{b, 0, 64, Write} }
	op := func(ts ...touch) event { return event{stage: vk.StageCompute, touches: ts} }
	cases := []struct {
		name string
		ops  []event
		want int
	}{
		{"one", []event{op(read(1), write(2))}, 1},
		{"independent", []event{op(read(1), write(2)), op(read(1), write(3)), op(read(1), write(4))}, 1},
		{"chain", []event{op(read(1), write(2)), op(read(2), write(3)), op(read(3), write(4))}, 3},
		{"two chains in step", []event{op(read(1), write(2)), op(read(1), write(3)), op(read(2), write(4)), op(read(3), write(5))}, 2},
		{"write after read", []event{op(read(1), write(2)), op(read(3), write(1))}, 2},
		{"write after write", []event{op(write(1)), op(write(1))}, 2},
		{"reads", []event{op(read(1)), op(read(1)), op(read(2))}, 1},
		{"disjoint halves", []event{op(touch{1, 0, 32, Write}), op(touch{1, 32, 64, Write}), op(touch{1, 0, 64, Read})}, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			for _, e := range run(c.ops) {
				if e.isBarrier {
					n++
				}
			}
			assert.Equal(t, c.want+1, n, "one more is towards what follows")
		})
	}
}

func TestHazardsDeclaredUses(t *testing.T) {
	fragment := vk.Stage(1 << 7)
	var h hazards
	h.reset()
	h.declarePrior(1, 0, 64, Use{Stages: fragment, Accesses: vk.AccessShaderWrite})
	h.declarePrior(2, 0, 64, Untouched)
	h.declareNext(2, 0, 64, Use{Stages: fragment, Accesses: vk.AccessShaderRead})
	h.declareNext(1, 0, 64, Untouched)

	var b barrier
	h.need(&b, 2, 0, 64, vk.StageCompute, Write)
	assert.Zero(t, b, "nothing touched it before")
	h.need(&b, 1, 16, 32, vk.StageCompute, Read)
	require.Equal(t, barrier{fragment, vk.AccessShaderWrite, vk.StageCompute, vk.AccessShaderRead | vk.AccessShaderWrite}, b)
	h.passed(b)
	h.did(2, 0, 64, vk.StageCompute, Write)
	h.did(1, 16, 32, vk.StageCompute, Read)
	b = barrier{}
	h.need(&b, 1, 0, 64, vk.StageCompute, Read)
	assert.Zero(t, b, "the fragment shader was waited for already")
	assert.Equal(t, barrier{vk.StageCompute, vk.AccessShaderWrite, fragment, vk.AccessShaderRead}, h.final())

	h.reset()
	h.declarePrior(1, 0, 64, Use{Stages: fragment, Accesses: vk.AccessShaderRead})
	b = barrier{}
	h.need(&b, 1, 0, 64, vk.StageCompute, Read)
	assert.Zero(t, b, "reads need not wait for reads")
	h.need(&b, 1, 0, 64, vk.StageCompute, Write)
	assert.Equal(t, fragment, b.srcStages, "a write waits for a foreign read")
	b = barrier{}
	h.need(&b, 1, 0, 128, vk.StageCompute, Read)
	assert.Equal(t, DefaultPrior.Stages, b.srcStages, "bytes beyond the declared range keep the default")
}

// TestHazardsForgetWhatAWriteImplies checks the very barriers around a write. It has waited for what was done to its range
// before, so whatever comes after waits for the write alone; and nothing that it has not waited for is forgotten.
func TestHazardsForgetWhatAWriteImplies(t *testing.T) {
	const compute, transfer = vk.StageCompute, vk.StageTransfer
	const fragment = vk.Stage(1 << 7)
	var h hazards
	access := func(lo, hi uint64, stage vk.Stage, mode Mode) (b barrier) {
		h.need(&b, 1, lo, hi, stage, mode)
		if b.srcStages != 0 {
			h.passed(b)
		}
		h.did(1, lo, hi, stage, mode)
		return b
	}
	behind := func(b barrier, stages vk.Stage, accesses vk.Access, stage vk.Stage, what string) {
		t.Helper()
		seen := allAccesses(stage)
		if accesses == 0 {
			seen = 0 // nothing was written: waiting is enough
		}
		assert.Equal(t, barrier{stages, accesses, stage, seen}, b, what)
	}
	ends := func(stages vk.Stage, what string) {
		t.Helper()
		b := h.final()
		assert.Equal(t, stages, b.srcStages, what)
		assert.Equal(t, writes(stages), b.srcAccesses, what)
	}
	begin := func(prior Use) {
		h.reset()
		h.declarePrior(1, 0, 64, prior)
	}

	begin(Untouched)
	assert.Zero(t, access(0, 64, compute, Read))
	behind(access(0, 64, transfer, Write), compute, 0, transfer, "a write waits for the read")
	ends(transfer, "what follows waits for the write, not for the read before it")

	begin(Untouched)
	assert.Zero(t, access(0, 64, compute, Read))
	assert.Zero(t, access(0, 64, transfer, Read))
	behind(access(0, 64, compute, Write), compute|transfer, 0, compute, "a write waits for reads of both kinds")
	begin(Untouched)
	assert.Zero(t, access(0, 64, transfer, Read))
	assert.Zero(t, access(0, 64, compute, Read))
	behind(access(0, 64, transfer, Write), compute|transfer, 0, transfer, "in whichever order")
	begin(Untouched)
	assert.Zero(t, access(0, 64, compute, Read))
	assert.Zero(t, access(0, 64, vk.StageIndirect, Read))
	behind(access(0, 64, compute, Write), compute|vk.StageIndirect, 0, compute, "a write waits for a dispatch's read of its workgroups too")
	behind(access(0, 64, vk.StageIndirect, Read), compute, vk.AccessShaderWrite, vk.StageIndirect, "which waits for the write")
	assert.Equal(t, compute|vk.StageIndirect, func() vk.Stage { b := h.final(); return b.srcStages }(), "and what follows for both")

	begin(Use{Stages: fragment, Accesses: vk.AccessShaderWrite})
	behind(access(0, 64, compute, Write), fragment, vk.AccessShaderWrite, compute, "a write waits for what was before the recording")
	behind(access(0, 64, transfer, Read), compute, vk.AccessShaderWrite, transfer, "and a read waits for the write alone")

	h.reset() // nothing is declared
	behind(access(0, 64, compute, Write), DefaultPrior.Stages, DefaultPrior.Accesses, compute, "the default")
	behind(access(0, 64, transfer, Read), compute, vk.AccessShaderWrite, transfer, "the default is forgotten too")
	h.reset()
	access(0, 64, compute, Write)
	behind(access(0, 65, transfer, Read), DefaultPrior.Stages, DefaultPrior.Accesses, transfer, "but not of the byte beyond")

	begin(Use{Stages: fragment, Accesses: vk.AccessShaderWrite})
	behind(access(0, 32, compute, Write), fragment, vk.AccessShaderWrite, compute, "half")
	behind(access(32, 64, transfer, Read), fragment, vk.AccessShaderWrite, transfer, "the other half is as it was")

	begin(Untouched)
	assert.Zero(t, access(0, 16, transfer, Write))
	behind(access(0, 64, compute, Write), transfer, vk.AccessTransferWrite, compute, "a write waits for one inside its range")
	behind(access(0, 16, transfer, Read), compute, vk.AccessShaderWrite, transfer, "which is forgotten")
	begin(Untouched)
	assert.Zero(t, access(0, 64, transfer, Write))
	behind(access(0, 16, compute, Write), transfer, vk.AccessTransferWrite, compute, "a write waits for one around its range")
	ends(compute|transfer, "which is not forgotten")

	begin(Untouched)
	assert.Zero(t, access(0, 16, compute, Write))
	behind(access(0, 32, transfer, Read), compute, vk.AccessShaderWrite, transfer, "a read waits for a write")
	behind(access(16, 32, compute, Write), transfer, 0, compute, "a write waits for the read, and need not see anything")
	behind(access(0, 16, compute, Read), compute, vk.AccessShaderWrite, compute, "so that wait does not stand for seeing the first write")

	begin(Untouched)
	assert.Zero(t, access(0, 16, compute, Write))
	behind(access(0, 16, transfer, Read), compute, vk.AccessShaderWrite, transfer, "a read waits for a write")
	assert.Zero(t, access(16, 32, transfer, Write))
	behind(access(16, 32, compute, Read), transfer, vk.AccessTransferWrite, compute, "a read waits for a write")
	assert.Zero(t, access(0, 16, compute, Read), "two barriers in a row lead from the first write here")
}

// TestHazardsOfIndirectDispatches: where an indirect dispatch's kernel only waits for reads, and its workgroups are read from what was
// written, one barrier is for both, and a later dispatch sees whatever else was written before it.
func TestHazardsOfIndirectDispatches(t *testing.T) {
	const compute, indirect = vk.StageCompute, vk.StageIndirect
	const x, y, z = 1, 2, 3
	for _, kernelFirst := range []bool{true, false} {
		var h hazards
		h.reset()
		var b barrier
		for _, buffer := range []uintptr{x, y} {
			h.need(&b, buffer, 0, 64, compute, Write)
		}
		h.passed(b)
		for _, buffer := range []uintptr{x, y} {
			h.did(buffer, 0, 64, compute, Write)
		}
		b = barrier{}
		h.need(&b, z, 0, 64, compute, Read)
		require.Zero(t, b)
		h.did(z, 0, 64, compute, Read)

		if kernelFirst {
			h.need(&b, z, 0, 64, compute, Write)
		}
		h.need(&b, x, 0, vk.DispatchIndirectBytes, indirect, Read)
		if !kernelFirst {
			h.need(&b, z, 0, 64, compute, Write)
		}
		require.Equal(t, barrier{compute, vk.AccessShaderWrite, compute | indirect, allAccesses(compute | indirect)}, b)
		h.passed(b)
		h.did(x, 0, vk.DispatchIndirectBytes, indirect, Read)
		h.did(z, 0, 64, compute, Write)

		b = barrier{}
		h.need(&b, y, 0, 64, compute, Read)
		require.Zero(t, b, "it was made visible")
	}
}

// TestHazardsBesideNeighbour: what is declared of a binding that begins in a neighbour's bytes does not stand for the neighbour, in
// whichever order one operation touches both.
func TestHazardsBesideNeighbour(t *testing.T) {
	const compute, transfer = vk.StageCompute, vk.StageTransfer
	neighbour, moved := touch{1, 0, 32, Write}, touch{1, 0, 96, Write} // of which bytes from 32 on are its own
	for _, order := range [][]touch{{neighbour, moved}, {moved, neighbour}} {
		var h hazards
		h.reset()
		h.declarePrior(1, 0, 96, Untouched)
		h.declareNext(1, 0, 96, Untouched)
		h.belongs(1, 0, 96, 32)
		var b barrier
		h.need(&b, 1, moved.lo, moved.hi, compute, Write)
		assert.Zero(t, b, "the declared use is of all that is its own")
		for _, x := range order {
			h.need(&b, 1, x.lo, x.hi, compute, x.mode)
		}
		assert.Equal(t, barrier{DefaultPrior.Stages, DefaultPrior.Accesses, compute, allAccesses(compute)}, b)
		h.passed(b)
		for _, x := range order {
			h.did(1, x.lo, x.hi, compute, x.mode)
		}
		assert.Equal(t, barrier{compute, vk.AccessShaderWrite, DefaultNext.Stages, DefaultNext.Accesses}, h.final())
	}

	var h hazards // a write that waits for nothing leaves what was before to the neighbour
	h.reset()
	h.declarePrior(1, 0, 96, Untouched)
	h.declareNext(1, 0, 96, Untouched)
	h.belongs(1, 0, 96, 32)
	h.did(1, 0, 96, compute, Write)
	assert.Zero(t, h.final())
	var b barrier
	h.need(&b, 1, 0, 32, transfer, Read)
	assert.Equal(t, DefaultPrior.Stages, b.srcStages)
}

// TestHazardsNextOfAPart: a use declared for a part of what was written does not stand for the rest.
func TestHazardsNextOfAPart(t *testing.T) {
	const fragment = vk.Stage(1 << 7)
	var h hazards
	h.reset()
	h.declarePrior(1, 0, 64, Untouched)
	h.declareNext(1, 0, 16, Use{Stages: fragment, Accesses: vk.AccessShaderRead})
	h.did(1, 0, 64, vk.StageCompute, Write)
	assert.Equal(t, barrier{vk.StageCompute, vk.AccessShaderWrite, DefaultNext.Stages | fragment, DefaultNext.Accesses}, h.final())
	h.declareNext(1, 0, 64, Untouched)
	assert.Equal(t, barrier{vk.StageCompute, vk.AccessShaderWrite, fragment, vk.AccessShaderRead}, h.final())
}

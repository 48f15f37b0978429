package ring

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// seen is what a plan derived from the starts, lengths and block mask that it saw last.
type seen struct {
	numbers []byte
	sched   *schedule
	steps   []step
	tensor  *flash.Tensor // starts of launches, one behind the other; nil where there are none
	sinksAt int           // where the numbers of sinks alone stand in it
	blocks  seenBlocks
}

// sequenceTensors are what tells where packed sequences lie, in the order in which ranks show them to one another; nil: the problem has
// none.
func (w *pass) sequenceTensors() (names [4]string, of [4]*flash.Tensor) {
	return [4]string{"QueryStarts", "KeyStarts", "QueryLengths", "KeyLengths"},
		[4]*flash.Tensor{w.of.QueryStarts, w.of.KeyStarts, w.of.QueryLengths, w.of.KeyLengths}
}

// takeSequences reads the starts and lengths of packed sequences, or the lengths of a padded batch, and the block mask, which every rank
// was given, compares them with those of other ranks, and derives the pass's steps.
func (w *pass) takeSequences(call string) error {
	blocks := w.problem.Blocks != flash.Blocks{} && w.hosts == nil // the ring over hosts takes its own
	if w.sched.packed == nil && !hasLengths(&w.problem) && !blocks {
		return nil
	}
	if blocks {
		if err := w.takeBlocks(call); err != nil {
			return err
		}
	}
	names, of := w.sequenceTensors()
	var raw []byte
	var each [4][]int32 // nil of nil
	for i, t := range of {
		if t == nil {
			continue
		}
		if t.DType() != flash.Int32 {
			return badArgument(call+"."+names[i], t, "must be of type %v", flash.Int32)
		}
		one := make([]byte, 4*t.Elements())
		if err := t.DownloadBytes(w.ctx, one); err != nil {
			return err
		}
		each[i] = make([]int32, t.Elements())
		for j := range each[i] {
			each[i][j] = int32(binary.NativeEndian.Uint32(one[4*j:]))
		}
		raw = append(raw, one...)
	}
	raw = append(raw, w.seen.blocks.sum...)
	if err := w.sameSequences(raw); err != nil || w.overHeads() && w.problem.Packed == (flash.Packed{}) { // lengths are the kernels' then
		return err
	}
	if w.seen.sched == nil || !slices.Equal(w.seen.numbers, raw) {
		w.seen.sched = nil
		var all *sequences
		switch {
		case w.sched.padded:
			all = paddedSequences(&w.problem).using(each[2], each[3])
		case w.sched.packed != nil:
			all = newSequences(&w.problem, each[0], each[1]).using(each[2], each[3])
		}
		if err := w.derive(all); err != nil {
			return err
		}
		w.seen.numbers = raw
	}
	w.sched, w.steps = w.seen.sched, w.seen.steps
	return nil
}

// sameSequences tells all ranks what each was given.
func (w *pass) sameSequences(mine []byte) error {
	all, err := w.ring.comm.AllGather(w.ctx, mine)
	if err != nil {
		return err
	}
	wrong := &ShardError{Rank: w.ring.name(w.ring.Rank())}
	for rank, theirs := range all {
		if len(theirs) != len(mine) {
			return &RankError{Rank: w.ring.name(rank), Err: fmt.Errorf("it is in another call, or sees other sequences")}
		}
		for at := 0; at < len(mine); at += 4 {
			m, t := int32(binary.NativeEndian.Uint32(mine[at:])), int32(binary.NativeEndian.Uint32(theirs[at:]))
			if m == t {
				continue
			}
			wrong.Differences = append(wrong.Differences, Difference{Rank: w.ring.name(rank), What: w.sequenceNumber(at / 4),
				Mine: fmt.Sprint(m), Their: fmt.Sprint(t)})
			break // the first of a rank says enough
		}
	}
	if len(wrong.Differences) > 0 {
		return wrong
	}
	return nil
}

// sequenceNumber is the name of the i-th number that ranks compare.
func (w *pass) sequenceNumber(i int) string {
	names, of := w.sequenceTensors()
	for k, t := range of {
		if t == nil {
			continue
		}
		if i < t.Elements() {
			return fmt.Sprintf("%s[%d]", names[k], i)
		}
		i -= t.Elements()
	}
	return "Blocks, by a sum over its bits"
}

// derive makes the schedule of such sequences, and of the block mask.
func (w *pass) derive(of *sequences) error {
	sched := *w.sched
	sched.packed, sched.blocks = of, w.seen.blocks.bits
	sched.blocks.next()
	steps := sched.steps(w.ring.Rank())
	var all []byte
	for _, s := range steps {
		for i := range s.launches {
			l := &s.launches[i]
			if !l.packed {
				continue
			}
			l.startsAt = len(all) / 4
			for _, x := range of.startsOf(l) {
				all = binary.NativeEndian.AppendUint32(all, uint32(x))
			}
		}
	}
	if w.problem.Sinks && of != nil && !w.overHeads() {
		w.seen.sinksAt = len(all) / 4
		for _, x := range sched.sinkNumbers(w.ring.Rank()) {
			all = binary.NativeEndian.AppendUint32(all, uint32(x))
		}
	}
	if have := w.seen.tensor; len(all) > 0 && (have == nil || have.Elements() < len(all)/4) {
		if err := have.Close(); err != nil {
			return err
		}
		t, err := w.ring.dev.NewTensor(flash.Int32, 1, 1, 1, len(all)/4)
		w.seen.tensor = t
		if err != nil {
			return err
		}
	}
	if len(all) > 0 {
		t, err := w.seen.tensor.View(0, flash.Int32, [4]int{1, 1, 1, len(all) / 4}, [4]int{})
		if err != nil {
			return err
		}
		if err := t.UploadBytes(w.ctx, all); err != nil {
			return err
		}
	}
	w.seen.sched, w.seen.steps = &sched, steps
	return nil
}

// startsOf is the starts of a launch of packed sequences; nil of another.
func (w *pass) startsOf(l *launch) (queries, keys *flash.Tensor) {
	if !l.packed {
		return nil, nil
	}
	n := w.problem.Batch + 1
	of := func(at int) *flash.Tensor {
		return w.view(w.seen.tensor, uint64(4*at), flash.Int32, [4]int{1, 1, 1, n}, [4]int{})
	}
	return of(l.startsAt), of(l.startsAt + n)
}

// lengthsOf is the lengths of a launch of packed sequences, which are those of the whole: it has all rows of its sequences. Nil of another.
func (w *pass) lengthsOf(l *launch) (queries, keys *flash.Tensor) {
	if !l.packed {
		return nil, nil
	}
	return w.of.QueryLengths, w.of.KeyLengths
}

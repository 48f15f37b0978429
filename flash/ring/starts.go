package ring

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash"
)

// seen is what a plan derived from the starts of packed sequences that it saw last.
type seen struct {
	starts []byte // of queries, and of keys
	sched  *schedule
	steps  []step
	tensor *flash.Tensor // starts of launches, one behind the other; nil where there are none
}

// takeStarts reads the starts of packed sequences, which every rank was given, compares them with those of other ranks, and derives the pass's steps.
func (w *pass) takeStarts(call string) error {
	if w.sched.packed == nil {
		return nil
	}
	n := 4 * (w.problem.Batch + 1)
	starts := make([]byte, 2*n)
	for i, t := range []*flash.Tensor{w.of.queryStarts, w.of.keyStarts} {
		if t.DType() != flash.Int32 {
			return badArgument(call+[]string{".QueryStarts", ".KeyStarts"}[i], t, "must be of type %v", flash.Int32)
		}
		if err := t.DownloadBytes(w.ctx, starts[i*n:(i+1)*n]); err != nil {
			return err
		}
	}
	if err := w.sameStarts(starts); err != nil {
		return err
	}
	if w.seen.sched == nil || !slices.Equal(w.seen.starts, starts) {
		if err := w.derive(starts, n); err != nil {
			return err
		}
	}
	w.sched, w.steps = w.seen.sched, w.seen.steps
	return nil
}

// sameStarts tells all ranks what each was given.
func (w *pass) sameStarts(mine []byte) error {
	all, err := w.ring.comm.AllGather(w.ctx, mine)
	if err != nil {
		return err
	}
	wrong := &ShardError{Rank: w.ring.Rank()}
	for rank, theirs := range all {
		if len(theirs) != len(mine) {
			return &RankError{Rank: rank, Err: fmt.Errorf("it is in another call, or sees other sequences")}
		}
		for at := 0; at < len(mine); at += 4 {
			m, t := int32(binary.NativeEndian.Uint32(mine[at:])), int32(binary.NativeEndian.Uint32(theirs[at:]))
			if m == t {
				continue
			}
			of, i := "QueryStarts", at/4
			if at >= len(mine)/2 {
				of, i = "KeyStarts", i-(w.problem.Batch+1)
			}
			wrong.Differences = append(wrong.Differences, Difference{Rank: rank, What: fmt.Sprintf("%s[%d]", of, i), Mine: fmt.Sprint(m), Their: fmt.Sprint(t)})
			break // the first of a rank says enough
		}
	}
	if len(wrong.Differences) > 0 {
		return wrong
	}
	return nil
}

// derive makes the schedule of sequences that start there.
func (w *pass) derive(starts []byte, n int) error {
	numbers := func(raw []byte) []int32 {
		out := make([]int32, len(raw)/4)
		for i := range out {
			out[i] = int32(binary.NativeEndian.Uint32(raw[4*i:]))
		}
		return out
	}
	w.seen.sched = nil
	sched := *w.sched
	sched.packed = newSequences(&w.problem, numbers(starts[:n]), numbers(starts[n:]))
	steps := sched.steps(w.ring.Rank())
	var all []byte
	for _, s := range steps {
		for i := range s.launches {
			l := &s.launches[i]
			if !l.packed {
				continue
			}
			l.startsAt = len(all) / 4
			for _, x := range sched.packed.startsOf(l) {
				all = binary.NativeEndian.AppendUint32(all, uint32(x))
			}
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
	w.seen.starts, w.seen.sched, w.seen.steps = starts, &sched, steps
	return nil
}

// startsOf is the starts of a launch of packed sequences; nil of another.
func (w *pass) startsOf(l *launch) (queries, keys *flash.Tensor, err error) {
	if !l.packed {
		return nil, nil, nil
	}
	n := w.problem.Batch + 1
	for i, to := range []**flash.Tensor{&queries, &keys} {
		at := 4 * (l.startsAt + i*n)
		if *to, err = w.seen.tensor.View(uint64(at), flash.Int32, [4]int{1, 1, 1, n}, [4]int{}); err != nil {
			return nil, nil, err
		}
	}
	return queries, keys, nil
}

package ring

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/vkattn/vkattn/flash"
)

// The largest score of each head (Problem.MaxLogit). Each launch writes the largest of its own pairs; when a pass is over the host takes
// the largest of a rank's launches, and of all ranks, and every rank has all of them: a number for each entry and head.

// largest are the largest scores of a rank's launches so far; nil where the problem does not ask for them.
type largest struct {
	tensor *flash.Tensor // a row for each launch, or group of heads of one
	row    int           // its length
	of     []largestOf
}

// largestOf is which entries and heads a row is of.
type largestOf struct{ entries, heads Span }

// rowAligned is what rows begin at multiples of: numbers of a size that every device can bind.
const rowAligned = 64

// beginLargest makes room for so many rows.
func (w *pass) beginLargest(rows int) {
	p := &w.problem
	if !p.MaxLogit {
		return
	}
	w.largest = &largest{row: (p.Batch*p.Heads + rowAligned - 1) / rowAligned * rowAligned}
	room := 1 << bits.Len(uint(max(rows, 1)-1)) // passes over packed sequences have launches as they lie
	w.largest.tensor = w.tensor(fmt.Sprint("largest", room), flash.F32, [4]int{1, 1, room, w.largest.row}, room)
}

// largestRow is where a launch writes its own, of a problem that is a group of its heads; nil where nobody asks.
func (w *pass) largestRow(l *launch, part *flash.Problem, group int) *flash.Tensor {
	all := w.largest
	if all == nil {
		return nil
	}
	at := uint64(4 * len(all.of) * all.row)
	all.of = append(all.of, largestOf{Span{l.scores.batch, l.scores.batch + part.Batch}, Span{group * part.Heads,
		(group + 1) * part.Heads}})
	return w.view(all.tensor, at, flash.F32, [4]int{1, 1, part.Batch, part.Heads}, [4]int{})
}

// larger is the larger of two numbers; NaN where one is.
func larger(a, b float32) float32 {
	if a != a || a > b {
		return a
	}
	return b
}

// giveLargest gives the caller the largest of all launches of all ranks.
func (w *pass) giveLargest(to *flash.Tensor) error {
	all := w.largest
	if all == nil || w.err != nil {
		return w.err
	}
	heads := w.problem.Heads
	sums := make([]float32, w.problem.Batch*heads)
	for i := range sums {
		sums[i] = float32(math.Inf(-1))
	}
	values := make([]float32, all.tensor.Elements())
	if err := all.tensor.Download(w.ctx, values); err != nil {
		return err
	}
	for i, of := range all.of {
		row := values[i*all.row:]
		for b := of.entries.Begin; b < of.entries.End; b++ {
			for h := of.heads.Begin; h < of.heads.End; h++ {
				sums[b*heads+h] = larger(sums[b*heads+h], row[(b-of.entries.Begin)*of.heads.Len()+h-of.heads.Begin])
			}
		}
	}
	var raw []byte
	for _, x := range sums {
		raw = binary.NativeEndian.AppendUint32(raw, math.Float32bits(x))
	}
	ranks, err := w.ring.comm.AllGather(w.ctx, raw)
	if err != nil {
		return err
	}
	for rank, x := range ranks {
		if len(x) != len(raw) {
			return &RankError{Rank: w.ring.name(rank), Err: fmt.Errorf("it is in another call than Forward")}
		}
		for i := range sums {
			sums[i] = larger(sums[i], math.Float32frombits(binary.NativeEndian.Uint32(x[4*i:])))
		}
	}
	if err := w.settle(len(w.jobs)); err != nil {
		return err
	}
	mine := w.tensor("largest", flash.F32, to.Shape(), to.Shape()[2])
	if w.err == nil {
		w.err = mine.Upload(w.ctx, sums)
	}
	w.copies(mine, to)
	return w.err
}

package ring

import (
	"context"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// Stream is attention larger than a device: queries are on it, keys and values in memory of the host, from where blocks of them come one
// after the other while the device computes with the one before. It is a ring of one rank whose blocks come from the host: the same
// launches, and the same sums in fp32.
//
// A stream has its buffers to itself: one pass at a time.
type Stream struct {
	plan   *Plan
	blocks []Span // of keys
}

// StreamForward is a forward pass. Tensors are those of [flash.Forward]; K and V are in memory of the host, in row-major order as
// [flash.Problem] has their shapes, from its first byte on. Tensors beside queries, keys and values are given where the problem has them,
// and nil without: a bias or a mask tensor is the problem's own, of all queries and keys, and lies on the device.
type StreamForward struct {
	Q, O, LSE *flash.Tensor // LSE may be nil
	MaxLogit  *flash.Tensor // of Problem.MaxLogit
	K, V      *hostmem.Memory

	Bias, Mask, Sinks        *flash.Tensor
	QueryStarts, KeyStarts   *flash.Tensor    // of Problem.Packed
	QueryLengths, KeyLengths *flash.Tensor    // of a padded batch, or beside these
	Blocks                   *flash.BlockMask // of Problem.Blocks
	Captured                 flash.Captured   // by Problem.ScoreFunction and MaskFunction
	Seed                     uint64
	Offset                   uint32
}

// StreamBackward is the backward pass of a StreamForward: of [flash.Backward], with K and V, and the gradients with respect to them, in
// memory of the host. Every row of DK and DV is overwritten, of packed sequences those that these have, or with Accumulate added to.
type StreamBackward struct {
	StreamForward

	DO, DLSE, DQ  *flash.Tensor // DLSE may be nil
	DK, DV        *hostmem.Memory
	DBias, DSinks *flash.Tensor // may be nil
	DCaptured     flash.Captured
	// Accumulate adds to what all gradients hold, in fp32, rounded once more. Blocks of DK and DV come to the device beside those of K and
	// V then, and the device holds six.
	Accumulate bool
}

// forward is the pass as of a device, without keys and values.
func (f *StreamForward) forward() *flash.Forward {
	return &flash.Forward{Q: f.Q, O: f.O, LSE: f.LSE, MaxLogit: f.MaxLogit, Bias: f.Bias, Mask: f.Mask, Sinks: f.Sinks,
		QueryStarts:  f.QueryStarts,
		KeyStarts:    f.KeyStarts,
		QueryLengths: f.QueryLengths, KeyLengths: f.KeyLengths, Blocks: f.Blocks, Captured: f.Captured, Seed: f.Seed, Offset: f.Offset}
}

// backward is the pass as of a device, without keys and values.
func (b *StreamBackward) backward() *flash.Backward {
	return &flash.Backward{Forward: *b.forward(), DO: b.DO, DLSE: b.DLSE, DQ: b.DQ, DBias: b.DBias, DSinks: b.DSinks,
		DCaptured: b.DCaptured, Accumulate: b.Accumulate}
}

// NewStream plans attention whose keys and values come in blocks of that many tokens at most, of which the device holds four with their
// gradients; 0 chooses blocks of 256 MiB or less. Without Packed, blocks have 64 tokens at least where there is Dropout or a Mask of bits,
// for they begin at multiples of as many, and a block of Blocks at least; the last one has what is left over besides. Blocks come beside
// kernels on a device that was opened with [flash.WithCopyQueues]. A problem may have what [Ring.Plan] takes, and the error is that of
// Ring.Plan.
func NewStream(dev *flash.Device, problem flash.Problem, block int) (_ *Stream, err error) {
	problem, err = problem.Normalize()
	if err != nil {
		return nil, err
	}
	if err := supported(&problem); err != nil {
		return nil, err
	}
	if err := blocksBesidePacked(&problem); err != nil {
		return nil, err
	}
	if block < 0 {
		return nil, badArgument("block", block, "must be a number of tokens, or 0")
	}
	if block == 0 {
		k := problem.KShape() // of all keys, whatever a tensor's first length
		token := k[0] * problem.KeyHeads * (problem.HeadDim + problem.ValueDim) * problem.DType.Size()
		block = max(granule, (256<<20)/token/granule*granule)
	}
	_, keys := tokens(&problem)
	n := (keys + block - 1) / block
	if fits := block - block%blocksBetween(keys, n, problem.Blocks.Keys); fits > 0 { // blocks are of whole units
		n = (keys + fits - 1) / fits
	}
	if problem.Packed == (flash.Packed{}) && (problem.Dropout != 0 || byBits(&problem)) {
		n = max(1, min(n, keys/lcm(granule, max(1, problem.Blocks.Keys)))) // blocks begin where draws, and bytes of bits, do
	}
	n = max(1, min(n, keys/max(1, problem.Blocks.Keys)))
	comms, err := Local(1)
	if err != nil {
		return nil, err
	}
	r, err := New(comms[0], dev)
	if err != nil {
		return nil, err
	}
	p := newPlan(r, problem, Shard{Order: Plain, Over: Keys})
	p.sched = newStreamed(problem, n)
	p.steps = p.sched.steps(0)
	if err := p.prepare(); err != nil {
		return nil, err
	}
	return &Stream{p, chunks(keys, n, problem.Blocks.Keys)}, nil
}

// Blocks is how many blocks keys and values come in.
func (s *Stream) Blocks() int { return len(s.blocks) }

// Plan describes what runs, and what of it waited.
func (s *Stream) Plan() *Plan { return s.plan }

// Forward computes o and lse. K and V may not change until it returns. Errors are those of [Plan.Forward].
func (s *Stream) Forward(ctx context.Context, f StreamForward) error {
	const call = "StreamForward"
	return s.plan.run(ctx, func(w *pass) error {
		if err := w.refuse(call, f); err != nil {
			return err
		}
		in := f.forward()
		w.of = in
		if err := w.check(call, w.wantedOfForward(&w.problem)); err != nil {
			return err
		}
		if err := w.checkHost(call, hostPair{f.K, f.V}, "K", "V"); err != nil {
			return err
		}
		if err := w.takeSequences(call); err != nil {
			return err
		}
		e, err := w.fromHost(s, "block", hostPair{f.K, f.V})
		if err != nil {
			return err
		}
		return w.forwardOver(e, in)
	})
}

// Backward computes the gradients. DK and DV are complete when it returns.
func (s *Stream) Backward(ctx context.Context, b StreamBackward) error {
	const call = "StreamBackward"
	return s.plan.run(ctx, func(w *pass) error {
		if err := w.refuse(call, b); err != nil {
			return err
		}
		in := b.backward()
		w.of = &in.Forward
		if err := w.check(call, w.wantedOfBackward(in, &w.problem)); err != nil {
			return err
		}
		if err := w.checkHost(call, hostPair{b.K, b.V}, "K", "V"); err != nil {
			return err
		}
		if err := w.checkCaptured(call, b.DCaptured); err != nil {
			return err
		}
		if err := w.checkHost(call, hostPair{b.DK, b.DV}, "DK", "DV"); err != nil {
			return err
		}
		if err := w.takeSequences(call); err != nil {
			return err
		}
		e, err := w.fromHost(s, "block", hostPair{b.K, b.V})
		if err != nil {
			return err
		}
		var held *exchange
		if b.Accumulate {
			if held, err = w.fromHost(s, "held", hostPair{b.DK, b.DV}); err != nil {
				return err
			}
		}
		g := w.newGradients(in, false)
		out := w.toHost(s, hostPair{b.DK, b.DV}, b.Accumulate)
		for i, st := range w.remote() {
			if err := w.giveStep(g, st, i, e, held, out); err != nil {
				return err
			}
		}
		g.finish(w)
		return w.overAllQueries(g)
	})
}

// Close frees the stream's buffers.
func (s *Stream) Close() error { return s.plan.Close() }

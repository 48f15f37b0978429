package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/flash"
)

// Bench measures shapes on a device.
type Bench interface {
	// Shape makes the inputs and outputs of a shape (c.Impl is not looked at).
	Shape(ctx context.Context, c Case) (Shape, error)
	// Row returns an empty row of a case: library, device and driver filled in.
	Row(c Case) Row
	// Ceiling is a rate in operations a second that no kernel passes; 0: not known.
	Ceiling() float64
}

// Shape holds the tensors of one shape, ready to be measured.
type Shape interface {
	// Measure times an implementation for one round, and when check is set
	// compares the output with the reference.
	Measure(ctx context.Context, impl string, check bool) Row
	Close() error
}

// Sweep measures cases one after the other, those of one shape interleaved
// with one another and with the peer, round by round: differences between
// rounds (clocks, heat, neighbours) then fall on all alike.
type Sweep struct {
	Bench Bench
	Cases []Case

	Rounds    int // 0 is 1
	Peer      *Peer
	PeerImpls []string // "fa2", "cudnn", "standard", …

	Limit time.Duration     // of one row; 0: none
	Have  func(c Case) bool // rows to leave out, as an earlier run has them; nil: none
	OnRow func(Row) error   // receives every row as soon as it is complete; an error ends the sweep

	// Progress, when not nil, is told what starts now: step of total, total the
	// number of measurements, rounds and peers counted.
	Progress func(step, total int, what string)

	rate map[string]float64 // operations a second that an implementation reached, by impl and dtype
	step int
}

// Run measures everything. It returns early with the context's error when that
// ends, or with an error of OnRow; a row that fails is a row with an Error.
func (s *Sweep) Run(ctx context.Context) error {
	s.rate = map[string]float64{}
	groups := s.groups()
	total := 0
	for _, g := range groups {
		total += len(g.own) + len(g.peer)
	}
	total *= s.rounds()
	for _, g := range groups {
		if err := s.group(ctx, g, total); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweep) rounds() int { return max(s.Rounds, 1) }

// group is the cases of one shape.
type group struct {
	shape     Case
	own, peer []Case
}

// groups collects the cases by shape, in the order of their first appearance.
func (s *Sweep) groups() []group {
	at := map[Case]int{}
	var out []group
	for _, c := range s.Cases {
		shape := c.Shape()
		i, ok := at[shape]
		if !ok {
			i = len(out)
			at[shape] = i
			g := group{shape: shape}
			if s.Peer != nil {
				for _, impl := range s.PeerImpls {
					p := shape
					p.Impl = impl
					g.peer = append(g.peer, p)
				}
			}
			out = append(out, g)
		}
		if s.Have == nil || !s.Have(c) {
			out[i].own = append(out[i].own, c)
		}
	}
	kept := out[:0]
	for _, g := range out {
		if len(g.own) > 0 {
			kept = append(kept, g)
		}
	}
	return kept
}

func (s *Sweep) group(ctx context.Context, g group, total int) error {
	rounds := make(map[Case][]Row)
	peerRounds := make(map[Case][]Row)

	run := make([]Case, 0, len(g.own))
	for _, c := range g.own {
		if why, predicted := s.tooSlow(c); why != "" {
			row := s.Bench.Row(c)
			row.Error, row.Reason, row.PredictedMs = why, ReasonLimit, 1e3*predicted
			rounds[c] = []Row{row}
			continue
		}
		run = append(run, c)
	}
	var shape Shape
	if len(run) > 0 {
		var err error
		if shape, err = s.Bench.Shape(ctx, g.shape); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for _, c := range run {
				row := s.Bench.Row(c)
				row.fail(err)
				if errors.Is(err, flash.ErrArgument) { // the case is sound, so it is the device that is too small
					row.Reason = ReasonUnsupported
				}
				rounds[c] = []Row{row}
			}
			run = nil
		} else {
			defer shape.Close()
		}
	}
	for round := range s.rounds() {
		for _, c := range g.own {
			s.progress(total, c.String())
			if len(rounds[c]) > 0 && rounds[c][len(rounds[c])-1].Error != "" {
				continue // it will not get better
			}
			row := shape.Measure(ctx, c.Impl, round == 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			rounds[c] = append(rounds[c], row)
			if row.Fwd.Ms >= telling {
				s.rate[rateKey(c)] = max(s.rate[rateKey(c)], c.ForwardFLOPs()/(row.Fwd.Ms/1e3))
			}
		}
		for _, c := range g.peer {
			s.progress(total, "peer "+c.String())
			if done := peerRounds[c]; len(done) > 0 && done[len(done)-1].Error != "" {
				continue
			}
			row := s.Peer.Measure(ctx, c)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			peerRounds[c] = append(peerRounds[c], row)
		}
	}
	for _, c := range g.own {
		if err := s.emit(mergeRounds(rounds[c])); err != nil {
			return err
		}
	}
	for _, c := range g.peer {
		if err := s.emit(mergeRounds(peerRounds[c])); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweep) emit(r Row) error {
	if s.OnRow == nil {
		return nil
	}
	return s.OnRow(r)
}

func (s *Sweep) progress(total int, what string) {
	s.step++
	if s.Progress != nil {
		s.Progress(s.step, total, what)
	}
}

// telling is the least time in ms of a run whose rate predicts others: shorter
// ones do not fill the device.
const telling = 2

func rateKey(c Case) string { return c.Impl + " " + c.DType }

// tooSlow predicts the time of one run from the best rate that the implementation
// reached (or the device's ceiling when it has not run for long) and says why
// the case is left out, or "".
func (s *Sweep) tooSlow(c Case) (why string, predictedSeconds float64) {
	if s.Limit == 0 {
		return "", 0
	}
	rate, from := s.rate[rateKey(c)], "at the best rate so far"
	if rate == 0 {
		rate, from = s.Bench.Ceiling(), "at the device's measured peak"
	}
	seconds := c.ForwardFLOPs() / rate // +Inf where no rate is known
	if rate == 0 || seconds <= s.Limit.Seconds() {
		return "", 0
	}
	return fmt.Sprintf("skipped: one run is predicted to take %.3g s %s, over the limit of %v", seconds, from, s.Limit), seconds
}

// mergeRounds makes one row of the rounds of a case: the median of the rounds'
// medians, the percentiles of all runs together, the first error if any.
func mergeRounds(rounds []Row) Row {
	row := rounds[0] // the first round holds the checks and the memory
	for _, r := range rounds {
		if r.Error != "" {
			row = r
			row.Fwd, row.Bwd = Pass{}, Pass{}
			return row
		}
	}
	if len(rounds) == 1 {
		return row
	}
	var ms, wall, samples []float64
	n := 0
	for _, r := range rounds {
		ms = append(ms, r.Fwd.Ms)
		wall = append(wall, r.Fwd.WallMs)
		samples = append(samples, r.samples...)
		n += r.Fwd.N
	}
	work := row.Fwd.TFLOPS * row.Fwd.Ms // the same in every round
	row.Fwd.Ms, row.Fwd.WallMs, row.Fwd.Rounds, row.Fwd.N = Median(ms), Median(wall), ms, n
	if row.Fwd.Ms > 0 {
		row.Fwd.TFLOPS = work / row.Fwd.Ms
	}
	if len(samples) > 0 {
		row.Fwd.P20, row.Fwd.P80 = Quantile(samples, 0.2), Quantile(samples, 0.8)
	}
	row.samples = samples
	row.mergeBackward(rounds)
	return row
}

// mergeBackward is mergeRounds for the figures of the backward pass.
func (r *Row) mergeBackward(rounds []Row) {
	if r.Bwd.Ms == 0 {
		return
	}
	var ms, wall, samples []float64
	n := 0
	for _, x := range rounds {
		ms, wall = append(ms, x.Bwd.Ms), append(wall, x.Bwd.WallMs)
		samples = append(samples, x.bwdSamples...)
		n += x.Bwd.N
	}
	work := r.Bwd.TFLOPS * r.Bwd.Ms // the same in every round
	r.Bwd.Ms, r.Bwd.WallMs, r.Bwd.Rounds, r.Bwd.N = Median(ms), Median(wall), ms, n
	r.Bwd.TFLOPS = work / r.Bwd.Ms
	if len(samples) > 0 {
		r.Bwd.P20, r.Bwd.P80 = Quantile(samples, 0.2), Quantile(samples, 0.8)
	}
	r.bwdSamples = samples
}

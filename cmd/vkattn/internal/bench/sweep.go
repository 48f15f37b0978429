package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
)

// Sweep measures cases one after the other, those of one shape interleaved
// with one another and with the peer, round by round: differences between
// rounds (clocks, heat, neighbours) then fall on all alike.
type Sweep struct {
	Bench Bench
	Jobs  []result.Job

	Rounds    int // 0 is 1
	Peer      *Peer
	PeerImpls []string // "fa2", "cudnn", "standard", …

	Limit time.Duration            // of one row; 0: none
	Have  func(c result.Case) bool // rows to leave out, as an earlier run has them; nil: none
	// HavePeer says which of the peer's an earlier run has: they are asked for again where a row of their shape is measured, beside it,
	// and else left out. nil: none.
	HavePeer func(j result.Job) bool
	Known    []result.Row           // of this device and an earlier run: what they reached predicts, too
	OnRow    func(result.Row) error // receives every row as soon as it is complete; an error ends the sweep

	// Progress, when not nil, is told what starts now: step of total, total the
	// number of measurements, rounds and peers counted.
	Progress func(step, total int, what string)

	rates rates
	step  int
}

// Run measures everything. It returns early with the context's error when that
// ends, or with an error of OnRow; a row that fails is a row with an Error.
func (s *Sweep) Run(ctx context.Context) error {
	s.rates = rates{}
	for _, r := range s.Known {
		s.rates.learn(r)
	}
	groups := s.groups()
	total := 0
	for _, g := range groups {
		total += len(g.own) + len(g.peer)
	}
	total *= s.rounds()
	s.prepare(ctx, groups, total)
	for _, g := range groups {
		if err := s.group(ctx, g, total); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sweep) rounds() int { return max(s.Rounds, 1) }

// group is the jobs of one shape.
type group struct {
	shape     result.Case
	passes    result.Passes // of any job that is measured
	asked     result.Passes // of any job: what the peer is asked for
	own, peer []result.Job
}

// groups collects the jobs by shape, in the order of their first appearance.
func (s *Sweep) groups() []group {
	at := map[result.Case]int{}
	var out []group
	for _, j := range s.Jobs {
		j.Passes = j.Passes.OrDefault()
		shape := j.Case.Shape()
		i, ok := at[shape]
		if !ok {
			i = len(out)
			at[shape] = i
			out = append(out, group{shape: shape, asked: j.Passes})
		}
		g := &out[i]
		g.asked = g.asked.And(j.Passes)
		if s.Have != nil && s.Have(j.Case) {
			continue
		}
		if len(g.own) == 0 {
			g.passes = j.Passes
		}
		g.own, g.passes = append(g.own, j), g.passes.And(j.Passes)
	}
	for i := range out {
		g := &out[i]
		for _, impl := range s.PeerImpls {
			j := result.Job{Case: g.shape, Passes: g.asked}
			if j.Case.Impl = impl; s.Peer != nil && (len(g.own) > 0 || !s.hasPeer(j)) {
				g.peer = append(g.peer, j)
			}
		}
	}
	return slices.DeleteFunc(out, func(g group) bool { return len(g.own)+len(g.peer) == 0 })
}

func (s *Sweep) hasPeer(j result.Job) bool { return s.HavePeer != nil && s.HavePeer(j) }

func (s *Sweep) group(ctx context.Context, g group, total int) error {
	rounds := make(map[result.Case][]result.Row)
	peerRounds := make(map[result.Case][]result.Row)

	run := make([]result.Job, 0, len(g.own))
	for _, j := range g.own {
		if why, predicted := s.rates.tooSlow(j, s.Limit, s.Bench.Ceiling()); why != "" {
			row := s.Bench.Row(j.Case)
			row.Failure, row.PredictedMs = result.Failure{Error: why, Reason: result.ReasonLimit}, 1e3*predicted
			rounds[j.Case] = []result.Row{row}
			continue
		}
		run = append(run, j)
	}
	var shape Shape
	if len(run) > 0 {
		s.tell(total, "inputs of "+g.shape.String())
		var err error
		if shape, err = s.Bench.Shape(ctx, g.shape, g.passes); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for _, j := range run {
				row := s.Bench.Row(j.Case)
				row.Fail(FailureOf(err))
				if errors.Is(err, flash.ErrArgument) { // the case is sound, so it is the device that is too small
					row.Reason = result.ReasonUnsupported
				}
				rounds[j.Case] = []result.Row{row}
			}
			run = nil
		} else {
			defer shape.Close()
		}
	}
	for round := range s.rounds() {
		for _, j := range g.own {
			s.progress(total, j.Case.String())
			if done := rounds[j.Case]; len(done) > 0 && last(done).Error != "" {
				continue // it will not get better
			}
			row := shape.Measure(ctx, j, round == 0)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			rounds[j.Case] = append(rounds[j.Case], row)
			s.rates.learn(row)
		}
		fresh := slices.ContainsFunc(g.own, func(j result.Job) bool { return last(rounds[j.Case]).Error == "" })
		for _, j := range g.peer {
			s.progress(total, "peer "+j.Case.String())
			if !fresh && s.hasPeer(j) {
				continue // there is no new row to stand beside
			}
			if done := peerRounds[j.Case]; len(done) > 0 && last(done).Error != "" {
				continue
			}
			row := s.Peer.Measure(ctx, j)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			peerRounds[j.Case] = append(peerRounds[j.Case], row)
		}
	}
	for _, j := range g.own {
		if err := s.emit(result.MergeRounds(rounds[j.Case])); err != nil {
			return err
		}
	}
	for _, j := range g.peer {
		if len(peerRounds[j.Case]) == 0 {
			continue
		}
		if err := s.emit(result.MergeRounds(peerRounds[j.Case])); err != nil {
			return err
		}
	}
	return nil
}

func last(rounds []result.Row) result.Row { return rounds[len(rounds)-1] }

func (s *Sweep) emit(r result.Row) error {
	if s.OnRow == nil {
		return nil
	}
	return s.OnRow(r)
}

// progress says that the next measurement starts.
func (s *Sweep) progress(total int, what string) {
	s.step++
	s.tell(total, what)
}

// tell says what is being done, within the measurement that started last.
func (s *Sweep) tell(total int, what string) {
	if s.Progress != nil {
		s.Progress(max(s.step, 1), total, what)
	}
}

// prepare has the jobs that will be measured prepared, where the bench can.
func (s *Sweep) prepare(ctx context.Context, groups []group, total int) {
	p, ok := s.Bench.(preparer)
	if !ok {
		return
	}
	var jobs []result.Job
	for _, g := range groups {
		jobs = append(jobs, g.own...)
	}
	if len(jobs) < 2 {
		return
	}
	ready := 0
	tell := func() { s.tell(total, fmt.Sprintf("kernels of %d of %d rows compiled", ready, len(jobs))) }
	tell()
	p.Prepare(ctx, jobs, func() { ready++; tell() })
}

package bench

import (
	"context"
	"errors"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// measureForward times the forward pass of a plan on the sets and compares the output of the last run with the reference.
// before is what was in use when there was no plan.
func (s *deviceShape) measureForward(ctx context.Context, row *result.Row, plan *flash.Plan, mask masks, before flash.Usage,
	limit time.Duration, verify bool) error {
	lse, err := s.d.newLSE(s.problem)
	if err != nil {
		return err
	}
	defer lse.Close()
	runs, err := s.recordings(ctx, &row.Fwd, before, s.sets[0].bytes(), func(i int) (*flash.Recording, error) {
		r, err := plan.NewRecording()
		if err != nil {
			return nil, err
		}
		return r, r.Forward(s.forward(i, lse, mask))
	})
	defer closeAll(runs)
	if err != nil {
		return err
	}
	if row.Fwd.LeastBytes, err = s.c.Least(tune.LeastForwardBytes); err != nil {
		return err
	}
	if err := count(row, &row.Fwd, tune.ForwardModel(plan), plan.Problem()); err != nil {
		return err
	}
	last, err := s.time(ctx, row, &row.Fwd, row.ForwardFLOPs(), limit, runs,
		func() error { return runs[0].Forward(s.forward(0, lse, mask)) })
	if err != nil {
		return err
	}
	if !verify {
		return nil
	}
	return s.checkForward(ctx, row, last, lse)
}

// count notes in a pass what its kernel says of its work. Work that takes too long to count leaves the row its times, and a note.
func count(r *result.Row, f *result.Pass, m tune.Model, p flash.Problem) error {
	f.Model = m
	if !r.Counted() {
		return nil
	}
	steps, err := m.Work(p, r.Case.Call())
	if errors.Is(err, flash.ErrArgument) {
		r.Note = "bytes are not counted: " + err.Error()
		return nil
	}
	f.Bytes = tune.Total(steps).Bytes()
	return err
}

// recordings makes a recording for each set, or for as many as there is room for. It notes in f the memory that the first run of
// the first takes beyond what was in use before, and what that is with the tensors of a pass. record may return a recording with an
// error. The caller closes what is returned, with an error too.
func (s *deviceShape) recordings(ctx context.Context, f *result.Pass, before flash.Usage, tensors uint64,
	record func(set int) (*flash.Recording, error)) (runs []*flash.Recording, err error) {
	for i := range s.sets {
		r, err := record(i)
		if err != nil {
			_ = r.Close()
			if i > 0 && outOfMemory(err) {
				break // fewer sets must do
			}
			return runs, err
		}
		runs = append(runs, r)
		if i > 0 {
			continue
		}
		// The workspace of one pass, and what forward keeps for backward, is what a user pays.
		if _, err := tune.TimeRuns(ctx, s.d.dev, runs, 1); err != nil {
			return runs, err
		}
		const mib = 1 << 20
		used := s.d.dev.Usage()
		peak := float64(used.PeakAsked-before.Asked) / mib
		f.PeakMiB, f.BlockMiB, f.TotalMiB = &peak, float64(used.Peak-before.Current)/mib, peak+float64(tensors)/mib
	}
	return runs, nil
}

func closeAll(runs []*flash.Recording) {
	for _, r := range runs {
		r.Close()
	}
}

// checkForward compares the output and lse of a set with the reference, and notes in the row how far they are off.
func (s *deviceShape) checkForward(ctx context.Context, row *result.Row, set int, lse *flash.Tensor) error {
	key := expectationKey{set, row.Density}
	e := s.expected[key]
	if e == nil {
		var err error
		if e, err = expect(ctx, row.Case, s.sets[set].in, sampleRows(s.c, result.InputSeed), uint32(set)); err != nil {
			return err
		}
		s.expected[key] = e
	}
	res, err := e.check(ctx, row.Case, s.sets[set].in.dtype, s.sets[set].o, lse)
	if err != nil {
		return err
	}
	row.Check = res.outcome()
	if res.err != nil {
		return Wrong(res.err)
	}
	return nil
}

// time fills the figures of a pass. limit bounds the time of it all (0: nothing does); again records the first of runs anew. last
// is the recording whose output an lse tensor that all share now belongs to.
func (s *deviceShape) time(ctx context.Context, row *result.Row, f *result.Pass, flops float64, limit time.Duration,
	runs []*flash.Recording, again func() error) (last int, err error) {
	b := budget{limit, time.Now()}
	timed, err := s.d.sample(b, func(n int) (tune.RunTimes, error) { return tune.TimeRuns(ctx, s.d.dev, runs, n) })
	if err != nil {
		return 0, err
	}
	defer func() { s.d.busy = time.Now() }()
	last = (timed.Last - 1) % len(runs)
	var wall []float64
	for began := time.Now(); len(wall) < wallRuns && (len(wall) == 0 || time.Since(began) < wallBudget); {
		at := time.Now()
		if err := again(); err != nil {
			return 0, err
		}
		pending, err := runs[0].Submit()
		if err != nil {
			return 0, err
		}
		if err := pending.Wait(ctx); err != nil {
			return 0, err
		}
		wall = append(wall, float64(time.Since(at))/1e6)
		last = 0
		if !b.fits(timed.one) {
			break
		}
	}
	if timed.Note != "" {
		row.Note = timed.Note
	}
	f.Timed(timed.Ms)
	f.WallMs = result.Median(wall)
	f.TFLOPS = flops / f.Ms / 1e9
	return last, nil
}

package tune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/vk"
)

// RunTimes are the times of repeated runs.
type RunTimes struct {
	Runs     []time.Duration // one per run
	OnDevice bool            // by the device's own clock; false: the host's, all runs together divided by their number
	N        int             // runs
	Wall     time.Duration   // by the host's clock, from submission to the end of all runs
}

// Mean is the mean time of a run.
func (t RunTimes) Mean() time.Duration {
	if t.N == 0 {
		return 0
	}
	var sum time.Duration
	for _, r := range t.Runs {
		sum += r
	}
	return sum / time.Duration(t.N)
}

// MaxTimedRuns is the largest number of runs that TimeRuns takes.
const MaxTimedRuns = 4096

// Commands are what can be written into a command buffer, a VkCommandBuffer of the device: a [*flash.Recording], a recording of flash/rows,
// a batch of flash/kvcache, or what a program makes of several of them.
type Commands interface {
	Record(cmd uintptr) error
}

// TimeRuns executes commands for this device n times in one submission, runs[0], runs[1], … in turn, and waits. A full barrier and a
// timestamp stand before and after each run, so that runs do not overlap and each is timed alone; neither the submission nor the barriers
// are in the times. Recordings must have been given their tensors ([flash.Recording.Forward]) and must not be in flight; neither
// they nor what they use may be closed meanwhile.
func TimeRuns[C Commands](ctx context.Context, d *flash.Device, runs []C, n int) (_ RunTimes, err error) {
	const operation = "TimeRuns"
	defer within.During(operation, &err)
	env, err := within.Env(d)
	if err != nil {
		return RunTimes{}, err
	}
	if len(runs) == 0 {
		return RunTimes{}, badArgument(operation+" runs", "empty", "must hold at least one recording")
	}
	for i, r := range runs {
		if any(r) == nil {
			return RunTimes{}, badArgument(fmt.Sprintf("%s runs[%d]", operation, i), nil, "must not be nil")
		}
		if of := within.Recorded(r); of != nil && of != d {
			return RunTimes{}, badArgument(fmt.Sprintf("%s runs[%d]", operation, i), "of another device", "must be of this one")
		}
	}
	if n < 1 || n > MaxTimedRuns {
		return RunTimes{}, badArgument(operation+" n", n, "must be from 1 to %d", MaxTimedRuns)
	}
	if err := ctx.Err(); err != nil {
		return RunTimes{}, context.Cause(ctx)
	}
	t, err := newTimer(env, n)
	if err != nil {
		return RunTimes{}, within.Fail(d, err)
	}
	res, err := t.run(n, func(i int) error { return runs[i%len(runs)].Record(t.cmd.Handle()) })
	return res, within.Fail(d, errors.Join(err, t.close()))
}

// timer is a command buffer whose parts are timed.
type timer struct {
	env     *kernel.Env
	pool    *vk.CommandPool
	cmd     *vk.CommandBuffer
	fence   *vk.Fence
	queries *vk.QueryPool // nil without timestamps
}

func newTimer(env *kernel.Env, n int) (t *timer, err error) {
	t = &timer{env: env}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.pool, err = env.Dev.NewCommandPool(); err != nil {
		return t, err
	}
	if t.cmd, err = t.pool.Allocate(); err != nil {
		return t, err
	}
	if t.fence, err = env.Dev.NewFence(false); err != nil {
		return t, err
	}
	if env.Dev.Queue().TimestampValidBits() > 0 && env.Caps.Facts.Limits.TimestampPeriod > 0 {
		t.queries, err = env.Dev.NewQueryPool(2 * n)
	}
	return t, err
}

func (t *timer) close() error {
	var err error
	if t.queries != nil {
		err = errors.Join(err, t.queries.Close())
	}
	if t.fence != nil {
		err = errors.Join(err, t.fence.Close())
	}
	if t.pool != nil {
		err = errors.Join(err, t.pool.Close())
	}
	return err
}

// run records n parts, each by a call of record, between barriers and stamps, submits them and waits.
func (t *timer) run(n int, record func(i int) error) (RunTimes, error) {
	var s vk.Stream
	if err := t.cmd.Begin(true); err != nil {
		return RunTimes{}, err
	}
	if t.queries != nil {
		s.ResetQueries(t.queries, 0, 2*n)
	}
	const (
		everything = vk.AccessMemoryRead | vk.AccessMemoryWrite
		stages     = vk.StageCompute | vk.StageTransfer // what recordings do
	)
	for i := range n {
		s.Barrier(stages, everything, stages, everything)
		if t.queries != nil {
			s.WriteTimestamp(t.queries, 2*i, vk.StageBottom)
		}
		if err := t.cmd.Execute(&s); err != nil {
			return RunTimes{}, err
		}
		s.Reset()
		if err := record(i); err != nil {
			return RunTimes{}, err
		}
		if t.queries != nil {
			s.WriteTimestamp(t.queries, 2*i+1, vk.StageBottom)
		}
	}
	s.Barrier(stages, everything, stages|vk.StageHost, everything|vk.AccessHostRead)
	if err := t.cmd.Execute(&s); err != nil {
		return RunTimes{}, err
	}
	if err := t.cmd.End(); err != nil {
		return RunTimes{}, err
	}
	began := time.Now()
	err := t.env.Ctx.Run(func() error { // what the commands use must not go before they have been waited for
		return t.env.Dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{t.cmd}, Fence: t.fence})
	})
	if err != nil {
		return RunTimes{}, err
	}
	if err := t.env.Ctx.Await(t.fence); err != nil {
		return RunTimes{}, err
	}
	res := RunTimes{N: n, Wall: time.Since(began), OnDevice: t.queries != nil, Runs: make([]time.Duration, n)}
	if t.queries == nil {
		for i := range res.Runs {
			res.Runs[i] = res.Wall / time.Duration(n)
		}
		return res, nil
	}
	ticks := make([]uint64, 2*n)
	if err := t.queries.Results(0, ticks); err != nil {
		return RunTimes{}, fmt.Errorf("reading %d timestamps: %w", 2*n, err)
	}
	for i := range res.Runs {
		res.Runs[i] = time.Duration(t.queries.Nanoseconds(ticks[2*i], ticks[2*i+1]))
	}
	return res, nil
}

// reset makes the timer ready for another run.
func (t *timer) reset() error {
	if err := t.cmd.Reset(); err != nil {
		return err
	}
	return t.fence.Reset()
}

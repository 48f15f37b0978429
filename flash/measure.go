package flash

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// TimeRuns runs recordings of this device n times in one submission, recs[0], recs[1], … in turn, and waits. A full barrier
// and a timestamp stand before and after each run, so that runs do not overlap and each is timed alone; neither the
// submission nor the barriers are in the times. The recordings must have been given their tensors (Recording.Forward) and
// must not be in flight.
func (d *Device) TimeRuns(ctx context.Context, recs []*Recording, n int) (_ RunTimes, err error) {
	defer during("TimeRuns", &err)
	return d.timeRuns(ctx, "TimeRuns", "recs", len(recs), n, func(i int) Commands { return recs[i] })
}

// Commands are what can be written into a command buffer, a VkCommandBuffer of the device: a [*Recording], [*MapRecording],
// [*RowRecording], [*MergeRecording], [*AccumulateRecording] or [*CacheBatch], or what a program makes of several of them.
type Commands interface {
	Record(cmd uintptr) error
}

// TimeCommands is TimeRuns for commands of any kind: an append, a rotation, a merge, or several recordings that make up one run.
func (d *Device) TimeCommands(ctx context.Context, runs []Commands, n int) (_ RunTimes, err error) {
	defer during("TimeCommands", &err)
	return d.timeRuns(ctx, "TimeCommands", "runs", len(runs), n, func(i int) Commands { return runs[i] })
}

// timeRuns times n of the runs, of which there are so many, in turn; operation and list are what errors call the call and its argument.
func (d *Device) timeRuns(ctx context.Context, operation, list string, runs, n int, run func(i int) Commands) (RunTimes, error) {
	if err := d.usable(); err != nil {
		return RunTimes{}, err
	}
	if runs == 0 {
		return RunTimes{}, badArgument(operation+" "+list, "empty", "must hold at least one recording")
	}
	for i := range runs {
		c := run(i)
		if c == nil {
			return RunTimes{}, badArgument(fmt.Sprintf("%s %s[%d]", operation, list, i), nil, "must not be nil")
		}
		if of := deviceOf(c); of != nil && of != d {
			return RunTimes{}, badArgument(fmt.Sprintf("%s %s[%d]", operation, list, i), "of another device", "must be of this one")
		}
	}
	if n < 1 || n > MaxTimedRuns {
		return RunTimes{}, badArgument(operation+" n", n, "must be from 1 to %d", MaxTimedRuns)
	}
	if err := ctx.Err(); err != nil {
		return RunTimes{}, context.Cause(ctx)
	}
	t, err := newTimer(d, n)
	if err != nil {
		return RunTimes{}, d.fail(err)
	}
	res, err := t.run(n, func(i int) error { return run(i % runs).Record(t.cmd.Handle()) })
	return res, d.fail(errors.Join(err, t.close()))
}

// deviceOf is the device of commands; nil of a program's own, and of those that say themselves what is wrong with them.
func deviceOf(c Commands) *Device {
	switch r := c.(type) {
	case *Recording:
		if r.made() == nil {
			return r.plan.dev
		}
	case *RowRecording:
		if r.made() == nil {
			return r.dev
		}
	case *MergeRecording:
		if r.made() == nil {
			return r.dev
		}
	case *MapRecording:
		if r.made() == nil {
			return r.dev
		}
	case *AccumulateRecording:
		if r.made() == nil {
			return r.dev
		}
	case *CacheBatch:
		if r.made() == nil {
			return r.cache.dev
		}
	}
	return nil
}

// timer is a command buffer whose parts are timed.
type timer struct {
	d       *Device
	pool    *vk.CommandPool
	cmd     *vk.CommandBuffer
	fence   *vk.Fence
	queries *vk.QueryPool // nil without timestamps
}

func newTimer(d *Device, n int) (t *timer, err error) {
	t = &timer{d: d}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	if t.pool, err = d.dev.NewCommandPool(); err != nil {
		return t, err
	}
	if t.cmd, err = t.pool.Allocate(); err != nil {
		return t, err
	}
	if t.fence, err = d.dev.NewFence(false); err != nil {
		return t, err
	}
	if d.dev.Queue().TimestampValidBits() > 0 && d.env.Caps.Facts.Limits.TimestampPeriod > 0 {
		t.queries, err = d.dev.NewQueryPool(2 * n)
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
	err := t.d.env.Ctx.Run(func() error { // what the commands use must not go before they have been waited for
		return t.d.dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{t.cmd}, Fence: t.fence})
	})
	if err != nil {
		return RunTimes{}, err
	}
	if err := t.d.env.Ctx.Await(t.fence); err != nil {
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

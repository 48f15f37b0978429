package ring

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/vk"
)

var small = flash.Problem{Batch: 1, Heads: 2, QueryLen: 64, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight}

// rings makes ranks in this process.
func rings(t *testing.T, n int) ([]Comm, []*Ring) {
	devices := sharedDevices(t, n)
	comms, err := Local(n)
	require.NoError(t, err)
	out := make([]*Ring, n)
	for i := range out {
		out[i], err = New(comms[i], devices[i])
		require.NoError(t, err)
	}
	return comms, out
}

// TestPlanWithoutContext: a nil context is that of the background, as everywhere.
func TestPlanWithoutContext(t *testing.T) {
	_, ranks := rings(t, 1)
	var none context.Context
	plan, err := ranks[0].Plan(none, small, Shard{})
	require.NoError(t, err)
	require.NoError(t, plan.Close())
}

// TestPlanDisagreement: ranks that would compute different things all hear so, with what differs, before any work.
func TestPlanDisagreement(t *testing.T) {
	_, ranks := rings(t, 3)
	ctx := soon(t)
	for rank, err := range each(ranks, func(rank int, r *Ring) error {
		p, s := small, Shard{}
		if rank == 2 {
			p.QueryLen, p.Scale, s.Order = 128, 0.5, Plain
		}
		_, err := r.Plan(ctx, p, s)
		return err
	}) {
		require.ErrorIs(t, err, ErrShards)
		var wrong *ShardError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, rank, wrong.Rank)
		names := map[string]bool{}
		for _, d := range wrong.Differences {
			names[d.What] = true
			require.Equal(t, rank == 2, d.Rank != 2)
		}
		require.Equal(t, map[string]bool{"Shard.Order": true, "Problem.QueryLen": true, "Problem.KeyLen": true, "Problem.Scale": true},
			names)
		require.Contains(t, err.Error(), "Problem.QueryLen is ")
	}
}

// TestTablesDisagree: ranks whose functions differ in what their tables hold are told so before any work.
func TestTablesDisagree(t *testing.T) {
	_, ranks := rings(t, 2)
	ctx := soon(t)
	for _, err := range each(ranks, func(rank int, r *Ring) error {
		p := small
		p.ScoreFunction = score.ALiBi([]float32{0.5, 0.25 * float32(rank+1)})
		p.MaskFunction = score.Documents(score.TableInt(make([]int32, p.QueryLen), p.QueryLen))
		_, err := r.Plan(ctx, p, Shard{})
		return err
	}) {
		var wrong *ShardError
		require.ErrorAs(t, err, &wrong)
		require.Len(t, wrong.Differences, 1)
		require.Equal(t, "Problem.ScoreFunction", wrong.Differences[0].What)
	}
}

// TestPlanBadInput: a problem that cannot be spread is named by the rank that was given it, and told to the others.
func TestPlanBadInput(t *testing.T) {
	ctx := soon(t)
	for name, change := range map[string]func(*flash.Problem, *Shard){
		"Problem.Heads":       func(p *flash.Problem, _ *Shard) { p.Heads = 0 },
		"Problem.QueryLen":    func(p *flash.Problem, _ *Shard) { p.QueryLen, p.KeyLen = 3, 64 },
		"Problem.Pages":       func(p *flash.Problem, _ *Shard) { p.Pages = flash.Pages{Count: 4, Size: 16, PerSequence: 4} },
		"Problem.Blocks.Keys": func(p *flash.Problem, _ *Shard) { p.Blocks = flash.Blocks{Queries: 16, Keys: 40} },
		"Problem.MaskBlocks": func(p *flash.Problem, _ *Shard) {
			p.MaskFunction, p.MaskBlocks = score.Dilated(3, -1), flash.Blocks{Queries: 16, Keys: 16}
		},
		"Problem.Lists":  func(p *flash.Problem, _ *Shard) { p.Lists.Keys = 8 },
		"Problem.KeyLen": func(p *flash.Problem, _ *Shard) { p.Dropout = 0.5 },
		"Shard.Order":    func(_ *flash.Problem, s *Shard) { s.Order = 7 },
	} {
		_, ranks := rings(t, 2)
		for rank, err := range each(ranks, func(rank int, r *Ring) error {
			p, s := small, Shard{}
			if rank == 1 {
				change(&p, &s)
			}
			_, err := r.Plan(ctx, p, s)
			return err
		}) {
			if rank == 0 {
				require.ErrorIs(t, err, ErrRank, name)
				require.Contains(t, err.Error(), name)
				continue
			}
			var bad *flash.ArgumentError
			require.ErrorAs(t, err, &bad, name)
			require.Equal(t, name, bad.Argument)
		}
	}
	_, err := New(nil, nil)
	require.ErrorIs(t, err, flash.ErrArgument)
	comms, err := Local(1)
	require.NoError(t, err)
	_, err = New(comms[0], nil)
	require.ErrorIs(t, err, flash.ErrArgument)
}

// TestMissingRank: ranks wait for one that does not come as long as the context says.
func TestMissingRank(t *testing.T) {
	_, ranks := rings(t, 3)
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, err := range each(ranks[:2], func(_ int, r *Ring) error {
		_, err := r.Plan(ctx, small, Shard{})
		return err
	}) {
		require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrRank), err)
	}
	require.Less(t, time.Since(start), time.Minute)
}

// TestRankFails: one rank's pass fails, by a tensor of another shape, a rank that leaves, or a device that is lost; all others end with an
// error that names it.
func TestRankFails(t *testing.T) {
	for name, fail := range map[string]func(t *testing.T, s *sample, c Comm, p *Plan, x *tensors) error{
		"bad tensor": func(t *testing.T, _ *sample, _ Comm, p *Plan, x *tensors) error {
			return p.Forward(t.Context(), flash.Forward{Q: x.q, K: x.k, V: x.lse, O: x.o, LSE: x.lse})
		},
		"leaves": func(_ *testing.T, _ *sample, c Comm, _ *Plan, _ *tensors) error {
			_ = c.Close()
			return ErrRank
		},
	} {
		t.Run(name, func(t *testing.T) {
			comms, ranks := rings(t, 3)
			s := newSample(t, rand.New(rand.NewPCG(1, 2)), small)
			ctx := soon(t)
			start := time.Now()
			for rank, err := range each(ranks, func(rank int, r *Ring) error {
				p, err := r.Plan(ctx, small, Shard{})
				if err != nil {
					return err
				}
				defer p.Close()
				x, err := s.place(ctx, r.Device(), p)
				if err != nil {
					return err
				}
				defer x.close()
				if rank == 1 {
					return fail(t, s, comms[1], p, &x)
				}
				err = p.Forward(ctx, flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse})
				if again := p.Forward(ctx, flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o}); again == nil {
					return errors.New("a plan worked after a pass of it failed")
				}
				return err
			}) {
				require.Error(t, err)
				if rank == 1 {
					continue
				}
				var which *RankError
				require.ErrorAs(t, err, &which, "rank %d: %v", rank, err)
				require.Equal(t, 1, which.Rank, "rank %d: %v", rank, err)
			}
			require.Less(t, time.Since(start), 4*time.Minute)
		})
	}
}

// TestLostDevice: the device of one rank is lost in a pass, and every rank hears of it.
func TestLostDevice(t *testing.T) {
	faults := vk.NewFaults()
	device := openDevice(t, flash.WithFaults(faults))
	devices := []*flash.Device{sharedDevices(t, 1)[0], device}
	comms, err := Local(2)
	require.NoError(t, err)
	s := newSample(t, rand.New(rand.NewPCG(1, 3)), small)
	ctx := soon(t)
	errs := each(comms, func(rank int, c Comm) error {
		r, err := New(c, devices[rank])
		if err != nil {
			return err
		}
		p, err := r.Plan(ctx, small, Shard{})
		if err != nil {
			return err
		}
		defer p.Close()
		x, err := s.place(ctx, devices[rank], p)
		if err != nil {
			return err
		}
		defer x.close()
		if rank == 1 {
			if err := faults.Arm("submit", 3, vk.ErrDeviceLost); err != nil {
				return err
			}
		}
		return p.Forward(ctx, flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse})
	})
	require.ErrorIs(t, errs[1], flash.ErrDeviceLost)
	var which *RankError
	require.ErrorAs(t, errs[0], &which)
	require.Equal(t, 1, which.Rank)
	require.ErrorIs(t, errs[0], flash.ErrDeviceLost)
}

// TestNothingGoesOn: wherever in a pass of one rank a buffer or a submission fails, the pass ends with that error, and the other rank's,
// unless it has ended, with one that names the rank.
func TestNothingGoesOn(t *testing.T) {
	faults := vk.NewFaults()
	devices := []*flash.Device{sharedDevices(t, 1)[0], openDevice(t, flash.WithFaults(faults))}
	s := newSample(t, rand.New(rand.NewPCG(1, 4)), small)
	pass := func(ctx context.Context, shard Shard, arm func() error) []error {
		comms, err := Local(2)
		require.NoError(t, err)
		return each(comms, func(rank int, c Comm) error {
			r, err := New(c, devices[rank])
			if err != nil {
				return err
			}
			p, err := r.Plan(ctx, small, shard)
			if err != nil {
				return err
			}
			defer p.Close()
			x, err := s.place(ctx, devices[rank], p)
			if err != nil {
				return err
			}
			defer x.close()
			if rank == 1 {
				err = arm()
			}
			f := flash.Forward{Q: x.q, K: x.k, V: x.v, O: x.o, LSE: x.lse}
			if err == nil {
				err = p.Forward(ctx, f)
			}
			if err == nil {
				err = p.Backward(ctx, flash.Backward{Forward: f, DO: x.do, DLSE: x.dlse, DQ: x.dq, DK: x.dk, DV: x.dv, Accumulate: true})
			}
			return err
		})
	}
	stride := 1
	if testing.Short() {
		stride = 3
	}
	for _, over := range []Over{Keys, Heads} {
		for _, kind := range []string{"buffer", "submit"} {
			heard := 0
			for n := 1; ; n += stride {
				errs := pass(soon(t), Shard{Over: over}, func() error { return faults.Arm(kind, n, vk.ErrOutOfHostMemory) })
				fired := faults.Fired()
				faults.Disarm()
				if fired == "" {
					require.NoError(t, errors.Join(errs...), "%v, %s %d", over, kind, n)
					break
				}
				if kind == "buffer" && errs[1] == nil { // memory of the host does without, and is not imported then
					require.NoError(t, errs[0], "%v, %s %d", over, kind, n)
					continue
				}
				require.ErrorIs(t, errs[1], vk.ErrOutOfHostMemory, "%v, %s %d", over, kind, n)
				if errs[0] == nil { // it had all that it needs of the other
					continue
				}
				var which *RankError
				require.ErrorAs(t, errs[0], &which, "%v, %s %d", over, kind, n)
				require.Equal(t, 1, which.Rank)
				heard++
			}
			require.Positive(t, heard, "%v, %s", over, kind)
		}
	}
}

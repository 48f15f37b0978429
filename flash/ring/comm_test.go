package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// each runs f as every rank at once and gives their errors.
func each[C any](comms []C, f func(rank int, c C) error) []error {
	errs := make([]error, len(comms))
	var wait sync.WaitGroup
	for i := range comms {
		wait.Go(func() { errs[i] = f(i, comms[i]) })
	}
	wait.Wait()
	return errs
}

// soon ends what hangs. A busy machine may take a minute to compile what ranks wait for.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestLocalOtherCalls: a rank that gathers names the one that shares something else in the same round.
func TestLocalOtherCalls(t *testing.T) {
	for name, other := range map[string]func(c Comm) error{
		"Barrier": func(c Comm) error { return c.Barrier(t.Context()) },
		"Share": func(c Comm) error {
			_, err := c.(Sharer).Share(t.Context(), shared{})
			return err
		},
	} {
		comms, err := Local(2)
		require.NoError(t, err)
		errs := each(comms, func(rank int, c Comm) error {
			if rank == 1 {
				return other(c)
			}
			_, err := c.AllGather(t.Context(), []byte("some"))
			return err
		})
		var which *RankError
		require.ErrorAs(t, errs[0], &which, name)
		require.Equal(t, 1, which.Rank, name)
	}
}

func TestLocalMessages(t *testing.T) {
	comms, err := Local(3)
	require.NoError(t, err)
	ctx := soon(t)
	for _, err := range each(comms, func(rank int, c Comm) error {
		next, before := (rank+1)%3, (rank+2)%3
		sent := make(chan error, 1)
		go func() { // messages of two tags, which the receiver takes in another order; one is large
			var ended [2]error
			var wait sync.WaitGroup
			for tag, n := range []int{5, 9 << 20} {
				data := make([]byte, n)
				for i := range data {
					data[i] = byte(i*7 + tag + rank)
				}
				wait.Go(func() { ended[tag] = c.Send(ctx, next, Tag(tag), data) })
			}
			wait.Wait()
			sent <- errors.Join(ended[:]...)
		}()
		for _, m := range []struct{ tag, n int }{{1, 9 << 20}, {0, 5}} {
			got := make([]byte, m.n)
			if err := c.Receive(ctx, before, Tag(m.tag), got); err != nil {
				return err
			}
			for i := range got {
				if got[i] != byte(i*7+m.tag+before) {
					return fmt.Errorf("byte %d of tag %d is %d", i, m.tag, got[i])
				}
			}
		}
		return <-sent
	}) {
		require.NoError(t, err)
	}
	for range 3 { // gatherings one after the other
		for _, err := range each(comms, func(rank int, c Comm) error {
			all, err := c.AllGather(ctx, []byte(fmt.Sprint("rank ", rank)[:4+rank]))
			if err != nil {
				return err
			}
			for i := range all {
				if string(all[i]) != fmt.Sprint("rank ", i)[:4+i] {
					return fmt.Errorf("%q of rank %d", all[i], i)
				}
			}
			return c.Barrier(ctx)
		}) {
			require.NoError(t, err)
		}
	}
}

func TestLocalBadArguments(t *testing.T) {
	_, err := Local(0)
	require.ErrorIs(t, err, flash.ErrArgument)
	comms, err := Local(2)
	require.NoError(t, err)
	for _, to := range []int{-1, 0, 2} {
		require.ErrorIs(t, comms[0].Send(t.Context(), to, 0, nil), flash.ErrArgument)
		require.ErrorIs(t, comms[0].Receive(t.Context(), to, 0, nil), flash.ErrArgument)
	}
	require.ErrorIs(t, comms[0].Send(t.Context(), 1, MaxTag+1, nil), flash.ErrArgument)
}

// Messages whose lengths differ are an error of both ranks.
func TestLocalLengths(t *testing.T) {
	comms, err := Local(2)
	require.NoError(t, err)
	ctx := soon(t)
	for _, err := range each(comms, func(rank int, c Comm) error {
		if rank == 0 {
			return c.Send(ctx, 1, 0, make([]byte, 3))
		}
		return c.Receive(ctx, 0, 0, make([]byte, 4))
	}) {
		require.ErrorIs(t, err, ErrShards)
	}
}

// However a rank fails, every other one is told which it was, whatever it waits for.
func TestLocalFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(Comm){
		"abort": func(c Comm) { c.Abort(boom) },
		"close": func(c Comm) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			comms, err := Local(5)
			require.NoError(t, err)
			ctx := soon(t)
			for rank, err := range each(comms, func(rank int, c Comm) error {
				switch rank {
				case 0:
					time.Sleep(20 * time.Millisecond)
					fail(c)
					return ErrRank
				case 1:
					return c.Send(ctx, 0, 0, make([]byte, 8))
				case 2:
					return c.Receive(ctx, 0, 0, make([]byte, 8))
				case 3:
					return c.Barrier(ctx)
				}
				return c.Receive(ctx, 3, 0, make([]byte, 8)) // of one that is well
			}) {
				require.ErrorIs(t, err, ErrRank, "rank %d", rank)
				var which *RankError
				if rank > 0 {
					require.ErrorAs(t, err, &which)
					require.Equal(t, 0, which.Rank)
					require.Equal(t, name == "abort", errors.Is(err, boom))
				}
			}
			require.ErrorIs(t, comms[4].Barrier(ctx), ErrRank, "and so does every later call")
		})
	}
}

// TestLocalCloseBesideBarrier: a rank that closes its Comm while another comes to a gathering is missed, whichever is first.
func TestLocalCloseBesideBarrier(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 20000 {
		comms, err := Local(2)
		require.NoError(t, err)
		begin := make(chan struct{})
		closed := make(chan error)
		go func() { <-begin; closed <- comms[0].Close() }()
		close(begin)
		require.ErrorIs(t, comms[1].Barrier(ctx), ErrRank)
		require.NoError(t, <-closed)
	}
}

// A rank that never comes ends waits when the context says, and not before.
func TestLocalMissingRank(t *testing.T) {
	comms, err := Local(2)
	require.NoError(t, err)
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { return comms[0].Send(ctx, 1, 0, nil) },
		func(ctx context.Context) error { return comms[0].Receive(ctx, 1, 0, nil) },
		comms[0].Barrier,
	} {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		require.ErrorIs(t, call(ctx), context.DeadlineExceeded)
		require.GreaterOrEqual(t, time.Since(start), 10*time.Millisecond)
		cancel()
	}
}

func TestRecorder(t *testing.T) {
	comms, err := Local(2)
	require.NoError(t, err)
	ctx := soon(t)
	rec := []*Recorder{Record(comms[0]), Record(comms[1])}
	for _, err := range each(rec, func(rank int, c *Recorder) error {
		if _, err := c.AllGather(ctx, make([]byte, 3+rank)); err != nil {
			return err
		}
		if rank == 0 {
			return c.Send(ctx, 1, 7, make([]byte, 11))
		}
		return c.Receive(ctx, 0, 7, make([]byte, 11))
	}) {
		require.NoError(t, err)
	}
	want := []Transfer{{From: 0, To: 1, Tag: 7, Bytes: 11}}
	require.Equal(t, want, rec[0].Sent())
	require.Equal(t, want, rec[1].Received())
	require.Empty(t, rec[1].Sent())
	require.Equal(t, 4, rec[0].Gathered())
	rec[0].Reset()
	require.Empty(t, rec[0].Sent())
}

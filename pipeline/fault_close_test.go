package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

// A context is closed while goroutines use it and what was made from it. Each gets results until then and an error after; the
// layers, and the race detector where it is on, have nothing to say.
func TestCloseBesideUse(t *testing.T) {
	rounds := 16
	if testing.Short() {
		rounds = 6
	}
	bg := context.Background()
	for range rounds {
		c, err := New(testDevice(t), Options{NoDiskCache: true, StagingBytes: 1 << 10})
		require.NoError(t, err)
		const n = 1000
		k := mixKernel(t, c, 3)
		var b [6]*Buffer
		for i := range b {
			b[i], err = c.Alloc("test", 4*n, vk.DeviceLocal)
			require.NoError(t, err)
			upload(t, c, b[i], pattern(n, uint32(i)))
		}
		run := func(r *Recording, from, to *Buffer) error {
			if err := r.Reset(); err != nil {
				return err
			}
			a := mixArgs{n: n, add: 1}
			access := []Access{{Binding: from.All(), Mode: Read}, {Binding: to.All(), Mode: Write}}
			if err := r.Dispatch(k, access, a.bytes(), groupsFor(n), "mix"); err != nil {
				return err
			}
			if err := r.Fill(from.All(), 7, "fill"); err != nil {
				return err
			}
			p, err := c.Submit(r)
			if err != nil {
				return err
			}
			if _, err := p.Done(); err != nil {
				return err
			}
			if err := p.Wait(bg); err != nil {
				return err
			}
			p.Timings()
			return nil
		}
		rec := newRecording(t, c, RecordingInfo{MaxDispatches: 2, MaxBindings: 4, Timestamps: true})
		data, back := pattern(n, 9), make([]uint32, n)
		uses := []func(i int) error{
			func(int) error { return c.Upload(bg, b[0].All(), asBytes(data)) },
			func(int) error { return c.Download(bg, b[1].All(), asBytes(back)) },
			func(int) error { return run(rec, b[2], b[3]) },
			func(int) error {
				r, err := c.NewRecording(RecordingInfo{MaxDispatches: 2, MaxBindings: 4})
				if err != nil {
					return err
				}
				scratch, err := c.Alloc("scratch", 64, vk.DeviceLocal)
				if err == nil {
					r.Own(scratch)
					err = run(r, b[4], b[5])
				}
				return errors.Join(err, r.Close())
			},
			func(i int) error { _, err := c.Kernel(mixInfo(t, uint32(i%5))); return err },
			func(int) error { c.Usage(); return c.SaveCache() },
		}
		var wait sync.WaitGroup
		errs := make([]error, len(uses))
		for u, use := range uses {
			wait.Go(func() {
				for i := 0; errs[u] == nil; i++ {
					errs[u] = use(i)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
		require.NoError(t, c.Close())
		wait.Wait()
		for u, err := range errs {
			if !errors.Is(err, ErrClosed) && !errors.Is(err, vk.ErrClosed) {
				t.Errorf("use %d: %v", u, err)
			}
		}
		require.Zero(t, c.Usage().Current)
	}
}

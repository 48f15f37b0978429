package vk_test

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// A device is closed while goroutines make, use and close objects of every type and look at their handles. Each gets results until
// then and ErrClosed after.
func TestCloseBesideUse(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	in := vktest.Instance(t, vktest.Options{})
	p := vktest.PhysicalDevice(t, in)
	for range rounds {
		dev, err := p.Open(vk.DeviceOptions{})
		require.NoError(t, err)
		cache, err := dev.NewPipelineCache(nil)
		require.NoError(t, err)
		shared := newRig(t, dev, 64, 3)
		run := newRig(t, dev, 64, 5)
		uses := []func(i int) error{
			func(i int) error { run.encode(args(64, uint32(i))); return errors.Join(run.stream.Err(), run.run()) },
			func(i int) error {
				info := affineInfo(uint32(i % 3))
				info.Cache = cache
				c, err := dev.NewComputePipeline(info)
				if err != nil {
					return err
				}
				c.Handle()
				return c.Close()
			},
			func(int) error { _, err := cache.Data(); return err },
			func(i int) error {
				b, err := dev.NewBuffer(100, vk.MemoryKind(i%3))
				if err != nil {
					return err
				}
				b.Handle()
				b.AllocatedBytes()
				return b.Close()
			},
			func(int) error { // handles of objects that others use
				_ = len(shared.up.Mapped())
				shared.x.Handle()
				shared.cmd.Handle()
				var s vk.Stream
				s.Copy(shared.y, 0, shared.x, 0, 64)
				s.Bind(shared.pipeline, shared.set)
				_, err := dev.HeapBudget()
				return err
			},
			func(int) error {
				pool, err := dev.NewDescriptorPool(1, 2)
				if err != nil {
					return err
				}
				set, err := pool.Allocate(shared.pipeline)
				if err == nil {
					err = dev.UpdateDescriptors(set, []vk.BufferBinding{{Buffer: shared.x, Size: 64}, {Buffer: shared.y, Size: 64}})
				}
				return errors.Join(err, pool.Close())
			},
			func(int) error { return dev.Queue().WaitIdle() },
		}
		if dev.Enabled().TimelineSemaphore {
			uses = append(uses, func(int) error {
				s, err := dev.NewTimelineSemaphore(0)
				if err != nil {
					return err
				}
				var wait sync.WaitGroup
				wait.Go(func() { _ = s.Wait(1, -1) }) // closed while it is waited for
				return errors.Join(s.Close(), func() error { wait.Wait(); return nil }())
			})
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
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		require.NoError(t, dev.Close())
		wait.Wait()
		for u, err := range errs {
			// A buffer or pipeline that was closed between two steps of a use is an argument that is refused.
			var arg *vk.ArgumentError
			if !errors.Is(err, vk.ErrClosed) && !errors.As(err, &arg) {
				t.Errorf("use %d: %v", u, err)
			}
		}
	}
}

package vk_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// A command buffer is recorded anew while a buffer that it used before is destroyed by somebody else. The validation layers must not object
// to what it holds now.
func TestRecordWhileBufferCloses(t *testing.T) {
	dev := vktest.Device(t)
	const size = 256
	stays, err := dev.NewBuffer(size, vk.DeviceLocal)
	require.NoError(t, err)
	double, err := dev.NewComputePipeline(affineInfo(2))
	require.NoError(t, err)
	descriptors, err := dev.NewDescriptorPool(1, 2)
	require.NoError(t, err)
	set, err := descriptors.Allocate(double)
	require.NoError(t, err)
	commands, err := dev.NewCommandPool()
	require.NoError(t, err)
	cmd, err := commands.Allocate()
	require.NoError(t, err)
	fence, err := dev.NewFence(false)
	require.NoError(t, err)

	var s vk.Stream
	record := func(into *vk.Buffer) error {
		if err := dev.UpdateDescriptors(set, []vk.BufferBinding{{Buffer: stays, Size: size}, {Buffer: into, Size: size}}); err != nil {
			return err
		}
		s.Reset()
		s.Bind(double, set)
		s.Push(args(size/4, 3))
		s.Dispatch(1, 1, 1)
		for _, step := range []func() error{cmd.Reset, func() error { return cmd.Begin(false) }, func() error { return cmd.Execute(&s) },
			cmd.End} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
	run := func() {
		require.NoError(t, fence.Reset())
		require.NoError(t, dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}, Fence: fence}))
		require.NoError(t, fence.Wait(-1))
	}
	end := time.Now().Add(2 * stressTime(t))
	for n := 0; time.Now().Before(end); n++ {
		before, err := dev.NewBuffer(size, vk.DeviceLocal)
		require.NoError(t, err)
		after, err := dev.NewBuffer(size, vk.DeviceLocal)
		require.NoError(t, err)
		require.NoError(t, record(before))
		run()
		var closing sync.WaitGroup
		closing.Go(func() {
			time.Sleep(time.Duration(n%40) * time.Microsecond) // any moment of recording
			_ = before.Close()
		})
		require.NoError(t, record(after))
		closing.Wait()
		run()
		require.NoError(t, after.Close())
	}
}

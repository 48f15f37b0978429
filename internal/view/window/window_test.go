//go:build view

package window

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/view"
	"github.com/vkattn/vkattn/internal/view/render"
	"github.com/vkattn/vkattn/vk"
)

func TestQuick(t *testing.T) {
	runtime.LockOSThread()
	w, err := Open(view.Random(1, 2, 1, 128, 128, 16), Options{Title: "x", Width: 900, Height: 600,
		Instance: vk.InstanceOptions{SyncValidation: true, OnMessage: func(m vk.Message) { t.Error(m) }},
		Choose:   func(d []*vk.PhysicalDevice) (*vk.PhysicalDevice, error) { return d[0], nil }, Render: render.Options{DType: flash.F32}})
	require.NoError(t, err)
	for range 20 {
		on, err := w.Step(10 * time.Millisecond)
		require.NoError(t, err)
		require.True(t, on)
	}
	t.Log(w.Frames, w.chain.Mode(), w.State.Width, w.State.Height)
	require.NoError(t, w.Close())
}

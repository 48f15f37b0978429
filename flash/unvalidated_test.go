package flash

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestLayerThatDoesNotLoad: with a validation layer that is installed and does not load, Open says so, and tests run on a device without
// it.
func TestLayerThatDoesNotLoad(t *testing.T) {
	t.Setenv(vk.ValidationEnv, "")
	t.Setenv(vktest.RequireValidation, "")
	testDevice(t) // or there is none
	said := vktest.BreakLayer(t)
	_, err := Open(WithoutDiskCache(), WithValidation(func(Message) {}))
	require.ErrorIs(t, err, vk.ErrLayerMissing)
	require.ErrorContains(t, err, "but did not load")
	require.NotErrorIs(t, err, ErrNoDevice)
	for range 2 {
		d := vktest.Opened(t, openTest)
		x, err := d.NewTensor(F32, 1, 1, 1, 4)
		require.NoError(t, err)
		require.NoError(t, x.Upload(bg, []float32{1, 2, 3, 4}))
	}
	require.Len(t, said(), 1, "once")
	require.True(t, strings.HasSuffix(err.Error(), said()[0]), said()[0])
	t.Setenv(vktest.RequireValidation, "1")
	r := &failingTB{TB: t}
	require.Panics(t, func() { vktest.Opened(r, openTest) })
	require.Contains(t, r.why, "but did not load")
}

// failingTB notes why a test fails.
type failingTB struct {
	testing.TB
	why string
}

func (f *failingTB) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	panic(f.why)
}
func (f *failingTB) Skip(...any) { panic("skipped") }

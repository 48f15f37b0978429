package tune

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
)

// TestStoredVerdicts: what is on disk of a device is counted, and a kernel that is denied named with what was wrong.
func TestStoredVerdicts(t *testing.T) {
	testDevice(t) // skips where there is none
	d, err := flash.Open(flash.WithCacheDir(t.TempDir()))
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	v, err := StoredVerdicts(d)
	require.NoError(t, err)
	require.Equal(t, Verdicts{File: v.File}, v)
	env, err := within.Env(d)
	require.NoError(t, err)
	for key, value := range map[string]string{
		"check 3 matrix_forward.f16 0337cb143c991863 D=16 subgroups of 32":                                             kernel.Passed,
		"check 3 specialized 2 matrix_backward_kv.f16 0123456789abcdef D=8 full subgroups back.q 0123456789abcdef D=8": "dq is wrong",
		"layout of float16": "rows",
	} {
		_, _, err := kernel.AddKnown(v.File, env.Identity(), key, value)
		require.NoError(t, err)
	}
	v, err = StoredVerdicts(d)
	require.NoError(t, err)
	require.Equal(t, Verdicts{v.File, 1, []Denial{{[]string{"matrix_backward_kv.f16", "back.q"}, "dq is wrong"}}}, v)
	require.NoError(t, os.WriteFile(v.File, []byte("{"), 0o644))
	_, err = StoredVerdicts(d)
	require.ErrorContains(t, err, v.File)

	d, err = flash.Open(flash.WithoutDiskCache())
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	v, err = StoredVerdicts(d)
	require.NoError(t, err)
	require.Empty(t, v)
}

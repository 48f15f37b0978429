package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
)

// TestCompileOnly: what is planned on such a device proves nothing, and computes nothing.
func TestCompileOnly(t *testing.T) {
	d, err := Open(CompileOnly(), WithCacheDir(t.TempDir()))
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	require.True(t, d.Info().Compiles)
	known := len(kernel.Known.Entries)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 32, HeadDim: 16, ScoreFunction: score.Softcap(9)}
	plan, err := d.Plan(p, WithTier(TierScalar))
	require.NoError(t, err)
	defer plan.Close()
	_, err = plan.BackwardInfo()
	require.NoError(t, err)
	require.Len(t, kernel.Known.Entries, known, "a verdict of what did not run would be believed later")

	tensor := func() *Tensor {
		x, err := d.NewTensor(F32, 1, 2, 32, 16)
		require.NoError(t, err)
		require.NoError(t, x.Upload(t.Context(), make([]float32, x.Elements())))
		return x
	}
	f := Forward{Q: tensor(), K: tensor(), V: tensor(), O: tensor()}
	require.ErrorIs(t, plan.Forward(t.Context(), f), ErrCompileOnly)
	require.ErrorIs(t, f.O.Download(t.Context(), make([]float32, f.O.Elements())), ErrCompileOnly)
	rec, err := plan.NewRecording()
	require.NoError(t, err)
	defer rec.Close()
	require.NoError(t, rec.Forward(f), "commands can be looked at")
	_, err = rec.Submit()
	require.ErrorIs(t, err, ErrCompileOnly)
	_, err = d.Submit(rec)
	require.ErrorIs(t, err, ErrCompileOnly)
}

package tune

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestList: a recording is listed with its kernels and tensors, and nothing runs: o stays as it was.
func TestList(t *testing.T) {
	d := testDevice(t)
	plan, err := d.Plan(flash.Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 8, DType: flash.F16}, flash.WithTier(flash.TierScalar))
	require.NoError(t, err)
	tensor := func() *flash.Tensor {
		x, err := d.NewTensor(flash.F16, 1, 2, 40, 8)
		require.NoError(t, err)
		require.NoError(t, x.Upload(t.Context(), make([]float32, x.Elements())))
		return x
	}
	f := flash.Forward{Q: tensor(), K: tensor(), V: tensor(), O: tensor()}
	marked := make([]float32, f.O.Elements())
	for i := range marked {
		marked[i] = 7
	}
	require.NoError(t, f.O.Upload(t.Context(), marked))
	var r *flash.Recording
	l, err := List(d, func() (*flash.Recording, error) {
		if r, err = plan.NewRecording(); err != nil {
			return nil, err
		}
		return r, r.Forward(f)
	})
	require.NoError(t, err)
	require.Len(t, l.Operations, 1)
	require.Contains(t, l.Operations[0].Kernel.Name, "scalar_")
	require.Contains(t, l.String(), "operand Q")
	got := make([]float32, len(marked))
	require.NoError(t, f.O.Download(t.Context(), got))
	require.Equal(t, marked, got)
	old, err := plan.NewRecording()
	require.NoError(t, err)
	require.NoError(t, old.Forward(f))
	_, err = List(d, func() (*flash.Recording, error) { return old, nil })
	require.ErrorIs(t, err, flash.ErrArgument, "it was made before, and nobody listed it")
	require.NoError(t, errors.Join(old.Close(), r.Close()))

	_, err = List[*flash.Recording](d, nil)
	require.ErrorIs(t, err, flash.ErrArgument)
	broken := errors.New("broken")
	_, err = List(d, func() (*flash.Recording, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	_, err = List(nil, func() (*flash.Recording, error) { return r, nil })
	require.Error(t, err)
	require.NoError(t, plan.Close())
}

package ring

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
)

// TestLargestNaN: a score of one rank's keys that is no number makes its head's largest NaN on every rank, and no other's.
func TestLargestNaN(t *testing.T) {
	const ranks = 2
	devices := sharedDevices(t, ranks)
	p, err := flash.Problem{Batch: 2, Heads: 2, QueryLen: 40, HeadDim: 8, DType: flash.F32, MaxLogit: true}.Normalize()
	require.NoError(t, err)
	for _, over := range []Over{Keys, Heads} {
		s := newInputs(rand.New(rand.NewPCG(3, 9)), p)
		s.in.K.Row(1, 0, 35)[3] = float32(math.NaN()) // of rank 1
		comms, err := Local(ranks)
		require.NoError(t, err)
		got, ctx := newResults(&p, ranks), soon(t)
		require.NoError(t, errors.Join(each(comms, func(rank int, c Comm) error {
			r, err := New(c, devices[rank])
			if err != nil {
				return err
			}
			plan, err := r.Plan(ctx, p, Shard{Over: over})
			if err != nil {
				return err
			}
			return errors.Join(s.once(ctx, devices[rank], plan, &got, false), plan.Close())
		})...))
		for rank, values := range got.maxLogit {
			for i, x := range values {
				require.Equal(t, i == 2, x != x, "%v: number %d of rank %d is %g", over, i, rank, x)
			}
		}
	}
}

package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every kernel that this device plans is one that the byte model knows, and reads every input at least once.
func TestEveryPlanHasATiling(t *testing.T) {
	d := testDevice(t)
	for _, impl := range []Implementation{Standard, Flash1, Flash} {
		for _, tier := range []Tier{TierScalar, TierMatrix} {
			p := usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 8, DType: F16, Causal: CausalBottomRight})
			plan, err := d.Plan(p, WithImplementation(impl), WithTier(tier))
			if err != nil {
				require.ErrorIs(t, err, ErrUnsupported)
				continue
			}
			tiling, ok := plan.Tiling()
			require.True(t, ok, plan.Kernel())
			steps, err := tiling.Forward(p)
			require.NoError(t, err)
			least, err := p.LeastForwardBytes(AlgorithmFlash2)
			require.NoError(t, err)
			require.GreaterOrEqual(t, Total(steps).Bytes(), least, plan.Kernel())

			if impl != Standard { // what a file tells of the kernel gives the same
				parsed, err := ParseTiling(tiling.Algorithm, plan.Kernel())
				require.NoError(t, err)
				require.Equal(t, [2]int{tiling.Rows, tiling.Keys}, [2]int{parsed.Rows, parsed.Keys})
				require.Equal(t, tiling.Packed, parsed.Packed)
			}
			info, err := plan.BackwardInfo()
			if errors.Is(err, ErrUnsupported) {
				require.NoError(t, plan.Close())
				continue
			}
			require.NoError(t, err)
			backward, err := plan.BackwardTiling()
			require.NoError(t, err, info.Kernel)
			steps, err = backward.Backward(p)
			require.NoError(t, err)
			least, err = p.LeastBackwardBytes(AlgorithmFlash2)
			require.NoError(t, err)
			require.GreaterOrEqual(t, Total(steps).Bytes(), least, info.Kernel)
			if impl == Standard { // its name does not tell enough
				require.NotNil(t, backward.Standard)
				require.NoError(t, plan.Close())
				continue
			}
			parsed, err := ParseBackwardTiling(info.Kernel)
			require.NoError(t, err)
			for _, tiles := range [][2]BackwardTile{{backward.Keys, parsed.Keys}, {backward.Queries, parsed.Queries}} {
				require.Equal(t, BackwardTile{Rows: tiles[0].Rows, Columns: tiles[0].Columns, Restaged: tiles[0].Restaged}, tiles[1], info.Kernel)
			}
			require.NoError(t, plan.Close())
		}
	}
}

package tune

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Every kernel that this device plans has a model, which reads every input at least once, and is the same after a file.
func TestEveryPlanCountsItsWork(t *testing.T) {
	d := testDevice(t)
	again := func(m Model, p flash.Problem, c Call) []Work {
		data, err := json.Marshal(m)
		require.NoError(t, err)
		var back Model
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, m, back)
		steps, err := back.Work(p, c)
		require.NoError(t, err)
		return steps
	}
	for _, impl := range []flash.Implementation{flash.Standard, flash.Flash1, flash.Flash} {
		for _, tier := range []flash.Tier{flash.TierScalar, flash.TierMatrix} {
			p := few
			plan, err := d.Plan(p, flash.WithImplementation(impl), flash.WithTier(tier))
			if err != nil {
				require.ErrorIs(t, err, flash.ErrUnsupported)
				continue
			}
			steps, err := ForwardModel(plan).Work(p, Call{LSE: true})
			require.NoError(t, err)
			least, err := LeastForwardBytes(p, flash.Flash)
			require.NoError(t, err)
			require.GreaterOrEqual(t, Total(steps).Bytes(), least, plan.ForwardInfo().Kernel)
			require.Equal(t, steps, again(ForwardModel(plan), p, Call{LSE: true}), plan.ForwardInfo().Kernel)
			without, err := ForwardModel(plan).Work(p, Call{})
			require.NoError(t, err)
			require.Equal(t, 4*float64(plan.Problem().Batch*plan.Problem().Heads*plan.Problem().QueryLen),
				Total(steps).Written-Total(without).Written, "lse")

			info, err := plan.BackwardInfo()
			if errors.Is(err, flash.ErrUnsupported) {
				_, err = BackwardModel(plan)
				require.ErrorIs(t, err, flash.ErrUnsupported)
				require.NoError(t, plan.Close())
				continue
			}
			require.NoError(t, err)
			model, err := BackwardModel(plan)
			require.NoError(t, err)
			steps, err = model.Work(p, Call{})
			require.NoError(t, err)
			least, err = LeastBackwardBytes(p, flash.Flash)
			require.NoError(t, err)
			require.GreaterOrEqual(t, Total(steps).Bytes(), least, info.Kernel)
			require.Equal(t, steps, again(model, p, Call{}), info.Kernel)
			require.NoError(t, plan.Close())
			_, err = BackwardModel(plan)
			require.ErrorIs(t, err, flash.ErrClosed)
		}
	}
}

// TestModelErrors: what cannot be counted is an argument's error, or says that there is no model.
func TestModelErrors(t *testing.T) {
	p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8}
	_, err := Model{}.Work(p, Call{})
	require.ErrorIs(t, err, flash.ErrUnsupported)
	require.True(t, Model{}.IsZero())
	m := Model{traffic.QueriesOutside{Rows: 0, Keys: 4}}
	require.False(t, m.IsZero())
	_, err = m.Work(p, Call{})
	require.ErrorIs(t, err, flash.ErrArgument)
	require.ErrorContains(t, err, "QueriesOutside is 0x4: must have rows and columns")
	_, err = m.Work(flash.Problem{}, Call{})
	require.ErrorContains(t, err, "Problem.Batch")
	require.NoError(t, json.Unmarshal([]byte("null"), &m))
	require.ErrorContains(t, json.Unmarshal([]byte(`{"kind":"sideways"}`), &m), `no model of the kind "sideways"`)
	data, err := json.Marshal(Model{})
	require.NoError(t, err)
	require.Equal(t, "null", string(data))
}

// The products of a backward pass are what BackwardFLOPs counts.
func TestBackwardOperations(t *testing.T) {
	p := flash.Problem{Batch: 2, Heads: 2, QueryLen: 32, HeadDim: 8, DType: flash.F16, Causal: flash.CausalBottomRight}
	steps, err := Model{traffic.BackwardOperations{}}.Work(p, Call{})
	require.NoError(t, err)
	products := 0.0
	for _, s := range steps {
		switch s.Name {
		case "QKᵀ again", "dP = dO Vᵀ", "dV = Pᵀ dO", "dQ = dS K", "dK = dSᵀ Q":
			products += s.FLOPs
		}
	}
	require.Equal(t, p.BackwardFLOPs(), products)
	steps, err = Model{traffic.ForwardOperations{}}.Work(p, Call{})
	require.NoError(t, err)
	require.Equal(t, p.ForwardFLOPs(), steps[0].FLOPs+steps[len(steps)-1].FLOPs)
	require.Zero(t, Total(steps).Bytes())
}

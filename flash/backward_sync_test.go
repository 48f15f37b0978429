package flash

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestBackwardSynchronization: synchronization validation has nothing to say of the kernels, which share delta, inputs and,
// in standard attention, matrices, nor of forward and backward one after the other.
func TestBackwardSynchronization(t *testing.T) {
	vktest.Long(t, "the tiles that are chosen, in the conformance suite")
	var messages []Message
	d, err := Open(WithoutDiskCache(), WithValidation(func(m Message) { messages = append(messages, m) }), WithSyncValidation())
	if errors.Is(err, vk.ErrLayerMissing) && os.Getenv("VKATTN_REQUIRE_VALIDATION") != "1" ||
		errors.Is(err, ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	p := usual(Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 70, HeadDim: 16, DType: F16, Causal: CausalBottomRight})
	for _, impl := range []Implementation{Flash, Standard} {
		opts := []PlanOption{WithImplementation(impl), WithBackwardTuning(map[string]int{"max_groups": 3})}
		if impl == Standard { // a slab a head: key heads are summed over two of them
			opts = append(opts, WithTuning(map[string]int{"max_slab": p.QueryLen * attn.CeilDiv(p.KeyLen, 8) * 8 * 2}))
		}
		plan := mustPlan(t, d, p, opts...)
		s, b := newBackwardSample(t, d, plan, F16)
		for _, b.Accumulate = range []bool{false, true} {
			fwd, err := plan.SubmitForward(s.f)
			require.NoError(t, err)
			bwd, err := plan.SubmitBackward(b) // behind it on the queue
			require.NoError(t, err)
			require.NoError(t, bwd.Wait(bg))
			require.NoError(t, fwd.Wait(bg))
		}
		require.NoError(t, plan.Close())
	}
	require.NoError(t, d.Close())
	require.Empty(t, messages)
}

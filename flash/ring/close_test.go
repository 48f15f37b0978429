package ring

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestCloseLeavesNothing: after a plan was closed, whether its passes went well or one of them was cancelled, devices that stay open have
// the objects that they had before.
func TestCloseLeavesNothing(t *testing.T) {
	faults := []*vk.Faults{vk.NewFaults(), vk.NewFaults()}
	devices := []*flash.Device{openDevice(t, flash.WithFaults(faults[0])), openDevice(t, flash.WithFaults(faults[1]))}
	s := newSample(t, rand.New(rand.NewPCG(1, 2)), everything)
	for _, k := range []*killed{{name: "ring", shares: true}, {name: "ring of messages"}, {name: "heads", shares: true,
		shard: Shard{Over: Heads}}} {
		k.ranks, k.sample, k.clean = 2, s, newResults(&s.problem, 2)
		run := func(cancelled bool) {
			comms, all := k.comms(t)
			if cancelled { // near the end, with all of the pass's objects made
				all[1].by, all[1].phase, all[1].at = cancels, "backward: gather in reduce", 1
			}
			err := errors.Join(each(comms, func(rank int, c Comm) error {
				ctx, cancel := context.WithCancel(soon(t))
				defer cancel()
				all[rank].cancel = cancel
				return k.passes(ctx, c, all[rank], devices[rank], &k.clean)
			})...)
			require.Equal(t, cancelled, errors.Is(err, context.Canceled), "%s: %v", k.name, err)
			require.Equal(t, cancelled, err != nil, "%s: %v", k.name, err)
		}
		run(false) // which compiles
		before := []map[string]int{faults[0].Live(), faults[1].Live()}
		for range 2 {
			run(false)
			run(true)
		}
		for rank, f := range faults {
			require.Empty(t, vktest.Leaked(before[rank], f.Live()), "%s, rank %d", k.name, rank)
		}
	}
}

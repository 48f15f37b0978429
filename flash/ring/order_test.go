package ring

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
)

// TestHostOrders: on devices whose queues do not wait for one another, attached ones, the host waits in between, for the same bits.
func TestHostOrders(t *testing.T) {
	const ranks = 4
	own := sharedDevices(t, ranks)
	var attached []*flash.Device
	for _, d := range own {
		a, err := flash.Attach(d.External(), flash.WithoutDiskCache())
		require.NoError(t, err)
		defer func() { require.NoError(t, a.Close()) }()
		attached = append(attached, a)
	}
	s := newSample(t, rand.New(rand.NewPCG(2, 8)), flash.Problem{Batch: 1, Heads: 2, QueryLen: 190, HeadDim: 8, DType: flash.F32,
		Causal: flash.CausalBottomRight})
	for _, shard := range []Shard{{}, {Over: Heads}, {Over: Both, PerHost: 2}} {
		n := ranks
		if shard.Over == Heads {
			n = 2
		}
		var got [2][]results
		for i, devices := range [][]*flash.Device{own, attached} {
			comms, err := Local(n)
			require.NoError(t, err)
			got[i], err = s.run(soon(t), devices[:n], comms, shard, 1, func(p *Plan) {
				require.Equal(t, i == 0 && devices[0].Info().Facts.Features.TimelineSemaphore, p.mover.Ordered())
			})
			require.NoError(t, err)
		}
		s.judge(t, &got[0][0])
		require.Equal(t, got[0], got[1])
	}
	for _, accumulate := range []bool{false, true} {
		require.Equal(t, s.stream(t, own[0], 40, 1, accumulate), s.stream(t, attached[0], 40, 1, accumulate), "streams")
	}
}

// TestMovesEnd: the host has one copy more submitted than it waits for, hears of each in order, and of none after an error.
func TestMovesEnd(t *testing.T) {
	var m moves
	var heard []int
	for i := range 3 {
		require.NoError(t, m.add(nil, func() { heard = append(heard, i) })) // which have ended
		require.Len(t, heard, i+1)
	}
	under := new(hostmem.Move)
	require.NoError(t, m.add(under, func() { heard = append(heard, 3) }))
	require.Len(t, heard, 3)
	failed := errors.New("another's")
	require.ErrorIs(t, m.end(failed), failed)
	require.Len(t, heard, 3)
	require.NoError(t, m.end(nil), "nothing is left")
	require.Len(t, heard, 3)
}

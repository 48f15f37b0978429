package ring

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// randomProblem draws a problem of any options that rings take, and where its sequences lie.
func randomProblem(r *rand.Rand) (p flash.Problem, of sequencesOf) {
	half := func() bool { return r.IntN(2) == 0 }
	p = flash.Problem{Batch: 1 + r.IntN(3), Heads: 4, KeyHeads: 2 + 2*r.IntN(2), QueryLen: 40 + r.IntN(120), HeadDim: 8, DType: flash.F32,
		Causal: flash.Causal(r.IntN(3)), Sinks: half(), MaxLogit: half()}
	p.KeyLen = p.QueryLen + r.IntN(60)
	if r.IntN(3) == 0 {
		p.DType = flash.F16
	}
	if r.IntN(3) == 0 {
		p.Window = flash.SlidingWindow(r.IntN(p.KeyLen), r.IntN(p.KeyLen))
	}
	if r.IntN(3) == 0 {
		p.Dropout, p.KeyLen = 0.25, p.KeyLen+8*granule // draws for each chunk
	}
	one := func(n int) int { return []int{1, n}[r.IntN(2)] }
	if r.IntN(3) == 0 {
		p.Bias = flash.PerScore{DType: p.DType, Batch: one(p.Batch), Heads: one(p.Heads), Queries: one(p.QueryLen), Keys: p.KeyLen}
	}
	if r.IntN(3) == 0 {
		p.Mask = flash.PerScore{DType: flash.Bool, Batch: one(p.Batch), Heads: one(p.Heads), Queries: one(p.QueryLen), Keys: p.KeyLen}
		if p.KeyLen >= 8*granule && half() {
			p.Mask.DType = flash.Bit
		}
	}
	switch r.IntN(4) {
	case 0:
		p.ScoreFunction = relative(p.Heads)
	case 1:
		p.ScoreFunction, p.MaskFunction = slopes(), score.Dilated(3, -1)
	}
	switch r.IntN(3) {
	case 0:
		p.Packed = flash.Packed{Queries: 2*p.QueryLen + r.IntN(60), Keys: 2*p.KeyLen + r.IntN(60)}
		of.queryStarts, of.keyStarts = inOrder(r, p.Batch, p.Packed.Queries), inOrder(r, p.Batch, p.Packed.Keys)
	case 1:
		p.Blocks = flash.Blocks{Queries: 1 + r.IntN(5), Keys: []int{1, 2, 4, 5, 8}[r.IntN(5)], PerHead: half(), PerBatch: half()}
		if p.Dropout != 0 || p.Mask.DType == flash.Bit {
			p.Blocks.Keys = []int{1, 2, 4, 8, 64}[r.IntN(5)]
		}
	}
	switch r.IntN(4) {
	case 0:
		p.ValueDim = 16
	case 1:
		p.Scale = 0.25
	}
	if p.DType == flash.F16 && half() {
		p.DType = flash.BF16
		if p.Bias != (flash.PerScore{}) {
			p.Bias.DType = flash.BF16
		}
	}
	p.QueryLengths, p.KeyLengths = r.IntN(3) == 0, r.IntN(3) == 0
	of.queryLengths = randomLengths(r, p.QueryLengths, p.Batch, p.QueryLen)
	of.keyLengths = randomLengths(r, p.KeyLengths, p.Batch, p.KeyLen)
	return p, of
}

// inOrder are starts of sequences that lie in order, within the rows.
func inOrder(r *rand.Rand, sequences, rows int) []int32 {
	out := []int32{int32(r.IntN(4))}
	for range sequences {
		at := int(out[len(out)-1])
		out = append(out, int32(min(rows, at+r.IntN(2*rows/sequences+1))))
	}
	return out
}

// How long TestRandomRanks runs:
//
//	go test -c -o ring.test ./flash/ring
//	ring.test -test.v -test.run RandomRanks -draws 200 -repeats 50     # on the GPUs of this machine, a rank each as far as they go
var (
	draws   = flag.Int("draws", 8, "random problems of TestRandomRanks")
	repeats = flag.Int("repeats", 2, "how often TestRandomRanks runs each, compared bit by bit: at least 1")
	seed    = flag.Uint64("seed", 20261128, "what TestRandomRanks draws from")
)

// TestRandomRanks draws problems and compares them with the oracle: by the plan of one device, in a ring, over heads, over both, and
// streamed. Each way repeats bit for bit.
func TestRandomRanks(t *testing.T) {
	vktest.Long(t, "each option by itself")
	require.Positive(t, *repeats)
	seed := *seed
	for i := range *draws {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		p, of := randomProblem(r)
		ways := []Shard{{Order: Order(r.IntN(3))}, {Over: Heads, Order: Order(r.IntN(3))}}
		if p.Packed == (flash.Packed{}) && !p.Blocks.PerHead {
			ways = append(ways, Shard{Over: Both, PerHost: 2, Order: Order(r.IntN(3))})
		}
		for n, shard := range append(ways, Shard{}) {
			name, ranks := shard.Over.String(), 2+r.IntN(3)
			switch {
			case n == len(ways):
				name, ranks = "one device", 1
			case shard.Over == Heads:
				ranks = 2
			case shard.Over == Both:
				ranks = 4
			}
			t.Run(fmt.Sprintf("%d/%s", i, name), func(t *testing.T) {
				t.Logf("%v, %d ranks, %v order, %+v", p, ranks, shard.Order, of)
				s := newPackedSample(t, rand.New(rand.NewPCG(seed, uint64(i))), p, of)
				comms, err := Local(ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), sharedDevices(t, ranks), comms, shard, *repeats, nil)
				require.NoError(t, err)
				s.judge(t, &got[0])
				for n := range got {
					require.Equal(t, got[0], got[n], "run %d", n+1)
				}
			})
		}
		t.Run(fmt.Sprintf("%d/stream", i), func(t *testing.T) {
			s := newPackedSample(t, rand.New(rand.NewPCG(seed, uint64(i))), p, of)
			got := s.stream(t, sharedDevices(t, 1)[0], 32, *repeats, false) // the fewest keys are 40
			s.judge(t, &got[0])
			for n := range got {
				require.Equal(t, got[0], got[n], "run %d", n+1)
			}
		})
	}
}

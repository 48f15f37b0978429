package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
)

// TestRanksOfOneToken: launches in which a rank has one query or one key of its own compute what one device does, with every option that
// has numbers by query and key.
func TestRanksOfOneToken(t *testing.T) {
	vktest.Long(t, "lengths of 1 in the conformance package's TestSizesOfOne")
	bias := func(p *flash.Problem) {
		p.Bias = flash.PerScore{DType: flash.F32, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
	}
	for i, c := range []struct {
		ranks, queries, keys int
		order                Order
	}{{3, 6, 6, Auto}, {3, 3, 3, Plain}, {2, 2, 5, Plain}, {3, 7, 4, Plain}, {1, 1, 1, Plain}} {
		for j, option := range []struct {
			name string
			set  func(p *flash.Problem)
		}{
			{"softcap, bias", func(p *flash.Problem) { bias(p); p.ScoreFunction = score.Softcap(5) }},
			{"softcap, bias, causal", func(p *flash.Problem) {
				bias(p)
				p.ScoreFunction, p.Causal = score.Softcap(5),
					flash.CausalBottomRight
			}},
			{"mask", func(p *flash.Problem) {
				p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
				p.ScoreFunction = alibiSoftcap()
			}},
			{"bias of all queries", func(p *flash.Problem) { bias(p); p.Bias.Queries, p.ScoreFunction = 1, score.Softcap(5) }},
		} {
			t.Run(fmt.Sprintf("%s/%d of %d and %d", option.name, c.ranks, c.queries, c.keys), func(t *testing.T) {
				devices := sharedDevices(t, c.ranks)
				p := flash.Problem{Batch: 1, Heads: 2, QueryLen: c.queries, KeyLen: c.keys, HeadDim: 8, DType: flash.F32}
				option.set(&p)
				p.Sinks = true // gradients with respect to a score that is alone in its row are 0, and judge nothing
				s := newSample(t, rand.New(rand.NewPCG(uint64(i), uint64(j))), p)
				comms, err := Local(c.ranks)
				require.NoError(t, err)
				got, err := s.run(soon(t), devices, comms, Shard{Order: c.order}, 2, nil)
				require.NoError(t, err)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1], "the second run")
			})
		}
	}
}

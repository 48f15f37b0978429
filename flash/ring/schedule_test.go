package ring

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// TestScheduleCovers draws problems and checks that launches of all ranks together compute every pair of query and key that is seen exactly
// once, and no other.
func TestScheduleCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 8 + r.IntN(60), KeyLen: 8 + r.IntN(60), HeadDim: 8,
			Causal: flash.Causal(r.IntN(3))}
		if r.IntN(8) == 0 {
			p.QueryLen, p.KeyLen = 1000+r.IntN(100), 1000+r.IntN(100)
		}
		if r.IntN(2) == 0 {
			p.KeyLen = p.QueryLen
		}
		if r.IntN(2) == 0 {
			p.Window = flash.SlidingWindow(r.IntN(p.KeyLen)-1, r.IntN(p.KeyLen)-1)
		}
		if r.IntN(4) == 0 {
			p.Blocks = flash.Blocks{Queries: 1 + r.IntN(p.QueryLen/8), Keys: 1 + r.IntN(p.KeyLen/8)}
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		ranks := 1 + r.IntN(4)
		s := newSchedule(p, Shard{Order: Order(r.IntN(3))}, ranks)
		s.positional = s.positional || r.IntN(4) == 0
		bit := func(q, k int) bool { return true }
		if shape := p.MaskShape(); shape[0] > 0 {
			require.NoError(t, checkBlocks(&p, 2*ranks, 2*ranks))
			bits := make([]bool, shape[1]*shape[2])
			for i := range bits {
				bits[i] = r.IntN(3) == 0
			}
			s.blocks = newBlockBits(shape, bits)
			bit = func(q, k int) bool { return bits[q/p.Blocks.Queries*shape[2]+k/p.Blocks.Keys] }
		}
		counts := make([]int, p.QueryLen*p.KeyLen)
		pairs := 0.0
		for rank := range ranks {
			fromRows := func(spans []Span, row int) int {
				for _, c := range spans {
					if row < c.Len() {
						return c.Begin + row
					}
					row -= c.Len()
				}
				t.Fatal("a row of no chunk")
				return 0
			}
			for _, st := range s.steps(rank) {
				require.Equal(t, (rank-st.number+ranks)%ranks, st.owner)
				for _, l := range st.launches {
					l.problem, err = l.problem.Normalize()
					require.NoError(t, err)
					m := attn.Problem{QueryLen: l.problem.QueryLen, KeyLen: l.problem.KeyLen, ByPosition: within.ByPosition(l.problem),
						Within: attn.Within(l.problem.Within)}.Mask()
					if s.blocks == nil {
						require.Equal(t, m.Pairs(), l.pairs)
					}
					pairs += l.pairs
					var part []bool // of the block mask
					if l.problem.Blocks != (flash.Blocks{}) {
						s.blocks.each(&p, l.blocks, func(i int) { part = append(part, s.blocks.bits[i]) })
						shape := l.problem.MaskShape()
						require.Len(t, part, shape[1]*shape[2])
					}
					for i := range l.queries.Len() {
						keys := m.KeysOf(i)
						for j := keys.Begin; j < keys.End; j++ {
							if b := p.Blocks; part != nil && !part[i/b.Queries*l.problem.MaskShape()[2]+j/b.Keys] {
								continue
							}
							q, k := fromRows(s.queries.spans[rank], l.queries.Begin+i), fromRows(s.keys.spans[st.owner], l.keys.Begin+j)
							counts[q*p.KeyLen+k]++
							if s.positional && (q != l.problem.Within.Query+i || k != l.problem.Within.Key+j) {
								t.Fatalf("query %d and key %d are at others' positions in %v", q, k, l.problem.Within)
							}
						}
					}
				}
			}
		}
		if s.blocks == nil {
			require.Equal(t, s.whole.Pairs(), pairs)
		}
		for q := range p.QueryLen {
			keys := s.whole.KeysOf(q)
			for k := range p.KeyLen {
				want := 0
				if keys.Has(k) && bit(q, k) {
					want = 1
				}
				if counts[q*p.KeyLen+k] != want {
					t.Fatalf("query %d and key %d are computed %d times, of %v, %d ranks in %v order", q, k, counts[q*p.KeyLen+k], p,
						ranks, s.order)
				}
			}
		}
	}
}

// TestEveryRankHasTokens draws short problems with block masks: where ranks take one, each of them has queries and keys.
func TestEveryRankHasTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 7))
	taken := map[Over]int{}
	for range 4000 {
		p := flash.Problem{Batch: 1, Heads: 60, QueryLen: 1 + r.IntN(60), KeyLen: 1 + r.IntN(60), HeadDim: 8,
			Blocks: flash.Blocks{Queries: 1 + r.IntN(16), Keys: 1 + r.IntN(16)}}
		ranks := 1 + r.IntN(6)
		shard := Shard{Order: Order(r.IntN(3)), Over: []Over{Keys, Heads, Both}[r.IntN(3)]}
		if shard.Over == Both {
			shard.PerHost, ranks = ranks, ranks*(1+r.IntN(4))
		}
		m, err := NewModel(p, shard, ranks)
		if err != nil {
			continue
		}
		taken[m.Over()]++
		all := []*schedule{m.sched}
		if m.hosts != nil {
			all = append(m.hosts.within, m.hosts.ring.sched)
		}
		for _, s := range all {
			require.Positive(t, min(s.queries.least(), s.keys.least()), "%v, %+v, %d ranks", p, shard, ranks)
		}
	}
	for _, over := range []Over{Keys, Heads, Both} {
		require.Greater(t, taken[over], 100)
	}
}

// TestZigzagBalance: with a causal mask every rank has as much to do at every step, in one launch each.
func TestZigzagBalance(t *testing.T) {
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 1 << 14, HeadDim: 64, Causal: flash.CausalBottomRight}.Normalize()
	require.NoError(t, err)
	for _, ranks := range []int{1, 2, 4, 8} {
		s := newSchedule(p, Shard{}, ranks)
		require.Equal(t, Zigzag, s.order)
		for rank := range ranks {
			steps := s.steps(rank)
			require.Len(t, steps, ranks)
			for n, st := range steps {
				require.Len(t, st.launches, 1, "rank %d, step %d", rank, n)
				require.InEpsilon(t, steps[len(steps)-1].launches[0].pairs, st.launches[0].pairs, 0.01)
			}
		}
	}
}

// TestWindowStaysNear: with a window, ranks in plain order need the blocks of neighbours alone.
func TestWindowStaysNear(t *testing.T) {
	p, err := flash.Problem{Batch: 1, Heads: 1, QueryLen: 1 << 14, HeadDim: 64, Causal: flash.CausalBottomRight,
		Window: flash.SlidingWindow(1000, 0)}.Normalize()
	require.NoError(t, err)
	s := newSchedule(p, Shard{}, 8)
	require.Equal(t, Plain, s.order)
	for rank := range 8 {
		want := []int{(rank + 1) % 8}
		if rank == 7 {
			want = nil
		}
		require.Equal(t, want, s.receivers(rank))
	}
}

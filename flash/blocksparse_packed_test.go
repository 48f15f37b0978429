package flash

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// TestPackedBlocks: packed sequences with block masks, and with classes of blocks, give what a padded batch gives whose entries they are,
// blocks counting from each sequence's first query and key. Slots with more rows than the mask has blocks for have zeros there.
func TestPackedBlocks(t *testing.T) {
	d := testDevice(t)
	m := newPackedTensors(t, d)
	slots := [2][]int{{90, 3, 40, 0, 33}, {120, 50, 9, 5, 70}}
	runs, err := score.NewMask(score.Key().Div(score.ConstInt(16)).Sub(score.Query().Div(score.ConstInt(16))).Mod(score.ConstInt(3)).
		Greater(score.ConstInt(0)))
	require.NoError(t, err)
	for _, p := range []Problem{
		{Causal: CausalBottomRight, Blocks: Blocks{Queries: 7, Keys: 12, PerBatch: true}},
		{Blocks: Blocks{Queries: 32, Keys: 32, PerHead: true}},
		{Causal: CausalBottomRight, MaskBlocks: Blocks{Queries: 32, Keys: 32}, MaskFunction: runs},
		{Window: SlidingWindow(30, 9), MaskBlocks: Blocks{Queries: 8, Keys: 20}, MaskFunction: runs},
	} {
		p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen, p.HeadDim, p.DType = len(slots[0]), 4, 2, 40, 64, 8, F32
		q := p
		q.KeyLengths, q.QueryLengths = true, true
		f := m.forward(q)
		b := m.backward(q, f)
		shapes := [][4]int{p.QShape(), p.KShape(), p.VShape(), p.OShape(), p.LSEShape(), p.OShape(), p.LSEShape(), p.QShape(), p.KShape(),
			p.VShape()}
		of := [2][]*Tensor{{f.Q, f.K, f.V, f.O, f.LSE, b.DO, b.DLSE, b.DQ, b.DK, b.DV}}

		// Rows of the batch, packed: before the first slot and behind the last there are some of no sequence.
		starts, used, total := [2][]int{}, [2][]int{}, [2]int{}
		for i, longest := range []int{p.QueryLen, p.KeyLen} {
			at := 1
			for _, n := range slots[i] {
				starts[i], used[i], at = append(starts[i], at), append(used[i], min(n, longest)), at+n
			}
			starts[i], total[i] = append(starts[i], at), at+2
		}
		f.KeyLengths, f.QueryLengths = m.ints(used[1]...), m.ints(used[0]...)
		b.Forward = f
		side := func(i int) int { // of queries or keys
			if s := shapes[i]; s[1] == p.KeyHeads && s[2] == p.KeyLen {
				return 1
			}
			return 0
		}
		each := func(i int, do func(from, to int)) {
			s, k := shapes[i], side(i)
			for entry, n := range used[k] {
				for h := range s[1] {
					for row := range n {
						do(((entry*s[1]+h)*s[2]+row)*s[3], (h*total[k]+starts[k][entry]+row)*s[3])
					}
				}
			}
		}
		for i, x := range of[0] {
			s := shapes[i]
			values := randomValues(m.r, F32, [4]int{1, s[1], total[side(i)], s[3]})
			batch := m.values(x)
			each(i, func(from, to int) { copy(values[to:to+s[3]], batch[from:]) })
			of[1] = append(of[1], m.of(F32, [4]int{1, s[1], total[side(i)], s[3]}, values))
		}
		r := p
		r.Packed = Packed{total[0], total[1]}
		g := Forward{Q: of[1][0], K: of[1][1], V: of[1][2], O: of[1][3], LSE: of[1][4], QueryStarts: m.ints(starts[0]...),
			KeyStarts: m.ints(starts[1]...)}
		c := Backward{Forward: g, DO: of[1][5], DLSE: of[1][6], DQ: of[1][7], DK: of[1][8], DV: of[1][9]}

		var bits []bool
		random := rand.New(rand.NewPCG(5, 6))
		for range product3(p.MaskShape()) {
			bits = append(bits, random.IntN(2) == 0)
		}
		run := func(p Problem, b Backward) {
			var err error
			if p.Blocks != (Blocks{}) {
				b.Blocks, err = d.NewBlockMask(bg, p, bits)
			} else {
				b.MaskBlocks, err = d.NewMaskBlocks(bg, p)
			}
			require.NoError(t, err)
			plan := mustPlan(t, d, p, WithTier(TierScalar), WithTuning(map[string]int{"br": 32, "bc": 32}),
				WithBackwardTuning(map[string]int{"kv_br": 32, "kv_bc": 32, "q_br": 32, "q_bc": 32}))
			require.NoError(t, plan.Forward(bg, b.Forward))
			require.NoError(t, plan.Backward(bg, b))
			require.NoError(t, plan.Close())
		}
		run(q, b)
		run(r, c)
		for i := range of[0] {
			batch, packed := m.values(of[0][i]), m.values(of[1][i])
			each(i, func(from, to int) {
				for x := range shapes[i][3] {
					if got, want := float64(packed[to+x]), float64(batch[from+x]); got != want { // −∞ among them
						require.InDelta(t, want, got, 1e-5*(1+math.Abs(want)), "tensor %d of %v", i, p)
					}
				}
			})
		}
		for h := range p.Heads {
			for row := used[0][0]; row < slots[0][0]; row++ { // of the first slot, beyond the mask
				at := h*total[0] + starts[0][0] + row
				require.Equal(t, make([]float32, p.HeadDim), m.values(of[1][3])[at*p.HeadDim:(at+1)*p.HeadDim], fmt.Sprint("o, row ", row))
				require.Equal(t, make([]float32, p.HeadDim), m.values(of[1][7])[at*p.HeadDim:(at+1)*p.HeadDim], fmt.Sprint("dq, row ", row))
				require.True(t, math.IsInf(float64(m.values(of[1][4])[at]), -1), "lse")
			}
		}
	}
}

func product3(s [3]int) int { return s[0] * s[1] * s[2] }

package catalogue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/tiles"
)

// wordsOf is what a lane holds of Q, O, the scores of a chunk and the next tile, in words of 32 bits.
func wordsOf(g *kerneltest.GPU, t *matrix.Tile, p *attn.Problem) int {
	f := &t.Fragment
	sum := attn.CeilDiv(f.M*f.N, f.Lanes)
	operand := attn.CeilDiv(f.M*f.K*g.Held, 2*f.Lanes)
	n := t.RM * (min(t.QReg, attn.CeilDiv(p.HeadDim, f.K))*operand + (attn.CeilDiv(p.ValueDim, f.N)+attn.CeilDiv(t.CK, f.N))*sum)
	if t.Prefetch == 1 || t.Prefetch == 5 {
		n += 4 * attn.CeilDiv(t.BC*attn.CeilDiv(p.HeadDim+p.ValueDim, 8), t.Threads())
	}
	return n
}

// TestFamilies: every device has the family that is for it, and every kernel a tile within the device's limits, forward and backward. Where
// the family has rows for a kernel, one of those is taken, and none of another's; and no derived row is there in vain.
func TestFamilies(t *testing.T) {
	problems := goldenProblems()
	for _, dim := range []int{64, 128} { // rows for few queries, or few keys
		for _, n := range [][2]int{{12, 6}, {50, 12}} {
			problems = append(problems, kerneltest.Problem(attn.Problem{Heads: 8, KeyHeads: 8, QueryLen: n[0], KeyLen: n[1], HeadDim: dim,
				DType: attn.F16}))
		}
	}
	for _, dim := range []int{64, 160, 224, 256} { // rows for a bias
		for _, value := range []int{dim, 256} {
			problems = append(problems, kerneltest.Problem(attn.Problem{Heads: 8, KeyHeads: 8, QueryLen: 4096, HeadDim: dim,
				ValueDim: value, DType: attn.F16,
				ByScore: attn.ByScore{Bias: attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, true, true, true}}}}))
		}
	}
	reached := map[*tiles.Row]bool{}
	families := map[string]bool{}
	for i := range kerneltest.GPUs {
		g := &kerneltest.GPUs[i]
		families[g.Family] = true
		t.Run(g.Name, func(t *testing.T) {
			c := g.Caps()
			require.Equal(t, g.Family, c.Family().Name)
			for j := range problems {
				requireTiles(t, g, c, problems[j], reached)
			}
			for _, cache := range attn.QuantisedTypes() { // rows for decoding from quantised caches
				p := kerneltest.Problem(attn.Problem{Heads: 8, KeyHeads: 2, QueryLen: 1, KeyLen: 8192, HeadDim: 128, DType: attn.F16,
					KeyType: cache, ValueType: cache})
				tn := kernel.NewTuning(nil)
				tile, err := scalar.ChooseDecodeTile(c, p, tn)
				require.NoError(t, err)
				_, why := tile.Check(p, &c.Facts.Limits)
				require.Empty(t, why)
				reached[tn.Rows[0]] = true
			}
		})
	}
	for _, f := range tiles.Families() {
		for _, r := range f.Own() {
			// generic's last rows are for what devices nobody knows lack
			if families[f.Name] && f.Name != "generic" && r.Source == tiles.Derived && !reached[r] {
				t.Errorf("%s: %s: no device of the family takes this row: %v", r.Place(), r.Kernel, r)
			}
		}
	}
}

// requireTiles checks the tiles of every kernel for a problem, and notes the rows that they are from.
func requireTiles(t *testing.T, g *kerneltest.GPU, c *kernel.Capabilities, p *attn.Problem, reached map[*tiles.Row]bool) {
	t.Helper()
	single := *p
	single.DType = attn.F32
	for _, k := range choosers() {
		q, f := p, kernel.Fragment{}
		if k.name == "matrix_forward_split" {
			q = &single
		}
		if !k.takes(q) || k.on != anywhere && len(g.Fragments) == 0 {
			continue
		}
		if k.on != anywhere {
			f = c.Fragments(max(q.DType, attn.F16))[0]
		}
		tn := k.tuning()
		got := k.choose(&place{c, f, &kernel.FragmentLayout{Form: g.Form}, g.Form}, q, tn)
		if q == &single && got.err != nil && max(p.HeadDim, p.ValueDim) > 128 { // three terms of 16 keys of 256 columns are 50 KiB
			require.ErrorContains(t, got.err, "bytes of shared memory pass")
			continue
		}
		require.NoError(t, got.err, "%s: %v", k.name, q)
		require.Empty(t, got.why, "%s: %v", k.name, q)
		for _, r := range tn.Rows {
			reached[r] = true
			if !p.Blocks.None() && r.Family == "generic" { // of all rows, one that lies in a block goes first
				continue
			}
			// Of the family and those whose rows follow, the first that has rows for the kernel.
			rows := append(c.Family().Rows(r.Kernel), c.Family().Tuned(r.Kernel)...)
			require.Equal(t, rows[0].Family, r.Family, "%s for %v is from %s", r.Kernel, p, r.Place())
		}
		if k.rows > 0 {
			require.Len(t, tn.Rows, k.rows, k.name)
		}
		if k.name == "matrix_forward" && max(p.HeadDim, p.ValueDim) <= g.WordsUpTo {
			require.LessOrEqual(t, wordsOf(g, got.tile.(*matrix.Tile), p), g.Words, "%v: words in a lane of %v, %+v", p,
				tn.Rows[0].Place(), got.tile)
		}
	}
}

package catalogue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/scalar"
	"github.com/vkattn/vkattn/internal/kernel/standard"
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
	for _, dim := range []int{160, 224, 256} { // rows for a bias
		for _, value := range []int{dim, 256} {
			problems = append(problems, kerneltest.Problem(attn.Problem{Heads: 8, KeyHeads: 8, QueryLen: 4096, HeadDim: dim,
				ValueDim: value, DType: attn.F16, Bias: attn.PerScore{In: true, DType: attn.F16, Own: [4]bool{true, true, true, true}}}))
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
			for _, cache := range []attn.DType{attn.Q8_0, attn.Q4_0, attn.F8E4M3} { // rows for decoding from quantised caches
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
	masked, wide := !p.Blocks.None(), max(p.HeadDim, p.ValueDim) > kernel.PlainDims
	own := func(tn *kernel.Tuning, err error, kernels ...string) {
		t.Helper()
		require.NoError(t, err, "%v: %v", kernels, p)
		for _, r := range tn.Rows {
			reached[r] = true
			if masked && r.Family == "generic" { // of all rows, one that lies in a block goes first
				continue
			}
			// Of the family and those whose rows follow, the first that has rows for the kernel.
			rows := append(c.Family().Rows(r.Kernel), c.Family().Tuned(r.Kernel)...)
			require.Equal(t, rows[0].Family, r.Family, "%s for %v is from %s", r.Kernel, p, r.Place())
		}
		require.Len(t, tn.Rows, len(kernels))
	}
	fits := func(why string) {
		t.Helper()
		require.Empty(t, why, "%v", p)
	}
	limits, elem := &c.Facts.Limits, p.DType.Size()

	tn := kernel.NewTuning(nil)
	inFP32, err := scalar.ChooseForwardTile(c, p, tn)
	own(tn, err, "scalar_forward")
	fits(inFP32.Check(p.HeadDim, p.ValueDim, elem, limits))
	if !masked && !wide {
		for _, prefix := range []string{"kv_", "q_"} {
			tn = kernel.NewBackwardTuning(nil)
			tile, err := scalar.ChooseBackwardTile(c, p, prefix, tn)
			own(tn, err, "scalar_backward_"+prefix)
			fits(tile.Check(prefix, max(p.HeadDim, p.ValueDim), elem, limits))
		}
		tn = kernel.NewTuning(nil)
		flash1, err := scalar.ChooseFlash1Tile(c, p, tn)
		own(tn, err, "scalar_flash1")
		fits(flash1.Check(p.HeadDim, p.ValueDim, elem, limits))
		tn = kernel.NewTuning(nil)
		inThree, err := standard.ChooseScalarTile(c, p, tn)
		own(tn, err, "standard_scalar")
		fits(inThree.Check(p, limits))
	}
	if !masked && p.QueryLen*p.Group() <= scalar.DecodeRows && p.Features() == 0 {
		tn = kernel.NewTuning(nil)
		tile, err := scalar.ChooseDecodeTile(c, p, tn)
		own(tn, err, scalar.DecodeKernel)
		_, why := tile.Check(p, limits)
		fits(why)
	}
	if len(g.Fragments) > 0 && !masked && !wide {
		single := *p
		single.DType = attn.F32
		tn = kernel.NewTuning(nil)
		split, err := matrix.ChooseSplitTile(c, &single, 2, g.Form != kernel.FormShared, c.Fragments(attn.F16)[0], g.Form, tn)
		// two terms of 16 keys of 256 columns are 33 KiB
		if err != nil && limits.MaxSharedMemory < 40<<10 && max(p.HeadDim, p.ValueDim) > 128 {
			require.ErrorContains(t, err, "bytes of shared memory pass")
		} else {
			own(tn, err, "matrix_forward_split")
			fits(split.Check(p.HeadDim, p.ValueDim, c))
		}
	}
	if len(g.Fragments) == 0 || p.DType == attn.F32 {
		return
	}
	f := c.Fragments(p.DType)[0]
	if wide {
		if masked || p.Dropout > 0 { // left to the scalar tier
			return
		}
		tn = kernel.NewTuning(nil)
		tile, err := matrix.ChooseWideTile(c, p, f, &kernel.FragmentLayout{Form: g.Form}, g.Form, tn)
		own(tn, err, "matrix_forward_wide")
		fits(tile.Check(p.HeadDim, p.ValueDim, c))
		return
	}
	tn = kernel.NewTuning(nil)
	choose := matrix.ChooseTile
	if masked {
		choose = matrix.ChooseBlockTile
	}
	tile, err := choose(c, p, f, g.Form, tn)
	own(tn, err, "matrix_forward")
	fits(tile.Check(p.HeadDim, p.ValueDim, c))
	if masked {
		return
	}
	if n := wordsOf(g, &tile, p); max(p.HeadDim, p.ValueDim) <= g.WordsUpTo && n > g.Words {
		t.Fatalf("%v: %d words in a lane pass %d: %v, %+v", p, n, g.Words, tn.Rows[0].Place(), tile)
	}
	tn = kernel.NewTuning(nil)
	flash1, err := matrix.ChooseFlash1Tile(c, p, f, g.Form, tn)
	own(tn, err, "matrix_flash1")
	fits(flash1.Check(p.HeadDim, p.ValueDim, c))
	for _, prefix := range []string{"kv_", "q_"} {
		tn = kernel.NewBackwardTuning(nil)
		tile, err := matrix.ChooseBackwardTile(c, p, &kernel.FragmentLayout{Form: g.Form}, f, g.Form, prefix, tn)
		own(tn, err, "matrix_backward_"+prefix)
		fits(tile.Check(prefix, p, c))
	}
	tn = kernel.NewBackwardTuning(nil)
	weights, _, err := matrix.ChooseWeights(c, p, &kernel.FragmentLayout{Form: g.Form}, f, g.Form, tn)
	own(tn, err, "matrix_backward_weights")
	fits(weights.Tile.Check("weights_", p, c))
	tn = kernel.NewTuning(nil)
	inThree, err := standard.ChooseMatrixTile(c, p, f, tn)
	own(tn, err, "standard_scores_matrix", "standard_product_matrix")
	fits(inThree.Check(p, c))
	_, err = standard.ChooseMatrixGradients(c, p, f, kernel.NewBackwardTuning(nil))
	require.NoError(t, err)
}

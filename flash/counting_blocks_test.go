package flash

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
)

// countedBits is a mask with some blocks of every row but the second, which has none, and of the third only the last: walks that begin
// late, end early, skip, and do not begin at all. Heads differ.
func countedBits(shape [3]int) []bool {
	var bits []bool
	for h := range shape[0] {
		for r := range shape[1] {
			for c := range shape[2] {
				switch r % 4 {
				case 1:
					bits = append(bits, false)
				case 2:
					bits = append(bits, c == shape[2]-1)
				default:
					bits = append(bits, (h+r+c)%3 == 0)
				}
			}
		}
	}
	return bits
}

// TestBlockSparseMovesWhatTheModelSays: with a block mask, too, what the kernels count equals the model, which is told the mask, and o and
// lse are right. Whole tiles are blocks, or parts of blocks, or touch several.
func TestBlockSparseMovesWhatTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	tiles, odd := Blocks{Queries: 32, Keys: 32}, Blocks{Queries: 20, Keys: 12, PerHead: true}
	problem := func(keys int, dtype DType, causal Causal, b Blocks) Problem {
		return Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 150, KeyLen: keys, HeadDim: 8, ValueDim: 16, DType: dtype,
			Causal: causal, Blocks: b}
	}
	again := map[string]int{"q_resident": 0, "v_early": 0, "dk": 8, "br": 32, "bc": 32, "mr": 4, "mc": 4}
	matrix := func(prefetch int) map[string]int {
		return map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": prefetch}
	}
	for _, v := range []struct {
		name string
		p    Problem
		tier Tier
		tune map[string]int
		long bool // -short leaves it out
	}{
		{"as chosen", problem(230, F16, CausalNone, odd), TierScalar, nil, false},
		{"as chosen, fp32", problem(230, F32, CausalBottomRight, tiles), TierScalar, nil, false},
		{"tiles in blocks", problem(230, F16, CausalBottomRight, tiles), TierScalar, map[string]int{"br": 16, "bc": 32, "mr": 2, "mc": 4},
			true},
		{"blocks in tiles", problem(230, F16, CausalTopLeft, odd), TierScalar, map[string]int{"br": 32, "bc": 32, "mr": 4, "mc": 4}, true},
		{"Q again", problem(230, F16, CausalNone, tiles), TierScalar, again, false},
		{"Q again, odd", problem(100, F32, CausalTopLeft, odd), TierScalar, again, true},
		{"more queries than keys", problem(60, F16, CausalBottomRight, tiles), TierScalar, again, true},
		{"nothing ahead", problem(230, F16, CausalBottomRight, tiles), TierMatrix, matrix(0), true},
		{"a tile ahead", problem(230, F16, CausalTopLeft, tiles), TierMatrix, matrix(1), false},
		{"a tile ahead, whole", problem(256, F16, CausalNone, tiles), TierMatrix, matrix(1), true},
		{"keys ahead", problem(230, F16, CausalTopLeft, odd), TierMatrix, matrix(2), true},
		{"two tiles ahead", problem(230, F16, CausalTopLeft, tiles), TierMatrix, matrix(3), true},
		{"two tiles ahead, whole", problem(256, F16, CausalNone, tiles), TierMatrix, matrix(3), true},
		{"two tiles ahead, odd", problem(256, F16, CausalNone, odd), TierMatrix, matrix(3), true},
		{"at the tile's start", problem(230, F16, CausalNone, odd), TierMatrix, matrix(4), true},
		{"under a branch", problem(256, F16, CausalBottomRight, tiles), TierMatrix, matrix(5), true},
	} {
		t.Run(fmt.Sprintf("%s/%s", v.name, v.tier), func(t *testing.T) {
			if v.long {
				vktest.Long(t, "another mask, or another way of fetching ahead")
			}
			vktest.Budget(t)
			if v.tier == TierMatrix {
				v.tune = forwardTile(t, d, Flash, v.p, v.tune)
			}
			plan, err := d.Plan(v.p, WithTier(v.tier), WithTuning(v.tune))
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			defer plan.Close()
			bits := countedBits(v.p.MaskShape())
			mask, err := d.NewBlockMask(bg, v.p, bits)
			require.NoError(t, err)
			defer mask.Close()
			s := newSample(t, v.p)
			s.masked(t, bits)
			f := s.tensors(t, d, plainly(t, d))
			f.Blocks = mask
			defer closeAll(t, f.Q, f.K, f.V, f.O, f.LSE)
			c.forward(t, plan, f, traffic.Call{LSE: true, Blocks: bits})
			s.check(t, plan, f)
			if v.tune["q_resident"] == 0 && v.tune["br"] != 0 && v.tune["dk"] != 0 {
				require.True(t, plan.program.Model().(traffic.QueriesOutside).QAgain)
			}
		})
	}
}

// TestBlockSparseBackwardMovesWhatTheModelSays is the same of a backward pass: tiles that are blocks, or touch several; heads with masks of
// their own, whose walks end at different tiles.
func TestBlockSparseBackwardMovesWhatTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	tiles, odd := Blocks{Queries: 32, Keys: 32, PerHead: true}, Blocks{Queries: 20, Keys: 12, PerHead: true, PerBatch: true}
	problem := func(keys int, dtype DType, causal Causal, b Blocks) Problem {
		return Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 150, KeyLen: keys, HeadDim: 8, ValueDim: 16, DType: dtype,
			Causal: causal, Blocks: b}
	}
	matrix := func(prefetch int) map[string]int {
		m := map[string]int{}
		for _, part := range []string{"kv_", "q_"} {
			m[part+"w"], m[part+"rm"], m[part+"bc"], m[part+"ck"], m[part+"prefetch"] = 2, 1, 2, 1, prefetch
		}
		return m
	}
	for _, v := range []struct {
		name string
		p    Problem
		tier Tier
		tune map[string]int
		long bool // -short leaves it out
	}{
		{"as chosen", problem(230, F16, CausalNone, odd), TierScalar, nil, false},
		{"shared", problem(230, F32, CausalBottomRight, Blocks{Queries: 32, Keys: 32}), TierScalar, nil, false},
		{"fewer keys", problem(60, F16, CausalBottomRight, tiles), TierScalar, nil, true},
		{"nothing ahead", problem(230, F16, CausalBottomRight, tiles), TierMatrix, matrix(0), true},
		{"a tile ahead", problem(230, F16, CausalTopLeft, tiles), TierMatrix, matrix(1), false},
		{"a tile ahead, odd", problem(230, F16, CausalNone, odd), TierMatrix, matrix(1), true},
		{"two tiles", problem(230, F16, CausalNone, tiles), TierMatrix, matrix(2), true},
		{"two tiles, odd", problem(256, F16, CausalBottomRight, odd), TierMatrix, matrix(2), true},
	} {
		t.Run(fmt.Sprintf("%s/%s", v.name, v.tier), func(t *testing.T) {
			if v.long {
				vktest.Long(t, "another mask, or another way of fetching ahead")
			}
			vktest.Budget(t)
			if v.tier == TierMatrix {
				v.tune = backwardTile(t, d, Flash, v.p, v.tune)
			}
			plan := planGradients(t, d, v.p, v.tier, WithBackwardTuning(v.tune))
			defer plan.Close()
			bits := countedBits(v.p.MaskShape())
			mask, err := d.NewBlockMask(bg, v.p, bits)
			require.NoError(t, err)
			defer mask.Close()
			backwardMoves(t, c, plan, traffic.Call{Blocks: bits}, mask)
		})
	}
}

// masked gives the sample the answers with a block mask.
func (s *sample) masked(t *testing.T, bits []bool) {
	in := s.in
	in.Blocks = kernel.RefBlocks(attnOf(s.p), bits)
	o, lse, err := ref.Forward(in)
	require.NoError(t, err)
	plain, plainLSE, err := ref.PlainForward(in, ref.DType(s.p.DType))
	require.NoError(t, err)
	s.o, s.lse, s.plain, s.plainLSE = o.Data, lse.Data, plain.Data, plainLSE.Data
}

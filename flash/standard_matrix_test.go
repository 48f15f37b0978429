package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestStandardMatrix runs standard attention on matrices: one dispatch writes the other's input, so every edge of a tile shows.
func TestStandardMatrix(t *testing.T) {
	vktest.Long(t, "standard attention on matrices in the conformance suite")
	d := matrixDevice(t)
	for _, c := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"plain", Problem{Batch: 1, Heads: 2, QueryLen: 32, KeyLen: 48, HeadDim: 16}, nil},
		{"causal, ragged", Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 33, KeyLen: 50, HeadDim: 24, Causal: CausalBottomRight}, nil},
		{"rows that see nothing", Problem{Batch: 1, Heads: 1, QueryLen: 50, KeyLen: 13, HeadDim: 16, Causal: CausalBottomRight}, nil},
		{"odd dimensions", Problem{Batch: 1, Heads: 2, QueryLen: 21, KeyLen: 37, HeadDim: 13, ValueDim: 7}, nil},
		{"slabs of rows", Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 45, HeadDim: 16, Causal: CausalTopLeft},
			map[string]int{"max_slab": 13 * 48 * 2}},
		{"dispatches of one group", Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 45, HeadDim: 16}, map[string]int{"max_groups": 1}},
		{"several slices, runs of one tile", Problem{Batch: 1, Heads: 1, QueryLen: 24, KeyLen: 40, HeadDim: 32},
			map[string]int{"run": 1, "fc": 1, "product_stage": 2}},
		{"a run longer than the keys, causal", Problem{Batch: 1, Heads: 2, QueryLen: 40, KeyLen: 60, HeadDim: 32, Causal: CausalTopLeft},
			map[string]int{"run": 9, "fr": 2}},
		{"fp32 on the way out", Problem{Batch: 1, Heads: 1, QueryLen: 35, KeyLen: 40, HeadDim: 16}, map[string]int{"half": 0}},
		{"long rows", Problem{Batch: 1, Heads: 1, QueryLen: 8, KeyLen: 700, HeadDim: 8}, map[string]int{"row_threads": 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			switch c.name {
			case "plain", "rows that see nothing", "odd dimensions", "dispatches of one group":
				vktest.Long(t, "ways of its own; conformance has these problems")
			}
			vktest.Budget(t)
			c.p.DType = F16
			s := newSample(t, c.p)
			plan := mustPlan(t, d, s.p, WithImplementation(Standard), WithTier(TierMatrix),
				WithTuning(forwardTile(t, d, Standard, c.p, c.tuning)))
			require.Contains(t, plan.String(), "standard_matrix")
			tensors := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, tensors))
			s.check(t, plan, tensors)
		})
	}
}

// TestStandardSteadyState: recording again allocates nothing.
func TestStandardSteadyState(t *testing.T) {
	d := testDevice(t)
	s := newSample(t, usual(Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 16, DType: F16}))
	requireSteadyState(t, d, s, mustPlan(t, d, s.p, WithImplementation(Standard)))
}

func TestStandardMatrixTuningErrors(t *testing.T) {
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 64, HeadDim: 64, DType: F16}
	for _, tuning := range []map[string]int{
		{"wr": 0}, {"wr": 1 << 20}, {"run": 0}, {"product_stage": 12}, {"product_wc": 1, "product_fc": 1}, {"row_threads": 3},
		{"product_stage": 1 << 10}, {"nonsense": 1}, {"fr": -1},
	} {
		_, err := d.Plan(p, WithImplementation(Standard), WithTier(TierMatrix), WithTuning(tuning))
		require.ErrorIs(t, err, ErrArgument, "%v", tuning)
	}
	_, err := d.Plan(p, WithImplementation(Standard), WithTier(TierMatrix), WithTuning(map[string]int{"fm": 3}))
	require.ErrorIs(t, err, ErrUnsupported)
	p.DType = F32
	_, err = d.Plan(p, WithImplementation(Standard), WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
}

// TestStandardMatrixTileFitsAnyDevice: a tile within the device's limits for every dimension and the usual fragments.
func TestStandardMatrixTileFitsAnyDevice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := kerneltest.Draw(t)
		f := kernel.Fragment{M: rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "m"), N: rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "n"),
			K: rapid.SampledFrom([]int{8, 16, 32}).Draw(t, "k"), Lanes: max(4, int(c.Facts.Subgroup.Size))}
		if rapid.Bool().Draw(t, "half") {
			c.Facts.Matrices = append(c.Facts.Matrices, vk.MatrixShape{M: uint32(f.M), N: uint32(f.N), K: uint32(f.K),
				A: vk.ComponentF16, B: vk.ComponentF16, C: vk.ComponentF16, Result: vk.ComponentF16, Scope: vk.ScopeSubgroup})
		}
		p, err := Problem{Batch: 1, Heads: 1, QueryLen: rapid.IntRange(1, 300).Draw(t, "nq"),
			KeyLen:  rapid.IntRange(1, 70000).Draw(t, "nk"),
			HeadDim: rapid.IntRange(1, 256).Draw(t, "d"), ValueDim: rapid.IntRange(1, 256).Draw(t, "dv"),
			DType: rapid.SampledFrom([]DType{F16, BF16}).Draw(t, "dtype")}.Normalize()
		require.NoError(t, err)
		tile, err := standard.ChooseMatrixTile(c, attnOf(p), f, kernel.NewTuning(nil))
		var no *kernel.Declined
		if errors.As(err, &no) && (c.Facts.Limits.MaxSharedMemory < 32<<10 || max(f.M, f.N, f.K) > 16) {
			return // the scalar tier does it: no device is known that has these
		}
		if err != nil {
			t.Fatalf("%v, %v: %v", p, f, err)
		}
		if why := tile.Check(attnOf(p), c); why != "" {
			t.Fatalf("%+v: %s", tile, why)
		}
		if k := tile.RowKeep; k != 0 && 4*tile.RowThreads*k < p.KeyLen {
			t.Fatalf("%+v does not keep a row of %d", tile, p.KeyLen)
		}
		if selfCheck := tile.SelfCheck(attnOf(p)); tile.RowKeep != 0 && selfCheck.KeyLen > 4*tile.RowThreads*tile.RowKeep {
			t.Fatalf("%+v: the self-check's rows of %d are too long", tile, selfCheck.KeyLen)
		}
	})
}

// TestStandardMatrixVariantRefused: a variant that failed its self-check is a reason to take the next kernel while a plan is made, and an
// error that says so while recording.
func TestStandardMatrixVariantRefused(t *testing.T) {
	d := matrixDevice(t)
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8, DType: F16}, WithImplementation(Standard),
		WithTier(TierMatrix))
	s := plan.program.(*standard.Program)
	compiled := s.Compiled(kernel.Variant{LSE: true})
	require.Len(t, compiled, 3)
	key, err := d.env.ProofKey(compiled)
	require.NoError(t, err)
	d.env.Remember(key, "o is wrong")
	t.Cleanup(func() { forgetProcess(t) })
	err = s.Ready(pass.Variant{LSE: true})
	var no *kernel.Declined
	require.ErrorAs(t, err, &no)
	require.True(t, kernel.IsDenied(err))
	var unsupported *UnsupportedError
	require.ErrorAs(t, refused(s.Record(&kernel.Recorder{}, &kernel.Operands{HasLSE: true}), plan.Problem().String(), TierMatrix),
		&unsupported)
	require.True(t, unsupported.Denied)
	require.ErrorContains(t, unsupported, "o is wrong")
}

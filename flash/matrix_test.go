package flash

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/vk"
)

// matrixDevice is testDevice on a device with the tier matrix; without one the test is skipped, or fails where
// VKATTN_REQUIRE_MATRIX says that there must be one.
func matrixDevice(t testing.TB) *Device {
	t.Helper()
	d := testDevice(t)
	if why := d.env.Caps.LacksMatrix(attn.F16); why != "" {
		if os.Getenv("VKATTN_REQUIRE_MATRIX") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return d
}

// constantsOf are those that the forward kernel of a plan is specialized with.
func constantsOf(plan *Plan) kernel.Constants {
	stages := plan.program.(*pass.Forward).Passes(pass.Variant{}).Stages
	return stages[slices.IndexFunc(stages, func(s pass.Stage) bool { return s.Proves })].Constants
}

// runMatrix plans a problem with this tuning, runs it and checks the result.
func runMatrix(t *testing.T, d *Device, p Problem, tuning map[string]int, opts ...PlanOption) *Plan {
	t.Helper()
	vktest.Budget(t)
	s := newSample(t, p)
	plan := mustPlan(t, d, s.p, append(opts, WithTier(TierMatrix), WithTuning(tuning))...)
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	s.check(t, plan, f)
	return plan
}

// matrixTypes are the storage types that the device's matrices take.
func matrixTypes(d *Device) []DType {
	types := []DType{F16}
	if d.env.Caps.LacksMatrix(attn.BF16) == "" {
		types = append(types, BF16)
	}
	return types
}

// TestMatrixForms runs every form with every fragment that the device has.
func TestMatrixForms(t *testing.T) {
	d := matrixDevice(t)
	for _, dtype := range matrixTypes(d) {
		p := narrowed(Problem{Batch: 1, Heads: 2, QueryLen: 37, KeyLen: 45, HeadDim: 16, DType: dtype, Causal: CausalBottomRight})
		for _, f := range d.env.Caps.Fragments(attn.DType(dtype)) {
			layout, err := d.env.Layout(attn.DType(dtype), f)
			require.NoError(t, err)
			for form := kernel.FormRegisters; form <= kernel.FormShared; form++ {
				t.Run(fmt.Sprintf("%v-%v-form%d", dtype, f, form), func(t *testing.T) {
					tuning := map[string]int{"fm": f.M, "fn": f.N, "fk": f.K, "form": form}
					if form < layout.Form {
						_, err := d.Plan(p, WithTier(TierMatrix), WithTuning(tuning))
						require.ErrorIs(t, err, ErrUnsupported)
						require.ErrorContains(t, err, layout.Why)
						return
					}
					plan := runMatrix(t, d, p, tuning)
					info := plan.ForwardInfo()
					require.Contains(t, plan.String(), fmt.Sprintf("tier matrix: matrix_forward %dx%d %v form %d", info.Tuning["br"],
						info.Tuning["bc"], f, form))
					require.Zero(t, info.WorkspaceBytes)
				})
			}
		}
	}
}

// TestMatrixTiles forces what tiles are made of, one after the other.
func TestMatrixTiles(t *testing.T) {
	vktest.Long(t, "the tiles that are chosen, in the conformance suite")
	d := matrixDevice(t)
	f := matrixFragment(d)
	ragged := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 12, ValueDim: 5, DType: F16,
		Causal: CausalBottomRight}
	small := ragged
	if testing.Short() {
		small.HeadDim = 8
	}
	for name, test := range map[string]struct {
		p      Problem
		tuning map[string]int
		tile   string
	}{
		"next tile in registers": {small, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "prefetch": 1, "pipe": 1}, ""},
		"next keys in registers": {small, map[string]int{"w": 1, "rm": 2, "bc": 2, "ck": 1, "prefetch": 2}, ""},
		"two tiles":              {small, map[string]int{"w": 2, "rm": 1, "bc": 1, "ck": 1, "prefetch": 3, "max_first": 1}, ""},
		"Q in shared memory":     {ragged, map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "q_reg": 1}, ""},
		"heads together":         {ragged, map[string]int{"w": 1, "rm": 1, "heads_together": 3}, ""},
		"split":                  {small, map[string]int{"w": 1, "rm": 1, "heads_together": 3, "max_groups": 5}, ""},
		"packed": {narrowed(Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 3, KeyLen: 50, HeadDim: 16, DType: F16,
			Causal: CausalBottomRight}), map[string]int{"decode": 0}, "packed"},
		"not packed": {narrowed(Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 3, KeyLen: 50, HeadDim: 16, DType: F16}),
			map[string]int{"pack": 0}, ""},
		"br": {ragged, map[string]int{"br": 3, "rm": 1}, fmt.Sprintf(" %dx", 3*f.M)},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "br":
				vktest.Long(t, "shapes by w and rm")
			case "heads together", "not packed":
				vktest.Long(t, "heads together in several dispatches, and one that is packed")
			}
			tile := forwardTile(t, d, Flash, test.p, test.tuning)
			plan := runMatrix(t, d, test.p, tile)
			require.Contains(t, plan.ForwardInfo().Kernel, test.tile)
			for k, v := range tile {
				require.Equal(t, v, plan.ForwardInfo().Tuning[k], k)
			}
		})
	}
	for _, bad := range []map[string]int{{"form": 4}, {"form": 0}, {"bc": 1}, {"nonsense": 1}, {"ck": 3}} {
		_, err := d.Plan(ragged, WithTier(TierMatrix), WithTuning(bad))
		require.ErrorIs(t, err, ErrArgument, "%v", bad)
	}
	_, err := d.Plan(ragged, WithTier(TierMatrix), WithTuning(map[string]int{"fm": 24}))
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "the device has no 24x")
	require.ErrorContains(t, err, f.String(), "and says which it has")
}

// TestMatrixIgnoresSharedMemory: columns between D and the next fragment are zeros, whatever an earlier kernel left in shared memory. A NaN
// there would be in every score, since 0·NaN is no 0.
func TestMatrixIgnoresSharedMemory(t *testing.T) {
	d := matrixDevice(t)
	if f := d.env.Caps.Fragments(attn.F16)[0]; max(f.N, f.K) <= 8 {
		t.Skip("a fragment is as wide as what is staged at once")
	}
	wide, err := Problem{Batch: 4, Heads: 500, QueryLen: 64, HeadDim: 64, DType: F16}.Normalize() // workgroups for every part of the device
	require.NoError(t, err)
	litter := mustPlan(t, d, wide, WithImplementation(Flash), WithTier(TierMatrix))
	mk := plainly(t, d)
	nothing := Forward{Q: mk(F16, wide.QShape()), K: mk(F16, wide.KShape()), V: mk(F16, wide.VShape()), O: mk(F16, wide.OShape()),
		LSE: mk(F32, wide.LSEShape())}
	bad := slices.Repeat([]float32{float32(math.NaN())}, nothing.Q.Elements())
	for _, in := range []*Tensor{nothing.Q, nothing.K, nothing.V} {
		require.NoError(t, in.Upload(bg, bad))
	}
	for _, impl := range []Implementation{Flash, Flash1, Standard} {
		s := newSample(t, Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 5, ValueDim: 3, DType: F16})
		f := s.tensors(t, d, mk)
		plan := mustPlan(t, d, s.p, WithImplementation(impl), WithTier(TierMatrix))
		require.NoError(t, litter.Forward(bg, nothing))
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	}
}

// TestMatrixFetching: the next tile asked for under a branch, into registers or a second tile of shared memory, with places by shared steps
// and keys that are whole tiles or not, gives the same in every form.
func TestMatrixFetching(t *testing.T) {
	vktest.Long(t, "the tiles that are chosen, in the conformance suite")
	d := matrixDevice(t)
	f := matrixFragment(d)
	layout, err := d.env.Layout(attn.F16, f)
	require.NoError(t, err)
	step := stepOf(f)
	unaligned := Problem{Batch: 2, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 5, ValueDim: 12, DType: F16,
		Causal: CausalBottomRight}
	// rows of V are no whole turns
	ragged := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 83, HeadDim: 16, ValueDim: 24, DType: F16}
	if testing.Short() {
		ragged.HeadDim = 8
	}
	whole := narrowed(Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 43, KeyLen: 6 * step, HeadDim: 16, DType: F16,
		Causal: CausalTopLeft})
	for i, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"two tiles", ragged, map[string]int{"prefetch": 4, "steps": 1, "max_first": 1}},
		{"two tiles, whole", whole, map[string]int{"prefetch": 4, "steps": 1, "max_first": 1, "whole": 1}},
		{"registers, whole", whole, map[string]int{"prefetch": 5, "steps": 0, "whole": 1}},
		{"registers, unaligned", unaligned, map[string]int{"prefetch": 5, "steps": 1, "max_first": 1, "whole": 1}},
	} {
		for form := layout.Form; form <= kernel.FormShared; form++ {
			other := form != layout.Form+i%(kernel.FormShared-layout.Form+1)
			if other && isCPU(d) && i%3 != 0 {
				continue // seconds of compiling each; two of the ways show what forms have to do with them
			}
			t.Run(fmt.Sprintf("%s/form%d", test.name, form), func(t *testing.T) {
				if other {
					vktest.Long(t, "each way of fetching in one form")
				}
				tuning := map[string]int{"w": 2, "rm": 1, "bc": 2, "ck": 1, "form": form}
				maps.Copy(tuning, test.tuning)
				tuning = forwardTile(t, d, Flash, test.p, tuning)
				plan := runMatrix(t, d, test.p, tuning)
				tile := constantsOf(plan)
				require.Equal(t, kernel.BoolInt(test.p.KeyLen%tile["BC"] != 0), tile["RAGGED"])
				for k, v := range tuning {
					require.Equal(t, v, plan.ForwardInfo().Tuning[k], k)
				}
			})
		}
	}
}

// TestMatrixChoice: who gets the tier unasked, and what plans say of it.
func TestMatrixChoice(t *testing.T) {
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: matrix.DecodeRows + 1, HeadDim: 8, DType: F16}
	plan := mustPlan(t, d, p, WithoutStoredTuning())
	if isCPU(d) {
		require.Equal(t, TierScalar, plan.ForwardInfo().Tier)
		require.Contains(t, plan.String(), "not chosen: matrix_forward: matrices on a CPU are slower")
	} else {
		require.Equal(t, TierMatrix, plan.ForwardInfo().Tier)
		require.Len(t, plan.ForwardInfo().WhyNotFaster, 2, "kernels for few rows")
		for _, why := range plan.ForwardInfo().WhyNotFaster {
			require.Contains(t, why, "rows for each key head")
		}
	}
	p.DType = F32
	require.Contains(t, mustPlan(t, d, p).String(), "not chosen: matrix_forward: matrices take fp16 or bf16")
	require.Contains(t, mustPlan(t, d, p).String(), "not chosen: matrix_forward_split: ")
	p.HeadDim = MaxHeadDim
	_, err := d.Plan(p, WithTier(TierMatrix))
	require.ErrorIs(t, err, ErrUnsupported)
	p.HeadDim = 8
	p.DType = BF16
	if why := d.env.Caps.LacksMatrix(attn.BF16); why != "" {
		plan := mustPlan(t, d, p)
		require.Equal(t, TierScalar, plan.ForwardInfo().Tier)
		require.Contains(t, plan.String(), "not chosen: matrix_forward: "+why)
	}
}

// TestLacksMatrix: a device without one of the features is told which.
func TestLacksMatrix(t *testing.T) {
	good := func() *kernel.Capabilities {
		c := kerneltest.Hopper()
		c.Facts.Limits.MaxPushConstants = 128
		c.Facts.Subgroup.Compute, c.Facts.Subgroup.FullSubgroups, c.Facts.Subgroup.RequiredSizeCompute = true, true, true
		c.Facts.Subgroup.Ops = vk.SubgroupBasic | vk.SubgroupVote | vk.SubgroupShuffle
		c.Enabled = vk.Features{CooperativeMatrix: true, VulkanMemoryModel: true, Float16: true, Int16: true, Storage16: true,
			SubgroupSizeControl: true, ComputeFullSubgroups: true, Maintenance4: true, BFloat16Type: true, BFloat16CooperativeMatrix: true}
		c.Facts.Features = c.Enabled
		for _, n := range []uint32{8, 16} {
			for _, in := range []vk.ComponentType{vk.ComponentF16, vk.ComponentBF16} {
				c.Facts.Matrices = append(c.Facts.Matrices, vk.MatrixShape{M: 16, N: n, K: 16, A: in, B: in, C: vk.ComponentF32,
					Result: vk.ComponentF32, Scope: vk.ScopeSubgroup})
			}
		}
		return c
	}
	require.Empty(t, good().LacksMatrix(attn.F16))
	require.Empty(t, good().LacksMatrix(attn.BF16))
	require.Equal(t, []kernel.Fragment{{M: 16, N: 16, K: 16, Lanes: 32}, {M: 16, N: 8, K: 16, Lanes: 32}}, good().Fragments(attn.F16))
	require.Contains(t, good().LacksMatrix(attn.F32), "fp16 or bf16")
	for want, spoil := range map[string]func(c *kernel.Capabilities){
		"cooperativeMatrix":        func(c *kernel.Capabilities) { c.Enabled.CooperativeMatrix = false },
		"vulkanMemoryModel":        func(c *kernel.Capabilities) { c.Enabled.VulkanMemoryModel = false },
		"shaderFloat16":            func(c *kernel.Capabilities) { c.Enabled.Float16 = false },
		"shaderInt16":              func(c *kernel.Capabilities) { c.Enabled.Int16 = false },
		"storageBuffer16BitAccess": func(c *kernel.Capabilities) { c.Enabled.Storage16 = false },
		"subgroupSizeControl":      func(c *kernel.Capabilities) { c.Enabled.SubgroupSizeControl = false },
		"computeFullSubgroups":     func(c *kernel.Capabilities) { c.Enabled.ComputeFullSubgroups = false },
		"maintenance4":             func(c *kernel.Capabilities) { c.Enabled.Maintenance4 = false },
		"shuffles":                 func(c *kernel.Capabilities) { c.Facts.Subgroup.Ops = vk.SubgroupBasic },
		"1.3 is needed":            func(c *kernel.Capabilities) { c.Facts.EffectiveVersion = vk.Version12 },
		"push constants":           func(c *kernel.Capabilities) { c.Facts.Limits.MaxPushConstants = 64 },
		"multiplies no":            func(c *kernel.Capabilities) { c.Facts.Matrices = nil },
		"into fp32": func(c *kernel.Capabilities) { // only with fp16 sums, or in whole workgroups
			c.Facts.Matrices = []vk.MatrixShape{{M: 16, N: 16, K: 16, Scope: vk.ScopeSubgroup},
				{M: 16, N: 16, K: 16, C: vk.ComponentF32, Result: vk.ComponentF32, Scope: 2}}
		},
	} {
		c := good()
		spoil(c)
		require.Contains(t, c.LacksMatrix(attn.F16), want)
	}
	c := good()
	c.Enabled.BFloat16CooperativeMatrix = false
	require.Empty(t, c.LacksMatrix(attn.F16))
	require.Contains(t, c.LacksMatrix(attn.BF16), "the device was created without the feature shaderBFloat16CooperativeMatrix")
}

// TestMatrixModulesNeedNoMore: the SPIR-V asks for no capability that Capabilities.LacksMatrix does not look for.
func TestMatrixModulesNeedNoMore(t *testing.T) {
	// SPIR-V's numbers, with what is looked for.
	const bf16Type, bf16Matrix = 5116, 5118
	looked := map[uint32]string{
		1: "Shader", 9: "Float16", 22: "Int16", 61: "GroupNonUniform", 62: "GroupNonUniformVote", 65: "GroupNonUniformShuffle",
		4433: "StorageBuffer16BitAccess", 5345: "VulkanMemoryModel", 6022: "CooperativeMatrixKHR",
	}
	for _, name := range []string{"matrix_probe.f16", "matrix_probe.bf16", "matrix_forward.f16", "matrix_forward.bf16",
		"matrix_forward_wide.f16", "matrix_forward_wide.bf16", "matrix_latent.f16", "matrix_latent.bf16", "matrix_latent_cache.f16",
		"matrix_forward_split.f16", "matrix_forward_split.bf16"} {
		code, err := shaders.Module(name)
		require.NoError(t, err)
		const opCapability = 17
		for at := 5; at < len(code) && code[at]&0xffff == opCapability; at += int(code[at] >> 16) {
			c := code[at+1]
			ok := looked[c] != "" || strings.HasSuffix(name, ".bf16") && (c == bf16Type || c == bf16Matrix)
			require.True(t, ok, "%s: capability %d", name, c)
		}
	}
}

// TestMatrixSelfCheck: a kernel that computes something else than attention is found out before its first use, and the plan
// takes the next tier or says why it cannot. The mistake is a layout that is not the device's, as a driver would make it that
// changed its layout and not its version.
func TestMatrixSelfCheck(t *testing.T) {
	d := matrixDevice(t)
	f := d.env.Caps.Fragments(attn.F16)[0]
	layout, err := d.env.Layout(attn.F16, f)
	require.NoError(t, err)
	if layout.Form == kernel.FormShared {
		t.Skip("this device's layout is not used:", layout.Why)
	}
	key, err := d.env.ProbeKey(attn.F16, f)
	require.NoError(t, err)
	truth := d.env.Recall(key)
	require.NotEmpty(t, truth)
	t.Cleanup(func() { forgetProcess(t) })

	// Rows exchanged in pairs, for accumulator and operand alike.
	var both [2]kernel.HeldElements
	require.NoError(t, json.Unmarshal([]byte(truth), &both))
	for _, held := range both {
		for _, comps := range held {
			for e := range comps {
				comps[e].Row ^= f.M / 2
			}
		}
	}
	wrong, err := json.Marshal(both)
	require.NoError(t, err)
	forgetProcess(t)
	d.env.Remember(key, string(wrong))

	p := Problem{Batch: 1, Heads: 2, QueryLen: 30, HeadDim: 8, DType: F16, Causal: CausalBottomRight}
	_, err = d.Plan(p, WithTier(TierMatrix))
	if err == nil {
		t.Fatal("a kernel with a wrong layout was let through")
	}
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "self-check failed: ")
	require.ErrorContains(t, err, "should be")
	var unsupported *UnsupportedError
	require.ErrorAs(t, err, &unsupported)
	require.True(t, unsupported.Denied, "not what the device lacks")
	_, err = d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 30, HeadDim: 8}, WithTier(TierMatrix), WithImplementation(Flash1))
	require.ErrorAs(t, err, &unsupported)
	require.False(t, unsupported.Denied, "flash1 takes no fp32 there")
	plan := mustPlan(t, d, p)
	require.Equal(t, TierScalar, plan.ForwardInfo().Tier, "the next tier, which the plan says")
	if !isCPU(d) {
		require.Contains(t, plan.String(), "deny-list")
	}
	failed, err := TuneHooks.SelfCheck(bg, d, []Implementation{Flash}, []Tier{TierMatrix})
	require.NoError(t, err)
	at := slices.IndexFunc(slices.Collect(maps.Keys(failed)),
		func(kernel string) bool { return strings.HasPrefix(kernel, "matrix_forward") })
	require.GreaterOrEqual(t, at, 0)
	for _, why := range failed {
		require.Contains(t, why, "self-check failed")
	}

	// Form 3 does not care.
	require.NoError(t, mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"form": kernel.FormShared})).Close())

	forgetProcess(t)
	failed, err = TuneHooks.SelfCheck(bg, d, []Implementation{Flash}, nil)
	require.NoError(t, err)
	require.Empty(t, failed)
}

// TestMatrixVariantRefused: when the variant for unaligned tensors fails its check only while recording, the error says so.
func TestMatrixVariantRefused(t *testing.T) {
	d := matrixDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8, DType: F16}
	plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"decode": 0}))
	m := plan.program.(*pass.Forward)
	key, err := d.env.ProofKey(m.Compiled(kernel.Variant{Aligned: false, LSE: true}))
	require.NoError(t, err)
	d.env.Remember(key, "o is wrong")
	t.Cleanup(func() { forgetProcess(t) })
	s := newSample(t, p)
	odd := func(dtype DType, shape [4]int) *Tensor {
		whole, err := d.NewTensor(dtype, 1, 1, 1, kernel.Product(shape)+1)
		require.NoError(t, err)
		x, err := whole.View(uint64(dtype.Size()), dtype, shape, [4]int{})
		require.NoError(t, err)
		return x
	}
	f := s.tensors(t, d, odd)
	err = plan.Forward(bg, f)
	var unsupported *UnsupportedError
	require.True(t, errors.As(err, &unsupported), "%v", err)
	require.ErrorContains(t, err, "o is wrong")
	d.env.Forget(key)
	require.NoError(t, plan.Forward(bg, f))
	s.check(t, plan, f)
}

// TestSelfChecksTellRightFromWrong: what judges a self-check takes the oracle's own answers, and no others.
func TestSelfChecksTellRightFromWrong(t *testing.T) {
	for _, causal := range []Causal{CausalNone, CausalBottomRight, CausalTopLeft} {
		s := newSample(t, Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 9, KeyLen: 5, HeadDim: 3, ValueDim: 2, DType: F16,
			Causal: causal})
		o, lse := kernel.Float32s(s.o), kernel.Float32s(s.lse)
		judge := func(lse []float32) string {
			wrong, err := kernel.CompareForward(attnOf(s.p), &s.in, o, lse)
			require.NoError(t, err)
			return wrong
		}
		require.Empty(t, judge(lse))
		require.Empty(t, judge(nil))
		nan := lse[0] - lse[0]
		nan /= nan
		for _, bad := range []float32{o[3] + 0.1, nan} {
			was := o[len(o)-1]
			o[len(o)-1] = bad
			require.Contains(t, judge(lse), "o[1, 3, 8, 1]")
			o[len(o)-1] = was
		}
		lse[len(lse)-1] += 0.1
		require.Contains(t, judge(lse), "lse[1, 3, 8, 0]")
	}
}

// TestSelfChecksHaveWhatTheyAreCompiledWith: self-checks drop weights and leave blocks out where the kernel's problem does.
func TestSelfChecksHaveWhatTheyAreCompiledWith(t *testing.T) {
	p, err := Problem{Batch: 3, Heads: 6, KeyHeads: 3, QueryLen: 70, HeadDim: 8, DType: F16, Causal: CausalTopLeft, Dropout: 0.9,
		Blocks: Blocks{Queries: 32, Keys: 16}}.Normalize()
	require.NoError(t, err)
	small := kernel.SelfCheckOf(attnOf(p))
	in := kernel.SelfCheckInputs(&small)
	require.NoError(t, in.Check())
	require.Equal(t, ref.BottomRight, in.Causal)
	draw := kernel.SelfCheckDraw
	require.Equal(t, &ref.Dropout{P: kernel.SelfCheckDropout, Seed: draw.Seed, Offset: draw.Offset}, in.Dropout)
	require.Contains(t, in.Blocks.Data, true)
	require.Contains(t, in.Blocks.Data, false)
	p.Dropout, p.Blocks = 0.001, Blocks{} // no byte of a draw is below 0.001 · 256
	small = kernel.SelfCheckOf(attnOf(p))
	in = kernel.SelfCheckInputs(&small)
	require.Nil(t, in.Dropout)
	require.Nil(t, in.Blocks)
}

// TestMatrixSteadyState: recording for other tensors allocates nothing.
func TestMatrixSteadyState(t *testing.T) {
	d := matrixDevice(t)
	s := newSample(t, Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 8, DType: F16})
	requireSteadyState(t, d, s, mustPlan(t, d, s.p, WithTier(TierMatrix)))
}

// TestMatrixAttached: on a device of the caller's, Plan checks both variants of alignment, since recording must not submit.
func TestMatrixAttached(t *testing.T) {
	own := matrixDevice(t)
	d, err := Attach(own.External(), WithoutDiskCache())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	p := Problem{Batch: 1, Heads: 1, QueryLen: matrix.DecodeRows + 1, HeadDim: 8, DType: F16}
	forgetProcess(t)
	m := mustPlan(t, d, p, WithTier(TierMatrix)).program.(*pass.Forward)
	for _, aligned := range []bool{true, false} {
		key, err := d.env.ProofKey(m.Compiled(kernel.Variant{Aligned: aligned, LSE: true}))
		require.NoError(t, err)
		require.Equal(t, kernel.Passed, d.env.Recall(key))
	}
}

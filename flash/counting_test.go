package flash

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/shaders/counting"
	"github.com/vkattn/vkattn/vk"
)

// countedTensors are the tensors of shaders/include/count.glsl in its order.
var countedTensors = []string{"q", "k", "v", "o", "lse", "g", "x", "y", "delta", "scores", "gradients", "statistics", "sums"}

// counts is where the kernels of a device add up the bytes that they move, by label of the dispatches.
type counts struct {
	t      testing.TB
	dev    *Device
	buffer *pipeline.Buffer
	labels []string
}

const (
	countRegion = 1024 // bytes for a label; a multiple of every device's alignment of bindings
	countLabels = 32
)

// countingDevice is a test device whose kernels count.
func countingDevice(t testing.TB) (*Device, *counts) {
	d := testDevice(t)
	c := &counts{t: t, dev: d}
	var err error
	c.buffer, err = d.env.Ctx.Alloc("counts", countRegion*countLabels, vk.DeviceLocal)
	require.NoError(t, err)
	t.Cleanup(c.buffer.Close)
	d.env.Counting = &kernel.CountingBuilds{Counts: c.place, Modules: counting.Modules}
	return d, c
}

func (c *counts) place(label string) pipeline.Binding {
	i := slices.Index(c.labels, label)
	if i < 0 {
		i = len(c.labels)
		require.Less(c.t, i, countLabels)
		c.labels = append(c.labels, label)
	}
	return pipeline.Binding{Buffer: c.buffer.Buffer, Offset: uint64(i * countRegion), Size: countRegion}
}

// moved is bytes that were loaded, stored, and loaded only to be thrown away.
type moved struct{ read, written, idle float64 }

// during gives what each label's dispatches move of each tensor while f runs.
func (c *counts) during(f func()) map[string]map[string]moved {
	require.NoError(c.t, c.dev.env.Ctx.Upload(bg, c.buffer.All(), make([]byte, countRegion*countLabels)))
	f()
	raw := make([]byte, countRegion*countLabels)
	require.NoError(c.t, c.dev.env.Ctx.Download(bg, c.buffer.All(), raw))
	all := map[string]map[string]moved{}
	for i, label := range c.labels {
		tensors := map[string]moved{}
		for j, name := range countedTensors {
			at := func(k int) float64 { return float64(binary.LittleEndian.Uint64(raw[i*countRegion+8*(3*j+k):])) }
			if m := (moved{at(0), at(1), at(2)}); m != (moved{}) {
				tensors[name] = m
			}
		}
		if len(tensors) > 0 {
			all[label] = tensors
		}
	}
	return all
}

// total adds up what is moved of these tensors.
func total(by map[string]moved, tensors ...string) (sum moved) {
	for _, name := range tensors {
		m := by[name]
		sum.read += m.read
		sum.written += m.written
		sum.idle += m.idle
	}
	return sum
}

// modelled are the bytes of a kernel's steps, of all of them unless some are named.
func modelled(steps []traffic.Step, kernel string, names ...string) (sum moved) {
	for _, s := range steps {
		if s.Kernel == kernel && (len(names) == 0 || slices.Contains(names, s.Name)) {
			sum.read += s.Read
			sum.written += s.Written
		}
	}
	return sum
}

// equalBytes compares without what is thrown away.
func equalBytes(t *testing.T, model, counted moved, what string) {
	t.Helper()
	counted.idle = 0
	require.Equal(t, counted, model, "%s: bytes counted, and the model's", what)
}

// forward runs a forward pass and compares what its kernels count with the plan's model: dispatch by dispatch and, of a kernel that does
// several steps, tensor by tensor.
func (c *counts) forward(t *testing.T, plan *Plan, f Forward, call traffic.Call) {
	t.Helper()
	steps, err := plan.program.Model().Steps(plan.attn, call)
	require.NoError(t, err)
	counted := c.during(func() { require.NoError(t, plan.Forward(bg, f)) })
	eachDispatch(t, steps, counted)
	kernel := steps[0].Kernel
	by := counted[kernel]
	if plan.Implementation() == Standard {
		equalBytes(t, modelled(steps, kernel, traffic.StepScores), total(by, countedTensors...), "scores")
		return
	}
	equalBytes(t, modelled(steps, kernel, traffic.StepScores), total(by, "q", "k"), "Q and K")
	equalBytes(t, modelled(steps, kernel, traffic.StepSoftmax), total(by, "lse", "statistics"), "lse, m and l")
	equalBytes(t, modelled(steps, kernel, traffic.StepValues), total(by, "v", "o", "sums"), "V and O")
	all := total(by, countedTensors...)
	if plan.Problem() == countedProblems["whole"] {
		t.Logf("%s: %.0f of %.0f bytes loaded for nothing", plan.ForwardInfo().Kernel, all.idle, all.read)
	}
}

// eachDispatch compares all that the dispatches of each label count with the steps that name it. Steps name every label, and no other.
func eachDispatch(t *testing.T, steps []traffic.Step, counted map[string]map[string]moved) {
	t.Helper()
	named := map[string]bool{}
	for _, s := range steps {
		named[s.Kernel] = true
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(counted)), slices.Collect(maps.Keys(named)),
		"labels of dispatches, and those that steps name")
	for label, by := range counted {
		equalBytes(t, modelled(steps, label), total(by, countedTensors...), label)
	}
}

var countedProblems = map[string]Problem{
	"ragged":    {Batch: 1, Heads: 2, QueryLen: 71, KeyLen: 53, HeadDim: 8, ValueDim: 16, DType: F16},
	"unaligned": {Batch: 1, Heads: 1, QueryLen: 37, KeyLen: 83, HeadDim: 19, ValueDim: 9, DType: F16, Causal: CausalBottomRight},
	"grouped":   {Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 67, KeyLen: 67, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
	"narrow": {Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 67, KeyLen: 67, HeadDim: 8, ValueDim: 16, DType: F16,
		Causal: CausalBottomRight},
	"one query":   {Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 1, KeyLen: 100, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
	"few":         {Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 33, HeadDim: 19, ValueDim: 12, DType: F16, Causal: CausalTopLeft},
	"unseen":      {Batch: 1, Heads: 1, QueryLen: 90, KeyLen: 20, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
	"unseen keys": {Batch: 1, Heads: 1, QueryLen: 40, KeyLen: 150, HeadDim: 16, DType: F16, Causal: CausalTopLeft},
	"whole":       {Batch: 1, Heads: 1, QueryLen: 128, KeyLen: 128, HeadDim: 16, ValueDim: 24, DType: F16},
	"window":      {Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 130, KeyLen: 150, HeadDim: 8, DType: F16, Window: SlidingWindow(30, 9)},
	"near": {Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 133, HeadDim: 19, ValueDim: 12, DType: F16,
		Window: SlidingWindow(40, -1)},
	"fp32": {Batch: 1, Heads: 2, QueryLen: 39, KeyLen: 45, HeadDim: 12, ValueDim: 18, DType: F32, Causal: CausalBottomRight},
}

// countedAlways are those of which -short counts the forward pass: lengths and dimensions that no tile divides, few rows and both sizes of
// numbers; the ways below run the others.
var countedAlways = map[string]bool{"ragged": true, "few": true, "fp32": true}

// waysAlways are those of matrix_forward that -short runs: the next tile in registers and in shared memory, and wide heads.
var waysAlways = map[string]bool{"a tile ahead": true, "two tiles ahead": true, "wide heads": true}

// waysLong are those of the scalar tier that -short leaves out: each is two of the others together, or one with other numbers.
var waysLong = map[string]bool{"few rows, apart": true, "few rows, more parts than keys": true, "few rows in tiles": true,
	"parts, Q again": true}

// TestForwardMovesWhatTheModelSays: for every implementation and tier, the bytes that builds of its kernels count equal the
// byte model's, tensor by tensor.
func TestForwardMovesWhatTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	run := func(t *testing.T, p Problem, opts ...PlanOption) {
		plan, err := d.Plan(p, opts...)
		if errors.Is(err, ErrUnsupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		defer plan.Close()
		s := newSample(t, p)
		f := s.tensors(t, d, plainly(t, d))
		defer closeAll(t, f.Q, f.K, f.V, f.O, f.LSE)
		c.forward(t, plan, f, traffic.Call{LSE: true})
		s.check(t, plan, f)
	}
	for name, p := range countedProblems {
		t.Run(name, func(t *testing.T) {
			if !countedAlways[name] {
				vktest.Long(t, "some of the problems")
			}
			everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
				if name != "ragged" && !strings.HasSuffix(t.Name(), "/"+Flash.String()+"-scalar") {
					vktest.Long(t, "one problem of every kernel, the others of one")
				}
				if p.DType == F32 && strings.HasSuffix(t.Name(), "-matrix") {
					t.Skip("one of the ways below")
				}
				if slowCompiler(d) && name != "ragged" && strings.HasSuffix(t.Name(), "-matrix") {
					t.Skip("it takes a CPU too long to compile")
				}
				run(t, p, opts...)
			})
		})
	}
	problems := maps.Clone(countedProblems)
	// whole tiles of 16
	problems["diagonal"] = Problem{Batch: 1, Heads: 2, QueryLen: 70, KeyLen: 80, HeadDim: 8, DType: F16, Causal: CausalTopLeft}
	problems["wide"] = Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 21, KeyLen: 45, HeadDim: 264, ValueDim: 24, DType: F16,
		Causal: CausalBottomRight}
	problems["wide, unaligned"] = Problem{Batch: 1, Heads: 2, QueryLen: 60, KeyLen: 37, HeadDim: 261, ValueDim: 29, DType: F16,
		Causal: CausalBottomRight}
	problems["whole"], problems["narrow"] = narrowed(problems["whole"]), narrowed(problems["narrow"])
	for _, v := range []struct {
		name     string
		problems []string
		impl     Implementation
		tier     Tier
		tune     map[string]int
	}{
		{"Q again", []string{"grouped", "whole"}, Flash, TierScalar, map[string]int{"q_resident": 0, "v_early": 0, "dk": 8}},
		{"few rows, parts", []string{"few", "one query", "near"}, Flash, TierScalar, map[string]int{"decode": 1, "parts": 3, "w": 2}},
		{"few rows, apart", []string{"few"}, Flash, TierScalar, map[string]int{"rows": 4, "lpr": 4, "u": 2}},
		{"few rows, more parts than keys", []string{"few"}, Flash, TierScalar, map[string]int{"parts": 40}},
		{"few rows on matrices", []string{"few", "one query", "near"}, Flash, TierMatrix, map[string]int{"decode": 1}},
		{"few rows on matrices, parts", []string{"few", "near"}, Flash, TierMatrix, map[string]int{"decode": 1, "parts": 3, "w": 2}},
		{"few rows in tiles", []string{"one query", "few"}, Flash, TierScalar, map[string]int{"decode": 0}},
		{"V again", []string{"ragged", "grouped", "window"}, Flash1, TierScalar, map[string]int{"vc": 4}},
		{"rows read twice", []string{"ragged", "grouped"}, Standard, TierScalar, map[string]int{"row_threads": 1}},
		{"slabs of rows", []string{"ragged", "grouped"}, Standard, TierScalar, map[string]int{"max_slab": 10000}},
		{"a tile ahead", []string{"whole"}, Flash, TierMatrix, map[string]int{"prefetch": 1}},
		{"keys ahead", []string{"narrow"}, Flash, TierMatrix, map[string]int{"prefetch": 2, "form": 3}},
		{"two tiles ahead", []string{"narrow"}, Flash, TierMatrix, map[string]int{"prefetch": 3, "form": 2}},
		{"at the tile's start", []string{"narrow", "diagonal"}, Flash, TierMatrix, map[string]int{"prefetch": 4, "bc": 2, "steps": 1,
			"whole": 1}},
		{"under a branch", []string{"diagonal", "ragged", "window"}, Flash, TierMatrix, map[string]int{"prefetch": 5, "bc": 2, "steps": 1,
			"whole": 1}},
		{"again", []string{"diagonal"}, Flash, TierMatrix, map[string]int{"prefetch": 3, "bc": 2, "steps": 1, "whole": 1}},
		{"masked tiles first", []string{"diagonal", "window", "narrow", "ragged"}, Flash, TierMatrix,
			map[string]int{"late": 3, "prefetch": 3, "bc": 2}},
		{"masked tiles first, one ahead", []string{"whole", "window"}, Flash, TierMatrix, map[string]int{"late": 3, "prefetch": 1}},
		{"parts", []string{"ragged", "grouped", "unseen", "fp32", "window"}, Flash, TierScalar, map[string]int{"parts": 3, "decode": 0}},
		{"parts, Q again", []string{"unaligned", "whole"}, Flash, TierScalar,
			map[string]int{"parts": 7, "q_resident": 0, "v_early": 0, "dk": 8}},
		{"parts", []string{"narrow", "ragged", "one query"}, Flash, TierMatrix, map[string]int{"parts": 3, "bc": 2, "prefetch": 1}},
		{"parts again", []string{"diagonal"}, Flash, TierMatrix, map[string]int{"parts": 2, "prefetch": 3, "bc": 2, "steps": 1,
			"whole": 1}},
		{"more parts than tiles", []string{"whole"}, Flash, TierMatrix, map[string]int{"parts": 20, "bc": 2}},
		{"split", []string{"fp32"}, Flash, TierMatrix, map[string]int{"terms": 2, "prefetch": 1}},
		{"wide heads", []string{"wide", "wide, unaligned"}, Flash, TierMatrix, map[string]int{"prefetch": 1, "decode": 0}},
		{"wide heads, parts", []string{"wide", "wide, unaligned"}, Flash, TierMatrix, map[string]int{"prefetch": 3, "parts": 2,
			"decode": 0}},
		{"wide heads, few rows", []string{"wide", "wide, unaligned"}, Flash, TierMatrix, map[string]int{"parts": 2, "decode": 1}},
		{"wide heads", []string{"wide"}, Flash, TierScalar, map[string]int{"decode": 0}},
		{"runs", []string{"ragged", "whole", "grouped", "window"}, Standard, TierMatrix, map[string]int{"run": 3, "fc": 1}},
	} {
		t.Run(v.name, func(t *testing.T) {
			for i, name := range v.problems {
				t.Run(name, func(t *testing.T) {
					if i > 0 || v.tier == TierMatrix && v.impl == Flash && !waysAlways[v.name] || waysLong[v.name] {
						vktest.Long(t, "one problem of each way, and of each kind on matrices one way")
					}
					vktest.Budget(t)
					tile := v.tune
					if v.tier == TierMatrix {
						tile = forwardTile(t, d, v.impl, problems[name], tile)
					}
					run(t, problems[name], WithImplementation(v.impl), WithTier(v.tier), WithTuning(tile))
				})
			}
		})
	}
}

// countBackward runs the plan's backward pass, after a forward pass, and gives what each label's dispatches move.
func countBackward(t *testing.T, c *counts, plan *Plan, accumulate bool, mask *BlockMask) map[string]map[string]moved {
	p := plan.Problem()
	make := plainly(t, c.dev)
	f := newSample(t, p).tensors(t, c.dev, make)
	weights, err := plan.NewWeights()
	require.NoError(t, err)
	f.Weights, f.Blocks = weights, mask
	filled(t, c.dev, p, &f)
	b := Backward{Forward: f, Accumulate: accumulate}
	b.DO, b.DQ, b.DK, b.DV = make(p.DType, p.OShape()), make(p.DType, p.QShape()), make(p.DType, p.KShape()), make(p.DType, p.VShape())
	if accumulate {
		b.DLSE = make(F32, p.LSEShape())
	}
	defer func() {
		closeAll(t, f.Q, f.K, f.V, f.O, f.LSE, b.DO, b.DQ, b.DK, b.DV, b.DLSE)
		require.NoError(t, weights.Close())
	}()
	pending, err := plan.SubmitForward(f)
	require.NoError(t, err)
	require.NoError(t, pending.Wait(bg))
	return c.during(func() { require.NoError(t, plan.Backward(bg, b)) })
}

// backwardSteps are the steps of a plan's backward pass.
func backwardSteps(plan *Plan, call traffic.Call) ([]traffic.Step, error) {
	c, err := plan.backward()
	if err != nil {
		return nil, err
	}
	return c.program.Model().Steps(plan.attn, call)
}

// backwardMoves compares what the kernels of a plan's backward pass count with what its model says.
func backwardMoves(t *testing.T, c *counts, plan *Plan, call traffic.Call, mask *BlockMask) {
	t.Helper()
	steps, err := backwardSteps(plan, call)
	if errors.Is(err, ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	counted := countBackward(t, c, plan, call.Accumulate, mask)
	eachDispatch(t, steps, counted)
	model, fused := plan.gradient.is.program.Model().(traffic.BackwardFused)
	if !fused {
		kernels := 5
		if _, keeping := plan.gradient.is.program.Model().(traffic.BackwardKeeping); keeping {
			kernels = 3
		}
		if !plan.problem.ScoreFunction.UnitSlope() {
			kernels++
		}
		require.Len(t, counted, kernels)
		return
	}
	require.Len(t, counted, 3)
	for _, kernel := range []string{model.Keys.Label, model.Queries.Label} {
		by := counted[kernel]
		equalBytes(t, modelled(steps, kernel, traffic.StepScoresAgain, traffic.StepKeyGrads, traffic.StepQueryGrads),
			total(by, "q", "k", "x"), kernel+": Q, K and their gradients")
		equalBytes(t, modelled(steps, kernel, traffic.StepWeightGrads, traffic.StepValueGrads), total(by, "v", "g", "y"),
			kernel+": V, dO and dV")
		equalBytes(t, modelled(steps, kernel, traffic.StepWeightsAgain), total(by, "lse", "delta"), kernel+": lse and δ")
	}
}

// TestBackwardMovesWhatTheModelSays is the same of the backward pass.
func TestBackwardMovesWhatTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	run := func(t *testing.T, p Problem, accumulate bool, impl Implementation, tier Tier, opts ...PlanOption) {
		var plan *Plan
		if impl == Standard { // whose backward pass has the weights that its forward pass kept
			plan = mustPlan(t, d, p, append(opts, WithImplementation(impl), WithTier(tier))...)
		} else {
			plan = planGradients(t, d, p, tier, opts...)
		}
		defer plan.Close()
		backwardMoves(t, c, plan, traffic.Call{Accumulate: accumulate, DLSE: accumulate}, nil)
	}
	for name, p := range countedProblems {
		for _, impl := range []Implementation{Flash, Standard} {
			for _, tier := range []Tier{TierScalar, TierMatrix} {
				if tier == TierMatrix && (p.DType == F32 || slowCompiler(d) && name != "ragged") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%v/%s", name, impl, tier), func(t *testing.T) {
					if name != "ragged" && (name != "fp32" || impl != Flash) {
						vktest.Long(t, "one problem of every kernel, one with other numbers and dimensions of one")
					}
					vktest.Budget(t)
					run(t, p, false, impl, tier)
				})
			}
		}
	}
	sums := countedProblems["grouped"]
	if testing.Short() {
		sums.HeadDim, sums.ValueDim, sums.Causal = 8, 16, CausalNone // kernels that "ragged" has
	}
	for _, slab := range []int{5000, 30000} { // rows of a head; three heads, where a key head has two
		t.Run(fmt.Sprintf("slabs of %d", slab), func(t *testing.T) {
			if slab > 5000 {
				vktest.Long(t, "slabs of rows")
			}
			run(t, sums, false, Standard, TierScalar, WithTuning(map[string]int{"max_slab": slab}))
		})
	}
	t.Run("capped/standard", func(t *testing.T) { // the scores are made again, for the derivative
		capped := sums
		capped.ScoreFunction = score.Softcap(2)
		run(t, capped, false, Standard, TierScalar)
	})
	t.Run("added/standard", func(t *testing.T) {
		run(t, sums, true, Standard, TierScalar)
	})
	for _, v := range []struct {
		name       string
		tier       Tier
		accumulate bool
		tune       map[string]int
	}{
		{"added", TierScalar, true, nil},
		{"pieces", TierScalar, false, map[string]int{"kv_dk": 8, "kv_vc": 4, "q_dk": 8, "q_vc": 4}},
		{"added, ahead", TierMatrix, true, map[string]int{"kv_prefetch": 1, "q_prefetch": 1}},
		{"two tiles", TierMatrix, true, map[string]int{"kv_prefetch": 2, "q_prefetch": 2, "kv_bc": 2, "kv_ck": 2, "q_bc": 2, "q_ck": 2}},
		{"apart", TierMatrix, false, map[string]int{"kv_split": 1, "form": 3}},
		{"by slabs", TierMatrix, true, map[string]int{"slabs": 1, "max_slab": 2 * 67 * 72 * 2}},
		{"dS in memory", TierMatrix, true, map[string]int{"keep_ds": 1}},
	} {
		names := []string{"grouped", "unaligned"}
		if slowCompiler(d) {
			names = names[:1]
			if v.tier == TierMatrix {
				names = []string{"narrow"}
			}
		}
		for _, name := range names {
			t.Run(fmt.Sprintf("%s/%s/%s", v.name, name, v.tier), func(t *testing.T) {
				if v.tier == TierMatrix {
					vktest.Long(t, "on matrices without tuning")
				}
				vktest.Budget(t)
				p := countedProblems[name]
				if testing.Short() && v.tune == nil {
					p = sums
				}
				tile := v.tune
				switch {
				case tile["keep_ds"] != 0: // which other GPUs may not have
					tile = inFragments(&d.env.Caps, tile)
				case v.tier == TierMatrix:
					tile = backwardTile(t, d, Flash, p, tile)
				}
				var opts []PlanOption
				if tile != nil {
					opts = append(opts, WithBackwardTuning(tile))
				}
				run(t, p, v.accumulate, Flash, v.tier, opts...)
			})
		}
	}
}

// TestWideBackwardMovesAsTheModelSays: kernels that stage slices of rows, and products side by side, load and store what the model says.
func TestWideBackwardMovesAsTheModelSays(t *testing.T) {
	vktest.Long(t, "what kernels move is counted by the whole suite alone")
	d, c := countingDevice(t)
	for prefetch, p := range []Problem{
		{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 41, KeyLen: 53, HeadDim: 264, ValueDim: 24, DType: F16, Causal: CausalBottomRight},
		{Batch: 1, Heads: 2, QueryLen: 67, KeyLen: 72, HeadDim: 16, ValueDim: 272, DType: F16, Window: SlidingWindow(9, 5)},
	} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			vktest.Budget(t)
			tile := backwardTile(t, d, Flash, p, map[string]int{"weights_w": 2, "weights_rm": 1, "weights_bc": 2, "weights_ck": 2,
				"weights_slice": 2, "slabs": 1, "weights_prefetch": prefetch})
			plan := planGradients(t, d, p, TierMatrix, WithBackwardTuning(tile))
			defer plan.Close()
			backwardMoves(t, c, plan, traffic.Call{Accumulate: prefetch > 0, DLSE: prefetch > 0}, nil)
		})
	}
}

// slowCompiler says whether the driver runs, and takes seconds to compile, on a CPU: there one problem is enough on matrices.
func slowCompiler(d *Device) bool { return d.env.Caps.Facts.Type == vk.DeviceCPU }

func closeAll(t testing.TB, tensors ...*Tensor) {
	for _, x := range tensors {
		if x != nil {
			require.NoError(t, x.Close())
		}
	}
}

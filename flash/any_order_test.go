package flash

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestAnyOrder runs the backward pass in one kernel with atomic additions on a device with synchronization validation, which sees the filling, the
// additions of several dispatches and the rounding, and compares with the scalar tier: keys in registers and in shared memory, more subgroups than
// columns and fewer, one chunk a tile and several, dk and dv apart, forms through shared memory.
func TestAnyOrder(t *testing.T) {
	vktest.Budget(t)
	var messages []Message
	d, err := Open(WithoutDiskCache(), WithValidation(func(m Message) { messages = append(messages, m) }), WithSyncValidation())
	if errors.Is(err, vk.ErrLayerMissing) && os.Getenv("VKATTN_REQUIRE_VALIDATION") != "1" || errors.Is(err, ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	for i, c := range []struct {
		p      Problem
		tuning map[string]int
	}{
		{Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 45, KeyLen: 37, HeadDim: 8, ValueDim: 16, Causal: CausalBottomRight}, map[string]int{"kv_w": 3, "kv_k_reg": 2, "max_groups": 3}},
		{Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 20, KeyLen: 23, HeadDim: 16}, map[string]int{"kv_k_reg": 2, "kv_prefetch": 1, "kv_split": 1}},
		{Problem{Batch: 1, Heads: 2, QueryLen: 45, KeyLen: 53, HeadDim: 12, ValueDim: 8, Causal: CausalTopLeft}, map[string]int{"kv_w": 2, "kv_bc": 2, "kv_ck": 2, "kv_k_reg": 1}},
		{Problem{Batch: 1, Heads: 2, QueryLen: 45, KeyLen: 53, HeadDim: 8, Dropout: 0.25}, map[string]int{"kv_w": 5, "kv_rm": 2, "kv_prefetch": 2, "kv_bc": 2, "kv_ck": 1}},
		{Problem{Batch: 1, Heads: 2, QueryLen: 45, KeyLen: 53, HeadDim: 8, Window: SlidingWindow(9, 4)}, map[string]int{"form": 2}},
		{Problem{Batch: 1, Heads: 2, QueryLen: 45, KeyLen: 53, HeadDim: 13}, map[string]int{"form": 3, "kv_prefetch": 1}},
	} {
		c.p.DType = F16
		t.Run(fmt.Sprint(c.p, c.tuning), func(t *testing.T) {
			if i > 0 {
				vktest.Long(t, "one form of the kernel")
			}
			vktest.Budget(t)
			c.tuning["one"] = 1
			anyOrder(t, d, c.p, c.tuning)
		})
	}
	require.NoError(t, d.Close())
	require.Empty(t, messages)
}

// anyOrder runs passes of one plan that are in flight together, then one that adds to what is there, and compares all with the scalar tier's.
func anyOrder(t *testing.T, d *Device, p Problem, tuning map[string]int) {
	scalar := mustPlan(t, d, p, WithTier(TierScalar))
	defer scalar.Close()
	_, b := newBackwardSample(t, d, scalar, F16)
	plan := planGradients(t, d, p, TierMatrix, WithAnyOrder(), WithBackwardTuning(backwardTile(t, d, Flash, p, tuning)))
	defer plan.Close()
	info := backwardInfo(t, plan)
	if why := d.env.Caps.LacksAtomicAdd(); why != "" {
		t.Skip(why)
	}
	require.True(t, info.AnyOrder, "%s: %v", info.Kernel, info.WhyNotFaster)
	require.Equal(t, "matrix_backward_atomic", info.KernelName)

	right := func() [3][]float32 { return [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)} }
	require.NoError(t, scalar.Backward(bg, b))
	want := right()
	near := func(want, got [3][]float32, tolerance float64) {
		t.Helper()
		for i := range want {
			require.InDeltaSlice(t, doubles(want[i]), doubles(got[i]), tolerance, "gradient %d", i)
		}
	}

	// Each recording has its own sums; what one of them left from an earlier run counts for nothing.
	own := b
	mk := plainly(t, d)
	own.DQ, own.DK, own.DV = mk(F16, plan.Problem().QShape()), mk(F16, plan.Problem().KShape()), mk(F16, plan.Problem().VShape())
	before := d.Usage()
	var recordings [2]*Recording
	for i, x := range []Backward{b, own} {
		var err error
		recordings[i], err = plan.NewRecording(ForBackward())
		require.NoError(t, err)
		require.NoError(t, recordings[i].Backward(x))
	}
	f := matrixFragment(d)
	rows, columns := (p.QueryLen+f.M-1)/f.M*f.M, (p.HeadDim+f.N-1)/f.N*f.N
	require.GreaterOrEqual(t, info.WorkspaceBytes, uint64(4*p.Batch*p.Heads*rows*columns), "dq in fp32")
	require.GreaterOrEqual(t, d.Usage().Current-before.Current, 2*info.WorkspaceBytes)
	for range 2 {
		var pending [2]Pending
		for i, r := range recordings {
			var err error
			pending[i], err = r.Submit()
			require.NoError(t, err)
		}
		for _, x := range pending {
			require.NoError(t, x.Wait(bg))
		}
		near(want, right(), 4e-3)
		near(want, [3][]float32{download(t, own.DQ), download(t, own.DK), download(t, own.DV)}, 4e-3)
	}
	for _, r := range recordings {
		require.NoError(t, r.Close())
	}
	if testing.Short() {
		return
	}
	b.Accumulate = true
	require.NoError(t, scalar.Backward(bg, b))
	want = right()
	for i, g := range []*Tensor{b.DQ, b.DK, b.DV} { // as it was before that
		require.NoError(t, g.Upload(bg, [][]float32{download(t, own.DQ), download(t, own.DK), download(t, own.DV)}[i]))
	}
	require.NoError(t, plan.Backward(bg, b))
	near(want, right(), 1e-2)
}

// TestAnyOrderIsAllowed: nothing changes without the request; with it the plan says why it did not follow; and nobody insists without it.
func TestAnyOrderIsAllowed(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 20, HeadDim: 8, DType: F16}
	plain := mustPlan(t, d, p)
	defer plain.Close()
	asked := mustPlan(t, d, p, WithAnyOrder(), WithBackwardTuning(map[string]int{"one": 0}))
	defer asked.Close()
	was, err := plain.BackwardInfo()
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(was.WhyNotFaster), "atomic")
	require.False(t, was.AnyOrder)
	_, err = asked.BackwardInfo()
	if was.Tier == TierScalar { // a CPU, or a device without matrices: scalar kernels have no such parameter
		require.ErrorContains(t, err, "WithBackwardTuning[one] is 0: scalar_backward has no such parameter")
	} else {
		require.NoError(t, err)
	}
	allowed := mustPlan(t, d, p, WithAnyOrder())
	defer allowed.Close()
	info, err := allowed.BackwardInfo()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(info.WhyNotFaster), "matrix_backward_atomic: ", "no tiles take it by themselves")
	require.Equal(t, was.Kernel, info.Kernel)
	require.Equal(t, was.WorkspaceBytes, info.WorkspaceBytes)
	without := maps.Clone(info.Tuning)
	delete(without, "one")
	require.Equal(t, was.Tuning, without)

	_, err = d.Plan(p, WithAnyOrder(), WithBackwardTuning(map[string]int{"one": 2}))
	require.ErrorIs(t, err, ErrArgument)
	insists := planGradients(t, d, p, TierMatrix, WithBackwardTuning(map[string]int{"one": 1}))
	defer insists.Close()
	_, err = insists.BackwardInfo()
	if !errors.Is(err, ErrUnsupported) {
		require.ErrorIs(t, err, ErrArgument)
		require.ErrorContains(t, err, "WithBackwardTuning[one] is 1: sums dq in an order that differs from run to run, which WithAnyOrder must allow")
	}
}

// TestAnyOrderNeedsTheFeature: a device that was opened or attached without atomic additions has kernels that need none.
func TestAnyOrderNeedsTheFeature(t *testing.T) {
	c := *h200()
	f := *c.Facts
	c.Facts = &f
	lacks := func() string { return c.LacksAtomicAdd() }
	require.Equal(t, "the device lacks the feature shaderBufferFloat32AtomicAdd", lacks())
	f.Features.AtomicAddF32 = true
	require.Equal(t, "the device was created without the feature shaderBufferFloat32AtomicAdd, which it supports", lacks())
	c.Enabled.AtomicAddF32 = true
	require.Empty(t, lacks())
}

// TestAnyOrderTiles: no tiles of the device that it was timed on take it by themselves, for it was slower; and what fits there where the caller insists.
func TestAnyOrderTiles(t *testing.T) {
	c, s := h200(), kernel.Fragment{M: 16, N: 16, K: 16, Lanes: 32}
	layout := layoutOf(t, "NVIDIA 16x16x16")
	choose := func(dim, keys int, given map[string]int) (matrix.BackwardTile, error) {
		p, err := Problem{Batch: 2, Heads: 16, QueryLen: keys, HeadDim: dim, DType: F16}.Normalize()
		require.NoError(t, err)
		return matrix.ChooseAtomicTile(c, attnOf(p), layout, s, kernel.FormRegisters, kernel.NewBackwardTuning(given))
	}
	for dim, fits := range map[int]bool{64: true, 80: true, 96: true, 128: true, 192: false, 256: false} {
		var no *kernel.Declined
		for _, keys := range []int{512, 8192} {
			_, err := choose(dim, keys, nil)
			require.ErrorAs(t, err, &no, dim)
			require.Contains(t, no.Why, "WithBackwardTuning[one] = 1 insists")
		}
		tile, err := choose(dim, 8192, map[string]int{"one": 1})
		require.NoError(t, err, dim)
		if fits {
			require.Equal(t, [2]int{8, 8}, [2]int{tile.W, tile.KReg}, "128 keys, all of them in registers")
		}
		_, err = choose(dim, 8192, map[string]int{"one": 0})
		require.ErrorAs(t, err, &no, dim)
	}
	for _, given := range []map[string]int{{"kv_k_reg": 9}, {"kv_k_reg": 0, "kv_bc": 128, "kv_w": 8}, {"kv_w": 1, "kv_rm": 1, "kv_k_reg": 2}} {
		given["one"] = 1
		_, err := choose(64, 8192, given)
		require.ErrorIs(t, err, ErrArgument, "%v", given)
	}
}

// TestAnyOrderMovesWhatTheModelSays: the bytes that builds of the kernels count, atomic additions among them, equal the model's. The filling is no
// kernel.
func TestAnyOrderMovesWhatTheModelSays(t *testing.T) {
	vktest.Long(t, "kernels that count are further kernels to compile")
	d, c := countingDevice(t)
	for _, v := range []struct {
		problem string
		tuning  map[string]int
	}{{"narrow", map[string]int{}}, {"ragged", map[string]int{"kv_split": 1, "kv_prefetch": 2}}} {
		t.Run(v.problem, func(t *testing.T) {
			vktest.Budget(t)
			v.tuning["one"] = 1
			plan := planGradients(t, d, countedProblems[v.problem], TierMatrix, WithAnyOrder(), WithBackwardTuning(v.tuning))
			defer plan.Close()
			steps, err := plan.BackwardWork(Call{})
			if errors.Is(err, ErrUnsupported) {
				t.Skip(err)
			}
			require.NoError(t, err)
			model, ok := plan.gradient.program.Model().(traffic.BackwardAtomic)
			require.True(t, ok, plan.gradient.reasons)
			counted := countBackward(t, c, plan, false, nil)
			ofKernels := slices.DeleteFunc(slices.Clone(steps), func(s Work) bool { return s.Kernel == model.Zero })
			require.Len(t, ofKernels, len(steps)-1)
			eachDispatch(t, ofKernels, counted)
			added := modelled(steps, model.Keys.Label, traffic.StepQueryGrads)
			require.Equal(t, added.written, counted[model.Keys.Label]["sums"].written)
			require.Equal(t, modelled(steps, model.Zero).written, counted[model.Sum]["sums"].read)
		})
	}
}

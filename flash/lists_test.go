package flash

import (
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// listSample is a problem with lists, and inputs drawn.
func listSample(t *testing.T, d *Device, p Problem) (Problem, Forward) {
	t.Helper()
	p, err := p.Normalize()
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(5, 6))
	filled := func(dtype DType, shape [4]int, value func(i int) float32) *Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		values := make([]float32, x.Elements())
		for i := range values {
			values[i] = value(i)
		}
		require.NoError(t, x.Upload(bg, values))
		return x
	}
	normal := func(int) float32 { return float32(r.NormFloat64()) }
	nan := func(int) float32 { return float32(math.NaN()) }
	all := p.attn()
	return p, Forward{Q: filled(p.DType, p.QShape(), normal), K: filled(p.DType, p.KShape(), normal),
		V: filled(p.DType, p.VShape(), normal),
		O: filled(p.DType, p.OShape(), nan), LSE: filled(F32, p.LSEShape(), nan),
		Lists: filled(Int32, all.ListsShape(), func(int) float32 { return float32(r.IntN(p.KeyLen)) })}
}

// TestListsInAnyOrder: a list that is turned round, and has entries that are no key between others, is the same list up to rounding; one of
// all keys is no list; and of one key the output is its value.
func TestListsInAnyOrder(t *testing.T) {
	d := testDevice(t)
	const keys, entries = 50, 128
	p, f := listSample(t, d, Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 7, KeyLen: keys, HeadDim: 16, DType: F32,
		Lists: Lists{Keys: entries, PerHead: true}})
	plan := mustPlan(t, d, p)
	require.Contains(t, plan.ForwardInfo().Kernel, "scalar_decode")
	numbers := make([]float32, f.Lists.Elements())
	run := func(entry func(list, n int) int) (o, lse []float32) {
		for i := range numbers {
			numbers[i] = float32(entry(i/entries, i%entries))
		}
		require.NoError(t, f.Lists.Upload(bg, numbers))
		require.NoError(t, plan.Forward(bg, f))
		return download(t, f.O), download(t, f.LSE)
	}
	near := func(want, got []float32) {
		t.Helper()
		for i := range want {
			require.InDelta(t, want[i], got[i], 1e-5, "element %d", i)
		}
	}
	all := func(_, n int) int {
		if n < keys {
			return n
		}
		return -1
	}
	o, lse := run(all)
	turned, lseTurned := run(func(list, n int) int { return all(list, entries-1-n) })
	near(o, turned)
	near(lse, lseTurned)
	apart, lseApart := run(func(_, n int) int { // two in three are keys, until there are no more
		if key := n - n/3 - 1; n%3 > 0 && key < keys {
			return key
		}
		return []int{-1, keys, math.MaxInt32/2 + 1, math.MinInt32}[n%4]
	})
	near(o, apart)
	near(lse, lseApart)

	without, g := p, f
	without.Lists, g.Lists = Lists{}, nil
	require.NoError(t, mustPlan(t, d, without).Forward(bg, g))
	near(o, download(t, f.O))
	near(lse, download(t, f.LSE))

	one, _ := run(func(list, n int) int {
		if n == list*9%entries {
			return list % keys
		}
		return -1
	})
	v := download(t, f.V)
	for i, x := range one {
		b, h, query, column := i/16/7/4, i/16/7%4/2, i/16%7, i%16
		list := (b*2+h)*7 + query
		require.InDelta(t, v[((b*2+h)*keys+list%keys)*16+column], x, 1e-6)
	}
	none, lse := run(func(int, int) int { return -1 })
	for _, x := range none {
		require.Zero(t, x)
	}
	for _, x := range lse {
		require.True(t, math.IsInf(float64(x), -1))
	}
}

// TestBadLists: lists that do not fit their problem, and kernels and implementations that do not take them, are refused by name.
func TestBadLists(t *testing.T) {
	d := testDevice(t)
	p, good := listSample(t, d, Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 3, KeyLen: 20, HeadDim: 8, DType: F32,
		Lists: Lists{Keys: 5}})
	plan := mustPlan(t, d, p)
	without := p
	without.Lists = Lists{}
	plain := mustPlan(t, d, without)
	mk := func(dtype DType, b, h, n, k int) *Tensor {
		x, err := d.NewTensor(dtype, b, h, n, k)
		require.NoError(t, err)
		return x
	}
	for _, c := range []struct {
		plan  *Plan
		lists *Tensor
	}{{plan, nil}, {plan, mk(Int32, 2, 1, 3, 4)}, {plan, mk(Int32, 2, 2, 3, 5)}, {plan, mk(Int32, 1, 1, 3, 5)}, {plan, mk(F32, 2, 1, 3, 5)},
		{plain, good.Lists}} {
		f := good
		f.Lists = c.lists
		requireRefused(t, "Forward.Lists", c.plan.Forward(bg, f))
	}
	strided, err := mk(Int32, 2, 1, 3, 8).View(0, Int32, [4]int{2, 1, 3, 5}, [4]int{24, 24, 8, 1})
	require.NoError(t, err)
	f := good
	f.Lists = strided
	requireRefused(t, "Forward.Lists", plan.Forward(bg, f))
	require.NoError(t, plan.Forward(bg, good))

	for _, opts := range [][]PlanOption{{WithImplementation(Standard)}, {WithImplementation(Flash1)},
		{WithTuning(map[string]int{"decode": 0})}} {
		_, err := d.Plan(p, opts...)
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "no lists of keys")
	}
	biased := p
	biased.Bias = PerScore{DType: F32, Batch: 1, Heads: 1, Queries: 1, Keys: 20}
	plan = mustPlan(t, d, biased)
	like := func(x *Tensor) *Tensor { return mk(x.DType(), x.Shape()[0], x.Shape()[1], x.Shape()[2], x.Shape()[3]) }
	good.Bias = mk(F32, 1, 1, 1, 20)
	require.NoError(t, plan.Forward(bg, good))
	b := Backward{Forward: good, DO: good.O, DQ: like(good.Q), DK: like(good.K), DV: like(good.V)}
	require.NoError(t, plan.Backward(bg, b))
	b.DBias = like(good.Bias)
	requireRefused(t, "Backward.DBias", plan.Backward(bg, b))
	b.DBias, b.Lists = nil, nil
	requireRefused(t, "Backward.Lists", plan.Backward(bg, b))
	_, err = plan.NewRecording(ForJVP())
	require.ErrorIs(t, err, ErrUnsupported)
	for _, dtype := range []DType{F32, F16} {
		mapped := p
		mapped.DType = dtype
		_, err = mustPlan(t, d, mapped).MapInfo()
		require.ErrorIs(t, err, ErrUnsupported)
		require.ErrorContains(t, err, "it reads no lists of keys")
	}

	dropped := p
	dropped.Dropout = 0.5
	_, err = d.Plan(dropped)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorContains(t, err, "no dropout")
}

// TestListsSynchronization: synchronization validation has nothing to say of lists that are turned round, step by step in several
// dispatches, nor of what reads them.
func TestListsSynchronization(t *testing.T) {
	vktest.Long(t, "one dispatch of each kernel, in the conformance suite")
	var messages []Message
	d, err := Open(WithoutDiskCache(), WithValidation(func(m Message) { messages = append(messages, m) }), WithSyncValidation())
	if errors.Is(err, vk.ErrLayerMissing) && os.Getenv("VKATTN_REQUIRE_VALIDATION") != "1" ||
		errors.Is(err, ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	p, f := listSample(t, d, Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 300, HeadDim: 16, DType: F16, Sinks: true,
		Causal: CausalBottomRight, Lists: Lists{Keys: 40}})
	like := func(x *Tensor) *Tensor {
		s := x.Shape()
		y, err := d.NewTensor(x.DType(), s[0], s[1], s[2], s[3])
		require.NoError(t, err)
		return y
	}
	f.Sinks, err = d.NewTensor(F32, 1, 1, 1, p.Heads)
	require.NoError(t, err)
	require.NoError(t, f.Sinks.Upload(bg, []float32{1, 0, -1, 2}))
	plan := mustPlan(t, d, p, WithTuning(map[string]int{"max_groups": 100}), WithBackwardTuning(map[string]int{"max_groups": 100}))
	b := Backward{Forward: f, DO: like(f.O), DQ: like(f.Q), DK: like(f.K), DV: like(f.V), DSinks: like(f.Sinks)}
	require.NoError(t, b.DO.Upload(bg, make([]float32, b.DO.Elements())))
	for _, b.Accumulate = range []bool{false, true} {
		forward, err := plan.SubmitForward(f)
		require.NoError(t, err)
		backward, err := plan.SubmitBackward(b) // behind it on the queue
		require.NoError(t, err)
		require.NoError(t, backward.Wait(bg))
		require.NoError(t, forward.Wait(bg))
	}
	require.NoError(t, plan.Close())
	require.NoError(t, d.Close())
	require.Empty(t, messages)
}

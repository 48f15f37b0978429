package flash

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// TestUsed: every kind of pass declares the uses of its tensors, a changed use writes a recording anew, and that allocates nothing.
func TestUsed(t *testing.T) {
	d := testDevice(t)
	mk := plainly(t, d)
	shape, lse := [4]int{1, 2, 8, 16}, [4]int{1, 2, 8, 1}
	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, DType: F32}, WithTier(TierScalar))
	defer plan.Close()
	merge, err := d.PlanMerge(MergeProblem{Parts: 1, Batch: 1, Heads: 2, QueryLen: 8, ValueDim: 16, DType: F32})
	require.NoError(t, err)
	add, err := d.PlanAccumulate(AccumulateProblem{Rule: AccumulateAdd, Shape: shape})
	require.NoError(t, err)

	var x [8]*Tensor
	for i := range x {
		x[i] = mk(F32, shape)
	}
	l, cells := mk(F32, lse), mk(F32, [4]int{1, 2, 4, 4})
	forward, err := plan.NewRecording()
	require.NoError(t, err)
	backward, err := plan.NewRecording(ForBackward())
	require.NoError(t, err)
	mapping, err := plan.NewMapRecording()
	require.NoError(t, err)
	merging, err := merge.NewRecording()
	require.NoError(t, err)
	adding, err := add.NewRecording()
	require.NoError(t, err)

	pool, err := d.dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)
	parts := make([]Part, 1)
	for _, c := range []struct {
		name     string
		commands *pipeline.Recording
		record   func(uintptr) error
		give     func(with func(*Tensor) *Tensor) error
	}{
		{"forward", forward.rec, forward.Record, func(with func(*Tensor) *Tensor) error {
			return forward.Forward(Forward{Q: with(x[0]), K: with(x[1]), V: with(x[2]), O: with(x[3]), LSE: with(l)})
		}},
		{"backward", backward.rec, backward.Record, func(with func(*Tensor) *Tensor) error {
			return backward.Backward(Backward{Forward: Forward{Q: with(x[0]), K: with(x[1]), V: with(x[2]), O: with(x[3]), LSE: with(l)},
				DO: with(x[4]), DQ: with(x[5]), DK: with(x[6]), DV: with(x[7])})
		}},
		{"map", mapping.rec, mapping.Record, func(with func(*Tensor) *Tensor) error {
			return mapping.Map(Map{Forward: Forward{Q: with(x[0]), K: with(x[1]), LSE: with(l)}, Out: with(cells)})
		}},
		{"merge", merging.rec, merging.Record, func(with func(*Tensor) *Tensor) error {
			parts[0] = Part{O: with(x[0]), LSE: with(l)}
			return merging.Merge(Merge{Parts: parts, O: with(x[1])})
		}},
		{"accumulate", adding.rec, adding.Record, func(with func(*Tensor) *Tensor) error {
			return adding.Accumulate(Accumulate{X: with(x[0]), Y: with(x[1])})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			with := map[TensorUse]func(*Tensor) *Tensor{} // tensors are made once: recording anew allocates nothing
			give := func(u TensorUse) {
				if with[u] == nil {
					made := map[*Tensor]*Tensor{}
					with[u] = func(of *Tensor) *Tensor {
						if made[of] == nil {
							made[of] = of.Used(u)
						}
						return made[of]
					}
				}
				if err := c.give(with[u]); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				for _, u := range []struct {
					is            TensorUse
					before, after int
				}{{TensorUse{}, 1, 1}, {TensorUse{Prior: Untouched}, 0, 1}, {TensorUse{Next: Untouched}, 1, 0},
					{TensorUse{Prior: Untouched, Next: Untouched}, 0, 0}} {
					if c.name == "backward" { // its workspace is waited for as ever, which one barrier does with the tensors
						u.before, u.after = 2, 1
						give(u.is)
						require.Equal(t, u.is, backward.tensors[0].Use())
					}
					give(u.is)
					require.Equal(t, u.before, c.commands.Barriers(), u.is)
					require.NoError(t, cmd.Begin(true))
					require.NoError(t, c.record(cmd.Handle()))
					require.NoError(t, cmd.End())
					require.Equal(t, u.before+u.after, c.commands.Barriers(), u.is)
				}
			}
			i := 0
			require.Zero(t, testing.AllocsPerRun(20, func() {
				i++
				give([]TensorUse{{}, {Prior: Untouched}}[i%2])
			}))
		})
	}
}

// TestUsedBesideNeighbour: a declared use is of a tensor's own bytes, although what kernels are given begins in its neighbour's.
func TestUsedBesideNeighbour(t *testing.T) {
	d := testDevice(t)
	mk := plainly(t, d)
	heads := int(d.env.Caps.Facts.Limits.MinStorageBufferAlignment) / 8 // lse is half of that many bytes, and o begins behind it
	if heads == 0 {
		t.Skip("bindings may begin anywhere")
	}
	p := Problem{Batch: 1, Heads: heads, QueryLen: 1, KeyLen: 4, HeadDim: 16, DType: F16}
	plan := mustPlan(t, d, p, WithTier(TierScalar))
	defer plan.Close()
	var listing *pipeline.Listing
	d.env.Ctx.List(func(l *pipeline.Listing) { listing = l })
	r, err := plan.NewRecording()
	d.env.Ctx.List(nil)
	require.NoError(t, err)
	defer r.Close()
	buffer := mk(F32, [4]int{1, 1, heads, 16})
	lse, err := buffer.View(0, F32, p.LSEShape(), [4]int{})
	require.NoError(t, err)
	o, err := buffer.View(lse.Bytes(), F16, p.OShape(), [4]int{})
	require.NoError(t, err)
	require.Less(t, o.bound.Binding.Offset, o.Offset())
	untouched := TensorUse{Prior: Untouched, Next: Untouched}
	q, k, v := mk(F16, p.QShape()).Used(untouched), mk(F16, p.KShape()).Used(untouched), mk(F16, p.VShape()).Used(untouched)
	pool, err := d.dev.NewCommandPool()
	require.NoError(t, err)
	defer pool.Close()
	cmd, err := pool.Allocate()
	require.NoError(t, err)

	const fragment = vk.Stage(0x80)
	reads := Use{Stages: fragment, Accesses: vk.AccessShaderRead}
	for _, of := range []TensorUse{{}, untouched, {Prior: reads, Next: reads}} {
		require.NoError(t, r.Forward(Forward{Q: q, K: k, V: v, O: o.Used(of), LSE: lse}))
		require.NoError(t, cmd.Begin(true))
		require.NoError(t, r.Record(cmd.Handle()))
		require.NoError(t, cmd.End())
		before, after := listing.Operations[0].Before, listing.After
		require.Equal(t, pipeline.DefaultPrior.Stages|of.Prior.Stages&fragment, before.From.Stages, "lse is written behind what was before")
		require.Equal(t, pipeline.DefaultPrior.Accesses, before.From.Accesses)
		require.Equal(t, Use{Stages: vk.StageCompute, Accesses: vk.AccessShaderWrite}, after.From, "what follows sees lse")
		require.Equal(t, pipeline.DefaultNext.Stages|of.Next.Stages&fragment, after.To.Stages)
		require.Equal(t, pipeline.DefaultNext.Accesses, after.To.Accesses)
	}
}

// TestUsedTensors: a use is of the tensor that Used gives and of its views, and of no other.
func TestUsedTensors(t *testing.T) {
	d := testDevice(t)
	x := plainly(t, d)(F16, [4]int{1, 2, 8, 16})
	u := TensorUse{Prior: Use{Stages: 0x80, Accesses: 0x40}, Next: Untouched}
	used := x.Used(u)
	require.Equal(t, TensorUse{}, x.Use())
	require.Equal(t, u, used.Use())
	require.Equal(t, x.String(), used.String())
	require.Equal(t, x.Buffer(), used.Buffer())
	view, err := used.View(0, F16, [4]int{1, 1, 8, 16}, [4]int{})
	require.NoError(t, err)
	require.Equal(t, u, view.Use())
	require.Equal(t, TensorUse{}, used.Used(TensorUse{}).Use())
	var none *Tensor
	require.Nil(t, none.Used(u))
	require.Equal(t, TensorUse{}, none.Use())
	requireRefused(t, "Tensor", new(Tensor).Used(u).Upload(bg, nil))

	plan := mustPlan(t, d, Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, DType: F16})
	defer plan.Close()
	requireRefused(t, "Forward.O", plan.Forward(bg, Forward{Q: x, K: x, V: x, O: used})) // one memory
	require.NoError(t, used.Close())
	require.ErrorIs(t, x.Upload(bg, make([]float32, 2*8*16)), ErrClosed)
}

package flash

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkRecordAndSubmit measures what one attention costs the host when a plan is used again: recording, with other
// tensors than the last time so that nothing can be reused, and submission; waiting for the device is not counted.
func BenchmarkRecordAndSubmit(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	r, sets := steadyState(b, d)
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Forward(sets[i%2]); err != nil {
			b.Fatal(err)
		}
		pending, err := r.Submit()
		host += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if err := pending.Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
}

// BenchmarkRecordMerge measures the same of a merge of two parts.
func BenchmarkRecordMerge(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	plan, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: 1, Heads: 2, QueryLen: 8, ValueDim: 16, DType: F16})
	require.NoError(b, err)
	r, err := plan.NewRecording()
	require.NoError(b, err)
	tensors := func() Part {
		var p Part
		p.O = plainly(b, d)(F16, [4]int{1, 2, 8, 16})
		p.LSE, err = d.NewLSE(1, 2, 8)
		require.NoError(b, err)
		return p
	}
	sets := [2]Merge{}
	for i := range sets {
		to := tensors()
		sets[i] = Merge{Parts: []Part{tensors(), tensors()}, O: to.O, LSE: to.LSE}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Merge(sets[i%2]); err != nil {
			b.Fatal(err)
		}
		err := r.Submit()
		host += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
}

// BenchmarkRecordAppend measures the same of an append into quantised pages with queries that are turned.
func BenchmarkRecordAppend(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	plan, sets := appendOfAll(b, d)
	r, err := plan.NewRecording()
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	var host time.Duration
	for i := range b.N {
		start := time.Now()
		if err := r.Append(sets[i%2]); err != nil {
			b.Fatal(err)
		}
		err := r.Submit()
		host += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Wait(bg); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
}

// TestSteadyStateAllocatesNothing: recording, submitting and waiting again leave the garbage collector alone.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	d := testDevice(t)
	r, sets := steadyState(t, d)
	i := 0
	n := testing.AllocsPerRun(50, func() {
		i++
		if err := r.Forward(sets[i%2]); err != nil {
			t.Fatal(err)
		}
		pending, err := r.Submit()
		if err != nil {
			t.Fatal(err)
		}
		if err := pending.Wait(bg); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
	plan := r.plan
	f := sets[0]
	n = testing.AllocsPerRun(50, func() {
		if err := plan.Forward(bg, f); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, n)
}

func steadyState(t testing.TB, d *Device) (*Recording, [2]Forward) {
	p := Problem{Batch: 1, Heads: 1, QueryLen: 8, HeadDim: 16, DType: F16}
	s := newSample(t, p)
	plan := mustPlan(t, d, p)
	r, err := plan.NewRecording()
	require.NoError(t, err)
	return r, [2]Forward{s.tensors(t, d, plainly(t, d)), s.tensors(t, d, plainly(t, d))}
}

// BenchmarkScalarTiles times scalar_forward's candidate shapes, on whatever device there is; TFLOP/s by device timestamps.
// On a GPU the problem is large; on a CPU it is cut down.
func BenchmarkScalarTiles(b *testing.B) {
	d, err := Open()
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	cpu := typeRank(d.info.Facts.Type) == 4
	shapes := [][4]int{{64, 64, 8, 8}, {64, 32, 8, 4}, {64, 64, 8, 4}, {128, 64, 8, 8}, {128, 64, 8, 4}, {32, 64, 4, 4}, {64, 64, 4, 4},
		{64, 128, 8, 8}, {32, 64, 4, 8}, {64, 32, 4, 4}}
	if cpu {
		shapes = [][4]int{{16, 32, 4, 4}, {8, 32, 2, 4}, {8, 32, 2, 8}, {32, 32, 4, 4}, {16, 64, 4, 8}, {16, 16, 4, 4}, {64, 64, 8, 8}}
	}
	for _, dim := range []int{64, 128, 256} {
		p := Problem{Batch: 4, Heads: 16, QueryLen: 2048, HeadDim: dim, DType: F32}
		if cpu {
			p.Batch, p.Heads, p.QueryLen = 1, 2, 256
		}
		for _, s := range shapes {
			b.Run(fmt.Sprintf("D%d/%dx%d_%dx%d", dim, s[0], s[1], s[2], s[3]), func(b *testing.B) {
				plan, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"br": s[0], "bc": s[1], "mr": s[2], "mc": s[3]}))
				if err != nil {
					b.Skip(err)
				}
				defer plan.Close()
				make := plainly(b, d)
				f := Forward{Q: make(F32, p.QShape()), K: make(F32, p.KShape()), V: make(F32, p.VShape()), O: make(F32, p.OShape())}
				for _, x := range []*Tensor{f.Q, f.K, f.V} {
					if err := x.Upload(bg, randomValues(rand.New(rand.NewPCG(1, 2)), F32, x.Shape())); err != nil {
						b.Fatal(err)
					}
					defer x.Close()
				}
				defer f.O.Close()
				r, err := plan.NewRecording(WithTimestamps())
				if err == nil {
					err = r.Forward(f)
				}
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				best := time.Duration(math.MaxInt64)
				for range b.N {
					pending, err := r.Submit()
					if err == nil {
						err = pending.Wait(bg)
					}
					if err != nil {
						b.Fatal(err)
					}
					if gpu, ok := pending.GPUTime(); ok {
						best = min(best, gpu)
					}
				}
				b.ReportMetric(p.ForwardFLOPs()/best.Seconds()/1e12, "TFLOP/s")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// decoding decodes a token of each of some sequences in one layer: a step, the append of keys and values, with the queries turned in the
// same dispatch, attention, and the merge of its result with that over other keys.
type decoding struct {
	cache    *Cache
	batch    *CacheBatch
	requests []CacheRequest
	plan     *Plan
	appends  Append
	forward  Forward
	merge    Merge
	add      *RowRecording
	attend   *Recording
	merging  *MergeRecording
	pending  Pending
}

func newDecoding(t testing.TB, d *Device, o CacheOptions) *decoding {
	x := &decoding{cache: mustCache(t, d, o)}
	x.batch = mustBatch(t, x.cache, o.MaxSequences, 1)
	x.plan = mustPlan(t, d, x.batch.Problem(Problem{Heads: 4 * o.KeyHeads, Causal: CausalBottomRight}))
	p := x.plan.Problem()
	appending, err := d.PlanAppend(x.batch.AppendProblem(AppendProblem{Heads: p.Heads, Rotary: &Rotary{}}))
	require.NoError(t, err)
	merging, err := d.PlanMerge(MergeProblem{Parts: 2, Batch: p.Batch, Heads: p.Heads, QueryLen: 1, ValueDim: p.ValueDim, DType: o.DType})
	require.NoError(t, err)
	tensor := plainly(t, d)
	part := func() (out Part) {
		out.O = tensor(o.DType, p.OShape())
		out.LSE, err = d.NewLSE(p.Batch, p.Heads, 1)
		require.NoError(t, err)
		return out
	}
	own, other, rows := part(), part(), [4]int{p.Batch, p.KeyHeads, 1, p.HeadDim}
	q := tensor(o.DType, p.QShape())
	x.appends = x.batch.Append(0, Append{K: tensor(o.DType, rows), V: tensor(o.DType, rows), Q: q})
	x.forward = x.batch.Forward(0, Forward{Q: q, O: own.O, LSE: own.LSE})
	x.merge = Merge{Parts: []Part{own, other}, O: tensor(o.DType, p.OShape())}
	x.add, err = appending.NewRecording()
	require.NoError(t, err)
	x.attend, err = x.plan.NewRecording()
	require.NoError(t, err)
	x.merging, err = merging.NewRecording()
	require.NoError(t, err)
	for range o.MaxSequences {
		x.requests = append(x.requests, CacheRequest{mustAdd(t, x.cache), 1})
	}
	return x
}

// token decodes one, recording all anew where fresh is set.
func (x *decoding) token(t testing.TB, fresh bool) {
	err := x.batch.Step(x.requests)
	if err == nil {
		err = x.batch.Submit()
	}
	if fresh && err == nil {
		x.add.ready, x.attend.ready, x.merging.ready = false, false, false
		if err = x.add.Append(x.appends); err == nil {
			err = x.attend.Forward(x.forward)
		}
		if err == nil {
			err = x.merging.Merge(x.merge)
		}
	}
	if err == nil {
		err = x.add.Submit()
	}
	if err == nil {
		x.pending, err = x.attend.Submit()
	}
	if err == nil {
		err = x.merging.Submit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wait waits for the latest token.
func (x *decoding) wait(t testing.TB) {
	if err := errors.Join(x.merging.Wait(nil), x.pending.Wait(nil), x.add.Wait(nil)); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDecodeToken measures what a token of each of some sequences costs the host in one layer, with the step that all layers share:
// everything recorded anew and submitted, or recordings submitted again; and the step alone. Waiting for the device is not counted.
func BenchmarkDecodeToken(b *testing.B) {
	d, err := Open(WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	for _, sequences := range []int{1, 64} {
		o := CacheOptions{Layers: 1, KeyHeads: 2, HeadDim: 32, Page: 16, Pages: 64 * 64, MaxSequences: sequences, MaxLength: 1024,
			DType: F16}
		x := newDecoding(b, d, o)
		x.token(b, true)
		x.wait(b)
		for _, how := range []string{"step", "submitted", "recorded"} {
			b.Run(fmt.Sprintf("%d/%s", sequences, how), func(b *testing.B) {
				b.ReportAllocs()
				var host time.Duration
				for range b.N {
					for _, r := range x.requests {
						if n, _ := x.cache.Length(r.Sequence); n == o.MaxLength {
							if err := x.cache.Truncate(r.Sequence, 1); err != nil {
								b.Fatal(err)
							}
						}
					}
					start := time.Now()
					if how == "step" {
						if err := errors.Join(x.batch.Step(x.requests), x.batch.Submit()); err != nil {
							b.Fatal(err)
						}
					} else {
						x.token(b, how == "recorded")
					}
					host += time.Since(start)
					x.wait(b)
					if err := x.batch.Wait(nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(host.Nanoseconds())/1e3/float64(b.N), "host-µs/op")
			})
		}
		require.NoError(b, x.cache.Close())
	}
}

package kvcache

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// decoding decodes a token of each of some sequences in one layer: a step, the append of keys and values, with the queries turned in the
// same dispatch, attention, and the merge of its result with that over other keys.
type decoding struct {
	device   *flash.Device
	cache    *Cache
	batch    *Batch
	requests []Request
	plan     *flash.Plan
	appends  rows.Append
	forwards [2]flash.Forward // in turn, for a recording that is given the same tensors again stays as it is
	merges   [2]flash.Merge
	turn     int
	add      *rows.Recording
	attend   *flash.Recording
	merging  *flash.Recording
	pending  flash.Pending
}

func newDecoding(t testing.TB, d *flash.Device, o Options) *decoding {
	x := &decoding{device: d, cache: mustCache(t, d, o)}
	x.batch = mustBatch(t, x.cache, o.MaxSequences, 1)
	x.plan = mustPlan(t, d, x.batch.Problem(flash.Problem{Heads: 4 * o.KeyHeads, Causal: flash.CausalBottomRight}))
	p := x.plan.Problem()
	appending, err := rows.PlanAppend(d, x.batch.AppendProblem(rows.AppendProblem{Heads: p.Heads, Rotary: &rows.Rotary{}}))
	require.NoError(t, err)
	merging, err := d.PlanMerge(flash.MergeProblem{Parts: 2, Batch: p.Batch, Heads: p.Heads, QueryLen: 1, ValueDim: p.ValueDim,
		DType: o.DType})
	require.NoError(t, err)
	tensor := plainly(t, d)
	part := func() (out flash.Part) {
		out.O = tensor(o.DType, p.OShape())
		out.LSE, err = d.NewLSE(p.Batch, p.Heads, 1)
		require.NoError(t, err)
		return out
	}
	other, shape := part(), [4]int{p.Batch, p.KeyHeads, 1, p.HeadDim}
	q := tensor(o.DType, p.QShape())
	x.appends = x.batch.Append(0, rows.Append{K: tensor(o.DType, shape), V: tensor(o.DType, shape), Q: q})
	for i := range x.forwards {
		own := part()
		x.forwards[i] = x.batch.Forward(0, flash.Forward{Q: q, O: own.O, LSE: own.LSE})
		x.merges[i] = flash.Merge{Parts: []flash.Part{own, other}, O: tensor(o.DType, p.OShape())}
	}
	x.add, err = appending.NewRecording()
	require.NoError(t, err)
	x.attend, err = x.plan.NewRecording()
	require.NoError(t, err)
	x.merging, err = merging.NewRecording()
	require.NoError(t, err)
	for range o.MaxSequences {
		x.requests = append(x.requests, Request{mustAdd(t, x.cache), 1})
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
		x.turn = 1 - x.turn
		if err = x.add.Append(x.appends); err == nil {
			err = x.attend.Forward(x.forwards[x.turn])
		}
		if err == nil {
			err = x.merging.Merge(x.merges[x.turn])
		}
	}
	if err == nil {
		x.pending, err = x.device.Submit(x.add, x.attend, x.merging)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// wait waits for the latest token.
func (x *decoding) wait(t testing.TB) {
	if err := x.pending.Wait(nil); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkDecodeToken measures what a token of each of some sequences costs the host in one layer, with the step that all layers share:
// everything recorded anew and submitted, or recordings submitted again; and the step alone. Waiting for the device is not counted.
func BenchmarkDecodeToken(b *testing.B) {
	d, err := flash.Open(flash.WithoutDiskCache())
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	for _, sequences := range []int{1, 64} {
		o := Options{Layers: 1, KeyHeads: 2, HeadDim: 32, Page: 16, Pages: 64 * 64, MaxSequences: sequences, MaxLength: 1024,
			DType: flash.F16}
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

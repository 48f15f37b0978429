package rows

import (
	"context"
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// merged is attention over all parts' keys, of one row of each head: o = Σ exp(lse_n − lse)·o_n with lse = log Σ exp(lse_n).
func merged(o, lse []ref.Tensor) (sum, log ref.Array) {
	sum, log = ref.NewArray(o[0].B, o[0].H, o[0].N, o[0].D), ref.NewArray(o[0].B, o[0].H, o[0].N, 1)
	for _, r := range ref.AllRows(o[0]) {
		top, all := math.Inf(-1), 0.0
		for n := range lse {
			top = max(top, float64(lse[n].Row(r.B, r.H, r.I)[0]))
		}
		for n := range lse {
			all += math.Exp(float64(lse[n].Row(r.B, r.H, r.I)[0]) - top)
		}
		to := sum.Row(r.B, r.H, r.I)
		for n := range o {
			weight := math.Exp(float64(lse[n].Row(r.B, r.H, r.I)[0])-top) / all
			for d, v := range o[n].Row(r.B, r.H, r.I) {
				to[d] += weight * float64(v)
			}
		}
		log.Row(r.B, r.H, r.I)[0] = top + math.Log(all)
	}
	return sum, log
}

// encoded is tensors one behind the other.
func encoded(t attn.DType, all []ref.Tensor) (data []byte) {
	for _, x := range all {
		part := make([]byte, t.Bytes(len(x.Data)))
		attn.Encode(t, part, x.Data)
		data = append(data, part...)
	}
	return data
}

// prepareMerge merges the parts of each set.
func prepareMerge(ctx context.Context, w *work, c Case) error {
	plan, err := w.dev.PlanMerge(flash.MergeProblem{Parts: c.Parts, Batch: c.Batch, Heads: c.Heads, QueryLen: c.Rows, ValueDim: c.Dim,
		DType: flash.F16, Stacked: c.Stacked})
	if plan, err = own(w, plan, err); err != nil {
		return err
	}
	type result struct {
		o, lse   *flash.Tensor
		sum, log ref.Array
	}
	var results []result
	for range w.sets {
		var o, lse []ref.Tensor
		for range c.Parts {
			o, lse = append(o, w.normal(c.Batch, c.Heads, c.Rows, c.Dim)), append(lse, w.normal(c.Batch, c.Heads, c.Rows, 1))
		}
		pair := func(o, lse []ref.Tensor) (part flash.Part, err error) {
			batch := len(o) * c.Batch
			if part.O, err = w.tensor(ctx, attn.F16, [4]int{batch, c.Heads, c.Rows, c.Dim}, false, encoded(attn.F16, o)); err != nil {
				return part, err
			}
			part.LSE, err = w.tensor(ctx, attn.F32, [4]int{batch, c.Heads, c.Rows, 1}, false, encoded(attn.F32, lse))
			return part, err
		}
		var m flash.Merge
		if c.Stacked {
			m.Parts = make([]flash.Part, 1)
			if m.Parts[0], err = pair(o, lse); err != nil {
				return err
			}
		} else {
			for n := range o {
				part, err := pair(o[n:n+1], lse[n:n+1])
				if err != nil {
					return err
				}
				m.Parts = append(m.Parts, part)
			}
		}
		var r result
		r.sum, r.log = merged(o, lse)
		if r.o, err = w.tensor(ctx, attn.F16, [4]int{c.Batch, c.Heads, c.Rows, c.Dim}, false,
			w.noise(attn.F16.Bytes(len(r.sum.Data)))); err != nil {
			return err
		}
		if r.lse, err = w.tensor(ctx, attn.F32, [4]int{c.Batch, c.Heads, c.Rows, 1}, false,
			w.noise(attn.F32.Bytes(len(r.log.Data)))); err != nil {
			return err
		}
		m.O, m.LSE = r.o, r.lse
		results = append(results, r)
		run, err := plan.NewRecording()
		if run, err = own(w, run, err); err != nil {
			return err
		}
		if err := run.Merge(m); err != nil {
			return err
		}
		w.runs = append(w.runs, run)
	}
	w.check = func(ctx context.Context) (found agreement, err error) {
		for _, r := range results {
			o, lse := make([]byte, r.o.Bytes()), make([]byte, r.lse.Bytes())
			if err := r.o.DownloadBytes(ctx, o); err != nil {
				return found, err
			}
			if err := r.lse.DownloadBytes(ctx, lse); err != nil {
				return found, err
			}
			logs := make([]float32, len(r.log.Data))
			attn.Decode(attn.F32, logs, lse)
			for i, want := range r.log.Data {
				row := r.sum.Data[i*c.Dim : (i+1)*c.Dim]
				// The terms of a row are normal numbers whose weights sum to 1: none is above 4.5 or so.
				if err := found.row(attn.F16, o[i*attn.F16.Bytes(c.Dim):], row, 5*fp32Off); err != nil {
					return found, err
				}
				if !(math.Abs(float64(logs[i])-want) <= 4*fp32Off*max(1, math.Abs(want))) {
					return found, fmt.Errorf("log-sum-exp of row %d is %g, and should be %g", i, logs[i], want)
				}
			}
		}
		return found, nil
	}
	return nil
}

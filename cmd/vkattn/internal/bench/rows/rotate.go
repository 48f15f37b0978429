package rows

import (
	"context"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// longest is the length of contexts in which rows have their positions.
const longest = 1 << 15

// prepareRotate turns queries of each set, which lie side by side as a projection leaves them, by positions of each sequence's own.
func prepareRotate(ctx context.Context, w *work, c Case) error {
	plan, err := rows.PlanRotate(w.dev, rows.RotateProblem{Batch: c.Batch, Heads: c.Heads, Rows: c.Rows, HeadDim: c.Dim, DType: flash.F16,
		Rotary: rows.Rotary{Positions: true}})
	if plan, err = own(w, plan, err); err != nil {
		return err
	}
	type result struct {
		y     *flash.Tensor
		model ref.Array
	}
	var results []result
	shape := [4]int{c.Batch, c.Heads, c.Rows, c.Dim}
	for range w.sets {
		at, positions := make([]float32, c.Batch), make([]float32, 0, c.Batch*c.Rows)
		for b := range at {
			at[b] = float32(w.rng.IntN(longest))
			for i := range c.Rows {
				positions = append(positions, at[b]+float32(i))
			}
		}
		x := w.normal(shape[0], shape[1], shape[2], shape[3])
		var t rows.Rotation
		if t.X, err = w.tensor(ctx, attn.F16, shape, true, inTokens(x)); err != nil {
			return err
		}
		if t.Y, err = w.tensor(ctx, attn.F16, shape, true, w.noise(attn.F16.Bytes(len(x.Data)))); err != nil {
			return err
		}
		if t.Positions, err = w.ints(ctx, [4]int{1, 1, c.Batch, c.Rows}, positions); err != nil {
			return err
		}
		model, err := turned(x, at)
		if err != nil {
			return err
		}
		results = append(results, result{t.Y, model})
		run, err := plan.NewRecording()
		if run, err = own(w, run, err); err != nil {
			return err
		}
		if err := run.Rotate(t); err != nil {
			return err
		}
		w.runs = append(w.runs, run)
	}
	w.check = func(ctx context.Context) (found agreement, err error) {
		row := attn.F16.Bytes(c.Dim)
		for _, r := range results {
			got := make([]byte, attn.F16.Bytes(len(r.model.Data)))
			if err := r.y.DownloadBytes(ctx, got); err != nil {
				return found, err
			}
			for b := range c.Batch {
				for i := range c.Rows {
					for h := range c.Heads {
						want := r.model.Row(b, h, i)
						if err := found.row(attn.F16, got[((b*c.Rows+i)*c.Heads+h)*row:], want, offOf(want)); err != nil {
							return found, fmt.Errorf("sequence %d, head %d, row %d: %w", b, h, i, err)
						}
					}
				}
			}
		}
		return found, nil
	}
	return nil
}

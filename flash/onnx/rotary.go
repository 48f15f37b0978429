package onnx

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// RotaryEmbedding has the attributes of the operator RotaryEmbedding. Of each row at position p the first R columns are turned in pairs,
// (2j, 2j+1) if Interleaved, else (j, j + R/2), and the others are kept:
//
//	Y_a = cos_cache[p, j]·X_a − sin_cache[p, j]·X_b
//	Y_b = sin_cache[p, j]·X_a + cos_cache[p, j]·X_b
type RotaryEmbedding struct {
	Interleaved        bool
	NumHeads           int // of X whose heads lie in its columns; 0: its second axis says
	RotaryEmbeddingDim int // R, even; 0: all columns
}

// RotaryEmbeddingInputs are the inputs of the operator.
type RotaryEmbeddingInputs struct {
	X *flash.Tensor // [B, H, N, D], or [B, 1, N, H·D] with NumHeads
	// CosCache and SinCache are [1, 1, positions, R/2] with PositionIDs, else [B, 1, N, R/2], a row for each of X.
	CosCache, SinCache *flash.Tensor
	PositionIDs        *flash.Tensor // Int32 [1, 1, B, N], numbers outside of the caches are clamped
}

// Run computes the operator: Y, of X's type and shape.
func (r RotaryEmbedding) Run(ctx context.Context, dev *flash.Device, in RotaryEmbeddingInputs) (y *flash.Tensor, err error) {
	w := &workspace{ctx: ctx, dev: dev}
	defer func() {
		if err = errors.Join(err, w.close()); err != nil {
			err = errors.Join(err, y.Close())
			y = nil
		}
	}()
	x, _, err := split("X", "num_heads", in.X, r.NumHeads)
	if err != nil {
		return nil, err
	}
	s := x.Shape()
	columns := r.RotaryEmbeddingDim
	if columns == 0 {
		columns = s[3]
	}
	if columns < 0 || columns%2 != 0 || columns > s[3] {
		return nil, badArgument("rotary_embedding_dim", columns, "must be even, and up to the head dimension, %d", s[3])
	}
	if err := integers("position_ids", in.PositionIDs, [4]int{1, 1, s[0], s[2]}); err != nil {
		return nil, err
	}
	turn := rows.Rotary{Columns: columns, Interleaved: r.Interleaved, PerToken: in.PositionIDs == nil, Positions: in.PositionIDs != nil}
	f := rows.Rotation{X: x, Positions: in.PositionIDs}
	for _, c := range []struct {
		name string
		from *flash.Tensor
		to   **flash.Tensor
	}{{"cos_cache", in.CosCache, &f.Cos}, {"sin_cache", in.SinCache, &f.Sin}} {
		if c.from == nil {
			return nil, badArgument(c.name, "nil", "must be given")
		}
		want := [4]int{s[0], 1, s[2], columns / 2}
		if turn.Positions {
			want = [4]int{1, 1, in.CosCache.Shape()[2], columns / 2}
			turn.Table = want[2]
		}
		if c.from.Shape() != want {
			return nil, badArgument(c.name, fmt.Sprint(c.from.Shape()), "must be %v", want)
		}
		if *c.to, err = w.wide(c.from); err != nil {
			return nil, err
		}
	}
	made, err := w.tensor(x.DType(), in.X.Shape())
	if err != nil {
		return nil, err
	}
	if f.Y, _, err = split("Y", "num_heads", made, r.NumHeads); err != nil {
		return nil, err
	}
	plan, err := rows.PlanRotate(dev, rows.RotateProblem{Batch: s[0], Heads: s[1], Rows: s[2], HeadDim: s[3], DType: x.DType(),
		Rotary: turn})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(plan.Rotate(ctx, f), plan.Close()); err != nil {
		return nil, err
	}
	return w.keep(made), nil
}

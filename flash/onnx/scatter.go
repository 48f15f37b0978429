package onnx

import (
	"context"
	"errors"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// TensorScatter has the attributes of the operator TensorScatter, which writes new rows into a cache. With the axis of rows in the third
// place,
//
//	present_cache[b, :, write_indices[b] + i, :] = update[b, :, i, :]
//
// and what no row of update is written to is past_cache's. In mode circular the row is that index modulo the cache's rows; in mode linear
// rows outside of the cache are not written, where the operator allows none.
type TensorScatter struct {
	Axis     int  // of rows among the tensors' four, from 1, or −1 for the last one; 0: not given, −2
	Circular bool // mode is circular; else linear
}

// TensorScatterInputs are the inputs of the operator.
type TensorScatterInputs struct {
	PastCache    *flash.Tensor // of any shape whose first axis is the batch
	Update       *flash.Tensor // of its type and shape, but for the axis of rows, of which there are as many or fewer
	WriteIndices *flash.Tensor // Int32 [1, 1, 1, B]; nil: 0
}

// Run computes the operator: present_cache, of past_cache's type and shape. past_cache stays what it is: a runtime that may overwrite it
// saves the copy with package rows, whose PlanAppend this is.
func (s TensorScatter) Run(ctx context.Context, dev *flash.Device, in TensorScatterInputs) (present *flash.Tensor, err error) {
	w := &workspace{ctx: ctx, dev: dev}
	defer func() {
		if err = errors.Join(err, w.close()); err != nil {
			err = errors.Join(err, present.Close())
			present = nil
		}
	}()
	axis := s.Axis
	if axis == 0 {
		axis = -2
	}
	if axis < 0 {
		axis += 4
	}
	switch {
	case axis < 1 || axis > 3:
		return nil, badArgument("axis", s.Axis, "must be from −3 to 3, and not that of the batch")
	case in.PastCache == nil || in.Update == nil:
		return nil, badArgument("past_cache", "nil", "must be given, and update with it")
	}
	want := in.PastCache.Shape()
	want[axis] = min(want[axis], in.Update.Shape()[axis])
	if in.Update.Shape() != want || in.Update.DType() != in.PastCache.DType() {
		return nil, badArgument("update", in.Update, "must be %v of type %v, as past_cache but for axis %d", want, in.PastCache.DType(),
			axis)
	}
	if err := integers("write_indices", in.WriteIndices, [4]int{1, 1, 1, want[0]}); err != nil {
		return nil, err
	}
	switch t := in.PastCache.DType(); t {
	case flash.F32, flash.F16, flash.BF16:
	default:
		return nil, unsupported("TensorScatter of type %v", t)
	}
	const mostColumns = 65535 // of rows that package rows writes
	if columns := shapeOf(in.PastCache.Shape(), axis)[3]; columns > mostColumns {
		return nil, unsupported("TensorScatter of rows of %d elements, more than %d", columns, mostColumns)
	}
	made, err := w.tensor(in.PastCache.DType(), in.PastCache.Shape())
	if err != nil {
		return nil, err
	}
	if err := w.copy(in.PastCache, made); err != nil {
		return nil, err
	}
	cache, err := rowsThird(made, axis)
	if err != nil {
		return nil, err
	}
	update, err := w.dense(in.Update, axis)
	if err != nil {
		return nil, err
	}
	n := cache.Shape()
	f := rows.Append{K: update, KeyCache: cache, At: in.WriteIndices}
	if f.At == nil {
		if f.At, err = w.tensor(flash.Int32, [4]int{1, 1, 1, n[0]}); err != nil {
			return nil, err
		}
		if err := f.At.Upload(ctx, make([]float32, n[0])); err != nil {
			return nil, err
		}
	}
	plan, err := rows.PlanAppend(dev, rows.AppendProblem{Batch: n[0], KeyHeads: n[1], Rows: update.Shape()[2], CacheRows: n[2],
		HeadDim: n[3], DType: cache.DType(), Circular: s.Circular, KeysOnly: true})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(plan.Append(ctx, f), plan.Close()); err != nil {
		return nil, err
	}
	return w.keep(made), nil
}

// dense is rowsThird of a tensor of any strides.
func (w *workspace) dense(t *flash.Tensor, axis int) (*flash.Tensor, error) {
	if axis == 2 {
		return t, nil
	}
	out, err := w.tensor(t.DType(), t.Shape())
	if err != nil {
		return nil, err
	}
	if err := w.copy(t, out); err != nil {
		return nil, err
	}
	return rowsThird(out, axis)
}

// rowsThird is a view of a tensor without gaps as [batch, heads, rows, columns]: the axes before that of rows are its heads, and those
// behind it its columns.
func rowsThird(t *flash.Tensor, axis int) (*flash.Tensor, error) {
	if axis == 2 {
		return t, nil
	}
	shape := shapeOf(t.Shape(), axis)
	return t.View(t.Offset(), t.DType(), shape, [4]int{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1})
}

// shapeOf is a shape as [batch, heads, rows, columns], by the axis of rows.
func shapeOf(s [4]int, axis int) [4]int {
	switch axis {
	case 1:
		return [4]int{s[0], 1, s[1], s[2] * s[3]}
	case 3:
		return [4]int{s[0], s[1] * s[2], s[3], 1}
	}
	return s
}

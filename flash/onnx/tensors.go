package onnx

import (
	"context"
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/flash"
)

// ErrUnsupported marks errors about what an operator allows and this package does not compute.
var ErrUnsupported = errors.New("onnx: not supported")

func unsupported(format string, a ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, a...)...)
}

func badArgument(argument string, value any, rule string, a ...any) error {
	return &flash.ArgumentError{Argument: argument, Value: fmt.Sprint(value), Rule: fmt.Sprintf(rule, a...)}
}

// integers wants a tensor of them, of a shape, where it is given.
func integers(name string, t *flash.Tensor, shape [4]int) error {
	if t != nil && (t.Shape() != shape || t.DType() != flash.Int32) {
		return badArgument(name, t, "must be Int32 %v", shape)
	}
	return nil
}

// workspace has tensors that live as long as a call.
type workspace struct {
	ctx  context.Context
	dev  *flash.Device
	made []*flash.Tensor
}

// tensor makes one that the call keeps.
func (w *workspace) tensor(dtype flash.DType, shape [4]int) (*flash.Tensor, error) {
	t, err := w.dev.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
	if err == nil {
		w.made = append(w.made, t)
	}
	return t, err
}

// keep gives a tensor of the workspace to the caller.
func (w *workspace) keep(t *flash.Tensor) *flash.Tensor {
	for i, made := range w.made {
		if made == t {
			w.made = append(w.made[:i], w.made[i+1:]...)
			break
		}
	}
	return t
}

func (w *workspace) close() (err error) {
	for _, t := range w.made {
		err = errors.Join(err, t.Close())
	}
	return err
}

// copy is y = x, from one type and layout to another.
func (w *workspace) copy(x, y *flash.Tensor) error {
	plan, err := w.dev.PlanAccumulate(flash.AccumulateProblem{Rule: flash.AccumulateCopy, Shape: x.Shape(), X: x.DType(), Y: y.DType()})
	if err != nil {
		return err
	}
	return errors.Join(plan.Accumulate(w.ctx, flash.Accumulate{X: x, Y: y}), plan.Close())
}

// wide is t in fp32.
func (w *workspace) wide(t *flash.Tensor) (*flash.Tensor, error) {
	if t.DType() == flash.F32 {
		return t, nil
	}
	out, err := w.tensor(flash.F32, t.Shape())
	if err != nil {
		return nil, err
	}
	return out, w.copy(t, out)
}

// behind is the rows of past with those of x behind them.
func (w *workspace) behind(past, x *flash.Tensor) (*flash.Tensor, error) {
	shape, before := x.Shape(), 0
	if past != nil {
		before = past.Shape()[2]
		shape[2] += before
	}
	out, err := w.tensor(x.DType(), shape)
	if err != nil {
		return nil, err
	}
	if past != nil {
		part, err := rowsOf(out, 0, before)
		if err != nil {
			return nil, err
		}
		if err := w.copy(past, part); err != nil {
			return nil, err
		}
	}
	part, err := rowsOf(out, before, x.Shape()[2])
	if err != nil {
		return nil, err
	}
	return out, w.copy(x, part)
}

// rowsOf is a view of so many rows of every head.
func rowsOf(t *flash.Tensor, first, count int) (*flash.Tensor, error) {
	shape, strides := t.Shape(), t.Strides()
	shape[2] = count
	bytes := t.Bytes() / uint64(t.Elements()) // t is new, and so without gaps
	return t.View(t.Offset()+uint64(first*strides[2])*bytes, t.DType(), shape, strides)
}

// split is t as [batch, heads, length, dimension], a view where its heads lie in its columns.
func split(name, attribute string, t *flash.Tensor, heads int) (out *flash.Tensor, flat bool, err error) {
	if t == nil {
		return nil, false, badArgument(name, "nil", "must be given")
	}
	shape, strides := t.Shape(), t.Strides()
	switch {
	case heads < 0:
		return nil, false, badArgument(attribute, heads, "must not be negative")
	case heads == 0 || shape[1] == heads:
		return t, false, nil
	case shape[1] != 1:
		return nil, false, badArgument(name, fmt.Sprint(shape), "must have the %d heads of %s, or one axis for heads and dimension", heads,
			attribute)
	case shape[3]%heads != 0:
		return nil, false, badArgument(name, fmt.Sprint(shape), "must have a number of columns that %s, %d, divides", attribute, heads)
	}
	dim := shape[3] / heads
	out, err = t.View(t.Offset(), t.DType(), [4]int{shape[0], heads, shape[2], dim}, [4]int{strides[0], dim, strides[2], 1})
	return out, true, err
}

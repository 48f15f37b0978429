package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/onnx"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
	"github.com/vkattn/vkattn/internal/ref"
)

// moves says that the case is no attention, but of rows that are moved: rotary embedding, or a scatter into a cache.
func (c *Case) moves() bool {
	return c.operator != nil && c.operator.attention == nil && c.operator.of.Known()
}

// rowsTarget is what results name: the kernel that moves rows.
const rowsTarget = "append"

// move runs such a case, by the one kernel that there is for it.
func (c *Case) move(ctx context.Context, dev *flash.Device) (r Result) {
	start := time.Now()
	r = Result{Case: c.Name, Tier: flash.TierScalar, Target: rowsTarget, Kernel: rowsTarget, NoLSE: true}
	defer func() {
		r.Duration = time.Since(start)
		r.Pass = r.Failure == ""
	}()
	of, m := c.operator.of, &mover{ctx: ctx, dev: dev}
	output, run := "Y", m.rotate
	if of.Op == "TensorScatter" {
		output, run = "present_cache", m.scatter
	}
	got, err := run(of)
	for _, t := range m.made {
		err = errors.Join(err, t.Close())
	}
	if err != nil {
		r.fail("%v", err)
		return r
	}
	r.heldTo(of, output, ref.Widen(got))
	return r
}

// mover has the tensors of a case.
type mover struct {
	ctx  context.Context
	dev  *flash.Device
	made []*flash.Tensor
	err  error // the first
}

// tensor makes one with these values; nil: as they come.
func (m *mover) tensor(make func(flash.DType, int, int, int, int) (*flash.Tensor, error), dtype flash.DType, shape [4]int,
	values []float32) *flash.Tensor {
	if m.err != nil {
		return nil
	}
	t, err := make(dtype, shape[0], shape[1], shape[2], shape[3])
	if err == nil {
		m.made = append(m.made, t)
		if values != nil {
			err = t.Upload(m.ctx, values)
		}
	}
	m.err = err
	return t
}

// integers makes a tensor of them.
func (m *mover) integers(shape [4]int, values []int) *flash.Tensor {
	floats := make([]float32, len(values))
	for i, x := range values {
		floats[i] = float32(x)
	}
	return m.tensor(m.dev.NewTensor, flash.Int32, shape, floats)
}

func shapeOf(t ref.Tensor) [4]int { return [4]int{t.B, t.H, t.N, t.D} }

func flashType(t ref.DType) flash.DType {
	return map[ref.DType]flash.DType{ref.F32: flash.F32, ref.F16: flash.F16, ref.BF16: flash.BF16}[t]
}

func (m *mover) rotate(of *onnx.Case) (got []float32, err error) {
	r, err := of.Rotary()
	if err != nil {
		return nil, err
	}
	x, dtype, cos, sin := r.X, flashType(r.Type), r.Cos, r.Sin
	turn := rows.Rotary{Columns: 2 * r.Cos.D, Interleaved: r.Interleaved, PerToken: r.Positions == nil}
	if r.Positions != nil {
		cos, sin = r.CosCache, r.SinCache
		turn.Table, turn.Positions = cos.N, true
	}
	plan, err := rows.PlanRotate(m.dev, rows.RotateProblem{Batch: x.B, Heads: x.H, Rows: x.N, HeadDim: x.D, DType: dtype, Rotary: turn})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	lay := m.dev.NewTensor
	if r.Flat {
		lay = m.dev.NewTensorBNHD
	}
	f := rows.Rotation{X: m.tensor(lay, dtype, shapeOf(x), x.Data), Y: m.tensor(lay, dtype, shapeOf(x), nil),
		Cos: m.tensor(m.dev.NewTensor, flash.F32, shapeOf(cos), cos.Data),
		Sin: m.tensor(m.dev.NewTensor, flash.F32, shapeOf(sin), sin.Data)}
	if r.Positions != nil {
		f.Positions = m.integers([4]int{1, 1, x.B, x.N}, r.Positions)
	}
	if m.err != nil {
		return nil, m.err
	}
	if err := plan.Rotate(m.ctx, f); err != nil {
		return nil, err
	}
	y := tensor(shapeOf(x))
	if err := f.Y.Download(m.ctx, y.Data); err != nil || !r.Flat {
		return y.Data, err
	}
	for b := range y.B { // as the case has them
		for n := range y.N {
			for h := range y.H {
				got = append(got, y.Row(b, h, n)...)
			}
		}
	}
	return got, nil
}

func (m *mover) scatter(of *onnx.Case) (got []float32, err error) {
	s, err := of.Scatter()
	if err != nil {
		return nil, err
	}
	dtype := flashType(s.Type)
	plan, err := rows.PlanAppend(m.dev, rows.AppendProblem{Batch: s.Cache.B, KeyHeads: s.Cache.H, Rows: s.Update.N, CacheRows: s.Cache.N,
		HeadDim: s.Cache.D,
		DType:   dtype, Circular: s.Circular, KeysOnly: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	cache := m.tensor(m.dev.NewTensor, dtype, shapeOf(s.Cache), s.Cache.Data)
	f := rows.Append{K: m.tensor(m.dev.NewTensor, dtype, shapeOf(s.Update), s.Update.Data), KeyCache: cache,
		At: m.integers([4]int{1, 1, 1, s.Cache.B}, s.At)}
	if m.err != nil {
		return nil, m.err
	}
	if err := plan.Append(m.ctx, f); err != nil {
		return nil, err
	}
	got = make([]float32, len(s.Cache.Data))
	return got, cache.Download(m.ctx, got)
}

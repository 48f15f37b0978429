package main

import (
	"errors"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/rows"
)

// owned closes what a part of this program made on the device, the latest first.
type owned []interface{ Close() error }

func (o *owned) close() (err error) {
	for i := len(*o) - 1; i >= 0; i-- {
		err = errors.Join(err, (*o)[i].Close())
	}
	*o = nil
	return err
}

// rows allocates length rows of cols numbers for each of the batch entries.
func (o *owned) rows(dev *flash.Device, t flash.DType, batch, length, cols int) (*flash.Tensor, error) {
	x, err := dev.NewTensor(t, batch, 1, length, cols)
	if err == nil {
		*o = append(*o, x)
	}
	return x, err
}

func (o *owned) plan(dev *flash.Device, p flash.Problem) (*flash.Plan, error) {
	plan, err := dev.Plan(p)
	if err == nil {
		*o = append(*o, plan)
	}
	return plan, err
}

func (o *owned) rotation(dev *flash.Device, p rows.RotateProblem) (*rows.Plan, error) {
	plan, err := rows.PlanRotate(dev, p)
	if err == nil {
		*o = append(*o, plan)
	}
	return plan, err
}

// headsOf sees n heads of rows that hold one head after the other, as [batch, n, length, dim]: attention takes any strides, so nothing is
// rearranged between a product of matrices and attention.
func headsOf(rows *flash.Tensor, first, n, dim int) (*flash.Tensor, error) {
	s := rows.Shape()
	batch, length, cols := s[0], s[2], s[3]
	return rows.View(uint64(first*dim*rows.DType().Size()), rows.DType(), [4]int{batch, n, length, dim},
		[4]int{length * cols, dim, cols, 1})
}

// packed is queries, keys and values of a pass as they come out of one product of matrices.
type packed struct{ all, q, k, v, turned *flash.Tensor }

func (o *owned) packed(dev *flash.Device, t flash.DType, c config, batch, length int) (p packed, err error) {
	if p.all, err = o.rows(dev, t, batch, length, c.columns()); err != nil {
		return p, err
	}
	for _, part := range []struct {
		to       **flash.Tensor
		first, n int
	}{{&p.q, 0, c.heads}, {&p.k, c.heads, c.keyHeads}, {&p.v, c.heads + c.keyHeads, c.keyHeads}, {&p.turned, 0, c.heads + c.keyHeads}} {
		if *part.to, err = headsOf(p.all, part.first, part.n, c.dim); err != nil {
			return p, err
		}
	}
	return p, nil
}

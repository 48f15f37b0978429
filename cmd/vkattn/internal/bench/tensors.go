package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
)

// tensorSet is one set of inputs with its output.
type tensorSet struct {
	q, k, v, o *flash.Tensor
	grad       gradientSet // nil tensors where backward is not timed
	moves      tangentSet  // likewise, forward mode
	in         *inputs

	bias, sinks, starts, used, lists, pages, keyScales, valueScales, maxLogit *flash.Tensor // nil where the case has none
}

// bytes is the size of inputs and outputs.
func (s *tensorSet) bytes() uint64 { return bytesOf(s.all()...) }

func (s *tensorSet) all() []*flash.Tensor {
	return []*flash.Tensor{s.q, s.k, s.v, s.o, s.bias, s.sinks, s.starts, s.used, s.lists, s.pages, s.keyScales, s.valueScales,
		s.maxLogit}
}

func (s *tensorSet) close() {
	for _, t := range slices.Concat(s.all(), s.grad.all(), s.moves.all()) {
		if t != nil {
			t.Close()
		}
	}
}

// gradientSet is what a backward pass takes and gives besides a tensorSet's tensors. Of a case without a bias or sinks, their
// gradients are nil.
type gradientSet struct{ lse, do, dq, dk, dv, dbias, dsinks *flash.Tensor }

func (g *gradientSet) all() []*flash.Tensor { return append(g.outputs(), g.lse, g.do) }

func (g *gradientSet) outputs() []*flash.Tensor {
	return []*flash.Tensor{g.dq, g.dk, g.dv, g.dbias, g.dsinks}
}

func (d *Device) newSet(ctx context.Context, c result.Case, p flash.Problem, passes result.Passes, seed uint64) (set tensorSet, err error) {
	in := newInputs(c, seed)
	set.in = in
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	all := []filled{
		{&set.q, p.DType, p.QShape(), in.q.place.bnhd, in.q.bytes}, {&set.o, p.DType, p.OShape(), in.q.place.bnhd, nil},
		{&set.k, p.KeyType, p.KShape(), in.k.place.bnhd, in.k.bytes},
	}
	if !c.Latent {
		all = append(all, filled{&set.v, p.ValueType, p.VShape(), in.v.place.bnhd, in.v.bytes})
	}
	if c.MaxLogit {
		all = append(all, filled{&set.maxLogit, flash.F32, [4]int{1, 1, p.Batch, p.Heads}, false, nil})
	}
	if c.Bias != "" {
		shape := c.BiasShape()
		all = append(all, filled{&set.bias, p.Bias.DType, shape, false,
			func() []byte { return in.bias.Bytes(0, shape[0]*shape[1]*shape[2]*shape[3]) }})
	}
	if c.Sinks {
		all = append(all, filled{&set.sinks, flash.F32, sinksShape(p), false, func() []byte { return in.sinks.Bytes(0, p.Heads) }})
	}
	if c.Packed != "" {
		all = append(all, filled{&set.starts, flash.Int32, [4]int{1, 1, 1, p.Batch + 1}, false, func() []byte { return words(c.Starts()) }})
	}
	if c.Used != "" {
		all = append(all, filled{&set.used, flash.Int32, [4]int{1, 1, 1, p.Batch}, false, func() []byte { return words(c.UsedKeys()) }})
	}
	if c.Listed > 0 {
		all = append(all, filled{&set.lists, flash.Int32, [4]int{p.Batch, 1, p.QueryLen, c.Listed}, false,
			func() []byte { return words(c.Lists()) }})
	}
	if c.Page > 0 {
		all = append(all, filled{&set.pages, flash.Int32, [4]int{1, 1, p.Batch, p.Pages.PerSequence}, false,
			func() []byte { return words(in.pages) }})
	}
	if attn.DType(p.KeyType).Float8() {
		shape := [4]int{1, 1, p.Batch, p.KeyHeads}
		all = append(all, filled{&set.keyScales, flash.F32, shape, false, func() []byte { return in.k.scales(p.Batch) }},
			filled{&set.valueScales, flash.F32, shape, false, func() []byte { return in.v.scales(p.Batch) }})
	}
	if err = d.fill(ctx, all); err == nil && c.Latent {
		set.v, err = set.k.View(0, p.ValueType, p.VShape(), set.k.Strides())
	}
	if err == nil && passes.Bwd {
		set.grad, err = d.newGradients(ctx, c, p, in)
	}
	if err == nil && passes.JVP {
		set.moves, err = d.newTangents(ctx, p, in)
	}
	return set, err
}

func (d *Device) newGradients(ctx context.Context, c result.Case, p flash.Problem, in *inputs) (g gradientSet, err error) {
	all := []filled{
		{&g.do, p.DType, p.OShape(), in.do.place.bnhd, in.do.bytes}, {&g.dq, p.DType, p.QShape(), in.q.place.bnhd, nil},
		{&g.dk, p.DType, p.KShape(), in.k.place.bnhd, nil}, {&g.dv, p.DType, p.VShape(), in.v.place.bnhd, nil},
	}
	if c.Bias != "" && c.Listed == 0 { // of lists there is no such gradient
		all = append(all, filled{&g.dbias, p.Bias.DType, c.BiasShape(), false, nil})
	}
	if c.Sinks {
		all = append(all, filled{&g.dsinks, flash.F32, sinksShape(p), false, nil})
	}
	if err = d.fill(ctx, all); err != nil {
		return g, err
	}
	g.lse, err = d.newLSE(p)
	return g, err
}

// filled is a tensor to be made, with what its memory is to hold.
type filled struct {
	dst   **flash.Tensor
	dtype flash.DType
	shape [4]int
	bnhd  bool          // memory is [batch, length, heads, dim]
	bytes func() []byte // nil: nothing yet
}

// fill makes tensors one after the other: what the host holds of one is gone before the next.
func (d *Device) fill(ctx context.Context, all []filled) (err error) {
	for _, t := range all {
		allocate := d.dev.NewTensor
		if t.bnhd {
			allocate = d.dev.NewTensorBNHD
		}
		if *t.dst, err = allocate(t.dtype, t.shape[0], t.shape[1], t.shape[2], t.shape[3]); err != nil {
			return err
		}
		if t.bytes == nil || d.dev.Info().Compiles {
			continue
		}
		if err = (*t.dst).UploadBytes(ctx, t.bytes()); err != nil {
			return err
		}
	}
	return nil
}

// newLSE makes the row statistics of a problem.
func (d *Device) newLSE(p flash.Problem) (*flash.Tensor, error) {
	shape := p.LSEShape()
	return d.dev.NewLSE(shape[0], shape[1], shape[2])
}

// sinksShape is that of sinks and of their gradient.
func sinksShape(p flash.Problem) [4]int { return [4]int{1, 1, 1, p.Heads} }

// bytesOf is the size of those tensors that there are.
func bytesOf(tensors ...*flash.Tensor) (n uint64) {
	for _, t := range tensors {
		if t != nil {
			n += t.Bytes()
		}
	}
	return n
}

// poison fills a tensor with the all-ones pattern.
func poison(ctx context.Context, t *flash.Tensor) error {
	data := make([]byte, t.Bytes())
	fillOnes(data)
	return t.UploadBytes(ctx, data)
}

// masks are what a case's passes take of the blocks of its scores: a block mask, or the classes that its mask function makes of them.
type masks struct {
	blocks  *flash.BlockMask
	classes *flash.MaskBlocks
}

// masks puts those of a case into device memory; nil where it has none.
func (d *Device) masks(ctx context.Context, c result.Case) (m masks, err error) {
	p, err := c.Problem()
	if err != nil {
		return m, err
	}
	if b := c.BlockMask(); b != nil {
		m.blocks, err = d.dev.NewBlockMask(ctx, p, b.Data)
	}
	if err == nil && p.MaskBlocks != (flash.Blocks{}) {
		m.classes, err = d.dev.NewMaskBlocks(ctx, p)
	}
	return m, err
}

// Close frees them.
func (m masks) Close() error { return errors.Join(m.blocks.Close(), m.classes.Close()) }

// shares are those of blocks of each class, "empty 88.0%, full 10.9%, partial 1.1%"; "" without classes.
func (m masks) shares(ctx context.Context) (string, error) {
	if m.classes == nil {
		return "", nil
	}
	empty, full, partial, err := m.classes.Count(ctx)
	percent := func(n int) float64 { return 100 * float64(n) / float64(empty+full+partial) }
	return fmt.Sprintf("empty %.1f%%, full %.1f%%, partial %.1f%%", percent(empty), percent(full), percent(partial)), err
}

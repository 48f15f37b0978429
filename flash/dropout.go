package flash

import (
	"context"
	"errors"
)

// maxMask bounds the masks that DropoutMask writes out.
const maxMask = 1 << 28

// DropoutMask writes out which weights a forward or backward pass of this seed and offset keeps: [Batch, Heads, QueryLen,
// KeyLen] in row-major order, true where kept; false also where Problem.Causal forbids. It is what the plan's own kernel
// does, not another computation of the same bits: the kernel runs on q = 0, where every weight of a row is the same, and on
// unit vectors for v, so that o shows weights one by one. That takes ⌈KeyLen/ValueDim⌉ runs: it is for tests and for looking. A function
// of the scores, by which weights may vanish, is left out: draws do not depend on it, and the kernel of that tier runs without.
//
// The error is an [*ArgumentError] for packed sequences and pages, and for problems whose passes take more tensors than q, k, v and o.
func (p *Plan) DropoutMask(ctx context.Context, seed uint64, offset uint32) (mask []bool, err error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	pr := &p.problem
	switch {
	case pr.Packed != (Packed{}):
		return nil, badArgument("Problem.Packed", pr.Packed, "must be zero: a mask is of a batch")
	case pr.Pages != (Pages{}):
		return nil, badArgument("Problem.Pages", pr.Pages, "must be zero: a mask is of a batch")
	}
	if !p.attn.Score.Identity() {
		plain := *pr
		plain.ScoreFunction = Problem{}.ScoreFunction
		inner, err := p.dev.Plan(plain, WithImplementation(Implementation(p.kernel.Implementation)), WithTier(Tier(p.kernel.Tier)))
		if err != nil {
			return nil, err
		}
		mask, err = inner.DropoutMask(ctx, seed, offset)
		return mask, errors.Join(err, inner.Close())
	}
	rows := pr.Batch * pr.Heads * pr.QueryLen
	if rows > maxMask/pr.KeyLen {
		return nil, badArgument("Problem", p.attn.Dims(), "a mask written out may have at most %d elements", maxMask)
	}
	var t [4]*Tensor
	defer func() {
		for _, x := range t {
			if x != nil {
				err = errors.Join(err, x.Close())
			}
		}
	}()
	for i, s := range [...][4]int{pr.QShape(), pr.KShape(), pr.VShape(), pr.OShape()} {
		if t[i], err = p.dev.NewTensor(pr.DType, s[0], s[1], s[2], s[3]); err != nil {
			return nil, err
		}
	}
	for _, x := range t[:2] {
		if err := x.Upload(ctx, make([]float32, x.Elements())); err != nil {
			return nil, err
		}
	}
	mask = make([]bool, rows*pr.KeyLen)
	dv := pr.ValueDim
	v, o := make([]float32, t[2].Elements()), make([]float32, t[3].Elements())
	for first := 0; first < pr.KeyLen; first += dv {
		n := min(dv, pr.KeyLen-first)
		clear(v)
		for head := range pr.Batch * pr.KeyHeads {
			for c := range n {
				v[(head*pr.KeyLen+first+c)*dv+c] = 1
			}
		}
		if err := t[2].Upload(ctx, v); err != nil {
			return nil, err
		}
		pending, err := p.SubmitForward(Forward{Q: t[0], K: t[1], V: t[2], O: t[3], Seed: seed, Offset: offset})
		if err != nil {
			return nil, err
		}
		if err := pending.Wait(ctx); err != nil {
			return nil, err
		}
		if err := t[3].Download(ctx, o); err != nil {
			return nil, err
		}
		for r := range rows {
			for c := range n {
				mask[r*pr.KeyLen+first+c] = o[r*dv+c] != 0
			}
		}
	}
	return mask, nil
}

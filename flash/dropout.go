package flash

import (
	"context"
	"errors"
	"slices"
)

// maxMask bounds the masks that DropoutMask writes out.
const maxMask = 1 << 28

// DropoutMask writes out which weights a forward or backward pass of this seed and offset keeps: [Batch, Heads, QueryLen,
// KeyLen] in row-major order, true where kept; false also where Problem.Causal forbids. It is what the plan's own kernel
// does, not another computation of the same bits: the kernel runs on q = 0, where every weight of a row is the same, and on
// unit vectors for v, so that o shows weights one by one. That takes ⌈KeyLen/ValueDim⌉ runs: it is for tests and for looking.
func (p *Plan) DropoutMask(ctx context.Context, seed uint64, offset uint32) (mask []bool, err error) {
	if err := p.usable(); err != nil {
		return nil, err
	}
	pr := &p.problem
	rows := pr.Batch * pr.Heads * pr.QueryLen
	if rows > maxMask/pr.KeyLen {
		return nil, badArgument("Problem", pr.dims(), "a mask written out may have at most %d elements", maxMask)
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

// A draw of dropout serves one query and, of 64 keys, those with the same ⌊j/2⌋ mod 4 (shaders/include/dropout.glsl).

// columnsOfDraws says whether what a draw serves lies in one lane where columns of fragments are keys: lane q of each four holds
// columns 2q, 2q+1, 2q+8 and 2q+9 of every 16.
func (l *matrixLayout) columnsOfDraws(form int) bool {
	return form == formRegisters && only(l.ColLane, []int{0, 2, 4}) && only(l.ColOfComp, []int{0, 1, 8, 9})
}

// rowsOfDraws says the same of the keys among rows, of which a lane holds q and q+8, q < 8, of every 16: they share a word of a draw.
func (l *matrixLayout) rowsOfDraws(form int) bool {
	return form == formRegisters && only(l.RowLane, []int{0, 1, 2, 4}) && only(l.RowOfComp, []int{0, 8})
}

// pairsOfQueries says whether a lane's components, where columns of fragments are queries, are by twos columns 2n and 2n+1 of one row.
func (l *matrixLayout) pairsOfQueries() bool {
	for _, w := range l.ColLane {
		if w%2 != 0 {
			return false
		}
	}
	for e := 0; e+1 < len(l.ColOfComp); e += 2 {
		if l.ColOfComp[e]%2 != 0 || l.ColOfComp[e+1] != l.ColOfComp[e]+1 || l.RowOfComp[e+1] != l.RowOfComp[e] {
			return false
		}
	}
	return len(l.ColOfComp)%2 == 0
}

func only(values, allowed []int) bool {
	for _, v := range values {
		if !slices.Contains(allowed, v) {
			return false
		}
	}
	return true
}

// sharesDraws says whether tiles of n keys begin and end where groups of 64 keys do, or lie within one.
func sharesDraws(n int) bool { return n%64 == 0 || 64%n == 0 }

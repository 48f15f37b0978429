package bench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/ref"
)

// judgedGradients are names of gradients in the order of gradients.
var judgedGradients = [...]string{"dq", "dk", "dv", "dbias", "dsinks"}

// gradients are elements of gradients, one after the other, each in the order of judgedGradients.
type gradients [len(judgedGradients)][]float64

// checkGradients compares rows of dq, keys of dk and dv, rows of dbias and dsinks with float64: all of a small problem, else
// some of the first, the last and a random key head, at the places where kernels go wrong.
func (s *deviceShape) checkGradients(ctx context.Context, last int, blocks *ref.BlockMask) (checked, error) {
	p, set := s.problem, &s.sets[last]
	heads := p.Batch * p.KeyHeads
	random := rand.New(rand.NewPCG(result.InputSeed, uint64(heads)))
	full := s.c.MultiplyAdds() <= inFullBelow/4
	pick := func(n int) []int {
		if full {
			return upTo(n)
		}
		return sampleQueries(n, 8, random)
	}
	chosen := map[int]bool{0: true, heads - 1: true, random.IntN(heads): true}
	var got, want, plain gradients
	res := checked{}
	for n := range heads {
		if !full && !chosen[n] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return res, err
		}
		g, err := s.gradientHead(ctx, set, n, uint32(last), blocks)
		if err != nil {
			return res, err
		}
		b, hk, group := n/p.KeyHeads, n%p.KeyHeads, p.Heads/p.KeyHeads
		for h := range group {
			if !full && h > 0 && h < group-1 {
				continue
			}
			out, err := readHead(ctx, s.c, set.grad.dq, b, hk*group+h, 0, g.nq)
			if err != nil {
				return res, err
			}
			for _, i := range pick(g.nq) {
				w, pl := g.dq(h, i)
				want[0], plain[0] = append(want[0], w...), append(plain[0], pl...)
				got[0] = append(got[0], ref.Widen(out[i*g.d:(i+1)*g.d])...)
				res.rows++
			}
		}
		dk, err := readHead(ctx, s.c, set.grad.dk, b, hk, 0, g.nk)
		if err != nil {
			return res, err
		}
		dv, err := readHead(ctx, s.c, set.grad.dv, b, hk, 0, g.nk)
		if err != nil {
			return res, err
		}
		for _, j := range pick(g.nk) {
			wk, pk, wv, pv := g.dkdv(j)
			want[1], plain[1], got[1] = append(want[1], wk...), append(plain[1], pk...), append(got[1], ref.Widen(dk[j*g.d:(j+1)*g.d])...)
			want[2], plain[2], got[2] = append(want[2], wv...), append(plain[2], pv...), append(got[2], ref.Widen(dv[j*g.dv:(j+1)*g.dv])...)
			res.rows++
		}
	}
	if s.c.Bias != "" {
		rows, err := s.biasGradients(ctx, set, uint32(last), blocks, full, pick, random, [3]*[]float64{&got[3], &want[3], &plain[3]})
		if err != nil {
			return res, err
		}
		res.rows += rows
	}
	if s.c.Sinks {
		rows, err := s.sinkGradients(ctx, set, full, random, [3]*[]float64{&got[4], &want[4], &plain[4]})
		if err != nil {
			return res, err
		}
		res.rows += rows
	}
	worst := -1.0
	for i, name := range judgedGradients {
		if len(want[i]) == 0 {
			continue
		}
		most := 0.0
		for j := range got[i] {
			most = max(most, math.Abs(got[i][j]-want[i][j])) // max keeps a NaN
		}
		v := ref.CheckGradient(got[i], want[i], plain[i], set.in.dtype)
		if ratio := v.Err / v.Bound; ratio > worst || math.IsNaN(ratio) { // a NaN stays
			worst, res.maxErr = ratio, most
			if set.in.dtype != ref.F32 {
				res.bound = v.Bound
			}
		}
		if !v.OK && res.err == nil {
			res.err = fmt.Errorf("%s is wrong: %v of %d rows and keys checked", name, v, res.rows)
		}
	}
	return res, nil
}

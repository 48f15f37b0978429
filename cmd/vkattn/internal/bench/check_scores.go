package bench

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/internal/ref"
)

// upTo lists 0, 1, … below n.
func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// own are the indices of a problem's dimension, n long, that the element at one index of a bias is added to: all where the bias
// has one for all.
func own(length, index, n int) []int {
	if length == 1 {
		return upTo(n)
	}
	return []int{index}
}

// ends lists 0, n−1 and one between at random, or all up to n.
func ends(n int, all bool, random *rand.Rand) []int {
	if all || n < 3 {
		return upTo(n)
	}
	return slices.Compact([]int{0, random.IntN(n-1) + 1, n - 1}) // in order: no index is visited twice
}

// biasGradients adds rows of dbias to lists of what the device gave, what is right and the yardstick, and says how many: whole
// rows, but single keys where one row is summed over all queries. What the bias is broadcast over is summed.
func (s *deviceShape) biasGradients(ctx context.Context, set *tensorSet, offset uint32, blocks *ref.BlockMask, full bool,
	pick func(int) []int, random *rand.Rand, to [3]*[]float64) (rows int, err error) {
	p, shape := s.problem, s.c.BiasShape()
	keys := upTo(p.KeyLen)
	if shape[2] == 1 {
		keys = pick(p.KeyLen)
	}
	for _, slice := range ends(shape[0]*shape[1], full, random) {
		b0, h0 := slice/shape[1], slice%shape[1]
		at := pick(shape[2])
		want, plain := make([][]float64, len(at)), make([][]float64, len(at))
		for n := range at {
			want[n], plain[n] = make([]float64, len(keys)), make([]float64, len(keys))
		}
		var g *gradientHead
		read := -1
		for _, b := range own(shape[0], b0, p.Batch) {
			for _, h := range own(shape[1], h0, p.Heads) {
				if err := ctx.Err(); err != nil {
					return rows, err
				}
				group := p.Heads / p.KeyHeads
				if n := b*p.KeyHeads + h/group; n != read { // the heads of a group come one after the other
					if g, err = s.gradientHead(ctx, set, n, offset, blocks); err != nil {
						return rows, err
					}
					read = n
				}
				for n, row := range at {
					for _, i := range own(shape[2], row, p.QueryLen) {
						for k, j := range keys {
							if t, ok := g.term(h%group, i, j); ok {
								want[n][k] += t.df
								plain[n][k] += t.plainDF
							}
						}
					}
				}
			}
		}
		for n, row := range at {
			out, err := readHead(ctx, s.c, set.grad.dbias, b0, h0, row, 1)
			if err != nil {
				return rows, err
			}
			for k, j := range keys {
				*to[0] = append(*to[0], float64(out[j]))
				*to[1] = append(*to[1], want[n][k])
				*to[2] = append(*to[2], g.rounded(plain[n][k]))
			}
			rows++
		}
	}
	return rows, nil
}

// sinkGradients does the same for dsinks, each a sum over batch and queries: −Σ exp(sink − lse)·δ. The yardstick has δ in the
// inputs' own dtype and sums in fp32, one after the other.
func (s *deviceShape) sinkGradients(ctx context.Context, set *tensorSet, full bool, random *rand.Rand,
	to [3]*[]float64) (rows int, err error) {
	p, in := s.problem, set.in
	all, err := readHead(ctx, s.c, set.grad.dsinks, 0, 0, 0, 1)
	if err != nil {
		return 0, err
	}
	sinks := in.sinks.Floats(0, p.Heads)
	for _, h := range ends(p.Heads, full, random) {
		sum, plain := 0.0, float32(0)
		for b := range p.Batch {
			if err := ctx.Err(); err != nil {
				return rows, err
			}
			n := s.c.Entry(b).Nq
			o, err := readHead(ctx, s.c, set.o, b, h, 0, n)
			if err != nil {
				return rows, err
			}
			lse, err := readHead(ctx, s.c, set.grad.lse, b, h, 0, n)
			if err != nil {
				return rows, err
			}
			do := in.do.head(b*p.Heads+h, n)
			for i := range n {
				delta := inner(do[i*p.ValueDim:(i+1)*p.ValueDim], o[i*p.ValueDim:(i+1)*p.ValueDim])
				weight := math.Exp(float64(sinks[h]) - float64(lse[i]))
				sum -= weight * delta
				plain -= float32(weight) * in.dtype.Round(float32(delta))
			}
		}
		*to[0], *to[1], *to[2] = append(*to[0], float64(all[h])), append(*to[1], sum), append(*to[2], float64(plain))
		rows++
	}
	return rows, nil
}

package ref

import "fmt"

// Variable length: sequences of different lengths packed one after the other along N of tensors with
// B = 1, their starts given as cumulative lengths (B+1 numbers, the first 0, the last the total).
// Within a sequence, positions count from its start; dropout counts sequences as batch.

// ForwardPacked computes o [1, Hq, total q, Dv] and lse [1, Hq, total q, 1].
func ForwardPacked(p Problem, startsQ, startsK []int32) (o, lse Array, err error) {
	return p.forwardPacked(startsQ, startsK, (*Problem).forwardRow)
}

// PlainForwardPacked is ForwardPacked in the dtype t.
func PlainForwardPacked(p Problem, t DType, startsQ, startsK []int32) (o, lse Array, err error) {
	return p.forwardPacked(startsQ, startsK, func(p *Problem, r Row, o []float64) float64 { return p.plainRow(r, t, o) })
}

func (p *Problem) forwardPacked(startsQ, startsK []int32, row func(*Problem, Row, []float64) float64) (o, lse Array, err error) {
	if err := p.checkPacked(startsQ, startsK); err != nil {
		return Array{}, Array{}, err
	}
	o = NewArray(1, p.Q.H, p.Q.N, p.V.D)
	lse = NewArray(1, p.Q.H, p.Q.N, 1)
	for n := range len(startsQ) - 1 {
		one := p.sequence(startsQ, startsK, n)
		start := int(startsQ[n])
		parallel(one.Q.H*one.Q.N, func(x int) {
			h, i := x/one.Q.N, x%one.Q.N
			lse.Row(0, h, start+i)[0] = row(&one, Row{0, h, i}, o.Row(0, h, start+i))
		})
	}
	return o, lse, nil
}

// BackwardPacked computes dq, dk and dv in the packed shapes (and dsinks); dlse is [Hq·total q] or nil.
func BackwardPacked(p Problem, startsQ, startsK []int32, do Tensor, dlse []float32) (*Gradients, error) {
	return p.backwardPacked(startsQ, startsK, do, dlse, (*Problem).backward)
}

// PlainBackwardPacked is BackwardPacked in the dtype t.
func PlainBackwardPacked(p Problem, t DType, startsQ, startsK []int32, do Tensor, dlse []float32) (*Gradients, error) {
	return p.backwardPacked(startsQ, startsK, do, dlse, func(p *Problem, do Tensor, dlse []float32) *Gradients {
		return p.plainBackward(t, do, dlse)
	})
}

func (p *Problem) backwardPacked(startsQ, startsK []int32, do Tensor, dlse []float32,
	backward func(*Problem, Tensor, []float32) *Gradients) (*Gradients, error) {
	if err := p.checkPacked(startsQ, startsK); err != nil {
		return nil, err
	}
	if err := p.checkBackward(do, dlse); err != nil {
		return nil, err
	}
	g := p.newGradients()
	for n := range len(startsQ) - 1 {
		one := p.sequence(startsQ, startsK, n)
		var dl []float32
		for h := 0; dlse != nil && h < p.Q.H; h++ {
			dl = append(dl, dlse[h*p.Q.N+int(startsQ[n]):][:one.Q.N]...)
		}
		part := backward(&one, gather(do, int(startsQ[n]), one.Q.N), dl)
		scatter(part.DQ, g.DQ, int(startsQ[n]))
		scatter(part.DK, g.DK, int(startsK[n]))
		scatter(part.DV, g.DV, int(startsK[n]))
		for h, x := range part.DSinks {
			g.DSinks[h] += x
		}
	}
	return g, nil
}

func (p *Problem) checkPacked(startsQ, startsK []int32) error {
	if err := p.Check(); err != nil {
		return err
	}
	if p.Q.B != 1 {
		return fmt.Errorf("ref: batch of packed tensors is %d, want 1", p.Q.B)
	}
	if p.biased() || p.Mask != nil || p.Blocks != nil || p.KeyLens != nil || p.QueryLens != nil || p.Offset != nil {
		return fmt.Errorf("ref: bias, mask, block mask, lengths of keys and offset are not defined for packed sequences")
	}
	if len(startsQ) != len(startsK) || len(startsQ) < 2 {
		return fmt.Errorf("ref: %d and %d sequence starts: want as many for q as for k, at least 2", len(startsQ), len(startsK))
	}
	for _, s := range []struct {
		name   string
		starts []int32
		total  int
	}{{"q", startsQ, p.Q.N}, {"k", startsK, p.K.N}} {
		for n := 1; n < len(s.starts); n++ {
			if s.starts[n] < s.starts[n-1] {
				return fmt.Errorf("ref: sequence starts of %s decrease at %d: %d after %d", s.name, n, s.starts[n], s.starts[n-1])
			}
		}
		if s.starts[0] != 0 || int(s.starts[len(s.starts)-1]) != s.total {
			return fmt.Errorf("ref: sequence starts of %s go from %d to %d, want 0 to %d",
				s.name, s.starts[0], s.starts[len(s.starts)-1], s.total)
		}
	}
	return nil
}

// sequence cuts out the n-th sequence as a problem of its own; it may be empty.
func (p *Problem) sequence(startsQ, startsK []int32, n int) Problem {
	lq, lk := int(startsQ[n+1]-startsQ[n]), int(startsK[n+1]-startsK[n])
	one := *p
	one.sequenceIndex = n
	one.Q = gather(p.Q, int(startsQ[n]), lq)
	one.K = gather(p.K, int(startsK[n]), lk)
	one.V = gather(p.V, int(startsK[n]), lk)
	return one
}

// gather copies rows [start, start+n) of every head of a B = 1 tensor.
func gather(t Tensor, start, n int) Tensor {
	out := NewTensor(1, t.H, n, t.D)
	for h := range t.H {
		at := (h*t.N + start) * t.D
		copy(out.Data[h*n*t.D:], t.Data[at:at+n*t.D])
	}
	return out
}

// scatter copies a sequence's rows to their place.
func scatter(part, into Array, start int) {
	for h := range part.H {
		copy(into.Data[(h*into.N+start)*into.D:], part.Data[h*part.N*part.D:(h+1)*part.N*part.D])
	}
}

package kernel

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/pipeline"
)

// capturedKind says what the numbers that a self-check's functions capture are like.
type capturedKind int

const (
	smallNumbers  capturedKind = iota // integers below 3, as of documents or buckets; normally distributed floats
	lengths                           // integers near the number of queries and keys
	zeroOrOne                         // 0 and 1, as of masks that functions multiply by
	nearZero                          // floats near 0
	capturedKinds                     // how many there are
)

// captures says whether functions of a problem capture numbers that a self-check draws.
func captures(p *attn.Problem) bool {
	all, _ := p.Code().Captures() // a problem's are in order
	return slices.ContainsFunc(all, func(t score.Tensor) bool { return !t.Table() })
}

// selfCheckScores draws what goes with the scores of a self-check's problem: numbers near those of scores, an infinity in the bias, masks
// of two keys in three, and what functions capture.
func selfCheckScores(p *attn.Problem, in *ref.Problem, rng *rand.Rand, kind capturedKind) {
	in.Score, in.Sees = p.Score, p.Sees
	for i, to := range in.Biases.Fields() {
		if of := Biases[i].PerScore(p); of.In {
			s := of.Shape(p)
			b := ref.NewTensor(s[0], s[1], s[2], s[3])
			fillSelfCheck(rng, of.DType, b.Data)
			b.Data[len(b.Data)/2] = float32(math.Inf(-1))
			*to = &b
		}
	}
	if p.BoolMask.In {
		s := p.BoolMaskShape()
		m := &ref.Mask{B: s[0], H: s[1], N: s[2], M: s[3]}
		for range Product(s) {
			m.Data = append(m.Data, rng.IntN(3) > 0)
		}
		in.Mask = m
	}
	if p.Sinks {
		for range p.Heads {
			in.Sinks = append(in.Sinks, float32(rng.NormFloat64()))
		}
	}
	in.Lists = selfCheckLists(p, rng)
	captured := score.Data{}
	in.Captured = captured
	all, _ := p.Code().Captures() // a problem's are in order
	for _, t := range all {
		switch {
		case t.Table():
		case t.Type == score.Int32:
			values := make([]int32, t.Elements())
			for i := range values {
				values[i] = int32(rng.IntN(3))
				if longest := max(p.QueryLen, p.KeyLen); kind == lengths {
					values[i] = int32(longest - rng.IntN(longest/3+1))
				}
				if kind == zeroOrOne {
					values[i] /= 2
				}
				if p.Blocks.Classed { // runs of more than a block, so that documents have blocks of each class
					values[i] = int32(4 * i / (5 * max(p.Blocks.Queries, p.Blocks.Keys)))
				}
			}
			captured[t.Name] = values
		default:
			values := make([]float32, t.Elements())
			fillSelfCheck(rng, attn.F32, values)
			for i := range values {
				switch kind {
				case zeroOrOne:
					values[i] = float32(BoolInt(values[i] > 0))
				case nearZero:
					values[i] /= 1 << 24
				}
			}
			captured[t.Name] = values
		}
	}
}

// selfCheckLists draws lists of keys, nil where the problem has none: three entries in four are keys, in any order, and of others some are
// no key of any batch entry.
func selfCheckLists(p *attn.Problem, rng *rand.Rand) *ref.Lists {
	if p.Lists.None() {
		return nil
	}
	shape := p.ListsShape()
	l := &ref.Lists{H: shape[1], K: shape[3]}
	for range shape[0] * shape[1] * shape[2] {
		keys := rng.Perm(p.KeyLen)
		for n := range l.K {
			switch {
			case n < len(keys) && rng.IntN(4) > 0:
				l.Data = append(l.Data, int32(keys[n]))
			case rng.IntN(2) > 0:
				l.Data = append(l.Data, int32(p.KeyLen+rng.IntN(9)))
			default:
				l.Data = append(l.Data, -1)
			}
		}
	}
	return l
}

// selfCheckLengths draws the lengths of a self-check's batch entries, a part of all there can be and all in turn, and spoils what lies
// beyond.
func selfCheckLengths(p *attn.Problem, in *ref.Problem) {
	of := func(n int) (lens []int) {
		for b := range p.Batch {
			lens = append(lens, n-(b+1)%2*(n/3+1))
		}
		return lens
	}
	if p.KeyLengths || p.Pages.Compressed() {
		in.KeyLens = of(p.KeyLen)
		spoilBeyond(in.K, in.KeyLens)
		spoilBeyond(in.V, in.KeyLens)
	}
	if p.QueryLengths {
		in.QueryLens = of(p.QueryLen)
		spoilBeyond(in.Q, in.QueryLens)
	}
}

// spoilBeyond makes rows beyond lengths no numbers; nil: there are none.
func spoilBeyond(t ref.Tensor, lens []int) {
	for b, n := range lens {
		for h := range t.H {
			for i := n; i < t.N; i++ {
				row := t.Row(b, h, i)
				for d := range row {
					row[d] = float32(math.NaN())
				}
			}
		}
	}
}

// scoreValues adds the values of what goes with scores to those of other operands, by name.
func scoreValues(in *ref.Problem, values map[string][]float32) map[string][]float32 {
	for i, b := range in.Biases.Fields() {
		if *b != nil {
			values[Biases[i].Name] = (*b).Data
		}
	}
	if in.Mask != nil {
		bytes := make([]float32, len(in.Mask.Data))
		for i, b := range in.Mask.Data {
			bytes[i] = float32(BoolInt(b))
		}
		values["Mask"] = bytes
	}
	values["Sinks"] = in.Sinks
	if in.Lists != nil {
		for _, key := range in.Lists.Data {
			values["Lists"] = append(values["Lists"], float32(key))
		}
	}
	for name, lens := range map[string][]int{"KeyLengths": in.KeyLens, "QueryLengths": in.QueryLens} {
		for _, n := range lens {
			values[name] = append(values[name], float32(n))
		}
	}
	return values
}

// captured puts what the functions capture into device memory.
func (t *selfCheckTensors) captured(p *attn.Problem, in *ref.Problem, to *[MostCaptured]pipeline.Binding) {
	all, _ := p.Code().Captures() // a problem's are in order
	for i, c := range all {
		if !c.Table() {
			c.Floats, _ = in.Captured[c.Name].([]float32)
			c.Ints, _ = in.Captured[c.Name].([]int32)
		}
		to[i] = t.upload(TableBytes(c))
	}
}

// capturedSelfCheck is the gradient with respect to a captured tensor in a self-check.
type capturedSelfCheck struct {
	Operand
	elements int
}

// capturedGradient makes room for the gradient with respect to the captured tensor of a name; nil where that is "". What it is added to
// is added to what is right too.
func (t *selfCheckTensors) capturedGradient(p *attn.Problem, name string, g *Gradients, want *ref.Gradients) *capturedSelfCheck {
	if name == "" {
		return nil
	}
	all, _ := p.Code().Captures() // a problem's are in order
	g.HasDCaptured = true
	i := slices.IndexFunc(all, func(c score.Tensor) bool { return c.Name == name })
	c := &capturedSelfCheck{elements: all[i].Elements()}
	var start []float32
	if g.Accumulate {
		start = make([]float32, c.elements)
		for j := range start {
			start[j] = float32(j%7) - 3
			want.DCaptured[name][j] += float64(start[j])
		}
	}
	c.Operand = t.add(attn.F32, [4]int{1, 1, 1, c.elements}, true, start)
	g.DCaptured[i] = c.Binding
	return c
}

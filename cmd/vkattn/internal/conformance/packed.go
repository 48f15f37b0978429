package conformance

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// Cases of packed sequences have the inputs and answers of a padded batch, which the oracle knows: a sequence for each entry. Packed are
// the rows on the device alone: what an entry has beyond its slot lies nowhere there, and rows of no slot hold what inputs and outputs are
// surrounded by.

// packing is where the rows of sequences lie.
type packing struct {
	starts  []int // of slots, and the end of the last
	used    []int // rows that are used
	longest int   // rows of an entry of the batch
	total   int   // rows of a head's tensor
}

// packed are those of a case's queries and keys; nil: they lie as a batch.
type packed struct{ queries, keys *packing }

// of is the packing of the operand of a name.
func (k packed) of(name string) *packing {
	switch name {
	case "Q", "O", "LSE":
		return k.queries
	case "K", "V":
		return k.keys
	}
	return nil
}

// row is where row i of entry b lies; false: nowhere.
func (k *packing) row(b, i int) (int, bool) {
	at := k.starts[b] + i
	return at, at < k.starts[b+1]
}

// drawPacking draws lengths up to longest, slots that are longer where the problem has lengths besides, and rows of no slot around them.
func drawPacking(r *rand.Rand, sequences, longest int, lengths bool, draw func(r *rand.Rand, most int) int) *packing {
	k := &packing{starts: []int{r.IntN(4)}, longest: longest}
	for range sequences {
		n := draw(r, longest)
		slot := n
		if lengths {
			slot = min(n+r.IntN(5), longest) // kernels take longer ones too, but entries of the batch have no row for what those have more
		}
		k.used = append(k.used, n)
		k.starts = append(k.starts, k.starts[len(k.starts)-1]+slot)
	}
	k.total = max(1, k.starts[sequences]+r.IntN(4))
	return k
}

// Pack makes a case one of packed sequences: queries alone, or keys too. Lengths are drawn.
func (c *Case) Pack(r *rand.Rand, keys bool) *Case {
	p, draw := &c.Problem, c.lengths
	if draw == nil {
		draw = drawLength
	}
	c.packed.queries = drawPacking(r, p.Batch, p.QueryLen, p.QueryLengths, draw)
	p.Packed.Queries = c.packed.queries.total
	if keys {
		c.packed.keys = drawPacking(r, p.Batch, cmp.Or(p.KeyLen, p.QueryLen), p.KeyLengths, draw)
		p.Packed.Keys = c.packed.keys.total
	}
	return c
}

// batch is the problem of the case's inputs and answers.
func (c *Case) batch() flash.Problem {
	p := c.Problem
	p.Packed = flash.Packed{}
	return p
}

// nowhere sets the rows of gradient i (dq, dk, dv) that lie nowhere to 0, as they are read back.
func (c *Case) nowhere(i int, values []float32) {
	k := c.packed.of([3]string{"Q", "K", "V"}[i])
	if k == nil {
		return
	}
	t := [3]ref.Tensor{c.inputs.Q, c.inputs.K, c.inputs.V}[i]
	for row := range t.B * t.H * t.N {
		if _, ok := k.row(row/t.N/t.H, row%t.N); !ok {
			clear(values[row*t.D : (row+1)*t.D])
		}
	}
}

// startsTensor is where sequences start on a device, at an odd place between numbers that are none. A start that is no further than the one
// before is given as less, the first and the last row as what lies outside: kernels take them for that.
func (k *packing) startsTensor(ctx context.Context, dev *flash.Device, before int) (*flash.Tensor, error) {
	values := slices.Repeat([]float32{-1 << 30}, before+len(k.starts)+3)
	for i, s := range k.starts {
		switch to := &values[before+i]; {
		case s == 0:
			*to = -5
		case s == k.total:
			*to = float32(k.total + 9)
		case i > 0 && s == k.starts[i-1]:
			*to = float32(s - 1 - i%3)
		default:
			*to = float32(s)
		}
	}
	whole, err := dev.NewTensor(flash.Int32, 1, 1, 1, len(values))
	if err != nil {
		return nil, err
	}
	if err = whole.Upload(ctx, values); err == nil {
		var t *flash.Tensor
		if t, err = whole.View(uint64(4*before), flash.Int32, [4]int{1, 1, 1, len(k.starts)}, [4]int{}); err == nil {
			return t, nil
		}
	}
	whole.Close()
	return nil, err
}

// packedSequences are sequences of no, one, few and all rows, with whatever else attention may have.
func packedSequences(s *suite) {
	slopes := []float32{0.5, 0.25, 0.125, 0.0625}
	causal := func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }
	for i, x := range []struct {
		name string
		set  func(p *flash.Problem)
		core bool
	}{
		{"plain", func(p *flash.Problem) {}, true},
		{"causal", causal, true},
		{"top-left", func(p *flash.Problem) { p.Causal = flash.CausalTopLeft }, false},
		{"window", func(p *flash.Problem) { p.Causal, p.Window = flash.CausalBottomRight, flash.SlidingWindow(20, -1) }, true},
		{"used", func(p *flash.Problem) { causal(p); p.KeyLengths, p.QueryLengths = true, true }, true},
		{"used-keys", func(p *flash.Problem) { p.KeyLengths, p.Window = true, flash.SlidingWindow(30, 9) }, false},
		{"dropout", func(p *flash.Problem) { causal(p); p.Dropout = 0.25 }, false},
		{"alibi", func(p *flash.Problem) { p.ScoreFunction = score.ALiBi(slopes) }, false},
		{"softcap", func(p *flash.Problem) { causal(p); p.ScoreFunction = score.Softcap(2) }, false},
		{"sinks", func(p *flash.Problem) { causal(p); p.Sinks, p.QueryLengths = true, true }, true},
		{"bias", func(p *flash.Problem) {
			p.Bias = flash.PerScore{DType: p.DType, Batch: p.Batch, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
		{"bias-heads", func(p *flash.Problem) {
			causal(p)
			p.Bias = flash.PerScore{DType: flash.F32, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}, true},
		{"mask", func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: p.Batch, Heads: 1, Queries: p.QueryLen, Keys: p.KeyLen}
		}, false},
		{"relative", func(p *flash.Problem) {
			causal(p)
			p.ScoreFunction = score.RelativeBias(score.Capture("buckets", 8, p.Heads), score.T5Bucket(true, 8, 40))
		}, true},
	} {
		for j, dtype := range dtypes {
			if i > 1 && i%3 != j && !(x.core && j == 0) {
				continue
			}
			p := flash.Problem{Batch: 6, Heads: 4, KeyHeads: 2, QueryLen: 70, KeyLen: 83, HeadDim: s.dim(16), DType: dtype}
			x.set(&p)
			c := &Case{Name: name(dtype, "packed/%s", x.name), Core: x.core, Problem: p, Seed: uint64(i)}
			if i%4 == 2 {
				c.Layouts = all(OddBNHD)
			} else if i%4 == 1 {
				c.Layouts = all(BNHD)
			}
			s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(j))), true))
		}
	}
	for i, n := range []int{1, 3, 40} { // queries packed beside a batch of keys, few and many
		for j, lengths := range []bool{false, true} {
			p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 90, HeadDim: s.dim(32), DType: dtypes[(i+j)%3],
				Causal: causals[(i+j)%2]}
			p.KeyLengths = lengths
			if n == 3 && lengths {
				p.ScoreFunction = score.Softcap(3)
			}
			c := &Case{Name: name(p.DType, "packed/queries-%d-%v", n, lengths), Core: j == 1, Problem: p}
			s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), uint64(j))), false))
		}
	}
	for i, n := range []int{1, 3, 50} { // keys in parts
		p := flash.Problem{Batch: 5, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 700, HeadDim: s.dim(32), DType: dtypes[(i+1)%3],
			Causal: causals[(i+1)%2]}
		p.Sinks, p.QueryLengths = i != 0, i == 2
		c := &Case{Name: name(p.DType, "packed/parts-%d", n), Core: i == 1, Problem: p, Only: []flash.Implementation{flash.Flash}}
		c.Tuning = map[string]int{"parts": 3}
		s.add(c.Pack(rand.New(rand.NewPCG(uint64(i), 7)), i != 1))
	}
	for i, of := range []func(*rand.Rand, int) int{ // all alike, and more sequences than rows
		func(*rand.Rand, int) int { return 0 },
		func(_ *rand.Rand, most int) int { return most },
		func(r *rand.Rand, most int) int { return max(0, r.IntN(12)-9) },
	} {
		p := flash.Problem{Batch: []int{3, 3, 400}[i], Heads: 2, QueryLen: 40, HeadDim: s.dim(16), DType: flash.F16, Causal: causals[i%2]}
		c := &Case{Name: fmt.Sprintf("packed/%s", []string{"none", "full", "many"}[i]), Problem: p, lengths: of}
		s.add(c.Pack(rand.New(rand.NewPCG(9, uint64(i))), true))
	}
}

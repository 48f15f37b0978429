package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// drawLists draws lists of keys: most entries are keys, in any order, and among the others are numbers that are none. Of three queries and
// more the second last sees nothing, and the last has one key, behind all that are none. Keys that nobody has listed are spoilt, for nobody
// may read them, unless they are in pages, which entries share.
func (c *Case) drawLists(p flash.Problem, r *rand.Rand) {
	if p.Lists == (flash.Lists{}) {
		return
	}
	l := &ref.Lists{H: 1, K: p.Lists.Keys}
	if p.Lists.PerHead {
		l.H = p.KeyHeads
	}
	in := &c.inputs
	in.Lists = l
	listed := make([]bool, p.Batch*p.KeyHeads*p.KeyLen)
	for list := range p.Batch * l.H * p.QueryLen {
		b, h, query := list/p.QueryLen/l.H, list/p.QueryLen%l.H, list%p.QueryLen
		keys, share := r.Perm(p.KeyLen), []int{2, 4, 4, 30}[r.IntN(4)] // of which one is none
		if c.recent {
			for i := range keys {
				keys[i] = ((query-p.QueryLen-i)%p.KeyLen + p.KeyLen) % p.KeyLen
			}
		}
		last := p.QueryLen - 1 - query
		if p.QueryLen < 3 {
			last = 2
		}
		for n := range l.K {
			key := noKey(r, p.KeyLen)
			if n < len(keys) && r.IntN(share) > 0 && last > 1 || n == l.K-1 && last == 0 {
				key = int32(keys[n%len(keys)])
				for kh := h * p.KeyHeads / l.H; kh < (h+1)*p.KeyHeads/l.H; kh++ {
					listed[(b*p.KeyHeads+kh)*p.KeyLen+int(key)] = true
				}
			}
			l.Data = append(l.Data, key)
		}
	}
	for i, is := range listed {
		if !is && p.Pages == (flash.Pages{}) {
			at := [3]int{i / p.KeyLen / p.KeyHeads, i / p.KeyLen % p.KeyHeads, i % p.KeyLen}
			spoil(in.K.Row(at[0], at[1], at[2]))
			spoil(in.V.Row(at[0], at[1], at[2]))
		}
	}
}

// noKey is a number that is no key of n.
func noKey(r *rand.Rand, n int) int32 {
	return []int32{-1, -1, -1, int32(n), int32(n + 1 + r.IntN(100)), -1 << 31, 1 << 30}[r.IntN(7)]
}

// listsTensor is the lists on a device, between others that list key 0; nil where the case has none.
func (c *Case) listsTensor(ctx context.Context, dev *flash.Device) (*flash.Tensor, error) {
	l := c.inputs.Lists
	if l == nil {
		return nil, nil
	}
	const before, after = 3, 200 // more than a batch of keys
	all := make([]float32, before+len(l.Data)+after)
	for i, key := range l.Data {
		all[before+i] = float32(key)
	}
	return withinTensor(ctx, dev, flash.Int32, [4]int{c.Problem.Batch, l.H, c.Problem.QueryLen, l.K}, all, before)
}

// listed are problems whose queries have lists of keys: few and many entries, of queries and of key heads that share a list, with every
// mask, of whatever becomes of scores, wherever keys lie.
func listed(s *suite) {
	causal := func(p *flash.Problem) { p.Causal = flash.CausalBottomRight }
	for i, x := range []struct {
		name string
		core bool
		set  func(p *flash.Problem)
	}{
		{"plain", true, func(p *flash.Problem) {}},
		{"per-head", true, func(p *flash.Problem) { p.Lists.PerHead = true }},
		{"causal", true, causal},
		{"causal-recent", true, func(p *flash.Problem) { causal(p); p.Lists.Keys = 9 }},
		{"many-keys", true, func(p *flash.Problem) { p.KeyLen = 600 }},
		{"one", false, func(p *flash.Problem) { p.Lists.Keys = 1 }},
		{"more-than-keys", false, func(p *flash.Problem) { p.KeyLen, p.Lists.Keys = 20, 64 }},
		{"window", false, func(p *flash.Problem) { p.Window = flash.SlidingWindow(60, 7) }},
		{"lengths", true, func(p *flash.Problem) { causal(p); p.Batch, p.KeyLengths, p.QueryLengths = 5, true, true }},
		{"sinks", true, func(p *flash.Problem) { p.Sinks, p.MaxLogit = true, true }},
		{"alibi", true, func(p *flash.Problem) {
			causal(p)
			p.ScoreFunction = score.ALiBi([]float32{0.5, 0.25, 0.125, 0.0625})
		}},
		{"softcap", false, func(p *flash.Problem) { p.ScoreFunction, p.MaxLogit = score.Softcap(2), true }},
		{"documents", false, func(p *flash.Problem) {
			p.QueryLen, p.MaskFunction = p.KeyLen, score.Documents(score.CaptureInt("documents", p.Batch, p.KeyLen))
		}},
		{"mask", false, func(p *flash.Problem) {
			p.Mask = flash.PerScore{DType: flash.Bool, Batch: 1, Heads: p.Heads, Queries: p.QueryLen, Keys: p.KeyLen}
		}},
		{"group", true, func(p *flash.Problem) { p.Heads, p.KeyHeads, p.MaxLogit = 13, 1, true }},
		{"wide-values", false, func(p *flash.Problem) { p.HeadDim, p.ValueDim = 24, 70 }},
		{"odd", true, func(p *flash.Problem) { p.HeadDim, p.ValueDim = 29, 13 }},
	} {
		for j, dtype := range dtypes {
			if i > 2 && i%3 != j && !(x.core && j == 0) {
				continue
			}
			p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 40, KeyLen: 150, HeadDim: s.dim(32), DType: dtype,
				Lists: flash.Lists{Keys: 70}}
			x.set(&p)
			s.add(&Case{Name: name(dtype, "lists/%s", x.name), Core: x.core, Problem: p, Layouts: all(Layout(i) % layoutEnd),
				NoLSE: i%5 == 1, Seed: uint64(i), recent: x.name == "causal-recent"})
		}
	}
	for i, n := range []int{1, 3, 30} { // decoding, and in parts
		p := flash.Problem{Batch: 3, Heads: 4, KeyHeads: 2, QueryLen: n, KeyLen: 700, HeadDim: s.dim(64), DType: dtypes[i],
			Lists: flash.Lists{Keys: 300, PerHead: i == 1}, Causal: causals[i], Sinks: i == 2}
		s.add(&Case{Name: name(p.DType, "lists/parts-%d", n), Core: i == 0, Problem: p, Only: []flash.Implementation{flash.Flash},
			Tuning: map[string]int{"parts": 1 + i}})
		p.KeyLen, p.Lists.Keys = 200, 90
		PagesFor(&p, 1<<(2*i), i == 1)
		s.add(&Case{Name: name(p.DType, "lists/pages-%d", n), Core: i == 2, Problem: p, Only: []flash.Implementation{flash.Flash},
			Layouts: all(Layout(i) % layoutEnd), lost: i == 0})
	}
	for i, t := range []flash.DType{flash.Q8_0, flash.Q4_0, flash.F8E4M3, flash.Q4_1, flash.Q5_0, flash.Q5_1, flash.IQ4_NL, flash.F8E5M2} {
		p := flash.Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 1 + 5*i, KeyLen: 90, HeadDim: 32, DType: dtypes[i%3], KeyType: t,
			ValueType: []flash.DType{t, flash.Q8_0}[i%2], Lists: flash.Lists{Keys: 33, PerHead: i%2 == 1}}
		if i%3 == 0 {
			PagesFor(&p, 16, false)
		}
		s.add(&Case{Name: fmt.Sprintf("lists/%v/%v", t, p.DType), Core: i == 0, Problem: p, Only: []flash.Implementation{flash.Flash}})
	}
	latent := flash.Problem{Batch: 1, Heads: 16, KeyHeads: 1, QueryLen: 5, KeyLen: 120, HeadDim: 576, ValueDim: 512, DType: flash.F16,
		Lists: flash.Lists{Keys: 64}, Causal: flash.CausalBottomRight}
	s.add(&Case{Name: "lists/latent/f16", Problem: latent})
	grid := flash.Problem{Batch: 2, Heads: 2, QueryLen: 70, KeyLen: 97, HeadDim: s.dim(32), DType: flash.F32, Lists: flash.Lists{Keys: 20}}
	s.add(&Case{Name: "lists/dispatches/f32", Problem: grid, Tuning: map[string]int{"max_groups": 1}})
}

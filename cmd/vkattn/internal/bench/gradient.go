package bench

import (
	"context"
	"math"

	"github.com/vkattn/vkattn/internal/ref"
)

// gradientHead is one key head with the query heads that read it: inputs as they were uploaded, o and lse as the device wrote
// them (the forward check has looked at those).
type gradientHead struct {
	dtype   ref.DType
	scale   float64
	seen    ref.Problem // of a head: which keys its queries see
	drop    *ref.Dropout
	scores  scoring
	nq, nk  int
	d, dv   int
	head0   int // b·Hq + the first query head
	q, do   [][]float32
	k, v    []float32
	lse     [][]float32
	delta   [][]float64 // do·o
	rounded func(float64) float64
}

// term is p and ds of a query and a key, in float64 and as attention in the inputs' own dtype has them: scores, do·vᵀ, P and
// ds rounded. ds is the gradient of the score as q·k gives it, df that of what functions and a bias made of it; plainDS has the
// scale in it.
type term struct{ zp, ds, df, plainZP, plainDS, plainDF float64 }

func (g *gradientHead) term(h, i, j int) (t term, allowed bool) {
	lse := float64(g.lse[h][i])
	if math.IsInf(lse, -1) || !g.seen.Allows(0, 0, i, j) {
		return t, false
	}
	z := 1.0
	if g.drop != nil {
		z = 0
		if g.drop.Keep(g.head0+h, i, j) {
			z = 1 / (1 - g.drop.Probability())
		}
	}
	s := g.scale * inner(g.q[h][i*g.d:(i+1)*g.d], g.k[j*g.d:(j+1)*g.d])
	dp := inner(g.do[h][i*g.dv:(i+1)*g.dv], g.v[j*g.dv:(j+1)*g.dv])
	f, slope, plainF, plainSlope := g.scores.of(g.head0+h, i, j, s, g.rounded)
	p := math.Exp(f - lse)
	t.zp, t.df = z*p, p*(z*dp-g.delta[h][i])
	t.ds = t.df * slope
	plain := math.Exp(plainF - lse)
	t.plainZP = g.rounded(z * g.rounded(plain))
	t.plainDF = g.rounded(plain * (g.rounded(z*g.rounded(dp)) - g.delta[h][i]))
	t.plainDS = g.rounded(g.rounded(t.plainDF*plainSlope) * g.scale)
	return t, true
}

func inner(a, b []float32) float64 {
	sum := 0.0
	for i, x := range a {
		sum += float64(x) * float64(b[i])
	}
	return sum
}

func add(to []float64, by float64, x []float32) {
	for i, v := range x {
		to[i] += by * float64(v)
	}
}

// dq is row i of query head h; plain is the yardstick.
func (g *gradientHead) dq(h, i int) (want, plain []float64) {
	want, plain = make([]float64, g.d), make([]float64, g.d)
	for j := range g.nk {
		if t, ok := g.term(h, i, j); ok {
			add(want, t.ds*g.scale, g.k[j*g.d:(j+1)*g.d])
			add(plain, t.plainDS, g.k[j*g.d:(j+1)*g.d])
		}
	}
	return want, g.round(plain)
}

// dkdv is key j, summed over the query heads of its group.
func (g *gradientHead) dkdv(j int) (dk, plainDK, dv, plainDV []float64) {
	dk, plainDK, dv, plainDV = make([]float64, g.d), make([]float64, g.d), make([]float64, g.dv), make([]float64, g.dv)
	for h := range g.q {
		for i := range g.nq {
			if t, ok := g.term(h, i, j); ok {
				qi, doi := g.q[h][i*g.d:(i+1)*g.d], g.do[h][i*g.dv:(i+1)*g.dv]
				add(dk, t.ds*g.scale, qi)
				add(plainDK, t.plainDS, qi)
				add(dv, t.zp, doi)
				add(plainDV, t.plainZP, doi)
			}
		}
	}
	return dk, g.round(plainDK), dv, g.round(plainDV)
}

func (g *gradientHead) round(x []float64) []float64 {
	for i := range x {
		x[i] = g.rounded(x[i])
	}
	return x
}

// gradientHead reads what one key head needs.
func (s *deviceShape) gradientHead(ctx context.Context, set *tensorSet, n int, seedOffset uint32,
	blocks *ref.BlockMask) (*gradientHead, error) {
	p, in := s.problem, set.in
	b, hk, group := n/p.KeyHeads, n%p.KeyHeads, p.Heads/p.KeyHeads
	own := s.c.Entry(b)
	g := &gradientHead{dtype: in.dtype, scale: p.Scale, nq: own.Nq, nk: own.N, d: p.HeadDim, dv: p.ValueDim, head0: b*p.Heads + hk*group}
	g.rounded = func(x float64) float64 { return float64(in.dtype.Round(float32(x))) }
	keys := ref.NewTensor(1, 1, g.nk, 1)
	g.seen = ref.Problem{Q: ref.NewTensor(1, 1, g.nq, 1), K: keys, V: keys}
	own.Masks(&g.seen.Options)
	g.seen.Blocks = blocks
	if s.c.Listed > 0 {
		g.seen.Lists = &ref.Lists{H: 1, K: s.c.Listed}
		for i := range own.Nq {
			g.seen.Lists.Data = append(g.seen.Lists.Data, s.c.List(b, i)...)
		}
	}
	if err := g.seen.Check(); err != nil {
		return nil, err
	}
	if p.Dropout > 0 {
		g.drop = &ref.Dropout{P: p.Dropout, Seed: dropoutSeed, Offset: seedOffset}
	}
	var err error
	if g.scores, err = newScoring(own, in); err != nil {
		return nil, err
	}
	g.k, g.v = in.k.head(n, g.nk), in.v.head(n, g.nk)
	for h := range group {
		at := g.head0 + h
		g.q, g.do = append(g.q, in.q.head(at, g.nq)), append(g.do, in.do.head(at, g.nq))
		o, err := readHead(ctx, s.c, set.o, b, hk*group+h, 0, g.nq)
		if err != nil {
			return nil, err
		}
		lse, err := readHead(ctx, s.c, set.grad.lse, b, hk*group+h, 0, g.nq)
		if err != nil {
			return nil, err
		}
		delta := make([]float64, g.nq)
		for i := range delta {
			delta[i] = inner(g.do[h][i*g.dv:(i+1)*g.dv], o[i*g.dv:(i+1)*g.dv])
		}
		g.lse, g.delta = append(g.lse, lse), append(g.delta, delta)
	}
	return g, nil
}

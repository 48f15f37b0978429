package soak

import (
	"fmt"
	"math/rand/v2"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
)

// ID names a problem: with the seed it says all about it, on devices that offer the same targets.
type ID struct{ Family, Plan, Case int }

// String is for example 17:2041:3, as ParseID reads it.
func (i ID) String() string { return fmt.Sprintf("%d:%d:%d", i.Family, i.Plan, i.Case) }

// ParseID reads what String wrote.
func ParseID(s string) (id ID, err error) {
	if n, err := fmt.Sscanf(s, "%d:%d:%d", &id.Family, &id.Plan, &id.Case); n != 3 || err != nil || id.Family < 0 || id.Plan < 0 ||
		id.Case < 0 || id.String() != s {
		return id, fmt.Errorf("soak: problem %q: it must be FAMILY:PLAN:CASE, three numbers", s)
	}
	return id, nil
}

// Work of a problem, in multiply-adds of a forward pass: the reference is computed on the CPU, in float64, and is what costs time.
const (
	mostWork  = 3 << 17
	rareWork  = 3 << 20 // of one problem in rareEvery
	rareEvery = 64
)

// lengths are those around which tiles and fragments end.
var lengths = []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 127, 128, 129}

// problem draws the shape that the cases of a plan share.
func (f *family) problem(r *rand.Rand) flash.Problem {
	one := func(in int) bool { return r.IntN(in) == 0 }
	most, work := 80, mostWork
	if one(rareEvery) {
		most, work = 400, rareWork
	}
	length := func() int {
		if one(3) {
			return lengths[r.IntN(len(lengths))]
		}
		return 1 + r.IntN(most)
	}
	p := flash.Problem{
		Batch: 1 + r.IntN(3), KeyHeads: 1 + r.IntN(3), QueryLen: length(), KeyLen: length(),
		HeadDim: f.dim, ValueDim: f.valueDim, DType: f.dtype, Blocks: f.blocks,
	}
	if !f.sees.Everything() {
		p.MaskFunction, p.MaskBlocks, p.Blocks = f.sees, f.blocks, flash.Blocks{}
	}
	p.Heads = p.KeyHeads
	if f.grouped {
		p.Heads *= 2 + r.IntN(3)
	}
	if one(5) {
		p.KeyLen = p.QueryLen
	}
	if f.causal {
		p.Causal = flash.CausalBottomRight + flash.Causal(r.IntN(2))
	}
	if f.drops {
		p.Dropout = []float64{0.1, 0.5, 1.0 / 256, 0.9, 0.2}[r.IntN(5)]
	}
	if one(4) {
		p.Scale = float64(1+r.IntN(200)) / 100 * float64(2*r.IntN(2)-1)
	}
	if group := p.Heads / p.KeyHeads; f.decodes() { // a kernel for few rows of a key head
		p.QueryLen = 1 + r.IntN(max(1, 8/group))
		p.KeyLen = 1 + r.IntN(5*most)
	}
	for cost(p) > work {
		switch {
		case p.Batch > 1:
			p.Batch--
		case p.KeyHeads > 1:
			p.Heads, p.KeyHeads = p.Heads/p.KeyHeads, 1
		case p.QueryLen > p.KeyLen:
			p.QueryLen = p.QueryLen*3/4 + r.IntN(2)
		default:
			p.KeyLen = p.KeyLen*3/4 + r.IntN(2)
		}
	}
	f.rows.place(&p)
	return p
}

func (f *family) decodes() bool { return f.target.Tuning["decode"] == 1 }

// cost is the multiply-adds of a forward pass.
func cost(p flash.Problem) int {
	return p.Batch * p.Heads * p.QueryLen * p.KeyLen * (p.HeadDim + p.ValueDim)
}

// features are what a case has that a family leaves open, for the count at the end.
type features []string

// draw makes a case of a problem of the family's.
func (f *family) draw(seed uint64, id ID, p flash.Problem) (*conformance.Case, features) {
	r := rand.New(rand.NewPCG(seed^0x5bd1e995, uint64(id.Family)<<48^uint64(id.Plan)<<8^uint64(id.Case)))
	c := &conformance.Case{
		Name: id.String(), Problem: p, Layouts: f.layouts(r), NoLSE: !f.lse, Gradients: f.gradients, Rounding: true,
		Only: []flash.Implementation{f.target.Implementation}, Share: []float64{0.5, 0.2, 1, 0.8, 0}[r.IntN(5)],
	}
	if f.drops {
		c.Seed, c.Offset = r.Uint64(), r.Uint32()
	}
	if f.rows.packed {
		c.Pack(r, true)
	}
	in := drawInputs(r, f, p)
	c.Tight, c.Gradients = in.tight, c.Gradients && !in.tight
	c.Inputs(r.Uint64(), in.fill, in.do)
	return c, features{in.name + " inputs", layoutName(c.Layouts) + " layout", "causal " + p.Causal.String()}
}

// layouts draws where tensors lie: with aligned ones anywhere that keeps rows on 16 bytes.
func (f *family) layouts(r *rand.Rand) conformance.Layouts {
	from := []conformance.Layout{conformance.Odd, conformance.OddBNHD, conformance.Odd, conformance.OddBNHD, conformance.Dense,
		conformance.Wide, conformance.BNHD}
	if f.aligned {
		from = []conformance.Layout{conformance.Dense, conformance.Wide, conformance.BNHD}
	}
	any := func() conformance.Layout { return from[r.IntN(len(from))] }
	if r.IntN(2) == 0 {
		l := any()
		return conformance.Layouts{Q: l, K: l, V: l, O: l}
	}
	l := conformance.Layouts{Q: any(), K: any(), V: any(), O: any()}
	if !f.aligned { // else a family of unaligned tensors would have the pipelines of aligned ones too
		l.Q = from[r.IntN(4)]
	}
	return l
}

func layoutName(l conformance.Layouts) string {
	if l.Q == l.K && l.K == l.V && l.V == l.O {
		return l.Q.String()
	}
	return "mixed"
}

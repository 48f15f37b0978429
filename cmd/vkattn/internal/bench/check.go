package bench

import (
	"context"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// inFullBelow is the number of multiply-adds up to which every row is checked:
// about a quarter of a second of the reference on one core.
const inFullBelow = 1 << 25

// leastRows is the least number of rows checked of larger problems.
const leastRows = 24

// sampleRows chooses the rows of o to compare with the reference: all of a
// small problem, else rows of several heads that are where kernels go wrong —
// first, last, at tile edges — and some anywhere. Rows come grouped by head.
func sampleRows(c result.Case, seed uint64) []ref.Row {
	heads := c.B * c.H
	var rows []ref.Row
	if c.MultiplyAdds() <= inFullBelow {
		for bh := range heads {
			for i := range c.Entry(bh / c.H).Nq {
				rows = append(rows, ref.Row{B: bh / c.H, H: bh % c.H, I: i})
			}
		}
		return rows
	}
	random := rand.New(rand.NewPCG(seed, uint64(heads)))
	seen := map[int]bool{}
	for len(seen) < heads && (len(rows) < leastRows || len(seen) < 4) {
		bh := 0
		switch len(seen) {
		case 0:
		case 1:
			bh = heads - 1
		default:
			bh = random.IntN(heads)
		}
		if seen[bh] {
			continue
		}
		seen[bh] = true
		for _, i := range sampleQueries(c.Entry(bh/c.H).Nq, max(8, (leastRows+heads-1)/heads), random) {
			rows = append(rows, ref.Row{B: bh / c.H, H: bh % c.H, I: i})
		}
	}
	return rows
}

// sampleQueries chooses about want positions of n: the ends, both sides of two
// tile edges (tiles are multiples of 16), and others anywhere.
func sampleQueries(n, want int, random *rand.Rand) []int {
	tile := 16 << random.IntN(4)
	edge := tile * (1 + random.IntN(max(n/tile, 1)))
	last := n / tile * tile
	var out []int
	add := func(i int) {
		if i >= 0 && i < n && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	for _, i := range []int{0, n - 1, edge - 1, edge, last - 1, last} {
		add(i)
	}
	for len(out) < min(want, n) {
		add(random.IntN(n))
	}
	slices.Sort(out)
	return out
}

// checked is the outcome of a comparison with the reference.
type checked struct {
	maxErr float64 // max |o − reference|, NaN when o holds one
	bound  float64 // what it may be; 0 for fp32, whose rule is a relative norm
	rows   int
	err    error // the rule that is broken
}

// outcome is the comparison as a row holds it.
func (c *checked) outcome() result.Check {
	out := result.Check{MaxErr: &c.maxErr, ErrRows: c.rows}
	if c.bound > 0 {
		out.ErrMax = &c.bound
	}
	return out
}

// expectation is what rows of one input set should be: in float64, and by attention in the inputs' own dtype.
type expectation struct {
	rows        []ref.Row // grouped by head
	want, plain outputs
}

// expect computes the sampled rows of one input set, several heads at a time. offset is that of dropout.
func expect(ctx context.Context, c result.Case, in *inputs, rows []ref.Row, offset uint32) (*expectation, error) {
	all := slices.Collect(heads(rows))
	want, plain := make([]outputs, len(all)), make([]outputs, len(all))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(headsAtOnce(c))
	for i, head := range all {
		g.Go(func() (err error) {
			if err = ctx.Err(); err == nil {
				want[i], plain[i], err = expectHead(c, in, head, offset)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	e := &expectation{rows: rows}
	for i := range all {
		e.want.o, e.want.lse = append(e.want.o, want[i].o...), append(e.want.lse, want[i].lse...)
		e.plain.o, e.plain.lse = append(e.plain.o, plain[i].o...), append(e.plain.lse, plain[i].lse...)
	}
	return e, nil
}

// headsAtOnce is how many heads are computed at the same time: a core each, while their keys and values, which the host makes anew, fit
// headsMemory.
func headsAtOnce(c result.Case) int {
	head := 4 * c.N * (c.D + c.Dv)
	return min(max(headsMemory/head, 1), runtime.GOMAXPROCS(0))
}

// headsMemory is what keys and values of the heads that are computed at the same time may take, in bytes.
const headsMemory = 1 << 30

// expectHead computes rows of one head: in float64, and by attention in the inputs' own dtype.
func expectHead(c result.Case, in *inputs, rows []ref.Row, offset uint32) (want, plain outputs, err error) {
	p, local := in.head(c, rows, offset)
	r, lse, err := ref.ForwardRows(p, local)
	if err != nil {
		return want, plain, err
	}
	want = outputs{o: slices.Concat(r...), lse: lse}
	if c.Cache != "" { // attention in that dtype has dequantised keys and values in it
		p.K.Data, p.V.Data = rounded(in.dtype, p.K.Data), rounded(in.dtype, p.V.Data)
	}
	y, lse, err := ref.PlainForwardRows(p, in.dtype, local)
	return want, outputs{o: slices.Concat(y...), lse: lse}, err
}

// rounded are values in a dtype.
func rounded(t ref.DType, values []float32) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = t.Round(v)
	}
	return out
}

// heads cuts rows, which are grouped by head, into those of one head each.
func heads(rows []ref.Row) iter.Seq[[]ref.Row] {
	return func(yield func([]ref.Row) bool) {
		for len(rows) > 0 {
			n := 1
			for n < len(rows) && rows[n].B == rows[0].B && rows[n].H == rows[0].H {
				n++
			}
			if !yield(rows[:n]) {
				return
			}
			rows = rows[n:]
		}
	}
}

// check compares o and lse with what is expected, by the rules of package ref: twice the error of attention in the inputs' own
// dtype.
func (e *expectation) check(ctx context.Context, c result.Case, dtype ref.DType, o, lse *flash.Tensor) (checked, error) {
	var out outputs
	for head := range heads(e.rows) {
		got, gotLSE, err := readRows(ctx, c, o, lse, head)
		if err != nil {
			return checked{}, err
		}
		out.o, out.lse = append(out.o, got...), append(out.lse, gotLSE...)
	}
	return judge(c, dtype, out, e.want, e.plain), nil
}

// outputs are rows of o, one after the other, with their lse.
type outputs struct{ o, lse []float64 }

// judge compares outputs with the reference's by the rules of package ref.
func judge(c result.Case, dtype ref.DType, out, want, plain outputs) checked {
	res := checked{rows: len(out.lse)}
	for i := range out.o {
		res.maxErr = max(res.maxErr, math.Abs(out.o[i]-want.o[i])) // max keeps a NaN
	}
	v := ref.CheckOutput(out.o, want.o, plain.o, dtype)
	if dtype != ref.F32 {
		res.bound = v.Bound
	}
	if !v.OK {
		res.err = fmt.Errorf("output is wrong: %v of %d rows checked", v, res.rows)
		return res
	}
	if c.Impl != flash.Standard.String() {
		plain.lse = nil // only standard attention rounds its scores
	}
	if v := ref.CheckLSE(out.lse, want.lse, plain.lse, dtype); !v.OK {
		res.err = fmt.Errorf("lse is wrong: %v of %d rows checked", v, res.rows)
	}
	return res
}

// readRows copies rows of one head from the device: o one after the other, and lse.
func readRows(ctx context.Context, c result.Case, o, lse *flash.Tensor, rows []ref.Row) (out, outLSE []float64, err error) {
	dv := o.Shape()[3]
	first, last := rows[0], rows[len(rows)-1]
	span := last.I - first.I + 1
	// One download for the rows' whole span: a head is small beside the staging of many copies.
	oValues, err := readHead(ctx, c, o, first.B, first.H, first.I, span)
	if err != nil {
		return nil, nil, err
	}
	lseValues, err := readHead(ctx, c, lse, first.B, first.H, first.I, span)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rows {
		i := r.I - first.I
		for _, v := range oValues[i*dv : (i+1)*dv] {
			out = append(out, float64(v))
		}
		outLSE = append(outLSE, float64(lseValues[i]))
	}
	return out, outLSE, nil
}

// readHead downloads rows [first, first+n) of one head of a batch entry.
func readHead(ctx context.Context, c result.Case, t *flash.Tensor, b, h, first, n int) ([]float32, error) {
	s := t.Strides()
	b, first = c.Place(b, first)
	view, err := t.View(uint64((b*s[0]+h*s[1]+first*s[2])*t.DType().Size()), t.DType(), [4]int{1, 1, n, t.Shape()[3]}, s)
	if err != nil {
		return nil, err
	}
	values := make([]float32, n*t.Shape()[3])
	return values, view.Download(ctx, values)
}

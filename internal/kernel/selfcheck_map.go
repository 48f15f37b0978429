package kernel

import (
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// Mapper is a program of maps.
type Mapper interface {
	Scratch() []uint64
	Pieces(m *Map) (uint64, error)
	Record(r *Recorder, m *Map, o *MapOperands) error
}

// TryMap compares a map of all heads of a small problem with the oracle's: one of odd sizes, some cells higher than a block of so many rows
// of queries, some narrower than a tile.
func (e *Env) TryMap(p *attn.Problem, v MapVariant, rows int, program Mapper) (wrong string, err error) {
	t := &selfCheckTensors{env: e}
	defer t.close()
	in := SelfCheckInputs(p)
	values, err := selfCheckCache(p, in)
	if err != nil {
		return "", err
	}
	out, lse, judged, err := judgedForward(p, in)
	if err != nil {
		return "", err
	}
	values["Q"], values["LSE"] = in.Q.Data, Float32s(lse.Data)
	judged.leaveOut(lse.Data, 1)
	_, roughLSE, err := roughForward(p, in, out, lse)
	if err != nil {
		return "", err
	}
	values = scoreValues(in, values)
	startsOf(p, values)
	var o MapOperands
	to := o.Operands.List()
	for i := range attn.ForwardOperands {
		switch x := &attn.ForwardOperands[i]; {
		case x.Name == "V" || x.Name == "O" || x.Name == "Sinks" || !x.In(p):
		default:
			t.place(to[i], x, p, v.Aligned, values[x.Name])
		}
	}
	r := t.recorder(p, in, &o.Operands, program.Scratch())
	r.Count = nil // maps have no models that are counted against
	m := Map{Batches: p.Batch, Heads: p.Heads, FirstQuery: 1, Queries: p.QueryLen - 1, FirstKey: 2, Keys: p.KeyLen - 2}
	switch {
	case v.Statistics:
		m.Statistics = MapEntropy | MapDistance
	default:
		m.Rows, m.Columns = max(1, m.Queries/(rows/2+3)), max(1, m.Keys/5)
		if m.Pool = PoolMean; v.Largest {
			m.Pool = PoolMax
		}
	}
	outs := [...]struct {
		in    bool
		to    *Operand
		name  string
		shape [4]int
		of    func(*ref.MapResult) ref.Array
	}{{m.Rows > 0, &o.O, "map", [4]int{m.Batches, m.Heads, m.Rows, m.Columns}, func(r *ref.MapResult) ref.Array { return r.Cells }},
		{m.Statistics&MapEntropy != 0, &o.Entropy, "entropy", [4]int{m.Batches, m.Heads, m.Queries, 1},
			func(r *ref.MapResult) ref.Array { return r.Entropy }},
		{m.Statistics&MapDistance != 0, &o.Distance, "distance", [4]int{m.Batches, m.Heads, m.Queries, 1},
			func(r *ref.MapResult) ref.Array { return r.Distance }}}
	for _, x := range outs {
		if x.in {
			*x.to = t.add(attn.F32, x.shape, true, nil)
		}
	}
	n, err := program.Pieces(&m)
	if err != nil {
		return "", err
	}
	if n > 0 {
		o.Pieces.Binding = t.alloc(n)
	}
	t.run(r, func() error { return program.Record(r, &m, &o) })
	span := func(first, n int) [2]int { return [2]int{first, first + n} }
	of := ref.Map{Batches: span(0, m.Batches), Heads: span(0, m.Heads), Queries: span(m.FirstQuery, m.Queries),
		Keys: span(m.FirstKey, m.Keys),
		Rows: max(m.Rows, 1), Columns: max(m.Columns, 1), Pool: ref.MapPool(m.Pool)}
	want, err := ref.Maps(*in, of)
	if err != nil {
		return "", err
	}
	judged.leaveOutOfMap(&want, p, &of)
	near := map[attn.DType]float64{attn.F32: 1e-4, attn.F16: 5e-3, attn.BF16: 4e-2}[p.DType]
	for _, x := range outs {
		if !x.in {
			continue
		}
		got := t.download(attn.F32, x.shape, x.to)
		should := x.of(&want)
		largest := 0.0 // weights are small numbers, and of their mean 1e-3 would be anything
		for _, y := range should.Data {
			if y == y { // not left out
				largest = max(largest, math.Abs(y))
			}
		}
		rough := largest * math.Min(1, math.Expm1(roughLSE)) // scores are off as lse is
		if wrong := offAt(p, x.name, got, should, near*math.Min(1, largest), rough); wrong != "" {
			return wrong, t.err
		}
	}
	return "", t.err
}

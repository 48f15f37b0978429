package bench

import (
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// inputs are the streams that q, k and v of one input set are filled with.
type inputs struct {
	dtype       ref.DType
	q, k, v     rowStream
	do          rowStream     // the gradient of o
	qt, kt, vt  rowStream     // tangents
	bias, sinks result.Stream // of a case that has them
	pages       []int32       // of a case with pages, which one each entry of its table names
}

func newInputs(c result.Case, seed uint64) *inputs {
	dtype, stored := ref.F32, attn.F32
	switch c.DType {
	case "float16":
		dtype, stored = ref.F16, attn.F16
	case "bfloat16":
		dtype, stored = ref.BF16, attn.BF16
	}
	in := &inputs{dtype: dtype, bias: result.NewStream(dtype, ^(2*seed + 1<<32)), sinks: result.NewStream(ref.F32, ^(2*seed + 1<<32 + 1)),
		pages: pageTable(c, seed)}
	queries := func(seed uint64, width int) rowStream {
		return rowStream{Stream: result.NewStream(dtype, seed), stored: stored, heads: c.H, n: c.Nq, width: width, place: queryRows(c)}
	}
	keys := func(seed uint64, width, phase int) rowStream {
		return rowStream{Stream: result.NewStream(dtype, seed), stored: c.CacheType(stored), heads: c.Hkv, n: c.N, width: width,
			place: keyRows(c, in.pages), phase: phase}
	}
	in.q, in.do = queries(3*seed+1, c.D), queries(^seed, c.Dv)
	in.k, in.v = keys(3*seed+2, c.D, 0), keys(3*seed+3, c.Dv, 3)
	if c.Latent {
		in.v = in.k // its scales too
	}
	in.qt, in.kt, in.vt = queries(^(5*seed+1<<33), c.D), keys(^(5*seed+1<<33+1), c.D, 0), keys(^(5*seed+1<<33+2), c.Dv, 3)
	return in
}

// biasAt is where a bias of that shape has what is added to a score.
func biasAt(shape [4]int, b, h, i, j int) (at uint64) {
	for dimension, index := range [4]int{b, h, i, j} {
		if shape[dimension] == 1 { // it stands for all
			index = 0
		}
		at = at*uint64(shape[dimension]) + uint64(index)
	}
	return at
}

// head makes the problem of a single head that computes the given rows (all of
// that head), which it renames to match. Rows of q that nobody asks for are
// left zero. offset is that of dropout.
func (in *inputs) head(c result.Case, rows []ref.Row, offset uint32) (ref.Problem, []ref.Row) {
	b, h := rows[0].B, rows[0].H
	own := c.Entry(b)
	kv := b*c.Hkv + h/(c.H/c.Hkv)
	p := ref.Problem{Q: ref.NewTensor(1, 1, own.Nq, c.D),
		K: ref.Tensor{B: 1, H: 1, N: own.N, D: c.D, Data: in.k.head(kv, own.N)},
		V: ref.Tensor{B: 1, H: 1, N: own.N, D: c.Dv}}
	if c.Latent {
		for i := range own.N {
			p.V.Data = append(p.V.Data, p.K.Data[i*c.D:i*c.D+c.Dv]...)
		}
	} else {
		p.V.Data = in.v.head(kv, own.N)
	}
	c.Masks(&p.Options)
	p.Blocks = c.BlockMask()
	if c.Listed > 0 {
		p.Lists = &ref.Lists{H: 1, K: c.Listed, Data: make([]int32, own.Nq*c.Listed)}
		for _, r := range rows { // the others are asked by nobody
			copy(p.Lists.Data[r.I*c.Listed:], c.List(b, r.I))
		}
	}
	p.Score = c.ScoreOf(h, 1)
	if c.Sinks {
		p.Sinks = in.sinks.Floats(uint64(h), 1)
	}
	if c.Bias != "" {
		shape := c.BiasShape()
		bias := ref.NewTensor(1, 1, shape[2], c.N)
		for _, r := range rows {
			copy(bias.Row(0, 0, min(r.I, bias.N-1)), in.bias.Floats(biasAt(shape, b, h, r.I, 0), c.N))
		}
		p.Bias = &bias
	}
	if c.Dropout > 0 {
		p.Dropout = &ref.Dropout{P: c.Dropout, Seed: dropoutSeed, Offset: offset, Head: b*c.H + h}
	}
	local := make([]ref.Row, 0, len(rows))
	for _, r := range rows {
		at := (uint64(b*c.H+h)*uint64(c.Nq) + uint64(r.I)) * uint64(c.D)
		copy(p.Q.Row(0, 0, r.I), in.q.Floats(at, c.D))
		local = append(local, ref.Row{I: r.I})
	}
	return p, local
}

const dropoutSeed = 0x76_6b_61_74_74_6e

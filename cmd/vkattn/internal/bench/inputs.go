package bench

import (
	"math"
	"runtime"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// normal is a stream of standard normal values, addressed by index, so that
// the rows that the error column needs are made again on the host without
// keeping gigabytes of inputs there.
//
// Value i is the quantile Φ⁻¹((u+½)/2¹⁶) of the 16-bit draw u = bits 16·(i mod 4)…
// of splitmix64(seed, ⌊i/4⌋), rounded to the storage type: 65,536 equally likely
// values, up to 4.2 standard deviations out.
type normal struct {
	seed  uint64
	dtype ref.DType
	value []float32 // by draw
}

const draws = 1 << 16

// normals holds the quantile tables, one per storage type.
var normals [3]struct {
	once  sync.Once
	value []float32
}

func newNormal(dtype ref.DType, seed uint64) normal {
	t := &normals[dtype]
	t.once.Do(func() {
		t.value = make([]float32, draws)
		for u := range t.value {
			p := (float64(u) + 0.5) / draws
			t.value[u] = dtype.Round(float32(math.Sqrt2 * math.Erfinv(2*p-1)))
		}
	})
	return normal{seed: seed, dtype: dtype, value: t.value}
}

// splitmix64 is the output function of Steele, Lea and Flood's generator, "Fast
// splittable pseudorandom number generators", 2014.
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// at returns value i.
func (g normal) at(i uint64) float32 {
	bits := splitmix64(g.seed ^ (i/4)*0xd1342543de82ef95)
	return g.value[uint16(bits>>(16*(i%4)))]
}

// floats returns values start, start+1, …
func (g normal) floats(start uint64, n int) []float32 {
	out := make([]float32, n)
	inChunks(n, chunk, func(lo, hi int) { g.fill(out[lo:hi], start+uint64(lo)) })
	return out
}

func (g normal) fill(out []float32, start uint64) {
	for i := range out {
		out[i] = g.at(start + uint64(i))
	}
}

// chunk is how many values are made at a time.
const chunk = 1 << 18

// inChunks calls f for pieces of [0, n) of that size, several at a time.
func inChunks(n, chunk int, f func(lo, hi int)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for lo := 0; lo < n; lo += chunk {
		hi := min(lo+chunk, n)
		slots <- struct{}{}
		wait.Go(func() {
			f(lo, hi)
			<-slots
		})
	}
	wait.Wait()
}

// bytes returns values start, start+1, … as they lie in memory.
func (g normal) bytes(start uint64, n int) []byte {
	size := g.dtype.Size()
	out := make([]byte, n*size)
	inChunks(n, chunk, func(lo, hi int) {
		values := make([]float32, hi-lo)
		g.fill(values, start+uint64(lo))
		g.dtype.EncodeTo(out[lo*size:hi*size], values)
	})
	return out
}

// inputs are the streams that q, k and v of one input set are filled with.
type inputs struct {
	dtype       ref.DType
	q, k, v     rowStream
	do          rowStream // the gradient of o
	bias, sinks normal    // of a case that has them
	pages       []int32   // of a case with pages, which one each entry of its table names
}

func newInputs(c Case, seed uint64) *inputs {
	dtype, stored := ref.F32, attn.F32
	switch c.DType {
	case "float16":
		dtype, stored = ref.F16, attn.F16
	case "bfloat16":
		dtype, stored = ref.BF16, attn.BF16
	}
	in := &inputs{dtype: dtype, bias: newNormal(dtype, ^(2*seed + 1<<32)), sinks: newNormal(ref.F32, ^(2*seed + 1<<32 + 1)),
		pages: c.pageTable(seed)}
	queries := func(seed uint64, width int) rowStream {
		return rowStream{normal: newNormal(dtype, seed), stored: stored, heads: c.H, n: c.Nq, width: width, place: c.queryRows()}
	}
	keys := func(seed uint64, width, phase int) rowStream {
		return rowStream{normal: newNormal(dtype, seed), stored: c.cacheType(stored), heads: c.Hkv, n: c.N, width: width,
			place: c.keyRows(in.pages), phase: phase}
	}
	in.q, in.do = queries(3*seed+1, c.D), queries(^seed, c.Dv)
	in.k, in.v = keys(3*seed+2, c.D, 0), keys(3*seed+3, c.Dv, 3)
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
func (in *inputs) head(c Case, rows []ref.Row, offset uint32) (ref.Problem, []ref.Row) {
	b, h := rows[0].B, rows[0].H
	own := c.entry(b)
	kv := b*c.Hkv + h/(c.H/c.Hkv)
	p := ref.Problem{Q: ref.NewTensor(1, 1, own.Nq, c.D),
		K: ref.Tensor{B: 1, H: 1, N: own.N, D: c.D, Data: in.k.head(kv, own.N)},
		V: ref.Tensor{B: 1, H: 1, N: own.N, D: c.Dv, Data: in.v.head(kv, own.N)}}
	if c.Causal {
		p.Causal = ref.BottomRight
	}
	if c.Window > 0 {
		left, right := c.reach()
		p.Window = &ref.Window{Left: left, Right: right}
	}
	p.Blocks = c.blockMask()
	p.Score, p.Sees = c.scoreOf(h, 1), c.sees()
	if c.Sinks {
		p.Sinks = in.sinks.floats(uint64(h), 1)
	}
	if c.Bias != "" {
		shape := c.biasShape()
		bias := ref.NewTensor(1, 1, shape[2], c.N)
		for _, r := range rows {
			copy(bias.Row(0, 0, min(r.I, bias.N-1)), in.bias.floats(biasAt(shape, b, h, r.I, 0), c.N))
		}
		p.Bias = &bias
	}
	if c.Dropout > 0 {
		p.Dropout = &ref.Dropout{P: c.Dropout, Seed: dropoutSeed, Offset: offset, Head: b*c.H + h}
	}
	local := make([]ref.Row, 0, len(rows))
	for _, r := range rows {
		at := (uint64(b*c.H+h)*uint64(c.Nq) + uint64(r.I)) * uint64(c.D)
		copy(p.Q.Row(0, 0, r.I), in.q.floats(at, c.D))
		local = append(local, ref.Row{I: r.I})
	}
	return p, local
}

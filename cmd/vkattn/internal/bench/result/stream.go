package result

import (
	"math"
	"runtime"
	"sync"

	"github.com/vkattn/vkattn/internal/ref"
)

// Stream is a stream of standard normal values, addressed by index, so that
// the rows that the error column needs are made again on the host without
// keeping gigabytes of inputs there.
//
// Value i is the quantile Φ⁻¹((u+½)/2¹⁶) of the 16-bit draw u = bits 16·(i mod 4)…
// of splitmix64(seed, ⌊i/4⌋), rounded to the storage type: 65,536 equally likely
// values, up to 4.2 standard deviations out.
type Stream struct {
	seed  uint64
	dtype ref.DType
	value []float32 // by draw
}

// InputSeed is that of all that is drawn of a case, so that it is the same in every run.
const InputSeed = 20260101

const draws = 1 << 16

// normals holds the quantile tables, one per storage type.
var normals [3]struct {
	once  sync.Once
	value []float32
}

// NewStream is the stream of a seed, rounded to a type.
func NewStream(dtype ref.DType, seed uint64) Stream {
	t := &normals[dtype]
	t.once.Do(func() {
		t.value = make([]float32, draws)
		for u := range t.value {
			p := (float64(u) + 0.5) / draws
			t.value[u] = dtype.Round(float32(math.Sqrt2 * math.Erfinv(2*p-1)))
		}
	})
	return Stream{seed: seed, dtype: dtype, value: t.value}
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
func (g Stream) At(i uint64) float32 {
	bits := splitmix64(g.seed ^ (i/4)*0xd1342543de82ef95)
	return g.value[uint16(bits>>(16*(i%4)))]
}

// Floats returns values start, start+1, …
func (g Stream) Floats(start uint64, n int) []float32 {
	out := make([]float32, n)
	InChunks(n, Chunk, func(lo, hi int) { g.Fill(out[lo:hi], start+uint64(lo)) })
	return out
}

// Fill puts values start, start+1, … into out.
func (g Stream) Fill(out []float32, start uint64) {
	for i := range out {
		out[i] = g.At(start + uint64(i))
	}
}

// Chunk is how many values are made at a time.
const Chunk = 1 << 18

// InChunks calls f for pieces of [0, n) of that size, several at a time.
func InChunks(n, chunk int, f func(lo, hi int)) {
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

// Bytes returns values start, start+1, … as they lie in memory.
func (g Stream) Bytes(start uint64, n int) []byte {
	size := g.dtype.Size()
	out := make([]byte, n*size)
	InChunks(n, Chunk, func(lo, hi int) {
		values := make([]float32, hi-lo)
		g.Fill(values, start+uint64(lo))
		g.dtype.EncodeTo(out[lo*size:hi*size], values)
	})
	return out
}

package attn

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/vkattn/vkattn/flash/score"
)

// Problem is one attention with every default filled in and every field checked: flash.Problem says what the fields mean, and gives the
// mathematics.
type Problem struct {
	Batch    int
	Heads    int // of queries
	KeyHeads int // divides Heads
	QueryLen int
	KeyLen   int
	HeadDim  int // of q and k
	ValueDim int // of v and o
	DType    DType
	ByPosition
	Scale   float64
	Dropout float64 // probability
	Blocks  Blocks
	Lists   Lists // of the keys that each query sees
	Score   score.Function
	Sees    score.MaskFunction
	ByScore
	MaxLogit bool // the largest score of each head is an output of forward passes

	Pages              Pages // of pools that keys and values lie in
	KeyType, ValueType DType // of their elements where they are quantised, else DType

	KeyLengths, QueryLengths bool   // each batch entry has its own number of keys, or queries, of KeyLen and QueryLen at most
	Packed                   Packed // rows of packed sequences, which Batch counts; KeyLen and QueryLen are the longest then
	Within                   Within // of a longer problem; zero: it is the whole

	turned bool // queries and keys have changed places: positions are those of another problem, the other way round
}

// MostDim is the largest HeadDim and ValueDim that any kernel takes: those of multi-head latent attention, where a key is 512 latent
// columns, which are the value too, and 64 rotated ones.
const MostDim = 576

// QShape is the shape of q, [Batch, Heads, QueryLen, HeadDim], or [1, Heads, Packed.Queries, HeadDim].
func (p Problem) QShape() [4]int { return p.queryShape(p.HeadDim) }

// KShape is the shape of k, [Batch, KeyHeads, KeyLen, HeadDim], or packed [1, KeyHeads, Packed.Keys, HeadDim], or with pages that of a
// pool, [Pages.Count, KeyHeads, Pages.Size, HeadDim].
func (p Problem) KShape() [4]int { return p.keyShape(p.HeadDim) }

// VShape is the shape of v likewise, with ValueDim.
func (p Problem) VShape() [4]int { return p.keyShape(p.ValueDim) }

// OShape is the shape of o, QShape's with ValueDim columns.
func (p Problem) OShape() [4]int { return p.queryShape(p.ValueDim) }

// LSEShape is the shape of lse, QShape's with a last dimension of 1.
func (p Problem) LSEShape() [4]int { return p.queryShape(1) }

func (p *Problem) queryShape(d int) [4]int {
	b, n := p.along(p.QueryLen, p.Packed.Queries)
	return [4]int{b, p.Heads, n, d}
}

func (p *Problem) keyShape(d int) [4]int {
	if !p.Pages.None() {
		return [4]int{p.Pages.Count, p.KeyHeads, p.Pages.Size, d}
	}
	b, n := p.along(p.KeyLen, p.Packed.Keys)
	return [4]int{b, p.KeyHeads, n, d}
}

// MaskShape is the shape of the block mask, or of the classes of blocks: masks (1, times Heads with Blocks.PerHead, times Batch with
// Blocks.PerBatch), rows and columns of blocks; zero without one, and where blocks have no size, which nobody has checked yet.
func (p Problem) MaskShape() [3]int {
	if p.Blocks.None() || p.Blocks.Queries < 1 || p.Blocks.Keys < 1 {
		return [3]int{}
	}
	masks := 1
	if p.Blocks.PerHead {
		masks *= p.Heads
	}
	if p.Blocks.PerBatch {
		masks *= p.Batch
	}
	return [3]int{masks, CeilDiv(p.QueryLen, p.Blocks.Queries), CeilDiv(p.KeyLen, p.Blocks.Keys)}
}

// Group is the number of query heads that read one key head.
func (p Problem) Group() int { return p.Heads / p.KeyHeads }

// AllHeads and AllKeyHeads are the numbers of query heads and of key heads of all batch entries; of packed sequences as many as there would
// be if all were of QueryLen queries and KeyLen keys.
func (p Problem) AllHeads() float64 {
	return p.entries(p.QueryLen, p.Packed.Queries) * float64(p.Heads)
}
func (p Problem) AllKeyHeads() float64 {
	return p.entries(p.KeyLen, p.Packed.Keys) * float64(p.KeyHeads)
}

func (p *Problem) entries(longest, packed int) float64 {
	if packed > 0 {
		return float64(packed) / float64(longest)
	}
	return float64(p.Batch)
}

// DropThreshold is k = round(256·Dropout): a weight is kept iff its draw, a byte, is at least k.
func (p Problem) DropThreshold() int { return int(math.Round(256 * p.Dropout)) }

// Features are what a problem may have beyond plain attention, and a kernel may be able to compute.
type Features uint32

const (
	WithDropout Features = 1 << iota
	WithBlocks
	WithScores
	WithSlopes // a score function whose derivative is not 1 everywhere
	WithBias
	WithMask // by a tensor or a function
	WithSinks
	WithLengths
	WithPages
	WithQuantised
	WithPacked
	WithPartsOfWholes
	WithMaxLogit
	WithLists
)

// OfScores are those that shaders/include/score.glsl computes, in kernels of either pass.
const OfScores = WithScores | WithSlopes | WithBias | WithMask

// featureNames are for people, in the order of the bits.
var featureNames = []string{"dropout", "block mask", "score functions", "score functions with a derivative", "bias", "mask", "sinks",
	"lengths of keys or queries",
	"pages of keys and values", "quantised keys or values", "packed sequences", "dropout in parts of longer problems",
	"largest score of each head", "lists of keys"}

// Names lists the features.
func (f Features) Names() []string {
	var out []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// Features are those that the problem has.
func (p Problem) Features() (f Features) {
	f = p.ByScore.features()
	if p.DropThreshold() > 0 {
		f |= WithDropout
	}
	if !p.Blocks.None() {
		f |= WithBlocks
	}
	if !p.Score.Identity() {
		f |= WithScores
		if !p.Score.UnitSlope() {
			f |= WithSlopes
		}
	}
	if !p.Sees.Everything() {
		f |= WithMask
	}
	if p.lengths() {
		f |= WithLengths
	}
	if !p.Pages.None() {
		f |= WithPages
	}
	if p.Quantised() {
		f |= WithQuantised
	}
	if !p.Packed.None() {
		f |= WithPacked
	}
	if !p.Lists.None() {
		f |= WithLists
	}
	if p.DrawsWithin() {
		f |= WithPartsOfWholes
	}
	if p.MaxLogit {
		f |= WithMaxLogit
	}
	return f
}

// Padded says that batch entries, or sequences, have lengths of their own.
func (p Problem) Padded() bool { return p.lengths() || !p.Packed.None() }

// lengths says that they are given.
func (p *Problem) lengths() bool { return p.KeyLengths || p.QueryLengths || p.Pages.Compressed() }

// Uneven says that later queries may attend to more keys than earlier ones: blocks of queries differ in what there is to do.
func (p Problem) Uneven() bool { m := p.Mask(); return m.High < Unbounded && m.Low == -Unbounded }

// Mask is which keys each query may attend to, by their positions; of a batch entry with lengths of its own as if it had all queries and
// keys.
func (p Problem) Mask() Mask {
	if p.turned {
		of := p
		of.turned, of.QueryLen, of.KeyLen = false, p.KeyLen, p.QueryLen
		m := of.Mask()
		return Mask{Queries: p.QueryLen, Keys: p.KeyLen, Low: -m.High, High: -m.Low}
	}
	if p.Within.Queries > 0 {
		return p.Within.mask(p)
	}
	return p.Band(p.QueryLen, p.KeyLen)
}

// WindowAlone is Mask without the causal order.
func (p Problem) WindowAlone() Mask {
	p.Causal = CausalNone
	return p.Mask()
}

// Turned is the problem of the matrix of scores turned over, for products of it: its queries are the keys of p, and which see which is as
// it was. Nothing becomes of scores.
func (p Problem) Turned() Problem {
	t := p.MasksAlone()
	t.QueryLen, t.KeyLen, t.turned = p.KeyLen, p.QueryLen, !p.turned
	t.QueryLengths, t.KeyLengths = p.KeyLengths, p.QueryLengths
	t.Packed.Queries, t.Packed.Keys = p.Packed.Keys, p.Packed.Queries
	return t
}

// ClassMask is the mask of the pairs that blocks are classed by: where entries have lengths of their own, which move the bounds, that of
// all pairs. Whatever the bounds of an entry are, functions then allow none of the pairs within them of a block without a bit, and all of
// a whole one.
func (p Problem) ClassMask() Mask {
	if p.Padded() {
		return Every(p.QueryLen, p.KeyLen)
	}
	return p.Mask()
}

// Gradients is the problem as backward passes have it: without outputs of forward passes that no gradient depends on.
func (p Problem) Gradients() Problem {
	p.MaxLogit = false
	return p
}

// MasksAlone is the problem without what becomes of its scores, but for which keys its functions let a query see.
func (p Problem) MasksAlone() Problem {
	p.Score, p.ByScore, p.MaxLogit = score.Function{}, ByScore{}, false
	return p
}

// Dense is the problem as a batch whose entries have all queries and keys, in tensors of the problem's type.
func (p Problem) Dense() Problem {
	p.KeyLengths, p.QueryLengths, p.Packed, p.Pages = false, false, Packed{}, Pages{}
	p.KeyType, p.ValueType = p.DType, p.DType
	return p
}

// MostKeys is the largest number of keys that a query may attend to.
func (p Problem) MostKeys() int {
	if !p.Lists.None() {
		return min(p.Lists.Keys, p.Mask().MostKeys())
	}
	return p.Mask().MostKeys()
}

// PaperPairs is the number of (query, key) pairs of a head as the FlashAttention papers count them: half of all where causal attention
// has as many queries as keys. With lists it is that of their entries.
func (p Problem) PaperPairs() float64 {
	if !p.Lists.None() {
		return float64(p.QueryLen) * float64(p.Lists.Keys)
	}
	if p.Causal != CausalNone && p.ByPosition == (ByPosition{Causal: p.Causal}) && p.QueryLen == p.KeyLen && p.Within.None() {
		return float64(p.QueryLen) * float64(p.KeyLen) / 2
	}
	return p.Mask().Pairs()
}

// ForwardFLOPs counts the operations of the forward pass as the papers do: 2·B·Hq·(D+Dv) for each of PaperPairs.
func (p Problem) ForwardFLOPs() float64 {
	return 2 * p.AllHeads() * p.PaperPairs() * float64(p.HeadDim+p.ValueDim)
}

// Dims gives the sizes, for example "B2 H8 Hk2 Nq512 Nk512 D64 Dv64".
func (p Problem) Dims() string {
	return fmt.Sprintf("B%d H%d Hk%d Nq%d Nk%d D%d Dv%d", p.Batch, p.Heads, p.KeyHeads, p.QueryLen, p.KeyLen, p.HeadDim, p.ValueDim)
}

// String describes the problem in one line, for example "B2 H8 Hk2 Nq512 Nk512 D64 Dv64 float16 causal bottom-right".
func (p Problem) String() string {
	text := fmt.Sprintf("%s %s causal %s", p.Dims(), p.DType, p.Causal)
	if !p.Packed.None() {
		text += fmt.Sprintf(" packed %d/%d", p.Packed.Queries, p.Packed.Keys)
	}
	text += p.besideCausal()
	if !p.Within.None() {
		text += fmt.Sprintf(" part %v", p.Within)
	}
	if p.DropThreshold() > 0 {
		text += fmt.Sprintf(" dropout %g", p.Dropout)
	}
	switch {
	case p.Blocks.Classed:
		text += fmt.Sprintf(" classes %v", p.Blocks)
	case !p.Blocks.None():
		text += fmt.Sprintf(" blocks %v", p.Blocks)
	}
	if !p.Lists.None() {
		text += fmt.Sprintf(" lists %v", p.Lists)
	}
	return text + p.ofScores() + p.ofCache()
}

// Elements multiplies a shape out; false when the product overflows.
func Elements(shape [4]int) (uint64, bool) {
	n := uint64(1)
	for _, d := range shape {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 {
			return 0, false
		}
		n = lo
	}
	return n, true
}

// CeilDiv is ⌈a/b⌉ of positive numbers.
func CeilDiv(a, b int) int { return (a + b - 1) / b }

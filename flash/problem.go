package flash

import (
	"cmp"
	"math"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
)

// MaxHeadDim is the largest HeadDim and ValueDim that any kernel takes, of either pass. Each kernel's own limit is [TierInfo].MaxDim:
// Standard and Flash1 take up to 256.
const MaxHeadDim = attn.MostDim

// Problem is one attention: for each batch entry b and query head h, with key head h' = h / (Heads/KeyHeads),
//
//	s_ij = ScoreFunction(Scale · Σ_d q[b,h,i,d] · k[b,h',j,d]) + bias[b,h,i,j]      −∞ where Causal, Window or any mask forbids (i, j)
//	lse_i = log(Σ_j exp(s_ij) + exp(sink[h]))                              without Sinks the sum alone
//	o[b,h,i,:] = Σ_j exp(s_ij − lse_i) · v[b,h',j,:]
//
// with q [Batch, Heads, QueryLen, HeadDim], k [Batch, KeyHeads, KeyLen, HeadDim], v [Batch, KeyHeads, KeyLen, ValueDim], o [Batch, Heads,
// QueryLen, ValueDim] of type DType, and lse [Batch, Heads, QueryLen] in fp32, natural logarithm. Softmax and accumulation are fp32. A
// query with no key to attend to gives o = 0 and lse = −∞, with Sinks its head's sink.
//
// With MaxLogit a forward pass also writes, for each batch entry and query head,
//
//	maxLogit[b,h] = max_ij s_ij       over all pairs that no mask forbids; −∞ where there is none
//
// in fp32. It is the largest of the scores that the kernel has, in natural units and before anything is taken from them: sinks are none of
// them, dropout drops none, and keys and queries beyond lengths have none. It is NaN where a score of the head's is NaN or +∞, as lse is
// then. Trainers clip queries and keys by it (qk-clip). It has no gradient; a backward pass takes no notice of it.
//
// With Dropout = p > 0 the weight of each (i, j) is dropped with probability k/256, k = round(256·p), and those kept are
// multiplied by 256/(256−k); lse is that of all weights. Which are kept follows from the call's seed and offset alone
// (Philox4x32-7, one byte a weight), so backward repeats what forward did, on any tier. See Plan.DropoutProbability.
type Problem struct {
	Batch    int     // B ≥ 1
	Heads    int     // Hq ≥ 1
	KeyHeads int     // Hk, divides Heads; 0 means Heads
	QueryLen int     // Nq ≥ 1
	KeyLen   int     // Nk ≥ 1; 0 means QueryLen
	HeadDim  int     // D from 1 to 576, MaxHeadDim
	ValueDim int     // Dv likewise; 0 means HeadDim
	DType    DType   // storage type of q, k, v and o
	Causal   Causal  // the mask
	Window   Window  // of keys near a query's position, besides Causal; zero: none
	Scale    float64 // finite and normal, as is its product with log₂ e in fp32; 0 means 1/√HeadDim; may be negative
	Dropout  float64 // probability of dropping a weight, from 0 (none) up to, not including, 511/512; taken to the nearest 1/256
	Blocks   Blocks  // of a block mask, which Flash takes; zero: none
	// of blocks that MaskFunction is asked of beforehand, in a MaskBlocks, which Flash takes, each with at most 2²⁶ pairs of the problem;
	// zero: it is asked of each pair in each pass
	MaskBlocks Blocks
	Lists      Lists // of the keys that each query sees, from Forward.Lists, which Flash takes; zero: all

	ScoreFunction score.Function     // what becomes of each score, several in order by score.Compose (score_mod); zero: s itself
	MaskFunction  score.MaskFunction // which keys a query sees besides (mask_mod); zero: all
	Bias          PerScore           // added to scores, from Forward.Bias; zero: none
	Mask          PerScore           // which keys a query sees besides, from Forward.Mask; zero: all
	Sinks         bool               // each query head has a logit without a value beside its scores, from Forward.Sinks
	MaxLogit      bool               // the largest score of each head is an output of forward passes, Forward.MaxLogit

	// A padded batch: entry b has k_b ≤ KeyLen keys and q_b ≤ QueryLen queries, from Forward.KeyLengths and QueryLengths in device memory,
	// or all of them. What lies beyond, of any tensor, is not used, whatever it is. Positions are those of the entry: query i stands at i +
	// k_b − q_b wherever a field or a function says i + Nk − Nq. Queries from q_b on give o = 0 and lse = −∞, with sinks too, and have
	// gradient 0, as have keys from k_b on.
	KeyLengths, QueryLengths bool

	// Packed sequences: Batch counts them, QueryLen and KeyLen are the most that one has, and their rows lie one behind the other; zero: a
	// batch.
	Packed Packed

	// Within says that the problem is some of the queries and keys of a longer one; zero: it is the whole.
	Within Within

	Pages              Pages // keys and values lie in pages of pools; zero: as tensors
	KeyType, ValueType DType // of k and v where they are quantised: Q8_0 or a type that follows it; 0 means DType
}

// Packed is how many rows packed sequences, those of varlen attention, have together: those of q, o, lse and their gradients, which are of
// shape [1, Heads, Queries, ·], and those of k and v, [1, KeyHeads, Keys, ·]. With Keys 0 these lie as a batch, [Batch, KeyHeads, KeyLen,
// ·], beside packed queries. Memory [total, heads, ·] is a tensor of [Device.NewTensorBNHD].
//
// Sequence b has the slot of rows from Forward.QueryStarts[b] up to, not including, QueryStarts[b+1], and of keys likewise; of its slot it
// uses all rows, or the first k_b and q_b with Problem.KeyLengths and QueryLengths, and never more than KeyLen and QueryLen. Lengths may be
// 0. Everything is as in the padded batch whose entry b is sequence b with these lengths: positions, alignment of Causal and Window, the
// batch entry that biases, masks, functions and dropout see. Rows of a slot that are not used give o = 0 and lse = −∞, have gradient 0, and
// are never used, whatever they hold. Rows of no slot, before the first start or from the last one on, are neither used nor written.
//
// Blocks of a block mask and of MaskBlocks count from the first query and the first key of each sequence, as those of block masks beside
// cu_seqlens do elsewhere: a mask has as many blocks as QueryLen and KeyLen need, and shorter sequences use its top left corner. With
// Blocks.PerBatch each sequence has a mask of its own.
//
// The device's numbers are not trusted: a start below the one before it, or outside the tensor, is taken to the nearest valid one, and
// nothing outside a tensor is read or written. Only [Flash] takes packed sequences.
type Packed struct{ Queries, Keys int }

// Normalize fills the defaults in and checks every field. The error is an *ArgumentError.
func (p Problem) Normalize() (Problem, error) {
	if p.KeyHeads == 0 {
		p.KeyHeads = p.Heads
	}
	if p.KeyLen == 0 {
		p.KeyLen = p.QueryLen
	}
	if p.ValueDim == 0 {
		p.ValueDim = p.HeadDim
	}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"Batch", p.Batch}, {"Heads", p.Heads}, {"KeyHeads", p.KeyHeads},
		{"QueryLen", p.QueryLen}, {"KeyLen", p.KeyLen},
	} {
		if f.value < 1 || f.value > math.MaxInt32/2 {
			return p, badArgument("Problem."+f.name, f.value, "must be from 1 to %d", math.MaxInt32/2)
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"HeadDim", p.HeadDim}, {"ValueDim", p.ValueDim}} {
		if f.value < 1 || f.value > MaxHeadDim {
			return p, badArgument("Problem."+f.name, f.value, "must be from 1 to %d", MaxHeadDim)
		}
	}
	if p.Heads%p.KeyHeads != 0 {
		return p, badArgument("Problem.Heads", p.Heads, "must be a multiple of KeyHeads = %d", p.KeyHeads)
	}
	if p.DType > BF16 {
		return p, badArgument("Problem.DType", uint8(p.DType), "must be F32, F16 or BF16")
	}
	if p.Causal > CausalTopLeft {
		return p, badArgument("Problem.Causal", uint8(p.Causal), "must be CausalNone, CausalBottomRight or CausalTopLeft")
	}
	if err := p.Window.check(); err != nil {
		return p, err
	}
	if err := p.checkPacked(); err != nil {
		return p, err
	}
	if err := p.checkWithin(); err != nil {
		return p, err
	}
	if p.Scale == 0 {
		p.Scale = 1 / math.Sqrt(float64(p.HeadDim))
	}
	const leastScale = 0x1p-126 // numbers below are 0 to devices that have no smaller ones, and 0 times a masked score of −∞ is none
	if s := math.Abs(float64(float32(p.Scale * math.Log2E))); !(s >= leastScale) || math.IsInf(s, 0) {
		const most = math.MaxFloat32 / math.Log2E
		return p, badArgument("Problem.Scale", p.Scale, "must be a number whose product with log₂ e is finite and normal in fp32, of "+
			"magnitude %.4g to %.4g (0 itself means 1/√HeadDim)", leastScale/math.Log2E, most)
	}
	if !(p.Dropout >= 0 && p.Dropout <= 1) || p.attn().DropThreshold() > 255 {
		return p, badArgument("Problem.Dropout", p.Dropout, "must be at least 0 and below 511/512")
	}
	if p.Blocks != (Blocks{}) {
		if err := p.Blocks.check("Blocks"); err != nil {
			return p, err
		}
	}
	if err := p.checkScores(); err != nil {
		return p, err
	}
	if err := p.checkPages(); err != nil {
		return p, err
	}
	if err := p.checkTypes(); err != nil {
		return p, err
	}
	p.KeyType, p.ValueType = p.stored(p.KeyType), p.stored(p.ValueType)
	if err := p.checkLists(); err != nil {
		return p, err
	}
	if p.MaskBlocks != (Blocks{}) {
		if err := p.checkClasses(); err != nil {
			return p, err
		}
		p.MaskBlocks.PerHead, p.MaskBlocks.PerBatch = p.MaskFunction.ByHead(), p.MaskFunction.ByBatch()
	}
	for _, t := range []struct {
		name  string
		shape [4]int
	}{{"q", p.QShape()}, {"k", p.KShape()}, {"v", p.VShape()}, {"o", p.OShape()}} {
		n, ok := attn.Elements(t.shape)
		if !ok || n > math.MaxUint32 {
			return p, badArgument("Problem", p.attn().Dims(), "%s would have more than 2³²−1 elements", t.name)
		}
	}
	return p, nil
}

// checkPacked says what is wrong with Packed beside the other fields.
func (p *Problem) checkPacked() error {
	const most = math.MaxInt32 / 2
	k := p.Packed
	switch {
	case k == Packed{}:
		return nil
	case k.Queries < 1 || k.Queries > most || k.Keys < 0 || k.Keys > most:
		return badArgument("Problem.Packed", k, "Queries must be from 1 to %d, and Keys from 0", most)
	case k.Keys > 0 && p.Pages != Pages{}:
		return badArgument("Problem.Packed.Keys", k.Keys, "must be 0 beside Problem.Pages, where keys lie")
	case p.Pages.Indices > 0:
		return badArgument("Problem.Packed.Queries", k.Queries, "must be 0 beside a compressed table of pages: packed queries take a "+
			"dense one, with KeyLengths")
	}
	return nil
}

// byScore are the fields that describe tensors by score.
func (p *Problem) byScore() []byScore {
	return []byScore{{"Bias", &p.Bias, []DType{F32, p.DType}, true}, {"Mask", &p.Mask, []DType{Bool, Bit}, false}}
}

// attn is the problem, normalized, without a device.
func (p Problem) attn() attn.Problem {
	return attn.Problem{
		Batch: p.Batch, Heads: p.Heads, KeyHeads: p.KeyHeads, QueryLen: p.QueryLen, KeyLen: p.KeyLen, HeadDim: p.HeadDim,
		ValueDim: p.ValueDim,
		DType:    attn.DType(p.DType), ByPosition: p.byPosition(), Scale: p.Scale, Dropout: p.Dropout,
		Blocks: p.blocks(), Lists: attn.Lists(p.Lists),
		Score: p.ScoreFunction, Sees: p.MaskFunction,
		ByScore:    attn.ByScore{Bias: p.Bias.attn(&p), BoolMask: p.Mask.attn(&p), Sinks: p.Sinks},
		MaxLogit:   p.MaxLogit,
		KeyLengths: p.KeyLengths, QueryLengths: p.QueryLengths, Packed: attn.Packed(p.Packed), Within: attn.Within(p.Within),
		Pages: attn.Pages(p.Pages), KeyType: attn.DType(p.stored(p.KeyType)), ValueType: attn.DType(p.stored(p.ValueType)),
	}
}

// byPosition is the masks by position.
func (p Problem) byPosition() attn.ByPosition {
	return attn.ByPosition{Causal: attn.Causal(p.Causal), Window: attn.Window(p.Window)}
}

// unmask takes them from a problem all of whose queries see all of its keys.
func (p *Problem) unmask() { p.Causal, p.Window = CausalNone, Window{} }

// stored is the type of keys or values that are said to be of type t.
func (p *Problem) stored(t DType) DType {
	if attn.DType(t).Quantised() {
		return t
	}
	return p.DType
}

// filled is the problem with zero values that mean another field's in place, unchecked.
func (p Problem) filled() attn.Problem {
	p.KeyHeads, p.KeyLen, p.ValueDim = cmp.Or(p.KeyHeads, p.Heads), cmp.Or(p.KeyLen, p.QueryLen), cmp.Or(p.ValueDim, p.HeadDim)
	return p.attn()
}

// QShape is the shape of q, [Batch, Heads, QueryLen, HeadDim], or [1, Heads, Packed.Queries, HeadDim].
func (p Problem) QShape() [4]int { return p.filled().QShape() }

// KShape is the shape of k, [Batch, KeyHeads, KeyLen, HeadDim], or packed [1, KeyHeads, Packed.Keys, HeadDim], or with pages [Pages.Count,
// KeyHeads, Pages.Size, HeadDim].
func (p Problem) KShape() [4]int { return p.filled().KShape() }

// VShape is the shape of v likewise, with ValueDim.
func (p Problem) VShape() [4]int { return p.filled().VShape() }

// OShape is the shape of o, QShape's with ValueDim columns.
func (p Problem) OShape() [4]int { return p.filled().OShape() }

// LSEShape is the shape of lse, QShape's with a last dimension of 1.
func (p Problem) LSEShape() [4]int { return p.filled().LSEShape() }

// String describes the problem in one line, for example "B2 H8 Hk2 Nq512 Nk512 D64 Dv64 float16 causal bottom-right".
func (p Problem) String() string { return p.filled().String() }

// ForwardFLOPs counts the operations of the forward pass as the FlashAttention papers do: 2·B·Hq·Nq·Nk·(D+Dv), and half of that when causal
// with Nq = Nk. A causal problem with Nq ≠ Nk, and one with a window, counts its allowed pairs. Block masks and mask functions are not
// looked at, nor are lengths of batch entries: each counts as all keys and queries. Packed sequences count as Packed.Queries/QueryLen
// sequences of QueryLen queries and KeyLen keys.
func (p Problem) ForwardFLOPs() float64 { return p.filled().ForwardFLOPs() }

// BackwardFLOPs counts the operations of the backward pass: 2.5 × forward.
func (p Problem) BackwardFLOPs() float64 { return 2.5 * p.ForwardFLOPs() }

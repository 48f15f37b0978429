package attn

import "slices"

// Operand is a tensor of a pass. Checking, placing, hazards, self-checks and the least traffic of a pass go through these
// tables, so that a tensor more is a line here, a field where callers name it and a field where kernels bind it.
type Operand struct {
	Name  string // as callers name it
	Shape func(*Problem) [4]int
	// numbers in row-major order, fp32 unless Type says otherwise; else elements of the problem's type with any strides
	Statistics bool
	Output     bool                     // written by the pass; a gradient may be added to instead
	Optional   bool                     // the caller may leave it out
	When       func(*Problem) bool      // the problem has it, and then the caller must give it; nil: every problem has
	Type       func(*Problem) DType     // nil: the problem's, or fp32 of Statistics
	Of         string                   // the operand that this is the gradient by, "" for none
	PerScore   func(*Problem) *PerScore // of tensors that go with scores, how the problem describes them; nil for others
	Scores     bool                     // what the softmax is taken of is made of it
	// says where keys and values lie in a cache, or how: of forward passes alone, for caches have no gradients
	Cache bool
}

// ForwardOperands are the tensors of a forward pass.
var ForwardOperands = [...]Operand{
	{Name: "Q", Shape: (*Problem).QShape, Scores: true},
	{Name: "K", Shape: (*Problem).KShape, Scores: true, Type: (*Problem).keyType},
	{Name: "V", Shape: (*Problem).VShape, Type: (*Problem).valueType},
	{Name: "O", Shape: (*Problem).OShape, Output: true},
	{Name: "LSE", Shape: (*Problem).LSEShape, Statistics: true, Output: true, Optional: true},
	{Name: "MaxLogit", Shape: (*Problem).MaxLogitShape, Statistics: true, Output: true, When: (*Problem).hasMaxLogit},
	biasOperand, maskOperand, sinksOperand, keyLengthsOperand, queryLengthsOperand, queryStartsOperand, keyStartsOperand, listsOperand,
	{Name: "PageTable", Shape: (*Problem).PageTableShape, Statistics: true, When: (*Problem).hasPages, Type: integers, Cache: true},
	{Name: "PageStarts", Shape: (*Problem).PageStartsShape, Statistics: true, When: (*Problem).hasCompressedPages, Type: integers,
		Cache: true},
	{Name: "LastPages", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasCompressedPages, Type: integers, Cache: true},
	{Name: "KeyScales", Shape: (*Problem).ScalesShape, Statistics: true, When: (*Problem).hasKeyScales, Cache: true},
	{Name: "ValueScales", Shape: (*Problem).ScalesShape, Statistics: true, When: (*Problem).hasValueScales, Cache: true},
}

// ByScore is the tensors that the scores of a problem are made with beside q and k.
type ByScore struct {
	Bias     PerScore
	BoolMask PerScore
	Sinks    bool
}

func (b ByScore) features() (f Features) {
	if !b.Bias.None() {
		f |= WithBias
	}
	if !b.BoolMask.None() {
		f |= WithMask
	}
	if b.Sinks {
		f |= WithSinks
	}
	return f
}

var (
	biasOperand  = byScore("Bias", func(p *Problem) *PerScore { return &p.Bias })
	maskOperand  = byScore("Mask", func(p *Problem) *PerScore { return &p.BoolMask })
	sinksOperand = Operand{Name: "Sinks", Shape: (*Problem).SinksShape, Statistics: true, When: (*Problem).hasSinks}

	keyLengthsOperand = Operand{Name: "KeyLengths", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasKeyLengths,
		Type: integers, Scores: true}
	queryLengthsOperand = Operand{Name: "QueryLengths", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasQueryLengths,
		Type: integers, Scores: true}

	queryStartsOperand = Operand{Name: "QueryStarts", Shape: (*Problem).StartsShape, Statistics: true, When: (*Problem).hasQueryStarts,
		Type: integers}
	keyStartsOperand = Operand{Name: "KeyStarts", Shape: (*Problem).StartsShape, Statistics: true, When: (*Problem).hasKeyStarts,
		Type: integers}

	listsOperand = Operand{Name: "Lists", Shape: (*Problem).ListsShape, Statistics: true, When: (*Problem).hasLists, Type: integers}
)

func integers(*Problem) DType { return Int32 }

// byScore is the operand that a problem describes by a PerScore.
func byScore(name string, of func(*Problem) *PerScore) Operand {
	return Operand{Name: name, Shape: func(p *Problem) [4]int { return of(p).Shape(p) }, When: func(p *Problem) bool { return of(p).In },
		Type: func(p *Problem) DType { return of(p).DType }, PerScore: of, Scores: true}
}

// gradient is the operand of the gradient with respect to one that a problem may have.
func (o Operand) gradient() Operand {
	o.Of, o.Name, o.Output, o.Optional = o.Name, "D"+o.Name, true, true
	return o
}

// BackwardOperands are the tensors of a backward pass.
var BackwardOperands = [...]Operand{
	{Name: "Q", Shape: (*Problem).QShape},
	{Name: "K", Shape: (*Problem).KShape},
	{Name: "V", Shape: (*Problem).VShape},
	{Name: "O", Shape: (*Problem).OShape},
	{Name: "LSE", Shape: (*Problem).LSEShape, Statistics: true},
	{Name: "DO", Shape: (*Problem).OShape, Of: "O"},
	{Name: "DLSE", Shape: (*Problem).LSEShape, Statistics: true, Optional: true, Of: "LSE"},
	{Name: "DQ", Shape: (*Problem).QShape, Output: true, Of: "Q"},
	{Name: "DK", Shape: (*Problem).KShape, Output: true, Of: "K"},
	{Name: "DV", Shape: (*Problem).VShape, Output: true, Of: "V"},
	biasOperand, maskOperand, sinksOperand, keyLengthsOperand, queryLengthsOperand, queryStartsOperand, keyStartsOperand, listsOperand,
	biasOperand.gradient(),
	sinksOperand.gradient(),
}

// tangent is the operand of how one of these moves: the caller may leave it out, and then it stays.
func (o Operand) tangent() Operand {
	o.Of, o.Name, o.Optional = o.Name, o.Name+"Tangent", true
	return o
}

// JVPOperands are the tensors of a pass in forward mode.
var JVPOperands = [...]Operand{
	{Name: "Q", Shape: (*Problem).QShape},
	{Name: "K", Shape: (*Problem).KShape},
	{Name: "V", Shape: (*Problem).VShape},
	{Name: "O", Shape: (*Problem).OShape},
	{Name: "LSE", Shape: (*Problem).LSEShape, Statistics: true},
	{Name: "QTangent", Shape: (*Problem).QShape, Optional: true, Of: "Q"},
	{Name: "KTangent", Shape: (*Problem).KShape, Optional: true, Of: "K"},
	{Name: "VTangent", Shape: (*Problem).VShape, Optional: true, Of: "V"},
	{Name: "OTangent", Shape: (*Problem).OShape, Output: true, Of: "O"},
	{Name: "LSETangent", Shape: (*Problem).LSEShape, Statistics: true, Output: true, Optional: true, Of: "LSE"},
	biasOperand, maskOperand, sinksOperand, keyLengthsOperand, queryLengthsOperand, queryStartsOperand, keyStartsOperand, listsOperand,
	biasOperand.tangent(), sinksOperand.tangent(),
}

// BackwardPlaces and JVPPlaces say where the tensors of these passes come from, as Places does.
var BackwardPlaces, JVPPlaces = Places(BackwardOperands[:]), Places(JVPOperands[:])

// Places is, for each tensor of a pass, its place among ForwardOperands; −1 − n of the n-th that is the pass's own.
func Places(of []Operand) []int {
	at, own := make([]int, len(of)), 0
	for i := range of {
		at[i] = slices.IndexFunc(ForwardOperands[:], func(o Operand) bool { return o.Name == of[i].Name })
		if at[i] < 0 {
			own++
			at[i] = -own
		}
	}
	return at
}

// Pick fills a pass's list of what goes with its tensors: from a list of what goes with those of a forward pass, and one of the pass's own.
func Pick[T any](to []T, places []int, forward, own []T) {
	for i, at := range places {
		if at < 0 {
			to[i] = own[-1-at]
		} else {
			to[i] = forward[at]
		}
	}
}

// DType is the type of the operand's elements.
func (o *Operand) DType(p *Problem) DType {
	switch {
	case o.Type != nil:
		return o.Type(p)
	case o.Statistics:
		return F32
	}
	return p.DType
}

// In says whether the problem has the operand.
func (o *Operand) In(p *Problem) bool { return o.When == nil || o.When(p) }

// Bytes is the size of its elements together.
func (o *Operand) Bytes(p *Problem) float64 {
	if !o.In(p) {
		return 0
	}
	shape := o.Shape(p)
	row := o.DType(p).Bytes(shape[3])
	shape[3] = 1
	rows, _ := Elements(shape) // a problem's fit
	return float64(rows) * float64(row)
}

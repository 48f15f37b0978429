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
	Added      bool                     // it is added to scores, behind the functions
	More       int                      // of ScoreOperands, the word of further arguments at which kernels read where it lies
	// says where keys and values lie in a cache, or how: of forward passes alone, for caches have no gradients
	Cache bool
}

// ForwardOperands are the tensors of a forward pass.
var ForwardOperands = [6 + len(ScoreOperands) + 5]Operand(slices.Concat([]Operand{
	{Name: "Q", Shape: (*Problem).QShape, Scores: true},
	{Name: "K", Shape: (*Problem).KShape, Scores: true, Type: (*Problem).keyType},
	{Name: "V", Shape: (*Problem).VShape, Type: (*Problem).valueType},
	{Name: "O", Shape: (*Problem).OShape, Output: true},
	{Name: "LSE", Shape: (*Problem).LSEShape, Statistics: true, Output: true, Optional: true},
	{Name: "MaxLogit", Shape: (*Problem).MaxLogitShape, Statistics: true, Output: true, When: (*Problem).hasMaxLogit},
}, ScoreOperands[:], []Operand{
	{Name: "PageTable", Shape: (*Problem).PageTableShape, Statistics: true, When: (*Problem).hasPages, Type: integers, Cache: true},
	{Name: "PageStarts", Shape: (*Problem).PageStartsShape, Statistics: true, When: (*Problem).hasCompressedPages, Type: integers,
		Cache: true},
	{Name: "LastPages", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasCompressedPages, Type: integers, Cache: true},
	{Name: "KeyScales", Shape: (*Problem).ScalesShape, Statistics: true, When: (*Problem).hasKeyScales, Cache: true},
	{Name: "ValueScales", Shape: (*Problem).ScalesShape, Statistics: true, When: (*Problem).hasValueScales, Cache: true},
}))

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

// The places of ScoreOperands.
const (
	AtBias = iota
	AtMask
	AtSinks
	AtKeyLengths
	AtQueryLengths
	AtQueryStarts
	AtKeyStarts
	AtLists
)

// ScoreOperands are the tensors beside q, k and v that say what a score is, and which there are: passes of every direction have them.
var ScoreOperands = [...]Operand{
	AtBias:  byScore("Bias", true, 0, func(p *Problem) *PerScore { return &p.Bias }),
	AtMask:  byScore("Mask", false, 5, func(p *Problem) *PerScore { return &p.BoolMask }),
	AtSinks: {Name: "Sinks", Shape: (*Problem).SinksShape, Statistics: true, When: (*Problem).hasSinks, More: 10},
	AtKeyLengths: {Name: "KeyLengths", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasKeyLengths, Type: integers,
		Scores: true, More: 12},
	AtQueryLengths: {Name: "QueryLengths", Shape: (*Problem).LengthsShape, Statistics: true, When: (*Problem).hasQueryLengths,
		Type: integers, Scores: true, More: 13},
	AtQueryStarts: {Name: "QueryStarts", Shape: (*Problem).StartsShape, Statistics: true, When: (*Problem).hasQueryStarts, Type: integers,
		More: 14},
	AtKeyStarts: {Name: "KeyStarts", Shape: (*Problem).StartsShape, Statistics: true, When: (*Problem).hasKeyStarts, Type: integers,
		More: 15},
	AtLists: {Name: "Lists", Shape: (*Problem).ListsShape, Statistics: true, When: (*Problem).hasLists, Type: integers, More: 25},
}

func integers(*Problem) DType { return Int32 }

// byScore is the operand that a problem describes by a PerScore.
func byScore(name string, added bool, more int, of func(*Problem) *PerScore) Operand {
	return Operand{Name: name, Shape: func(p *Problem) [4]int { return of(p).Shape(p) }, When: func(p *Problem) bool { return of(p).In },
		Type: func(p *Problem) DType { return of(p).DType }, PerScore: of, Scores: true, Added: added,
		More: more}
}

// WithGradient are the places of those that there is a gradient with respect to.
var WithGradient = [...]int{AtBias, AtSinks}

// gradients are the operands of these gradients, in that order.
func gradients() (all []Operand) {
	for _, at := range WithGradient {
		o := ScoreOperands[at]
		o.Of, o.Name, o.Output, o.Optional = o.Name, "D"+o.Name, true, true
		all = append(all, o)
	}
	return all
}

// BackwardOperands are the tensors of a backward pass.
var BackwardOperands = [10 + len(ScoreOperands) + len(WithGradient)]Operand(slices.Concat([]Operand{
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
}, ScoreOperands[:], gradients()))

// tangent is the operand of how one of these moves: the caller may leave it out, and then it stays.
func (o Operand) tangent() Operand {
	o.Of, o.Name, o.Optional = o.Name, o.Name+"Tangent", true
	return o
}

// JVPOperands are the tensors of a pass in forward mode.
var JVPOperands = [10 + len(ScoreOperands) + 2]Operand(slices.Concat([]Operand{
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
}, ScoreOperands[:], []Operand{ScoreOperands[AtBias].tangent(), ScoreOperands[AtSinks].tangent()}))

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

package score

import "sync/atomic"

// Function is a function of the scores, one or several applied in order. It never changes and may be used by several goroutines. The zero
// value is the identity, s′ = s.
type Function struct{ f *function }

// function is a function of scores, or a mask function.
type function struct {
	parts   []*node // in the order of application, or of which a mask is the conjunction
	g       *graph
	value   ref
	slope   ref // by s, of functions of scores
	tensors []*tensor
	err     error
	key     atomic.Pointer[string] // cacheKey, once asked for
}

// or is a function of the user's, the other where that is a zero value.
func (f *function) or(other *function) *function {
	if f == nil {
		return other
	}
	return f
}

// cacheKey is that of its value, made at the first call: plans are compared by it.
func (f *function) cacheKey() string {
	if key := f.key.Load(); key != nil {
		return *key
	}
	key := cacheKey(f.g, f.tensors, f.value)
	f.key.Store(&key)
	return key
}

var identity = func() *function {
	b := newBuilder()
	return &function{g: b.g, value: b.s, slope: b.g.float(1)}
}()

func (f Function) get() *function { return f.f.or(identity) }

// New makes a function of an expression for s′. Its errors are those of the expression: a zero value or a bad constant, shape or number of
// indices in it, one name for different tensors, or more than MaxNodes operations.
func New(result Float) (Function, error) { return build([]*node{result.n}) }

// Compose is the function that applies several in order: the second's S is the first's result. Without any it is the identity.
func Compose(functions ...Function) (Function, error) {
	var stages []*node
	for _, f := range functions {
		if err := f.Err(); err != nil {
			return Function{f.f}, err
		}
		stages = append(stages, f.get().parts...)
	}
	return build(stages)
}

// made is New for this package's own functions, which keep their error.
func made(result Float) Function {
	f, _ := New(result)
	return f
}

func build(stages []*node) (Function, error) {
	b := newBuilder()
	for _, n := range stages {
		s, err := b.expression(n, kindFloat)
		if err != nil {
			return Function{&function{g: identity.g, value: identity.value, slope: identity.slope, err: err}}, err
		}
		b.s = s
	}
	f := &function{parts: stages, g: b.g, value: b.s, tensors: b.tensors}
	f.slope = b.g.derivative(f.value, 0)
	return Function{f}, nil
}

// Err is what was wrong with the expression, which functions that return no error, such as ALiBi, keep.
func (f Function) Err() error { return f.get().err }

// Identity says whether the function leaves every score as it is.
func (f Function) Identity() bool { return f.get().value == 0 }

// UnitSlope says whether ∂s′/∂s is 1 everywhere, as of functions that add to s what does not depend on it: kernels need not keep it then.
func (f Function) UnitSlope() bool { return f.get().g.isFloat(f.get().slope, 1) }

// Captures lists the captured tensors in the order in which kernels bind them, which is that in which the expression first reads them.
func (f Function) Captures() []Tensor { return describe(f.get().tensors) }

// CacheKey identifies the code that the function becomes: its structure, its constants, and the captured tensors' types and shapes. The
// values of tables are not part of it.
func (f Function) CacheKey() string { return f.get().cacheKey() }

// String is the formula, shortened where it is long.
func (f Function) String() string { return format(f.get().parts, "; ", "s") }

package score

// MaskFunction says which pairs take part, one or the conjunction of several. It never changes and may be used by several goroutines. The
// zero value lets all take part.
type MaskFunction struct{ f *function }

var everything = func() *function {
	g := newGraph(false)
	return &function{g: g, value: g.bool(true)}
}()

func (m MaskFunction) get() *function { return m.f.or(everything) }

// NewMask makes a mask function of an expression that is true where the query sees the key. It may not read S. Its errors are those of New.
func NewMask(allowed Bool) (MaskFunction, error) { return buildMask([]*node{allowed.n}) }

// ComposeMasks is the mask that lets a pair take part where all of several do. Without any, all pairs take part.
func ComposeMasks(masks ...MaskFunction) (MaskFunction, error) {
	var parts []*node
	for _, m := range masks {
		if err := m.Err(); err != nil {
			return MaskFunction{m.f}, err
		}
		parts = append(parts, m.get().parts...)
	}
	return buildMask(parts)
}

func madeMask(allowed Bool) MaskFunction {
	m, _ := NewMask(allowed)
	return m
}

func buildMask(parts []*node) (MaskFunction, error) {
	b := newBuilder()
	b.noS = true
	all := b.g.bool(true)
	for _, n := range parts {
		r, err := b.expression(n, kindBool)
		if err != nil {
			return MaskFunction{&function{g: everything.g, value: everything.value, err: err}}, err
		}
		all = b.g.apply(opAnd, all, r)
	}
	return MaskFunction{&function{parts: parts, g: b.g, value: all, tensors: b.tensors}}, nil
}

// Err is what was wrong with the expression, which masks that return no error, such as PrefixLM, keep.
func (m MaskFunction) Err() error { return m.get().err }

// Everything says whether the mask lets every pair take part.
func (m MaskFunction) Everything() bool {
	w, ok := m.get().g.constant(m.get().value)
	return ok && w != 0
}

// ByBatch and ByHead say whether the mask depends on the batch entry and on the query head. Where it does not, one answer does for all.
func (m MaskFunction) ByBatch() bool { return m.reads(opBatch) }
func (m MaskFunction) ByHead() bool  { return m.reads(opHead) }

// ByPosition says whether the mask depends on Position, which lengths of batch entries and of packed sequences move. Query and Key count
// from an entry's first row whatever its length is.
func (m MaskFunction) ByPosition() bool { return m.reads(opPosition) }

func (m MaskFunction) reads(o op) bool {
	d := m.get()
	used := d.g.reachable(d.value)
	for i, v := range d.g.values {
		if used[i] && v.op == o {
			return true
		}
	}
	return false
}

// Captures lists the captured tensors in the order in which the expression first reads them.
func (m MaskFunction) Captures() []Tensor { return describe(m.get().tensors) }

// CacheKey identifies the code that the mask becomes, as Function.CacheKey does.
func (m MaskFunction) CacheKey() string { return m.get().cacheKey() }

// String is the formula, shortened where it is long.
func (m MaskFunction) String() string { return format(m.get().parts, " and ", "true") }

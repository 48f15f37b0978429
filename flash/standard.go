package flash

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// standardShape is how the three kernels of standard attention divide a problem, and how they are built for it.
type standardShape interface {
	String() string
	scoresBlock() (rows, cols int)  // of a workgroup
	softmaxRows() int               // of a workgroup
	productBlock() (rows, keys int) // of a workgroup, and of a step of its loop
	pace() pace                     // of the two products
	model() traffic.Standard        // without labels and slabs

	scores(p *Problem, aligned bool) standardKernel
	softmax(p *Problem, lse bool) standardKernel
	product(p *Problem, aligned bool) standardKernel
}

// standardKernel is a pipeline to be built: of info only what a shape has its own ideas about.
type standardKernel struct {
	module string
	spec   constants
	info   pipeline.KernelInfo
}

func (k standardKernel) compiled() compiled { return compiled{module: k.module, constants: k.spec} }

// standardProgram is scores, softmax and product fitted to a problem.
type standardProgram struct {
	env     *environment
	problem Problem
	shape   standardShape
	pitch   int // elements from row to row of the scores
	slabs   []slab
	sizes   []uint64
	grids   []slabGrids
	runs    int // dispatches in all

	// check looks at kernels before their first use; nil where none is needed.
	check func(s *standardProgram, v standardVariant, k *standardKernels) error

	scoresKernels  [2]atomic.Pointer[pipeline.Kernel] // by aligned
	softmaxKernels [2]atomic.Pointer[pipeline.Kernel] // by lse
	productKernels [2]atomic.Pointer[pipeline.Kernel] // by aligned
	checked        [8]atomic.Bool                     // by variant
}

type slabGrids struct{ scores, softmax, product grid }

// standardKernels are the pipelines that a set of tensors needs.
type standardKernels struct{ scores, softmax, product *pipeline.Kernel }

// standardVariant says which those are: whether q and k, and v and o, are aligned, and whether lse is wanted.
type standardVariant struct{ qk, vo, lse bool }

func (v standardVariant) index() int { return boolInt(v.qk) + 2*boolInt(v.vo) + 4*boolInt(v.lse) }

func newStandardProgram(e *environment, p *Problem, shape standardShape, t *tuning) (*standardProgram, error) {
	s := &standardProgram{env: e, problem: *p, shape: shape, pitch: ceilDiv(p.KeyLen, 8) * 8}
	if err := s.cut(t); err != nil {
		return nil, err
	}
	return s, s.divide(t)
}

func (s *standardProgram) tile() string      { return s.shape.String() }
func (s *standardProgram) scratch() []uint64 { return s.sizes }
func (s *standardProgram) kept() []uint64    { return s.sizes }
func (s *standardProgram) dispatches() int   { return s.runs }

// Labels of the dispatches.
const (
	scoresLabel  = "scores"
	softmaxLabel = "softmax"
	productLabel = "product"
)

func (s *standardProgram) model() traffic.Model {
	m := s.shape.model()
	m.Scores.Label, m.Softmax.Label, m.Product.Label = scoresLabel, softmaxLabel, productLabel
	_, m.SlabRows = s.slabSize()
	return m
}

// slabSize is the most heads that a slab has, and the most rows of a head, 0 where slabs have all.
func (s *standardProgram) slabSize() (heads, rows int) {
	for _, b := range s.slabs {
		heads, rows = max(heads, b.heads), max(rows, b.rows)
	}
	if rows == s.problem.QueryLen {
		rows = 0
	}
	return heads, rows
}

// dense is the variant of dense tensors with lse.
func (s *standardProgram) dense() standardVariant {
	size := s.problem.DType.Size()
	return standardVariant{qk: s.problem.HeadDim*size%16 == 0, vo: s.problem.ValueDim*size%16 == 0, lse: true}
}

// mostSlabs is the most that a caller may cut the scores into: each takes three dispatches.
const mostSlabs = mostDispatches / 4

// cut makes the slabs. max_slab lowers the largest buffer, for tests.
func (s *standardProgram) cut(t *tuning) error {
	p, l := &s.problem, &s.env.caps.facts.Limits
	heads, rowBytes := p.Batch*p.Heads, uint64(s.pitch*p.DType.Size())
	most := l.MaxStorageBufferRange
	cut := uint64(t.get("max_slab", 0))
	for _, m := range []uint64{l.MaxAllocationSize, l.MaxBufferSize, cut} {
		if m > 0 {
			most = min(most, m)
		}
	}
	total, ok := scoreBytes(heads, p.QueryLen, rowBytes)
	if memory := s.env.caps.memory(); !ok || total > memory {
		if !ok {
			total = 1<<64 - 1
		}
		return &MemoryError{Label: "workspace", Needed: total, Available: memory, Rule: "the device's memory, for the matrix of scores"}
	}
	if cut > 0 && (cut < rowBytes || total/min(total, cut) > mostSlabs) {
		return t.bad("max_slab", "must hold a row of scores, %d bytes, and cut their %d bytes into %d buffers at most", rowBytes, total, mostSlabs)
	}
	var err error
	if s.slabs, err = cutSlabs(heads, p.QueryLen, rowBytes, most); err != nil {
		return err
	}
	for _, b := range s.slabs {
		s.sizes = append(s.sizes, uint64(b.heads)*uint64(b.rows)*rowBytes)
	}
	return nil
}

// divide makes the grids of every slab.
func (s *standardProgram) divide(t *tuning) error {
	p := &s.problem
	scoresRows, scoresCols := s.shape.scoresBlock()
	productRows, _ := s.shape.productBlock()
	perRow := uint64(s.shape.softmaxRows())
	for _, b := range s.slabs {
		heads, rows, pairs := uint64(b.heads), b.rows, float64(b.heads)*float64(b.rows)*float64(p.KeyLen)
		var g slabGrids
		var err error
		// Few columns are not much faster than 64: then the matrix of scores is what moves.
		if g.scores, err = gridFor(s.env, heads*uint64(ceilDiv(rows, scoresRows))*uint64(ceilDiv(p.KeyLen, scoresCols)), 2*pairs*float64(max(64, p.HeadDim)), s.shape.pace(), t); err != nil {
			return err
		}
		if g.softmax, err = gridFor(s.env, (heads*uint64(rows)+perRow-1)/perRow, 16*pairs, scalarPace, t); err != nil {
			return err
		}
		if g.product, err = gridFor(s.env, heads*uint64(ceilDiv(rows, productRows)), 2*pairs*float64(max(64, p.ValueDim)), s.shape.pace(), t); err != nil {
			return err
		}
		s.grids = append(s.grids, g)
		s.runs += g.scores.dispatches() + g.softmax.dispatches() + g.product.dispatches()
	}
	return nil
}

// build gives the pipelines of a variant, built and checked at the first call.
func (s *standardProgram) build(v standardVariant) (standardKernels, error) {
	if s.checked[v.index()].Load() {
		return standardKernels{s.scoresKernels[boolInt(v.qk)].Load(), s.softmaxKernels[boolInt(v.lse)].Load(), s.productKernels[boolInt(v.vo)].Load()}, nil
	}
	return s.buildFirst(v)
}

func (s *standardProgram) buildFirst(v standardVariant) (standardKernels, error) {
	var k standardKernels
	var err error
	get := func(p *atomic.Pointer[pipeline.Kernel], want func() standardKernel) *pipeline.Kernel {
		if built := p.Load(); built != nil || err != nil {
			return built
		}
		w := want()
		var built *pipeline.Kernel
		built, err = s.env.variant(p, w.module, func() (constants, pipeline.KernelInfo) {
			return w.spec, w.info
		})
		return built
	}
	k.scores = get(&s.scoresKernels[boolInt(v.qk)], func() standardKernel { return s.shape.scores(&s.problem, v.qk) })
	k.softmax = get(&s.softmaxKernels[boolInt(v.lse)], func() standardKernel { return s.shape.softmax(&s.problem, v.lse) })
	k.product = get(&s.productKernels[boolInt(v.vo)], func() standardKernel { return s.shape.product(&s.problem, v.vo) })
	if err == nil && s.check != nil {
		err = s.check(s, v, &k)
	}
	s.checked[v.index()].Store(err == nil)
	return k, err
}

func (s *standardProgram) record(r *recorder, f *operands) error {
	k, err := s.build(standardVariant{qk: f.q.aligned && f.k.aligned, vo: f.v.aligned && f.o.aligned, lse: f.hasLSE})
	if err != nil {
		return err
	}
	return s.run(r, f, &k)
}

// run records the dispatches with given pipelines.
func (s *standardProgram) run(r *recorder, f *operands, k *standardKernels) error {
	for i := range s.slabs {
		if err := s.recordSlab(r, f, i, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *standardProgram) recordSlab(r *recorder, f *operands, i int, k *standardKernels) error {
	p, b, g, w := &s.problem, &s.slabs[i], &s.grids[i], &r.push
	matrix := r.scratch
	if f.weights != nil {
		matrix = f.weights
	}

	at := s.scoresArgs(w, b, &f.q, &f.k, p.Scale)
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: matrix[i], Mode: pipeline.Write}
	if err := r.dispatch(k.scores, r.access[:3], at, g.scores, g.scores.total, scoresLabel); err != nil {
		return err
	}

	at = s.rowsArgs(w, b, &f.lse, &f.drop)
	r.access[0] = pipeline.Access{Binding: matrix[i], Mode: pipeline.ReadWrite}
	r.access[1] = f.lseAccess()
	if err := r.dispatch(k.softmax, r.access[:2], at, g.softmax, uint32(b.heads*b.rows), softmaxLabel); err != nil {
		return err
	}

	at = s.productArgs(w, b, &f.v, &f.o)
	r.access[0] = pipeline.Access{Binding: matrix[i], Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	return r.dispatch(k.product, r.access[:3], at, g.product, g.product.total, productLabel)
}

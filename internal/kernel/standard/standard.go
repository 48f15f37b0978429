package standard

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// standardShape is how the three kernels of standard attention divide a problem, and how they are built for it.
type standardShape interface {
	String() string
	scoresBlock() (rows, cols int)  // of a workgroup
	softmaxRows() int               // of a workgroup
	productBlock() (rows, keys int) // of a workgroup, and of a step of its loop
	pace() kernel.Pace              // of the two products
	Model() traffic.Standard        // without labels and slabs

	Scores(p *attn.Problem, aligned bool) standardKernel
	Softmax(p *attn.Problem, lse bool) standardKernel
	Product(p *attn.Problem, aligned bool) standardKernel

	// Trial is a small problem for the tile, with ragged edges, and the diagonal across its tiles when causal.
	Trial(p *attn.Problem) attn.Problem
}

// standardKernel is a pipeline to be built: of info only what a shape has its own ideas about.
type standardKernel struct {
	module string
	Spec   kernel.Constants
	info   pipeline.KernelInfo
}

// Compiled is what the driver compiles for a problem.
func (k standardKernel) Compiled(p *attn.Problem) kernel.Compiled {
	return kernel.Compiled{Module: k.module, Constants: k.Spec, Functions: p.Code()}
}

// Program is scores, softmax and product fitted to a problem.
type Program struct {
	env     *kernel.Env
	Problem attn.Problem
	Shape   standardShape
	Pitch   int // elements from row to row of the scores
	slabs   []Slab
	sizes   []uint64
	grids   []slabGrids
	runs    int // Dispatches in all

	// check looks at kernels before their first use; nil where none is needed.
	check func(v Variant, k *pipelines) error

	scoresKernels  [2]atomic.Pointer[pipeline.Kernel] // by aligned
	softmaxKernels [2]atomic.Pointer[pipeline.Kernel] // by lse
	scoresOnly     atomic.Pointer[pipeline.Kernel]    // softmax that stops at what it is taken of
	productKernels [2]atomic.Pointer[pipeline.Kernel] // by aligned
	checked        [8]atomic.Bool                     // by variant
	scoresTried    atomic.Bool                        // scoresOnly was
}

type slabGrids struct{ scores, softmax, product kernel.Grid }

// pipelines are the pipelines that a set of tensors needs.
type pipelines struct{ scores, softmax, product *pipeline.Kernel }

// Variant says which those are: whether q and k, and v and o, are aligned, and whether lse is wanted.
type Variant struct{ QK, VO, LSE bool }

func (v Variant) index() int {
	return kernel.BoolInt(v.QK) + 2*kernel.BoolInt(v.VO) + 4*kernel.BoolInt(v.LSE)
}

func New(e *kernel.Env, p *attn.Problem, shape standardShape, t *kernel.Tuning) (*Program, error) {
	s := &Program{env: e, Problem: *p, Shape: shape, Pitch: PitchOf(p)}
	if err := s.cut(t); err != nil {
		return nil, err
	}
	return s, s.divide(t)
}

func (s *Program) Tile() string      { return s.Shape.String() }
func (s *Program) Scratch() []uint64 { return s.sizes }
func (s *Program) Kept() []uint64    { return s.sizes }
func (s *Program) Dispatches() int   { return s.runs }

// Labels of the dispatches.
const (
	scoresLabel  = "scores"
	softmaxLabel = "softmax"
	productLabel = "product"
)

func (s *Program) Model() traffic.Model {
	m := s.Shape.Model()
	m.Scores.Label, m.Softmax.Label, m.Product.Label = scoresLabel, softmaxLabel, productLabel
	_, m.SlabRows = s.slabSize()
	return m
}

// slabSize is the most heads that a slab has, and the most rows of a head, 0 where slabs have all.
func (s *Program) slabSize() (heads, rows int) {
	for _, b := range s.slabs {
		heads, rows = max(heads, b.Heads), max(rows, b.Rows)
	}
	if rows == s.Problem.QueryLen {
		rows = 0
	}
	return heads, rows
}

// dense is the variant of dense tensors with lse.
func (s *Program) dense() Variant {
	size := s.Problem.DType.Size()
	return Variant{QK: s.Problem.HeadDim*size%16 == 0, VO: s.Problem.ValueDim*size%16 == 0, LSE: true}
}

// mostSlabs is the most that a caller may cut the scores into: each takes three dispatches.
const mostSlabs = kernel.MostDispatches / 4

// cut makes the slabs. max_slab lowers the largest buffer, for tests.
func (s *Program) cut(t *kernel.Tuning) error {
	p := &s.Problem
	heads, rowBytes := p.Batch*p.Heads, uint64(s.Pitch*p.DType.Size())
	most, cut := LargestSlab(&s.env.Caps, t), uint64(t.Get(maxSlab, 0))
	total, ok := ScoreBytes(heads, p.QueryLen, rowBytes)
	if memory := s.env.Caps.Memory(); !ok || total > memory {
		if !ok {
			total = 1<<64 - 1
		}
		return &pipeline.MemoryError{Label: "workspace", Needed: total, Available: memory,
			Rule: "the device's memory, for the matrix of scores"}
	}
	if cut > 0 && (cut < rowBytes || total/min(total, cut) > mostSlabs) {
		return t.Bad("max_slab", "must hold a row of scores, %d bytes, and cut their %d bytes into %d buffers at most", rowBytes,
			total, mostSlabs)
	}
	var err error
	if s.slabs, err = CutSlabs(heads, p.QueryLen, rowBytes, most); err != nil {
		return err
	}
	for _, b := range s.slabs {
		s.sizes = append(s.sizes, uint64(b.Heads)*uint64(b.Rows)*rowBytes)
	}
	return nil
}

// divide makes the grids of every slab.
func (s *Program) divide(t *kernel.Tuning) error {
	p := &s.Problem
	scoresRows, scoresCols := s.Shape.scoresBlock()
	productRows, _ := s.Shape.productBlock()
	perRow := uint64(s.Shape.softmaxRows())
	for _, b := range s.slabs {
		heads, rows, pairs := uint64(b.Heads), b.Rows, float64(b.Heads)*float64(b.Rows)*float64(p.KeyLen)
		var g slabGrids
		var err error
		// Few columns are not much faster than 64: then the matrix of scores is what moves.
		if g.scores, err = kernel.GridFor(s.env, heads*uint64(attn.CeilDiv(rows, scoresRows))*uint64(attn.CeilDiv(p.KeyLen, scoresCols)),
			2*pairs*float64(max(64, p.HeadDim)), s.Shape.pace(), t); err != nil {
			return err
		}
		if g.softmax, err = kernel.GridFor(s.env, (heads*uint64(rows)+perRow-1)/perRow, 16*pairs, kernel.ScalarPace, t); err != nil {
			return err
		}
		if g.product, err = kernel.GridFor(s.env, heads*uint64(attn.CeilDiv(rows, productRows)), 2*pairs*float64(max(64, p.ValueDim)),
			s.Shape.pace(), t); err != nil {
			return err
		}
		s.grids = append(s.grids, g)
		s.runs += g.scores.Dispatches() + g.softmax.Dispatches() + g.product.Dispatches()
	}
	return nil
}

// Build gives the pipelines of a variant, built and checked at the first call.
func (s *Program) Build(v Variant) (pipelines, error) {
	if s.checked[v.index()].Load() {
		return pipelines{s.scoresKernels[kernel.BoolInt(v.QK)].Load(), s.softmaxKernels[kernel.BoolInt(v.LSE)].Load(),
			s.productKernels[kernel.BoolInt(v.VO)].Load()}, nil
	}
	return s.buildFirst(v)
}

func (s *Program) buildFirst(v Variant) (pipelines, error) {
	var k pipelines
	get := func(to **pipeline.Kernel, p *atomic.Pointer[pipeline.Kernel], want func() standardKernel) func() error {
		return func() (err error) {
			if *to = p.Load(); *to != nil {
				return nil
			}
			w := want()
			*to, err = s.env.Variant(p, w.module, &s.Problem, func() (kernel.Constants, pipeline.KernelInfo) { return w.Spec, w.info })
			return err
		}
	}
	err := kernel.Together(
		get(&k.scores, &s.scoresKernels[kernel.BoolInt(v.QK)], func() standardKernel { return s.Shape.Scores(&s.Problem, v.QK) }),
		get(&k.softmax, &s.softmaxKernels[kernel.BoolInt(v.LSE)], func() standardKernel { return s.Shape.Softmax(&s.Problem, v.LSE) }),
		get(&k.product, &s.productKernels[kernel.BoolInt(v.VO)], func() standardKernel { return s.Shape.Product(&s.Problem, v.VO) }))
	if err == nil && s.check != nil {
		err = s.check(v, &k)
	}
	s.checked[v.index()].Store(err == nil)
	return k, err
}

// usual builds the variant of dense tensors with lse, the usual case. Where variants are checked, on a device of the caller's, whose queue
// recording must leave alone, the others are looked at now too.
func (s *Program) usual() error {
	dense := s.dense()
	_, err := s.Build(dense)
	if !s.env.Attached || s.check == nil {
		return err
	}
	for _, v := range []Variant{{}, {QK: true}, {VO: true}, {QK: true, VO: true}} {
		for _, lse := range []bool{false, true} {
			if err == nil && (dense.QK || !v.QK) && (dense.VO || !v.VO) {
				_, err = s.Build(Variant{v.QK, v.VO, lse})
			}
		}
	}
	return err
}

// verify lets pipelines of the kernel of a name that were never run on this device and driver prove themselves on a small problem.
func (s *Program) verify(name string, v Variant, k *pipelines) error {
	tried := []kernel.Compiled{s.Shape.Scores(&s.Problem, v.QK).Compiled(&s.Problem),
		s.Shape.Softmax(&s.Problem, v.LSE).Compiled(&s.Problem),
		s.Shape.Product(&s.Problem, v.VO).Compiled(&s.Problem)}
	return s.env.Prove(fmt.Sprintf("%s %v", name, s.Shape), tried, func() (wrong string, err error) {
		p := s.Shape.Trial(&s.Problem)
		small, err := New(s.env, &p, s.Shape, kernel.NewTuning(nil))
		if err != nil {
			return "", err
		}
		return s.env.TryForward(&p, v.trial(), small.sizes,
			func(r *kernel.Recorder, f *kernel.Operands) error { return small.run(r, f, k) })
	})
}

// trial is the variant of a self-check's tensors. Kernels for aligned tensors need all of them aligned; those for others take any.
func (v Variant) trial() kernel.Variant { return kernel.Variant{Aligned: v.QK || v.VO, LSE: v.LSE} }

func (s *Program) Record(r *kernel.Recorder, f *kernel.Operands) error {
	k, err := s.Build(Variant{QK: f.Q.Aligned && f.K.Aligned, VO: f.V.Aligned && f.O.Aligned, LSE: f.HasLSE})
	if err != nil {
		return err
	}
	return s.run(r, f, &k)
}

// run records the dispatches with given pipelines.
func (s *Program) run(r *kernel.Recorder, f *kernel.Operands, k *pipelines) error {
	for i := range s.slabs {
		if err := s.recordSlab(r, f, i, k); err != nil {
			return err
		}
	}
	return nil
}

func (s *Program) recordSlab(r *kernel.Recorder, f *kernel.Operands, i int, k *pipelines) error {
	b, g, w := &s.slabs[i], &s.grids[i], &r.Push
	matrix := r.Scratch
	if f.Weights != nil {
		matrix = f.Weights
	}
	if err := s.recordScores(r, &f.Q, &f.K, i, matrix[i], k, scoresLabel); err != nil {
		return err
	}

	at := s.RowsArgs(w, b, &f.LSE, &f.Drop)
	r.Access[0] = pipeline.Access{Binding: matrix[i], Mode: pipeline.ReadWrite}
	r.Access[1] = f.LSEAccess()
	r.BindScores(2, k.softmax, &s.Problem, &f.Scores, matrix[i]) // shaders/standard/standard_softmax.comp
	if err := r.Dispatch(k.softmax, r.Accesses(k.softmax), at, g.softmax, uint32(b.Heads*b.Rows), softmaxLabel); err != nil {
		return err
	}

	at = s.productArgs(w, b, &f.V, &f.O)
	r.Access[0] = pipeline.Access{Binding: matrix[i], Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: f.V.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: f.O.Binding, Mode: pipeline.Write}
	return r.Dispatch(k.product, r.Access[:3], at, g.product, g.product.Total, productLabel)
}

// recordScores is the first of a slab's dispatches.
func (s *Program) recordScores(r *kernel.Recorder, q, key *kernel.Operand, i int, matrix pipeline.Binding, k *pipelines,
	label string) error {
	g := &s.grids[i]
	at := s.scoresArgs(&r.Push, &s.slabs[i], q, key, s.Problem.Scale)
	r.Access[0] = pipeline.Access{Binding: q.Binding, Mode: pipeline.Read}
	r.Access[1] = pipeline.Access{Binding: key.Binding, Mode: pipeline.Read}
	r.Access[2] = pipeline.Access{Binding: matrix, Mode: pipeline.Write}
	return r.Dispatch(k.scores, r.Access[:3], at, g.scores, g.scores.Total, label)
}

// scoresFor gives the pipelines among which is that of the scores of q and k, for whom the others do not matter.
func (s *Program) scoresFor(q, k *kernel.Operand) (pipelines, error) {
	return s.Build(Variant{QK: q.Aligned && k.Aligned, VO: s.dense().VO, LSE: true}) // the variant that plans have built
}

// RecordScores records what the softmax is taken of, for every slab, into the weights of the pass.
func (s *Program) RecordScores(r *kernel.Recorder, f *kernel.Operands) error {
	k, err := s.scoresFor(&f.Q, &f.K)
	if err != nil {
		return err
	}
	var made *pipeline.Kernel // what functions, bias and masks make of the products
	if s.Problem.Features()&attn.OfScores != 0 {
		w := s.Shape.Softmax(&s.Problem, false)
		w.Spec["SCORES_ONLY"] = 1
		if made, err = s.env.Variant(&s.scoresOnly, w.module, &s.Problem, func() (kernel.Constants, pipeline.KernelInfo) {
			return w.Spec,
				w.info
		}); err != nil {
			return err
		}
		if err := s.verifyScores(w, &k, made); err != nil {
			return err
		}
	}
	return s.runScores(r, f, &k, made)
}

// verifyScores lets the kernel that makes scores of products prove itself, where functions of the user's are in it and it was never run on
// this device and driver.
func (s *Program) verifyScores(w standardKernel, k *pipelines, made *pipeline.Kernel) error {
	if !kernel.HasFunctions(&s.Problem) || s.scoresTried.Load() {
		return nil
	}
	err := s.env.Prove(fmt.Sprintf("scores of %v", s.Shape), []kernel.Compiled{w.Compiled(&s.Problem)}, func() (wrong string, err error) {
		p := s.Shape.Trial(&s.Problem)
		small, err := New(s.env, &p, s.Shape, kernel.NewTuning(nil))
		if err != nil {
			return "", err
		}
		// Tensors as pipelines of aligned ones need them, which all can read.
		return s.env.TryScores(&p, kernel.Variant{Aligned: true}, small.Pitch, small.sizes,
			func(r *kernel.Recorder, f *kernel.Operands) error {
				return small.runScores(r, f, k, made)
			})
	})
	s.scoresTried.Store(err == nil)
	return err
}

// runScores records the scores of every slab, and what is made of them; made is nil where that is nothing.
func (s *Program) runScores(r *kernel.Recorder, f *kernel.Operands, k *pipelines, made *pipeline.Kernel) error {
	for i := range s.slabs {
		if err := s.recordScores(r, &f.Q, &f.K, i, f.Weights[i], k, scoresLabel); err != nil {
			return err
		}
		if made == nil {
			continue
		}
		b := &s.slabs[i]
		at := s.RowsArgs(&r.Push, b, &f.LSE, &f.Drop)
		r.Access[0] = pipeline.Access{Binding: f.Weights[i], Mode: pipeline.ReadWrite}
		r.Access[1] = pipeline.Access{Binding: f.Weights[i], Mode: pipeline.Unused}
		r.BindScores(2, made, &s.Problem, &f.Scores, f.Weights[i])
		if err := r.Dispatch(made, r.Accesses(made), at, s.grids[i].softmax, uint32(b.Heads*b.Rows), softmaxLabel); err != nil {
			return err
		}
	}
	return nil
}

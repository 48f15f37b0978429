package flash

import (
	"fmt"
	"sync/atomic"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// scalarStandard is standard attention in fp32 arithmetic: scores, softmax and product as three kernels, with the whole
// matrix of scores in device memory in the inputs' type. shaders/standard_*.comp.
type scalarStandard struct{}

func (scalarStandard) name() string                   { return "standard_scalar" }
func (scalarStandard) implementation() Implementation { return Standard }
func (scalarStandard) tier() Tier                     { return TierScalar }

func (scalarStandard) unsupported(c *capabilities, p *Problem) string { return c.lacksScalar(p.DType) }

// standardTile is the shapes of the two products and of the softmax.
type standardTile struct {
	scoresBR, scoresBC, scoresMR, scoresMC, scoresDK int
	rowThreads, rowKeep                              int // softmax: invocations of a row, pieces of four that each keeps
	productBR, productBC, productMR, productTX       int
}

const softmaxThreads = 128 // of a workgroup; every device allows it

func (t *standardTile) scoresThreads() int {
	return (t.scoresBR / t.scoresMR) * (t.scoresBC / t.scoresMC)
}
func (t *standardTile) scoresShared() int   { return (t.scoresBR + t.scoresBC) * (t.scoresDK/4 | 1) }
func (t *standardTile) productThreads() int { return t.productBR / t.productMR * t.productTX }

func (t *standardTile) productShared(dv int) int {
	return t.productBR*(t.productBC/4|1) + t.productBC*t.productTX*ceilDiv(ceilDiv(dv, 4), t.productTX)
}

// check gives the rule that a tile breaks, "" when it breaks none.
func (t *standardTile) check(p *Problem, l *vk.Limits) string {
	threads := int(min(l.MaxWorkgroupInvocations, l.MaxWorkgroupSize[0]))
	shared := int(l.MaxSharedMemory)
	switch {
	case t.scoresMR < 1 || t.scoresMC < 4 || t.scoresMC%4 != 0 || t.productMR < 1:
		return "mr and product_mr must be at least 1, mc a multiple of 4"
	case t.scoresBR < 1 || t.scoresBR%t.scoresMR != 0:
		return fmt.Sprintf("br = %d must be a multiple of mr = %d", t.scoresBR, t.scoresMR)
	case t.scoresBC < 1 || t.scoresBC%t.scoresMC != 0 || t.scoresBC/t.scoresMC%2 != 0:
		return fmt.Sprintf("bc = %d must be an even multiple of mc = %d", t.scoresBC, t.scoresMC)
	case t.scoresDK < 8 || t.scoresDK%8 != 0:
		return fmt.Sprintf("dk = %d must be a multiple of 8", t.scoresDK)
	case t.scoresThreads() > threads || t.productThreads() > threads:
		return fmt.Sprintf("workgroups of %d and %d invocations pass the device's %d", t.scoresThreads(), t.productThreads(), threads)
	case 16*t.scoresShared() > shared || 16*t.productShared(p.ValueDim) > shared:
		return fmt.Sprintf("%d and %d bytes of shared memory pass the device's %d", 16*t.scoresShared(), 16*t.productShared(p.ValueDim), shared)
	case t.productBR < 1 || t.productBR%t.productMR != 0:
		return fmt.Sprintf("product_br = %d must be a multiple of product_mr = %d", t.productBR, t.productMR)
	case t.productBC < 8 || t.productBC%8 != 0:
		return fmt.Sprintf("product_bc = %d must be a multiple of 8", t.productBC)
	case t.productTX < 2 || t.productTX%2 != 0:
		return fmt.Sprintf("product_tx = %d must be even", t.productTX)
	case t.rowThreads < 1 || t.rowThreads&(t.rowThreads-1) != 0 || t.rowThreads > softmaxThreads:
		return fmt.Sprintf("row_threads = %d must be a power of two up to %d", t.rowThreads, softmaxThreads)
	}
	return ""
}

// chooseStandardTile takes the largest tiles that fit.
func chooseStandardTile(c *capabilities, p *Problem, t *tuning) (standardTile, error) {
	rows, mr := 128, 8 // of a tile; fewer where there are few queries
	switch {
	case p.QueryLen <= 16:
		rows, mr = 16, 2
	case p.QueryLen <= 32:
		rows, mr = 32, 4
	}
	// A row of O spreads over as many invocations as leave each with four of its columns. With more than 32 elements of O an
	// invocation, 8 rows of 8, an H200 was ten times slower: 2.2 against 22.8 TFLOP/s.
	tx := 8
	for tx < 32 && 4*tx < p.ValueDim {
		tx *= 2
	}
	wide := ceilDiv(p.ValueDim, 4*tx)
	lanes := 8
	for lanes < softmaxThreads && 16*lanes < p.KeyLen {
		lanes *= 2
	}
	keep := ceilDiv(p.KeyLen, 4*lanes)
	if keep > 16 {
		keep = 0 // too long for registers: the row is read twice
	}
	threads, why := int(min(c.facts.Limits.MaxWorkgroupInvocations, c.facts.Limits.MaxWorkgroupSize[0])), ""
	for _, s := range []struct{ br, dk, bc int }{{rows, 32, 32}, {rows, 32, 16}, {rows, 16, 16}, {min(rows, 64), 16, 16}, {min(rows, 32), 8, 8}, {min(rows, 16), 8, 8}} {
		m := min(mr, s.br/4)
		pm := max(1, m/wide)
		tile := standardTile{
			scoresBR: t.get("br", s.br), scoresBC: t.get("bc", 64), scoresMR: t.get("mr", m), scoresMC: t.get("mc", 8), scoresDK: t.get("dk", s.dk),
			productBR: t.get("product_br", min(s.br, min(threads, 256)*pm/tx)), productBC: t.get("product_bc", s.bc), productMR: t.get("product_mr", pm), productTX: t.get("product_tx", tx),
			rowThreads: t.get("row_threads", lanes),
		}
		tile.rowKeep = keep
		if tile.rowThreads != lanes && tile.rowThreads > 0 {
			if tile.rowKeep = ceilDiv(p.KeyLen, 4*tile.rowThreads); tile.rowKeep > 16 {
				tile.rowKeep = 0
			}
		}
		if why = tile.check(p, &c.facts.Limits); why == "" {
			return tile, nil
		}
	}
	if len(t.given) > 0 {
		return standardTile{}, badArgument("WithTuning", fmt.Sprint(t.given), "%s", why)
	}
	return standardTile{}, &declined{why}
}

func (k scalarStandard) plan(d *Device, p *Problem, t *tuning) (program, error) {
	tile, err := chooseStandardTile(&d.caps, p, t)
	if err != nil {
		return nil, err
	}
	s := &standardProgram{dev: d, problem: *p, shape: tile, pitch: ceilDiv(p.KeyLen, 8) * 8}
	if err := s.cut(t); err != nil {
		return nil, err
	}
	if err := s.plan(t); err != nil {
		return nil, err
	}
	// The usual case is dense tensors with lse.
	elem := p.DType.Size()
	_, err = s.scoresKernel(p.HeadDim*elem%16 == 0)
	if err == nil {
		_, err = s.softmaxKernel(true)
	}
	if err == nil {
		_, err = s.productKernel(p.ValueDim*elem%16 == 0)
	}
	return s, err
}

// standardProgram is the three kernels fitted to a problem.
type standardProgram struct {
	dev     *Device
	problem Problem
	shape   standardTile
	pitch   int // elements from row to row of the scores
	slabs   []slab
	sizes   []uint64
	grids   []slabGrids
	runs    int // dispatches in all

	scoresKernels  [2]atomic.Pointer[pipeline.Kernel] // by aligned
	softmaxKernels [2]atomic.Pointer[pipeline.Kernel] // by lse
	productKernels [2]atomic.Pointer[pipeline.Kernel] // by aligned
}

type slabGrids struct{ scores, softmax, product grid }

func (s *standardProgram) tile() string {
	return fmt.Sprintf("%dx%d", s.shape.scoresBR, s.shape.scoresBC)
}
func (s *standardProgram) scratch() []uint64 { return s.sizes }
func (s *standardProgram) dispatches() int   { return s.runs }

// cut makes the slabs. max_slab lowers the largest buffer, for tests.
func (s *standardProgram) cut(t *tuning) error {
	p, l := &s.problem, &s.dev.caps.facts.Limits
	heads, rowBytes := p.Batch*p.Heads, uint64(s.pitch*p.DType.Size())
	most := l.MaxStorageBufferRange
	for _, m := range []uint64{l.MaxAllocationSize, l.MaxBufferSize, uint64(t.get("max_slab", 0))} {
		if m > 0 {
			most = min(most, m)
		}
	}
	total, ok := scoreBytes(heads, p.QueryLen, rowBytes)
	if memory := s.dev.info.DeviceMemory(); !ok || total > memory {
		if !ok {
			total = 1<<64 - 1
		}
		return &MemoryError{Label: "workspace", Needed: total, Available: memory, Rule: "the device's memory, for the matrix of scores"}
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

// plan makes the grids of every slab.
func (s *standardProgram) plan(t *tuning) error {
	p, tile := &s.problem, &s.shape
	perRow := softmaxThreads / tile.rowThreads
	for _, b := range s.slabs {
		heads, rows, pairs := uint64(b.heads), b.rows, float64(b.heads)*float64(b.rows)*float64(p.KeyLen)
		var g slabGrids
		var err error
		if g.scores, err = gridFor(s.dev, heads*uint64(ceilDiv(rows, tile.scoresBR))*uint64(ceilDiv(p.KeyLen, tile.scoresBC)), 2*pairs*float64(p.HeadDim), scalarPace, t); err != nil {
			return err
		}
		if g.softmax, err = gridFor(s.dev, (heads*uint64(rows)+uint64(perRow)-1)/uint64(perRow), 16*pairs, scalarPace, t); err != nil {
			return err
		}
		if g.product, err = gridFor(s.dev, heads*uint64(ceilDiv(rows, tile.productBR)), 2*pairs*float64(p.ValueDim), scalarPace, t); err != nil {
			return err
		}
		s.grids = append(s.grids, g)
		s.runs += g.scores.dispatches() + g.softmax.dispatches() + g.product.dispatches()
	}
	return nil
}

func (s *standardProgram) module(name string) string {
	return "standard_" + name + "." + s.problem.DType.suffix()
}

func (s *standardProgram) scoresKernel(aligned bool) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.scoresKernels[boolInt(aligned)], s.module("scores"), func() ([]vk.SpecConstant, pipeline.KernelInfo) {
		t := &s.shape
		return spec(t.scoresThreads(), t.scoresBR, t.scoresBC, s.problem.HeadDim, boolInt(s.problem.Causal != CausalNone), boolInt(aligned),
			t.scoresMR, t.scoresMC, t.scoresDK, t.scoresShared()), pipeline.KernelInfo{Bindings: 3, PushBytes: 20 * 4}
	})
}

func (s *standardProgram) softmaxKernel(lse bool) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.softmaxKernels[boolInt(lse)], s.module("softmax"), func() ([]vk.SpecConstant, pipeline.KernelInfo) {
		t := &s.shape
		return spec(softmaxThreads, t.rowThreads, t.rowKeep, boolInt(s.problem.Causal != CausalNone), boolInt(lse), t.productBR+t.productBC),
			pipeline.KernelInfo{Bindings: 2, PushBytes: 10 * 4}
	})
}

func (s *standardProgram) productKernel(aligned bool) (*pipeline.Kernel, error) {
	return s.dev.variant(&s.productKernels[boolInt(aligned)], s.module("product"), func() ([]vk.SpecConstant, pipeline.KernelInfo) {
		t := &s.shape
		return spec(t.productThreads(), t.productBR, t.productBC, s.problem.ValueDim, boolInt(s.problem.Causal != CausalNone), boolInt(aligned),
			t.productMR, t.productShared(s.problem.ValueDim)), pipeline.KernelInfo{Bindings: 3, PushBytes: 19 * 4}
	})
}

func (s *standardProgram) record(r *recorder, f *operands) error {
	scores, err := s.scoresKernel(f.q.aligned && f.k.aligned)
	if err != nil {
		return err
	}
	softmax, err := s.softmaxKernel(f.hasLSE)
	if err != nil {
		return err
	}
	product, err := s.productKernel(f.v.aligned && f.o.aligned)
	if err != nil {
		return err
	}
	for i := range s.slabs {
		if err := s.recordSlab(r, f, i, scores, softmax, product); err != nil {
			return err
		}
	}
	return nil
}

func (s *standardProgram) recordSlab(r *recorder, f *operands, i int, scores, softmax, product *pipeline.Kernel) error {
	p, b, g, w := &s.problem, &s.slabs[i], &s.grids[i], &r.push
	matrix := r.scratch[i]
	shape := func() {
		w.int(b.head0)
		w.int(b.row0)
		w.int(b.rows)
		w.int(s.pitch)
	}

	w.reset()
	w.int(p.QueryLen)
	w.int(p.KeyLen)
	w.int(p.Heads)
	w.int(p.group())
	w.u32(f.q.offset)
	w.u32(f.k.offset)
	w.strides(&f.q)
	w.strides(&f.k)
	shape()
	w.f32(p.Scale)
	w.i32(p.causalShift())
	at := w.grid()
	r.access[0] = pipeline.Access{Binding: f.q.binding, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.k.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: matrix, Mode: pipeline.Write}
	if err := r.dispatch(scores, r.access[:3], at, g.scores, g.scores.total, "scores"); err != nil {
		return err
	}

	w.reset()
	w.int(p.QueryLen)
	w.int(p.KeyLen)
	w.int(b.rows)
	w.int(s.pitch)
	w.int(b.head0)
	w.int(b.row0)
	w.i32(p.causalShift())
	w.u32(f.lse.offset)
	at = w.grid()
	r.access[0] = pipeline.Access{Binding: matrix, Mode: pipeline.ReadWrite}
	r.access[1] = f.lseAccess()
	if err := r.dispatch(softmax, r.access[:2], at, g.softmax, uint32(b.heads*b.rows), "softmax"); err != nil {
		return err
	}

	w.reset()
	w.int(p.QueryLen)
	w.int(p.KeyLen)
	w.int(p.Heads)
	w.int(p.group())
	w.u32(f.v.offset)
	w.u32(f.o.offset)
	w.strides(&f.v)
	w.strides(&f.o)
	shape()
	at = w.grid()
	w.i32(p.causalShift())
	r.access[0] = pipeline.Access{Binding: matrix, Mode: pipeline.Read}
	r.access[1] = pipeline.Access{Binding: f.v.binding, Mode: pipeline.Read}
	r.access[2] = pipeline.Access{Binding: f.o.binding, Mode: pipeline.Write}
	return r.dispatch(product, r.access[:3], at, g.product, g.product.total, "product")
}

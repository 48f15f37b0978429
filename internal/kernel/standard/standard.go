package standard

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/internal/traffic"
	"github.com/vkattn/vkattn/pipeline"
)

// standardShape is how the three kernels of standard attention divide a problem, and how they are built for it: module, constants and what
// else their pipelines are made with.
type standardShape interface {
	String() string
	scoresBlock() (rows, cols int)  // of a workgroup
	softmaxRows() int               // of a workgroup
	productBlock() (rows, keys int) // of a workgroup, and of a step of its loop
	pace() kernel.Pace              // of the two products
	Model() traffic.Standard        // without labels and slabs

	Scores(p *attn.Problem, aligned bool) pass.Stage
	Softmax(p *attn.Problem, lse bool) pass.Stage
	Product(p *attn.Problem, aligned bool) pass.Stage

	// SelfCheck is a small problem for the tile, with ragged edges, and the diagonal across its tiles when causal.
	SelfCheck(p *attn.Problem) attn.Problem
}

// buffers are what modules call what they read and write, in the order in which it is bound here.
var buffers = map[string][]string{
	"standard_scores":                    {"qView1", "kView1", "Scores"},
	"standard_scores_matrix":             {"QUnits", "KUnits", "SUnits"},
	"standard_softmax":                   {"Scores", "Lse"},
	"standard_softmax_subgroup":          {"Scores", "Lse"},
	"standard_product":                   {"Weights", "vView1", "oView1"},
	"standard_product_matrix":            {"PUnits", "VUnits", "OUnits"},
	"standard_backward_softmax":          {"Weights", "Scores", "DLse"},
	"standard_backward_softmax_subgroup": {"Weights", "Scores", "DLse"},
	"standard_backward_product":          {"Weights", "gView1", "yView1"},
	"standard_backward_product_matrix":   {"WUnits", "GUnits", "YUnits"},
}

// on has a kernel work with some arguments on these, of which the first takes the place of what is not bound.
func on(k pass.Stage, label string, g kernel.Grid, a pass.Args, to ...pass.Bind) pass.Stage {
	module, _, _ := strings.Cut(k.Module, ".")
	for i, name := range buffers[module] {
		to[i].Name = name
	}
	k.Label, k.Proves, k.Grid, k.Args, k.Idle, k.Bind = label, true, g, a, to[0].To, to
	return k
}

// withLengths binds what a kernel reads of its problem's lengths, where it has any; of packed sequences this table of theirs.
func withLengths(k pass.Stage, table int) pass.Stage {
	if p := k.Args.Problem; p.Padded() {
		k.Bind = append(k.Bind, pass.Scores(p, table)...)
	}
	return k
}

func read(from string) pass.Bind { return pass.Bind{To: from, Mode: pipeline.Read} }

// again gives stages behind the first n, which are the same on other slabs, the pipelines of those.
func again(stages []pass.Stage, n int) []pass.Stage {
	for i := n; i < len(stages); i++ {
		stages[i].Again = n
	}
	return stages
}

// Program is scores, softmax and product fitted to a problem.
type Program struct {
	*pass.Forward
	env     *kernel.Env
	problem attn.Problem
	shape   standardShape
	pitch   int // elements from row to row of the scores
	slabs   []Slab
	sizes   []uint64
	grids   []slabGrids
	scores  *pass.Forward // what the softmax is taken of, and no more
}

type slabGrids struct{ scores, softmax, product kernel.Grid }

// New fits the kernels of a shape to a problem. It makes no pipeline.
func New(e *kernel.Env, p *attn.Problem, shape standardShape, t *kernel.Tuning) (*Program, error) {
	return fit("", true, e, p, shape, t)
}

// plan is New of the kernel of a name, with the usual pipelines. A trusted one proves itself only with functions of the user's in it.
func plan(name string, trusted bool, e *kernel.Env, p *attn.Problem, shape standardShape, t *kernel.Tuning) (kernel.Program, error) {
	s, err := fit(name, trusted, e, p, shape, t)
	if err != nil {
		return nil, err
	}
	return s, s.Plan()
}

func fit(name string, trusted bool, e *kernel.Env, p *attn.Problem, shape standardShape, t *kernel.Tuning) (*Program, error) {
	s := &Program{env: e, problem: *p, shape: shape, pitch: PitchOf(p)}
	if err := s.cut(t); err != nil {
		return nil, err
	}
	if err := s.divide(t); err != nil {
		return nil, err
	}
	k := pass.Fitted{Env: e, Problem: &s.problem, Name: fmt.Sprintf("%s %v", name, shape), Named: shape.String(), Moves: s.model(),
		Trusted: trusted, Apart: true, Pass: s.pass, SelfCheck: s.selfCheck((*Program).pass)}
	s.Forward = pass.FitForward(&k)
	k.Name, k.Trusted, k.Pass, k.SelfCheck = fmt.Sprintf("scores of %v", shape), true, s.passOfScores, s.selfCheck((*Program).passOfScores)
	s.scores = pass.FitScores(&k)
	return s, nil
}

func (s *Program) Kept() []uint64 { return s.sizes }

// Labels of the dispatches.
const (
	scoresLabel  = "scores"
	softmaxLabel = "softmax"
	productLabel = "product"
)

func (s *Program) model() traffic.Model {
	m := s.shape.Model()
	m.Scores.Label, m.Softmax.Label, m.Product.Label = scoresLabel, softmaxLabel, productLabel
	_, m.SlabRows = s.slabSize()
	return m
}

// slabSize is the most heads that a slab has, and the most rows of a head, 0 where slabs have all.
func (s *Program) slabSize() (heads, rows int) {
	for _, b := range s.slabs {
		heads, rows = max(heads, b.Heads), max(rows, b.Rows)
	}
	if rows == s.problem.QueryLen {
		rows = 0
	}
	return heads, rows
}

// mostSlabs is the most that a caller may cut the scores into: each takes three dispatches.
const mostSlabs = kernel.MostDispatches / 4

// cut makes the slabs. max_slab lowers the largest buffer, for tests.
func (s *Program) cut(t *kernel.Tuning) error {
	p := &s.problem
	heads, rowBytes := p.Batch*p.Heads, uint64(s.pitch*p.DType.Size())
	most, cut := LargestSlab(&s.env.Caps, t), uint64(t.Get(maxSlab, 0))
	total, ok := ScoreBytes(heads, p.QueryLen, rowBytes)
	if !ok {
		total = 1<<64 - 1
	}
	if c := &s.env.Caps; !ok || !c.HasRoom(total) {
		return &pipeline.MemoryError{Label: "workspace", Needed: total, Available: c.Memory(),
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
	p := &s.problem
	scoresRows, scoresCols := s.shape.scoresBlock()
	productRows, _ := s.shape.productBlock()
	perRow := uint64(s.shape.softmaxRows())
	for _, b := range s.slabs {
		heads, rows, pairs := uint64(b.Heads), b.Rows, float64(b.Heads)*float64(b.Rows)*float64(p.KeyLen)
		var g slabGrids
		var err error
		// Few columns are not much faster than 64: then the matrix of scores is what moves.
		if g.scores, err = kernel.GridFor(s.env, heads*uint64(attn.CeilDiv(rows, scoresRows))*uint64(attn.CeilDiv(p.KeyLen, scoresCols)),
			2*pairs*float64(max(64, p.HeadDim)), s.shape.pace(), t); err != nil {
			return err
		}
		if g.softmax, err = kernel.GridFor(s.env, (heads*uint64(rows)+perRow-1)/perRow, 16*pairs, kernel.ScalarPace, t); err != nil {
			return err
		}
		if g.product, err = kernel.GridFor(s.env, heads*uint64(attn.CeilDiv(rows, productRows)), 2*pairs*float64(max(64, p.ValueDim)),
			s.shape.pace(), t); err != nil {
			return err
		}
		s.grids = append(s.grids, g)
	}
	return nil
}

// pass is scores, softmax and product of every slab.
func (s *Program) pass(v pass.Variant) *pass.Pass {
	p, out := &s.problem, s.begin()
	scores, softmax, product := s.shape.Scores(p, v.Aligned), s.shape.Softmax(p, v.LSE), s.shape.Product(p, v.Output)
	for i, g := range s.grids {
		matrix := pass.Kept(i)
		out.Stages = append(out.Stages, s.scoresStage(scores, scoresLabel, i, matrix),
			s.softmaxStage(softmax, i, pass.Given("", "LSE", v.LSE, pipeline.Write, "O")),
			withLengths(on(product, productLabel, g.product, s.args(pass.AsProduct, i, "V", "O"), read(matrix), read("V"),
				pass.Bind{To: "O", Mode: pipeline.Write}), 0))
	}
	out.Stages = again(out.Stages, 3)
	out.ClearMaxLogits()
	return out
}

// passOfScores stops at what the softmax is taken of: the products, and what functions, bias and masks make of them.
func (s *Program) passOfScores(v pass.Variant) *pass.Pass {
	p, out, stages := &s.problem, s.begin(), 1
	scores, made := s.shape.Scores(p, v.Aligned), s.shape.Softmax(p, false)
	made.Constants["SCORES_ONLY"], made.Constants["MAX_LOGIT"] = 1, 0
	for i := range s.slabs {
		products := s.scoresStage(scores, scoresLabel, i, pass.Kept(i))
		products.Proves = false
		out.Stages = append(out.Stages, products)
		if p.Features()&attn.OfScores != 0 || p.Padded() { // of which the device alone knows what is hidden
			unused := pass.Bind{To: pass.Kept(i), Mode: pipeline.Unused}
			softmax := s.softmaxStage(made, i, unused)
			for j := range softmax.Bind {
				if b := &softmax.Bind[j]; b.To == "Sinks" || b.To == "MaxLogit" { // they come behind the scores: callers give none
					b.To, b.Mode = unused.To, unused.Mode
				}
			}
			out.Stages = append(out.Stages, softmax)
			stages = 2
		}
	}
	out.Stages = again(out.Stages, stages)
	return out
}

func (s *Program) begin() *pass.Pass {
	out := &pass.Pass{Problem: &s.problem, Operands: attn.ForwardOperands[:]}
	for i, size := range s.sizes {
		out.Scratch = append(out.Scratch, pass.Scratch{Name: fmt.Sprintf("scores %d", i), Bytes: size})
	}
	return out
}

// args are those of a kernel over slab i.
func (s *Program) args(as pass.ArgsAs, i int, x, y string) pass.Args {
	return pass.Args{As: as, Problem: &s.problem, X: x, Y: y, Slab: s.slabs[i], Pitch: s.pitch}
}

// scoresStage makes the products q·k of slab i.
func (s *Program) scoresStage(k pass.Stage, label string, i int, to string) pass.Stage {
	return withLengths(on(k, label, s.grids[i].scores, s.args(pass.AsScores, i, "Q", "K"), read("Q"), read("K"),
		pass.Bind{To: to, Mode: pipeline.Write}), 0)
}

// softmaxStage goes over the rows of slab i: shaders/standard/standard_softmax.comp.
func (s *Program) softmaxStage(k pass.Stage, i int, lse pass.Bind) pass.Stage {
	k.Total = uint32(s.slabs[i].Heads * s.slabs[i].Rows)
	k = on(k, softmaxLabel, s.grids[i].softmax, s.args(pass.AsRows, i, "LSE", ""),
		pass.Bind{To: pass.Kept(i), Mode: pipeline.ReadWrite}, lse)
	k.Bind = append(k.Bind, pass.Scores(&s.problem, 0)...)
	return k
}

// selfCheck is a pass of a small problem.
func (s *Program) selfCheck(of func(*Program, pass.Variant) *pass.Pass) func(v pass.Variant) (*pass.Pass, error) {
	return func(v pass.Variant) (*pass.Pass, error) {
		p := s.shape.SelfCheck(&s.problem)
		small, err := New(s.env, &p, s.shape, kernel.NewTuning(nil))
		if err != nil {
			return nil, err
		}
		return of(small, v), nil
	}
}

// readyScores has the pipeline of the scores of q and k prove itself, with the others of a pass that plans have made.
func (s *Program) readyScores(q, k *kernel.Operand) error {
	_, values := pass.Dense(&s.problem)
	return s.Ready(pass.Variant{Aligned: q.Aligned && k.Aligned, Output: values, LSE: true})
}

// RecordScores records what the softmax is taken of, for every slab, into the weights of the pass.
func (s *Program) RecordScores(r *kernel.Recorder, f *kernel.Operands) error {
	if err := s.readyScores(&f.Q, &f.K); err != nil {
		return err
	}
	return s.scores.RecordAs(r, f, pass.Variant{Aligned: f.Q.Aligned && f.K.Aligned})
}

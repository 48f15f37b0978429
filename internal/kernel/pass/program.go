package pass

import (
	"slices"
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Fitted is a kernel of either direction fitted to a problem: a pass for each variant of tensors.
type Fitted struct {
	Env     *kernel.Env
	Problem *attn.Problem
	Name    string // for the deny-list, with the tile
	Named   string // the tile, for people
	Moves   traffic.Model
	Trusted bool // a kernel of the scalar tier: it proves itself only with functions of the user's in it
	// WholeBias: the bias is read in pieces of a row too, where that lies as those of q, k and v do, and Variant.Aligned says so
	WholeBias bool
	// DBias: the gradient with respect to the bias is among those that it makes: of a backward pass where it is wanted
	DBias bool
	// InKeys: it has a pipeline of its own for v that is the first columns of k
	InKeys bool
	// Apart: standard attention, whose products have two tensors each. Of forward passes Variant.Aligned is about q and k, and Output about
	// v and o; of backward passes Output is about q and k.
	Apart bool
	DLSE  bool    // of backward passes: self-checks have the gradient with respect to lse where a variant has
	Bound float64 // how far the output of a forward pass's self-check may be off; 0: as far as its storage type's

	// Pass gives the pass for a variant. Scratch and grids are the same for all of them.
	Pass func(v Variant) *Pass
	// SelfCheck gives the pass for a small problem, whose tensors are of this variant; nil: none of its kernels proves itself.
	SelfCheck func(v Variant) (*Pass, error)
}

// program is a kernel with the pipelines that were made of it.
type program struct {
	Fitted
	scratch    []uint64
	dispatches int
	usual      Variant // of dense tensors
	first      *Pass   // what fit looked at, until plan makes its pipelines
	firstOf    Variant
	denseDBias bool                    // of which the gradient with respect to the bias can be written 16 bytes at a time
	made       []atomic.Pointer[ready] // by Variant.index
	try        func(v Variant, of *ready) (wrong string, err error)
}

func (s *program) Tile() string         { return s.Named }
func (s *program) Scratch() []uint64    { return s.scratch }
func (s *program) Dispatches() int      { return s.dispatches }
func (s *program) Model() traffic.Model { return s.Moves }

// Passes gives the pass for a variant, to be looked at.
func (s *program) Passes(v Variant) *Pass { return s.Pass(v) }

// fit takes the kernel without making any pipeline.
func (s *program) fit(k *Fitted) {
	s.Fitted = *k
	if s.made == nil {
		s.made = make([]atomic.Pointer[ready], variants)
	}
	heads, values := Dense(k.Problem)
	s.usual.Aligned, s.usual.Output = heads && values, heads && values
	if k.Apart {
		s.usual.Output = heads
	}
	s.denseDBias = k.DBias && k.Problem.KeyLen*k.Problem.Bias.DType.Size()%16 == 0
	s.usual.AlignedDBias = s.usual.DBias && s.denseDBias
	s.first, s.firstOf = k.Pass(s.usual), s.usual
	s.scratch, s.dispatches = s.first.Bytes(), s.first.Dispatches()
}

// begin is fit and plan, unless there is an error already: of kernels beside attention, none of which proves itself.
func (s *program) begin(k *Fitted, err error) error {
	if err != nil {
		return err
	}
	s.fit(k)
	return s.plan()
}

// Dense says whether rows of dense tensors of the dimension of heads, and of that of values, can be moved 16 bytes at a time.
func Dense(p *attn.Problem) (heads, values bool) {
	size := p.DType.Size()
	return p.HeadDim*size%16 == 0, p.ValueDim*size%16 == 0
}

// plan makes the pipelines that a plan looks at: of the usual variant, with and without the gradient with respect to the bias where that is
// made on the way, and on a device of the caller's, whose queue recording must leave alone, of all others that prove themselves.
func (s *program) plan(others ...Variant) error {
	if err := s.Env.Caps.Holds(s.scratch); err != nil {
		return err
	}
	first := s.first
	if s.first = nil; first == nil || s.firstOf != s.usual {
		first = s.Pass(s.usual)
	}
	makes := []func() error{func() error { _, err := s.make(s.usual, first); return err }}
	for _, v := range others {
		usual := s.usual
		usual.DBias, usual.AlignedDBias = v.DBias, v.DBias && s.denseDBias
		if v != s.usual && s.can(v) && (v == usual || s.Env.Attached && s.proves()) {
			makes = append(makes, func() error { _, err := s.ready(v); return err })
		}
	}
	return kernel.Together(makes...)
}

// can says whether there are tensors of a variant.
func (s *program) can(v Variant) bool {
	return (s.usual.Aligned || !v.Aligned) && (s.DBias || !v.DBias) && (v.DBias && s.denseDBias || !v.AlignedDBias)
}

// proves says whether pipelines are tried before their first use.
func (s *program) proves() bool {
	return s.SelfCheck != nil && (!s.Trusted || kernel.HasFunctions(s.Problem))
}

// ready gives the pass for a variant with its pipelines, made and tried at the first call.
func (s *program) ready(v Variant) (*ready, error) {
	if p := s.made[v.index()].Load(); p != nil {
		return p, nil
	}
	return s.make(v, s.Pass(v))
}

func (s *program) make(v Variant, of *Pass) (*ready, error) {
	p, err := of.build(s.Env, nil)
	if err != nil {
		return nil, err
	}
	if s.proves() {
		if err := s.Env.Prove(s.Name, p.proofs(), func() (string, error) { return s.try(v, p) }); err != nil {
			return nil, err
		}
	}
	s.made[v.index()].Store(p)
	return p, nil
}

// small is the pass of a self-check, with the pipelines that are in question.
func (s *program) small(v Variant, of *ready) (*ready, error) {
	p, err := s.SelfCheck(v)
	if err != nil {
		return nil, err
	}
	return p.build(s.Env, of)
}

// recordAs writes the dispatches with the pipelines of a variant.
func (s *program) recordAs(r *kernel.Recorder, v Variant, t *tensors) error {
	p, err := s.ready(v)
	if err != nil {
		return err
	}
	return p.record(r, t)
}

// Ready makes the pipelines of a variant, and lets them prove themselves.
func (s *program) Ready(v Variant) error {
	_, err := s.ready(v)
	return err
}

// Compiled is what the driver compiles, of what proves itself, for a variant.
func (s *program) Compiled(v kernel.Variant) []kernel.Compiled {
	return s.Pass(Variant{Aligned: v.Aligned, Output: v.Aligned, LSE: v.LSE}).proofs()
}

// Forward is a kernel of forward passes, as kernel.Program.
type Forward struct {
	program
	parts bool // keys are in parts: o and lse are the combination's
}

// NewForward makes the pipelines of the usual variant.
func NewForward(k *Fitted, parts int) (*Forward, error) {
	s := FitForward(k)
	s.parts = parts > 1
	return s, s.Plan()
}

// FitForward makes no pipeline yet: Plan does.
func FitForward(k *Fitted) *Forward {
	s := &Forward{}
	s.usual.LSE, s.try = true, s.selfCheck
	s.fit(k)
	if k.Apart {
		s.usual.Aligned, s.usual.Output = Dense(k.Problem)
	}
	return s
}

// Plan makes the pipelines of the usual variant.
func (s *Forward) Plan() error {
	others := []Variant{{LSE: true}}
	if s.InKeys {
		others = append(others, Variant{Aligned: s.usual.Aligned, Output: s.usual.Output, LSE: true, InKeys: true})
	}
	if s.Apart {
		others = nil
		for i := range 8 {
			others = append(others, Variant{Aligned: i&1 != 0, Output: i&2 != 0, LSE: i&4 != 0})
		}
	}
	return s.plan(others...)
}

// Record writes the dispatches with the pipelines that the tensors ask for.
func (s *Forward) Record(r *kernel.Recorder, f *kernel.Operands) error {
	v := Variant{Aligned: f.AlignedInputs() && s.biasLies(&f.Scores), Output: f.O.Aligned, LSE: f.HasLSE,
		InKeys: s.InKeys && f.ValuesInKeys()}
	switch {
	case s.Apart:
		v.Aligned, v.Output = f.Q.Aligned && f.K.Aligned, f.V.Aligned && f.O.Aligned
	case !s.parts:
		v.Aligned = v.Aligned && v.Output
		v.Output = v.Aligned
	}
	return s.RecordAs(r, f, v)
}

// RecordAs is Record with the pipelines of a variant.
func (s *Forward) RecordAs(r *kernel.Recorder, f *kernel.Operands, v Variant) error {
	p, err := s.ready(v)
	if err != nil {
		return err
	}
	return p.forward(r, f)
}

// selfCheck runs the pipelines of a pass on a small problem and says what is wrong with the output.
func (s *Forward) selfCheck(v Variant, of *ready) (wrong string, err error) {
	if s.Apart { // kernels for aligned tensors need all of them aligned; those for others take any
		v.Aligned = v.Aligned || v.Output
	}
	v.Output, v.LSE = v.Aligned, v.LSE || s.parts
	p, err := s.small(v, of)
	if err != nil {
		return "", err
	}
	return s.Env.TryForwardWithin(s.Bound, p.Problem, kernel.Variant{Aligned: v.Aligned, LSE: v.LSE, InKeys: v.InKeys}, p.Bytes(),
		p.forward)
}

// FitScores is a kernel that makes what the softmax is taken of, of a forward pass that keeps its weights, in their place. It makes no
// pipeline yet.
func FitScores(k *Fitted) *Forward {
	s := &Forward{}
	s.try = s.selfCheckOfScores
	s.fit(k)
	return s
}

func (s *Forward) selfCheckOfScores(v Variant, of *ready) (wrong string, err error) {
	p, err := s.small(v, of)
	if err != nil {
		return "", err
	}
	// Tensors as pipelines of aligned ones need them, which all can read.
	return s.Env.TryScores(p.Problem, kernel.Variant{Aligned: true}, p.Stages[0].Args.Pitch, p.Bytes(), p.forward)
}

// Backward is a kernel of backward passes, as kernel.BackwardProgram.
type Backward struct{ program }

// NewBackward makes the pipelines of the usual variant: gradients overwritten, none given with respect to lse.
func NewBackward(k *Fitted) (*Backward, error) {
	s := &Backward{}
	s.try = s.selfCheck
	s.fit(k)
	others := ofGradients()
	if k.DLSE {
		for _, v := range others {
			v.LSE = true
			others = append(others, v)
		}
	}
	return s, s.plan(others...)
}

// MakesBias says that the gradient with respect to a bias is made with the others.
func (s *Backward) MakesBias(of kernel.Bias) bool {
	return s.DBias && of.At == attn.AtBias
}

func (s *Backward) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	to := &g.DScores[attn.AtBias]
	dBias := s.DBias && to.Given()
	v := Variant{Aligned: g.Aligned() && s.biasLies(&g.Scores), Output: g.DO.Aligned && g.O.Aligned, LSE: g.HasDLSE,
		Accumulate: g.Accumulate, DBias: dBias, AlignedDBias: dBias && to.Aligned}
	if s.Apart {
		v.Output = g.Q.Aligned && g.K.Aligned
	}
	p, err := s.ready(v)
	if err != nil {
		return err
	}
	return p.backward(r, g)
}

func (s *Backward) selfCheck(v Variant, of *ready) (wrong string, err error) {
	by := kernel.GradientVariant{Aligned: v.Aligned, Accumulate: v.Accumulate, AlignedBy: v.AlignedDBias, DLSE: s.DLSE && v.LSE}
	if v.DBias {
		by.With = "Bias"
	}
	return s.tryBackward(v, of, by)
}

// biasLies says whether the bias, if it is read in pieces of a row, lies so.
func (s *program) biasLies(g *kernel.Scores) bool { return !s.WholeBias || g.Of[attn.AtBias].Aligned }

// tryBackward runs the pipelines of a pass on a small problem and says what is wrong with the gradients.
func (s *program) tryBackward(v Variant, of *ready, by kernel.GradientVariant) (wrong string, err error) {
	v.Output, v.LSE = v.Aligned, by.DLSE
	p, err := s.small(v, of)
	if err != nil {
		return "", err
	}
	return s.Env.TryBackward(p.Problem, by, p.Follows, p.Bytes(), p.backward)
}

// NewRowTerm makes what Gradients behind a backward pass find in memory: the table of packed sequences and the row term. more is scratch of
// theirs between the two.
func NewRowTerm(e *kernel.Env, problem *attn.Problem, rows kernel.RowBlocks, more ...Scratch) (*Backward, error) {
	p := *problem
	d, err := kernel.NewDeltaProgram(e, &p, kernel.NewBackwardTuning(nil))
	if err != nil {
		return nil, err
	}
	return NewBackward(&Fitted{Env: e, Problem: &p, Name: kernel.DeltaLabel,
		Pass: func(v Variant) *Pass { return BackwardOf(e, &p, d, v, more, rows) }})
}

// Gradient is a kernel behind a backward pass, which finds its row term in memory: the gradient with respect to something beside q, k and
// v.
type Gradient struct {
	program
	tried kernel.GradientVariant
}

// NewGradient makes the pipelines of the usual variant. by says which gradient a self-check is about.
func NewGradient(k *Fitted, by kernel.GradientVariant) (*Gradient, error) {
	s := &Gradient{tried: by}
	s.usual.DBias, s.try = k.DBias, s.selfCheck
	s.fit(k)
	return s, s.plan(slices.DeleteFunc(ofGradients(), func(v Variant) bool { return v.DBias != k.DBias })...)
}

// NewGradientLater makes pipelines where they are first wanted; on a device of the caller's, whose queue recording must leave alone, now.
func NewGradientLater(k *Fitted, by kernel.GradientVariant) (*Gradient, error) {
	s := &Gradient{tried: by}
	s.try = s.selfCheck
	s.fit(k)
	if !k.Env.Attached {
		return s, nil
	}
	_, err := s.ready(Variant{})
	if err == nil {
		_, err = s.ready(s.usual)
	}
	return s, err
}

// ofGradients are the variants of gradients: by alignment, accumulation, and that with respect to the bias.
func ofGradients() (all []Variant) {
	for i := range 16 {
		all = append(all, Variant{Aligned: i&1 != 0, Output: i&1 != 0, Accumulate: i&2 != 0, DBias: i&4 != 0, AlignedDBias: i&8 != 0})
	}
	return all
}

// Record writes the dispatches. The recorder's scratch begins with what Behind names.
func (s *Gradient) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	aligned := g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned && s.biasLies(&g.Scores)
	p, err := s.ready(Variant{Aligned: aligned, Output: aligned, Accumulate: g.Accumulate, DBias: s.DBias,
		AlignedDBias: s.DBias && g.DScores[attn.AtBias].Aligned})
	if err != nil {
		return err
	}
	return p.backward(r, g)
}

func (s *Gradient) selfCheck(v Variant, of *ready) (wrong string, err error) {
	by := s.tried
	by.Aligned, by.Accumulate, by.AlignedBy = v.Aligned, v.Accumulate, v.AlignedDBias
	return s.program.tryBackward(v, of, by)
}

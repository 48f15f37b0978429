package pass

import (
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
	Bound     float64 // how far the output of a forward pass's trial may be off; 0: as far as its storage type's

	// Pass gives the pass for a variant. Scratch and grids are the same for all of them.
	Pass func(v Variant) *Pass
	// Trial gives the pass for a small problem, whose tensors are of this variant; nil: none of its kernels proves itself.
	Trial func(v Variant) (*Pass, error)
}

// program is a kernel with the pipelines that were made of it.
type program struct {
	Fitted
	scratch    []uint64
	dispatches int
	usual      Variant // of dense tensors
	made       [variants]atomic.Pointer[ready]
	try        func(v Variant, of *ready) (wrong string, err error)
}

func (s *program) Tile() string         { return s.Named }
func (s *program) Scratch() []uint64    { return s.scratch }
func (s *program) Dispatches() int      { return s.dispatches }
func (s *program) Model() traffic.Model { return s.Moves }

// Passes gives the pass for a variant, to be looked at.
func (s *program) Passes(v Variant) *Pass { return s.Pass(v) }

// fit takes the kernel without making any pipeline, and gives the pass for the usual variant.
func (s *program) fit(k *Fitted) *Pass {
	s.Fitted = *k
	aligned := k.Problem.HeadDim*k.Problem.DType.Size()%16 == 0 && k.Problem.ValueDim*k.Problem.DType.Size()%16 == 0
	s.usual.Aligned, s.usual.Output = aligned, aligned
	p := k.Pass(s.usual)
	s.scratch, s.dispatches = p.Bytes(), p.Dispatches()
	return p
}

// plan makes the pipelines that a plan looks at: of the usual variant, and on a device of the caller's, whose queue recording must leave
// alone, of all others that prove themselves.
func (s *program) plan(k *Fitted, others ...Variant) error {
	p := s.fit(k)
	if err := k.Env.Caps.Holds(s.scratch); err != nil {
		return err
	}
	_, err := s.make(s.usual, p)
	if !k.Env.Attached || !s.proves() {
		return err
	}
	for _, v := range others {
		if err == nil && (s.usual.Aligned || !v.Aligned) {
			_, err = s.ready(v)
		}
	}
	return err
}

// proves says whether pipelines are tried before their first use.
func (s *program) proves() bool {
	return s.Trial != nil && (!s.Trusted || kernel.HasFunctions(s.Problem))
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
	s := &Forward{parts: parts > 1}
	s.usual.LSE, s.try = true, s.trial
	return s, s.plan(k, Variant{LSE: true})
}

// Record writes the dispatches with the pipelines that the tensors ask for.
func (s *Forward) Record(r *kernel.Recorder, f *kernel.Operands) error {
	v := Variant{Aligned: f.AlignedInputs() && (!s.WholeBias || f.Bias.Aligned), Output: f.O.Aligned, LSE: f.HasLSE}
	if !s.parts {
		v.Aligned = v.Aligned && v.Output
		v.Output = v.Aligned
	}
	p, err := s.ready(v)
	if err != nil {
		return err
	}
	return p.forward(r, f)
}

// trial runs the pipelines of a pass on a small problem and says what is wrong with the output.
func (s *Forward) trial(v Variant, of *ready) (wrong string, err error) {
	v.Output, v.LSE = v.Aligned, v.LSE || s.parts
	small, err := s.Trial(v)
	if err != nil {
		return "", err
	}
	p, err := small.build(s.Env, of)
	if err != nil {
		return "", err
	}
	return s.Env.TryForwardWithin(s.Bound, small.Problem, kernel.Variant{Aligned: v.Aligned, LSE: v.LSE}, small.Bytes(), p.forward)
}

// Backward is a kernel of backward passes, as kernel.BackwardProgram.
type Backward struct{ program }

// NewBackward makes the pipelines of the usual variant: gradients overwritten, none by lse.
func NewBackward(k *Fitted) (*Backward, error) {
	s := &Backward{}
	s.try = s.trial
	return s, s.plan(k, ofGradients()...)
}

func (s *Backward) Record(r *kernel.Recorder, g *kernel.Gradients) error {
	p, err := s.ready(Variant{Aligned: g.Aligned(), Output: g.DO.Aligned && g.O.Aligned, LSE: g.HasDLSE, Accumulate: g.Accumulate})
	if err != nil {
		return err
	}
	return p.backward(r, g)
}

func (s *Backward) trial(v Variant, of *ready) (wrong string, err error) {
	return s.tryBackward(v, of, kernel.GradientVariant{Aligned: v.Aligned, Accumulate: v.Accumulate})
}

// tryBackward runs the pipelines of a pass on a small problem and says what is wrong with the gradients.
func (s *program) tryBackward(v Variant, of *ready, by kernel.GradientVariant) (wrong string, err error) {
	v.Output, v.LSE = v.Aligned, false
	small, err := s.Trial(v)
	if err != nil {
		return "", err
	}
	p, err := small.build(s.Env, of)
	if err != nil {
		return "", err
	}
	return s.Env.TryBackward(small.Problem, by, nil, small.Bytes(), p.backward)
}

// Gradient is a kernel behind a backward pass, which finds its row term in memory: the gradient with respect to something beside q, k and
// v.
type Gradient struct {
	program
	tried kernel.GradientVariant
}

// NewGradient makes the pipelines of the usual variant. by says which gradient a trial is about.
func NewGradient(k *Fitted, by kernel.GradientVariant) (*Gradient, error) {
	s := &Gradient{tried: by}
	s.try = s.trial
	return s, s.plan(k, ofGradients()...)
}

// NewGradientLater makes pipelines where they are first wanted; on a device of the caller's, whose queue recording must leave alone, now.
func NewGradientLater(k *Fitted, by kernel.GradientVariant) (*Gradient, error) {
	s := &Gradient{tried: by}
	s.try = s.trial
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

// ofGradients are the variants of gradients: by alignment and accumulation.
func ofGradients() (all []Variant) {
	for i := range 4 {
		all = append(all, Variant{Aligned: i&1 != 0, Output: i&1 != 0, Accumulate: i&2 != 0})
	}
	return all
}

// Record writes the dispatches. The recorder's scratch begins with what Behind names.
func (s *Gradient) Record(r *kernel.Recorder, g *kernel.Gradients, _ *kernel.Operand) error {
	aligned := g.Q.Aligned && g.K.Aligned && g.V.Aligned && g.DO.Aligned
	p, err := s.ready(Variant{Aligned: aligned, Output: aligned, Accumulate: g.Accumulate})
	if err != nil {
		return err
	}
	return p.backward(r, g)
}

func (s *Gradient) trial(v Variant, of *ready) (wrong string, err error) {
	by := s.tried
	by.Aligned, by.Accumulate = v.Aligned, v.Accumulate
	return s.program.tryBackward(v, of, by)
}

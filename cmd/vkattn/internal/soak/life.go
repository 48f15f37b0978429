package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/ref"
)

// kind is what plans that share compiled kernels have in common. There are few: it is not kernels that are looked at here.
type kind struct {
	problem  flash.Problem // of the shared plan; others have other batches, heads and lengths
	impl     flash.Implementation
	tuning   map[string]int
	backward bool
}

var kinds = [...]kind{
	{problem: flash.Problem{Batch: 1, Heads: 2, QueryLen: 9, KeyLen: 12, HeadDim: 8, DType: flash.F32, Causal: flash.CausalBottomRight},
		impl: flash.Flash, tuning: map[string]int{"decode": 0}, backward: true},
	{problem: flash.Problem{Batch: 2, Heads: 2, QueryLen: 2, KeyLen: 17, HeadDim: 8, DType: flash.F16},
		impl: flash.Flash, tuning: map[string]int{"decode": 1, "parts": 2}},
	{problem: flash.Problem{Batch: 1, Heads: 1, QueryLen: 10, KeyLen: 10, HeadDim: 16, DType: flash.F16, Dropout: 0.2},
		impl: flash.Flash, tuning: map[string]int{"decode": 0, "max_groups": 1}},
	{problem: flash.Problem{Batch: 1, Heads: 2, QueryLen: 11, KeyLen: 7, HeadDim: 8, DType: flash.F32},
		impl: flash.Standard, backward: true},
}

func (k *kind) index() int {
	return slices.IndexFunc(kinds[:], func(o kind) bool { return o.impl == k.impl && o.problem == k.problem })
}

func (k *kind) options() []flash.PlanOption {
	o := []flash.PlanOption{flash.WithImplementation(k.impl), flash.WithTier(flash.TierScalar)}
	if k.tuning != nil {
		o = append(o, flash.WithTuning(k.tuning))
	}
	return o
}

// draw makes a problem that needs no other kernels.
func (k *kind) draw(r *rand.Rand) flash.Problem {
	p := k.problem
	p.Batch, p.Heads = 1+r.IntN(2), 1+r.IntN(3)
	p.KeyLen = 1 + r.IntN(20)
	if k.tuning["decode"] != 1 { // whose kernel is made for a number of rows
		p.QueryLen = 1 + r.IntN(12)
	}
	return p
}

// life is one plan with its tensors, recordings and submissions.
type life struct {
	p       *plans
	k       *kind
	r       *rand.Rand
	dev     *flash.Device
	ctx     context.Context
	problem flash.Problem

	plan    *flash.Plan
	shared  bool
	weights *flash.Weights
	inputs  [4][]float32     // q, k, v, do
	tensors [9]*flash.Tensor // q, k, v, do, o, lse, dq, dk, dv
	own     []*flash.Recording
	pending []flash.Pending
	seed    uint64
	compare bool
}

// begin makes the plan and its tensors.
func (p *plans) begin(k *kind, dev *flash.Device, r *rand.Rand, problem flash.Problem) (l *life, err error) {
	l = &life{p: p, k: k, r: r, dev: dev, ctx: context.Background(), problem: problem, seed: r.Uint64(), compare: r.IntN(4) == 0}
	if l.plan, err = dev.Plan(problem, k.options()...); err != nil {
		return nil, err
	}
	shapes := [][4]int{problem.QShape(), problem.KShape(), problem.VShape(), problem.OShape(), problem.OShape(), problem.LSEShape(),
		problem.QShape(), problem.KShape(), problem.VShape()}
	if !k.backward {
		shapes = shapes[:6]
	}
	for i, s := range shapes {
		if i == 5 {
			l.tensors[i], err = dev.NewLSE(s[0], s[1], s[2])
		} else {
			l.tensors[i], err = dev.NewTensor(problem.DType, s[0], s[1], s[2], s[3])
		}
		if err != nil {
			return nil, errors.Join(err, l.end())
		}
	}
	if k.backward {
		if l.weights, err = l.plan.NewWeights(); err != nil {
			return nil, errors.Join(err, l.end())
		}
	}
	for i := range l.inputs {
		l.inputs[i] = make([]float32, l.tensors[i].Elements())
		for j := range l.inputs[i] {
			l.inputs[i][j] = float32(r.NormFloat64())
		}
	}
	return l, nil
}

// shares puts a plan that others use too in place of the life's own.
func (l *life) shares(plan *flash.Plan) {
	if l.weights == nil { // weights belong to their plan
		l.plan.Close()
		l.plan, l.shared = plan, true
	}
}

// context makes the life's context: most often one that is not cancelled, else one that is at any moment.
func (l *life) context(parent context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(parent)
	l.ctx = ctx
	switch l.r.IntN(6) {
	case 0:
		cancel()
	case 1:
		t := time.AfterFunc(time.Duration(l.r.IntN(3000))*time.Microsecond, cancel)
		return func() { t.Stop(); cancel() }
	}
	return cancel
}

// upload copies the inputs.
func (l *life) upload() error {
	for i, values := range l.inputs {
		if err := l.tensors[i].Upload(l.ctx, values); err != nil {
			return err
		}
	}
	return nil
}

func (l *life) forward() flash.Forward {
	t := &l.tensors
	return flash.Forward{Q: t[0], K: t[1], V: t[2], O: t[4], LSE: t[5], Weights: l.weights, Seed: l.seed}
}

func (l *life) gradient() flash.Backward {
	t := &l.tensors
	return flash.Backward{Forward: l.forward(), DO: t[3], DQ: t[6], DK: t[7], DV: t[8]}
}

// run submits some passes, in one of the ways that there are, and waits for them or leaves them to end. all: each way once.
func (l *life) run(all bool) error {
	ways := []func() error{l.pooled, l.recorded, l.again}
	if !all {
		l.r.Shuffle(len(ways), func(i, j int) { ways[i], ways[j] = ways[j], ways[i] })
		ways = ways[:1]
	}
	for _, way := range ways {
		if err := way(); err != nil {
			return err
		}
	}
	if !all && l.r.IntN(3) == 0 { // somebody closes what is under way
		if len(l.pending) > 0 {
			l.p.inFlight.Add(1)
		}
		return nil
	}
	for _, p := range l.pending {
		if err := p.Wait(l.ctx); err != nil {
			return err
		}
	}
	l.pending = nil
	if l.compare {
		return l.check()
	}
	return nil
}

// pooled submits through the plan's own recordings.
func (l *life) pooled() error {
	pending, err := l.plan.SubmitForward(l.forward())
	if err != nil {
		return err
	}
	l.submitted(pending)
	if !l.k.backward {
		return nil
	}
	if pending, err = l.plan.SubmitBackward(l.gradient()); err != nil {
		return err
	}
	l.submitted(pending)
	return nil
}

func (l *life) submitted(p flash.Pending) {
	l.pending = append(l.pending, p)
	l.p.passes.Add(1)
}

// recorded submits recordings of the life's own.
func (l *life) recorded() error {
	f, err := l.plan.NewRecording()
	if err != nil {
		return err
	}
	l.own = append(l.own, f)
	if err := f.Forward(l.forward()); err != nil {
		return err
	}
	pending, err := f.Submit()
	if err != nil {
		return err
	}
	l.submitted(pending)
	if _, err := f.Submit(); !errors.Is(err, flash.ErrInFlight) {
		return fmt.Errorf("a recording in flight was submitted again: %v", err)
	}
	if !l.k.backward {
		return nil
	}
	b, err := l.plan.NewRecording(flash.ForBackward(), flash.WithTimestamps())
	if err != nil {
		return err
	}
	l.own = append(l.own, b)
	if err := b.Backward(l.gradient()); err != nil {
		return err
	}
	if pending, err = b.Submit(); err != nil {
		return err
	}
	l.submitted(pending)
	return nil
}

// again waits for each pass, and runs it more than once. A pass that is cancelled has ended when it says so.
func (l *life) again() error {
	for range 1 + l.r.IntN(3) {
		pending, err := l.plan.SubmitForward(l.forward())
		if err != nil {
			return err
		}
		l.p.passes.Add(1)
		if err := pending.Wait(l.ctx); err != nil {
			return err
		}
		if !l.k.backward {
			continue
		}
		l.p.passes.Add(1)
		if err := l.plan.Backward(l.ctx, l.gradient()); err != nil {
			return err
		}
	}
	return nil
}

// check compares the outputs with float64, by the bounds of rounding.
func (l *life) check() error {
	p, t := l.problem, map[flash.DType]ref.DType{flash.F32: ref.F32, flash.F16: ref.F16}[l.problem.DType]
	of := func(shape [4]int, values []float32) ref.Tensor {
		return ref.Tensor{B: shape[0], H: shape[1], N: shape[2], D: shape[3], Data: t.RoundAll(slices.Clone(values))}
	}
	problem := ref.Problem{Q: of(p.QShape(), l.inputs[0]), K: of(p.KShape(), l.inputs[1]), V: of(p.VShape(), l.inputs[2])}
	if p.Causal == flash.CausalBottomRight {
		problem.Causal = ref.BottomRight
	}
	if p.Dropout > 0 {
		problem.Dropout = &ref.Dropout{P: p.Dropout, Seed: l.seed}
	}
	do := of(p.OShape(), l.inputs[3])
	o, lse, err := ref.Forward(problem)
	if err != nil {
		return err
	}
	right := [5][]float64{o.Data, lse.Data}
	var gradient *ref.Tensor
	if l.k.backward {
		gradient = &do
		g, err := ref.Backward(problem, do, nil)
		if err != nil {
			return err
		}
		right[2], right[3], right[4] = g.DQ.Data, g.DK.Data, g.DV.Data
	}
	b, err := ref.RoundingBounds(problem, t, ref.Rounds{Scores: l.k.impl == flash.Standard}, gradient, nil)
	if err != nil {
		return err
	}
	for i, bound := range [5][]float64{b.O.Data, b.LSE.Data, b.DQ.Data, b.DK.Data, b.DV.Data} {
		if right[i] == nil {
			continue
		}
		got := make([]float32, len(right[i]))
		if err := l.tensors[4+i].Download(l.ctx, got); err != nil {
			return err
		}
		wide := make([]float64, len(got))
		for j, x := range got {
			wide[j] = float64(x)
		}
		of := t
		if i == 1 {
			of = ref.F32
		}
		if at := ref.Exceeds(wide, right[i], bound, of); at >= 0 {
			return fmt.Errorf("%s of %v: element %d is %v, and %v ± %.3g is right", [5]string{"o", "lse", "dq", "dk", "dv"}[i], p, at,
				wide[at], right[i][at], bound[at])
		}
	}
	l.p.compared.Add(1)
	return nil
}

// end closes everything, twice, in any order that is allowed: what is under way is waited for by whatever is closed first.
func (l *life) end() (err error) {
	closers := []func() error{l.weights.Close}
	if !l.shared {
		closers = append(closers, l.plan.Close)
	}
	for _, r := range l.own {
		closers = append(closers, r.Close)
	}
	for _, t := range l.tensors {
		closers = append(closers, t.Close)
	}
	if l.shared { // nobody else may close its recordings, which hold these tensors
		for _, p := range l.pending {
			err = errors.Join(err, p.Wait(context.Background()))
		}
	}
	l.r.Shuffle(len(closers), func(i, j int) { closers[i], closers[j] = closers[j], closers[i] })
	for range 2 {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
	}
	if !l.shared {
		if _, e := l.plan.SubmitForward(l.forward()); !errors.Is(e, flash.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("a closed plan was submitted: %v", e))
		}
	}
	if t := l.tensors[0]; t != nil {
		if e := t.Upload(context.Background(), l.inputs[0]); !errors.Is(e, flash.ErrClosed) {
			err = errors.Join(err, fmt.Errorf("a closed tensor was written: %v", e))
		}
	}
	return err
}

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/ref"
)

// feature is something that attention in package ref may have beyond sizes, scale and type, and what there is of it in the library. When
// the library learns it, that is said here: set, bind where it takes tensors, and forwardOnly as long as it has no gradients.
type feature struct {
	name        string
	used        func(*ref.Options) bool
	set         func(*ref.Options, *flash.Problem) // nil: the library does not have it
	forwardOnly bool
	// of is set the other way round, for cases that the suite draws as problems of the library: it says in ref's words what the problem
	// has; nil: those who draw its values do.
	of func(*flash.Problem, *ref.Options)
	// mixed gives some of the mixed cases the feature, by their number; nil: mixed cases have it otherwise, or not at all.
	mixed func(i uint64, p *flash.Problem)
	// bind gives a forward pass, and with it the backward pass of the same tensors, what the problem takes besides q, k and v; nil:
	// nothing.
	bind func(ctx context.Context, dev *flash.Device, p flash.Problem, in *ref.Problem, f *flash.Forward) (io.Closer, error)
}

// features is the one place where the two are translated: golden vectors and cases of other programs' suites go through it.
var features = append(scoreFeatures, []feature{
	{name: "causal", used: func(o *ref.Options) bool { return o.Causal != ref.NotCausal },
		set: func(o *ref.Options, p *flash.Problem) {
			p.Causal = flash.CausalBottomRight
			if o.Causal == ref.TopLeft {
				p.Causal = flash.CausalTopLeft
			}
		},
		of: func(p *flash.Problem, o *ref.Options) {
			o.Causal = map[flash.Causal]ref.Causal{flash.CausalBottomRight: ref.BottomRight, flash.CausalTopLeft: ref.TopLeft}[p.Causal]
		}},
	{name: "window", used: func(o *ref.Options) bool { return o.Window != nil },
		set: func(o *ref.Options, p *flash.Problem) { p.Window = flash.SlidingWindow(o.Window.Left, o.Window.Right) },
		of: func(p *flash.Problem, o *ref.Options) {
			if left, right := p.Window.Reach(); left >= 0 || right >= 0 {
				o.Window = &ref.Window{Left: left, Right: right}
			}
		},
		mixed: func(i uint64, p *flash.Problem) {
			if r := rand.New(rand.NewPCG(8, i)); r.IntN(3) == 0 {
				p.Window = flash.SlidingWindow(one(r, -1, 0, 5, 20), one(r, -1, 0, 3))
			}
		}},
	{name: "block mask", used: func(o *ref.Options) bool { return o.Blocks != nil },
		set: func(o *ref.Options, p *flash.Problem) {
			p.Blocks = flash.Blocks{Queries: o.Blocks.BQ, Keys: o.Blocks.BK, PerHead: o.Blocks.H > 1, PerBatch: o.Blocks.B > 1}
		},
		bind: func(ctx context.Context, dev *flash.Device, p flash.Problem, in *ref.Problem, f *flash.Forward) (_ io.Closer, err error) {
			f.Blocks, err = dev.NewBlockMask(ctx, p, in.Blocks.Data)
			return f.Blocks, err
		}},
	{name: "lists of keys", used: func(o *ref.Options) bool { return o.Lists != nil },
		set: func(o *ref.Options, p *flash.Problem) {
			p.Lists = flash.Lists{Keys: o.Lists.K, PerHead: o.Lists.H > 1}
		}},
	{name: "lengths of keys", used: func(o *ref.Options) bool { return o.KeyLens != nil },
		set: func(o *ref.Options, p *flash.Problem) { p.KeyLengths = true }},
	{name: "lengths of queries", used: func(o *ref.Options) bool { return o.QueryLens != nil },
		set: func(o *ref.Options, p *flash.Problem) { p.QueryLengths = true }},
	{name: "offset of the diagonal", used: func(o *ref.Options) bool { return o.Offset != nil && o.KeyLens == nil && o.QueryLens == nil },
		set: func(o *ref.Options, p *flash.Problem) {
			switch offset := *o.Offset; {
			case offset == p.KeyLen-p.QueryLen: // where the library has it
			case offset == 0 && o.Window == nil && o.Slopes == nil:
				p.Causal = flash.CausalTopLeft
			default: // of a longer problem whose last query stands at its last key
				queries := max(p.QueryLen, p.KeyLen-offset)
				p.Within = flash.Within{Queries: queries, Keys: queries + offset}
			}
		}},
	{name: "offset of the diagonal beside lengths", used: func(o *ref.Options) bool {
		return o.Offset != nil && (o.KeyLens != nil || o.QueryLens != nil)
	}},
}...)

// then is a score function after others. One that is no function is kept, and the plan says what is wrong with it.
func then(functions ...score.Function) score.Function {
	f, _ := score.Compose(functions...)
	return f
}

// translate is the problem of package ref in the library's terms; lacks names what it asks for and the library does not have, forwardOnly
// that of which it has no gradients.
func translate(in *ref.Problem, t ref.DType) (p flash.Problem, lacks, forwardOnly []string) {
	p = flash.Problem{
		Batch: in.Q.B, Heads: in.Q.H, KeyHeads: in.K.H, QueryLen: in.Q.N, KeyLen: in.K.N, HeadDim: in.Q.D, ValueDim: in.V.D,
		Scale: in.Scale,
		DType: map[ref.DType]flash.DType{ref.F32: flash.F32, ref.F16: flash.F16, ref.BF16: flash.BF16}[t],
	}
	for _, f := range features {
		switch {
		case !f.used(&in.Options):
			continue
		case f.set == nil:
			lacks = append(lacks, f.name)
			continue
		case f.forwardOnly:
			forwardOnly = append(forwardOnly, f.name)
		}
		f.set(&in.Options, &p)
	}
	if d := max(p.HeadDim, p.ValueDim); d > flash.MaxHeadDim {
		lacks = append(lacks, fmt.Sprintf("a head dimension of %d", d))
	}
	return p, lacks, forwardOnly
}

// optionsOf are the scale and what features say of a normalized problem; what goes with its scores is to be drawn.
func optionsOf(p *flash.Problem) ref.Options {
	o := ref.Options{Scale: p.Scale}
	for _, f := range features {
		if f.of != nil {
			f.of(p, &o)
		}
	}
	return o
}

// bind makes what the features of a problem give a forward pass; the function frees it.
func bind(ctx context.Context, dev *flash.Device, p flash.Problem, in *ref.Problem, f *flash.Forward) (free func() error, err error) {
	var made []io.Closer
	free = func() (err error) {
		for _, m := range made {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	for _, feature := range features {
		if feature.bind == nil || !feature.used(&in.Options) {
			continue
		}
		m, err := feature.bind(ctx, dev, p, in, f)
		if err != nil {
			return nil, errors.Join(err, free())
		}
		made = append(made, m)
	}
	return free, nil
}

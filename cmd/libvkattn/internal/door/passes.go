package door

import (
	"errors"

	"github.com/vkattn/vkattn/flash"
)

// Options is vkattn_options.
type Options struct {
	Layout      uint32
	Causal      uint32
	Window      bool
	Left, Right int64
	Scale       float64
	Dropout     float64
	Seed        uint64
	Offset      uint32
}

// apply sets the fields of a problem that do not come from tensors.
func (o *Options) apply(p *flash.Problem) error {
	if o.Layout > uint32(flash.BNHD) {
		return bad("options.layout", o.Layout, "must be VKATTN_BHND or VKATTN_BNHD")
	}
	if o.Causal > uint32(flash.CausalBottomRight) {
		return bad("options.causal", o.Causal, "must be one of VKATTN_CAUSAL_NONE, _TOP_LEFT and _BOTTOM_RIGHT")
	}
	p.Causal, p.Scale, p.Dropout = flash.Causal(o.Causal), o.Scale, o.Dropout
	if o.Window {
		for _, n := range [2]int64{o.Left, o.Right} {
			if n < -1 || n > most {
				return bad("options.window", n, "must be from -1, no limit, to 2³¹−1 keys")
			}
		}
		p.Window = flash.SlidingWindow(int(o.Left), int(o.Right))
	}
	return nil
}

// Forward is vkattn_forward. A nil tensor is one that is not there.
type Forward struct {
	Q, K, V, O, LSE, MaxLogit, Bias, Mask, Sinks, QueryLengths, KeyLengths *Tensor
}

// Backward is vkattn_backward.
type Backward struct {
	Forward                             Forward
	DO, DLSE, DQ, DK, DV, DBias, DSinks *Tensor
	Accumulate                          bool
}

// JVP is vkattn_jvp.
type JVP struct {
	Forward                                                                       Forward
	QTangent, KTangent, VTangent, BiasTangent, SinksTangent, OTangent, LSETangent *Tensor
}

// argument is a tensor of the caller's, and where flash is to find it.
type argument struct {
	name     string
	tensor   *Tensor
	to       **flash.Tensor
	role     role
	required bool
}

// all gives flash its tensors, and refuses the pass at the first that does not do.
func (p *pass) all(arguments ...argument) (err error) {
	for _, a := range arguments {
		if a.tensor == nil && a.required {
			return Required(a.name)
		}
		if *a.to, err = p.tensor(a.name, a.tensor, a.role); err != nil {
			return err
		}
	}
	return nil
}

// forward gives flash the tensors of a forward pass, o and lse as outputs of it or as inputs of one that follows.
func (p *pass) forward(f *Forward, o *Options, follows bool) (out flash.Forward, err error) {
	of, statisticsOf := result, resultOf
	if follows {
		of, statisticsOf = input, statistics
	}
	out.Seed, out.Offset = o.Seed, o.Offset
	if follows {
		f.MaxLogit = nil
	}
	err = p.all(
		argument{"forward.q", f.Q, &out.Q, input, true},
		argument{"forward.k", f.K, &out.K, input, true},
		argument{"forward.v", f.V, &out.V, input, true},
		argument{"forward.o", f.O, &out.O, of, true},
		argument{"forward.lse", f.LSE, &out.LSE, statisticsOf, follows},
		argument{"forward.max_logit", f.MaxLogit, &out.MaxLogit, statisticsOf, false},
		argument{"forward.bias", f.Bias, &out.Bias, statistics, false},
		argument{"forward.mask", f.Mask, &out.Mask, statistics, false},
		argument{"forward.sinks", f.Sinks, &out.Sinks, statistics, false},
		argument{"forward.query_lengths", f.QueryLengths, &out.QueryLengths, statistics, false},
		argument{"forward.key_lengths", f.KeyLengths, &out.KeyLengths, statistics, false},
	)
	return out, err
}

// plan makes the plan of a pass from its tensors.
func (p *pass) plan(f *flash.Forward, o *Options) (*flash.Plan, error) {
	problem, err := flash.ProblemOf(f.Q, f.K, f.V)
	if err != nil {
		return nil, err
	}
	if err := o.apply(&problem); err != nil {
		return nil, err
	}
	problem.Sinks, problem.MaxLogit = f.Sinks != nil, f.MaxLogit != nil
	problem.QueryLengths, problem.KeyLengths = f.QueryLengths != nil, f.KeyLengths != nil
	problem.Bias, problem.Mask = perScore(f.Bias), perScore(f.Mask)
	return p.device.Plan(problem)
}

// perScore describes a tensor that goes with scores.
func perScore(t *flash.Tensor) flash.PerScore {
	if t == nil {
		return flash.PerScore{}
	}
	s := t.Shape()
	return flash.PerScore{DType: t.DType(), Batch: s[0], Heads: s[1], Queries: s[2], Keys: s[3]}
}

// run makes a pass on a device: prepare brings its tensors there and gives what is to run.
func run(h Handle, o *Options, prepare func(p *pass) (flash.Forward, func(*flash.Plan) error, error)) (err error) {
	d, err := devices.find(h)
	if err != nil {
		return err
	}
	p := &pass{device: d, bnhd: o.Layout == uint32(flash.BNHD)}
	defer func() { err = errors.Join(err, p.close()) }()
	f, runs, err := prepare(p)
	if err != nil {
		return err
	}
	plan, err := p.plan(&f, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plan.Close()) }()
	if err := runs(plan); err != nil {
		return err
	}
	return p.deliver()
}

// SDPAForward is vkattn_sdpa_forward.
func SDPAForward(h Handle, o Options, f Forward) error {
	return run(h, &o, func(p *pass) (flash.Forward, func(*flash.Plan) error, error) {
		out, err := p.forward(&f, &o, false)
		return out, func(plan *flash.Plan) error { return plan.Forward(never, out) }, err
	})
}

// SDPABackward is vkattn_sdpa_backward.
func SDPABackward(h Handle, o Options, b Backward) error {
	return run(h, &o, func(p *pass) (f flash.Forward, _ func(*flash.Plan) error, err error) {
		if f, err = p.forward(&b.Forward, &o, true); err != nil {
			return f, nil, err
		}
		gradient, other := result, resultOf
		gradient.keep, other.keep = b.Accumulate, b.Accumulate
		out := flash.Backward{Forward: f, Accumulate: b.Accumulate}
		err = p.all(
			argument{"backward.do_", b.DO, &out.DO, input, true},
			argument{"backward.dlse", b.DLSE, &out.DLSE, statistics, false},
			argument{"backward.dq", b.DQ, &out.DQ, gradient, true},
			argument{"backward.dk", b.DK, &out.DK, gradient, true},
			argument{"backward.dv", b.DV, &out.DV, gradient, true},
			argument{"backward.dbias", b.DBias, &out.DBias, other, false},
			argument{"backward.dsinks", b.DSinks, &out.DSinks, other, false},
		)
		return f, func(plan *flash.Plan) error { return plan.Backward(never, out) }, err
	})
}

// SDPAJVP is vkattn_sdpa_jvp.
func SDPAJVP(h Handle, o Options, j JVP) error {
	return run(h, &o, func(p *pass) (f flash.Forward, _ func(*flash.Plan) error, err error) {
		if f, err = p.forward(&j.Forward, &o, true); err != nil {
			return f, nil, err
		}
		out := flash.JVP{Forward: f}
		err = p.all(
			argument{"jvp.q_tangent", j.QTangent, &out.QTangent, input, false},
			argument{"jvp.k_tangent", j.KTangent, &out.KTangent, input, false},
			argument{"jvp.v_tangent", j.VTangent, &out.VTangent, input, false},
			argument{"jvp.bias_tangent", j.BiasTangent, &out.BiasTangent, statistics, false},
			argument{"jvp.sinks_tangent", j.SinksTangent, &out.SinksTangent, statistics, false},
			argument{"jvp.o_tangent", j.OTangent, &out.OTangent, result, true},
			argument{"jvp.lse_tangent", j.LSETangent, &out.LSETangent, resultOf, false},
		)
		return f, func(plan *flash.Plan) error { return plan.JVP(never, out) }, err
	})
}

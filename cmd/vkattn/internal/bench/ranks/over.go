package ranks

import (
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// Overs lists what [Options].Over takes.
var Overs = []string{result.OverRing, result.OverHeads, result.OverBoth, OverAuto}

// OverAuto leaves the choice to the plan.
const OverAuto = "auto"

// speeds are those of one device, which has just run the problem, and of the link; zero where either is not known.
func (o *Options) speeds(p *flash.Problem, forward, backward float64) (v ring.Speeds) {
	if forward <= 0 || o.Link.GBps <= 0 {
		return v
	}
	v = ring.Speeds{Forward: p.ForwardFLOPs() / forward * 1e3, Link: o.Link.GBps * 1e9, Latency: o.Link.Us / 1e6}
	if backward > 0 {
		v.Backward = p.BackwardFLOPs() / backward * 1e3
	}
	return v
}

// shardOf is the shard that is asked for. To choose, a plan needs speeds.
func (o *Options) shardOf(p *flash.Problem, one passes) ring.Shard {
	switch o.Over {
	case result.OverHeads:
		return ring.Shard{Over: ring.Heads}
	case result.OverBoth:
		return ring.Shard{Over: ring.Both, PerHost: o.PerHost}
	case OverAuto:
		s := ring.Shard{Over: ring.Either}
		if len(one.fwd) > 0 { // elsewhere the first rank's count
			backward := 0.0
			if len(one.bwd) > 0 {
				backward = result.Median(one.bwd)
			}
			s.Speeds = o.speeds(p, result.Median(one.fwd), backward)
		}
		return s
	}
	return ring.Shard{Over: ring.Keys}
}

// names of what goes from rank to rank.
var names = map[ring.Over]string{ring.Keys: result.OverRing, ring.Heads: result.OverHeads, ring.Both: result.OverBoth}

// count says what was taken, and what each exchange moves to the rank that receives most, in the passes that are measured.
func (o *Options) count(r *Result, p flash.Problem, over ring.Over) {
	r.Over, r.LinkGBps, r.LatencyUs, r.Chosen = names[over], o.Link.GBps, o.Link.Us, o.Over == OverAuto
	if over == ring.Both {
		r.PerHost = o.PerHost
	}
	for _, x := range []struct {
		shard ring.Shard
		to    *float64
	}{{ring.Shard{Over: ring.Keys}, &r.RingBytes}, {ring.Shard{Over: ring.Heads}, &r.HeadsBytes},
		{ring.Shard{Over: ring.Both, PerHost: r.PerHost}, &r.BothBytes}} {
		m, err := ring.NewModel(p, x.shard, r.Ranks)
		if err != nil { // heads do not divide, or there are no hosts
			continue
		}
		for rank := range r.Ranks {
			moved := m.Moved(rank)
			n := moved.ForwardReceived
			if o.Backward {
				n += moved.BackwardReceived
			}
			*x.to = max(*x.to, n)
		}
	}
}

// predict sets what the model predicts of what was taken, from the times on one device and the link.
func (o *Options) predict(r *Result, p *flash.Problem) {
	v := o.speeds(p, r.Fwd.One, r.Bwd.One)
	for over, name := range names {
		if name != r.Over || v == (ring.Speeds{}) {
			continue
		}
		m, err := ring.NewModel(*p, ring.Shard{Over: over, PerHost: r.PerHost}, r.Ranks)
		if err != nil {
			continue
		}
		r.Fwd.Predicted = m.Forward(v).One / m.Forward(v).Ranks
		if v.Backward > 0 {
			r.Bwd.Predicted = m.Backward(v).One / m.Backward(v).Ranks
		}
	}
}

package ranks

import (
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
)

// Overs lists what [Options].Over takes.
var Overs = []string{result.OverRing, result.OverHeads, OverAuto}

// OverAuto leaves the choice to the plan.
const OverAuto = "auto"

// shardOf is the shard that is asked for. To choose, a plan needs the speeds of one device, which has just run the problem, and of the
// link.
func (o *Options) shardOf(p *flash.Problem, one passes) ring.Shard {
	switch o.Over {
	case result.OverHeads:
		return ring.Shard{Over: ring.Heads}
	case OverAuto:
		s := ring.Shard{Over: ring.Either}
		if len(one.fwd) > 0 { // elsewhere the first rank's count
			s.Speeds = ring.Speeds{Forward: p.ForwardFLOPs() / result.Median(one.fwd) * 1e3, Link: o.Link.GBps * 1e9,
				Latency: o.Link.Us / 1e6}
			if len(one.bwd) > 0 {
				s.Speeds.Backward = p.BackwardFLOPs() / result.Median(one.bwd) * 1e3
			}
		}
		return s
	}
	return ring.Shard{Over: ring.Keys}
}

// count says what was taken, and what either exchange moves to the rank that receives most, in the passes that are measured.
func (o *Options) count(r *Result, p flash.Problem, over ring.Over) {
	name := func(over ring.Over) string {
		if over == ring.Heads {
			return result.OverHeads
		}
		return result.OverRing
	}
	r.Over = name(over)
	if o.Over == OverAuto {
		r.Chosen, r.LinkGBps, r.LatencyUs = true, o.Link.GBps, o.Link.Us
	}
	for _, x := range []struct {
		over ring.Over
		to   *float64
	}{{ring.Keys, &r.RingBytes}, {ring.Heads, &r.HeadsBytes}} {
		m, err := ring.NewModel(p, ring.Shard{Over: x.over}, r.Ranks)
		if err != nil { // heads do not divide
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

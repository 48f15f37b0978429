package result

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RingRow is attention that is spread over several devices beside the same on one: a line of a result file. Times are of the wall, in
// milliseconds: from when every rank begins until the last has ended.
type RingRow struct {
	Origin
	Problem string `json:"problem"`
	Tokens  int    `json:"tokens"`
	Ranks   int    `json:"ranks"` // keys and values from the host: 1
	Order   string `json:"order"`
	Over    string `json:"over,omitempty"`      // what goes from rank to rank: OverRing, OverHeads, OverBoth; from the host: OverHost
	PerHost int    `json:"per_host,omitempty"`  // ranks of a host, with OverBoth
	Chosen  bool   `json:"chosen,omitempty"`    // by the plan, from LinkGBps, LatencyUs and the rates on one device
	Direct  bool   `json:"direct"`              // ranks copy from one another's memory, which their devices import
	Again   bool   `json:"one_again,omitempty"` // what is of one device is an earlier row's of the same problem

	Fwd  RingPass `json:"fwd"`
	Bwd  RingPass `json:"bwd"`                    // zero where it was not asked for
	Both float64  `json:"both_speedup,omitempty"` // of a forward and a backward pass together

	LinkGBps   float64 `json:"link_GBps,omitempty"`   // of the slowest link: predictions, and a choice, are made from it
	LatencyUs  float64 `json:"latency_us,omitempty"`  // the same, of a message
	RingBytes  float64 `json:"ring_bytes,omitempty"`  // that the rank which receives most does in the passes measured, were it a ring
	HeadsBytes float64 `json:"heads_bytes,omitempty"` // the same with heads over devices; 0: they do not divide
	BothBytes  float64 `json:"both_bytes,omitempty"`  // the same with heads over the ranks of hosts of PerHost; 0: there are none

	BlockBytes int    `json:"block_bytes"` // keys and values of a rank
	MemoryOne  uint64 `json:"memory_one"`  // of the device: tensors and workspace, on one
	MemoryRank uint64 `json:"memory_rank"` // on the rank that has most
	Check
	Failure
}

// What goes from rank to rank.
const (
	OverRing  = "ring"  // keys and values
	OverHeads = "heads" // all tokens of a rank's share of the heads
	OverBoth  = "both"  // heads over the ranks of a host, keys and values between hosts
	OverHost  = "host"  // keys and values, from the host to one device
)

// RingPass is one pass on one device, and on the ranks: medians.
type RingPass struct {
	One    float64 `json:"one_ms,omitempty"`
	Ranks  float64 `json:"ranks_ms,omitempty"`
	Waited float64 `json:"waited_ms,omitempty"` // by the host of the rank that waited longest for what had not arrived
	Speed  float64 `json:"speedup,omitempty"`
	// Predicted is the speed-up that ring.Model predicts, from One and the link: without launches, sums and the host's part.
	Predicted float64    `json:"predicted,omitempty"`
	Traced    *RingTrace `json:"traced,omitempty"`
}

// RingTrace is one more pass, in which all ranks noted what they did. Kernels, Sums and Idle together are Ms: means of the ranks.
type RingTrace struct {
	Ms      float64    `json:"ms"`
	Kernels float64    `json:"kernels_ms"`
	Sums    float64    `json:"sums_ms"`    // merging, adding and copying on the device
	Idle    float64    `json:"idle_ms"`    // the device had nothing to do
	Waiting float64    `json:"waiting_ms"` // of it, because something of another rank, or of the host, had not arrived
	Copies  float64    `json:"copies_ms"`  // between device and host, both directions added
	Hidden  float64    `json:"hidden"`     // share of Copies while the rank's device computed
	Lanes   []RingLane `json:"lanes,omitempty"`
}

// RingLane is what one lane of one rank did: kernels and sums, or copies of one direction.
type RingLane struct {
	Rank  int        `json:"rank"`
	Lane  string     `json:"lane"` // one of RingLanes
	Spans []RingSpan `json:"spans"`
}

// RingSpan is something from one time of the pass to another.
type RingSpan struct {
	What  string  `json:"what"` // WhatKernels, WhatSums or WhatCopy
	Step  int     `json:"step,omitempty"`
	Begin float64 `json:"begin"` // ms from the beginning of the pass
	End   float64 `json:"end"`
	Bytes float64 `json:"bytes,omitempty"` // of a copy
}

// Lanes of a rank, in the order in which they are drawn.
const (
	LaneCompute = "compute"
	LaneOut     = "copy out"
	LaneIn      = "copy in"
)

// RingLanes are all lanes.
var RingLanes = []string{LaneCompute, LaneOut, LaneIn}

// What spans are.
const (
	WhatKernels = "kernels"
	WhatSums    = "sums"
	WhatCopy    = "copy"
)

// HiddenPercent is the share of the copies' time while the rank's device computed; false where nothing was copied, or nothing traced.
func (p *RingPass) HiddenPercent() (float64, bool) {
	if p.Traced == nil || p.Traced.Copies <= 0 {
		return 0, false
	}
	return 100 * p.Traced.Hidden, true
}

// Shape is the problem without its lengths: what rows of one figure have in common.
func (r *RingRow) Shape() string {
	return strings.Join(slices.DeleteFunc(strings.Fields(r.Problem), func(word string) bool {
		return strings.HasPrefix(word, "Nq") || strings.HasPrefix(word, "Nk")
	}), " ")
}

// Same says whether two rows are of the same thing, measured twice.
func (r *RingRow) Same(o *RingRow) bool {
	return r.Of(o.Device, o.Problem, o.Ranks) && r.Order == o.Order && r.Over == o.Over && r.PerHost == o.PerHost
}

// Of says whether the row is of a problem on so many ranks of a device: what is known of it before it is measured.
func (r *RingRow) Of(device, problem string, ranks int) bool {
	return r.Device == device && r.Problem == problem && r.Ranks == ranks
}

// Limits of what is read.
const (
	mostRingRanks = 1 << 16
	mostRingSpans = 1 << 16 // of a pass
	mostRing      = 1e15    // of any number: ms of thirty thousand years, bytes of a thousand TB
)

// validate says what of a row that was read cannot be.
func (r *RingRow) validate() error {
	switch {
	case r.Ranks < 1 || r.Ranks > mostRingRanks:
		return fmt.Errorf("ranks is %d: it must be from 1 to %d", r.Ranks, mostRingRanks)
	case r.PerHost < 0 || r.PerHost > r.Ranks:
		return fmt.Errorf("per_host is %d: it must be from 0 to %d, the number of ranks", r.PerHost, r.Ranks)
	case r.Tokens < 0:
		return fmt.Errorf("tokens is %d: it must not be negative", r.Tokens)
	case r.Error == "" && (r.Tokens == 0 || r.Fwd.Ranks <= 0):
		return errors.New("the row has neither figures nor an error")
	}
	numbers := []float64{r.Both, r.LinkGBps, r.LatencyUs, r.RingBytes, r.HeadsBytes, r.BothBytes}
	if r.MaxErr != nil {
		numbers = append(numbers, *r.MaxErr)
	}
	for _, p := range []*RingPass{&r.Fwd, &r.Bwd} {
		numbers = append(numbers, p.One, p.Ranks, p.Waited, p.Speed, p.Predicted)
		t := p.Traced
		if t == nil {
			continue
		}
		numbers = append(numbers, t.Ms, t.Kernels, t.Sums, t.Idle, t.Waiting, t.Copies)
		if !(t.Ms >= 1e-6) || !(t.Hidden >= 0 && t.Hidden <= 1) {
			return fmt.Errorf("a traced pass of %g ms, of whose copies %g are hidden: it must take a nanosecond at least, and the share "+
				"be from 0 to 1", t.Ms, t.Hidden)
		}
		spans := 0
		for _, l := range t.Lanes {
			if l.Rank < 0 || l.Rank >= r.Ranks {
				return fmt.Errorf("a lane of rank %d, of %d", l.Rank, r.Ranks)
			}
			for _, s := range l.Spans {
				if !(s.Begin >= 0 && s.End >= s.Begin && s.End <= mostRing) {
					return fmt.Errorf("a span from %g to %g ms: it must not end before it begins", s.Begin, s.End)
				}
			}
			spans += len(l.Spans)
		}
		if spans > mostRingSpans {
			return fmt.Errorf("a traced pass of %d spans: at most %d are read", spans, mostRingSpans)
		}
	}
	for _, v := range numbers {
		if !(v >= 0) || v > mostRing {
			return fmt.Errorf("%v is no measurement: it must be from 0 to %g", v, float64(mostRing))
		}
	}
	return nil
}

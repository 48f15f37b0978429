package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// Results are the rows of one run with what they are compared with.
type Results struct {
	Header result.Header
	Rows   []result.Row // our own
	Peers  []result.Row // another program's, or an earlier run's
	// PeerImpls are the peer's implementations to compare with, one column each.
	PeerImpls []string
}

const standard = "standard"

// peerKey finds the peer's row for a shape.
type peerKey struct {
	shape result.Case
	impl  string
}

// index holds the forward times that rows are compared with.
type index struct {
	standard map[result.Case]float64
	rates    map[result.Case]float64 // by our own cases
	peers    map[peerKey]float64     // another program's
	earlier  map[result.Case]float64 // an earlier run's of ours: like is compared with like, tiles and masks too
	impls    []string                // what there is a column for
}

// newIndex collects times by shape, those of an earlier run by the whole case. Repeated rows count with their median.
func newIndex(r *Results) *index {
	own, earlier, peers := map[result.Case][]float64{}, map[result.Case][]float64{}, map[peerKey][]float64{}
	rates := map[result.Case][]float64{}
	for _, row := range r.Rows {
		if row.Fwd.TFLOPS > 0 {
			rates[row.Case] = append(rates[row.Case], row.Fwd.TFLOPS)
		}
		if row.Impl == standard && row.Fwd.Ms > 0 {
			own[row.Shape()] = append(own[row.Shape()], row.Fwd.Ms)
		}
	}
	for _, row := range r.Peers {
		switch k := (peerKey{row.Shape(), row.Impl}); {
		case row.Fwd.Ms <= 0:
		case IsOurs(row):
			earlier[row.Case] = append(earlier[row.Case], row.Fwd.Ms)
		default:
			peers[k] = append(peers[k], row.Fwd.Ms)
		}
	}
	return &index{standard: medians(own), rates: medians(rates), peers: medians(peers), earlier: medians(earlier),
		impls: comparedWith(r)}
}

func medians[K comparable](of map[K][]float64) map[K]float64 {
	out := map[K]float64{}
	for k, v := range of {
		out[k] = result.Median(v)
	}
	return out
}

// comparedWith is what rows are compared with: the peer's implementations and, last, an earlier run of ours. Beside that one, peers of
// which there is no row have no column: nobody may have asked for them.
func comparedWith(r *Results) []string {
	if !slices.ContainsFunc(r.Peers, IsOurs) {
		return r.PeerImpls
	}
	var out []string
	for _, impl := range r.PeerImpls {
		if slices.ContainsFunc(r.Peers, func(p result.Row) bool { return p.Impl == impl && !IsOurs(p) }) {
			out = append(out, impl)
		}
	}
	return append(out, sameImpl)
}

// sameImpl stands for "the same implementation in the earlier run".
const sameImpl = "earlier"

// IsOurs says whether this program measured the row.
func IsOurs(r result.Row) bool { return r.Ours() }

// of compares a row: one ratio for each of the index's implementations.
func (x *index) of(row result.Row) result.Ratios {
	var out result.Ratios
	if row.Fwd.Ms <= 0 {
		out.Peers = make([]float64, len(x.impls))
		return out
	}
	out.Standard = x.standard[row.Shape()] / row.Fwd.Ms
	if plain, costs := row.Plain(); costs && x.rates[plain] > 0 {
		out.Plain = row.Fwd.TFLOPS / x.rates[plain]
	}
	for _, impl := range x.impls {
		ms := x.peers[peerKey{row.Shape(), impl}]
		if impl == sameImpl {
			ms = 0
			if IsOurs(row) {
				ms = x.earlier[row.Case]
			}
		}
		out.Peers = append(out.Peers, ms/row.Fwd.Ms)
	}
	return out
}

// Summary is the geometric mean of an implementation's ratios against another.
type Summary struct {
	Impl, Against string
	Mean          float64 // geometric mean of time of Against / time of Impl: above 1, Impl is faster
	Worst, Best   float64
	WorstCase     result.Case
	N             int // shapes
	Backward      bool
}

// String reads "flash2 is 1.13 × fa2 (geometric mean of 12 shapes; worst 0.91 × at …)".
func (s Summary) String() string {
	text := fmt.Sprintf("%s is %s × the speed of %s", s.What(), result.Times(s.Mean), s.Against)
	if s.N == 1 {
		return text + " (one shape)"
	}
	worst := s.WorstCase
	worst.Impl = ""
	return text + fmt.Sprintf(" (geometric mean of %d shapes; from %s × at %s to %s ×)", s.N, result.Times(s.Worst), worst,
		result.Times(s.Best))
}

// What is the implementation, and its pass where that is not forward.
func (s Summary) What() string {
	if s.Backward {
		return s.Impl + " backward"
	}
	return s.Impl
}

// Summaries gives the geometric means of every implementation of ours against
// standard attention and against the peers, those without a single pair left
// out: of the forward pass, then of the backward pass.
func Summaries(r *Results) []Summary {
	out := summaries(r)
	for _, s := range summaries(backwardOf(r)) {
		s.Backward = true
		out = append(out, s)
	}
	return out
}

func summaries(r *Results) []Summary {
	x := newIndex(r)
	type key struct{ impl, against string }
	values := map[key][]float64{}
	cases := map[key][]result.Case{}
	var order []key
	note := func(k key, ratio float64, c result.Case) {
		if ratio <= 0 {
			return
		}
		if _, ok := values[k]; !ok {
			order = append(order, k)
		}
		values[k] = append(values[k], ratio)
		cases[k] = append(cases[k], c)
	}
	for _, row := range r.Rows {
		q := x.of(row)
		if row.Tuning != "" || row.Density > 0 { // tiles, or masks, that are compared with one another
			continue
		}
		if row.Impl != standard {
			note(key{row.Impl, standard}, q.Standard, row.Case)
		}
		for i, ratio := range q.Peers {
			if row.Impl == standard && x.impls[i] != standard && x.impls[i] != sameImpl {
				continue // how far the baseline is behind says nothing
			}
			note(key{row.Impl, peerName(x.impls[i], r.Peers)}, ratio, row.Case)
		}
	}
	var out []Summary
	for _, k := range order {
		v := values[k]
		worst := slices.Index(v, slices.Min(v))
		out = append(out, Summary{Impl: k.impl, Against: k.against, Mean: result.GeoMean(v), Worst: v[worst],
			Best: slices.Max(v), WorstCase: cases[k][worst], N: len(v)})
	}
	slices.SortStableFunc(out, func(a, b Summary) int { return strings.Compare(a.Impl, b.Impl) })
	return out
}

// peerName is "torch 2.11.0 fa2", or the library for an earlier run of ours.
func peerName(impl string, peers []result.Row) string {
	for _, row := range peers {
		switch {
		case impl == sameImpl && IsOurs(row):
			return "the earlier run (" + row.Library + ")"
		case row.Impl == impl && !IsOurs(row):
			return row.Library + " " + impl
		}
	}
	return impl
}

package onnx

import "github.com/vkattn/vkattn/internal/ref"

// align says which keys a query at key offset + i sees. The operator counts from there; the library's causal order and window count from
// i + Nk − Nq, where the last query stands at the last key, or its causal order alone from i (top left). own says that offset is that of the last
// key of each batch entry, which is the library's own way. What cannot be said in these terms keeps its offset.
func align(p *ref.Problem, causal bool, window ref.Window, offset int, own bool) {
	if causal {
		window.Right = -1 // keys beyond are not seen anyway
	}
	last := p.K.N - p.Q.N
	switch {
	case own:
	case p.KeyLens != nil || !restate(p, &causal, &window, offset, last):
		p.Offset = &offset
	}
	if causal && p.Causal == ref.NotCausal {
		p.Causal = ref.BottomRight
	}
	if window.Left >= 0 || window.Right >= 0 {
		p.Window = &window
	}
	if p.Causal == ref.NotCausal && p.Window == nil {
		p.Offset = nil // nothing counts from it
	}
}

// restate moves causal order and window from one offset to another, false where the library has no words for it. The problem changes only with success.
func restate(p *ref.Problem, causal *bool, window *ref.Window, from, to int) bool {
	w, order := *window, ref.NotCausal
	if w.Left >= 0 {
		if w.Left += to - from; w.Left < 0 {
			return false
		}
	}
	high := from // the last key that query 0 sees
	if w.Right >= 0 {
		high += w.Right
	}
	if *causal || w.Right >= 0 {
		w.Right = -1
		switch {
		case high == to:
			order = ref.BottomRight
		case high == 0:
			order = ref.TopLeft
		case high > to:
			w.Right = high - to
		default:
			return false
		}
	}
	p.Causal, *causal, *window = order, false, w
	return true
}

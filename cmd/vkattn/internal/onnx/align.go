package onnx

import "github.com/vkattn/vkattn/internal/ref"

// align says which keys a query at key offset + i sees. The operator counts from there; the library's causal order and window count from i
// + Nk − Nq, where the last query stands at the last key, or its causal order alone from i (top left). own says that offset is that of the
// last key of each batch entry, which is the library's own way. What cannot be said in these terms keeps its offset.
func align(p *ref.Problem, causal bool, window ref.Window, offset int, own bool) {
	if causal {
		window.Right = -1 // keys beyond are not seen anyway
	}
	switch {
	case own, p.KeyLens == nil && restate(p, &causal, &window, offset):
	default:
		p.Offset = &offset
	}
	if causal {
		p.Causal = ref.BottomRight
	}
	if window.Left >= 0 || window.Right >= 0 {
		p.Window = &window
	}
	if p.Causal == ref.NotCausal && p.Window == nil {
		p.Offset = nil // nothing counts from it
	}
}

// restate moves causal order and window from an offset to that of the last key, false where there are no words for it. Where the last query
// does not see the last keys, nobody does, and they are padding: then the last key is one before them. The problem changes only with
// success.
func restate(p *ref.Problem, causal *bool, window *ref.Window, offset int) bool {
	last, w := p.K.N-p.Q.N, *window
	order, lens := ref.NotCausal, []int(nil)
	if *causal || w.Right >= 0 {
		high := offset + max(w.Right, 0) // the last key that query 0 sees
		w.Right = -1
		switch {
		case high > last:
			w.Right = high - last
		case high == last:
			order = ref.BottomRight
		case high == 0:
			order = ref.TopLeft
		default:
			order, last = ref.BottomRight, max(high, -p.Q.N)
			for range p.Q.B {
				lens = append(lens, last+p.Q.N)
			}
		}
	}
	if w.Left >= 0 {
		if w.Left += last - offset; w.Left < 0 {
			return false
		}
	}
	p.Causal, p.KeyLens = order, lens
	*causal, *window = false, w
	return true
}

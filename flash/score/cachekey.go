package score

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// cacheKey is a hash of what roots are computed from, in an order that the expression alone decides, and of the tensors' declarations.
func cacheKey(g *graph, tensors []*tensor, roots ...ref) string {
	h := sha256.New()
	word := func(x ...uint64) {
		for _, v := range x {
			h.Write(binary.LittleEndian.AppendUint64(nil, v))
		}
	}
	word(uint64(len(tensors)))
	for _, t := range tensors {
		word(uint64(t.Type), wordOfBool(t.Table()), uint64(len(t.Name)), uint64(len(t.Shape)))
		h.Write([]byte(t.Name))
		for _, d := range t.Shape {
			word(uint64(d))
		}
	}
	used, number := g.reachable(roots...), make([]uint64, len(g.values))
	n := uint64(0)
	for r, v := range g.values {
		if !used[r] {
			continue
		}
		number[r] = n
		n++
		word(uint64(v.op), uint64(v.kind), v.bits)
		for _, a := range v.operands() {
			word(number[a])
		}
	}
	for _, r := range roots {
		word(number[r])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

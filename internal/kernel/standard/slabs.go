package standard

import (
	"math/bits"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/pass"
	"github.com/vkattn/vkattn/pipeline"
)

// Slab is a part of the matrix of scores.
type Slab = pass.Slab

// CutSlabs cuts batch·heads matrices of rows rows of rowBytes bytes into buffers of at most most bytes: by heads where a whole
// head fits, else by rows of one head. All buffers exist at once: standard attention stores all of its scores, and what it
// costs in memory is the point of measuring it. The error names what one row needs when not even that fits.
func CutSlabs(heads, rows int, rowBytes, most uint64) ([]Slab, error) {
	if rowBytes > most {
		return nil, &pipeline.MemoryError{Label: "workspace", Needed: rowBytes, Available: most,
			Rule: "what one binding can hold, for one row of scores"}
	}
	rowsEach := most / rowBytes
	if n := rowsEach / uint64(rows); n >= 1 {
		each := int(min(n, uint64(heads)))
		count := attn.CeilDiv(heads, each)
		each = attn.CeilDiv(heads, count) // even parts
		var out []Slab
		for h := 0; h < heads; h += each {
			out = append(out, Slab{Head0: h, Heads: min(each, heads-h), Rows: rows})
		}
		return out, nil
	}
	count := attn.CeilDiv(rows, int(rowsEach))
	each := attn.CeilDiv(rows, count)
	var out []Slab
	for h := range heads {
		for r := 0; r < rows; r += each {
			out = append(out, Slab{Head0: h, Heads: 1, Row0: r, Rows: min(each, rows-r)})
		}
	}
	return out, nil
}

// ScoreBytes is the size of all slabs together, false when it does not fit 64 bits.
func ScoreBytes(heads, rows int, rowBytes uint64) (uint64, bool) {
	hi, n := bits.Mul64(uint64(heads)*uint64(rows), rowBytes)
	return n, hi == 0
}

// maxSlab is the tuning parameter that lowers the largest slab.
const maxSlab = "max_slab"

// LargestSlab is the most bytes of a slab: what a buffer of the device can have, or max_slab if that is less.
func LargestSlab(c *kernel.Capabilities, t *kernel.Tuning) uint64 {
	l := &c.Facts.Limits
	most := l.MaxStorageBufferRange
	for _, m := range []uint64{l.MaxAllocationSize, l.MaxBufferSize, uint64(t.Get(maxSlab, 0))} {
		if m > 0 {
			most = min(most, m)
		}
	}
	return most
}

// PitchOf is the elements from row to row of a matrix of queries by keys.
func PitchOf(p *attn.Problem) int { return attn.CeilDiv(p.KeyLen, 8) * 8 }

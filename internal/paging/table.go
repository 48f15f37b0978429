package paging

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
)

// Entries writes entries of a sequence's table, those of a span from 0 to Width, to dst of its length: page numbers, and Dropped for pages
// that were given back and behind the last page. The error matches ErrUnknownSequence or attn.ErrArgument.
func (m *Manager) Entries(dst []int32, s Sequence, of attn.Span) error {
	at, err := m.find(s, "sequence")
	if err != nil {
		return err
	}
	if of.Begin < 0 || of.End < of.Begin || of.End > m.width {
		return attn.BadArgument("of", of, "must be a span of entries from 0 to %d", m.width)
	}
	if len(dst) != of.Len() {
		return attn.BadArgument("len(dst)", len(dst), "must be %d, the entries of %v", of.Len(), of)
	}
	m.write(dst, s.slot, at, of.Begin)
	return nil
}

// write writes entries of a table from one on, as many as there is room for.
func (m *Manager) write(dst []int32, slot int32, at *slot, from int) {
	n := 0
	if end := min(m.entries(at.length), from+len(dst)); end > from {
		n = copy(dst, m.table(slot)[from:end])
	}
	for i := n; i < len(dst); i++ {
		dst[i] = Dropped
	}
}

// Table writes the tables of sequences in the dense form, [len(seqs), width] in row-major order, to dst of that length: page numbers, and
// Dropped for pages that were given back and behind the last page. No table may be longer than width. The error matches ErrUnknownSequence
// or attn.ErrArgument, and dst is as it was.
func (m *Manager) Table(dst []int32, width int, seqs []Sequence) error {
	if width < 0 || width > m.width {
		return attn.BadArgument("width", width, "must be from 0 to %d", m.width)
	}
	if len(dst) != len(seqs)*width {
		return attn.BadArgument("len(dst)", len(dst), "must be %d, for %d tables of %d entries", len(seqs)*width, len(seqs), width)
	}
	for i, s := range seqs {
		at, err := m.find(s, "seqs")
		if err != nil {
			return fmt.Errorf("%w, entry %d", err, i)
		}
		if n := m.entries(at.length); n > width {
			return attn.BadArgument("width", width, "must be at least %d, the entries of seqs[%d]", n, i)
		}
	}
	for i, s := range seqs {
		m.write(dst[i*width:(i+1)*width], s.slot, &m.slots[s.slot], 0)
	}
	return nil
}

// Lengths writes the lengths of sequences in tokens, dropped ones among them, to dst of len(seqs). The error matches ErrUnknownSequence or
// attn.ErrArgument, and dst is as it was.
func (m *Manager) Lengths(dst []int32, seqs []Sequence) error {
	if len(dst) != len(seqs) {
		return attn.BadArgument("len(dst)", len(dst), "must be %d, the number of sequences", len(seqs))
	}
	if _, err := m.count(seqs); err != nil {
		return err
	}
	for i, s := range seqs {
		dst[i] = int32(m.slots[s.slot].length)
	}
	return nil
}

// count is the number of entries of the tables of sequences.
func (m *Manager) count(seqs []Sequence) (n int, err error) {
	for i, s := range seqs {
		at, err := m.find(s, "seqs")
		if err != nil {
			return 0, fmt.Errorf("%w, entry %d", err, i)
		}
		n += m.entries(at.length)
	}
	return n, nil
}

// Compressed writes the tables of sequences in the compressed form, FlashInfer's (Ye et al., "FlashInfer: Efficient and Customizable
// Attention Engine for LLM Inference Serving", 2025): sequence b has the pages indices[indptr[b]:indptr[b+1]] and last[b] tokens in the
// last of them, from 1 to PageSize, or 0 without pages. indptr has len(seqs)+1 elements, last len(seqs), indices at least as many as it
// returns, which is how many it writes. Pages that were given back are there as Dropped, so that positions stay what they are. The error
// matches ErrUnknownSequence or attn.ErrArgument, and nothing is written.
func (m *Manager) Compressed(indptr, indices, last []int32, seqs []Sequence) (int, error) {
	if len(indptr) != len(seqs)+1 {
		return 0, attn.BadArgument("len(indptr)", len(indptr), "must be %d, one more than there are sequences", len(seqs)+1)
	}
	if len(last) != len(seqs) {
		return 0, attn.BadArgument("len(last)", len(last), "must be %d, the number of sequences", len(seqs))
	}
	n, err := m.count(seqs)
	if err != nil {
		return 0, err
	}
	if n > len(indices) || n > MaxTokens { // a sequence may be there many times
		return 0, attn.BadArgument("len(indices)", len(indices), "must be at least %d, the entries of all tables, which %d is the most of",
			n, MaxTokens)
	}
	n, indptr[0] = 0, 0
	for i, s := range seqs {
		at := &m.slots[s.slot]
		pages := m.entries(at.length)
		m.write(indices[n:n+pages], s.slot, at, 0)
		n += pages
		indptr[i+1] = int32(n)
		if last[i] = 0; pages > 0 {
			last[i] = int32(at.length - (pages-1)<<m.shift)
		}
	}
	return n, nil
}

// Rows writes where tokens of a sequence stand, len(dst) of them from position first on: page·PageSize + row, the slot mapping of vLLM, or
// Dropped where the page was given back. After Append that is where the device writes the new ones. The error matches ErrUnknownSequence or
// attn.ErrArgument.
func (m *Manager) Rows(dst []int32, s Sequence, first int) error {
	at, err := m.find(s, "sequence")
	if err != nil {
		return err
	}
	if first < 0 || first > at.length-len(dst) {
		return attn.BadArgument("first", first, "must be at least 0 and leave %d tokens, len(dst), of %d", len(dst), at.length)
	}
	table := m.table(s.slot)
	for i := range dst {
		p := first + i
		if page := table[p>>m.shift]; page == Dropped {
			dst[i] = Dropped
		} else {
			dst[i] = page<<m.shift | int32(p&(m.PageSize()-1))
		}
	}
	return nil
}

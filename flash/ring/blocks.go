package ring

import (
	"crypto/sha256"
	"errors"
	"sync"

	"github.com/vkattn/vkattn/flash"
)

// Block masks. Every rank is given the mask of the whole. Chunks begin where blocks do, so that a launch's part of the mask is whole
// blocks; pairs of chunks without any block are left out, as those are that no query sees, and their blocks of keys do not travel. A part
// all of whose blocks are attended to is none.

// blockBits is a block mask, on the host.
type blockBits struct {
	shape [3]int // masks, rows and columns of blocks
	bits  []bool

	mu             sync.Mutex
	counts, before map[blockPart]int // of the latest schedule, and of the one before it
}

// blockPart is a launch's part of a mask: some entries of a batch, query heads, queries and keys of the whole. Without masks of entries, or
// of heads, all of them are one.
type blockPart struct{ entries, heads, queries, keys Span }

// blocksBetween is how far apart chunks can begin, of so many rows and parts: at multiples of a block and where these are short enough of a
// granule too.
func blocksBetween(n, parts, block int) int {
	if unit := lcm(granule, max(block, 1)); n >= parts*unit {
		return unit
	}
	return max(block, 1)
}

func lcm(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}

// checkBlocks says what of a problem's block mask cannot be cut into so many chunks of queries and of keys.
func checkBlocks(p *flash.Problem, queryParts, keyParts int) error {
	b := p.Blocks
	if err := blocksBesidePacked(p); err != nil {
		return err
	}
	switch {
	case b == flash.Blocks{}:
		return nil
	case p.QueryLen < queryParts*b.Queries:
		return badArgument("Problem.Blocks.Queries", b.Queries, "must be at most %d: chunks begin where blocks do, and %d queries are cut "+
			"into %d", p.QueryLen/queryParts, p.QueryLen, queryParts)
	case p.KeyLen < keyParts*b.Keys:
		return badArgument("Problem.Blocks.Keys", b.Keys, "must be at most %d: chunks begin where blocks do, and %d keys are cut into %d",
			p.KeyLen/keyParts, p.KeyLen, keyParts)
	case keyParts > 1 && (p.Dropout != 0 || byBits(p)) && blocksBetween(p.KeyLen, keyParts, b.Keys)%granule != 0:
		return badArgument("Problem.Blocks.Keys", b.Keys, "must begin together with multiples of %d, as draws of Dropout and bytes of a "+
			"Mask of bits do, once in each of %d chunks: KeyLen must be at least %d", granule, keyParts, keyParts*lcm(granule, b.Keys))
	}
	return nil
}

// blocksBesidePacked refuses a block mask of packed sequences that are cut: it is by places in a sequence, and chunks begin
// inside blocks of it.
func blocksBesidePacked(p *flash.Problem) error {
	if p.Blocks != (flash.Blocks{}) && p.Packed != (flash.Packed{}) {
		return badArgument("Problem.Blocks", p.Blocks, "must be zero beside Packed where keys are cut, for chunks begin inside "+
			"blocks; Shard.Over = Heads takes both")
	}
	return nil
}

// wholePart is all entries and heads, and some queries and keys, of a problem.
func wholePart(p *flash.Problem, queries, keys Span) blockPart {
	return blockPart{Span{0, p.Batch}, Span{0, p.Heads}, queries, keys}
}

// each calls f with the index of each bit of a part, mask by mask and row by row.
func (m *blockBits) each(p *flash.Problem, of blockPart, f func(i int)) {
	entries, heads := Span{0, 1}, Span{0, 1}
	if p.Blocks.PerBatch {
		entries = of.entries
	}
	perEntry := 1
	if p.Blocks.PerHead {
		heads, perEntry = of.heads, p.Heads
	}
	end := func(n, block int) int { return (n + block - 1) / block }
	for e := entries.Begin; e < entries.End; e++ {
		for h := heads.Begin; h < heads.End; h++ {
			for r := of.queries.Begin / p.Blocks.Queries; r < end(of.queries.End, p.Blocks.Queries); r++ {
				row := ((e*perEntry+h)*m.shape[1] + r) * m.shape[2]
				for c := of.keys.Begin / p.Blocks.Keys; c < end(of.keys.End, p.Blocks.Keys); c++ {
					f(row + c)
				}
			}
		}
	}
}

// next begins another schedule: with lengths each may have parts of its own, and counts would never end.
func (m *blockBits) next() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts, m.before = map[blockPart]int{}, m.counts
}

// count is how many blocks of a part are attended to, and how many it has. It is remembered until the next schedule but one.
func (m *blockBits) count(p *flash.Problem, of blockPart) (set, all int) {
	m.each(p, blockPart{of.entries, of.heads, Span{of.queries.Begin, of.queries.Begin + 1}, of.keys}, func(int) { all++ })
	all *= (of.queries.End+p.Blocks.Queries-1)/p.Blocks.Queries - of.queries.Begin/p.Blocks.Queries
	m.mu.Lock()
	defer m.mu.Unlock()
	set, known := m.counts[of]
	if known {
		return set, all
	}
	if set, known = m.before[of]; !known {
		m.each(p, of, func(i int) {
			if m.bits[i] {
				set++
			}
		})
	}
	m.counts[of] = set
	return set, all
}

// masked gives a launch its part of the block mask, and says whether there is anything to compute: until bits are known, everything.
func (s *schedule) masked(l *launch, of blockPart) (some bool) {
	p := &s.problem
	if p.Blocks == (flash.Blocks{}) {
		return true
	}
	l.blocks = of
	if s.blocks == nil {
		return true
	}
	set, all := s.blocks.count(p, of)
	if set == all {
		l.problem.Blocks = flash.Blocks{}
	}
	l.pairs *= float64(set) / float64(all)
	return set > 0
}

// attended says whether some block of a pair of chunks is attended to.
func (s *schedule) attended(q, k Span) bool {
	if s.blocks == nil {
		return true
	}
	set, _ := s.blocks.count(&s.problem, wholePart(&s.problem, q, k))
	return set > 0
}

// seenBlocks is what a plan knows of the block mask that it was given last.
type seenBlocks struct {
	given *flash.BlockMask
	bits  *blockBits
	sum   []byte // that ranks compare
	masks map[blockPart]*launchMask
}

// launchMask is the block mask of launches with a part, and in which pass it was last used.
type launchMask struct {
	mask *flash.BlockMask
	used int
}

func (m *launchMask) lastUsed() int { return m.used }
func (m *launchMask) close() error  { return m.mask.Close() }

// takeBlocks reads the block mask of a pass, unless it is the one of the pass before.
func (w *pass) takeBlocks(call string) error {
	p, have := &w.problem, &w.seen.blocks
	if p.Blocks == (flash.Blocks{}) || have.given != nil && have.given == w.of.Blocks {
		return nil
	}
	m, shape := w.of.Blocks, p.MaskShape()
	if m.Blocks() != p.Blocks {
		return badArgument(call+".Blocks", m, "must be the block mask of the problem of all tokens, of %v blocks of %d × %d", shape,
			p.Blocks.Queries, p.Blocks.Keys)
	}
	bits, err := m.Bits(w.ctx)
	if err != nil {
		return err
	}
	if n := shape[0] * shape[1] * shape[2]; len(bits) != n {
		return badArgument(call+".Blocks", m, "must be the block mask of the problem of all tokens, of %v blocks", shape)
	}
	if err := have.close(); err != nil {
		return err
	}
	packed := make([]byte, (len(bits)+7)/8)
	for i, bit := range bits {
		if bit {
			packed[i/8] |= 1 << (i % 8)
		}
	}
	sum := sha256.Sum256(packed)
	*have = seenBlocks{m, newBlockBits(shape, bits), sum[:], map[blockPart]*launchMask{}}
	return nil
}

func newBlockBits(shape [3]int, bits []bool) *blockBits {
	return &blockBits{shape: shape, bits: bits, counts: map[blockPart]int{}}
}

// close frees what was made for launches.
func (b *seenBlocks) close() (err error) {
	for _, m := range b.masks {
		err = errors.Join(err, m.close())
	}
	*b = seenBlocks{}
	return err
}

// blocksOf is a launch's block mask, made when it is first asked for; nil where it has none.
func (w *pass) blocksOf(l *launch) *flash.BlockMask {
	if w.err != nil || l.problem.Blocks == (flash.Blocks{}) {
		return nil
	}
	have := &w.seen.blocks
	if m := have.masks[l.blocks]; m != nil {
		m.used = w.passes
		return m.mask
	}
	var bits []bool
	have.bits.each(&w.problem, l.blocks, func(i int) { bits = append(bits, have.bits.bits[i]) })
	m, err := w.ring.dev.NewBlockMask(w.ctx, l.problem, bits)
	if err == nil {
		have.masks[l.blocks] = &launchMask{m, w.passes}
	}
	w.err = err
	return m
}

// BlockMask is the model of a problem whose block mask has these bits, as [flash.Device.NewBlockMask] takes them: of pairs it counts as
// many as there are blocks attended to of all, and what travels is blocks of keys of which some are. A model without knows of none that is
// left out. The error is an [*flash.ArgumentError] of a problem without Blocks, or of another number of bits.
func (m *Model) BlockMask(bits []bool) (*Model, error) {
	if m.hosts != nil {
		return m.withRing(m.hosts.ring.BlockMask(bits))
	}
	s := *m.sched
	shape := s.problem.MaskShape()
	if n := shape[0] * shape[1] * shape[2]; n != len(bits) || n == 0 {
		return nil, badArgument("len(bits)", len(bits), "must be %d: those of Problem.Blocks", n)
	}
	s.blocks = newBlockBits(shape, bits)
	return &Model{sched: &s, over: m.over}, nil
}

package attn

// Packed is how many rows the sequences of a packed problem have together: they lie one behind the other along the rows of tensors with one
// batch entry, and numbers on the device say where each begins. 0 rows: a batch entry each, in tensors of Batch entries.
type Packed struct{ Queries, Keys int }

// None says that all tensors lie as batches.
func (k Packed) None() bool { return k == Packed{} }

// along is the batch entries of a tensor and the rows of each, of sequences of n rows at most that have `packed` together.
func (p *Problem) along(n, packed int) (batch, rows int) {
	if packed > 0 {
		return 1, packed
	}
	return p.Batch, n
}

// QueryRows and KeyRows are the rows of a head of q and of k, all batch entries or sequences together.
func (p Problem) QueryRows() uint64 {
	b, n := p.along(p.QueryLen, p.Packed.Queries)
	return uint64(b) * uint64(n)
}
func (p Problem) KeyRows() uint64 {
	b, n := p.along(p.KeyLen, p.Packed.Keys)
	return uint64(b) * uint64(n)
}

// QueryBlocks is the most blocks of so many rows that the queries of a head are cut into, no block with rows of two batch entries or
// sequences; a row is one of `members` query heads of a query.
func (p *Problem) QueryBlocks(rows, members int) uint64 {
	return p.blocks(p.QueryLen*members, p.Packed.Queries*members, rows)
}

// KeyBlocks is the same of keys.
func (p *Problem) KeyBlocks(rows int) uint64 { return p.blocks(p.KeyLen, p.Packed.Keys, rows) }

// blocks: of n_b rows there are ⌈n_b/rows⌉ ≤ (n_b + rows − 1)/rows, and n_b add up to packed.
func (p *Problem) blocks(n, packed, rows int) uint64 {
	if packed > 0 {
		return (uint64(packed) + uint64(p.Batch)*uint64(rows-1)) / uint64(rows)
	}
	return uint64(CeilDiv(n, rows)) * uint64(p.Batch)
}

// InBatch is the problem with its sequences as entries of a padded batch.
func (p Problem) InBatch() Problem {
	p.KeyLengths, p.QueryLengths, p.Packed = true, true, Packed{}
	return p
}

// Flat is the problem with all packed queries in one batch entry: for what is done to each row by itself.
func (p Problem) Flat() Problem {
	if p.Packed.Queries > 0 {
		p.Batch, p.QueryLen, p.Packed.Queries = 1, p.Packed.Queries, 0
	}
	return p
}

// StartsShape is the shape of where sequences start, [1, 1, 1, Batch + 1].
func (p *Problem) StartsShape() [4]int { return [4]int{1, 1, 1, p.Batch + 1} }

func (p *Problem) hasQueryStarts() bool { return p.Packed.Queries > 0 }
func (p *Problem) hasKeyStarts() bool   { return p.Packed.Keys > 0 }

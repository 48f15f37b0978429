package flash

// slabArgs starts the arguments of a kernel of standard attention.
func (s *standardProgram) slabArgs(p *pushes, b *slab, d *draw) (baseAt int) {
	baseAt = p.begin(&passArgs().standard, &s.problem, d)
	p.putInt(argFirstMatrix, b.head0)
	p.putInt(argMatrices, b.heads)
	p.putInt(argFirstRow, b.row0)
	p.putInt(argRows, b.rows)
	p.putInt(argPitch, s.pitch)
	return baseAt
}

// scoresArgs are those of a product of rows: of x by y, q by k in forward.
func (s *standardProgram) scoresArgs(p *pushes, b *slab, x, y *operand, scale float64) (baseAt int) {
	var none operand
	baseAt = s.slabArgs(p, b, &draw{})
	p.putFloat(argScoreScale, scale)
	p.put(argOffsets, offsets(x, y, &none, &none))
	p.strides(argQ, x)
	p.strides(argK, y)
	return baseAt
}

// rowsArgs are those of a kernel that goes over a slab row by row, with a number for each, lse or dlse.
func (s *standardProgram) rowsArgs(p *pushes, b *slab, numbers *operand, d *draw) (baseAt int) {
	baseAt = s.slabArgs(p, b, d)
	p.putFloat(argScoreScale, s.problem.Scale)
	p.lse(numbers)
	return baseAt
}

// productArgs are those of a product of the matrix, or of the matrix turned over, by x, of P by v in forward, which gives y.
func (s *standardProgram) productArgs(p *pushes, b *slab, x, y *operand) (baseAt int) {
	var none operand
	baseAt = s.slabArgs(p, b, &draw{})
	p.put(argOffsets, offsets(&none, &none, x, y))
	p.strides(argV, x)
	p.strides(argO, y)
	return baseAt
}

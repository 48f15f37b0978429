package standard

import "github.com/vkattn/vkattn/internal/kernel"

// slabArgs starts the arguments of a kernel of standard attention.
func (s *Program) slabArgs(p *kernel.Pushes, b *Slab, d *kernel.Draw) (baseAt int) {
	baseAt = p.Begin(&kernel.PassArgs().Standard, &s.Problem, d)
	p.PutInt(kernel.ArgFirstMatrix, b.Head0)
	p.PutInt(kernel.ArgMatrices, b.Heads)
	p.PutInt(kernel.ArgFirstRow, b.Row0)
	p.PutInt(kernel.ArgRows, b.Rows)
	p.PutInt(kernel.ArgPitch, s.Pitch)
	return baseAt
}

// scoresArgs are those of a product of rows: of x by y, q by k in forward.
func (s *Program) scoresArgs(p *kernel.Pushes, b *Slab, x, y *kernel.Operand, scale float64) (baseAt int) {
	var none kernel.Operand
	baseAt = s.slabArgs(p, b, &kernel.Draw{})
	p.PutFloat(kernel.ArgScoreScale, scale)
	p.Put(kernel.ArgOffsets, kernel.Offsets(x, y, &none, &none))
	p.Strides(kernel.ArgQ, x)
	p.Strides(kernel.ArgK, y)
	return baseAt
}

// RowsArgs are those of a kernel that goes over a slab row by row, with a number for each, lse or dlse.
func (s *Program) RowsArgs(p *kernel.Pushes, b *Slab, numbers *kernel.Operand, d *kernel.Draw) (baseAt int) {
	baseAt = s.slabArgs(p, b, d)
	p.PutFloat(kernel.ArgScoreScale, s.Problem.Scale)
	p.LSE(numbers)
	return baseAt
}

// productArgs are those of a product of the matrix, or of the matrix turned over, by x, of P by v in forward, which gives y.
func (s *Program) productArgs(p *kernel.Pushes, b *Slab, x, y *kernel.Operand) (baseAt int) {
	var none kernel.Operand
	baseAt = s.slabArgs(p, b, &kernel.Draw{})
	p.Put(kernel.ArgOffsets, kernel.Offsets(&none, &none, x, y))
	p.Strides(kernel.ArgV, x)
	p.Strides(kernel.ArgO, y)
	return baseAt
}

package pass

import (
	"strconv"
	"strings"

	"github.com/vkattn/vkattn/internal/kernel"
)

// Slab is a part of matrices of queries by keys that stand in memory: rows [Row0, Row0+Rows) of each of the heads [Head0, Head0+Heads),
// counted over batch and heads together. It is one buffer. Of packed sequences heads are those of all of them together, and a matrix has
// the rows of the queries' tensor, all of them; columns count from the first key of the row's sequence.
type Slab struct {
	Head0, Heads int
	Row0, Rows   int
}

const kept, partOs, partLSEs = "kept ", "o of part ", "lse of part "

// Kept is what Bind.To calls matrix i of those that a forward pass keeps for the backward pass, or, where nobody wants them, has in its
// scratch memory i.
func Kept(i int) string { return kept + strconv.Itoa(i) }

// partO and partLSE are what it calls the tensors of pair i of those that are merged.
func partO(i int) string   { return partOs + strconv.Itoa(i) }
func partLSE(i int) string { return partLSEs + strconv.Itoa(i) }

// numbered is the number behind the rest of a name.
func numbered(name, rest string) (i int, ok bool) {
	number, ok := strings.CutPrefix(name, rest)
	if ok {
		i, err := strconv.Atoi(number)
		return i, err == nil
	}
	return 0, false
}

// OfSlab fills in the arguments of AsScores, AsRows and AsProduct.
func (a *Args) OfSlab(to *kernel.Pushes, x, y *kernel.Operand, d *kernel.Draw) (baseAt int) {
	if a.As != AsRows {
		d = &kernel.Draw{}
	}
	baseAt = to.Begin(&kernel.PassArgs().Standard, a.Problem, d)
	to.PutInt(kernel.ArgFirstMatrix, a.Slab.Head0)
	to.PutInt(kernel.ArgMatrices, a.Slab.Heads)
	to.PutInt(kernel.ArgFirstRow, a.Slab.Row0)
	to.PutInt(kernel.ArgRows, a.Slab.Rows)
	to.PutInt(kernel.ArgPitch, a.Pitch)
	switch a.As {
	case AsScores:
		to.PutFloat(kernel.ArgScoreScale, a.Problem.Scale)
		to.Put(kernel.ArgOffsets, kernel.Offsets(x, y, &none, &none))
		to.Strides(kernel.ArgQ, x)
		to.Strides(kernel.ArgK, y)
	case AsRows:
		to.PutFloat(kernel.ArgScoreScale, a.Problem.Scale)
		to.LSE(x)
	case AsProduct:
		to.PutFloat(kernel.ArgScoreScale, a.Factor)
		to.Put(kernel.ArgOffsets, kernel.Offsets(&none, &none, x, y))
		to.Strides(kernel.ArgV, x)
		to.Strides(kernel.ArgO, y)
	}
	return baseAt
}

package flash

import "fmt"

// Tilings come from result files and from callers as well as from plans, and the byte models walk over blocks: what is far from any
// kernel's numbers is refused, as it would overflow or take hours to count.
const (
	mostSide  = 1 << 16 // of a block, or numbers like the blocks of a run
	mostWalks = 1 << 25 // blocks that are counted one by one: tenths of a second
)

// block checks the sides of a block.
func block(name string, rows, columns int) error {
	if min(rows, columns) < 1 || max(rows, columns) > mostSide {
		return badArgument(name, fmt.Sprintf("%dx%d", rows, columns), "must have rows and columns from 1 to %d", mostSide)
	}
	return nil
}

// numbersOf checks what else a tiling has numbers of: parts, readers, tiles ahead.
func numbersOf(name string, values ...int) error {
	for _, v := range values {
		if v < 0 || v > mostSide {
			return badArgument(name, v, "must count parts, readers and the like from 0 to %d", mostSide)
		}
	}
	return nil
}

// countable refuses a problem that blocks of such sizes cut into too many.
func (p *Problem) countable(name string, blocks ...float64) error {
	sum := 0.0
	for _, n := range blocks {
		sum += n
	}
	if sum > mostWalks {
		return badArgument(name, fmt.Sprintf("%.3g blocks of %v", sum, *p), "must be at most %d, as they are counted one by one", mostWalks)
	}
	return nil
}

// blocksOf is the number of blocks into which n is cut, each of this number of rows. It is a float, which does not overflow.
func blocksOf(n, rows int) float64 { return float64(ceilDiv(n, max(rows, 1))) }

// check looks at the numbers before anything is computed with them.
func (t *Tiling) check(p *Problem) error {
	if err := block("Tiling", t.Rows, t.Keys); err != nil {
		return err
	}
	if err := numbersOf("Tiling", t.Parts, t.QReaders, t.KeysAhead, t.ValuesAhead, t.RowReaders, t.Fragment); err != nil {
		return err
	}
	if t.Algorithm == AlgorithmStandard {
		if err := block("Tiling", t.ProductRows, t.ProductKeys); err != nil {
			return err
		}
		return p.scoresCountable("Tiling", t.Rows, t.Keys, t.ScoresRun, t.ScoresUnit, t.SlabRows)
	}
	return p.countable("Tiling", blocksOf(p.QueryLen, t.Rows)*float64(p.group()*max(t.Parts, 1)))
}

// scoresCountable is for the blocks of a matrix of scores.
func (p *Problem) scoresCountable(name string, rows, keys, run, unit, slabRows int) error {
	if err := numbersOf(name, run, unit); err != nil {
		return err
	}
	if slabRows < 0 {
		return badArgument(name+".SlabRows", slabRows, "must not be negative")
	}
	slabs := 1.0
	if slabRows > 0 {
		slabs = blocksOf(p.QueryLen, slabRows)
	}
	return p.countable(name, float64(p.QueryLen), (slabs+blocksOf(p.QueryLen, rows))*blocksOf(p.KeyLen, max(run, 1)*keys))
}

func (t *BackwardTile) check(name string, rows int, p *Problem) error {
	if err := block(name, t.Rows, t.Columns); err != nil {
		return err
	}
	if err := numbersOf(name, t.RowReaders); err != nil {
		return err
	}
	return p.countable(name, blocksOf(rows, t.Rows))
}

func (s *StandardBackwardTiling) check(p *Problem) error {
	const name = "BackwardTiling.Standard"
	for _, b := range []struct {
		name string
		StandardBlock
	}{{".Weights", s.Weights}, {".Values", s.Values}, {".Queries", s.Queries}, {".Keys", s.Keys}} {
		if err := block(name+b.name, b.Rows, b.Columns); err != nil {
			return err
		}
	}
	if err := numbersOf(name, s.RowReaders); err != nil {
		return err
	}
	if s.SlabHeads < 0 {
		return badArgument(name+".SlabHeads", s.SlabHeads, "must not be negative")
	}
	if err := p.scoresCountable(name, s.Weights.Rows, s.Weights.Columns, s.Weights.Run, s.ScoresUnit, s.SlabRows); err != nil {
		return err
	}
	slabs, sums := 1.0, 2.0 // of dK and dV
	if s.SlabRows > 0 {
		slabs = blocksOf(p.QueryLen, s.SlabRows)
	}
	return p.countable(name, sums*slabs*p.heads()*blocksOf(p.KeyLen, min(s.Values.Rows, s.Keys.Rows)))
}

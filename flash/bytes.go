package flash

import (
	"fmt"
	"strconv"
	"strings"
)

// Work is what one step of a pass costs: operations, and the bytes that its workgroups load from and store to device memory.
//
// Bytes are counted where an invocation asks for them: a tile of K that a hundred workgroups stage counts a hundred times, and
// the lse of a row that 16 lanes load counts 16 times, although caches serve most of them. Elements beyond a tensor's edge do
// not count: there shaders load something inside in their place, and throw it away. Builds of the shaders that count what they
// move give the same numbers (shaders/counting).
type Work struct {
	Name    string  `json:"step"`
	Kernel  string  `json:"kernel,omitempty"` // the dispatches that do it: those whose label is this, or ends in _ and this; "": all
	FLOPs   float64 `json:"flops"`
	Read    float64 `json:"read_bytes"`
	Written float64 `json:"written_bytes"`
}

// Bytes is Read + Written.
func (w Work) Bytes() float64 { return w.Read + w.Written }

// Total adds steps up.
func Total(steps []Work) Work {
	t := Work{Name: "total"}
	for _, s := range steps {
		t.FLOPs += s.FLOPs
		t.Read += s.Read
		t.Written += s.Written
	}
	return t
}

// Tiling is how a kernel divides a problem, as far as its traffic depends on it.
type Tiling struct {
	Algorithm  Algorithm
	Rows, Keys int // queries of a workgroup and keys of a tile; of standard attention, the block of scores of a workgroup

	QAgain      bool    // flash: Q is loaded anew for every tile of keys, as it does not fit beside K
	VAgain      bool    // flash1: V is loaded anew for every block of queries, as it does not fit beside K
	Packed      bool    // flash: the query heads of a key head share a workgroup's rows
	Parts       int     // flash: parts of the keys, computed apart and combined; 0: 1
	Nonzero     float64 // blocksparse: share of blocks that are not zero
	SlabRows    int     // standard: rows of scores in a buffer; 0: all
	ProductRows int     // standard: block of the product, and keys of a step of its loop
	ProductKeys int
	ReadTwice   bool // standard: a row is too long for registers, and the softmax reads it twice
	LSE         bool // lse is written

	// What kernels load besides, and usually only they know.
	QReaders               int  // flash2: times that a workgroup loads its queries; 0: 1
	KeysAhead, ValuesAhead int  // flash2: tiles of K and of V fetched beyond the last that is used
	AheadAgain             bool // flash2: beyond the last tile of all, those are that tile again, not nothing
	NoneUnseen             bool // flash2: a block of queries that sees no key loads none, not one tile
	RowReaders             int  // flash1: invocations that read m and l of one row; 0: 1
	Fragment               int  // flash1: columns of a fragment; O, m and l pass from block to block for whole fragments and blocks of queries
	ScoresUnit             int  // standard: scores in which rows are stored; 0: 4
	ScoresRun              int  // standard: blocks of scores that share one load of their queries; 0: 1
}

// Algorithm is the order of loops that the byte model knows.
type Algorithm string

const (
	AlgorithmStandard    Algorithm = "standard"    // S and P in device memory: Θ(N·d + N²) bytes a head
	AlgorithmFlash1      Algorithm = "flash1"      // keys outside; O, m and l are read and written for each block of keys
	AlgorithmFlash2      Algorithm = "flash2"      // queries outside, O written once: Θ(N²·d²/M), M the memory that holds a tile
	AlgorithmBlockSparse Algorithm = "blocksparse" // flash2 × the share of nonzero blocks
)

// Tiling is how the plan's kernel divides the problem; false where the byte model does not know the kernel. lse counts as
// written, and of a block mask, which the plan does not know, every block: Nonzero is 1.
func (p *Plan) Tiling() (Tiling, bool) {
	if !p.made() {
		return Tiling{}, false
	}
	t, ok := p.programTiling()
	if ok && !p.problem.Blocks.none() {
		t.Algorithm, t.Nonzero = AlgorithmBlockSparse, 1
	}
	return t, ok
}

func (p *Plan) programTiling() (Tiling, bool) {
	switch prog := p.program.(type) {
	case *scalarProgram:
		return Tiling{Algorithm: AlgorithmFlash2, Rows: prog.shape.BR, Keys: prog.shape.BC, QAgain: !prog.shape.QResident, Parts: prog.shape.Parts, LSE: true}, true
	case *decodeProgram:
		s := &prog.shape
		return Tiling{Algorithm: AlgorithmFlash2, Rows: s.Rows, Keys: 1, Packed: true, NoneUnseen: true, Parts: s.Parts, QReaders: s.W * s.Lanes / s.LPR, LSE: true}, true
	case *matrixProgram:
		t := Tiling{Algorithm: AlgorithmFlash2, Rows: prog.shape.rows(), Keys: prog.shape.BC, Packed: prog.shape.Pack, LSE: true,
			Parts:      prog.shape.Parts,
			NoneUnseen: true, AheadAgain: !prog.shape.masks(&prog.problem) || !prog.shape.ragged(&prog.problem)}
		switch prog.shape.Prefetch {
		case 1:
			t.KeysAhead, t.ValuesAhead = 1, 1
		case 2:
			t.KeysAhead = 1
		case 3:
			t.KeysAhead, t.ValuesAhead = 2, 2
		}
		return t, true
	case *flash1Program:
		return Tiling{Algorithm: AlgorithmFlash1, Rows: prog.shape.BR, Keys: prog.shape.BC, VAgain: prog.shape.VC < prog.shape.BC, RowReaders: prog.shape.tx(), LSE: true}, true
	case *matrixFlash1Program:
		return Tiling{Algorithm: AlgorithmFlash1, Rows: prog.shape.rows(), Keys: prog.shape.BC, RowReaders: prog.shape.rowReaders(&prog.layout),
			Fragment: prog.shape.fragment.N, LSE: true}, true
	case *standardProgram:
		t := Tiling{Algorithm: AlgorithmStandard, LSE: true}
		t.Rows, t.Keys = prog.shape.scoresBlock()
		t.ProductRows, t.ProductKeys = prog.shape.productBlock()
		switch shape := prog.shape.(type) {
		case *standardTile:
			t.ReadTwice = shape.rowKeep == 0
		case *standardMatrixTile:
			t.Keys, t.ScoresRun = shape.scoresTile.tile(&shape.fragment), shape.scoresTile.run
			t.ReadTwice, t.ScoresUnit = shape.rowKeep == 0, 8
		}
		for _, s := range prog.slabs {
			t.SlabRows = max(t.SlabRows, s.rows)
		}
		return t, true
	}
	return Tiling{}, false
}

// ParseTiling reads a tiling from what Plan.Kernel and result files say, such as "matrix_forward 128x64 16x16x16 form 1". What
// a name does not tell is taken as usual: Q stays in place, nothing is fetched ahead, and of standard attention the product's
// block is the scores' with 32 keys a step. The error names the kernel.
func ParseTiling(algorithm Algorithm, kernel string) (Tiling, error) {
	kernel, parts := cutPartsSuffix(kernel)
	t := Tiling{Algorithm: algorithm, LSE: true, Parts: parts,
		Packed: strings.HasSuffix(kernel, " packed") || strings.HasPrefix(kernel, decodeKernel+" ")}
	for _, word := range strings.Fields(kernel) {
		if r, k, ok := parseTile(word); ok {
			t.Rows, t.Keys, t.ProductRows, t.ProductKeys = r, k, r, 32
			t.Fragment = fragmentColumns(algorithm, kernel)
			return t, nil
		}
	}
	return t, fmt.Errorf("flash: the kernel %q names no tile such as 64x32", kernel)
}

// fragmentColumns is Tiling.Fragment by a kernel's name: the 8 of 16x8x16 where flash1 ran on matrices.
func fragmentColumns(algorithm Algorithm, kernel string) int {
	for _, word := range strings.Fields(kernel) {
		if sides := strings.Split(word, "x"); algorithm == AlgorithmFlash1 && len(sides) == 3 {
			if n, err := strconv.Atoi(sides[1]); err == nil && n > 0 {
				return n
			}
		}
	}
	return 0
}

// parseTile reads "64x32".
func parseTile(word string) (rows, columns int, ok bool) {
	a, b, ok := strings.Cut(word, "x")
	r, err1 := strconv.Atoi(a)
	c, err2 := strconv.Atoi(b)
	return r, c, ok && err1 == nil && err2 == nil && r > 0 && c > 0
}

// Forward counts the steps of the forward pass of a problem, all heads together.
func (t Tiling) Forward(p Problem) ([]Work, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	if err := t.check(&p); err != nil {
		return nil, err
	}
	steps := p.forwardOperations()
	var bytes []Work
	switch t.Algorithm {
	case AlgorithmStandard:
		bytes = t.standardBytes(&p)
	case AlgorithmFlash1:
		bytes = t.flash1Bytes(&p)
	case AlgorithmFlash2:
		bytes = t.flash2Bytes(&p)
		if t.Parts > 1 {
			for i := range steps {
				steps[i].Kernel = partsKernel
			}
			combine := t.combineWork(&p)
			steps, bytes = append(steps, combine), append(bytes, combine)
		}
	case AlgorithmBlockSparse:
		if !(t.Nonzero >= 0 && t.Nonzero <= 1) {
			return nil, badArgument("Tiling.Nonzero", t.Nonzero, "must be from 0 to 1")
		}
		bytes = t.flash2Bytes(&p)
		for i := range bytes { // what is loaded once for each block of queries stays
			if bytes[i].Name == StepScores || bytes[i].Name == StepValues {
				q := 0.0
				if bytes[i].Name == StepScores && !t.QAgain {
					q = p.heads() * float64(p.QueryLen*p.HeadDim*p.DType.Size())
				}
				bytes[i].Read = q + (bytes[i].Read-q)*t.Nonzero
			}
		}
		for i := range steps {
			steps[i].FLOPs *= t.Nonzero
		}
	default:
		return nil, badArgument("Tiling.Algorithm", string(t.Algorithm), "must be one of the Algorithm constants")
	}
	for _, b := range bytes {
		for i := range steps {
			if steps[i].Name == b.Name {
				steps[i].Read, steps[i].Written = b.Read, b.Written
			}
		}
	}
	if t.Algorithm == AlgorithmStandard {
		kernels := map[string]string{StepScores: "scores", StepMask: "softmax", StepSoftmax: "softmax", StepDropout: "softmax", StepValues: "product"}
		for i := range steps {
			steps[i].Kernel = kernels[steps[i].Name]
		}
	}
	return steps, nil
}

// Names of the steps of a pass.
const (
	StepScores  = "QKᵀ"
	StepMask    = "mask"
	StepSoftmax = "softmax"
	StepDropout = "dropout"
	StepValues  = "PV"
	StepCombine = "combine" // keys in parts
)

// partsKernel is how labels of kernels end whose results combine_parts puts together.
const partsKernel = "forward"

// softmaxOps is what the softmax does with a score: the row's maximum, a difference, an exponential, the row's sum, and a
// division (in FlashAttention, of O at the end). maskOps and dropoutOps are a comparison, and a comparison and a product.
const (
	softmaxOps = 5
	maskOps    = 1
	dropoutOps = 2
)

func (p *Problem) heads() float64 { return float64(p.Batch) * float64(p.Heads) }

// forwardOperations counts as ForwardFLOPs does: causal with Nq = Nk is half of all pairs.
func (p *Problem) forwardOperations() []Work {
	pairs := p.heads() * p.paperPairs()
	steps := []Work{{Name: StepScores, FLOPs: 2 * pairs * float64(p.HeadDim)}}
	if p.Causal != CausalNone {
		steps = append(steps, Work{Name: StepMask, FLOPs: maskOps * pairs})
	}
	steps = append(steps, Work{Name: StepSoftmax, FLOPs: softmaxOps * pairs})
	if p.Dropout > 0 {
		steps = append(steps, Work{Name: StepDropout, FLOPs: dropoutOps * pairs})
	}
	return append(steps, Work{Name: StepValues, FLOPs: 2 * pairs * float64(p.ValueDim)})
}

// flash2Bytes: a block of queries loads Q once, walks over the tiles of keys that any of its queries may see, and writes O and
// lse once; each part of the keys does so with its share of the tiles, and writes O in fp32, in whole eights.
func (t Tiling) flash2Bytes(p *Problem) []Work {
	size := float64(p.DType.Size())
	group, matrices := 1, p.heads()
	if t.Packed {
		group, matrices = p.group(), float64(p.Batch)*float64(p.KeyHeads)
	}
	var q, k, v, o float64 // rows loaded and stored for one matrix
	mask, all, parts := p.mask(), p.QueryLen*group, max(t.Parts, 1)
	for first := 0; first < all; first += t.Rows {
		rows := min(t.Rows, all-first)
		tiles := mask.KeyTiles(first/group, (first+rows-1)/group-first/group+1, t.Keys).End
		if !t.NoneUnseen && parts == 1 {
			tiles = max(tiles, 1)
		}
		for part := range parts {
			begin := part*(tiles/parts) + min(part, tiles%parts) // the first parts have a tile more
			end := (part+1)*(tiles/parts) + min(part+1, tiles%parts)
			loads := max(t.QReaders, 1)
			if t.QAgain {
				loads = max(end-begin, boolInt(!t.NoneUnseen))
			}
			q += float64(rows * loads)
			k += float64(t.tileRows(p, begin, end, t.KeysAhead))
			v += float64(t.tileRows(p, begin, end, t.ValuesAhead))
			o += float64(rows)
		}
	}
	d, dv := float64(p.HeadDim)*size, float64(p.ValueDim)*size
	row, lse := dv, t.lseSize()
	if parts > 1 {
		row, lse = float64(4*8*ceilDiv(p.ValueDim, 8)), 4
	}
	return []Work{
		{Name: StepScores, Read: matrices * (q + k) * d},
		{Name: StepSoftmax, Written: matrices * o * lse},
		{Name: StepValues, Read: matrices * v * dv, Written: matrices * o * row},
	}
}

// combineWork: four columns of a row in all parts, with their statistics, become four columns of O; a product and a sum a number.
func (t Tiling) combineWork(p *Problem) Work {
	rows, fours := p.heads()*float64(p.QueryLen), float64(ceilDiv(p.ValueDim, 4))
	parts := rows * fours * float64(t.Parts)
	return Work{Name: StepCombine, Kernel: partsLabel, FLOPs: 8 * parts, Read: parts * (16 + 4),
		Written: rows * (float64(p.ValueDim*p.DType.Size()) + t.lseSize())}
}

// tileRows is the number of keys in tiles [begin, end), and in as many tiles after them as are fetched ahead.
func (t Tiling) tileRows(p *Problem, begin, end, ahead int) int {
	if begin == end {
		return 0
	}
	n := min((end+ahead)*t.Keys, p.KeyLen) - begin*t.Keys
	if t.AheadAgain {
		n += t.Keys * max(0, end+ahead-ceilDiv(p.KeyLen, t.Keys))
	}
	return n
}

func (t Tiling) lseSize() float64 {
	if t.LSE {
		return 4
	}
	return 0
}

// flash1Bytes: a block of keys loads K and V once and walks over the blocks of queries that see any of it, the first over all.
// Each visit loads Q; all but a block's first read O, m and l; all but its last write them, O in fp32 and in whole pieces of four
// where the output has fewer bits, or in whole fragments on matrices; the last writes the output and lse.
func (t Tiling) flash1Bytes(p *Problem) []Work {
	size := float64(p.DType.Size())
	between := float64(16 * ceilDiv(p.ValueDim, 4)) // bytes of a row of O from one block of keys to the next
	if p.DType == F32 {
		between = float64(4 * p.ValueDim)
	}
	if t.Fragment > 0 {
		between = float64(4 * t.Fragment * ceilDiv(p.ValueDim, t.Fragment))
	}
	mask := p.mask()
	seen := max(1, ceilDiv(p.mostKeys(), t.Keys)) // blocks of keys that any query sees, the first in any case
	kv := float64(min(seen*t.Keys, p.KeyLen))
	v := kv                   // rows of V loaded
	var visits, again float64 // rows, of all visits and of those but the first
	if t.VAgain {
		v = 0
	}
	for first := 0; first < p.QueryLen; first += t.Rows {
		rows := min(t.Rows, p.QueryLen-first)
		n := max(1, mask.KeyTiles(first, rows, t.Keys).End)
		visits += float64(rows * n)
		if t.Fragment > 0 {
			again += float64(t.Rows * (n - 1))
		} else {
			again += float64(rows * (n - 1))
		}
		if t.VAgain {
			v += float64(min(n*t.Keys, p.KeyLen))
		}
	}
	n, rows, d, dv := p.heads(), float64(p.QueryLen), float64(p.HeadDim)*size, float64(p.ValueDim)*size
	const statistics = 8 // m and l, fp32
	readers := float64(max(t.RowReaders, 1))
	return []Work{
		{Name: StepScores, Read: n * (visits + kv) * d},
		{Name: StepSoftmax, Read: n * again * statistics * readers, Written: n * (again*statistics + rows*t.lseSize())},
		{Name: StepValues, Read: n * (v*dv + again*between), Written: n * (again*between + rows*dv)},
	}
}

// standardBytes: three kernels with the matrix of scores between them.
func (t Tiling) standardBytes(p *Problem) []Work {
	size := float64(p.DType.Size())
	loaded, scores := p.scoresTraffic(t.Rows, t.Keys, t.ScoresRun, t.ScoresUnit, t.SlabRows)
	var read, written float64 // by the softmax
	mask, zero := p.mask(), t.ProductRows+t.ProductKeys
	for i := range p.QueryLen {
		seen := mask.KeysOf(i).End
		pieces := quad(seen)
		passes := 1
		if t.ReadTwice {
			passes = 2
		}
		read += float64(pieces * passes)
		written += float64(max(pieces, quad(min(p.scoresPitch(), seen+min(zero, p.scoresPitch())))))
	}
	weights, values := p.productTraffic(t.ProductRows, t.ProductKeys, t.SlabRows)
	h, rows, d, dv := p.heads(), float64(p.QueryLen), float64(p.HeadDim)*size, float64(p.ValueDim)*size
	return []Work{
		{Name: StepScores, Read: h * loaded * d, Written: h * scores * size},
		{Name: StepSoftmax, Read: h * read * size, Written: h * (written*size + rows*t.lseSize())},
		{Name: StepValues, Read: h * (weights*size + values*dv), Written: h * rows * dv},
	}
}

// scoresPitch is the elements from row to row of standard attention's matrices.
func (p *Problem) scoresPitch() int { return ceilDiv(p.KeyLen, 8) * 8 }

// quad is the elements of whole pieces of four.
func quad(n int) int { return ceilDiv(n, 4) * 4 }

// slabsOf calls f for each slab of slabRows rows of a matrix; 0: all of them are one slab.
func (p *Problem) slabsOf(slabRows int, f func(row0, end int)) {
	if slabRows < 1 {
		slabRows = p.QueryLen
	}
	for row0 := 0; row0 < p.QueryLen; row0 += slabRows {
		f(row0, min(row0+slabRows, p.QueryLen))
	}
}

// scoresTraffic: runs of blocks of a product like QKᵀ, those but that no query sees, load their rows once and their columns (in rows
// of either input) and store in pieces of unit elements (0: 4), for one head.
func (p *Problem) scoresTraffic(rows, keys, run, unit, slabRows int) (loaded, stored float64) {
	mask, unit, run := p.mask(), max(unit, 4), max(run, 1)*keys
	p.slabsOf(slabRows, func(row0, end int) {
		for first := row0; first < end; first += rows {
			n := min(rows, end-first)
			seen := mask.KeysOf(first + n - 1).End
			for col := 0; col < seen; col += run {
				cols := min(ceilDiv(min(run, seen-col), keys)*keys, p.KeyLen-col)
				loaded += float64(n + cols)
				stored += float64(n * ceilDiv(cols, unit) * unit)
			}
		}
	})
	return loaded, stored
}

// productTraffic: blocks of a product like PV walk over the keys that any of their rows sees. They load elements of P and rows of V,
// for one head.
func (p *Problem) productTraffic(rows, keys, slabRows int) (weights, values float64) {
	mask := p.mask()
	p.slabsOf(slabRows, func(row0, end int) {
		for first := row0; first < end; first += rows {
			n := min(rows, end-first)
			walked := keys * max(1, mask.KeyTiles(first, n, keys).End)
			weights += float64(n * min(walked, p.scoresPitch()))
			values += float64(min(walked, p.KeyLen))
		}
	})
	return weights, values
}

// LeastForwardBytes is what a forward pass cannot do without, were the caches endless: inputs read and outputs written once;
// in standard attention, whose kernels are separate, the matrix of scores four times as well: written, read, written as
// weights, read.
func (p Problem) LeastForwardBytes(algorithm Algorithm) (float64, error) {
	p, err := p.Normalize()
	if err != nil {
		return 0, err
	}
	size := float64(p.DType.Size())
	var n float64
	for _, shape := range [][4]int{p.QShape(), p.KShape(), p.VShape(), p.OShape()} {
		e, _ := elements(shape) // Normalize has checked it
		n += float64(e) * size
	}
	n += p.heads() * float64(p.QueryLen) * 4
	if algorithm == AlgorithmStandard {
		n += 4 * p.heads() * p.paperPairs() * size
	}
	return n, nil
}

package traffic

import "github.com/vkattn/vkattn/internal/attn"

// Standard is standard attention: scores, softmax and product are kernels of their own, with the matrix of scores in device memory between
// them: Θ(N·d + N²) bytes a head.
type Standard struct {
	Scores   Product `json:"scores"`              // columns: keys
	Softmax  Rows    `json:"softmax"`             //
	Product  Product `json:"product"`             // columns: keys of a step of its loop
	SlabRows int     `json:"slab_rows,omitempty"` // rows of scores in a buffer; 0: all
}

// Product is a kernel that makes a product block by block, each in a workgroup.
type Product struct {
	Label   string `json:"label"`
	Rows    int    `json:"rows"`           // of a block
	Columns int    `json:"columns"`        // of a block, or of a step of its loop
	Run     int    `json:"run,omitempty"`  // of scores: blocks that share one load of their rows; 0: 1
	Unit    int    `json:"unit,omitempty"` // of scores: elements in which rows are stored; 0: 4
	// of products: workgroups side by side, each of which loads the matrix; 0: 1
	Across int `json:"across,omitempty"`
}

// Rows is a kernel that goes over the rows of the matrix.
type Rows struct {
	Label     string `json:"label"`
	ReadTwice bool   `json:"read_twice,omitempty"` // a row is too long for registers, and is read twice
	Readers   int    `json:"readers,omitempty"`    // backward: invocations that load dlse of one row; 0: 1
}

// Kind is "standard".
func (Standard) Kind() string { return "standard" }

// Steps counts a forward pass.
func (m Standard) Steps(p attn.Problem, c Call) ([]Step, error) {
	const name = "Standard"
	if err := unmasked(name, p); err != nil {
		return nil, err
	}
	if err := block(name+".Product", m.Product.Rows, m.Product.Columns); err != nil {
		return nil, err
	}
	if err := m.Scores.scoresCountable(name+".Scores", p, m.SlabRows); err != nil {
		return nil, err
	}
	size := float64(p.DType.Size())
	loaded, scores := m.Scores.scores(p, m.SlabRows)
	var read, written float64 // by the softmax
	mask, zero := p.Mask(), p.Mask().ReadBehind(m.Product.Rows, m.Product.Columns)
	for i := range p.QueryLen {
		seen := mask.KeysOf(i).End
		pieces := quad(seen)
		read += float64(pieces) * (1 + one(m.Softmax.ReadTwice))
		written += float64(max(pieces, quad(min(pitch(p), seen+min(zero, pitch(p))))))
	}
	weights, values := m.Product.product(p, m.SlabRows)
	h, rows := p.AllHeads(), float64(p.QueryLen)
	d, dv := rowBytes(p)
	kernel := func(step string) string {
		switch step {
		case StepScores:
			return m.Scores.Label
		case StepValues:
			return m.Product.Label
		}
		return m.Softmax.Label
	}
	return put(forward(p, 1), kernel,
		Step{Name: StepScores, Read: h * loaded * d, Written: h * scores * size},
		Step{Name: StepSoftmax, Read: h * read * size, Written: h * (written*size + rows*c.lse())},
		Step{Name: StepValues, Read: h * (weights*size + values*dv), Written: h * rows * dv}), nil
}

// pitch is the elements from row to row of the matrices.
func pitch(p attn.Problem) int { return attn.CeilDiv(p.KeyLen, 8) * 8 }

// quad is the elements of whole pieces of four.
func quad(n int) int { return attn.CeilDiv(n, 4) * 4 }

// slabs calls f for each slab of slabRows rows of a matrix; 0: all of them are one slab.
func slabs(p attn.Problem, slabRows int, f func(row0, end int)) {
	if slabRows < 1 {
		slabRows = p.QueryLen
	}
	for row0 := 0; row0 < p.QueryLen; row0 += slabRows {
		f(row0, min(row0+slabRows, p.QueryLen))
	}
}

// scoresCountable checks a product like QKᵀ.
func (b *Product) scoresCountable(name string, p attn.Problem, slabRows int) error {
	if err := block(name, b.Rows, b.Columns); err != nil {
		return err
	}
	if err := numbers(name, b.Run, b.Unit); err != nil {
		return err
	}
	if slabRows < 0 {
		return bad("SlabRows", slabRows, "must not be negative")
	}
	slabs := 1.0
	if slabRows > 0 {
		slabs = blocksOf(p.QueryLen, slabRows)
	}
	return countable(name, p, float64(p.QueryLen), (slabs+blocksOf(p.QueryLen, b.Rows))*blocksOf(p.KeyLen, max(b.Run, 1)*b.Columns))
}

// scores: runs of blocks of a product like QKᵀ, those but that no query sees, load their rows once and their columns (in rows of either
// input) and store in pieces of Unit elements, for one head.
func (b *Product) scores(p attn.Problem, slabRows int) (loaded, stored float64) {
	mask, unit, run := p.Mask(), max(b.Unit, 4), max(b.Run, 1)*b.Columns
	slabs(p, slabRows, func(row0, end int) {
		for first := row0; first < end; first += b.Rows {
			n := min(b.Rows, end-first)
			walk := mask.KeyTiles(first, n, b.Columns)
			from, seen := walk.Begin*b.Columns, walk.End*b.Columns
			for col := from; col < seen; col = col/run*run + run {
				cols := min(col/run*run+run, seen, p.KeyLen) - col
				loaded += float64(n + cols)
				stored += float64(n * attn.CeilDiv(cols, unit) * unit)
			}
		}
	})
	return loaded, stored
}

// product: blocks of a product like PV walk over the keys that any of their rows sees. They load elements of P and rows of V, for one head.
func (b *Product) product(p attn.Problem, slabRows int) (weights, values float64) {
	mask := p.Mask()
	slabs(p, slabRows, func(row0, end int) {
		for first := row0; first < end; first += b.Rows {
			n := min(b.Rows, end-first)
			walk := mask.KeyTiles(first, n, b.Columns)
			from, to := b.Columns*walk.Begin, b.Columns*max(walk.Begin+1, walk.End)
			weights += float64(n * (min(to, pitch(p)) - min(from, pitch(p))))
			values += float64(min(to, p.KeyLen) - min(from, p.KeyLen))
		}
	})
	return weights * float64(max(b.Across, 1)), values
}

package ref

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/flash/score"
)

// Causal says which keys a query may see.
type Causal int

// With the bottom-right alignment the last query sees every key (j ≤ i + Nk − Nq); with the top-left
// one the first query sees exactly the first key (j ≤ i).
const (
	NotCausal Causal = iota
	BottomRight
	TopLeft
)

// Options is everything about attention that is not q, k or v. The zero value is plain attention
// with scale 1/√D.
type Options struct {
	Scale   float64 // 0 means 1/√D; may be negative
	Softcap float64 // 0 means none
	Causal  Causal
	Window  *Window
	Slopes  []float32 // ALiBi, [Hq]
	Mask    *Mask
	Blocks  *BlockMask
	Lists   *Lists
	Sinks   []float32 // [Hq]
	Dropout *Dropout
	Biases

	Score     score.Function     // after softcap and slopes, before the bias
	Sees      score.MaskFunction // keys that a query sees besides
	Captured  score.Data         // by the two
	KeyLens   []int              // [B], from 0 to Nk: keys from there on are padding, which nobody sees; nil: none is
	QueryLens []int              // [B], from 0 to Nq: queries from there on are padding, which sees nothing, no sink either; nil: none is
	// Offset is how many keys lie before that of query 0, any sign: the diagonal of [BottomRight], [Window] and ALiBi is key i + Offset.
	// nil: the keys of the batch entry, as many as are no padding, minus its queries.
	Offset *int
}

// Window allows i + Nk − Nq − Left ≤ j ≤ i + Nk − Nq + Right, inclusive; −1 is unbounded. See Options.Offset.
type Window struct{ Left, Right int }

// Mask is a boolean [B|1, H|1, N|1, M] array over (batch, query head, query, key): true may attend.
type Mask struct {
	B, H, N, M int
	Data       []bool
}

// Allows reports whether the mask lets query i see key j.
func (m *Mask) Allows(b, h, i, j int) bool {
	row := (first(b, m.B)*m.H+first(h, m.H))*m.N + first(i, m.N)
	return m.Data[row*m.M+first(j, m.M)]
}

// BlockMask holds one bit per (BQ × BK) tile of scores: [B|1, H|1, ⌈Nq/BQ⌉, ⌈Nk/BK⌉].
type BlockMask struct {
	B, H, Rows, Cols int
	BQ, BK           int
	Data             []bool
}

// Allows reports whether the tile that holds (i, j) is to be computed.
func (m *BlockMask) Allows(b, h, i, j int) bool {
	return m.Data[((first(b, m.B)*m.H+first(h, m.H))*m.Rows+i/m.BQ)*m.Cols+j/m.BK]
}

// Problem is options with the inputs that they belong to.
type Problem struct {
	Options
	Q, K, V Tensor

	score score.Evaluator     // Score with what it captures
	sees  score.MaskEvaluator // Sees likewise

	listed []int32 // the lists, each sorted

	captured map[string]capturedGradient // by name: how Score depends on what has a gradient

	sequenceIndex int // of a packed sequence: what dropout counts as batch, and functions see

	nudge     float32 // see Nudged
	roundOnce bool    // see RoundedOnce
}

// group is the number of query heads that share a key head.
func (p *Problem) group() int { return p.Q.H / p.K.H }

// scale is the factor before softcap, defaults filled in.
func (p *Problem) scale() float64 {
	if p.Scale != 0 {
		return p.Scale
	}
	return 1 / math.Sqrt(float64(p.Q.D))
}

// Check says what is wrong with the problem, if anything, and makes it ready to be computed.
func (p *Problem) Check() error {
	for _, t := range []struct {
		name string
		t    Tensor
	}{{"q", p.Q}, {"k", p.K}, {"v", p.V}} {
		if err := t.t.check(t.name); err != nil {
			return err
		}
	}
	q, k, v := p.Q, p.K, p.V
	switch {
	case q.B != k.B || k.B != v.B:
		return fmt.Errorf("ref: batch of q, k, v is %d, %d, %d: want the same", q.B, k.B, v.B)
	case k.H != v.H || q.H%k.H != 0:
		return fmt.Errorf("ref: heads of q, k, v are %d, %d, %d: want k = v and q a multiple of them", q.H, k.H, v.H)
	case k.N != v.N:
		return fmt.Errorf("ref: k has %d rows and v has %d: want the same", k.N, v.N)
	case q.D != k.D:
		return fmt.Errorf("ref: head dim of q is %d and of k %d: want the same", q.D, k.D)
	case math.IsNaN(p.Scale) || math.IsInf(p.Scale, 0):
		return fmt.Errorf("ref: scale is %v: want a finite number", p.Scale)
	case !(p.Softcap >= 0) || math.IsInf(p.Softcap, 0):
		return fmt.Errorf("ref: softcap is %v: want 0 (none) or a positive number", p.Softcap)
	case p.Slopes != nil && len(p.Slopes) != q.H:
		return fmt.Errorf("ref: %d ALiBi slopes for %d heads", len(p.Slopes), q.H)
	case p.Sinks != nil && len(p.Sinks) != q.H:
		return fmt.Errorf("ref: %d sinks for %d heads", len(p.Sinks), q.H)
	}
	if err := p.checkBiases(); err != nil {
		return err
	}
	if m := p.Mask; m != nil {
		if !broadcasts(m.B, q.B) || !broadcasts(m.H, q.H) || !broadcasts(m.N, q.N) || !broadcasts(m.M, k.N) ||
			len(m.Data) != m.B*m.H*m.N*m.M {
			return fmt.Errorf("ref: mask [%d %d %d %d] of %d elements does not broadcast to [%d %d %d %d]",
				m.B, m.H, m.N, m.M, len(m.Data), q.B, q.H, q.N, k.N)
		}
	}
	if m := p.Blocks; m != nil {
		if m.BQ < 1 || m.BK < 1 || !broadcasts(m.B, q.B) || !broadcasts(m.H, q.H) || m.Rows != (q.N+m.BQ-1)/m.BQ ||
			m.Cols != (k.N+m.BK-1)/m.BK || len(m.Data) != m.B*m.H*m.Rows*m.Cols {
			return fmt.Errorf("ref: block mask [%d %d %d %d] of %d×%d tiles does not cover %d × %d heads of %d×%d scores",
				m.B, m.H, m.Rows, m.Cols, m.BQ, m.BK, q.B, q.H, q.N, k.N)
		}
	}
	var err error
	if p.score, err = p.Score.Bind(p.Captured); err != nil {
		return fmt.Errorf("ref: %w", err)
	}
	if p.sees, err = p.Sees.Bind(p.Captured); err != nil {
		return fmt.Errorf("ref: %w", err)
	}
	if err = p.bindGradients(); err != nil {
		return fmt.Errorf("ref: %w", err)
	}
	if p.KeyLens != nil && len(p.KeyLens) != q.B {
		return fmt.Errorf("ref: %d lengths of keys for a batch of %d", len(p.KeyLens), q.B)
	}
	for b, n := range p.KeyLens {
		if n < 0 || n > k.N {
			return fmt.Errorf("ref: %d keys in batch entry %d: want from 0 to %d", n, b, k.N)
		}
	}
	if p.QueryLens != nil && len(p.QueryLens) != q.B {
		return fmt.Errorf("ref: %d lengths of queries for a batch of %d", len(p.QueryLens), q.B)
	}
	for b, n := range p.QueryLens {
		if n < 0 || n > q.N {
			return fmt.Errorf("ref: %d queries in batch entry %d: want from 0 to %d", n, b, q.N)
		}
	}
	if err := p.bindLists(); err != nil {
		return err
	}
	if p.Dropout != nil {
		return p.Dropout.check()
	}
	return nil
}

// capturedGradient is the derivative with respect to a captured tensor of so many elements.
type capturedGradient struct {
	score.GradientEvaluator
	elements int
}

// bindGradients finds the captured tensors that have a gradient.
func (p *Problem) bindGradients() error {
	all, err := score.Code{Score: p.Score}.Captures()
	if err != nil {
		return err
	}
	p.captured = nil
	for _, t := range all {
		by, err := p.Score.Gradient(t.Name)
		if t.Table() || err != nil { // integers, or read at two indices
			continue
		}
		at, err := by.Bind(p.Captured)
		if err != nil {
			return err
		}
		if p.captured == nil {
			p.captured = map[string]capturedGradient{}
		}
		p.captured[t.Name] = capturedGradient{at, t.Elements()}
	}
	return nil
}

// keys is the number of keys of a batch entry that are no padding.
func (p *Problem) keys(b int) int {
	if p.KeyLens != nil {
		return p.KeyLens[b]
	}
	return p.K.N
}

// queries is the number of queries of a batch entry that are no padding.
func (p *Problem) queries(b int) int {
	if p.QueryLens != nil {
		return p.QueryLens[b]
	}
	return p.Q.N
}

// diagonal is the position among the keys of query i.
func (p *Problem) diagonal(b, i int) int {
	if p.Offset != nil {
		return i + *p.Offset
	}
	return i + p.keys(b) - p.queries(b)
}

func broadcasts(length, to int) bool { return length == 1 || length == to }

// Allows says whether query i may attend to key j (padding, block mask, list, causal order, window and mask).
func (p *Problem) Allows(b, h, i, j int) bool {
	diagonal := p.diagonal(b, i)
	switch {
	case p.Causal == BottomRight && j > diagonal,
		p.Causal == TopLeft && j > i,
		j >= p.keys(b), i >= p.queries(b):
		return false
	}
	if w := p.Window; w != nil {
		if w.Left >= 0 && j < diagonal-w.Left || w.Right >= 0 && j > diagonal+w.Right {
			return false
		}
	}
	if p.Blocks != nil && !p.Blocks.Allows(b, h, i, j) {
		return false
	}
	if !p.lists(b, h, i, j) {
		return false
	}
	if p.Mask != nil && !p.Mask.Allows(b, h, i, j) {
		return false
	}
	return p.sees.Allows(p.point(Row{b, h, i}, j, 0))
}

// point is a pair and its score as score functions see it.
func (p *Problem) point(r Row, j int, s float64) score.Point {
	return score.Point{S: s, Batch: p.sequenceIndex + r.B, Head: r.H, Query: r.I, Key: j, Position: r.I + p.keys(r.B) - p.queries(r.B)}
}

// checkRows is Check, and that every row exists.
func (p *Problem) checkRows(rows []Row) error {
	if err := p.Check(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.B < 0 || r.B >= p.Q.B || r.H < 0 || r.H >= p.Q.H || r.I < 0 || r.I >= p.Q.N {
			return fmt.Errorf("ref: row %+v is outside q [%d %d %d]", r, p.Q.B, p.Q.H, p.Q.N)
		}
	}
	return nil
}

package matrix

import (
	"fmt"
	"math"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// WideTile is the shape of the work of matrix_forward_wide; shaders/matrix/matrix_forward_wide.comp says what each number means. A
// workgroup of W subgroups, in teams of Split, takes W/Split·RM·M queries, and tiles of Split·CK keys.
type WideTile struct {
	Fragment      kernel.Fragment
	Form          int
	Words         bool // weights are stored by pairs of neighbours
	W             int  // subgroups of a workgroup
	Split         int  // of them that share rows, and split keys of S and columns of O
	RM            int  // row fragments of a subgroup
	CK            int  // keys of which a subgroup computes the scores
	Slice         int  // columns of Q and K that are staged together
	VKeys         int  // keys of V that are
	Prefetch      int  // 0 none, 1 the next step in registers, 3 and two steps in shared memory
	HeadsTogether int  // heads whose blocks of one place follow one another
	Pack          bool // the query heads of a key head share a tile
	Parts         int  // of the keys, each for workgroups of its own
}

// wideFields are the numbers of a WideTile that rows of tables name.
var wideFields = kernel.Fields[WideTile]{
	{Name: "w", Of: func(t *WideTile) any { return &t.W }},
	{Name: "split", Constant: "SPLIT", Of: func(t *WideTile) any { return &t.Split }},
	{Name: "rm", Constant: "RM", Of: func(t *WideTile) any { return &t.RM }},
	{Name: "ck", Constant: "CK", Of: func(t *WideTile) any { return &t.CK }},
	{Name: "slice", Constant: "SLICE", Of: func(t *WideTile) any { return &t.Slice }},
	{Name: "v_keys", Constant: "V_KEYS", Of: func(t *WideTile) any { return &t.VKeys }},
	{Name: "prefetch", Constant: "PREFETCH", Of: func(t *WideTile) any { return &t.Prefetch }},
	{Name: "heads_together", Constant: "HEADS_TOGETHER", Of: func(t *WideTile) any { return &t.HeadsTogether }, Open: true},
}

// wideCutFields are those that no row names, since they follow from the problem.
var wideCutFields = kernel.Fields[WideTile]{
	{Name: "pack", Constant: "PACK", Of: func(t *WideTile) any { return &t.Pack }},
	{Name: "parts", Of: func(t *WideTile) any { return &t.Parts }},
}

func (t *WideTile) Rows() int    { return t.W / t.Split * t.RM * t.Fragment.M }
func (t *WideTile) Keys() int    { return t.Split * t.CK }
func (t *WideTile) Threads() int { return t.W * t.Fragment.Lanes }

func (t *WideTile) String() string {
	s := fmt.Sprintf("%dx%d in teams of %d, %v form %d", t.Rows(), t.Keys(), t.Split, t.Fragment, t.Form)
	if t.Pack {
		s += " packed"
	}
	return s + kernel.PartsSuffix(t.Parts)
}

// wideShared is the lengths of the shader's shared arrays and the pitches of their rows, in units of 16 bytes except for X, which counts
// floats. The shader sizes its arrays with these numbers.
type wideShared struct {
	SPitch, VPitch, PPitch int // rows of Q and K, of V, and of weights
	Step, Staged           int // what is staged together, and all of it
	P, X                   int
}

func (s wideShared) Bytes() int { return 16*(s.Staged+s.P) + 4*s.X + 4*2 }

// leastExchange is the least length of the array of floats, for the reason of leastDrop.
const leastExchange = 64

// Shared lays shared memory out for a value dimension dv; D passes through it in slices. Rows have an odd pitch, which spreads them over
// the banks.
func (t *WideTile) Shared(_, dv int) wideShared {
	f := &t.Fragment
	fragments := attn.CeilDiv(attn.CeilDiv(dv, f.N), t.Split) * t.Split
	s := wideShared{SPitch: t.Slice/8 | 1, VPitch: fragments*f.N/8 | 1, PPitch: t.Keys()/8 | 1}
	s.Step = max((t.Rows()+t.Keys())*s.SPitch, t.VKeys*s.VPitch)
	s.Staged = s.Step
	if t.Prefetch == 3 {
		s.Staged *= 2
	}
	s.Staged = max(s.Staged, t.W*f.M*(f.N/4|1))
	s.P = t.Rows() * s.PPitch
	rows := t.Split * t.Rows() // of statistics
	switch {
	case t.Form == kernel.FormShared:
		s.X = t.Rows()*t.Keys() + 4*rows + t.W*f.M*f.N
	case t.Words:
		s.X = rows
	default:
		s.X = t.Rows()*t.Keys() + rows
	}
	s.X = max(s.X, leastExchange)
	return s
}

// Check gives the rule that a tile breaks on a device, "" when it breaks none.
func (t *WideTile) Check(d, dv int, c *kernel.Capabilities) string {
	f := &t.Fragment
	switch {
	case t.W < 1 || t.RM < 1 || t.Split < 1 || t.W%t.Split != 0:
		return fmt.Sprintf("w = %d and rm = %d must be at least 1, and split = %d a divisor of w", t.W, t.RM, t.Split)
	case t.CK < 1 || t.CK%f.N != 0 || t.Keys()%f.K != 0:
		return fmt.Sprintf("ck = %d must be a multiple of the fragment's N = %d, and split·ck = %d of its K = %d", t.CK, f.N, t.Keys(), f.K)
	case t.Slice < 1 || t.Slice%f.K != 0:
		return fmt.Sprintf("slice = %d must be a multiple of the fragment's K = %d", t.Slice, f.K)
	case t.VKeys < 1 || t.VKeys%f.K != 0 || t.Keys()%t.VKeys != 0:
		return fmt.Sprintf("v_keys = %d must be a multiple of the fragment's K = %d that divides split·ck = %d", t.VKeys, f.K, t.Keys())
	case t.Prefetch != 0 && t.Prefetch != 1 && t.Prefetch != 3:
		return fmt.Sprintf("prefetch = %d must be 0, 1 or 3", t.Prefetch)
	case t.HeadsTogether < 1 || t.HeadsTogether > 1<<16:
		return fmt.Sprintf("heads_together = %d must be from 1 to 65536", t.HeadsTogether)
	}
	return kernel.CheckSubgroups(t.W, f.Lanes, t.Shared(d, dv).Bytes(), c)
}

// wideOf is the tile that a row says.
func wideOf(r *tiles.Row) (t WideTile) {
	wideFields.Read(&t, r)
	return t
}

// ChooseWideTile takes the first row that fits once it is cut to the problem; overrides from t replace single numbers.
func ChooseWideTile(c *kernel.Capabilities, p *attn.Problem, s kernel.Fragment, l *kernel.FragmentLayout, form int,
	t *kernel.Tuning) (WideTile, error) {
	k, why := c.Prediction(), "no row of tiles is for the problem"
	for _, row := range c.Suiting(kernel.Asked(p, s), wideKernel) {
		tile := wideOf(row)
		tile.Fragment, tile.Form, tile.Words = s, form, form != kernel.FormShared && l.PairsOfQueries()
		tile.complete(&k, p)
		wideFields.Take(&tile, t, "")
		wideCutFields.Take(&tile, t, "")
		if why = tile.Check(p.HeadDim, p.ValueDim, c); why == "" {
			if _, given := t.Given["parts"]; !given && k.Fill {
				tile.Parts = tile.partsToFill(&k, p)
			}
			t.Effect["parts"] = tile.Parts
			why = kernel.CheckParts(tile.Parts, p)
		}
		if why == "" {
			t.Took(row)
			return tile, nil
		}
	}
	return WideTile{}, t.NoTile(why)
}

// complete rounds a row of the table to whole fragments, and fills in what it leaves open.
func (t *WideTile) complete(k *kernel.Prediction, p *attn.Problem) {
	f, whole := &t.Fragment, max(t.Fragment.N, t.Fragment.K) // one divides the other
	t.Parts = 1
	t.CK = attn.CeilDiv(t.CK, whole) * whole
	t.Slice = attn.CeilDiv(min(t.Slice, attn.CeilDiv(p.HeadDim, f.K)*f.K), f.K) * f.K
	t.VKeys = attn.CeilDiv(t.VKeys, f.K) * f.K
	for t.Keys()%t.VKeys != 0 {
		t.VKeys -= f.K
	}
	t.Pack = p.Group() > 1 && p.QueryLen < t.Rows()
	// Rows that no query is for are computed all the same.
	for rows, _ := rowsOf(p, t.Pack); 2*rows <= t.Rows(); {
		switch {
		case t.W > t.Split && t.W/t.Split%2 == 0:
			t.W /= 2
		case t.RM > 1 && t.RM%2 == 0:
			t.RM /= 2
		default:
			rows = t.Rows()
		}
	}
	switch {
	case p.Uneven():
		t.HeadsTogether = CausalHeadsTogether(k, p)
	case t.HeadsTogether == 0:
		t.HeadsTogether = 1
	}
}

func (t *WideTile) Groups(p *attn.Problem) uint64 {
	rows, heads := rowsOf(p, t.Pack)
	return uint64(attn.CeilDiv(rows, t.Rows())) * uint64(heads)
}

// partsToFill cuts the keys into as many parts as are predicted to be fastest. A pair costs as much more than one of the prediction's, of
// heads of 128, as its products are longer.
func (t *WideTile) partsToFill(k *kernel.Prediction, p *attn.Problem) int {
	parts, least := 1, math.Inf(1)
	pace := float64(p.HeadDim+p.ValueDim) / 256
	for n := 1; n <= kernel.MostPartsOf(p); n++ {
		if cost := predict(k, p, t.Rows(), t.W, t.Groups(p), n, pace); cost < least {
			parts, least = n, cost
		}
	}
	return parts
}

package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/shaders"
)

// Turn says where the cosines and sines come from by which rows are turned: TURN of shaders/cache/append.comp.
type Turn int

const (
	NotTurned     Turn = iota
	ByTable            // tables of angles by position
	ByToken            // tables of a row for each token
	ByFrequencies      // angles are positions times frequencies
)

// Rows is what happens to rows on their way: shaders/cache/append.comp has the mathematics.
type Rows struct {
	Batch, Heads, Rows int
	Dim, ValueDim      int // ValueDim 0: there are no values
	DType              attn.DType
	Scattered          bool // rows go to places of a cache; else they stay where they are
	CacheRows          int  // of a cache that is no pages
	Circular           bool
	Pages              attn.Pages // of the cache
	KeyType, ValueType attn.DType // in the cache: DType or quantised
	Packed             bool       // rows are tokens of any batch entry, one after the other
	Counts             bool       // entries have numbers of rows of their own, up to Rows
	QueryHeads         int        // of rows that are turned at the positions of the keys; 0: there are none
	Turn               Turn
	Columns            int // that are turned
	Interleaved        bool
	Inverse            bool
	Positions          bool // of each token are given
	TableRows          int
}

// tokens is the number of rows that have positions of their own.
func (r *Rows) tokens() uint64 {
	if r.Packed {
		return uint64(r.Rows)
	}
	return uint64(r.Batch) * uint64(r.Rows)
}

// Quantised says whether rows are quantised on their way.
func (r *Rows) Quantised() bool { return r.KeyType.Quantised() || r.ValueType.Quantised() }

// RowOperands are its tensors; those that there are not are zero.
type RowOperands struct {
	K, V, X, Y             Operand
	At, Positions          Operand // At is the batch entries of packed tokens
	Cos, Sin, Frequencies  Operand
	Q, Z                   Operand
	Table, Starts, Counts  Operand
	KeyScales, ValueScales Operand
	First                  int32 // position of row 0 of rows that stay
	InPlace                bool  // of rows that stay K is X, of others Q is Z
}

// RowTensors are the tensors, and List has them in this order.
var RowTensors = [...]attn.Operand{{Name: "K"}, {Name: "V"}, {Name: "X"}, {Name: "Y"}, {Name: "At"}, {Name: "Positions"}, {Name: "Cos"},
	{Name: "Sin"}, {Name: "Frequencies"}, {Name: "Q"}, {Name: "Z"}, {Name: "Table"}, {Name: "Starts"}, {Name: "Counts"},
	{Name: "KeyScales"}, {Name: "ValueScales"}}

func (o *RowOperands) List() [len(RowTensors)]*Operand {
	return [...]*Operand{&o.K, &o.V, &o.X, &o.Y, &o.At, &o.Positions, &o.Cos, &o.Sin, &o.Frequencies, &o.Q, &o.Z, &o.Table, &o.Starts,
		&o.Counts, &o.KeyScales, &o.ValueScales}
}

// RowsLabel is the label of its dispatches, and the beginning of its modules' names.
const RowsLabel = "append"

// Module is the name of the module for rows of a type.
func (r *Rows) Module() string {
	if r.Quantised() {
		return RowsLabel + "_quantised." + r.DType.Suffix()
	}
	return RowsLabel + "." + r.DType.Suffix()
}

// bindings is the number of buffers that the module binds; 0, and then Layouts or Build says why, where there is no module.
func (r *Rows) bindings() int {
	info, err := shaders.Describe(r.Module())
	if err != nil {
		return 0
	}
	return info.Interface.BindingCount()
}

// LacksRows says what the device lacks for rows: beside what scalar kernels of their type need, 16-bit storage for the halves of words that
// blocks are written in, whatever the type of the rows is.
func (c *Capabilities) LacksRows(r *Rows) string {
	if why := c.LacksArguments(&PassArgs().Rows); why != "" {
		return why
	}
	if why := c.LacksBuffers(r.bindings()); why != "" {
		return why
	}
	if r.Quantised() {
		if why := lacking("storageBuffer16BitAccess", c.Enabled.Storage16, c.Facts.Features.Storage16); why != "" {
			return why
		}
	}
	return c.LacksScalar(r.DType)
}

// The most cosines and sines that a workgroup keeps in shared memory (4 KiB), and its invocations, both of which every device allows.
const (
	mostKept       = 512
	mostRowThreads = 128
)

// rowWork is how the work is cut: invocations of a workgroup, the steps of a row (append.comp), and the workgroups that share them.
type rowWork struct{ threads, steps, parts int }

// wide says whether rows are whole vectors (append_wide.glsl): whether an invocation can have sixteen columns, pairs of a rotation among
// them. IQ4_NL's scales are sums over blocks from first to last, for which shared memory is too small there.
func (r *Rows) wide() bool {
	const run = 64
	turned := r.Columns
	if r.Turn == NotTurned || r.Interleaved {
		turned = 0
	}
	if r.wideRows() > mostRowThreads || r.KeyType == attn.IQ4_NL || r.ValueType == attn.IQ4_NL {
		return false
	}
	return r.Dim%run == 0 && r.ValueDim%run == 0 && turned%run == 0 && (r.Turn == NotTurned || r.Columns%4 == 0)
}

// lie says whether the tensors of wide rows lie as the kernel reads and writes them: of blocks, two go together.
func (r *Rows) lie(o *RowOperands) bool {
	pairs := func(t attn.DType, x *Operand) bool {
		return t.Block() == 1 || !slices.ContainsFunc(x.Strides[:], func(s uint32) bool { return s%uint32(2*t.Block()) != 0 })
	}
	return o.K.Aligned && o.X.Aligned && pairs(r.KeyType, &o.X) &&
		(r.ValueDim == 0 || o.V.Aligned && o.Y.Aligned && pairs(r.ValueType, &o.Y)) &&
		(r.QueryHeads == 0 || o.Q.Aligned && o.Z.Aligned)
}

// ofWide is the columns that an invocation has of wide rows.
const ofWide = 16

// wideRows is the number of invocations that have whole rows together: rows of blocks are written by a workgroup, whole ones of both kinds.
// Eight have a block where tensors do not lie so.
func (r *Rows) wideRows() int {
	n := 8
	for _, of := range [...]struct {
		t       attn.DType
		columns int
	}{{r.KeyType, r.Dim}, {r.ValueType, r.ValueDim}} {
		if lanes := of.columns / ofWide; of.t.Block() > 1 && lanes > 0 {
			for before := n; n%lanes != 0; {
				n += before
			}
		}
	}
	return n
}

// wideWork cuts wide rows: a workgroup has one step, in which an invocation has columns of keys, of values and of queries.
func (r *Rows) wideWork() (w rowWork) {
	units := max(r.Heads*max(r.Dim, r.ValueDim), r.QueryHeads*r.Dim) / ofWide
	for w.threads = mostRowThreads; w.threads > 32 && w.threads/2 >= units; {
		w.threads /= 2
	}
	whole := r.wideRows()
	w.threads = max(w.threads/whole, 1) * whole
	w.steps = attn.CeilDiv(units, w.threads)
	w.parts = w.steps
	return w
}

// work cuts rows: four steps for each workgroup, whose cosines are made once for them, unless there are so few rows that a device would not
// be full.
func (r *Rows) work() (w rowWork) {
	if r.wide() {
		return r.wideWork()
	}
	units := [...]int{r.Heads * attn.CeilDiv(r.Dim, columnsOfUnit(r.KeyType)),
		r.Heads * attn.CeilDiv(r.ValueDim, columnsOfUnit(r.ValueType)),
		r.QueryHeads * attn.CeilDiv(r.Dim, 2)}
	for w.threads = mostRowThreads; w.threads > 32 && w.threads/2 >= slices.Max(units[:]); {
		w.threads /= 2
	}
	for _, n := range units {
		w.steps += attn.CeilDiv(n, w.threads)
	}
	const few, each = 2048, 4
	if w.parts = w.steps; r.tokens()*uint64(w.steps) > few {
		w.parts = attn.CeilDiv(w.steps, each)
	}
	return w
}

// columnsOfUnit is the columns that an invocation has in a step.
func columnsOfUnit(t attn.DType) int {
	if t.Quantised() {
		return 4
	}
	return 2
}

// Grid shares the rows out.
func (r *Rows) Grid(e *Env) (Grid, error) {
	w := r.work()
	over, groups := bits.Mul64(r.tokens(), uint64(w.parts))
	if over > 0 || groups > MaxGroups {
		return Grid{}, attn.BadArgument("Problem", r.tokens(), "rows of that size take more than %d workgroups", uint64(MaxGroups))
	}
	// A few operations a pair of columns: reckon with 64.
	return GridFor(e, groups, 64*float64(r.tokens())*float64(w.steps*w.threads), ScalarPace, NewTuning(nil))
}

// RowConstants are its specialization constants.
func RowConstants(r *Rows) Constants {
	w := r.work()
	pages, shift := 0, 0
	if !r.Pages.None() {
		pages, shift = 1+BoolInt(r.Pages.Compressed()), bits.TrailingZeros(uint(r.Pages.Size))
	}
	c := Constants{"WG": w.threads, "D": r.Dim, "DV": r.ValueDim, "SCATTER": BoolInt(r.Scattered), "CIRCULAR": BoolInt(r.Circular),
		"TURN": int(r.Turn),
		"R":    r.Columns, "INTERLEAVED": BoolInt(r.Interleaved), "INVERSE": BoolInt(r.Inverse), "POSITIONS": BoolInt(r.Positions),
		"KEY_HEADS": r.Heads, "HEADS": r.QueryHeads, "PARTS": w.parts, "KEPT": min(max(r.Columns/2, 1), mostKept),
		"PACKED": BoolInt(r.Packed),
		"COUNTS": BoolInt(r.Counts), "PAGES": pages, "PAGE_SHIFT": shift, "TABLE": max(r.TableRows, 1), "WIDE": BoolInt(r.wide())}
	if r.Quantised() {
		c["KEY_TYPE"], c["VALUE_TYPE"] = quantisedType(r.KeyType), quantisedType(r.ValueType)
	}
	return c
}

// Rows fills in the arguments.
func (p *Pushes) Rows(n *Rows, o *RowOperands) (baseAt int) {
	l := &PassArgs().Rows
	p.start(l)
	p.PutInt(ArgRows, n.Rows)
	p.PutInt(argBatch, n.Batch)
	switch {
	case !n.Scattered:
		p.Put(argCacheRows, uint32(o.First))
	case n.Pages.None():
		p.PutInt(argCacheRows, n.CacheRows)
	default:
		p.PutInt(argCacheRows, n.Pages.Count)
		p.PutInt(argTableColumns, n.Pages.PerSequence+n.Pages.Indices)
	}
	aligned := Operand{Offset: uint32(BoolInt(n.wide() && n.lie(o)))}
	p.Put(ArgOffsets, Offsets(&o.K, &o.V, &o.X, &o.Y))
	p.Put(argMoreOffsets, Offsets(&o.At, &o.Positions, &o.Cos, &o.Sin))
	p.Put(argPageOffsets, Offsets(&o.Q, &o.Z, &o.Table, &o.Starts))
	p.Put(argScaleOffsets, Offsets(&o.Counts, &o.KeyScales, &o.ValueScales, &aligned))
	p.Strides(ArgK, &o.K)
	p.Strides(ArgV, &o.V)
	p.Strides(argX, &o.X)
	p.Strides(argY, &o.Y)
	p.Strides(ArgQ, &o.Q)
	p.Strides(argZ, &o.Z)
	tables := l.at[argTables]
	for i, x := range [2]*Operand{&o.Cos, &o.Sin} {
		p.Set(tables+8*i, x.Strides[0])
		p.Set(tables+8*i+4, x.Strides[2])
	}
	return l.at[argBase]
}

// turnsOfRadian is 2⁶⁴/2π, to as many digits as the 64 bits behind the point of the largest frequency's quotient need, and some more.
var turnsOfRadian = func() *big.Float {
	f, _, err := big.ParseFloat("0.15915494309189533576888376337251436203445964574045644874766734405889679763422653509", 10, 192,
		big.ToNearestEven)
	if err != nil {
		panic(err) // a number of this file
	}
	return f.SetMantExp(f, 64)
}()

// FrequencyWords are frequencies, in radians for each position, as the kernel reads them: fractions of a turn in units of 2⁻⁶⁴, upper word
// first. Each is the nearest there is: what float64 makes of a quotient by 2π is off by 2⁻³⁶ of a turn at 10⁶ radians, and positions make
// 10⁶ times that of it.
func FrequencyWords(radians []float64) []byte {
	out := make([]byte, 0, 8*len(radians))
	half, turns, whole := big.NewFloat(0.5), new(big.Float).SetPrec(192), new(big.Int)
	for _, f := range radians {
		turns.Mul(turns.SetFloat64(math.Abs(f)), turnsOfRadian)
		turns.Add(turns, half).Int(whole)
		turn := lowest64(whole)
		if f < 0 {
			turn = -turn
		}
		out = binary.NativeEndian.AppendUint32(out, uint32(turn>>32))
		out = binary.NativeEndian.AppendUint32(out, uint32(turn))
	}
	return out
}

// lowest64 are the lowest 64 bits of a number that is not negative.
func lowest64(x *big.Int) (low uint64) {
	for i, word := range x.Bits() {
		if at := i * bits.UintSize; at < 64 {
			low |= uint64(word) << at
		}
	}
	return low
}

package kernel

import (
	"encoding/binary"
	"math"
	"math/big"
	"sync/atomic"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
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
	CacheRows          int // of the cache that rows are scattered into; 0: rows stay where they are
	Circular           bool
	Turn               Turn
	Columns            int // that are turned
	Interleaved        bool
	Inverse            bool
	Positions          bool // of each token are given
	TableRows          int
}

// RowOperands are its tensors; those that there are not are zero.
type RowOperands struct {
	K, V, X, Y            Operand
	At, Positions         Operand
	Cos, Sin, Frequencies Operand
	First                 int32 // position of row 0 of rows that stay
	InPlace               bool  // K is X
}

// RowProgram is the kernel that moves rows, fitted to them.
type RowProgram struct {
	env    *Env
	rows   Rows
	grid   Grid
	pairs  uint32 // of columns, of keys and values
	kernel atomic.Pointer[pipeline.Kernel]
}

const rowThreads = 128 // of a workgroup; every device allows it

// RowsLabel is the label of its dispatches, and the beginning of its module's name.
const RowsLabel = "append"

// LacksRows says what the device lacks for rows of a type.
func (c *Capabilities) LacksRows(t attn.DType) string {
	if why := c.LacksArguments(&PassArgs().Rows); why != "" {
		return why
	}
	return c.LacksScalar(t)
}

// NewRowProgram builds it.
func NewRowProgram(e *Env, r *Rows) (*RowProgram, error) {
	p := &RowProgram{env: e, rows: *r}
	pairs := uint64(r.Batch) * uint64(r.Heads) * uint64(r.Rows) * uint64(attn.CeilDiv(r.Dim, 2)+attn.CeilDiv(r.ValueDim, 2))
	if pairs > MaxGroups {
		return nil, attn.BadArgument("Problem", pairs, "has more than %d pairs of columns to move", uint64(MaxGroups))
	}
	p.pairs = uint32(pairs)
	var err error
	// A few operations a pair: reckon with 64.
	if p.grid, err = GridFor(e, (pairs+rowThreads-1)/rowThreads, 64*float64(pairs), ScalarPace, NewTuning(nil)); err != nil {
		return nil, err
	}
	k, err := e.Build(RowsLabel+"."+r.DType.Suffix(), RowConstants(r), pipeline.KernelInfo{}, score.Code{})
	p.kernel.Store(k)
	return p, err
}

// RowConstants are its specialization constants.
func RowConstants(r *Rows) Constants {
	return Constants{"WG": rowThreads, "D": r.Dim, "DV": max(r.ValueDim, 1), "SCATTER": BoolInt(r.CacheRows > 0), "CIRCULAR": BoolInt(r.Circular), "TURN": int(r.Turn),
		"R": r.Columns, "INTERLEAVED": BoolInt(r.Interleaved), "INVERSE": BoolInt(r.Inverse), "POSITIONS": BoolInt(r.Positions)}
}

// Dispatches is the number of its dispatches.
func (p *RowProgram) Dispatches() int { return p.grid.Dispatches() }

// Record writes them. In steady state that allocates nothing.
func (p *RowProgram) Record(r *Recorder, o *RowOperands) error {
	n := &p.rows
	idle := pipeline.Access{Binding: o.X.Binding, Mode: pipeline.Unused}
	for i := range 8 {
		r.Access[i] = idle
	}
	bind := func(at int, x *Operand, in bool, mode pipeline.Mode) {
		if in {
			r.Access[at] = pipeline.Access{Binding: x.Binding, Mode: mode}
		}
	}
	scatter := n.CacheRows > 0
	bind(0, &o.K, !o.InPlace, pipeline.Read)
	bind(1, &o.V, n.ValueDim > 0, pipeline.Read)
	bind(2, &o.X, true, pipeline.Write)
	if scatter || o.InPlace { // most of a cache stays as it is
		r.Access[2].Mode = pipeline.ReadWrite
	}
	bind(3, &o.Y, n.ValueDim > 0, pipeline.ReadWrite)
	bind(4, &o.At, scatter, pipeline.Read)
	bind(5, &o.Positions, n.Positions, pipeline.Read)
	bind(6, &o.Cos, n.Turn == ByTable || n.Turn == ByToken, pipeline.Read)
	bind(6, &o.Frequencies, n.Turn == ByFrequencies, pipeline.Read)
	bind(7, &o.Sin, n.Turn == ByTable || n.Turn == ByToken, pipeline.Read)
	at := r.Push.moving(n, o, uint32(n.Batch*n.Heads*n.Rows*attn.CeilDiv(n.Dim, 2)))
	return r.Dispatch(p.kernel.Load(), r.Access[:8], at, p.grid, p.pairs, RowsLabel)
}

// moving fills in the arguments.
func (p *Pushes) moving(n *Rows, o *RowOperands, keyPairs uint32) (baseAt int) {
	l := &PassArgs().Rows
	p.layout, p.n = l, l.Size()
	clear(p.data[:p.n])
	p.PutInt(argRowHeads, n.Heads)
	p.PutInt(ArgRows, n.Rows)
	p.PutInt(argCacheRows, n.CacheRows)
	p.Put(ArgOffsets, Offsets(&o.K, &o.V, &o.X, &o.Y))
	p.Put(argMoreOffsets, Offsets(&o.At, &o.Positions, &o.Cos, &o.Sin))
	p.Strides(ArgK, &o.K)
	p.Strides(ArgV, &o.V)
	p.Strides(argX, &o.X)
	p.Strides(argY, &o.Y)
	tables := l.at[argTables]
	for i, x := range [2]*Operand{&o.Cos, &o.Sin} {
		p.Set(tables+8*i, x.Strides[0])
		p.Set(tables+8*i+4, x.Strides[2])
	}
	p.PutInt(argTableRows, n.TableRows)
	p.Put(argPositions, o.Positions.Strides[2])
	p.Put(argFirstPosition, uint32(o.First))
	p.Put(argKeyPairs, keyPairs)
	return l.at[argBase]
}

// FrequencyWords are frequencies, in radians for each position, as the kernel reads them: fractions of a turn in units of 2⁻⁶⁴, upper word first.
func FrequencyWords(radians []float64) []byte {
	out := make([]byte, 0, 8*len(radians))
	unit := new(big.Float).SetMantExp(big.NewFloat(1), 64)
	for _, f := range radians {
		turns := f / (2 * math.Pi)
		turns -= math.Floor(turns)
		whole, _ := new(big.Float).Mul(big.NewFloat(turns), unit).Int(nil)
		bits := whole.Uint64() // of 1 it is 0, a whole turn
		out = binary.NativeEndian.AppendUint32(out, uint32(bits>>32))
		out = binary.NativeEndian.AppendUint32(out, uint32(bits))
	}
	return out
}

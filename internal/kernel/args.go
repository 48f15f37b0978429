package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/shaders"
)

// argument is a push constant, by the name that shaders/include/args.glsl or args_backward.glsl gives it.
type argument uint8

const (
	argQueries argument = iota
	argKeys
	argHeadsLarge
	ArgOffsets
	argMoreOffsets
	argBytes
	ArgQ // Strides: the first of three
	ArgK
	ArgV
	ArgO
	argG
	argX
	argY
	argScale
	ArgScoreScale
	argShifts // first_shift and last_shift
	argBase   // and total
	argSeedLow
	argSeedHigh
	argDropOffset
	ArgFirstMatrix
	ArgMatrices
	ArgFirstRow
	ArgRows
	ArgPitch
	argRowHeads
	argCacheRows
	argTableColumns
	argPageOffsets
	argScaleOffsets
	argZ
	argTables // strides of batch and row of cos, then of sin
	argBatch
	argParts
	argChain
	argPartStrides // of batch, head and row of o of the first of four parts
	argRowStrides  // of batch and head of its lse
	argFirstQuery
	argMapQueries
	argFirstKey
	argMapKeys
	argMapRows
	argMapColumns
	argCut
	argFirstBatch
	argFirstHead
	argMapHeads
	argGroupRows
	argBands
	argWanted
	argLSEStrides // of batch and head of lse_x
	arguments     // number of them
)

var argumentNames = [arguments][]string{
	argQueries: {"nq"}, argKeys: {"nk"}, argHeadsLarge: {"heads_large"}, ArgOffsets: {"offsets"}, argMoreOffsets: {"more_offsets"},
	argBytes: {"bytes"}, ArgQ: {"q_sb", "q_sh", "q_sn"}, ArgK: {"k_sb", "k_sh", "k_sn"}, ArgV: {"v_sb", "v_sh", "v_sn"},
	ArgO: {"o_sb", "o_sh", "o_sn"}, argG: {"g_sb", "g_sh", "g_sn"}, argX: {"x_sb", "x_sh", "x_sn"}, argY: {"y_sb", "y_sh", "y_sn"},
	argScale: {"scale"}, ArgScoreScale: {"score_scale"}, argShifts: {"first_shift", "last_shift"}, argBase: {"base", "total"},
	argSeedLow: {"seed_lo"}, argSeedHigh: {"seed_hi"}, argDropOffset: {"drop_offset"},
	ArgFirstMatrix: {"bh0"}, ArgMatrices: {"slab_heads"}, ArgFirstRow: {"row0"}, ArgRows: {"rows"}, ArgPitch: {"pitch"},
	argRowHeads: {"row_heads"}, argCacheRows: {"cache_rows"}, argTableColumns: {"table_columns"}, argPageOffsets: {"page_offsets"},
	argScaleOffsets: {"scale_offsets"}, argZ: {"z_sb", "z_sh", "z_sn"}, argTables: {"cos_sb", "cos_sn", "sin_sb", "sin_sn"},
	argBatch: {"batch"}, argParts: {"parts"}, argChain: {"chain"},
	argPartStrides: {"p0_sb", "p0_sh", "p0_sn", "p1_sb", "p1_sh", "p1_sn", "p2_sb", "p2_sh", "p2_sn", "p3_sb", "p3_sh", "p3_sn"},
	argFirstQuery:  {"first_query"}, argMapQueries: {"queries"}, argFirstKey: {"first_key"}, argMapKeys: {"keys"}, argMapRows: {"map_rows"},
	argMapColumns: {"map_columns"}, argCut: {"cut"}, argFirstBatch: {"first_batch"}, argFirstHead: {"first_head"},
	argMapHeads:  {"map_heads"},
	argGroupRows: {"group_rows"}, argBands: {"bands"}, argWanted: {"wanted"},
	argRowStrides: {"l0_sb", "l0_sh", "l1_sb", "l1_sh", "l2_sb", "l2_sh", "l3_sb", "l3_sh"},
	argLSEStrides: {"lse_sb", "lse_sh"},
}

// ArgsLayout is where the modules of a family expect their push constants: byte positions, found by name in the modules' manifest, so that
// host and GLSL cannot disagree.
type ArgsLayout struct {
	at    [arguments]int // −1: not among them
	Names []string
}

// Size is the bytes of all of them.
func (l *ArgsLayout) Size() int { return 4 * len(l.Names) }

// passLayouts are the layouts of forward kernels, of standard attention's of both passes, of backward kernels, and of the kernels that move
// rows, merge, accumulate, and make maps.
type passLayouts struct{ Forward, Standard, Backward, Rows, Merge, Accumulate, Map ArgsLayout }

// Layouts reads them from one module each; Env.Build refuses modules that declare another.
var Layouts = sync.OnceValues(func() (*passLayouts, error) {
	var out passLayouts
	for _, f := range []struct {
		to     *ArgsLayout
		module string
	}{{&out.Forward, "scalar_forward.f32"}, {&out.Standard, "standard_scores.f32"}, {&out.Backward, "scalar_backward_q.f32"},
		{&out.Rows, "append.f32"},
		{&out.Merge, "merge.f32"}, {&out.Accumulate, "accumulate.f32"}, {&out.Map, "scalar_map.f32"}} {
		info, err := shaders.Describe(f.module)
		if err == nil {
			*f.to, err = NewArgsLayout(info.Interface.Push)
		}
		if err != nil {
			return &passLayouts{}, fmt.Errorf("flash: push constants of %s: %w", f.module, err)
		}
	}
	return &out, nil
})

func NewArgsLayout(names []string) (ArgsLayout, error) {
	l := ArgsLayout{Names: names}
	known := 0
	for a, words := range argumentNames {
		l.at[a] = -1
		if i := slices.Index(names, words[0]); i >= 0 && slices.Equal(names[i:min(i+len(words), len(names))], words) {
			l.at[a] = 4 * i
			known += len(words)
		}
	}
	if known != len(names) {
		return l, fmt.Errorf("there are names among %q that nobody writes", names)
	}
	return l, nil
}

// CheckLayout says what is wrong with the push constants of a module. Those that measure a device belong to no pass.
func CheckLayout(module string, names []string) error {
	if len(names) == 0 || strings.HasPrefix(module, "measure_") {
		return nil
	}
	all, err := Layouts()
	if err != nil {
		return err
	}
	for _, l := range []*ArgsLayout{&all.Forward, &all.Standard, &all.Backward, &all.Rows, &all.Merge, &all.Accumulate, &all.Map} {
		if slices.Equal(l.Names, names) {
			return nil
		}
	}
	return fmt.Errorf("flash: %s declares push constants %q, which are those of no pass", module, names)
}

// Pushes writes push constants: of a pass by name, or without a layout one word after the other.
type Pushes struct {
	data   [128]byte
	n      int
	layout *ArgsLayout
}

func (p *Pushes) Bytes() []byte { return p.data[:p.n] }

// u32 appends a word.
func (p *Pushes) u32(v uint32) {
	binary.NativeEndian.PutUint32(p.data[p.n:], v)
	p.n += 4
}

func (p *Pushes) Int(v int)     { p.u32(uint32(v)) }
func (p *Pushes) F32(v float64) { p.u32(math.Float32bits(float32(v))) }

// Set overwrites the word at a byte position.
func (p *Pushes) Set(at int, v uint32) { binary.NativeEndian.PutUint32(p.data[at:], v) }

// Put gives an argument its value, where the layout has it.
func (p *Pushes) Put(a argument, v uint32) {
	if at := p.layout.at[a]; at >= 0 {
		p.Set(at, v)
	}
}
func (p *Pushes) PutInt(a argument, v int)       { p.Put(a, uint32(v)) }
func (p *Pushes) PutFloat(a argument, v float64) { p.Put(a, math.Float32bits(float32(v))) }

func (p *Pushes) Strides(a argument, o *Operand) {
	if at := p.layout.at[a]; at >= 0 {
		for i, s := range o.Strides {
			p.Set(at+4*i, s)
		}
	}
}

// start begins arguments, all of them 0.
func (p *Pushes) start(l *ArgsLayout) {
	p.layout, p.n = l, l.Size()
	clear(p.data[:p.n])
}

// Begin starts the arguments of a pass with what every kernel has: sizes, mask, dropout. The rest is 0.
func (p *Pushes) Begin(l *ArgsLayout, pr *attn.Problem, d *Draw) (baseAt int) {
	p.start(l)
	p.PutInt(argQueries, pr.QueryLen)
	p.PutInt(argKeys, pr.KeyLen)
	p.shifts(pr)
	large, bytes := PackHeads(pr.KeyHeads, pr.Group())
	p.Put(argHeadsLarge, large)
	p.Put(argBytes, bytes|uint32(pr.DropThreshold()))
	p.Put(argSeedLow, uint32(d.Seed))
	p.Put(argSeedHigh, uint32(d.Seed>>32))
	p.Put(argDropOffset, d.Offset)
	return l.at[argBase]
}

// shifts puts the bounds of the band of keys that queries see, of which kernels read those that there are.
func (p *Pushes) shifts(pr *attn.Problem) {
	at, m := p.layout.at[argShifts], pr.Mask()
	if pr.Padded() { // kernels move both by what the lengths of an entry are less than all, without overflow
		const beyond = 1<<30 - 1
		if pr.Causal == attn.CausalTopLeft { // which does not move: what a window says beside it
			m = pr.WindowAlone()
		}
		m.Low, m.High = max(m.Low, -beyond), min(m.High, beyond)
	}
	p.Set(at, uint32(max(m.Low, -attn.Unbounded)))
	p.Set(at+4, uint32(min(m.High, attn.Unbounded)))
}

// PackHeads puts two numbers whose product is below 2³⁰ into 47 bits: the larger, its highest bit set where it is the group, and the
// smaller, shifted to the upper half of a word.
func PackHeads(keyHeads, group int) (large, small uint32) {
	if group > keyHeads {
		return uint32(group) | 1<<31, uint32(keyHeads) << 16
	}
	return uint32(keyHeads), uint32(group) << 16
}

// Offsets packs offsets of bindings that were aligned down, which are below 256 elements: Vulkan lets no device ask for more than 256
// bytes.
func Offsets(a, b, c, d *Operand) uint32 { return a.Offset | b.Offset<<8 | c.Offset<<16 | d.Offset<<24 }

// Draw is what dropout's generator starts from.
type Draw struct {
	Seed   uint64
	Offset uint32
}

// PassArgs is the layouts; empty ones, with which no kernel is built, where the manifest is broken.
func PassArgs() *passLayouts {
	l, _ := Layouts()
	return l
}

// Forward fills in the arguments of a forward kernel, and of combine_parts.
func (p *Pushes) Forward(pr *attn.Problem, f *Operands) (baseAt int) {
	baseAt = p.Begin(&PassArgs().Forward, pr, &f.Drop)
	p.PutFloat(ArgScoreScale, pr.Scale*math.Log2E)
	p.Put(ArgOffsets, Offsets(&f.Q, &f.K, &f.V, &f.O))
	p.LSE(&f.LSE)
	p.Strides(ArgQ, &f.Q)
	p.Strides(ArgK, &f.K)
	p.Strides(ArgV, &f.V)
	p.Strides(ArgO, &f.O)
	return baseAt
}

// LSE puts the offset of a number for each row among the bytes of a forward kernel.
func (p *Pushes) LSE(o *Operand) {
	at := p.layout.at[argBytes]
	p.Set(at, binary.NativeEndian.Uint32(p.data[at:])|o.Offset<<8)
}

// Backward fills in the arguments of a kernel that writes x and y (dk and dv), or x alone (dq).
func (p *Pushes) Backward(pr *attn.Problem, g *Gradients, delta, x, y *Operand) (baseAt int) {
	baseAt = p.Begin(&PassArgs().Backward, pr, &g.Drop)
	p.PutFloat(argScale, pr.Scale)
	p.Put(ArgOffsets, Offsets(&g.Q, &g.K, &g.V, &g.DO))
	p.Put(argMoreOffsets, Offsets(&g.LSE, delta, x, y))
	p.Strides(ArgQ, &g.Q)
	p.Strides(ArgK, &g.K)
	p.Strides(ArgV, &g.V)
	p.Strides(argG, &g.DO)
	p.Strides(argX, x)
	p.Strides(argY, y)
	return baseAt
}

// SlabOfDS puts the key heads of a slab of dSᵀ, rounded up to a power of two, among the bytes of a backward kernel.
func (p *Pushes) SlabOfDS(keyHeads int) {
	at := p.layout.at[argBytes]
	p.Set(at, binary.NativeEndian.Uint32(p.data[at:])|uint32(bits.Len(uint(max(keyHeads, 1)-1)))<<8)
}

// Delta fills in the arguments of backward_delta: x is o, and lse is dlse.
func (p *Pushes) Delta(pr *attn.Problem, g *Gradients, delta *Operand) (baseAt int) {
	var none Operand
	baseAt = p.Begin(&PassArgs().Backward, pr, &g.Drop)
	p.Put(ArgOffsets, Offsets(&none, &none, &none, &g.DO))
	p.Put(argMoreOffsets, Offsets(&g.DLSE, delta, &g.O, &none))
	p.Strides(argG, &g.DO)
	p.Strides(argX, &g.O)
	return baseAt
}

package flash

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/vkattn/vkattn/shaders"
)

// argument is a push constant, by the name that shaders/include/args.glsl or args_backward.glsl gives it.
type argument uint8

const (
	argQueries argument = iota
	argKeys
	argHeadsLarge
	argOffsets
	argMoreOffsets
	argBytes
	argQ // strides: the first of three
	argK
	argV
	argO
	argG
	argX
	argY
	argScale
	argScoreScale
	argCausalShift
	argBase // and total
	argSeedLow
	argSeedHigh
	argDropOffset
	argFirstMatrix
	argMatrices
	argFirstRow
	argRows
	argPitch
	arguments // number of them
)

var argumentNames = [arguments][]string{
	argQueries: {"nq"}, argKeys: {"nk"}, argHeadsLarge: {"heads_large"}, argOffsets: {"offsets"}, argMoreOffsets: {"more_offsets"},
	argBytes: {"bytes"}, argQ: {"q_sb", "q_sh", "q_sn"}, argK: {"k_sb", "k_sh", "k_sn"}, argV: {"v_sb", "v_sh", "v_sn"},
	argO: {"o_sb", "o_sh", "o_sn"}, argG: {"g_sb", "g_sh", "g_sn"}, argX: {"x_sb", "x_sh", "x_sn"}, argY: {"y_sb", "y_sh", "y_sn"},
	argScale: {"scale"}, argScoreScale: {"score_scale"}, argCausalShift: {"causal_shift"}, argBase: {"base", "total"},
	argSeedLow: {"seed_lo"}, argSeedHigh: {"seed_hi"}, argDropOffset: {"drop_offset"},
	argFirstMatrix: {"bh0"}, argMatrices: {"slab_heads"}, argFirstRow: {"row0"}, argRows: {"rows"}, argPitch: {"pitch"},
}

// argsLayout is where the modules of a family expect their push constants: byte positions, found by name in the modules' manifest, so that
// host and GLSL cannot disagree.
type argsLayout struct {
	at    [arguments]int // −1: not among them
	names []string
}

// size is the bytes of all of them.
func (l *argsLayout) size() int { return 4 * len(l.names) }

// passLayouts are the layouts of forward kernels, of standard attention's of both passes, and of backward kernels.
type passLayouts struct{ forward, standard, backward argsLayout }

// layouts reads them from one module each; Device.build refuses modules that declare another.
var layouts = sync.OnceValues(func() (*passLayouts, error) {
	var out passLayouts
	for _, f := range []struct {
		to     *argsLayout
		module string
	}{{&out.forward, "scalar_forward.f32"}, {&out.standard, "standard_scores.f32"}, {&out.backward, "scalar_backward_q.f32"}} {
		info, err := shaders.Describe(f.module)
		if err == nil {
			*f.to, err = newArgsLayout(info.Interface.Push)
		}
		if err != nil {
			return &passLayouts{}, fmt.Errorf("flash: push constants of %s: %w", f.module, err)
		}
	}
	return &out, nil
})

func newArgsLayout(names []string) (argsLayout, error) {
	l := argsLayout{names: names}
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

// checkLayout says what is wrong with the push constants of a module. Those that measure a device belong to no pass.
func checkLayout(module string, names []string) error {
	if len(names) == 0 || strings.HasPrefix(module, "measure_") {
		return nil
	}
	all, err := layouts()
	if err != nil {
		return err
	}
	for _, l := range []*argsLayout{&all.forward, &all.standard, &all.backward} {
		if slices.Equal(l.names, names) {
			return nil
		}
	}
	return fmt.Errorf("flash: %s declares push constants %q, which are those of no pass", module, names)
}

// pushes writes push constants: of a pass by name, or without a layout one word after the other.
type pushes struct {
	data   [128]byte
	n      int
	layout *argsLayout
}

func (p *pushes) reset()        { p.n = 0 }
func (p *pushes) bytes() []byte { return p.data[:p.n] }

// u32 appends a word.
func (p *pushes) u32(v uint32) {
	binary.NativeEndian.PutUint32(p.data[p.n:], v)
	p.n += 4
}

func (p *pushes) int(v int)     { p.u32(uint32(v)) }
func (p *pushes) f32(v float64) { p.u32(math.Float32bits(float32(v))) }

// set overwrites the word at a byte position.
func (p *pushes) set(at int, v uint32) { binary.NativeEndian.PutUint32(p.data[at:], v) }

// put gives an argument its value, where the layout has it.
func (p *pushes) put(a argument, v uint32) {
	if at := p.layout.at[a]; at >= 0 {
		p.set(at, v)
	}
}
func (p *pushes) putInt(a argument, v int)       { p.put(a, uint32(v)) }
func (p *pushes) putFloat(a argument, v float64) { p.put(a, math.Float32bits(float32(v))) }

func (p *pushes) strides(a argument, o *operand) {
	if at := p.layout.at[a]; at >= 0 {
		for i, s := range o.strides {
			p.set(at+4*i, s)
		}
	}
}

// begin starts the arguments of a pass with what every kernel has: sizes, mask, dropout. The rest is 0.
func (p *pushes) begin(l *argsLayout, pr *Problem, d *draw) (baseAt int) {
	p.layout, p.n = l, l.size()
	clear(p.data[:p.n])
	p.putInt(argQueries, pr.QueryLen)
	p.putInt(argKeys, pr.KeyLen)
	p.putInt(argCausalShift, pr.causalShift())
	large, bytes := packHeads(pr.KeyHeads, pr.group())
	p.put(argHeadsLarge, large)
	p.put(argBytes, bytes|uint32(pr.dropThreshold()))
	p.put(argSeedLow, uint32(d.seed))
	p.put(argSeedHigh, uint32(d.seed>>32))
	p.put(argDropOffset, d.offset)
	return l.at[argBase]
}

// packHeads puts two numbers whose product is below 2³⁰ into 47 bits: the larger, its highest bit set where it is the group, and the
// smaller, shifted to the upper half of a word.
func packHeads(keyHeads, group int) (large, small uint32) {
	if group > keyHeads {
		return uint32(group) | 1<<31, uint32(keyHeads) << 16
	}
	return uint32(keyHeads), uint32(group) << 16
}

// offsets packs offsets of bindings that were aligned down, which are below 256 elements: Vulkan lets no device ask for more than 256 bytes.
func offsets(a, b, c, d *operand) uint32 { return a.offset | b.offset<<8 | c.offset<<16 | d.offset<<24 }

// draw is what dropout's generator starts from.
type draw struct {
	seed   uint64
	offset uint32
}

// Bytes of push constants that a device must allow for the kernels of a pass. Every device allows 128.
const (
	forwardPushBytes  = 29 * 4 // 24 words, and 5 more for standard attention
	backwardPushBytes = 31 * 4
)

// passArgs is the layouts; empty ones, with which no kernel is built, where the manifest is broken.
func passArgs() *passLayouts {
	l, _ := layouts()
	return l
}

// forward fills in the arguments of a forward kernel, and of combine_parts.
func (p *pushes) forward(pr *Problem, f *operands) (baseAt int) {
	baseAt = p.begin(&passArgs().forward, pr, &f.drop)
	p.putFloat(argScoreScale, pr.Scale*math.Log2E)
	p.put(argOffsets, offsets(&f.q, &f.k, &f.v, &f.o))
	p.lse(&f.lse)
	p.strides(argQ, &f.q)
	p.strides(argK, &f.k)
	p.strides(argV, &f.v)
	p.strides(argO, &f.o)
	return baseAt
}

// lse puts the offset of a number for each row among the bytes of a forward kernel.
func (p *pushes) lse(o *operand) {
	at := p.layout.at[argBytes]
	p.set(at, binary.NativeEndian.Uint32(p.data[at:])|o.offset<<8)
}

// backward fills in the arguments of a kernel that writes x and y (dk and dv), or x alone (dq, y nil).
func (p *pushes) backward(pr *Problem, g *gradients, delta, x, y *operand) (baseAt int) {
	var none operand
	if y == nil {
		y = &none
	}
	baseAt = p.begin(&passArgs().backward, pr, &g.drop)
	p.putFloat(argScale, pr.Scale)
	p.put(argOffsets, offsets(&g.q, &g.k, &g.v, &g.do))
	p.put(argMoreOffsets, offsets(&g.lse, delta, x, y))
	p.strides(argQ, &g.q)
	p.strides(argK, &g.k)
	p.strides(argV, &g.v)
	p.strides(argG, &g.do)
	p.strides(argX, x)
	p.strides(argY, y)
	return baseAt
}

// delta fills in the arguments of backward_delta: x is o, and lse is dlse.
func (p *pushes) delta(pr *Problem, g *gradients, delta *operand) (baseAt int) {
	var none operand
	baseAt = p.begin(&passArgs().backward, pr, &g.drop)
	p.put(argOffsets, offsets(&none, &none, &none, &g.do))
	p.put(argMoreOffsets, offsets(&g.dlse, delta, &g.o, &none))
	p.strides(argG, &g.do)
	p.strides(argX, &g.o)
	return baseAt
}

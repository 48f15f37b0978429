package flash

import (
	"encoding/binary"
	"math"
)

// pushes writes push constants, four bytes each. The order is that of shaders/include/args.glsl.
type pushes struct {
	data [128]byte
	n    int
}

func (p *pushes) reset()        { p.n = 0 }
func (p *pushes) bytes() []byte { return p.data[:p.n] }
func (p *pushes) f32(v float64) { p.u32(math.Float32bits(float32(v))) }
func (p *pushes) i32(v int)     { p.u32(uint32(int32(v))) }
func (p *pushes) int(v int)     { p.u32(uint32(v)) }
func (p *pushes) strides(o *operand) {
	p.u32(o.strides[0])
	p.u32(o.strides[1])
	p.u32(o.strides[2])
}

func (p *pushes) u32(v uint32) {
	binary.NativeEndian.PutUint32(p.data[p.n:], v)
	p.n += 4
}

// set overwrites the constant at a byte position.
func (p *pushes) set(at int, v uint32) { binary.NativeEndian.PutUint32(p.data[at:], v) }

// forward fills in the arguments of a fused forward kernel: 29 constants, base and total and then those of dropout the last.
func (p *pushes) forward(pr *Problem, f *operands) (baseAt int) {
	p.reset()
	p.int(pr.QueryLen)
	p.int(pr.KeyLen)
	p.int(pr.Heads)
	p.int(pr.group())
	for _, o := range [...]*operand{&f.q, &f.k, &f.v, &f.o, &f.lse} {
		p.u32(o.offset)
	}
	p.strides(&f.q)
	p.strides(&f.k)
	p.strides(&f.v)
	p.strides(&f.o)
	p.f32(pr.Scale * math.Log2E)
	p.i32(pr.causalShift())
	baseAt = p.grid()
	p.dropout(pr, &f.drop)
	return baseAt
}

// dropout appends the four constants of dropout.
func (p *pushes) dropout(pr *Problem, d *draw) {
	p.u32(uint32(d.seed))
	p.u32(uint32(d.seed >> 32))
	p.u32(d.offset)
	p.int(pr.dropThreshold())
}

// draw is what dropout's generator starts from.
type draw struct {
	seed   uint64
	offset uint32
}

// forwardPushBytes is the size of the arguments of a fused forward kernel.
const forwardPushBytes = 29 * 4

// grid leaves room for the constants base and total, which recorder.dispatch fills in, and says where.
func (p *pushes) grid() (at int) {
	at = p.n
	p.u32(0)
	p.u32(0)
	return at
}

// backwardPushBytes is the size of the arguments of the two kernels of a backward pass: what every device has.
const backwardPushBytes = 32 * 4

// backward fills in the arguments of a kernel that writes x and y (dk and dv), or x alone (dq, y nil). The order is that of
// shaders/include/args_backward.glsl. Offsets are what is left of bindings aligned down, below 256, and share words.
func (p *pushes) backward(pr *Problem, g *gradients, delta, x, y *operand) (baseAt int) {
	var none operand
	if y == nil {
		y = &none
	}
	p.reset()
	p.int(pr.QueryLen)
	p.int(pr.KeyLen)
	p.int(pr.Heads)
	p.int(pr.group())
	p.u32(g.q.offset | g.k.offset<<8 | g.v.offset<<16 | g.do.offset<<24)
	p.u32(g.lse.offset | delta.offset<<8 | x.offset<<16 | y.offset<<24)
	for _, o := range [...]*operand{&g.q, &g.k, &g.v, &g.do, x, y} {
		p.strides(o)
	}
	p.f32(pr.Scale)
	p.i32(pr.causalShift())
	baseAt = p.grid()
	p.dropout(pr, &g.drop)
	return baseAt
}

// delta fills in the arguments of backward_delta.
func (p *pushes) delta(pr *Problem, g *gradients, delta *operand) (baseAt int) {
	p.reset()
	p.int(pr.QueryLen)
	p.int(pr.Heads)
	for _, o := range [...]*operand{&g.do, &g.o, &g.dlse, delta} {
		p.u32(o.offset)
	}
	p.strides(&g.do)
	p.strides(&g.o)
	return p.grid()
}

// combine fills in the arguments of combine_parts.
func (p *pushes) combine(pr *Problem, f *operands, rows uint32) (baseAt int) {
	p.reset()
	p.int(pr.QueryLen)
	p.int(pr.Heads)
	p.u32(f.o.offset)
	p.u32(f.lse.offset)
	p.strides(&f.o)
	p.u32(rows)
	return p.grid()
}

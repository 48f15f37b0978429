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

package kernel

import (
	"encoding/binary"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
)

// Tangents are the operands of one pass in forward mode: those of a forward pass with O and LSE as it wrote them, how its inputs move, and
// how o and lse move with them. What stays, and lse's where it is not wanted, is the zero operand.
type Tangents struct {
	Operands
	QTangent, KTangent, VTangent, OTangent, LSETangent, BiasTangent, SinksTangent Operand
}

// List gives the tensors in the order of attn.JVPOperands.
func (j *Tangents) List() (all [len(attn.JVPOperands)]*Operand) {
	forward := j.Operands.List()
	own := [...]*Operand{&j.QTangent, &j.KTangent, &j.VTangent, &j.OTangent, &j.LSETangent, &j.BiasTangent,
		&j.SinksTangent}
	attn.Pick(all[:], attn.JVPPlaces, forward[:], own[:])
	return all
}

// Aligned says whether rows of all tensors can be moved 16 bytes at a time.
func (j *Tangents) Aligned() bool {
	for _, o := range [...]*Operand{&j.Q, &j.K, &j.V, &j.O, &j.OTangent, &j.QTangent, &j.KTangent, &j.VTangent} {
		if o.Given() && !o.Aligned {
			return false
		}
	}
	return true
}

// Moving says which inputs have a tangent: bits.
type Moving uint8

const (
	QMoves Moving = 1 << iota
	KMoves
	VMoves
	BiasMoves
	SinksMove
	movings = iota
)

// Movings is how many sets of them there are.
const Movings = 1 << movings

// Moving says which have.
func (j *Tangents) Moving() (m Moving) {
	for i, o := range [...]*Operand{&j.QTangent, &j.KTangent, &j.VTangent, &j.BiasTangent, &j.SinksTangent} {
		m |= Moving(BoolInt(o.Given())) << i
	}
	return m
}

// Constants are the specialization constants of kernels of forward mode that tell what moves.
func (m Moving) Constants() Constants {
	return Constants{"Q_MOVES": BoolInt(m&QMoves != 0), "K_MOVES": BoolInt(m&KMoves != 0), "V_MOVES": BoolInt(m&VMoves != 0),
		"BIAS_MOVES": BoolInt(m&BiasMoves != 0), "SINKS_MOVE": BoolInt(m&SinksMove != 0)}
}

// JVPKernel is one way to compute a pass in forward mode, as Kernel is for forward passes.
type JVPKernel struct {
	Offer
	Plan func(e *Env, p *attn.Problem, t *Tuning) (JVPProgram, error)
}

// JVPWork is the products of a pass in forward mode in times of the forward pass's: five to two.
const JVPWork = 2.5

// JVPProgram is such a kernel fitted to one problem, as Program is for forward passes.
type JVPProgram interface {
	Tile() string
	Scratch() []uint64
	Dispatches() int
	Model() traffic.Model
	Record(r *Recorder, j *Tangents) error
}

// JVP fills in the arguments of a kernel of forward mode: those of a backward kernel, in which do is o, δ is the tangent of lse, and x that
// of o.
func (p *Pushes) JVP(pr *attn.Problem, j *Tangents) (baseAt int) {
	var none Operand
	baseAt = p.Begin(&PassArgs().Backward, pr, &j.Drop)
	p.PutFloat(argScale, pr.Scale)
	p.Put(ArgOffsets, Offsets(&j.Q, &j.K, &j.V, &j.O))
	p.Put(argMoreOffsets, Offsets(&j.LSE, &j.LSETangent, &j.OTangent, &none))
	p.Strides(ArgQ, &j.Q)
	p.Strides(ArgK, &j.K)
	p.Strides(ArgV, &j.V)
	p.Strides(argG, &j.O)
	p.Strides(argX, &j.OTangent)
	return baseAt
}

// tangentsAt is the word of the further arguments at which shaders/include/tangents.glsl has where tangents lie.
const tangentsAt = 32

// WriteTangents writes the further arguments of kernels of forward mode, which all of them have.
func (r *Recorder) WriteTangents(p *attn.Problem, j *Tangents) error {
	return r.More.Write(func(raw []byte) {
		j.Scores.write(raw, p)
		j.write(raw)
	})
}

func (j *Tangents) write(raw []byte) {
	at := 4 * tangentsAt
	put := func(v uint32) {
		binary.NativeEndian.PutUint32(raw[at:], v)
		at += 4
	}
	for _, o := range [...]*Operand{&j.QTangent, &j.KTangent, &j.VTangent, &j.BiasTangent} {
		put(o.Offset)
		for _, stride := range o.Strides {
			put(stride)
		}
	}
	put(j.BiasTangent.KeyStride)
	put(j.SinksTangent.Offset)
}

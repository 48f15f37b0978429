package pass

import (
	"sync/atomic"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// JVPBuffers are the names of the buffers of kernels of forward mode.
type JVPBuffers struct{ Q, K, V, O, LSE, QTangent, KTangent, VTangent, OTangent, LSETangent string }

// JVPViews are those of shaders/scalar/scalar_jvp.comp.
var JVPViews = &JVPBuffers{Q: "qView1", K: "kView1", V: "vView1", O: "gView1", LSE: "Lse", QTangent: "qtView1", KTangent: "ktView1",
	VTangent: "vtView1", OTangent: "xView1", LSETangent: "LseTangent"}

// JVPOf is a pass in forward mode: tables of packed sequences, then this stage with its buffers bound.
func (b *JVPBuffers) JVPOf(e *kernel.Env, p *attn.Problem, v Variant, rows kernel.RowBlocks, stage Stage) *Pass {
	out := &Pass{Problem: p, Operands: attn.JVPOperands[:]}
	out.tables(e, rows)
	moves := func(name, to string, of kernel.Moving) Bind {
		return Given(name, to, v.Moving&of != 0, pipeline.Read, "Q")
	}
	stage.Idle, stage.Counts, stage.Args = "Q", CountsOf(p, rows, 0), Args{As: AsJVP, Problem: p}
	stage.Bind = append([]Bind{{Name: b.Q, To: "Q", Mode: pipeline.Read}, {Name: b.K, To: "K", Mode: pipeline.Read},
		{Name: b.V, To: "V", Mode: pipeline.Read}, {Name: b.O, To: "O", Mode: pipeline.Read}, {Name: b.LSE, To: "LSE", Mode: pipeline.Read},
		moves(b.QTangent, "QTangent", kernel.QMoves), moves(b.KTangent, "KTangent", kernel.KMoves),
		moves(b.VTangent, "VTangent", kernel.VMoves), moves("BiasTangent32_", "BiasTangent", kernel.BiasMoves),
		moves("SinksTangent_", "SinksTangent", kernel.SinksMove),
		{Name: b.OTangent, To: "OTangent", Mode: pipeline.Write}, Given(b.LSETangent, "LSETangent", v.LSE, pipeline.Write, "Q"),
		{Name: "Tangents", To: More, Mode: pipeline.Unused}}, Scores(p, 0)...)
	out.Stages = append(out.Stages, stage)
	return out
}

// JVP is a kernel of forward mode, as kernel.JVPProgram.
type JVP struct{ program }

// NewJVP makes the pipelines of the usual variant: q, k and v move, and lse's tangent is wanted.
func NewJVP(k *Fitted) (*JVP, error) {
	s := &JVP{}
	s.try, s.made = s.selfCheck, make([]atomic.Pointer[ready], variants*kernel.Movings)
	s.usual.LSE, s.usual.Moving = true, kernel.QMoves|kernel.KMoves|kernel.VMoves
	s.fit(k)
	var others []Variant
	if k.Env.Attached {
		for i := range 4 * kernel.Movings {
			aligned := i&1 != 0
			v := Variant{Aligned: aligned, Output: aligned, LSE: i&2 != 0, Moving: kernel.Moving(i / 4)}
			if v.Moving != 0 && (v.Moving&kernel.BiasMoves == 0 || k.Problem.Bias.In) &&
				(v.Moving&kernel.SinksMove == 0 || k.Problem.Sinks) {
				others = append(others, v)
			}
		}
	}
	return s, s.plan(others...)
}

// Record writes the dispatches with the pipelines that the tensors ask for.
func (s *JVP) Record(r *kernel.Recorder, j *kernel.Tangents) error {
	aligned := j.Aligned() && s.biasLies(&j.Scores)
	p, err := s.ready(Variant{Aligned: aligned, Output: aligned, LSE: j.LSETangent.Given(), Moving: j.Moving()})
	if err != nil {
		return err
	}
	return p.jvp(r, j)
}

func (s *JVP) selfCheck(v Variant, of *ready) (wrong string, err error) {
	p, err := s.small(v, of)
	if err != nil {
		return "", err
	}
	return s.Env.TryJVP(p.Problem, kernel.Variant{Aligned: v.Aligned, LSE: v.LSE}, v.Moving, p.Bytes(), p.jvp)
}

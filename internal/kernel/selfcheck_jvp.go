package kernel

import (
	"math"
	"math/rand/v2"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// TryJVP runs the kernels of a pass in forward mode on random inputs for a small problem, of which these move, and compares with the
// oracle. scratch is the sizes of the workspace.
func (e *Env) TryJVP(p *attn.Problem, v Variant, moving Moving, scratch []uint64, record func(*Recorder, *Tangents) error) (wrong string,
	err error) {
	t := &selfCheckTensors{env: e}
	defer t.close()
	in := SelfCheckInputs(p)
	o, lse, rows, err := judgedForward(p, in)
	if err != nil {
		return "", err
	}
	given := Float32s(lse.Data)
	rows.put(given, 1, float32(math.Inf(1)))
	j := Tangents{Operands: Operands{Drop: SelfCheckDraw}}
	values := scoreValues(in, map[string][]float32{"Q": in.Q.Data, "K": in.K.Data, "V": in.V.Data, "O": Float32s(o.Data), "LSE": given})
	startsOf(p, values)
	moves := selfCheckTangents(p, in, moving, values)
	to := j.List()
	for i := range attn.JVPOperands {
		x := &attn.JVPOperands[i]
		if !x.In(p) || x.Optional && !x.Output && values[x.Name] == nil || x.Optional && x.Output && !v.LSE {
			continue
		}
		t.place(to[i], x, p, v.Aligned, values[x.Name])
	}
	r := t.recorder(p, in, &j.Operands, scratch)
	r.More = t.more() // for tangents, in any case
	t.run(r, func() error { return record(r, &j) })
	return t.compareJVP(p, in, &j, moves, rows, v.LSE)
}

// sinkMoves is how much further sinks move than other inputs: one among as many keys as a self-check has, a sink would not show otherwise.
const sinkMoves = 32

// selfCheckTangents makes tangents of what moves: in the oracle's words, and among the values of operands.
func selfCheckTangents(p *attn.Problem, in *ref.Problem, moving Moving, values map[string][]float32) (d ref.Tangents) {
	rng := rand.New(rand.NewPCG(3, uint64(p.HeadDim)))
	for i, x := range []struct {
		name string
		of   *ref.Tensor
		to   **ref.Tensor
		lens []int
		as   attn.DType
	}{{"QTangent", &in.Q, &d.Q, in.QueryLens, p.DType}, {"KTangent", &in.K, &d.K, in.KeyLens, p.DType},
		{"VTangent", &in.V, &d.V, in.KeyLens, p.DType}, {"BiasTangent", in.Bias, &d.Bias, nil, p.Bias.DType}} {
		if moving&(1<<i) == 0 || x.of == nil {
			continue
		}
		t := ref.NewTensor(x.of.B, x.of.H, x.of.N, x.of.D)
		fillSelfCheck(rng, x.as, t.Data)
		spoilBeyond(t, x.lens)
		*x.to, values[x.name] = &t, t.Data
	}
	if moving&SinksMove != 0 && in.Sinks != nil {
		t := ref.NewTensor(1, 1, 1, len(in.Sinks))
		fillSelfCheck(rng, attn.F32, t.Data)
		for i := range t.Data {
			t.Data[i] *= sinkMoves
		}
		d.Sinks, values["SinksTangent"] = &t, t.Data
	}
	return d
}

// compareJVP says where the tangents of o and lse are off what the oracle makes of the inputs. Tolerances grow with what roundings of
// scores make of the weights of rows.
func (t *selfCheckTensors) compareJVP(p *attn.Problem, in *ref.Problem, j *Tangents, d ref.Tangents, rows judged,
	lse bool) (string, error) {
	wantO, wantLSE, err := ref.JVP(*in, d)
	if err != nil {
		return "", err
	}
	rough := [2]float64{}
	if HasFunctions(p) {
		for as, times := range roughTypes(p) {
			plainO, plainLSE, err := ref.PlainJVP(*in, as, d)
			if err != nil {
				return "", err
			}
			rough[0] += times * furthest(plainO.Data, wantO.Data)
			rough[1] += times * furthest(plainLSE.Data, wantLSE.Data)
		}
	}
	weights := 0.0
	for _, x := range rows {
		if x == x {
			weights = max(weights, timesOfRows*x)
		}
	}
	rows.leaveOut(wantO.Data, wantO.D)
	rows.leaveOut(wantLSE.Data, 1)
	near := map[attn.DType]float64{attn.F32: 1e-3, attn.F16: 2e-2, attn.BF16: 1.6e-1}[p.DType]
	to := j.List()
	for i := range attn.JVPOperands {
		x := &attn.JVPOperands[i]
		if !x.Output || x.Optional && !lse {
			continue
		}
		want, off := wantO, rough[0]
		if x.Of == "LSE" {
			want, off = wantLSE, rough[1]
		}
		off += weights * furthest(make([]float64, len(want.Data)), want.Data)
		got := t.download(x.DType(p), x.Shape(p), to[i])
		if wrong := offAt(p, strings.ToLower(x.Name), unpacked(p, x, got, want.Data), want, near, off); wrong != "" {
			return wrong, t.err
		}
	}
	return "", t.err
}

package flash

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
)

// reordered gives the elements of [b, h, n, d] in the order of a layout, or back.
func reordered(x []float32, shape [4]int, layout Layout, back bool) []float32 {
	if layout == BHND {
		return x
	}
	b, h, n, d := shape[0], shape[1], shape[2], shape[3]
	out := make([]float32, len(x))
	for i := range b {
		for j := range h {
			for k := range n {
				from, to := ((i*h+j)*n+k)*d, ((i*n+k)*h+j)*d
				if back {
					from, to = to, from
				}
				copy(out[to:to+d], x[from:from+d])
			}
		}
	}
	return out
}

// sdpaCase is a call of SDPA, and the same as a plan.
type sdpaCase struct {
	name    string
	problem Problem
	options func(t *testing.T, d *Device, rng *rand.Rand) SDPAOptions
}

func sdpaCases() []sdpaCase {
	const batch, heads, queries, keys = 2, 4, 9, 13
	small := Problem{Batch: batch, Heads: heads, KeyHeads: 2, QueryLen: queries, KeyLen: keys, HeadDim: 8, DType: F16}
	wide := small
	wide.DType, wide.ValueDim = F32, 16
	filled := func(t *testing.T, d *Device, dtype DType, shape [4]int, values func(i int) float32) *Tensor {
		data := make([]float32, shape[0]*shape[1]*shape[2]*shape[3])
		for i := range data {
			data[i] = values(i)
		}
		x, err := d.TensorFrom(bg, dtype, data, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	return []sdpaCase{
		{"plain", small, func(*testing.T, *Device, *rand.Rand) SDPAOptions { return SDPAOptions{} }},
		{"causal, window, scale, dropout", wide, func(*testing.T, *Device, *rand.Rand) SDPAOptions {
			return SDPAOptions{Causal: CausalBottomRight, Window: SlidingWindow(6, 2), Scale: -0.3, Dropout: 0.25, Seed: 7, Offset: 3}
		}},
		{"bias, mask, sinks", wide, func(t *testing.T, d *Device, rng *rand.Rand) SDPAOptions {
			random := func(int) float32 { return float32(rng.NormFloat64()) }
			return SDPAOptions{
				Bias:  filled(t, d, F32, [4]int{1, heads, queries, keys}, random),
				Mask:  filled(t, d, Bool, [4]int{batch, 1, queries, keys}, func(i int) float32 { return float32(min(i%5, 1)) }),
				Sinks: filled(t, d, F32, [4]int{1, 1, 1, heads}, random),
			}
		}},
		{"lengths, functions", small, func(t *testing.T, d *Device, rng *rand.Rand) SDPAOptions {
			lengths := func(a, b float32) *Tensor {
				return filled(t, d, Int32, [4]int{1, 1, 1, batch}, func(i int) float32 { return [...]float32{a, b}[i] })
			}
			return SDPAOptions{
				QueryLengths: lengths(queries, 5), KeyLengths: lengths(11, keys), MaskFunction: score.PrefixLM(3),
				ScoreFunction: score.ALiBiFrom(score.Capture("slopes", heads)),
				Captured:      Captured{filled(t, d, F32, [4]int{1, 1, 1, heads}, func(i int) float32 { return -float32(i) / 16 })},
			}
		}},
	}
}

// TestSDPA: the call on tensors, in both layouts, gives what a plan gives, bit for bit, and so does its vector-Jacobian product; plain
// attention is also compared with float64. Nothing stays but what is returned.
func TestSDPA(t *testing.T) {
	d := testDevice(t)
	for _, c := range sdpaCases() {
		t.Run(c.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(11, 12))
			opts := c.options(t, d, rng)
			s := newSample(t, c.problem)
			do := randomValues(rng, s.p.DType, s.p.OShape())
			send := func(layout Layout, shape [4]int, values []float32) *Tensor {
				values = reordered(values, shape, layout, false)
				if layout == BNHD {
					shape[1], shape[2] = shape[2], shape[1]
				}
				x, err := d.NewTensor(s.p.DType, shape[0], shape[1], shape[2], shape[3])
				require.NoError(t, err)
				require.NoError(t, x.Upload(bg, values))
				return x
			}
			read := func(x *Tensor) []float32 {
				values := make([]float32, x.Elements())
				require.NoError(t, x.Download(bg, values))
				return values
			}
			want := s.planned(t, d, opts, do)
			for _, layout := range []Layout{BHND, BNHD} {
				opts.Layout = layout
				q, k, v := send(layout, s.p.QShape(), s.q), send(layout, s.p.KShape(), s.k), send(layout, s.p.VShape(), s.v)
				dO := send(layout, s.p.OShape(), do)
				before := d.Usage().Current
				o, lse, err := d.SDPA(bg, q, k, v, opts)
				require.NoError(t, err)
				g, err := d.SDPAVJP(bg, q, k, v, o, lse, dO, opts)
				require.NoError(t, err)
				got := [8][]float32{
					reordered(read(o), s.p.OShape(), layout, true), read(lse), reordered(read(g.DQ), s.p.QShape(), layout, true),
					reordered(read(g.DK), s.p.KShape(), layout, true), reordered(read(g.DV), s.p.VShape(), layout, true),
				}
				for i, x := range []*Tensor{g.DBias, g.DSinks, g.DCaptured[0]} {
					if x != nil {
						got[5+i] = read(x)
					}
				}
				require.Equal(t, opts.Bias != nil, g.DBias != nil)
				require.Equal(t, opts.Sinks != nil, g.DSinks != nil)
				require.Equal(t, opts.Captured[0] != nil, g.DCaptured[0] != nil)
				require.Equal(t, want, got, layout)
				if c.name == "plain" {
					for i := range s.o {
						require.InDelta(t, s.o[i], got[0][i], 2e-3)
					}
				}
				require.NoError(t, g.Close())
				require.NoError(t, closeTensors(o, lse))
				require.Equal(t, before, d.Usage().Current, "only what is returned stays")
			}
		})
	}
}

// planned is what a plan makes of the sample with a call's options: o, lse, dq, dk, dv, and the gradients with respect to bias, sinks and
// the first captured tensor.
func (s *sample) planned(t *testing.T, d *Device, opts SDPAOptions, do []float32) (out [8][]float32) {
	p := s.p
	p.Causal, p.Window, p.Dropout, p.ScoreFunction, p.MaskFunction = opts.Causal, opts.Window, opts.Dropout, opts.ScoreFunction,
		opts.MaskFunction
	if opts.Scale != 0 {
		p.Scale = opts.Scale
	}
	p.Sinks, p.QueryLengths, p.KeyLengths = opts.Sinks != nil, opts.QueryLengths != nil, opts.KeyLengths != nil
	p.Bias, p.Mask = perScoreOf(opts.Bias), perScoreOf(opts.Mask)
	plan := mustPlan(t, d, p)
	tensor := plainly(t, d)
	f := s.tensors(t, d, tensor)
	f.Bias, f.Mask, f.Sinks, f.QueryLengths, f.KeyLengths = opts.Bias, opts.Mask, opts.Sinks, opts.QueryLengths, opts.KeyLengths
	f.Captured, f.Seed, f.Offset = opts.Captured, opts.Seed, opts.Offset
	require.NoError(t, plan.Forward(bg, f))
	b := Backward{Forward: f, DO: tensor(p.DType, p.OShape()), DQ: tensor(p.DType, p.QShape()), DK: tensor(p.DType, p.KShape()),
		DV: tensor(p.DType, p.VShape())}
	require.NoError(t, b.DO.Upload(bg, do))
	if f.Bias != nil {
		b.DBias = tensor(F32, f.Bias.Shape())
	}
	if f.Sinks != nil {
		b.DSinks = tensor(F32, f.Sinks.Shape())
	}
	if f.Captured[0] != nil {
		b.DCaptured[0] = tensor(F32, f.Captured[0].Shape())
	}
	require.NoError(t, plan.Backward(bg, b))
	for i, x := range []*Tensor{f.O, f.LSE, b.DQ, b.DK, b.DV, b.DBias, b.DSinks, b.DCaptured[0]} {
		if x != nil {
			out[i] = make([]float32, x.Elements())
			require.NoError(t, x.Download(bg, out[i]))
		}
	}
	return out
}

// TestSDPARefuses: what does not fit is named, and nothing stays of a call that failed.
func TestSDPARefuses(t *testing.T) {
	d := testDevice(t)
	tensor := func(dtype DType, shape ...int) *Tensor {
		x, err := d.NewTensor(dtype, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	q, k, v := tensor(F16, 1, 4, 5, 8), tensor(F16, 1, 2, 7, 8), tensor(F16, 1, 2, 7, 8)
	// Staging buffers, of devices whose memory is not the host's, grow with what is moved, and stay.
	used := func() (bytes uint64) {
		for label, u := range d.Usage().ByLabel {
			if !strings.HasPrefix(label, "staging ") {
				bytes += u.Current
			}
		}
		return bytes
	}
	for _, c := range []struct {
		q, k, v *Tensor
		opts    SDPAOptions
		says    string
	}{
		{nil, k, v, SDPAOptions{}, "q is nil or zero"},
		{q, k, nil, SDPAOptions{Layout: BNHD}, "v is nil or zero"},
		{q, tensor(F16, 1, 2, 7, 16), v, SDPAOptions{}, "k is"},
		{q, tensor(F16, 2, 2, 7, 8), v, SDPAOptions{}, "k is"},
		{q, k, tensor(F16, 1, 2, 8, 8), SDPAOptions{}, "v is"},
		{q, k, tensor(F16, 1, 1, 7, 8), SDPAOptions{}, "v is"},
		{q, tensor(F32, 1, 2, 7, 8), v, SDPAOptions{}, "must be of q's type"},
		{q, tensor(F16, 1, 3, 7, 8), tensor(F16, 1, 3, 7, 8), SDPAOptions{}, "multiple of KeyHeads"},
		{q, k, v, SDPAOptions{Layout: 2}, "must be BHND or BNHD"},
		{q, k, v, SDPAOptions{Layout: BNHD}, "multiple of KeyHeads"},
		{q, k, v, SDPAOptions{Bias: tensor(F32, 1, 3, 5, 7)}, "Problem.Bias"},
		{q, k, v, SDPAOptions{Mask: tensor(F32, 1, 1, 5, 7)}, "Problem.Mask"},
		{q, k, v, SDPAOptions{KeyLengths: tensor(F32, 1, 1, 1, 1)}, "KeyLengths"},
	} {
		before := used()
		_, _, err := d.SDPA(bg, c.q, c.k, c.v, c.opts)
		require.ErrorIs(t, err, ErrArgument, c.says)
		require.ErrorContains(t, err, c.says)
		require.Equal(t, before, used())
	}
	before := used()
	_, err := d.TensorFrom(bg, F16, make([]float32, 9), 1, 1, 2, 4)
	require.ErrorContains(t, err, "len(values)")
	require.Equal(t, before, used())
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, _, err = d.SDPA(ctx, q, k, v, SDPAOptions{})
	require.ErrorIs(t, err, context.Canceled)
	o, lse, err := d.SDPA(bg, q, k, v, SDPAOptions{})
	require.NoError(t, err)
	before = used()
	_, err = d.SDPAVJP(bg, q, k, v, o, lse, k, SDPAOptions{})
	require.ErrorIs(t, err, ErrArgument)
	require.Equal(t, before, used())
	require.Equal(t, "BHND BNHD no layout", BHND.String()+" "+BNHD.String()+" "+Layout(9).String())
}

package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// onHost is values in memory of the host, as the type has them.
func onHost(t *testing.T, dtype flash.DType, values []float32) *flash.HostMemory {
	m, err := flash.NewHostMemory(dtype.Bytes(len(values)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	attn.Encode(attn.DType(dtype), m.Bytes(), values)
	return m
}

// TestStream compares attention over blocks from the host with the oracle, and its second run with the first.
func TestStream(t *testing.T) {
	for i, c := range cases {
		for _, block := range []int{0, 40} {
			t.Run(fmt.Sprintf("%s/%d", c.name, block), func(t *testing.T) {
				d := sharedDevices(t, 1)[0]
				s := newSample(t, rand.New(rand.NewPCG(uint64(i), 21)), c.problem)
				p := &s.problem
				k, v := onHost(t, p.DType, s.in.K.Data), onHost(t, p.DType, s.in.V.Data)
				noise := make([]float32, len(s.in.K.Data)+len(s.in.V.Data))
				for i := range noise {
					noise[i] = 1234
				}
				dk, dv := onHost(t, p.DType, noise[:len(s.in.K.Data)]), onHost(t, p.DType, noise[:len(s.in.V.Data)])
				ctx := soon(t)
				stream, err := NewStream(d, c.problem, block)
				require.NoError(t, err)
				defer stream.Close()
				if block > 0 {
					require.Greater(t, stream.Blocks(), 1)
				}
				// A stream's plan of a rank that has all tokens has tensors as a ring of one.
				comms, err := Local(1)
				require.NoError(t, err)
				r, err := New(comms[0], d)
				require.NoError(t, err)
				alone, err := r.Plan(ctx, c.problem, Shard{Order: Plain})
				require.NoError(t, err)
				defer alone.Close()
				x, err := s.place(ctx, d, alone)
				require.NoError(t, err)
				defer x.close()
				var runs [2]results
				for n := range runs {
					require.NoError(t, stream.Forward(ctx, StreamForward{Q: x.q, O: x.o, LSE: x.lse, K: k, V: v, Seed: s.seed, Offset: s.dropOffset}))
					require.NoError(t, stream.Backward(ctx, StreamBackward{Q: x.q, O: x.o, LSE: x.lse, DO: x.do, DLSE: x.dlse, DQ: x.dq, K: k, V: v, DK: dk, DV: dv,
						Seed: s.seed, Offset: s.dropOffset}))
					array := func(shape [4]int, from *flash.Tensor, raw []byte) ref.Array {
						a := ref.NewArray(shape[0], shape[1], shape[2], shape[3])
						values := make([]float32, len(a.Data))
						if from != nil {
							require.NoError(t, from.Download(ctx, values))
						} else {
							attn.Decode(attn.DType(p.DType), values, raw)
						}
						for i, v := range values {
							a.Data[i] = float64(v)
						}
						return a
					}
					runs[n] = results{o: array(p.OShape(), x.o, nil), lse: array(p.LSEShape(), x.lse, nil), dq: array(p.QShape(), x.dq, nil), dk: array(p.KShape(), nil, dk.Bytes()), dv: array(p.VShape(), nil, dv.Bytes())}
				}
				s.judge(t, &runs[0])
				require.Equal(t, runs[0], runs[1])
			})
		}
	}
}

// TestStreamBadInput: what does not fit is named.
func TestStreamBadInput(t *testing.T) {
	d := sharedDevices(t, 1)[0]
	_, err := NewStream(d, small, -1)
	require.ErrorIs(t, err, flash.ErrArgument)
	p := small
	p.Sinks = true
	_, err = NewStream(d, p, 0)
	require.ErrorIs(t, err, flash.ErrArgument)
	s, err := NewStream(d, small, 0)
	require.NoError(t, err)
	defer s.Close()
	h, err := flash.NewHostMemory(16)
	require.NoError(t, err)
	defer h.Close()
	q, err := d.NewTensor(flash.F32, 1, 2, 64, 8)
	require.NoError(t, err)
	o, err := d.NewTensor(flash.F32, 1, 2, 64, 8)
	require.NoError(t, err)
	for name, f := range map[string]StreamForward{
		"StreamForward.Q": {O: o}, "StreamForward.K": {Q: q, O: o, K: h, V: h}, "StreamForward.LSE": {Q: q, O: o, LSE: q},
	} {
		s, err := NewStream(d, small, 0)
		require.NoError(t, err)
		var bad *flash.ArgumentError
		require.ErrorAs(t, s.Forward(t.Context(), f), &bad)
		require.Equal(t, name, bad.Argument)
		require.NoError(t, s.Close())
	}
}

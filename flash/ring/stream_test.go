package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/hostmem"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

// onHost is values in memory of the host, as the type has them.
func onHost(t *testing.T, dtype flash.DType, values []float32) *hostmem.Memory {
	m, err := hostmem.New(dtype.Bytes(len(values)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	attn.Encode(attn.DType(dtype), m.Bytes(), values)
	return m
}

// streamed is a problem, and where its sequences lie.
type streamed struct {
	name    string
	problem flash.Problem
	of      sequencesOf
}

// streamedCases are the cases of ranks.
func streamedCases() (all []streamed) {
	for _, c := range cases {
		all = append(all, streamed{c.name, c.problem, sequencesOf{}})
	}
	for _, c := range operandCases {
		all = append(all, streamed{c.name, c.problem, someLengths(&c.problem)})
	}
	for _, c := range blockCases {
		all = append(all, streamed{"blocks " + c.name, c.problem, someLengths(&c.problem)})
	}
	for _, c := range paddedCases {
		all = append(all, streamed{"padded " + c.name, c.problem, sequencesOf{queryLengths: c.queries, keyLengths: c.keys}})
	}
	for _, c := range packedCases {
		if c.heads {
			continue
		}
		of := sequencesOf{c.queries, c.keys, c.queryLens, c.keyLens}
		if of.keyStarts == nil {
			of.keyStarts = c.queries
		}
		all = append(all, streamed{"packed " + c.name, c.problem, of})
	}
	return all
}

// TestStream compares attention over blocks from the host with the oracle, and its second run with the first.
func TestStream(t *testing.T) {
	for i, c := range streamedCases() {
		for _, block := range []int{0, 40} {
			if testing.Short() && (i%3 != 0 || (block == 0) != (i%5 == 0)) {
				continue // a third of the cases; one block for every fifth, several for the others
			}
			t.Run(fmt.Sprintf("%s/%d", c.name, block), func(t *testing.T) {
				s := newPackedSample(t, rand.New(rand.NewPCG(uint64(i), 21)), c.problem, c.of)
				if block > 0 {
					block = max(block, c.problem.Blocks.Keys) // a block of keys has a whole one of the mask
				}
				got := s.stream(t, sharedDevices(t, 1)[0], block, 2, false)
				s.judge(t, &got[0])
				require.Equal(t, got[0], got[1])
			})
		}
	}
}

// TestStreamAccumulates: gradients are added to what there is, those of keys that no block of queries sees with nothing.
func TestStreamAccumulates(t *testing.T) {
	d := sharedDevices(t, 1)
	bias := flash.PerScore{DType: flash.F32, Batch: 1, Heads: 2, Queries: 1, Keys: 150}
	for name, c := range map[string]streamed{
		"window, bias, sinks": {problem: flash.Problem{Batch: 2, Heads: 2, QueryLen: 60, KeyLen: 150, HeadDim: 16, DType: flash.F32,
			Window: flash.SlidingWindow(10, 3), Bias: bias, Sinks: true, ScoreFunction: relative(2)}},
		"packed": {problem: flash.Problem{Batch: 3, Heads: 2, QueryLen: 90, HeadDim: 8, DType: flash.F32,
			Packed: flash.Packed{Queries: 200, Keys: 200}},
			of: sequencesOf{queryStarts: []int32{0, 77, 77, 140}, keyStarts: []int32{0, 60, 90, 180}}},
		"padded": {problem: flash.Problem{Batch: 3, Heads: 2, QueryLen: 90, HeadDim: 8, DType: flash.F32,
			Causal: flash.CausalBottomRight, KeyLengths: true}, of: sequencesOf{keyLengths: []int32{90, 33, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := c.problem.Normalize()
			require.NoError(t, err)
			s := newInputs(rand.New(rand.NewPCG(4, 21)), p)
			s.sequencesOf = c.of
			one := passesOn(t, d, s, Shard{}, []sequencesOf{c.of}, true)[0]
			got := s.stream(t, d[0], 40, 1, true)[0]
			for what, x := range map[string][2][]float64{"dq": {got.dq.Data, one.dq.Data}, "dk": {got.dk.Data, one.dk.Data},
				"dv": {got.dv.Data, one.dv.Data}, "dbias": {got.dbias.Data, one.dbias.Data}} {
				near(t, x[0], x[1], "%s", what)
			}
			require.InDeltaSlice(t, one.dsinks[0], got.dsinks[0], 4e-3)
			for i := range one.dcaptured[0] {
				require.InDeltaSlice(t, one.dcaptured[0][i], got.dcaptured[0][i], 4e-3)
			}
		})
	}
}

// stream computes both passes with keys and values from the host, times times.
func (s *sample) stream(t *testing.T, d *flash.Device, block, times int, accumulate bool) (runs []results) {
	t.Helper()
	p := &s.problem
	k, v := onHost(t, p.DType, s.in.K.Data), onHost(t, p.DType, s.in.V.Data)
	noise := make([]float32, len(s.in.K.Data)+len(s.in.V.Data))
	for i := range noise {
		noise[i] = poison
	}
	dk, dv := onHost(t, p.DType, noise[:len(s.in.K.Data)]), onHost(t, p.DType, noise[:len(s.in.V.Data)])
	ctx := soon(t)
	stream, err := NewStream(d, *p, block)
	require.NoError(t, err)
	defer stream.Close()
	if block > 0 {
		require.Greater(t, stream.Blocks(), 1)
	}
	// A plan of a rank that has all tokens has tensors as a stream.
	comms, err := Local(1)
	require.NoError(t, err)
	r, err := New(comms[0], d)
	require.NoError(t, err)
	alone, err := r.Plan(ctx, *p, Shard{Order: Plain})
	require.NoError(t, err)
	defer alone.Close()
	x, err := s.place(ctx, d, alone)
	require.NoError(t, err)
	defer x.close()
	for range times {
		f := StreamForward{Q: x.q, O: x.o, LSE: x.lse, K: k, V: v, Seed: s.seed, Offset: s.dropOffset, Bias: x.bias, Mask: x.mask,
			Sinks: x.sinks, QueryStarts: x.queryStarts, KeyStarts: x.keyStarts, QueryLengths: x.queryLengths, KeyLengths: x.keyLengths,
			Captured: x.captured, Blocks: x.blocks, MaxLogit: x.maxLogit}
		require.NoError(t, stream.Forward(ctx, f))
		require.NoError(t, stream.Backward(ctx, StreamBackward{StreamForward: f, DO: x.do, DLSE: x.dlse, DQ: x.dq, DK: dk, DV: dv,
			DBias: x.dbias, DSinks: x.dsinks, DCaptured: x.dcaptured,
			Accumulate: accumulate}))
		one := newResults(p, 1)
		for _, f := range []struct {
			to   ref.Array
			from *flash.Tensor
			raw  []byte
		}{{one.o, x.o, nil}, {one.lse, x.lse, nil}, {one.dq, x.dq, nil}, {one.dk, nil, dk.Bytes()}, {one.dv, nil, dv.Bytes()}} {
			values := make([]float32, len(f.to.Data))
			if f.from != nil {
				require.NoError(t, f.from.Download(ctx, values))
			} else {
				attn.Decode(attn.DType(p.DType), values, f.raw)
			}
			for i, v := range values {
				f.to.Data[i] = float64(v)
			}
		}
		require.NoError(t, x.more.download(ctx, alone, &one))
		runs = append(runs, one)
	}
	return runs
}

// TestStreamSays: a stream's plan tells of all queries and keys, however these are cut, and blocks are no longer than was asked for.
func TestStreamSays(t *testing.T) {
	d := sharedDevices(t, 1)[0]
	for _, c := range []struct {
		change func(p *flash.Problem)
		block  int
	}{
		{func(p *flash.Problem) {}, 256},
		{func(p *flash.Problem) { p.KeyLen = 6500 }, 65},
		{func(p *flash.Problem) { p.KeyLen = 6500 }, 1000},
		{func(p *flash.Problem) { p.Blocks = flash.Blocks{Queries: 16, Keys: 24} }, 100},
		{func(p *flash.Problem) { p.Batch, p.KeyLengths = 2, true }, 256},
		{func(p *flash.Problem) { p.Packed = flash.Packed{Queries: 500, Keys: 1000} }, 130},
		{func(p *flash.Problem) { p.Dropout = 0.5 }, 200},
	} {
		p := flash.Problem{Batch: 1, Heads: 1, QueryLen: 300, KeyLen: 1000, HeadDim: 8, DType: flash.F32}
		c.change(&p)
		p, err := p.Normalize()
		require.NoError(t, err)
		s, err := NewStream(d, p, c.block)
		require.NoError(t, err)
		queries, keys := tokens(&p)
		plan := s.Plan()
		require.Greater(t, s.Blocks(), 1)
		require.Equal(t, []Span{{0, queries}}, plan.Queries(), "%v", p)
		require.Equal(t, []Span{{0, keys}}, plan.Keys(), "%v", p)
		require.Equal(t, p, plan.Local())
		require.Equal(t, Keys, plan.Over())
		for _, b := range s.blocks {
			require.LessOrEqual(t, b.Len(), c.block, "%v", p)
		}
		require.NoError(t, s.Close())
	}
}

// TestStreamBadInput: what does not fit is named.
func TestStreamBadInput(t *testing.T) {
	d := sharedDevices(t, 1)[0]
	_, err := NewStream(d, small, -1)
	require.ErrorIs(t, err, flash.ErrArgument)
	p := small
	p.Pages = flash.Pages{Count: 4, Size: 16, PerSequence: 4}
	_, err = NewStream(d, p, 0)
	require.ErrorIs(t, err, flash.ErrArgument)
	s, err := NewStream(d, small, 0)
	require.NoError(t, err)
	defer s.Close()
	h, err := hostmem.New(16)
	require.NoError(t, err)
	defer h.Close()
	q, err := d.NewTensor(flash.F32, 1, 2, 64, 8)
	require.NoError(t, err)
	o, err := d.NewTensor(flash.F32, 1, 2, 64, 8)
	require.NoError(t, err)
	for name, f := range map[string]StreamForward{
		"StreamForward.Q": {O: o}, "StreamForward.K": {Q: q, O: o, K: h, V: h}, "StreamForward.LSE": {Q: q, O: o, LSE: q},
		"StreamForward.Sinks": {Q: q, O: o, Sinks: q},
	} {
		s, err := NewStream(d, small, 0)
		require.NoError(t, err)
		var bad *flash.ArgumentError
		require.ErrorAs(t, s.Forward(t.Context(), f), &bad)
		require.Equal(t, name, bad.Argument)
		require.NoError(t, s.Close())
	}
}

package door

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/kvcache"
	"github.com/vkattn/vkattn/internal/flashtest"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/vk"
)

const rowsOfStep, tokensOfStep, layers = 3, 4, 2

func testCache(t *testing.T, device Handle) Handle {
	c, err := NewCache(device, CacheOptions{Layers: layers, Heads: heads, KeyHeads: keyHeads, HeadDim: dim, ValueDim: valueDim, Page: 4,
		Pages: 12, MaxSequences: 4, MaxLength: 32, Rows: rowsOfStep, Tokens: tokensOfStep})
	require.NoError(t, err)
	return c
}

// history is what a sequence has of a layer: rows [key heads][tokens][·].
type history struct{ k, v [keyHeads][][]float32 }

// fork gives the same, to go on apart.
func (h history) fork() history {
	for i := range h.k {
		h.k[i], h.v[i] = h.k[i][:len(h.k[i]):len(h.k[i])], h.v[i][:len(h.v[i]):len(h.v[i])]
	}
	return h
}

// TestCache: sequences that are added, forked, truncated and freed attend to what they have, as the oracle says, through steps of random
// sizes and in every layer. A step whose submission fails gives no room, has no passes, and leaves the cache usable.
func TestCache(t *testing.T) {
	faults := vk.NewFaults()
	d, err := flash.Attach(flashtest.Device(t).External(), flash.WithoutDiskCache(), flash.WithFaults(faults))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	device := added(t, d)
	h := testCache(t, device)
	defer func() { require.NoError(t, CloseCache(h)) }()
	rng := rand.New(rand.NewPCG(11, 3))
	has := map[uint64]*[layers]history{}

	step := func(requests ...Request) {
		require.NoError(t, Step(h, requests))
		for layer := range layers {
			input := func(heads, dim int) *hosted {
				shape := [4]int{rowsOfStep, heads, tokensOfStep, dim}
				return onHost(flash.F32, shape, arrangement(layer), flashtest.Values(rng, flash.F32, shape))
			}
			q, k, v := input(heads, dim), input(keyHeads, dim), input(keyHeads, valueDim)
			o := onHost(flash.F32, [4]int{rowsOfStep, heads, tokensOfStep, valueDim}, rowMajor, nil)
			lse := onHost(flash.F32, [4]int{rowsOfStep, heads, tokensOfStep, 1}, rowMajor, nil)
			require.NoError(t, Attend(h, uint32(layer), Options{Causal: uint32(flash.CausalBottomRight)},
				Forward{Q: q.Tensor, K: k.Tensor, V: v.Tensor, O: o.Tensor, LSE: lse.Tensor}))
			got := ref.Tensor{B: rowsOfStep, H: heads, N: tokensOfStep, D: valueDim, Data: o.got(t)}
			for row, r := range requests {
				for i := int(r.Tokens); i < tokensOfStep; i++ {
					require.Equal(t, make([]float32, valueDim), got.Row(row, 0, i), "row %d, behind its last token", row)
				}
				if r.Tokens == 0 {
					continue
				}
				mine := &has[r.Sequence][layer]
				n := len(mine.k[0]) + int(r.Tokens)
				p := ref.Problem{Q: ref.NewTensor(1, heads, int(r.Tokens), dim), K: ref.NewTensor(1, keyHeads, n, dim),
					V: ref.NewTensor(1, keyHeads, n, valueDim)}
				p.Causal = ref.BottomRight
				for head := range heads {
					for i := range int(r.Tokens) {
						copy(p.Q.Row(0, head, i), q.array().Row(row, head, i))
					}
				}
				for head := range keyHeads {
					for i := range int(r.Tokens) {
						mine.k[head] = append(mine.k[head], k.array().Row(row, head, i))
						mine.v[head] = append(mine.v[head], v.array().Row(row, head, i))
					}
					for i := range n {
						copy(p.K.Row(0, head, i), mine.k[head][i])
						copy(p.V.Row(0, head, i), mine.v[head][i])
					}
				}
				right, _, err := ref.Forward(p)
				require.NoError(t, err)
				for head := range heads {
					for i := range int(r.Tokens) {
						for d, x := range right.Row(0, head, i) {
							require.InDelta(t, x, got.Row(row, head, i)[d], 1e-5, "row %d, head %d, token %d", row, head, i)
						}
					}
				}
			}
		}
		for _, r := range requests {
			if r.Sequence == 0 {
				continue
			}
			n, err := SequenceLength(h, r.Sequence)
			require.NoError(t, err)
			require.EqualValues(t, len(has[r.Sequence][0].k[0]), n)
		}
	}
	stepFails := func(requests ...Request) {
		before := make([]uint64, len(requests))
		for i, r := range requests {
			before[i], _ = SequenceLength(h, r.Sequence)
		}
		for range 2 { // of the step, and of the one that has to go before the next
			require.NoError(t, faults.Arm("submit", 1, 0))
			require.ErrorIs(t, Step(h, requests), vk.ErrOutOfHostMemory)
			faults.Disarm()
			flashtest.Refused(t, "cache", Attend(h, 0, Options{}, Forward{}))
			for i, r := range requests {
				n, _ := SequenceLength(h, r.Sequence)
				require.Equal(t, before[i], n)
			}
		}
	}
	a, err := AddSequence(h)
	require.NoError(t, err)
	has[a] = &[layers]history{}
	stepFails(Request{Sequence: a, Tokens: 3})
	step(Request{Sequence: a, Tokens: 4})
	step(Request{}, Request{Sequence: a, Tokens: 2})
	b, err := ForkSequence(h, a)
	require.NoError(t, err)
	has[b] = &[layers]history{has[a][0].fork(), has[a][1].fork()}
	stepFails(Request{}, Request{Sequence: b, Tokens: 4})
	step(Request{Sequence: b, Tokens: 1}, Request{}, Request{Sequence: a, Tokens: 3})
	stepFails(Request{Sequence: a, Tokens: 4})
	require.NoError(t, TruncateSequence(h, a, 5))
	for layer := range layers {
		for head := range keyHeads {
			has[a][layer].k[head], has[a][layer].v[head] = has[a][layer].k[head][:5:5], has[a][layer].v[head][:5:5]
		}
	}
	step(Request{Sequence: a, Tokens: 2}, Request{Sequence: b, Tokens: 1})
	require.NoError(t, FreeSequence(h, a))
	step(Request{Sequence: b, Tokens: 4})
}

// TestCacheRefuses: what does not go with a cache is a named error, and leaves it usable.
func TestCacheRefuses(t *testing.T) {
	device := opened(t)
	for name, o := range map[string]CacheOptions{
		"options.dtype":  {DType: uint32(flash.Int32)},
		"options.heads":  {Heads: 3, KeyHeads: 2},
		"options.pages":  {Heads: 2, KeyHeads: 2, Pages: 1 << 31},
		"Options.Layers": {Heads: 2, KeyHeads: 2},
	} {
		_, err := NewCache(device, o)
		flashtest.Refused(t, name, err)
	}
	_, err := NewCache(0, CacheOptions{})
	require.ErrorIs(t, err, errClosed)

	h := testCache(t, device)
	q, k := onHost(flash.F32, [4]int{rowsOfStep, heads, tokensOfStep, dim}, rowMajor, nil), onHost(flash.F32, kShape, rowMajor, nil)
	v := onHost(flash.F32, [4]int{rowsOfStep, keyHeads, tokensOfStep, valueDim}, rowMajor, nil)
	o := onHost(flash.F32, [4]int{rowsOfStep, heads, tokensOfStep, valueDim}, rowMajor, nil)
	f := Forward{Q: q.Tensor, K: k.Tensor, V: v.Tensor, O: o.Tensor}
	a, err := AddSequence(h)
	require.NoError(t, err)
	flashtest.Refused(t, "cache", Attend(h, 0, Options{}, f))
	require.ErrorIs(t, Step(h, []Request{{Sequence: 99, Tokens: 1}}), kvcache.ErrUnknownSequence)
	flashtest.Refused(t, "requests", Step(h, make([]Request, rowsOfStep+1)))
	flashtest.Refused(t, "requests.tokens", Step(h, []Request{{Sequence: a, Tokens: tokensOfStep + 1}}))
	flashtest.Refused(t, "requests.tokens", Step(h, []Request{{Tokens: 1}}))
	require.NoError(t, Step(h, []Request{{Sequence: a, Tokens: 1}}))
	flashtest.Refused(t, "layer", Attend(h, layers, Options{}, f))
	flashtest.Refused(t, "forward.k", Attend(h, 0, Options{}, f))
	f.K = nil
	flashtest.Refused(t, "forward.k", Attend(h, 0, Options{}, f))
	f.K = onHost(flash.F32, [4]int{rowsOfStep, keyHeads, tokensOfStep, dim}, rowMajor, nil).Tensor
	f.Bias = q.Tensor
	flashtest.Refused(t, "forward.bias", Attend(h, 0, Options{}, f))
	f.Bias = nil
	require.NoError(t, Attend(h, 0, Options{}, f))
	require.NoError(t, TruncateSequence(h, a, 0))
	flashtest.Refused(t, "cache", Attend(h, 1, Options{}, f)) // its tokens are gone
	flashtest.Refused(t, "length", TruncateSequence(h, a, 1<<40))
	require.ErrorIs(t, TruncateSequence(h, a, 7), flash.ErrArgument)
	require.NoError(t, FreeSequence(h, a))
	require.ErrorIs(t, FreeSequence(h, a), kvcache.ErrUnknownSequence)
	_, err = ForkSequence(h, a)
	require.ErrorIs(t, err, kvcache.ErrUnknownSequence)
	_, err = SequenceLength(h, a)
	require.ErrorIs(t, err, kvcache.ErrUnknownSequence)
	require.NoError(t, CloseCache(h))
	require.ErrorIs(t, CloseCache(h), errClosed)
	require.ErrorIs(t, Step(h, nil), errClosed)
	_, err = AddSequence(h)
	require.ErrorIs(t, err, errClosed)
}

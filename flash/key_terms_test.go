package flash

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

// largeScores are scores of some 20: a sum of products that are each rounded to fp16 is off by about 20 · 2^-12.
func largeScores(t *testing.T, p Problem) *sample {
	s := newSample(t, p)
	for i := range s.q {
		s.q[i] *= 4
	}
	copy(s.in.Q.Data, s.q)
	return s
}

// lseBeside runs the sample's queries beside its keys in a quantised type, and gives the largest error of lse against attention on the
// numbers that the blocks have.
func (s *sample) lseBeside(t *testing.T, d *Device, keys DType, kernel string, tuning map[string]int) (most float64, in map[string]int) {
	t.Helper()
	p, oracle := s.p, s.in
	p.KeyType = keys
	oracle.K = ref.NewTensor(p.Batch, p.KeyHeads, p.KeyLen, p.HeadDim)
	rows := stored(keys, s.k, p.HeadDim)
	copy(oracle.K.Data, rows)
	_, want, err := ref.Forward(oracle)
	require.NoError(t, err)
	plan, err := d.Plan(p, WithTier(TierMatrix), WithTuning(forwardTile(t, d, Flash, p, tuning)))
	skipUnsupported(t, err)
	defer plan.Close()
	require.Equal(t, kernel, plan.ForwardInfo().KernelName)
	f := s.tensors(t, d, plainly(t, d))
	f.K = plainly(t, d)(keys, p.KShape())
	require.NoError(t, f.K.Upload(bg, rows))
	require.NoError(t, plan.Forward(bg, f))
	for i, lse := range download(t, f.LSE) {
		most = max(most, math.Abs(float64(lse)-want.Data[i]))
	}
	t.Logf("lse off by %.2g at most", most)
	return most, plan.ForwardInfo().Tuning
}

// TestKeysOfBlocks: keys of blocks are staged as whole numbers whose products are multiplied by scales, or as two elements each, which
// gives the scores of the numbers themselves, in every form and way of staging; one element each is off by its rounding.
func TestKeysOfBlocks(t *testing.T) {
	vktest.Long(t, "quantised keys of the conformance suite")
	d := matrixDevice(t)
	vktest.Budget(t)
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 40, KeyLen: 75, HeadDim: 32, ValueDim: 8, DType: F16, Causal: CausalBottomRight}
	s := largeScores(t, p)
	for _, x := range []struct {
		keys   DType
		tuning map[string]int
		long   string
	}{
		{Q8_0, map[string]int{"key_terms": 0, "prefetch": 1}, ""},
		{Q4_0, map[string]int{"key_terms": 0, "prefetch": 3, "parts": 2}, "q8_0; conformance has q4_0"},
		{Q8_0, map[string]int{"key_terms": 0, "prefetch": 0, "form": 2}, "another way of staging, another form"},
		{Q4_0, map[string]int{"key_terms": 2, "prefetch": 3, "parts": 2}, "q8_0; conformance has q4_0"},
		{Q8_0, map[string]int{"key_terms": 2, "prefetch": 0, "form": 3, "steps": 1}, "another way of staging, another form"},
		{Q8_0, map[string]int{"key_terms": 1, "prefetch": 1}, "one term, to see the difference"},
		{Q5_1, map[string]int{"key_terms": 2, "prefetch": 1}, "sums of a product and a least number"},
		{IQ4_NL, map[string]int{"key_terms": 0, "prefetch": 2}, "numbers of a table"},
	} {
		t.Run(fmt.Sprint(x.keys, x.tuning), func(t *testing.T) {
			if x.long != "" {
				vktest.Long(t, x.long)
			}
			most, tuning := s.lseBeside(t, d, x.keys, "matrix_forward", x.tuning)
			require.Equal(t, x.tuning["key_terms"], tuning["key_terms"])
			if tuning["key_terms"] != 1 {
				require.Less(t, most, 2e-5) // as in fp32
			} else {
				require.Greater(t, most, 2e-4)
			}
		})
	}
	for _, x := range []struct {
		tuning map[string]int
		why    string
	}{
		{map[string]int{"key_terms": 0}, "blocks of q4_1 have a least number besides"},
		{map[string]int{"key_terms": 0, "form": 3}, "in form 3 cannot be multiplied by the scales of blocks"},
	} {
		blocks := p
		if blocks.KeyType = Q4_0; len(x.tuning) == 1 {
			blocks.KeyType = Q4_1
		}
		_, err := d.Plan(blocks, WithTier(TierMatrix), WithTuning(x.tuning))
		require.ErrorContains(t, err, x.why)
	}
	_, err := d.Plan(p, WithTier(TierMatrix), WithTuning(map[string]int{"key_terms": 2}))
	require.ErrorContains(t, err, "WithTuning[key_terms] is 2: goes with keys of blocks, such as q8_0, and these are float16")
}

// TestDecodingKeysOfBlocks: matrix_decode multiplies whole numbers and each block's sum by its scale, so that scores are those of the
// numbers themselves; with an odd number of blocks, of which the last piece of eight lanes (lavapipe's) has one and not two, and a batch
// that ends beyond the last key.
func TestDecodingKeysOfBlocks(t *testing.T) {
	vktest.Long(t, "quantised keys of the conformance suite")
	d := matrixDecodeDevice(t)
	vktest.Budget(t)
	for _, x := range []struct {
		keys DType
		dim  int
	}{{Q8_0, 96}, {Q4_0, 96}, {Q8_0, 64}, {Q5_1, 96}, {Q4_1, 96}, {Q5_0, 96}, {IQ4_NL, 96}, {Q5_0, 64}} {
		t.Run(fmt.Sprint(x.keys, x.dim), func(t *testing.T) {
			if x.dim == 64 || x.keys != Q8_0 && x.keys != Q5_1 {
				vktest.Long(t, "an odd number of blocks of q8_0 and q5_1; TestMatrixDecodeCaches has q4_0")
			}
			p := Problem{Batch: 1, Heads: 4, KeyHeads: 1, QueryLen: 1, KeyLen: 75, HeadDim: x.dim, ValueDim: 8, DType: F16}
			most, _ := largeScores(t, p).lseBeside(t, d, x.keys, "matrix_decode", map[string]int{"decode": 1, "w": 2, "parts": 2})
			require.Less(t, most, 1e-4)
		})
	}
}

// stored are rows as a cache of this type has them.
func stored(t DType, rows []float32, dim int) []float32 {
	out := slices.Clone(rows)
	for at := 0; at < len(out); at += dim {
		raw := make([]byte, t.Bytes(dim))
		attn.Encode(attn.DType(t), raw, out[at:at+dim])
		attn.Decode(attn.DType(t), out[at:at+dim], raw)
	}
	return out
}

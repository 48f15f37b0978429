package flash

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/matrix"
	"github.com/vkattn/vkattn/internal/vktest"
)

// matrixDecodeDevice is a test device that matrix_decode runs on.
func matrixDecodeDevice(t *testing.T) *Device {
	d := matrixDevice(t)
	p, err := Problem{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 64, HeadDim: 16, DType: F16}.Normalize()
	require.NoError(t, err)
	i := slices.IndexFunc(catalogue.Forward, func(k *kernel.Kernel) bool { return k.Name == matrix.DecodeKernel })
	if why := catalogue.Forward[i].Cannot(&d.env.Caps, attnOf(p)); why != "" {
		t.Skip(why)
	}
	return d
}

// TestMatrixDecode: few queries on matrices, whatever the rows, the parts of the keys and the keys at a time.
func TestMatrixDecode(t *testing.T) {
	d := matrixDecodeDevice(t)
	grouped := Problem{Batch: 2, Heads: 6, KeyHeads: 2, QueryLen: 2, KeyLen: 203, HeadDim: 40, ValueDim: 24, DType: F16,
		Causal: CausalBottomRight}
	ragged := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 3, KeyLen: 95, HeadDim: 19, ValueDim: 33, DType: F16}
	tall := Problem{Batch: 1, Heads: 6, KeyHeads: 1, QueryLen: 2, KeyLen: 150, HeadDim: 32, DType: F16}
	if testing.Short() { // fewer fragments, of which there are several still
		grouped.HeadDim, grouped.ValueDim, ragged.HeadDim, ragged.ValueDim, tall.HeadDim = 24, 16, 11, 17, 8
	}
	for _, test := range []struct {
		name   string
		p      Problem
		tuning map[string]int
	}{
		{"as it is chosen", grouped, map[string]int{"decode": 1}},
		{"one part", grouped, map[string]int{"parts": 1, "w": 2, "decode": 1}},
		{"parts", grouped, map[string]int{"parts": 3, "w": 1, "keys": 4}},
		{"more parts than keys", grouped, map[string]int{"parts": 210, "rows": 5, "keys": 2}},
		{"rows apart", grouped, map[string]int{"rows": 4, "parts": 2, "w": 2, "decode": 1}},
		{"several dispatches", grouped, map[string]int{"rows": 1, "parts": 3, "max_groups": 5}},
		{"ragged", ragged, map[string]int{"decode": 1}},
		{"more rows than a fragment has", tall, map[string]int{"decode": 1}},
		{"window", Problem{Batch: 1, Heads: 2, QueryLen: 3, KeyLen: 150, HeadDim: 16, DType: F16, Causal: CausalBottomRight,
			Window: SlidingWindow(40, 0)}, map[string]int{"decode": 1, "parts": 2}},
		{"rows that see nothing", Problem{Batch: 1, Heads: 2, QueryLen: 8, KeyLen: 5, HeadDim: 16, DType: F16, Causal: CausalBottomRight},
			map[string]int{"parts": 2, "decode": 1}},
		{"negative scale", Problem{Batch: 1, Heads: 1, QueryLen: 2, KeyLen: 90, HeadDim: 16, DType: F16, Scale: -0.8},
			map[string]int{"decode": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			switch test.name {
			case "more parts than keys", "several dispatches", "rows apart", "negative scale", "ragged", "window",
				"more rows than a fragment has", "as it is chosen":
				vktest.Long(t, "few queries in parts, and what the conformance suite has of the rest")
			}
			testDecode(t, d, matrix.DecodeKernel, TierMatrix, test.p, test.tuning)
		})
	}
}

// TestMatrixDecodePadding: testDecodePadding for matrix_decode.
func TestMatrixDecodePadding(t *testing.T) {
	vktest.Long(t, "few queries of the conformance suite")
	d := matrixDecodeDevice(t)
	for _, keys := range []int{1, 29, 64} {
		testDecodePadding(t, d, TierMatrix, F16, keys, map[string]int{"decode": 1, "w": 2, "parts": 2})
	}
}

// TestMatrixDecodeCaches: each plan runs its kernel on a small problem with such a cache, with pages that must not be read between those
// that are, entries of length 0 among others, and is refused where anything is wrong.
func TestMatrixDecodeCaches(t *testing.T) {
	vktest.Long(t, "caches of the conformance suite")
	d := matrixDecodeDevice(t)
	for _, test := range []struct {
		name               string
		page               int
		compressed         bool
		keyType, valueType DType
		dim, valueDim      int
		queries            int
		short              bool
	}{
		{"pages", 16, false, F16, F16, 64, 32, 1, true},
		{"large pages", 256, false, F16, F16, 64, 32, 1, false},
		{"small compressed pages", 4, true, F16, F16, 32, 16, 2, false},
		{"q8_0", 0, false, Q8_0, Q8_0, 128, 64, 1, true},
		{"q4_0 in pages", 16, false, Q4_0, Q4_0, 128, 128, 1, true},
		{"rows in the middle of words", 8, true, Q8_0, Q4_0, 32, 96, 2, false},
		{"one of two", 16, true, F16, Q8_0, 40, 64, 1, false},
		{"fp8", 32, false, F8E4M3, F8E4M3, 24, 40, 1, false},
		{"q4_1", 0, false, Q4_1, Q4_1, 128, 64, 1, false},
		{"q5_0 in pages", 16, false, Q5_0, Q5_0, 64, 96, 2, false},
		{"q5_1", 0, false, Q5_1, Q5_1, 64, 64, 1, true},
		{"iq4_nl", 8, true, IQ4_NL, IQ4_NL, 96, 64, 1, true},
		{"e5m2", 32, false, F8E5M2, F8E5M2, 24, 40, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.short {
				vktest.Long(t, "a pipeline each")
			}
			switch { // a CPU compiles wide heads for long
			case !isCPU(d) && !testing.Short():
			case attn.DType(test.keyType).Block() > 1: // a block of quantised keys
				test.dim, test.valueDim = 32, min(test.valueDim, 64)
			case test.valueType == F16:
				test.dim, test.valueDim = 16, 8
			}
			p := Problem{Batch: 6, Heads: 4, KeyHeads: 1, QueryLen: test.queries, KeyLen: 640, HeadDim: test.dim, ValueDim: test.valueDim,
				DType:      F16,
				KeyLengths: true, KeyType: test.keyType, ValueType: test.valueType}
			if test.page > 0 {
				each := (p.KeyLen + test.page - 1) / test.page
				p.Pages = Pages{Size: test.page, Count: p.Batch*each + 1, PerSequence: each}
				if test.compressed {
					p.Pages.PerSequence, p.Pages.Indices = 0, p.Batch*each
					p.KeyLengths = false
				}
			}
			plan := mustPlan(t, d, p, WithTier(TierMatrix), WithTuning(map[string]int{"decode": 1, "parts": 2}))
			require.Equal(t, matrix.DecodeKernel, plan.kernel.Name)
		})
	}
}

// TestMatrixDecodeRescalesInTime: a row's reference follows before a weight passes the largest fp16, however fast scores grow from batch to
// batch, and sums and outputs with it.
func TestMatrixDecodeRescalesInTime(t *testing.T) {
	vktest.Long(t, "few queries of the conformance suite")
	d := matrixDecodeDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 3, KeyLen: 96, HeadDim: 8, DType: F16, Scale: math.Ln2}
	plan := mustPlan(t, d, p, WithTier(TierMatrix),
		WithTuning(forwardTile(t, d, Flash, p, map[string]int{"decode": 1, "w": 1, "keys": 2, "parts": 1})))
	testRescaling(t, d, plan, plan.ForwardInfo().Tuning["keys"], 10, 13, 25)
}

// TestMatrixDecodeRefused: what the kernel cannot have is a reason that names it, and not a self-check that fails.
func TestMatrixDecodeRefused(t *testing.T) {
	d := matrixDecodeDevice(t)
	base := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 1, KeyLen: 64, HeadDim: 16, DType: F16}
	keys, values, pages := base, base, base
	keys.KeyType, keys.HeadDim = F8E4M3, 20
	values.ValueType, values.ValueDim = F8E5M2, 36
	pages.Pages = Pages{Size: 16, Count: 4, PerSequence: 4}
	for _, x := range []struct {
		p      Problem
		tuning map[string]int
		why    string
	}{
		{keys, map[string]int{"decode": 1}, "rows of 20 numbers of fp8_e4m3: it takes them in eights"},
		{values, map[string]int{"decode": 1}, "rows of 36 numbers of fp8_e5m2: it takes them in eights"},
		{pages, map[string]int{"decode": 1, "w": 1, "keys": 64}, "must be at most 32 of keys in pages"},
	} {
		_, err := d.Plan(x.p, WithTier(TierMatrix), WithTuning(x.tuning))
		require.ErrorContains(t, err, x.why)
	}
}

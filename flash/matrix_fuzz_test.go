package flash

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
)

// fuzzedMatrix is a problem made of an input's bytes, with how it shall be run.
type fuzzedMatrix struct {
	problem Problem
	form    int
	pad     int // elements between rows
	offset  int // elements before the first row
	seed    uint64
}

// drawFuzzed reads choices from bytes; when they run out, the rest are the smallest. Few head dimensions: each is a kernel to
// compile.
func drawFuzzed(choices []byte) fuzzedMatrix {
	at := 0
	pick := func(n int) int {
		if at == len(choices) {
			return 0
		}
		at++
		return int(choices[at-1]) % n
	}
	dims := []int{16, 8, 13, 5, 1}
	var f fuzzedMatrix
	f.problem = Problem{DType: F16, HeadDim: dims[pick(len(dims))], ValueDim: dims[pick(len(dims))], Causal: Causal(pick(3)),
		Batch: 1 + pick(2), KeyHeads: 1 + pick(2), QueryLen: 1 + pick(90), KeyLen: 1 + pick(120)}
	f.problem.Heads = f.problem.KeyHeads * (1 + pick(4))
	f.problem.Scale = []float64{0, 0.3, -0.7, 4, 1e-3}[pick(5)]
	f.form = kernel.FormRegisters + pick(3)
	f.pad, f.offset = []int{0, 8, 1, 3}[pick(4)], []int{0, 8, 1, 5}[pick(4)]
	h := fnv.New64a()
	h.Write(choices)
	f.seed = h.Sum64()
	return f
}

// Fuzzing starts workers of its own, without what -exec of go test names. For a driver that is not installed but unpacked to
// DIR, link the test with its loader:
//
//	L=DIR/usr/lib/x86_64-linux-gnu VK_DRIVER_FILES=… VK_LAYER_PATH=… VKATTN_LOADER=$L/libvulkan.so.1 go test -run XXX -fuzz Matrix \
//	  -parallel 1 -ldflags "-linkmode external -extldflags '-Wl,--dynamic-linker=$L/ld-linux-x86-64.so.2,--disable-new-dtags,-rpath,$L'" ./flash

// FuzzMatrixAgainstScalar runs one problem on both tiers, in every form and with tensors anywhere in memory, and wants equal
// answers up to rounding, and the same bits from the same tier twice.
func FuzzMatrixAgainstScalar(f *testing.F) {
	d := matrixDevice(f)
	fragment := d.env.Caps.Fragments(attn.F16)[0]
	layout, err := d.env.Layout(attn.F16, fragment)
	require.NoError(f, err)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, choices []byte) {
		if len(choices) > 0 {
			vktest.Long(t, "one problem; each compiles a kernel of both tiers")
		}
		c := drawFuzzed(choices)
		p, err := c.problem.Normalize()
		require.NoError(t, err)
		rng := rand.New(rand.NewPCG(c.seed, 1))
		tensor := func(dtype DType, s [4]int) *Tensor {
			n := s[3] + c.pad
			strides := [4]int{s[1] * s[2] * n, s[2] * n, n, 1}
			if dtype == F32 { // lse has no strides
				strides = [4]int{}
			}
			whole, err := d.NewTensor(dtype, 1, 1, 1, s[0]*s[1]*s[2]*n+c.offset)
			require.NoError(t, err)
			t.Cleanup(func() { whole.Close() })
			x, err := whole.View(uint64(c.offset*dtype.Size()), dtype, s, strides)
			require.NoError(t, err)
			return x
		}
		in := [3]*Tensor{}
		for i, s := range [][4]int{p.QShape(), p.KShape(), p.VShape()} {
			in[i] = tensor(p.DType, s)
			require.NoError(t, in[i].Upload(bg, randomValues(rng, p.DType, s)))
		}
		run := func(opts ...PlanOption) (o, lse []float32) {
			plan := mustPlan(t, d, p, opts...)
			defer plan.Close()
			to, tl := tensor(p.DType, p.OShape()), tensor(F32, p.LSEShape())
			for _, x := range []*Tensor{to, tl} {
				bad := make([]float32, x.Elements())
				for i := range bad {
					bad[i] = float32(math.NaN())
				}
				require.NoError(t, x.Upload(bg, bad))
			}
			require.NoError(t, plan.Forward(bg, Forward{Q: in[0], K: in[1], V: in[2], O: to, LSE: tl}))
			o, lse = make([]float32, to.Elements()), make([]float32, tl.Elements())
			require.NoError(t, to.Download(bg, o))
			require.NoError(t, tl.Download(bg, lse))
			return o, lse
		}
		want, wantLSE := run(WithTier(TierScalar))
		form := WithTuning(map[string]int{"form": max(c.form, layout.Form)})
		got, gotLSE := run(WithTier(TierMatrix), form)
		for i := range want {
			// Two roundings to fp16 of the weights and the result, of values that are averages of normal numbers.
			if !(math.Abs(float64(got[i]-want[i])) <= 4e-3*math.Max(1, math.Abs(float64(want[i])))) {
				t.Fatalf("%+v: o[%d] is %g on matrices and %g in scalars", c, i, got[i], want[i])
			}
		}
		for i := range wantLSE {
			if gotLSE[i] != wantLSE[i] && !(math.Abs(float64(gotLSE[i]-wantLSE[i])) <= 1e-3*math.Max(1, math.Abs(float64(wantLSE[i])))) {
				t.Fatalf("%+v: lse[%d] is %g on matrices and %g in scalars", c, i, gotLSE[i], wantLSE[i])
			}
		}
		again, againLSE := run(WithTier(TierMatrix), form)
		require.Equal(t, got, again)
		require.Equal(t, gotLSE, againLSE)
	})
}

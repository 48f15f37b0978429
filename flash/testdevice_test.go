package flash

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	_, err := Devices()
	vktest.LeaveOutExamples(err)
	os.Exit(testShared.Main(m))
}

// testShared is the device below those of the tests.
var testShared = vktest.Shared[*Device]{Open: openTest}

// openTest opens a device with the validation layers, or without them where there is nothing to take messages.
func openTest(onMessage func(Message)) (*Device, error) {
	if onMessage == nil {
		return Open(WithoutDiskCache())
	}
	return Open(WithoutDiskCache(), WithValidation(onMessage))
}

// sharedQueue lets devices of one test, which all submit to one queue, take turns.
var sharedQueue sync.Mutex

// testDevice gives a device with the validation layers, whose every message fails the test. It has nothing of an earlier test but the
// VkDevice below. Without a device the test is skipped, or fails where VKATTN_REQUIRE_DEVICE says that there must be one. Without the
// layers it runs all the same, and fails with VKATTN_REQUIRE_VALIDATION.
func testDevice(t testing.TB) *Device {
	t.Helper()
	vktest.Budget(t)
	owner := testShared.Device(t)
	external := owner.External()
	external.QueueLock = &sharedQueue
	d, err := Attach(external, WithoutDiskCache())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	// Not one of a caller: kernels prove themselves when they are first used.
	d.env.Attached, d.fallback, d.info = false, owner.fallback, owner.info
	return d
}

// finish waits for a submission: finish(r.Submit()).
func finish(p Pending, err error) error {
	if err != nil {
		return err
	}
	return p.Wait(bg)
}

// runTile runs the sample's problem on the scalar tier with a forced tile, and checks the outputs.
func (s *sample) runTile(t *testing.T, d *Device, tile map[string]int, opts ...PlanOption) {
	t.Helper()
	plan := mustPlan(t, d, s.p, append(opts, WithTier(TierScalar), WithTuning(tile))...)
	for name, v := range tile {
		require.Equal(t, v, plan.ForwardInfo().Tuning[name])
	}
	f := s.tensors(t, d, plainly(t, d))
	require.NoError(t, plan.Forward(bg, f))
	s.check(t, plan, f)
	require.NoError(t, plan.Close())
}

// sample is a problem with random inputs, rounded to its type, and the oracle's answers.
type sample struct {
	p       Problem
	in      ref.Problem // the oracle's words for it
	q, k, v []float32
	o, lse  []float64
	// Attention in the inputs' own type, the yardstick for errors.
	plain, plainLSE []float64
}

func randomValues(rng *rand.Rand, t DType, shape [4]int) []float32 {
	n, _ := attn.Elements(shape)
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	raw := make([]byte, len(out)*t.Size())
	attn.Encode(attn.DType(t), raw, out)
	attn.Decode(attn.DType(t), out, raw)
	return out
}

func newSample(t testing.TB, p Problem) *sample {
	t.Helper()
	p, err := p.Normalize()
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(7, uint64(p.QueryLen*1000+p.KeyLen)))
	s := &sample{p: p, q: randomValues(rng, p.DType, p.QShape()), k: randomValues(rng, p.DType, p.KShape()),
		v: randomValues(rng, p.DType, p.VShape())}
	tensor := func(shape [4]int, data []float32) ref.Tensor {
		x := ref.NewTensor(shape[0], shape[1], shape[2], shape[3])
		copy(x.Data, data)
		return x
	}
	rp := ref.Problem{Q: tensor(p.QShape(), s.q), K: tensor(p.KShape(), s.k), V: tensor(p.VShape(), s.v)}
	rp.Scale = p.Scale
	if left, right := p.Window.Reach(); left >= 0 || right >= 0 {
		rp.Window = &ref.Window{Left: left, Right: right}
	}
	rp.Causal = [...]ref.Causal{CausalNone: ref.NotCausal, CausalBottomRight: ref.BottomRight, CausalTopLeft: ref.TopLeft}[p.Causal]
	s.in = rp
	o, lse, err := ref.Forward(rp)
	require.NoError(t, err)
	plain, plainLSE, err := ref.PlainForward(rp, ref.DType(p.DType))
	require.NoError(t, err)
	s.o, s.lse, s.plain, s.plainLSE = o.Data, lse.Data, plain.Data, plainLSE.Data
	return s
}

// tensors uploads the inputs and makes poisoned outputs, with a function that gives each tensor.
func (s *sample) tensors(t testing.TB, d *Device, make func(dtype DType, shape [4]int) *Tensor) Forward {
	t.Helper()
	f := Forward{
		Q: make(s.p.DType, s.p.QShape()), K: make(s.p.DType, s.p.KShape()), V: make(s.p.DType, s.p.VShape()),
		O: make(s.p.DType, s.p.OShape()), LSE: make(F32, s.p.LSEShape()),
	}
	require.NoError(t, f.Q.Upload(bg, s.q))
	require.NoError(t, f.K.Upload(bg, s.k))
	require.NoError(t, f.V.Upload(bg, s.v))
	s.poison(t, f)
	return f
}

func (s *sample) poison(t testing.TB, f Forward) {
	t.Helper()
	for _, out := range []*Tensor{f.O, f.LSE} {
		if out == nil {
			continue
		}
		bad := make([]float32, out.Elements())
		for i := range bad {
			bad[i] = float32(math.NaN())
		}
		require.NoError(t, out.Upload(bg, bad))
	}
}

// plainly makes tensors in row-major order.
func plainly(t testing.TB, d *Device) func(DType, [4]int) *Tensor {
	return func(dtype DType, s [4]int) *Tensor {
		x, err := d.NewTensor(dtype, s[0], s[1], s[2], s[3])
		require.NoError(t, err)
		return x
	}
}

// check compares the outputs with the oracle by the bounds of the conformance suite and returns o.
func (s *sample) check(t testing.TB, plan *Plan, f Forward) []float32 {
	t.Helper()
	standard := plan.Implementation() == Standard
	o := make([]float32, f.O.Elements())
	require.NoError(t, f.O.Download(bg, o))
	if v := ref.CheckOutput(doubles(o), s.o, s.plain, ref.DType(s.p.DType)); !v.OK {
		t.Fatalf("%v: o: %v", s.p, v)
	}
	if f.LSE != nil {
		lse := make([]float32, f.LSE.Elements())
		require.NoError(t, f.LSE.Download(bg, lse))
		var plain []float64
		if standard { // its scores are rounded to the storage type, and lse inherits that
			plain = s.plainLSE
		}
		if v := ref.CheckLSE(doubles(lse), s.lse, plain, ref.DType(s.p.DType)); !v.OK {
			t.Fatalf("%v: lse: %v", s.p, v)
		}
	}
	return o
}

func doubles(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func mustPlan(t testing.TB, d *Device, p Problem, opts ...PlanOption) *Plan {
	t.Helper()
	plan, err := d.Plan(p, opts...)
	require.NoError(t, err)
	return plan
}

// everyKernel runs a test for each implementation and tier that the device has for a problem.
func everyKernel(t *testing.T, d *Device, p Problem, f func(t *testing.T, opts ...PlanOption)) {
	ran := 0
	for _, i := range []Implementation{Flash, Standard, Flash1} {
		for _, tier := range []Tier{TierScalar, TierMatrix} {
			opts := []PlanOption{WithImplementation(i), WithTier(tier)}
			whole, err := p.Normalize()
			require.NoError(t, err)
			// a plan would say so, too, and compile a kernel for it
			if !slices.ContainsFunc(catalogue.Forward, func(k *kernel.Kernel) bool {
				return k.Implementation == kernel.Implementation(i) && k.Tier == kernel.Tier(tier) && k.Exists(attnOf(whole)) &&
					k.Cannot(&d.env.Caps, attnOf(whole)) == ""
			}) {
				continue
			}
			ran++
			t.Run(fmt.Sprintf("%v-%v", i, tier), func(t *testing.T) {
				vktest.Budget(t)
				vktest.Tag(t, i.String(), string(tier), p.DType.String())
				f(t, opts...)
			})
		}
	}
	if ran == 0 {
		t.Fatalf("no kernel runs %v", p)
	}
}

// usual gives in short tests, in place of a problem of which any would do, the one that they have in common: what a driver has compiled for
// one test it need not compile for the next.
func usual(p Problem) Problem {
	if !testing.Short() {
		return p
	}
	return Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 33, KeyLen: 47, HeadDim: 8, DType: F16, Causal: CausalBottomRight}
}

// narrowed gives in short tests, in place of a problem whose head dimensions do not matter, one with the smallest that rows of whole pieces
// have: a CPU's driver compiles a kernel on matrices in less than half the time.
func narrowed(p Problem) Problem {
	if testing.Short() {
		p.HeadDim, p.ValueDim = 8, 8
	}
	return p
}

// requireSteadyState: recording again and again for other tensors of the sample's problem allocates nothing.
func requireSteadyState(t *testing.T, d *Device, s *sample, plan *Plan) {
	t.Helper()
	r, err := plan.NewRecording()
	require.NoError(t, err)
	sets, i := [2]Forward{s.tensors(t, d, plainly(t, d)), s.tensors(t, d, plainly(t, d))}, 0
	require.Zero(t, testing.AllocsPerRun(20, func() {
		i++
		if err := r.Forward(sets[i%2]); err != nil {
			t.Fatal(err)
		}
	}), plan.ForwardInfo().Kernel)
}

// attnOf is a problem as kernels take it.
func attnOf(p Problem) *attn.Problem {
	a := p.attn()
	return &a
}

// isCPU says whether a device is the host's processor.
func isCPU(d *Device) bool { return d.env.Caps.Facts.Type == vk.DeviceCPU }

package flash

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/kernel/kerneltest"
	"github.com/vkattn/vkattn/internal/kernel/standard"
	"github.com/vkattn/vkattn/shaders"
)

// errPlanned is where a plan ends that would be built next.
var errPlanned = errors.New("planned, not built")

// planningDevice is a device that chooses kernels and tiles and then, in place of building a pipeline, fails with errPlanned. What
// probesOf the layout of matrices is built.
func planningDevice(t testing.TB) *Device {
	d := matrixDevice(t)
	d.env.Modules = func(name string) ([]uint32, error) {
		if strings.HasPrefix(name, "matrix_probe") {
			return shaders.Module(name)
		}
		return nil, errPlanned
	}
	return d
}

// tunedKernel is a kernel of either pass, with a problem for it and a way to ask for it with some tuning.
type tunedKernel struct {
	kernel   *kernel.Offer
	backward bool
	p        Problem
	plan     func(d *Device, values map[string]int) error
	fit      func(d *Device, t *kernel.Tuning) error // without the check of ranges
}

// tunedKernels has all of them. Plans of the backward pass have a forward program that a test device can build at once.
func tunedKernels(t testing.TB) (out []tunedKernel) {
	problem := func(k *kernel.Offer) Problem {
		p := Problem{Batch: 1, Heads: 4, KeyHeads: 2, QueryLen: 40, KeyLen: 50, HeadDim: 20, ValueDim: 12, DType: F16,
			Causal: CausalBottomRight}
		if k.MostRows > 0 {
			p.QueryLen = 3
		}
		if k.LeastDim > 0 {
			p.HeadDim = k.LeastDim
		}
		if k.MostRows > 0 && k.LeastDim > 0 { // a fragment's rows
			p.Heads = 8
		}
		if k.Needs&attn.WithBlocks != 0 {
			p.Blocks = Blocks{Queries: 16, Keys: 16}
		}
		p, err := p.Normalize()
		require.NoError(t, err)
		return p
	}
	for _, k := range catalogue.Forward {
		p := problem(&k.Offer)
		out = append(out, tunedKernel{&k.Offer, false, p, func(d *Device, values map[string]int) error {
			all := maps.Clone(values)
			if _, given := all[kernel.DecodeParameter]; !given && k.Implementation == kernel.Flash && k.Needs == 0 {
				few := k.MostRows > 0
				all[kernel.DecodeParameter] = kernel.BoolInt(few)
			}
			plan, err := d.Plan(p, WithImplementation(Implementation(k.Implementation)), WithTier(Tier(k.Tier)), WithTuning(all))
			return errors.Join(err, plan.Close())
		}, func(d *Device, tn *kernel.Tuning) error {
			if err := tn.Decodes(&k.Offer); err != nil {
				return err
			}
			_, err := k.Plan(d.env, attnOf(p), tn)
			return err
		}})
	}
	for _, k := range catalogue.Backward {
		p := problem(&k.Offer)
		fit := func(d *Device, tn *kernel.Tuning) error {
			var forward kernel.Program
			if k.Implementation == kernel.Standard {
				tile, err := standard.ChooseScalarTile(&d.env.Caps, attnOf(p), kernel.NewTuning(nil))
				if err != nil {
					return err
				}
				if forward, err = standard.New(d.env, attnOf(p), &tile, kernel.NewTuning(nil)); err != nil {
					return err
				}
			}
			_, err := k.Plan(d.env, attnOf(p), forward, tn)
			return err
		}
		out = append(out, tunedKernel{&k.Offer, true, p, func(d *Device, values map[string]int) error {
			var o planOptions
			if err := WithBackwardTuning(values)(&o); err != nil {
				return err
			}
			tn := kernel.NewBackwardTuning(o.backwardTuning)
			if err := tn.Fits(&k.Offer); err != nil {
				return err
			}
			return fit(d, tn)
		}, fit})
	}
	return out
}

// TestKernelParameters: the table of ranges has what kernels take, no more and no less, and their own choices are within it. Whether
// workgroups are counted on the device is asked of packed sequences alone, and every kernel that can do with those has it.
func TestKernelParameters(t *testing.T) {
	d := planningDevice(t)
	for _, k := range tunedKernels(t) {
		known := k.kernel.Parameters
		require.NotEmpty(t, known, k.kernel.Name)
		given := map[string]int{}
		if _, ok := known[kernel.DecodeParameter]; ok {
			given[kernel.DecodeParameter] = kernel.BoolInt(k.kernel.MostRows > 0)
		}
		if _, ok := known["max_slab"]; ok && k.kernel.Implementation == kernel.Flash {
			given[kernel.SlabsParameter] = 1
			if k.kernel.Name == "matrix_backward_keeping" { // each knows the other's switch
				given = map[string]int{kernel.KeepDSParameter: 1}
			}
		}
		tn := kernel.NewTuning(given)
		require.ErrorIs(t, k.fit(d, tn), errPlanned, k.kernel.Name)
		ofPacked := func(name string) bool { return strings.HasSuffix(name, kernel.IndirectParameter) }
		// of quantised keys alone, and of wide heads
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool {
			return name == "key_terms" || name == "weights_slice"
		})
		bySlabs := k.kernel.Name == "matrix_backward_slabs" || k.kernel.Name == "matrix_backward_keeping" // of a size that is known
		counts := k.kernel.Can&attn.WithPacked != 0 && !bySlabs
		require.Equal(t, counts, slices.ContainsFunc(names, ofPacked), k.kernel.Name)
		require.Equal(t, slices.DeleteFunc(names, ofPacked), slices.Sorted(maps.Keys(tn.Effect)), k.kernel.Name)
		for name, v := range tn.Effect {
			require.True(t, known[name].Allows(v), "%s chooses %s = %d: %v", k.kernel.Name, name, v, known[name])
		}
	}
}

// TestTilesAreWithinRanges: so are the tables' rows, for any device, and what is offered for measuring.
func TestTilesAreWithinRanges(t *testing.T) {
	c := kerneltest.Hopper()
	for _, k := range catalogue.Forward {
		if k.Candidates == nil {
			continue
		}
		for _, queries := range []int{1, 2, 40, 5000} {
			p, err := Problem{Batch: 1, Heads: 4, QueryLen: queries, HeadDim: 64, DType: F16}.Normalize()
			require.NoError(t, err)
			if k.MostRows > 0 && queries > 8 {
				continue
			}
			for _, m := range k.Candidates(c, attnOf(p)) {
				require.NoError(t, kernel.NewTuning(m).Fits(&k.Offer), "%s %v", k.Name, m)
			}
		}
	}
	p, err := Problem{Batch: 1, Heads: 4, QueryLen: 5000, HeadDim: 64, DType: F16}.Normalize()
	require.NoError(t, err)
	offered := map[string]int{}
	for _, k := range catalogue.Backward {
		if k.Candidates == nil {
			continue
		}
		for _, m := range k.Candidates(c, attnOf(p)) {
			require.NoError(t, kernel.NewBackwardTuning(m).Fits(&k.Offer), "%s %v", k.Name, m)
			offered[k.Name]++
		}
	}
	for _, name := range []string{"matrix_backward", "matrix_backward_keeping"} {
		require.Greater(t, offered[name], 3, name)
	}
}

// hostile are values that no kernel expects, and some that are merely odd.
var hostile = []int{0, -1, 1, 2, 3, 5, 7, 1 << 10, math.MaxInt32, math.MaxInt32 + 1, 1 << 32, 1 << 62, math.MaxInt64, math.MinInt64,
	math.MinInt32}

// TestHostileTunings: whatever a parameter of whatever kernel is given, the plan says at once what is wrong, or goes on to be built.
func TestHostileTunings(t *testing.T) {
	d := planningDevice(t)
	for _, k := range tunedKernels(t) {
		for name, r := range k.kernel.Parameters {
			for _, v := range probesOf(r) {
				start := time.Now()
				err := public(k.plan(d, map[string]int{name: v}))
				took := time.Since(start)
				at := fmt.Sprintf("%s %s = %d: %v", k.kernel.Name, name, v, err)
				require.Less(t, took, 20*time.Second, at)
				var arg *ArgumentError
				switch {
				case !r.Allows(v):
					require.ErrorAs(t, err, &arg, at)
					require.Contains(t, arg.Argument, "["+name+"]", at)
					require.Equal(t, fmt.Sprint(v), arg.Value)
					require.Contains(t, arg.Rule, fmt.Sprint(r.Most), at)
				case errors.Is(err, errPlanned), errors.Is(err, ErrUnsupported), errors.Is(err, ErrArgument):
				case errors.As(err, new(*kernel.Declined)): // of a backward kernel, which leaves the problem to the next
				default:
					t.Fatal(at)
				}
			}
		}
	}
}

// TestHostileTuningsThatRun: what is not refused computes attention. Only the scalar tier: each is a pipeline to compile.
func TestHostileTuningsThatRun(t *testing.T) {
	if testing.Short() {
		t.Skip("some hundred pipelines")
	}
	d, planning := testDevice(t), planningDevice(t)
	for _, k := range tunedKernels(t) {
		if k.kernel.Tier != kernel.TierScalar || k.kernel.Needs != 0 {
			continue
		}
		if k.backward {
			continue // TestHostileBackwardTuningsThatRun
		}
		s := newSample(t, k.p)
		f := s.tensors(t, d, plainly(t, d))
		for name, r := range k.kernel.Parameters {
			for _, v := range probesOf(r) {
				given := map[string]int{name: v}
				if name != kernel.DecodeParameter && k.kernel.Implementation == kernel.Flash && k.kernel.Needs == 0 {
					few := k.kernel.MostRows > 0
					given[kernel.DecodeParameter] = kernel.BoolInt(few)
				}
				if err := k.plan(planning, given); !errors.Is(err, errPlanned) {
					continue
				}
				plan := mustPlan(t, d, s.p, WithImplementation(Implementation(k.kernel.Implementation)), WithTier(TierScalar),
					WithTuning(given))
				t.Run(fmt.Sprintf("%s-%v", plan.ForwardInfo().Kernel, given), func(t *testing.T) {
					require.Equal(t, v, plan.ForwardInfo().Tuning[name])
					s.poison(t, f)
					require.NoError(t, plan.Forward(bg, f))
					s.check(t, plan, f)
				})
				require.NoError(t, plan.Close())
			}
		}
	}
}

// probesOf are values to try: the ends of the range, those within, and those without.
func probesOf(r kernel.Parameter) []int {
	return slices.Compact(slices.Sorted(slices.Values(append([]int{r.Least - 1, r.Least, r.Most, r.Most + 1, 256}, hostile...))))
}

// TestHostileBackwardTuningsThatRun is the same for gradients.
func TestHostileBackwardTuningsThatRun(t *testing.T) {
	if testing.Short() {
		t.Skip("some fifty pipelines")
	}
	d, planning := testDevice(t), planningDevice(t)
	p := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: 70, KeyLen: 81, HeadDim: 20, ValueDim: 12, Causal: CausalBottomRight}
	plan := mustPlan(t, d, p)
	_, b := newBackwardSample(t, d, plan, F32)
	require.NoError(t, plan.Backward(bg, b))
	want := [3][]float32{download(t, b.DQ), download(t, b.DK), download(t, b.DV)}
	for _, k := range tunedKernels(t) {
		if k.kernel.Name != "scalar_backward" {
			continue
		}
		for name, r := range k.kernel.Parameters {
			for _, v := range probesOf(r) {
				if err := k.plan(planning, map[string]int{name: v}); !errors.Is(err, errPlanned) {
					continue
				}
				t.Run(fmt.Sprintf("%s=%d", name, v), func(t *testing.T) {
					other := mustPlan(t, d, p, WithBackwardTuning(map[string]int{name: v}))
					require.NoError(t, other.Backward(bg, b))
					for i, g := range []*Tensor{b.DQ, b.DK, b.DV} {
						require.InDeltaSlice(t, doubles(want[i]), doubles(download(t, g)), 2e-4)
					}
					require.NoError(t, other.Close())
				})
			}
		}
	}
}

// FuzzTuning: a plan with any tuning of any kernel is refused by name or goes on to be built, whatever the values say together, and
// neither takes long nor panics.
func FuzzTuning(f *testing.F) {
	d := planningDevice(f)
	all := tunedKernels(f)
	for i := range all {
		f.Add(byte(i), []byte{})
		f.Add(byte(i), []byte{0, 3, 1, 200, 2, 17, 3, 4})
	}
	f.Fuzz(func(t *testing.T, which byte, choices []byte) {
		k := all[int(which)%len(all)]
		known := k.kernel.Parameters
		// of quantised keys alone, and of wide heads
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool {
			return name == "key_terms" || name == "weights_slice"
		})
		given := map[string]int{}
		for len(choices) >= 2 {
			name := names[int(choices[0])%len(names)]
			r := known[name]
			switch c := int(choices[1]); {
			case c < 32: // anything
				given[name] = hostile[c%len(hostile)]
			case c < 96: // small
				given[name] = c - 32
			case c < 160: // a power of two
				given[name] = 1 << (c - 96)
			default: // along the range
				given[name] = r.Least + (r.Most-r.Least)*(c-160)/95
			}
			choices = choices[2:]
		}
		start := time.Now()
		err := k.plan(d, given)
		if took := time.Since(start); took > 20*time.Second {
			t.Fatalf("%s %v took %v: %v", k.kernel.Name, given, took, err)
		}
		var no *kernel.Declined
		if !errors.Is(err, errPlanned) && !errors.Is(err, ErrArgument) && !errors.Is(err, ErrUnsupported) && !errors.As(err, &no) &&
			!errors.As(err, new(*MemoryError)) {
			t.Fatalf("%s %v: %v", k.kernel.Name, given, err)
		}
	})
}

package flash

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// closing joins the error of closing what an operation made.
func closing(err error, closers ...interface{ Close() error }) error {
	for _, c := range closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// On a device in use: what it keeps (kernels, staging buffers) is there already.
var warmOperations = []faultOperation{
	{name: "NewTensor", ways: true, run: func(d *Device, w *faultWorld) error {
		x, err := d.NewTensor(F32, 1, 2, 3, 4)
		return closing(err, x)
	}},
	{name: "Upload", run: func(d *Device, w *faultWorld) error { return w.f.Q.Upload(bg, w.s.q) }},
	{name: "Upload", run: func(d *Device, w *faultWorld) error { return w.strided.Upload(bg, make([]float32, 12)) }},
	{name: "Download", run: func(d *Device, w *faultWorld) error {
		got := make([]float32, len(w.s.v))
		err := w.f.V.Download(bg, got)
		if err == nil && got[7] != w.s.v[7] {
			err = errors.New("a wrong value")
		}
		return err
	}},
	{name: "Forward", ways: true, run: func(d *Device, w *faultWorld) error {
		plan, err := d.Plan(w.s.p, WithTier(TierScalar))
		if err != nil {
			return err
		}
		return closing(plan.Forward(bg, w.f), plan)
	}},
	{name: "Wait", ways: true, run: func(d *Device, w *faultWorld) error { // with timestamps; submission and wait apart
		r, err := w.plan.NewRecording(WithTimestamps())
		if err != nil {
			return named("Wait", err)
		}
		err = r.Forward(w.f)
		var pending Pending
		if err == nil {
			pending, err = r.Submit()
		}
		if err == nil {
			_, err = pending.Done()
		}
		if err == nil {
			err = pending.Wait(bg)
			pending.GPUTime()
			r.Timings()
		}
		return closing(named("Wait", err), r)
	}},
	{name: "Submit", run: func(d *Device, w *faultWorld) error { // two together
		var r [2]*Recording
		var err error
		f := w.f
		for i := range r {
			if err == nil {
				r[i], err = w.plan.NewRecording()
			}
			if err == nil {
				err = r[i].Forward(f)
			}
			f.LSE = nil // another recording of the same output
		}
		if err == nil {
			var pending Pending
			if pending, err = d.Submit(r[0], r[1]); err == nil {
				err = named("Wait", pending.Wait(bg))
			}
		}
		return closing(closing(named("Submit", err), r[0]), r[1])
	}},
	{name: "RecordForward", run: func(d *Device, w *faultWorld) error {
		if err := w.cmd.Begin(true); err != nil {
			return named("RecordForward", d.fail(err))
		}
		r, err := w.plan.RecordForward(w.cmd.Handle(), w.f)
		err = closing(err, r)
		reset := w.cmd.Reset()
		if reset != nil {
			_ = w.cmd.Reset() // for the next one
		}
		return errors.Join(err, named("RecordForward", d.fail(reset)))
	}},
	{name: "Backward", run: func(d *Device, w *faultWorld) error {
		plan, err := d.Plan(w.s.p, WithTier(TierScalar))
		if err != nil {
			return err
		}
		return closing(plan.Backward(bg, w.g), plan)
	}},
	{name: "NewWeights", run: func(d *Device, w *faultWorld) error {
		x, err := w.standard.NewWeights()
		return closing(err, x)
	}},
	{name: "SubmitForward", run: func(d *Device, w *faultWorld) error { // standard attention, which has workspace
		plan, err := d.Plan(w.s.p, WithTier(TierScalar), WithImplementation(Standard))
		if err != nil {
			return err
		}
		pending, err := plan.SubmitForward(Forward{Q: w.f.Q, K: w.f.K, V: w.f.V, O: w.f.O})
		if err == nil {
			err = named("SubmitForward", pending.Wait(bg))
		}
		return closing(err, plan)
	}},
	{name: "NewBlockMask", run: func(d *Device, w *faultWorld) error {
		p := w.s.p
		p.Blocks = Blocks{Queries: 2, Keys: 2}
		m, err := d.NewBlockMask(bg, p, make([]bool, 6))
		return closing(err, m)
	}},
	{name: "NewMaskBlocks", run: func(d *Device, w *faultWorld) error {
		p := w.s.p
		p.MaskBlocks, p.MaskFunction = Blocks{Queries: 2, Keys: 2}, score.Documents(score.TableInt(make([]int32, p.KeyLen), p.KeyLen))
		m, err := d.NewMaskBlocks(bg, p)
		if err == nil {
			_, _, _, err = m.Count(bg)
		}
		return closing(named("NewMaskBlocks", err), m)
	}},
	{name: "TimeRuns", run: func(d *Device, w *faultWorld) error {
		r, err := w.plan.NewRecording()
		if err == nil {
			err = r.Forward(w.f)
		}
		if err == nil {
			err = TuneHooks.TimeRuns(bg, d, []*Recording{r}, 2)
		}
		return closing(named("TimeRuns", err), r)
	}},
	{name: "WaitIdle", run: func(d *Device, w *faultWorld) error { return d.WaitIdle() }},
	{name: "Attention", run: func(d *Device, w *faultWorld) error {
		p := w.s.p
		o, err := d.Attention(bg, w.s.q, w.s.k, w.s.v, p)
		if err == nil {
			err = w.correct(o)
		}
		return err
	}},
	{name: "Tensor.Close", run: func(d *Device, w *faultWorld) error { // while the device uses it
		r, err := w.plan.NewRecording()
		if err != nil {
			return named("Tensor.Close", err)
		}
		o, err := d.NewTensor(F32, 1, 2, 3, 4)
		if err != nil {
			return closing(named("Tensor.Close", err), r)
		}
		f := w.f
		f.O = o
		if err = r.Forward(f); err == nil {
			_, err = r.Submit()
		}
		err = named("Tensor.Close", err)
		first := o.Close()
		if first != nil {
			_ = o.Close() // it is still there
		}
		return errors.Join(err, first, named("Tensor.Close", r.Close()))
	}},
}

// named gives the errors of several operations that are walked together one name.
func named(name string, err error) error {
	during(name, &err)
	return err
}

// planning makes the operation of planning a problem.
func planning(p Problem, opts ...PlanOption) func(d *Device, w *faultWorld) error {
	return func(d *Device, _ *faultWorld) error {
		plan, err := d.Plan(p, opts...)
		return closing(err, plan)
	}
}

// On a new device each time.
var coldOperations = []faultOperation{
	{name: "Plan", cold: true, run: planning(Problem{Batch: 1, Heads: 2, QueryLen: 33, HeadDim: 8}, WithTier(TierScalar))},
	{name: "Plan", cold: true, run: planning(Problem{Batch: 1, Heads: 2, QueryLen: 1, KeyLen: 70, HeadDim: 8}, WithTier(TierScalar))},
	{name: "Plan", cold: true, long: true, run: planning(Problem{Batch: 1, Heads: 2, QueryLen: 9, HeadDim: 8}, WithTier(TierScalar),
		WithImplementation(Standard))},
	{name: "Plan", cold: true, long: true, run: planning(Problem{Batch: 1, Heads: 2, QueryLen: 9, HeadDim: 8}, WithTier(TierScalar),
		WithImplementation(Flash1))},
	{name: "Plan", cold: true, long: true, run: planning(Problem{Batch: 1, Heads: 2, QueryLen: 9, HeadDim: 8,
		Blocks: Blocks{Queries: 4, Keys: 4}}, WithTier(TierScalar))},
	{name: "BackwardInfo", cold: true, run: func(d *Device, _ *faultWorld) error {
		plan, err := d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 9, HeadDim: 8}, WithTier(TierScalar))
		if err == nil {
			_, err = plan.BackwardInfo()
		}
		return closing(named("BackwardInfo", err), plan)
	}},
	{name: "Upload", cold: true, long: true, run: func(d *Device, _ *faultWorld) error {
		x, err := d.NewTensor(F16, 1, 1, 3, 4)
		if err == nil {
			err = x.Upload(bg, make([]float32, 12))
		}
		return closing(named("Upload", err), x)
	}},
	{name: "Download", cold: true, long: true, run: func(d *Device, _ *faultWorld) error {
		x, err := d.NewTensor(F16, 1, 1, 3, 4)
		if err == nil {
			err = x.Download(bg, make([]float32, 12))
		}
		return closing(named("Download", err), x)
	}},
	{name: "SelfCheck", cold: true, long: true, stride: 19, run: func(d *Device, _ *faultWorld) error {
		failed, err := TuneHooks.SelfCheck(bg, d, []Implementation{Standard}, []Tier{TierScalar})
		for _, why := range failed {
			err = errors.Join(err, errors.New(why))
		}
		return err
	}},
	{name: "Candidates", cold: true, long: true, stride: 61, run: func(d *Device, _ *faultWorld) error {
		return TuneHooks.Candidates(d, Problem{Batch: 1, Heads: 1, QueryLen: 3, HeadDim: 8}, WithTier(TierScalar),
			WithImplementation(Flash))
	}},
}

// Every call of every operation on a device in use fails in turn, under validation.
func TestFaultWalkOperations(t *testing.T) {
	vktest.Long(t, "the walk over opening, and that with kernels that are compiled, as far as it goes")
	walkAll(t, warmOperations)
}

// Every call of what a new device compiles or allocates for good fails in turn.
func TestFaultWalkCold(t *testing.T) { walkAll(t, coldOperations) }

// Every call of opening a device fails in turn; so does every call of closing one that has been used.
func TestFaultWalkOpen(t *testing.T) {
	facts := testDevice(t).dev.Facts()
	f := vk.NewFaults()
	s := newSample(t, Problem{Batch: 1, Heads: 1, QueryLen: 3, HeadDim: 4})
	dir := t.TempDir() // where every run keeps what it compiled
	use := func() error {
		d, err := Open(WithFaults(f), WithCacheDir(dir))
		if err != nil {
			return err
		}
		o, err := d.Attention(bg, s.q, s.k, s.v, s.p)
		if err == nil && len(o) != len(s.o) {
			err = errors.New("a wrong length")
		}
		return errors.Join(err, d.Close())
	}
	require.NoError(t, use())
	require.Empty(t, f.Live())
	// Compiled anew; not stored, which DiskCache tells of and is no error; tried again.
	spared := []string{"vkCreatePipelineCache", "vkGetPipelineCacheData", "vkDeviceWaitIdle"}
	if devices, _ := Devices(); len(devices) > 1 {
		// Whose facts cannot be read is passed over, and another device opened.
		spared = append(spared, "vkEnumerateDeviceExtensionProperties", "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
	}
	for _, k := range walkResults {
		n := vktest.Walk{Faults: f, Kind: k.kind, Result: k.result, Stride: shortStride(10), Run: use,
			Check: func(t testing.TB, n int, call string, err error) {
				if err == nil {
					require.Contains(t, append(doesWithout(facts, k.result), spared...), call)
				} else {
					require.ErrorIs(t, err, k.result)
					require.ErrorContains(t, err, call)
					require.Regexp(t, "flash: (Open|Attention|Close): ", err.Error())
				}
				require.Empty(t, f.Live())
			}}.Do(t)
		t.Logf("%s with %v: %d calls", k.kind, k.result, n)
	}
	vktest.Walk{Faults: f, Kind: "enumerate", Result: vk.Incomplete, Run: use, Check: func(t testing.TB, n int, call string, err error) {
		require.NoError(t, err, call)
	}}.Do(t)
}

// shortStride is a stride for short tests; others take every call.
func shortStride(n int) int {
	if testing.Short() {
		return n
	}
	return 1
}

// A plan of the matrix tier proves itself on a small problem first; calls of that fail in turn, and it is tried again.
func TestFaultWalkMatrix(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles matrix kernels")
	}
	walkOne(t, faultOperation{name: "Plan", cold: true, stride: 9, run: func(d *Device, _ *faultWorld) error {
		if len(matrixTypes(d)) == 0 {
			return nil
		}
		kernel.Known.Clear() // so that the kernel is tried
		plan, err := d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 20, HeadDim: 16, DType: F16}, WithTier(TierMatrix),
			WithImplementation(Flash))
		return closing(err, plan)
	}})
}

// Measuring ceilings repeats the same few calls for a tenth of a second.
func TestFaultWalkPeaks(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second for each call")
	}
	// Copies of less memory are measured where there is no room for much.
	allocating := []string{"vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory"}
	walkOne(t, faultOperation{name: "MeasurePeaks", cold: true, stride: 29, spares: allocating, run: func(d *Device, _ *faultWorld) error {
		return TuneHooks.MeasurePeaks(bg, d)
	}})
}

// walkOne walks an operation that takes long, with a call that fails and with a device that is lost.
func walkOne(t *testing.T, op faultOperation) {
	r := newFaultRig(t)
	for _, result := range []vk.Result{vk.ErrOutOfHostMemory, vk.ErrDeviceLost} {
		n := r.walk(t, op, "any", result)
		t.Logf("%v: %d calls", result, n)
	}
}

// Every call of attaching to a device fails in turn; the owner's device stays as it was.
func TestFaultWalkAttach(t *testing.T) {
	owner := testDevice(t)
	facts := owner.dev.Facts()
	f := vk.NewFaults()
	s := newSample(t, Problem{Batch: 1, Heads: 1, QueryLen: 3, HeadDim: 4})
	use := func() error {
		d, err := Attach(owner.External(), WithFaults(f), WithoutDiskCache())
		if err != nil {
			return err
		}
		_, err = d.Attention(bg, s.q, s.k, s.v, s.p)
		return errors.Join(err, d.Close())
	}
	require.NoError(t, use())
	require.Empty(t, f.Live())
	for _, k := range walkResults {
		n := vktest.Walk{Faults: f, Kind: k.kind, Result: k.result, Stride: shortStride(10), Run: use,
			Check: func(t testing.TB, n int, call string, err error) {
				if err == nil {
					require.Contains(t, append(doesWithout(facts, k.result), "vkQueueWaitIdle"), call)
				} else {
					require.ErrorIs(t, err, k.result)
					require.ErrorContains(t, err, call)
					require.Regexp(t, "flash: (Attach|Attention|Close): ", err.Error())
				}
				require.Empty(t, f.Live())
			}}.Do(t)
		t.Logf("%s with %v: %d calls", k.kind, k.result, n)
	}
	o, err := owner.Attention(bg, s.q, s.k, s.v, s.p)
	require.NoError(t, err)
	require.Len(t, o, len(s.o))
}

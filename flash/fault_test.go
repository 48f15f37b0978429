package flash

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// faultRig makes devices whose calls can fail, all on the VkDevice of the tests, which is not lost when they are: a GPU's driver takes a
// tenth of a second and more to open another one. TestFaultWalkOpen opens devices and closes them.
type faultRig struct {
	f     *vk.Faults
	owner *Device
	s     *sample
}

func newFaultRig(t *testing.T) *faultRig {
	t.Helper()
	return &faultRig{vk.NewFaults(), testDevice(t), newSample(t, Problem{Batch: 1, Heads: 2, QueryLen: 3, KeyLen: 5, HeadDim: 4})}
}

func (r *faultRig) open(t testing.TB) *Device {
	t.Helper()
	dev, err := vk.AttachWithFaults(r.owner.External(), r.f)
	require.NoError(t, err)
	d, err := newDevice(dev, &deviceOptions{noCache: true})
	require.NoError(t, err)
	return d
}

// faultWorld is a device with what operations need.
type faultWorld struct {
	d              *Device
	s              *sample
	f              Forward
	g              Backward
	plan, standard *Plan
	strided        *Tensor
	pool           *vk.CommandPool
	cmd            *vk.CommandBuffer
}

func (r *faultRig) world(t testing.TB, d *Device) *faultWorld {
	t.Helper()
	w := &faultWorld{d: d, s: r.s}
	make := plainly(t, d)
	w.f = r.s.tensors(t, d, make)
	p := r.s.p
	w.g = Backward{Forward: w.f, DO: make(F32, p.OShape()), DQ: make(F32, p.QShape()), DK: make(F32, p.KShape()), DV: make(F32, p.VShape())}
	require.NoError(t, w.g.DO.Upload(bg, r.s.q))
	w.plan = mustPlan(t, d, p, WithTier(TierScalar))
	w.standard = mustPlan(t, d, p, WithTier(TierScalar), WithImplementation(Standard))
	base := make(F32, [4]int{1, 1, 4, 16})
	var err error
	w.strided, err = base.View(0, F32, [4]int{1, 1, 3, 4}, [4]int{48, 48, 16, 1})
	require.NoError(t, err)
	w.pool, err = d.dev.NewCommandPool()
	require.NoError(t, err)
	w.cmd, err = w.pool.Allocate()
	require.NoError(t, err)
	return w
}

// check runs a forward pass and compares it with the reference.
func (w *faultWorld) check(t testing.TB) {
	t.Helper()
	w.s.poison(t, w.f)
	plan := mustPlan(t, w.d, w.s.p, WithTier(TierScalar))
	require.NoError(t, plan.Forward(bg, w.f))
	w.s.check(t, plan, w.f)
	require.NoError(t, plan.Close())
}

// correct says whether o holds what the reference says, for operations that wrote it; it is not exact.
func (w *faultWorld) correct(o []float32) error {
	for i, want := range w.s.o {
		if d := float64(o[i]) - want; !(d < 1e-3 && d > -1e-3) {
			return fmt.Errorf("o[%d] is %v and should be %v", i, o[i], want)
		}
	}
	return nil
}

// faultOperation is an exported operation to be walked. run leaves nothing behind, whether it fails or not.
type faultOperation struct {
	name   string   // that its errors must have
	cold   bool     // it makes what a device keeps: each run is on a new device, without a world
	ways   bool     // short tests make it fail in every way, others in two
	long   bool     // left out of short tests
	stride int      // in all tests one call in this number, for what takes seconds; 0: all
	spares []string // calls that this operation does without, besides those that every one does
	run    func(d *Device, w *faultWorld) error
}

// doesWithout names, by result, the calls that an operation can do without on a device; the comments say what it does in their place.
func doesWithout(facts *vk.Facts, result vk.Result) []string {
	var calls []string
	switch result {
	case vk.ErrOutOfHostMemory:
		calls = []string{"vkWaitForFences", "vkGetQueryPoolResults", "vkDeviceWaitIdle"} // waits for the device; no timings; tries again
	case vk.ErrOutOfPoolMemory:
		calls = []string{"vkAllocateDescriptorSets"} // another pool
	case vk.Timeout:
		calls = []string{"vkWaitForFences"} // waits on
	case vk.NotReady:
		calls = []string{"vkGetFenceStatus", "vkGetQueryPoolResults"} // says so, or has no timings
	}
	if len(facts.MemoryTypes) > 1 && (result == vk.ErrOutOfHostMemory || result == vk.ErrOutOfDeviceMemory) {
		calls = append(calls, "vkAllocateMemory") // memory of another type
	}
	return calls
}

// walk makes the calls of an operation fail in turn.
func (r *faultRig) walk(t *testing.T, op faultOperation, kind string, result vk.Result) (fired int) {
	t.Helper()
	var d *Device
	var w *faultWorld
	var clean map[string]int // objects alive after the operation went well
	var kept uint64          // bytes in use then
	fresh := func() {
		if d != nil {
			require.NoError(t, d.Close())
			require.Empty(t, r.f.Live(), "after Close")
		}
		d, w = r.open(t), nil
		if !op.cold {
			w = r.world(t, d)
			require.NoError(t, op.run(d, w), op.name)
			w.check(t)
			clean, kept = r.f.Live(), d.Usage().Current
		}
	}
	if op.cold {
		fresh()
		require.NoError(t, op.run(d, w), op.name)
		clean, kept = r.f.Live(), d.Usage().Current
	}
	fresh()
	stride := max(op.stride, 1)
	if testing.Short() && result == vk.ErrDeviceLost { // each call needs a device and a world of its own
		stride = 11
	}
	fired = vktest.Walk{Faults: r.f, Kind: kind, Result: result, Stride: stride, Run: func() error { return op.run(d, w) },
		Check: func(t testing.TB, n int, call string, err error) {
			if result == vk.ErrDeviceLost {
				checkLost(t, d, w, op, err)
				require.Empty(t, r.f.Live(), "after Close")
				d = nil
				fresh()
				return
			}
			switch {
			case err == nil && slices.Contains(append(doesWithout(r.owner.dev.Facts(), result), op.spares...), call):
			case !errors.Is(err, result):
				t.Errorf("%s gave %v, and the error is %v", call, result, err)
			case !strings.Contains(err.Error(), call) || !strings.Contains(err.Error(), "flash: "+op.name):
				t.Errorf("%s of %s failed, and the error is %v", call, op.name, err)
			}
			require.NoError(t, d.Lost())
			require.NoError(t, op.run(d, w), "tried again")
			require.Empty(t, vktest.Leaked(clean, r.f.Live()), "objects left behind")
			require.Equal(t, kept, d.Usage().Current, "bytes left behind: %v", d.Usage().ByLabel)
			if op.cold {
				fresh()
			} else {
				w.check(t)
			}
		}}.Do(t)
	require.NoError(t, d.Close())
	require.Empty(t, r.f.Live(), "after Close")
	return fired
}

// checkLost looks at a device that was lost in an operation that returned err, and closes it.
func checkLost(t testing.TB, d *Device, w *faultWorld, op faultOperation, err error) {
	t.Helper()
	require.ErrorIs(t, d.Lost(), ErrDeviceLost)
	if err != nil { // else it had got what it wanted
		require.ErrorIs(t, err, ErrDeviceLost)
		require.ErrorIs(t, err, vk.ErrDeviceLost)
		require.ErrorContains(t, err, "flash: "+op.name)
	}
	began := time.Now()
	_, err = d.NewTensor(F32, 1, 1, 1, 4)
	require.ErrorIs(t, err, ErrDeviceLost)
	_, err = d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 4})
	require.ErrorIs(t, err, ErrDeviceLost)
	if w != nil {
		require.ErrorIs(t, w.f.Q.Upload(bg, w.s.q), ErrDeviceLost)
		require.ErrorIs(t, w.plan.Forward(bg, w.f), ErrDeviceLost)
		require.ErrorIs(t, w.plan.Backward(bg, w.g), ErrDeviceLost)
		require.NoError(t, w.f.K.Close())
	}
	require.ErrorIs(t, d.WaitIdle(), ErrDeviceLost)
	require.ErrorIs(t, d.Close(), ErrDeviceLost)
	require.Less(t, time.Since(began), time.Minute)
}

// walkResults are the ways in which calls of each operation fail.
var walkResults = []struct {
	kind   string
	result vk.Result
}{
	{"any", vk.ErrOutOfHostMemory}, {"any", vk.ErrDeviceLost}, {"alloc", vk.ErrOutOfDeviceMemory},
	{"descriptorset", vk.ErrOutOfPoolMemory}, {"wait", vk.Timeout}, {"query", vk.NotReady},
}

// walkAll walks operations under every kind of failure.
func walkAll(t *testing.T, ops []faultOperation) {
	only := os.Getenv("VKATTN_FAULT_WALK") // the name of one operation, when looking for a fault
	for _, op := range ops {
		if only != "" && op.name != only {
			continue
		}
		t.Run(op.name, func(t *testing.T) {
			if testing.Short() && op.long {
				t.Skip("takes long")
			}
			r := newFaultRig(t)
			for i, k := range walkResults {
				if testing.Short() && i > 1 && !op.ways {
					break
				}
				began := time.Now()
				n := r.walk(t, op, k.kind, k.result)
				t.Logf("%s with %v: %d calls, %v", k.kind, k.result, n, time.Since(began).Round(time.Millisecond))
				if k.kind == "any" && n == 0 {
					t.Errorf("no call of %s can fail", op.name)
				}
			}
		})
	}
}

// A lost device ends waits of other goroutines, and another one can be opened.
func TestFaultLostEndsWaits(t *testing.T) {
	r := newFaultRig(t)
	d := r.open(t)
	w := r.world(t, d)
	var sets [6]Forward
	for i := range sets {
		sets[i] = r.s.tensors(t, d, plainly(t, d))
	}
	require.NoError(t, r.f.Arm("wait", 30, vk.ErrDeviceLost))
	var wait sync.WaitGroup
	errs := make([]error, len(sets))
	for i, f := range sets {
		wait.Go(func() {
			for errs[i] == nil {
				errs[i] = w.plan.Forward(bg, f)
			}
		})
	}
	ended := make(chan struct{})
	go func() { wait.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Fatal("somebody still waits for a lost device")
	}
	r.f.Disarm()
	for _, err := range errs {
		require.ErrorIs(t, err, ErrDeviceLost)
	}
	require.ErrorIs(t, d.Close(), ErrDeviceLost)
	require.Empty(t, r.f.Live())
	again := r.open(t)
	r.world(t, again).check(t)
	require.NoError(t, again.Close())
}

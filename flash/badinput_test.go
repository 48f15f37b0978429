package flash

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// misfits is what tests of bad tensors are made from: a small plan, a second device, and tensors that fit the plan or nearly do.
type misfits struct {
	dev, other *Device
	problem    Problem // q, k, v and o are all fp16 [1, 2, 8, 16]
	plan       *Plan
	big        *Tensor // room to lay overlapping tensors over
	closed     *Tensor
	tensor     func(dev *Device, dt DType, shape ...int) *Tensor
	view       func(x *Tensor, offset uint64, dt DType, shape, strides [4]int) *Tensor
}

func newMisfits(t *testing.T) misfits {
	p, err := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16, DType: F16}.Normalize()
	require.NoError(t, err)
	m := misfits{dev: testDevice(t), other: testDevice(t), problem: p}
	m.plan = mustPlan(t, m.dev, p)
	m.tensor = func(dev *Device, dt DType, shape ...int) *Tensor {
		x, err := dev.NewTensor(dt, shape[0], shape[1], shape[2], shape[3])
		require.NoError(t, err)
		return x
	}
	m.view = func(x *Tensor, offset uint64, dt DType, shape, strides [4]int) *Tensor {
		v, err := x.View(offset, dt, shape, strides)
		require.NoError(t, err)
		return v
	}
	m.big, m.closed = m.tensor(m.dev, F16, 1, 2, 64, 16), m.tensor(m.dev, F16, 1, 2, 8, 16)
	require.NoError(t, m.closed.Close())
	return m
}

// requireRefused: the error names that argument with its value and the rule, or, for "", says that something is closed.
func requireRefused(t *testing.T, argument string, err error) {
	t.Helper()
	if argument == "" {
		require.ErrorIs(t, err, ErrClosed)
		return
	}
	var arg *ArgumentError
	require.ErrorAs(t, err, &arg)
	require.Equal(t, argument, arg.Argument)
	require.NotEmpty(t, arg.Value)
	require.NotEmpty(t, arg.Rule)
}

// TestBadTensors: every tensor that does not fit its place gives an error that names the place and the rule.
func TestBadTensors(t *testing.T) {
	misfits := newMisfits(t)
	d, other, p, plan, mk, view := misfits.dev, misfits.other, misfits.problem, misfits.plan, misfits.tensor, misfits.view
	shape := p.QShape()
	big, closed := misfits.big, misfits.closed
	for _, c := range []struct {
		name     string
		change   func(f *Forward)
		argument string // of the *ArgumentError; "" for ErrClosed
	}{
		{"nil q", func(f *Forward) { f.Q = nil }, "Forward.Q"},
		{"nil o", func(f *Forward) { f.O = nil }, "Forward.O"},
		{"zero q", func(f *Forward) { f.Q = &Tensor{} }, "Forward.Q"},
		{"wrong type", func(f *Forward) { f.K = mk(d, F32, 1, 2, 8, 16) }, "Forward.K"},
		{"wrong shape", func(f *Forward) { f.V = mk(d, F16, 1, 2, 8, 8) }, "Forward.V"},
		{"swapped heads and length", func(f *Forward) { f.Q = mk(d, F16, 1, 8, 2, 16) }, "Forward.Q"},
		{"another device", func(f *Forward) { f.Q = mk(other, F16, 1, 2, 8, 16) }, "Forward.Q"},
		{"lse of another device", func(f *Forward) { f.LSE = mk(other, F32, 1, 2, 8, 1) }, "Forward.LSE"},
		{"closed", func(f *Forward) { f.V = closed }, ""},
		{"lse not fp32", func(f *Forward) { f.LSE = mk(d, F16, 1, 2, 8, 1) }, "Forward.LSE"},
		{"lse of another shape", func(f *Forward) { f.LSE = mk(d, F32, 1, 2, 16, 1) }, "Forward.LSE"},
		{"lse strided", func(f *Forward) {
			f.LSE = view(mk(d, F32, 1, 2, 16, 1), 0, F32, p.LSEShape(), [4]int{32, 16, 1, 1})
		}, "Forward.LSE"},
		{"o is q", func(f *Forward) { f.O = f.Q }, "Forward.O"},
		{"o is v", func(f *Forward) { f.O = f.V }, "Forward.O"},
		{"o overlaps k", func(f *Forward) {
			f.K, f.O = view(big, 0, F16, shape, [4]int{}), view(big, 300, F16, shape, [4]int{})
		}, "Forward.O"},
		{"o over itself", func(f *Forward) { f.O = view(big, 0, F16, shape, [4]int{0, 16, 16, 1}) }, "Forward.O"},
		{"lse overlaps o", func(f *Forward) {
			f.O, f.LSE = view(big, 0, F16, shape, [4]int{}), view(big, 256, F32, p.LSEShape(), [4]int{})
		}, "Forward.LSE"},
		{"lse overlaps q", func(f *Forward) {
			f.Q, f.LSE = view(big, 0, F16, shape, [4]int{}), view(big, 256, F32, p.LSEShape(), [4]int{})
		}, "Forward.LSE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := Forward{Q: mk(d, F16, 1, 2, 8, 16), K: mk(d, F16, 1, 2, 8, 16), V: mk(d, F16, 1, 2, 8, 16), O: mk(d, F16, 1, 2, 8, 16),
				LSE: mk(d, F32, 1, 2, 8, 1)}
			good := f
			c.change(&f)
			_, err := plan.SubmitForward(f)
			requireRefused(t, c.argument, err)
			require.NoError(t, plan.Forward(bg, good), "a refused call must leave the plan usable")
		})
	}
	// Inputs may overlap, and be read with stride 0.
	k := view(big, 0, F16, shape, [4]int{0, 0, 16, 1})
	require.NoError(t, plan.Forward(bg, Forward{Q: k, K: k, V: k, O: mk(d, F16, 1, 2, 8, 16)}))
}

func TestBadTensorArguments(t *testing.T) {
	d := testDevice(t)
	most := d.Info().Facts.Limits.MaxStorageBufferRange
	for _, c := range []struct {
		name, argument string
		make           func() (*Tensor, error)
	}{
		{"no elements", "shape", func() (*Tensor, error) { return d.NewTensor(F16, 1, 0, 2, 3) }},
		{"unknown type", "dtype", func() (*Tensor, error) { return d.NewTensor(DType(77), 1, 1, 2, 3) }},
		{"too many elements", "shape", func() (*Tensor, error) { return d.NewTensor(F16, 1<<30, 1<<30, 2, 3) }},
		{"beyond one binding", "shape", func() (*Tensor, error) { return d.NewTensor(F32, 1, 1, int(most/1024)+1, 256) }},
		{"null buffer", "buffer.Handle", func() (*Tensor, error) {
			return d.TensorOn(BufferRef{Size: 100}, 0, F16, [4]int{1, 1, 1, 1}, [4]int{})
		}},
		{"empty buffer", "buffer.Size", func() (*Tensor, error) {
			return d.TensorOn(BufferRef{Handle: 1}, 0, F16, [4]int{1, 1, 1, 1}, [4]int{})
		}},
		{"buffer too small", "offset", func() (*Tensor, error) {
			return d.TensorOn(BufferRef{Handle: 1, Size: 100}, 90, F16, [4]int{1, 1, 2, 3}, [4]int{})
		}},
		{"misaligned", "offset", func() (*Tensor, error) {
			return d.TensorOn(BufferRef{Handle: 1, Size: 100}, 1, F16, [4]int{1, 1, 2, 3}, [4]int{})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := d.Usage().Current
			_, err := c.make()
			var arg *ArgumentError
			require.ErrorAs(t, err, &arg)
			require.Equal(t, c.argument, arg.Argument)
			require.Equal(t, before, d.Usage().Current)
		})
	}
	x, err := d.NewTensor(F32, 1, 1, 2, 3)
	require.NoError(t, err)
	require.ErrorContains(t, x.Upload(bg, make([]float32, 5)), "len(values) is 5: must be 6")
	require.ErrorContains(t, x.DownloadBytes(bg, make([]byte, 5)), "len(data) is 5: must be 24")
}

func TestBadPlans(t *testing.T) {
	d := testDevice(t)
	good := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16}
	for _, c := range []struct {
		name string
		opts []PlanOption
		is   error
		says string
	}{
		{"unknown implementation", []PlanOption{WithImplementation(9)}, ErrArgument, "WithImplementation"},
		{"unknown tier", []PlanOption{WithTier("quantum")}, ErrArgument, "WithTier"},
		{"unknown parameter", []PlanOption{WithTier(TierScalar), WithTuning(map[string]int{"zz": 1})}, ErrArgument, "WithTuning[zz]"},
		{"negative parameter", []PlanOption{WithTuning(map[string]int{"br": -1})}, ErrArgument, "WithTuning[br]"},
		{"a tile that does not divide", []PlanOption{WithTier(TierScalar), WithTuning(map[string]int{"br": 63, "bc": 20})}, ErrArgument,
			"WithTuning"},
		{"a tile beyond shared memory", []PlanOption{WithTier(TierScalar), WithTuning(map[string]int{"br": 1 << 14, "bc": 64})},
			ErrArgument, "WithTuning"},
		{"fp32 on the matrix tier by flash1", []PlanOption{WithTier(TierMatrix), WithImplementation(Flash1)}, ErrUnsupported,
			"not supported"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := d.Plan(good, c.opts...)
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.says)
		})
	}
	_, err := d.Plan(Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: MaxHeadDim + 1})
	require.ErrorContains(t, err, "Problem.HeadDim is 577: must be from 1 to 576")
}

// TestZeroValues: values that no constructor made give errors, not panics.
func TestZeroValues(t *testing.T) {
	var d Device
	_, err := d.NewTensor(F32, 1, 1, 1, 1)
	require.ErrorIs(t, err, ErrArgument)
	_, err = d.Plan(Problem{Batch: 1, Heads: 1, QueryLen: 1, HeadDim: 1})
	require.ErrorIs(t, err, ErrArgument)
	require.NoError(t, d.Close())
	require.ErrorIs(t, new(Plan).Forward(bg, Forward{}), ErrArgument)
	require.NoError(t, new(Plan).Close())
	require.ErrorIs(t, new(Recording).Forward(Forward{}), ErrArgument)
	require.NoError(t, new(Recording).Close())
	require.ErrorIs(t, Pending{}.Wait(bg), ErrArgument)
	require.ErrorIs(t, new(Tensor).Upload(bg, nil), ErrArgument)
	require.NoError(t, new(Tensor).Close())

	require.Zero(t, d.Handle())
	require.Zero(t, d.External())
	require.Zero(t, d.Usage())
	d.ResetPeak()
	require.NoError(t, d.Lost())
	require.ErrorIs(t, d.WaitIdle(), ErrArgument)
	_, err = d.Heaps()
	require.ErrorIs(t, err, ErrArgument)
	for _, p := range []*Plan{new(Plan), nil} {
		require.Zero(t, p.ForwardInfo())
		require.Zero(t, p.Implementation())
		require.Equal(t, "no plan", p.String())
		require.ErrorIs(t, p.Forward(bg, Forward{}), ErrArgument)
		_, err = p.NewRecording()
		require.ErrorIs(t, err, ErrArgument)
	}
	x := new(Tensor)
	require.Zero(t, x.Bytes())
	require.Zero(t, x.Buffer())
	require.NotEmpty(t, x.String())
	_, err = x.View(0, F32, [4]int{1, 1, 1, 1}, [4]int{})
	require.ErrorIs(t, err, ErrArgument)
}

func TestBadOptions(t *testing.T) {
	for _, o := range []DeviceOption{WithValidation(nil), WithCacheDir(""), WithSyncValidation()} {
		_, err := Open(o)
		require.ErrorIs(t, err, ErrArgument)
	}
	_, err := Attach(External{})
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "External.Instance")
	_, err = Attach(External{}, WithDevice("x"))
	require.ErrorContains(t, err, "WithDevice")
}

// TestErrorsOfOptions: errors name the option that is wrong, once, and match what they are.
func TestErrorsOfOptions(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 8, HeadDim: 16}
	_, err := d.Plan(p, WithTier(TierScalar), WithTuning(map[string]int{"br": 7, "mr": 2}))
	require.EqualError(t, err, "flash: WithTuning is map[br:7 mr:2]: br = 7 must be a multiple of mr = 2")
	_, err = mustPlan(t, d, p, WithTier(TierScalar), WithBackwardTuning(map[string]int{"zz": 1})).BackwardInfo()
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "flash: WithBackwardTuning[zz] is 1: scalar_backward has no such parameter")
	_, err = Open(WithDevice("no such device"))
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorIs(t, err, ErrNoDevice)
	require.ErrorContains(t, err, `flash: WithDevice is "no such device": must be a number or part of a name among: 0 `)
}

// TestUseAfterClose: everything closed says so, and closing again does nothing.
func TestUseAfterClose(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 1, QueryLen: 4, HeadDim: 8}
	s := newSample(t, p)
	plan := mustPlan(t, d, p)
	f := s.tensors(t, d, plainly(t, d))
	r, err := plan.NewRecording()
	require.NoError(t, err)
	_, err = r.Submit()
	require.ErrorIs(t, err, ErrArgument, "nothing recorded yet")
	require.ErrorIs(t, r.Record(1), ErrArgument)
	require.NoError(t, r.Forward(f))
	require.ErrorIs(t, r.Record(0), ErrArgument)

	pending, err := r.Submit()
	require.NoError(t, err)
	if done, _ := pending.Done(); !done {
		require.ErrorIs(t, r.Forward(f), ErrInFlight)
	}
	_, err = r.Submit()
	require.ErrorIs(t, err, ErrInFlight)
	require.NoError(t, pending.Wait(bg))

	require.NoError(t, f.V.Close())
	_, err = r.Submit()
	require.ErrorIs(t, err, ErrClosed, "a tensor closed after Forward")
	require.ErrorIs(t, f.V.Upload(bg, s.v), ErrClosed)
	_, err = f.V.View(0, F32, p.VShape(), [4]int{})
	require.ErrorIs(t, err, ErrClosed)

	require.NoError(t, r.Close())
	require.NoError(t, r.Close())
	require.ErrorIs(t, r.Forward(f), ErrClosed)
	require.NoError(t, plan.Close())
	require.NoError(t, plan.Close())
	require.ErrorIs(t, plan.Forward(bg, Forward{Q: f.Q, K: f.K, V: f.V, O: f.O}), ErrClosed)
	_, err = plan.NewRecording()
	require.ErrorIs(t, err, ErrClosed)

	open := mustPlan(t, d, p)
	rec, err := open.NewRecording()
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.Plan(p)
	require.ErrorIs(t, err, ErrClosed)
	_, err = d.NewTensor(F32, 1, 1, 1, 1)
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, d.WaitIdle(), ErrClosed)
	require.ErrorIs(t, f.Q.Upload(bg, s.q), ErrClosed)
	require.ErrorIs(t, open.Forward(bg, Forward{Q: f.Q, K: f.K, V: f.V, O: f.O}), ErrClosed)
	require.ErrorIs(t, rec.Forward(f), ErrClosed)
	require.NoError(t, f.Q.Close())
	require.NoError(t, rec.Close())
	require.NoError(t, open.Close())
}

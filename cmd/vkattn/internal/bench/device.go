package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/vk"
)

// How a row is measured.
const (
	warmUp     = 25 * time.Millisecond  // of device time before anything counts
	leftAlone  = 800 * time.Millisecond // a GPU without work for so long may have slowed its clock down: an H200 from 1980 to 345 MHz
	wakeUp     = time.Second            // of work before anything counts then, of which an H200 takes half to come back
	leastTime  = 100 * time.Millisecond // of device time that counts
	enoughWall = time.Second            // of runs too short to fill leastTime sooner, where other processes use the device too
	leastRuns  = 10
	batchTime  = 20 * time.Millisecond // of runs in one submission
	batchRuns  = 256                   // at most
	wallRuns   = 10                    // at most, one submission each
	wallBudget = 100 * time.Millisecond
	inputSeed  = 20260101
)

// Inputs and outputs that fit a cache would be measured there; several sets
// are then used in turn until together they no longer fit.
const (
	largestCache    = 128 << 20 // bytes; more than the last-level cache of any GPU that is known to us
	largestCacheCPU = 32 << 20
	mostSets        = 16
)

// Device is the Bench of a Vulkan device.
type Device struct {
	dev     *flash.Device
	library string
	name    string
	driver  string
	cpu     bool
	busy    time.Time // until then it had work
	peaks   Peaks
	opts    []flash.PlanOption

	// Limit bounds the time of a row: fewer runs than leastRuns are made where
	// they would take longer. 0: no bound.
	Limit time.Duration
}

// NewDevice measures on dev. opts narrow what every plan may choose, besides
// the implementation.
func NewDevice(dev *flash.Device, version string, peaks Peaks, opts ...flash.PlanOption) *Device {
	info := dev.Info()
	return &Device{dev: dev, library: "vkattn " + version, name: info.Name, driver: info.Driver, cpu: IsCPU(info),
		peaks: peaks, opts: opts}
}

// IsCPU says whether the device is the host's processor.
func IsCPU(info flash.DeviceInfo) bool { return info.Facts != nil && info.Facts.Type.String() == "cpu" }

// Row returns an empty row of the device.
func (d *Device) Row(c Case) Row {
	return Row{Origin: Origin{Library: d.library, Device: d.name, Driver: d.driver}, Case: c, Note: c.emptyMask()}
}

// Ceiling is the larger of the measured arithmetic peaks.
func (d *Device) Ceiling() float64 { return 1e12 * max(d.peaks.MatrixTFLOPS, d.peaks.FP32TFLOPS) }

// fail notes why a row has no figures.
func (r *Row) fail(err error) {
	r.Failure = FailureOf(err)
	r.Fwd, r.Bwd = Pass{}, Pass{}
}

// FailureOf is what a row says of an error of measuring.
func FailureOf(err error) Failure { return Failure{err.Error(), reasonOf(err)} }

func reasonOf(err error) Reason {
	var wrong *wrongError
	switch {
	case errors.As(err, &wrong):
		return ReasonCheck
	case outOfMemory(err):
		return ReasonMemory
	case errors.Is(err, flash.ErrUnsupported):
		return ReasonUnsupported
	}
	return ReasonFailed
}

// wrongError is an output that a check refused.
type wrongError struct{ error }

// Wrong marks an error as that of an output that a check refused.
func Wrong(err error) error { return &wrongError{err} }

// outOfMemory says whether an allocation was refused, or failed.
func outOfMemory(err error) bool {
	var refused *flash.MemoryError
	return errors.As(err, &refused) || errors.Is(err, vk.ErrOutOfDeviceMemory) || errors.Is(err, vk.ErrOutOfHostMemory)
}

// tensorSet is one set of inputs with its output.
type tensorSet struct {
	q, k, v, o *flash.Tensor
	grad       gradientSet // nil tensors where backward is not timed
	in         *inputs

	bias, sinks, starts, used, pages, keyScales, valueScales *flash.Tensor // nil where the case has none
}

// deviceShape is the Shape of a Device.
type deviceShape struct {
	d       *Device
	c       Case
	passes  Passes // that may be measured
	problem flash.Problem
	sets    []tensorSet

	expected map[expectationKey]*expectation // of the sets checked so far: rows of one shape differ in kernel and tile alone
}

// expectationKey is what outputs of a shape depend on, besides its case.
type expectationKey struct {
	set     int
	density float64
}

// Shape allocates and fills the input sets that the passes need.
func (d *Device) Shape(ctx context.Context, c Case, passes Passes) (Shape, error) {
	problem, err := c.Problem()
	if err != nil {
		return nil, err
	}
	s := &deviceShape{d: d, c: c.Shape(), passes: passes, problem: problem, expected: map[expectationKey]*expectation{}}
	for i := range d.setsFor(problem, passes) {
		set, err := d.newSet(ctx, c, problem, passes, uint64(inputSeed+i))
		if err != nil {
			if len(s.sets) > 0 && outOfMemory(err) {
				break // fewer sets must do
			}
			s.Close()
			return nil, fmt.Errorf("inputs and outputs: %w", err)
		}
		s.sets = append(s.sets, set)
	}
	return s, nil
}

// setsFor is the number of input sets whose rotation outgrows the cache.
func (d *Device) setsFor(p flash.Problem, passes Passes) int {
	bytes, err := tune.LeastForwardBytes(p, flash.Flash)
	if err != nil {
		return 1
	}
	if passes.Bwd {
		bytes *= 2
	}
	return d.Sets(bytes)
}

// Sets is the number of sets of tensors of so many bytes whose rotation outgrows the cache, or the most that are made.
func (d *Device) Sets(bytes float64) int {
	cache := float64(largestCache)
	if d.cpu {
		cache = largestCacheCPU
	}
	return int(min(math.Ceil(cache/bytes), mostSets))
}

func (d *Device) newSet(ctx context.Context, c Case, p flash.Problem, passes Passes, seed uint64) (set tensorSet, err error) {
	in := newInputs(c, seed)
	set.in = in
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	all := []filled{
		{&set.q, p.DType, p.QShape(), in.q.place.bnhd, in.q.bytes}, {&set.o, p.DType, p.OShape(), in.q.place.bnhd, nil},
		{&set.k, p.KeyType, p.KShape(), in.k.place.bnhd, in.k.bytes}, {&set.v, p.ValueType, p.VShape(), in.v.place.bnhd, in.v.bytes},
	}
	if c.Bias != "" {
		shape := c.biasShape()
		all = append(all, filled{&set.bias, p.Bias.DType, shape, false,
			func() []byte { return in.bias.bytes(0, shape[0]*shape[1]*shape[2]*shape[3]) }})
	}
	if c.Sinks {
		all = append(all, filled{&set.sinks, flash.F32, sinksShape(p), false, func() []byte { return in.sinks.bytes(0, p.Heads) }})
	}
	if c.Packed != "" {
		all = append(all, filled{&set.starts, flash.Int32, [4]int{1, 1, 1, p.Batch + 1}, false, func() []byte { return words(c.starts()) }})
	}
	if c.Used != "" {
		all = append(all, filled{&set.used, flash.Int32, [4]int{1, 1, 1, p.Batch}, false, func() []byte { return words(c.used()) }})
	}
	if c.Page > 0 {
		all = append(all, filled{&set.pages, flash.Int32, [4]int{1, 1, p.Batch, p.Pages.PerSequence}, false,
			func() []byte { return words(in.pages) }})
	}
	if p.KeyType == flash.F8E4M3 {
		shape := [4]int{1, 1, p.Batch, p.KeyHeads}
		all = append(all, filled{&set.keyScales, flash.F32, shape, false, func() []byte { return in.k.scales(p.Batch) }},
			filled{&set.valueScales, flash.F32, shape, false, func() []byte { return in.v.scales(p.Batch) }})
	}
	if err = d.fill(ctx, all); err == nil && passes.Bwd {
		set.grad, err = d.newGradients(ctx, c, p, in)
	}
	return set, err
}

// filled is a tensor to be made, with what its memory is to hold.
type filled struct {
	dst   **flash.Tensor
	dtype flash.DType
	shape [4]int
	bnhd  bool          // memory is [batch, length, heads, dim]
	bytes func() []byte // nil: nothing yet
}

// fill makes tensors one after the other: what the host holds of one is gone before the next.
func (d *Device) fill(ctx context.Context, all []filled) (err error) {
	for _, t := range all {
		allocate := d.dev.NewTensor
		if t.bnhd {
			allocate = d.dev.NewTensorBNHD
		}
		if *t.dst, err = allocate(t.dtype, t.shape[0], t.shape[1], t.shape[2], t.shape[3]); err != nil {
			return err
		}
		if t.bytes == nil {
			continue
		}
		if err = (*t.dst).UploadBytes(ctx, t.bytes()); err != nil {
			return err
		}
	}
	return nil
}

// bytes is the size of inputs and outputs.
func (s *tensorSet) bytes() uint64 { return bytesOf(s.all()...) }

func (s *tensorSet) all() []*flash.Tensor {
	return []*flash.Tensor{s.q, s.k, s.v, s.o, s.bias, s.sinks, s.starts, s.used, s.pages, s.keyScales, s.valueScales}
}

// newLSE makes the row statistics of a problem.
func (d *Device) newLSE(p flash.Problem) (*flash.Tensor, error) {
	shape := p.LSEShape()
	return d.dev.NewLSE(shape[0], shape[1], shape[2])
}

// sinksShape is that of sinks and of their gradient.
func sinksShape(p flash.Problem) [4]int { return [4]int{1, 1, 1, p.Heads} }

// bytesOf is the size of those tensors that there are.
func bytesOf(tensors ...*flash.Tensor) (n uint64) {
	for _, t := range tensors {
		if t != nil {
			n += t.Bytes()
		}
	}
	return n
}

func (s *tensorSet) close() {
	for _, t := range append(s.all(), s.grad.all()...) {
		if t != nil {
			t.Close()
		}
	}
}

// Close frees the tensors.
func (s *deviceShape) Close() error {
	for i := range s.sets {
		s.sets[i].close()
	}
	s.sets = nil
	return nil
}

// Measure times a job of the shape.
func (s *deviceShape) Measure(ctx context.Context, j Job, check bool) Row {
	return s.measureWith(ctx, j, check)
}

// measureWith is Measure with more options for the plan.
func (s *deviceShape) measureWith(ctx context.Context, j Job, check bool, opts ...flash.PlanOption) Row {
	row := s.d.Row(j.Case)
	if err := s.measure(ctx, &row, j, check, opts); err != nil {
		row.fail(err)
	}
	return row
}

func (s *deviceShape) measure(ctx context.Context, row *Row, j Job, verify bool, opts []flash.PlanOption) error {
	passes := j.Passes.orDefault()
	if passes.Bwd && !s.passes.Bwd {
		return fmt.Errorf("the shape %s was made without gradients", s.c)
	}
	own, err := s.d.options(j.Case)
	if err != nil {
		return err
	}
	if _, names := tune.Split(j.Case.Tuning.Values()); len(names) > 0 && !passes.Bwd {
		return fmt.Errorf("tuning %q: %s is of backward passes, and none is timed", j.Case.Tuning, slices.Sorted(maps.Keys(names))[0])
	}
	problem, err := j.Case.Problem()
	if err != nil {
		return err
	}
	plan, err := s.d.dev.Plan(problem, slices.Concat(own, opts)...)
	if err != nil {
		if j.Case.Tuning != "" && errors.Is(err, flash.ErrArgument) { // a tile that does not fit this device or problem
			row.Failure = Failure{err.Error(), ReasonUnsupported}
			return nil
		}
		return err
	}
	defer plan.Close()
	mask, err := s.d.masks(ctx, j.Case)
	defer mask.Close()
	if err != nil {
		return err
	}
	if row.Classes, err = mask.shares(ctx); err != nil {
		return err
	}
	// Outputs of an earlier measurement must not pass for this one's.
	for _, set := range s.sets {
		if verify {
			if err := poison(ctx, set.o); err != nil {
				return err
			}
		}
	}
	// Workspace is allocated by recordings. Making the plan may have tried the kernel out, with tensors of its own.
	s.d.dev.ResetPeak()
	before := s.d.dev.Usage()
	row.Tier, row.Kernel = string(plan.Tier()), plan.Kernel()

	forward, backward := s.d.Limit, s.d.Limit
	if passes.Fwd && passes.Bwd { // each gets its share of the row's time, by its operations
		forward = time.Duration(math.Ceil(float64(s.d.Limit) / (1 + backwardWork)))
		backward -= forward
	}
	if passes.Fwd {
		if err := s.measureForward(ctx, row, plan, mask, before, forward, verify); err != nil {
			return err
		}
	}
	if !passes.Bwd {
		return nil
	}
	err = s.measureBackward(ctx, row, plan, mask, backward, verify)
	if err == nil || !passes.Fwd || reasonOf(err) == ReasonCheck || ctx.Err() != nil {
		return err
	}
	row.Bwd, row.BwdFailure = Pass{}, FailureOf(err) // what forward gave stays
	return nil
}

// options are those of every plan for a case.
func (d *Device) options(c Case) ([]flash.PlanOption, error) {
	impl, err := Implementation(c.Impl)
	if err != nil {
		return nil, err
	}
	opts := slices.Concat([]flash.PlanOption{flash.WithImplementation(impl)}, d.opts)
	if c.Tuning != "" {
		forward, backward := tune.Split(c.Tuning.Values())
		opts = append(opts, flash.WithTuning(forward), flash.WithBackwardTuning(backward))
	}
	return opts, nil
}

// measureForward times the forward pass of a plan on the sets and compares the output of the last run with the reference.
// before is what was in use when there was no plan.
func (s *deviceShape) measureForward(ctx context.Context, row *Row, plan *flash.Plan, mask masks, before flash.Usage, limit time.Duration,
	verify bool) error {
	lse, err := s.d.newLSE(s.problem)
	if err != nil {
		return err
	}
	defer lse.Close()
	runs, err := s.recordings(ctx, &row.Fwd, before, s.sets[0].bytes(), func(i int) (*flash.Recording, error) {
		r, err := plan.NewRecording()
		if err != nil {
			return nil, err
		}
		return r, r.Forward(s.forward(i, lse, mask))
	})
	defer closeAll(runs)
	if err != nil {
		return err
	}
	if row.Fwd.LeastBytes, err = s.c.least(tune.LeastForwardBytes); err != nil {
		return err
	}
	if err := row.count(&row.Fwd, tune.ForwardModel(plan), plan.Problem()); err != nil {
		return err
	}
	last, samples, err := s.time(ctx, row, &row.Fwd, row.ForwardFLOPs(), limit, runs,
		func() error { return runs[0].Forward(s.forward(0, lse, mask)) })
	if err != nil {
		return err
	}
	row.samples = samples
	if !verify {
		return nil
	}
	return s.checkForward(ctx, row, last, lse)
}

// least is what a pass moves at least, the fused kernels' tensors each once: of keys that are in use of some, of each batch entry.
func (c Case) least(of func(flash.Problem, flash.Implementation) (float64, error)) (bytes float64, err error) {
	entries := []Case{c}
	if c.Used != "" {
		entries = entries[:0]
		for b := range c.B {
			entries = append(entries, c.alone(b))
		}
	}
	for _, own := range entries {
		p, err := own.Problem()
		if err != nil {
			return 0, err
		}
		n, err := of(p, flash.Flash)
		if err != nil {
			return 0, err
		}
		bytes += n
	}
	return bytes, nil
}

// count notes in a pass what its kernel says of its work. Work that takes too long to count leaves the row its times, and a note.
func (r *Row) count(f *Pass, m tune.Model, p flash.Problem) error {
	f.Model = m
	// Models leave a bias out, and it is most of the bytes; and they know no lengths but the longest. None are better than wrong ones.
	if r.Bias != "" || r.Used != "" {
		return nil
	}
	steps, err := m.Work(p, r.Case.Call())
	if errors.Is(err, flash.ErrArgument) {
		r.Note = "bytes are not counted: " + err.Error()
		return nil
	}
	f.Bytes = tune.Total(steps).Bytes()
	return err
}

// recordings makes a recording for each set, or for as many as there is room for. It notes in f the memory that the first run of
// the first takes beyond what was in use before, and what that is with the tensors of a pass. record may return a recording with an
// error. The caller closes what is returned, with an error too.
func (s *deviceShape) recordings(ctx context.Context, f *Pass, before flash.Usage, tensors uint64,
	record func(set int) (*flash.Recording, error)) (runs []*flash.Recording, err error) {
	for i := range s.sets {
		r, err := record(i)
		if err != nil {
			_ = r.Close()
			if i > 0 && outOfMemory(err) {
				break // fewer sets must do
			}
			return runs, err
		}
		runs = append(runs, r)
		if i > 0 {
			continue
		}
		// The workspace of one pass, and what forward keeps for backward, is what a user pays.
		if _, err := tune.TimeRuns(ctx, s.d.dev, runs, 1); err != nil {
			return runs, err
		}
		const mib = 1 << 20
		used := s.d.dev.Usage()
		peak := float64(used.PeakAsked-before.Asked) / mib
		f.PeakMiB, f.BlockMiB, f.TotalMiB = &peak, float64(used.Peak-before.Current)/mib, peak+float64(tensors)/mib
	}
	return runs, nil
}

func closeAll(runs []*flash.Recording) {
	for _, r := range runs {
		r.Close()
	}
}

// checkForward compares the output and lse of a set with the reference, and notes in the row how far they are off.
func (s *deviceShape) checkForward(ctx context.Context, row *Row, set int, lse *flash.Tensor) error {
	key := expectationKey{set, row.Density}
	e := s.expected[key]
	if e == nil {
		var err error
		if e, err = expect(ctx, row.Case, s.sets[set].in, sampleRows(s.c, inputSeed), uint32(set)); err != nil {
			return err
		}
		s.expected[key] = e
	}
	res, err := e.check(ctx, row.Case, s.sets[set].in.dtype, s.sets[set].o, lse)
	if err != nil {
		return err
	}
	row.Check = res.outcome()
	if res.err != nil {
		return Wrong(res.err)
	}
	return nil
}

func (s *deviceShape) forward(set int, lse *flash.Tensor, mask masks) flash.Forward {
	t := s.sets[set]
	return flash.Forward{Q: t.q, K: t.k, V: t.v, O: t.o, LSE: lse, Bias: t.bias, Sinks: t.sinks,
		QueryStarts: t.starts, KeyStarts: t.starts, KeyLengths: t.used, PageTable: t.pages, KeyScales: t.keyScales,
		ValueScales: t.valueScales,
		Blocks:      mask.blocks, MaskBlocks: mask.classes, Seed: dropoutSeed, Offset: uint32(set)}
}

const dropoutSeed = 0x76_6b_61_74_74_6e

// poison fills a tensor with the all-ones pattern.
func poison(ctx context.Context, t *flash.Tensor) error {
	data := make([]byte, t.Bytes())
	fillOnes(data)
	return t.UploadBytes(ctx, data)
}

// time fills the figures of a pass. limit bounds the time of it all (0: nothing does); again records the first of runs anew. last
// is the recording whose output an lse tensor that all share now belongs to.
func (s *deviceShape) time(ctx context.Context, row *Row, f *Pass, flops float64, limit time.Duration, runs []*flash.Recording,
	again func() error) (last int, samples []float64, err error) {
	b := budget{limit, time.Now()}
	timed, err := s.d.sample(b, func(n int) (tune.RunTimes, error) { return tune.TimeRuns(ctx, s.d.dev, runs, n) })
	if err != nil {
		return 0, nil, err
	}
	defer func() { s.d.busy = time.Now() }()
	last, samples = (timed.Last-1)%len(runs), timed.Ms
	var wall []float64
	for began := time.Now(); len(wall) < wallRuns && (len(wall) == 0 || time.Since(began) < wallBudget); {
		at := time.Now()
		if err := again(); err != nil {
			return 0, nil, err
		}
		pending, err := runs[0].Submit()
		if err != nil {
			return 0, nil, err
		}
		if err := pending.Wait(ctx); err != nil {
			return 0, nil, err
		}
		wall = append(wall, float64(time.Since(at))/1e6)
		last = 0
		if !b.fits(timed.one) {
			break
		}
	}
	if timed.Note != "" {
		row.Note = timed.Note
	}
	f.timed(samples, wall, flops)
	return last, samples, nil
}

package rows

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

const seed = 20260101

func newRand() *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Device measures on a device.
type Device struct {
	dev   *flash.Device
	bench *bench.Device
	blank Result  // with what is of the device
	copy  float64 // bytes a second, read and written
}

// NewDevice measures on dev, whose peaks were measured.
func NewDevice(dev *flash.Device, version string, peaks result.Peaks) *Device {
	info := dev.Info()
	return &Device{dev: dev, bench: bench.NewDevice(dev, version, peaks), copy: peaks.CopyGBps * 1e9,
		blank: Result{Origin: result.Origin{Library: "vkattn " + version, Device: info.Name, Driver: info.Driver}}}
}

// work is a case on a device: several sets of tensors, so that what is read is not what a cache of the device still has of the run before.
type work struct {
	dev   *flash.Device
	rng   *rand.Rand
	sets  int
	runs  []tune.Commands // one of each set
	check func(ctx context.Context) (agreement, error)
	owned []io.Closer
}

// prepare makes the tensors and the runs of a case of each operation.
var prepare = map[string]func(context.Context, *work, Case) error{Append: prepareAppend, Rotate: prepareRotate, Merge: prepareMerge}

// Measure runs a case, compares what it wrote with the model, and times it.
func (d *Device) Measure(ctx context.Context, c Case) Result {
	r := d.blank
	r.Case = c
	if err := d.measure(ctx, &r); err != nil {
		r.Failure = bench.FailureOf(err)
	}
	return r
}

func (d *Device) measure(ctx context.Context, r *Result) (err error) {
	w := &work{dev: d.dev, rng: newRand(), sets: d.bench.Sets(r.Case.Bytes())}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := prepare[r.Operation](ctx, w, r.Case); err != nil {
		return err
	}
	if _, err := tune.TimeRuns(ctx, d.dev, w.runs, len(w.runs)); err != nil { // each once
		return err
	}
	a, err := w.check(ctx)
	if err == nil {
		err = a.settle()
	}
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, flash.ErrDeviceLost) {
			err = bench.Wrong(err)
		}
		return err
	}
	timed, err := d.bench.Sample(func(n int) (tune.RunTimes, error) { return tune.TimeRuns(ctx, d.dev, w.runs, n) })
	if err != nil {
		return err
	}
	r.Note, r.Check = timed.Note, result.Check{MaxErr: &a.most, ErrRows: a.rows}
	r.settle(timed.Ms, d.copy)
	return nil
}

// own closes something with the work; it takes what calls that make things return.
func own[T io.Closer](w *work, made T, err error) (T, error) {
	if err == nil {
		w.owned = append(w.owned, made)
	}
	return made, err
}

// close closes what was made last first.
func (w *work) close() (err error) {
	for i := len(w.owned) - 1; i >= 0; i-- {
		err = errors.Join(err, w.owned[i].Close())
	}
	w.owned = nil
	return err
}

// tensor makes a tensor of these bytes, in memory [B, N, H, D] if tokens lie side by side.
func (w *work) tensor(ctx context.Context, t attn.DType, shape [4]int, tokens bool, data []byte) (*flash.Tensor, error) {
	allocate := w.dev.NewTensor
	if tokens {
		allocate = w.dev.NewTensorBNHD
	}
	x, err := allocate(flash.DType(t), shape[0], shape[1], shape[2], shape[3])
	if x, err = own(w, x, err); err != nil {
		return nil, err
	}
	return x, x.UploadBytes(ctx, data)
}

// ints makes a tensor of them.
func (w *work) ints(ctx context.Context, shape [4]int, values []float32) (*flash.Tensor, error) {
	data := make([]byte, attn.Int32.Bytes(len(values)))
	attn.Encode(attn.Int32, data, values)
	return w.tensor(ctx, attn.Int32, shape, false, data)
}

// normal draws rows of normal numbers as fp16 has them.
func (w *work) normal(b, h, n, d int) ref.Tensor {
	x := ref.NewTensor(b, h, n, d)
	for i := range x.Data {
		x.Data[i] = ref.F16.Round(float32(w.rng.NormFloat64()))
	}
	return x
}

// noise draws bytes, none of which a run must leave where it writes.
func (w *work) noise(n int) []byte {
	data := make([]byte, n)
	for i := range data {
		if i%8 == 0 {
			for j, x := i, w.rng.Uint64(); j < min(i+8, n); j, x = j+1, x>>8 {
				data[j] = byte(x)
			}
		}
	}
	return data
}

// inTokens is a tensor in fp16 as it lies in memory [B, N, H, D].
func inTokens(x ref.Tensor) []byte {
	row := attn.F16.Bytes(x.D)
	data := make([]byte, x.B*x.N*x.H*row)
	for _, r := range ref.AllRows(x) {
		attn.Encode(attn.F16, data[((r.B*x.N+r.I)*x.H+r.H)*row:], x.Row(r.B, r.H, r.I))
	}
	return data
}

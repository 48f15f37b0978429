package tune

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// Peaks are ceilings of a device, measured and not taken from a data sheet.
type Peaks struct {
	FP32        float64 // fp32 operations a second, multiply-adds in registers
	Matrix      float64 // f16 matrix operations a second with f32 accumulation, in registers; 0 where there are none
	MatrixShape string  // the fragment that Matrix was measured with, for example "16x16x16"
	// bytes read and bytes written a second by a large device copy, both counted; by a shader or the copy command, the faster
	Copy float64
}

const (
	peakTime    = 10 * time.Millisecond // of one measurement; it is made peakRuns times and the best counts
	peakRuns    = 5
	peakRounds  = 1 << 16 // of a kernel that repeats them itself
	peakCopies  = 256     // of a copy, one dispatch each
	peakLabel   = "peaks"
	fmaChains   = 16 * 8 // multiply-adds of an invocation in a round of measure_fma.comp
	matrixChain = 8      // multiplications of a subgroup in a round of measure_matrix.comp
)

// MeasurePeaks measures the ceilings. It takes about a tenth of a second of device time for each.
func MeasurePeaks(ctx context.Context, d *flash.Device) (_ Peaks, err error) {
	defer within.During("MeasurePeaks", &err)
	var p Peaks
	env, err := within.Env(d)
	if err != nil {
		return p, err
	}
	m := meter{env}
	if p.FP32, err = m.peakFMA(ctx); err != nil {
		return p, fmt.Errorf("measuring the fp32 peak: %w", within.Fail(d, err))
	}
	if p.Matrix, p.MatrixShape, err = m.peakMatrix(ctx); err != nil {
		return p, fmt.Errorf("measuring the matrix peak: %w", within.Fail(d, err))
	}
	if p.Copy, err = m.peakCopy(ctx); err != nil {
		return p, fmt.Errorf("measuring the copy bandwidth: %w", within.Fail(d, err))
	}
	return p, nil
}

// meter measures a device.
type meter struct{ env *kernel.Env }

// isCPU says whether the device is the host's processor: small problems keep it busy, and large ones for too long.
func (m meter) isCPU() bool { return m.env.Caps.Facts.Type == vk.DeviceCPU }

// peakFMA is the rate of measure_fma.comp.
func (m meter) peakFMA(ctx context.Context) (float64, error) {
	workgroup, groups := int(min(256, m.env.Caps.Facts.Limits.MaxWorkgroupInvocations)), 8192
	if m.isCPU() {
		workgroup, groups = 64, 64
	}
	k, err := m.env.Build("measure_fma.f32", kernel.Constants{"WG": workgroup}, pipeline.KernelInfo{}, score.Code{})
	if err != nil {
		return 0, err
	}
	out, err := m.env.Ctx.Alloc(peakLabel, uint64(4*workgroup*groups), vk.DeviceLocal)
	if err != nil {
		return 0, err
	}
	defer out.Close()
	access := []pipeline.Access{{Binding: out.All(), Mode: pipeline.Write}}
	rate, err := m.ceiling(ctx, peakRounds, 1, func(rec *pipeline.Recording, rounds int) error {
		var push kernel.Pushes
		push.Int(rounds)
		push.F32(0.999)
		push.F32(0.25)
		return rec.Dispatch(k, access, push.Bytes(), [3]uint32{uint32(groups), 1, 1}, "fma")
	})
	return rate * 2 * fmaChains * float64(workgroup*groups), err
}

// peakMatrix is the rate of measure_matrix.comp with the largest fragment of f16·f16+f32→f32; 0 and "" without one.
func (m meter) peakMatrix(ctx context.Context) (float64, string, error) {
	f := m.env.Caps.Facts
	if m.env.Caps.LacksMatrix(attn.F16) != "" {
		return 0, "", nil
	}
	var of vk.MatrixShape
	for _, s := range f.Matrices {
		if s.A == vk.ComponentF16 && s.B == vk.ComponentF16 && s.C == vk.ComponentF32 && s.Result == vk.ComponentF32 &&
			s.Scope == vk.ScopeSubgroup && s.M*s.N*s.K > of.M*of.N*of.K {
			of = s
		}
	}
	if of.M == 0 {
		return 0, "", nil
	}
	subgroups, groups := 4, 4096
	if m.isCPU() {
		subgroups, groups = 1, 64
	}
	fragment := kernel.Fragment{M: int(of.M), N: int(of.N), K: int(of.K), Lanes: int(f.Subgroup.Size)}
	k, err := m.env.Build("measure_matrix.f16", kernel.Constants{"WG": subgroups * fragment.Lanes, "M": fragment.M, "N": fragment.N,
		"K": fragment.K}, fragment.Subgroups(), score.Code{})
	if err != nil {
		return 0, "", err
	}
	values := make([]float32, of.M*of.K+of.K*of.N)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = float32(random.NormFloat64())
	}
	data := make([]byte, len(values)*2)
	attn.Encode(attn.F16, data, values)
	in, err := m.env.Ctx.Alloc(peakLabel, uint64(len(data)), vk.DeviceLocal)
	if err != nil {
		return 0, "", err
	}
	defer in.Close()
	if err := m.env.Ctx.Upload(ctx, in.All(), data); err != nil {
		return 0, "", err
	}
	out, err := m.env.Ctx.Alloc(peakLabel, uint64(4*of.M*of.N)*uint64(subgroups*groups), vk.DeviceLocal)
	if err != nil {
		return 0, "", err
	}
	defer out.Close()
	access := []pipeline.Access{{Binding: in.All(), Mode: pipeline.Read}, {Binding: out.All(), Mode: pipeline.Write}}
	rate, err := m.ceiling(ctx, peakRounds, 1, func(rec *pipeline.Recording, rounds int) error {
		var push kernel.Pushes
		push.Int(rounds)
		return rec.Dispatch(k, access, push.Bytes(), [3]uint32{uint32(groups), 1, 1}, "matrix")
	})
	flops := 2 * float64(of.M) * float64(of.N) * float64(of.K) * matrixChain * float64(subgroups*groups)
	return rate * flops, fmt.Sprintf("%dx%dx%d", of.M, of.N, of.K), err
}

// peakCopy is the bandwidth of copying one large buffer to another.
func (m meter) peakCopy(ctx context.Context) (float64, error) {
	size := uint64(1 << 30)
	if m.isCPU() {
		size = 64 << 20
	}
	var from, to *pipeline.Buffer
	for {
		var err error
		if from, err = m.env.Ctx.Alloc(peakLabel, size, vk.DeviceLocal); err == nil {
			if to, err = m.env.Ctx.Alloc(peakLabel, size, vk.DeviceLocal); err == nil {
				break
			}
			from.Close()
		}
		var full *pipeline.MemoryError
		if !errors.As(err, &full) && !errors.Is(err, vk.ErrOutOfDeviceMemory) || size <= 1<<24 {
			return 0, err
		}
		size /= 2
	}
	defer from.Close()
	defer to.Close()
	command, err := m.ceiling(ctx, peakCopies, peakCopies, func(rec *pipeline.Recording, rounds int) error {
		for range rounds {
			if err := rec.Copy(to.All(), from.All(), "copy"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	const pieces = 4 // of measure_copy.comp
	workgroup := min(256, m.env.Caps.Facts.Limits.MaxWorkgroupInvocations)
	k, err := m.env.Build("measure_copy", kernel.Constants{"WG": int(workgroup)}, pipeline.KernelInfo{}, score.Code{})
	if err != nil {
		return 0, err
	}
	groups := size / 16 / pieces / uint64(workgroup)
	rows := (groups + 32767) / 32768 // sizes are powers of two
	access := []pipeline.Access{{Binding: from.All(), Mode: pipeline.Read}, {Binding: to.All(), Mode: pipeline.Write}}
	shader, err := m.ceiling(ctx, peakCopies, peakCopies, func(rec *pipeline.Recording, rounds int) error {
		for range rounds {
			var push kernel.Pushes
			push.Int(int(size / 16))
			if err := rec.Dispatch(k, access, push.Bytes(), [3]uint32{uint32(groups / rows), uint32(rows), 1}, "copy"); err != nil {
				return err
			}
		}
		return nil
	})
	return max(command, shader) * 2 * float64(size), err
}

// ceiling gives the best rate of rounds a second: it finds how many rounds, most at most, take peakTime, then times that
// several times. dispatches is the number that the largest recording needs.
func (m meter) ceiling(ctx context.Context, most, dispatches int,
	record func(rec *pipeline.Recording, rounds int) error) (float64, error) {
	rec, err := m.env.Ctx.NewRecording(pipeline.RecordingInfo{MaxDispatches: dispatches, MaxBindings: 2 * dispatches})
	if err != nil {
		return 0, err
	}
	defer rec.Close()
	t, err := newTimer(m.env, 1)
	if err != nil {
		return 0, err
	}
	defer t.close()
	once := func(rounds int) (time.Duration, error) {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		if err := rec.Reset(); err != nil {
			return 0, err
		}
		if err := record(rec, rounds); err != nil {
			return 0, err
		}
		if err := t.reset(); err != nil {
			return 0, err
		}
		res, err := t.run(1, func(int) error { return rec.Record(t.cmd) })
		return res.Mean(), err
	}
	if _, err := once(1); err != nil { // the first run may compile, and touches fresh memory
		return 0, err
	}
	rounds := 1
	for {
		took, err := once(rounds)
		if err != nil {
			return 0, err
		}
		if took >= peakTime || rounds >= most {
			break
		}
		// At most fourfold a step: the first runs of an idle device are slow, and a dispatch must stay short.
		rounds = min(most, 4*rounds, max(rounds+1, int(float64(rounds)*float64(peakTime)/float64(max(took, 1))*1.2)))
		if rounds > 4096 && took < peakTime/1000 {
			return 0, errors.New("the device's clock does not advance")
		}
	}
	best := 0.0
	for range peakRuns {
		took, err := once(rounds)
		if err != nil {
			return 0, err
		}
		best = max(best, float64(rounds)/took.Seconds())
	}
	return best, nil
}

package flash

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// passed is the verdict on a kernel whose self-check went well; any other says what was wrong.
const passed = "pass"

// Verdict is what a kernel's self-check found on a device.
type Verdict struct {
	Implementation Implementation
	Tier           Tier
	Kernel         string // with its tile, where it got as far
	DType          DType  // storage type of the small problem
	Pass           bool   // it may be used
	Why            string // it may not: what went wrong
}

// SelfCheck runs each kernel of these implementations and tiers (none: all) that the device offers, in each storage type, on a
// small problem, and compares with attention computed in float64 on the host. Kernels of tiers that depend on more than the
// specification promises are checked by Plan too, before their first use on a device and driver; those verdicts are
// remembered, and one that is on the deny-list fails here with what was wrong with it.
func (d *Device) SelfCheck(ctx context.Context, impls []Implementation, tiers []Tier) (_ []Verdict, err error) {
	defer during("SelfCheck", &err)
	if err := d.usable(); err != nil {
		return nil, err
	}
	type trial struct {
		kernel  kernel
		problem Problem
		verdict Verdict
		done    bool
	}
	var trials []*trial
	for _, k := range kernels {
		if len(impls) > 0 && !slices.Contains(impls, k.implementation()) || len(tiers) > 0 && !slices.Contains(tiers, k.tier()) {
			continue
		}
		for _, dtype := range []DType{F32, F16, BF16} {
			p, err := Problem{Batch: 1, Heads: 2, KeyHeads: 1, QueryLen: trialQueries(k, 70, 2), KeyLen: 90, HeadDim: 16, DType: dtype, Causal: CausalBottomRight}.Normalize()
			if err != nil {
				return nil, err
			}
			if k.unsupported(&d.caps, &p) != "" {
				continue
			}
			if _, ok := k.(blockMasking); ok {
				p.Blocks = Blocks{Queries: 32, Keys: 32, PerHead: true}
			}
			trials = append(trials, &trial{kernel: k, problem: p, verdict: Verdict{Implementation: k.implementation(), Tier: k.tier(), Kernel: k.name(), DType: dtype}})
		}
	}
	// Side by side: a driver takes longer to compile a kernel than a device to run it.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, t := range trials {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v := &t.verdict
			if v.Why, err = d.check(t.kernel, &t.problem, v); err != nil {
				return d.fail(fmt.Errorf("self-check of %s: %w", t.kernel.name(), err))
			}
			v.Pass, t.done = v.Why == "", true
			return nil
		})
	}
	err = group.Wait()
	var out []Verdict
	for _, t := range trials {
		if !t.done {
			break
		}
		out = append(out, t.verdict)
	}
	return out, err
}

func (d *Device) check(k kernel, p *Problem, v *Verdict) (wrong string, err error) {
	prog, err := k.plan(d, p, newTuning(nil))
	var no *declined
	if errors.As(err, &no) {
		return no.why, nil
	}
	if err != nil {
		return "", err
	}
	v.Kernel += " " + prog.tile()
	return d.selfCheck(p, variant{aligned: true, lse: true}, prog.scratch(), prog.record)
}

// selfCheck runs a kernel on random inputs for a small problem and compares with attention in float64. wrong says what is
// wrong with the output, "" for nothing; err is a device that cannot be used. scratch is the sizes of the kernel's workspace.
func (d *Device) selfCheck(p *Problem, v variant, scratch []uint64, record func(*recorder, *operands) error) (wrong string, err error) {
	t := &trialTensors{dev: d}
	defer t.close()
	rng := rand.New(rand.NewPCG(1, uint64(p.HeadDim)))
	var f operands
	inputs := [3][]float32{}
	for i, x := range []struct {
		to    *operand
		shape [4]int
	}{{&f.q, p.QShape()}, {&f.k, p.KShape()}, {&f.v, p.VShape()}} {
		values := make([]float32, product(x.shape))
		for j := range values {
			values[j] = float32(rng.NormFloat64())
		}
		raw := make([]byte, len(values)*p.DType.Size())
		encode(p.DType, raw, values)
		decode(p.DType, values, raw)
		inputs[i] = values
		if *x.to, err = t.add(p.DType, x.shape, v.aligned, values); err != nil {
			return "", err
		}
	}
	if f.o, err = t.add(p.DType, p.OShape(), v.aligned, nil); err != nil {
		return "", err
	}
	if !p.Blocks.none() {
		mask := p.trialMask()
		b, err := t.alloc(uint64(len(mask)))
		if err == nil {
			f.blocks = b.All()
			err = d.ctx.Upload(context.Background(), pipeline.Binding{Buffer: f.blocks.Buffer, Offset: f.blocks.Offset, Size: uint64(len(mask))}, mask)
		}
		if err != nil {
			return "", err
		}
	}
	if v.lse {
		f.hasLSE = true
		if f.lse, err = t.add(F32, p.LSEShape(), true, nil); err != nil {
			return "", err
		}
	}
	r := &recorder{count: d.counting}
	if r.scratch, err = t.allocAll(scratch); err != nil {
		return "", err
	}
	const dispatches = 64 // more than a small problem has
	err = d.once(func(rec *pipeline.Recording) error {
		r.rec = rec
		return record(r, &f)
	}, dispatches)
	if err != nil {
		return "", err
	}
	o, err := t.download(p.DType, p.OShape(), &f.o)
	if err != nil {
		return "", err
	}
	var lse []float32
	if v.lse {
		if lse, err = t.download(F32, p.LSEShape(), &f.lse); err != nil {
			return "", err
		}
	}
	return compareAttention(p, inputs[0], inputs[1], inputs[2], o, lse), nil
}

// compareAttention computes attention in float64, as it is written, and says where o or lse (nil: not compared) is off. The
// bounds are for normally distributed inputs, generous: it is mistakes that are looked for, not roundings.
func compareAttention(p *Problem, q, k, v, o, lse []float32) string {
	tolerance := map[DType]float64{F32: 1e-4, F16: 5e-3, BF16: 4e-2}[p.DType]
	lseTolerance := map[DType]float64{F32: 2e-3, F16: 2e-3, BF16: 8e-3}[p.DType]
	scores, want := make([]float64, p.KeyLen), make([]float64, p.ValueDim)
	for b := range p.Batch {
		for h := range p.Heads {
			kv := b*p.KeyHeads + h/p.group()
			for i := range p.QueryLen {
				row := (b*p.Heads+h)*p.QueryLen + i
				keys := p.KeyLen
				if p.Causal != CausalNone {
					keys = min(max(i+p.causalShift()+1, 0), p.KeyLen)
				}
				top, sum := math.Inf(-1), 0.0
				for j := range keys {
					if !p.attendsInTrial(h, i, j) {
						scores[j] = math.Inf(-1)
						continue
					}
					s := 0.0
					for c := range p.HeadDim {
						s += float64(q[row*p.HeadDim+c]) * float64(k[(kv*p.KeyLen+j)*p.HeadDim+c])
					}
					scores[j] = s * p.Scale
					top = math.Max(top, scores[j])
				}
				clear(want)
				for j := range keys {
					if math.IsInf(scores[j], -1) {
						continue
					}
					w := math.Exp(scores[j] - top)
					sum += w
					for c := range want {
						want[c] += w * float64(v[(kv*p.KeyLen+j)*p.ValueDim+c])
					}
				}
				for c := range want {
					if sum > 0 {
						want[c] /= sum
					}
					got := float64(o[row*p.ValueDim+c])
					if !(math.Abs(got-want[c]) <= tolerance*math.Max(1, math.Abs(want[c]))) { // not >: NaN is wrong
						return fmt.Sprintf("o[%d, %d, %d, %d] is %.6g and should be %.6g (%v, scale %g)", b, h, i, c, got, want[c], p, p.Scale)
					}
				}
				if lse == nil {
					continue
				}
				// Standard attention rounds its scores to the storage type; bf16 has eight bits.
				got, should := float64(lse[row]), top+math.Log(sum)
				if keys == 0 {
					should = math.Inf(-1)
				}
				if got != should && !(math.Abs(got-should) <= lseTolerance*math.Max(1, math.Abs(should))) {
					return fmt.Sprintf("lse[%d, %d, %d] is %.6g and should be %.6g (%v, scale %g)", b, h, i, got, should, p, p.Scale)
				}
			}
		}
	}
	return ""
}

func product(shape [4]int) int { return shape[0] * shape[1] * shape[2] * shape[3] }

// trialTensors are the buffers of a self-check.
type trialTensors struct {
	dev     *Device
	buffers []*pipeline.Buffer
}

func (t *trialTensors) close() {
	for _, b := range t.buffers {
		b.Close()
	}
}

func (t *trialTensors) alloc(size uint64) (*pipeline.Buffer, error) {
	b, err := t.dev.ctx.Alloc("self-check", (size+15)/16*16, vk.DeviceLocal)
	if err == nil {
		t.buffers = append(t.buffers, b)
	}
	return b, err
}

// allocAll gives a buffer of each size.
func (t *trialTensors) allocAll(sizes []uint64) (all []pipeline.Binding, err error) {
	for _, size := range sizes {
		b, err := t.alloc(size)
		if err != nil {
			return nil, err
		}
		all = append(all, b.All())
	}
	return all, nil
}

// trialLayout is row-major; not aligned, every row is one element longer than it need be and the first begins at the second
// element.
func trialLayout(dtype DType, s [4]int, aligned bool) (layout, error) {
	if aligned {
		return newLayout(0, dtype, s, [4]int{}, 1<<63)
	}
	n := s[3] + 1
	return newLayout(uint64(dtype.Size()), dtype, s, [4]int{s[1] * s[2] * n, s[2] * n, n, 1}, 1<<63)
}

// add makes a tensor with these values; nil makes an output, full of NaNs.
func (t *trialTensors) add(dtype DType, shape [4]int, aligned bool, values []float32) (operand, error) {
	l, err := trialLayout(dtype, shape, aligned)
	if err != nil {
		return operand{}, err
	}
	raw := make([]byte, (l.offset+l.span+15)/16*16)
	for i := range raw {
		raw[i] = 0xff // a NaN in every type: gaps between rows must not be read, outputs must be written
	}
	if values != nil {
		size := int(l.size)
		l.rows(func(row, start int) {
			encode(dtype, raw[int(l.offset)+start*size:], values[row*shape[3]:(row+1)*shape[3]])
		})
	}
	b, err := t.alloc(uint64(len(raw)))
	if err != nil {
		return operand{}, err
	}
	if err := t.dev.ctx.Upload(context.Background(), b.All(), raw); err != nil {
		return operand{}, err
	}
	binding, rest, err := t.dev.ctx.BindAligned(b.Buffer, l.offset, l.span, l.size)
	if err != nil {
		return operand{}, err
	}
	x := operand{binding: binding, offset: rest, aligned: l.aligned16()}
	for i := range x.strides {
		x.strides[i] = uint32(l.strides[i])
	}
	return x, nil
}

// download reads an output that add made.
func (t *trialTensors) download(dtype DType, shape [4]int, x *operand) ([]float32, error) {
	raw := make([]byte, x.binding.Size)
	if err := t.dev.ctx.Download(context.Background(), x.binding, raw); err != nil {
		return nil, err
	}
	values := make([]float32, product(shape))
	size := dtype.Size()
	l := layout{shape: shape, strides: [4]int{int(x.strides[0]), int(x.strides[1]), int(x.strides[2]), 1}, size: uint64(size)}
	l.rows(func(row, start int) {
		decode(dtype, values[row*shape[3]:(row+1)*shape[3]], raw[(int(x.offset)+start)*size:])
	})
	return values, nil
}

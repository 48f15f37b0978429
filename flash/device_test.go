package flash

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/vk"
)

// TestForward runs shapes that meet every path of the API once; the numerics in full are cmd/vkattn/internal/conformance's.
func TestForward(t *testing.T) {
	d := testDevice(t)
	small := Problem{Batch: 2, Heads: 4, KeyHeads: 2, QueryLen: 33, KeyLen: 47, HeadDim: 8, ValueDim: 16, Causal: CausalBottomRight}
	half, brain := small, small
	half.DType, brain.DType = F16, BF16
	half = usual(half)
	for _, p := range []Problem{
		small, half, brain,
		{Batch: 1, Heads: 3, KeyHeads: 1, QueryLen: 20, KeyLen: 9, HeadDim: 5, ValueDim: 3, Causal: CausalBottomRight, DType: F16},
		{Batch: 1, Heads: 1, QueryLen: 1, KeyLen: 70, HeadDim: 32, Causal: CausalTopLeft, Scale: -0.3, DType: BF16},
		{Batch: 1, Heads: 2, QueryLen: 65, KeyLen: 130, HeadDim: 64},
	} {
		s := newSample(t, p)
		t.Run(p.String(), func(t *testing.T) {
			if p != half {
				vktest.Long(t, "every kernel in fp16; conformance has the other types and dimensions")
			}
			everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
				if slowCompiler(d) && p.DType == F32 && p.HeadDim > 16 && strings.HasSuffix(t.Name(), "-matrix") {
					t.Skip("it takes a CPU too long to compile")
				}
				plan := mustPlan(t, d, p, opts...)
				f := s.tensors(t, d, plainly(t, d))
				var first []float32
				for range 3 {
					s.poison(t, f)
					require.NoError(t, plan.Forward(bg, f))
					got := s.check(t, plan, f)
					if first != nil {
						require.Equal(t, first, got, "the same inputs must give the same bits")
					}
					first = got
				}
				if testing.Short() && plan.ForwardInfo().Tier == TierMatrix { // another kernel without lse, which conformance has
					require.NoError(t, plan.Close())
					return
				}
				f.LSE = nil
				s.poison(t, f)
				require.NoError(t, plan.Forward(bg, Forward{Q: f.Q, K: f.K, V: f.V, O: f.O}))
				require.Equal(t, first, s.check(t, plan, f))
				require.NoError(t, plan.Close())
			})
		})
	}
}

// TestTiles forces shapes that the device at hand would not choose itself: those of other kinds of device, and each way of
// staging.
func TestTiles(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 70, HeadDim: 40, DType: F16, Causal: CausalBottomRight}
	s := newSample(t, p)
	for i, tile := range []map[string]int{
		{"br": 8, "bc": 64, "mr": 1, "mc": 4},
		{"br": 64, "bc": 64, "mr": 8, "mc": 4, "q_resident": 0, "v_early": 0, "dk": 16},
		{"br": 32, "bc": 64, "mr": 4, "mc": 4, "q_resident": 1, "v_early": 0, "dk": 16, "pc": 64, "vc": 8},
		{"br": 16, "bc": 32, "mr": 4, "mc": 4, "q_resident": 1, "v_early": 1},
		{"br": 16, "bc": 32, "mr": 4, "mc": 4, "subgroup": 0},
	} {
		if testing.Short() && i%3 == 0 { // the others have each way of staging, with subgroups and without
			continue
		}
		s.runTile(t, d, tile)
	}
}

// TestLayouts runs tensors laid out B·N·H·D, at odd offsets, and interleaved in one packed buffer, with guards around them.
func TestLayouts(t *testing.T) {
	d := testDevice(t)
	for _, dtype := range []DType{F32, F16, BF16} {
		// where elements are half of what a kernel loads at least; conformance has layouts of the others
		if testing.Short() && dtype != F16 {
			continue
		}
		p := Problem{Batch: 2, Heads: 2, QueryLen: 19, HeadDim: 8, DType: dtype, Causal: CausalTopLeft}
		s := newSample(t, p)
		everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
			plan := mustPlan(t, d, p, opts...)
			defer plan.Close()
			t.Run("BNHD", func(t *testing.T) {
				f := s.tensors(t, d, func(dt DType, sh [4]int) *Tensor {
					if sh[3] == 1 {
						return plainly(t, d)(dt, sh)
					}
					x, err := d.NewTensorBNHD(dt, sh[0], sh[1], sh[2], sh[3])
					require.NoError(t, err)
					return x
				})
				require.NoError(t, plan.Forward(bg, f))
				s.check(t, plan, f)
			})
			for _, offset := range []uint64{1, 4, 7, 64, 129} {
				t.Run(fmt.Sprintf("offset %d", offset), func(t *testing.T) {
					const guard = 50
					var guarded []*Tensor
					f := s.tensors(t, d, func(dt DType, sh [4]int) *Tensor {
						n, _ := attn.Elements(sh)
						all, err := d.NewTensor(dt, 1, 1, 1, int(offset+n)+guard)
						require.NoError(t, err)
						marks := make([]float32, all.Elements())
						for i := range marks {
							marks[i] = 42
						}
						require.NoError(t, all.Upload(bg, marks))
						guarded = append(guarded, all)
						x, err := all.View(offset*uint64(dt.Size()), dt, sh, [4]int{})
						require.NoError(t, err)
						return x
					})
					require.NoError(t, plan.Forward(bg, f))
					s.check(t, plan, f)
					for _, all := range guarded {
						marks := make([]float32, all.Elements())
						require.NoError(t, all.Download(bg, marks))
						for i := range marks {
							if i < int(offset) || i >= len(marks)-guard {
								require.EqualValues(t, 42, marks[i], "element %d of %d outside the tensor", i, len(marks))
							}
						}
					}
				})
			}
			t.Run("packed", func(t *testing.T) {
				B, N, H, D := p.Batch, p.QueryLen, p.Heads, p.HeadDim
				all, err := d.NewTensor(dtype, B, N, 4*H, D)
				require.NoError(t, err)
				slot := 0
				f := s.tensors(t, d, func(dt DType, sh [4]int) *Tensor {
					if sh[3] == 1 {
						return plainly(t, d)(dt, sh)
					}
					x, err := all.View(uint64(slot*H*D*dt.Size()), dt, sh, [4]int{N * 4 * H * D, D, 4 * H * D, 1})
					require.NoError(t, err)
					slot++
					return x
				})
				require.NoError(t, plan.Forward(bg, f))
				s.check(t, plan, f)
			})
		})
	}
}

// TestTransfers: what goes up comes down, in every layout, and gaps stay as they were.
func TestTransfers(t *testing.T) {
	d := testDevice(t)
	sh := [4]int{2, 3, 5, 7}
	values := make([]float32, 2*3*5*7)
	for i := range values {
		values[i] = float32(i - 100)
	}
	got := make([]float32, len(values))
	for _, dtype := range []DType{F32, F16, BF16} {
		bnhd, err := d.NewTensorBNHD(dtype, sh[0], sh[1], sh[2], sh[3])
		require.NoError(t, err)
		require.NoError(t, bnhd.Upload(bg, values))
		require.NoError(t, bnhd.Download(bg, got))
		require.Equal(t, values, got)

		all, err := d.NewTensor(dtype, 1, 1, 1, 2000)
		require.NoError(t, err)
		ones := make([]float32, 2000)
		for i := range ones {
			ones[i] = 1
		}
		require.NoError(t, all.Upload(bg, ones))
		gaps, err := all.View(uint64(3*dtype.Size()), dtype, sh, [4]int{500, 150, 11, 1})
		require.NoError(t, err)
		require.NoError(t, gaps.Upload(bg, values))
		require.NoError(t, gaps.Download(bg, got))
		require.Equal(t, values, got)
		raw := make([]byte, gaps.Bytes())
		require.NoError(t, gaps.DownloadBytes(bg, raw))
		require.NoError(t, gaps.UploadBytes(bg, raw))
		require.NoError(t, all.Download(bg, ones))
		kept := 0
		for _, v := range ones {
			if v == 1 {
				kept++
			}
		}
		require.Equal(t, 2000-len(values)+1, kept, "one value is 1 itself") // 101 − 100
	}
}

// TestManyHeads: batch · heads beyond 65,535, the least that Vulkan promises of a grid's dimension.
func TestManyHeads(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 350, Heads: 200, KeyHeads: 100, QueryLen: 2, HeadDim: 4}
	s := newSample(t, p)
	everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
		plan := mustPlan(t, d, p, opts...)
		defer plan.Close()
		f := s.tensors(t, d, plainly(t, d))
		require.NoError(t, plan.Forward(bg, f))
		s.check(t, plan, f)
	})
}

// TestSplitGrids: a grid in many dispatches gives the same bits as in one.
func TestSplitGrids(t *testing.T) {
	d := testDevice(t)
	p := usual(Problem{Batch: 2, Heads: 3, QueryLen: 100, HeadDim: 16, DType: F32, Causal: CausalBottomRight})
	s := newSample(t, p)
	everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
		var want []float32
		for _, groups := range []int{0, 1, 5} {
			plan := mustPlan(t, d, p, append(opts, WithTuning(map[string]int{"max_groups": groups}))...)
			f := s.tensors(t, d, plainly(t, d))
			r, err := plan.NewRecording()
			require.NoError(t, err)
			require.NoError(t, r.Forward(f))
			if groups > 0 {
				require.Greater(t, r.Dispatches(), 1)
			}
			pending, err := r.Submit()
			require.NoError(t, err)
			require.NoError(t, pending.Wait(bg))
			got := s.check(t, plan, f)
			if want != nil {
				require.Equal(t, want, got)
			}
			want = got
			require.NoError(t, r.Close())
			require.NoError(t, plan.Close())
		}
	})
}

// TestInFlight has one plan in flight many times, from several goroutines, with tensors of their own.
func TestInFlight(t *testing.T) {
	d := testDevice(t)
	p := usual(Problem{Batch: 1, Heads: 2, QueryLen: 40, HeadDim: 16, DType: F16})
	s := newSample(t, p)
	everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
		plan := mustPlan(t, d, p, opts...)
		var wg sync.WaitGroup
		errs := make(chan error, 100)
		for range 4 {
			sets := []Forward{s.tensors(t, d, plainly(t, d)), s.tensors(t, d, plainly(t, d)), s.tensors(t, d, plainly(t, d))}
			wg.Go(func() {
				for range 5 {
					var pending []Pending
					for _, f := range sets {
						x, err := plan.SubmitForward(f)
						if err != nil {
							errs <- err
							return
						}
						pending = append(pending, x)
					}
					ctx, cancel := context.WithCancel(bg)
					cancel()
					for i, x := range pending {
						if i == 0 {
							if err := x.Wait(ctx); err == nil {
								errs <- fmt.Errorf("a cancelled context gave no error")
							}
						}
						if err := x.Wait(bg); err != nil {
							errs <- err
						}
						if done, err := x.Done(); !done || err != nil {
							errs <- fmt.Errorf("done %v, %v", done, err)
						}
					}
				}
			})
			t.Cleanup(func() {
				for _, f := range sets {
					var held [mostHeld]*Tensor
					f.tensors(&held)
					for _, x := range held {
						x.Close()
					}
				}
			})
			defer func() {
				for _, f := range sets {
					s.check(t, plan, f)
				}
			}()
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
		require.NoError(t, plan.Close())
	})
}

// TestTimestamps: a timed recording says how long it and its parts took.
func TestTimestamps(t *testing.T) {
	d := testDevice(t)
	p := usual(Problem{Batch: 1, Heads: 2, QueryLen: 128, HeadDim: 32})
	s := newSample(t, p)
	plan := mustPlan(t, d, p)
	f := s.tensors(t, d, plainly(t, d))
	r, err := plan.NewRecording(WithTimestamps())
	require.NoError(t, err)
	if !r.HasTimestamps() {
		require.False(t, d.Info().Timestamps())
		t.Skip("the device has no timestamps")
	}
	require.NoError(t, r.Forward(f))
	for range 3 {
		pending, err := r.Submit()
		require.NoError(t, err)
		require.NoError(t, pending.Wait(bg))
		whole, ok := pending.GPUTime()
		require.True(t, ok)
		require.Positive(t, whole)
		var sum float64
		for _, part := range pending.Timings() {
			require.NotEmpty(t, part.Label)
			sum += part.Duration.Seconds()
		}
		require.InDelta(t, whole.Seconds(), sum, 1e-3*whole.Seconds()+1e-6)
	}
	untimed, err := plan.NewRecording()
	require.NoError(t, err)
	_, ok := untimed.GPUTime()
	require.False(t, ok)
	require.Nil(t, untimed.Timings())
}

// TestAttach runs on a device and buffers that the test made itself, in its own command buffer.
func TestAttach(t *testing.T) {
	owner := testDevice(t) // stands in for the caller's program
	p := usual(Problem{Batch: 1, Heads: 2, QueryLen: 21, HeadDim: 16, DType: F32, Causal: CausalBottomRight})
	s := newSample(t, p)
	d, err := Attach(owner.External(), WithoutDiskCache())
	require.NoError(t, err)
	require.True(t, d.Info().Attached)

	foreign := func(dt DType, sh [4]int) *Tensor {
		n, _ := attn.Elements(sh)
		size := 256 + n*uint64(dt.Size())
		buf, err := owner.dev.NewBuffer(size, vk.DeviceLocal)
		require.NoError(t, err)
		t.Cleanup(func() { buf.Close() })
		x, err := d.TensorOn(BufferRef{Handle: buf.Handle(), Size: size}, 100, dt, sh, [4]int{})
		require.NoError(t, err)
		return x
	}
	f := s.tensors(t, d, foreign)
	f.O = f.O.Used(TensorUse{Next: Use{Stages: 0x1000, Accesses: 0x800}}) // a transfer reads it
	everyKernel(t, d, p, func(t *testing.T, opts ...PlanOption) {
		plan := mustPlan(t, d, p, opts...)
		pool, err := owner.dev.NewCommandPool()
		require.NoError(t, err)
		cmd, err := pool.Allocate()
		require.NoError(t, err)
		fence, err := owner.dev.NewFence(false)
		require.NoError(t, err)
		require.NoError(t, cmd.Begin(false))
		s.poison(t, f)
		rec, err := plan.RecordForward(cmd.Handle(), f)
		require.NoError(t, err)
		require.NoError(t, cmd.End())
		for range 2 { // replayed as it is
			s.poison(t, f)
			require.NoError(t, owner.dev.Queue().Submit(vk.Submission{Commands: []*vk.CommandBuffer{cmd}, Fence: fence}))
			require.NoError(t, fence.Wait(-1))
			require.NoError(t, fence.Reset())
			s.check(t, plan, f)
		}
		require.NoError(t, rec.Close())
		require.NoError(t, fence.Close())
		require.NoError(t, pool.Close())
		require.NoError(t, plan.Close())
	})
	require.NoError(t, d.Close())
	require.NoError(t, owner.WaitIdle(), "the attached device's Close must leave the owner's device alone")
}

// TestAttentionOnSlices is the one-call helper.
func TestAttentionOnSlices(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1, Heads: 2, QueryLen: 10, HeadDim: 8}
	s := newSample(t, p)
	o, err := d.Attention(bg, s.q, s.k, s.v, p)
	require.NoError(t, err)
	for i := range o {
		require.InDelta(t, s.o[i], o[i], 1e-5)
	}
	require.Zero(t, d.Usage().ByLabel["tensor"].Current, "the helper must free what it made")
	_, err = d.Attention(bg, s.q[1:], s.k, s.v, p)
	require.ErrorIs(t, err, ErrArgument)
	require.ErrorContains(t, err, "len(q)")
	_, err = Attention(bg, nil, nil, nil, Problem{})
	require.ErrorIs(t, err, ErrArgument)
}

// TestInfo: a device describes itself, and is among those listed.
func TestInfo(t *testing.T) {
	d := testDevice(t)
	info := d.Info()
	require.NotEmpty(t, info.Name)
	require.True(t, info.Chosen)
	require.NotEmpty(t, info.Reason)
	require.NotZero(t, info.DeviceMemory())
	require.NotEmpty(t, info.Tiers)
	for _, tier := range info.Tiers {
		types := 3
		if tier.Kernel == "matrix_forward_split" { // of fp32 alone
			types = 1
		}
		require.Equal(t, types, len(tier.DTypes)+len(tier.Missing), "%+v", tier)
	}
	all, err := Devices()
	require.NoError(t, err)
	require.Equal(t, info.Name, all[0].Name)
	for i, x := range all {
		require.Equal(t, i, x.Index)
		require.NotEmpty(t, x.Reason)
	}
	_, err = Open(WithDevice("no such device"))
	require.ErrorIs(t, err, ErrNoDevice)
	require.ErrorContains(t, err, info.Name, "the message lists what there is")
	again, err := Open(WithDevice("0"), WithoutDiskCache())
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// TestHugeScores: a workspace that no device has is refused with figures, before anything is allocated.
func TestHugeScores(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 1 << 12, Heads: 1 << 6, QueryLen: 1 << 10, KeyLen: 1 << 14, HeadDim: 1, KeyHeads: 1}
	before := d.Usage().Current
	_, err := d.Plan(p, WithImplementation(Standard), WithTier(TierScalar))
	var m *MemoryError
	require.ErrorAs(t, err, &m)
	require.EqualValues(t, math.Pow(2, 12+6+10+14+2), m.Needed)
	require.Less(t, m.Available, m.Needed)
	require.Equal(t, before, d.Usage().Current)
}

// TestSlabs forces the scores into many buffers, by heads and by rows.
func TestSlabs(t *testing.T) {
	d := testDevice(t)
	p := Problem{Batch: 2, Heads: 3, KeyHeads: 1, QueryLen: 37, KeyLen: 45, HeadDim: 8, Causal: CausalBottomRight, DType: F32}
	s := newSample(t, p)
	rowBytes := 48 * 4
	var want []float32
	for _, limit := range []int{0, 2 * 37 * rowBytes, 37 * rowBytes, 10 * rowBytes, rowBytes} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			plan := mustPlan(t, d, p, WithImplementation(Standard), WithTier(TierScalar), WithTuning(map[string]int{"max_slab": limit}))
			workspace := plan.ForwardInfo().WorkspaceBytes
			require.EqualValues(t, 6*37*rowBytes, workspace)
			f := s.tensors(t, d, plainly(t, d))
			require.NoError(t, plan.Forward(bg, f))
			got := s.check(t, plan, f)
			if want != nil {
				require.Equal(t, want, got)
			}
			want = got
			require.EqualValues(t, workspace, roundTo(d.Usage().ByLabel["workspace"].Current, workspace))
			require.NoError(t, plan.Close())
			require.Zero(t, d.Usage().ByLabel["workspace"].Current)
		})
	}
}

// roundTo takes allocation granularity off: it gives want when n is want or at most 256 bytes a slab more.
func roundTo(n, want uint64) uint64 {
	if n >= want && n <= want+256*6*37 {
		return want
	}
	return n
}

package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/ref"
	"github.com/vkattn/vkattn/internal/vktest"
)

func TestSampleRows(t *testing.T) {
	small := result.Case{Impl: "flash2", DType: "float16", B: 2, H: 3, Hkv: 1, Nq: 7, N: 9, D: 8, Dv: 8}
	require.Len(t, sampleRows(small, 1), 2*3*7, "a small problem is checked in full")

	for _, c := range []result.Case{
		{B: 16, H: 32, Hkv: 32, Nq: 2048, N: 2048, D: 64, Dv: 64},
		{B: 1, H: 32, Hkv: 8, Nq: 1, N: 65536, D: 128, Dv: 128},
		{B: 1, H: 1, Hkv: 1, Nq: 16384, N: 16384, D: 64, Dv: 64},
		{B: 1, H: 16, Hkv: 16, Nq: 65536, N: 65536, D: 64, Dv: 64, Causal: true},
	} {
		rows := sampleRows(c, 1)
		require.GreaterOrEqual(t, len(rows), 16, "%s", c)
		require.Less(t, len(rows), 64, "%s", c)
		heads := map[[2]int]bool{}
		seen := map[ref.Row]bool{}
		first, last, edge := false, false, false
		for i, r := range rows {
			require.False(t, seen[r], "%s: %v twice", c, r)
			seen[r] = true
			head := [2]int{r.B, r.H}
			if i > 0 && rows[i-1].B == r.B && rows[i-1].H == r.H {
				require.Less(t, rows[i-1].I, r.I, "rows of a head are in order")
			} else {
				require.False(t, heads[head], "a head's rows stand together")
			}
			heads[head] = true
			require.True(t, r.B < c.B && r.H < c.H && r.I < c.Nq)
			first = first || r.I == 0
			last = last || r.I == c.Nq-1
			edge = edge || r.I > 0 && r.I%16 == 0
		}
		require.GreaterOrEqual(t, len(heads), min(4, c.B*c.H))
		require.True(t, first && last, "%s", c)
		require.True(t, edge || c.Nq == 1, "%s", c)
	}
}

func TestJudge(t *testing.T) {
	c := result.Case{Impl: "flash2"}
	want := outputs{o: []float64{0.5, -0.25, 1, 0}, lse: []float64{3, 4}}
	plain := outputs{o: []float64{0.5005, -0.25, 1, 0}, lse: []float64{3.1, 4}}
	near := func() outputs { return outputs{slices.Clone(want.o), slices.Clone(want.lse)} }

	res := judge(c, ref.F16, near(), want, plain)
	require.NoError(t, res.err)
	require.Zero(t, res.maxErr)
	require.Equal(t, 2, res.rows)
	require.Positive(t, res.bound)

	out := near()
	out.o[1] += 0.0011
	res = judge(c, ref.F16, out, want, plain)
	require.NoError(t, res.err, "within twice plain's error")
	require.InDelta(t, 0.0011, res.maxErr, 1e-12)
	out.o[1] += 0.01
	require.ErrorContains(t, judge(c, ref.F16, out, want, plain).err, "output is wrong")

	out = near()
	out.o[3] = math.NaN()
	res = judge(c, ref.F16, out, want, plain)
	require.ErrorContains(t, res.err, "output is wrong")
	require.True(t, math.IsNaN(res.maxErr))

	out = near()
	out.lse[0] += 0.01
	require.ErrorContains(t, judge(c, ref.F16, out, want, plain).err, "lse is wrong")
	c.Impl = "standard"
	require.NoError(t, judge(c, ref.F16, out, want, plain).err, "standard rounds its scores, as plain does")

	out = near()
	out.o[0] += 1e-3
	require.ErrorContains(t, judge(c, ref.F32, out, want, want).err, "output is wrong", "fp32 has a tighter rule")
}

func TestHeadOfInputs(t *testing.T) {
	c := result.Case{DType: "bfloat16", B: 2, H: 4, Hkv: 2, Nq: 5, N: 6, D: 3, Dv: 2, Causal: true}
	in := newInputs(c, 9)
	p, rows := in.head(c, []ref.Row{{B: 1, H: 3, I: 0}, {B: 1, H: 3, I: 4}}, 0)
	require.NoError(t, p.Check())
	require.Equal(t, []ref.Row{{I: 0}, {I: 4}}, rows)
	require.Equal(t, ref.BottomRight, p.Causal)
	// Head (1, 3) reads key head 1 of batch 1: the fourth of four.
	require.Equal(t, in.k.Floats(3*6*3, 6*3), p.K.Data)
	require.Equal(t, in.v.Floats(3*6*2, 6*2), p.V.Data)
	require.Equal(t, in.q.Floats((7*5+4)*3, 3), p.Q.Row(0, 0, 4))
}

// testDevice opens a device with validation where the layers are installed.
func testDevice(t *testing.T, opts ...flash.DeviceOption) *flash.Device {
	t.Helper()
	validated := flash.WithValidation(func(m flash.Message) { t.Errorf("validation: %s: %s", m.ID, m.Text) })
	dev, err := flash.Open(append(opts, validated)...)
	if vktest.Unvalidated(err) {
		dev, err = flash.Open(opts...)
	}
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// quick is NewDevice for rows whose times do not count.
func quick(dev *flash.Device, peaks result.Peaks, opts ...flash.PlanOption) *Device {
	d := NewDevice(dev, "test", peaks, opts...)
	d.Limit = 50 * time.Millisecond
	return d
}

// TestPeakIsTheUsers: what the library's self-check allocates at the first plan of a tier does not count.
func TestPeakIsTheUsers(t *testing.T) {
	dev := testDevice(t, flash.WithoutDiskCache()) // which would know the self-check's verdict
	c := result.Case{DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 24, N: 24, D: 8, Dv: 8}
	shape, err := quick(dev, result.Peaks{}).Shape(context.Background(), c, result.Passes{})
	require.NoError(t, err)
	defer shape.Close()
	for _, tier := range dev.Info().Tiers {
		if tier.Implementation == flash.Flash && slices.Contains(tier.DTypes, flash.F16) {
			row := shape.(*deviceShape).measureWith(context.Background(), job(c, "flash2"), false, flash.WithTier(tier.Tier))
			require.Empty(t, row.Error)
			require.LessOrEqual(t, *row.Fwd.PeakMiB, 0.001, "tier %s", tier.Tier)
		}
	}
}

// job is a forward pass of an implementation.
func job(c result.Case, impl string) result.Job {
	c.Impl = impl
	return result.Job{Case: c}
}

func TestDeviceRow(t *testing.T) {
	dev := testDevice(t)
	d := NewDevice(dev, "test", result.Peaks{})
	c := result.Case{DType: "float16", B: 2, H: 4, Hkv: 2, Nq: 33, N: 70, D: 24, Dv: 40, Causal: true}
	empty := dev.Usage().ByLabel
	shape, err := d.Shape(context.Background(), c, result.Passes{})
	require.NoError(t, err)
	s := shape.(*deviceShape)
	require.Len(t, s.sets, mostSets, "small inputs rotate")

	began := time.Now()
	row := shape.Measure(context.Background(), job(c, "flash2"), true)
	took := time.Since(began)
	require.Empty(t, row.Error)
	require.Equal(t, "vkattn test", row.Library)
	require.Equal(t, 2*4*33, row.ErrRows)
	require.GreaterOrEqual(t, row.Fwd.N, leastRuns)
	require.Len(t, row.Fwd.Runs(), row.Fwd.N)
	total := 0.0
	for _, ms := range row.Fwd.Runs() {
		total += ms
	}
	require.True(t, total >= 99.9 || took > enoughWall, "100 ms of runs, or a second: %v ms in %v", total, took)
	lse := float64(2*4*33*4) / (1 << 20)
	require.GreaterOrEqual(t, *row.Fwd.PeakMiB, lse)
	require.LessOrEqual(t, *row.Fwd.PeakMiB, lse+0.01, "flash needs nothing besides lse")
	require.GreaterOrEqual(t, row.Fwd.BlockMiB, *row.Fwd.PeakMiB, "blocks hold what was asked for")
	size := float64(c.B*c.H*(c.Nq*c.D+c.Nq*c.Dv)+c.B*c.Hkv*c.N*(c.D+c.Dv)) * 2 / (1 << 20)
	require.InDelta(t, size+*row.Fwd.PeakMiB, row.Fwd.TotalMiB, 1e-3)

	standard := shape.Measure(context.Background(), job(c, "standard"), true)
	require.Empty(t, standard.Error)
	require.Greater(t, *standard.Fwd.PeakMiB, *row.Fwd.PeakMiB, "standard keeps its scores")

	again := shape.Measure(context.Background(), job(c, "flash2"), false)
	require.Zero(t, again.ErrRows)
	require.Positive(t, again.Fwd.Ms)

	// The bytes are the model's for the tile that ran.
	plan, err := dev.Plan(s.problem)
	require.NoError(t, err)
	steps, err := tune.ForwardModel(plan).Work(plan.Problem(), tune.Call{LSE: true})
	require.NoError(t, err)
	require.Equal(t, tune.Total(steps).Bytes(), row.Fwd.Bytes)
	require.Positive(t, row.Fwd.Bytes)
	require.Equal(t, tune.ForwardModel(plan), row.Fwd.Model)

	// A tuning is the row's own; one that does not fit is unsupported, with the reason.
	tuned := job(c, "flash2")
	tuned.Case.Tuning = "bc=16,br=16,mc=4,mr=2"
	other := shape.(*deviceShape).measureWith(context.Background(), tuned, true, flash.WithTier(flash.TierScalar))
	require.Empty(t, other.Error)
	require.Contains(t, other.Kernel, "16x16")
	require.Equal(t, tuned.Case, other.Case)
	require.NotEqual(t, row.Fwd.Bytes, other.Fwd.Bytes)
	tuned.Case.Tuning = "bc=7,br=16"
	other = shape.(*deviceShape).measureWith(context.Background(), tuned, true, flash.WithTier(flash.TierScalar))
	require.Equal(t, result.ReasonUnsupported, other.Reason)
	require.Contains(t, other.Error, "WithTuning[bc] is 7")

	withoutGradients := job(c, "flash2")
	withoutGradients.Passes.Bwd = true
	require.Contains(t, shape.Measure(context.Background(), withoutGradients, true).Error, "made without gradients")

	bad := shape.Measure(context.Background(), job(c, "flash7"), true)
	require.Contains(t, bad.Error, "flash7")

	// The check sees an output that is not that of these inputs.
	tensor, err := dev.NewLSE(c.B, c.H, c.Nq)
	require.NoError(t, err)
	t0 := s.sets[0]
	require.NoError(t, plan.Forward(context.Background(), flash.Forward{Q: t0.q, K: t0.k, V: t0.v, O: t0.o, LSE: tensor}))
	c.Impl = "flash2"
	rows := sampleRows(c, 1)
	res, err := check(context.Background(), c, t0.in, t0.o, tensor, rows, 0)
	require.NoError(t, err)
	require.NoError(t, res.err)
	res, err = check(context.Background(), c, s.sets[1].in, t0.o, tensor, rows, 0)
	require.NoError(t, err)
	require.ErrorContains(t, res.err, "output is wrong")
	require.NoError(t, poison(context.Background(), t0.o))
	res, err = check(context.Background(), c, t0.in, t0.o, tensor, rows, 0)
	require.NoError(t, err)
	require.Error(t, res.err)

	require.NoError(t, tensor.Close())
	require.NoError(t, plan.Close())
	require.NoError(t, shape.Close())
	for label, use := range dev.Usage().ByLabel {
		if !strings.HasPrefix(label, "staging") {
			require.Equal(t, empty[label].Current, use.Current, label)
		}
	}
}

func TestLimitMeansFewerRuns(t *testing.T) {
	d := quick(testDevice(t), result.Peaks{})
	d.Limit = 1
	c := result.Case{DType: "float32", B: 1, H: 2, Hkv: 2, Nq: 64, N: 64, D: 16, Dv: 16}
	shape, err := d.Shape(context.Background(), c, result.Passes{})
	require.NoError(t, err)
	row := shape.Measure(context.Background(), job(c, "flash2"), true)
	require.Empty(t, row.Error)
	require.Positive(t, row.Fwd.N)
	require.NoError(t, shape.Close())
}

// check compares rows of an output with what they should be.
func check(ctx context.Context, c result.Case, in *inputs, o, lse *flash.Tensor, rows []ref.Row, offset uint32) (checked, error) {
	e, err := expect(ctx, c, in, rows, offset)
	if err != nil {
		return checked{}, err
	}
	return e.check(ctx, c, in.dtype, o, lse)
}

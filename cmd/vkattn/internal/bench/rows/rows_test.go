package rows

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/ref"
)

func testDevice(t *testing.T) *flash.Device {
	t.Helper()
	dev, err := flash.Open(flash.WithoutDiskCache())
	if errors.Is(err, flash.ErrNoDevice) && os.Getenv("VKATTN_REQUIRE_DEVICE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dev.Close()) })
	return dev
}

// small is a case of every kind, in shapes that are no powers of two.
func small() (all []Case) {
	for _, c := range Cases(true, Operations) {
		c.Batch, c.Heads, c.Rows = 3, 2, min(c.Rows, 5)
		if c.Operation == Append {
			c.CacheRows = 48
		}
		all = append(all, c)
	}
	return all
}

// TestMeasure: every kind of case is right, and has figures that fit together. With -short each operation and type is there, not all
// together: where a GPU is the device, cases take seconds.
func TestMeasure(t *testing.T) {
	dev := testDevice(t)
	d := NewDevice(dev, "test", result.Peaks{CopyGBps: 10})
	seen := map[string]bool{}
	for _, c := range small() {
		if testing.Short() && seen[c.Operation+c.Cache] {
			continue
		}
		seen[c.Operation+c.Cache] = true
		r := d.Measure(t.Context(), c)
		require.Empty(t, r.Error, c)
		require.Positive(t, r.Ms, c)
		require.LessOrEqual(t, r.P20, r.Ms)
		require.GreaterOrEqual(t, r.P80, r.Ms)
		require.InDelta(t, c.Bytes()/r.Ms/1e6, r.GBps, 1e-5*r.GBps)
		require.InDelta(t, 10*r.GBps, r.Copy, 1e-5*r.Copy, "a tenth of a GB/s is a percent of the peak")
		require.Zero(t, r.ErrRows%c.count(), "whole sets are checked")
		require.Positive(t, r.ErrRows)
		for _, label := range []string{"tensor", "workspace", "frequencies"} {
			require.Zero(t, dev.Usage().ByLabel[label].Current, "%v: %s", c, label)
		}
	}
}

// TestRefused: what a device cannot do is an error of the row, and a cancelled context ends it.
func TestRefused(t *testing.T) {
	d := NewDevice(testDevice(t), "test", result.Peaks{CopyGBps: 10})
	c := small()[2]
	c.Dim = 33 // of quantised blocks of 32
	r := d.Measure(t.Context(), c)
	require.Equal(t, result.ReasonFailed, r.Reason)
	require.Contains(t, r.Error, "HeadDim")
	require.Zero(t, r.Ms)
	require.True(t, r.Failed())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r = d.Measure(ctx, small()[0])
	require.NotEmpty(t, r.Error)
	require.NotEqual(t, result.ReasonCheck, r.Reason)
}

// TestWrongOutputs: a check finds a byte that is wrong in the middle of any tensor that is written, and a set that was not run.
func TestWrongOutputs(t *testing.T) {
	dev := testDevice(t)
	written := map[string]int{Append: 2, Rotate: 2, Merge: 4} // tensors of two sets
	for _, c := range small() {
		prepared := func() *work {
			w := &work{dev: dev, rng: newRand(), sets: 2}
			require.NoError(t, prepare[c.Operation](t.Context(), w, c))
			require.Len(t, w.runs, 2)
			return w
		}
		w := prepared()
		_, err := tune.TimeRuns(t.Context(), dev, w.runs, 2)
		require.NoError(t, err)
		found, err := w.check(t.Context())
		require.NoError(t, err, c)
		require.NoError(t, found.settle(), c)
		noticed := 0
		for _, made := range w.owned {
			x, ok := made.(*flash.Tensor)
			if !ok {
				continue
			}
			data := make([]byte, x.Bytes())
			require.NoError(t, x.DownloadBytes(t.Context(), data))
			data[len(data)/4*2+1] ^= 0x41 // the exponent of fp16
			require.NoError(t, x.UploadBytes(t.Context(), data))
			if _, err := w.check(t.Context()); err != nil {
				noticed++
			}
			data[len(data)/4*2+1] ^= 0x41
			require.NoError(t, x.UploadBytes(t.Context(), data))
		}
		require.Equal(t, written[c.Operation], noticed, c)
		_, err = w.check(t.Context())
		require.NoError(t, err, c)
		require.NoError(t, w.close())

		w = prepared()
		_, err = tune.TimeRuns(t.Context(), dev, w.runs, 1)
		require.NoError(t, err)
		_, err = w.check(t.Context())
		require.Error(t, err, c)
		require.NoError(t, w.close())
	}
}

// TestAgreement: elements that were moved are the same to the bit; those that were computed may be the next ones, seldom.
func TestAgreement(t *testing.T) {
	want := make([]float64, 64)
	for i := range want {
		want[i] = float64(ref.F16.Round(float32(math.Sin(float64(3*i + 1)))))
	}
	for _, dtype := range []attn.DType{attn.F16, attn.Q8_0, attn.Q4_0} {
		stored, values := make([]byte, dtype.Bytes(64)), make([]float32, 64)
		for i, v := range want {
			values[i] = float32(v)
		}
		attn.Encode(dtype, stored, values)
		var a agreement
		require.NoError(t, a.row(dtype, stored, want, 0))
		require.Zero(t, a.apart)
		require.Equal(t, 64, a.elements)

		next := append([]byte(nil), stored...)
		next[6]++ // the low byte of an element, or the element
		require.ErrorContains(t, a.row(dtype, next, want, 0), "to the bit")
		require.NoError(t, a.row(dtype, next, want, 1e-6), dtype)
		require.Positive(t, a.apart)
		require.NoError(t, a.settle())
		far := append([]byte(nil), stored...)
		far[6] += 0x55
		if dtype == attn.F16 {
			far[7] += 4
		}
		require.Error(t, a.row(dtype, far, want, 1e-6), dtype)
		for range 100 {
			require.NoError(t, a.row(attn.F16, shifted(want), want, 1e-6))
		}
		require.ErrorContains(t, a.settle(), "are not those of the model")
		require.Error(t, a.row(attn.F16, []byte(strings.Repeat("\x00\x7e", 64)), want, 1e-6), "NaN")
	}
}

// shifted is a row in fp16 every element of which is the next one.
func shifted(row []float64) []byte {
	out, values := make([]byte, 2*len(row)), make([]float32, len(row))
	for i, v := range row {
		values[i] = float32(v + ref.F16.Ulp(v))
	}
	attn.Encode(attn.F16, out, values)
	return out
}

// TestBytes: a case of each kind, counted by hand.
func TestBytes(t *testing.T) {
	c := Case{Operation: Append, Batch: 2, Heads: 3, Rows: 5, Dim: 64, Cache: "q8_0"}
	require.EqualValues(t, 2*30*(128+68)+2*4, c.Bytes())
	c.Cache = ""
	require.EqualValues(t, 2*30*(128+128)+2*4, c.Bytes())
	c.Operation = Rotate
	require.EqualValues(t, 2*30*128+10*4, c.Bytes())
	c.Operation, c.Parts = Merge, 7
	require.EqualValues(t, 8*30*(128+4), c.Bytes())
}

// TestCases: what issue readers look for is there: appends of one token and of a chunk, in each type and both forms; merges of 2, 8 and 64
// parts.
func TestCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases(false, Operations) {
		require.False(t, seen[c.String()], c)
		seen[c.String()] = true
	}
	for _, want := range []string{
		"append 64 × 8 × 1 × 128, float16", "append 64 × 8 × 64 × 128, q8_0, pages of 16", "append 64 × 8 × 1 × 128, q4_0",
		"rotate 64 × 32 × 1 × 128, float16", "merge 64 × 32 × 1 × 128, 64 parts, stacked", "merge 64 × 32 × 1 × 128, 2 parts",
	} {
		require.True(t, seen[want], "%s is not among %v", want, seen)
	}
	require.Len(t, Cases(true, []string{Merge}), 6)
	_, err := ParseOperations([]string{"append", "copy"})
	require.ErrorContains(t, err, `op "copy": it must be append, rotate or merge`)
}

// TestLines: a line has the case's fields beside the figures, and no figure that is none.
func TestLines(t *testing.T) {
	var b strings.Builder
	require.NoError(t, result.NewWriter(&b).Line(Result{Case: Case{Operation: Merge, Batch: 2, Parts: 3}, Pass: result.Pass{Ms: 1.25}}))
	require.True(t, strings.HasSuffix(b.String(), "}\n"))
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(b.String()), &got))
	require.Equal(t, "merge", got["op"])
	require.Equal(t, 1.25, got["ms"])
	require.NotContains(t, got, "pct_copy")
	require.NotContains(t, got, "error")
}

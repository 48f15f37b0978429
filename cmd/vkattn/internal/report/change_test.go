package report

import (
	"bytes"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

func rounds(r result.Row, ms ...float64) result.Row {
	r.Fwd.Rounds, r.Fwd.Ms = ms, result.Median(ms)
	return r
}

func fileOf(path string, rows ...result.Row) *result.File {
	return &result.File{Path: path, Rows: rows}
}

// withPeaks is a file as it is read, after a header with those peaks.
func withPeaks(t *testing.T, peaks result.Peaks, rows ...result.Row) *result.File {
	t.Helper()
	var b bytes.Buffer
	w := result.NewWriter(&b)
	require.NoError(t, w.Line(result.Header{VKAttn: "1", Device: "GPU", Peaks: peaks}))
	for _, r := range rows {
		require.NoError(t, w.Line(r))
	}
	f, err := result.Read("file", &b)
	require.NoError(t, err)
	return f
}

// TestCompareOfAnyNumber: times that no run has, which a file may hold all the same, take no more room than others.
func TestCompareOfAnyNumber(t *testing.T) {
	at := func(ms float64) result.Row { return row("vkattn 1", "flash2", 512, true, ms) }
	for _, times := range [][2]float64{{1e308, 1}, {1, 1e308}, {1e308, 1e308}, {1e-308, 1e308}, {5e-324, 1}} {
		c, err := Diff(fileOf("a", at(times[0])), fileOf("b", at(times[1])))
		require.NoError(t, err)
		for _, format := range ChangeFormats {
			var b bytes.Buffer
			require.NoError(t, WriteChanges(&b, format, c, 0))
			for _, line := range bytes.Split(b.Bytes(), []byte("\n")) {
				require.LessOrEqual(t, utf8.RuneCount(line), 160, "%s", line)
			}
		}
		require.LessOrEqual(t, len(Worst(c.Rows, 5)), 100)
	}
}

// TestDiffRelative: half the time on a card of twice the peak is the same, and the same time is half the speed; what bounds a row is what
// it is relative to.
func TestDiffRelative(t *testing.T) {
	at := func(n int, ms float64) result.Row {
		r := row("vkattn 1", "flash2", n, true, ms)
		r.Tier = "matrix"
		return r
	}
	scalar := func(ms float64) result.Row {
		r := at(256, ms)
		r.Tier = "scalar"
		return r
	}
	decode := func(ms float64) result.Row {
		r := at(65536, ms)
		r.Nq = 1
		return r
	}
	peer := row("torch 2", "fa2", 512, true, 1)
	older := withPeaks(t, result.Peaks{MatrixTFLOPS: 100, FP32TFLOPS: 10, CopyGBps: 1000}, at(512, 1), at(1024, 2), scalar(4),
		decode(8), peer)
	newer := withPeaks(t, result.Peaks{MatrixTFLOPS: 200, FP32TFLOPS: 5, CopyGBps: 1000}, at(512, 0.5), at(1024, 2), scalar(8),
		decode(8), peer)
	c, err := DiffRelative(older, newer)
	require.NoError(t, err)
	require.Len(t, c.Rows, 4)
	for i, want := range []struct {
		peak   string
		of     float64
		ratio  float64
		old, n float64
	}{{"matrix", 2, 1, 1, 0.5}, {"matrix", 2, 2, 2, 2}, {"fp32", 0.5, 1, 4, 8}, {"copy", 1, 1, 8, 8}} {
		r := c.Rows[i]
		require.Equal(t, want.peak, r.Peak)
		require.InDelta(t, want.of, r.PeakRatio, 1e-12)
		require.InDelta(t, want.ratio, r.Ratio, 1e-12)
		require.Equal(t, [2]float64{want.old, want.n}, [2]float64{r.Old, r.New})
		require.Equal(t, want.ratio == 2, r.Significant, r.Evidence)
	}
	require.Equal(t, []string{"torch fa2 float16 B2 H8 N512 D64 causal"}, c.NoPeak)
	slower := c.Slower(1.05)
	require.Len(t, slower, 1)
	require.Equal(t, "flash2 float16 B2 H8 N1024 D64 causal (2.00 ×)", Worst(slower, 5))
	var out bytes.Buffer
	require.NoError(t, WriteChanges(&out, "table", c, 0))
	require.Regexp(t, `N1024 D64 causal +2\.000 +2\.000 +matrix × 2\.000 +2\.000`, out.String())
	require.Contains(t, out.String(), "left out, for no peak is known of: 1")

	plain, err := Diff(older, newer)
	require.NoError(t, err)
	require.InDelta(t, 0.5, plain.Rows[0].Ratio, 1e-12)
	require.NoError(t, WriteChanges(&out, "md", plain, 0))
	_, err = DiffRelative(older, fileOf("bare", at(512, 1)))
	require.ErrorContains(t, err, "without --relative")
	// Rows that were appended at other clocks count at their own peaks.
	twice := withPeaks(t, result.Peaks{MatrixTFLOPS: 100}, at(512, 1))
	twice.Rows = append(twice.Rows, withPeaks(t, result.Peaks{MatrixTFLOPS: 50}, at(512, 2)).Rows...)
	c, err = DiffRelative(twice, older)
	require.NoError(t, err)
	require.InDelta(t, 1, c.Rows[0].Ratio, 1e-12)
}

// TestDiffOfForwardMode: its times are compared as those of other passes, and why it failed is told.
func TestDiffOfForwardMode(t *testing.T) {
	at := func(ms float64) *result.File {
		r := row("vkattn 1", "flash2", 512, true, 1)
		r.JVP.Ms = ms
		return withPeaks(t, result.Peaks{}, r)
	}
	c, err := Diff(at(1), at(50))
	require.NoError(t, err)
	require.Len(t, c.Rows, 2)
	slower := c.Slower(1.05)
	require.Len(t, slower, 1)
	require.Equal(t, "jvp", slower[0].Pass)
	require.Contains(t, notes([]result.Row{{JVPFailure: result.Failure{Error: "why not"}}})[0], "why not")
}

// TestDiffRelativeOfAnotherTier: a kernel of a slower tier is slower, whatever peaks say: it is judged by its times, as is one that two
// runs of a file measured on two tiers. What no peak is known of cannot be judged, and is named apart from peers.
func TestDiffRelativeOfAnotherTier(t *testing.T) {
	at := func(n int, tier string, ms float64) result.Row {
		r := row("vkattn 1", "flash2", n, true, ms)
		r.Tier = tier
		return r
	}
	decode := at(65536, "matrix", 1)
	decode.Nq = 1
	peer := row("torch 2", "fa2", 512, true, 1)
	older := withPeaks(t, result.Peaks{MatrixTFLOPS: 100, FP32TFLOPS: 10}, at(512, "matrix", 1), at(1024, "scalar", 20),
		at(2048, "matrix", 4), at(2048, "scalar", 4), decode, peer)
	newer := withPeaks(t, result.Peaks{MatrixTFLOPS: 50, FP32TFLOPS: 5}, at(512, "scalar", 10), at(1024, "matrix", 2),
		at(2048, "matrix", 4), decode, peer)
	c, err := DiffRelative(older, newer)
	require.NoError(t, err)
	require.Len(t, c.Rows, 3)
	for i, want := range []struct {
		peak  string
		ratio float64
	}{{"matrix → fp32", 10}, {"fp32 → matrix", 0.1}, {"matrix, fp32 → matrix", 1}} {
		require.Equal(t, want.peak, c.Rows[i].Peak)
		require.InDelta(t, want.ratio, c.Rows[i].Ratio, 1e-12)
		require.Equal(t, want.ratio != 1, c.Rows[i].Significant, c.Rows[i].Evidence)
	}
	require.Len(t, c.Slower(1.05), 1)
	require.Len(t, c.NoPeak, 2)
	require.Equal(t, []string{"flash2 float16 B2 H8 Nq1 N65536 D64 causal"}, c.Unjudged)
	var out bytes.Buffer
	require.NoError(t, WriteChanges(&out, "table", c, 0))
	require.Regexp(t, `N512 D64 causal +1\.000 +10\.00 +matrix → fp32 +10\.000 +\+900`, out.String())
}

// TestWorst: rows that are lost stand first, then the slowest.
func TestWorst(t *testing.T) {
	of := func(n int, ratio float64, lost string) Change {
		return Change{Case: row("", "flash2", n, false, 1).Case, Library: "vkattn", Ratio: ratio, Lost: lost}
	}
	all := []Change{of(1, 1.1, ""), of(2, 1.5, ""), of(4, 0, "device lost"), of(8, 1.2, "")}
	require.Equal(t, "flash2 float16 B2 H8 N4 D64 (lost); flash2 float16 B2 H8 N2 D64 (1.50 ×); 2 more", Worst(all, 2))
}

// TestParseTolerance: percentages.
func TestParseTolerance(t *testing.T) {
	for text, want := range map[string]float64{"5%": 1.05, "5": 1.05, "0": 1, "2.5 %": 1.025} {
		v, err := ParseTolerance(text)
		require.NoError(t, err)
		require.InDelta(t, want, v, 1e-12)
	}
	for _, text := range []string{"", "-1", "x", "NaN", "inf", "5%%"} {
		_, err := ParseTolerance(text)
		require.ErrorContains(t, err, "such as 5%", text)
	}
}

func TestDiff(t *testing.T) {
	a, b := "vkattn 1", "vkattn 2" // versions differ, cases are the same
	lost := row(b, "flash2", 4096, false, 0)
	lost.Fwd, lost.Error, lost.Reason = result.Pass{}, "device lost", result.ReasonFailed
	wide := row(b, "flash2", 1024, true, 2.2)
	wide.Fwd.P20 = 1.5
	bare := func(library string, ms float64) result.Row { // a peer's row has no percentiles
		r := row(library, "fa2", 512, false, ms)
		r.Fwd.P20, r.Fwd.P80 = 0, 0
		return r
	}
	c, err := Diff(
		fileOf("old", rounds(row(a, "flash2", 512, false, 1), 1, 1.01, 1.02, 1.03, 1.04), rounds(row(a, "flash2", 1024, false, 2), 2, 2.1,
			1.9, 2.05, 2.2),
			row(a, "flash2", 2048, false, 8), row(a, "flash2", 1024, true, 2), row(a, "flash2", 4096, false, 30),
			row(a, "standard", 512, false, 4), bare("torch 2", 1)),
		fileOf("new", rounds(row(b, "flash2", 512, false, 1), 1.2, 1.21, 1.22, 1.23, 1.24), rounds(row(b, "flash2", 1024, false, 2), 2.02,
			2.1, 1.95, 2.06, 2.21),
			row(b, "flash2", 2048, false, 6), wide, lost, row(b, "flash2", 8192, false, 100), bare("torch 2", 1.5)))
	require.NoError(t, err)
	require.Equal(t, []string{"standard float16 B2 H8 N512 D64"}, c.OnlyOld)
	require.Equal(t, []string{"flash2 float16 B2 H8 N8192 D64"}, c.OnlyNew)
	require.Len(t, c.Rows, 6)

	require.InDelta(t, 1.22/1.02, c.Rows[0].Ratio, 1e-12)
	require.True(t, c.Rows[0].Significant)
	require.Equal(t, "p=0.008 n=5", c.Rows[0].Evidence)
	require.False(t, c.Rows[1].Significant, "rounds that scatter alike are no change")
	require.True(t, c.Rows[2].Significant, "25 % faster with percentiles 2 % apart")
	require.Equal(t, "percentiles apart", c.Rows[2].Evidence)
	require.False(t, c.Rows[3].Significant)
	require.Equal(t, "percentiles overlap", c.Rows[3].Evidence)
	require.Equal(t, "device lost", c.Rows[4].Lost)
	require.Equal(t, "no spread known", c.Rows[5].Evidence)

	slower := c.Slower(1.05)
	require.Len(t, slower, 3)
	require.Equal(t, 512, slower[0].Case.N)
	require.Equal(t, "device lost", slower[1].Lost)
	require.Equal(t, "fa2", slower[2].Case.Impl)
	require.Len(t, c.Slower(1.3), 2, "20 % slower is within 30")

	var out bytes.Buffer
	require.NoError(t, WriteChanges(&out, "table", c, 0))
	require.Regexp(t, `flash2 float16 B2 H8 N512 D64 +1\.020 +1\.220 +1\.196 +\+19\.6 % +p=0\.008 n=5`, out.String())
	require.Regexp(t, `flash2 float16 B2 H8 N1024 D64 .* ~ `, out.String())
	require.Contains(t, out.String(), "LOST")
	require.Contains(t, out.String(), "only in the old file: 1\n- standard float16 B2 H8 N512 D64\n")
	require.Contains(t, out.String(), "torch fa2 float16")
	require.Contains(t, out.String(), "geometric mean of 5 rows: new / old = ")
	require.Error(t, WriteChanges(&out, "xml", c, 0))
	require.NoError(t, WriteChanges(&out, "md", c, 0))

	_, err = Diff(fileOf("old", row(a, "flash2", 512, false, 1)), fileOf("new", row(b, "flash2", 1024, false, 1)))
	require.EqualError(t, err, "old and new have no row in common")
}

func TestDiffOfTheSameFileIsNoChange(t *testing.T) {
	f := synthetic(t, "synthetic.jsonl")[0]
	c, err := Diff(f, f)
	require.NoError(t, err)
	require.Empty(t, slices.DeleteFunc(slices.Clone(c.Rows), func(r Change) bool { return r.Ratio == 1 && !r.Significant }))
	mean, n := c.Mean()
	require.InDelta(t, 1, mean, 1e-12)
	require.Greater(t, n, len(f.Rows)-20)
	require.Empty(t, c.Slower(1))
}

func TestCheckFactor(t *testing.T) {
	require.NoError(t, CheckFactor(1.05))
	require.Error(t, CheckFactor(0.95))
}

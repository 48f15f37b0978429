package report

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/internal/bench"
)

func rounds(r bench.Row, ms ...float64) bench.Row {
	r.Fwd.Rounds, r.Fwd.Ms = ms, bench.Median(ms)
	return r
}

func fileOf(path string, rows ...bench.Row) *bench.File { return &bench.File{Path: path, Rows: rows} }

func TestDiff(t *testing.T) {
	a, b := "vkattn 1", "vkattn 2" // versions differ, cases are the same
	lost := row(b, "flash2", 4096, false, 0)
	lost.Fwd, lost.Error, lost.Reason = bench.Pass{}, "device lost", bench.ReasonFailed
	wide := row(b, "flash2", 1024, true, 2.2)
	wide.Fwd.P20 = 1.5
	bare := func(library string, ms float64) bench.Row { // a peer's row has no percentiles
		r := row(library, "fa2", 512, false, ms)
		r.Fwd.P20, r.Fwd.P80 = 0, 0
		return r
	}
	c, err := Diff(
		fileOf("old", rounds(row(a, "flash2", 512, false, 1), 1, 1.01, 1.02, 1.03, 1.04), rounds(row(a, "flash2", 1024, false, 2), 2, 2.1, 1.9, 2.05, 2.2),
			row(a, "flash2", 2048, false, 8), row(a, "flash2", 1024, true, 2), row(a, "flash2", 4096, false, 30), row(a, "standard", 512, false, 4), bare("torch 2", 1)),
		fileOf("new", rounds(row(b, "flash2", 512, false, 1), 1.2, 1.21, 1.22, 1.23, 1.24), rounds(row(b, "flash2", 1024, false, 2), 2.02, 2.1, 1.95, 2.06, 2.21),
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

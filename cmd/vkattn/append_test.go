package main

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
)

// earlierOf are the rows of a file of two runs: N 64 to 512 measured by a command with these flags, and what follows.
func earlierOf(t *testing.T, flags string, rows ...string) *earlierRows {
	t.Helper()
	lines := []string{`{"vkattn": "1", "device": "G", "command": ["vkattn", "bench"` + flags + `]}`}
	for i, row := range rows {
		lines = append(lines, fmt.Sprintf(`{"library": "vkattn 1", "device": "G", "impl": "flash2", "dtype": "float16", "B": 1, "H": 1, `+
			`"N": %d, "D": 64, %s}`, 64<<i, row))
	}
	file, err := result.Read("f", strings.NewReader(strings.Join(lines, "\n")+"\n"))
	require.NoError(t, err)
	return newEarlier(file.Rows, "G")
}

func jobsOf(n int) (jobs []result.Job) {
	for i := range n {
		c := result.Case{Impl: "flash2", DType: "float16", B: 1, H: 1, Hkv: 1, Nq: 64 << i, N: 64 << i, D: 64, Dv: 64}
		jobs = append(jobs, result.Job{Case: c, Passes: result.Passes{Fwd: true}})
	}
	return jobs
}

// TestAppendKeepsWhatStands: a row that was skipped for want of memory or time is measured again, one that no kernel can is not, unless
// only another tier was asked.
func TestAppendKeepsWhatStands(t *testing.T) {
	rows := []string{`"fwd_ms": 1, "tier": "matrix"`, `"error": "no room", "reason": "memory"`, `"error": "skipped", "reason": "limit"`,
		`"error": "broken", "reason": "failed"`, `"error": "no kernel", "reason": "unsupported"`}
	for _, c := range []struct {
		flags, tier string
		want        []int
	}{{"", "", []int{64, 1024}}, {"", "matrix", []int{64, 1024}}, {`, "--tier", "matrix"`, "", []int{64}},
		{`, "--tier=matrix"`, "matrix", []int{64, 1024}}} {
		var r report.Results
		require.NoError(t, earlierOf(t, c.flags, rows...).keep(&r, jobsOf(5), &benchFlags{tier: c.tier}))
		var got []int
		for _, row := range r.Rows {
			got = append(got, row.N)
		}
		require.Equal(t, c.want, got, c)
	}
	both := jobsOf(1)
	both[0].Passes.Bwd = true
	for reason, want := range map[string]int{"memory": 0, "unsupported": 1} {
		var r report.Results
		e := earlierOf(t, "", `"fwd_ms": 1, "bwd_error": "no", "bwd_reason": "`+reason+`"`)
		require.NoError(t, e.keep(&r, both, &benchFlags{}))
		require.Len(t, r.Rows, want, reason)
	}
}

// TestAppendIsOfOneKind: rows of another tier, or of other tiles, are no answer to what is asked, and no others can stand beside them.
func TestAppendIsOfOneKind(t *testing.T) {
	for _, c := range []struct{ flags, tier, tiles, want string }{
		{"", "", "", ""},
		{"", "matrix", "", ""},
		{"", "scalar", "", "--tier scalar: flash2 float16 B1 H1 N64 D64 was measured on the tier matrix, in o: name another file"},
		{"", "", "a.tiles", "was measured with no --tiles, and this call has --tiles a.tiles: name another file"},
		{`, "--tiles", "a.tiles"`, "", "a.tiles", ""},
		{`, "--tiles", "a.tiles"`, "", "", "was measured with --tiles a.tiles, and this call has no --tiles"},
	} {
		f := &benchFlags{tier: c.tier, out: "o", device: deviceChoice{tiles: c.tiles}}
		var r report.Results
		err := earlierOf(t, c.flags, `"fwd_ms": 1, "tier": "matrix"`).keep(&r, jobsOf(1), f)
		if c.want == "" {
			require.NoError(t, err, c)
			require.Len(t, r.Rows, 1)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.Empty(t, r.Rows)
		require.NoError(t, earlierOf(t, c.flags, `"fwd_ms": 1, "tier": "matrix"`).keep(&r, jobsOf(2)[1:], f), "other cases")
	}
}

// TestAppendAsksThePeer: where a file has our rows and not the peer's, the peer alone is asked, for what is missing.
func TestAppendAsksThePeer(t *testing.T) {
	needDevice(t)
	if runtime.GOOS == "windows" {
		t.Skip("the fake peer is started by a POSIX shell")
	}
	out := filepath.Join(t.TempDir(), "out.jsonl")
	had := 0
	step := func(rows int, flags ...string) (fresh []result.Row, stdout string) {
		t.Helper()
		status, stdout, stderr := call(tiny(append(flags, "--impl", "flash", "--out", out, "--append")...)...)
		require.Zero(t, status, stderr)
		file, err := result.ReadFile(out)
		require.NoError(t, err)
		require.Len(t, file.Rows, had+rows, flags)
		fresh = file.Rows[had:]
		had += rows
		return fresh, stdout
	}
	step(2)
	peer := []string{"--peer", itself("VKATTN_TEST_PEER"), "--peer-impl"}
	fresh, stdout := step(2, append(peer, "fa2")...)
	for i, row := range fresh {
		require.Equal(t, "fa2", row.Impl)
		require.Equal(t, []int{48, 80}[i], row.N)
	}
	require.Contains(t, stdout, "× the speed of torch 9.9 fa2 (geometric mean of 2 shapes")
	_, stdout = step(0, append(peer, "fa2")...)
	require.Contains(t, stdout, "× the speed of torch 9.9 fa2 (geometric mean of 2 shapes")
	fresh, stdout = step(2, append(peer, "fa2,cudnn")...)
	require.Equal(t, "cudnn", fresh[0].Impl)
	require.Contains(t, stdout, "× the speed of torch 9.9 fa2 (geometric mean of 2 shapes")
	require.Contains(t, stdout, "× the speed of torch 9.9 cudnn (geometric mean of 2 shapes")
	fresh, _ = step(3, append(peer, "fa2,cudnn", "--seq", "48,16")...) // the peer beside our new row
	require.Equal(t, []string{"flash2", "fa2", "cudnn"}, []string{fresh[0].Impl, fresh[1].Impl, fresh[2].Impl})
}

// TestAppendWithALargerLimit measures what an earlier limit left out, which the same limit leaves out again without a line of it.
func TestAppendWithALargerLimit(t *testing.T) {
	needDevice(t)
	out := filepath.Join(t.TempDir(), "out.jsonl")
	for i, step := range []struct {
		limit string
		rows  int
	}{{"1ns", 2}, {"1ns", 2}, {"0", 4}, {"0", 4}} {
		status, stdout, stderr := call(tiny("--impl", "flash", "--out", out, "--append", "--limit", step.limit, "--format", "csv")...)
		require.Equal(t, i < 2, status == exitFailure, stderr) // nothing was measured
		require.Equal(t, 3, strings.Count(stdout, "\n"))
		file, err := result.ReadFile(out)
		require.NoError(t, err)
		require.Len(t, file.Rows, step.rows, i)
		require.Equal(t, i >= 2, file.Rows[len(file.Rows)-1].Fwd.Ms > 0)
	}
}

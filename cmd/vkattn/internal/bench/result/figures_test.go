package result

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// TestFaultsAreNoSkips: a row whose output is wrong, or that failed, reports a fault; one that does not fit or would take too long does
// not.
func TestFaultsAreNoSkips(t *testing.T) {
	for reason, fault := range map[Reason]bool{ReasonCheck: true, ReasonFailed: true, ReasonMemory: false, ReasonLimit: false,
		ReasonUnsupported: false} {
		row := Row{Failure: Failure{Error: "why", Reason: reason}}
		require.Equal(t, fault, row.Failed(), reason)
		require.Equal(t, !fault, row.Skipped(), reason)
		require.Equal(t, fault, Row{BwdFailure: Failure{Error: "why", Reason: reason}}.Failed(), "%s, backward", reason)
	}
	require.False(t, Row{}.Failed())
	require.False(t, Row{}.Skipped())
}

// TestShareOfCopy: the bytes that a pass moves at least over its time are a share of the bandwidth of copying, where a case is bound by
// that.
func TestShareOfCopy(t *testing.T) {
	shown := func(c Case, key string) string {
		p, err := c.Problem()
		require.NoError(t, err)
		row := Row{Origin: Origin{Library: "vkattn 1"}, Case: c, Fwd: Pass{Ms: 2}}
		row.Fwd.LeastBytes, err = tune.LeastForwardBytes(p, flash.Flash)
		require.NoError(t, err)
		cell := &Cell{View: &View{Peaks: Peaks{CopyGBps: 4}}, Row: &row}
		for i := range Columns {
			if Columns[i].Key == key {
				return Columns[i].Show(cell)
			}
		}
		t.Fatal(key)
		return ""
	}
	c := Case{Impl: "flash2", DType: "float16", B: 2, H: 4, Hkv: 1, Nq: 1, N: 1000, D: 64, Dv: 64}
	// Of each of two entries k and v, q and o of four heads, and lse.
	const around = 2 * (2*4*64*2 + 4*4)
	require.Equal(t, Digits((2*2*1000*64*2+around)/1e6), shown(c, "fwd_least_bytes"))
	require.Equal(t, "6.4", shown(c, "pct_copy"), "514,080 bytes in 2 ms, where copies make 8 MB")
	c.Nq = 17
	require.Empty(t, shown(c, "fwd_least_bytes"), "68 rows read a key")
	require.Empty(t, shown(c, "pct_copy"))
	c.Cache, c.Page = "q8_0", 16 // 63 pages
	require.Equal(t, Digits((2*2*1000*64*34/32+17*around+2*63*4)/1e6), shown(c, "fwd_least_bytes"))
	c.Nq, c.N = 16, 16
	require.NotEmpty(t, shown(c, "pct_copy"), "a cache is read, however few its keys")
	c.Cache, c.Page = "", 0
	require.Empty(t, shown(c, "pct_copy"), "as many queries as keys")
}

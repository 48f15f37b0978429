package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/conformance"
	"github.com/vkattn/vkattn/flash"
)

// TestCoverage: each case counts where its type, pass and options say, a failure where it belongs, and lines stay short.
func TestCoverage(t *testing.T) {
	plain := flash.Problem{Batch: 1, Heads: 2, KeyHeads: 2, QueryLen: 8, KeyLen: 8, HeadDim: 16, ValueDim: 16, DType: flash.F16}
	shared := plain
	shared.KeyHeads, shared.ValueDim, shared.Causal, shared.Dropout = 1, 13, flash.CausalTopLeft, 0.1
	result := func(target string, p flash.Problem) conformance.Result {
		return conformance.Result{Target: target, DType: p.DType, Problem: p, Pass: true}
	}
	both, wrong, wrongBackward, skipped := result("flash2/matrix/form=1", shared), result("flash2/matrix/form=1", plain),
		result("flash2/matrix/form=1", plain), result("flash2/matrix/form=1", plain)
	both.Gradients, both.Accumulated, both.NoLSE = true, true, false
	wrong.Pass, wrong.ForwardFailed, wrong.Failure = false, true, "o: wrong"
	wrongBackward.Pass, wrongBackward.Gradients, wrongBackward.Failure = false, true, "dq: wrong"
	skipped.Pass, skipped.Skipped = false, "no"
	brain := plain
	brain.DType = flash.BF16
	quiet := result("flash1/scalar", brain)
	quiet.NoLSE, quiet.Layouts = true, conformance.Layouts{Q: conformance.Odd}
	var out strings.Builder
	printCoverage(&out, []conformance.Result{both, wrong, wrongBackward, skipped, quiet}, false, false)
	lines := map[string][]string{}
	table := ""
	for _, line := range strings.Split(out.String(), "\n") {
		require.LessOrEqual(t, len([]rune(line)), 100, line)
		if strings.HasPrefix(line, "cases by ") {
			table = strings.TrimSuffix(strings.Fields(line)[2], ":") + ":"
		}
		if words := strings.Fields(line); len(words) > 4 {
			lines[table+" "+words[0]+" "+words[1]] = words
		}
	}
	row := func(key string) string { return strings.Join(lines[key], " ") }
	require.Equal(t, "flash2/matrix/form=1 forward . 1! . 2 1! 1", row("type: flash2/matrix/form=1 forward"))
	require.Equal(t, "backward . 1! . 1 1!", row("type: backward ."))
	require.Equal(t, "flash1/scalar forward . . 1 1 . 0", row("type: flash1/scalar forward"))
	//                                    full diag top gqa dv odd gaps drop blk len cls lse add
	require.Equal(t, "flash2/matrix/form=1 fwd 1! . 1 1 1 1 . 1 . . . 1! .", row("option: flash2/matrix/form=1 fwd"))
	require.Equal(t, "bwd 1! . 1 1 1 1 . 1 . . . . 1", row("option: bwd 1!"))
	require.Equal(t, "flash1/scalar fwd 1 . . . . . 1 . . . . . .", row("option: flash1/scalar fwd"))
	out.Reset()
	printCoverage(&out, nil, false, false)
	require.Empty(t, out.String())
}

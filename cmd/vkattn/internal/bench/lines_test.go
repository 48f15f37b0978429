package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestPeerLost: what a peer is lost for is told once, when it happens, and stands in every row that it does not answer.
func TestPeerLost(t *testing.T) {
	for mode, why := range map[string]string{
		"dead":      "No module named 'torch'",
		"garbage":   "is not a JSON object",
		"other":     "answered for",
		"no line":   "peer: its output:3: the line is longer than 1 MiB",
		"chatty":    "more than 1000 header lines",
		"crash now": "illegal memory access",
	} {
		t.Run(mode, func(t *testing.T) {
			p := startFake(t, mode)
			var told []error
			p.OnLost = func(err error) { told = append(told, err) }
			start := time.Now()
			for range 3 {
				row := p.Measure(context.Background(), forward(peerCase(512)))
				require.Contains(t, row.Error, why)
				require.Equal(t, result.ReasonFailed, row.Reason)
				require.Len(t, told, 1, "at the first row, and not again")
			}
			require.ErrorContains(t, told[0], why)
			require.Error(t, p.Close())
			require.Less(t, time.Since(start), p.Timeout)
		})
	}
	p := startFake(t, "good")
	p.OnLost = func(err error) { t.Error(err) }
	require.Empty(t, p.Measure(context.Background(), forward(peerCase(512))).Error)
	require.NoError(t, p.Close())
}

// FuzzPeerAnswer: a line of a peer is an answer, a header, chatter or an error.
func FuzzPeerAnswer(f *testing.F) {
	for _, line := range []string{`{"impl":"fa2","N":1,"fwd_ms":1}`, `{"torch":"2"}`, "hello", `{"impl":3}`,
		`{"impl":"fa2","fwd_ms":-1,"error":"","bwd_ms":1e308}`, `{`} {
		f.Add(line, true, true)
	}
	f.Fuzz(func(t *testing.T, line string, fwd, bwd bool) {
		var p Peer
		row, ok, err := p.parse(line)
		if err != nil || !ok {
			return
		}
		passes := result.Passes{Fwd: fwd, Bwd: bwd}.OrDefault()
		complete(&row, passes)
		require.True(t, row.Error != "" || row.BwdFailure.Error != "" || passes.Done(row), "%+v", row)
		_, err = row.MarshalJSON()
		require.NoError(t, err)
	})
}

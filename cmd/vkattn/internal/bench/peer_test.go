package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// TestMain lets the test binary play the peer: with VKATTN_FAKE_PEER set it
// answers cases instead of running tests.
func TestMain(m *testing.M) {
	if mode := os.Getenv("VKATTN_FAKE_PEER"); mode != "" {
		fakePeer(mode)
		return
	}
	os.Exit(m.Run())
}

// fakePeer answers as tools/torch_baseline.py does, with a time of N·1e-3 ms,
// or misbehaves in the way that mode names.
func fakePeer(mode string) {
	if mode == "dead" {
		fmt.Fprintln(os.Stderr, "Traceback: nothing\nModuleNotFoundError: No module named 'torch'")
		os.Exit(1)
	}
	fmt.Println("a library says hello")
	fmt.Println(`{"torch": "9.9", "gpu": "Fake"}`)
	in := bufio.NewScanner(os.Stdin)
	for n := 0; in.Scan(); n++ {
		var q map[string]any
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, "bad question:", err)
			os.Exit(3)
		}
		a := map[string]any{"library": "torch 9.9"}
		for _, k := range []string{"impl", "dtype", "B", "H", "Hkv", "Nq", "N", "D", "Dv", "causal", "dropout"} {
			if v, ok := q[k]; ok {
				a[k] = v
			}
		}
		ms := q["N"].(float64) * 1e-3 * float64(n+1)
		if p, ok := q["dropout"]; ok {
			ms *= 1 + p.(float64)
		}
		passes := fmt.Sprint(q["passes"])
		if strings.Contains(passes, "fwd") {
			a["fwd_ms"], a["fwd_tflops"], a["fwd_peak_MiB"] = ms, 1.0, 0.0
			a["fwd_p20_ms"], a["fwd_p80_ms"] = 0.75*ms, 1.25*ms
		}
		if strings.Contains(passes, "bwd") && mode != "forward" {
			a["bwd_ms"], a["bwd_tflops"], a["bwd_peak_MiB"], a["bwd_n"] = 3*ms, 1.0, 2.0, 10
		}
		switch mode {
		case "oom":
			delete(a, "fwd_ms")
			a["error"] = "OutOfMemoryError: CUDA out of memory."
		case "refuses":
			delete(a, "fwd_ms")
			a["error"], a["reason"] = "Unsupported: cudnn has no bottom-right causal mask", "unsupported"
		case "no backward":
			delete(a, "bwd_ms")
			a["bwd_error"], a["bwd_reason"] = "Unsupported: no kernel for this case", "unsupported"
		case "backward oom":
			delete(a, "bwd_ms")
			a["bwd_error"] = "OutOfMemoryError: CUDA out of memory."
		case "deaf":
			delete(a, "dropout")
		case "other":
			a["N"] = 7
		case "no line":
			fmt.Print(strings.Repeat("x", result.MostLine+1))
			time.Sleep(time.Minute)
		case "chatty":
			for range mostHeaders + 1 {
				fmt.Println(`{"gpu": "Fake"}`)
			}
		case "crash now":
			fmt.Fprintln(os.Stderr, "CUDA error: an illegal memory access")
			os.Exit(2)
		case "garbage":
			fmt.Println(`{"impl": "fa2", `)
			continue
		case "silent":
			time.Sleep(time.Minute)
		case "crash":
			if n == 1 {
				fmt.Fprintln(os.Stderr, "CUDA error: an illegal memory access")
				os.Exit(2)
			}
		}
		text, _ := json.Marshal(a)
		fmt.Println(string(text))
	}
}

func startFake(t *testing.T, mode string) *Peer {
	t.Helper()
	command := "'" + os.Args[0] + "'" // not os.Executable, which names the loader where one starts the test
	if wrapper := os.Getenv("VKATTN_EXEC"); wrapper != "" {
		command = wrapper + " " + command // see tools/test.sh
	}
	t.Setenv("VKATTN_FAKE_PEER", mode)
	p, err := StartPeer(command)
	require.NoError(t, err)
	p.Timeout = 20 * time.Second
	return p
}

func peerCase(n int) result.Case {
	return result.Case{Impl: "fa2", DType: "float16", B: 1, H: 2, Hkv: 2, Nq: n, N: n, D: 64, Dv: 64}
}

func forward(c result.Case) result.Job { return result.Job{Case: c} }

func TestPeerAnswers(t *testing.T) {
	p := startFake(t, "good")
	for i, n := range []int{512, 1024} {
		row := p.Measure(context.Background(), forward(peerCase(n)))
		require.Empty(t, row.Error)
		require.Equal(t, "torch 9.9", row.Library)
		require.Equal(t, peerCase(n), row.Case)
		require.InDelta(t, float64(n)*1e-3*float64(i+1), row.Fwd.Ms, 1e-9)
	}
	require.Equal(t, []string{`{"torch": "9.9", "gpu": "Fake"}`}, p.Header())
	require.NoError(t, p.Close())
}

// TestPeerIsAskedEverything: a rectangle under a causal mask, and values of another width, are the peer's to answer or refuse.
func TestPeerIsAskedEverything(t *testing.T) {
	p := startFake(t, "good")
	c := peerCase(512)
	c.Causal, c.Nq, c.Dv = true, 1, 32
	row := p.Measure(context.Background(), forward(c))
	require.Empty(t, row.Error)
	require.Equal(t, c, row.Case)
	require.NoError(t, p.Close())

	p = startFake(t, "refuses")
	row = p.Measure(context.Background(), forward(c))
	require.Equal(t, result.ReasonUnsupported, row.Reason)
	require.Contains(t, row.Error, "no bottom-right causal mask")
	require.True(t, row.Skipped(), "a refusal is no fault")
	require.NoError(t, p.Close())
}

// TestPeerPassesAndDropout: the question names the passes and the probability, and the answer has to be of both.
func TestPeerPassesAndDropout(t *testing.T) {
	ctx := context.Background()
	c := peerCase(1000)
	c.Dropout = 0.5
	p := startFake(t, "good")
	row := p.Measure(ctx, result.Job{Case: c, Passes: both})
	require.Empty(t, row.Error)
	require.Equal(t, c, row.Case)
	require.InDelta(t, 1.5, row.Fwd.Ms, 1e-9)
	require.InDelta(t, 4.5, row.Bwd.Ms, 1e-9)
	require.InDelta(t, 2.0, *row.Bwd.PeakMiB, 1e-9)
	require.Equal(t, 10, row.Bwd.N)
	row = p.Measure(ctx, result.Job{Case: c, Passes: result.Passes{Bwd: true}})
	require.Empty(t, row.Error)
	require.Zero(t, row.Fwd.Ms, "it was not asked for")
	require.InDelta(t, 9.0, row.Bwd.Ms, 1e-9)
	row = p.Measure(ctx, forward(peerCase(1000)))
	require.Empty(t, row.Error)
	require.Zero(t, row.Bwd.Ms)
	require.NoError(t, p.Close())

	// A backend without backward costs forward nothing; where nothing else was asked for, the row has no figures.
	for mode, reason := range map[string]result.Reason{"no backward": result.ReasonUnsupported, "backward oom": result.ReasonMemory,
		"forward": result.ReasonFailed} {
		p := startFake(t, mode)
		row := p.Measure(ctx, result.Job{Case: c, Passes: both})
		require.Empty(t, row.Error, mode)
		require.Positive(t, row.Fwd.Ms, mode)
		require.Zero(t, row.Bwd, mode)
		require.NotEmpty(t, row.BwdFailure.Error, mode)
		require.Equal(t, reason, row.BwdFailure.Reason, mode)
		row = p.Measure(ctx, result.Job{Case: c, Passes: result.Passes{Bwd: true}})
		require.NotEmpty(t, row.Error, mode)
		require.Equal(t, reason, row.Reason, mode)
		require.Zero(t, row.Fwd, mode)
		require.Empty(t, row.BwdFailure.Error, mode)
		if err := p.Close(); mode == "forward" { // it says neither how long nor why not
			require.ErrorContains(t, err, "peer: answers with neither figures nor an error: 2")
		} else {
			require.NoError(t, err, mode)
		}
	}

	// One that leaves the probability out has measured something else.
	p = startFake(t, "deaf")
	require.Contains(t, p.Measure(ctx, forward(c)).Error, "asked for fa2 float16 B1 H2 N1000 D64 dropout 0.5, answered for fa2 float16 "+
		"B1 H2 N1000 D64")
	require.Error(t, p.Close())
}

func TestPeerOutOfMemoryIsARow(t *testing.T) {
	p := startFake(t, "oom")
	row := p.Measure(context.Background(), forward(peerCase(512)))
	require.Contains(t, row.Error, "CUDA out of memory")
	require.Equal(t, result.ReasonMemory, row.Reason)
	require.Empty(t, p.Measure(context.Background(), forward(peerCase(512))).Fwd)
	require.NoError(t, p.Close(), "the peer itself is well")
}

func TestPeerMisbehaves(t *testing.T) {
	for mode, want := range map[string]string{
		"dead":    "peer: ended before it answered (exit status 1): ModuleNotFoundError: No module named 'torch'",
		"other":   "peer: asked for fa2 float16 B1 H2 N512 D64, answered for fa2 float16 B1 H2 Nq512 N7 D64",
		"garbage": "is not a JSON object",
	} {
		t.Run(mode, func(t *testing.T) {
			p := startFake(t, mode)
			row := p.Measure(context.Background(), forward(peerCase(512)))
			require.Contains(t, row.Error, want)
			require.Equal(t, result.ReasonFailed, row.Reason)
			again := p.Measure(context.Background(), forward(peerCase(512)))
			require.Equal(t, row.Error, again.Error, "it is not asked again")
			require.ErrorContains(t, p.Close(), want)
		})
	}
}

func TestPeerCrashesLater(t *testing.T) {
	p := startFake(t, "crash")
	require.Empty(t, p.Measure(context.Background(), forward(peerCase(512))).Error)
	row := p.Measure(context.Background(), forward(peerCase(512)))
	require.Contains(t, row.Error, "peer: ended before it answered (exit status 2): CUDA error: an illegal memory access")
	require.Error(t, p.Close())
}

func TestPeerFallsSilent(t *testing.T) {
	p := startFake(t, "silent")
	p.Timeout = 300 * time.Millisecond
	began := time.Now()
	row := p.Measure(context.Background(), forward(peerCase(512)))
	require.Contains(t, row.Error, "no answer within 300ms")
	require.Error(t, p.Close())
	require.Less(t, time.Since(began), 20*time.Second, "it is killed, not waited for")
}

func TestPeerInterrupted(t *testing.T) {
	p := startFake(t, "silent")
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	row := p.Measure(ctx, forward(peerCase(512)))
	require.Contains(t, row.Error, "interrupted")
	require.Error(t, p.Close())
}

func TestPeerThatCannotStart(t *testing.T) {
	_, err := StartPeer("  ")
	require.ErrorContains(t, err, "peer command is empty")
	p, err := StartPeer("/no/such/program --peer")
	require.NoError(t, err, "the shell starts")
	row := p.Measure(context.Background(), forward(peerCase(512)))
	require.Contains(t, row.Error, "peer: ended before it answered")
	require.Contains(t, strings.ToLower(row.Error), "no")
	require.Error(t, p.Close())
}

func TestSweepWithPeer(t *testing.T) {
	p := startFake(t, "good")
	b := &fakeBench{ms: func(result.Case, int) float64 { return 1 }}
	var rows []result.Row
	s := Sweep{Bench: b, Jobs: twoShapes(t), Rounds: 3, Peer: p, PeerImpls: []string{"fa2", "cudnn"}, OnRow: collect(&rows)}
	require.NoError(t, s.Run(context.Background()))
	require.NoError(t, p.Close())
	require.Len(t, rows, 2*(2+2))
	fa2 := rows[2]
	require.Equal(t, "fa2", fa2.Impl)
	// Questions 1, 3 and 5 are fa2's: the fake's time grows with each question.
	require.InDeltaSlice(t, []float64{0.064, 0.192, 0.320}, fa2.Fwd.Rounds, 1e-9)
	require.InDelta(t, 0.192, fa2.Fwd.Ms, 1e-9)
	require.Equal(t, "cudnn", rows[3].Impl)
}

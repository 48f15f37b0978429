package bench

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endless repeats a text for ever.
type endless string

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e)
	}
	return n, nil
}

// TestReadHasBounds: a stream without newlines, and one that does not end, are refused, and little of them is kept.
func TestReadHasBounds(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read("zero", endless("\x00"))
	require.EqualError(t, err, "zero:1: the line is longer than 1 MiB: result files hold one JSON object a line")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))

	_, err = Read("late", io.MultiReader(strings.NewReader("{\"torch\": 1}\n\n{\"torch\": 2}\n"), endless("x")))
	require.ErrorContains(t, err, "late:4: the line is longer than 1 MiB")

	in := newLines("blank", endless("\n"), 1<<20)
	for _, ok := in.next(); ok; _, ok = in.next() {
	}
	require.EqualError(t, in.err(), "blank:1048577: it is longer than 1 MiB, the most that is read of a result file")

	in = newLines("exact", strings.NewReader("ab\ncd"), 5)
	var got []string
	for text, ok := in.next(); ok; text, ok = in.next() {
		got = append(got, string(text))
	}
	require.NoError(t, in.err())
	require.Equal(t, []string{"ab", "cd"}, got)
}

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
				require.Equal(t, ReasonFailed, row.Reason)
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

// FuzzRead: any text is a result file or refused with the place, and what was read can be written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"vkattn":"1","device":"x","limits":{"a":1},"peaks":{"copy_GBps":1e300}}` + "\n" +
		`{"impl":"flash2","dtype":"float16","B":1,"N":5,"fwd_ms":0.1}`))
	f.Add([]byte(`{"impl":"fa2","dtype":"float16","B":-1,"H":1e9,"N":0,"error":"out of memory"}` + "\r\n\n" + `{"torch":"2","gpu":"x"}`))
	f.Add([]byte("[1]\n"))
	f.Add([]byte(`{"impl":"fa2","library":"torch","dtype":"float16","B":1,"H":2,"Hkv":1,"Nq":3,"N":5,"D":8,"Dv":8,"causal":true,"fwd_ms":1,"bwd_ms":2,"bwd_error":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Read("fuzz", bytes.NewReader(text))
		if err != nil {
			require.ErrorContains(t, err, "fuzz:")
			return
		}
		var out bytes.Buffer
		w := NewWriter(&out)
		for _, h := range file.Headers {
			require.NoError(t, w.Line(h))
		}
		for _, r := range file.Rows {
			require.NoError(t, w.Line(r))
		}
		if len(file.Headers)+len(file.Rows) == 0 {
			return
		}
		again, err := Read("written", &out)
		require.NoError(t, err)
		require.Len(t, again.Rows, len(file.Rows))
		for i, r := range file.Rows {
			require.Equal(t, r.Case, again.Rows[i].Case)
			require.Equal(t, r.Failed(), again.Rows[i].Failed())
		}
	})
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
		passes := Passes{Fwd: fwd, Bwd: bwd}.orDefault()
		row.complete(passes)
		require.True(t, row.Error != "" || row.BwdFailure.Error != "" || passes.Done(row), "%+v", row)
		_, err = row.MarshalJSON()
		require.NoError(t, err)
	})
}

// FuzzTuningText: what ParseTuning takes it gives back.
func FuzzTuningText(f *testing.F) {
	for _, s := range []string{"br=64,bc=32", "", "a=1,a=2", "x=-1", " w = 3", "w=99999999999999999999", "=3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tuning, err := ParseTuning(s)
		if err != nil {
			return
		}
		again, err := ParseTuning(string(tuning))
		require.NoError(t, err)
		require.Equal(t, tuning, again)
		require.Equal(t, tuning, tuningOf(tuning.Values()))
	})
}

package result

import (
	"bytes"
	"io"
	"runtime"
	"strings"
	"testing"

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

	in := NewLines("blank", endless("\n"), 1<<20)
	for _, ok := in.Next(); ok; _, ok = in.Next() {
	}
	require.EqualError(t, in.Err(), "blank:1048577: it is longer than 1 MiB, the most that is read of a result file")

	in = NewLines("exact", strings.NewReader("ab\ncd"), 5)
	var got []string
	for text, ok := in.Next(); ok; text, ok = in.Next() {
		got = append(got, string(text))
	}
	require.NoError(t, in.Err())
	require.Equal(t, []string{"ab", "cd"}, got)
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

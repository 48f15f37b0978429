package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the processes of the tests told is summed up: pipelines that are alike together and the dearest first, messages that were passed
// over by entry, and that tests ran without validation.
func TestAccount(t *testing.T) {
	var told strings.Builder
	for i := range 12 {
		line := `{"kind":"pipeline","name":"cheap_X.f32","detail":"A=0 BC=64","seconds":0.1}` + "\n"
		told.WriteString(strings.ReplaceAll(line, "X", string(rune('a'+i))))
	}
	told.WriteString(`{"kind":"pipeline","name":"dear.f16","detail":"A=1 ALIGNED=0 B=20","seconds":2.5}
{"kind":"pipeline","name":"dear.f16","detail":"A=2","seconds":3.25}
{"kind":"passed over","name":"WARNING-x","detail":"an old loader"}
{"kind":"unvalidated","name":"the layer did not load"}
{"kind":"pipeline","name":"dear.f16","detail":"A=1 ALIGNED=0 B=20","seconds":2.5}
{"kind":"passed over","name":"WARNING-x","detail":"an old loader"}
{"kind":"first run","name":"dear.f16","detail":"A=2","seconds":1}
{"kind":"passed over","name":"VUID-y","detail":"an old layer"}
{"kind":"unvalidated","name":"the layer did not load"}
{"kind":"pipeline","na`)
	path := filepath.Join(t.TempDir(), "tally")
	require.NoError(t, os.WriteFile(path, []byte(told.String()), 0o600))
	view := func(tally string) string {
		var out bytes.Buffer
		events := strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestX"}` + "\n")
		require.NoError(t, show(events, &out, false, tally, noProgress, time.Now))
		return out.String()
	}
	text := view(path)
	require.Contains(t, text, `pipelines: 15 compiled, 14 different, 10.4 s together with their first runs; the dearest, and how often they were compiled:
    5.0 s    2 ×  dear.f16  A=1 B=20
    4.2 s    1 ×  dear.f16  A=2
    0.1 s    1 ×  cheap_a.f32  BC=64
`)
	require.Equal(t, dearest, strings.Count(text, " s ")-1, "and no more")
	require.NotContains(t, text, "cheap_i")
	require.Contains(t, text, "passed over, since no program can help them:\n     2  WARNING-x: an old loader\n     1  VUID-y: an old "+
		"layer\n")
	require.Contains(t, text, "WITHOUT VALIDATION  2 test processes: the layer did not load\n")
	require.Contains(t, text, "line 22", "a line that was cut off is told")

	for _, none := range []string{"", path + ".missing"} {
		require.NotContains(t, view(none), "pipelines")
	}
}

func TestConstants(t *testing.T) {
	require.Equal(t, "A=1 C=3", constants("A=1 B=0 C=3", 90))
	require.Equal(t, "D=8 BR=16 ALIGNED=1", constants("ALIGNED=1 BR=16 D=8 FORM=0", 90))
	require.Equal(t, "A=1 …", constants("A=1 B=0 C=3 D=4", 6))
	require.Empty(t, constants("", 90))
}

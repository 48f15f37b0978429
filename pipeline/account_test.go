package pipeline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/tally"
)

// named are constants by name.
type named string

func (n named) String() string { return string(n) }

// TestAccount: the process of a test run whose variable names a file tells each pipeline that it makes, once, with its constants and
// how long it took, and how long its first run took, of those that ran.
func TestAccount(t *testing.T) {
	const role = "VKATTN_ACCOUNT_TEST"
	if os.Getenv(role) != "" {
		c := newContext(t, Options{NoDiskCache: true})
		var kernels []*Kernel
		for range 2 {
			for factor := range uint32(3) {
				i := mixInfo(t, factor)
				i.Constants = named(fmt.Sprintf(" FACTOR=%d", factor))
				k, err := c.Kernel(i)
				require.NoError(t, err)
				kernels = append(kernels, k)
			}
		}
		a, b := alloc(t, c, "a", 64), alloc(t, c, "b", 64)
		r := newRecording(t, c, RecordingInfo{MaxDispatches: 4, MaxBindings: 8})
		for _, of := range [][]*Kernel{{kernels[0]}, {kernels[3], kernels[1], kernels[1]}} { // the fourth is the first
			require.NoError(t, r.Reset())
			for _, k := range of {
				chain(t, r, k, a, b, 64, 1, 0)
			}
			runAndWait(t, c, r)
			runAndWait(t, c, r)
		}
		return
	}
	newContext(t, Options{NoDiskCache: true}) // or there is no device
	path := filepath.Join(t.TempDir(), "tally")
	line := append(strings.Fields(os.Getenv("VKATTN_EXEC")), os.Args[0], "-test.run=^TestAccount$")
	child := exec.Command(line[0], line[1:]...)
	child.Env = append(os.Environ(), role+"=1", tally.Variable+"="+path)
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	lines, err := tally.Read(f)
	require.NoError(t, err)
	var told []string
	for _, l := range lines {
		if l.Kind == tally.Pipeline || l.Kind == tally.FirstRun {
			require.Positive(t, l.Seconds)
			told = append(told, l.Kind+" "+l.Name+" "+l.Detail)
		}
	}
	require.Equal(t, []string{"pipeline mix FACTOR=0", "pipeline mix FACTOR=1", "pipeline mix FACTOR=2",
		"first run mix FACTOR=0", "first run mix FACTOR=1"}, told)
}

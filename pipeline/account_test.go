package pipeline

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/tally"
)

// named are constants by name.
type named string

func (n named) String() string { return string(n) }

// TestAccount: the process of a test run whose variable names a file tells each pipeline that it makes, once, with its constants and how long it took, and
// none that it does not make.
func TestAccount(t *testing.T) {
	const role = "VKATTN_ACCOUNT_TEST"
	if os.Getenv(role) != "" {
		c := newContext(t, Options{NoDiskCache: true})
		for range 2 {
			for factor := range uint32(3) {
				i := mixInfo(t, factor)
				i.Constants = named(fmt.Sprintf(" FACTOR=%d", factor))
				_, err := c.Kernel(i)
				require.NoError(t, err)
			}
		}
		i := mixInfo(t, 7)
		i.account(time.Second, errors.New("out of memory"))
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
	var made []string
	for _, l := range lines {
		if l.Kind == tally.Pipeline {
			require.Positive(t, l.Seconds)
			made = append(made, l.Name+" "+l.Detail)
		}
	}
	require.Equal(t, []string{"mix FACTOR=0", "mix FACTOR=1", "mix FACTOR=2"}, made)
}

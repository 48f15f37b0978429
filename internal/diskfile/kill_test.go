package diskfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is killed over and over is asked for by VKATTN_KILLS (tools/killtest.sh); without it only a few times.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("VKATTN_KILLS")); err == nil {
		return n
	}
	return 10
}

const killChild = "VKATTN_TEST_KILL_PATH"

// generation makes content that bears its number and proves to be whole.
func generation(n uint64) []byte {
	b := make([]byte, 100_000)
	for i := 0; i < len(b)-32; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], n)
	}
	sum := sha256.Sum256(b[:len(b)-32])
	copy(b[len(b)-32:], sum[:])
	return b
}

// generationOf reads the number, 0 where there is no file.
func generationOf(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil || len(b) != 100_000 {
		return 0, errors.Join(err, errors.New("the file is not whole"))
	}
	if sum := sha256.Sum256(b[:len(b)-32]); [32]byte(b[len(b)-32:]) != sum {
		return 0, errors.New("the file is mixed")
	}
	return binary.LittleEndian.Uint64(b), nil
}

// TestKillChild is the process that TestKill kills; alone it does nothing.
func TestKillChild(t *testing.T) {
	path := os.Getenv(killChild)
	if path == "" {
		t.Skip("only as a child of TestKill")
	}
	for {
		require.NoError(t, Update(path, func() ([]byte, error) {
			n, err := generationOf(path)
			return generation(n + 1), err
		}))
	}
}

// TestKill kills processes that replace a file over and over, two at once. The file is whole after each, no generation is lost, and
// the next one goes on, with nothing left beside the file.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var last uint64
	for range kills() {
		var children [2]*exec.Cmd
		for i := range children {
			children[i] = exec.Command(os.Args[0], "-test.run", "^TestKillChild$", "-test.count", "1")
			children[i].Env = append(os.Environ(), killChild+"="+path)
			require.NoError(t, children[i].Start())
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		for _, c := range children {
			require.NoError(t, c.Process.Kill())
			_ = c.Wait()
		}
		n, err := generationOf(path)
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, last)
		last = n
	}
	require.NoError(t, Update(path, func() ([]byte, error) { return generation(last + 1), nil }))
	require.Equal(t, []string{"file", "file.lock"}, names(t, dir))
	t.Logf("%d kills, %d generations", 2*kills(), last)
}

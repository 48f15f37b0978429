package pipeline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	childPath = "VKATTN_TEST_CACHE_PATH"
	childName = "VKATTN_TEST_CACHE_NAME"
	stores    = 20
)

// TestCacheFileChild is one of the processes of TestCacheFileManyProcesses; alone it does nothing.
func TestCacheFileChild(t *testing.T) {
	path, name := os.Getenv(childPath), os.Getenv(childName)
	if path == "" {
		t.Skip("only as a child of TestCacheFileManyProcesses")
	}
	for i := range stores {
		require.NoError(t, store(path, func(onDisk []byte) ([]byte, error) {
			if onDisk == nil {
				onDisk = driverData(testID, "")
			}
			return append(onDisk, fmt.Sprintf("%s stored %d\n", name, i)...), nil
		}))
	}
}

// TestCacheFileManyProcesses has several processes add to one file at once, as several programs with one cache do.
func TestCacheFileManyProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), testID.fileName())
	const processes = 4
	var children []*exec.Cmd
	for i := range processes {
		c := exec.Command(os.Args[0], "-test.run", "^TestCacheFileChild$", "-test.count", "1")
		c.Env = append(os.Environ(), childPath+"="+path, fmt.Sprintf("%s=process %d", childName, i))
		require.NoError(t, c.Start())
		children = append(children, c)
	}
	for _, c := range children {
		assert.NoError(t, c.Wait())
	}
	data, err := readCache(path, testID)
	require.NoError(t, err)
	assert.Equal(t, processes*stores, strings.Count(string(data), "stored"), "no store was lost")
}

// FuzzDecodeCache reads arbitrary files: what is accepted must be exactly what encodeCache writes.
func FuzzDecodeCache(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeCache(testID, driverData(testID, "pipelines")))
	f.Fuzz(func(t *testing.T, file []byte) {
		if data, err := decodeCache(testID, file); err == nil {
			assert.Equal(t, file, encodeCache(testID, data))
		}
	})
}

package pipeline

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	childPath = "VKATTN_TEST_CACHE_PATH"
	childName = "VKATTN_TEST_CACHE_NAME"
	stores    = 40
)

// TestCacheFileChild is one of the processes of TestCacheFileManyProcesses; alone it does nothing.
func TestCacheFileChild(t *testing.T) {
	root, process := os.Getenv(childPath), os.Getenv(childName)
	if root == "" {
		t.Skip("only as a child of TestCacheFileManyProcesses")
	}
	d := &diskCache{id: testID, limit: 1 << 20}
	d.at(root)
	for i := range stores {
		for _, name := range []string{hashName(process, i), hashName("shared", i%3)} {
			want := keptBy(testID, name)
			if k := d.load(name); k != nil {
				require.Equal(t, want, k)
			}
			require.NoError(t, d.keep(name, want))
		}
	}
	require.NoError(t, d.save())
	require.NoError(t, d.told().Err)
}

// hashName is a name as files of the cache have it.
func hashName(of string, i int) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %d", of, i)))
}

// TestCacheFileManyProcesses has several processes store into one folder at once, as several programs with one cache do: what each stored
// is there afterwards, and whole, and so is what all of them stored.
func TestCacheFileManyProcesses(t *testing.T) {
	root := t.TempDir()
	const processes = 4
	var children []*exec.Cmd
	for i := range processes {
		c := exec.Command(os.Args[0], "-test.run", "^TestCacheFileChild$", "-test.count", "1")
		c.Env = append(os.Environ(), childPath+"="+root, fmt.Sprintf("%s=process %d", childName, i))
		require.NoError(t, c.Start())
		children = append(children, c)
	}
	for _, c := range children {
		assert.NoError(t, c.Wait())
	}
	d := &diskCache{id: testID}
	d.at(root)
	for p := range processes {
		for i := range stores {
			name := hashName(fmt.Sprintf("process %d", p), i)
			require.Equal(t, keptBy(testID, name), d.load(name))
		}
	}
	for i := range 3 {
		require.NotNil(t, d.load(hashName("shared", i)))
	}
	files, err := os.ReadDir(d.state.Path)
	require.NoError(t, err)
	require.Len(t, files, processes*stores+3)
}

// FuzzDecodeCache reads arbitrary files: what is accepted must be exactly what encodeCache writes.
func FuzzDecodeCache(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeCache(testID, keptBy(testID, "pipelines")))
	f.Fuzz(func(t *testing.T, file []byte) {
		if k, err := decodeCache(testID, file); err == nil {
			assert.Equal(t, file, encodeCache(testID, k))
		}
	})
}

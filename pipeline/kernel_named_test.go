package pipeline

import (
	"crypto/sha256"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/internal/specialize"
	"github.com/vkattn/vkattn/internal/spirv"
	"github.com/vkattn/vkattn/vk"
)

// TestKernelByName: code that is named is loaded once, for the first kernel of that name and these constants, and one that cannot be loaded
// is asked for again.
func TestKernelByName(t *testing.T) {
	c := newContext(t, Options{})
	loads := 0
	info := mixInfo(t, 3)
	code := info.Code
	info.Code, info.Identity = nil, "mix of testdata"
	var broken error
	info.Load = func() ([]uint32, error) { loads++; return code, broken }

	broken = errors.New("unreadable")
	_, err := c.Kernel(info)
	require.ErrorIs(t, err, broken)
	broken = nil
	k, err := c.Kernel(info)
	require.NoError(t, err)
	require.Equal(t, 2, loads)
	again, err := c.Kernel(info)
	require.NoError(t, err)
	require.Same(t, k, again)
	require.Equal(t, 2, loads, "nothing is loaded for a kernel that exists")

	other := info
	other.Spec = mixInfo(t, 4).Spec
	differs, err := c.Kernel(other)
	require.NoError(t, err)
	require.NotSame(t, k, differs)
	other = info
	other.Identity = "another"
	differs, err = c.Kernel(other)
	require.NoError(t, err)
	require.NotSame(t, k, differs)
	require.Equal(t, 4, loads)

	for rule, change := range map[string]func(*KernelInfo){
		"must name the code":     func(i *KernelInfo) { i.Identity = "" },
		"must be nil beside":     func(i *KernelInfo) { i.Code = code },
		"must be a SPIR-V modul": func(i *KernelInfo) { i.Identity, i.Load = "bad", func() ([]uint32, error) { return code[:3], nil } },
	} {
		bad := info
		change(&bad)
		_, err := c.Kernel(bad)
		require.ErrorContains(t, err, rule)
	}
}

// TestKernelOnDisk: a kernel that another process left on disk is made of the words that lie there: nothing is loaded. One whose words were
// damaged is loaded again, and its file replaced.
func TestKernelOnDisk(t *testing.T) {
	for _, revision := range []int{0, specialize.Revision} {
		o := Options{CacheDir: t.TempDir(), Specialize: revision > 0}
		loads := 0
		info := mixInfo(t, 3)
		code := info.Code
		info.Code, info.Identity = nil, "mix of testdata"
		info.Load = func() ([]uint32, error) { loads++; return code, nil }
		const n = 1000
		in := pattern(n, 5)
		process := func(change func(path string)) DiskCache {
			t.Helper()
			c, err := New(testDevice(t), o)
			require.NoError(t, err)
			k, err := c.Kernel(info)
			require.NoError(t, err)
			require.Equal(t, sha256.Sum256(spirv.Bytes(code)), k.CodeHash())
			require.Equal(t, 1, c.Compilations().Kernels)
			a, b := alloc(t, c, "a", n), alloc(t, c, "b", n)
			upload(t, c, a, in)
			r, err := c.NewRecording(RecordingInfo{MaxDispatches: 3, MaxBindings: 6})
			require.NoError(t, err)
			chain(t, r, k, a, b, n, 3, 2)
			runAndWait(t, c, r)
			require.Equal(t, chainWant(in, 3, 2, 3), download(t, c, b, n))
			require.NoError(t, c.Close())
			if change != nil {
				change(c.disk.file(info.fileName(revision, false)))
			}
			return c.DiskCache()
		}
		process(nil)
		require.Equal(t, 1, loads)
		require.NoError(t, process(func(path string) {
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			file[cacheHeaderSize+40] ^= 1
			require.NoError(t, os.WriteFile(path, file, 0o600))
		}).Err)
		require.Equal(t, 1, loads, "the words are on disk")
		require.ErrorContains(t, process(nil).Err, "checksum does not match")
		require.Equal(t, 2, loads)
		require.NoError(t, process(nil).Err)
		require.Equal(t, 2, loads, "the file was replaced")
	}
}

// TestKernelFileNames: whatever changes what the driver gets, or is told, is another file; what does not is not.
func TestKernelFileNames(t *testing.T) {
	base := func() KernelInfo {
		i := mixInfo(t, 3)
		i.Code, i.Identity, i.Load = nil, "mix", func() ([]uint32, error) { panic("a name needs no words") }
		return i
	}
	plain := base()
	names := map[string]string{plain.fileName(0, false): "plain"}
	another := func(what string, i KernelInfo, specialized int, stats bool) {
		t.Helper()
		name := i.fileName(specialized, stats)
		require.Regexp(t, cacheFile, name+cacheSuffix)
		require.NotContains(t, names, name, what)
		names[name] = what
	}
	another("specialized", plain, 1, false)
	another("specialized by another revision", plain, 2, false)
	another("with statistics", plain, 0, true)
	another("given as code", mixInfo(t, 3), 0, false)
	for what, change := range map[string]func(*KernelInfo){
		"identity": func(i *KernelInfo) { i.Identity += "2" }, "constant": func(i *KernelInfo) { i.Spec[1].Value++ },
		"its number":   func(i *KernelInfo) { i.Spec[1].ID++ },
		"no constants": func(i *KernelInfo) { i.Spec = nil }, "bindings": func(i *KernelInfo) { i.Bindings++ },
		"push":     func(i *KernelInfo) { i.PushBytes += 4 },
		"subgroup": func(i *KernelInfo) { i.SubgroupSize = 32 }, "full": func(i *KernelInfo) { i.FullSubgroups = true },
	} {
		i := base()
		change(&i)
		another(what, i, 0, false)
		another(what+", specialized", i, 1, false)
	}
	same := base()
	same.Name, same.Buffers, same.Spec = "another", map[string]uint32{"X": 0}, []vk.SpecConstant{same.Spec[1], same.Spec[0]}
	require.Equal(t, "plain", names[same.fileName(0, false)])
}

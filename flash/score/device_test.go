package score_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/vktest"
	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// spirv reads a module of testdata.
func spirv(t testing.TB, name string) []uint32 {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name + ".spv")
	require.NoError(t, err)
	return wordsOf(b)
}

func wordsOf(b []byte) []uint32 {
	out := make([]uint32, len(b)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

func bytesOf(words []uint32) []byte {
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

func bitsOf(v []float32) []uint32 {
	out := make([]uint32, len(v))
	for i, f := range v {
		out[i] = math.Float32bits(f)
	}
	return out
}

func floatsOf(words []uint32) []float32 {
	out := make([]float32, len(words))
	for i, w := range words {
		out[i] = math.Float32frombits(w)
	}
	return out
}

// device runs modules that read and write whole buffers.
type device struct {
	t testing.TB
	c *pipeline.Context
}

func newDevice(t testing.TB) *device {
	c, err := pipeline.New(vktest.Device(t), pipeline.Options{NoDiskCache: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &device{t, c}
}

// run runs a module once on inputs, which take the bindings from 0 on, an output behind them and captured tensors behind that.
func (d *device) run(code []uint32, push []uint32, groups int, results int, captured [][]uint32, inputs ...[]uint32) []uint32 {
	d.t.Helper()
	var access []pipeline.Access
	buffer := func(v []uint32, n int, mode pipeline.Mode) *pipeline.Buffer {
		b, err := d.c.Alloc("test", uint64(4*n), vk.DeviceLocal)
		require.NoError(d.t, err)
		if v != nil {
			require.NoError(d.t, d.c.Upload(context.Background(), b.All(), bytesOf(v)))
		}
		access = append(access, pipeline.Access{Binding: b.All(), Mode: mode})
		return b
	}
	for _, v := range inputs {
		defer buffer(v, len(v), pipeline.Read).Close()
	}
	out := buffer(nil, results, pipeline.Write)
	defer out.Close()
	for _, v := range captured {
		defer buffer(v, len(v), pipeline.Read).Close()
	}
	k, err := d.c.Kernel(pipeline.KernelInfo{Name: "score", Code: code, Bindings: len(access), PushBytes: 4 * len(push)})
	require.NoError(d.t, err)
	r, err := d.c.NewRecording(pipeline.RecordingInfo{MaxDispatches: 1, MaxBindings: len(access)})
	require.NoError(d.t, err)
	defer func() { require.NoError(d.t, r.Close()) }()
	require.NoError(d.t, r.Dispatch(k, access, bytesOf(push), [3]uint32{uint32(groups), 1, 1}, "score"))
	p, err := d.c.Submit(r)
	require.NoError(d.t, err)
	require.NoError(d.t, p.Wait(context.Background()))
	raw := make([]byte, 4*results)
	require.NoError(d.t, d.c.Download(context.Background(), out.All(), raw))
	return wordsOf(raw)
}

// contents are captured tensors' values as a device gets them.
func contents(tensors []score.Tensor, data score.Data) [][]uint32 {
	var out [][]uint32
	for _, t := range tensors {
		floats, ints := t.Floats, t.Ints
		if !t.Table() {
			floats, _ = data[t.Name].([]float32)
			ints, _ = data[t.Name].([]int32)
		}
		words := bitsOf(floats)
		for _, i := range ints {
			words = append(words, uint32(i))
		}
		out = append(out, words)
	}
	return out
}

// validator is spirv-val, as a command of several words; nil where there is none.
func validator() []string {
	if path, err := exec.LookPath("spirv-val"); err == nil {
		return []string{path}
	}
	cache := os.Getenv("VKATTN_CACHE")
	if cache == "" {
		base, _ := os.UserCacheDir()
		cache = filepath.Join(base, "vkattn")
	}
	path := filepath.Join(cache, "glslc", "usr", "bin", "spirv-val")
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return []string{"../../tools/run-unpacked.sh", filepath.Join(cache, "glslc"), path}
}

// validate runs spirv-val on a module; it fails the test if the module is wrong, and says so once where there is no spirv-val.
func validate(t testing.TB, env string, code []uint32) {
	t.Helper()
	v := validator()
	if v == nil {
		t.Log("no spirv-val on PATH or in the cache that tools/glslc.sh fills: modules are not validated")
		return
	}
	path := filepath.Join(t.TempDir(), "module.spv")
	require.NoError(t, os.WriteFile(path, bytesOf(code), 0o600))
	cmd := exec.Command(v[0], append(v[1:], "--target-env", env, path)...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("spirv-val: %v\n%s", err, text)
	}
}

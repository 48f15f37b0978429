package score_test

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/shaders"
)

// everything uses all that splicing can add to a module.
func everything(t testing.TB) score.Code {
	t.Helper()
	bias := score.RelativeBias(score.Capture("bias", 32, 4), score.T5Bucket(true, 32, 128))
	f, err := score.Compose(bias, score.Softcap(20), score.ALiBi([]float32{1, 2, 3, 4}))
	require.NoError(t, err)
	g, err := f.Gradient("bias")
	require.NoError(t, err)
	return score.Code{Score: f, Mask: score.Documents(score.CaptureInt("ids", 2, 64)), Gradient: g, FirstBinding: 3}
}

// The kernels that are there have no hooks, or hooks that are known: the first stay as they are, the others become valid modules.
func TestCommittedModules(t *testing.T) {
	require.NotEmpty(t, shaders.Names())
	for i, name := range shaders.Names() {
		words, err := shaders.Module(name)
		require.NoError(t, err)
		hooks, err := score.Hooks(words)
		require.NoError(t, err, name)
		c := everything(t)
		c.FirstBinding = 40
		out, err := score.Splice(words, c)
		require.NoError(t, err, name)
		if len(hooks) == 0 {
			assert.Equal(t, words, out, name)
			continue
		}
		left, err := score.Hooks(out)
		require.NoError(t, err)
		assert.Empty(t, left, name)
		if testing.Short() && i%8 != 0 { // spirv-val reads for half a second each
			continue
		}
		validate(t, "vulkan1.3", out)
	}
}

func TestHooksAreCounted(t *testing.T) {
	n, err := score.Hooks(spirv(t, "hooks"))
	require.NoError(t, err)
	assert.Equal(t, map[score.Hook]int{score.HookValue: 1, score.HookSlope: 1, score.HookMask: 1, score.HookGradient: 1, score.HookBits: 1,
		score.HookBitsSlope: 1}, n)
	out, err := score.Splice(spirv(t, "hooks"), everything(t))
	require.NoError(t, err)
	n, err = score.Hooks(out)
	require.NoError(t, err)
	assert.Empty(t, n)
}

// The same code gives the same bytes, and leaves the module that it was given alone.
func TestSpliceIsStable(t *testing.T) {
	module := spirv(t, "hooks16")
	first, err := score.Splice(module, everything(t))
	require.NoError(t, err)
	second, err := score.Splice(module, everything(t))
	require.NoError(t, err)
	assert.Equal(t, first, second)
	assert.Equal(t, spirv(t, "hooks16"), module)
	again, err := score.Splice(first, everything(t))
	require.NoError(t, err)
	assert.Equal(t, first, again)
}

func TestSpliceRefuses(t *testing.T) {
	module := spirv(t, "hooks")
	change := func(f func(w []uint32)) []uint32 {
		w := append([]uint32{}, module...)
		f(w)
		return w
	}
	for name, w := range map[string][]uint32{
		"nothing":         nil,
		"no header":       module[:4],
		"another magic":   change(func(w []uint32) { w[0]++ }),
		"cut off":         module[:6],
		"SPIR-V 1.0":      change(func(w []uint32) { w[1] = 0x10000 }),
		"no identifiers":  change(func(w []uint32) { w[3] = 0 }),
		"too many":        change(func(w []uint32) { w[3] = 1 << 30 }),
		"an empty opcode": change(func(w []uint32) { w[5] = 0 }),
		"unknown hooks":   spirv(t, "many"),
	} {
		_, err := score.Splice(w, everything(t))
		assert.Error(t, err, name)
	}
	c := everything(t)
	for _, n := range []int{-1, score.MaxBinding} {
		c.FirstBinding = n
		_, err := score.Splice(module, c)
		assert.ErrorContains(t, err, "FirstBinding", n)
	}
	c = everything(t)
	c.Score = score.ALiBi([]float32{1})
	_, err := score.Splice(module, c)
	assert.ErrorContains(t, err, "another function")
	c = everything(t)
	c.Mask = score.Documents(score.CaptureInt("bias", 64))
	_, err = score.Splice(module, c)
	assert.ErrorContains(t, err, `"bias" is fp32 [32 4] and also int32 [64]`)
}

// testdata's SPIR-V is of the sources beside it.
func TestShadersAreCompiled(t *testing.T) {
	sums, err := os.ReadFile("testdata/sums.sha256")
	require.NoError(t, err)
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		b, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		assert.Equal(t, want, fmt.Sprintf("%x", sha256.Sum256(b)), "%s changed: run testdata/compile.sh", name)
	}
}

// Splice takes any words without a panic.
func FuzzSplice(f *testing.F) {
	for _, name := range []string{"hooks", "hooks16", "many"} {
		b, err := os.ReadFile("testdata/" + name + ".spv")
		require.NoError(f, err)
		f.Add(b)
	}
	c := everything(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		w := wordsOf(b)
		if out, err := score.Splice(w, c); err == nil && len(out) < len(w) && len(out) < 5 {
			t.Error("a module without a header")
		}
		_, _ = score.Hooks(w)
	})
}

// Modules with a few words changed: an error or another module, never a panic. Most changes leave every instruction's length alone, which a
// fuzzer of bytes seldom does.
func TestSpliceOfDamagedModules(t *testing.T) {
	r, c, taken := rand.New(rand.NewPCG(1, 2)), everything(t), 0
	for range 2000 {
		for _, name := range []string{"hooks", "hooks16"} {
			w := spirv(t, name)
			for range 1 + r.IntN(4) {
				switch k := r.IntN(len(w)); r.IntN(3) {
				case 0:
					w[k] = uint32(r.IntN(400))
				case 1:
					w[k] = w[r.IntN(len(w))]
				case 2:
					w[k] ^= 1 << r.IntN(32)
				}
			}
			if _, err := score.Splice(w, c); err == nil {
				taken++
			}
		}
	}
	if taken < 500 {
		t.Errorf("only %d of the damaged modules were taken: the others were refused early", taken)
	}
}

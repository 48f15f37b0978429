package shaders

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/vk"
)

// listed is one line of modules.txt.
type listed struct{ name, source, env, defines string }

func buildList(t *testing.T) []listed {
	t.Helper()
	raw, err := os.ReadFile("modules.txt")
	require.NoError(t, err)
	var list []listed
	for _, line := range strings.Split(string(raw), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		require.GreaterOrEqual(t, len(f), 3, "modules.txt: %q needs name, source and target", line)
		list = append(list, listed{f[0], f[1], f[2], strings.Join(f[3:], " ")})
	}
	require.NotEmpty(t, list)
	return list
}

var includeLine = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]*"([^"]*)"`)

// withIncludes adds file and all it includes to seen.
func withIncludes(t *testing.T, file string, seen map[string][]byte) {
	t.Helper()
	if _, done := seen[file]; done {
		return
	}
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	seen[file] = raw
	for _, m := range includeLine.FindAllStringSubmatch(string(raw), -1) {
		beside := filepath.ToSlash(filepath.Join(filepath.Dir(file), m[1]))
		if _, err := os.Stat(beside); err == nil {
			withIncludes(t, beside, seen)
		} else {
			withIncludes(t, "include/"+m[1], seen)
		}
	}
}

// sourceHash is the hash that tools/glslc.sh records: of what sha256sum prints for the source and its includes, sorted by name.
func sourceHash(t *testing.T, source string) string {
	t.Helper()
	seen := map[string][]byte{}
	withIncludes(t, source, seen)
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(seen[name]), name)
	}
	return hex.EncodeToString(all.Sum(nil))
}

func TestEveryListedModuleIsCurrent(t *testing.T) {
	for _, m := range buildList(t) {
		t.Run(m.name, func(t *testing.T) {
			info, err := Describe(m.name)
			require.NoError(t, err, "listed in modules.txt but not compiled: run tools/glslc.sh")
			assert.Equal(t, m.source, info.Source)
			assert.Equal(t, m.env, info.TargetEnv, "the target changed: run tools/glslc.sh")
			assert.Equal(t, m.defines, info.Defines, "the defines changed: run tools/glslc.sh")
			assert.Equal(t, sourceHash(t, m.source), info.SourceSHA256, "%s or an include changed: run tools/glslc.sh", m.source)
			hash, err := Hash(m.name)
			require.NoError(t, err)
			assert.Equal(t, info.SPIRVSHA256, hash, "the SPIR-V is not what the manifest describes: run tools/glslc.sh")
			words, err := Module(m.name)
			require.NoError(t, err)
			assert.Greater(t, len(words), 5)
		})
	}
}

func TestNothingUnlistedIsEmbedded(t *testing.T) {
	var want []string
	for _, m := range buildList(t) {
		want = append(want, m.name)
	}
	slices.Sort(want)
	assert.Equal(t, want, Names())
	var infos []Info
	require.NoError(t, json.Unmarshal(manifestJSON, &infos))
	assert.Len(t, infos, len(want), "manifest.json and modules.txt differ: run tools/glslc.sh")
}

func TestUnknownModule(t *testing.T) {
	_, err := Module("no_such_kernel.f32")
	assert.ErrorIs(t, err, ErrUnknownModule)
	assert.ErrorContains(t, err, "no_such_kernel.f32")
	_, err = Describe("no_such_kernel.f32")
	assert.True(t, errors.Is(err, ErrUnknownModule))
	_, err = Hash("no_such_kernel.f32")
	assert.ErrorIs(t, err, ErrUnknownModule)
}

// spirvVal returns the command that runs spirv-val, from PATH or from the folder tools/glslc.sh unpacks.
func spirvVal(t *testing.T) []string {
	t.Helper()
	cache := os.Getenv("VKATTN_CACHE")
	if user, err := os.UserCacheDir(); err == nil && cache == "" {
		cache = filepath.Join(user, "vkattn")
	}
	if cache != "" {
		dir := filepath.Join(cache, "glslc")
		tool := filepath.Join(dir, "usr", "bin", "spirv-val")
		if _, err := os.Stat(tool); err == nil {
			return []string{filepath.Join("..", "tools", "run-unpacked.sh"), dir, tool}
		}
	}
	if path, err := exec.LookPath("spirv-val"); err == nil {
		return []string{path}
	}
	t.Skip("spirv-val is neither on PATH nor unpacked by tools/glslc.sh")
	return nil
}

func TestValid(t *testing.T) {
	cmd := spirvVal(t)
	for _, m := range buildList(t) {
		t.Run(m.name, func(t *testing.T) {
			args := append(slices.Clone(cmd[1:]), "--target-env", m.env, "spv/"+m.name+".spv")
			out, err := exec.Command(cmd[0], args...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Empty(t, string(out))
		})
	}
}

// TestFloatControls: each module is valid with what devices offer of float controls, and only fp16 modules ask.
func TestFloatControls(t *testing.T) {
	cmd := spirvVal(t)
	for name, f := range map[string]vk.FloatControls{
		"all":         {RoundingRTE16: true, DenormPreserve16: true, SignedZeroInfNan16: true, DenormIndependence: vk.IndependenceAll, RoundingIndependence: vk.IndependenceAll},
		"no denormal": {RoundingRTE16: true, SignedZeroInfNan16: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, m := range buildList(t) {
				code, err := Module(m.name)
				require.NoError(t, err)
				asked := vk.WithFloatControls16(code, f)
				_, variant, _ := strings.Cut(m.name, ".")
				if !strings.HasPrefix(variant, "f16") {
					require.Equal(t, code, asked, m.name)
				} else if strings.Contains(m.name, "_forward") {
					require.NotEqual(t, code, asked, m.name)
				}
				raw := make([]byte, 0, 4*len(asked))
				for _, w := range asked {
					raw = binary.LittleEndian.AppendUint32(raw, w)
				}
				file := filepath.Join(t.TempDir(), m.name+".spv")
				require.NoError(t, os.WriteFile(file, raw, 0o600))
				out, err := exec.Command(cmd[0], append(slices.Clone(cmd[1:]), "--target-env", m.env, file)...).CombinedOutput()
				require.NoError(t, err, "%s: %s", m.name, out)
			}
		})
	}
}

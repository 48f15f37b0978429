package shaders_test

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
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/vkattn/vkattn/shaders"
	"github.com/vkattn/vkattn/shaders/counting"
	"github.com/vkattn/vkattn/vk"
)

// listed is one line of a modules.txt.
type listed struct{ name, source, env, defines string }

// sets are the build lists by folder, with the modules that come of them.
func sets(t *testing.T) map[string]*shaders.Set {
	shipped, err := os.ReadFile("manifest.json")
	require.NoError(t, err)
	return map[string]*shaders.Set{".": shaders.NewSet(os.DirFS("."), shipped), "counting": counting.Modules}
}

func buildList(t *testing.T, folder string) []listed {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, "modules.txt"))
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
	for folder, set := range sets(t) {
		for _, m := range buildList(t, folder) {
			t.Run(filepath.Join(folder, m.name), func(t *testing.T) { current(t, set, m) })
		}
	}
}

func current(t *testing.T, set *shaders.Set, m listed) {
	info, err := set.Describe(m.name)
	require.NoError(t, err, "listed in modules.txt but not compiled: run tools/glslc.sh")
	assert.Equal(t, m.source, info.Source)
	assert.Equal(t, m.env, info.TargetEnv, "the target changed: run tools/glslc.sh")
	assert.Equal(t, m.defines, info.Defines, "the defines changed: run tools/glslc.sh")
	assert.Equal(t, sourceHash(t, m.source), info.SourceSHA256, "%s or an include changed: run tools/glslc.sh", m.source)
	words, err := set.Module(m.name)
	require.NoError(t, err)
	assert.Greater(t, len(words), 5)
	hash := sha256.Sum256(raw(words))
	assert.Equal(t, info.SPIRVSHA256, hex.EncodeToString(hash[:]), "the SPIR-V is not what the manifest describes: run tools/glslc.sh")
}

// raw is a module as it stands in a file.
func raw(words []uint32) []byte {
	out := make([]byte, 0, 4*len(words))
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

// TestLinesFit: a line of GLSL is read without scrolling.
func TestLinesFit(t *testing.T) {
	const most = 140
	for _, pattern := range []string{"*/*.comp", "include/*.glsl", "../flash/score/testdata/*.comp", "../examples/*/*.comp"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for i, line := range strings.Split(string(text), "\n") {
				assert.LessOrEqual(t, utf8.RuneCountInString(line), most, "%s:%d", file, i+1)
			}
		}
	}
}

// TestEverySourceIsListed: no shader lies in a family's folder that nobody compiles.
func TestEverySourceIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range buildList(t, ".") {
		listed[m.source] = true
	}
	sources, err := filepath.Glob("*/*.comp")
	require.NoError(t, err)
	require.Len(t, sources, len(listed))
	for _, s := range sources {
		assert.True(t, listed[filepath.ToSlash(s)], s)
	}
}

func TestNothingUnlistedIsEmbedded(t *testing.T) {
	for folder, set := range sets(t) {
		var want []string
		for _, m := range buildList(t, folder) {
			want = append(want, m.name)
		}
		slices.Sort(want)
		assert.Equal(t, want, set.Names())
		raw, err := os.ReadFile(filepath.Join(folder, "manifest.json"))
		require.NoError(t, err)
		var infos []shaders.Info
		require.NoError(t, json.Unmarshal(raw, &infos))
		assert.Len(t, infos, len(want), "%s/manifest.json and modules.txt differ: run tools/glslc.sh", folder)
	}
}

// The package's functions give what stands in its folder.
func TestShipped(t *testing.T) {
	set := sets(t)["."]
	require.Equal(t, set.Names(), shaders.Names())
	for _, name := range shaders.Names() {
		for _, same := range []func(*shaders.Set) (any, any, error){
			func(s *shaders.Set) (any, any, error) {
				a, _ := s.Module(name)
				b, err := shaders.Module(name)
				return a, b, err
			},
			func(s *shaders.Set) (any, any, error) {
				a, _ := s.Describe(name)
				b, err := shaders.Describe(name)
				return a, b, err
			},
		} {
			want, got, err := same(set)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
}

// A counting module is its namesake with COUNT, the binding after the last.
func TestCountingModulesAreNamesakes(t *testing.T) {
	shipped := map[string]listed{}
	for _, m := range buildList(t, ".") {
		shipped[m.name] = m
	}
	for _, m := range buildList(t, "counting") {
		var defines []string
		for _, d := range strings.Fields(m.defines) {
			if !strings.HasPrefix(d, "-DCOUNT=") {
				defines = append(defines, d)
			}
		}
		require.NotEqual(t, strings.Fields(m.defines), defines, m.name)
		m.defines = strings.Join(defines, " ")
		require.Equal(t, shipped[m.name], m)
	}
}

// TestManifestByLines: what is read of a manifest by lines is what is in it, and one that does not have a line for each module is refused.
func TestManifestByLines(t *testing.T) {
	raw, err := os.ReadFile("manifest.json")
	require.NoError(t, err)
	var whole []shaders.Info
	require.NoError(t, json.Unmarshal(raw, &whole))
	require.Len(t, whole, len(shaders.Names()))
	set := shaders.NewSet(os.DirFS("."), raw)
	for range 2 {
		for _, want := range whole {
			got, err := set.Describe(want.Name)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	for manifest, want := range map[string]string{
		"[\n{\"source\":\"a\"}\n]\n":                  "line 2 does not begin with the name",
		"[\n{\"name\":\"a\",\"source\":1},\n]\n":      `module "a": json`,
		"[\n{\"name\":\"a\",\"source\":\"b\"\n}\n]\n": "line 3 does not begin",
	} {
		_, err := shaders.NewSet(os.DirFS("."), []byte(manifest)).Describe("a")
		require.ErrorContains(t, err, want)
	}
}

func TestUnknownModule(t *testing.T) {
	_, err := shaders.Module("no_such_kernel.f32")
	assert.ErrorIs(t, err, shaders.ErrUnknownModule)
	assert.ErrorContains(t, err, "no_such_kernel.f32")
	_, err = shaders.Describe("no_such_kernel.f32")
	assert.True(t, errors.Is(err, shaders.ErrUnknownModule))
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
	for folder, set := range sets(t) {
		for i, m := range buildList(t, folder) {
			t.Run(filepath.Join(folder, m.name), func(t *testing.T) {
				if testing.Short() && i%8 != 0 {
					t.Skip("not with -short (make test-all runs it): each that tools/glslc.sh compiles has passed spirv-val there")
				}
				words, err := set.Module(m.name)
				require.NoError(t, err)
				file := filepath.Join(t.TempDir(), "module.spv")
				require.NoError(t, os.WriteFile(file, raw(words), 0o600))
				args := append(slices.Clone(cmd[1:]), "--target-env", m.env, file)
				out, err := exec.Command(cmd[0], args...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				assert.Empty(t, string(out))
			})
		}
	}
}

// TestFloatControls: each module is valid with what devices offer of float controls, and only fp16 modules ask.
func TestFloatControls(t *testing.T) {
	cmd := spirvVal(t)
	for name, f := range map[string]vk.FloatControls{
		"all": {RoundingRTE16: true, DenormPreserve16: true, SignedZeroInfNan16: true, DenormIndependence: vk.IndependenceAll,
			RoundingIndependence: vk.IndependenceAll},
		"no denormal": {RoundingRTE16: true, SignedZeroInfNan16: true},
	} {
		t.Run(name, func(t *testing.T) {
			for i, m := range buildList(t, ".") {
				code, err := shaders.Module(m.name)
				require.NoError(t, err)
				asked := vk.WithFloatControls16(code, f)
				_, variant, _ := strings.Cut(m.name, ".")
				if !strings.HasPrefix(variant, "f16") {
					require.Equal(t, code, asked, m.name)
					continue // TestValid has it
				} else if strings.Contains(m.name, "_forward") {
					require.NotEqual(t, code, asked, m.name)
				}
				if testing.Short() && i%4 != 0 { // spirv-val reads for half a second each
					continue
				}
				file := filepath.Join(t.TempDir(), m.name+".spv")
				require.NoError(t, os.WriteFile(file, raw(asked), 0o600))
				out, err := exec.Command(cmd[0], append(slices.Clone(cmd[1:]), "--target-env", m.env, file)...).CombinedOutput()
				require.NoError(t, err, "%s: %s", m.name, out)
			}
		})
	}
}

// The compiled module uses no constant that the manifest does not name, and no name stands for two.
func TestInterfacesCoverModules(t *testing.T) {
	for folder, set := range sets(t) {
		for _, name := range set.Names() {
			info, err := set.Describe(name)
			require.NoError(t, err)
			words, err := set.Module(name)
			require.NoError(t, err)
			used, err := shaders.SpecIDs(words)
			require.NoError(t, err)
			require.NotEmpty(t, used, "%s/%s: its workgroup's size at least", folder, name)
			var declared []uint32
			for _, id := range info.Interface.Constants {
				declared = append(declared, id)
			}
			slices.Sort(declared)
			require.Equal(t, declared, slices.Compact(slices.Clone(declared)), name)
			require.Subset(t, declared, used, "%s/%s", folder, name)
			require.Positive(t, info.Interface.BindingCount(), name)
		}
	}
}

// What is not SPIR-V, or has lost its names, has no interface.
func TestReadInterfaceRefuses(t *testing.T) {
	_, err := shaders.ReadInterface(nil)
	require.ErrorContains(t, err, "not a SPIR-V module")
	words, err := shaders.Module("scalar_forward.f16")
	require.NoError(t, err)
	_, err = shaders.ReadInterface(words[:6]) // in the middle of the first instruction
	require.ErrorContains(t, err, "beyond the module")
	_, err = shaders.ReadInterface(words) // as it ships, optimised
	require.ErrorContains(t, err, "has no name")
}

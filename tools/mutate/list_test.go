package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestMutantsApply: what a mutant replaces is in the tree exactly once, so that the list cannot rot; and what it says of itself is
// there: modules that are compiled of the file, tests of that name.
func TestMutantsApply(t *testing.T) {
	ids := map[string]bool{}
	functions := map[string][]string{} // tests by package
	for _, m := range Mutants() {
		t.Run(m.ID, func(t *testing.T) {
			require.Regexp(t, `^[a-z0-9]+(-[a-z0-9]+)*$`, m.ID)
			require.False(t, ids[m.ID], "another mutant has this id")
			ids[m.ID] = true
			require.Equal(t, 1, strings.Count(readFile(t, m.File), m.Old), "times that %q is in %s", m.Old, m.File)
			require.NotEqual(t, m.Old, m.New)
			require.NotEmpty(t, m.Breaks)
			require.Equal(t, isShader(m.File), m.Modules != "", "Modules, the shader modules to compile")
			for _, beginning := range strings.Fields(m.Modules) {
				require.Contains(t, modulesOf(t, m.File), beginning, "no module's name that begins with %s is compiled of %s",
					beginning, m.File)
			}
			require.NotEmpty(t, m.Kill)
			for _, k := range m.Kill {
				if functions[k.Package] == nil {
					functions[k.Package] = testsOf(t, k.Package)
				}
				top, _, _ := strings.Cut(k.Run, "/")
				pattern, err := regexp.Compile(top)
				require.NoError(t, err)
				require.True(t, slices.ContainsFunc(functions[k.Package], pattern.MatchString), "%s has no test %s", k.Package, top)
			}
		})
	}
}

// readFile gives the text of a file below the repository's root.
func readFile(t *testing.T, path string) string {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	require.NoError(t, err)
	return string(data)
}

// modulesOf gives every beginning of the names of the modules that a shader is a part of.
func modulesOf(t *testing.T, file string) map[string]bool {
	out := map[string]bool{}
	for line := range strings.Lines(readFile(t, "shaders/modules.txt")) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" || !includes(t, "shaders/"+words[1], file) {
			continue
		}
		for n := range words[0] {
			out[words[0][:n+1]] = true
		}
	}
	return out
}

var includeLine = regexp.MustCompile(`(?m)^\s*#\s*include\s*"([^"]*)"`)

// included holds what shaders include themselves.
var included = map[string][]string{}

// includes says whether a shader is a file or includes it, at any depth.
func includes(t *testing.T, source, file string) bool {
	if source == file {
		return true
	}
	if _, ok := included[source]; !ok {
		included[source] = []string{}
		for _, line := range includeLine.FindAllStringSubmatch(readFile(t, source), -1) {
			included[source] = append(included[source], "shaders/include/"+line[1])
		}
	}
	return slices.ContainsFunc(included[source], func(s string) bool { return includes(t, s, file) })
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// testsOf are the names of a package's tests.
func testsOf(t *testing.T, pkg string) (names []string) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range testFunction.FindAllSubmatch(data, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}

// TestTableReadsBack: an interrupted run goes on with what was written.
func TestTableReadsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mutants.md")
	empty, err := readTable(path)
	require.NoError(t, err)
	require.Empty(t, empty.rows)
	some := Mutants()[:3]
	killer := some[0].Kill[0]
	empty.rows[some[0].ID] = tableRow{"killed by flash TestA/x|y", 12, "2026-01-02 abc"}
	empty.rows[some[2].ID] = tableRow{survivedPrefix + " all tests of ./flash", 3, "2026-01-02 abc"}
	empty.rows["no-such-mutant"] = tableRow{verdict: "is left out"}
	empty.sound[killer.String()] = 4
	empty.sound["flash TestNobodyExpects"] = 5
	require.NoError(t, empty.write(path))
	again, err := readTable(path)
	require.NoError(t, err)
	delete(empty.rows, "no-such-mutant")
	delete(empty.sound, "flash TestNobodyExpects")
	require.Equal(t, empty, again)
	require.NoError(t, os.WriteFile(path, []byte("| something | else |\n"), 0o644))
	_, err = readTable(path)
	require.ErrorContains(t, err, "mutants.md:1")
}

// TestReadOutput: what go test -json prints becomes the innermost test that failed, and a build that fails is no kill.
func TestReadOutput(t *testing.T) {
	line := func(action, test, output string) string {
		return `{"Action":"` + action + `","Package":"` + module + `/flash","Test":"` + test + `","Output":"` + output + `"}` + "\n"
	}
	for name, c := range map[string]struct {
		text, says string
		passed     int
	}{
		"passes": {line("pass", "TestA/x", "") + line("skip", "TestA/y", "") + line("pass", "TestA", "") + line("pass", "", ""),
			"killed by ", 1},
		"skips": {line("skip", "TestA/y", "") + line("pass", "TestA", ""), "killed by ", 0},
		"fails": {line("fail", "TestA/x/1", "") + line("fail", "TestA/x", "") + line("fail", "TestA", "") + line("fail", "", ""),
			"killed by flash TestA/x/1", 0},
		"hangs": {line("output", "TestA", `panic: test timed out after 5m0s\n`) + line("fail", "TestA", "") + line("fail", "", ""),
			"timed out in flash TestA", 0},
		"crashes": {line("output", "", `signal: segmentation fault\n`) + line("fail", "", ""), "crashed (segmentation fault) in flash",
			0},
		"ends with": {line("pass", "TestA", "") + line("fail", "", ""), "killed by flash", 1},
	} {
		o, broken := read(bytes.NewBufferString(c.text))
		require.Empty(t, broken, name)
		require.Equal(t, c.says, o.String(), name)
		require.Equal(t, c.passed, o.passed, name)
		require.Equal(t, c.says != "killed by ", o.failed(), name)
	}
	_, broken := read(bytes.NewBufferString(`{"Action":"fail","Package":"x","FailedBuild":"x [x.test]"}`))
	require.Equal(t, "x [x.test]", broken)
}

func TestChoose(t *testing.T) {
	all := Mutants()
	require.Greater(t, len(all), 40)
	got, err := choose(all, all[3].ID+","+all[1].ID)
	require.NoError(t, err)
	require.Equal(t, []string{all[3].ID, all[1].ID}, []string{got[0].ID, got[1].ID})
	_, err = choose(all, "nonsense")
	require.ErrorContains(t, err, `no mutant "nonsense"`)
	_, err = parse([]string{"--whole", "--expected"})
	require.Error(t, err)
	_, err = parse([]string{"rest"})
	require.Error(t, err)
}

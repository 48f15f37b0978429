package house

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestResultsNameNoPlaces: recorded results have the commands that made them, and not where on some machine these ran.
func TestResultsNameNoPlaces(t *testing.T) {
	place := regexp.MustCompile(`/(root|home|work|Users)/[^\s"]*|/tmp/[^\s"]*`)
	files := 0
	require.NoError(t, filepath.WalkDir("../../testdata/results", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files++
		if found := place.Find(text); found != nil {
			t.Errorf("%s: %s", path, found)
		}
		return err
	}))
	require.NotZero(t, files)
}

// TestScriptsNameWhatIsThere: packages and files of the tree that scripts name are where they say, so that one that moves takes them along.
func TestScriptsNameWhatIsThere(t *testing.T) {
	scripts, err := filepath.Glob(root + "/tools/*.sh")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?:\./|\$top/|\$root/)((?:cmd|examples|flash|internal|pipeline|shaders|tools|vk)(?:/[\w.-]+)*)`)
	found := 0
	for _, path := range append(scripts, root+"/Makefile") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(m[1], "/..."))); err != nil {
				t.Errorf("%s: %v", strings.TrimPrefix(path, root+"/"), err)
			}
		}
	}
	require.Greater(t, found, 20)
}

// TestValidatedPackages: tools/validate.sh has a folder of tests for every package that it knows.
func TestValidatedPackages(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil || runtime.GOOS == "windows" {
		t.Skip("bash is needed")
	}
	text, err := os.ReadFile(root + "/tools/validate.sh")
	require.NoError(t, err)
	folder := regexp.MustCompile(`(?m)^folder\(\) .*$`).Find(text)
	packages := regexp.MustCompile(`(?m)^packages="([^"]*)"`).FindSubmatch(text)
	require.NotNil(t, packages)
	script := "top=" + root + "\n" + string(folder) + "\nfor p in " + string(packages[1]) + `; do folder "$p"; done`
	out, err := exec.Command(bash, "-c", script).Output()
	require.NoError(t, err)
	folders := strings.Fields(string(out))
	require.Len(t, folders, len(strings.Fields(string(packages[1]))))
	for _, path := range folders {
		tests, err := filepath.Glob(path + "/*_test.go")
		require.NoError(t, err)
		require.NotEmpty(t, tests, path)
	}
}

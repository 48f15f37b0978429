package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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

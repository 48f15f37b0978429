package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
)

// fewRows is a page with hardly a figure, and one map.
func fewRows(t *testing.T) *Page {
	t.Helper()
	f := synthetic(t, "synthetic.jsonl")
	f[0].Rows = f[0].Rows[:8]
	f[0].Maps = []result.Picture{{Title: "Map", PNG: []byte("map")}}
	p, err := NewPage(f, nil)
	require.NoError(t, err)
	return p
}

// write puts a file into a folder that may not exist.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

// TestReportLeavesOthersFigures: in a folder without a page, files of the names of figures are somebody else's: they stay, and where the
// report has such a figure, it writes nothing. Beside a page those that are not its own stay too.
func TestReportLeavesOthersFigures(t *testing.T) {
	p := fewRows(t)
	pictures, err := p.pictures()
	require.NoError(t, err)
	require.NotContains(t, pictures, "map.svg")
	dir := t.TempDir()
	mine := []string{filepath.Join(dir, "figures", "attention-diagram.png"), filepath.Join(dir, "figures", "attention-2.png"),
		filepath.Join(dir, "figures", "map.svg")}
	for _, path := range mine {
		write(t, path, "mine")
	}
	taken := filepath.Join(dir, "figures", "attention-1.png")
	write(t, taken, "mine")
	_, err = p.WritePage(dir, "md")
	require.ErrorContains(t, err, taken+" is no figure of a page that this program made, and is left as it is")
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
	for _, path := range append(mine, taken) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "mine", string(text), path)
	}

	require.NoError(t, os.Remove(taken))
	_, err = p.WritePage(dir, "md")
	require.NoError(t, err)
	for _, path := range mine {
		require.FileExists(t, path)
	}
	_, err = p.WritePage(dir, "html") // what is named as figures are is now an earlier report's
	require.NoError(t, err)
	require.FileExists(t, mine[0])
	require.NoFileExists(t, mine[1])
	require.NoFileExists(t, mine[2])
	require.FileExists(t, taken)
}

// TestReportThatIsCutShort: a page is written whole or not at all, before its figures; whatever is missing, the next report replaces it.
func TestReportThatIsCutShort(t *testing.T) {
	p := fewRows(t)
	dir := t.TempDir()
	figures := filepath.Join(dir, "figures")
	require.NoError(t, os.MkdirAll(filepath.Join(figures, "attention-1.png"), 0o755)) // in the way
	write(t, filepath.Join(dir, "index.html"), pageMark)
	_, err := p.WritePage(dir, "md")
	require.ErrorContains(t, err, "attention-1.png")
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(text), pageMark))

	// Whoever has the old page keeps it whole; a new one has the mode of the old one, and no temporary file stays.
	require.NoError(t, os.Remove(filepath.Join(figures, "attention-1.png")))
	require.NoError(t, os.Chmod(filepath.Join(dir, "README.md"), 0o640))
	kept := filepath.Join(dir, "kept")
	require.NoError(t, os.Link(filepath.Join(dir, "README.md"), kept))
	before, err := os.Stat(kept)
	require.NoError(t, err)
	path, err := p.WritePage(dir, "md")
	require.NoError(t, err)
	after, err := os.Stat(path)
	require.NoError(t, err)
	require.False(t, os.SameFile(before, after))
	require.Equal(t, before.Mode(), after.Mode())
	for _, folder := range []string{dir, figures} {
		left, err := filepath.Glob(filepath.Join(folder, "*.tmp"))
		require.NoError(t, err)
		require.Empty(t, left)
	}
	usual, err := os.Stat(filepath.Join(figures, "attention-1.png"))
	require.NoError(t, err)
	write(t, filepath.Join(dir, "new"), "")
	like, err := os.Stat(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.Equal(t, like.Mode(), usual.Mode(), "others may read figures as they may any new file")
}

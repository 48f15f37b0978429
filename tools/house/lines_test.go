// Package house holds tests of the tree as a whole.
package house

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// goFiles gives the paths of all Go files, from the root.
func goFiles(t *testing.T) (paths []string) {
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			paths = append(paths, path)
		}
		return nil
	}))
	require.Greater(t, len(paths), 500)
	return paths
}

// TestLinesFit: no line of Go is wider than 140 columns, a tab being four. What a test quotes between
// backquotes, or shows as an example in a comment, is as wide as it is.
func TestLinesFit(t *testing.T) {
	const columns, tab = 140, 4
	for _, path := range goFiles(t) {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		quoted := map[int]bool{}
		if strings.HasSuffix(path, "_test.go") {
			quoted = rawLines(source)
		}
		for i, line := range strings.Split(string(source), "\n") {
			width := utf8.RuneCountInString(line) + (tab-1)*strings.Count(line, "\t")
			if width > columns && !quoted[i+1] {
				t.Errorf("%s:%d: %d columns", strings.TrimPrefix(path, root+"/"), i+1, width)
			}
		}
	}
}

// rawLines gives the lines that a raw string or a comment with an example in it stands on.
func rawLines(source []byte) map[int]bool {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, scanner.ScanComments)
	lines := map[int]bool{}
	for {
		at, kind, text := s.Scan()
		switch {
		case kind == token.EOF:
			return lines
		case kind == token.STRING && text[0] == '`', kind == token.COMMENT && strings.HasPrefix(text, "//\t"):
			first := file.Line(at)
			for i := range strings.Count(text, "\n") + 1 {
				lines[first+i] = true
			}
		}
	}
}

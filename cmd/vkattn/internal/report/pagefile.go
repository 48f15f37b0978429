package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/report/figure"
	"github.com/vkattn/vkattn/internal/diskfile"
)

// pageMark ends every page, so that a later report knows it as one. It is a comment in HTML and in Markdown.
const pageMark = "<!-- made by vkattn report, which replaces this file -->\n"

// replaceable refuses a file that exists and is no page of a report: index.html and README.md are names that folders of other things
// have too.
func replaceable(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (len(data) == 0 || bytes.HasSuffix(data, []byte(pageMark))) {
		return nil
	}
	if err != nil {
		return err
	}
	return others(path, "page")
}

// others is the error of a file that is left as it is.
func others(path, what string) error {
	return fmt.Errorf("%s is no %s that this program made, and is left as it is: name another folder, or remove it", path, what)
}

// reported says whether a folder has the page of an earlier report, of either format: what is named as figures are is then such a figure.
func reported(dir string) bool {
	return slices.ContainsFunc([]string{"index.html", "README.md"}, func(name string) bool {
		data, err := os.ReadFile(filepath.Join(dir, name))
		return err == nil && bytes.HasSuffix(data, []byte(pageMark))
	})
}

// isPicture says whether reports name a picture so.
func isPicture(name string) bool {
	if number, ok := strings.CutPrefix(name, "attention-"); ok {
		number, ok = strings.CutSuffix(number, ".png")
		return ok && number != "" && strings.Trim(number, "0123456789") == ""
	}
	ending := filepath.Ext(name)
	return (ending == ".svg" || ending == ".png") && slices.Contains(figure.Files(), strings.TrimSuffix(name, ending))
}

// writeReport writes a page with its mark, and its pictures in place of an earlier report's. The page comes first: where the rest is cut
// short, its mark tells the next report whose the pictures are.
func writeReport(dir, path string, text []byte, pictures map[string][]byte) error {
	folder := filepath.Join(dir, "figures")
	names := slices.Sorted(maps.Keys(pictures))
	old := reported(dir)
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil && !old {
			return others(filepath.Join(folder, name), "figure of a page")
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := put(path, append(text, pageMark...)); err != nil {
		return err
	}
	for _, name := range names {
		if err := put(filepath.Join(folder, name), pictures[name]); err != nil {
			return err
		}
	}
	if !old {
		return nil
	}
	found, err := os.ReadDir(folder)
	for _, e := range found {
		if _, drawn := pictures[e.Name()]; !drawn && isPicture(e.Name()) {
			err = errors.Join(err, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	return err
}

// put makes a file hold data, or leaves what it held where there is no room. Unlike the temporary file that takes its place, others may
// read it, if they might before or the process makes such files; and a link stays one.
func put(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	if err := diskfile.Replace(path, data); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm())
}

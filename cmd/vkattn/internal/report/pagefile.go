package report

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	return fmt.Errorf("%s is no page that this program made, and is left as it is: name another folder, or remove it", path)
}

// writePage writes a page with its mark.
func writePage(path string, text []byte) error {
	return os.WriteFile(path, append(text, pageMark...), 0o644)
}

package bench

import (
	"errors"
	"os"
)

// Picture is a line of a result file that vkattn map adds: a picture that a report shows beside its figures.
type Picture struct {
	Title   string   `json:"map"`
	Caption []string `json:"caption,omitempty"`
	PNG     []byte   `json:"png"`
}

// AppendPicture adds a picture to a result file, which must be one.
func AppendPicture(path string, p Picture) error {
	old, err := ReadFile(path)
	if err != nil {
		return err
	}
	if old.Cut > 0 {
		return errors.New(path + ": its last line was cut off: vkattn bench --append repairs it")
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	return errors.Join(NewWriter(file).Line(p), file.Close())
}

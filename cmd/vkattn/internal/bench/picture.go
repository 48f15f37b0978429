package bench

import (
	"encoding/json"
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
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	text := append(line, '\n')
	if old.Cut > 0 {
		return errors.Join(errors.New(path+": its last line was cut off: vkattn bench --append repairs it"), file.Close())
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

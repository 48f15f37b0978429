package catalogue

import (
	"fmt"

	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// ParseTiles reads a file of tiles and checks what only the kernels know: parameters that tune measured.
func ParseTiles(path, text string) (*tiles.Family, error) {
	f, err := tiles.Parse(path, text)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Own() {
		if r.Source != tiles.Tuned {
			continue
		}
		why := error(&kernel.Declined{Why: "there are no tuned tiles of this kernel"})
		for _, k := range Forward {
			if k.Name == r.Kernel && k.Candidates != nil {
				why = kernel.NewTuning(r.Values).Fits(&k.Offer)
			}
		}
		if why != nil {
			return nil, &tiles.Error{File: path, Line: r.Line, What: fmt.Sprintf("%s: %v", r.Kernel, why)}
		}
	}
	return f, nil
}

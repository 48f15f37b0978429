package flash

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
)

// WithTiles reads a file of tiles, in the format of internal/tiles and of `vkattn tune --export`. Its rows go before the built-in ones;
// rows in it that tune measured go before the user's tuning file as well. Errors name file and line; a file for other devices is an error.
func WithTiles(path string) DeviceOption {
	return func(o *deviceOptions) error {
		if path == "" {
			return badArgument("WithTiles", `""`, "must name a file")
		}
		o.tiles = path
		return nil
	}
}

// readTiles reads a file of tiles; nil where the options name none.
func (o *deviceOptions) readTiles() (*tiles.Family, error) {
	if o.tiles == "" {
		return nil, nil
	}
	file, err := os.Open(o.tiles)
	if err != nil {
		return nil, fmt.Errorf("flash: tiles: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, tiles.MostBytes+1))
	if err != nil {
		return nil, fmt.Errorf("flash: tiles: %w", err)
	}
	f, err := parseTiles(o.tiles, string(text))
	if err != nil {
		return nil, fmt.Errorf("flash: tiles: %w", err)
	}
	return f, nil
}

// parseTiles reads a file of tiles and checks what only the kernels know: parameters that tune measured.
func parseTiles(path, text string) (*tiles.Family, error) {
	f, err := tiles.Parse(path, text)
	if err != nil {
		return nil, err
	}
	for _, r := range f.Own() {
		if r.Source != tiles.Tuned {
			continue
		}
		why := error(&kernel.Declined{Why: "there are no tuned tiles of this kernel"})
		for _, k := range kernels {
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

// ExportTiles gives what the user's tuning file has for this device and driver as a file of tiles, which WithTiles reads on devices like
// it.
func (d *Device) ExportTiles() (_ string, err error) {
	defer during("ExportTiles", &err)
	if d == nil || d.dev == nil {
		return "", d.usable()
	}
	entries, err := StoredTunings()
	if err != nil {
		return "", err
	}
	return d.exportTiles(entries)
}

func (d *Device) exportTiles(entries []TuningEntry) (string, error) {
	var rows []*tiles.Row
	mine := d.tuningKey("", &attn.Problem{})
	for _, e := range entries {
		if e.Device != mine.Device || e.Driver != mine.Driver || e.Build != mine.Build || len(e.Tuning) == 0 {
			continue
		}
		row, err := e.row()
		if err != nil {
			return "", err
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("flash: no tiles are stored that were measured on %s with the driver %s: vkattn tune measures some",
			mine.Device, mine.Driver)
	}
	f := tiles.New(familyName(mine.Device), tiles.Exactly(d.env.Caps.TilesDevice()), rows)
	title := fmt.Sprintf("# %s, driver %s: measured by vkattn tune.", mine.Device, mine.Driver)
	text := strings.Join(strings.Fields(title), " ") + "\n" + f.Text()
	if _, err := parseTiles("the text", text); err != nil { // somebody edited it
		return "", fmt.Errorf("flash: an entry of the tuning file is no row of tiles: %w", err)
	}
	return text, nil
}

// familyName makes a family's name of a device's.
func familyName(device string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, device)
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' }), "-")
	return strings.Trim(name[:min(len(name), 60)]+"-tuned", "-")
}

// row is an entry of the tuning file as a row of tiles.
func (e *TuningEntry) row() (*tiles.Row, error) {
	r := &tiles.Row{Kernel: e.Kernel, Source: tiles.Tuned, Values: e.Tuning, Note: fmt.Sprintf("%s, %.2f × the built-in choice: %s", e.Tile,
		e.Gain, e.Problem)}
	w := &r.When
	w.HeadDim, w.ValueDim, w.Mask = e.HeadDim, e.ValueDim, "none"
	if e.Causal {
		w.Mask = "causal"
	}
	if e.Window {
		w.Mask = "window"
	}
	for _, t := range []DType{F32, F16, BF16} {
		if t.String() == e.DType {
			w.DType = attn.DType(t).Suffix()
		}
	}
	switch e.Queries {
	case queryClass(1):
		w.MostQueries = mostFewQueries
	case queryClass(mostFewQueries + 1):
		w.LeastQueries, w.MostQueries = mostFewQueries+1, mostSomeQueries
	case queryClass(mostSomeQueries + 1):
		w.LeastQueries = mostSomeQueries + 1
	}
	if e.Keys != "" {
		if _, err := fmt.Sscanf(e.Keys, keyClassText, &w.MostKeys); err != nil {
			return nil, fmt.Errorf("flash: tuning file: keys are %q: %w", e.Keys, err)
		}
		if w.MostKeys > leastKeyClass {
			w.LeastKeys = w.MostKeys/2 + 1
		}
	}
	w.Page, w.KeyType, w.ValueType, w.Packed = e.Page, e.KeyType, e.ValueType, e.Packed
	if w.DType == "" || w.LeastQueries+w.MostQueries == 0 {
		return nil, fmt.Errorf("flash: tuning file: no type is called %q, or no class of queries %q", e.DType, e.Queries)
	}
	return r, nil
}

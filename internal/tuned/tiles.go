package tuned

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel/catalogue"
	"github.com/vkattn/vkattn/internal/tiles"
)

// Tiles writes the entries that were measured on the device, with its driver, as a file of tiles for devices like it.
func (d Device) Tiles(entries []Entry) (string, error) {
	var rows []*tiles.Row
	mine := d.Key("", &attn.Problem{})
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
	f := tiles.New(familyName(mine.Device), tiles.Exactly(d.Caps.TilesDevice()), rows)
	title := fmt.Sprintf("# %s, driver %s: measured by vkattn tune.", mine.Device, mine.Driver)
	text := strings.Join(strings.Fields(title), " ") + "\n" + f.Text()
	if _, err := catalogue.ParseTiles("the text", text); err != nil { // somebody edited it
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
	const end = "-tuned"
	return strings.Trim(name[:min(len(name), tiles.MostName-len(end))]+end, "-")
}

// row is an entry of the tuning file as a row of tiles.
func (e *Entry) row() (*tiles.Row, error) {
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
	for _, t := range []attn.DType{attn.F32, attn.F16, attn.BF16} {
		if t.String() == e.DType {
			w.DType = t.Suffix()
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

package flash

import (
	"fmt"
	"io"
	"os"

	"github.com/vkattn/vkattn/internal/kernel/catalogue"
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
	f, err := catalogue.ParseTiles(o.tiles, string(text))
	if err != nil {
		return nil, fmt.Errorf("flash: tiles: %w", err)
	}
	return f, nil
}

package tune

import (
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/tuned"
)

// FileEnv names the environment variable that replaces the tuning file's path; "off" means none.
const FileEnv = tuned.Env

// Key says what an entry of the user's tuning file is for: a device with its driver, a kernel, and a class of problems. [KeyOf] makes it.
type Key = tuned.Key

// Entry is a tile that measured fastest: its Key, and Tuning, parameters by name as [flash.WithTuning] takes them, with what people want to
// know of it (Tile, Gain, TFLOPS, Problem). Plans of such problems take it in place of the built-in choice.
type Entry = tuned.Entry

// File is the path of the user's tuning file, "" when VKATTN_TUNING is off or there is no configuration directory.
func File() string { return tuned.File() }

// Stored gives the entries of the user's tuning file.
func Stored() ([]Entry, error) { return tuned.Stored() }

// Store puts entries into the user's tuning file, in place of those with the same keys. The file is replaced whole, so that a reader never
// sees half of it, and what other processes store at the same moment stays. A file that is damaged is left as it is, and the error says so.
func Store(entries ...Entry) error { return tuned.Store(entries...) }

// Remove takes the entries with these keys out of the user's tuning file.
func Remove(keys ...Key) error { return tuned.Remove(keys...) }

// KeyOf is the key of a problem with a kernel, by its name without a tile, on a device.
func KeyOf(d *flash.Device, kernel string, p flash.Problem) (Key, error) {
	of, err := device(d)
	if err != nil {
		return Key{}, err
	}
	a, err := within.Problem(p)
	if err != nil {
		return Key{}, err
	}
	return of.Key(kernel, &a), nil
}

// ExportTiles gives what the user's tuning file has for this device and driver as a file of tiles, which [flash.WithTiles] reads on devices
// like it.
func ExportTiles(d *flash.Device) (string, error) {
	of, err := device(d)
	if err != nil {
		return "", err
	}
	entries, err := Stored()
	if err != nil {
		return "", err
	}
	return of.Tiles(entries)
}

// device is a device as entries of the tuning file know it.
func device(d *flash.Device) (tuned.Device, error) {
	env, err := within.Env(d)
	if err != nil {
		return tuned.Device{}, err
	}
	return tuned.Device{Caps: &env.Caps, Driver: d.Info().Driver}, nil
}

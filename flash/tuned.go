package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/internal/tiles"
	"github.com/vkattn/vkattn/internal/tuned"
)

// WithoutStoredTuning makes a plan take its tile from rows of tiles, whatever the user's tuning file has.
func WithoutStoredTuning() PlanOption {
	return func(o *planOptions) error { o.noStored = true; return nil }
}

// fit fits a kernel to a problem, with the caller's tuning if there is any, else with what tune measured if that fits, by the caller's file
// of tiles or else by the user's tuning file, else with a row of tiles. note says why what tune measured was left aside.
func (d *Device) fit(k *kernel.Kernel, p *attn.Problem,
	o *planOptions) (prog kernel.Program, t *kernel.Tuning, entry *tuned.Entry, note string, err error) {
	if len(o.tuning) == 0 && !o.noStored && k.Candidates != nil {
		var values map[string]int
		what, row := "", d.env.Caps.TunedRow(k.Name, p)
		if row != nil {
			values, what = row.Values, "tuning of "+row.Place()
		} else if entry, note = d.storedTuning(k.Name, p); entry != nil {
			values, what = entry.Tuning, "stored tuning "+entry.Tile
		}
		if values != nil {
			t = kernel.NewTuning(values)
			if err = t.Fits(&k.Offer); err == nil {
				prog, err = k.Plan(d.env, p, t)
			}
			var no *kernel.Declined
			switch {
			case err == nil && row != nil:
				t.Rows = []*tiles.Row{row}
				return prog, t, nil, "", nil
			case err == nil:
				return prog, t, entry, "", nil
			case !errors.Is(err, ErrArgument) && !errors.As(err, &no):
				return nil, nil, nil, "", err
			}
			note = fmt.Sprintf("%s is left aside: %v", what, err)
		}
	}
	t = kernel.NewTuning(o.tuning)
	if err = t.Fits(&k.Offer); err == nil {
		prog, err = k.Plan(d.env, p, t)
	}
	return prog, t, nil, note, err
}

// storedTuning looks a problem up in the user's tuning file. note says what is wrong with the file.
func (d *Device) storedTuning(kernel string, p *attn.Problem) (entry *tuned.Entry, note string) {
	entry, err := tuned.Find(d.tuned().Key(kernel, p))
	if err != nil {
		d.env.Notices.Say("stored tunings are not used: %v", err)
		return nil, err.Error()
	}
	return entry, ""
}

// tuned is the device as entries of the tuning file know it.
func (d *Device) tuned() tuned.Device { return tuned.Device{Caps: &d.env.Caps, Driver: d.info.Driver} }

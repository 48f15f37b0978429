package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench"
	"github.com/vkattn/vkattn/cmd/vkattn/internal/bench/result"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// doctorFlags are the flags of doctor as given.
type doctorFlags struct {
	device               deviceChoice
	limit                time.Duration
	out                  string
	asJSON, force, quiet bool
}

func newDoctor() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say in one page whether attention works on this machine, how fast it is, and what to do about what is missing",
		Long: `Say in one page whether attention works on this machine's device, how fast it is, and what to do about what is
missing: versions, the device and its driver; the features that attention gains from, and what it costs to do without;
the self-check of every kernel; which kernels and tiles some usual problems get; their speed on random data, as a share
of what the device reaches in arithmetic or in copying; what earlier runs have stored; variables that change any of it.

The outputs that are timed are compared with attention in float64, gradients too. Where there is no device, the page
says which driver to install. It ends with what does not work, one line each with what to do.

Exit status:
  0  everything works, though features may be missing
  1  a self-check or an output is wrong, a kernel fails, or there is no device that can be used
  2  a mistake on the command line`,
		Example: `  vkattn doctor
  vkattn doctor --device 4090 --limit 30s
  vkattn doctor --out doctor.txt     to attach to a report
  vkattn doctor --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	deviceFlags(cmd, &f.device)
	fl.DurationVar(&f.limit, "limit", 10*time.Second, "time for measuring speeds, all together, without compiling kernels: problems that "+
		"would take longer than their share are skipped")
	fl.BoolVar(&f.asJSON, "json", false, "print JSON")
	fl.StringVar(&f.out, "out", "", "text `file` to write, with all details, besides what is printed")
	fl.BoolVar(&f.force, "force", false, "replace the --out file")
	fl.BoolVar(&f.quiet, "quiet", false, "no progress bar")
	return cmd
}

// doctorJSON is the page as data.
type doctorJSON struct {
	VKAttn string    `json:"vkattn"`
	Taken  time.Time `json:"taken"`
	hostJSON
	Error     string        `json:"error,omitempty"` // why no device can be used
	Others    []string      `json:"other_devices,omitempty"`
	Device    *deviceJSON   `json:"device,omitempty"`
	Abilities []abilityJSON `json:"abilities,omitempty"`
	Choices   []choiceJSON  `json:"choices,omitempty"`
	Rows      []result.Row  `json:"rows,omitempty"`
	Stored    *storedJSON   `json:"stored,omitempty"`
	Wrong     []findingJSON `json:"wrong,omitempty"`  // what does not work
	Advice    []findingJSON `json:"advice,omitempty"` // what works, and could be better
	Works     bool          `json:"works"`
}

// findingJSON is something to know, and what to do about it.
type findingJSON struct {
	What string `json:"what"`
	Do   string `json:"do,omitempty"`
}

// doctor is a page that is being made.
type doctor struct {
	doctorJSON
	f        *doctorFlags
	pages    []named // where it goes: the terminal, a file
	whole    named   // of these, the one that has all details; no w: none
	bar      *bar
	step     int // of the progress bar
	steps    int
	runnable []result.Job // problems that a kernel runs forward
	lost     bool         // the device is, so that nothing more can be asked of it
}

func runDoctor(cmd *cobra.Command, f *doctorFlags) error {
	switch {
	case f.limit <= 0:
		return usage(cmd, fmt.Errorf("--limit is %v: it must be more than 0", f.limit))
	case f.force && f.out == "":
		return usage(cmd, errors.New("--force is about the --out file, and there is none"))
	}
	if err := refuseOut(f.out, f.force); err != nil {
		return err
	}
	ctx, stdout := cmd.Context(), cmd.OutOrStdout()
	d := &doctor{f: f, bar: newBar(cmd.ErrOrStderr(), f.quiet)}
	d.VKAttn, d.Taken, d.hostJSON = version(), time.Now().UTC().Truncate(time.Second), describeHost()
	if !f.asJSON {
		d.pages = append(d.pages, namedFor(stdout))
	}
	file, closeFile, err := linesTo(stdout, false, f.out, f.force)
	if err != nil {
		return err
	}
	defer closeFile()
	if f.out != "" {
		d.whole = named{w: file, width: readable}
		d.pages = append(d.pages, d.whole)
	}
	err = d.examine(ctx)
	d.bar.done()
	if err != nil {
		return err
	}
	d.summarize()
	if err := d.print("Summary", d.printSummary); err != nil {
		return err
	}
	if f.asJSON {
		out := json.NewEncoder(stdout)
		out.SetEscapeHTML(false)
		out.SetIndent("", "  ")
		if err := out.Encode(d.doctorJSON); err != nil {
			return err
		}
	}
	if !d.Works {
		return errSilent
	}
	return nil
}

// print adds a section to the pages, as soon as it is known: what is there stays when a driver takes the process down.
func (d *doctor) print(title string, body func(n named)) error {
	d.bar.done()
	for _, page := range d.pages {
		if err := page.section(title, body); err != nil {
			return err
		}
	}
	return nil
}

// section prints lines under a title, in one piece.
func (n named) section(title string, body func(n named)) error {
	var b bytes.Buffer
	to := named{&b, n.width, n.color}
	to.title(title)
	body(to)
	fmt.Fprintln(&b)
	_, err := io.Copy(n.w, &b)
	return err
}

// begin says in the progress bar what begins now.
func (d *doctor) begin(what string) {
	d.step++
	d.bar.step(d.step, max(d.steps, d.step), what)
}

// wrong notes something that does not work.
func (d *doctor) wrong(do, format string, a ...any) {
	d.Wrong = append(d.Wrong, findingJSON{homeless(plain(fmt.Sprintf(format, a...))), do})
}

// examine makes the sections one after the other. Its error is of the page, or of the context: what is wrong with the device stands in it.
func (d *doctor) examine(ctx context.Context) error {
	infos, err := flash.Devices(d.f.device.options()...)
	if err != nil && d.f.device.tiles != "" && !errors.Is(err, flash.ErrNoDevice) {
		return err // of the file
	}
	dev, err := d.open(infos, err)
	if err != nil {
		return err
	}
	if err := d.print("vkattn doctor", d.printMachine); err != nil {
		return err
	}
	switch {
	case dev != nil:
		defer dev.Close() // again, unless something failed before
		if err := d.examineDevice(ctx, dev); err != nil {
			return err
		}
	case d.Device != nil:
		if err := d.print("Features", d.printAbilities); err != nil {
			return err
		}
	default:
		if err := d.print("Drivers", printDrivers); err != nil {
			return err
		}
	}
	if err := d.print("Environment", d.printEnvironment); err != nil {
		return err
	}
	if d.whole.w != nil && d.Device != nil {
		return d.whole.section("Details", d.printDetails)
	}
	return nil
}

// examineDevice makes the sections that need an open device.
func (d *doctor) examineDevice(ctx context.Context, dev *flash.Device) error {
	for _, stage := range []struct {
		title string
		make  func(context.Context, *flash.Device) error // its error is the context's, or the device's
		print func(named)
	}{
		{"Features", nil, d.printAbilities},
		{"Self-checks", d.selfChecks, d.printSelfChecks},
		{"Kernels", d.choices, d.printChoices},
		{"Speed", d.speeds, d.printSpeeds},
		{"Stored", d.stored, d.printStored},
	} {
		if d.lost {
			break
		}
		if stage.make != nil {
			err := stage.make(ctx, dev)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				d.lost = errors.Is(err, flash.ErrDeviceLost)
				d.wrong(reportIt, "%s: %v", strings.ToLower(stage.title), err)
			}
		}
		if err := d.print(stage.title, stage.print); err != nil {
			return err
		}
	}
	return nil
}

// open opens the device, and notes what is known of it, or why there is none. listed is the error of listing devices.
func (d *doctor) open(infos []flash.DeviceInfo, listed error) (*flash.Device, error) {
	if listed != nil {
		d.Error = why(listed)
		return nil, nil
	}
	at := 0 // the best
	dev, err := d.f.device.open()
	if err == nil {
		at = dev.Info().Index
	} else if d.Error = why(err); d.f.device.name != "" {
		name := strings.ToLower(d.f.device.name)
		at = slices.IndexFunc(infos, func(info flash.DeviceInfo) bool {
			return strconv.Itoa(info.Index) == name || strings.Contains(strings.ToLower(info.Name), name)
		})
	}
	if at < 0 { // there is no such device
		return nil, err
	}
	for i, info := range infos {
		if i != at {
			d.Others = append(d.Others, fmt.Sprintf("%d  %s · %s", info.Index, info.Name, info.Reason))
		}
	}
	one := describeForJSON(infos[at])
	d.Device, d.Abilities = &one, abilitiesOf(infos[at])
	d.steps = 1 + len(checked) + len(doctorJobs(one.CPU))
	if !one.CPU { // for which kernels are compiled beforehand
		d.steps += len(doctorJobs(false))
	}
	return dev, nil
}

// why is an error of opening a device without what it begins with.
func why(err error) string {
	return homeless(strings.TrimPrefix(plain(err.Error()), plain(flash.ErrNoDevice.Error())+": "))
}

// checked are the kernels that self-checks are run of, one family after the other, so that progress is seen.
var checked = []struct {
	of   flash.Implementation
	tier flash.Tier
}{
	{flash.Flash, flash.TierScalar}, {flash.Flash, flash.TierMatrix},
	{flash.Standard, flash.TierScalar}, {flash.Standard, flash.TierMatrix},
	{flash.Flash1, flash.TierScalar}, {flash.Flash1, flash.TierMatrix},
}

// selfChecks runs them.
func (d *doctor) selfChecks(ctx context.Context, dev *flash.Device) error {
	for _, family := range checked {
		d.begin(fmt.Sprintf("self-checks of %v, %s", family.of, family.tier))
		if err := d.Device.selfCheck(ctx, dev, []flash.Implementation{family.of}, []flash.Tier{family.tier}); err != nil {
			return err
		}
	}
	return nil
}

// stored looks at what earlier runs have left, and closes the device, which has said by then what is wrong with its files.
func (d *doctor) stored(_ context.Context, dev *flash.Device) error {
	d.Stored = &storedJSON{File: homeless(tune.File())}
	verdicts, err := tune.StoredVerdicts(dev)
	if err != nil {
		d.Stored.Notices = append(d.Stored.Notices, homeless(plain(err.Error())))
	}
	d.Stored.note(verdicts)
	entries, err := tune.Stored()
	if err != nil {
		d.Stored.Notices = append(d.Stored.Notices, "stored tunings are not used: "+homeless(plain(err.Error())))
	}
	for _, e := range entries {
		if e.Device == dev.Info().Name {
			d.Stored.Tunings = append(d.Stored.Tunings, e)
		}
	}
	err = dev.Close()
	for _, notice := range dev.Notices() {
		if !bench.IsCPU(dev.Info()) || !strings.HasPrefix(notice, "no GPU was found") { // the summary has that
			d.Stored.Notices = append(d.Stored.Notices, homeless(plain(notice)))
		}
	}
	return err
}

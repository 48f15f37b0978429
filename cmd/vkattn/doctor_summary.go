package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/cmd/vkattn/internal/report"
	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/tune"
)

// storedJSON is what earlier runs have left of the device and driver.
type storedJSON struct {
	VerdictFile string        `json:"verdict_file,omitempty"` // "": verdicts are not kept
	Passed      int           `json:"passed"`                 // verdicts
	Denied      []tune.Denial `json:"denied,omitempty"`       // kernels that plans pass over
	File        string        `json:"tuning_file,omitempty"`
	Tunings     []tune.Entry  `json:"tunings,omitempty"` // of the device
	Notices     []string      `json:"notices,omitempty"` // what is wrong with the files
}

// note takes the verdicts over.
func (s *storedJSON) note(v tune.Verdicts) {
	s.VerdictFile, s.Passed, s.Denied = homeless(v.File), v.Passed, v.Denied
}

const issues = "github.com/vkattn/vkattn/issues"

// reportIt is what to do about what should not be.
const reportIt = "update the driver; if it stays, report it with this page"

// summarize says what does not work, and what could be better.
func (d *doctor) summarize() {
	if d.Error != "" {
		do := d.driverHelp()
		if do == "" {
			do = "install a Vulkan driver and loader, as 'Drivers' says"
		}
		if d.Device != nil {
			do = "see 'Features', and update the driver"
		}
		d.wrong(do, "no device can be used")
	}
	if d.Device != nil {
		for _, c := range d.Device.SelfChecks {
			if c.Pass {
				continue
			}
			do := "plans pass the kernel over, so results stay right and are slower; " + reportIt
			if c.Tier == string(flash.TierScalar) {
				do = "what this kernel gives cannot be trusted; " + reportIt
			}
			d.wrong(do, "the self-check of %s, %s/%s %s, failed", strings.TrimSpace(c.Kernel), c.Impl, c.Tier, c.DType)
		}
	}
	if d.Stored != nil {
		for _, kernels := range d.deniedBefore() {
			d.wrong("plans pass it over; "+reportIt, "%s is on the deny-list of this device and driver: its self-check failed", kernels)
		}
		for _, notice := range d.Stored.Notices {
			d.Advice = append(d.Advice, findingJSON{notice, "see that the file can be read and written, or remove it"})
		}
	}
	for _, a := range d.Abilities {
		if !a.Has && !d.Device.CPU { // which uses none of them by itself
			d.Advice = append(d.Advice, findingJSON{"missing, as 'Features' says: " + a.Name, a.Do})
		}
	}
	if d.Device != nil && d.Device.CPU {
		do := d.driverHelp()
		if do == "" {
			do = "nothing, unless this machine has a GPU: then install its Vulkan driver"
		}
		d.Advice = append(d.Advice, findingJSON{"the device is a CPU, which is there for tests: nothing is fast", do})
	}
	if len(d.Closed) > 0 && d.Error == "" {
		d.Advice = append(d.Advice, findingJSON{"this user may not open " + strings.Join(d.Closed, ", "),
			"join the groups render and video"})
	}
	d.Works = len(d.Wrong) == 0
}

// deniedBefore are kernels on the deny-list, each once, but for those whose self-checks failed just now, too.
func (d *doctor) deniedBefore() (out []string) {
	for _, denial := range d.Stored.Denied {
		name := strings.Join(denial.Modules, ", ")
		again := slices.ContainsFunc(d.Device.SelfChecks, func(c checkJSON) bool {
			kernel, _, _ := strings.Cut(c.Kernel, " ")
			return !c.Pass && len(denial.Modules) > 0 && strings.HasPrefix(denial.Modules[0], kernel+".")
		})
		if !again && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (d *doctor) printSummary(n named) {
	if d.Works {
		passes := 0
		for _, r := range d.Rows {
			for _, timed := range []bool{r.Fwd.Ms > 0, r.Bwd.Ms > 0} {
				if timed {
					passes++
				}
			}
		}
		line := fmt.Sprintf("  %s: %s passed, and the outputs of %d timed passes are right", n.paint("pass", "everything works"),
			count(len(d.Device.SelfChecks), "self-check"), passes)
		fmt.Fprintln(n.w, report.Fold(line, n.width, "    "))
	} else {
		fmt.Fprintln(n.w, n.paint("FAIL", "  "+does(len(d.Wrong))+" not work"))
	}
	n.findings("wrong", d.Wrong)
	n.findings("note", d.Advice)
	if d.f.out == "" {
		n.line("to report", "'vkattn doctor --out doctor.txt' writes this page with all details: attach it to an issue at %s. Pages "+
			"from devices that docs/results.md does not have are welcome, too", issues)
	} else if n.w != d.whole.w {
		n.line("to report", "attach %s to an issue at %s", d.f.out, issues)
	}
}

// findings prints what there is to know, with what to do once where that is the same of several.
func (n named) findings(name string, all []findingJSON) {
	for i, f := range all {
		n.line(name, "%s", f.What)
		if i+1 == len(all) || all[i+1].Do != f.Do {
			n.line("", "to do: %s", f.Do)
		}
	}
}

// does is "1 thing does" or "3 things do".
func does(n int) string {
	if n == 1 {
		return "1 thing does"
	}
	return fmt.Sprintf("%d things do", n)
}

// homeless is text without the name of the user's folder, since the page is sent to others.
func homeless(s string) string {
	if home, err := os.UserHomeDir(); err == nil && len(home) > 1 {
		return strings.ReplaceAll(s, home, "~")
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package tune

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/internal/kernel"
)

// Verdicts are what self-checks found on a device and driver, as it is kept on disk for later processes.
type Verdicts struct {
	File   string   // where they are kept; "": nowhere
	Passed int      // kernels, each with its constants, that computed what they should
	Denied []Denial // those that did not, and that plans pass over
}

// Denial is a kernel that failed its self-check.
type Denial struct {
	Modules []string // what the driver compiled, such as "matrix_forward.f16"
	Why     string   // what was wrong
}

// provenModule is a module in the key of a verdict (kernel.Env.ProofKey): its name and the hash of what it is.
var provenModule = regexp.MustCompile(`([a-z0-9_]+\.[a-z0-9_]+) [0-9a-f]{16}\b`)

// StoredVerdicts reads the verdicts of a device and driver. Only kernels that plans check before their first use
// have any ([flash.Device.Plan]).
func StoredVerdicts(d *flash.Device) (v Verdicts, err error) {
	defer within.During("StoredVerdicts", &err)
	env, err := within.Env(d)
	if err != nil {
		return v, err
	}
	if v.File = env.KnownPath(); v.File == "" {
		return v, nil
	}
	entries, err := kernel.ReadKnown(v.File, env.Identity())
	if err != nil {
		return v, fmt.Errorf("verdicts of self-checks on disk cannot be used: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		switch {
		case !strings.HasPrefix(key, "check "): // a layout that was probed
		case entries[key] == kernel.Passed:
			v.Passed++
		default:
			d := Denial{Why: entries[key]}
			for _, m := range provenModule.FindAllStringSubmatch(key, -1) {
				d.Modules = append(d.Modules, m[1])
			}
			v.Denied = append(v.Denied, d)
		}
	}
	return v, nil
}

package kernel

import (
	"fmt"
	"strings"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/pipeline"
)

// What kernels on matrices compute rests on more than Vulkan promises, and what any kernel computes that functions of the user's were put
// into rests on code that no compiler has seen before. So each such specialization runs a small problem, a self-check, before its first use
// on a device and driver, and is compared with attention in float64 (internal/ref). The verdict is remembered (known.go), and a kernel that
// failed is denied: plans pass it over, and say so.

// Passed is the verdict on a kernel whose self-check went well; any other says what was wrong.
const Passed = "pass"

// selfCheckRevision changes when self-checks judge otherwise: verdicts on disk are of one.
const selfCheckRevision = 3

// Compiled is what a driver compiles: a module with its specialization constants, and sizes of subgroups.
type Compiled struct {
	Module    string
	Constants Constants
	Functions score.Code          // of its scores, which stand in the module where the constants say so
	Made      pipeline.KernelInfo // sizes of subgroups
}

// HasFunctions says whether functions of the user's are put into a problem's kernels.
func HasFunctions(p *attn.Problem) bool { return !p.Score.Identity() || !p.Sees.Everything() }

// ProofKey names what a driver compiles for kernels that are tried together: modules by the hash of what they are with functions in them,
// and what the pipeline asks of subgroups.
func (e *Env) ProofKey(kernels []Compiled) (string, error) {
	var key strings.Builder
	fmt.Fprintf(&key, "check %d", selfCheckRevision)
	if n := e.Ctx.Specialized(); n > 0 { // the driver gets other modules
		fmt.Fprintf(&key, " specialized %d", n)
	}
	for _, k := range kernels {
		code, err := e.named(k.Module, k.Constants, k.Functions)
		if err != nil {
			return "", err
		}
		hash, err := code.hash()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&key, " %s %.16s", k.Module, hash)
		key.WriteString(k.Constants.String())
		if k.Made.SubgroupSize != 0 {
			fmt.Fprintf(&key, " subgroups of %d", k.Made.SubgroupSize)
		}
		if k.Made.FullSubgroups {
			key.WriteString(" full subgroups")
		}
	}
	return key.String(), nil
}

// Prove lets kernels that were never run on this device and driver prove themselves: try says what is wrong with what they compute, "" for
// nothing. The error is a *denied for kernels that failed, now or before; name is theirs, with the tile.
func (e *Env) Prove(name string, kernels []Compiled, try func() (wrong string, err error)) error {
	key, err := e.ProofKey(kernels)
	if err != nil {
		return err
	}
	verdict, err := e.Verdict(key, try)
	if err != nil {
		return fmt.Errorf("self-check of %s: %w", name, err)
	}
	if verdict == Passed {
		return nil
	}
	where := "this process"
	if path := e.KnownPath(); path != "" {
		where = path
	}
	return &denied{&Declined{Why: fmt.Sprintf("%s is on the deny-list of this device and driver (%s), because its self-check failed: %s",
		name, where, verdict)}}
}

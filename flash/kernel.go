package flash

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
)

// offer is what a kernel of either pass says of itself.
type offer struct {
	name           string
	implementation Implementation
	tier           Tier
	can            attn.Features // what a problem may have
	needs          attn.Features // what a problem must have, or another kernel does the same for less: elsewhere this one does not exist
	mostRows       int           // of a key head: queries times the query heads that share it; 0: any number
	parameters     parameters
	yields         bool // leaves problems with a tuning parameter that it does not have to the next kernel

	// unsupported says what the device or the problem lacks for this kernel, "" when it can run. It touches no device: it
	// also describes devices that are not open.
	unsupported func(c *capabilities, p *Problem) string
	// reserved says why a device runs the kernel only when its tier is asked for, "" where it is taken like any other; nil: on every device.
	reserved func(c *capabilities) string
}

func (o *offer) offered() *offer { return o }

// kernel is one way to compute a forward pass. A new one is a new file with such a value and a line in kernels; nothing else needs to
// know it.
type kernel struct {
	offer
	// plan chooses tile and workspace for the problem and builds the pipelines of the usual variant. An error that wraps a
	// *declined means: take the next kernel and report the reason. Any other error fails the plan.
	plan func(e *environment, p *Problem, t *tuning) (program, error)
	// candidates lists tunings worth measuring for a problem, the built-in choice among them or not; some may not fit. nil: there is no
	// choice of tiles.
	candidates func(c *capabilities, p *Problem) []map[string]int
}

// program is a kernel fitted to one problem. It is shared by all recordings of its plan: record must not change it except
// for pipelines built once.
type program interface {
	// tile names the tile for people, for example "64x32".
	tile() string
	// scratch gives the sizes in bytes of the buffers that each recording needs beyond inputs and outputs.
	scratch() []uint64
	// dispatches is the largest number of dispatches that record makes.
	dispatches() int
	// model is what it does and moves for any problem. Steps name the labels of the dispatches.
	model() traffic.Model
	// record writes the dispatches for these operands. In steady state it allocates nothing.
	record(r *recorder, f *operands) error
}

// trialQueries is a number of queries that the kernel takes where group query heads share a key head: n if it can.
func (o *offer) trialQueries(n, group int) int {
	if o.mostRows > 0 {
		return min(n, o.mostRows/group)
	}
	return n
}

// cannot says why the kernel cannot run a problem, "" when it can.
func (o *offer) cannot(c *capabilities, p *Problem) string {
	has := p.features()
	if lacks := has &^ o.can; lacks != 0 {
		return "it has no " + lacks.Names()[0]
	}
	if rows := p.QueryLen * p.group(); o.mostRows > 0 && rows > o.mostRows {
		return fmt.Sprintf("%d rows for each key head: it takes up to %d", rows, o.mostRows)
	}
	return o.unsupported(c, p)
}

// scalarLacks and matrixLacks say what the device lacks for a kernel that needs nothing beside its tier.
func scalarLacks(c *capabilities, p *Problem) string { return c.lacksScalar(p.DType) }
func matrixLacks(c *capabilities, p *Problem) string { return c.lacksMatrix(p.DType) }

// declined is a kernel's reason not to be chosen that only shows when it is fitted to the device.
type declined struct{ why string }

func (d *declined) Error() string { return d.why }

// denied is a kernel's reason when it would run the problem, and failed its self-check on this device and driver.
type denied struct{ *declined }

func (d *denied) Unwrap() error { return d.declined }

// isDenied says whether a kernel is not taken because it failed its self-check.
func isDenied(err error) bool {
	var d *denied
	return errors.As(err, &d)
}

// backwardKernel is one way to compute a backward pass, as kernel is for forward.
type backwardKernel struct {
	offer
	// plan fits the kernel to the problem, for a plan whose forward program is this.
	plan func(e *environment, p *Problem, forward program, t *tuning) (backwardProgram, error)
}

// backwardProgram is a backward kernel fitted to one problem, as program is for forward.
type backwardProgram interface {
	tile() string
	scratch() []uint64
	dispatches() int
	model() traffic.Model
	record(r *recorder, g *gradients) error
}

// keeper is a program that can keep the weights of a forward pass, in buffers of these sizes.
type keeper interface{ kept() []uint64 }

// anyKernel is a kernel of either pass.
type anyKernel interface{ offered() *offer }

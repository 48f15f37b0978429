package flash

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/pipeline"
	"github.com/vkattn/vkattn/vk"
)

// features are what a problem may have beyond plain attention, and a kernel may be able to compute.
type features uint32

const (
	withDropout features = 1 << iota
	withBlocks
)

// featureNames are for people, in the order of the bits.
var featureNames = []string{"dropout", "block mask"}

// names lists the features.
func (f features) names() []string {
	var out []string
	for i, name := range featureNames {
		if f&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return out
}

// features are those that the problem has.
func (p *Problem) features() (f features) {
	if p.dropThreshold() > 0 {
		f |= withDropout
	}
	if !p.Blocks.none() {
		f |= withBlocks
	}
	return f
}

// offer is what a kernel of either pass says of itself.
type offer struct {
	name           string
	implementation Implementation
	tier           Tier
	can            features // what a problem may have
	needs          features // what a problem must have, or another kernel does the same for less: elsewhere this one does not exist
	mostRows       int      // of a key head: queries times the query heads that share it; 0: any number
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
	plan func(d *Device, p *Problem, t *tuning) (program, error)
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
	// record writes the dispatches for these operands. In steady state it allocates nothing.
	record(r *recorder, f *operands) error
}

// kernels holds every kernel, the most preferred first within its implementation.
var kernels = []*kernel{
	scalarDecode,
	matrixForward,
	scalarForward,
	matrixStandard,
	scalarStandard,
	matrixFlash1,
	scalarFlash1,
	matrixBlockSparse,
	scalarBlockSparse,
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
		return "it has no " + lacks.names()[0]
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

// anyKernel is a kernel of either pass.
type anyKernel interface{ offered() *offer }

// pick takes the first kernel of a list, most preferred first, that is of the implementation, of the tier insisted on (""
// for any), can run the problem, and that fit fits to it. effect is its tuning; reasons say why kernels before it were not
// taken, and what fit noted. pass stands before the problem in the error.
func pick[K anyKernel](d *Device, p *Problem, list []K, pass string, of Implementation, insisted Tier,
	fit func(K) (t *tuning, note string, err error)) (k K, effect map[string]int, reasons []string, err error) {
	failed := false // a self-check
	for _, k := range list {
		o := k.offered()
		if o.implementation != of || (insisted != "" && o.tier != insisted) {
			continue
		}
		has := p.features()
		special := func(k K) bool { // the kernel that is there for what this one cannot
			other := k.offered()
			return other.implementation == of && other.tier == o.tier && other.needs&has&^o.can != 0
		}
		if o.needs&^has != 0 || slices.ContainsFunc(list, special) {
			continue
		}
		not := func(why string) { reasons = append(reasons, o.name+": "+why) }
		if why := o.cannot(&d.caps, p); why != "" {
			not(why)
			continue
		}
		if o.reserved != nil && insisted == "" {
			if why := o.reserved(&d.caps); why != "" {
				not(why)
				continue
			}
		}
		t, note, err := fit(k)
		if note != "" {
			not(note)
		}
		var no *declined
		if errors.As(err, &no) {
			not(no.why)
			failed = failed || isDenied(err)
			continue
		}
		if err != nil {
			return k, nil, reasons, d.fail(err)
		}
		return k, t.effect, reasons, nil
	}
	what := fmt.Sprintf("%s%v (%v", pass, p, of)
	if insisted != "" {
		what += ", tier " + string(insisted)
	}
	if len(reasons) == 0 {
		reasons = []string{"there is no such kernel"}
	}
	return k, nil, reasons, &UnsupportedError{What: what + ")", Reasons: reasons, Denied: failed}
}

// operand is a tensor as a kernel sees it.
type operand struct {
	binding pipeline.Binding // aligned down to what the device can bind
	offset  uint32           // elements from the binding's start to the tensor's first
	strides [3]uint32        // elements, of batch, head and row
	aligned bool             // every row starts on 16 bytes and is a multiple of 16 bytes long
}

// operands are the tensors of one forward pass. Without lse, lse is the zero operand and hasLSE false.
type operands struct {
	q, k, v, o, lse operand
	hasLSE          bool
	drop            draw
	weights         []pipeline.Binding // Forward.Weights; nil: the workspace holds them
	blocks          pipeline.Binding   // the block mask, where the problem has one
}

// alignedInputs says whether rows of q, k and v can be read 16 bytes at a time.
func (f *operands) alignedInputs() bool { return f.q.aligned && f.k.aligned && f.v.aligned }

// recorder is what a program records into: a recording with the scratch buffers that the program asked for. It is reused.
type recorder struct {
	rec     *pipeline.Recording
	scratch []pipeline.Binding
	push    pushes
	access  [9]pipeline.Access // one more than a kernel has, for counting
	count   *countingBuilds
}

// dispatch runs a kernel over a grid, in as many dispatches as the grid has, with r.push as arguments. baseAt is where
// the constants base and total lie; total is what the kernel wants there: most often the grid's.
func (r *recorder) dispatch(k *pipeline.Kernel, access []pipeline.Access, baseAt int, g grid, total uint32, label string) error {
	r.push.set(baseAt+4, total)
	access = r.count.bind(access, label)
	for base := uint64(0); base < uint64(g.total); base += uint64(g.step) {
		r.push.set(baseAt, uint32(base))
		if err := r.rec.Dispatch(k, access, r.push.bytes(), g.size(uint32(base)), label); err != nil {
			return err
		}
	}
	return nil
}

// tuning is the overrides a caller gave, and the values in effect as kernels take them.
type tuning struct {
	option string // that gave them, for errors
	given  map[string]int
	effect map[string]int
}

func newTuning(given map[string]int) *tuning {
	return &tuning{option: "WithTuning", given: given, effect: map[string]int{}}
}

func newBackwardTuning(given map[string]int) *tuning {
	return &tuning{option: "WithBackwardTuning", given: given, effect: map[string]int{}}
}

// get takes a parameter: the caller's value, else the kernel's.
func (t *tuning) get(name string, otherwise int) int {
	v, ok := t.given[name]
	if !ok {
		v = otherwise
	}
	t.effect[name] = v
	return v
}

// bad is the error of a parameter's value that breaks a rule.
func (t *tuning) bad(name string, rule string, a ...any) error {
	return badArgument(t.option+"["+name+"]", t.effect[name], rule, a...)
}

// secondsPerDispatch bounds a dispatch: watchdogs reset a GPU that does not answer for about two.
const secondsPerDispatch = 0.5

// pace is the operations per second to reckon with on a slow device, by kind: well below what such devices reach, because
// splitting half a second of work costs nothing that can be measured, and a reset costs everything.
type pace struct{ discrete, other float64 }

var scalarPace = pace{discrete: 1e12, other: 50e9}

// groupsPerDispatch says how many workgroups may go into one dispatch so that it stays under secondsPerDispatch, when all of
// them together do flops operations; 0 for no limit.
func (c *capabilities) groupsPerDispatch(groups uint64, flops float64, at pace) uint64 {
	rate := at.other
	switch c.facts.Type {
	case vk.DeviceDiscrete:
		rate = at.discrete
	case vk.DeviceCPU:
		return 0 // no watchdog
	}
	if seconds := flops / rate; seconds > secondsPerDispatch {
		return max(1, uint64(float64(groups)*secondsPerDispatch/seconds))
	}
	return 0
}

// gridFor makes a grid whose dispatches stay short. max_groups lowers the bound further, for tests.
func gridFor(d *Device, groups uint64, flops float64, at pace, t *tuning) (grid, error) {
	limit := d.caps.groupsPerDispatch(groups, flops, at)
	n := t.get("max_groups", 0)
	if n == 0 || limit > 0 && limit <= uint64(n) {
		return newGrid(groups, limit)
	}
	g, err := newGrid(groups, uint64(n))
	if err == nil && g.dispatches() > mostDispatches {
		err = t.bad("max_groups", "cuts %d workgroups into %d dispatches, more than %d", groups, g.dispatches(), mostDispatches)
	}
	return g, err
}

// mostDispatches is the most that a caller may cut a kernel's work into: a recording holds descriptors for each.
const mostDispatches = 1 << 14

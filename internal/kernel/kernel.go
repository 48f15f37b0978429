package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/traffic"
)

// PlainDims is the MostDim of kernels that keep a row of O, or a tile of K and V, in one piece.
const PlainDims = 256

// IsWide says whether a problem has heads beyond them.
func IsWide(p *attn.Problem) bool { return max(p.HeadDim, p.ValueDim) > PlainDims }

// Offer is what a kernel of either pass says of itself.
type Offer struct {
	Name           string
	Implementation Implementation
	Tier           Tier
	Can            attn.Features // what a problem may have
	Needs          attn.Features // what a problem must have, or another kernel does the same for less: elsewhere this one does not exist
	Storage        []attn.DType  // storage types that it is for; elsewhere it does not exist; nil: any that Unsupported leaves
	// another kernel does less of them for less: where both HeadDim and ValueDim are smaller, this one does not exist
	LeastDim   int
	MostDim    int // the largest of HeadDim and ValueDim
	MostRows   int // of a key head: queries times the query heads that share it, unless queries have lists of keys; 0: any number
	Parameters Parameters
	Yields     bool // leaves problems with a tuning parameter that it does not have to the next kernel

	// Unsupported says what the device or the problem lacks for this kernel, "" when it can run. It touches no device: it
	// also describes devices that are not open.
	Unsupported func(c *Capabilities, p *attn.Problem) string
	// Reserved says why a device runs a problem by the kernel only when its tier is asked for, "" where it is taken like any
	// other, as it always is where this is nil.
	Reserved func(c *Capabilities, p *attn.Problem) string
}

func (o *Offer) Offered() *Offer { return o }

// Exists says whether a problem has what it must have for this kernel to be one of those that are looked at.
func (o *Offer) Exists(p *attn.Problem) bool {
	return o.Needs&^p.Features() == 0 && o.Stores(p.DType) && max(p.HeadDim, p.ValueDim) >= o.LeastDim
}

// Stores says whether the kernel is for a storage type.
func (o *Offer) Stores(t attn.DType) bool { return o.Storage == nil || slices.Contains(o.Storage, t) }

// Kernel is one way to compute a forward pass. A new one is a new file with such a value and a line in the list of package catalogue;
// nothing else needs to know it.
type Kernel struct {
	Offer
	// Plan chooses tile and workspace for the problem and builds the pipelines of the usual variant. An error that wraps a
	// *Declined means: take the next kernel and report the reason. Any other error fails the plan.
	Plan func(e *Env, p *attn.Problem, t *Tuning) (Program, error)
	// Candidates lists tunings worth measuring for a problem, the built-in choice among them or not; some may not fit. nil: there is no
	// choice of tiles.
	Candidates func(c *Capabilities, p *attn.Problem) []map[string]int
}

// Program is a kernel fitted to one problem. It is shared by all recordings of its plan: Record must not change it except
// for pipelines built once.
type Program interface {
	// Tile names the tile for people, for example "64x32".
	Tile() string
	// Scratch gives the sizes in bytes of the buffers that each recording needs beyond inputs and outputs.
	Scratch() []uint64
	// Dispatches is the largest number of dispatches that Record makes.
	Dispatches() int
	// Model is what it does and moves for any problem. Steps name the labels of the dispatches.
	Model() traffic.Model
	// Record writes the dispatches for these operands. In steady state it allocates nothing.
	Record(r *Recorder, f *Operands) error
}

// SelfCheckQueries is a number of queries that the kernel takes where group query heads share a key head: n if it can.
func (o *Offer) SelfCheckQueries(n, group int) int {
	if o.MostRows > 0 {
		return min(n, o.MostRows/group)
	}
	return n
}

// Cannot says why the kernel cannot run a problem, "" when it can.
func (o *Offer) Cannot(c *Capabilities, p *attn.Problem) string {
	if why := o.Refuses(p); why != "" {
		return why
	}
	return o.Unsupported(c, p)
}

// Refuses says why the kernel can run a problem on no device, "" where it depends on the device.
func (o *Offer) Refuses(p *attn.Problem) string {
	has := p.Features()
	if lacks := has &^ o.Can; lacks != 0 {
		return "it has no " + lacks.Names()[0]
	}
	if max(p.HeadDim, p.ValueDim) > o.MostDim {
		return fmt.Sprintf("head dimensions %d and %d: it takes up to %d", p.HeadDim, p.ValueDim, o.MostDim)
	}
	if rows := p.QueryLen * p.Group(); o.MostRows > 0 && rows > o.MostRows && p.Lists.None() {
		return fmt.Sprintf("%d rows for each key head: it takes up to %d", rows, o.MostRows)
	}
	return ""
}

// ScalarLacks and MatrixLacks say what the device lacks for a kernel that needs nothing beside its tier.
func ScalarLacks(c *Capabilities, p *attn.Problem) string { return c.LacksScalar(p.DType) }
func MatrixLacks(c *Capabilities, p *attn.Problem) string { return c.LacksMatrix(p.DType) }

// Declined is a kernel's reason not to be chosen that only shows when it is fitted to the device.
type Declined struct{ Why string }

func (d *Declined) Error() string { return d.Why }

// denied is a kernel's reason when it would run the problem, and failed its self-check on this device and driver.
type denied struct{ *Declined }

func (d *denied) Unwrap() error { return d.Declined }

// IsDenied says whether a kernel is not taken because it failed its self-check.
func IsDenied(err error) bool {
	var d *denied
	return errors.As(err, &d)
}

// BackwardKernel is one way to compute a backward pass, as Kernel is for forward.
type BackwardKernel struct {
	Offer
	// Plan fits the kernel to the problem, for a plan whose forward program is this.
	Plan func(e *Env, p *attn.Problem, forward Program, t *Tuning) (BackwardProgram, error)
	// Candidates lists tunings worth measuring, as those of Kernel. nil: there is no choice of tiles, or nobody measures it.
	Candidates func(c *Capabilities, p *attn.Problem) []map[string]int
}

// BackwardProgram is a backward kernel fitted to one problem, as Program is for forward.
type BackwardProgram interface {
	Tile() string
	Scratch() []uint64
	Dispatches() int
	Model() traffic.Model
	Record(r *Recorder, g *Gradients) error
}

// BiasMaker is a backward program whose kernels make the gradient with respect to a bias, where one is wanted, on the way to those of q, k
// and v.
type BiasMaker interface{ MakesBias(of Bias) bool }

// Keeper is a program that can keep the weights of a forward pass, in buffers of these sizes.
type Keeper interface{ Kept() []uint64 }

// Scorer is a program that can stop at the scores: RecordScores leaves in f.Weights what the softmax is taken of, except that what no query
// sees by its position may be anything. Of the tensors it reads those of the scores alone.
type Scorer interface {
	Keeper
	RecordScores(r *Recorder, f *Operands) error
}

// AnyKernel is a kernel of either pass.
type AnyKernel interface{ Offered() *Offer }

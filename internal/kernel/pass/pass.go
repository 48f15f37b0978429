// Package pass has what a kernel family computes as data: which memory it needs beside its tensors, and its dispatches, with modules,
// constants, workgroups, arguments, and bindings by their names in GLSL. A family says what its tiles make of a problem; here pipelines are
// made of that, prove themselves, and are recorded.
package pass

import (
	"fmt"
	"slices"

	"github.com/vkattn/vkattn/flash/score"
	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Pass computes one problem, for tensors of one variant.
type Pass struct {
	Problem  *attn.Problem
	Operands []attn.Operand // attn.ForwardOperands, attn.BackwardOperands, attn.JVPOperands or those of a kernel beside attention
	Scratch  []Scratch
	Stages   []Stage
	Captured int            // the tensor among those that functions capture that DCaptured is about
	Follows  kernel.Program // of a self-check's backward pass: the forward pass that keeps what it reads; nil: it reads nothing of one
}

// Scratch is memory that a recording has beside the tensors.
type Scratch struct {
	Name  string
	Bytes uint64
}

// Stage is a run of one kernel, in as many dispatches as its grid has.
type Stage struct {
	Label     string // of the dispatches
	Module    string
	Constants kernel.Constants
	Made      pipeline.KernelInfo // what else its pipeline is made with: sizes of subgroups
	Functions *score.Code         // of the user's that are put into it; nil: the problem's
	Proves    bool                // its pipeline is one of those that the pass's self-check is about
	Last      bool                // the key of that self-check names it behind the others
	Again     int                 // its pipeline is that of the stage so many before; 0: it has its own

	Grid   kernel.Grid // zero: one workgroup; of AsMap that of the recording
	Groups [3]uint32   // workgroups of AsNothing
	Counts Counts      // where the device has counted the workgroups of each dispatch; zero: all of the grid's run
	Total  uint32      // what the kernel is told of its work, in items of its own; 0: the workgroups of the grid
	Args   Args
	Bind   []Bind
	Idle   string // what stands, untouched, in place of the buffers that nothing is bound to
}

// Counts is a place in memory.
type Counts struct {
	Scratch string
	At      uint64 // byte
}

// Bind binds a buffer of a module.
type Bind struct {
	Name string // of the buffer, in GLSL
	To   string // an operand, Blocks, More, DCaptured, Cells, Kept, a tensor of parts, or a name of scratch
	Mode pipeline.Mode
	May  bool // the module may not have it
	// it is bound only where a recording is given the tensor; elsewhere what is idle stands in its place
	Given bool
}

// What Bind.To names beside operands and scratch.
const (
	Blocks    = "Blocks"    // the block mask
	More      = "More"      // the further arguments
	DCaptured = "DCaptured" // the gradient with respect to captured tensor Pass.Captured
	Cells     = "Cells"     // what a stage of a map writes: kernel.MapStage.To
)

// Args says which arguments a stage is given.
type Args struct {
	As      ArgsAs
	Problem *attn.Problem
	X, Y    string  // operands that the arguments are of beside those of the pass, "" for none
	Slab    Slab    // of AsScores, AsRows, AsProduct and AsWeights; of AsBackward the first of dSᵀ, where it is kept
	Pitch   int     // elements from row to row of its matrices
	Factor  float64 // of AsProduct: what sums are multiplied by where the module says so

	Merge      *kernel.Merge      // of AsMerge,
	Link       int                // a link of its chain
	Accumulate *kernel.Accumulate // of AsAdding
	Rows       *kernel.Rows       // of AsMoving
}

// ArgsAs is which push constants they are.
type ArgsAs int

const (
	AsForward  ArgsAs = iota // of forward kernels
	AsBackward               // of backward kernels, which write the gradients X and Y
	AsJVP                    // of kernels of forward mode
	AsDelta                  // of δ
	AsTable                  // of tables of packed sequences
	AsScores                 // of a product of rows that gives a slab: of X by Y, at the problem's scale
	AsRows                   // of a kernel that goes over a slab row by row, with a number X for each, lse or dlse
	AsProduct                // of a product of a slab, or of a slab turned over, by X, which gives Y
	AsWeights                // of the backward kernel that makes a slab of P and dS, and writes the gradient Y
	AsMap                    // of kernels of maps, for the rectangle of a recording
	AsMerge                  // of a link of a merge's chain
	AsAdding                 // of Accumulate
	AsMoving                 // of Rows on their way
	AsNothing                // none
)

// Bytes are the sizes of scratch.
func (p *Pass) Bytes() []uint64 {
	sizes := make([]uint64, len(p.Scratch))
	for i, s := range p.Scratch {
		sizes[i] = s.Bytes
	}
	return sizes
}

// Dispatches is the number of dispatches of all stages.
func (p *Pass) Dispatches() (n int) {
	for i := range p.Stages {
		n += p.Stages[i].dispatches()
	}
	return n
}

func (s *Stage) dispatches() int {
	if s.Grid == (kernel.Grid{}) {
		return 1
	}
	return s.Grid.Dispatches()
}

// proofs are the pipelines that the pass's self-check is about.
func (p *Pass) proofs() (out []kernel.Compiled) {
	for _, last := range [...]bool{false, true} {
		for i := range p.Stages {
			if s := &p.Stages[i]; s.Proves && s.Again == 0 && s.Last == last {
				out = append(out, kernel.Compiled{Module: s.Module, Constants: s.Constants, Functions: p.functions(s), Made: s.Made})
			}
		}
	}
	return out
}

// functions are those that a stage has in it, if its constants say that it has any.
func (p *Pass) functions(s *Stage) score.Code {
	if s.Functions != nil {
		return *s.Functions
	}
	return p.Problem.Code()
}

// Variant says what the pipelines of a pass are made for, of the tensors at hand.
type Variant struct {
	Aligned    bool // rows can be moved 16 bytes at a time
	Output     bool // of forward passes with keys in parts o's rows can; of backward passes those of o and do, which δ is made of
	LSE        bool // lse is written; of backward passes, its gradient is given
	Accumulate bool // gradients are added to what is there; rows are turned in place

	DBias        bool // of kernels with Fitted.DBias: the gradient with respect to the bias is wanted
	AlignedDBias bool // and can be written 16 bytes at a time

	InKeys bool // of forward passes with Fitted.InKeys: v is the first columns of k, where it lies

	Moving kernel.Moving // of forward mode: what has a tangent
}

const variants = 128

func (v Variant) index() (i int) {
	i = variants * int(v.Moving)
	for bit, is := range [...]bool{v.Aligned, v.Output, v.LSE, v.Accumulate, v.DBias, v.AlignedDBias, v.InKeys} {
		i += kernel.BoolInt(is) << bit
	}
	return i
}

// source is where a binding comes from.
type source struct {
	of sourceOf
	at int // among operands, or scratch
}

type sourceOf uint8

const (
	fromOperand sourceOf = iota
	fromScratch
	fromBlocks
	fromMore
	fromDCaptured
	fromKept
	fromCells
)

// source finds a name of Bind.To.
func (p *Pass) source(name string) (source, error) {
	switch name {
	case Blocks:
		return source{of: fromBlocks}, nil
	case More:
		return source{of: fromMore}, nil
	case DCaptured:
		return source{fromDCaptured, p.Captured}, nil
	case Cells:
		return source{of: fromCells}, nil
	}
	if at, ok := numbered(name, kept); ok {
		return source{fromKept, at}, nil
	}
	for i, of := range [...]string{partOs, partLSEs} { // behind o and lse of all
		if at, ok := numbered(name, of); ok {
			return source{fromOperand, 2 + 2*at + i}, nil
		}
	}
	if at := slices.IndexFunc(p.Scratch, func(s Scratch) bool { return s.Name == name }); at >= 0 {
		return source{fromScratch, at}, nil
	}
	if at := slices.IndexFunc(p.Operands, func(o attn.Operand) bool { return o.Name == name }); at >= 0 {
		return source{fromOperand, at}, nil
	}
	return source{}, fmt.Errorf("flash: a pass has no operand and no scratch %q", name)
}

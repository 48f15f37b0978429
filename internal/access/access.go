// Package access is how packages beside flash, flash/tune, flash/kvcache, flash/rows, flash/ring and flash/hostmem, reach what flash keeps
// to itself: the kernels' environment of a device, the kernels of a plan, memory and commands that the device counts among its own. They
// need them, and no program that computes does; so flash exports nothing for it, hands these functions over when it is initialised, and
// knows nothing of who calls them.
package access

import (
	"context"

	"github.com/vkattn/vkattn/internal/attn"
	"github.com/vkattn/vkattn/internal/kernel"
	"github.com/vkattn/vkattn/pipeline"
)

// Flash holds functions of package flash. Its types come as parameters, since this package lies below it.
type Flash[Device, Plan, Problem, Tensor, Recording any] struct {
	// Env is what kernels of a device are built and run with. The error is of a device that is none, closed or lost.
	Env func(Device) (*kernel.Env, error)
	// Problem gives a problem as kernels take it, with its defaults filled in.
	Problem func(Problem) (attn.Problem, error)
	// ByPosition is the masks by position of a normalized problem; Unmask takes them from one all of whose queries see all of its keys.
	ByPosition func(Problem) attn.ByPosition
	Unmask     func(*Problem)
	// Forward is the kernel of a plan and what it made of the problem; nil of a plan that Device.Plan did not make.
	Forward func(Plan) (*kernel.Kernel, kernel.Program)
	// Backward is the same of the plan's backward pass, which is chosen at the first call.
	Backward func(Plan) (*kernel.BackwardKernel, kernel.BackwardProgram, error)
	// JVP is the same of its pass in forward mode.
	JVP func(Plan) (*kernel.JVPKernel, kernel.JVPProgram, error)
	// Recorded is the device of a recording of flash's own, or of a package that told Recordings of its; nil of others, and of those that
	// say themselves what is wrong with them.
	Recorded func(recording any) Device
	// Recordings makes Recorded ask this function too. It is called while packages are initialised.
	Recordings func(of func(recording any) Device)
	// Fail makes an error of the layers below one of flash's.
	Fail func(Device, error) error
	// Public makes an argument error of the layers below one of flash's; it keeps others, and nil.
	Public func(error) error
	// Named puts the name of an operation into an error of the driver or of memory; it keeps others.
	Named func(operation string, err error) error
	// RoomFor refuses buffers that the device has no room for as a whole, before any of them is allocated.
	RoomFor func(d Device, label string, bytes []uint64) error
	// Allocate makes a tensor in row-major order in a buffer of its own, counted by this label.
	Allocate func(d Device, label string, dtype attn.DType, shape [4]int) (Tensor, error)
	// Bound is the bytes of a tensor as kernels bind them.
	Bound func(Tensor) pipeline.Binding
	// Hold keeps a tensor's memory from being freed until Release, and gives the tensor's device and its bytes.
	Hold    func(Tensor) (Device, pipeline.Binding, error)
	Release func(Tensor)
	// Begun is Release where work that uses the tensor has been submitted and nobody waits for it yet: until Ended whoever closes the
	// tensor waits for the device.
	Begun, Ended func(Tensor)
	// Place checks tensors against the operands of a pass that they are given for, in the order of the table, and puts them where kernels
	// find them. It does not allocate unless it fails.
	Place func(d Device, pass string, table []attn.Operand, p *attn.Problem, given []Tensor, to []*kernel.Operand) error
	// Pages checks the pages of a problem of that name.
	Pages func(problem string, p attn.Pages) error
	// NewRecording makes a recording without commands: errors say that it needs first what this names, which calls Rewrite.
	NewRecording func(d Device, c Commands[Tensor], first string) (Recording, error)
	// Rewrite writes commands in place of what such a recording held, after place has changed the tensors in Commands.Tensors. Where it
	// fails the recording is empty, or, with flash.ErrInFlight, as it was and place has not been called. It does not allocate.
	Rewrite func(r Recording, place func() error) error
	// Idle says without waiting whether the latest submission of a recording has ended.
	Idle func(Recording) (bool, error)
	// Wait waits for the latest submission, even when the context is cancelled.
	Wait func(Recording, context.Context) error
}

// During is Named for what a function returns. It alone sees the pointer: what a function variable is given the address of is on the heap.
func (f *Flash[Device, Plan, Problem, Tensor, Recording]) During(operation string, err *error) {
	if *err != nil {
		*err = f.Named(operation, *err)
	}
}

// Commands are what a Recording holds.
type Commands[Tensor any] struct {
	Name    string   // of the type that callers hold, for errors
	Tensors []Tensor // that they use: these must not be closed, and are not freed while the device runs the commands
	Info    pipeline.RecordingInfo
	Options any                          // []flash.RecordingOption that the caller was given
	Write   func(*kernel.Recorder) error // writes the commands, once; buffers that Rec owns are freed with the recording
}

var flash any

// Give is called by package flash, once.
func Give[Device, Plan, Problem, Tensor, Recording any](f Flash[Device, Plan, Problem, Tensor, Recording]) {
	flash = f
}

// Get gives what flash gave. The caller imports flash for the types, so that flash is initialised before.
func Get[Device, Plan, Problem, Tensor, Recording any]() Flash[Device, Plan, Problem, Tensor, Recording] {
	return flash.(Flash[Device, Plan, Problem, Tensor, Recording])
}

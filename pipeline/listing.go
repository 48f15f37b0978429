package pipeline

import (
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/vkattn/vkattn/vk"
)

// Listing is what a recording holds, as data: to be printed, and compared with what another one holds. It names no handle, address or
// time, so that the same operations give the same listing in another run and on another handle of the device.
type Listing struct {
	Buffers    []ListedBuffer // in the order in which operations first name them
	Operations []Operation
	After      Barrier // towards what follows, once the recording was submitted or written into a command buffer
}

// ListedBuffer is a buffer that operations of a listing name.
type ListedBuffer struct {
	Label  string // that it was allocated under; "" of one that the context did not allocate
	Number int    // among the listing's buffers of this label, from 0
}

func (b ListedBuffer) String() string {
	if b.Label == "" {
		return fmt.Sprintf("foreign %d", b.Number)
	}
	return fmt.Sprintf("%s %d", b.Label, b.Number)
}

// OperationKind is what an operation of a listing is.
type OperationKind string

const (
	Dispatched           OperationKind = "dispatch"
	DispatchedIndirectly OperationKind = "indirect dispatch"
	Copied               OperationKind = "copy"
	Filled               OperationKind = "fill"
)

// Operation is one operation of a recording.
type Operation struct {
	Before Barrier // that the recording has in front of it; the zero Barrier: none
	Kind   OperationKind
	Label  string
	Kernel ListedKernel  // of a dispatch
	Groups [3]uint32     // workgroups of a dispatch that is not indirect
	Push   []byte        // push constants
	Value  uint32        // of a fill
	Ranges []ListedRange // bindings in order; then the workgroups of an indirect dispatch; of a copy dst and src; of a fill dst
}

// ListedKernel is the kernel of a dispatch.
type ListedKernel struct {
	Name          string // the module's
	Code          string // SHA-256 of the module before specialization, in hexadecimal digits
	Constants     string // specialization constants NAME=value, by name, or by number where the kernel was made without names
	SubgroupSize  uint32 // 0: the driver's choice
	FullSubgroups bool
}

// ListedRange is a range of memory that an operation names.
type ListedRange struct {
	Role         string // of a binding its names in GLSL, "" where the kernel was made without; "groups", "dst" or "src" of others
	Mode         Mode
	Buffer       int    // place in Listing.Buffers
	Name         string // that Recording.Name gave the range
	Offset, Size uint64 // bytes
}

// Barrier is a memory barrier between operations.
type Barrier struct {
	From, To Use // what must have ended and is made visible, and what waits
}

// listed is what a recording keeps for its listing; nil where it is not asked for.
type listed struct {
	operations []listedOperation
	names      map[Binding]string
	before     barrier // of the next operation
}

type listedOperation struct {
	Operation
	kernel *Kernel
	access []Access
}

func (l *listed) reset() {
	if l != nil {
		l.operations, l.before = l.operations[:0], barrier{}
		clear(l.names)
	}
}

func (l *listed) barrier(b barrier) {
	if l != nil {
		l.before = b
	}
}

func (l *listed) dispatch(k *Kernel, access []Access, push []byte, groups [3]uint32, indirect Binding, label string) {
	if l == nil {
		return
	}
	o := Operation{Kind: Dispatched, Label: label, Groups: groups, Push: slices.Clone(push)}
	if indirect.Buffer != nil {
		o.Kind = DispatchedIndirectly
		access = append(slices.Clone(access), Access{indirect, Read})
	}
	l.add(o, k, access)
}

func (l *listed) transfer(kind OperationKind, label string, value uint32, access ...Access) {
	if l != nil {
		l.add(Operation{Kind: kind, Label: label, Value: value}, nil, access)
	}
}

func (l *listed) add(o Operation, k *Kernel, access []Access) {
	o.Before, l.before = l.before.listed(), barrier{}
	l.operations = append(l.operations, listedOperation{o, k, slices.Clone(access)})
}

func (b barrier) listed() Barrier {
	return Barrier{From: Use{b.srcStages, b.srcAccesses}, To: Use{b.dstStages, b.dstAccesses}}
}

// Name says in a listing what a binding of exactly this range is, until Reset. It does nothing where the recording is not listed.
func (r *Recording) Name(b Binding, name string) {
	if r == nil || r.list == nil {
		return
	}
	if r.list.names == nil {
		r.list.names = map[Binding]string{}
	}
	r.list.names[b] = name
}

// Listed says whether the recording was made to be listed: RecordingInfo.Listed, or Context.List.
func (r *Recording) Listed() bool { return r != nil && r.list != nil }

// Listing gives the operations so far. It is empty where the recording was not made to be listed.
func (r *Recording) Listing() (*Listing, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.leave()
	return r.listing(), nil
}

// List has the recordings that are made from now on listed, and each listing given to a function when the recording is first submitted or
// written into a command buffer, and again after each Reset; nil ends it for recordings made later. The function may be called from several
// goroutines at once, and must use nothing of the context.
func (c *Context) List(to func(*Listing)) {
	if c == nil {
		return
	}
	if to == nil {
		c.lists.Store(nil)
		return
	}
	c.lists.Store(&to)
}

// listing makes the listing. The recording is entered.
func (r *Recording) listing() *Listing {
	out := &Listing{}
	if r.list == nil {
		return out
	}
	labels, places, numbers := r.ctx.memory.labelsOf(), map[*vk.Buffer]int{}, map[string]int{}
	place := func(b *vk.Buffer) int {
		at, known := places[b]
		if !known {
			at = len(out.Buffers)
			label := labels[b]
			out.Buffers = append(out.Buffers, ListedBuffer{label, numbers[label]})
			places[b] = at
			numbers[label]++
		}
		return at
	}
	for _, kept := range r.list.operations {
		o := kept.Operation
		o.Kernel = kept.kernel.listed()
		roles := kept.roles()
		for i, a := range kept.access {
			o.Ranges = append(o.Ranges, ListedRange{Role: roles[i], Mode: a.Mode, Buffer: place(a.Buffer), Name: r.list.names[a.Binding],
				Offset: a.Offset, Size: a.Size})
		}
		out.Operations = append(out.Operations, o)
	}
	out.After = r.list.before.listed()
	return out
}

// labelsOf gives the labels of the buffers that are allocated.
func (a *account) labelsOf() map[*vk.Buffer]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[*vk.Buffer]string, len(a.alive))
	for b := range a.alive {
		out[b.Buffer] = b.label
	}
	return out
}

// roles are those of the operation's ranges.
func (o *listedOperation) roles() []string {
	out := make([]string, len(o.access))
	switch o.Kind {
	case Copied, Filled:
		copy(out, []string{"dst", "src"})
		return out
	case DispatchedIndirectly:
		out[len(out)-1] = "groups"
	}
	for _, name := range slices.Sorted(maps.Keys(o.kernel.buffers)) {
		if at := o.kernel.buffers[name]; out[at] == "" {
			out[at] = name
		} else {
			out[at] += "|" + name
		}
	}
	return out
}

func (k *Kernel) listed() ListedKernel {
	if k == nil {
		return ListedKernel{}
	}
	out := ListedKernel{Name: k.name, Code: hex.EncodeToString(k.code[:]), SubgroupSize: k.subgroupSize, FullSubgroups: k.fullSubgroups}
	if k.constants != nil {
		out.Constants = strings.TrimSpace(k.constants.String())
		return out
	}
	for i, s := range k.spec {
		if i > 0 {
			out.Constants += " "
		}
		out.Constants += fmt.Sprintf("%d=%d", s.ID, s.Value)
	}
	return out
}

// String is WriteTo's text.
func (l *Listing) String() string {
	var b strings.Builder
	_, _ = l.WriteTo(&b)
	return b.String()
}

// WriteTo writes the listing as text, a line for each fact, so that two of them can be compared with diff.
func (l *Listing) WriteTo(to io.Writer) (n int64, err error) {
	put := func(format string, a ...any) {
		if err == nil {
			var wrote int
			wrote, err = fmt.Fprintf(to, format, a...)
			n += int64(wrote)
		}
	}
	if l == nil {
		return 0, nil
	}
	for i := range l.Operations {
		o := &l.Operations[i]
		o.Before.write(put)
		put("%d %s %q", i, o.Kind, o.Label)
		switch o.Kind {
		case Dispatched:
			put(": %d x %d x %d workgroups", o.Groups[0], o.Groups[1], o.Groups[2])
		case Filled:
			put(": %08x", o.Value)
		}
		put("\n")
		if k := &o.Kernel; k.Name != "" || k.Code != "" {
			put("\tkernel %s, code %.16s\n", k.Name, k.Code)
			put("\tconstants %s\n", k.Constants)
			if k.SubgroupSize > 0 || k.FullSubgroups {
				put("\tsubgroups of %d, full %v\n", k.SubgroupSize, k.FullSubgroups)
			}
		}
		if len(o.Push) > 0 {
			put("\tpush % x\n", o.Push)
		}
		for at, r := range o.Ranges {
			put("\t%d %s", at, r.Mode.listed())
			if r.Role != "" {
				put(" %s", r.Role)
			}
			put(": buffer %d, %v", r.Buffer, l.Buffers[r.Buffer])
			if r.Name != "" {
				put(", operand %s", r.Name)
			}
			put(", offset %d, size %d\n", r.Offset, r.Size)
		}
	}
	l.After.write(put)
	return n, err
}

func (b Barrier) write(put func(format string, a ...any)) {
	if b != (Barrier{}) {
		put("barrier %s before %s\n", b.From.listed(), b.To.listed())
	}
}

// stageNames and accessNames are what a listing calls the bits of a use.
var (
	stageNames = []bitName{{uint32(vk.StageTop), "top"}, {uint32(vk.StageIndirect), "indirect"}, {uint32(vk.StageCompute), "compute"},
		{uint32(vk.StageTransfer), "transfer"}, {uint32(vk.StageBottom), "bottom"}, {uint32(vk.StageHost), "host"},
		{uint32(vk.StageAll), "all"}}
	accessNames = []bitName{{uint32(vk.AccessIndirectRead), "indirect read"}, {uint32(vk.AccessShaderRead), "shader read"},
		{uint32(vk.AccessShaderWrite), "shader write"}, {uint32(vk.AccessTransferRead), "transfer read"},
		{uint32(vk.AccessTransferWrite), "transfer write"}, {uint32(vk.AccessHostRead), "host read"},
		{uint32(vk.AccessHostWrite), "host write"}, {uint32(vk.AccessMemoryRead), "memory read"},
		{uint32(vk.AccessMemoryWrite), "memory write"}}
)

type bitName struct {
	bit  uint32
	name string
}

// bits lists the bits of a mask; what has no name is a number.
func bits(mask uint32, names []bitName) string {
	var all []string
	for _, n := range names {
		if mask&n.bit != 0 {
			all, mask = append(all, n.name), mask&^n.bit
		}
	}
	if mask != 0 {
		all = append(all, fmt.Sprintf("%#x", mask))
	}
	return strings.Join(all, ", ")
}

func (u Use) listed() string {
	return fmt.Sprintf("%s (%s)", bits(uint32(u.Stages), stageNames), bits(uint32(u.Accesses), accessNames))
}

func (m Mode) listed() string {
	return [...]string{"unused", "read", "write", "read and write"}[m&ReadWrite]
}

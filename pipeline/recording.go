package pipeline

import (
	"errors"
	"fmt"

	"github.com/vkattn/vkattn/vk"
)

// RecordingInfo sizes a recording.
type RecordingInfo struct {
	MaxDispatches int  // operations: dispatches, indirect ones too, copies and fills
	MaxBindings   int  // bindings of all dispatches together
	Timestamps    bool // time every operation, where the queue can; see Recording.HasTimestamps
	Listed        bool // keep what Recording.Listing gives
}

// Recording is a sequence of operations on buffers, with the barriers between them, that can be written into any command
// buffer any number of times. It owns its descriptor sets, its timestamps and, once submitted, a command buffer of its own.
//
// Between Reset and Record or Submit the operations are listed in the order in which they shall take effect. The first
// error sticks: it is returned by the call that made it and by Record and Submit.
//
// After a warm-up of the same shape, Reset, Prior, Next, Used, Dispatch, DispatchIndirect, Copy, Fill, Record, Submit and Wait allocate
// nothing.
//
// A recording belongs to one goroutine at a time. While a command buffer that it was written into may still run, it must
// not be Reset, nor what its bindings name be closed; for its own command buffer Reset refuses to.
type Recording struct {
	ctx      *Context
	info     RecordingInfo
	stream   vk.Stream
	hazards  hazards
	sets     descriptorSets
	queries  *vk.QueryPool
	labels   []string // of the operations so far
	bindings int      // of the dispatches so far
	barriers int
	indirect int
	first    []*compiled // kernels that had not run before
	sealed   bool
	err      error
	list     *listed        // of recordings that are listed
	listTo   func(*Listing) // who is given the listing once the recording is sealed

	ticks   []uint64
	timings []Timing
	run     ownRun
	owned   []*Buffer
	closed  bool
}

// NewRecording makes an empty recording.
func (c *Context) NewRecording(i RecordingInfo) (*Recording, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if i.MaxDispatches < 1 || i.MaxDispatches > 1<<20 {
		return nil, argErr("NewRecording", "MaxDispatches", i.MaxDispatches, "it must be at least 1 and at most 1048576")
	}
	if i.MaxBindings < 0 || i.MaxBindings > 1<<24 {
		return nil, argErr("NewRecording", "MaxBindings", i.MaxBindings, "it must be at least 0 and at most 16777216")
	}
	r := &Recording{ctx: c, info: i, labels: make([]string, 0, i.MaxDispatches)}
	r.sets = descriptorSets{dev: c.dev, maxSets: i.MaxDispatches, maxBindings: i.MaxBindings}
	r.run.pending.rec = r
	if to := c.lists.Load(); to != nil {
		r.listTo = *to
	}
	if i.Listed || r.listTo != nil {
		r.list = &listed{}
	}
	if i.Timestamps && c.HasTimestamps() {
		var err error
		if r.queries, err = c.dev.NewQueryPool(i.MaxDispatches + 1); err != nil {
			return nil, err
		}
		r.ticks = make([]uint64, i.MaxDispatches+1)
		r.timings = make([]Timing, 0, i.MaxDispatches)
	}
	r.hazards.reset()
	c.recordings.Store(r, struct{}{})
	return r, nil
}

// HasTimestamps says whether the recording times its operations: it was asked to and the queue can.
func (r *Recording) HasTimestamps() bool { return r != nil && r.queries != nil }

// Len is the number of operations so far.
func (r *Recording) Len() int {
	if r == nil {
		return 0
	}
	return len(r.labels)
}

// Barriers is the number of barriers so far; the last one, towards what follows, is added by Record or Submit.
func (r *Recording) Barriers() int {
	if r == nil {
		return 0
	}
	return r.barriers
}

// Indirect is the number of operations so far whose workgroups the device counts: DispatchIndirect.
func (r *Recording) Indirect() int {
	if r == nil {
		return 0
	}
	return r.indirect
}

// Err returns the first error since Reset.
func (r *Recording) Err() error {
	if r == nil || r.ctx == nil {
		return ErrClosed
	}
	return r.err
}

// Reset empties the recording. It keeps what it owns.
func (r *Recording) Reset() error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if r.run.inFlight {
		return ErrInFlight
	}
	r.stream.Reset()
	r.hazards.reset()
	r.sets.reset()
	r.list.reset()
	r.labels = r.labels[:0]
	r.bindings, r.barriers, r.indirect = 0, 0, 0
	r.first = r.first[:0]
	r.sealed, r.err = false, nil
	r.run.recorded, r.run.finished = false, false
	return nil
}

// Own makes the recording close a buffer, its workspace say, when it is closed itself.
func (r *Recording) Own(b *Buffer) {
	if r == nil || r.ctx == nil {
		b.Close()
		return
	}
	r.ctx.life.RLock()
	defer r.leave()
	r.owned = append(r.owned, b)
	if r.closed {
		b.Close()
	}
}

// Close waits for the recording's own submission and frees everything it owns. Where it cannot wait it frees nothing, and can be
// called again. Closing again does nothing.
func (r *Recording) Close() error {
	if r == nil || r.ctx == nil {
		return nil
	}
	r.ctx.life.RLock()
	defer r.leave()
	return r.close()
}

func (r *Recording) close() error {
	if r.closed {
		return nil
	}
	var err error
	if r.run.inFlight {
		if err = r.run.pending.finish(); r.run.inFlight {
			return err
		}
	}
	r.closed = true
	r.ctx.recordings.Delete(r)
	err = errors.Join(err, r.run.close(), r.sets.close())
	if r.queries != nil {
		err = errors.Join(err, r.queries.Close())
	}
	for _, b := range r.owned {
		b.Close()
	}
	return err
}

// enter begins a use of the recording; leave must follow when it does not fail.
func (r *Recording) enter() error {
	if r == nil {
		return ErrClosed
	}
	if err := r.ctx.enter(); err != nil {
		return err
	}
	if r.closed {
		r.leave()
		return ErrClosed
	}
	return nil
}

func (r *Recording) leave() { r.ctx.leave() }

// fail keeps the first error and returns it.
func (r *Recording) fail(err error) error {
	if r.err == nil {
		r.err = err
	}
	return r.err
}

// Prior declares how a range was last used before the recording; the zero Use stands for DefaultPrior. It must come before
// the operations that touch the range.
func (r *Recording) Prior(b Binding, u Use) error {
	if err := r.declare("Prior", &b, u); err != nil {
		return err
	}
	defer r.leave()
	r.hazards.declarePrior(b.Buffer.Handle(), b.Offset, b.Offset+b.Size, u)
	return nil
}

// Next declares how a range will be used after the recording; the zero Use stands for DefaultNext.
func (r *Recording) Next(b Binding, u Use) error {
	if err := r.declare("Next", &b, u); err != nil {
		return err
	}
	defer r.leave()
	r.hazards.declareNext(b.Buffer.Handle(), b.Offset, b.Offset+b.Size, u)
	return nil
}

// Used is Prior and Next of a binding whose first bytes, so many, are something else's: those that BindAligned has it begin before.
func (r *Recording) Used(b Binding, before uint64, prior, next Use) error {
	if err := r.Prior(b, prior); err != nil {
		return err
	}
	if err := r.declare("Used", &b, next); err != nil {
		return err
	}
	defer r.leave()
	buffer, lo, hi := b.Buffer.Handle(), b.Offset, b.Offset+b.Size
	r.hazards.declareNext(buffer, lo, hi, next)
	r.hazards.belongs(buffer, lo, hi, lo+min(before, b.Size-1))
	return nil
}

// declare begins a declaration, as open does.
func (r *Recording) declare(call string, b *Binding, u Use) error {
	if err := r.open(call); err != nil {
		return err
	}
	var err error
	if name, value, rule := r.ctx.check(b, 1); rule != "" {
		err = r.fail(argErr(call, name, value, rule))
	} else if u.Stages == 0 && u.Accesses != 0 {
		err = r.fail(argErr(call, "Stages", u.Stages, "accesses need the stages that make them"))
	}
	if err != nil {
		r.leave()
	}
	return err
}

// open begins to add something, or returns why nothing can be added; leave must follow when it does not fail.
func (r *Recording) open(call string) error {
	if r == nil {
		return ErrClosed
	}
	if r.err != nil {
		return r.err
	}
	err := r.enter()
	if err != nil {
		return r.fail(err)
	}
	switch {
	case r.run.inFlight:
		err = ErrInFlight
	case r.sealed:
		err = argErr(call, "recording", "already recorded", "Reset must come before new operations")
	}
	if err != nil {
		r.leave()
	}
	return err
}

// Dispatch adds a run of a kernel on groups[0]·groups[1]·groups[2] workgroups. access holds the kernel's bindings in order
// with what the kernel does to each; push its push constants, which are copied. Ranges that one dispatch both reads and
// writes through different bindings are ordered against other operations only.
func (r *Recording) Dispatch(k *Kernel, access []Access, push []byte, groups [3]uint32, label string) error {
	if err := r.open("Dispatch"); err != nil {
		return err
	}
	defer r.leave()
	l := &r.ctx.facts.Limits.MaxWorkgroupCount
	for d, n := range groups {
		if n == 0 || n > l[d] {
			return r.fail(argErr(fmt.Sprintf("Dispatch %q", label), "groups", groups,
				fmt.Sprintf("each must be at least 1 and at most %v, the device's limit", *l)))
		}
	}
	return r.dispatch(k, access, push, groups, Binding{}, label)
}

// DispatchIndirect is Dispatch on as many workgroups as the device finds in memory when it comes to it, three numbers of 32 bits at the
// beginning of groups: x, y and z. What wrote them before is waited for as for a binding. None may be above the device's limit, which
// nothing checks; where one is 0, nothing runs. groups.Offset must be a multiple of 4; Size says what is read, vk.DispatchIndirectBytes.
func (r *Recording) DispatchIndirect(k *Kernel, access []Access, push []byte, groups Binding, label string) error {
	if err := r.open("DispatchIndirect"); err != nil {
		return err
	}
	defer r.leave()
	name, value, rule := r.ctx.check(&groups, 4)
	if rule == "" && groups.Size != vk.DispatchIndirectBytes {
		name, value, rule = "Size", groups.Size, fmt.Sprintf("it must be %d", vk.DispatchIndirectBytes)
	}
	if rule != "" {
		return r.fail(argErr(fmt.Sprintf("DispatchIndirect %q", label), "groups."+name, value, rule))
	}
	return r.dispatch(k, access, push, [3]uint32{}, groups, label)
}

// dispatch adds a run on a number of workgroups, or on those in memory where there is a buffer. The recording is open.
func (r *Recording) dispatch(k *Kernel, access []Access, push []byte, groups [3]uint32, indirect Binding, label string) error {
	if err := r.checkDispatch(k, access, push, label); err != nil {
		return r.fail(err)
	}
	var set vk.DescriptorSet
	if len(access) > 0 {
		var err error
		if set, err = r.sets.next(k, access); err != nil {
			return r.fail(err)
		}
	}
	r.begin(label)
	var b barrier
	for i := range access {
		a := &access[i]
		r.hazards.need(&b, a.Buffer.Handle(), a.Offset, a.Offset+a.Size, vk.StageCompute, a.Mode)
	}
	if indirect.Buffer != nil {
		r.hazards.need(&b, indirect.Buffer.Handle(), indirect.Offset, indirect.Offset+indirect.Size, vk.StageIndirect, Read)
	}
	r.barrier(b)
	r.list.dispatch(k, access, push, groups, indirect, label)
	r.expect(k)
	r.stream.Bind(k.pipeline, set)
	if len(push) > 0 {
		r.stream.Push(push)
	}
	if indirect.Buffer != nil {
		r.stream.DispatchIndirect(indirect.Buffer, indirect.Offset)
		r.indirect++
		r.hazards.did(indirect.Buffer.Handle(), indirect.Offset, indirect.Offset+indirect.Size, vk.StageIndirect, Read)
	} else {
		r.stream.Dispatch(groups[0], groups[1], groups[2])
	}
	for i := range access {
		a := &access[i]
		r.hazards.did(a.Buffer.Handle(), a.Offset, a.Offset+a.Size, vk.StageCompute, a.Mode)
	}
	r.bindings += len(access)
	return r.end(label)
}

func (r *Recording) checkDispatch(k *Kernel, access []Access, push []byte, label string) error {
	bad := func(name string, value any, rule string) error {
		return argErr(fmt.Sprintf("Dispatch %q", label), name, value, rule)
	}
	switch {
	case k == nil:
		return bad("k", "nil", "it must be a kernel")
	case k.ctx != r.ctx:
		return bad("k", k.name, "it must be a kernel of the recording's context")
	case len(access) != k.bindings:
		return bad("len(access)", len(access), fmt.Sprintf("kernel %q has %d bindings", k.name, k.bindings))
	case len(push) != k.pushBytes:
		return bad("len(push)", len(push), fmt.Sprintf("kernel %q takes %d bytes of push constants", k.name, k.pushBytes))
	case len(r.labels) >= r.info.MaxDispatches:
		return bad("operation", len(r.labels)+1, fmt.Sprintf("the recording was made for %d (MaxDispatches)", r.info.MaxDispatches))
	case r.bindings+len(access) > r.info.MaxBindings:
		return bad("bindings", r.bindings+len(access), fmt.Sprintf("the recording was made for %d (MaxBindings)", r.info.MaxBindings))
	}
	l := &r.ctx.facts.Limits
	for i := range access {
		b := &access[i].Binding
		if name, value, rule := r.ctx.check(b, max(l.MinStorageBufferAlignment, 1)); rule != "" {
			return bad(fmt.Sprintf("access[%d].%s", i, name), value, rule)
		}
		if b.Size > l.MaxStorageBufferRange {
			return bad(fmt.Sprintf("access[%d].Size", i), b.Size, fmt.Sprintf("one binding may hold at most %d bytes on this device",
				l.MaxStorageBufferRange))
		}
		if access[i].Mode > ReadWrite {
			return bad(fmt.Sprintf("access[%d].Mode", i), access[i].Mode, "it must be Unused, Read, Write or ReadWrite")
		}
	}
	return nil
}

// Copy adds a copy of all of src to dst, which must be as long.
func (r *Recording) Copy(dst, src Binding, label string) error {
	if err := r.open("Copy"); err != nil {
		return err
	}
	defer r.leave()
	if err := r.checkTransfer("Copy", "dst.", label, &dst, 1); err != nil {
		return r.fail(err)
	}
	if err := r.checkTransfer("Copy", "src.", label, &src, 1); err != nil {
		return r.fail(err)
	}
	if dst.Size != src.Size {
		return r.fail(argErr(fmt.Sprintf("Copy %q", label), "dst.Size", dst.Size, fmt.Sprintf("it must be src.Size, %d", src.Size)))
	}
	d, s := dst.Buffer.Handle(), src.Buffer.Handle()
	r.begin(label)
	var b barrier
	r.hazards.need(&b, d, dst.Offset, dst.Offset+dst.Size, vk.StageTransfer, Write)
	r.hazards.need(&b, s, src.Offset, src.Offset+src.Size, vk.StageTransfer, Read)
	r.barrier(b)
	r.list.transfer(Copied, label, 0, Access{dst, Write}, Access{src, Read})
	r.stream.Copy(dst.Buffer, dst.Offset, src.Buffer, src.Offset, src.Size)
	r.hazards.did(d, dst.Offset, dst.Offset+dst.Size, vk.StageTransfer, Write)
	r.hazards.did(s, src.Offset, src.Offset+src.Size, vk.StageTransfer, Read)
	return r.end(label)
}

// Fill adds the filling of a range with a repeated 32-bit value. Offset and Size must be multiples of 4.
func (r *Recording) Fill(dst Binding, value uint32, label string) error {
	if err := r.open("Fill"); err != nil {
		return err
	}
	defer r.leave()
	if err := r.checkTransfer("Fill", "dst.", label, &dst, 4); err != nil {
		return r.fail(err)
	}
	if dst.Size%4 != 0 {
		return r.fail(argErr(fmt.Sprintf("Fill %q", label), "dst.Size", dst.Size, "it must be a multiple of 4"))
	}
	d := dst.Buffer.Handle()
	r.begin(label)
	var b barrier
	r.hazards.need(&b, d, dst.Offset, dst.Offset+dst.Size, vk.StageTransfer, Write)
	r.barrier(b)
	r.list.transfer(Filled, label, value, Access{dst, Write})
	r.stream.Fill(vk.BufferRange{Buffer: dst.Buffer, Offset: dst.Offset, Size: dst.Size}, value)
	r.hazards.did(d, dst.Offset, dst.Offset+dst.Size, vk.StageTransfer, Write)
	return r.end(label)
}

func (r *Recording) checkTransfer(call, arg, label string, b *Binding, align uint64) error {
	if len(r.labels) >= r.info.MaxDispatches {
		return argErr(fmt.Sprintf("%s %q", call, label), "operation", len(r.labels)+1,
			fmt.Sprintf("the recording was made for %d (MaxDispatches)", r.info.MaxDispatches))
	}
	if name, value, rule := r.ctx.check(b, align); rule != "" {
		return argErr(fmt.Sprintf("%s %q", call, label), arg+name, value, rule)
	}
	return nil
}

// begin opens an operation: timestamps start with the first one.
func (r *Recording) begin(label string) {
	if r.queries != nil && len(r.labels) == 0 {
		r.stream.ResetQueries(r.queries, 0, r.info.MaxDispatches+1)
		r.stream.WriteTimestamp(r.queries, 0, vk.StageBottom)
	}
	if label != "" {
		r.stream.Label(label)
	}
}

// end closes an operation.
func (r *Recording) end(label string) error {
	if label != "" {
		r.stream.EndLabel()
	}
	r.labels = append(r.labels, label)
	if r.queries != nil {
		r.stream.WriteTimestamp(r.queries, len(r.labels), vk.StageBottom)
	}
	if err := r.stream.Err(); err != nil {
		return r.fail(err)
	}
	return nil
}

func (r *Recording) barrier(b barrier) {
	if b.srcStages == 0 || b.dstStages == 0 {
		return
	}
	r.stream.Barrier(b.srcStages, b.srcAccesses, b.dstStages, b.dstAccesses)
	r.hazards.passed(b)
	r.list.barrier(b)
	r.barriers++
}

// seal ends the list of operations with the barrier towards what follows. The recording is entered.
func (r *Recording) seal() error {
	if r.err != nil {
		return r.err
	}
	if !r.sealed {
		r.barrier(r.hazards.final())
		r.sealed = true
		if r.listTo != nil {
			r.listTo(r.listing())
		}
	}
	if err := r.ctx.runs(); err != nil {
		return err
	}
	return r.stream.Err()
}

// Record writes the operations into a command buffer that is being recorded, outside of a render pass. It submits nothing.
// The command buffer may be anybody's, of the same device and a queue family that computes.
func (r *Recording) Record(cmd *vk.CommandBuffer) error {
	if cmd == nil {
		return argErr("Record", "cmd", "nil", "it must be a command buffer")
	}
	if err := r.enter(); err != nil {
		return err
	}
	defer r.leave()
	if err := r.seal(); err != nil {
		return err
	}
	return cmd.Execute(&r.stream)
}

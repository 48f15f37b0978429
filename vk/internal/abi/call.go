package abi

// maxArgs is the most that a function of Vulkan takes: vkCmdPipelineBarrier's.
const maxArgs = 10

// call is a function with its arguments, and then its result. The assembly knows where they lie.
type call struct {
	function uintptr
	args     [maxArgs]uintptr
	result   uintptr
}

// batchCalls is how many calls are made at once, at the most: enough for the commands of some dispatches.
const batchCalls = 32

// batch is calls that are made one after another. A goroutine's way to C and back costs more than a function that records a command, so
// that such functions share one.
type batch struct {
	next, end uintptr // the calls that are to be made, from one to before another
	calls     [batchCalls]call
	n         int
}

// Call calls a function of C by its address, with integers and addresses. What was queued is called before. It allocates nothing.
func (f *Frame) Call(function uintptr, args ...uintptr) uintptr {
	f.Queue(function, args...)
	c := &f.batch.calls[f.batch.n-1]
	f.Flush()
	return c.result
}

// Queue has a function called by the next Call or Flush, or before: what its arguments are the addresses of must stay as it is until then.
func (f *Frame) Queue(function uintptr, args ...uintptr) {
	b := &f.batch
	if b.n == len(b.calls) {
		f.Flush()
	}
	c := &b.calls[b.n]
	b.n++
	c.function = function
	for i, a := range args { // few: a loop is faster than copy
		c.args[i] = a
	}
}

// Flush calls what was queued.
func (f *Frame) Flush() {
	b := &f.batch
	if b.n > 0 {
		b.run()
		b.n = 0
	}
}

// Package flash is exact attention — FlashAttention — on any GPU with a Vulkan driver.
//
// A Device is opened (or a caller's device attached), tensors are made on it or laid over the caller's buffers, and a Plan is
// made once per Problem: it chooses a kernel, builds its pipelines lazily, and says how many bytes of workspace it needs. A
// Plan then runs and waits (Forward), runs without waiting (SubmitForward), or writes its commands into the caller's command
// buffer (RecordForward). Attention does everything in one call on Go slices.
//
// Devices, tensors and plans may be used from several goroutines. A Recording belongs to one goroutine at a time.
package flash

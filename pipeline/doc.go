// Package pipeline turns SPIR-V modules into recorded, timed and submitted GPU work.
//
// It stands on package vk and knows nothing of what its kernels compute. It adds to the plain Vulkan objects what every
// user of a compute device needs:
//
//   - Context: one device with its pipelines, its memory account and its staging buffers.
//   - Context.Alloc: memory counted by label, with a high-water mark, refused with a reason before it can fail.
//   - Context.Kernel: compute pipelines made once per content, kept on disk between runs.
//   - Recording: a sequence of dispatches, copies and fills whose barriers follow from declared use; it writes itself into
//     its own or anybody's command buffer.
//   - Recording.Listing and Context.List: what recordings hold, as data and as text, for those who ask.
//   - Context.Submit and Pending: asynchronous execution with a timestamp per operation.
//   - Context.Upload and Context.Download: transfers through a staging ring.
//
// # Concurrency
//
// A Context may be used by several goroutines at once. A Recording, its Pending included, belongs to one goroutine at a
// time; any number of recordings may be in flight together. Submission is serialised inside.
//
// # Synchronisation
//
// Inside a recording every access is declared (Read, Write), so a barrier is recorded exactly where an operation depends on
// an earlier one. At its borders a recording assumes, for each range, the prior and the next use that Prior and Next
// declared, or else DefaultPrior and DefaultNext, which are right for any neighbour that computes, transfers or, after a
// wait, reads on the host. No state is kept between recordings, so that they may be replayed and reordered.
package pipeline

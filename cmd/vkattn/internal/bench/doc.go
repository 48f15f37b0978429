// Package bench measures attention on a device: how (warm-up, repetition, rounds), beside whom (a peer), and how right the timed output was
// (the error column). What is measured and what is recorded of it are package result's.
//
// Data flows one way:
//
//	Grid → []Case → Sweep (device, peer process) → []Row → JSON lines
//
// Files read downwards, each using those above it:
//
//	inputs    placing, inputs
//	device    failure, describe, bench, device, sample, prepare, tensors
//	checks    check, shape, scoring, gradient, check_scores, check_backward
//	measured  forward, backward, measure; listed, trace, trace_ring
//	swept     peer, predict, sweep, tune
//
// Nothing here draws tables; package report does that from the rows.
package bench

// Package bench measures attention on a device: which problems (cases, grids, suites), how (warm-up, repetition, statistics), how right the
// timed output was (the error column), and where the figures go (a JSON-lines file).
//
// Data flows one way:
//
//	Grid → []Case → Sweep (device, peer process) → []Row → JSON lines
//
// Files read downwards, each using those above it:
//
//	numbers     stats, format, lines, object, stream
//	asked       tuning, parse, implementation, passes, case, lengths, cache, scores, density, problem: one case and its work;
//	            grid, axis, axes, identity, expand, job, suite: many, by the table of axes
//	recorded    parts, header, figures, row, rounds; column, columns, rowjson: by the table of columns; picture, ringrow, file, outfile
//	measured    placing, inputs, failure, describe, bench, device, sample, prepare, masks, tensors; check, shape, scoring, gradient,
//	            check_scores, check_backward; forward, backward, measure; listed, tracefile, trace, trace_ring
//	swept       peer, predict, sweep, tune
//
// Nothing here draws tables; package report does that from the rows.
package bench

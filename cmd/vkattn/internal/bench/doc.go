// Package bench measures attention on a device: which problems (cases,
// grids, suites), how (warm-up, repetition, statistics), how right the timed
// output was (the error column), and where the figures go (a JSON-lines file).
//
// Data flows one way:
//
//	Grid → []Case → Sweep (device, peer process) → []Row → JSON lines
//
// Nothing here draws tables; package report does that from the rows.
package bench

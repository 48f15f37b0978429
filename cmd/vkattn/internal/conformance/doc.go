// Package conformance is the one suite that every implementation and tier must pass on every device.
//
// A Case is a problem, its inputs and where its tensors lie in memory. It is computed once on the CPU
// (the float64 oracle and plain attention, package ref) and then run on each Target: three times, into
// outputs that are filled with NaN beforehand, between guards that must not change, from inputs that
// are surrounded by NaN and infinity. Every element must be written, the three runs must agree bit by
// bit, and o and lse must be as close to the oracle as the bounds in package ref ask.
//
// The tests of this package and the command vkattn verify run the same cases. A Folder has others in their place: golden vectors and cases
// of operators of ONNX, of which some ask for what the library does not have; the table in features.go says what it has.
package conformance

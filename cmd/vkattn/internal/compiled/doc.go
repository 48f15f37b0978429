// Package compiled tells what a driver makes of kernels, which need not run for it: registers, spills, shared memory, how many subgroups
// run at once, cycles. A table of it, of a driver with or without its hardware, is text that is compared with the one from before.
package compiled

// Package ranks measures attention that is spread over several devices, of one process or of processes that MPI joins, beside the same on
// one: flash/ring. It measures their links too.
package ranks

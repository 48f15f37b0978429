// Package mpi joins ranks of package ring that are processes, of one host or of several, by MPI (Message Passing Interface: A
// Message-Passing Interface Standard, version 3.1, MPI Forum, 2015).
//
// It is built on Open MPI, and only with the build tag mpi; without it [Open] says how to get it. Programs are started by mpirun:
//
//	apt-get install libopenmpi-dev openmpi-bin pkg-config    # Debian, Ubuntu
//	go build -tags mpi ./yourprogram
//	mpirun -n 4 ./yourprogram
//
// Nothing waits inside of MPI: all requests are nonblocking, and one thread, which owns every call of MPI, tests them in turn. So any level
// of threads that MPI provides will do, and every wait ends with its context. Messages pass through memory of this package's own, in
// pieces: they may be of any length, and memory of the caller can be freed after an error, whatever MPI still has under way. Rings of one
// host on Linux send few bytes: ranks map one another's memory (ring.ShowMemory), and their messages are empty.
package mpi

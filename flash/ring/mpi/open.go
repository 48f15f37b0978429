package mpi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vkattn/vkattn/flash/ring"
)

// Comm is a ring.Comm whose ranks are the processes that mpirun has started.
type Comm interface {
	ring.Comm
	// Host is the number of this rank among those of its host, and how many these are: ranks of a host take its GPUs in turn.
	Host() (rank, size int)
}

// Options are how a process joins.
type Options struct {
	// Leave is how long Close waits for the other ranks to close theirs, which MPI wants of all of them before a process ends. 0 is a
	// minute.
	Leave time.Duration
}

var (
	// ErrUnavailable marks errors of programs that have no MPI.
	ErrUnavailable = errors.New("mpi: not available")
	// ErrOpen is the error of a second Open: MPI begins once in a process.
	ErrOpen = errors.New("mpi: was opened already: MPI begins once in a process")
)

// Error is what a call of MPI has failed with.
type Error struct {
	Call string // for example "MPI_Isend"
	Rank int    // the other rank it was about, −1 for all
	Text string // of MPI
}

// Error names the call and the rank.
func (e *Error) Error() string {
	if e.Rank < 0 {
		return fmt.Sprintf("mpi: %s: %s", e.Call, e.Text)
	}
	return fmt.Sprintf("mpi: %s, rank %d: %s", e.Call, e.Rank, e.Text)
}

// Open begins MPI and gives this process's Comm. It is called once in a process, by all of them; the context bounds how long they wait for
// one another. A process that was not started by mpirun is a group of one.
//
// The Comm is to be closed before the process ends: mpirun ends every rank when one exits without that.
func Open(ctx context.Context, o Options) (Comm, error) {
	if o.Leave == 0 {
		o.Leave = time.Minute
	}
	return open(ctx, o)
}

package main

import (
	"context"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring"
	"github.com/vkattn/vkattn/flash/ring/mpi"
)

// joinMPI joins the processes that mpirun has started, and opens the device of this one: ranks of a host take its GPUs in turn.
func joinMPI(ctx context.Context, share bool, opts []flash.DeviceOption) (mpi.Comm, *flash.Device, error) {
	waits, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	comm, err := mpi.Open(waits, mpi.Options{Leave: 20 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	rank, ranks := comm.Host()
	d, err := ring.OpenRank(rank, ranks, share, opts...)
	if err != nil {
		comm.Abort(err)
		_ = comm.Close() // the others tell the same
		return nil, nil, err
	}
	return comm, d, nil
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/vkattn/vkattn/flash"
	"github.com/vkattn/vkattn/flash/ring/mpi"
	"github.com/vkattn/vkattn/internal/bench"
)

// joinMPI joins the processes that mpirun has started, and opens the device of this one: ranks of a host take its GPUs in turn.
func joinMPI(ctx context.Context, infos []flash.DeviceInfo, share bool, opts []flash.DeviceOption) (mpi.Comm, *flash.Device, error) {
	waits, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	comm, err := mpi.Open(waits, mpi.Options{Leave: 20 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	d, err := openTurn(comm, infos, share, opts)
	if err != nil {
		comm.Abort(err)
		_ = comm.Close() // the others tell the same
		return nil, nil, err
	}
	return comm, d, nil
}

func openTurn(comm mpi.Comm, infos []flash.DeviceInfo, share bool, opts []flash.DeviceOption) (*flash.Device, error) {
	var gpus []int
	for _, d := range infos {
		if !bench.IsCPU(d) {
			gpus = append(gpus, d.Index)
		}
	}
	if len(gpus) == 0 && len(infos) > 0 {
		gpus = []int{infos[0].Index}
	}
	if len(gpus) == 0 {
		return nil, flash.ErrNoDevice
	}
	rank, size := comm.Host()
	if size > len(gpus) && !share {
		return nil, fmt.Errorf("--mpi: %s on a host of %s: a device each, unless ranks share devices (--share-device)", count(size, "rank"), count(len(gpus), "device"))
	}
	return flash.Open(append(opts[:len(opts):len(opts)], flash.WithCopyQueues(), flash.WithDevice(strconv.Itoa(gpus[rank%len(gpus)])))...)
}

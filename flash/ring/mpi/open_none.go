//go:build !mpi || !cgo

package mpi

import (
	"context"
	"fmt"
)

func open(context.Context, Options) (Comm, error) {
	return nil, fmt.Errorf("%w: this program was built without it. Install Open MPI (Debian, Ubuntu: apt-get install libopenmpi-dev "+
		"openmpi-bin pkg-config; "+
		"Fedora: dnf install openmpi-devel; Arch: pacman -S openmpi), build with CGO_ENABLED=1 and -tags mpi, and start "+
		"with mpirun -n RANKS PROGRAM",
		ErrUnavailable)
}

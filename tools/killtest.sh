#!/bin/bash
# Kill vkattn over and over, and see that nothing is lost: sweeps that are appended to a file, tune, verify, and every file that
# is replaced beside them; and ranks in every phase of a pass, in one process and, where there is MPI, processes, whose others must have
# errors in time and devices that work on. It takes about an hour with a CPU as the device.
#
#   tools/killtest.sh        200 kills of each
#   tools/killtest.sh 1000   more
#
# Go's tests do the same a few times.
set -euo pipefail
cd "$(dirname "$0")/.."
mpi=()
! { command -v mpirun && command -v pkg-config && pkg-config --exists ompi-c; } >/dev/null || mpi=(-tags mpi)
VKATTN_KILLS=${1:-200} exec tools/test.sh -timeout 4h -v "${mpi[@]}" -run '^TestKill' ./internal/diskfile ./cmd/vkattn ./flash/ring ./flash/ring/mpi

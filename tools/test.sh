#!/bin/bash
# go test on this machine's Vulkan driver, the GPU's or the one that setup.sh unpacked.
#
#   tools/test.sh                     every package, the whole suite: a quarter to three quarters of an hour where a CPU is the device
#   tools/test.sh -short              the same kernels and forms, each option once instead of all together: some twelve minutes
#   tools/test.sh -run Golden ./flash any arguments of go test
#
# Tests skip what the machine lacks, and say so; these turn such skips into failures:
#   VKATTN_REQUIRE_DEVICE=1       a Vulkan device
#   VKATTN_REQUIRE_MATRIX=1       cooperative matrices
#   VKATTN_REQUIRE_VALIDATION=1   the Khronos validation layer
#   VKATTN_REQUIRE_BROWSER=1      a Chromium (VKATTN_BROWSER names one)
#   VKATTN_REQUIRE_DISPLAY=1      Xvfb, xdotool and twm, for tests built with -tags view: each starts a display of its own
#   VKATTN_REQUIRE_MPI=1          mpirun, for tests built with -tags mpi
#   VKATTN_REQUIRE_CC=1           a C compiler, for the C interface and the layout of structures
#   VKATTN_REQUIRE_NUMPY=1        a Python with NumPy
#   VKATTN_REQUIRE_ALL=1          time for every test
# The summary also counts the pipelines that were compiled, with the dearest, and messages of the validation layers that no program can help.
# VKATTN_TEST_BUDGET is the time of one package (20m): what does not fit in skips, and says so. VKATTN_TEST_TIMEOUT is go test's own limit,
# at which it ends a package with a panic (1h).
set -euo pipefail
cd "$(dirname "$0")/.."
VKATTN_EXEC=$(tools/setup.sh --exec)
export VKATTN_EXEC # for tests that start a built command

# -count=1: a result remembered from another driver would say nothing about this one.
flags=(-count=1 -timeout "${VKATTN_TEST_TIMEOUT:-1h}")
[ -z "$VKATTN_EXEC" ] || flags+=(-exec "$VKATTN_EXEC")
# Without a package all of them, those that take longest first, so that no core waits for them at the end.
case " $* " in
*" ."* | *" github.com/"* | *" -args "*) ;;
*) set -- "$@" ./flash ./cmd/vkattn/internal/conformance ./cmd/vkattn ./flash/ring ./cmd/vkattn/internal/bench ./... ;;
esac
verbose=()
for a in "$@"; do
  case $a in
  -json | -json=* | -bench | -bench=* | -fuzz | -fuzz=* | -list | -list=* | -c | -h | -help) exec go test "${flags[@]}" "$@" ;;
  -v | -v=true | -test.v) verbose=(-v) ;;
  -args) break ;;
  esac
done

# The view runs here, not under the driver's prefix. The tests' processes tell it what to count, pipelines that they compile say, by way of a file.
go build -o bin/testview ./internal/testview
VKATTN_TEST_TALLY=$(mktemp)
export VKATTN_TEST_TALLY
trap 'rm -f "$VKATTN_TEST_TALLY"' EXIT
set +e
go test -json "${flags[@]}" "$@" | bin/testview -tally "$VKATTN_TEST_TALLY" "${verbose[@]}"
status=("${PIPESTATUS[@]}")
[ "${status[0]}" = 0 ] || exit "${status[0]}"
exit "${status[1]}"

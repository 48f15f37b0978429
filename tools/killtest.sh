#!/bin/bash
# Kill vkattn over and over, and see that nothing is lost: sweeps that are appended to a file, tune, verify, and every file that
# is replaced beside them. It takes about half an hour with a CPU as the device.
#
#   tools/killtest.sh        200 kills of each
#   tools/killtest.sh 1000   more
#
# Go's tests do the same a few times.
set -euo pipefail
cd "$(dirname "$0")/.."
VKATTN_KILLS=${1:-200} exec tools/test.sh -timeout 4h -v -run '^TestKill' ./internal/diskfile ./cmd/vkattn

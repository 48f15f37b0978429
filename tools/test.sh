#!/bin/bash
# go test on this machine's Vulkan driver, the GPU's or the one that setup.sh unpacked.
#
#   tools/test.sh                     every package
#   tools/test.sh -run Golden ./flash any arguments of go test
#
# Tests skip what the machine lacks, and say so; these turn such skips into failures:
#   VKATTN_REQUIRE_DEVICE=1       a Vulkan device
#   VKATTN_REQUIRE_MATRIX=1       cooperative matrices
#   VKATTN_REQUIRE_VALIDATION=1   the Khronos validation layer
#   VKATTN_REQUIRE_BROWSER=1      a Chromium (VKATTN_BROWSER names one)
# VKATTN_TEST_TIMEOUT is the limit of one package (30m: with no cached pipelines, two cores compile for a quarter of an hour).
set -euo pipefail
cd "$(dirname "$0")/.."
VKATTN_EXEC=$(tools/setup.sh --exec)
export VKATTN_EXEC # for tests that start a built command

# -count=1: a result remembered from another driver would say nothing about this one.
flags=(-count=1 -timeout "${VKATTN_TEST_TIMEOUT:-30m}")
[ -z "$VKATTN_EXEC" ] || flags+=(-exec "$VKATTN_EXEC")
[ $# -gt 0 ] || set -- ./...
exec go test "${flags[@]}" "$@"

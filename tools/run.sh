#!/bin/bash
# Run a program on this machine's Vulkan driver, the GPU's or the one that setup.sh unpacked:  tools/run.sh bin/vkattn info
set -euo pipefail
wrapper=$("$(dirname "$0")/setup.sh" --exec)
# shellcheck disable=SC2086 # the prefix is several words
exec $wrapper "$@"

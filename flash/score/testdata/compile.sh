#!/bin/bash
# Compile the shaders of these tests beside their sources, with the compiler that tools/glslc.sh finds. The SPIR-V is committed.
# hooks16 is hooks in SPIR-V 1.6, whose entry points list every variable.
set -euo pipefail
cd "$(dirname "$0")"
glslc=$(../../../tools/glslc.sh --which)
# shellcheck disable=SC2086 # a command of several words
compile() { $glslc -fshader-stage=compute -O "--target-env=$2" ${4:-} -o "$3.spv" "$1.comp"; }
compile hooks vulkan1.1 hooks
compile hooks vulkan1.3 hooks16
compile hooks vulkan1.1 hooksfloat -DFLOATS
compile many vulkan1.1 many
compile branches vulkan1.1 branches
sha256sum -- *.comp *.spv > sums.sha256

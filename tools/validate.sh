#!/bin/bash
# The test suite under the other settings of the Khronos validation layers: any message fails the test that caused it.
#
#   tools/validate.sh [option...] [setting...]   settings: core sync best gpu, or several joined by commas: sync,best  (each of the four)
#
#   --packages LIST   of vk pipeline flash conformance soak (all)     --run REGEX   only tests that match
#   --out DIR         keep each run's output there                    --short       what go test -short leaves
#   --limit N         seconds for one package under one setting (3600); what had not run by then is counted as cut off
#   --newest          the layers of Debian's unstable suite, which --pack takes, in place of those that tests run with
#   --pack DIR        make a folder to carry to a machine with a GPU's driver and neither Go nor the layers: DIR/validate.tar.gz, some 35 MB
#   --packed DIR      run what is in that folder, in this checkout, on this machine's own driver
#   --libraries PATH  with --packed: folders of the driver's libraries that the machine's dynamic linker does not know
#
# A line for each package and setting: tests, subtests among them, and messages by number.
#
# gpu puts checks into every shader: on a CPU driver, which then compiles ten times as long, --run keeps it to what is small:
#   tools/validate.sh --packages "vk pipeline" gpu && tools/validate.sh --packages flash --run 'TestForward$|TestLayouts' gpu
# With --packed, VK_DRIVER_FILES chooses the driver as always: /usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json where NVIDIA's container tools put it.
set -euo pipefail
usage() { sed -n '2,22s/^# \{0,1\}//p' "$0" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
packages="vk pipeline flash conformance soak" pattern=. out= short= newest= limit=3600 pack= packed= libraries= settings=()
while [ $# -gt 0 ]; do
  case $1 in
  --packages | --run | --out | --limit | --pack | --packed | --libraries)
    [ $# -ge 2 ] || usage
    case $1 in --packages) packages=$2 ;; --run) pattern=$2 ;; --out) out=$2 ;; --limit) limit=$2 ;; --pack) pack=$2 ;; --packed) packed=$2 ;; --libraries) libraries=$2 ;; esac
    shift 2 ;;
  --short) short=-test.short; shift ;;
  --newest) newest=yes; shift ;;
  -*) usage ;;
  *) settings+=("$1"); shift ;;
  esac
done
[ ${#settings[@]} -gt 0 ] || settings=(core sync best gpu)
for s in "${settings[@]}"; do
  for part in ${s//,/ }; do case $part in core | sync | best | gpu) ;; *) echo "validate: setting $s: must be of core, sync, best and gpu" >&2; exit 2 ;; esac; done
done
folder() { case $1 in conformance | soak) echo "$top/cmd/vkattn/internal/$1" ;; *) echo "$top/$1" ;; esac; }
for p in $packages; do
  case " vk pipeline flash conformance soak " in *" $p "*) ;; *) echo "validate: package $p: must be of vk, pipeline, flash, conformance and soak" >&2; exit 2 ;; esac
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build() { # DIR [flags]
  for p in $packages; do (cd "$top" && go test -c "${@:2}" -o "$1/$p.test" "$(folder "$p")"); done
}

cache=${VKATTN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vkattn} from=
if [ -n "$pack$newest" ]; then
  # A GPU's driver has extensions that a stable Debian's layers do not know, and object to: the newest there are.
  from=$cache/layers
  "$top/tools/unpack-debs.sh" "$from" sid libvulkan1 vulkan-validationlayers libx11-6 libxcb1 >&2
  there=$(dirname "$(ls "$from"/usr/lib/*-linux-gnu/ld-linux*.so.*)")
fi

if [ -n "$pack" ]; then
  # The layers come with the C library that they are built for: with an older one on the machine, tests run on that, from the dynamic linker on.
  mkdir -p "$work/lib" "$work/layers" "$work/bin" "$pack"
  for l in ld-linux-x86-64.so.2 libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libresolv.so.2 libstdc++.so.6 libgcc_s.so.1 \
    libvulkan.so.1 libVkLayer_khronos_validation.so libX11.so.6 libxcb.so.1 libXau.so.6 libXdmcp.so.6; do
    cp -L "$there/$l" "$work/lib/$l"
  done
  sed 's#"library_path": *"\(.*/\)\{0,1\}#"library_path": "../lib/#' "$from"/usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json >"$work/layers/VkLayer_khronos_validation.json"
  build "$work/bin" -ldflags '-s -w'
  tar -C "$work" -czf "$pack/validate.tar.gz" lib layers bin
  ls -l "$pack/validate.tar.gz" >&2
  exit
fi

prefix=() bin=$work
if [ -n "$packed" ]; then
  tar -C "$work" -xzf "$packed/validate.tar.gz"
  bin=$work/bin
  export VK_LAYER_PATH=$work/layers VK_LOADER_LAYERS_DISABLE="~implicit~"
  # NVIDIA's driver wants two libraries of X, which the pack need not have: the machine's own are found after the pack's.
  if ldd "$work/lib/libVkLayer_khronos_validation.so" 2>&1 | grep -q 'not found'; then
    prefix=("$work/lib/ld-linux-x86-64.so.2" --library-path "$work/lib${libraries:+:$libraries}")
    echo "the machine's C library is too old for the layers: tests run on the pack's"
  else
    mkdir "$work/loader"
    cp "$work/lib/libvulkan.so.1" "$work/loader"
    prefix=(env "LD_LIBRARY_PATH=$work/loader${libraries:+:$libraries}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}")
  fi
else
  read -ra prefix <<<"$("$top/tools/setup.sh" --exec)"
  if [ -n "$newest" ]; then
    [ ${#prefix[@]} = 2 ] || { echo "validate: --newest is for the CPU driver that setup.sh unpacks; for a GPU, --pack and --packed" >&2; exit 2; }
    "${prefix[@]}" "$(type -P true)" # describes the driver, with its full path
    prefix=(env "VK_DRIVER_FILES=${prefix[1]}/lvp_abs.json" "VK_LAYER_PATH=$from/usr/share/vulkan/explicit_layer.d" "VK_LOADER_LAYERS_DISABLE=~implicit~"
      "$there/ld-linux-x86-64.so.2" --library-path "$there:${prefix[1]}/usr/lib/${there##*/}")
  fi
  build "$work"
fi
# The newest layers look for races in shared memory. They report accesses that the SPIR-V separates by a barrier at the head of a loop, and
# do not know barriers of a subgroup (issue 12813 of their repository).
export VK_KHRONOS_VALIDATION_GPUAV_SHARED_MEMORY_DATA_RACE=${VK_KHRONOS_VALIDATION_GPUAV_SHARED_MEMORY_DATA_RACE:-false}
# Checks are calls of functions marked not to be inlined, at which the compiler of NVIDIA's driver 580 crashes.
export VK_KHRONOS_VALIDATION_GPUAV_DEBUG_DISABLE_DONTINLINE=true
export VKATTN_REQUIRE_DEVICE=1 VKATTN_REQUIRE_VALIDATION=1 VKATTN_EXEC="${prefix[*]}"
[ -z "$out" ] || mkdir -p "$out"
failed=0
for setting in "${settings[@]}"; do
  for p in $packages; do
    log=${out:-$work}/${setting//,/+}-$p.txt began=$SECONDS status=0
    (cd "$(folder "$p")" && VKATTN_VALIDATION=$setting timeout "$limit" "${prefix[@]}" "$bin/$p.test" -test.v -test.timeout 0 $short -test.run "$pattern") >"$log" 2>&1 || status=$?
    count() { grep -cE "^ *--- $1: " "$log" || true; }
    messages=$(grep -oE '(VUID|SYNC|UNASSIGNED|BestPractices|VALIDATION|WARNING|INTERNAL|GPUAV|SharedMemoryDataRace)-[A-Za-z0-9_-]+' "$log" | sort | uniq -c | awk '{printf "%s%s×%s", sep, $1, $2; sep=", "}' || true)
    case $status in 0) verdict=ok ;; 124) verdict="cut off after ${limit}s" failed=1 ;; *) verdict="FAILED ($status)" failed=1 ;; esac
    printf '%-14s %-12s %6d passed %4d failed %5d skipped %6d s  %s  %s\n' "$setting" "$p" "$(count PASS)" "$(count FAIL)" "$(count SKIP)" $((SECONDS - began)) "$verdict" "${messages:-no messages}"
    [ $status = 0 ] || grep -E '^ *--- FAIL|panic:|validation|fatal error' "$log" | head -20 || true
  done
done
exit $failed

#!/bin/bash
# Run a program on a vendor's Vulkan driver without that vendor's hardware: the driver's own compiler compiles for real, nothing computes.
#
#   tools/vendors.sh list                     the families there are
#   tools/vendors.sh run FAMILY PROGRAM…      run a program; dispatches do nothing, so what it computes is worthless
#   tools/vendors.sh kernels [FAMILY…]        which kernels and tiles each family gets (bin/vkattn passes), of all families when none is named
#
#   tools/vendors.sh run amd:navi31 bin/vkattn passes --seq 4k --head-dim 128 --pass both
#
# Drivers are Mesa's, of Debian's newest suites: RADV (AMD), NVK (NVIDIA), Turnip (Adreno) and Honeykrisp (Apple), over libraries that make up
# a device for the kernel driver's part (mesa-drm-shim). They are unpacked into ~/.cache/vkattn/vendors, 308 MB, or VKATTN_CACHE; this needs a
# Debian of amd64, and no root. Kernels on matrices prove themselves before they are used, and cannot here: those of the scalar tier are
# chosen. With VENDOR_STATS=1 RADV prints registers, spills, shared memory and subgroups per SIMD of each shader that it compiles, to
# standard error. There is no such library for Intel.
set -euo pipefail
cd "$(dirname "$0")/.."

families=(amd:polaris10 amd:vega10 amd:renoir amd:navi10 amd:navi21 amd:navi31 amd:navi33 amd:phoenix amd:strix1 amd:gfx1201
  nvk:0x164 nvk:0x176 adreno:630 adreno:740 apple)

die() { printf 'vendors: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# unpack sets root, where the drivers are.
unpack() {
  root=${VKATTN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vkattn}/vendors
  tools/unpack-debs.sh "$root" "trixie trixie-backports" mesa-vulkan-drivers libvulkan1 mesa-drm-shim >&2 ||
    die "Mesa's drivers could not be unpacked into $root"
  lib=$(echo "$root"/usr/lib/*-linux-gnu)
  linker=$(ls "$lib"/ld-linux*.so.* | head -n 1)
}

# family FAMILY sets the driver, and the environment that makes the device up.
family() {
  local name=${1#*:} shim
  case $1 in
  amd:?*)
    driver=radeon shim=amdgpu
    # A name that the library does not know is one of its own choice, silently.
    tr '\0' '\n' < "$lib/libamdgpu_noop_drm_shim.so" | grep -ax "$name" > /dev/null || die "family $1: the library has no such device"
    export AMDGPU_GPU_ID=$name
    [ -z "${VENDOR_STATS:-}" ] || export RADV_DEBUG=shaderstats,nocache
    ;;
  nvk:0x*) driver=nouveau shim=nouveau; export NOUVEAU_CHIPSET=$name NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1 ;;
  adreno:[0-9]*) driver=freedreno shim=freedreno; export FD_GPU_ID=$name ;;
  apple) driver=asahi shim=asahi ;;
  *) die "family $1: it must be amd:NAME, nvk:CHIPSET, adreno:NUMBER or apple, such as tools/vendors.sh list has" ;;
  esac
  preload=$lib/lib${shim}_noop_drm_shim.so
  [ -r "$preload" ] || die "family $1: $preload is missing"
  local json=$root/usr/share/vulkan/icd.d/${driver}_icd.json
  [ -r "$json" ] || json=$(ls "$root"/usr/share/vulkan/icd.d/"${driver}"_icd.*.json 2>/dev/null | head -n 1)
  [ -r "$json" ] || die "family $1: Mesa's packages have no driver $driver"
  # Its description, with the library's full path.
  sed "s#\"library_path\": *\"\(.*/\)\{0,1\}#\"library_path\": \"$lib/#" "$json" > "$root/$driver.vendor.json.$$"
  mv "$root/$driver.vendor.json.$$" "$root/$driver.vendor.json"
  export VK_DRIVER_FILES=$root/$driver.vendor.json VK_LOADER_LAYERS_DISABLE='~implicit~'
}

run() { # FAMILY PROGRAM…
  (
    family "$1"
    program=$(command -v "$2") || die "no program $2"
    shift 2
    exec "$linker" --library-path "$lib" --preload "$preload" "$program" "$@"
  )
}

# kernels FAMILY prints a line for each of some problems.
kernels() {
  local of=$1 out line
  while read -r what flags; do
    # shellcheck disable=SC2086 # the flags are several words
    if out=$(run "$of" bin/vkattn passes $flags 2>&1); then
      line=$(grep -m 1 -E '^(flash|standard).*: ' <<<"$out" | sed 's/.*\(forward\|backward\): //')
    else
      line=$(tail -n 1 <<<"$out")
    fi
    printf '%-15s %-28s %s\n' "$of" "$what" "$line"
  done <<'PROBLEMS'
forward,fp16,D64 --seq 4k --head-dim 64
forward,fp16,D128 --seq 4k --head-dim 128
forward,fp32,D64 --seq 4k --head-dim 64 --dtype fp32
decode,fp16,D128 --batch 8 --heads 32 --kv-heads 8 --q-len 1 --seq 8k --head-dim 128
backward,fp16,D64 --seq 4k --head-dim 64 --pass bwd
PROBLEMS
}

case ${1:-} in
list) printf '%s\n' "${families[@]}" ;;
run)
  [ $# -ge 3 ] || usage
  unpack
  run "${@:2}"
  ;;
kernels)
  shift
  [ $# -gt 0 ] || set -- "${families[@]}"
  unpack
  go build -o bin/vkattn ./cmd/vkattn
  export VKATTN_TUNING=off
  for f; do kernels "$f"; done
  ;;
*) usage ;;
esac

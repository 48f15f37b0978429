#!/bin/bash
# Run a program on a vendor's Vulkan driver without that vendor's hardware: the driver's own compiler compiles for real, nothing computes.
#
#   tools/vendors.sh list                     the families there are
#   tools/vendors.sh run FAMILY PROGRAM…      run a program; dispatches do nothing, so what it computes is worthless
#   tools/vendors.sh compile [--suite NAME] [--compare] [FAMILY…]
#                                             compile the kernels of a suite of problems (compile-all), of all families when none is named:
#                                             a table of each in testdata/vendors, or, with --compare, fail where one is worse than there
#
#   tools/vendors.sh run amd:navi31 bin/vkattn passes --seq 4k --head-dim 128 --pass both
#
# Drivers are Mesa's, of Debian's newest suites: RADV (AMD), NVK (NVIDIA), Turnip (Adreno) and Honeykrisp (Apple), over libraries that make up
# a device for the kernel driver's part (mesa-drm-shim). They are unpacked into ~/.cache/vkattn/vendors, 330 MB, or VKATTN_CACHE; this needs a
# Debian of amd64, and no root. There is no such library for Intel.
#
# amd-25.0, nvk-25.0 and amd-22.3 are the compilers of Debian 13's and 12's Mesa (vendors-25.0, vendors-22.3; 290 MB each). The library does
# not fit these RADVs, which make a device up themselves (RADV_FORCE_FAMILY): one without memory, so that programs can plan and not record.
#
# What is compiled goes through the validation layers first. With VENDOR_STATS=1 RADV prints registers, spills, shared memory and subgroups
# per SIMD of each shader that it compiles, to standard error.
set -euo pipefail
cd "$(dirname "$0")/.."

families=(amd:polaris10 amd:vega10 amd:renoir amd:navi10 amd:navi21 amd:navi31 amd:navi33 amd:phoenix amd:strix1 amd:gfx1201
  nvk:0x164 nvk:0x176 adreno:630 adreno:740 apple
  amd-25.0:polaris10 amd-25.0:vega10 amd-25.0:navi21 amd-25.0:navi31 amd-25.0:gfx1201 nvk-25.0:0x164 nvk-25.0:0x176
  amd-22.3:polaris10 amd-22.3:vega10 amd-22.3:navi21)

die() { printf 'vendors: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }

# unpack VERSION unpacks the drivers of a version of Mesa, "" for the newest, and sets root, where they are.
unpack() {
  local suites packages="mesa-vulkan-drivers libvulkan1"
  case $1 in
  '') suites="trixie trixie-backports" packages+=" mesa-drm-shim" ;;
  25.0) suites=trixie ;;
  22.3) suites=bookworm packages+=" libc6" ;;
  *) die "Mesa $1: it must be 25.0 or 22.3" ;;
  esac
  root=${VKATTN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vkattn}/vendors${1:+-$1}
  # shellcheck disable=SC2086 # words
  tools/unpack-debs.sh "$root" "$suites" $packages vulkan-validationlayers >&2 || die "Mesa's drivers could not be unpacked into $root"
  lib=$(echo "$root"/usr/lib/*-linux-gnu)
  for linker in "$lib"/ld-linux*.so.* "$root"/lib/*-linux-gnu/ld-linux*.so.*; do [ ! -f "$linker" ] || break; done
  libraries=$lib
  [ "${linker%/*}" = "$lib" ] || libraries+=:${linker%/*}
}

# family FAMILY unpacks the driver, and sets the environment that makes the device up.
family() {
  local name=${1#*:} vendor=${1%%:*} version='' shim='' shims
  case $vendor in *-*) version=${vendor#*-} vendor=${vendor%%-*} ;; esac
  unpack ''
  shims=$lib
  [ -z "$version" ] || unpack "$version"
  case $vendor:$name in
  amd:?*)
    driver=radeon
    if [ -n "$version" ]; then
      tr '\0' '\n' < "$lib/libvulkan_radeon.so" | grep -aix "$name" > /dev/null || die "family $1: Mesa $version has no such device"
      export RADV_FORCE_FAMILY=$name
    else
      shim=amdgpu
      # A name that the library does not know is one of its own choice, silently.
      tr '\0' '\n' < "$lib/libamdgpu_noop_drm_shim.so" | grep -ax "$name" > /dev/null || die "family $1: the library has no such device"
      export AMDGPU_GPU_ID=$name
    fi
    [ -z "${VENDOR_STATS:-}" ] || export RADV_DEBUG=shaderstats,nocache
    ;;
  nvk:0x*) driver=nouveau shim=nouveau; export NOUVEAU_CHIPSET=$name NVK_I_WANT_A_BROKEN_VULKAN_DRIVER=1 ;;
  adreno:[0-9]*) driver=freedreno shim=freedreno; export FD_GPU_ID=$name ;;
  apple:apple) driver=asahi shim=asahi ;;
  *) die "family $1: it must be amd:NAME, nvk:CHIPSET, adreno:NUMBER or apple, such as tools/vendors.sh list has" ;;
  esac
  preload=${shim:+$shims/lib${shim}_noop_drm_shim.so}
  [ -z "$preload" ] || [ -r "$preload" ] || die "family $1: $preload is missing"
  local json=$root/usr/share/vulkan/icd.d/${driver}_icd.json
  [ -r "$json" ] || json=$(ls "$root"/usr/share/vulkan/icd.d/"${driver}"_icd.*.json 2>/dev/null | head -n 1)
  [ -r "$json" ] || die "family $1: Mesa's packages have no driver $driver"
  # Its description, with the library's full path.
  sed "s#\"library_path\": *\"\(.*/\)\{0,1\}#\"library_path\": \"$lib/#" "$json" > "$root/$driver.vendor.json.$$"
  mv "$root/$driver.vendor.json.$$" "$root/$driver.vendor.json"
  export VK_DRIVER_FILES=$root/$driver.vendor.json VK_LOADER_LAYERS_DISABLE='~implicit~' VK_LAYER_PATH=$root/usr/share/vulkan/explicit_layer.d
}

run() { # FAMILY PROGRAM…
  (
    family "$1"
    program=$(command -v "$2") || die "no program $2"
    shift 2
    exec ${limit:+timeout "$limit"} "$linker" --library-path "$libraries" ${preload:+--preload "$preload"} "$program" "$@"
  )
}

# compile FAMILY makes or compares its table. A driver that crashes, or takes longer than ten minutes for the suite, is named with the
# problem that it was compiling.
compile() {
  local of=$1 table=testdata/vendors/${1//:/-}.txt status=0
  local now=$table log=$root/${1//:/-}.log flags=(--suite "$suite" --validation)
  if [ -n "$compare" ]; then
    [ -r "$table" ] || die "family $of: $table is missing: tools/vendors.sh compile $of makes it"
    now=$root/${1//:/-}.now.txt
    flags+=(--against "$table")
  fi
  VKATTN_TUNING=off limit=600 run "$of" bin/vkattn info --compile "${flags[@]}" --out "$now" 2> "$log" || status=$?
  if [ $status = 0 ]; then
    local than="; no worse than $table"
    ! grep -q '^another compiler than' "$log" || than="; no more refused than in $table, which another version made"
    printf '%-15s %d passes, %d of them refused%s\n' "$of" "$(grep -c '^[^ #]' "$now")" "$(grep -c ': refused: ' "$now" || true)" \
      "${compare:+$than}"
    return
  fi
  printf '%-15s failed (%s) at %s\n' "$of" "$status" "$(grep '^[0-9]* of ' "$log" | tail -n 1)"
  grep -v -e '^[0-9]* of ' -e '^Unknown DRM' "$log" | tail -n 30
  return 1
}

case ${1:-} in
list) printf '%s\n' "${families[@]}" ;;
run)
  [ $# -ge 3 ] || usage
  run "${@:2}"
  ;;
compile)
  shift
  suite=compile-all compare=''
  while [ $# -gt 0 ]; do
    case $1 in
    --suite) [ $# -gt 1 ] || usage; suite=$2; shift 2 ;;
    --compare) compare=1; shift ;;
    -*) usage ;;
    *) break ;;
    esac
  done
  [ $# -gt 0 ] || set -- "${families[@]}"
  unpack ''
  go build -o bin/vkattn ./cmd/vkattn
  failed=0
  for f; do (family "$f") || exit 2; done # before the first takes its time
  for f; do compile "$f" || failed=1; done
  exit $failed
  ;;
*) usage ;;
esac

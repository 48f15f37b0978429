#!/bin/sh
# Run a program with the libraries of a folder made by unpack-debs.sh, down to its C library.
#
#   run-unpacked.sh DIR PROGRAM [ARGUMENT…]
#   go test -exec "$PWD/tools/run-unpacked.sh $HOME/.cache/vkattn/lavapipe" ./...
#
# With Mesa in DIR, the program sees exactly one Vulkan driver, lavapipe, and DIR's validation layers; with SwiftShader in DIR, that.
#
# A program started by that program inherits the driver but not the libraries. So VKATTN_EXEC holds this very prefix:
# whoever starts another Vulkan program puts it in front. (The program's /proc/self/exe is the dynamic linker, not itself.)
set -eu

die() { echo "run-unpacked: $*" >&2; exit 126; }
[ $# -ge 2 ] || die "usage: run-unpacked.sh DIR PROGRAM [ARGUMENT…]"
root=$(cd "$1" 2>/dev/null && pwd) || die "no folder $1 (tools/setup.sh makes it)"
program=$(command -v "$2") || die "no program $2"
shift 2

linker=
for f in "$root"/usr/lib/*-linux-gnu/ld-linux*.so.*; do
  [ -f "$f" ] && linker=$f
done
[ -n "$linker" ] || die "no dynamic linker under $root: remove it and run tools/setup.sh again"
lib=${linker%/*}

for f in "$root"/usr/share/vulkan/icd.d/lvp_icd*.json; do
  [ -f "$f" ] || continue
  icd=$root/lvp_abs.json # lavapipe's description with the library's full path
  if ! grep -qF "\"$lib/" "$icd" 2>/dev/null; then
    sed "s#\"library_path\": *\"\(.*/\)\{0,1\}#\"library_path\": \"$lib/#" "$f" >"$icd.$$"
    mv "$icd.$$" "$icd"
  fi
  export VK_DRIVER_FILES="$icd" VK_LAYER_PATH="$root/usr/share/vulkan/explicit_layer.d"
  export VK_LOADER_LAYERS_DISABLE='~implicit~' # the system's layers are built for the system's libraries
done

icd=$root/usr/lib/chromium/vk_swiftshader_icd.json # which names the library beside it
if [ -f "$icd" ]; then
  export VK_DRIVER_FILES="$icd" VK_LAYER_PATH="$root/usr/share/vulkan/explicit_layer.d" VK_LOADER_LAYERS_DISABLE='~implicit~'
fi

VKATTN_EXEC="$(cd "$(dirname "$0")" && pwd)/$(basename "$0") $root"
export VKATTN_EXEC
exec "$linker" --library-path "$lib" "$program" "$@"

#!/bin/bash
# Compile the shaders that shaders/modules.txt lists to shaders/spv/*.spv.gz and describe them in shaders/manifest.json; then those of
# shaders/counting/modules.txt, the same sources that count the bytes they move, to the same places in shaders/counting.
#
#   tools/glslc.sh                  compile what changed (source, an include, defines, target or compiler)
#   tools/glslc.sh --force          compile everything
#   tools/glslc.sh scalar_forward.  only the modules whose name starts so; several beginnings may be given
#   tools/glslc.sh --which          print the compiler command and stop
#
# The compiler must know GL_KHR_cooperative_matrix and GL_EXT_bfloat16 (glslang 16 or newer), which is tested by compiling a snippet.
# Looked at in this order: $GLSLC, glslc on PATH, the copy under ~/.cache/vkattn/glslc ($VKATTN_CACHE/glslc); on Debian and Ubuntu that copy is unpacked
# from Debian sid when there is none (nothing on the host changes). spirv-val is taken from the same place; every module must pass it.
# The shaders of the examples (examples/*/*.comp, for Vulkan 1.1) are compiled beside their sources; sums.sha256 there tells a test
# whether source and SPIR-V belong together.
# A buffer without a binding in its source gets a free one (-fauto-bind-uniforms), for who binds by name; in a module none of whose functions
# read it, it stands at 0 in the manifest, and is not in the SPIR-V.
# The manifest also tells each module's interface (tools/interface): constants and buffers by name, push constants in order.
# What was compiled before from the same text but for comments is taken from ~/.cache/vkattn/spirv: comments cost no compiling (--force
# compiles all the same). The same sources and compiler give the same bytes. A module that fails keeps its old SPIR-V and manifest line, and
# the exit status is 1.
set -euo pipefail
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
tools=$root/tools
shaders=$root/shaders
cache=${VKATTN_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vkattn}/glslc
kept=$(dirname "$cache")/spirv
optimise=-O

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cat > "$tmp/probe.comp" <<'GLSL'
#version 460
#extension GL_KHR_cooperative_matrix : require
#extension GL_EXT_bfloat16 : require
#extension GL_KHR_memory_scope_semantics : require
layout(local_size_x = 32) in;
layout(binding = 0) buffer B { bfloat16_t x[]; };
void main() {
  coopmat<bfloat16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;
  coopMatLoad(a, x, 0, 16, gl_CooperativeMatrixLayoutRowMajor);
  coopMatStore(a, x, 256, 16, gl_CooperativeMatrixLayoutRowMajor);
}
GLSL
new_enough() { "$@" --target-env=vulkan1.3 -o "$tmp/probe.spv" "$tmp/probe.comp" 2>"$tmp/probe.err"; }

glslc=() val=()
find_compiler() {
  if [ -n "${GLSLC:-}" ]; then
    new_enough "$GLSLC" || { echo "glslc.sh: GLSLC=$GLSLC cannot compile GL_KHR_cooperative_matrix with GL_EXT_bfloat16:" >&2; cat "$tmp/probe.err" >&2; exit 1; }
    glslc=("$GLSLC") val=("$(command -v "$(dirname "$GLSLC")/spirv-val" || command -v spirv-val || true)"); return
  fi
  if command -v glslc >/dev/null && new_enough glslc; then
    glslc=(glslc) val=("$(command -v spirv-val || true)"); return
  fi
  if [ ! -x "$cache/usr/bin/glslc" ]; then
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
      echo "glslc.sh: no glslc with GL_KHR_cooperative_matrix and GL_EXT_bfloat16 found; install the Vulkan SDK 1.4.341 or newer (or set GLSLC)" >&2; exit 1; }
    echo "glslc.sh: unpacking glslc and spirv-tools from Debian sid into $cache" >&2
    "$tools/unpack-debs.sh" "$cache" sid glslc spirv-tools >&2
  fi
  glslc=("$tools/run-unpacked.sh" "$cache" "$cache/usr/bin/glslc")
  new_enough "${glslc[@]}" || { echo "glslc.sh: the compiler in $cache does not work:" >&2; cat "$tmp/probe.err" >&2; exit 1; }
  val=("$tools/run-unpacked.sh" "$cache" "$cache/usr/bin/spirv-val")
}

# Every file that a source includes, itself first; `#include "x"` is looked up beside the source and in shaders/include.
includes() {
  local f=$1 i p
  case " ${seen[*]} " in *" $f "*) return;; esac
  seen+=("$f")
  while read -r i; do
    for p in "$(dirname "$f")/$i" "include/$i"; do
      p=${p#./}
      if [ -f "$p" ]; then includes "$p"; continue 2; fi
    done
    echo "glslc.sh: $f includes $i, which is neither beside it nor in shaders/include" >&2; return 1
  done < <(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$f")
}

force= prefixes=()
for a in "$@"; do
  case $a in
    --force) force=1 ;;
    --which) find_compiler; echo "${glslc[*]}"; exit ;;
    -h|--help) sed -n '2,/^set/p' "$0" | sed '/^set/d; s/^# \{0,1\}//'; exit ;;
    -*) echo "glslc.sh: unknown option $a" >&2; exit 2 ;;
    *) prefixes+=("$a") ;;
  esac
done
find_compiler
[ -n "${val[0]:-}" ] || { echo "glslc.sh: no spirv-val beside ${glslc[*]} nor on PATH" >&2; exit 1; }
version=$("${glslc[@]}" --version | sed -n 's/^\(shaderc\|glslang\) *//p' | paste -sd' ' | sed 's/^/shaderc /; s/^\(shaderc [^ ]*\) /\1 glslang /')

# Whether a module was asked for by the beginning of its name.
asked_for() {
  local p
  [ ${#prefixes[@]} -gt 0 ] || return 0
  for p in "${prefixes[@]}"; do case $1 in "$p"*) return 0 ;; esac; done
  return 1
}

cd "$shaders"
exec 9>"${TMPDIR:-/tmp}/vkattn-glslc.$(id -u).lock"; command -v flock >/dev/null && flock 9
failed=0 compiled=0 modules=0
# read_interface prints what the module that is being compiled asks of the host. Optimised SPIR-V has lost its names, so it is read from
# a build without optimisation.
read_interface() {
  # shellcheck disable=SC2086 # defines are words
  "${glslc[@]}" -fshader-stage=compute "--target-env=$env" -O0 -fauto-bind-uniforms -I include $defines -o "$tmp/named.spv" "$source" && "$tmp/interface" "$tmp/named.spv"
}
# compile makes $tmp/out.spv and $interface of the source, or finds both under the text that the preprocessor leaves, without comments, empty
# lines and where lines are from, with the sources of the program that reads interfaces. (The program itself has all SPIR-V in it.)
compile() {
  local key
  [ -x "$tmp/interface" ] || (cd "$root" && go build -trimpath -buildvcs=false -o "$tmp/interface" ./tools/interface) || return
  # shellcheck disable=SC2086 # defines are words
  key=$({ echo "$version $env $optimise"; cat "$root"/tools/interface/*.go "$root"/internal/spirv/*.go "$root"/shaders/*.go | sha256sum; "${glslc[@]}" -E -fshader-stage=compute "--target-env=$env" -I include $defines "$source" | sed '/^#line/d; /^[[:space:]]*$/d'; } |
    sha256sum | cut -d' ' -f1) || return
  if [ -z "$force" ] && [ -f "$kept/$key.json" ] && [ -f "$kept/$key.spv.gz" ]; then
    gzip -dc "$kept/$key.spv.gz" > "$tmp/out.spv" && interface=$(cat "$kept/$key.json") && touch "$kept/$key.json" "$kept/$key.spv.gz"
    return
  fi
  # shellcheck disable=SC2086
  "${glslc[@]}" -fshader-stage=compute "--target-env=$env" $optimise -fauto-bind-uniforms -I include $defines -o "$tmp/out.spv" "$source" &&
    "${val[@]}" --target-env "$env" "$tmp/out.spv" && interface=$(read_interface) || return
  mkdir -p "$kept"
  gzip -9nc "$tmp/out.spv" > "$kept/$key.spv.gz.$$" && mv "$kept/$key.spv.gz.$$" "$kept/$key.spv.gz"
  echo "$interface" > "$kept/$key.json.$$" && mv "$kept/$key.json.$$" "$kept/$key.json"
}
# The build list, the manifest and the modules of a folder.
build() {
  local dir=$1 manifest=$1/manifest.json name source env defines old hash head spv f n interface
  mkdir -p "$dir/spv"
  touch "$manifest"
  : > "$tmp/lines"
  while read -r name source env defines; do
    case $name in ''|'#'*) continue ;; esac
    old=$(grep -F "{\"name\":\"$name\"," "$manifest" | sed 's/,$//' || true)
    if ! asked_for "$name"; then [ -z "$old" ] || echo "$old" >> "$tmp/lines"; continue; fi
    seen=()
    if ! [ -f "$source" ] || ! includes "$source"; then
      echo "glslc.sh: $name: cannot read $source or one of its includes" >&2; failed=1; [ -z "$old" ] || echo "$old" >> "$tmp/lines"; continue
    fi
    hash=$(sha256sum -- $(printf '%s\n' "${seen[@]}" | sort) | sha256sum | cut -d' ' -f1)
    head="{\"name\":\"$name\",\"source\":\"$source\",\"target_env\":\"$env\",\"defines\":\"$defines\",\"options\":\"$optimise\",\"compiler\":\"$version\",\"source_sha256\":\"$hash\""
    spv=$dir/spv/$name.spv.gz
    if [ -z "$force" ] && [ -f "$spv" ]; then
      case $old in "$head,\"spirv_sha256\":\"$(gzip -dc "$spv" | sha256sum | cut -d' ' -f1)\",\"interface\":"*) echo "$old" >> "$tmp/lines"; continue ;; esac
    fi
    if compile; then
      gzip -9nc "$tmp/out.spv" > "$spv.new"; mv "$spv.new" "$spv"
      echo "$head,\"spirv_sha256\":\"$(sha256sum < "$tmp/out.spv" | cut -d' ' -f1)\",\"interface\":$interface}" >> "$tmp/lines"
      compiled=$((compiled + 1))
    else
      echo "glslc.sh: $name failed" >&2; failed=1; [ -z "$old" ] || echo "$old" >> "$tmp/lines"
    fi
  done < "$dir/modules.txt"
  { echo '['; sed '$!s/$/,/' "$tmp/lines"; echo ']'; } > "$tmp/manifest.json"
  cmp -s "$tmp/manifest.json" "$manifest" || { cp "$tmp/manifest.json" "$manifest.new"; mv "$manifest.new" "$manifest"; }
  for f in "$dir"/spv/*.spv.gz; do
    [ -e "$f" ] || continue
    n=${f#"$dir"/spv/}; n=${n%.spv.gz}
    awk -v n="$n" '$1 == n { found = 1 } END { exit !found }' "$dir/modules.txt" || { echo "glslc.sh: removing $f, which $dir/modules.txt does not list" >&2; rm -f "$f"; }
  done
  modules=$((modules + $(wc -l < "$tmp/lines")))
}
build .
build counting
cd "$root/examples"
for d in */; do
  (cd "$d"
  set -- *.comp
  [ -e "$1" ] || exit 0
  if [ -n "$force" ] || ! sha256sum --check --status sums.sha256 2>/dev/null || [ "$(wc -l < sums.sha256)" != $((2 * $#)) ]; then
    for s in "$@"; do
      "${glslc[@]}" -fshader-stage=compute --target-env=vulkan1.1 $optimise -o "$tmp/out.spv" "$s" && "${val[@]}" --target-env vulkan1.1 "$tmp/out.spv" ||
        { echo "glslc.sh: examples/$d$s failed" >&2; exit 1; }
      cp "$tmp/out.spv" "${s%.comp}.spv"
    done
    sha256sum -- "$@" "${@/%.comp/.spv}" > sums.sha256
  fi) || failed=1
done
[ ! -d "$kept" ] || find "$kept" -type f -mtime +60 -delete
echo "$compiled compiled, $modules modules, $version"
exit $failed

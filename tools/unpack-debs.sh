#!/bin/bash
# Unpack Debian packages, and all that they need, from other Debian suites into a folder. The system itself stays as it is.
#
#   unpack-debs.sh DIR "SUITE…" PACKAGE…        where two suites offer a package, the last one named wins
#   unpack-debs.sh ~/.cache/vkattn/glslc sid glslc spirv-tools
#   unpack-debs.sh DIR SUITE libvulkan1 'chromium-common//*swiftshader*'   of the last these files alone, and nothing it needs
#
# Needs a Debian (apt-get, dpkg and Debian's archive keyring), but not root. Packages come, verified by Debian's signatures, from
# the mirror that this machine's apt uses. Run what was unpacked with run-unpacked.sh: it has its own C library, and is never
# mixed with the system's.
#
# DIR is whole or absent: packages are unpacked beside it and renamed into place, one process at a time, and a DIR that already
# holds this very request is left alone. VKATTN_UNPACK_FORCE=1 fetches it again.
set -euo pipefail

say() { printf 'unpack-debs: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

[ $# -ge 3 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
dir=$1 suites=$2
shift 2

for tool in apt-get dpkg flock; do
  command -v "$tool" >/dev/null || die "$tool not found: this needs a Debian system"
done
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
[ -r "$keyring" ] || die "$keyring not found: this needs a Debian system (package debian-archive-keyring)"

arch=$(dpkg --print-architecture)
request="$arch | $suites | $*"
mkdir -p "$(dirname "$dir")"
dir=$(cd "$(dirname "$dir")" && pwd)/$(basename "$dir")

complete() { [ "${VKATTN_UNPACK_FORCE:-}" != 1 ] && [ "$(cat "$dir/.unpacked" 2>/dev/null)" = "$request" ]; }

complete && exit 0
exec 9>"$dir.lock"
flock -n 9 || { say "another process is unpacking $dir: waiting for it"; flock 9; }
complete && exit 0

# The machine's own mirror: the first of apt's sites that serves Debian proper. A machine without one uses Debian's.
site=$(apt-get indextargets --format '$(SITE)' 2>/dev/null | grep -E '/debian/?$' | head -n 1 || true)
site=${site:-http://deb.debian.org/debian}

work=$(mktemp -d "$dir.tmp.XXXXXX")
trap 'rm -rf "$work"' EXIT
state=$work/apt root=$work/root
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$root"
: >"$state/status" # nothing counts as installed, so everything down to the C library is fetched
for suite in $suites; do
  echo "deb [signed-by=$keyring] $site $suite main"
done >"$state/sources.list"

apt=(apt-get -qq
  -o Dir::Etc::sourcelist="$state/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
  -o Dir::State="$state" -o Dir::State::lists="$state/lists" -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache"
  -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::Retries=3
  -o APT::Default-Release="${suites##* }" -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)

say "fetching $* for $arch from $site ($suites)"
log=$work/log
"${apt[@]}" update >"$log" 2>&1 || { cat "$log" >&2; die "could not read the package lists of $suites at $site"; }
whole=()
for package; do
  case $package in *//*) ;; *) whole+=("$package") ;; esac
done
count=0
if [ ${#whole[@]} -gt 0 ]; then
  "${apt[@]}" install -y --no-install-recommends --download-only "${whole[@]}" >"$log" 2>&1 ||
    { cat "$log" >&2; die "could not fetch ${whole[*]} from $suites"; }
  for deb in "$state"/cache/archives/*.deb; do
    [ -f "$deb" ] || die "apt fetched no packages for ${whole[*]}"
    dpkg -x "$deb" "$root"
    count=$((count + 1))
  done
fi
for package; do
  case $package in *//*) ;; *) continue ;; esac
  mkdir "$work/part"
  (cd "$work/part" && "${apt[@]}" download "${package%%//*}") >"$log" 2>&1 || { cat "$log" >&2; die "could not fetch ${package%%//*} from $suites"; }
  dpkg-deb --fsys-tarfile "$work/part"/*.deb | tar -x -C "$root" --no-same-owner --wildcards "${package#*//}" ||
    die "${package%%//*} has no ${package#*//}"
  rm -r "$work/part"
  count=$((count + 1))
done
echo "$request" >"$root/.unpacked"
chmod 755 "$root"

rm -rf "$state"
if [ -e "$dir" ]; then mv "$dir" "$work/old"; fi # programs that run from the old folder keep their open files
mv "$root" "$dir"
say "$count packages, $(du -sh "$dir" | cut -f1), in $dir"

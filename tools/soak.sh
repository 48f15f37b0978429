#!/bin/bash
# A long run on this machine's Vulkan device, for what only shows after a million problems or a hundred thousand plans.
#
#   tools/soak.sh differential [N] [option...]   N random problems (1,000,000) on every kernel, forward and backward, compared with float64
#   tools/soak.sh plans [N] [option...]          N plans (100,000) made, run, cancelled and closed from 16 goroutines: memory must stay flat
#   tools/soak.sh build FILE                     the program alone, to be carried to a machine without Go
#
#   --seed S        seed of everything (another one in each run; it is printed)
#   --out FILE      write the summary there, as JSON
#   --limit T       end after so long, 9m say, with what there is by then (no limit)
#   --tiers LIST    scalar,matrix: kernels to compare (all; on a CPU scalar alone, where matrix kernels take minutes to compile)
#   --families N    sets of problems that share compiled kernels      --perplan N   problems that share a plan (4)
#   --workers N     goroutines                                        --failures N  end after so many wrong problems (10)
#   --only ID       one problem alone: a failure prints the whole command
#
# A million problems take some seven minutes on an H200 with 16 CPU cores: the reference is what costs time. SOAK_BIN names a program made
# by build; without it, one is built. VKATTN_VALIDATION is off unless it is set (see tools/validate.sh).
set -euo pipefail
usage() { sed -n '2,18s/^# \{0,1\}//p' "$0" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
what=${1:-}; shift || usage

build() { (cd "$top" && go test -c -o "$1" ./cmd/vkattn/internal/soak); }

case $what in
build) [ $# = 1 ] || usage; build "$1"; exit ;;
differential) test=TestDifferential n=1000000 ;;
plans) test=TestPlans n=100000 ;;
*) usage ;;
esac
case ${1:-} in [0-9]*) n=$1; shift ;; esac
flags=()
while [ $# -gt 0 ]; do
  case $1 in
  --out) [ $# -ge 2 ] || usage; flags+=("-soak.out=$(realpath -m "$2")"); shift 2 ;; # the program may run elsewhere
  --seed | --limit | --tiers | --families | --perplan | --workers | --failures | --only) [ $# -ge 2 ] || usage; flags+=("-soak.${1#--}=$2"); shift 2 ;;
  *) usage ;;
  esac
done

program=${SOAK_BIN:-}
if [ -z "$program" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  program=$folder/soak.test
  build "$program"
  VKATTN_EXEC=$("$top/tools/setup.sh" --exec)
fi
[ "$what" = differential ] || export MALLOC_ARENA_MAX=${MALLOC_ARENA_MAX:-1} # glibc's memory for each thread would hide what plans keep
export VKATTN_VALIDATION=${VKATTN_VALIDATION:-off} VKATTN_REQUIRE_DEVICE=1
# shellcheck disable=SC2086 # the prefix is several words
${VKATTN_EXEC:-} "$program" -test.timeout=0 -test.run "^$test\$" -soak.n "$n" "${flags[@]}"

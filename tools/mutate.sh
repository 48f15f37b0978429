#!/bin/bash
# Plant mistakes in shaders and Go, one at a time, and say which test finds each (tools/mutate/main.go tells more).
#
#   tools/mutate.sh                       every mutant that testdata/mutants.md has no row of
#   tools/mutate.sh --only ID,…           these, again
#   tools/mutate.sh --list                what there is
#   tools/mutate.sh --whole --again       all of them; what the tests of a package do not find, every package looks for
#   tools/mutate.sh --expected            the tests that ought to find a mutant, and no others
#   tools/mutate.sh --out FILE            another table
set -euo pipefail
cd "$(dirname "$0")/.."
VKATTN_EXEC=$(tools/setup.sh --exec)
export VKATTN_EXEC
exec go run ./tools/mutate "$@"

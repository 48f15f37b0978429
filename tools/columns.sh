#!/bin/bash
# Time the backward pass in which subgroups divide the columns of gradients beside the built-in tiles and FlashAttention-2: batch 4, 16 heads,
# seq 4096, head dimensions 96 to 256, with and without a causal mask. docs/notes.md has what is expected.
#
#   tools/columns.sh [--dry-run] [DIM ...]     results go to columns-DIM.jsonl in the working directory
#
# PEER names another peer than PyTorch's FlashAttention-2 (PEER= for none), ROUNDS how often each is measured.
set -euo pipefail
cd "$(dirname "$0")/.."
dry=
if [ "${1:-}" = --dry-run ]; then dry=1; shift; fi
peer=${PEER-python3 tools/torch_baseline.py --peer}

# Tiles of the kernel of keys, and of queries, in the order in which they are expected to do well.
tiles() {
  case $1 in
  96)
    kv=("w=8,rm=1,bc=32,ck=16,prefetch=2,columns=2" "w=8,rm=2,bc=16,ck=16,prefetch=2,columns=2,share=2,roles=2")
    q=("w=8,rm=2,bc=64,ck=16,prefetch=0,columns=2,share=2" "w=8,rm=2,bc=32,ck=16,prefetch=2,columns=2,share=2") ;;
  128)
    kv=("w=8,rm=1,bc=32,ck=16,prefetch=0,columns=2" "w=8,rm=2,bc=16,ck=16,prefetch=2,columns=4,share=2,roles=2" "w=4,rm=2,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2")
    q=("w=8,rm=2,bc=64,ck=16,prefetch=0,columns=4,share=4" "w=12,rm=1,bc=32,ck=16,prefetch=0,columns=2" "w=8,rm=2,bc=16,ck=16,prefetch=2,columns=4,share=2,roles=2") ;;
  160)
    kv=("w=8,rm=1,bc=32,ck=16,prefetch=0,columns=4,share=2" "w=8,rm=2,bc=32,ck=16,prefetch=0,columns=2,share=4,roles=2")
    q=("w=8,rm=1,bc=48,ck=16,prefetch=0,columns=2" "w=8,rm=1,bc=32,ck=16,prefetch=1,columns=2") ;;
  192)
    kv=("w=8,rm=1,bc=32,ck=32,prefetch=0,columns=4,share=2,roles=2" "w=8,rm=1,bc=32,ck=16,prefetch=0,columns=4,share=2" "w=8,rm=1,bc=16,ck=16,prefetch=2,columns=4,share=2,roles=2" "w=4,rm=1,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2")
    q=("w=8,rm=2,bc=32,ck=16,prefetch=0,columns=4,share=4,roles=2" "w=8,rm=1,bc=32,ck=16,prefetch=0,columns=2") ;;
  256)
    kv=("w=8,rm=1,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2" "w=8,rm=1,bc=16,ck=16,prefetch=2,columns=4,share=2,roles=2" "w=4,rm=1,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2" "w=8,rm=1,bc=32,ck=16,prefetch=0,columns=8,share=4,roles=2")
    q=("w=12,rm=1,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2" "w=8,rm=1,bc=16,ck=16,prefetch=2,columns=4,share=2,roles=2" "w=8,rm=1,bc=32,ck=16,prefetch=0,columns=4,share=2" "w=4,rm=1,bc=16,ck=16,prefetch=0,columns=4,share=2,roles=2") ;;
  *) echo "columns.sh: no tiles for head dimension $1: it must be 96, 128, 160, 192 or 256" >&2; exit 2 ;;
  esac
}
# The parameters of a tile as those of one kernel.
of() { echo "$1${2//,/,$1}"; }

[ $# -gt 0 ] || set -- 256 192 160 128 96
for dim in "$@"; do
  tiles "$dim"
  tunings=(--tuning kv_columns=1) # the built-in tiles
  for t in "${kv[@]}"; do tunings+=(--tuning "$(of kv_ "$t")"); done
  for t in "${q[@]}"; do tunings+=(--tuning "$(of q_ "$t")"); done
  tunings+=(--tuning "$(of kv_ "${kv[0]}"),$(of q_ "${q[0]}")")
  command=(tools/run.sh bin/vkattn bench --impl flash --tier matrix --pass bwd --dtype fp16 --batch 4 --heads 16 --seq 4k --head-dim "$dim" --causal=both
    --rounds "${ROUNDS:-3}" --append --out "columns-$dim.jsonl" ${peer:+--peer "$peer"} "${tunings[@]}")
  if [ -n "$dry" ]; then printf '%q ' "${command[@]}"; echo; else "${command[@]}"; fi
done

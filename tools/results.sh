#!/bin/bash
# Makes the files of testdata/results again, on this machine's GPU: what the README quotes.
#
#   tools/results.sh DIR [step...]     steps, all of them when none is named:
#     verify      the conformance suite, NAME-verify.txt        papers      the papers' grid forward, beside FlashAttention-2
#     backward    the papers' grid backward, head dim 64, 128   wide        the same with 256; 160 and 192
#     train-long  64k tokens, forward and backward
#     dropout     GPT-2 medium, dropout 0 and 0.1               reports     every sweep of the reports, beside PyTorch
#     dims, bf16  other head dimensions, the other type         scalar      the kernels for any GPU
#     standard    standard attention beside PyTorch's, both passes
#     few         decoding, and few queries, where keys are in parts
#     scores      functions, windows, masks, sinks and biases of scores, beside FlashAttention-2 and the memory-efficient kernel
#     packed      packed sequences beside FlashAttention-2      paged, rows     keys in pages; appending, rotation, merging
#     guard       a shape or two of every family of kernels, for vkattn compare --relative
#     ranks       several GPUs of one machine, named alone: rings and heads over 2, 4 and 8 of them, as far as there are so many, from 4
#                 on both, as two hosts with half of the ranks each, and links. RANKS="2 4" says how many; TRY=1 takes small sizes and
#                 lets ranks share a device; with MPIRUN=mpirun, VKATTN built with -tags mpi, ranks are processes too
#
# NAME (gpu) begins the files' names, VKATTN is the command (bin/vkattn), PEER the peer's command; without PyTorch and CUDA set
# PEER= and there are no peer's rows. LIMIT is the longest a command of a step may take (300 s; of verify twice that); an
# interrupted step keeps its rows, of verify the sections that ended, and goes on with the next call.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,22s/^# \{0,1\}//p' "$0"; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$1; shift
mkdir -p "$dir"
name=${NAME:-gpu} vkattn=${VKATTN:-$top/bin/vkattn} limit=${LIMIT:-300}
peer=${PEER-python3 $top/tools/torch_baseline.py --peer}

bench() { # file, flags...
  local file=$dir/$name-$1.jsonl; shift
  timeout -s INT "$limit" "$vkattn" bench --append --out "$file" "$@" || echo "  status $?"
}
beside=(); [ -z "$peer" ] || beside=(--peer "$peer")

section() { # title, flags of verify...: a section of the conformance record, kept once it has ended; what failed, or did not run, stands there too
  local status=0 text file=$dir/$name-verify.part$((++sections))
  [ ! -e "$file" ] || return 0
  # In the foreground: timeout signals its whole group besides, and a second Ctrl-C ends vkattn before it has printed.
  text=$(timeout --foreground -s INT "$((2 * limit))" "$vkattn" verify --no-skipped "${@:2}" 2>&1) || status=$?
  # A device without such matrices has nothing to check there.
  ! grep -q '^no case ran$\|the device offers none of' <<<"$text" || status=0
  {
    echo "## $1: vkattn verify --no-skipped ${*:2}"
    sed -e '/^$/d' -e '/^─/d' -e 's/   */  /g' -e 's/ *$//' <<<"$text"
    echo
  } > "$file.new"
  [ $status != 0 ] || mv "$file.new" "$file"
  grep '^## \|^[A-Za-z]*  [a-z0-9]*/[^ ]* \{1,2\}[0-9]* cases\? passed\|results\? in \|^no case ran\|^vkattn:' "$file"*
  return $status
}
verify() { # the whole suite; some ten minutes on an H100 with 16 CPU cores, with the validation layers on and nothing cached
  local file=$dir/$name-verify.txt failed=0 sections=0
  section "standard attention, FlashAttention's first form, block masks" --impl standard,flash1,blocksparse || failed=1
  section "FlashAttention-2 for any GPU" --impl flash --tier scalar || failed=1
  section "FlashAttention-2 on matrices" --impl flash --tier matrix || failed=1
  section "matrices in fragments 16x8x16 and 16x8x8" --impl flash --tier matrix --tuning fm=16,fn=8,fk=16 --tuning fm=16,fn=8,fk=8 || failed=1
  {
    echo "# vkattn verify, the whole conformance suite: a line of each case and target, but those that do not apply to a target (skip)."
    echo "# Made by tools/results.sh DIR verify; each section has its command."
    echo
    cat "${file%.txt}".part*
  } > "$file"
  [ $failed != 0 ] || rm -f "${file%.txt}".part*
  return $failed
}
papers()   { bench forward --suite papers --impl flash "${beside[@]}"; }
backward() { bench backward --suite papers --impl flash --head-dim 64,128 --pass bwd,both "${beside[@]}"; }
wide()     {
  bench backward-wide --suite papers --impl flash --head-dim 256 --pass bwd "${beside[@]}"
  bench backward-wide --impl flash --tokens 16k --heads 10 --head-dim 192 --seq 1k --causal=both --pass bwd "${beside[@]}"
  bench backward-wide --impl flash --tokens 16k --heads 12 --head-dim 160 --seq 1k --causal=both --pass bwd "${beside[@]}"
  bench backward-wide --impl flash --batch 1 --heads 16 --head-dim 160,192 --seq 4k --causal=both --pass bwd "${beside[@]}"
}
train-long() { bench train-long --impl flash --batch 1 --heads 16 --seq 64k --head-dim 64 --causal --pass fwd,bwd "${beside[@]}"; }
dropout()  { bench dropout --suite dropout --impl flash,standard ${peer:+--peer "$peer" --peer-impl fa2,standard}; }
reports()  { bench reports --suite reports ${peer:+--peer "$peer" --peer-impl fa2,standard}; } # some nine minutes on an H200: LIMIT=600
dims()     { bench dims --suite dims --impl flash "${beside[@]}"; }
standard() { bench standard --impl standard --batch 8 --heads 16 --seq 512,2k --head-dim 64,128,256 --pass both ${peer:+--peer "$peer" --peer-impl standard}; }
few()      {
  bench few --suite decode --impl flash ${peer:+--peer "$peer" --peer-impl fa2,cudnn}
  bench few --suite few --impl flash "${beside[@]}"
}
scores()   { bench scores --suite scores --impl flash ${peer:+--peer "$peer" --peer-impl fa2,efficient}; }
packed()   { bench packed --suite packed --impl flash "${beside[@]}"; }
paged()    { bench paged --suite paged --impl flash; }
rows()     {
  local file=$dir/$name-rows.txt
  echo "# vkattn rows --wide" > "$file"
  timeout -s INT "$limit" "$vkattn" rows --wide >> "$file" || echo "  status $?"
}
guard()    { bench guard --suite guard; }
bf16()     { bench bf16 --suite papers --impl flash --dtype bf16,fp16 --head-dim 64,128 --seq 1k,4k "${beside[@]}"; }
scalar()  {
  bench forward-scalar --impl flash,standard --tier scalar --dtype fp32 --batch 4 --heads 16 --seq 2048 --head-dim 64 --causal false
  bench forward-scalar --suite forward --impl flash,standard --tier scalar --limit 500ms
}

ranks() { # rows that are there are not run again, and each problem once on one device; of four GPUs some six minutes, by what one takes
  local counts=${RANKS:-} n over sizes short long gpus mpi try=()
  gpus=$("$vkattn" info --json | grep -c '^    "device"' || true)
  [ -n "$counts" ] || for n in 2 4 8; do [ "$n" -gt "$gpus" ] && [ "$n" -gt 2 ] || counts+=" $n"; done
  sizes=(--heads 16 --head-dim 128 --pass both) short=32k long=128k,512k
  [ -z "${TRY:-}" ] || try=(--share-device) sizes=(--heads 8 --head-dim 8 --pass both) short=64 long=128
  timeout -s INT "$limit" "$vkattn" info --links > "$dir/$name-links.txt" || echo "  status $?"
  for n in $counts; do
    over=(--over ring,heads)
    [ "$n" -lt 4 ] || [ $((n % 2)) = 1 ] || over=(--over ring,heads,both --per-host $((n / 2)))
    bench ranks --ranks "$n" "${try[@]}" "${over[@]}" "${sizes[@]}" --seq "$short,$long" --causal
    bench ranks --ranks "$n" "${try[@]}" "${over[@]}" "${sizes[@]}" --seq "$short" --causal=false
    bench ranks --ranks "$n" "${try[@]}" "${sizes[@]}" --kv-heads 4 --seq "$short" --causal
    # Processes cannot append: each number of them has a file, which is kept once it is whole.
    mpi=$dir/$name-ranks-mpi-$n.jsonl
    [ -n "${MPIRUN:-}" ] && [ ! -e "$mpi" ] || continue
    timeout -s INT "$limit" "$MPIRUN" -n "$n" "$vkattn" bench --mpi "${try[@]}" "${over[@]}" "${sizes[@]}" --seq "$short,${long%,*}" \
      --causal --force --out "$mpi.new" && mv "$mpi.new" "$mpi" || echo "  status $?"
  done
}

steps=(verify papers backward wide train-long dropout standard reports dims few scores packed paged rows guard bf16 scalar)
[ $# -gt 0 ] || set -- "${steps[@]}"
for step in "$@"; do
  case " ${steps[*]} ranks " in *" $step "*) ;; *) echo "step $step: must be of ${steps[*]} ranks" >&2; exit 2 ;; esac
done
failed=0
for step in "$@"; do
  echo "== $step, $(date +%T)"
  "$step" || failed=1
done
exit $failed

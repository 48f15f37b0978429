#!/usr/bin/env python3
"""What a scalar kernel's machine code takes on an AMD card, by RADV's compiler, with the loops' real numbers of turns.

The compiler counts eight turns of a loop, four of one in it and two of one in that, and half of it all since a kernel asks first whether
there is work. Here a loop with a constant number of turns counts as many, the loop over keys as many as are named, and branches in it that
load nothing (masks, growth of a maximum) none.

    ACO_DEBUG=perfinfo RADV_DEBUG=nocache tools/vendors.sh run amd:navi21 bin/vkattn passes --compile --tier scalar … 2>&1 |
      tools/turns.py amd:navi21 TURNS KEYS

TURNS of a subgroup's loop over the KEYS of a workgroup: 2048 / bc and 2048, or keys of a part / (w * keys of a batch) and keys of a part.
Cycles are of a compute unit, for a score (forward) or for a key of all of a workgroup's rows (decoding): latency of a subgroup over the
workgroups that fit, and vector instructions, of which a SIMD has one at a time; the larger is what is predicted.
"""
import re
import sys

if len(sys.argv) != 4:
    sys.exit("turns.py: it takes three arguments, FAMILY TURNS KEYS, and a listing on standard input\n" + __doc__)
family, main, keys = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
gcn = family.split(":")[1] in ("polaris10", "vega10", "renoir")
# SIMDs of a compute unit, registers of a SIMD, most subgroups, step of registers, cycles of an instruction of 64 lanes
SIMDS, REGISTERS, MOST, STEP, CYCLES = (4, 256, 10, 4, 4) if gcn else (2, 512, 10, 8, 2)
text = sys.stdin.read()

programs, block = [], None
for line in text.split("\n"):
    if m := re.match(r"BB(\d+)$", line):
        if m[1] == "0":
            programs.append([])
        block = {"id": int(m[1]), "code": [], "cycles": 0, "vector": 0, "shared": 0, "from": [], "header": False}
        programs[-1].append(block)
    elif block and (m := re.search(r"linear preds: ([^/]*)/ kind: (.*)\*/", line)):
        block["from"], block["header"] = [int(x) for x in re.findall(r"BB(\d+)", m[1])], "loop-header" in m[2]
    elif block and (m := re.match(r"\t\(\s*(\d+) clk\)\s+(.*)", line)):
        block["code"].append(m[2])
        block["cycles"] += int(m[1])
        block["vector"] += bool(re.search(r"(?:^|= |\) )v_", m[2]))
        if m := re.search(r"ds_(?:read|write)(2?)_b(\d+)", m[2]):
            block["shared"] += int(m[2]) // 8 * (2 if m[1] else 1)

blocks = max(programs, key=lambda p: sum(len(b["code"]) for b in p))
by_id = {b["id"]: b for b in blocks}
loops = {}
for b in blocks:
    if b["header"]:
        body, todo = {b["id"]}, [p for p in b["from"] if p >= b["id"]]
        while todo:
            if (x := todo.pop()) not in body:
                body.add(x)
                todo += by_id[x]["from"]
        loops[b["id"]] = body
inside = {b["id"]: sorted((h for h in loops if b["id"] in loops[h]), key=lambda h: -len(loops[h])) for b in blocks}


def turns(header):
    """A counter from 0 on, what is added to it, and what it is compared with at the loop's end; None where that is no constant."""
    step, found = {}, None
    own = [b for b in blocks if inside[b["id"]][-1:] == [header]]
    for b in own:
        for code in b["code"]:
            if (m := re.search(r"(s\d+), scc = s_add(?:_u32|k_i32) (s\d+), (?:imm:)?(0x[0-9a-f]+|\d+)$", code)) and m[1] == m[2]:
                step[m[1]] = int(m[3], 0)
    for b in own:
        compares = [c for c in b["code"] if "scc = s_cmp" in c] if b["code"] and "s_cbranch_scc" in b["code"][-1] else []
        if compares and (m := re.search(r"s_cmpk?_\w\w_[ui]32 (s\d+), (?:imm:)?(0x[0-9a-f]+|\d+)", compares[-1])) and m[1] in step:
            found = max(1, -(-int(m[2], 0) // step[m[1]]))
    return found


count = {h: turns(h) or main for h in loops}
dominators = {}
for b in blocks:
    known = [dominators[p] for p in b["from"] if p in dominators]
    dominators[b["id"]] = (set.intersection(*known) if known else set()) | {b["id"]}
latency = vector = shared = 0
for b in blocks:
    weight = 1
    for h in inside[b["id"]]:
        weight *= count[h]
    if inside[b["id"]]:
        back = max(p for p in by_id[inside[b["id"]][-1]]["from"])
        if b["id"] not in dominators[back] and not any("buffer_load" in c for c in b["code"]):
            weight = 0
    latency, vector, shared = latency + weight * b["cycles"], vector + weight * b["vector"] * CYCLES, shared + weight * b["shared"]

constants = dict(x.split("=") for x in re.search(r"constants ([^\n]*)", text)[1].split())
row = re.search(r"^  scalar_\S+ +(\d+) +\d+ +\d+ +(\d+)", text, re.M)
subgroups = -(-int(constants["WG"]) // 64)
fit = min(MOST, REGISTERS // (-(-int(row[1]) // STEP) * STEP)) * SIMDS // subgroups
fit = min(fit, 65536 // max(512, -(-int(row[2]) // 512) * 512))
per = keys * float(constants.get("BR", 1))
a, b, c = latency / fit / per, vector * subgroups / SIMDS / per, shared * 64 / 128 * subgroups / per
print(f"{fit} workgroups of {subgroups} subgroups; cycles of a compute unit: latency {a:.2f}, vector instructions {b:.2f}, so {max(a, b):.2f}; "
      f"shared memory at 128 bytes a cycle {c:.2f}")
print("turns: " + ", ".join(f"BB{h} {'  ' * (len(inside[h]) - 1)}{count[h]:g}" for h in loops))

"""FlexAttention for torch_baseline.py: attention compiled for each case, in a process of its own.

A case is torch_case's Case.
"""
import json
import subprocess
import sys
import time

try:
    import torch
except ImportError:  # torch_baseline.py --list does without
    torch = None


def attention(case, device, score, mask):
    """The function (q, k, v, bias, sinks) -> o, compiled whole for these very shapes: what cannot be is an error, and nothing falls
    back to eager. score is the case's score function, None without; mask is its mask, ("documents", 8) or ("prefix", 256), or ("", None)."""
    import torch._functorch.config
    from torch.nn.attention import flex_attention as flex

    torch._functorch.config.donated_buffer = False  # backward is timed over and over on one graph, which such buffers forbid
    options = {}
    if score:
        options["score_mod"] = score
    if seen := mask_function(case, device, mask):
        options["block_mask"] = flex.create_block_mask(seen, None, None, case.Nq, case.N, device=device)
    if case.Hkv != case.H:
        options["enable_gqa"] = True
    compiled = torch.compile(flex.flex_attention, dynamic=False, fullgraph=True)
    return lambda q, k, v, *_: compiled(q, k, v, **options)


def mask_function(case, device, mask):
    """What a query sees as FlexAttention's mask_mod, (b, h, q, k) -> bool; None where it sees all."""
    shift, seen = case.N - case.Nq, None
    left, right = case.reach()

    def and_also(condition):
        nonlocal seen
        before = seen
        seen = condition if before is None else lambda b, h, q, k: before(b, h, q, k) & condition(b, h, q, k)

    if left >= 0:
        and_also(lambda b, h, q, k: k >= q + shift - left)
    if right >= 0 and (case.masks() or case.window):
        and_also(lambda b, h, q, k: k <= q + shift + right)
    name, number = mask
    if name == "documents":
        ids = torch.tensor([case.document(j, number) for j in range(case.N)], device=device, dtype=torch.int32)
        and_also(lambda b, h, q, k: ids[torch.clamp(q + shift, min=0)] == ids[k])
    elif name == "prefix":
        and_also(lambda b, h, q, k: (k < number) | (k <= q + shift))
    return seen


def note_compiling(found, what, began):
    """Say how long a first call took, whose code was compiled for it."""
    torch.cuda.synchronize()
    told = f"{what} {time.perf_counter() - began:.0f} s"
    found["note"] = f"{found['note']}, {told}" if "note" in found else f"torch.compile, in no figure: {told}"


def answer_apart(case, program):
    """The row of a case from a fresh process of the program, torch_baseline.py, which measures nothing else."""
    torch.cuda.empty_cache()
    question = json.dumps(dict(case.problem(), passes=list(case.passes)))
    done = subprocess.run([sys.executable, program, "--alone"], input=question, capture_output=True, text=True)
    try:
        row = json.loads(done.stdout.strip().splitlines()[-1])
        if row.get("impl") == case.impl:
            return row
    except (IndexError, ValueError, AttributeError):
        pass  # what it printed is no row
    words = " ".join(done.stderr.split())[-300:]
    return dict(case.row(torch.__version__), error=f"its process ended with status {done.returncode}: {words}", reason="failed")

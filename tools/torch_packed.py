"""Packed sequences for torch_baseline.py: FlashAttention-2 as PyTorch's own operator takes them, q [tokens, H, D] with where each sequence starts.

A case is torch_case's Case. Its sequences are all N tokens long, or as long as MIXED in proportion, over and over from its beginning, of which
the longest is N.
"""
import dataclasses

try:
    import torch
except ImportError:  # torch_baseline.py --list does without
    torch = None

KINDS = ("equal", "mixed")
MIXED = (849, 140, 260, 800, 29, 943, 254, 842, 492, 303, 612, 422, 695, 161, 335, 324,
         497, 383, 1284, 643, 169, 84, 276, 144, 193, 421, 939, 880, 28, 966, 613, 1403)  # 16,384 tokens


def check(case):
    """Refuse what packed sequences do not go with."""
    if case.packed not in ("", *KINDS):
        raise ValueError(f"packed is {case.packed!r}, must be one of {', '.join(KINDS)}")
    if case.packed and (case.Nq != case.N or case.mask or case.bias):
        raise ValueError(f"packed is {case.packed!r}: Nq must be N, and there must be no mask and no bias")


def lengths(case):
    """The tokens of each sequence."""
    if case.packed == "equal":
        return [case.N] * case.B
    longest = max(MIXED[: case.B])
    return [max(1, (MIXED[b % len(MIXED)] * case.N + longest // 2) // longest) for b in range(case.B)]


def starts(case):
    """Where each sequence starts and, last, where the last one ends."""
    at = [0]
    for n in lengths(case):
        at.append(at[-1] + n)
    return at


def alone(case, b):
    """A sequence as a case of its own."""
    n = lengths(case)[b]
    return dataclasses.replace(case, B=1, Nq=n, N=n, packed="")


def shape(case, heads, width):
    """Of a tensor of all sequences' rows."""
    return starts(case)[-1], heads, width


def attention(case, device):
    """The function (q, k, v, bias, sinks) -> o. Its derivative in PyTorch is the operator _flash_attention_backward with the same starts."""
    at = torch.tensor(starts(case), device=device, dtype=torch.int32)
    longest = max(lengths(case))
    options = {}
    if case.window:
        options["window_size_left"], options["window_size_right"] = case.reach()

    def run(q, k, v, *_):
        return torch.ops.aten._flash_attention_forward(q, k, v, at, at, longest, longest, case.dropout, case.causal, False, **options)[0]

    return run


def sampled_error(case, inputs, o, generator, of_batch):
    """(largest difference, rows) over the first, the last and two other sequences; of_batch finds it of one as a batch of one."""
    at = starts(case)
    chosen = {0, case.B - 1, *torch.randint(case.B, (2,), generator=generator, device=o.device).tolist()}
    worst, rows = 0.0, 0
    for b in sorted(chosen):
        def own(x):
            return x[at[b] : at[b + 1]].transpose(0, 1)[None]

        difference, n = of_batch(alone(case, b), (*map(own, inputs[:3]), *inputs[3:]), own(o), generator)
        worst, rows = difference if not difference <= worst else worst, rows + n  # a NaN stays
    return worst, rows

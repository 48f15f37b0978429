"""Lengths of batch entries for torch_baseline.py: FlashAttention-2 as PyTorch's own operator takes them.

Packed sequences are q [tokens, H, D] with where each starts. Keys of which each batch entry uses the first, as of caches with room for more, are k
and v [B * N, Hkv, D] with where each entry's start, and how many of them count.

A case is torch_case's Case. Its lengths are all N, or MIXED in proportion, over and over from its beginning, of which the longest is N.
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
    """Refuse what lengths do not go with."""
    if case.used not in ("", "mixed"):
        raise ValueError(f"used is {case.used!r}, must be mixed")
    if case.used and (case.packed or case.mask or case.bias):
        raise ValueError(f"used is {case.used!r}: there must be no mask and no bias, and no packed sequences")
    if case.packed not in ("", *KINDS):
        raise ValueError(f"packed is {case.packed!r}, must be one of {', '.join(KINDS)}")
    if case.packed and (case.Nq != case.N or case.mask or case.bias):
        raise ValueError(f"packed is {case.packed!r}: Nq must be N, and there must be no mask and no bias")


def lengths(case):
    """The tokens of each sequence, or the keys that each batch entry uses."""
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
    """A sequence, or batch entry, as a case of its own."""
    n = lengths(case)[b]
    return dataclasses.replace(case, B=1, Nq=case.Nq if case.used else n, N=n, packed="", used="")


def shape(case, heads, n, width):
    """Of a tensor of all rows, of which a batch entry has n."""
    return starts(case)[-1] if case.packed else case.B * n, heads, width


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


def used_attention(case, device):
    """The function (q, k, v, bias, sinks) -> o of a batch, which the operator takes as packed slots of which seqused_k rows count. Causal order and
    window are aligned to the last of these. Its derivative in PyTorch would leave seqused_k out."""
    used = torch.tensor(lengths(case), device=device, dtype=torch.int32)
    of_queries, of_keys = (torch.arange(0, (case.B + 1) * n, n, device=device, dtype=torch.int32) for n in (case.Nq, case.N))
    options = {}
    if case.window:
        options["window_size_left"], options["window_size_right"] = case.reach()

    def run(q, k, v, *_):
        return torch.ops.aten._flash_attention_forward(
            q, k, v, of_queries, of_keys, case.Nq, case.N, case.dropout, case.causal, False, seqused_k=used, **options)[0]

    return run


def sampled_error(case, inputs, o, generator, of_batch):
    """(largest difference, rows) over the first, the last and two other sequences; of_batch finds it of one as a batch of one."""
    at = starts(case)
    chosen = {0, case.B - 1, *torch.randint(case.B, (2,), generator=generator, device=o.device).tolist()}
    worst, rows = 0.0, 0
    for b in sorted(chosen):
        def own(x):
            n = x.shape[0] // case.B
            return (x[b * n : (b + 1) * n] if case.used else x[at[b] : at[b + 1]]).transpose(0, 1)[None]

        difference, n = of_batch(alone(case, b), (*map(own, inputs[:3]), *inputs[3:]), own(o), generator)
        worst, rows = difference if not difference <= worst else worst, rows + n  # a NaN stays
    return worst, rows

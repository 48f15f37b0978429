#!/usr/bin/env python3
"""Adds the largest score of each head to the golden vectors named below: max_logit [B, H], in natural units, of the pairs that are seen.

Scores are computed as their definition says, one number at a time, in float64: softcap(scale q k) + bias, and what the mask or the causal
order hides left out. Nothing of what vkattn computes is used.
"""

import json
import math
import pathlib

from tangents import Tensor, built_in, here, read, write

VECTORS = ("f16_bias", "f16_causal_d64", "f16_huge_logits", "f16_scale", "f16_softcap", "f16_window_left", "f32_mask_dead_row")
KNOWN = {"softcap", "name", "dtype", "plain_max_abs_error", "scale", "cross_checked", "causal", "window"}


def seen(case, i, j, queries, keys):
    """Whether query i sees key j by its position: the last query stands where the last key does."""
    at = i + keys - queries
    left, right = case.get("window", (-1, -1))
    if case.get("causal") and j > at:
        return False
    return (left < 0 or j >= at - left) and (right < 0 or j <= at + right)


def largest(tensors, case):
    q, k, bias, mask = tensors["q"], tensors["k"], tensors.get("bias"), tensors.get("mask")
    batch, heads, queries, dim = q.shape
    keys, group = k.shape[2], heads // k.shape[1]
    row = lambda t, b, h, i: t.data[t.at(b, h, i, 0) : t.at(b, h, i, 0) + dim]
    out = []
    for b in range(batch):
        for h in range(heads):
            most = -math.inf
            for i in range(queries):
                for j in range(keys):
                    if not seen(case, i, j, queries, keys) or mask and not mask.data[mask.at(b, h, i, j)]:
                        continue
                    s = case["scale"] * math.fsum(x * y for x, y in zip(row(q, b, h, i), row(k, b, h // group, j)))
                    if case.get("softcap"):
                        s = case["softcap"] * math.tanh(s / case["softcap"])
                    if bias:
                        s += bias.data[bias.at(b, h, i, j)]
                    most = max(most, s)
            out.append(most)
    return [batch, heads], out


if __name__ == "__main__":
    for name in VECTORS:
        path = here / (name + ".safetensors")
        metadata, tensors = read(path)
        case = json.loads(metadata["case"])
        assert set(case) <= KNOWN, f"{path.name} has options that are not here: {set(case) - KNOWN}"
        shape, values = largest(tensors, case)
        tensors["max_logit"] = Tensor("F32", shape, values)
        write(path, metadata, tensors)
        if (built_in / path.name).exists():
            (built_in / path.name).write_bytes(path.read_bytes())
        print(f"{path.name}: {' '.join(f'{x:.6g}' for x in values)}")

#!/usr/bin/env python3
"""Makes golden vectors of wide heads, of 512 columns, and of 576 with values of 512: inputs drawn at random, o, lse and gradients.

Attention is computed as its definition says, in float64. The gradients are those of sum do o, by the chain rule from the last operation back
to the first, and a sample of them is compared with central differences of the definition. `plain_max_abs_error` is how wrong o is with
scores and weights rounded to the storage type, as a program without fused kernels has them.
"""

import json
import math
import pathlib
import random
import struct

from tangents import Tensor, write

CASES = {
    "f16_d512": {"heads": 2, "key_heads": 1, "queries": 24, "keys": 24, "dim": 512, "value_dim": 512, "causal": True},
    "f16_d576_dv512": {"heads": 2, "key_heads": 1, "queries": 9, "keys": 21, "dim": 576, "value_dim": 512, "causal": False},
}


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def dot(x, y):
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def forward(q, k, v, scale, causal, rounded=lambda x: x):
    """Weights, o and lse of one head; q, k and v are lists of rows."""
    weights, o, lse = [], [], []
    for i, row in enumerate(q):
        seen = range(len(k) if not causal else i + 1)
        s = [rounded(scale * rounded(dot(row, k[j]))) for j in seen]
        most = max(s)
        total = math.fsum(math.exp(x - most) for x in s)
        p = [rounded(math.exp(x - most) / total) for x in s]
        weights.append(p)
        o.append([rounded(math.fsum(p[j] * v[j][c] for j in seen)) for c in range(len(v[0]))])
        lse.append(most + math.log(total))
    return weights, o, lse


def backward(q, k, v, do, weights, scale):
    """dq, dk and dv of one head, of sum do o."""
    dq, dk, dv = ([[0.0] * len(x[0]) for _ in x] for x in (q, k, v))
    for i, p in enumerate(weights):
        dp = [dot(do[i], v[j]) for j in range(len(p))]
        through = dot(p, dp)  # the softmax passes p (dp - sum p dp) on
        for j in range(len(p)):
            ds = scale * p[j] * (dp[j] - through)
            for c, x in enumerate(k[j]):
                dq[i][c] += ds * x
            for c, x in enumerate(q[i]):
                dk[j][c] += ds * x
            for c, x in enumerate(do[i]):
                dv[j][c] += p[j] * x
    return dq, dk, dv


def flat(heads):
    return [x for head in heads for row in head for x in row]


def add(to, rows):
    for a, b in zip(to, rows, strict=True):
        for c, x in enumerate(b):
            a[c] += x


def make(name, c):
    rng = random.Random(name)
    rows = lambda n, d: [[half(rng.gauss(0, 1)) for _ in range(d)] for _ in range(n)]
    q = [rows(c["queries"], c["dim"]) for _ in range(c["heads"])]
    k = [rows(c["keys"], c["dim"]) for _ in range(c["key_heads"])]
    v = [rows(c["keys"], c["value_dim"]) for _ in range(c["key_heads"])]
    do = [rows(c["queries"], c["value_dim"]) for _ in range(c["heads"])]
    scale, group = 1 / math.sqrt(c["dim"]), c["heads"] // c["key_heads"]

    def answers(rounded=lambda x: x):
        out = {x: [] for x in ("o", "lse", "dq")}
        out["dk"] = [[[0.0] * c["dim"] for _ in head] for head in k]
        out["dv"] = [[[0.0] * c["value_dim"] for _ in head] for head in v]
        for h in range(c["heads"]):
            kv = h // group
            weights, o, lse = forward(q[h], k[kv], v[kv], scale, c["causal"], rounded)
            dq, dk, dv = backward(q[h], k[kv], v[kv], do[h], weights, scale)
            out["o"].append(o), out["lse"].append([[x] for x in lse]), out["dq"].append(dq)
            add(out["dk"][kv], dk), add(out["dv"][kv], dv)
        return {x: flat(y) for x, y in out.items()}

    right, plain = answers(), answers(half)
    check(q, k, v, do, scale, c["causal"], group, right, rng)
    case = {"causal": c["causal"], "name": name, "dtype": "f16", "scale": scale, "cross_checked": False,
            "plain_max_abs_error": {"o": max(abs(a - b) for a, b in zip(plain["o"], right["o"], strict=True))}}
    tensors = {}
    for x, of, dtype in (("dk", k, "F32"), ("dq", q, "F32"), ("dv", v, "F32"), ("lse", None, "F32"), ("o", do, "F32"), ("do", do, "F16"),
                         ("k", k, "F16"), ("q", q, "F16"), ("v", v, "F16")):
        shape = [1, c["heads"], c["queries"]] if of is None else [1, len(of), len(of[0]), len(of[0][0])]
        tensors[x] = Tensor(dtype, shape, right[x] if dtype == "F32" else flat(of))
    write(pathlib.Path(__file__).parent / f"{name}.safetensors", {"case": json.dumps(case)}, tensors)


def check(q, k, v, do, scale, causal, group, right, rng):
    """Some elements of each gradient against central differences."""

    def loss():
        return math.fsum(dot(o, do[h][i]) for h in range(len(q))
                         for i, o in enumerate(forward(q[h], k[h // group], v[h // group], scale, causal)[1]))

    step = 1e-5
    for name, of in (("dq", q), ("dk", k), ("dv", v)):
        for _ in range(3):
            h, i, x = rng.randrange(len(of)), rng.randrange(len(of[0])), rng.randrange(len(of[0][0]))
            was = of[h][i][x]
            of[h][i][x] = was + step
            high = loss()
            of[h][i][x] = was - step
            low = loss()
            of[h][i][x] = was
            got = right[name][(h * len(of[0]) + i) * len(of[0][0]) + x]
            assert abs((high - low) / (2 * step) - got) < 1e-7 * max(1, abs(got)), (name, h, i, x, got)


for name, c in CASES.items():
    make(name, c)
    print(name)

#!/usr/bin/env python3
"""Makes golden vectors of sparse attention by lists of keys: inputs drawn at random, o, lse and gradients.

Attention is computed as its definition says, in float64: a query's softmax is over the keys that its list names, those that a causal mask
hides left out. The gradients are those of sum do o, by the chain rule from the last operation back to the first, and a sample of them is
compared with central differences of the definition. `plain_max_abs_error` is how wrong o is with scores and weights rounded to the storage
type, as a program without fused kernels has them.

`lists` is int32 [B, 1 or Hk, Nq, K]. Entries are in any order; some are -1, and some are no key of the batch entry. Query 2 sees nothing.
"""

import json
import math
import pathlib
import random
import struct

from tangents import Tensor, write

CASES = {
    "f16_lists": {"batch": 2, "heads": 4, "key_heads": 2, "queries": 9, "keys": 40, "dim": 24, "value_dim": 16, "entries": 11,
                  "lists": 1, "causal": False},
    "f16_lists_heads_causal": {"batch": 1, "heads": 6, "key_heads": 2, "queries": 30, "keys": 50, "dim": 32, "value_dim": 32, "entries": 20,
                               "lists": 2, "causal": True},
}


def half(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def dot(x, y):
    return math.fsum(a * b for a, b in zip(x, y, strict=True))


def draw_list(rng, query, c):
    keys = rng.sample(range(c["keys"]), c["entries"])
    none = [-1, c["keys"], c["keys"] + 7, -9]
    return [rng.choice(none) if query == 2 or rng.random() < 0.2 else key for key in keys]


def forward(q, k, v, lists, scale, causal, rounded=lambda x: x):
    """Weights by key, o and lse of one head; q, k and v are lists of rows."""
    weights, o, lse = [], [], []
    for i, row in enumerate(q):
        last = i + len(k) - len(q) if causal else len(k) - 1
        seen = sorted(j for j in lists[i] if 0 <= j < len(k) and j <= last)
        s = [rounded(scale * rounded(dot(row, k[j]))) for j in seen]
        most = max(s, default=0)
        total = math.fsum(math.exp(x - most) for x in s)
        p = {j: rounded(math.exp(x - most) / total) for j, x in zip(seen, s, strict=True)}
        weights.append(p)
        o.append([rounded(math.fsum(p[j] * v[j][x] for j in seen)) for x in range(len(v[0]))])
        lse.append(most + math.log(total) if seen else -math.inf)
    return weights, o, lse


def backward(q, k, v, do, weights, scale):
    """dq, dk and dv of one head, of sum do o."""
    dq, dk, dv = ([[0.0] * len(x[0]) for _ in x] for x in (q, k, v))
    for i, p in enumerate(weights):
        dp = {j: dot(do[i], v[j]) for j in p}
        through = math.fsum(p[j] * dp[j] for j in p)  # the softmax passes p (dp - sum p dp) on
        for j in p:
            ds = scale * p[j] * (dp[j] - through)
            for to, x, by in ((dq[i], k[j], ds), (dk[j], q[i], ds), (dv[j], do[i], p[j])):
                for n, y in enumerate(x):
                    to[n] += by * y
    return dq, dk, dv


def flat(x):
    return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]


def add(to, rows):
    for a, b in zip(to, rows, strict=True):
        for n, x in enumerate(b):
            a[n] += x


def make(name, c):
    rng = random.Random(name)
    rows = lambda n, d: [[half(rng.gauss(0, 1)) for _ in range(d)] for _ in range(n)]
    heads = lambda of, n, d: [[rows(n, d) for _ in range(c[of])] for _ in range(c["batch"])]
    q, k = heads("heads", c["queries"], c["dim"]), heads("key_heads", c["keys"], c["dim"])
    v, do = heads("key_heads", c["keys"], c["value_dim"]), heads("heads", c["queries"], c["value_dim"])
    lists = [[[draw_list(rng, i, c) for i in range(c["queries"])] for _ in range(c["lists"])] for _ in range(c["batch"])]
    scale, group = 1 / math.sqrt(c["dim"]), c["heads"] // c["key_heads"]

    def head(b, h, rounded=lambda x: x):
        kv = h // group
        return forward(q[b][h], k[b][kv], v[b][kv], lists[b][kv if c["lists"] > 1 else 0], scale, c["causal"], rounded)

    def answers(rounded=lambda x: x):
        out = {x: [] for x in ("o", "lse", "dq")}
        for x, of in (("dk", k), ("dv", v)):
            out[x] = [[[[0.0] * len(row) for row in rows] for rows in entry] for entry in of]
        for b in range(c["batch"]):
            for h in range(c["heads"]):
                kv = h // group
                weights, o, lse = head(b, h, rounded)
                dq, dk, dv = backward(q[b][h], k[b][kv], v[b][kv], do[b][h], weights, scale)
                out["o"].append(o), out["lse"].append(lse), out["dq"].append(dq)
                add(out["dk"][b][kv], dk), add(out["dv"][b][kv], dv)
        return {x: flat(y) for x, y in out.items()}

    def loss():
        return math.fsum(dot(o, do[b][h][i]) for b in range(c["batch"]) for h in range(c["heads"]) for i, o in enumerate(head(b, h)[1]))

    right, plain = answers(), answers(half)
    step = 1e-5
    for gradient, of in (("dq", q), ("dk", k), ("dv", v)):
        for _ in range(4):
            b, h, i, x = (rng.randrange(n) for n in (len(of), len(of[0]), len(of[0][0]), len(of[0][0][0])))
            was = of[b][h][i][x]
            of[b][h][i][x] = was + step
            high = loss()
            of[b][h][i][x] = was - step
            low = loss()
            of[b][h][i][x] = was
            got = right[gradient][((b * len(of[0]) + h) * len(of[0][0]) + i) * len(of[0][0][0]) + x]
            assert abs((high - low) / (2 * step) - got) < 1e-7 * max(1, abs(got)), (gradient, b, h, i, x, got)

    case = {"causal": c["causal"], "name": name, "dtype": "f16", "scale": scale, "cross_checked": False,
            "plain_max_abs_error": {"o": max(abs(a - b) for a, b in zip(plain["o"], right["o"], strict=True))}}
    tensors = {}
    for x, of, dtype in (("dk", k, "F32"), ("dq", q, "F32"), ("dv", v, "F32"), ("lse", None, "F32"), ("o", do, "F32"), ("do", do, "F16"),
                         ("k", k, "F16"), ("q", q, "F16"), ("v", v, "F16"), ("lists", lists, "I32")):
        shape = [c["batch"], c["heads"], c["queries"]] if of is None else [len(of), len(of[0]), len(of[0][0]), len(of[0][0][0])]
        tensors[x] = Tensor(dtype, shape, right[x] if dtype == "F32" else flat(of))
    write(pathlib.Path(__file__).parent / f"{name}.safetensors", {"case": json.dumps(case)}, tensors)


for name, c in CASES.items():
    make(name, c)
    print(name)

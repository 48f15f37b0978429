#!/usr/bin/env python3
"""Adds forward mode to the golden vectors named below: tangents of their inputs, drawn at random, and those of o and lse.

Attention is computed as its definition says, one number at a time, with dual numbers: a pair of a value and its derivative, for which each
operation has its rule. Nothing of the derivative of softmax is used, nor of what vkattn computes. Arithmetic is float64.

What comes out is compared with the file: o and lse with what is there, and the tangents with the gradients, which PyTorch computed:
  sum do o' = sum dq q' + sum dk k' + sum dv v' + sum dbias bias'
"""

import json
import math
import pathlib
import random
import struct

# Which inputs move, by file.
VECTORS = {
    "f16_bias": ("q", "k", "v", "bias"),
    "f16_d16": ("q", "k", "v"),
    "f16_one": ("q", "k", "v"),
    "f16_softcap": ("q", "k", "v"),
    "f32_d40": ("q", "v"),
    "f32_mask_dead_row": ("k", "v"),
}
CODES = {"F32": "f", "F16": "e", "U8": "B", "I32": "i"}


class Dual:
    __slots__ = ("x", "d")

    def __init__(self, x, d=0.0):
        self.x, self.d = x, d

    def __add__(self, o):
        return Dual(self.x + o.x, self.d + o.d)

    def __mul__(self, o):
        return Dual(self.x * o.x, self.d * o.x + self.x * o.d)

    def __truediv__(self, o):
        y = self.x / o.x
        return Dual(y, (self.d - y * o.d) / o.x)

    def exp(self):
        y = math.exp(self.x)
        return Dual(y, y * self.d)

    def log(self):
        return Dual(math.log(self.x), self.d / self.x)

    def tanh(self):
        y = math.tanh(self.x)
        return Dual(y, (1 - y * y) * self.d)


class Tensor:
    """Numbers in row-major order, of up to four dimensions; ones stand in front."""

    def __init__(self, dtype, shape, data):
        self.dtype, self.own, self.data = dtype, shape, data
        self.shape = [1] * (4 - len(shape)) + shape

    def bytes(self):
        return struct.pack(f"<{len(self.data)}{CODES[self.dtype]}", *self.data)

    def at(self, *index):
        """Where an element lies; a dimension of one stands for all."""
        at = 0
        for i, n in zip(index, self.shape):
            at = at * n + (i if n > 1 else 0)
        return at


def read(path):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    metadata, tensors = header.pop("__metadata__"), {}
    for name, t in header.items():
        first, end = t["data_offsets"]
        values = struct.iter_unpack("<" + CODES[t["dtype"]], data[8 + n + first : 8 + n + end])
        tensors[name] = Tensor(t["dtype"], t["shape"], [x for (x,) in values])
    return metadata, tensors


def write(path, metadata, tensors):
    header, body = {"__metadata__": metadata}, b""
    for name, t in tensors.items():
        data = t.bytes()
        header[name] = {"dtype": t.dtype, "shape": t.own, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def attention(tensors, case):
    """o and lse as dual numbers: o = softmax(softcap(scale q k) + bias) v over the keys that the mask leaves."""

    def duals(name):
        if name not in tensors:
            return None
        t = tensors[name]
        moves = tensors[name + "_tangent"].data if name + "_tangent" in tensors else [0.0] * len(t.data)
        return Tensor(t.dtype, t.own, [Dual(x, d) for x, d in zip(t.data, moves, strict=True)])

    q, k, v, bias, mask = duals("q"), duals("k"), duals("v"), duals("bias"), tensors.get("mask")
    batch, heads, queries, dim = q.shape
    keys, value_dim, group = k.shape[2], v.shape[3], heads // k.shape[1]
    scale, cap = Dual(case["scale"]), case.get("softcap", 0)
    row = lambda t, b, h, i: t.data[t.at(b, h, i, 0) : t.at(b, h, i, 0) + t.shape[3]]
    o, lse = [], []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                scores, values = [], []
                for j in range(keys):
                    if mask and not mask.data[mask.at(b, h, i, j)]:
                        continue
                    s = Dual(0.0)
                    for x, y in zip(row(q, b, h, i), row(k, b, h // group, j)):
                        s += x * y
                    s *= scale
                    if cap:
                        s = (s / Dual(cap)).tanh() * Dual(cap)
                    if bias:
                        s += bias.data[bias.at(b, h, i, j)]
                    scores.append(s)
                    values.append(row(v, b, h // group, j))
                if not scores:
                    o += [Dual(0.0)] * value_dim
                    lse.append(Dual(-math.inf))
                    continue
                most = max(s.x for s in scores)
                weights = [(s + Dual(-most)).exp() for s in scores]
                total = Dual(0.0)
                for w in weights:
                    total += w
                for c in range(value_dim):
                    x = Dual(0.0)
                    for w, y in zip(weights, values):
                        x += w * y[c]
                    o.append(x / total)
                lse.append(total.log() + Dual(most))
    return o, lse


def add_tangents(path, moving):
    metadata, tensors = read(path)
    case = json.loads(metadata["case"])
    known = {"softcap", "name", "dtype", "plain_max_abs_error", "scale", "cross_checked"}
    assert set(case) <= known, f"{path.name} has options that are not here: {set(case) - known}"
    tensors = {name: t for name, t in tensors.items() if not name.endswith("_tangent")}
    drawn = random.Random(path.stem)
    for name in moving:
        t = tensors[name]
        code = CODES[t.dtype]
        values = [struct.unpack(code, struct.pack(code, drawn.gauss(0, 1)))[0] for _ in t.data]
        tensors[name + "_tangent"] = Tensor(t.dtype, t.own, values)

    o, lse = attention(tensors, case)
    for name, answer in (("o", o), ("lse", lse)):
        for want, got in zip(tensors[name].data, answer, strict=True):
            assert want == got.x or abs(want - got.x) <= 1e-6 * (1 + abs(want)), f"{path.name}: {name} is {want}, and {got.x} here"
    forward = math.fsum(x * y.d for x, y in zip(tensors["do"].data, o, strict=True))
    pairs = [(tensors["d" + name].data, tensors[name + "_tangent"].data) for name in moving]
    terms = [x * y for gradient, tangent in pairs for x, y in zip(gradient, tangent, strict=True)]
    reverse, size = math.fsum(terms), math.sqrt(math.fsum(x * x for x in terms))
    assert abs(forward - reverse) <= 1e-6 * size, f"{path.name}: forward mode gives {forward}, PyTorch's gradients {reverse}"

    tensors["o_tangent"] = Tensor("F32", tensors["o"].own, [x.d for x in o])
    tensors["lse_tangent"] = Tensor("F32", tensors["lse"].own, [x.d for x in lse])
    write(path, metadata, tensors)
    print(f"{path.name}: sum do o' = {forward:.9g}, by PyTorch's gradients {reverse:.9g}")


here = pathlib.Path(__file__).parent
built_in = here.parents[1] / "cmd/vkattn/internal/conformance/vectors"
if __name__ == "__main__":
    for name, moving in VECTORS.items():
        path = here / (name + ".safetensors")
        add_tangents(path, moving)
        if (built_in / path.name).exists():
            (built_in / path.name).write_bytes(path.read_bytes())

#!/usr/bin/env python3
"""Writes rows.json: rows of the dropout mask, computed independently of the Go and GLSL code.

Philox4x32-7, key = (seed low, seed high), counter = (4*(j//64) + (j//2)%4, i, b*Hq + h, offset);
byte (j%2) + 2*((j//8)%2) + 4*((j//16)%4) of the 16 little-endian bytes is column j's draw;
a weight is kept iff its draw is at least round(256*p).
"""

import json
import pathlib


def philox(counter, key, rounds):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c3 ^ k1, p0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


# The generator's own known answers (Random123, kat_vectors).
assert philox((0,) * 4, (0,) * 2, 7) == (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)
assert philox((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, 7) == (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662)


def draw(seed, offset, head, i, j):
    words = philox((4 * (j // 64) + (j // 2) % 4, i, head, offset), (seed & 0xFFFFFFFF, seed >> 32), 7)
    data = b"".join(w.to_bytes(4, "little") for w in words)
    return data[j % 2 + 2 * (j // 8 % 2) + 4 * (j // 16 % 4)]


def row(seed, offset, p, head, i, columns):
    k = round(256 * p)
    keep = "".join("1" if draw(seed, offset, head, i, j) >= k else "0" for j in range(columns))
    return {"seed": str(seed), "offset": offset, "p": p, "head": head, "row": i, "keep": keep}


rows = [
    row(0, 0, 0.5, 0, 0, 130),
    row(1, 0, 0.1, 0, 7, 200),
    row(42, 3, 0.25, 5, 63, 97),
    row(0x0123456789ABCDEF, 0xFFFFFFFF, 0.9, 31, 1000, 150),
    row(0xFFFFFFFFFFFFFFFF, 12345, 0.003, 65535, 65536, 300),
    row(7, 1, 0.0, 2, 2, 20),
]
path = pathlib.Path(__file__).parent / "rows.json"
path.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")

"""Blocks of quantised numbers as ggml's own library makes them: generate.py LIBGGML_BASE writes blocks.safetensors beside itself."""

import ctypes
import json
import pathlib
import random
import struct
import sys

BLOCK, SIZES = 32, {"q8_0": 34, "q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "iq4_nl": 18}
LEAST = 1e-15  # of iq4_nl: of a block below that everywhere ggml writes the scale alone, and then numbers that it made before


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def blocks():
    r = random.Random(14)
    normal = lambda scale: [f32(r.gauss(0, 1) * scale) for _ in range(BLOCK)]
    yield [0.0] * BLOCK
    yield [-0.0] * BLOCK
    for scale in (1, 1, 1, 1, 1, 1, 1, 1, 1e-3, 1e-3, 30, 30, 1e4):
        yield normal(scale)
    for scale in (6e-5, 1e-5, 3e-6, 1e-6, 1e-7, 1e-9, 1e-20, 1e-30):  # d is a denormal fp16, then 0
        yield normal(scale)
    for scale in (1e5, 8e6, 1e7, 1e20, 1e37):  # d is near the largest fp16, then infinite
        yield normal(scale)
    for most in (127.0, -127.0, 63.5, 254.0, 8.0, -8.0, 1.0, -4.0, 65504.0 * 127, 65519.0 * 127, 65520.0 * 127):  # halves
        yield [f32(most)] + [f32(most * (2 * i + 1) / 254) for i in range(BLOCK - 1)]
        yield [f32(most * (2 * i - 31) / 16) if abs(2 * i - 31) < 16 else f32(most) for i in range(BLOCK)]
    for a, b in ((3, 20), (20, 3), (2, 17), (17, 2), (0, 31), (31, 0), (15, 16), (16, 15)):  # the same magnitude with both signs: the first counts
        x = [f32(v) for v in (r.uniform(-1, 1) for _ in range(BLOCK))]
        x[a], x[b] = 2.5, -2.5
        yield x
    for i in range(BLOCK):  # one number, anywhere
        yield [f32((-1) ** i * r.uniform(0.1, 9)) if i == j else 0.0 for j in range(BLOCK)]
    for low, high in ((1, 2), (-2, -1), (100, 100.01), (0, 3), (-3, 0), (-1e-6, 1e4)):  # numbers of one sign, and far from 0
        yield [f32(r.uniform(low, high)) for _ in range(BLOCK)]
    yield [2.5] * BLOCK
    yield [-2.5] * BLOCK
    for zero in (0.0, -0.0):  # the first of zeros of both signs is the smallest
        yield [zero if j == 0 else -zero if j == 9 else f32(abs(r.gauss(0, 1))) for j in range(BLOCK)]
    for top in (15, 31, 62, -31):  # halves between numbers from 0 to 15, and to 31
        yield [0.0, f32(top)] + [f32(top * (2 * i + 1) / 62) for i in range(BLOCK - 2)]
        yield [f32(top * (2 * i + 1) / 30) if i < 15 else f32(top * (i % 2)) for i in range(BLOCK)]
    table = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
    for sign in (1, -1, -4):  # iq4_nl: middles between its numbers, and what lies beside them
        yield [f32(-127 * sign)] + [f32(sign * ((table[i % 15] + table[i % 15 + 1]) / 2 + (i // 15 - 1) * 1e-3)) for i in range(BLOCK - 1)]
    for _ in range(25):
        spread = 2 ** r.uniform(-20, 20)
        yield [f32(spread * (r.gauss(0, 1) + r.choice((0, 0, 1, 30)))) for _ in range(BLOCK)]


def main():
    lib = ctypes.CDLL(sys.argv[1])
    rows = list(blocks())
    x = struct.pack("<%df" % (BLOCK * len(rows)), *[v for row in rows for v in row])
    tensors = {"x": ("F32", [len(rows), BLOCK], x)}
    for name, size in SIZES.items():
        out = ctypes.create_string_buffer(size * len(rows))
        quantise = lib["quantize_row_%s_ref" % name]
        quantise.argtypes, quantise.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
        quantise(x, out, BLOCK * len(rows))
        raw = bytearray(out.raw)
        for i, row in enumerate(rows):
            if name == "iq4_nl" and max(map(abs, row)) < LEAST:
                raw[i * size + 2:(i + 1) * size] = bytes(size - 2)
        tensors[name] = ("U8", [len(rows), size], bytes(raw))
    header, body = {"__metadata__": {"source": "ggml, quantize_row_*_ref"}}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    path = pathlib.Path(__file__).with_name("blocks.safetensors")
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)
    print(path.name, len(rows), "blocks")


main()

"""Blocks of q8_0 and q4_0 as ggml's own library makes them: generate.py LIBGGML_BASE writes blocks.safetensors beside itself."""

import ctypes
import json
import pathlib
import random
import struct
import sys

BLOCK, SIZES = 32, {"q8_0": 34, "q4_0": 18}


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
        tensors[name] = ("U8", [len(rows), size], out.raw)
    header, body = {"__metadata__": {"source": "ggml, quantize_row_q8_0_ref and quantize_row_q4_0_ref"}}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    path = pathlib.Path(__file__).with_name("blocks.safetensors")
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)
    print(path.name, len(rows), "blocks")


main()

"""Numbers that ggml's own library makes of blocks of its K types: generate.py LIBGGML_BASE writes blocks.safetensors beside itself."""

import ctypes
import json
import pathlib
import random
import struct
import sys

BLOCK, BLOCKS = 256, 6
SIZES = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}  # bytes of a block, and where fp16 stand in it


def main():
    lib, r, tensors = ctypes.CDLL(sys.argv[1]), random.Random(15), {}
    for name, (size, halves) in SIZES.items():
        raw = bytearray()
        for _ in range(BLOCKS):
            block = bytearray(r.randbytes(size))
            for at in halves:  # any bytes are a block, but not all fp16 are finite
                block[at:at + 2] = struct.pack("<e", r.uniform(-2, 2) * 2 ** -r.randrange(16))
            raw += block
        out = (ctypes.c_float * (BLOCK * BLOCKS))()
        convert = lib["dequantize_row_" + name.lower().replace("k", "K")]
        convert.argtypes, convert.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
        convert(bytes(raw), out, BLOCK * BLOCKS)
        tensors[name] = ("U8", [BLOCKS, size], bytes(raw))
        tensors[name + ".x"] = ("F32", [BLOCKS, BLOCK], bytes(out))
    header, body = {"__metadata__": {"source": "ggml, dequantize_row_*_K"}}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    head = json.dumps(header).encode()
    pathlib.Path(__file__).with_name("blocks.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + body)


main()

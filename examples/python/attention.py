"""Attention from Python by ctypes, on NumPy's memory, compared with NumPy in float64: make lib && tools/run.sh python3 attention.py bin.

It exits with 1 where the difference is beyond the bound, and with 77 where there is no NumPy."""
import ctypes as c
import sys

try:
    import numpy as np
except ImportError as why:
    print("attention.py needs NumPy:", why)
    sys.exit(77)


class Tensor(c.Structure):  # vkattn_tensor
    _fields_ = [("size", c.c_uint32), ("dtype", c.c_uint32), ("data", c.c_void_p), ("buffer", c.c_uint64), ("bytes", c.c_uint64),
                ("offset", c.c_uint64), ("shape", c.c_int64 * 4), ("strides", c.c_int64 * 4)]


class Forward(c.Structure):  # vkattn_forward
    NAMES = "q k v o lse max_logit bias mask sinks query_lengths key_lengths".split()
    _fields_ = [("size", c.c_uint32), ("reserved", c.c_uint32)] + [(name, c.POINTER(Tensor)) for name in NAMES]


def tensor(x):
    """Lay a tensor over an array of float32, whatever its strides."""
    return c.pointer(Tensor(c.sizeof(Tensor), 0, x.ctypes.data, 0, sum(s * (n - 1) for s, n in zip(x.strides, x.shape)) + 4, 0,
                            x.shape, tuple(s // 4 for s in x.strides)))


def call(function, *arguments):
    error = c.c_char_p()
    if function(*arguments, c.byref(error)) != 0:
        raise RuntimeError(error.value.decode())  # a program that goes on frees it: vkattn_free(error)


lib, device = c.CDLL(sys.argv[1] + "/libvkattn.so"), c.c_uint64()
rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((2, 50, 4, 16), np.float32).transpose(0, 2, 1, 3) for _ in range(3))  # memory [batch, length, heads, dim]
o = np.empty_like(v)
call(lib.vkattn_device_open, None, c.byref(device))
call(lib.vkattn_sdpa_forward, device, None, c.byref(Forward(c.sizeof(Forward), 0, tensor(q), tensor(k), tensor(v), tensor(o))))
call(lib.vkattn_device_close, device)

weights = np.exp(np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) / np.sqrt(q.shape[3]))
want = np.einsum("bhij,bhjd->bhid", weights / weights.sum(axis=3, keepdims=True), v)
difference = np.abs(o - want).max()
print("largest difference %.2g of at most 1e-05" % difference)
sys.exit(0 if difference <= 1e-5 else 1)

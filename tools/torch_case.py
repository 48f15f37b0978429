"""Cases for torch_baseline.py: what attention is asked for, in plain Python.

A case has the keys impl, dtype (float16, bfloat16, float32), B, H, N (keys), D and, where they differ from the obvious, Hkv
(= H), Nq (= N), Dv (= D), causal (= false; aligned to the bottom right: key j is allowed for query i iff j <= i + N - Nq),
window (= 0, none; else the keys before its position i + N - Nq that a query sees and, if not causal, after it; standard, fa2, flex),
score (= "", none; alibi, t5 or softcap=30; standard, flex), bias (= "", none; else which of [B, H, Nq, N] it has, being 1 long in the
others: full all, heads [1, H, Nq, N], batch [B, 1, Nq, N], pairs [1, 1, Nq, N], keys [B, 1, 1, N]; in the case's dtype; its gradient is
part of backward; standard, and what scaled_dot_product_attention takes), mask (= "", none; documents=8, so many of equal length, or
prefix=256, the keys that all see besides those up to their own position; standard, flex), sinks (= false; standard), listed (= 0, none;
else how many of the keys that a query sees are in its list, those that Case.list says; standard, by a dense mask),
packed (= "", a batch; equal or mixed: B sequences one behind the other, as torch_packed.py says, N the longest; fa2),
used (= "", all keys; mixed: of each batch entry the first as torch_packed.py says, N the most, forward alone; fa2),
page (= 0; rows of a page of keys and values), cache (= "", the type of q; else that of keys and values) and max_logit (= false; the largest
score of each head as an output), of which PyTorch has none, latent (= false; v is the first Dv columns of k, where they lie),
passes (= ["fwd"]; or ["bwd"], or ["fwd", "bwd"]), dropout (= 0; the probability, which PyTorch takes as it is and vkattn to the
nearest 1/256).
"""
import dataclasses
import json
import math

import torch_packed

BACKENDS = {"fa2": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}  # of SDPBackend
IMPLEMENTATIONS = ("standard", *BACKENDS, "flex")
DTYPES = ("float16", "bfloat16", "float32")  # of torch
PASSES = (("fwd",), ("bwd",), ("fwd", "bwd"))
BIASES = {"full": "BHQK", "heads": "HQK", "batch": "BQK", "pairs": "QK", "keys": "BK"}  # the dimensions that are not broadcast
T5_BUCKETS, T5_DISTANCE = 32, 128


@dataclasses.dataclass
class Case:
    """One attention: q [B, H, Nq, D], k [B, Hkv, N, D], v [B, Hkv, N, Dv]."""

    impl: str
    B: int
    H: int
    N: int
    D: int
    dtype: str = "float16"
    Hkv: int = 0
    Nq: int = 0
    Dv: int = 0
    causal: bool = False
    passes: tuple = ("fwd",)
    dropout: float = 0.0
    window: int = 0
    score: str = ""
    bias: str = ""
    mask: str = ""
    sinks: bool = False
    listed: int = 0
    packed: str = ""
    used: str = ""
    page: int = 0
    cache: str = ""
    latent: bool = False
    max_logit: bool = False

    def __post_init__(self):
        self.Hkv, self.Nq, self.Dv = self.Hkv or self.H, self.Nq or self.N, self.Dv or self.D
        self.causal, self.passes = bool(self.causal), tuple(self.passes)
        if self.impl not in IMPLEMENTATIONS:
            raise ValueError(f"impl is {self.impl!r}, must be one of {', '.join(IMPLEMENTATIONS)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype is {self.dtype!r}, must be one of {', '.join(DTYPES)}")
        for name in ("B", "H", "Hkv", "Nq", "N", "D", "Dv"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}, must be a whole number from 1")
        if self.H % self.Hkv:
            raise ValueError(f"H is {self.H}, must be a multiple of Hkv = {self.Hkv}")
        if self.passes not in PASSES:
            raise ValueError(f"passes is {list(self.passes)}, must be ['fwd'], ['bwd'] or ['fwd', 'bwd']")
        for name in ("window", "page", "listed"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} is {value!r}, must be a whole number from 0")
        if not isinstance(self.dropout, (int, float)) or not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout!r}, must be at least 0 and below 1")
        self.check_scores()

    def check_scores(self):
        for key in ("score", "bias", "mask", "packed", "used", "cache"):
            if not isinstance(getattr(self, key), str):
                raise ValueError(f"{key} is {getattr(self, key)!r}, must be text")
        name, number = option(self.score)
        if self.score not in ("", "alibi", "t5") and not (name == "softcap" and number is not None and 0 < number < math.inf):
            raise ValueError(f"score is {self.score!r}, must be alibi, t5 or softcap=30")
        if self.bias not in ("", *BIASES):
            raise ValueError(f"bias is {self.bias!r}, must be one of {', '.join(BIASES)}")
        name, number = option(self.mask)
        if self.mask and not (name in ("documents", "prefix") and number in range(1, self.N + 1)):
            raise ValueError(f"mask is {self.mask!r}, must be documents=8 or prefix=256, of at most as many as there are keys")
        if name == "prefix" and self.causal:
            raise ValueError(f"mask is {self.mask!r}, which is causal beyond the prefix by itself: causal must be false")
        for name in ("sinks", "latent", "max_logit"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}, must be true or false")
        if self.latent and self.Dv > self.D:
            raise ValueError(f"Dv is {self.Dv}, must be at most D = {self.D} where values are columns of keys")
        torch_packed.check(self)

    @classmethod
    def from_json(cls, line):
        """Read a case. A key that is not known is an error: an option that were ignored would make the row a lie."""
        values = json.loads(line)
        if not isinstance(values, dict):
            raise ValueError("a case must be a JSON object")
        names = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - names - {"library"}):
            raise ValueError(f"unknown key {', '.join(unknown)}; a case has {', '.join(sorted(names))}")
        if missing := sorted({"impl", "B", "H", "N", "D"} - set(values)):
            raise ValueError(f"missing key {', '.join(missing)}")
        return cls(**{name: value for name, value in values.items() if name in names})

    def problem(self):
        """The keys that a question and its row have in common."""
        shape = {name: getattr(self, name) for name in ("B", "H", "Hkv", "Nq", "N", "D", "Dv")}
        dropout = dict(dropout=self.dropout) if self.dropout > 0 else {}
        window = dict(window=self.window) if self.window > 0 else {}
        names = ("score", "bias", "mask", "sinks", "listed", "packed", "used", "page", "cache", "latent", "max_logit")
        others = {name: getattr(self, name) for name in names if getattr(self, name)}
        return dict(impl=self.impl, dtype=self.dtype, **shape, causal=self.causal, **window, **others, **dropout)

    def row(self, version):
        """What a row of that PyTorch begins with."""
        return dict(library=f"torch {version}", **self.problem())

    def masks(self):
        """Whether the causal mask hides anything: a single query at the end sees every key."""
        return self.causal and self.Nq > 1

    def reach(self):
        """How many keys before and after its own position a query sees, at most; -1 is all."""
        return self.window or -1, 0 if self.causal else self.window or -1

    def seen(self, i):
        """The keys of query i: the first, and the one after the last."""
        left, right = self.reach()
        position = i + self.N - self.Nq
        first = max(0, position - left) if left >= 0 else 0
        end = min(self.N, position + right + 1) if right >= 0 else self.N
        name, number = option(self.mask)
        if name == "documents":
            document = self.document(max(0, position), number)
            first = max(first, -(-document * self.N // number))
            end = min(end, -(-(document + 1) * self.N // number))
        elif name == "prefix":
            end = min(end, max(number, position + 1))
        return first, max(first, end)

    def list(self, b, i):
        """The keys that query i of a batch entry lists, of those it sees otherwise: all, or so many in steps that come to each once."""
        first, end = self.seen(i)
        count, start, step = end - first, 0, 1
        if self.listed < count:
            start, step = (i * 2654435761 + b * 40503) % count, 1 + (i * 7919 + b * 104729) % (count - 1)
            while math.gcd(step, count) != 1:
                step += 1
        return [first + (start + n * step) % count for n in range(min(self.listed, count))]

    def document(self, token, documents):
        """Which of so many documents a token is of, all of one length or of two that differ by one."""
        return token * documents // self.N

    def bias_shape(self):
        """[B, H, Nq, N] of the bias, 1 where it is broadcast."""
        return [n if dimension in BIASES[self.bias] else 1 for dimension, n in zip("BHQK", (self.B, self.H, self.Nq, self.N))]

    def pairs(self):
        """(query, key) pairs of one head that count as computed, of one batch entry, or of all where they have lengths of their own."""
        if self.packed or self.used:
            return sum(torch_packed.alone(self, b).pairs() for b in range(self.B))
        if self.window or self.mask or self.listed:
            return sum(min(end - first, self.listed or self.N) for first, end in map(self.seen, range(self.Nq)))
        if not self.causal:
            return self.Nq * self.N
        if self.Nq == self.N:
            return self.N * self.N / 2
        shift = self.N - self.Nq
        first = max(0, -shift)  # the first query that sees any key
        return sum_to(self.N) - sum_to(first + shift)

    def flop(self, which):
        forward = 2 * (1 if self.packed or self.used else self.B) * self.H * self.pairs() * (self.D + self.Dv)
        return forward if which == "fwd" else 2.5 * forward


def sum_to(n):
    return n * (n + 1) // 2


def option(text):
    """("softcap", 30) of softcap=30; the number is None where there is none, or it is none."""
    name, _, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        return name, None
    return name, int(value) if value.is_integer() else value


def alibi_slopes(heads):
    """The paper's slopes: powers of 2^(-8/n) for a power of two n; beyond it, every second one of twice that number."""
    n = 2 ** int(math.log2(heads))
    return [2 ** (-8 * (h + 1) / n) for h in range(n)] + [2 ** (-8 * (h + 1) / (2 * n)) for h in range(0, 2 * (heads - n), 2)]


def t5_classes(bidirectional):
    """T5's bucket of each relative position key - query from -T5_DISTANCE to T5_DISTANCE; beyond, that of the nearest."""
    n = T5_BUCKETS // 2 if bidirectional else T5_BUCKETS
    exact = n // 2

    def bucket(distance):
        if distance < exact:
            return distance
        # a hair above, so that what is whole in exact arithmetic is not rounded down
        ratio = math.log(distance / exact) / math.log(T5_DISTANCE / exact) * (n - exact)
        return min(exact + int(ratio + 1e-6), n - 1)

    span = range(-T5_DISTANCE, T5_DISTANCE + 1)
    if bidirectional:
        return [bucket(abs(r)) + (n if r > 0 else 0) for r in span]
    return [bucket(max(-r, 0)) for r in span]

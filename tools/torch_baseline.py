#!/usr/bin/env python3
"""PyTorch's attention on a CUDA GPU, measured the way vkattn measures its own.

  torch_baseline.py --suite papers --passes fwd > torch.jsonl    a header line, then one JSON row per case
  torch_baseline.py --peer                                       one JSON case per line in, one JSON row per line out
  vkattn bench --peer 'python3 tools/torch_baseline.py --peer'   rows interleaved with vkattn's own
  vkattn bench --compare torch.jsonl                             rows of an earlier run

Implementations: standard (scores, softmax and product as separate PyTorch operations), fa2 (FlashAttention-2), cudnn, and
efficient (memory-efficient attention); the last three are backends of scaled_dot_product_attention. A case that its backend
cannot run gives a row with the backend's words in `error`, and memory, unsupported, check or failed in `reason`: no other
backend ever stands in for it.

A case has the keys impl, dtype (float16, bfloat16, float32), B, H, N (keys), D and, where they differ from the obvious, Hkv
(= H), Nq (= N), Dv (= D), causal (= false; aligned to the bottom right: key j is allowed for query i iff j <= i + N - Nq),
passes (= ["fwd"]; or ["fwd", "bwd"]).

A row repeats the case and adds, for fwd and, if asked, bwd:
  fwd_ms, fwd_p20_ms, fwd_p80_ms   median and percentiles of n samples
  fwd_tflops                       operations as the FlashAttention papers count them: 2 B H Nq N (D + Dv), half of it when
                                   causal with Nq = N (otherwise the allowed pairs); backward 2.5 times that
  fwd_peak_MiB                     memory beyond inputs and outputs
  max_err, err_rows                largest difference of that many sampled rows of the output from attention in float64

How it is timed. Forward: calls are captured in a CUDA graph and replayed between two events, so neither Python nor kernel
launches are in the figure. Backward: calls are queued back to back between two events, which hides launches wherever a call
outlasts its launch. At least 25 ms of warm-up, then at least 100 ms and 10 samples; a sample is the mean of the calls
between one pair of events. Inputs are normally distributed; where one set of them would fit into the L2 cache, the calls go
round enough sets that it does not.
"""
import argparse
import dataclasses
import gc
import json
import math
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

BACKENDS = {
    "fa2": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}
IMPLEMENTATIONS = ("standard", *BACKENDS)
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}

WARM_UP_MS = 25.0
MEASURE_MS = 100.0
MIN_SAMPLES = 10
MAX_SETS = 64  # of inputs, when rotating
SEED = 20240607


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
        if "fwd" not in self.passes or set(self.passes) - {"fwd", "bwd"}:
            raise ValueError(f"passes is {list(self.passes)}, must be ['fwd'] or ['fwd', 'bwd']")

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

    def row(self):
        shape = {name: getattr(self, name) for name in ("B", "H", "Hkv", "Nq", "N", "D", "Dv")}
        return dict(library=f"torch {torch.__version__}", impl=self.impl, dtype=self.dtype, **shape, causal=self.causal)

    def masks(self):
        """Whether the causal mask hides anything: a single query at the end sees every key."""
        return self.causal and self.Nq > 1

    def pairs(self):
        """(query, key) pairs of one head that count as computed."""
        if not self.causal:
            return self.Nq * self.N
        if self.Nq == self.N:
            return self.N * self.N / 2
        shift = self.N - self.Nq
        first = max(0, -shift)  # the first query that sees any key
        return sum_to(self.N) - sum_to(first + shift)

    def flop(self, which):
        forward = 2 * self.B * self.H * self.pairs() * (self.D + self.Dv)
        return forward if which == "fwd" else 2.5 * forward


def sum_to(n):
    return n * (n + 1) // 2


class Unsupported(Exception):
    """The implementation does not do this case, and nothing is wrong with either."""


# ---- the implementations ---------------------------------------------------------------------------------------------


def attention(case, device):
    """The function (q, k, v) -> o that the case asks for. It runs inside backend_of(case)."""
    if case.impl == "standard":
        return standard_attention(case, device)
    gqa = dict(enable_gqa=True) if case.Hkv != case.H else {}
    if not case.masks():
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **gqa)
    if case.Nq == case.N:
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, **gqa)
    # is_causal is aligned to the top left; this bias asks fa2 and efficient for the bottom right without storing a mask.
    if case.impl == "cudnn":
        raise Unsupported("cudnn in PyTorch has no bottom-right causal mask for Nq != N")
    bias = causal_lower_right(case.Nq, case.N)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, **gqa)


def standard_attention(case, device):
    """What one writes without a fused kernel. Query heads that share keys are rows of one product, so keys are not copied."""
    scale, group = 1 / math.sqrt(case.D), case.H // case.Hkv
    hidden = None
    if case.masks():
        hidden = torch.ones(case.Nq, case.N, dtype=torch.bool, device=device).triu(1 + case.N - case.Nq)

    def run(q, k, v):
        rows = q.reshape(case.B, case.Hkv, group * case.Nq, case.D)
        s = (rows @ k.transpose(-1, -2)) * scale
        if hidden is not None:
            s = s.view(case.B, case.H, case.Nq, case.N).masked_fill(hidden, float("-inf")).view(s.shape)
        return (torch.softmax(s, -1) @ v).view(case.B, case.H, case.Nq, case.Dv)

    return run


class backend_of:
    """Allow only the case's backend, and turn `no available kernel` into the reasons that PyTorch gives as warnings."""

    def __init__(self, case):
        self.context = None if case.impl == "standard" else sdpa_kernel(BACKENDS[case.impl])
        self.caught = warnings.catch_warnings(record=True)

    def __enter__(self):
        self.messages = self.caught.__enter__()
        warnings.simplefilter("always")
        if self.context:
            self.context.__enter__()

    def __exit__(self, kind, error, trace):
        if self.context:
            self.context.__exit__(kind, error, trace)
        self.caught.__exit__(kind, error, trace)
        if kind is RuntimeError and "No available kernel" in str(error):
            # Each reason ends in "(Triggered internally at FILE:LINE.)", and the disabled backends give theirs too.
            texts = [str(m.message).split(" (Triggered")[0].strip() for m in self.messages]
            reasons = [t for t in dict.fromkeys(texts) if "not used because" not in t and "disabled" not in t]
            raise Unsupported("no kernel for this case: " + (" ".join(reasons) or str(error))) from None
        return False


# ---- inputs, errors, time --------------------------------------------------------------------------------------------


def make_inputs(case, device, generator):
    """Sets of q, k, v (and the gradient of o): one, or so many that going round them passes the L2 cache."""
    dtype, backward = DTYPES[case.dtype], "bwd" in case.passes

    def tensor(*shape, grad=backward):
        values = torch.randn(*shape, device=device, dtype=torch.float32, generator=generator)
        return values.to(dtype).requires_grad_(grad)

    def one_set():
        q = tensor(case.B, case.H, case.Nq, case.D)
        k = tensor(case.B, case.Hkv, case.N, case.D)
        v = tensor(case.B, case.Hkv, case.N, case.Dv)
        do = tensor(case.B, case.H, case.Nq, case.Dv, grad=False) if backward else None
        return q, k, v, do

    sets = [one_set()]
    size = sum(t.numel() * t.element_size() for t in sets[0] if t is not None)
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    if size < cache:
        sets += [one_set() for _ in range(min(MAX_SETS, math.ceil(2 * cache / size)) - 1)]
    return sets


def sampled_error(case, q, k, v, o, generator):
    """(largest difference, rows): rows of o beside attention in float64; the first, the last and random ones, over heads."""
    places = [(0, 0, 0), (case.B - 1, case.H - 1, case.Nq - 1)]
    for limit in (case.B, case.H, case.Nq):
        places.append(torch.randint(limit, (14,), generator=generator, device=q.device).tolist())
    places[2:] = list(zip(*places[2:]))
    places = sorted(set(places))
    worst = 0.0
    for b, h, i in places:
        keys = case.N
        if case.causal:
            keys = min(case.N, i + case.N - case.Nq + 1)
        expected = torch.zeros(case.Dv, dtype=torch.float64, device=q.device)
        if keys > 0:
            kv = h // (case.H // case.Hkv)
            s = k[b, kv, :keys].double() @ q[b, h, i].double() / math.sqrt(case.D)
            expected = torch.softmax(s, -1) @ v[b, kv, :keys].double()
        difference = (o[b, h, i].double() - expected).abs().max().item()
        worst = difference if not difference <= worst else worst  # a NaN stays
    return worst, len(places)


def event_ms(run):
    """Device time of run() in milliseconds."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def samples_of(run, calls):
    """Milliseconds per call: warm up, then sample until there is enough."""
    warm = 0.0
    while warm < WARM_UP_MS:
        warm += max(event_ms(run), 1e-3)
    samples, total = [], 0.0
    while len(samples) < MIN_SAMPLES or total < MEASURE_MS:
        ms = event_ms(run)
        samples.append(ms / calls)
        total += max(ms, 1e-3)
    return samples


def calls_per_sample(once_ms, sets):
    """About 5 ms of calls in a sample, and every set of inputs at least once."""
    return max(len(sets), 1, min(256, math.ceil(5.0 / max(once_ms, 1e-3))))


def time_graph(function, sets):
    """Samples of function(set), with the calls captured in a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # capture wants lazy initialisation done, on a side stream
        for one in sets[:3]:
            function(one)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    calls = calls_per_sample(min(event_ms(lambda: function(sets[0])) for _ in range(3)), sets)
    torch.cuda.empty_cache()  # the graph has a memory pool of its own
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            function(sets[i % len(sets)])
    return samples_of(graph.replay, calls)


def time_queued(function, sets):
    """Samples of function(set), calls queued back to back."""
    calls = calls_per_sample(min(event_ms(lambda: function(sets[0])) for _ in range(3)), sets)

    def run():
        for i in range(calls):
            function(sets[i % len(sets)])

    return samples_of(run, calls)


def figures(which, samples, case):
    samples = sorted(samples)

    def percentile(p):
        return round(samples[round(p * (len(samples) - 1))], 5)

    ms = percentile(0.5)
    return {
        f"{which}_ms": ms,
        f"{which}_p20_ms": percentile(0.2),
        f"{which}_p80_ms": percentile(0.8),
        f"{which}_tflops": round(case.flop(which) / ms / 1e9, 2),
        "n" if which == "fwd" else "bwd_n": len(samples),
    }


def peak_mib(run):
    """(result of run, MiB that it needed at most beyond what was there and what it returns)"""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    outputs = sum(t.numel() * t.element_size() for t in (result if isinstance(result, tuple) else (result,)))
    return result, round(max(0, torch.cuda.max_memory_allocated() - before - outputs) / 2**20, 2)


def measure(case):
    """The case's figures. Raises whatever PyTorch raises."""
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(SEED)
    figures_of_case = {}
    sets = make_inputs(case, device, generator)
    function = attention(case, device)
    with backend_of(case):
        with torch.no_grad():
            function(*sets[0][:3])  # libraries that load themselves on first use shall not count as memory
            o, figures_of_case["fwd_peak_MiB"] = peak_mib(lambda: function(*sets[0][:3]))
            worst, rows = sampled_error(case, *sets[0][:3], o, generator)
            figures_of_case.update(max_err=worst, err_rows=rows)
            del o
            figures_of_case.update(figures("fwd", time_graph(lambda one: function(*one[:3]), sets), case))
        if "bwd" in case.passes:
            passes = [(function(q, k, v), (q, k, v), do) for q, k, v, do in sets]

            def gradients(one):
                o, inputs, do = one
                return torch.autograd.grad(o, inputs, do, retain_graph=True)

            gradients(passes[0])
            _, figures_of_case["bwd_peak_MiB"] = peak_mib(lambda: gradients(passes[0]))
            figures_of_case.update(figures("bwd", time_queued(gradients, passes), case))
    return figures_of_case


def answer(case):
    """The row of a case: its figures, or its error and none."""
    row = case.row()
    try:
        found = measure(case)
        if not math.isfinite(found["max_err"]):
            raise ArithmeticError("the output has NaN or infinity where it should not")
        row.update(found)
    except Exception as error:  # a case that fails must not lose the others
        row.update(error=describe(error), reason=REASONS.get(type(error), "failed"))
    gc.collect()
    torch.cuda.empty_cache()  # the program that asks needs the GPU's memory for its own row
    return row


REASONS = {torch.OutOfMemoryError: "memory", Unsupported: "unsupported", ArithmeticError: "check"}


def describe(error):
    text = " ".join(str(error).split())
    if isinstance(error, torch.OutOfMemoryError):
        text = text.split(" Of the allocated memory")[0]
    return f"{type(error).__name__}: {text}"[:400]


# ---- suites ----------------------------------------------------------------------------------------------------------


def papers():
    """The papers' grid: batch * seq = 16k, hidden size 2048."""
    for D in (64, 128, 256):
        for N in (512, 1024, 2048, 4096, 8192, 16384):
            for causal in (False, True):
                for impl in ("standard", "fa2", "cudnn"):
                    yield dict(impl=impl, B=16384 // N, H=2048 // D, N=N, D=D, causal=causal)


def reports():
    """The course reports' grid: 32 heads of 64."""
    for B in (16, 32, 64):
        for N in (512, 1024, 2048):
            for causal in (False, True):
                for impl in ("standard", "fa2", "cudnn"):
                    yield dict(impl=impl, B=B, H=32, N=N, D=64, causal=causal)


def dims():
    """Other head dimensions, and the other types."""
    for D in (32, 40, 80, 96, 112, 192, 256):
        yield dict(impl="fa2", B=4, H=16, N=4096, D=D)
    for causal in (False, True):
        for impl in ("fa2", "cudnn"):
            yield dict(impl=impl, dtype="bfloat16", B=4, H=16, N=4096, D=128, causal=causal)
    for impl in ("standard", "efficient"):
        yield dict(impl=impl, dtype="float32", B=4, H=16, N=2048, D=64)


def decode():
    """Grouped heads, one query, long sequences."""
    for impl in ("fa2", "cudnn"):
        yield dict(impl=impl, B=4, H=32, Hkv=8, N=4096, D=128, causal=True)
        for N in (4096, 16384, 65536):
            yield dict(impl=impl, B=1, H=32, Hkv=8, Nq=1, N=N, D=128, passes=("fwd",))
        for N in (16384, 65536):
            yield dict(impl=impl, B=1, H=16, N=N, D=64, causal=True)


SUITES = {suite.__name__: suite for suite in (papers, reports, dims, decode)}


def header():
    properties = torch.cuda.get_device_properties(0)
    return dict(
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version(),
        gpu=properties.name,
        capability=list(torch.cuda.get_device_capability()),
        memory_MiB=properties.total_memory // 2**20,
    )


def gemm_tflops(n=8192):
    """What a square fp16 matrix product reaches: the practical ceiling."""
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    samples = sorted(time_graph(lambda pair: pair[0] @ pair[1], [(a, b)]))
    return round(2 * n**3 / samples[len(samples) // 2] / 1e9, 1)


def emit(row):
    print(json.dumps(row), flush=True)


def serve():
    """Answer cases until the input ends. Whatever comes in, every line gets exactly one line back."""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            emit(answer(Case.from_json(line)))
        except (ValueError, TypeError) as error:
            asked = line.strip()[:200]
            emit(dict(library=f"torch {torch.__version__}", impl="none", asked=asked, error=describe(error), reason="failed"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="answer cases from standard input")
    parser.add_argument("--suite", default="all", help=f"comma list of {', '.join(SUITES)}, or all (default)")
    parser.add_argument("--impl", default="", help=f"only these, a comma list of {', '.join(IMPLEMENTATIONS)}")
    parser.add_argument("--passes", default="fwd,bwd", help="fwd, or fwd,bwd (default)")
    options = parser.parse_args()
    names = list(SUITES) if options.suite == "all" else options.suite.split(",")
    if unknown := [name for name in names if name not in SUITES]:
        parser.error(f"--suite {','.join(unknown)}: must be of {', '.join(SUITES)}, or all")
    impls = options.impl.split(",") if options.impl else IMPLEMENTATIONS
    if unknown := [name for name in impls if name not in IMPLEMENTATIONS]:
        parser.error(f"--impl {','.join(unknown)}: must be of {', '.join(IMPLEMENTATIONS)}")
    passes = tuple(options.passes.split(","))
    if passes not in (("fwd",), ("fwd", "bwd")):
        parser.error(f"--passes {options.passes}: must be fwd or fwd,bwd")
    if not torch.cuda.is_available():
        sys.exit(f"torch_baseline: PyTorch {torch.__version__} finds no CUDA GPU")

    torch.backends.cuda.matmul.allow_tf32 = False  # fp32 means fp32
    if options.peer:
        emit(header())
        return serve()
    emit(dict(header(), gemm_tflops=gemm_tflops()))
    for name in names:
        for values in SUITES[name]():
            if values["impl"] in impls:
                emit(answer(Case(**{"passes": passes, **values})))


if __name__ == "__main__":
    main()

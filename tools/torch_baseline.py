#!/usr/bin/env python3
"""PyTorch's attention on a CUDA GPU, measured the way vkattn measures its own.

  vkattn bench --suite papers --list > cases.jsonl               the cases of a sweep, one JSON object a line
  torch_baseline.py cases.jsonl > torch.jsonl                    a header line, then one JSON row per case
  vkattn bench --suite papers --list | torch_baseline.py --impl fa2 > torch.jsonl
  torch_baseline.py cases.jsonl --list                           what would be measured; needs neither PyTorch nor CUDA
  torch_baseline.py --peer                                       one JSON case per line in, one JSON row per line out
  vkattn bench --peer 'python3 tools/torch_baseline.py --peer'   rows interleaved with vkattn's own
  vkattn bench --compare torch.jsonl                             rows of an earlier run

Implementations: standard (scores, softmax and product as separate PyTorch operations), fa2 (FlashAttention-2), cudnn, and
efficient (memory-efficient attention), which are backends of scaled_dot_product_attention, and flex (FlexAttention through
torch.compile, each case in a process of its own: after a few compilations PyTorch would fall back to attention that is not fused;
what compiling took is told in `note` and is in no figure). A case that its implementation cannot run gives a row with the reason in
`error`, and memory, unsupported, check or failed in `reason`: no other implementation ever stands in for it, and no option is left
out. Where only the backward pass cannot be, forward's figures stand beside `bwd_error` and `bwd_reason`.

Sweeps are vkattn's: every flag of `vkattn bench` that says what the problem is, and the passes, is one of the list too. A list has a line
for each of vkattn's implementations, tiles and block masks; here each of its problems is measured once by every one of --impl,
densely, in the passes that any of those lines asks for. So each row there has its twin here.

A row repeats the case and adds, for each pass asked for:
  fwd_ms, fwd_p20_ms, fwd_p80_ms   median and percentiles of n samples
  fwd_tflops                       operations as the FlashAttention papers count them: 2 B H Nq N (D + Dv), half of it when
                                   causal with Nq = N (otherwise, and with a window or a mask, the pairs that are seen); backward
                                   2.5 times that
  fwd_peak_MiB                     memory beyond inputs and outputs
  max_err, err_rows                largest difference of that many sampled rows of the output from attention in float64;
                                   not with dropout, whose mask PyTorch keeps to itself: outputs are then only seen to be finite

How it is timed. Forward: calls are captured in a CUDA graph and replayed between two events, so neither Python nor kernel
launches are in the figure. Backward (torch.autograd.grad alone, its graph kept), and forward with dropout: calls are queued back
to back between two events, which hides launches wherever a call outlasts its launch. At least 25 ms of warm-up, then at least
100 ms and 10 samples; a sample is the mean of the calls between one pair of events. Inputs are normally distributed; where one
set of them would fit into the L2 cache, the calls go round enough sets that it does not.
"""
import argparse
import dataclasses
import gc
import json
import math
import os
import sys
import time
import warnings

import torch_case
import torch_flex
import torch_packed
from torch_case import BACKENDS, IMPLEMENTATIONS, T5_BUCKETS, T5_DISTANCE, Case, alibi_slopes, option, t5_classes

try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right
except ImportError as missing:  # --list does without
    torch, torch_missing = None, missing

WARM_UP_MS = 25.0
MEASURE_MS = 100.0
MIN_SAMPLES = 10
MAX_SETS = 64  # of inputs, when rotating
SEED = 20240607


class Unsupported(Exception):
    """The implementation does not do this case, and nothing is wrong with either."""


# ---- the implementations ---------------------------------------------------------------------------------------------


def attention(case, device):
    """The function (q, k, v, bias, sinks) -> o that the case asks for. It runs inside backend_of(case)."""
    for used, what in ((case.page, "keys and values in pages"), (case.cache, f"keys and values of type {case.cache}"),
                       (case.max_logit, "the largest scores")):
        if used:
            raise Unsupported(f"PyTorch has no {what}")
    if case.packed and case.impl != "fa2":
        raise Unsupported(f"{case.impl} here has no packed sequences")
    if case.used and case.impl != "fa2":
        raise Unsupported(f"{case.impl} here has no lengths of batch entries")
    if case.impl == "standard":
        return standard_attention(case, device)
    if case.impl == "flex":
        for used, what in ((case.dropout, "dropout"), (case.bias, "dense bias"), (case.sinks, "sinks"), (case.listed, "lists of keys")):
            if used:
                raise Unsupported(f"flex here has no {what}")
        return torch_flex.attention(case, device, score_function(case, device), option(case.mask))
    for used, what in ((case.score, "score functions"), (case.mask, f"{case.mask} but as a dense mask"), (case.sinks, "sinks"),
                       (case.listed, "lists of keys but as a dense mask")):
        if used:
            raise Unsupported(f"{case.impl} in PyTorch has no {what}")
    if case.bias and (case.window or case.masks()):
        raise Unsupported("scaled_dot_product_attention takes a bias, or is causal, or neither, and has no window")
    if case.packed:
        return torch_packed.attention(case, device)
    if case.used:
        return torch_packed.used_attention(case, device)
    if case.window:
        return windowed(case)
    options = dict(dropout_p=case.dropout)
    if case.Hkv != case.H:
        options["enable_gqa"] = True
    if case.bias:  # the backend says what it does not take, fa2 that it takes none
        shape = (case.B, case.H, case.Nq, case.N)
        return lambda q, k, v, bias, _: F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(shape), **options)
    if not case.masks():
        return lambda q, k, v, *_: F.scaled_dot_product_attention(q, k, v, **options)
    if case.Nq == case.N:
        return lambda q, k, v, *_: F.scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    # is_causal is aligned to the top left; this bias asks fa2 and efficient for the bottom right without storing a mask.
    if case.impl == "cudnn":
        raise Unsupported("cudnn in PyTorch has no bottom-right causal mask for Nq != N")
    bias = causal_lower_right(case.Nq, case.N)
    return lambda q, k, v, *_: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, **options)


def score_function(case, device):
    """The case's score function (s, b, h, q, k) -> s, as FlexAttention's score_mod is called; None without."""
    name, number = option(case.score)
    shift = case.N - case.Nq
    if name == "alibi":
        slopes = torch.tensor(alibi_slopes(case.H), device=device)
        return lambda s, b, h, q, k: s - slopes[h] * (q + shift - k).abs()
    if name == "softcap":
        return lambda s, b, h, q, k: number * torch.tanh(s / number)
    if name == "t5":
        generator = torch.Generator(device).manual_seed(SEED)
        table = torch.randn(T5_BUCKETS, case.H, device=device, generator=generator)
        classes = torch.tensor(t5_classes(not case.causal), device=device)

        def biased(s, b, h, q, k):
            near = torch.clamp(k - (q + shift), -T5_DISTANCE, T5_DISTANCE)
            return s + table[classes[near + T5_DISTANCE], h]

        return biased
    return None


def windowed(case):
    """scaled_dot_product_attention has no window; the operator under it has, in FlashAttention's own layout [B, N, H, D]."""
    if case.impl != "fa2":
        raise Unsupported(f"{case.impl} in PyTorch has no sliding window")
    left, right = case.reach()

    def run(q, k, v, *_):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = torch.ops.aten._flash_attention_forward(
            q, k, v, None, None, case.Nq, case.N, case.dropout, case.causal, False, window_size_left=left, window_size_right=right)[0]
        return o.transpose(1, 2)

    return run


def standard_attention(case, device):
    """What one writes without a fused kernel. Query heads that share keys are rows of one product, so keys are not copied."""
    scale, group = 1 / math.sqrt(case.D), case.H // case.Hkv
    hidden, score = None, score_function(case, device)
    head, query = torch.arange(case.H, device=device)[:, None, None], torch.arange(case.Nq, device=device)[:, None]
    if case.masks() or case.window or case.mask:
        rows = [case.seen(i) for i in range(case.Nq)]
        first, end = torch.tensor(rows, device=device).T[..., None]
        key = torch.arange(case.N, device=device)
        hidden = (key < first) | (key >= end)
    if case.listed:  # what is listed is seen
        hidden = torch.ones(case.B, 1, case.Nq, case.N, dtype=torch.bool, device=device)
        for b in range(case.B):
            for i in range(case.Nq):
                hidden[b, 0, i, torch.tensor(case.list(b, i), dtype=torch.long, device=device)] = False

    def run(q, k, v, bias, sinks):
        rows = q.reshape(case.B, case.Hkv, group * case.Nq, case.D)
        s = (rows @ k.transpose(-1, -2)) * scale
        of_rows, of_heads = s.shape, (case.B, case.H, case.Nq, case.N)
        if score:  # in fp32, as one writes what depends on distances of thousands
            s = score(s.view(of_heads).float(), None, head, query, torch.arange(case.N, device=device))
        if bias is not None:
            s = s.view(of_heads) + bias
        if hidden is not None:
            s = s.view(of_heads).masked_fill(hidden, float("-inf"))
        if sinks is not None:
            beside = sinks.to(s.dtype).view(1, case.H, 1, 1).expand(case.B, case.H, case.Nq, 1)
            s = torch.cat([s.view(of_heads), beside], -1)
        p = torch.softmax(s, -1)[..., : case.N].to(v.dtype).reshape(of_rows)
        if case.dropout > 0:
            p = F.dropout(p, case.dropout, training=True)
        return (p @ v).view(case.B, case.H, case.Nq, case.Dv)

    return run


class backend_of:
    """Allow only the case's backend, and turn `no available kernel` into the reasons that PyTorch gives as warnings."""

    def __init__(self, case):
        self.context = sdpa_kernel(getattr(SDPBackend, BACKENDS[case.impl])) if case.impl in BACKENDS else None
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
    """Sets ((q, k, v, bias, sinks), gradient of o), with None for what the case has not: one, or so many that going round them
    passes the L2 cache."""
    dtype, backward = getattr(torch, case.dtype), "bwd" in case.passes

    def tensor(*shape, grad=backward):
        values = torch.randn(*shape, device=device, dtype=torch.float32, generator=generator)
        return values.to(dtype).requires_grad_(grad)

    def rows(heads, n, width):
        return torch_packed.shape(case, heads, n, width) if case.packed or case.used else (case.B, heads, n, width)

    def one_set():
        q = tensor(*rows(case.H, case.Nq, case.D))
        k = tensor(*rows(case.Hkv, case.N, case.D))
        v = k[..., : case.Dv] if case.latent else tensor(*rows(case.Hkv, case.N, case.Dv))
        do = tensor(*rows(case.H, case.Nq, case.Dv), grad=False) if backward else None
        bias = tensor(*case.bias_shape()) if case.bias else None
        sinks = torch.randn(case.H, device=device, generator=generator).requires_grad_(backward) if case.sinks else None
        return (q, k, v, bias, sinks), do

    sets = [one_set()]
    size = sum(t.numel() * t.element_size() for t in (*sets[0][0], sets[0][1]) if t is not None)
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    if size < cache:
        sets += [one_set() for _ in range(min(MAX_SETS, math.ceil(2 * cache / size)) - 1)]
    return sets


def all_finite(tensors):
    return all(torch.isfinite(t).all().item() for t in tensors)


def sampled_error(case, inputs, o, generator):
    """(largest difference, rows): rows of o beside attention in float64; the first, the last and random ones, over heads."""
    if case.packed or case.used:
        return torch_packed.sampled_error(case, inputs, o, generator, sampled_error)
    q, k, v, bias, sinks = inputs
    score = score_function(case, q.device)
    places = [(0, 0, 0), (case.B - 1, case.H - 1, case.Nq - 1)]
    for limit in (case.B, case.H, case.Nq):
        places.append(torch.randint(limit, (14,), generator=generator, device=q.device).tolist())
    places[2:] = list(zip(*places[2:]))
    places = sorted(set(places))
    worst = 0.0
    for b, h, i in places:
        first, end = case.seen(i)
        expected = torch.zeros(case.Dv, dtype=torch.float64, device=q.device)
        if end > first:
            kv = h // (case.H // case.Hkv)
            keys = torch.tensor(case.list(b, i), device=q.device) if case.listed else torch.arange(first, end, device=q.device)
            s = k[b, kv, keys].double() @ q[b, h, i].double() / math.sqrt(case.D)
            if score:
                s = score(s, b, h, i, keys)
            if bias is not None:
                s = s + bias[tuple(at % n for at, n in zip((b, h, i), bias.shape))][keys].double()
            if sinks is not None:
                s = torch.cat([s, sinks[h : h + 1].double()])
            expected = torch.softmax(s, -1)[: len(keys)] @ v[b, kv, keys].double()
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


def measure_forward(case, function, sets, generator):
    """The forward pass's figures, and how right its output is, which a backward pass starts from."""
    found = {}
    time_calls = time_queued if case.dropout > 0 else time_graph  # a graph would have to carry the state of the generator
    with backend_of(case), torch.no_grad():
        began = time.perf_counter()
        function(*sets[0][0])  # libraries that load themselves on first use shall not count as memory, nor compilers as time
        if case.impl == "flex":
            torch_flex.note_compiling(found, "forward", began)
        o, peak = peak_mib(lambda: function(*sets[0][0]))
        if case.dropout == 0:
            found["max_err"], found["err_rows"] = sampled_error(case, sets[0][0], o, generator)
        if not all_finite([o]):
            raise ArithmeticError("the output has NaN or infinity where it should not")
        del o
        if "fwd" in case.passes:
            found["fwd_peak_MiB"] = peak
            found.update(figures("fwd", time_calls(lambda one: function(*one[0]), sets), case))
    return found


def forward_graphs(function, sets, device):
    """What gradients are taken of: (o, inputs, gradient of o) for each set, as long as what forward keeps is little."""
    made, most = [], torch.cuda.get_device_properties(device).total_memory / 4
    before = torch.cuda.memory_allocated()
    for inputs, do in sets:
        made.append((function(*inputs), tuple(t for t in inputs if t is not None), do))
        kept = torch.cuda.memory_allocated() - before
        if kept + kept / len(made) > most:
            break
    return made


def measure_backward(case, function, sets, device, found):
    """Adds the backward pass's figures."""
    if case.used:
        raise Unsupported("PyTorch's operator takes lengths in use forward alone")

    def gradients(one):
        o, inputs, do = one
        return torch.autograd.grad(o, inputs, do, retain_graph=True)

    with backend_of(case):
        began = time.perf_counter()
        graphs = forward_graphs(function, sets, device)
        gradients(graphs[0])
        if case.impl == "flex":
            torch_flex.note_compiling(found, "both passes", began)
        got, found["bwd_peak_MiB"] = peak_mib(lambda: gradients(graphs[0]))
        if not all_finite(got):
            raise ArithmeticError("the gradients have NaN or infinity where they should not")
        del got
        found.update(figures("bwd", time_queued(gradients, graphs), case))


def measure(case):
    """The case's figures. Raises whatever PyTorch raises, except what backward raises beside a forward pass."""
    device = torch.device("cuda")
    generator = torch.Generator(device).manual_seed(SEED)
    torch.cuda.manual_seed(SEED)  # of dropout
    function = attention(case, device)
    sets = make_inputs(case, device, generator)
    found = measure_forward(case, function, sets, generator)
    if "bwd" in case.passes:
        try:
            measure_backward(case, function, sets, device, found)
        except Exception as error:
            if "fwd" not in case.passes:
                raise
            found.pop("bwd_peak_MiB", None)
            found.update(bwd_error=describe(error), bwd_reason=reason_of(error))
    return found


def answer(case):
    """The row of a case: its figures, or its error and none."""
    if case.impl == "flex":
        return torch_flex.answer_apart(case, __file__)
    return answer_here(case)


def answer_here(case):
    row = case.row(torch.__version__)
    try:
        row.update(measure(case))
    except Exception as error:  # a case that fails must not lose the others
        row.update(error=describe(error), reason=reason_of(error))
    gc.collect()
    torch.cuda.empty_cache()  # the program that asks needs the GPU's memory for its own row
    return row


def reason_of(error):
    """A word of vkattn's result files."""
    reasons = {torch.OutOfMemoryError: "memory", Unsupported: "unsupported", ArithmeticError: "check"}
    return reasons.get(type(error), "failed")


def describe(error):
    text = " ".join(str(error).split())
    if isinstance(error, torch.OutOfMemoryError):
        text = text.split(" Of the allocated memory")[0]
    return f"{type(error).__name__}: {text}"[:400]


# ---- cases -----------------------------------------------------------------------------------------------------------


BOTH = ("fwd", "bwd")
WHO = ("impl", "density", "tuning")  # keys of a list that say which kernel of vkattn computes the problem, and not what it is


def cases_of(name, lines, impls):
    """The cases of a list, each once for every implementation, with the passes that any line wants of it."""
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            if not isinstance(values, dict):
                raise ValueError("a case must be a JSON object")
            problem = {key: value for key, value in values.items() if key not in WHO}
            case = Case.from_json(json.dumps(dict(problem, impl=impls[0])))
        except (ValueError, TypeError) as error:
            sys.exit(f"torch_baseline: {name}:{number}: {error}")
        found.setdefault(json.dumps(case.problem()), (case, set()))[1].update(case.passes)
    for case, wanted in found.values():
        for impl in impls:
            yield dataclasses.replace(case, impl=impl, passes=tuple(p for p in BOTH if p in wanted))


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
    parser = argparse.ArgumentParser(description=f"{__doc__}\n{torch_case.__doc__}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", action="store_true", help="answer cases from standard input")
    parser.add_argument("cases", nargs="?", default="-", help="what `vkattn bench --list` printed (default: standard input)")
    usual = "standard,fa2,cudnn"
    parser.add_argument("--impl", default=usual, help=f"comma list of {', '.join(IMPLEMENTATIONS)} (default: {usual})")
    parser.add_argument("--list", action="store_true", help="print the cases, and measure nothing")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)  # the process of one case: see torch_flex
    options = parser.parse_args()
    impls = options.impl.split(",")
    if unknown := [name for name in impls if name not in IMPLEMENTATIONS]:
        parser.error(f"--impl {','.join(unknown)}: must be of {', '.join(IMPLEMENTATIONS)}")
    cases = []
    if not options.peer and not options.alone:
        if options.cases == "-" and sys.stdin.isatty():
            parser.error("no cases: name a file of them, or pipe them: vkattn bench --suite papers --list | torch_baseline.py")
        try:
            with sys.stdin if options.cases == "-" else open(options.cases, encoding="utf-8") as lines:
                cases = list(cases_of(options.cases, lines, impls))
        except OSError as error:
            parser.error(str(error))
        if not cases:
            sys.exit(f"torch_baseline: {options.cases} has no cases")
    if options.list:
        for case in cases:
            emit(dict(case.problem(), passes=list(case.passes)))
        return
    if torch is None:
        sys.exit(f"torch_baseline: PyTorch is needed, and cannot be imported: {torch_missing} (python3 -m pip install torch)")
    if not torch.cuda.is_available():
        sys.exit(f"torch_baseline: PyTorch {torch.__version__} finds no CUDA GPU")

    torch.backends.cuda.matmul.allow_tf32 = False  # fp32 means fp32
    if options.alone:
        return emit(answer_here(Case.from_json(sys.stdin.read())))
    if options.peer:
        emit(header())
        return serve()
    emit(dict(header(), gemm_tflops=gemm_tflops()))
    for case in cases:
        emit(answer(case))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush has somewhere to go
        sys.exit(1)

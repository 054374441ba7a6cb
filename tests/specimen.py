"""Reports made by hand: one with something of everything, and texts that try to break out of their place."""

from __future__ import annotations

import numpy as np

from lunette.conform.case import Case
from lunette.conform.result import Accuracy, Cell, Finding, Report, Verdict
from lunette.explanation import explain

SCRIPT = "document.title='owned'"
HOSTILE = f'</pre><script>{SCRIPT}</script><img src=x onerror="{SCRIPT}">\'"&amp;]]>\x1b[31m\x00\ud800'
OPS = ("conv", "conv_transpose", "max_pool", "avg_pool", "lp_pool", "adaptive_max_pool", "global_max_pool")
DATA = ("integers", "normal", "ties", "nan", "infinite", "zeros", "subnormal", "cancelling", "huge")
OPTIONS = (
    *(f"rank {d}" for d in range(1, 5)),
    *("stride", "padding", "dilation", "ceil_mode", "count_include_pad", "groups"),
    *("float16", "bfloat16", "float32", "float64", "contiguous", "channels_last", "strided"),
    *("forward", "indices", "jvp", "vjp"),
    *(f"data {n}" for n in DATA),
)


def findings() -> tuple[Finding, ...]:
    """A crash, a wrong index, a wrong divisor, a hang, a sum, and two that are known."""
    empty = Case("max_pool", ((1, 1, 1),), {"kernel": (2,), "stride": (1,), "padding": (1,), "dilation": (2,)})
    tail = Case(
        "avg_pool", ((1, 1, 4),), {"kernel": (3,), "stride": (3,), "ceil_mode": True}, mode="vjp", dtype="float64"
    )
    plane = Case("avg_pool", ((1, 1, 3, 4),), {"kernel": (2, 2), "stride": (2, 2), "padding": ((1, 0), (0, 1))})
    conv = Case("conv", ((1, 2, 5), (4, 1, 3)), {"groups": 2, "padding": ((1, 1),)}, data="nan")
    ones = Case("avg_pool", ((1, 1, 2**25),), {"kernel": (2**25,)}, data="ones")
    text = str(explain("avg_pool", (4,), kernel=3, stride=3, ceil_mode=True))
    rule = "A window with no present cell is an error that names the output cell."
    divides = "A window divides by its cells inside the padded input."
    return (
        Finding("crash", "max_pool", rule, Verdict.CRASHED, 3, empty, "double free or corruption (out)", "a refusal",
                "torch.nn.functional.max_pool1d(torch.ones(1, 1, 1, requires_grad=True), 2, 1, 1, 2).sum().backward()",
                str(explain("avg_pool", (1,), kernel=2, stride=1, padding=1, dilation=2)),
                "Window 0 reads only padding: cells -1 and 1 of an input of one cell."),
        Finding("empty window", "max_pool", rule, Verdict.INDEX, 212, empty, "[[[1, 0]]]", "an error",
                "torch.nn.functional.max_pool1d(torch.ones(1, 1, 1), 2, 1, 1, 2, return_indices=True)", text),
        Finding("divisor", "avg_pool", divides, Verdict.GRADIENT, 40, tail,
                "[[[0.333, 0.333, 0.333, 0.333]]]", "[[[1/3, 1/3, 1/3, 1]]]",
                "torch.compile(torch.nn.functional.avg_pool1d)(x, 3, 3, 0, True)", text, "The overhang was counted."),
        Finding("divisor", "avg_pool", divides, Verdict.VALUE, 2, plane,
                "[[[[1.25, 2], [3, 4]]]]", "[[[[2.5, 2], [3, 4]]]]", "f(x)", "", ""),
        Finding("hang", "max_pool", "Nothing takes time in the size of the kernel.", Verdict.HUNG, 1,
                Case("max_pool", ((1, 1, 4),), {"kernel": (2**33,), "ceil_mode": True, "padding": ((2**33, 0),)}),
                "no answer in 10 s", "[[[4.0]]]", "torch.nn.functional.max_pool1d(torch.ones(1, 1, 4), 2**33)", ""),
        Finding("accumulation", "avg_pool", "gamma(h) * sum|x||w|", Verdict.VALUE, 4, ones, "0.5", "1.0",
                "session.run(None, {'x': numpy.ones((1, 1, 2**25), 'float32')})", "", "A running sum stops at 2**24."),
        Finding("nan", "conv", HOSTILE, Verdict.SPECIAL, 7, conv, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),
        Finding("tie", "max_pool", "The first in row-major order.", Verdict.GRADIENT, 18,
                Case("max_pool", ((1, 1, 2, 2),), {"kernel": (2, 2)}, data="ties", mode="vjp"),
                "[[[[0.25, 0.25], [0.25, 0.25]]]]", "[[[[1, 0], [0, 0]]]]", "x.max_pool2d((2, 2)).backward()",
                "", "", "shares ties evenly, and says so"),
        Finding("refusal", "lp_pool", "p is a real number >= 1 or inf.", Verdict.REFUSED, 5,
                Case("lp_pool", ((1, 1, 4),), {"kernel": (2,), "p": float("inf")}), "ZeroDivisionError", "[[[1, 2]]]",
                "f(x, inf)", "", "", HOSTILE),
    )  # fmt: skip


def specimen(backend: str = "torch", version: str = "torch 2.13.0+cpu") -> Report:
    """Every kind of verdict, finding, plot and note."""
    rng = np.random.default_rng(7)
    operators = {op: {"equal": 700 + 31 * at, "within": 160 - 20 * at, "unsupported": 40} for at, op in enumerate(OPS)}
    operators["max_pool"] |= {"index": 212, "gradient": 18, "crashed": 3, "hung": 1}
    operators["avg_pool"] |= {"gradient": 40, "value": 6}
    operators["conv"] |= {"special": 7}
    operators["lp_pool"] |= {"refused": 5}
    operators["global_max_pool"] = {"unsupported": 120}
    verdicts: dict[str, int] = {}
    for some in operators.values():
        for v, n in some.items():
            verdicts[v] = verdicts.get(v, 0) + n
    table = []
    for op in OPS:
        for option in OPTIONS:
            cases = int(rng.integers(0, 90)) if rng.random() > 0.12 else 0
            failures = int(rng.integers(0, cases + 1) ** 2 // max(cases, 1)) if rng.random() < 0.2 else 0
            table.append(Cell(op, option, cases, failures, failures if rng.random() < 0.3 else 0))
    accuracy = []
    for op, mode in (("conv", "forward"), ("conv", "vjp"), ("avg_pool", "forward")):
        for dtype in ("float32", "float64"):
            bounds = 10 ** rng.uniform(0.3, 2.7, 300)
            errors = bounds * 10 ** rng.uniform(-2.5, -0.3, 300) * (rng.random(300) > 0.1)
            errors[:2] = bounds[:2] * 4 if mode == "forward" else errors[:2]
            samples = tuple((float(e), float(e) / 3, float(b)) for e, b in zip(errors, bounds, strict=True))
            accuracy.append(Accuracy(op, dtype, mode, samples))
    return Report(
        backend, version, "Linux x86_64, 2 cores", 1, verdicts, tuple(table), tuple(accuracy), findings(),
        ("max_pool: nan order", HOSTILE), 48.25, {"no float16 kernel": 200, HOSTILE: 80}, operators=operators,
        elsewhere=("conv: asked with avx2, not generic", f"{HOSTILE} there"),
    )  # fmt: skip


def clean_report() -> Report:
    """Nothing to complain about."""
    counts = {"equal": 90, "within": 10}
    return Report(
        "lunette", "lunette 0.1.0", "Linux", 0, counts, (Cell("conv", "rank 1", 100, 0),), operators={"conv": counts}
    )

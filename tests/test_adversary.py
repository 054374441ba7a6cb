"""An adversary of the checker: false claims about random networks of every operator, with proofs made to fit.

A point of the box is looked for where some output is small; that no point is as small is then false, and whatever is
claimed to prove it has to be refused. Slopes, factors and betas climb towards the largest bound, parts are cut at
random, boxes are tightened in any order: the bound comes close to the value, and never above it; some part holds each
point, and its boxes do.

`python tests/test_adversary.py SECONDS SEED` tries as long, and prints what was tried and how close it came.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx

import lunette as ln
from effort import LONG
from lunette.certificate import check as checker
from lunette.certificate.ahead import MOST, moving
from lunette.certificate.produce import network_of
from test_balls import ball
from test_checker import every_value

COUNT = 3000 if LONG else 40
MOST_CELLS = 14
Rng = np.random.Generator


class Maker:
    """Random operators, one after the other, on arrays (1, channels, cells)."""

    def __init__(self, rng: Rng, curved: bool) -> None:
        self.rng, self.curved, self.used = rng, curved, Counter[str]()

    def weights(self, *shape: int, nonzero: bool = False) -> Any:
        kind, rng = self.rng.integers(8), self.rng
        w = rng.integers(-4, 5, shape) / 4
        w = {0: w / 3, 1: w * 2.0**30, 2: w * 1e-30, 3: w + 1e-7, 4: w / 7 + 0.1}.get(int(kind), w)
        return np.where(w == 0, 0.75, w).astype(np.float32) if nonzero else w.astype(np.float32)

    def pick(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def window(self, h: Any) -> dict[str, Any]:
        k = int(self.rng.integers(1, min(3, h.shape[-1]) + 1))
        pads = (self.pick(0, k // 2), self.pick(0, k // 2))
        return {
            "kernel": (k,), "stride": (self.pick(1, 2, 3),), "dilation": (self.pick(1, 1, 2),),
            "padding": self.pick((pads,), 0, "same", "same_lower"), "ceil_mode": self.pick(True, False),
        }  # fmt: skip

    def plain(self, h: Any, before: list[Any]) -> Any:
        """One operator whose values are exact."""
        rng, pick, c, n = self.rng, self.pick, h.shape[1], h.shape[2]
        outs = int(rng.integers(1, 3))
        names = (
            "conv", "conv", "conv_transpose", "max_pool", "avg_pool", "adaptive", "relu", "relu", "leaky", "abs", "neg",
            "add", "sub", "mul", "div", "maximum", "minimum", "matmul", "matmul_left", "concat", "slice", "pad",
            "transpose", "broadcast", "fold", "global", "twice", "grouped",
        )  # fmt: skip
        name = str(rng.choice(names))
        self.used[name] += 1
        same = [b for b in before if b.shape == h.shape]
        other = same[int(rng.integers(len(same)))] if rng.random() < 0.7 else self.weights(1, c, 1)
        w = self.window(h)
        if name in ("conv", "conv_transpose", "grouped"):
            k, groups = w["kernel"][0], c if name == "grouped" else 1
            shape = (c, outs, k) if name == "conv_transpose" else (outs * groups, c // groups, k)
            weights, pad = self.weights(*shape), w["padding"]
            bias = self.weights(outs * groups) if rng.random() < 0.5 else None
            if name == "conv_transpose":
                pad = pick(0, "same")
                return ln.conv_transpose(h, weights, bias, stride=pick(1, 2), padding=pad, dilation=pick(1, 2))
            return ln.conv(h, weights, bias, stride=w["stride"], padding=pad, dilation=w["dilation"], groups=groups)
        if name == "max_pool":
            return ln.max_pool(h, **w)
        if name == "avg_pool":
            return ln.avg_pool(h, **w, count_include_pad=pick(True, False), divisor=pick(None, None, 2.5, -3, 0.1))
        table: dict[str, Any] = {
            "adaptive": lambda: pick(ln.adaptive_max_pool, ln.adaptive_avg_pool)(h, int(rng.integers(1, n + 2))),
            "relu": lambda: ln.relu(h), "leaky": lambda: ln.leaky_relu(h, pick(0.01, 0.3, -0.5, 2.0)),
            "abs": lambda: ln.abs(h), "neg": lambda: -h, "add": lambda: h + other, "sub": lambda: other - h,
            "mul": lambda: h * self.weights(c, 1), "div": lambda: h / self.weights(c, 1, nonzero=True),
            "maximum": lambda: ln.maximum(h, other), "minimum": lambda: ln.minimum(other, h),
            "matmul": lambda: ln.reshape(ln.reshape(h, (c, n)) @ self.weights(n, outs), (1, c, outs)),
            "matmul_left": lambda: ln.reshape(self.weights(outs, c) @ ln.reshape(h, (c, n)), (1, outs, n)),
            "concat": lambda: ln.concat([h, -h if rng.random() < 0.5 else same[0]], axis=pick(1, 2, -1)),
            "slice": lambda: h[:, :, int(rng.integers(n)) :], "transpose": lambda: ln.transpose(h, (0, 2, 1)),
            "pad": lambda: ln.pad(h, ((0, 0), (0, 0), (pick(0, 1), 1)), value=pick(0, -1.5, 0.1)),
            "broadcast": lambda: ln.broadcast_to(h[:, :, :1], (1, c, 3)),
            "fold": lambda: pick(ln.sum, ln.mean, ln.max)(h, axis=pick(1, 2, (1, 2)), keepdims=True),
            "global": lambda: pick(ln.global_max_pool, ln.global_avg_pool)(h), "twice": lambda: h + h,
        }  # fmt: skip
        return table[name]()

    def curve(self, h: Any) -> Any:
        name = str(self.rng.choice(["exp", "log", "sqrt", "sigmoid", "tanh", "erf", "smooth", "lp", "log_exp"]))
        self.used[name] += 1
        w = self.window(h)
        small = ln.minimum(ln.maximum(h, np.float32(-6)), np.float32(5))
        table: dict[str, Any] = {
            "exp": lambda: ln.exp(small), "log": lambda: ln.log(ln.relu(h) + np.float32(0.1)),
            "sqrt": lambda: ln.sqrt(ln.relu(h)), "sigmoid": lambda: ln.sigmoid(h), "tanh": lambda: ln.tanh(h),
            "erf": lambda: ln.erf(h), "log_exp": lambda: ln.log(ln.exp(small) + ln.exp(-small)),
            "smooth": lambda: ln.smooth_max_pool(
                small, beta=np.float32(self.pick(1, -2, 0.5, 3)), **w, count_include_pad=self.pick(True, False)
            ),
            "lp": lambda: ln.lp_pool(small, **w, p=self.pick(1, 2, 3, 1.5, float("inf"))),
        }  # fmt: skip
        return table[name]()

    def network(self) -> tuple[ln.Graph, Any]:
        """A graph, and a box of few cells."""
        rng = self.rng
        shape = (1, int(rng.integers(1, 3)), int(rng.integers(1, 3)))
        lo = self.weights(*shape) if rng.random() < 0.3 else (rng.integers(-4, 3, shape) / 4).astype(np.float32)
        box = ln.Interval(lo, lo + (rng.integers(0, 5, shape) / 4).astype(np.float32))
        steps = int(rng.integers(1, 6))

        def f(x: Any) -> Any:
            before = [x]
            for _ in range(steps):
                for _ in range(20):
                    try:
                        bends = self.curved and rng.random() < 0.4
                        new = self.curve(before[-1]) if bends else self.plain(before[-1], before)
                    except ln.LunetteError:
                        continue
                    if new.ndim == 3 and 0 < np.prod(new.shape) <= MOST_CELLS:
                        before.append(new)
                        break
            return before[-1]

        return ln.trace(f, lo), box


class Target:
    """A network, a box, and outputs at points of it, exactly."""

    def __init__(self, rng: Rng, curved: bool) -> None:
        self.rng, self.maker = rng, Maker(rng, curved)
        self.graph, self.box = self.maker.network()
        self.net = network_of(self.graph)
        self.ends = [
            (Fraction(float(a)), Fraction(float(b))) for a, b in zip(self.box.lo.flat, self.box.hi.flat, strict=True)
        ]
        self.floats = self.net.grade == "exact" and rng.random() < 0.35
        self.program = self.graph.compile() if self.floats else None

    def outputs(self, x: list[Fraction]) -> list[Any]:
        shape = self.box.lo.shape
        if self.program is not None:
            y = self.program(np.array([float(v) for v in x], np.float32).reshape(shape))
            return [Fraction(float(v)) for v in y.reshape(-1)]
        number = ball if self.net.grade == "ball" else Fraction
        found = np.asarray(self.graph.eval(np.array(x, object).reshape(shape), number=number), object).reshape(-1)
        return [ball(v) if number is ball and not isinstance(v, arb) else v for v in found]

    def row(self) -> dict[int, Fraction]:
        cells = self.rng.choice(len(self.net.out), min(len(self.net.out), int(self.rng.integers(1, 4))), replace=False)
        some = (Fraction(1), Fraction(-1), Fraction(1, 3), Fraction(-7, 5), Fraction(2))
        return {int(c): some[int(self.rng.integers(5))] for c in cells}

    def low_value(self, row: dict[int, Fraction]) -> Fraction:
        """A number that row . output is not above at a point where it is small."""

        def value(x: list[Fraction]) -> Fraction:
            y = self.outputs(x)
            total = sum((v * y[c] if not isinstance(y[c], arb) else ball(v) * y[c] for c, v in row.items()), 0)
            if not isinstance(total, arb):
                return Fraction(total)
            man, exp = (int(part) for part in total.upper().man_exp())
            return man * Fraction(2) ** exp if exp > -3000 else Fraction(man > 0, 1 << 2000)  # no more than that

        def shares() -> list[Fraction]:
            some = (0, 0, 1, 1, Fraction(1, 2), Fraction(int(self.rng.integers(65)), 64))
            return [lo + (hi - lo) * some[int(self.rng.integers(6))] for lo, hi in self.ends]

        def snapped(x: list[Fraction]) -> list[Fraction]:
            if not self.floats:
                return x
            near = [Fraction(float(np.float32(float(v)))) for v in x]
            return [min(max(v, lo), hi) for v, (lo, hi) in zip(near, self.ends, strict=True)]

        best = min(((value(x), x) for x in (snapped(shares()) for _ in range(8))), key=lambda pair: pair[0])
        for _ in range(8):
            i, x = int(self.rng.integers(len(self.ends))), list(best[1])
            x[i] = shares()[i]
            best = min(best, (value(snapped(x)), snapped(x)), key=lambda pair: pair[0])
        return best[0]


class Adversary:
    """Certificates of a false claim, as good as it finds them."""

    def __init__(self, rng: Rng, target: Target) -> None:
        self.rng, self.target, self.net = rng, target, target.net
        self.bits = int(rng.choice([1, 2, 5, 20, 48, 90]))
        self.known: list[dict[int, list[Fraction]]] = []
        if self.net.grade == "exact" and not target.floats:  # what all nodes are at a few points
            shares = [[Fraction(int(s), 24) for s in rng.integers(0, 25, len(target.ends))] for _ in range(4)]
            points = [[a + (b - a) * s for (a, b), s in zip(target.ends, own, strict=True)] for own in shares]
            self.known = [every_value(self.net, [x]) for x in points]

    def inside(self, region: checker.Region) -> list[dict[int, list[Fraction]]]:
        """The points where the inequalities of a region hold, which have to be in its boxes."""
        one, found = 1 << self.bits, []
        for known in self.known:
            sums = (sum(s * known[p][i] for p, i, s in terms) + Fraction(n, one) for terms, n in region.spaces)
            if all(v >= 0 for v in sums):
                found.append(known)
                for p, values in known.items():
                    ends = zip(region.lo[p], values, region.hi[p], strict=True)
                    assert all(lo <= v * one <= hi for lo, v, hi in ends), (str(self.target.graph), p)
        return found

    def slopes(self, region: checker.Region) -> dict[Any, list[int]]:
        found = {}
        for n in self.net.nodes.values():
            for c, own in enumerate(n.taps or n.reads or ()):
                if self.rng.random() < 0.6:
                    span = [0, 1 << 20, 1 << 19, int(self.rng.integers(-(1 << 20), 1 << 21)), -(1 << 39)]
                    kinds = self.rng.choice(5, len(own), p=[0.3, 0.2, 0.1, 0.38, 0.02])
                    found[n.at, c] = [0 if p == checker.ZERO else span[k] for (p, _), k in zip(own, kinds, strict=True)]
        return found

    def proof(self, region: checker.Region, claim: Any) -> tuple[Fraction, Any]:
        """Factors, betas and slopes that climb; the bound that they give, and the JSON of the proof."""
        rng = self.rng

        def bound(factors: Any, betas: Any, own: Any, stop: int) -> Fraction:
            return region.excess(claim, factors, betas, own, stop)

        factors = [Fraction(1)] * len(claim)
        betas = [Fraction(0)] * len(region.spaces)
        now: tuple[Any, Any, Any, int] = (factors, betas, {}, 0)
        best = bound(*now), now
        for _ in range(int(rng.integers(2, 12))):
            factors, betas, own, _ = best[1]
            choice = int(rng.integers(4))
            if choice == 0 and betas:
                betas = [max(Fraction(0), b + Fraction(int(rng.integers(-8, 17)), 16)) for b in betas]
            elif choice == 1 and len(factors) > 1:
                factors = [Fraction(int(v), 3) for v in rng.integers(0, 5, len(factors))]
                factors = factors if any(factors) else [Fraction(1)] * len(factors)
            else:
                own = {**own, **self.slopes(region)} if rng.random() < 0.8 else {}
            new = (factors, betas, own, int(rng.random() < 0.05))
            found = bound(*new)
            if found > best[0]:
                best = found, new
        factors, betas, own, stop = best[1]
        texts = [[f"{q.numerator}/{q.denominator}" for q in some] for some in (factors, betas)]
        chosen = []
        for (at, c), values in own.items():
            taps = (self.net.nodes[at].taps or self.net.nodes[at].reads)[c]
            chosen.append([at, f"{1 << c:x}", [v for v, (p, _) in zip(values, taps, strict=True) if p != checker.ZERO]])
        return best[0], [0, stop, *texts, chosen]

    def steps(self, region: checker.Region) -> list[Any]:
        """Any, in any order; the region takes them, too."""
        found: list[Any] = []
        for _ in range(int(self.rng.integers(4))):
            if region.empty:
                break
            at = int(self.rng.choice(list(self.net.nodes)))
            kind = self.rng.random()
            if kind < 0.4:
                region.forward(at)
                found.append([at])
                continue
            if kind < 0.7 and len(moving(region)) <= MOST:
                region.lines(at)
                found.append([at, 0])
                continue
            cells = [sorted(c for c in range(self.net.nodes[at].size) if self.rng.random() < 0.7) for _ in range(2)]
            region.tighten(at, cells)
            found.append([at, *(f"{sum(1 << c for c in some):x}" for some in cells)])
        return found

    def term(self) -> tuple[int, int, int]:
        """A cell of a node, times an integer."""
        at = int(self.rng.choice(list(self.net.nodes)))
        return at, int(self.rng.integers(self.net.nodes[at].size)), int(self.rng.choice([-3, -1, 1, 1, 2]))

    def tree(self, region: checker.Region, claim: Any, depth: int) -> tuple[Fraction, list[Any]]:
        """Branches of a region, and the least bound of all leaves."""
        steps, inside = self.steps(region) if not region.empty else [], self.inside(region)
        if region.empty:
            return Fraction(10**9), [[[], [], []]]
        if depth and self.rng.random() < 0.8:
            maxima = [(n.at, c) for n in self.net.nodes.values() if n.taps for c in range(n.size)]
            if maxima and self.rng.random() < 0.5:
                at: Any
                cell: Any
                at, cell = maxima[int(self.rng.integers(len(maxima)))]
                q = None
            else:
                terms = [self.term() for _ in range(int(self.rng.integers(1, 5)))]
                ends = [sum(w * (region.lo, region.hi)[(w > 0) == top][p][i] for p, i, w in terms) for top in (0, 1)]
                lo, hi = (Fraction(end, 1 << self.bits) for end in ends)
                q = lo + (hi - lo) * Fraction(int(self.rng.integers(8)), 7)
                at, cell = (terms, None) if len(terms) > 1 or self.rng.random() < 0.2 else terms[0][:2]
            regions = [region.where(*p) for p in region.parts(at, cell, q)]
            held = [known for part in regions for known in self.inside(part)]
            assert all(any(known is k for k in held) for known in inside), (str(self.target.graph), at, cell, q)
            parts = [self.tree(part, claim, depth - 1) for part in regions]
            split = [at, cell, None if q is None else f"{q.numerator}/{q.denominator}"]
            return min(b for b, _ in parts), [[steps, [], split], *(own for _, some in parts for own in some)]
        least, proof = self.proof(region, claim)
        return least, [[steps, [proof], []]]

    def certificate(self, claim: Any, tree: list[Any]) -> bytes:
        def text(q: Fraction) -> str:
            return f"{q.numerator}/{q.denominator}"

        claims = [[[[c, text(v)] for c, v in row.items()], text(t), int(s)] for row, t, s in claim]
        case = {"boxes": [[[text(a), text(b)] for a, b in self.target.ends]], "claims": [claims], "tree": tree}
        content = {
            "format": "lunette certificate", "version": 1, "producer": "an adversary", "graph": self.net.digest,
            "semantics": "float" if self.target.floats else "real", "bits": self.bits, "cases": [case],
        }  # fmt: skip
        return json.dumps(content).encode()

    def accepted(self, data: bytes) -> bool:
        try:
            checker.check(self.net, data)
        except Exception:  # that is what ln.check and the command do, too
            return False
        return True


def attempt(rng: Rng, curved: bool, seen: Counter[str]) -> None:
    """One network, one false claim, one certificate of it, and one of the bound that it does prove."""
    target = Target(rng, curved)
    seen.update(target.maker.used)
    adversary = Adversary(rng, target)
    try:
        root = checker.Region(target.net, [target.ends], adversary.bits, target.floats)
    except checker.Refused:
        seen["no region"] += 1  # an overflow in floats, or a log of what may be zero
        return
    row = target.row()
    value = target.low_value(row)
    claim: Any = [(row, value, False)]
    if rng.random() < 0.2:  # and another inequality that this point satisfies: the row again, and what is above it
        claim = [*claim, (row, value + Fraction(1, 3), True)]
    least, tree = adversary.tree(root.where([]), claim, int(rng.integers(4)))
    context = (str(target.graph), target.ends, claim, tree)
    assert least <= 0, context
    assert not adversary.accepted(adversary.certificate(claim, tree)), context
    seen["float" if target.floats else target.net.grade] += 1
    seen["refused"] += 1
    seen["refused, although the bound is exact"] += least == 0
    if len(claim) == 1 and adversary.accepted(adversary.certificate([(row, value + least, True)], tree)):
        seen["accepted of what is true"] += 1


def test_false_claims_are_refused() -> None:
    seen, rng = Counter[str](), np.random.default_rng(17)
    with ctx.workprec(200):
        for n in range(COUNT):
            attempt(rng, n % 4 == 3, seen)
    assert seen["refused"] > COUNT * 0.7
    assert seen["accepted of what is true"] > COUNT // 3  # else the proofs are none
    assert seen["refused, although the bound is exact"] > COUNT // 20  # else they are loose


if __name__ == "__main__":
    until, total, randomness = time.time() + float(sys.argv[1]), Counter[str](), np.random.default_rng(int(sys.argv[2]))
    with ctx.workprec(200):
        while time.time() < until:
            attempt(randomness, bool(randomness.random() < 0.3), total)
    print(dict(total))

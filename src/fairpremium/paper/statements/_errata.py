"""The errata of the paper that are arithmetic: what is printed and what is right, computed."""

import math
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from fairpremium.paper._theory import printed_pi_inverse, symmetric_matrix
from fairpremium.paper.statements._statement import FAILS, HOLDS
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.pricing import inverse_constants, required_splits

Measured = tuple[str, bool]  # what was computed, and whether the printed statement meets the criterion


def _channel(K: int, keep: float) -> np.ndarray:
    return np.linalg.inv(symmetric_matrix(K, inverse_constants(K, keep)[0]))


def _pi_inverse(p: tuple[float, ...]) -> Measured:
    K, share = len(p), np.array(p)
    T = _channel(K, 0.7)
    Pi = T * share / (T @ share)[:, None]
    printed = printed_pi_inverse(K, 0.7, share)
    gap = float(np.abs(printed @ Pi - np.eye(K)).max())
    right = np.linalg.inv(T) * (T @ share) / share[:, None]
    assert np.allclose(right @ Pi, np.eye(K))
    return f"{gap:.2g}; rows sum to {', '.join(f'{r:.2f}' for r in printed.sum(axis=1))} instead of 1", gap < 1e-9


def _lost_inverse() -> Measured:
    p, T = np.array([0.7, 0.2, 0.1]), _channel(3, 0.7)
    printed = T @ (T @ p)
    return f"gives ({', '.join(f'{v:.3f}' for v in printed)})", bool(np.abs(printed - p).max() < 1e-9)


def _transposed() -> Measured:
    p, T = np.array([0.7, 0.2, 0.1]), _channel(3, 0.7)
    Pi = T * p / (T @ p)[:, None]  # Pi[j, k] = P(D = k given S = j)
    used = np.linalg.inv(T) * (T @ p) / p[:, None]
    gap, right = (float(np.abs(used @ P - np.eye(3)).max()) for P in (Pi.T, Pi))
    return f"the largest entry of the difference is {gap:.2g}; with the transpose {right:.0e}", gap < 1e-9


def _printed_c1() -> Measured:
    cases = [(2, 0.9), (2, 0.7), (4, 0.7)]
    printed = [(pi + K - 2) / (K * pi) - 1 for K, pi in cases]
    right = [inverse_constants(K, pi)[0] for K, pi in cases]
    text = "; ".join(
        f"K = {K}, pi = {pi}: printed {a:.3f}, right {b:.3f}"
        for (K, pi), a, b in zip(cases, printed, right, strict=True)
    )
    return text, bool(np.allclose(printed, right))


def _lost_root() -> Measured:
    n, delta = 10_000, 1e-3
    mass = binom.pmf(np.arange(n + 1), n, 0.5)
    deviation = np.abs(np.arange(n + 1) / n - 0.5)
    limit = 2 * math.sqrt(0.5 / n) + math.log(1 / delta) / (2 * n)
    probability = float(mass[deviation > limit].sum())
    return f"exceeded with probability {probability:.4f}", probability <= delta


def _linear_in_groups() -> Measured:
    epsilon = [(math.e + K - 2) / (math.e - 1) for K in (2, 5, 50)]
    keep = [inverse_constants(K, 0.7)[0] for K in (2, 5, 50)]
    return (
        f"C1 for K = 2, 5, 50: {', '.join(f'{c:.2f}' for c in epsilon)} at epsilon 1; "
        f"{', '.join(f'{c:.2f}' for c in keep)} at keep 0.7"
    ), keep[2] > keep[0]


def _pole() -> Measured:
    good, bad = inverse_constants(3, 0.9)[0], (0.3 + 1) / (3 * 0.3 - 1)
    mean = (3 * good + bad) / 4
    return f"the fourth split has C1 = {bad:.1f}, the average is {mean:.2f}", mean >= 1


def _averages() -> Measured:
    keeps = np.array([0.55, 0.65, 0.75, 0.85])
    C1 = float(np.mean([inverse_constants(2, keep)[0] for keep in keeps]))
    back = C1 / (2 * C1 - 1)
    return f"{keeps.mean():.3f} from pi, {back:.3f} from C1", bool(np.isclose(keeps.mean(), back))


def _splits() -> Measured:
    C1, _ = inverse_constants(2, 0.8)
    asked = required_splits(0.1, groups=2, keep=0.8, bias=0.0, norm_bound=C1 / math.log(2), delta=0.05, constant=1.0)
    return f"{asked:,} splits are asked for", asked <= 4


def _no_anchor() -> Measured:
    portfolio = zhang_liu_shi_2025(5000, rng=0)
    most = float(portfolio.propensity(portfolio.X).to_numpy().max())
    theta = inverse_constants(2, most * 0.9 + (1 - most) * 0.1)[0] - inverse_constants(2, 0.9)[0]
    reached = ", ".join(f"{most * keep + (1 - most) * (1 - keep):.2f}" for keep in (0.9, 0.8, 0.7))
    return (
        f"it is {most:.1f}; the largest P(S = F given x) is {reached} for pi = 0.9, 0.8, 0.7; the bias "
        f"theta of C1 at 0.9 is {theta:.2f}, whatever the number of rows"
    ), most >= 1


def _bounded() -> Measured:
    sd, n = 40.0, 5000
    largest = sd**2 * 2 * math.log(n)  # the usual size of the largest of n squared normal residuals
    return (
        f"none: with the true prices the largest of {n:,} squared losses is near {largest:,.0f} and grows with log n",
        False,
    )


_MEASURES: dict[str, Callable[[], Measured]] = {
    "pi-inverse-2": partial(_pi_inverse, (0.6, 0.4)),
    "pi-inverse-3": partial(_pi_inverse, (0.7, 0.2, 0.1)),
    "pi-inverse-5": partial(_pi_inverse, (0.5, 0.2, 0.15, 0.1, 0.05)),
    "lost-inverse": _lost_inverse,
    "transposed": _transposed,
    "c1": _printed_c1,
    "lost-root": _lost_root,
    "linear-in-groups": _linear_in_groups,
    "pole": _pole,
    "averages": _averages,
    "splits": _splits,
    "no-anchor": _no_anchor,
    "two-events": lambda: ("1 - 3 delta < 1 - 2 delta for every delta", True),
    "bounded-loss": _bounded,
}


def judge_errata() -> list[dict[str, Any]]:
    """Compute every erratum, in the form of a judged statement; none rests on simulation."""
    texts = tomllib.loads(Path(__file__).with_name("errata.toml").read_text(encoding="utf-8"))
    judged = []
    for name, text in texts.items():
        measured, holds = _MEASURES[name]()
        judged.append(
            {
                "id": f"errata/{name}",
                "source": text["place"],
                "statement": text["printed"],
                "criterion": text["criterion"],
                "verdict": HOLDS if holds else FAILS,
                "measured": measured,
                "right": text["right"],
                "cases": [],
            }
        )
    return judged

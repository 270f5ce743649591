"""Statements of Section 6 and of the appendix, and how they are measured on a real portfolio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairpremium.paper._claim import Cases, Row
from fairpremium.paper._measures import Real, percent
from fairpremium.paper._real import EXACT, HALF_SAMPLE, HIGH, LEARNED, LOW, MPTP, NAIVE, OURS, PAPER, RAW
from fairpremium.paper._settings import KEEPS
from fairpremium.paper._verdict import Case

BOTH = (RAW, LEARNED)
STEPS = ((0.9, 0.8), (0.8, 0.7))


def _falls(m: Real) -> Cases:
    for features in BOTH:
        for high, low in STEPS:
            yield Case(f"{features}, {high} to {low}", percent(m.loss(features, keep=low), m.loss(features, keep=high)))


def _steeper(m: Real) -> Cases:
    for features in BOTH:
        l9, l8, l7 = (m.loss(features, keep=keep) for keep in KEEPS)
        yield Case(features, percent(l7, l8) - percent(l8, l9))


def _faster(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.epochs_to_converge(RAW, keep) - m.epochs_to_converge(LEARNED, keep))


def _sooner(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.epochs_to_reach(RAW, keep) - m.epochs_to_reach(LEARNED, keep))


def _robust(m: Real) -> Cases:
    def rise(features: str, keep: float) -> Any:
        return percent(m.loss(features, keep=keep), m.loss(features, MPTP))

    for keep in KEEPS:
        yield Case(f"keep {keep}", rise(RAW, keep) - rise(LEARNED, keep))


def _half(assumed: str) -> Callable[[Real], Cases]:
    def cases(m: Real) -> Cases:
        for features in BOTH:
            half, full = m.loss(features, assumed=assumed, sample=HALF_SAMPLE), m.loss(features, assumed=assumed)
            yield Case(features, percent(half, full))

    return cases


def _tilt(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed=LOW), m.loss(features, keep=keep, assumed=HIGH))


def _under(m: Real) -> Cases:
    for features in BOTH:
        for keep in KEEPS:
            yield Case(f"{features}, keep {keep}", _tilt(m, features, keep))


def _grows(m: Real) -> Cases:
    for features in BOTH:
        for high, low in STEPS:
            yield Case(f"{features}, {low} against {high}", _tilt(m, features, low) - _tilt(m, features, high))


def _lower_error(m: Real) -> Cases:
    for assumed in (LOW, HIGH):
        for keep in KEEPS:
            raw, learned = (m.loss(features, keep=keep, assumed=assumed) for features in BOTH)
            yield Case(f"keep {keep} {assumed}", percent(raw, learned))


def _closer(m: Real) -> Cases:
    def gap(features: str, assumed: str, to: float) -> Any:
        return percent(m.loss(features, keep=0.7, assumed=assumed), m.loss(features, keep=to, assumed=assumed))

    for assumed in (LOW, HIGH):
        for to in (0.9, 0.8):
            yield Case(f"0.7 against {to}, {assumed}", gap(RAW, assumed, to) - gap(LEARNED, assumed, to))


def _low(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", keep - m.estimated_keep(keep))


def _low_half(m: Real) -> Cases:
    yield Case("half sample, keep 0.9", 0.9 - m.estimated_keep(0.9, sample=HALF_SAMPLE))
    yield Case(
        "full and half agree within 0.02", m.estimated_keep(0.9) - m.estimated_keep(0.9, sample=HALF_SAMPLE), 0.02
    )


def _harm(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed="n1 = 4"), m.loss(features, keep=keep))


def _severe(m: Real) -> Cases:
    for high, low in STEPS:
        yield Case(f"X, {low} against {high}", _harm(m, RAW, low) - _harm(m, RAW, high))


def _mitigates(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", _harm(m, RAW, keep) - _harm(m, LEARNED, keep))


def _gain(m: Real, features: str, keep: float) -> Any:
    two, four = (m.loss(features, keep=keep, assumed=assumed) for assumed in ("n1 = 2", "n1 = 4"))
    return percent(two, four)


def _parts_better(m: Real) -> Cases:
    for keep in (0.9, 0.8):
        yield Case(f"X, keep {keep}", _gain(m, RAW, keep))


def _parts_worse(m: Real) -> Cases:
    yield Case("X, keep 0.7", -_gain(m, RAW, 0.7))


def _parts_less(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", np.abs(_gain(m, RAW, keep)) - np.abs(_gain(m, LEARNED, keep)))


def _against(method: str, other: str) -> Callable[[Real], Cases]:
    def cases(m: Real) -> Cases:
        for features in BOTH:
            for keep in KEEPS:
                for assumed in (EXACT, LOW, HIGH, "n1 = 4"):
                    name = f"{features}, keep {keep}" + ("" if assumed == EXACT else f", {assumed}")
                    losses = [m.loss(features, which, keep, assumed, like=method) for which in (other, method)]
                    yield Case(name, percent(*losses))

    return cases


def _usable(m: Real) -> Cases:
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.identified(keep) - 0.5)


ABOVE = "in per cent, 100 log(a/b)"
REAL = [
    Row(
        "falls",
        "6.1",
        "A lower keep leads to a higher test loss.",
        f"test loss at the lower keep above that at the higher, {ABOVE}",
        _falls,
    ),
    Row(
        "steeper",
        "5.2",
        "The rise from 0.8 to 0.7 is larger than from 0.9 to 0.8 (stated for the synthetic data).",
        "second rise minus first, in per cent",
        _steeper,
    ),
    Row(
        "faster",
        "6.1",
        "X~ converges faster than X: each to its own last loss.",
        "epochs until the test loss stays within 5 % of its last value, X minus X~",
        _faster,
    ),
    Row(
        "sooner",
        "6.1",
        "X~ reaches the test loss that X ends with sooner than X does (another reading of the same sentence).",
        "epochs until the test loss is at most 5 % above the last one of X, X minus X~; never counts as the last epoch",
        _sooner,
    ),
    Row(
        "robust",
        "6.1",
        "X~ is more resilient to noise than X.",
        "rise of the test loss above that with the true attribute, in per cent, X minus X~",
        _robust,
    ),
    Row(
        "half-worse",
        "6.1",
        "Half the sample is worse (keep 0.9, known).",
        f"test loss with half the sample above that with all, {ABOVE}",
        _half(EXACT),
    ),
    Row(
        "under-worse",
        "6.2",
        "Underestimating keep by 10 % is worse than overestimating it by 10 %.",
        f"test loss at keep - 10 % above that at keep + 10 %, {ABOVE}",
        _under,
    ),
    Row(
        "asymmetry-grows",
        "6.2",
        "This asymmetry becomes more pronounced as keep approaches 1/K.",
        "the number above at the lower keep minus that at the higher, in per cent",
        _grows,
    ),
    Row(
        "lower-error",
        "6.2",
        "X~ reduces the test error when keep is wrong by 10 %.",
        f"test loss with X above that with X~, {ABOVE}",
        _lower_error,
    ),
    Row(
        "closer",
        "6.2",
        "With X~ the test loss at 0.7 is closer to that at 0.9 and 0.8 than with X, when keep is wrong.",
        "rise of the test loss from the higher keep to 0.7, in per cent, X minus X~",
        _closer,
    ),
    Row(
        "estimate-low",
        "6.2",
        "In all scenarios the estimated keep is below the true one.",
        "keep minus its anchor estimate, n1 = 4",
        _low,
    ),
    Row(
        "estimate-half",
        "6.2",
        "The estimates from the full and the half sample are similar, and both too low (keep 0.9).",
        "keep minus its estimate from the half sample; difference of the estimates, margin 0.02",
        _low_half,
    ),
    Row(
        "severe",
        "6.2",
        "The harm of the estimated keep is more severe when keep is closer to 1/K (X).",
        "rise of the test loss from known to estimated keep, in per cent, lower keep minus higher",
        _severe,
    ),
    Row(
        "mitigates",
        "6.2",
        "X~ mitigates the harm of the estimated keep.",
        "the same rise, X minus X~, in per cent",
        _mitigates,
    ),
    Row(
        "half-worse-estimated",
        "6.2",
        "Half the sample is worse (keep 0.9, estimated with n1 = 4).",
        f"test loss with half the sample above that with all, {ABOVE}",
        _half("n1 = 4"),
    ),
    Row(
        "parts-better",
        "6.2",
        "n1 = 4 is better than n1 = 2 at keep 0.9 and 0.8 (X).",
        f"test loss with n1 = 2 above that with n1 = 4, {ABOVE}",
        _parts_better,
    ),
    Row(
        "parts-worse",
        "6.2",
        "n1 = 4 is worse than n1 = 2 at keep 0.7 (X).",
        f"test loss with n1 = 4 above that with n1 = 2, {ABOVE}",
        _parts_worse,
    ),
    Row(
        "parts-less",
        "6.2",
        "The choice of n1 matters less with X~.",
        "size of the effect of n1, X minus X~, in per cent",
        _parts_less,
    ),
    Row(
        "usable",
        "ours",
        "The library would use the anchor estimate (n1 = 4) in most runs.",
        "share of seeds in which `AnchorNoise` says that keep is identified, minus one half",
        _usable,
    ),
    Row(
        "ours-better",
        "ours",
        "Ours (auto) has a lower test loss than the paper's estimator at the same assumed keep.",
        f"test loss of the paper's estimator above ours, {ABOVE}",
        _against(OURS, PAPER),
    ),
    Row(
        "ours-beats-naive",
        "ours",
        "Ours (auto) has a lower test loss than the naive fit.",
        f"test loss of the naive fit above ours, {ABOVE}",
        _against(OURS, NAIVE),
    ),
    Row(
        "paper-beats-naive",
        "ours",
        "The paper's estimator has a lower test loss than the naive fit.",
        f"test loss of the naive fit above the paper's, {ABOVE}",
        _against(PAPER, NAIVE),
    ),
]

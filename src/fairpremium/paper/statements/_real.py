"""Statements of Section 6 and of the appendix, and how they are measured on a real portfolio."""

from functools import partial
from itertools import product
from typing import Any

import numpy as np

from fairpremium.paper._real import EXACT, HALF_SAMPLE, HIGH, LEARNED, LOW, RAW
from fairpremium.paper._setup import KEEPS, MPTP, NAIVE, OURS, PAPER
from fairpremium.paper.statements._measures import Real, percent
from fairpremium.paper.statements._statement import Case, Cases, Statement, state

BOTH = (RAW, LEARNED)
STEPS = ((0.9, 0.8), (0.8, 0.7))
ABOVE = "in per cent, 100 log(a/b)"
REAL: list[Statement] = []
_state = partial(state, REAL)


@_state("6.1", f"test loss at the lower keep above that at the higher, {ABOVE}")
def falls(m: Real) -> Cases:
    """A lower keep leads to a higher test loss."""
    for features, (high, low) in product(BOTH, STEPS):
        yield Case(f"{features}, {high} to {low}", percent(m.loss(features, keep=low), m.loss(features, keep=high)))


@_state("5.2", "second rise minus first, in per cent")
def steeper(m: Real) -> Cases:
    """The rise from 0.8 to 0.7 is larger than from 0.9 to 0.8 (stated for the synthetic data)."""
    for features in BOTH:
        l9, l8, l7 = (m.loss(features, keep=keep) for keep in KEEPS)
        yield Case(features, percent(l7, l8) - percent(l8, l9))


@_state("6.1", "epochs until the test loss stays within 5 % of its last value, X minus X~")
def faster(m: Real) -> Cases:
    """X~ converges faster than X: each to its own last loss."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.epochs_to_converge(RAW, keep) - m.epochs_to_converge(LEARNED, keep))


@_state(
    "6.1",
    "epochs until the test loss is at most 5 % above the last one of X, X minus X~; never counts as the last epoch",
)
def sooner(m: Real) -> Cases:
    """X~ reaches the test loss that X ends with sooner than X does (another reading of the same sentence)."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", m.epochs_to_reach(RAW, keep) - m.epochs_to_reach(LEARNED, keep))


@_state("6.1", "rise of the test loss above that with the true attribute, in per cent, X minus X~")
def robust(m: Real) -> Cases:
    """X~ is more resilient to noise than X."""
    for keep in KEEPS:
        raw, learned = (percent(m.loss(features, keep=keep), m.loss(features, MPTP)) for features in BOTH)
        yield Case(f"keep {keep}", raw - learned)


def _half_against_full(m: Real, assumed: str) -> Cases:
    for features in BOTH:
        half, full = m.loss(features, assumed=assumed, sample=HALF_SAMPLE), m.loss(features, assumed=assumed)
        yield Case(features, percent(half, full))


@_state("6.1", f"test loss with half the sample above that with all, {ABOVE}")
def half_worse(m: Real) -> Cases:
    """Half the sample is worse (keep 0.9, known)."""
    return _half_against_full(m, EXACT)


def _asymmetry(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed=LOW), m.loss(features, keep=keep, assumed=HIGH))


@_state("6.2", f"test loss at keep - 10 % above that at keep + 10 %, {ABOVE}")
def under_worse(m: Real) -> Cases:
    """Underestimating keep by 10 % is worse than overestimating it by 10 %."""
    for features, keep in product(BOTH, KEEPS):
        yield Case(f"{features}, keep {keep}", _asymmetry(m, features, keep))


@_state("6.2", "the number above at the lower keep minus that at the higher, in per cent")
def asymmetry_grows(m: Real) -> Cases:
    """The asymmetry becomes more pronounced as keep approaches 1/K."""
    for features, (high, low) in product(BOTH, STEPS):
        change = _asymmetry(m, features, low) - _asymmetry(m, features, high)
        yield Case(f"{features}, {low} against {high}", change)


@_state("6.2", f"test loss with X above that with X~, {ABOVE}")
def lower_error(m: Real) -> Cases:
    """X~ reduces the test error when keep is wrong by 10 %."""
    for assumed, keep in product((LOW, HIGH), KEEPS):
        raw, learned = (m.loss(features, keep=keep, assumed=assumed) for features in BOTH)
        yield Case(f"keep {keep} {assumed}", percent(raw, learned))


@_state("6.2", "rise of the test loss from the higher keep to 0.7, in per cent, X minus X~")
def closer(m: Real) -> Cases:
    """With X~ the test loss at 0.7 is closer to that at 0.9 and 0.8 than with X, when keep is wrong."""
    for assumed, to in product((LOW, HIGH), (0.9, 0.8)):
        raw, learned = (
            percent(m.loss(features, keep=0.7, assumed=assumed), m.loss(features, keep=to, assumed=assumed))
            for features in BOTH
        )
        yield Case(f"0.7 against {to}, {assumed}", raw - learned)


@_state("6.2", "keep minus its anchor estimate, n1 = 4")
def estimate_low(m: Real) -> Cases:
    """In all scenarios the estimated keep is below the true one."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", keep - m.estimated_keep(keep))


@_state("6.2", "keep minus its estimate from the half sample; difference of the estimates, margin 0.02")
def estimate_half(m: Real) -> Cases:
    """The estimates from the full and the half sample are similar, and both too low (keep 0.9)."""
    half = m.estimated_keep(0.9, sample=HALF_SAMPLE)
    yield Case("half sample, keep 0.9", 0.9 - half)
    yield Case("full and half agree within 0.02", m.estimated_keep(0.9) - half, 0.02)


def _harm(m: Real, features: str, keep: float) -> Any:
    return percent(m.loss(features, keep=keep, assumed="n1 = 4"), m.loss(features, keep=keep))


@_state("6.2", "rise of the test loss from known to estimated keep, in per cent, lower keep minus higher")
def severe(m: Real) -> Cases:
    """The harm of the estimated keep is more severe when keep is closer to 1/K (X)."""
    for high, low in STEPS:
        yield Case(f"X, {low} against {high}", _harm(m, RAW, low) - _harm(m, RAW, high))


@_state("6.2", "the same rise, X minus X~, in per cent")
def mitigates(m: Real) -> Cases:
    """X~ mitigates the harm of the estimated keep."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", _harm(m, RAW, keep) - _harm(m, LEARNED, keep))


@_state("6.2", f"test loss with half the sample above that with all, {ABOVE}")
def half_worse_estimated(m: Real) -> Cases:
    """Half the sample is worse (keep 0.9, estimated with n1 = 4)."""
    return _half_against_full(m, "n1 = 4")


def _gain(m: Real, features: str, keep: float) -> Any:
    two, four = (m.loss(features, keep=keep, assumed=assumed) for assumed in ("n1 = 2", "n1 = 4"))
    return percent(two, four)


@_state("6.2", f"test loss with n1 = 2 above that with n1 = 4, {ABOVE}")
def parts_better(m: Real) -> Cases:
    """n1 = 4 is better than n1 = 2 at keep 0.9 and 0.8 (X)."""
    for keep in (0.9, 0.8):
        yield Case(f"X, keep {keep}", _gain(m, RAW, keep))


@_state("6.2", f"test loss with n1 = 4 above that with n1 = 2, {ABOVE}")
def parts_worse(m: Real) -> Cases:
    """n1 = 4 is worse than n1 = 2 at keep 0.7 (X)."""
    yield Case("X, keep 0.7", -_gain(m, RAW, 0.7))


@_state("6.2", "size of the effect of n1, X minus X~, in per cent")
def parts_less(m: Real) -> Cases:
    """The choice of n1 matters less with X~."""
    for keep in KEEPS:
        yield Case(f"keep {keep}", np.abs(_gain(m, RAW, keep)) - np.abs(_gain(m, LEARNED, keep)))


def _better(m: Real, method: str, other: str) -> Cases:
    for features, keep, assumed in product(BOTH, KEEPS, (EXACT, LOW, HIGH, "n1 = 4")):
        name = f"{features}, keep {keep}" + ("" if assumed == EXACT else f", {assumed}")
        losses = [m.loss(features, which, keep, assumed) for which in (other, method)]
        yield Case(name, percent(*losses))


@_state("ours", f"test loss of the paper's estimator above ours, {ABOVE}")
def ours_better(m: Real) -> Cases:
    """Ours (auto) has a lower test loss than the paper's estimator at the same assumed keep."""
    return _better(m, OURS, PAPER)


@_state("ours", f"test loss of the naive fit above ours, {ABOVE}")
def ours_beats_naive(m: Real) -> Cases:
    """Ours (auto) has a lower test loss than the naive fit."""
    return _better(m, OURS, NAIVE)


@_state("ours", f"test loss of the naive fit above the paper's, {ABOVE}")
def paper_beats_naive(m: Real) -> Cases:
    """The paper's estimator has a lower test loss than the naive fit."""
    return _better(m, PAPER, NAIVE)

"""Lemma 4.2 and Theorems 4.3 and 4.6 in simulation, in populations small enough to know everything about them.

A population has five risk classes x, outcomes y of 0 and 1, and K groups; class 0 is an anchor of group 0. A price f_k
is one of 21 constants on classes 0 and 1 and another on classes 2 to 4: the best prices, the fitted ones and the
Rademacher complexity of the weighted losses then fall apart into small maxima that are computed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.paper._setup import SEED, RunSize
from fairpremium.pricing import excess_risk_bound, inverse_constants, required_splits

GROUPS = (2, 3, 5)
THEORY_KEEPS = (0.9, 0.7)
ROWS = (2000, 8000, 32_000, 128_000)
DELTA = 0.05
N_SPLITS = 4
CLASSES = 5
HALF = np.array([0, 0, 1, 1, 1])  # which of its two constants a price takes in each class
PRICES = np.linspace(0, 1, 21)
LOSS = (PRICES[:, None] - np.array([0.0, 1.0])) ** 2  # (price, y), at most M = 1
COLUMNS = ["quantity", "groups", "keep", "n", "value"]


@dataclass(frozen=True)
class Population:
    """P(x, y, d) as an array of shape (classes, 2, K), and the channel of its reports."""

    joint: Array
    keep: float

    @classmethod
    def draw(cls, K: int, keep: float, rng: np.random.Generator) -> Population:
        """Draw a population; at least 30 % of the rows are at the anchor, and no group is rarer than 1 %."""
        propensity = 0.1 / K + 0.9 * rng.dirichlet(np.ones(K), size=CLASSES)
        propensity[0] = np.eye(K)[0]
        x = np.array([0.3, 0.1, 0.1, 0.1, 0.1]) + 0.3 * rng.dirichlet(np.ones(CLASSES))
        mean = rng.uniform(0.05, 0.95, size=(CLASSES, K))
        joint = x[:, None, None] * propensity[:, None, :] * np.stack([1 - mean, mean], axis=1)
        return cls(joint, keep)

    @property
    def K(self) -> int:  # noqa: N802
        """Number of groups."""
        return int(self.joint.shape[2])

    @property
    def matrix(self) -> Array:
        """T[s, d]."""
        return symmetric_matrix(self.K, self.keep)

    @property
    def inverse(self) -> Array:
        """T^-1[k, s]."""
        return symmetric_matrix(self.K, inverse_constants(self.K, self.keep)[0])

    @property
    def observed(self) -> Array:
        """P(x, y, s)."""
        return np.asarray(np.einsum("sd,xyd->xys", self.matrix, self.joint))


def symmetric_matrix(K: int, diagonal: float) -> Array:
    """Return T of randomized response with keep on the diagonal, or T^-1 with C1 there; rows sum to one."""
    return np.where(np.eye(K, dtype=bool), diagonal, (1 - diagonal) / (K - 1))


def run_theory(size: RunSize, seed: int) -> pd.DataFrame:
    """Check lemma and theorems in populations drawn anew for each seed."""
    found = [row for K in GROUPS for row in check_lemma(K, 0.7, size.lemma_rows, seed)]
    for K, keep, n in product(GROUPS, THEORY_KEEPS, ROWS):
        population = Population.draw(K, keep, np.random.default_rng([SEED, 4, K, seed]))  # the same for every n
        rng = np.random.default_rng([SEED, 5, K, round(100 * keep), n, seed])
        measured = check_bounds(population, n, size.theorem_runs, rng)
        found.extend((quantity, K, keep, n, value) for quantity, value in measured.items())
    return pd.DataFrame(found, columns=COLUMNS)


# --- Lemma 4.2 ---


def check_lemma(K: int, keep: float, n: int, seed: int) -> Iterator[tuple[str, int, float, int, float]]:
    """Yield the relative difference of the risk of Lemma 4.2 from that with the true groups, on the same draws.

    Arbitrary prices f_k(x) of the five classes, squared loss; once with the corrected Pi^-1, once as printed.
    """
    rng = np.random.default_rng([SEED, 3, K, seed])
    population = Population.draw(K, keep, rng)
    prices = rng.normal(0.5, 0.5, size=(K, CLASSES))
    loss = (prices[:, :, None] - np.array([0.0, 1.0])) ** 2  # (k, x, y)
    both = np.einsum("sd,xyd->xyds", population.matrix, population.joint)
    counts = rng.multinomial(n, both.ravel() / both.sum()).reshape(both.shape) / n
    truth = np.einsum("xyds,dxy->", counts, loss)
    reported = counts.sum(axis=2)  # (x, y, s)
    share = reported.sum(axis=(0, 1))
    given_report = np.einsum("xys,kxy->ks", reported, loss) / share
    p = population.joint.sum(axis=(0, 1))
    shares = population.inverse @ share  # sum_l T^-1[k, l] P(S = l)
    corrected = population.inverse * share / shares[:, None]
    for name, pi_inverse in (("corrected", corrected), ("printed", printed_pi_inverse(K, keep, p))):
        risk = (pi_inverse * given_report * shares[:, None]).sum()
        yield f"lemma, {name}", K, keep, n, float(risk / truth - 1)


def printed_pi_inverse(K: int, keep: float, p: Array) -> Array:
    """Return Pi^-1 as Lemma 4.2 prints it."""
    other = (1 - keep) / (K - 1)
    C1, C2 = inverse_constants(K, keep)
    out = np.repeat((C2 * (other * p + keep * (1 - p)) / p)[:, None], K, axis=1)
    np.fill_diagonal(out, C1 * (keep * p + other * (1 - p)) / p)
    return out


# --- Theorems 4.3 and 4.6 ---


def check_bounds(population: Population, n: int, runs: int, rng: np.random.Generator) -> dict[str, float]:
    """Compare the excess risk of the fitted prices with both bounds.

    For "4.3" (known keep) and "4.6" (keep from Procedure 4.5 with four splits): the bound, the 95 % quantile of the
    excess risk, the share of samples within the bound; further the bias of C1, the error of C1 that is not exceeded
    with probability 1 - delta (eps~), and the number of splits that the theorem asks for (c = 1).
    """
    K, keep = population.K, population.keep
    C1, _ = inverse_constants(K, keep)
    splits = rng.multinomial(n // N_SPLITS, population.observed.ravel(), size=(runs, N_SPLITS))
    splits = splits.reshape(runs, N_SPLITS, *population.observed.shape)
    counts = splits.sum(axis=1)
    estimated = estimate_c1(splits, K)
    errors = np.abs(estimated - C1)
    eps = float(np.quantile(errors, 1 - DELTA))
    bias = float(abs(estimated.mean() - C1))
    known = excess_risk(population, counts, np.full(runs, C1))
    unknown = excess_risk(population, counts, estimated)
    how: dict[str, Any] = {"groups": K, "keep": keep, "loss_bound": 1.0, "delta": DELTA}
    bound = excess_risk_bound(n, rademacher=rademacher(counts, n, (C1,), rng), **how).total
    enlarged = rademacher(counts, n, (1.0, C1 + eps), rng)
    wide = excess_risk_bound(n, rademacher=enlarged, c1_error=eps, **how).total
    norm = (C1 + bias) / np.log(2)  # the smallest M_g that Assumption A allows
    asked = required_splits(
        max(eps, 1.01 * bias), groups=K, keep=keep, bias=bias, norm_bound=norm, delta=DELTA, constant=1.0
    )
    return {
        "4.3, bound": bound,
        "4.3, excess": float(np.quantile(known, 0.95)),
        "4.3, within": float((known <= bound).mean()),
        "4.6, bound": wide,
        "4.6, excess": float(np.quantile(unknown, 0.95)),
        "4.6, within": float((unknown <= wide).mean()),
        "4.6, c1 error": eps,
        "4.6, c1 bias": bias,
        "4.6, parts asked": float(asked),
    }


def estimate_c1(splits: npt.NDArray[np.int64], K: int) -> Array:
    """Estimate C1 by Procedure 4.5 with the relative frequencies of the classes as classifier, j* = 0.

    `splits` are counts of (x, y, s), shape (runs, splits, classes, 2, K). The result has their average for each run. A
    relative frequency is at most one, so that C1 >= 1 without clipping; with an anchor and these sizes none comes near
    1/K.
    """
    by_class = splits.sum(axis=3).astype(np.float64)  # (runs, splits, classes, s)
    total = by_class.sum(axis=3)
    share = np.divide(by_class[..., 0], total, out=np.zeros_like(total), where=total > 0)
    largest = share.max(axis=2)
    return np.asarray(((largest + K - 2) / (K * largest - 1)).mean(axis=1))


def excess_risk(population: Population, counts: npt.NDArray[np.int64], C1: Array) -> Array:
    """Return R(f_hat) - R(f*) of every sample, with the C1 that it was told."""
    K = population.K
    by_half = np.stack([counts[:, h == HALF].sum(axis=1) for h in (0, 1)], axis=1)  # (runs, half, y, s)
    inverse = np.stack([symmetric_matrix(K, c) for c in C1])  # (runs, k, s)
    mass = np.einsum("rks,rhys->rkhy", inverse, by_half)
    chosen = (mass @ LOSS.T).argmin(axis=3)  # (runs, k, half)
    true = np.stack([population.joint[h == HALF].sum(axis=0) for h in (0, 1)])  # (half, y, k)
    risk = np.einsum("hyk,py->khp", true, LOSS)
    k, h = np.indices(risk.shape[:2])
    return np.asarray((risk[k, h, chosen] - risk.min(axis=2)).sum(axis=(1, 2)))


def rademacher(counts: npt.NDArray[np.int64], n: int, ends: tuple[float, ...], rng: np.random.Generator) -> float:
    """Return the Rademacher complexity of the weighted losses, with T^-1(c) for c between `ends`.

    The supremum over f falls apart into one over each constant of each group. For a fixed f the sum is linear in c, so
    that the supremum over c is at one of the ends.
    """
    K = counts.shape[-1]
    signed = 2.0 * rng.binomial(counts, 0.5) - counts  # the sum of the signs of the rows of a cell
    by_half = np.stack([signed[:, h == HALF].sum(axis=1) for h in (0, 1)], axis=1)
    masses = [np.einsum("ks,rhys->rkhy", symmetric_matrix(K, c), by_half) for c in ends]
    sups = [(mass @ LOSS.T).max(axis=3).sum(axis=(1, 2)) for mass in masses]
    return float(np.max(sups, axis=0).mean() / n)

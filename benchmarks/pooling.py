"""Empirical Bayes where its derivation says little: many groups, many columns, unusual channels, nothing to find.

    python benchmarks/pooling.py [--seeds 8] [--cases "six groups"] [--json benchmarks/results/pooling.json]

Simulated claim counts (5,000 rows, about one claim per row, keep 0.8) with differences between groups of the size that
portfolios have: standard deviation 0.2 of the levels, 0.05 of each slope, on the log scale. The figure is the root mean
square relative error of mu(x, d) over the portfolio in per cent, mean over the seeds with its standard error: of the
unaware price, of taking S for D, of the inverse correction without pooling (with a ridge of a thousandth of a row), of
the same with empirical Bayes, and of auto. `coverage` is the share of rows whose 95 % interval of h*(x) by auto covers
the truth, with a standard error over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from fairpremium import Channel, DiscriminationFreePricer, LinearModel, RandomizedResponse, ValidationNoise, __version__

METHODS = ("unaware", "S as D", "unpooled", "empirical Bayes", "auto")


@dataclass(frozen=True)
class Case:
    """What differs from the plain case."""

    groups: int = 2
    columns: int = 4
    rows: int = 5000
    level: float = 0.2  # standard deviation of the groups' levels
    slope: float = 0.05  # and of their slopes
    channel: str = "randomized response"  # "three reports", "estimated"
    persons: int = 1  # rows of each person, who sent one report
    variance: str = "poisson"  # "by group": overdispersed in the first group


CASES = {
    "plain": Case(),
    "nothing differs": Case(level=0.0, slope=0.0),
    "large differences": Case(level=0.6, slope=0.2),
    "six groups": Case(groups=6, rows=20_000),
    "40 columns": Case(columns=40),
    "three reports for two groups": Case(channel="three reports"),
    "channel estimated from 1000 people": Case(channel="estimated"),
    "four rows of each person": Case(persons=4),
    "overdispersed in one group": Case(variance="by group"),
}


def one(case: Case, seed: int) -> tuple[list[float], float]:
    """Return the errors of the methods, and the share of rows that intervals cover."""
    rng = np.random.default_rng([seed, 11])
    K, q, n = case.groups, case.columns, case.rows
    groups = [f"g{k}" for k in range(K)]
    X = np.repeat(rng.normal(size=(n // case.persons, q)), case.persons, axis=0)
    logits = np.log(np.linspace(1, 0.4, K)) + X[:, :2] @ rng.normal(0, 0.4, (2, K))
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    uniform = np.repeat(rng.random(n // case.persons), case.persons)
    D = np.minimum((uniform[:, None] > np.cumsum(P, axis=1)).sum(axis=1), K - 1)
    common = np.r_[0.0, rng.normal(0, 0.3 / np.sqrt(q), q)]
    own = np.vstack([rng.normal(0, case.level, K), rng.normal(0, case.slope, (q, K))])
    mu = np.exp(np.column_stack([np.ones(n), X]) @ (common[:, None] + own - own.mean(axis=1, keepdims=True)))
    mixing = rng.gamma(1.0, 1.0, n) if case.variance == "by group" else np.ones(n)
    y = rng.poisson(mu[np.arange(n), D] * np.where(D == 0, mixing, 1.0)).astype(float)
    truth = RandomizedResponse(groups, keep=0.8)
    if case.channel == "three reports":
        truth = Channel([[0.7, 0.1], [0.1, 0.7], [0.2, 0.2]], groups=groups, reports=["g0", "g1", "neither"])
    label, first = np.array(groups, dtype=object), np.arange(0, n, case.persons)
    S = np.repeat(truth.privatize(label[D[first]], rng=rng), case.persons)
    channel: object = truth
    if case.channel == "estimated":
        asked = label[rng.integers(0, K, 1000)]
        channel = ValidationNoise(asked, truth.privatize(asked, rng=rng))
    cluster = np.arange(n) // case.persons if case.persons > 1 else None

    def fitted(**settings: object) -> DiscriminationFreePricer:
        pricer = DiscriminationFreePricer(family="poisson", random_state=seed, **{"channel": channel, **settings})
        return pricer.fit(X, y, sensitive=S, cluster=cluster)

    def error(prices: np.ndarray) -> float:
        return 100 * float(np.sqrt(np.mean((prices / mu - 1)[np.arange(n), D] ** 2)))

    auto = fitted()
    errors = {"unaware": error(np.repeat(auto.predict_unaware(X)[:, None], K, axis=1))}
    unpooled = {"pooling": 0, "model": LinearModel(ridge=1e-3), "intervals": False}
    if case.channel != "three reports":
        known = np.isin(S, groups)
        plain = DiscriminationFreePricer(family="poisson", **unpooled).fit(X[known], y[known], sensitive=S[known])
        errors["S as D"] = error(plain.predict_best_estimate(X)[groups].to_numpy())
    errors["unpooled"] = error(fitted(correction="inverse", **unpooled).predict_best_estimate(X).to_numpy())
    errors["empirical Bayes"] = error(fitted(correction="inverse", intervals=False).predict_best_estimate(X).to_numpy())
    errors["auto"] = error(auto.predict_best_estimate(X).to_numpy())
    low, high = auto.predict_interval(X)
    h = mu @ np.bincount(D, minlength=K) / n  # shares of these rows: the reference that a large portfolio has
    return [errors.get(method, np.nan) for method in METHODS], float(np.mean((low <= h) & (h <= high)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "pooling.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    results = []
    print(f"{'':38s}" + "".join(f"{method:>18s}" for method in METHODS) + "  coverage")
    for name in args.cases.split(","):
        found = [one(CASES[name], seed) for seed in range(args.seeds)]
        errors, covered = np.array([row for row, _ in found]), np.array([share for _, share in found])
        mean, spread = errors.mean(axis=0), errors.std(axis=0, ddof=1) / np.sqrt(args.seeds)
        inside = covered.std(ddof=1) / np.sqrt(args.seeds)
        cells = "".join(f"{m:11.2f} ({s:.2f})" for m, s in zip(mean, spread, strict=True))
        print(f"{name:38s}{cells}  {covered.mean():.3f} ({inside:.3f})", flush=True)
        results.append(
            {
                "case": name,
                "error": dict(zip(METHODS, mean.tolist(), strict=True)),
                "standard_error": dict(zip(METHODS, spread.tolist(), strict=True)),
                "coverage": [float(covered.mean()), float(inside)],
            }
        )
        about = {"fairpremium": __version__, "seeds": args.seeds, "results": results}
        args.json.write_text(json.dumps(about, indent=1).replace("NaN", "null") + "\n")


if __name__ == "__main__":
    main()

"""How close the premiums come to the truth, against insurance-fairness-ldp and, where installed, insurance-fairness.

    python benchmarks/accuracy.py [--seeds 5] [--json benchmarks/results/accuracy.json]

Simulated portfolios, so that h*(x) is known. The figure is the root mean square error of the premium over 20,000 fresh
policies, in per cent of the mean true premium; mean over the seeds. All contestants get the same rows, the same
reports, the same features and the true noise; packages that take no text columns get them one-hot encoded.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
from sklearn.linear_model import PoissonRegressor, Ridge

import fairpremium
from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025

try:
    from insurance_fairness import PrivatizedFairPricer
except ImportError:
    PrivatizedFairPricer = None

FRESH = 20_000
CASES = {
    "normal, 2 groups 0.45/0.55, keep 0.8, 5,000 rows": (
        lambda n, rng: zhang_liu_shi_2025(n=n, rng=rng, age_band=True),
        5_000,
        {"keep": 0.8},
    ),
    "Poisson, 2 groups 0.8/0.2, epsilon 1, 100,000 rows": (
        lambda n, rng: unbalanced_poisson(n, (0.8, 0.2), rng=rng),
        100_000,
        {"epsilon": 1.0},
    ),
    "Poisson, 3 groups 0.7/0.2/0.1, keep 0.75, 100,000 rows": (
        lambda n, rng: unbalanced_poisson(n, (0.7, 0.2, 0.1), rng=rng),
        100_000,
        {"keep": 0.75},
    ),
}


def contestants(portfolio, channel: RandomizedResponse) -> dict[str, Callable]:
    """Functions from (X, y, w, D, S, fresh X) to premiums."""
    family, poisson = portfolio.family, portfolio.family == "poisson"

    def ours(channel, sensitive="S", price="predict", **settings):
        def run(X, y, w, D, S, fresh):
            pricer = DiscriminationFreePricer(family=family, channel=channel, random_state=0, **settings)
            pricer.fit(X, y, sensitive=D if sensitive == "D" else S, sample_weight=w)
            return getattr(pricer, price)(fresh)

        return run

    def ldp(estimator):
        def run(X, y, w, D, S, fresh):
            mechanism = KaryRandomisedResponse(epsilon=channel.epsilon, categories=list(channel.groups))
            model = LDPDiscriminationFreePrice(base_estimator=estimator, mechanism=mechanism)
            return model.fit(numbers(X), S, y, exposure=w).predict(numbers(fresh))

        return run

    def privatized(X, y, w, D, S, fresh):
        model = PrivatizedFairPricer(
            pi=channel.keep,
            n_groups=len(channel.groups),
            reference_distribution="empirical",
            base_estimator="poisson_glm" if poisson else "ridge",
        )
        codes = np.array([channel.groups.index(s) for s in S])
        return model.fit(numbers(X), y, codes, exposure=w).predict(numbers(fresh))

    found = {
        "fairpremium, the true attribute known": ours(None, "D"),
        "fairpremium": ours(channel),
        "fairpremium, the paper's estimator (inverse, pooling=0)": ours(channel, correction="inverse", pooling=0),
        "no correction: the report taken for the truth": ours(None, pooling=0),
        "no correction: the unaware price": ours(channel, price="predict_unaware"),
        "insurance-fairness-ldp 0.1.1, Ridge": ldp(Ridge()),
    }
    if poisson:
        found["insurance-fairness-ldp 0.1.1, PoissonRegressor"] = ldp(PoissonRegressor(alpha=0))
    if PrivatizedFairPricer is not None:
        found[f"insurance-fairness {importlib.metadata.version('insurance-fairness')}"] = privatized
    return found


def numbers(X: pd.DataFrame) -> np.ndarray:
    return pd.get_dummies(X, drop_first=True).to_numpy(dtype=float)


def error(premium, truth) -> float:
    """Root mean square error in per cent of the mean; NaN when a premium is not a number."""
    return float(100 * np.sqrt(np.mean((np.asarray(premium) - truth) ** 2)) / truth.mean())


def measure(make, n: int, noise: dict, seeds: int) -> dict[str, float]:
    errors: dict[str, list[float]] = {}
    for seed in range(seeds):
        portfolio, fresh = make(n, seed), make(FRESH, 10_000 + seed)
        truth = np.asarray(fresh.discrimination_free(fresh.X))
        channel = RandomizedResponse(portfolio.groups, **noise)
        S = channel.privatize(portfolio.sensitive, rng=20_000 + seed)
        w = portfolio.sample_weight
        for name, run in contestants(portfolio, channel).items():
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                try:
                    premium = run(portfolio.X, portfolio.y, w, portfolio.sensitive, S, fresh.X)
                except ValueError as refusal:
                    premium = np.full(FRESH, np.nan)
                    print(f"  seed {seed}, {name}: {type(refusal).__name__}: {str(refusal)[:120]}")
            errors.setdefault(name, []).append(error(premium, truth))
    return {name: float(np.mean(found)) for name, found in errors.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "accuracy.json")
    args = parser.parse_args()
    results = {}
    for case, (make, n, noise) in CASES.items():
        results[case] = measure(make, n, noise, args.seeds)
        print(f"{case}: error of h*, per cent, mean of {args.seeds} seeds")
        for name, value in results[case].items():
            print(f"  {name:58s} {value:10.3g}")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    about = {"fairpremium": fairpremium.__version__, "seeds": args.seeds}
    args.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

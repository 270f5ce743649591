"""How often a 95 % interval of the premium covers the truth, for each correction.

    python benchmarks/coverage.py [--repeats 300] [--rows 3000] [--json benchmarks/results/coverage.json]

Portfolios with a right model: K = 2 and 3 unbalanced groups, two features that depend on the group, volumes, keep 0.8,
no pooling. The true h* uses the population's shares. Mean over five quotes; the standard error is binomial for one
quote, so that it errs on the large side.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.errors import FairPremiumError

QUOTES = np.array([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0], [0.5, 0.5], [-0.5, -1.0]])
SHARES = {2: np.array([0.7, 0.3]), 3: np.array([0.5, 0.3, 0.2])}


def beta(K: int) -> np.ndarray:
    return np.array([[0.2 + 0.4 * k, 0.3 - 0.1 * k, 0.1 * k] for k in range(K)])  # (K, 3)


def mean_of(family: str, eta: np.ndarray) -> np.ndarray:
    return eta if family == "normal" else np.exp(eta)


def draw(family: str, K: int, n: int, seed: int):
    rng = np.random.default_rng([seed, K])
    d = rng.choice(K, n, p=SHARES[K])
    X = rng.normal(0.3 * d[:, None], 1.0, (n, 2))
    w = rng.uniform(0.3, 1.0, n)
    eta = beta(K)[d, 0] + (X * beta(K)[d, 1:]).sum(axis=1)
    if family == "normal":
        y = eta + rng.normal(size=n) / np.sqrt(w)
    elif family == "gamma":
        y = rng.gamma(2 * w, np.exp(eta) / (2 * w))
    else:
        y = rng.poisson(w * np.exp(eta)) / w
    channel = RandomizedResponse([f"g{k}" for k in range(K)], keep=0.8)
    return X, y, w, channel.privatize(np.array(channel.groups, dtype=object)[d], rng=rng), channel


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "coverage.json")
    args = parser.parse_args()
    results = []
    print(f"95 % intervals, {args.rows} rows, {args.repeats} portfolios (posterior: a third of them)")
    for family in ("normal", "poisson", "gamma"):
        for K in (2, 3):
            eta = np.column_stack([np.ones(len(QUOTES)), QUOTES]) @ beta(K).T
            truth = mean_of(family, eta) @ SHARES[K]
            for correction in ("inverse", "score", "likelihood", "posterior"):
                repeats = args.repeats // 3 if correction == "posterior" else args.repeats
                hits, failed = [], 0
                for seed in range(repeats):
                    X, y, w, S, channel = draw(family, K, args.rows, seed)
                    pricer = DiscriminationFreePricer(family, channel=channel, correction=correction, pooling=0)
                    try:
                        pricer.fit(X, y, sensitive=S, sample_weight=w)
                    except FairPremiumError:
                        failed += 1
                        continue
                    lower, upper = pricer.predict_interval(QUOTES)
                    hits.append((lower <= truth) & (truth <= upper))
                coverage = float(np.mean(hits))
                error = float(np.sqrt(coverage * (1 - coverage) / len(hits)))
                print(
                    f"{family:8s} K = {K}  {correction:10s} {coverage:.3f} ({error:.3f})  failed {failed}", flush=True
                )
                row = {"family": family, "groups": K, "correction": correction, "coverage": coverage}
                results.append({**row, "standard_error": error, "repeats": repeats, "failed": failed})
    args.json.parent.mkdir(parents=True, exist_ok=True)
    about = {"fairpremium": __version__, "rows": args.rows}
    args.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

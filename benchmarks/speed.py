"""How fast the inverse correction is, against one memory pass, scikit-learn, glum and insurance-fairness-ldp.

Every ratio compares medians of runs that alternate in one process. Usage:

    python benchmarks/speed.py [--rows 2000000] [--repeats 3] [--json benchmarks/results/speed.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from glum import GeneralizedLinearRegressor
from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
from sklearn.linear_model import Ridge

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__

GROUPS = ["A", "B", "C", "D"]
SHARES = [0.4, 0.3, 0.2, 0.1]
FEATURES = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "speed.json")
    args = parser.parse_args()
    X, y, frequency, exposure, S, channel = make_rows(args.rows)

    squared = race(
        args.repeats,
        {
            "one pass over X in memory": lambda: X.sum(),
            "scikit-learn Ridge, one fit": lambda: Ridge(alpha=1e-6).fit(X, y),
            "fairpremium, 4 groups, pooling=0": lambda: pricer(channel, 0).fit(X, y, sensitive=S),
            "fairpremium, 4 groups, pooling chosen": lambda: pricer(channel, "auto").fit(X, y, sensitive=S),
            "insurance-fairness-ldp 0.1.1, 4 groups": lambda: peer_fit(channel, X, y, S),
        },
    )
    glm = race(
        args.repeats,
        {
            "glum, one fit of all rows": lambda: glum_fit(X, frequency, exposure),
            "glum, four fits of all rows": lambda: [glum_fit(X, frequency, exposure) for _ in GROUPS],
            "glum, one fit per group of its own rows (S taken as D)": lambda: [
                glum_fit(X[g == S], frequency[g == S], exposure[g == S]) for g in GROUPS
            ],
            "fairpremium, 4 groups and unaware, pooling=0": lambda: pricer(channel, 0, "poisson").fit(
                X, frequency, sensitive=S, sample_weight=exposure
            ),
            "fairpremium, 4 groups and unaware, pooling chosen": lambda: pricer(channel, "auto", "poisson").fit(
                X, frequency, sensitive=S, sample_weight=exposure
            ),
        },
    )
    fitted = pricer(channel, 0).fit(X[:50_000], y[:50_000], sensitive=S[:50_000])
    quote = quote_seconds(fitted, X[:1])

    result = {
        "rows": args.rows,
        "features": FEATURES,
        "groups": len(GROUPS),
        "repeats": args.repeats,
        "fairpremium": __version__,
        "machine": f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}",
        "squared_loss_seconds": squared,
        "poisson_seconds": glm,
        "single_quote_milliseconds": 1e3 * quote,
        "ratios": {
            "Ridge / ours (squared, pooling=0)": squared["scikit-learn Ridge, one fit"]
            / squared["fairpremium, 4 groups, pooling=0"],
            "insurance-fairness-ldp / ours (squared, pooling=0)": squared["insurance-fairness-ldp 0.1.1, 4 groups"]
            / squared["fairpremium, 4 groups, pooling=0"],
            "four glum fits / ours (Poisson, pooling=0)": glm["glum, four fits of all rows"]
            / glm["fairpremium, 4 groups and unaware, pooling=0"],
            "one glum fit per group / ours (Poisson, pooling=0)": glm[
                "glum, one fit per group of its own rows (S taken as D)"
            ]
            / glm["fairpremium, 4 groups and unaware, pooling=0"],
        },
    }
    show(result)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")


def make_rows(n: int):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, FEATURES))
    d = rng.choice(len(GROUPS), n, p=SHARES)
    beta = rng.standard_normal((FEATURES, len(GROUPS))) * 0.1
    eta = (X @ beta)[np.arange(n), d] + 0.2 * d
    channel = RandomizedResponse(GROUPS, keep=0.7)
    exposure = rng.uniform(0.1, 1.0, n)
    frequency = rng.poisson(exposure * np.exp(eta - 2)) / exposure
    S = channel.privatize(np.array(GROUPS)[d], rng=rng)
    return X, eta + rng.standard_normal(n), frequency, exposure, S, channel


def pricer(channel, pooling, family="normal") -> DiscriminationFreePricer:
    return DiscriminationFreePricer(
        family=family, channel=channel, correction="inverse", pooling=pooling, intervals=False, random_state=0
    )


def peer_fit(channel, X, y, S):
    mechanism = KaryRandomisedResponse(epsilon=channel.epsilon, categories=GROUPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LDPDiscriminationFreePrice(base_estimator=Ridge(), mechanism=mechanism).fit(X, S, y)


def glum_fit(X, y, w):
    return GeneralizedLinearRegressor(family="poisson", alpha=0).fit(X, y, sample_weight=w)


def race(repeats: int, contestants: dict) -> dict[str, float]:
    """Median seconds of each contestant, in turns, so that a slow minute of the machine hits all."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


def quote_seconds(fitted, row) -> float:
    times = []
    for _ in range(500):
        start = time.perf_counter()
        fitted.predict(row)
        times.append(time.perf_counter() - start)
    return median(times)


def show(result: dict) -> None:
    size = f"{result['rows']:,} rows x {result['features']} features, K = {result['groups']}"
    print(f"{size}, medians of {result['repeats']}")
    for title in ("squared_loss_seconds", "poisson_seconds"):
        print(f"\n{title}")
        for name, seconds in result[title].items():
            print(f"  {name:58s} {seconds:8.3f}")
    print(f"\nsingle quote: {result['single_quote_milliseconds']:.3f} ms\n")
    for name, ratio in result["ratios"].items():
        print(f"  {name:58s} {ratio:8.2f}")


if __name__ == "__main__":
    main()

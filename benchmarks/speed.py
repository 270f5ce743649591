"""How fast fits are, against one memory pass, scikit-learn, glum, LightGBM and insurance-fairness-ldp.

Every ratio compares medians of runs that alternate in one process. Default fits, with intervals, have their processor
time, and commands the time from start to end. Usage:

    python benchmarks/speed.py [--rows 2000000] [--repeats 3] [--json benchmarks/results/speed.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import numpy as np
from glum import GeneralizedLinearRegressor
from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
from lightgbm import LGBMRegressor
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
            "fairpremium, score, pooling=0": lambda: pricer(channel, 0, "poisson", "score").fit(
                X, frequency, sensitive=S, sample_weight=exposure
            ),
            "fairpremium, all defaults, with intervals": lambda: default(channel).fit(
                X, frequency, sensitive=S, sample_weight=exposure
            ),
        },
    )
    trees = race_trees(args.repeats)
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
        "boosted_trees_seconds": trees,
        "default_fits_processor_seconds": time_defaults(),
        "neural_seconds": time_nets(),
        "commands_seconds": time_commands(args.repeats),
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
            "ours / Ridge (squared, pooling=0)": squared["fairpremium, 4 groups, pooling=0"]
            / squared["scikit-learn Ridge, one fit"],
            "ours / one glum fit (Poisson, pooling=0)": glm["fairpremium, 4 groups and unaware, pooling=0"]
            / glm["glum, one fit of all rows"],
            "score / inverse (Poisson, pooling=0)": glm["fairpremium, score, pooling=0"]
            / glm["fairpremium, 4 groups and unaware, pooling=0"],
            "all defaults / one glum fit (Poisson)": glm["fairpremium, all defaults, with intervals"]
            / glm["glum, one fit of all rows"],
            "boosted without intervals / one LightGBM fit": trees["fairpremium, boosted"] / trees["LightGBM, one fit"],
            "boosted with intervals / one LightGBM fit": trees["fairpremium, boosted, with intervals"]
            / trees["LightGBM, one fit"],
        },
    }
    show(result)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(result, indent=1) + "\n")


def make_rows(n: int, features: int = FEATURES, groups: int = len(GROUPS), step: float = 0.0):
    """Rows with claim frequencies; a `step` in the first feature that no line describes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, features))
    shares = np.array(SHARES[:groups]) / sum(SHARES[:groups])
    d = rng.choice(groups, n, p=shares)
    beta = rng.standard_normal((features, groups)) * 0.1
    eta = (X @ beta)[np.arange(n), d] + 0.2 * d + step * (np.abs(X[:, 0]) < 0.5)
    channel = RandomizedResponse(GROUPS[:groups], keep=0.7)
    exposure = rng.uniform(0.1, 1.0, n)
    frequency = rng.poisson(exposure * np.exp(eta - 2)) / exposure
    S = channel.privatize(np.array(GROUPS)[d], rng=rng)
    return X, eta + rng.standard_normal(n), frequency, exposure, S, channel


def pricer(channel, pooling, family="normal", correction="inverse") -> DiscriminationFreePricer:
    return DiscriminationFreePricer(
        family=family, channel=channel, correction=correction, pooling=pooling, intervals=False, random_state=0
    )


def default(channel, **settings) -> DiscriminationFreePricer:
    return DiscriminationFreePricer("poisson", channel=channel, random_state=0, **settings)


def race_trees(repeats: int) -> dict[str, float]:
    """Default boosted trees, 20,000 rows, 10 features, against one plain fit of 200 rounds."""
    X, _, frequency, exposure, S, channel = make_rows(20_000, 10, step=0.5)
    plain = LGBMRegressor(objective="poisson", n_estimators=200, verbose=-1)

    def ours(intervals: bool):
        return default(channel, model="boosted", intervals=intervals).fit(
            X, frequency, sensitive=S, sample_weight=exposure
        )

    return race(
        repeats,
        {
            "LightGBM, one fit": lambda: plain.fit(X, frequency, sample_weight=exposure),
            "fairpremium, boosted": lambda: ours(False),
            "fairpremium, boosted, with intervals": lambda: ours(True),
        },
    )


def time_defaults() -> dict[str, float]:
    """Processor time of default fits with intervals, by rows, features and groups."""
    found = {}
    for n, features, groups in ((5_000, 4, 4), (50_000, 20, 4), (1_000_000, 20, 3)):
        X, _, frequency, exposure, S, channel = make_rows(n, features, groups)
        start = time.process_time()
        default(channel).fit(X, frequency, sensitive=S, sample_weight=exposure)
        found[f"Poisson, {n:,} x {features}, K = {groups}"] = time.process_time() - start
    return found


def time_nets() -> dict[str, float]:
    """Time of default networks, with intervals, on 5,000 rows."""
    X, _, frequency, exposure, S, channel = make_rows(5_000, 4, step=0.5)
    start = time.perf_counter()
    default(channel, model="neural").fit(X, frequency, sensitive=S, sample_weight=exposure)
    return {"neural networks, 5,000 x 4, K = 4, with intervals": time.perf_counter() - start}


def time_commands(repeats: int) -> dict[str, float]:
    """Time of commands that compute next to nothing."""
    commands = ("--help", "fit --help", "plan --groups 4 --epsilon 1 --rows 100000")

    def run(words: str) -> None:
        subprocess.run(
            [sys.executable, "-P", "-m", "fairpremium", *words.split()], stdout=subprocess.DEVNULL, check=True
        )

    return race(repeats, {f"fairpremium {words}": lambda words=words: run(words) for words in commands})


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
    for title in (name for name, value in result.items() if name.endswith("_seconds") and isinstance(value, dict)):
        print(f"\n{title}")
        for name, seconds in result[title].items():
            print(f"  {name:58s} {seconds:8.3f}")
    print(f"\nsingle quote: {result['single_quote_milliseconds']:.3f} ms\n")
    for name, ratio in result["ratios"].items():
        print(f"  {name:58s} {ratio:8.2f}")


if __name__ == "__main__":
    main()

"""Whether evidence of several kinds is better than each alone, and whether intervals cover with several sources.

    python benchmarks/evidence.py [--seeds 20] [--repeats 1000] [--rows 3000] [--first 0]
        [--parts mixture,coverage] [--families normal,poisson] [--jobs 1] [--json FILE]

mixture: the paper's portfolio (5,000 rows). A fifth of the people, at random, disclose the attribute, the others report
with epsilon 1. The error of mu(x, d) under P(x, d) of the fit to both with the defaults is compared, seed by seed, with
that of the fit to the fifth and of the fit to the others. It must be smaller than either by two standard errors. An age
band is among the features: without it the linear model is wrong by 42, whatever the evidence.

coverage: portfolios of 3,000 rows, three unbalanced groups, volumes, and four ways to report, one of them twice, which
depend on a feature. 95 % intervals of h* at five quotes must cover between 93 % and 97 %.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import KeyedChannels

SHARES = np.array([0.5, 0.3, 0.2])
BETA = np.array([[0.2, 0.3, 0.0], [0.6, 0.2, 0.1], [1.0, 0.1, 0.2]])  # (group, (1, a, b))
QUOTES = np.array([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0], [0.5, 0.5], [-0.5, -1.0]])


def mixture_errors(seed: int) -> dict[str, float]:
    """Errors of mu on one portfolio, from both kinds of evidence and from each alone."""
    p = zhang_liu_shi_2025(rng=seed, age_band=True)
    rng = np.random.default_rng([seed, 17])
    keys = np.where(rng.random(len(p.y)) < 0.2, "known", "reported")
    channels = KeyedChannels({"known": None, "reported": RandomizedResponse(["F", "M"], epsilon=1.0)})
    S = channels.privatize(p.sensitive, keys, rng=seed)
    d = np.array([list(channels.groups).index(group) for group in p.sensitive])
    truth = p.best_estimate(p.X)[list(channels.groups)].to_numpy()[np.arange(len(d)), d]
    errors = {}
    for name, use in {"both": keys != "", "known": keys == "known", "reported": keys == "reported"}.items():
        pricer = DiscriminationFreePricer(channel=channels, intervals=False, random_state=0)
        pricer.fit(p.X[use], p.y[use], sensitive=S[use], channel_key=keys[use])
        mu = pricer.predict_best_estimate(p.X)[list(channels.groups)].to_numpy()[np.arange(len(d)), d]
        errors[name] = float(np.sqrt(np.mean((mu - truth) ** 2)))
    return errors


def measure_mixture(seeds: range) -> list[dict[str, object]]:
    """Compare the errors seed by seed, and print them."""
    table = pd.DataFrame([mixture_errors(seed) for seed in seeds])
    row: dict[str, object] = {"part": "mixture", "seeds": len(table), **table.mean().to_dict()}
    for alone in ("known", "reported"):
        gap = table[alone] - table["both"]
        row[f"z_{alone}"] = float(gap.mean() / (gap.std() / np.sqrt(len(gap))))
    row["passed"] = min(row["z_known"], row["z_reported"]) > 2
    print(
        f"mixture: both {row['both']:.2f}, known fifth {row['known']:.2f} (z {row['z_known']:.1f}), reported "
        f"{row['reported']:.2f} (z {row['z_reported']:.1f}): {'pass' if row['passed'] else 'FAIL'}",
        flush=True,
    )
    return [row]


def covered(seed: int, family: str, n: int) -> tuple[float, float, bool]:
    """Share of quotes whose interval of h* covers, its mean width, and whether a likelihood was taken."""
    warnings.simplefilter("ignore")
    rng = np.random.default_rng([seed, 171])
    groups = ["g0", "g1", "g2"]
    once = RandomizedResponse(groups, epsilon=1.5)
    channels = KeyedChannels(
        {
            "app": once,
            "broker": RandomizedResponse(groups, keep=0.9),
            "twice": Channel.repeated(once, once),
            "staff": None,
        }
    )
    d = rng.choice(3, n, p=SHARES)
    X = np.column_stack([rng.normal(0.3 * d, 1.0), rng.normal(size=n)])
    w = rng.uniform(0.3, 1.0, n)
    logits = np.column_stack([np.ones(n), 0.5 * X[:, 1], np.zeros(n), -0.5 - 0.5 * X[:, 1]])
    keys = np.array(list(channels), dtype=object)[(logits + rng.gumbel(size=(n, 4))).argmax(axis=1)]

    def means(X: np.ndarray) -> np.ndarray:
        eta = np.column_stack([np.ones(len(X)), X]) @ BETA.T
        return eta if family == "normal" else np.exp(eta)

    mean = means(X)[np.arange(n), d]
    y = mean + rng.normal(size=n) / np.sqrt(w) if family == "normal" else rng.poisson(w * mean) / w
    S = channels.privatize(np.array(groups, dtype=object)[d], keys, rng=rng)
    pricer = DiscriminationFreePricer(family, channel=channels, random_state=0)
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    low, high = pricer.predict_interval(QUOTES)
    truth = means(QUOTES) @ SHARES
    return float(np.mean((low <= truth) & (truth <= high))), float(np.mean(high - low)), pricer.correction_ != "inverse"


def measure_coverage(seeds: range, rows: int, families: list[str], jobs: int) -> list[dict[str, object]]:
    """Count how often intervals cover; prints a line for each family."""
    results: list[dict[str, object]] = []
    for family in families:
        with ProcessPoolExecutor(jobs) as pool:
            found = np.array(list(pool.map(partial(covered, family=family, n=rows), seeds, chunksize=5)))
        share, error = found[:, 0].mean(), found[:, 0].std() / np.sqrt(len(found))
        passed = bool(0.93 <= share <= 0.97)
        print(
            f"coverage, {family:8s} {share:.3f} ({error:.3f}) over {len(found)} portfolios, mean width "
            f"{found[:, 1].mean():.3f}, likelihood taken {found[:, 2].mean():.0%}: {'pass' if passed else 'FAIL'}",
            flush=True,
        )
        row = {"part": "coverage", "family": family, "portfolios": len(found), "coverage": float(share)}
        results.append({**row, "standard_error": float(error), "passed": passed})
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="portfolios of the mixture")
    parser.add_argument("--repeats", type=int, default=1000, help="portfolios of the coverage")
    parser.add_argument("--rows", type=int, default=3000, help="rows of each portfolio of the coverage")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--parts", default="mixture,coverage")
    parser.add_argument("--families", default="normal,poisson", help="of the coverage")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "evidence.json")
    args = parser.parse_args()
    start, results = time.perf_counter(), []
    if "mixture" in args.parts:
        results += measure_mixture(range(args.first, args.first + args.seeds))
    if "coverage" in args.parts:
        results += measure_coverage(
            range(args.first, args.first + args.repeats), args.rows, args.families.split(","), args.jobs
        )
    seconds = round(time.perf_counter() - start)
    args.json.write_text(
        json.dumps({"fairpremium": __version__, "seconds": seconds, "results": results}, indent=1) + "\n"
    )
    sys.exit(not all(row["passed"] for row in results))


if __name__ == "__main__":
    main()

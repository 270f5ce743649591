"""Real portfolios: how far the default is from knowing the attribute, and from the simple answers.

    FAIRPREMIUM_DATA=folder python benchmarks/real.py [--splits 10] [--keeps 0.9,0.8,0.7] [--portfolios health,auto]
                                                      [--methods unaware,auto] [--json benchmarks/results/real.json]

Each split fits 70 % of the rows and judges the other 30 %. Reports go through randomized response. Two figures, both
against the fit that knows D without pooling, in per cent:

- excess: deviance of mu(x, D) on the test rows above that of the fit that knows D. Below zero is better than knowing D.
- distance: root mean square difference of h*(x), over its mean.

For each portfolio the last column compares a method with the best of the simple answers (unaware, S taken as D, the
paper), split by split, with the standard error of the mean difference.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse, __version__
from fairpremium.families import get_family
from fairpremium.portfolios import (
    Portfolio,
    load_ausprivauto,
    load_auto,
    load_bemtpl97,
    load_health,
    load_swmotorcycle,
)

RIDGE = 1e-3  # in rows, for the fits without pooling: a level without a claim in one group must not stop them
SIMPLE = ("unaware", "S as D", "paper")
CORRECTIONS = ("inverse", "score", "posterior", "likelihood")


def thinned(share: float = 0.02) -> Portfolio:
    """Return beMTPL97 with so few women that they are this share of the policies."""
    p = load_bemtpl97()
    rng = np.random.default_rng(5)
    women, men = np.flatnonzero(p.sensitive == "female"), np.flatnonzero(p.sensitive == "male")
    rows = np.sort(np.r_[men, rng.choice(women, int(share / (1 - share) * len(men)), replace=False)])
    return Portfolio(
        name="beMTPL97, 2 % women",
        X=p.X.iloc[rows].reset_index(drop=True),
        y=p.y[rows],
        sensitive=p.sensitive[rows],
        groups=p.groups,
        family=p.family,
        sample_weight=None if p.sample_weight is None else p.sample_weight[rows],
    )


def auto_crossed() -> Portfolio:
    """Return the paper's auto data with GENDER x RACE as the attribute: four groups."""
    p = load_auto()
    crossed = np.array([f"{g}/{r}" for g, r in zip(p.sensitive, p.X["RACE"], strict=True)], dtype=object)
    return Portfolio(
        name="auto, GENDER x RACE",
        X=p.X.drop(columns=["RACE", "POSTAL_CODE"]),
        y=p.y,
        sensitive=crossed,
        groups=tuple(sorted(set(crossed))),
        family=p.family,
    )


def auto() -> Portfolio:
    """Return the paper's auto data without the postal code, a label of four areas with 2 policies in the rarest."""
    p = load_auto()
    return Portfolio(
        name="auto, GENDER",
        X=p.X.drop(columns=["POSTAL_CODE"]),
        y=p.y,
        sensitive=p.sensitive,
        groups=p.groups,
        family=p.family,
    )


PORTFOLIOS: dict[str, Callable[[], Portfolio]] = {
    "frequency": load_bemtpl97,
    "severity": lambda: load_bemtpl97(outcome="severity"),
    "thinned": thinned,
    "swmotorcycle": load_swmotorcycle,
    "ausprivauto": load_ausprivauto,
    "auto": auto,
    "crossed": auto_crossed,
    "health": load_health,
}


def split_results(p: Portfolio, keep: float, seed: int, methods: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Fit every method on one split: excess, distance and processor seconds; NaN where a fit raised."""
    rng = np.random.default_rng([seed, int(1000 * keep)])
    train = np.random.default_rng(seed).random(len(p)) < 0.7
    test = ~train
    channel = RandomizedResponse(p.groups, keep=keep)
    reports = channel.privatize(p.sensitive, rng=rng)
    family = get_family(p.family)
    weight = np.ones(len(p)) if p.sample_weight is None else p.sample_weight
    code = np.array([p.groups.index(g) for g in p.sensitive[test]])
    X, X_test = p.X[train], p.X[test]

    def fitted(sensitive: np.ndarray, **settings: object) -> DiscriminationFreePricer:
        pricer = DiscriminationFreePricer(
            family=p.family, intervals=False, unseen_levels="base", random_state=seed, **settings
        )
        volume = None if p.sample_weight is None else p.sample_weight[train]
        return pricer.fit(X, p.y[train], sensitive=sensitive[train], sample_weight=volume)

    def deviance(mu: np.ndarray) -> float:
        own = mu[np.arange(len(code)), code]
        if family.name != "normal":
            own = np.clip(own, 1e-12, None)
        return float(np.average(family.unit_deviance(p.y[test], own), weights=weight[test]))

    unpooled = {"pooling": 0, "model": LinearModel(ridge=RIDGE)}
    oracle = fitted(p.sensitive, **unpooled)
    best, target = deviance(oracle.predict_best_estimate(X_test).to_numpy()), oracle.predict(X_test)

    def fit(method: str) -> tuple[np.ndarray, np.ndarray]:
        if method == "unaware":
            u = oracle.predict_unaware(X_test)
            return np.repeat(u[:, None], len(p.groups), axis=1), u
        if method == "S as D":
            pricer = fitted(reports, **unpooled)
        elif method == "paper":
            pricer = fitted(reports, channel=channel, correction="inverse", **unpooled)
        else:
            pricer = fitted(reports, channel=channel, correction=method)
        return pricer.predict_best_estimate(X_test).to_numpy(), pricer.predict(X_test)

    results = {}
    for method in methods:
        start = time.process_time()
        try:
            mu, h = fit(method)
            gap = np.sqrt(np.average((h - target) ** 2, weights=weight[test])) / np.average(
                target, weights=weight[test]
            )
            row = {"excess": 100 * (deviance(mu) / best - 1), "distance": 100 * float(gap)}
        except (ValueError, ArithmeticError, RuntimeError):
            row = {"excess": np.nan, "distance": np.nan}
        results[method] = row | {"seconds": time.process_time() - start}
    return results


def summary(splits: list[dict[str, dict[str, float]]]) -> pd.DataFrame:
    """Average over the splits, with the difference from the best simple answer that never failed."""
    excess = pd.DataFrame([{m: r["excess"] for m, r in split.items()} for split in splits])
    others = {
        f: pd.DataFrame([{m: r[f] for m, r in s.items()} for s in splits]).mean() for f in ("distance", "seconds")
    }
    simple = [m for m in SIMPLE if m in excess and excess[m].notna().all()]
    gap = excess.sub(excess[excess[simple].mean().idxmin()], axis=0) if simple else excess * np.nan
    rows = np.sqrt(excess.notna().sum())
    return pd.DataFrame(
        {
            "excess": excess.mean(),
            "excess_se": excess.std() / rows,
            "over_best_simple": gap.mean(),
            "over_best_simple_se": gap.std() / rows,
            **others,
            "failed": excess.isna().sum(),
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--keeps", default="0.9,0.8,0.7")
    parser.add_argument("--portfolios", default=",".join(PORTFOLIOS))
    parser.add_argument("--methods", default=",".join((*SIMPLE, *CORRECTIONS, "auto")))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "real.json")
    args = parser.parse_args()
    methods = tuple(args.methods.split(","))
    results = []
    for name in args.portfolios.split(","):
        portfolio = PORTFOLIOS[name]()
        for keep in map(float, args.keeps.split(",")):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                table = summary([split_results(portfolio, keep, seed, methods) for seed in range(args.splits)])
            print(f"\n{portfolio.name}, keep {keep:g}, {args.splits} splits\n{table.round(3).to_string()}", flush=True)
            results.append({"portfolio": portfolio.name, "keep": keep, "table": table.to_dict("index")})
            args.json.write_text(
                json.dumps({"fairpremium": __version__, "splits": args.splits, "results": results}, indent=1) + "\n"
            )


if __name__ == "__main__":
    main()

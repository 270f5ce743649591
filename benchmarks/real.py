"""Real portfolios: how far the default is from knowing the attribute, and from the simple answers.

    FAIRPREMIUM_DATA=folder python benchmarks/real.py [--splits 10] [--keeps 0.9,0.8,0.7] [--epsilons 1] [--jobs 2]
        [--portfolios health,auto] [--methods unaware,auto] [--json benchmarks/results/real.json]

Each split fits 70 % of the rows and judges the other 30 %. Reports go through randomized response. Two figures, both
against the fit that knows D without pooling, in per cent:

- excess: deviance of mu(x, D) on the test rows above that of the fit that knows D. Below zero is better than knowing D.
- distance: root mean square difference of h*(x), over its mean.

Both are means over the splits with standard errors. The excess is also compared, split by split, with the best of the
simple answers (unaware, S taken as D, the paper). A fit that raises an error or gives a price that is not a number has
failed; means are over the other splits. insurance-fairness has no best estimates, and so no excess.

Beside the JSON file a Markdown file of the same name has the tables of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

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
    load_belgian_motor,
    load_health,
    load_swmotorcycle,
)

try:
    from benchmarks._peers import FAIRNESS, LDP, price_by_peer
except ModuleNotFoundError:  # run as a script
    from _peers import FAIRNESS, LDP, price_by_peer

RIDGE = 1e-3  # in rows, for the fits without pooling: a level without a claim in one group must not stop them
SIMPLE = ("unaware", "S as D", "paper")
PEERS = {"ldp": LDP, "fairness": FAIRNESS}
CORRECTIONS = ("inverse", "score", "posterior", "likelihood")
METHODS = (*SIMPLE, *PEERS, *CORRECTIONS, "auto")


def belgian_motor(outcome: Literal["frequency", "severity"] = "frequency") -> Portfolio:
    """Return the Belgian motor portfolio with the square of the age, around 47, as a feature."""
    p = load_belgian_motor(outcome=outcome)
    p.X.insert(2, "ageph_squared", (p.X["ageph"] - 47.0) ** 2)
    return p


def thinned(share: float = 0.02) -> Portfolio:
    """Return Belgian motor with so few women that they are this share of the policies."""
    p = belgian_motor()
    rng = np.random.default_rng(5)
    women, men = np.flatnonzero(p.sensitive == "female"), np.flatnonzero(p.sensitive == "male")
    rows = np.r_[men, rng.choice(women, int(share / (1 - share) * len(men)), replace=False)]
    return some_rows(p, np.sort(rows), f"beMTPL97, {100 * share:g} % women")


def some_rows(p: Portfolio, rows: np.ndarray, name: str) -> Portfolio:
    """Return some of the policies of a portfolio."""
    return Portfolio(
        name=name,
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
    "frequency": belgian_motor,
    "severity": lambda: belgian_motor("severity"),
    "thinned": thinned,
    "swmotorcycle": load_swmotorcycle,
    "ausprivauto": load_ausprivauto,
    "auto": auto,
    "crossed": auto_crossed,
    "health": load_health,
}


Splits = list[dict[str, dict[str, float]]]  # of each split, figures of each method


def split_results(p: Portfolio, noise: dict[str, float], methods: tuple[str, ...], seed: int) -> dict:
    """Fit every method on one split: excess, distance and processor seconds; without figures where a fit failed."""
    channel = RandomizedResponse(p.groups, **noise)
    rng = np.random.default_rng([seed, round(1000 * channel.keep)])
    train = np.random.default_rng(seed).random(len(p)) < 0.7
    test = ~train
    reports = channel.privatize(p.sensitive, rng=rng)
    family = get_family(p.family)
    weight = np.ones(len(p)) if p.sample_weight is None else p.sample_weight
    volume = None if p.sample_weight is None else p.sample_weight[train]
    code = np.array([p.groups.index(g) for g in p.sensitive[test]])
    X, X_test = p.X[train], p.X[test]

    def fitted(sensitive: np.ndarray, **settings: object) -> DiscriminationFreePricer:
        pricer = DiscriminationFreePricer(
            family=p.family, intervals=False, unseen_levels="base", random_state=seed, **settings
        )
        return pricer.fit(X, p.y[train], sensitive=sensitive[train], sample_weight=volume)

    def deviance(mu: np.ndarray) -> float:
        own = mu[np.arange(len(code)), code]
        if family.name != "normal":
            own = np.clip(own, 1e-12, None)
        return float(np.average(family.unit_deviance(p.y[test], own), weights=weight[test]))

    unpooled = {"pooling": 0, "model": LinearModel(ridge=RIDGE)}
    oracle = fitted(p.sensitive, **unpooled)
    best, target = deviance(oracle.predict_best_estimate(X_test).to_numpy()), oracle.predict(X_test)

    def prices(method: str) -> tuple[np.ndarray | None, np.ndarray]:
        if method == "unaware":
            u = oracle.predict_unaware(X_test)
            return np.repeat(u[:, None], len(p.groups), axis=1), u
        if method in PEERS:
            rows = (X, p.y[train], reports[train], volume)
            return price_by_peer(PEERS[method], p.family, channel, rows, X_test)
        if method == "S as D":
            pricer = fitted(reports, **unpooled)
        elif method == "paper":
            pricer = fitted(reports, channel=channel, correction="inverse", **unpooled)
        else:
            pricer = fitted(reports, channel=channel, correction=method)
        return pricer.predict_best_estimate(X_test).to_numpy(), pricer.predict(X_test)

    def figures(method: str) -> dict[str, float]:
        mu, h = prices(method)
        w = weight[test] / weight[test].sum()
        found = {"distance": 100 * float(np.sqrt(w @ (h - target) ** 2) / (w @ target))}
        if mu is not None:
            found["excess"] = 100 * (deviance(mu) / best - 1)
        return found if np.isfinite(list(found.values())).all() else {}

    results = {}
    for method in methods:
        start = time.process_time()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = figures(method)
            except Exception as failure:  # a method that fails is a result
                print(f"  {p.name}, split {seed}, {method}: {type(failure).__name__}: {str(failure)[:100]}", flush=True)
                found = {}
        results[method] = {**found, "seconds": time.process_time() - start, "failed": float(not found)}
    return results


def over_best_simple(splits: Splits, method: str = "auto") -> tuple[float, float]:
    """Compare excesses with the best simple answer that never failed, split by split: mean, standard error."""
    excess = figure(splits, "excess")
    simple = [m for m in SIMPLE if m in excess and excess[m].notna().all()]
    if not simple:
        return np.nan, np.nan
    gap = excess[method] - excess[excess[simple].mean().idxmin()]
    return float(gap.mean()), float(gap.sem())


def figure(splits: Splits, name: str) -> pd.DataFrame:
    """Return one figure: a row for each split, a column for each method."""
    return pd.DataFrame([{m: row.get(name, np.nan) for m, row in split.items()} for split in splits])


def summary(splits: Splits) -> pd.DataFrame:
    """Average over the splits: a row for each method."""
    excess, distance = figure(splits, "excess"), figure(splits, "distance")
    gaps = [over_best_simple(splits, method) for method in excess]
    return pd.DataFrame(
        {
            "excess": excess.mean(),
            "excess_se": excess.sem(),
            "over_best_simple": [mean for mean, _ in gaps],
            "over_best_simple_se": [error for _, error in gaps],
            "distance": distance.mean(),
            "distance_se": distance.sem(),
            "seconds": figure(splits, "seconds").mean(),
            "failed": figure(splits, "failed").sum().astype(int),
        }
    )


def markdown(results: list[dict]) -> str:
    """Return two tables for each kind of noise, with a row for each portfolio."""
    lines = []
    for noise in dict.fromkeys(result["noise"] for result in results):
        here = [result for result in results if result["noise"] == noise]
        methods = list(here[0]["table"])
        for name, words in (
            ("excess", "deviance of μ(x, D) above the fit that knows D, in %"),
            ("distance", "distance of h\\* from that of the fit that knows D, in %"),
        ):
            lines += [f"{noise}: {words}", "", f"| | {' | '.join(methods)} |"]
            lines.append("| --- |" + " ---: |" * len(methods))
            for result in here:
                cells = [_cell(result["table"][method], name, result["splits"]) for method in methods]
                lines.append(f"| {result['portfolio']} | {' | '.join(cells)} |")
            lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, float], name: str, splits: int) -> str:
    if row["failed"] == splits:
        return "all failed"
    if np.isnan(row[name]):
        return "–"
    failed = f" ({row['failed']} failed)" if row["failed"] else ""
    digits = 3 if name == "excess" and abs(row[name]) < 10 else 2
    value = f"{row[name]:z.{digits}f}".replace("-", "−")
    return value + ("" if np.isnan(row[f"{name}_se"]) else f" ± {row[f'{name}_se']:.{digits}f}") + failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--keeps", default="0.9,0.8,0.7")
    parser.add_argument("--epsilons", default="1")
    parser.add_argument("--portfolios", default=",".join(PORTFOLIOS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "real.json")
    args = parser.parse_args()
    methods = tuple(args.methods.split(","))
    noises = [{"keep": float(keep)} for keep in args.keeps.split(",") if keep]
    noises += [{"epsilon": float(epsilon)} for epsilon in args.epsilons.split(",") if epsilon]
    results: list[dict] = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for name in args.portfolios.split(","):
            portfolio = PORTFOLIOS[name]()
            for noise in noises:
                said = " ".join(f"{kind} {value:g}" for kind, value in noise.items())
                run = partial(split_results, portfolio, noise, methods)
                table = summary(list(pool.map(run, range(args.splits))))
                print(f"\n{portfolio.name}, {said}, {args.splits} splits\n{table.round(3).to_string()}", flush=True)
                results.append(
                    {
                        "portfolio": portfolio.name,
                        "noise": said,
                        "splits": args.splits,
                        "table": table.to_dict("index"),
                    }
                )
                about = {"fairpremium": __version__, "results": results}
                args.json.write_text(json.dumps(about, indent=1).replace(": NaN", ": null") + "\n")
                args.json.with_suffix(".md").write_text(markdown(results), encoding="utf-8")


if __name__ == "__main__":
    main()

"""How close prices come to the truth: every correction, simple baselines, and both packages that implement the paper.

    python benchmarks/accuracy.py [--seeds 20] [--cases health,motor] [--jobs 2] [--json PATH]

All contestants get the same rows, the same reports, the same features and the true noise; packages that take no text
columns get them one-hot encoded. Simulated portfolios: root mean square error of mu(x, d) over P(x, d) and of h*(x), in
per cent of the mean true premium. Real ones: mean deviance of mu(x, D) with the true D on a test set, in per cent above
that of the fit that knows D. Mean over the seeds with its standard error; a contestant that fails or gives a price that
is not a number is counted as failed, and its mean is over the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd
from _peers import FAIRNESS, LDP, price_by_peer

import fairpremium
from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.families import get_family
from fairpremium.portfolios import (
    load_ausprivauto,
    load_auto,
    load_health,
    unbalanced_poisson,
    zhang_liu_shi_2025,
)


@dataclass
class Case:
    """Rows to fit, rows to judge, and what is known about the truth."""

    family: str
    groups: list
    X: pd.DataFrame
    y: np.ndarray
    w: np.ndarray | None
    D: np.ndarray
    test: tuple  # X, y, w, D
    mu: np.ndarray | None = None  # true mu(x, d) of the test rows, (n, K)
    h: np.ndarray | None = None
    ridge: float = 0.0  # rare levels without a claim need one


def paper(seed: int, outcome: Callable | None = None) -> Case:
    p, q = (
        zhang_liu_shi_2025(5000, rng=seed, age_band=True),
        zhang_liu_shi_2025(20_000, rng=10_000 + seed, age_band=True),
    )
    y = p.y
    if outcome is not None:
        d = np.array([p.groups.index(g) for g in p.sensitive])
        y = outcome(p.best_estimate(p.X).to_numpy()[np.arange(5000), d], np.random.default_rng([seed, 1]))
    return simulated(p, q, y)


def poisson(seed: int, shares: tuple, n: int = 10_000, overdispersion: float = 0.0) -> Case:
    p, q = unbalanced_poisson(n, shares, rng=seed), unbalanced_poisson(20_000, shares, rng=10_000 + seed)
    y = p.y
    if overdispersion:
        rng = np.random.default_rng([seed, 2])
        d = np.array([p.groups.index(g) for g in p.sensitive])
        rate = p.best_estimate(p.X).to_numpy()[np.arange(n), d] * rng.gamma(1 / overdispersion, overdispersion, n)
        y = rng.poisson(p.sample_weight * rate) / p.sample_weight
    return simulated(p, q, y)


def gamma(seed: int) -> Case:
    """Severities with the means of the Poisson portfolio times 10,000 and coefficient of variation 1."""
    p = unbalanced_poisson(10_000, (0.7, 0.3), rng=seed)
    q = unbalanced_poisson(20_000, (0.7, 0.3), rng=10_000 + seed)
    d = np.array([p.groups.index(g) for g in p.sensitive])
    mean = 1e4 * p.best_estimate(p.X).to_numpy()[np.arange(10_000), d]
    case = simulated(p, q, np.random.default_rng([seed, 3]).gamma(1.0, mean))
    case.family, case.w, case.mu, case.h = "gamma", None, 1e4 * case.mu, 1e4 * case.h
    return case


def simulated(p, q, y) -> Case:
    truth = q.best_estimate(q.X).to_numpy()
    h = np.asarray(q.discrimination_free(q.X))
    test = (q.X, None, q.sample_weight, q.sensitive)
    return Case(p.family, list(p.groups), p.X, np.asarray(y), p.sample_weight, p.sensitive, test, truth, h)


def real(portfolio, seed: int, rows: int | None = None, ridge: float = 0.0) -> Case:
    order = np.random.default_rng([seed, 4]).permutation(len(portfolio.y))[:rows]
    cut = int(0.8 * len(order))
    train, test = order[:cut], order[cut:]
    w = portfolio.sample_weight
    X = portfolio.X

    def part(i):
        return X.iloc[i], portfolio.y[i], None if w is None else w[i], portfolio.sensitive[i]

    return Case(portfolio.family, list(portfolio.groups), *part(train), part(test), ridge=ridge)


CASES: dict[str, tuple[Callable[[int], Case], dict]] = {
    **{f"paper's portfolio, keep {k}": (paper, {"keep": k}) for k in (0.9, 0.8, 0.7, 0.6)},
    "skewed noise (gamma, sd 300), keep 0.7": (
        lambda s: paper(s, lambda m, rng: rng.gamma((m / 300) ** 2, 300**2 / m)),
        {"keep": 0.7},
    ),
    "Poisson, K = 2, shares .8/.2, epsilon 1": (lambda s: poisson(s, (0.8, 0.2)), {"epsilon": 1.0}),
    "Poisson, K = 2, balanced, epsilon 1": (lambda s: poisson(s, (0.5, 0.5)), {"epsilon": 1.0}),
    "Poisson, K = 4, balanced, epsilon 2": (lambda s: poisson(s, (0.25,) * 4, 20_000), {"epsilon": 2.0}),
    "overdispersed counts, K = 2, .8/.2, epsilon 1": (lambda s: poisson(s, (0.8, 0.2), 10_000, 1.0), {"epsilon": 1.0}),
    "gamma severities, K = 2, .7/.3, keep 0.8": (gamma, {"keep": 0.8}),
    "health data, keep 0.7": (lambda s: real(load_health(), s), {"keep": 0.7}),
    "auto data, keep 0.8": (lambda s: real(load_auto(), s, ridge=1.0), {"keep": 0.8}),
    "Australian motor (20,000 of 67,856 rows), keep 0.8": (
        lambda s: real(load_ausprivauto(), s, 20_000, ridge=1.0),
        {"keep": 0.8},
    ),
}


def contestants(case: Case, channel: RandomizedResponse) -> dict[str, Callable]:
    """Functions that fit and return (mu(x, d) or None, h*(x)) of the test rows."""
    fresh = case.test[0]
    pricer_for = partial(
        DiscriminationFreePricer,
        case.family,
        LinearModel(ridge=case.ridge),
        intervals=False,
        unseen_levels="base",
    )

    def ours(channel, **settings):
        def run(S):
            pricer = pricer_for(channel=channel, random_state=0, **settings)
            pricer.fit(case.X, case.y, sensitive=S, sample_weight=case.w)
            return pricer.predict_best_estimate(fresh)[case.groups].to_numpy(), pricer.predict(fresh)

        return run

    def unaware(S):
        pricer = pricer_for(channel=None, pooling=0)
        price = pricer.fit(case.X, case.y, sensitive=case.D, sample_weight=case.w).predict_unaware(fresh)
        return np.repeat(price[:, None], len(case.groups), axis=1), price

    def peer(name):
        return lambda S: price_by_peer(name, case.family, channel, (case.X, case.y, S, case.w), fresh)

    found = {
        "true D known": lambda S: ours(None, pooling=0)(case.D),
        "unaware price": unaware,
        "S taken as D": ours(None, pooling=0),
        LDP: peer(LDP),
        "the paper (inverse, no pooling)": ours(channel, correction="inverse", pooling=0),
        "inverse, pooled": ours(channel, correction="inverse"),
        "score": ours(channel, correction="score"),
        "posterior": ours(channel, correction="posterior"),
        "likelihood": ours(channel, correction="likelihood"),
        "fairpremium (auto)": ours(channel),
        FAIRNESS: peer(FAIRNESS),
    }
    return found


def judge(case: Case, mu, h) -> dict[str, float]:
    codes = np.array([case.groups.index(g) for g in case.test[3]])
    if case.h is not None:
        scale = 100 / case.h.mean()
        result = {"h": scale * float(np.sqrt(np.mean((h - case.h) ** 2)))}
        if mu is not None:
            gap = (mu - case.mu)[np.arange(len(codes)), codes]
            result["mu"] = scale * float(np.sqrt(np.mean(gap**2)))
        return result
    if mu is None:
        return {}
    _, y, w, _ = case.test
    own = np.asarray(mu)[np.arange(len(codes)), codes]
    with np.errstate(all="ignore"):
        deviance = get_family(case.family).unit_deviance(y, own)
    return {"deviance": float(np.average(deviance, weights=w))}


def one(name: str, seed: int) -> dict[str, dict[str, float] | None]:
    """All contestants on one portfolio."""
    make, noise = CASES[name]
    case = make(seed)
    channel = RandomizedResponse(case.groups, **noise)
    S = channel.privatize(case.D, rng=np.random.default_rng([seed, 5]))
    results: dict[str, dict[str, float] | None] = {}
    for contestant, run in contestants(case, channel).items():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = judge(case, *run(S))
            except Exception as failure:  # a contestant that fails is a result
                print(
                    f"  {name}, seed {seed}, {contestant}: {type(failure).__name__}: {str(failure)[:100]}", flush=True
                )
                found = None
        results[contestant] = found if found is not None and all(np.isfinite(list(found.values()))) else None
    return results


def summary(runs: list[dict]) -> dict[str, dict]:
    table: dict[str, dict] = {}
    for contestant in runs[0]:
        row: dict = {"failed": sum(run[contestant] is None for run in runs)}
        for measure in ("mu", "h", "deviance"):
            values = [run[contestant][measure] for run in runs if run[contestant] and measure in run[contestant]]
            if measure == "deviance":  # paired: per cent above the fit that knows D
                values = [
                    100 * (run[contestant]["deviance"] / run["true D known"]["deviance"] - 1)
                    for run in runs
                    if run[contestant] and run["true D known"] and "deviance" in run[contestant]
                ]
            if values:
                error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
                row[measure] = [float(np.mean(values)), float(error)]
        table[contestant] = row
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cases", default="", help="comma separated parts of names; all by default")
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "accuracy.json")
    args = parser.parse_args()
    wanted = [part.strip() for part in args.cases.split(",") if part.strip()]
    results = {}
    with ProcessPoolExecutor(args.jobs) as pool:
        for name in CASES:
            if wanted and not any(part in name for part in wanted):
                continue
            runs = list(pool.map(one, [name] * args.seeds, range(args.seeds)))
            results[name] = summary(runs)
            show(name, results[name], args.seeds)
            args.json.parent.mkdir(parents=True, exist_ok=True)
            about = {"fairpremium": fairpremium.__version__, "seeds": args.seeds}
            args.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


def show(name: str, table: dict[str, dict], seeds: int) -> None:
    print(f"\n{name} ({seeds} seeds)")
    for contestant, row in table.items():
        cells = [f"{m} {row[m][0]:9.3g} ({row[m][1]:.2g})" for m in ("mu", "h", "deviance") if m in row]
        failed = f"  failed {row['failed']}" if row["failed"] else ""
        print(f"  {contestant:34s} " + "  ".join(cells) + failed, flush=True)


if __name__ == "__main__":
    main()

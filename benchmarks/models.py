"""Model classes against each other where no linear predictor fits: boosted trees, nets, a forest, the linear model.

    python benchmarks/models.py [--cases paper,poisson] [--seeds 10] [--jobs 2] [--json PATH]

Two portfolios with known truth. "paper": the paper's portfolio with raw age and smoker (no age-band column), 5,000
rows, keep 0.8; errors in units of cost. "poisson": claim frequencies with bends, thresholds and interactions, three
unequal groups, 100,000 rows, epsilon 1; errors in per cent of the mean premium. Root mean square errors of mu(x, d) and
of h*(x) over 20,000 new rows, mean over the seeds with its standard error, and the processor time of a fit without
intervals. All get the same rows and reports; "S taken as D" is the boosted pricer that believes the reports.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
from sklearn.ensemble import RandomForestRegressor

import fairpremium
from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import nonlinear_poisson, zhang_liu_shi_2025

FOREST = RandomForestRegressor(n_estimators=200, min_samples_leaf=20)
# name: (settings, what `sensitive` is)
PAPER = {
    "boosted, true D": ({"model": "boosted"}, "true"),
    "boosted (auto)": ({"model": "boosted"}, "report"),
    "boosted, likelihood": ({"model": "boosted", "correction": "likelihood"}, "report"),
    "boosted, posterior": ({"model": "boosted", "correction": "posterior"}, "report"),
    "boosted, S taken as D": ({"model": "boosted"}, "believed"),
    "neural, true D": ({"model": "neural"}, "true"),
    "neural (auto)": ({"model": "neural"}, "report"),
    "neural, inverse": ({"model": "neural", "correction": "inverse"}, "report"),
    "random forest, posterior": ({"model": FOREST, "correction": "posterior"}, "report"),
    "linear, true D": ({}, "true"),
    "linear (auto)": ({}, "report"),
}
POISSON = {
    name: PAPER[name]
    for name in ("boosted, true D", "boosted (auto)", "boosted, S taken as D", "linear, true D", "linear (auto)")
}


def errors(prices: np.ndarray, premium: np.ndarray, truth: np.ndarray, h: np.ndarray, q: np.ndarray) -> list[float]:
    """Root mean square errors of mu over P(x, d) and of h*."""
    mu = float(np.sqrt(np.mean((q * (prices - truth) ** 2).sum(axis=1))))
    return [mu, float(np.sqrt(np.mean((premium - h) ** 2)))]


def one_seed(case: str, seed: int, wanted: list[str]) -> dict[str, list[float]]:
    warnings.simplefilter("ignore")
    draw, n = (zhang_liu_shi_2025, 5000) if case == "paper" else (nonlinear_poisson, 100_000)
    p, test = draw(n, rng=seed), draw(20_000, rng=10_000 + seed)
    channel = RandomizedResponse(p.groups, keep=0.8) if case == "paper" else RandomizedResponse(p.groups, epsilon=1.0)
    reports = channel.privatize(p.sensitive, rng=seed)
    truth, h = test.best_estimate(test.X).to_numpy(), test.discrimination_free(test.X)
    q = test.propensity(test.X).to_numpy()
    scale = 1.0 if case == "paper" else 100 / h.mean()
    found = {}
    for name in wanted:
        settings, kind = (PAPER if case == "paper" else POISSON)[name]
        pricer = DiscriminationFreePricer(
            family=p.family,
            channel=channel if kind == "report" else None,
            intervals=False,
            random_state=seed,
            **settings,
        )
        start = time.process_time()
        sensitive = p.sensitive if kind == "true" else reports
        try:
            pricer.fit(p.X, p.y, sensitive=sensitive, sample_weight=p.sample_weight)
        except (fairpremium.errors.FairPremiumError, ArithmeticError) as error:
            print(f"  {case}, seed {seed}, {name}: {type(error).__name__}: {error}", flush=True)
            continue
        seconds = time.process_time() - start
        prices = pricer.predict_best_estimate(test.X).to_numpy()
        found[name] = [*(scale * e for e in errors(prices, pricer.predict(test.X), truth, h, q)), seconds]
        if name == "boosted (auto)":
            unaware = pricer.predict_unaware(test.X)
            alike = np.repeat(unaware[:, None], len(p.groups), axis=1)
            found["boosted, unaware"] = [*(scale * e for e in errors(alike, unaware, truth, h, q)), seconds]
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", default="paper,poisson")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--names", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "models.json")
    options = parser.parse_args()
    results = {}
    for case in options.cases.split(","):
        names = [name for name in (PAPER if case == "paper" else POISSON) if options.names in name]
        seeds = range(options.seeds)
        with ProcessPoolExecutor(options.jobs) as pool:
            runs = list(pool.map(one_seed, [case] * len(seeds), seeds, [names] * len(seeds)))
        print(f"\n{case} ({len(seeds)} seeds)\n  {'':44}{'mu':>16}{'h*':>16}{'seconds':>10}")
        results[case] = {}
        for name in [*names, "boosted, unaware"]:
            values = np.array([run[name] for run in runs if name in run])
            if not len(values):
                continue
            mean, error = (
                values.mean(axis=0),
                values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(3),
            )
            print(f"  {name:44}{mean[0]:9.2f} ({error[0]:.2f}){mean[1]:9.2f} ({error[1]:.2f}){mean[2]:10.1f}")
            results[case][name] = {
                "failed": len(seeds) - len(values),
                "mu": [mean[0], error[0]],
                "h": [mean[1], error[1]],
                "worst_mu": float(values[:, 0].max()),
                "seconds": mean[2],
            }
    about = {"fairpremium": fairpremium.__version__, "seeds": options.seeds}
    options.json.write_text(json.dumps({"about": about, "results": results}, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()

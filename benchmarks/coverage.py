"""How often 95 % intervals cover the truth with the default settings: the premium h*, and differences between groups.

    FAIRPREMIUM_DATA=folder python benchmarks/coverage.py [--repeats 100] [--cases "two modes"] [--json FILE]

Simulated portfolios of 3,000 rows, unbalanced groups, two features of which one depends on the group, volumes, keep
0.8: families with the right law of the outcome and with wrong ones, groups that differ much, little and not at all.
And outcomes simulated on the real features and genders of 20,000 policies of beMTPL97, from the Poisson fit that
knows them.

Correction and pooling are "auto". For five quotes (200 policies of beMTPL97) the intervals of h* and of the difference
between the first two groups are compared with the truth; the figure is the mean over quotes, and its standard error
comes from the portfolios' own means. `width` is the mean width of the interval of h*.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.portfolios import load_belgian_motor

QUOTES = np.array([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0], [0.5, 0.5], [-0.5, -1.0]])
SHARES = {2: np.array([0.7, 0.3]), 3: np.array([0.5, 0.3, 0.2])}
Draw = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]  # outcomes from means and volumes


class Truth(NamedTuple):
    """A simulated portfolio with the reports' channel, and the true best estimates of the quotes."""

    X: pd.DataFrame
    y: np.ndarray
    weight: np.ndarray
    sensitive: np.ndarray
    channel: RandomizedResponse
    quotes: pd.DataFrame
    mu: np.ndarray  # (quotes, K)
    shares: np.ndarray


def gaussian(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return mu + rng.normal(size=len(mu)) / np.sqrt(w)


def student(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return mu + rng.standard_t(3, len(mu)) / np.sqrt(3 * w)


def exponential(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return mu + (rng.exponential(size=len(mu)) - 1) / np.sqrt(w)


def two_modes(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return mu + (rng.choice([-0.95, 0.95], len(mu)) + 0.3 * rng.normal(size=len(mu))) / np.sqrt(w)


def poisson(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return rng.poisson(w * mu) / w


def overdispersed(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return rng.poisson(w * mu * rng.gamma(1.0, 1.0, len(mu))) / w


def gamma(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return rng.gamma(2 * w, mu / (2 * w))


def lognormal(rng: np.random.Generator, mu: np.ndarray, w: np.ndarray) -> np.ndarray:
    return mu * np.exp(rng.normal(-0.5, 1.0, len(mu)))


CASES: dict[str, tuple[str, int, Draw, float]] = {  # family, groups, law, how far the groups differ
    "normal": ("normal", 2, gaussian, 1.0),
    "normal, K = 3": ("normal", 3, gaussian, 1.0),
    "normal, equal groups": ("normal", 2, gaussian, 0.0),
    "Student t3 noise": ("normal", 2, student, 1.0),
    "exponential noise": ("normal", 2, exponential, 1.0),
    "two modes": ("normal", 2, two_modes, 0.3),
    "Poisson": ("poisson", 2, poisson, 1.0),
    "Poisson, K = 3": ("poisson", 3, poisson, 0.5),
    "Poisson, overdispersed": ("poisson", 2, overdispersed, 0.3),
    "gamma": ("gamma", 2, gamma, 0.3),
    "gamma, lognormal outcomes": ("gamma", 3, lognormal, 1.0),
}


def simulated(case: str, n: int, rng: np.random.Generator) -> Truth:
    """Draw a portfolio of one of the cases."""
    family, K, law, apart = CASES[case]
    beta = np.array([[0.2 + 0.4 * k * apart, 0.3 - 0.1 * k * apart, 0.1 * k * apart] for k in range(K)])  # (K, 3)
    d = rng.choice(K, n, p=SHARES[K])
    X = np.column_stack([rng.normal(0.3 * d, 1.0), rng.normal(size=n)])
    w = rng.uniform(0.3, 1.0, n)

    def means(X: np.ndarray) -> np.ndarray:
        eta = np.column_stack([np.ones(len(X)), X]) @ beta.T
        return eta if family == "normal" else np.exp(eta)

    channel = RandomizedResponse([f"g{k}" for k in range(K)], keep=0.8)
    S = channel.privatize(np.array(channel.groups, dtype=object)[d], rng=rng)
    y = law(rng, means(X)[np.arange(n), d], w)
    columns = ["a", "b"]
    frame, quotes = pd.DataFrame(X, columns=columns), pd.DataFrame(QUOTES, columns=columns)
    return Truth(frame, y, w, S, channel, quotes, means(QUOTES), SHARES[K])


class Belgian:
    """Outcomes on the real features and genders of beMTPL97."""

    def __init__(self) -> None:
        p = load_belgian_motor()
        p.X.insert(2, "ageph_squared", (p.X["ageph"] - 47.0) ** 2)
        self.portfolio = p
        weight = np.ones(len(p)) if p.sample_weight is None else p.sample_weight
        fit = DiscriminationFreePricer("poisson", pooling=0, intervals=False)
        self.mu = fit.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=weight).predict_best_estimate(p.X).to_numpy()
        self.code = np.array([p.groups.index(g) for g in p.sensitive])
        self.shares = np.array([np.average(self.code == k, weights=weight) for k in range(len(p.groups))])
        self.weight = weight

    def draw(self, n: int, rng: np.random.Generator) -> Truth:
        """Draw policies, claims and reports."""
        p = self.portfolio
        rows = np.sort(rng.choice(len(p), n, replace=False))
        quotes = rng.choice(len(p), 200, replace=False)
        channel = RandomizedResponse(p.groups, keep=0.8)
        y = poisson(rng, self.mu[rows, self.code[rows]], self.weight[rows])
        S = channel.privatize(p.sensitive[rows], rng=rng)
        X, mu = p.X.iloc[rows].reset_index(drop=True), self.mu[quotes]
        return Truth(X, y, self.weight[rows], S, channel, p.X.iloc[quotes], mu, self.shares)


def covered(t: Truth, family: str) -> dict[str, float]:
    """Fit with the defaults; shares of quotes whose intervals cover, and the mean width."""
    pricer = DiscriminationFreePricer(family, channel=t.channel, unseen_levels="base")
    pricer.fit(t.X, t.y, sensitive=t.sensitive, sample_weight=t.weight)
    first, second = t.channel.groups[:2]

    def share(interval: tuple[np.ndarray, np.ndarray], truth: np.ndarray) -> float:
        return float(np.mean((interval[0] <= truth) & (truth <= interval[1])))

    own = pricer.predict_interval(t.quotes)
    apart = pricer.predict_interval(t.quotes, group=second, against=first)
    return {
        "premium": share(own, t.mu @ t.shares),
        "difference": share(apart, t.mu[:, 1] - t.mu[:, 0]),
        "width": float(np.mean(own.upper - own.lower)),
        "likelihood": float(pricer.correction_ == "likelihood"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--cases", default=";".join((*CASES, "beMTPL97")))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "coverage.json")
    args = parser.parse_args()
    results = []
    print(f"Coverage of 95 % intervals, {args.repeats} portfolios per case")
    for case in args.cases.split(";"):
        belgian = Belgian() if case == "beMTPL97" else None
        family = "poisson" if belgian else CASES[case][0]
        found = []
        for seed in range(args.repeats):
            rng = np.random.default_rng([seed, 15])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(covered(belgian.draw(20_000, rng) if belgian else simulated(case, args.rows, rng), family))
        table = pd.DataFrame(found)
        row = {"case": case, "portfolios": len(table)}
        for name in ("premium", "difference"):
            row |= {name: table[name].mean(), f"{name}_se": table[name].std() / np.sqrt(len(table))}
        row |= {"width": table["width"].mean(), "likelihood": table["likelihood"].mean()}
        print(
            f"{case:28s} premium {row['premium']:.3f} ({row['premium_se']:.3f})   difference {row['difference']:.3f} "
            f"({row['difference_se']:.3f})   width {row['width']:.3f}   likelihood taken {row['likelihood']:.0%}",
            flush=True,
        )
        results.append(row)
        args.json.write_text(json.dumps({"fairpremium": __version__, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Frequency times severity with a known truth: the error of h* from reports, and how often its intervals cover.

    python benchmarks/frequency_severity.py [--repeats 1000] [--rows 5000] [--error-repeats 20] [--cases "one peril"]
        [--first 0] [--json FILE]

Compound Poisson-gamma portfolios with exposures, unbalanced groups, and a feature that depends on the group. A report
is the truth with probability 0.8. "one peril" has two groups; "two perils" has three groups, two perils of which one is
rare, and 15 % of the reports missing. All settings are defaults.

Error: the root mean square relative error of h* over the policies of a portfolio of 50,000 rows, from reports and from
the attribute of the same people, and the ratio of their root mean squares over all portfolios; at most 1.2 is wanted.
Coverage: portfolios of `--rows` rows; the mean over five quotes of how often 95 % intervals of h* hold the truth, with
its standard error from the portfolios' own means. It should be 0.93 to 0.97.

`--first` is the first seed, so that several processes can share the work; their JSON files hold the sums to combine.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np
import pandas as pd

from fairpremium import FrequencySeverityPricer, RandomizedResponse, __version__

QUOTES = pd.DataFrame([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0], [0.5, 0.5], [-0.5, -1.0]], columns=["a", "b"])
SHARES = {"one peril": np.array([0.7, 0.3]), "two perils": np.array([0.5, 0.3, 0.2])}
MISSING = {"one peril": 0.0, "two perils": 0.15}
SHAPE = 2.0  # of the gamma distribution of a claim
# intercept, a, b, and what the group adds to each, for frequency and severity of every peril
PERILS = {
    "one peril": {"all": ([-1.4, 0.3, -0.2, 0.3, -0.1, 0.0], [7.0, 0.2, 0.1, 0.25, 0.0, 0.1])},
    "two perils": {
        "collision": ([-1.2, 0.2, -0.2, 0.25, 0.0, -0.05], [7.0, 0.2, 0.1, 0.15, 0.05, 0.0]),
        "theft": ([-2.2, -0.1, 0.3, -0.2, 0.0, 0.0], [8.0, 0.1, 0.0, 0.2, 0.0, 0.0]),
    },
}


class Truth(NamedTuple):
    """A simulated portfolio, and the true premium of any features."""

    X: pd.DataFrame
    counts: dict[str, np.ndarray]
    amounts: dict[str, np.ndarray]
    exposure: np.ndarray
    group: np.ndarray
    reports: np.ndarray
    channel: RandomizedResponse
    case: str

    def premium(self, X: pd.DataFrame) -> np.ndarray:
        """Compute h*(x)."""
        shares = SHARES[self.case]
        return sum(p * means(self.case, X, np.full(len(X), d)) for d, p in enumerate(shares))


def part(coefficients: list[float], X: pd.DataFrame, d: np.ndarray) -> np.ndarray:
    """Compute the means of a part for rows of these groups."""
    b0, b1, b2, c0, c1, c2 = coefficients
    a, b = X["a"].to_numpy(), X["b"].to_numpy()
    return np.exp(b0 + c0 * d + (b1 + c1 * d) * a + (b2 + c2 * d) * b)


def means(case: str, X: pd.DataFrame, d: np.ndarray) -> np.ndarray:
    """Compute the expected losses of rows of these groups."""
    return sum(part(f, X, d) * part(s, X, d) for f, s in PERILS[case].values())


def simulate(case: str, n: int, seed: int) -> Truth:
    """Draw a portfolio."""
    rng = np.random.default_rng([seed, 16, n])
    d = rng.choice(len(SHARES[case]), n, p=SHARES[case])
    X = pd.DataFrame({"a": rng.normal(0.3 * d, 1.0), "b": rng.normal(size=n)})
    e = rng.uniform(0.3, 1.0, n)
    counts, amounts = {}, {}
    for name, (frequency, severity) in PERILS[case].items():
        counts[name] = rng.poisson(e * part(frequency, X, d))
        amounts[name] = rng.gamma(SHAPE * counts[name], part(severity, X, d) / SHAPE)
    channel = RandomizedResponse([f"g{k}" for k in range(len(SHARES[case]))], keep=0.8)
    group = np.array(channel.groups, dtype=object)[d]
    reports = np.array(channel.privatize(group, rng=rng), dtype=object)
    reports[rng.random(n) < MISSING[case]] = None
    return Truth(X, counts, amounts, e, group, reports, channel, case)


def fitted(t: Truth, known: bool = False, intervals: bool = True) -> FrequencySeverityPricer:
    """Fit with the defaults, to the reports or to the attribute of the same people."""
    pricer = FrequencySeverityPricer(channel=None if known else t.channel, intervals=intervals)
    sensitive = np.where(pd.isna(t.reports), None, t.group) if known else t.reports
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pricer.fit(t.X, t.counts, t.amounts, sensitive=sensitive, exposure=t.exposure)


def errors(case: str, seed: int, n: int = 50_000) -> dict[str, float]:
    """Compute the relative errors of h* from reports and from the attribute."""
    t = simulate(case, n, seed)
    truth = t.premium(t.X)

    def error(known: bool) -> float:
        premium = fitted(t, known, intervals=False).predict(t.X)
        return float(np.sqrt(np.mean((premium / truth - 1) ** 2)))

    return {"reports": error(False), "known": error(True)}


def covered(case: str, seed: int, n: int) -> dict[str, float]:
    """Compute the share of quotes whose interval covers, its mean relative width, and the time of the fit."""
    t = simulate(case, n, seed)
    start = perf_counter()
    pricer = fitted(t)
    seconds = perf_counter() - start
    interval, truth = pricer.predict_interval(QUOTES), t.premium(QUOTES)
    return {
        "premium": float(np.mean((interval.lower <= truth) & (truth <= interval.upper))),
        "width": float(np.mean((interval.upper - interval.lower) / truth)),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--error-repeats", type=int, default=20)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--cases", default=";".join(PERILS))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "frequency_severity.json")
    args = parser.parse_args()
    results = []
    for case in args.cases.split(";"):
        row: dict[str, object] = {"case": case, "rows": args.rows, "first": args.first}
        seeds = range(args.first, args.first + args.error_repeats)
        if len(seeds):
            table = pd.DataFrame([errors(case, seed) for seed in seeds])
            mean = np.sqrt((table**2).mean())
            row |= {"error_portfolios": len(table), "error_reports": mean["reports"], "error_known": mean["known"]}
            row |= {"error_ratio": mean["reports"] / mean["known"]}
            print(
                f"{case}: error of h* {100 * mean['reports']:.2f} %, knowing D {100 * mean['known']:.2f} %, ratio "
                f"{row['error_ratio']:.3f} over {len(table)} portfolios of 50,000 rows",
                flush=True,
            )
        found = []
        for seed in range(args.first, args.first + args.repeats):
            found.append(covered(case, seed, args.rows))
            if len(found) % 50 == 0 or len(found) == args.repeats:
                table = pd.DataFrame(found)
                share, error = table["premium"].mean(), table["premium"].std() / np.sqrt(len(table))
                print(
                    f"{case}: coverage {share:.4f} ({error:.4f}), width {table['width'].mean():.3f}, "
                    f"{table['seconds'].mean():.2f} s a fit, {len(table)} portfolios of {args.rows:,} rows",
                    flush=True,
                )
        if found:
            row |= {"portfolios": len(found), "coverage": share, "coverage_se": error}
            row |= {"width": table["width"].mean(), "seconds": table["seconds"].mean()}
        results.append(row)
        args.json.write_text(json.dumps({"fairpremium": __version__, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""The audit's promises, measured: 3-standard-error rate and coverage of every table, and the time of a million rows.

    python benchmarks/audit.py                  # 1,000 simulations for each of K = 2, 3, 4; writes results/audit.json
    python benchmarks/audit.py --repetitions 20 --parts study

A population of finitely many kinds of people is known exactly: the truth of every table is the same table over the
population itself with the true attribute. Samples are drawn from it, reports through randomized response. Parts (study,
claims, speed) that are not run keep their results in the file; each says of which version it is.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

import fairpremium
from fairpremium import RandomizedResponse
from fairpremium import audit as fa

RESULTS = Path(__file__).parent / "results" / "audit.json"
KINDS = 20  # different features x
SHARES = {2: [0.6, 0.4], 3: [0.5, 0.3, 0.2], 4: [0.4, 0.3, 0.2, 0.1]}
LEVEL = 0.95


@dataclass(frozen=True)
class Population:
    """P(x, d), the means mu(x, d), and the prices that follow from them."""

    joint: np.ndarray  # (kinds, K)
    mu: np.ndarray  # (kinds, K)

    @classmethod
    def with_groups(cls, K: int) -> Population:
        x, d = np.arange(KINDS)[:, None], np.arange(K)[None]
        given = np.exp(-(((x - 8 - 2 * d) / 5) ** 2))
        joint = given / given.sum(axis=0) * np.array(SHARES[K])
        return cls(joint, np.exp(0.05 * x + d * (0.05 + 0.01 * x)))

    @property
    def groups(self) -> list[str]:
        return list("abcd"[: self.mu.shape[1]])

    def prices(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """The three prices of rows with features x, and P(D given x)."""
        given_x = self.joint / self.joint.sum(axis=1, keepdims=True)
        unaware = (self.mu * given_x).sum(axis=1)
        free = self.mu @ self.joint.sum(axis=0)
        return {"mu": self.mu[x], "unaware": unaware[x], "free": free[x], "q": given_x[x]}

    def sample(self, n: int, keep: float, rng: np.random.Generator, missing: float = 0.1) -> dict[str, Any]:
        """Rows with exposure and exponential losses; some did not report."""
        cell = rng.choice(self.joint.size, n, p=self.joint.ravel())
        x, d = np.unravel_index(cell, self.joint.shape)
        channel = RandomizedResponse(self.groups, keep=keep)
        D = np.array(self.groups, dtype=object)[d]
        S = channel.privatize(D, rng=int(rng.integers(2**31)))
        S = np.where(rng.random(n) < missing, None, S)
        y = rng.exponential(self.mu[x, d])
        return {**self.prices(x), "y": y, "D": D, "S": S, "channel": channel, "w": rng.choice([0.5, 1.0], n),
                "bins": self.clear_bins()}  # fmt: skip

    def clear_bins(self) -> int:
        """How many bins of the price have borders far from every kind of people, so that all samples agree on them."""
        mass = self.joint.sum(axis=1)[np.argsort(self.prices(np.arange(KINDS))["unaware"])]
        middle = np.cumsum(mass) - mass / 2
        return max(range(4, 9), key=lambda b: np.abs(b * middle - np.round(b * middle))[1:-1].min() / b)

    def itself(self) -> dict[str, Any]:
        """All kinds of people with their probabilities; two losses each keep mean and variance."""
        x, d = (v.ravel() for v in np.indices(self.joint.shape))
        x, d, sign = np.repeat(x, 2), np.repeat(d, 2), np.tile([-1.0, 1.0], self.joint.size)
        copies = 100  # so that no cell looks small
        x, d, sign = (np.tile(v, copies) for v in (x, d, sign))
        D = np.array(self.groups, dtype=object)[d]
        y = self.mu[x, d] * (1 + sign)
        return {
            **self.prices(x),
            "y": y,
            "D": D,
            "S": D,
            "channel": None,
            "w": self.joint[x, d],
            "bins": self.clear_bins(),
        }

    def unfairness(self) -> float:
        """Var(E[pi given D]) / Var(pi) of the unaware price."""
        pi, p = self.prices(np.arange(KINDS))["unaware"], self.joint.sum(axis=0)
        m = pi @ self.joint / p
        mean = m @ p
        return float(p @ (m - mean) ** 2 / ((pi - mean) ** 2 @ self.joint.sum(axis=1)))


Table = Callable[[dict[str, Any], dict[str, Any]], pd.DataFrame]
TABLES: dict[str, tuple[Table, list[str]]] = {
    "group means": (lambda d, r: fa.compute_group_means(d["unaware"], d["y"], **r), ["premium", "loss"]),
    "demographic disparity": (
        lambda d, r: fa.compute_demographic_disparity(d["unaware"], **r),
        ["difference", "ratio"],
    ),
    "loss-ratio gap": (lambda d, r: fa.compute_loss_ratio_gap(d["unaware"], d["y"], **r), ["loss_ratio", "gap"]),
    "group deviance": (lambda d, r: fa.compute_group_deviance(d["unaware"], d["y"], **r), ["deviance", "gap"]),
    "calibration": (
        lambda d, r: fa.compute_calibration(d["unaware"], d["y"], bins=d["bins"], **r),
        ["premium", "loss", "difference"],
    ),
    "gini": (lambda d, r: fa.compute_gini(d["unaware"], d["y"], **r), ["gini"]),
    "lorenz": (lambda d, r: fa.compute_lorenz(d["unaware"], d["y"], points=5, **r), ["losses"]),
    "prices by group": (
        lambda d, r: fa.compute_prices_by_group({"best": d["mu"], "unaware": d["unaware"], "free": d["free"]}, **r),
        ["mean"],
    ),
    "premium change": (
        lambda d, r: fa.compute_premium_change(d["unaware"], d["free"], **r),
        ["change", "relative", "pays_more"],
    ),
    "adverse selection": (
        lambda d, r: fa.compute_adverse_selection(d["unaware"], d["y"], d["mu"], **r),
        ["stays", "profit_now", "profit"],
    ),
    "balance": (
        lambda d, r: fa.compute_balance({"free": d["free"]}, d["y"], sample_weight=r["sample_weight"]),
        ["difference", "ratio"],
    ),
    "discrimination": (
        lambda d, r: fa.compute_discrimination(
            d["unaware"], best_estimate=d["mu"], discrimination_free=d["free"], propensity=d["q"], **r
        ),
        ["value"],
    ),
}  # fmt: skip


def roles(data: dict[str, Any]) -> dict[str, Any]:
    return {"sensitive": data["S"], "channel": data["channel"], "sample_weight": data["w"]}


def simulate(K: int, n: int, keep: float, repetitions: int, seed: int) -> dict[str, dict[str, Any]]:
    """Draw samples and count, over all cells of a table, how often the truth is within 3 SE and in the interval."""
    population = Population.with_groups(K)
    whole = population.itself()
    truth = {name: table(whole, roles(whole)) for name, (table, _) in TABLES.items()}
    at = truth["discrimination"]["measure"] == "demographic_unfairness"
    truth["discrimination"].loc[at, "value"] = population.unfairness()
    found: dict[str, list[np.ndarray]] = {name: [] for name in TABLES}
    rng = np.random.default_rng(seed)
    for _ in range(repetitions):
        data = population.sample(n, keep, rng)
        for name, (table, columns) in TABLES.items():
            found[name].append(judge(table(data, roles(data)), truth[name], columns))
    return {name: describe(np.stack(parts)) for name, parts in found.items()}


def judge(table: pd.DataFrame, truth: pd.DataFrame, columns: list[str]) -> np.ndarray:
    """Standardised errors and coverage of every cell: (cells, 3) of z, covered, error; nan where there is no number."""
    rows = []
    for column in columns:
        value, low, high = (table[f"{column}{end}"].to_numpy(float) for end in ("", "_low", "_high"))
        true = truth[column].to_numpy(float)
        width = (high - low) / (2 * ndtri(0.5 + LEVEL / 2))
        fixed = width <= 1e-7 * np.abs(true)  # a cell that does not vary, such as the first point of a curve
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(fixed | ~np.isfinite(value), np.nan, (value - true) / width)
        covered = np.where(np.isfinite(z), (low <= true) & (true <= high), np.nan)
        rows.append(np.column_stack([z, covered, np.where(np.isfinite(z), value - true, np.nan)]))
    return np.concatenate(rows)


def describe(parts: np.ndarray) -> dict[str, Any]:
    """parts : (repetitions, cells, 3)."""
    z, covered, error = parts[..., 0], parts[..., 1], parts[..., 2]
    counts = np.isfinite(z).sum(axis=0)
    use = counts > 0.5 * len(parts)  # cells that are mostly too small for a number say nothing about coverage
    with np.errstate(invalid="ignore", divide="ignore"):
        by_cell = np.nanmean(covered[:, use], axis=0)
        bias = np.nanmean(error[:, use], axis=0) / (np.nanstd(error[:, use], axis=0) / np.sqrt(counts[use]))
    within = np.abs(z[np.isfinite(z)]) <= 3
    return {
        "cells": int(use.sum()),
        "estimates": int(np.isfinite(z).sum()),
        "hidden": float(1 - np.isfinite(z[:, use]).mean()),
        "within_3_se": float(within.mean()),
        "coverage": float(np.nanmean(covered)),
        "coverage_lowest_cell": float(by_cell.min()),
        "coverage_highest_cell": float(by_cell.max()),
        "bias_z_rms": float(np.sqrt(np.mean(bias**2))),
    }


CLAIMS = [(5_000, 0.1, 0.8), (5_000, 0.3, 0.7), (20_000, 0.1, 0.8), (100_000, 0.02, 0.8)]  # rows, rare share, keep


def simulate_claims(n: int, share: float, keep: float, repetitions: int, seed: int) -> dict[str, float]:
    """The hard case of insurance: one policy in twenty has a claim, severities are exponential, one group is rare."""
    rng = np.random.default_rng(seed)
    frequency = np.array([0.05, 0.1])
    channel = RandomizedResponse(["common", "rare"], keep=keep)
    parts = []
    truth = pd.DataFrame({"loss": frequency})
    for _ in range(repetitions):
        d = (rng.random(n) < share).astype(int)
        y = rng.standard_gamma(rng.poisson(frequency[d]))
        S = channel.privatize(np.array(channel.groups, dtype=object)[d], rng=int(rng.integers(2**31)))
        parts.append(judge(fa.compute_group_means(np.ones(n), y, sensitive=S, channel=channel), truth, ["loss"]))
    found = np.stack(parts)
    return {
        "rows": n,
        "share": share,
        "keep": keep,
        "coverage_common": float(np.nanmean(found[:, 0, 1])),
        "coverage_rare": float(np.nanmean(found[:, 1, 1])),
        "within_3_se": float(np.nanmean(np.abs(found[..., 0][np.isfinite(found[..., 0])]) <= 3)),
        "too_few": float(np.isnan(found[:, 1, 0]).mean()),
    }


def time_rows(n: int, K: int) -> dict[str, float]:
    """Seconds of every table on n rows."""
    data = Population.with_groups(K).sample(n, 0.7, np.random.default_rng(0))
    seconds = {}
    for name, (table, _) in TABLES.items():
        start = time.perf_counter()
        table(data, roles(data))
        seconds[name] = round(time.perf_counter() - start, 3)
    seconds["all tables"] = round(sum(seconds.values()), 3)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--parts", default="study;claims;speed")
    arguments = parser.parse_args()
    document = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    about = {"version": fairpremium.__version__, "python": platform.python_version()}
    for part in arguments.parts.split(";"):
        document[part] = {**about, **PARTS[part](arguments.repetitions, arguments.rows)}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def run_study(repetitions: int, rows: int) -> dict[str, Any]:
    """Simulate every number of groups and every noise."""
    results = {}
    for K in SHARES:
        for keep in (0.9, 0.7):
            start = time.perf_counter()
            result = simulate(K, rows, keep, repetitions, seed=100 * K + int(10 * keep))
            total = pooled(result)
            results[f"K={K}, keep={keep}"] = {**result, "all": total}
            print(f"K={K} keep={keep}: {total}  ({time.perf_counter() - start:.0f} s)", flush=True)
            for name, row in result.items():
                print(f"   {name:24} {row}", flush=True)
    return {"rows": rows, "repetitions": repetitions, "missing_reports": 0.1, "level": LEVEL, "results": results}


def run_claims(repetitions: int, rows: int) -> dict[str, Any]:
    """Simulate rare claims; they have numbers of rows of their own."""
    found = [simulate_claims(*case, repetitions, seed=7) for case in CLAIMS]
    for row in found:
        print(row, flush=True)
    return {"repetitions": repetitions, "results": found}


def run_speed(repetitions: int, rows: int) -> dict[str, Any]:
    """Time every table on a million rows, once."""
    seconds = time_rows(1_000_000, 4)
    print(seconds)
    return {"seconds_for_a_million_rows": seconds}


PARTS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "study": run_study,
    "claims": run_claims,
    "speed": run_speed,
}


def pooled(result: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The rates over all cells of all tables."""
    weight = np.array([row["estimates"] for row in result.values()])
    return {
        key: round(float(np.average([row[key] for row in result.values()], weights=weight)), 4)
        for key in ("within_3_se", "coverage")
    }


if __name__ == "__main__":
    main()

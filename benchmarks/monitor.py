"""False alarms of the monitor, and how long it takes to find a drift.

    python benchmarks/monitor.py                        # 1,000 monitors of 100 looks each; writes results/monitor.json
    python benchmarks/monitor.py --repeats 50 --jobs 2 --json monitor.json

A book of PERSONS persons renews: 85 % stay in each period and send the report that they sent before, the others are
replaced by new persons. Losses and decisions are drawn afresh. Premiums move a little at each renewal. Limits are set
at the truth, the worst case: an alarm of either kind is false. A setting passes if at most 5 % of its monitors have any
alarm within all looks, up to chance (upper limit of the binomial law, 1 in 1,000).

Drifts begin in period 10: the premium of one group, the losses of one group, or the mix of the book moves for all rows.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import fairpremium
from fairpremium import RandomizedResponse
from fairpremium.monitoring import Monitor

RESULTS = Path(__file__).parent / "results" / "monitor.json"
PERSONS, STAY, BASELINE, DRIFT_FROM, LONGEST = 800, 0.85, 4, 10, 40
SHARES = {2: [0.55, 0.45], 3: [0.45, 0.3, 0.25]}
SETTINGS = [
    {"K": K, "keep": keep, "tails": tails} for K in (2, 3) for keep in (0.9, 0.7) for tails in ("light", "heavy")
]
DRIFTS = {"premium": 0.15, "losses": 0.5, "mix": 0.15}  # of one group: +15 % premium, +50 % losses, 15 points of share
LEVEL, CHANCE = 0.95, 1e-3


class Book:
    """Persons with their reports, who renew or are replaced."""

    def __init__(self, K: int, keep: float, tails: str, rng: np.random.Generator) -> None:
        self.K, self.tails, self.rng = K, tails, rng
        self.channel = RandomizedResponse(list("abc"[:K]), keep=keep)
        self.table = np.cumsum(self.channel.matrix, axis=0)  # (reports, groups)
        self.shares = np.array(SHARES[K])
        self.key = np.arange(PERSONS)
        self.group = rng.choice(K, PERSONS, p=self.shares)
        self.report = self._reports(self.group)
        self.level = rng.lognormal(0, 0.3, PERSONS)
        self.next_key = PERSONS

    def _reports(self, group: np.ndarray) -> np.ndarray:
        return (self.rng.random(len(group)) > self.table[:, group]).sum(axis=0)

    def renew(self, mix: float = 0.0) -> None:
        """Replace those who leave; `mix` moves share from the first group to the last."""
        rng = self.rng
        leaves = np.flatnonzero(rng.random(PERSONS) > STAY)
        if mix:  # everybody is asked anew by another sales channel: the book itself is another one
            leaves = np.arange(PERSONS)
        shares = self.shares.copy()
        shares[0], shares[-1] = shares[0] - mix, shares[-1] + mix
        self.key[leaves] = self.next_key + np.arange(len(leaves))
        self.next_key += len(leaves)
        self.group[leaves] = rng.choice(self.K, len(leaves), p=shares)
        self.report[leaves] = self._reports(self.group[leaves])
        self.level[leaves] = rng.lognormal(0, 0.3, len(leaves))

    def period(self, drift: str | None = None) -> dict[str, Any]:
        """Return a period of the book as `Monitor.append` takes it."""
        rng, last = self.rng, self.group == self.K - 1
        base = self.level * (1 + 0.1 * last)
        premium = base * np.exp(rng.normal(0, 0.02, PERSONS))
        premium = premium * np.where(last & (drift == "premium"), 1 + DRIFTS["premium"], 1.0)
        if self.tails == "heavy":  # a claim in 5 rows, lognormal with sigma 1.2: a skewness of about 20
            loss = rng.poisson(0.2, PERSONS) * rng.lognormal(np.log(5) - 0.72, 1.2, PERSONS)
        else:
            loss = rng.gamma(1.0, 1.0, PERSONS)
        loss = base * loss * np.where(last & (drift == "losses"), 1 + DRIFTS["losses"], 1.0)
        return {
            "premiums": premium, "y": loss, "sensitive": np.array(self.channel.reports)[self.report],
            "person": self.key, "favourable": (rng.random(PERSONS) < 0.9).astype(float), "free": base,
        }  # fmt: skip

    def monitor(self) -> Monitor:
        """Return a monitor whose limits are at the truth, for the group with the smallest true difference."""
        mean = np.exp(0.3**2 / 2)
        limits = {
            "premium_difference": (0.0, 0.1 * mean * np.exp(0.02**2 / 2)),
            "loss_ratio": (1 / 1.0000001, 1.0000001),
            "adverse_impact_ratio": (1 / 1.0000001, 1.0000001),
        }
        return Monitor(channel=self.channel, against="a", limits=limits, level=LEVEL, baseline=BASELINE)


def false_alarms(setting: dict[str, Any], looks: int, seed: int) -> list[str]:
    """Return the kinds of alarms of a monitor although nothing moves."""
    book = Book(**setting, rng=np.random.default_rng([seed, setting["K"], round(10 * setting["keep"])]))
    monitor, seen = book.monitor(), set()
    for period in range(looks):
        look = monitor.append(period, **book.period())
        seen |= {kind for alarm in look["alarm"] for kind in alarm.split(" and ") if alarm}
        book.renew()
    return sorted(seen)


def summarize(setting: dict[str, Any], looks: int, alarms: list[list[str]]) -> dict[str, Any]:
    """Say whether the false alarms of a setting are few enough."""
    monitors, alarmed = len(alarms), sum(map(bool, alarms))
    most = int(binom.isf(CHANCE, monitors, 1 - LEVEL))
    kinds = {kind: sum(kind in seen for seen in alarms) for kind in ("beyond limit", "changed")}
    return {
        **setting, "monitors": monitors, "looks": looks, "alarmed": alarmed, **kinds, "most": most,
        "passed": alarmed <= most,
    }  # fmt: skip


def delay(drift: str, keep: float, seed: int) -> int:
    """Return how many periods after a drift the first alarm comes."""
    book = Book(2, keep, "light", np.random.default_rng([seed, 99]))
    monitor = book.monitor()
    for period in range(LONGEST):
        moved = period >= DRIFT_FROM
        if period:
            book.renew(mix=DRIFTS["mix"] if moved and drift == "mix" else 0.0)
        look = monitor.append(period, **book.period(drift if moved else None))
        if moved and look["alarm"].str.contains("changed").any():
            return period - DRIFT_FROM + 1
    return LONGEST


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000, help="monitors per setting")
    parser.add_argument("--looks", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first monitor")
    parser.add_argument("--settings", default="", help="positions of settings, such as 0,3; all if left out")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--json", type=Path, default=RESULTS)
    args = parser.parse_args()
    chosen = [SETTINGS[int(i)] for i in args.settings.split(",")] if args.settings else SETTINGS
    seeds = range(args.first, args.first + args.repeats)
    few = seeds[: max(5, args.repeats // 10)]
    started, rows, drifts = time.perf_counter(), [], []
    with ProcessPoolExecutor(args.jobs) as pool:
        for setting in chosen:
            found = list(pool.map(partial(false_alarms, setting, args.looks), seeds, chunksize=5))
            rows.append(summarize(setting, args.looks, found))
            print(rows[-1], flush=True)
        for drift in DRIFTS:
            for keep in (0.9, 0.7):
                times = list(pool.map(partial(delay, drift, keep), few))
                found_share = float(np.mean([time < LONGEST for time in times]))
                row = {"drift": drift, "size": DRIFTS[drift], "keep": keep, "monitors": len(few)}
                drifts.append({**row, "median_delay": float(np.median(times)), "found": found_share})
                print(drifts[-1], flush=True)
    passed = all(row["passed"] for row in rows)
    result = {
        "version": fairpremium.__version__, "persons": PERSONS, "stay": STAY, "baseline": BASELINE,
        "false_alarms": rows, "drifts": drifts, "passed": passed, "seconds": time.perf_counter() - started,
    }  # fmt: skip
    args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print("passed" if passed else "FAILED")
    raise SystemExit(not passed)


if __name__ == "__main__":
    main()

"""How fast fits are, against one memory pass, scikit-learn, glum, LightGBM and insurance-fairness-ldp.

Every ratio compares medians of runs that alternate in one process. Default fits, with intervals, have their processor
time, and so have commands from start to end. Usage:

    python benchmarks/speed.py [--rows 2000000] [--repeats 3] [--clock processor] [--parts squared poisson defaults]
        [--json benchmarks/results/speed.json]

Parts that are left out keep the figures that the file has. On a machine that others use as well, compare processor
time with one thread for everything, which waiting does not change:

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 FAIRPREMIUM_WORKERS=1 python benchmarks/speed.py --clock processor
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from _command_calls import measure_commands
from glum import GeneralizedLinearRegressor
from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
from lightgbm import LGBMRegressor
from sklearn.linear_model import Ridge

from fairpremium import DiscriminationFreePricer, RandomizedResponse, __version__
from fairpremium.blocks._threads import count_workers

GROUPS = ["A", "B", "C", "D"]
SHARES = [0.4, 0.3, 0.2, 0.1]
FEATURES = 20
Race = Callable[[dict[str, Callable[[], Any]]], dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "speed.json")
    args = parser.parse_args()
    result = json.loads(args.json.read_text()) if args.json.exists() else {}
    for part in args.parts:
        result.setdefault("runs", {})[part] = {
            "rows": args.rows,
            "repeats": args.repeats,
            "clock": args.clock,
            "workers": count_workers(),
            "fairpremium": __version__,
            "machine": f"{platform.machine()}, {platform.python_implementation()} {platform.python_version()}",
            **PARTS[part](args.rows, partial(race_of, args.repeats, CLOCKS[args.clock])),
        }
        show(part, result["runs"][part])
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps({"runs": result["runs"]}, indent=1) + "\n")


def race_squared(n: int, race: Race) -> dict[str, dict[str, float]]:
    X, y, _, _, S, channel = make_rows(n)
    seconds = race(
        {
            "one pass over X in memory": lambda: X.sum(),
            "scikit-learn Ridge, one fit": lambda: Ridge(alpha=1e-6).fit(X, y),
            "fairpremium, 4 groups, pooling=0": lambda: pricer(channel, 0).fit(X, y, sensitive=S),
            "fairpremium, 4 groups, pooling chosen": lambda: pricer(channel, "auto").fit(X, y, sensitive=S),
            "insurance-fairness-ldp 0.1.1, 4 groups": lambda: peer_fit(channel, X, y, S),
        },
    )
    ours = seconds["fairpremium, 4 groups, pooling=0"]
    ratios = {
        "ours / one Ridge fit": ours / seconds["scikit-learn Ridge, one fit"],
        "insurance-fairness-ldp / ours": seconds["insurance-fairness-ldp 0.1.1, 4 groups"] / ours,
    }
    return {"seconds": seconds, "ratios": ratios}


def race_poisson(n: int, race: Race) -> dict[str, dict[str, float]]:
    X, _, frequency, exposure, S, channel = make_rows(n)

    def ours(model: DiscriminationFreePricer) -> DiscriminationFreePricer:
        return model.fit(X, frequency, sensitive=S, sample_weight=exposure)

    seconds = race(
        {
            "glum, one fit of all rows": lambda: glum_fit(X, frequency, exposure),
            "glum, four fits of all rows": lambda: [glum_fit(X, frequency, exposure) for _ in GROUPS],
            "glum, one fit per group of its own rows (S taken as D)": lambda: [
                glum_fit(X[g == S], frequency[g == S], exposure[g == S]) for g in GROUPS
            ],
            "fairpremium, 4 groups and unaware, pooling=0": lambda: ours(pricer(channel, 0, "poisson")),
            "fairpremium, 4 groups and unaware, pooling chosen": lambda: ours(pricer(channel, "auto", "poisson")),
            "fairpremium, score, pooling=0": lambda: ours(pricer(channel, 0, "poisson", "score")),
            "fairpremium, all defaults, with intervals": lambda: ours(default(channel)),
        },
    )
    glum, inverse = seconds["glum, one fit of all rows"], seconds["fairpremium, 4 groups and unaware, pooling=0"]
    ratios = {
        "ours / one glum fit": inverse / glum,
        "four glum fits / ours": seconds["glum, four fits of all rows"] / inverse,
        "one glum fit per group / ours": seconds["glum, one fit per group of its own rows (S taken as D)"] / inverse,
        "score / inverse": seconds["fairpremium, score, pooling=0"] / inverse,
        "all defaults / one glum fit": seconds["fairpremium, all defaults, with intervals"] / glum,
    }
    return {"seconds": seconds, "ratios": ratios}


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


def race_trees(_: int, race: Race) -> dict[str, dict[str, float]]:
    """Default boosted trees, 20,000 rows, 10 features, against one plain fit of 200 rounds."""
    X, _, frequency, exposure, S, channel = make_rows(20_000, 10, step=0.5)
    plain = LGBMRegressor(objective="poisson", n_estimators=200, verbose=-1)

    def ours(intervals: bool):
        return default(channel, model="boosted", intervals=intervals).fit(
            X, frequency, sensitive=S, sample_weight=exposure
        )

    seconds = race(
        {
            "LightGBM, one fit": lambda: plain.fit(X, frequency, sample_weight=exposure),
            "fairpremium, boosted": lambda: ours(False),
            "fairpremium, boosted, with intervals": lambda: ours(True),
        },
    )
    ratios = {
        "without intervals / one LightGBM fit": seconds["fairpremium, boosted"] / seconds["LightGBM, one fit"],
        "with intervals / one LightGBM fit": seconds["fairpremium, boosted, with intervals"]
        / seconds["LightGBM, one fit"],
    }
    return {"seconds": seconds, "ratios": ratios}


def time_defaults(_: int, race: Race) -> dict[str, dict[str, float]]:
    """Processor time of default fits with intervals, by rows, features and groups."""
    found = {}
    for n, features, groups in ((5_000, 4, 4), (50_000, 20, 4), (500_000, 20, 4), (1_000_000, 20, 3)):
        X, _, frequency, exposure, S, channel = make_rows(n, features, groups)
        start = time.process_time()
        default(channel).fit(X, frequency, sensitive=S, sample_weight=exposure)
        found[f"Poisson, {n:,} x {features}, K = {groups}"] = time.process_time() - start
    return {"processor_seconds": found}


def time_nets(_: int, race: Race) -> dict[str, dict[str, float]]:
    """Time of default networks, with intervals, on 5,000 rows."""
    X, _, frequency, exposure, S, channel = make_rows(5_000, 4, step=0.5)
    start = time.perf_counter()
    default(channel, model="neural").fit(X, frequency, sensitive=S, sample_weight=exposure)
    return {"seconds": {"neural networks, 5,000 x 4, K = 4, with intervals": time.perf_counter() - start}}


def time_commands(_: int, race: Race) -> dict[str, dict[str, float]]:
    """Processor time of every kind of command on files of a few rows, and the time of one quote."""
    runs = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure_commands(Path(folder)))
    whole, overhead = ({name: median(run[i][name] for run in runs) for name in runs[0][i]} for i in (0, 1))
    X, y, _, _, S, channel = make_rows(50_000)
    fitted = pricer(channel, 0).fit(X, y, sensitive=S)
    return {
        "seconds": {"one quote": quote_seconds(fitted, X[:1])},
        "processor_seconds": whole,
        "overhead_seconds": overhead,
    }


def peer_fit(channel, X, y, S):
    mechanism = KaryRandomisedResponse(epsilon=channel.epsilon, categories=GROUPS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LDPDiscriminationFreePrice(base_estimator=Ridge(), mechanism=mechanism).fit(X, S, y)


def glum_fit(X, y, w):
    return GeneralizedLinearRegressor(family="poisson", alpha=0).fit(X, y, sample_weight=w)


def race_of(repeats: int, clock: Callable[[], float], contestants: dict) -> dict[str, float]:
    """Median seconds of each contestant, in turns, so that a slow minute of the machine hits all.

    The threads of a library that has finished wait for more to do and take a core from the next contestant meanwhile,
    hence the pauses.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, run in contestants.items():
            time.sleep(0.3)
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: median(times) for name, times in seconds.items()}


def quote_seconds(fitted, row) -> float:
    times = []
    for _ in range(500):
        start = time.perf_counter()
        fitted.predict(row)
        times.append(time.perf_counter() - start)
    return median(times)


def show(part: str, run: dict) -> None:
    print(f"\n{part}: {run['clock']} clock, {run['workers']} workers, medians of {run['repeats']}")
    for title in ("seconds", "processor_seconds", "overhead_seconds", "ratios"):
        for name, value in run.get(title, {}).items():
            name = f"{name}, overhead" if title == "overhead_seconds" else name
            print(f"  {name:58s} {value:10.4f}{'' if title == 'ratios' else ' s'}")


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
PARTS = {
    "squared": race_squared,
    "poisson": race_poisson,
    "boosted": race_trees,
    "defaults": time_defaults,
    "neural": time_nets,
    "commands": time_commands,
}

if __name__ == "__main__":
    main()

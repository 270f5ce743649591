"""What secure reports cost: a million draws from the operating system against two other ways to draw them.

    python benchmarks/privacy.py [--json PATH] [--rows 1000000] [--repeats 7]

`system` is `RandomizedResponse.privatize`, labels in and labels out. `numpy` is the usual vectorised simulation
with numpy's generator (fast, not secure, probabilities in floats), also labels in and labels out. `secrets` is a
loop over `secrets.randbelow`, one person after the other (20,000 people, scaled). Medians of the processor time of
repeated runs.
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fairpremium
from fairpremium.privacy import RandomizedResponse

LOOP_ROWS = 20_000


def seconds(function: Callable[[], object], repeats: int) -> float:
    """The median processor time of one call, all of whose work is in this thread."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        found.append(time.process_time() - start)
    return statistics.median(found)


def numpy_draw(values: np.ndarray, channel: RandomizedResponse, rng: np.random.Generator) -> np.ndarray:
    """Keep with probability pi, else another group: what a simulation would do."""
    groups = np.array(channel.groups, dtype=object)
    codes = np.searchsorted(groups, values)
    shift = rng.integers(1, len(groups), size=len(values))
    keep = rng.random(len(values)) < channel.keep
    return groups[np.where(keep, codes, (codes + shift) % len(groups))]


def secrets_loop(values: list[str], channel: RandomizedResponse) -> list[str]:
    """The textbook loop with exact integers."""
    others = {g: [h for h in channel.groups if h != g] for g in channel.groups}
    reports = []
    for value in values:
        u = secrets.randbelow(channel.total)
        reports.append(value if u < channel.a else others[value][(u - channel.a) // channel.b])
    return reports


def measure(K: int, rows: int, repeats: int) -> dict[str, float]:
    channel = RandomizedResponse([f"group {k}" for k in range(K)], epsilon=1.0)
    rng = np.random.default_rng(0)
    values = np.array(channel.groups, dtype=object)[rng.integers(0, K, rows)]
    codes = channel.encode(values)
    few = values[:LOOP_ROWS].tolist()
    system = seconds(lambda: channel.privatize(values), repeats)
    return {
        "groups": K,
        "rows": rows,
        "system_seconds": system,
        "system_draws_only_seconds": seconds(lambda: channel._draw(codes, None), repeats),
        "numpy_seconds": (numpy := seconds(lambda: numpy_draw(values, channel, rng), repeats)),
        "secrets_seconds": (loop := seconds(lambda: secrets_loop(few, channel), repeats) * rows / LOOP_ROWS),
        "times_numpy": system / numpy,
        "faster_than_secrets": loop / system,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "privacy.json")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    results = [measure(K, options.rows, options.repeats) for K in (2, 5)]
    print(f"{options.rows:,} reports, medians of {options.repeats} runs, seconds of processor time")
    print(f"{'groups':>6} {'system':>8} {'(draws)':>8} {'numpy':>8} {'secrets':>8} {'x numpy':>8} {'x faster':>9}")
    for r in results:
        print(
            f"{r['groups']:>6} {r['system_seconds']:>8.3f} {r['system_draws_only_seconds']:>8.3f} "
            f"{r['numpy_seconds']:>8.3f} {r['secrets_seconds']:>8.3f} {r['times_numpy']:>8.2f} "
            f"{r['faster_than_secrets']:>9.1f}"
        )
    about = {
        "fairpremium": fairpremium.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    options.json.write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()

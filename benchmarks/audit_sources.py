"""Coverage of every table of the audit with reports from several sources.

    python benchmarks/audit_sources.py --repeats 1000 --json benchmarks/results/audit_sources.json
    python benchmarks/audit_sources.py --repeats 100 --first 500    # repetitions 500 to 599

Samples are drawn from the populations of ``audit.py``, whose truth is known. A report comes from an app (epsilon 1), a
survey (keep 0.9) or from people who consented to disclose. Which source it is depends on the group and on the loss: the
weights of the inverse channels are unbiased row by row, so that the tables must not mind. Ends with pass or fail: the
coverage of the 95 % intervals over all cells of all tables is between 93 and 97 per cent.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))  # as a script, too

from benchmarks.audit import SHARES, TABLES, Population, describe, judge, pooled, roles
from fairpremium import RandomizedResponse
from fairpremium.privacy import KeyedChannels

TARGET = (0.93, 0.97)


def sample(population: Population, n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Rows of a population with the reports of three sources, which depend on group and loss."""
    data = population.sample(n, 0.8, rng)
    groups = population.groups
    channels = KeyedChannels(
        {"app": RandomizedResponse(groups, epsilon=1.0), "survey": RandomizedResponse(groups, keep=0.9), "staff": None}
    )
    high = data["y"] > np.median(data["y"])
    chance = np.where(high[:, None], [0.6, 0.2, 0.2], [0.3, 0.3, 0.4])
    chance[data["D"] == groups[-1]] = [0.7, 0.2, 0.1]
    key = np.array(list(channels), dtype=object)[(rng.random(n)[:, None] > chance.cumsum(axis=1)[:, :-1]).sum(axis=1)]
    S = channels.privatize(data["D"], key, rng=int(rng.integers(2**31)))
    return {**data, "S": np.where(rng.random(n) < 0.1, None, S), "channel": channels, "key": key}


def simulate(K: int, n: int, repeats: int, first: int = 0) -> dict[str, dict[str, Any]]:
    """Count, over all cells of a table, how often the truth is within 3 standard errors and in the interval."""
    population = Population.with_groups(K)
    whole = population.itself()
    truth = {name: table(whole, roles(whole)) for name, (table, _) in TABLES.items()}
    at = truth["discrimination"]["measure"] == "demographic_unfairness"
    truth["discrimination"].loc[at, "value"] = population.unfairness()
    found: dict[str, list[np.ndarray]] = {name: [] for name in TABLES}
    for repeat in range(first, first + repeats):
        data = sample(population, n, np.random.default_rng([K, repeat]))
        given = {**roles(data), "channel_key": data["key"]}
        for name, (table, columns) in TABLES.items():
            found[name].append(judge(table(data, given), truth[name], columns))
    return {name: describe(np.stack(parts)) for name, parts in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    study, passed = {}, True
    for K in SHARES:
        result = simulate(K, arguments.rows, arguments.repeats, arguments.first)
        total = pooled(result)
        study[f"K={K}"] = {**result, "all": total}
        passed &= TARGET[0] <= total["coverage"] <= TARGET[1]
        print(f"K={K}: {total}", flush=True)
        for name, row in result.items():
            print(f"   {name:24} coverage {row['coverage']:.4f}, within 3 SE {row['within_3_se']:.4f}", flush=True)
    print("pass" if passed else "fail")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"study": study, "passed": passed}, indent=1) + "\n", encoding="utf-8")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()

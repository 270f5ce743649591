"""Run what is missing of a reproduction, in worker processes, and gather the tables of all seeds."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fairpremium.blocks import start_processes
from fairpremium.paper._experiments import EXPERIMENTS, Data, run_seed, seconds_file
from fairpremium.paper._setup import RunSize

Report = Callable[[str, int, int], None]  # what has just ended, how many have, of how many


@dataclass(frozen=True)
class SeedRun:
    """One seed of an experiment and the file that it ends in."""

    experiment: str
    seed: int
    path: Path


@dataclass
class Effort:
    """What a run computed, what it found from an earlier one, and what it cost."""

    computed: int = 0
    found: int = 0
    wall_seconds: float = 0.0


def plan_runs(experiments: Sequence[str], size: RunSize, folder: Path) -> list[SeedRun]:
    """Return every run of the experiments; the folder of a table carries the fingerprint of the size."""
    mark = size.fingerprint()
    return [
        SeedRun(experiment, seed, folder / "runs" / f"{experiment}-{mark}" / f"seed-{seed:03d}.csv")
        for experiment in experiments
        for seed in range(size.seeds)
    ]


def run_missing(runs: Sequence[SeedRun], size: RunSize, *, jobs: int, data: Data, report: Report) -> Effort:
    """Compute the tables that are not there yet.

    Every seed runs in a worker process with one thread, whatever `jobs` is: the numbers depend on neither the number of
    processes nor the order in which seeds end.
    """
    todo = sorted((t for t in runs if not t.path.is_file()), key=lambda t: (-EXPERIMENTS[t.experiment].effort, t.seed))
    effort = Effort(computed=len(todo), found=len(runs) - len(todo))
    if not todo:
        return effort
    for experiment in dict.fromkeys(t.experiment for t in todo):
        for check in EXPERIMENTS[experiment].checks:
            check(data)
    done, start = 0, time.perf_counter()
    report("", done, len(todo))
    pool = start_processes(min(jobs, len(todo)))
    try:
        waiting = {pool.submit(run_seed, t.experiment, size, t.seed, data, t.path): t for t in todo}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED)[0]:
                run = waiting.pop(future)
                future.result()
                done += 1
                report(f"{run.experiment}, seed {run.seed}", done, len(todo))
    finally:
        pool.shutdown(cancel_futures=True)
    effort.wall_seconds = time.perf_counter() - start
    return effort


def measure_cost(runs: Sequence[SeedRun]) -> dict[str, dict[str, float]]:
    """Return the processor time of the tables by experiment, and how many tables have a note of it."""
    cost: dict[str, dict[str, float]] = {}
    for run in runs:
        note = seconds_file(run.path)
        if note.is_file():
            cost_of = cost.setdefault(run.experiment, {"tables": 0, "cpu_seconds": 0.0})
            cost_of["tables"] += 1
            cost_of["cpu_seconds"] = round(cost_of["cpu_seconds"] + float(note.read_text(encoding="utf-8")), 3)
    return cost


def gather(runs: Sequence[SeedRun], experiment: str) -> pd.DataFrame:
    """Read the tables of all seeds of an experiment, in the order of the seeds."""
    tables = [
        pd.read_csv(t.path, keep_default_na=False, na_values={"value": ["", "nan"]}).assign(seed=t.seed)
        for t in runs
        if t.experiment == experiment
    ]
    return pd.concat(tables, ignore_index=True)

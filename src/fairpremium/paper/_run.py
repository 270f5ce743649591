"""Run what is missing of a reproduction, in worker processes, and gather the tables of all seeds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fairpremium.blocks import start_processes
from fairpremium.paper._settings import Settings
from fairpremium.paper._studies import STUDIES, Data, run_task, seconds_file

Report = Callable[[str, int, int], None]  # what has just ended, how many have, of how many


@dataclass(frozen=True)
class Task:
    """One seed of a study and the file that it ends in."""

    study: str
    seed: int
    path: Path


@dataclass
class Effort:
    """What a run computed, what it found from an earlier one, and what it cost."""

    computed: int = 0
    found: int = 0
    wall_seconds: float = 0.0


def plan_tasks(studies: Sequence[str], settings: Settings, folder: Path) -> list[Task]:
    """Return every task of the studies; the folder of a table carries the fingerprint of the settings."""
    mark = settings.fingerprint()
    return [
        Task(study, seed, folder / "runs" / f"{study}-{mark}" / f"seed-{seed:03d}.csv")
        for study in studies
        for seed in range(settings.seeds)
    ]


def run_tasks(tasks: Sequence[Task], settings: Settings, *, jobs: int, data: Data, report: Report) -> Effort:
    """Compute the tables that are not there yet.

    Every task runs in a worker process with one thread, whatever `jobs` is: the numbers depend on neither the number of
    processes nor the order in which tasks end.
    """
    todo = sorted((t for t in tasks if not t.path.is_file()), key=lambda t: (-STUDIES[t.study].effort, t.seed))
    effort = Effort(computed=len(todo), found=len(tasks) - len(todo))
    if not todo:
        return effort
    for study in dict.fromkeys(t.study for t in todo):
        STUDIES[study].check(data)
    done, start = 0, time.perf_counter()
    report("", done, len(todo))
    pool = start_processes(min(jobs, len(todo)))
    try:
        waiting = {pool.submit(run_task, t.study, settings, t.seed, data, t.path): t for t in todo}
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED)[0]:
                task = waiting.pop(future)
                future.result()
                done += 1
                report(f"{task.study}, seed {task.seed}", done, len(todo))
    finally:
        pool.shutdown(cancel_futures=True)
    effort.wall_seconds = time.perf_counter() - start
    return effort


def measure_cost(tasks: Sequence[Task]) -> dict[str, dict[str, float]]:
    """Return the processor time of the tables by study, whichever run computed them, and how many have a note of it."""
    cost: dict[str, dict[str, float]] = {}
    for task in tasks:
        note = seconds_file(task.path)
        if note.is_file():
            of_study = cost.setdefault(task.study, {"tables": 0, "cpu_seconds": 0.0})
            of_study["tables"] += 1
            of_study["cpu_seconds"] = round(of_study["cpu_seconds"] + float(note.read_text(encoding="utf-8")), 1)
    return cost


def gather(tasks: Sequence[Task], study: str) -> pd.DataFrame:
    """Read the tables of all seeds of a study, in the order of the seeds."""
    tables = [
        pd.read_csv(t.path, keep_default_na=False, na_values={"value": ["", "nan"]}).assign(seed=t.seed)
        for t in tasks
        if t.study == study
    ]
    return pd.concat(tables, ignore_index=True)

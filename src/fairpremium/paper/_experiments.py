"""The experiments: what one seed of each of them computes, and what it needs."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fairpremium.paper._real import run_real
from fairpremium.paper._setup import RunSize
from fairpremium.paper._synthetic import run_synthetic
from fairpremium.paper._theory import run_theory
from fairpremium.portfolios import load_auto, load_health

Data = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Experiment:
    """Runs that share their rows: one table for each seed."""

    run: Callable[[RunSize, int, Data], pd.DataFrame]  # from size, seed and data to the table of a seed
    checks: tuple[Callable[[Data], object], ...]  # they raise if data or packages that the experiment needs are missing
    effort: float  # seconds of one seed at full size, roughly, so that the longest tasks start first


def _check_torch(data: Data) -> None:
    from fairpremium.models import NeuralRepresentation  # says itself how to get torch

    NeuralRepresentation(layers=(1,), max_epochs=1, held_out=0.0, device="cpu").fit([[0.0], [1.0]], [0.0, 1.0])


EXPERIMENTS = {
    "synthetic": Experiment(lambda size, seed, data: run_synthetic(size, seed), (_check_torch,), 40),
    "health": Experiment(
        lambda size, seed, data: run_real(load_health(), size, seed), (_check_torch, lambda data: load_health()), 16
    ),
    "auto": Experiment(lambda size, seed, data: run_real(load_auto(data), size, seed), (_check_torch, load_auto), 8),
    "theory": Experiment(lambda size, seed, data: run_theory(size, seed), (), 1),
}


def run_seed(experiment: str, size: RunSize, seed: int, data: Data, path: Path) -> None:
    """Compute one seed of an experiment and write its table, and beside it the seconds of processor time that it took.

    A table that exists is complete.
    """
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # collinear columns of X~ and the like: the table is the result
        table = EXPERIMENTS[experiment].run(size, seed, data)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.part")
    table.to_csv(draft, index=False, float_format="%.10g", lineterminator="\n")
    seconds_file(path).write_text(f"{time.process_time() - start:.3f}\n", encoding="utf-8")
    draft.replace(path)


def seconds_file(path: Path) -> Path:
    """Return where the processor time of a table is noted."""
    return path.with_suffix(".seconds")

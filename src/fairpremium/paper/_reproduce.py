"""Reproduce the paper: run the experiments, write tables, draw them, judge the statements."""

import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium import __version__
from fairpremium.paper._run import Effort, Report, gather, measure_cost, plan_runs, run_missing
from fairpremium.paper._setup import CHOICES, FULL, SEED, RunSize
from fairpremium.paper.figures import FIGURES, Figure, import_altair, import_vl_convert, to_png, to_svg
from fairpremium.paper.statements import STATEMENTS, judge_statements, statements_page

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "altair", "vl-convert-python")


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction wrote.

    Attributes
    ----------
    folder : Path
    figures : tuple of str
    statements : list of dict
        As in statements.json.
    effort : Effort
        How many tables were computed and found, and what that cost.
    """

    folder: Path
    figures: tuple[str, ...]
    statements: list[dict[str, Any]]
    effort: Effort


def reproduce(
    out: str | os.PathLike[str],
    *,
    figures: Sequence[str] | None = None,
    size: RunSize = FULL,
    jobs: int = 1,
    data: str | os.PathLike[str] | None = None,
    report: Report | None = None,
) -> Reproduction:
    """Run the paper's experiments and write figures, tables and the page of statements into one folder.

    Parameters
    ----------
    out : path
        Folder to write to. Tables of single seeds stay in its folder ``runs``: what is finished there is not computed
        again, whether a run was interrupted or asks for further figures.
    figures : sequence of str, optional
        Which figures; by default all. Statements are judged as far as their experiments have run.
    size : RunSize
        `FULL` or `QUICK`.
    jobs : int
        Worker processes. Tables and statements have the same bytes for every number.
    data : path, optional
        Folder with car_insurance_claim.csv; default: the environment variable FAIRPREMIUM_DATA.
    report : function of (what, done, total), optional
        Called after each finished table.

    Returns
    -------
    Reproduction

    Raises
    ------
    ValueError
        A figure is unknown, or `jobs` is not positive.
    FileNotFoundError, MissingExtraError
        Data or a package is missing; the message says how to get it.
    """
    chosen = check_figures(figures)
    if jobs < 1:
        raise ValueError(f"Got jobs={jobs}, but expected a positive number of worker processes.")
    import_altair(), import_vl_convert()  # say now, not after an hour, that they are missing
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    experiments = list(dict.fromkeys(experiment for figure in chosen for experiment in figure.experiments))
    runs = plan_runs(experiments, size, folder)
    effort = run_missing(runs, size, jobs=jobs, data=data, report=report or (lambda what, done, total: None))
    tables = {experiment: gather(runs, experiment) for experiment in experiments}
    for figure in chosen:
        write_figure(figure, tables, folder)
    statements = _plain(judge_statements(tables))
    judged = {"seeds": size.seeds, "settings": size.name, "statements": statements}
    _write_json(folder / "statements.json", judged)
    (folder / "statements.md").write_text(statements_page(statements, size), encoding="utf-8", newline="\n")
    _write_json(folder / "metadata.json", _metadata(chosen, size, jobs, effort, measure_cost(runs)))
    return Reproduction(folder, tuple(figure.id for figure in chosen), statements, effort)


def check_figures(names: Sequence[str] | None) -> list[Figure]:
    """Return the figures of some names, all for None."""
    if not names:
        return list(FIGURES.values())
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"Got the figure {unknown[0]!r}, but expected one of: {', '.join(FIGURES)}.")
    return [FIGURES[name] for name in dict.fromkeys(names)]


def read_figure_table(path: Path) -> pd.DataFrame:
    """Read the table behind a figure; an empty cell is empty text, a number that does not exist is nan."""
    return pd.read_csv(path, keep_default_na=False, na_values=["nan"])


def write_figure(figure: Figure, tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write the table behind a figure, and the figure drawn from it as SVG and PNG."""
    path = folder / f"{figure.id}.csv"
    figure.tabulate(tables).to_csv(path, index=False, float_format="%.6g", na_rep="nan", lineterminator="\n")
    drawing = figure.draw(read_figure_table(path))
    svg = drawing if isinstance(drawing, str) else to_svg(drawing)
    (folder / f"{figure.id}.svg").write_text(svg, encoding="utf-8", newline="\n")
    (folder / f"{figure.id}.png").write_bytes(to_png(svg))


def _metadata(figures: list[Figure], size: RunSize, jobs: int, effort: Effort, cost: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "seed": SEED,
        "settings": asdict(size),
        "figures": {figure.id: figure.source for figure in figures},
        "statements": len(STATEMENTS),
        "choices": CHOICES,
        "runtime": {
            "jobs": jobs,
            "tables_computed": effort.computed,
            "tables_found": effort.found,
            "wall_seconds": round(effort.wall_seconds, 1),
            "cost": cost,
        },
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _write_json(path: Path, content: Any) -> None:
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8", newline="\n")


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: numbers with six digits, None for what is not finite."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value

"""Reproduce the paper: run the studies, write tables, draw them, judge the claims."""

from __future__ import annotations

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
from fairpremium.paper._claims import CLAIMS, judge_claims
from fairpremium.paper._claims_page import claims_page
from fairpremium.paper._figures import FIGURES, Figure
from fairpremium.paper._run import Effort, Report, gather, measure_cost, plan_tasks, run_tasks
from fairpremium.paper._settings import CHOICES, FULL, SEED, Settings
from fairpremium.paper._style import import_altair, import_vl_convert, to_png, to_svg, with_stable_names

_PACKAGES = ("numpy", "scipy", "scikit-learn", "pandas", "torch", "altair", "vl-convert-python")


@dataclass(frozen=True)
class Reproduction:
    """What a reproduction wrote.

    Attributes
    ----------
    folder : Path
    figures : tuple of str
    claims : list of dict
        As in claims.json.
    effort : Effort
        How many tables were computed and found, and what that cost.
    """

    folder: Path
    figures: tuple[str, ...]
    claims: list[dict[str, Any]]
    effort: Effort


def reproduce(
    out: str | os.PathLike[str],
    *,
    figures: Sequence[str] | None = None,
    settings: Settings = FULL,
    jobs: int = 1,
    data: str | os.PathLike[str] | None = None,
    report: Report | None = None,
) -> Reproduction:
    """Run the paper's experiments and write figures, tables and the page of claims into one folder.

    Parameters
    ----------
    out : path
        Folder to write to. Tables of single seeds stay in its folder ``runs``: what is finished there is not computed
        again, whether a run was interrupted or asks for further figures.
    figures : sequence of str, optional
        Which figures; by default all. Claims are judged as far as their studies have run.
    settings : Settings
        `FULL` or `QUICK`.
    jobs : int
        Worker processes. Tables and claims have the same bytes for every number.
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
    studies = list(dict.fromkeys(study for figure in chosen for study in figure.studies))
    tasks = plan_tasks(studies, settings, folder)
    effort = run_tasks(tasks, settings, jobs=jobs, data=data, report=report or (lambda what, done, total: None))
    tables = {study: gather(tasks, study) for study in studies}
    for figure in chosen:
        write_figure(figure, tables, folder)
    claims = _plain(judge_claims(tables))
    _write_json(folder / "claims.json", {"seeds": settings.seeds, "settings": settings.name, "claims": claims})
    (folder / "claims.md").write_text(claims_page(claims, settings), encoding="utf-8", newline="\n")
    _write_json(folder / "metadata.json", _metadata(chosen, settings, jobs, effort, measure_cost(tasks)))
    return Reproduction(folder, tuple(figure.id for figure in chosen), claims, effort)


def check_figures(names: Sequence[str] | None) -> list[Figure]:
    """Return the figures of some names, all for None."""
    if not names:
        return list(FIGURES.values())
    unknown = [name for name in names if name not in FIGURES]
    if unknown:
        raise ValueError(f"Got the figure {unknown[0]!r}, but expected one of: {', '.join(FIGURES)}.")
    return [FIGURES[name] for name in dict.fromkeys(names)]


def read_table(path: Path) -> pd.DataFrame:
    """Read the table behind a figure; an empty cell is empty text, a number that does not exist is nan."""
    return pd.read_csv(path, keep_default_na=False, na_values=["nan"])


def write_figure(figure: Figure, tables: dict[str, pd.DataFrame], folder: Path) -> None:
    """Write the table behind a figure, and the figure drawn from it as SVG and PNG."""
    path = folder / f"{figure.id}.csv"
    figure.tabulate(tables).to_csv(path, index=False, float_format="%.6g", na_rep="nan", lineterminator="\n")
    drawing = figure.draw(read_table(path))
    svg = drawing if isinstance(drawing, str) else with_stable_names(to_svg(drawing))
    (folder / f"{figure.id}.svg").write_text(svg, encoding="utf-8", newline="\n")
    (folder / f"{figure.id}.png").write_bytes(to_png(svg))


def _metadata(
    figures: list[Figure], settings: Settings, jobs: int, effort: Effort, cost: dict[str, Any]
) -> dict[str, Any]:
    return {
        "version": __version__,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "seed": SEED,
        "settings": asdict(settings),
        "figures": {figure.id: figure.source for figure in figures},
        "claims": len(CLAIMS),
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

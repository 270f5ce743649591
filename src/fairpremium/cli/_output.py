"""What commands print: the same dict as lines for people or as JSON for machines; progress on stderr."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

Result = dict[str, Any]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def show(result: Result, as_json: bool, render: Callable[[Result], None]) -> None:
    """Print a result, as JSON or with the function that knows how to lay it out."""
    if as_json:
        print(json.dumps(plain(result), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        render(result)


def print_facts(facts: dict[str, Any]) -> None:
    """Print one line per fact, the names in a column; facts that are None are left out."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            print(f"{name:<{width}}  {value}")


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on a terminal what is being done and for how long; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float, str], Any]]:
    """Show on a terminal how far something is, elsewhere nothing; the function takes a part of 1 and a few words."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda part, words: None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=1.0)

        def tell(part: float, words: str) -> None:
            bar.update(task, completed=part, description=f"{what}: {words}")

        yield tell


def stdout_console() -> Console:
    """Return a console for tables."""
    return Console(file=sys.stdout, highlight=False)


def print_table(table: Table) -> None:
    """Print a table at its natural width: a narrow terminal wraps its lines, and no number is cut."""
    console = stdout_console()
    natural = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    Console(file=sys.stdout, highlight=False, width=max(console.width, natural)).print(table)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: Python types, None for what is not finite."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shares_text(shares: dict[str, float]) -> str:
    """Write shares as ``F 0.449, M 0.551``."""
    return ", ".join(f"{group} {share:.3f}" for group, share in shares.items())

"""What people see: facts and tables on stdout, progress on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich import box
from rich import progress as bars
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def print_facts(facts: dict[str, Any]) -> None:
    """Print one line per fact, the names in a column; facts that are None are left out."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        if value is not None:
            print(f"{name:<{width}}  {value}")


_notes: list[str] = []  # of the command that runs


def add_note(text: str) -> None:
    """Keep a sentence for the end of the command; a command that fails says why, and nothing else."""
    _notes.append(text)


def print_notes() -> None:
    """Print the notes on stderr, so that stdout holds the result alone."""
    for text in dict.fromkeys(_notes):
        print(f"Note: {text}", file=sys.stderr)
    _notes.clear()


def forget_notes() -> None:
    """Forget the notes of a command that failed in this process."""
    _notes.clear()


def print_fields(result: dict[str, Any]) -> None:
    """Print the fields of a result as facts."""
    print_facts({name.replace("_", " ").capitalize(): value for name, value in result.items()})


@contextmanager
def progress(what: str, *, bar: bool = False) -> Iterator[Callable[[float, str], Any]]:
    """Show on a terminal what is being done and for how long, elsewhere nothing.

    With a `bar`, the function that is yielded takes how much is done, as a fraction of 1, and a few words; the bar also
    shows the time that is left.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda fraction, words: None
        return
    columns = [bars.SpinnerColumn(), bars.TextColumn("{task.description}"), bars.TimeElapsedColumn()]
    if bar:
        columns = [*columns[:2], bars.BarColumn(), bars.TaskProgressColumn(), columns[2], bars.TimeRemainingColumn()]
    with bars.Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(what, total=1.0 if bar else None)
        yield lambda fraction, words: shown.update(task, completed=fraction, description=f"{what}: {words}")


def stdout_console() -> Console:
    """Return a console for tables."""
    return Console(file=sys.stdout, highlight=False)


def new_table() -> Table:
    """Return an empty table in the style of all commands."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def print_table(table: Table) -> None:
    """Print a table at its natural width: a narrow terminal wraps its lines, and no number is cut."""
    console = stdout_console()
    natural = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    Console(file=sys.stdout, highlight=False, width=max(console.width, natural)).print(table)


def shares_text(shares: dict[str, float]) -> str:
    """Write shares as ``F 0.449, M 0.551``."""
    return ", ".join(f"{group} {share:.3f}" for group, share in shares.items())

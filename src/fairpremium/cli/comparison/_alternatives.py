"""``fairpremium alternatives``: a model and a portfolio in, tariffs that discriminate less out."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.alternatives import plot_alternatives, search_alternatives
from fairpremium.audit.drawing import to_svg
from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.cli._parsing import split_list, split_numbers, split_pairs
from fairpremium.cli._portfolio import Roles, column_option
from fairpremium.cli._terminal import new_table, print_table, progress
from fairpremium.cli.comparison._columns import write_column
from fairpremium.cli.comparison._model_rows import read_model_rows
from fairpremium.cli.tables import TableFormat, check_output, require_numbers, write_table

_option = option_panel("What to try")


class Disparity(StrEnum):
    """Measures of disparity."""

    proxy_discrimination = "proxy_discrimination"
    standardized_mean_difference = "standardized_mean_difference"
    kolmogorov = "kolmogorov"
    wasserstein = "wasserstein"


@dataclass(frozen=True)
class Wishes:
    """What to try, and how to compare it."""

    disparity: Annotated[Disparity, _option(help="Measure of disparity.")] = Disparity.proxy_discrimination
    drop: Annotated[
        list[str] | None,
        _option(help="Features to leave out together, such as age,region; each in turn if not given. May be repeated."),
    ] = None
    coarsen: Annotated[
        list[str] | None,
        _option(help="age=30,50 (limits) or region=3 (so many levels); what is fine if not given. May be repeated."),
    ] = None
    mixtures: Annotated[str, _option(help="Shares of the discrimination-free price, from 0 (unaware) to 1.")] = (
        "0,0.25,0.5,0.75,1"
    )
    cap: Annotated[float | None, _option(help="Largest relative change from the current price, such as 0.2.")] = None
    floor: Annotated[float | None, _option(help="Smallest relative change, such as -0.2.")] = None
    folds: Annotated[int, _option(help="Number of folds; a row is priced by a fit to the others.")] = 3
    seed: Annotated[int, _option(help="Seed of the folds.")] = 0

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `search_alternatives`."""
        return {
            "disparity": str(self.disparity),
            "drop": "each" if self.drop is None else [split_list(names, "--drop") for names in self.drop],
            "coarsen": "each" if self.coarsen is None else _coarsen(self.coarsen),
            "mixtures": _mixtures(self.mixtures),
            "cap": self.cap,
            "floor": self.floor,
            "folds": self.folds,
            "random_state": self.seed,
        }


@command
def alternatives(
    model: Annotated[Path, typer.Argument(help="Model file that fit wrote: the settings of all fits.")],
    portfolio: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, Parquet or Excel file to write: all tariffs.")],
    roles: Roles,
    wishes: Wishes,
    files: TableFormat,
    plot: Annotated[Path | None, typer.Option(help="Drawing to write, .svg.")] = None,
    current: Annotated[
        str | None, column_option(help="Column with the premiums in force; the unaware price if left out.")
    ] = None,
    cluster: Annotated[str | None, column_option(help="Column that says whose row it is.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level.")] = 0.95,
) -> Answer:
    """Search for less discriminatory alternatives: tariffs compared by accuracy and disparity.

    Features are dropped and made coarser, and the unaware price is mixed with the discrimination-free one. Accuracy is
    the deviance on rows that a fit has not seen. The table has every tariff that was tried with its changes from the
    current price, with limits that hold for all of them together; the frontier is printed.

    Example: fairpremium alternatives model.json portfolio.csv --outcome y --sensitive report -o alternatives.csv
    """
    check_output(output, inputs=[model, portfolio, roles.reports])
    if plot is not None:
        check_output(plot, suffixes=(".svg",), inputs=[model, portfolio, roles.reports])
    settings = wishes.settings()
    with progress("Reading"):
        rows = read_model_rows(model, portfolio, roles, files, [current, cluster])
    with progress("Trying", bar=True) as tell:
        found = search_alternatives(
            rows.pricer,
            rows.X,
            rows.y,
            sensitive=rows.reports,
            **rows.volume,
            cluster=None if cluster is None else rows.others[cluster],
            current=None if current is None else require_numbers(rows.others, current, portfolio),
            level=level,
            verbose=tell,
            **settings,
        )
    write_table(found.table, output)
    if plot is not None:
        plot.write_text(to_svg(plot_alternatives(found)), encoding="utf-8")
    result = {
        "rows": len(rows.X),
        "model": str(model),
        "disparity": found.disparity,
        "settings": found.settings,
        "tried": len(found.candidates),
        "current": found.table.iloc[0].to_dict(),
        "frontier": found.frontier.to_dict("records"),
        "output": str(output),
        "plot": None if plot is None else str(plot),
    }
    return Answer(result, _show)


def _show(result: dict[str, Any]) -> None:
    table = new_table()
    measure = result["disparity"].replace("_", " ")
    names = ("tariff", "deviance", "change", "from", "to", measure, "change", "from", "to")
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left")
    current = result["current"]
    others = [row for row in result["frontier"] if row["deviance_change"] or row["disparity_change"]]
    rows = [current, *others]
    columns = [[row["candidate"] for row in rows]]
    for name, digits in (("deviance", 6), ("disparity", 3)):
        columns.append(write_column([row[name] for row in rows], digits))
        changes = [row[f"{name}_change{end}"] for end in ("", "_low", "_high") for row in rows]
        texts = write_column(changes, 3, signed=True)
        columns += [texts[i * len(rows) : (i + 1) * len(rows)] for i in range(3)]
    for cells in zip(*columns, strict=True):
        table.add_row(*cells)
    print(f"{result['tried']} tariffs were tried on {result['rows']:,} rows; the frontier:")
    print_table(table)
    print(f"Written  {', '.join(filter(None, (result['output'], result['plot'])))}")


def _coarsen(given: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in split_pairs(given, "--coarsen", "age=30,50").items():
        parts = split_list(text, "--coarsen") or []
        if len(parts) == 1 and parts[0].isdigit():
            found[name] = int(parts[0])
            continue
        try:
            found[name] = [float(part) for part in parts]
        except ValueError:
            found[name] = parts
    return found


def _mixtures(text: str) -> list[float]:
    numbers = split_numbers(text, "--mixtures")
    if not isinstance(numbers, list):
        raise ValueError(f"Got --mixtures {text}, but expected numbers from 0 to 1, such as 0,0.5,1.")
    return numbers

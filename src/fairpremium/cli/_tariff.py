"""``fairpremium tariff``: a model and a portfolio in, a multiplicative tariff out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.cli._parsing import split_list, split_pairs
from fairpremium.cli._terminal import progress
from fairpremium.cli.tables import TableFormat, check_output, read_table, require_file, require_numbers
from fairpremium.models import Design
from fairpremium.pricing import load_pricer
from fairpremium.tariffs import Tariff

_WRITERS: dict[str, Callable[[Tariff, Path, str], Any]] = {
    ".xlsx": lambda tariff, path, _: tariff.to_excel(path),
    ".csv": lambda tariff, path, _: tariff.to_csv(path),
    ".sql": lambda tariff, path, table: path.write_text(tariff.to_sql(table) + ";\n", encoding="utf-8"),
    ".json": lambda tariff, path, _: tariff.save(path),
}

demand_option = option_panel("What the tariff must be")


@dataclass(frozen=True)
class Demands:
    """What an actuary demands of a tariff."""

    bands: Annotated[
        list[str] | None,
        demand_option(
            help="How a number enters: age=25,40,65 (limits), age=8 (so many bands), age=bands or age=formula; "
            "without a name for all numbers. May be repeated."
        ),
    ] = None
    monotone: Annotated[
        list[str] | None,
        demand_option(help="Order of relativities: age=up, age=down, or region=low,middle,high. May be repeated."),
    ] = None
    fixed: Annotated[list[str] | None, demand_option(help="A given relativity: region=rural:0.9. May be repeated.")] = (
        None
    )
    rounding: Annotated[float | None, demand_option(help="Round relativities to multiples of it, such as 0.01.")] = None
    minimum_premium: Annotated[float | None, demand_option(help="Smallest premium per unit of exposure.")] = None
    tolerance: Annotated[float, demand_option(help="Largest deviation that chosen bands aim at.")] = 0.05
    level: Annotated[float, demand_option(help="Confidence level of the relativities' limits.")] = 0.95

    def settings(self, design: Design) -> dict[str, Any]:
        """Return the arguments of `to_tariff`."""
        return {
            "bands": _bands(self.bands),
            "monotone": _monotone(self.monotone, design),
            "fixed": _fixed(self.fixed, design),
            "rounding": self.rounding,
            "minimum_premium": self.minimum_premium,
            "tolerance": self.tolerance,
            "level": self.level,
        }


@command
def tariff(
    model: Annotated[Path, typer.Argument(help="Model file that fit wrote.")],
    portfolio: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file with the features, one row per policy.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write: .xlsx, .csv, .sql or .json.")],
    demands: Demands,
    files: TableFormat,
    exposure: Annotated[
        str | None, typer.Option(help="Column with the exposure; one for each row if left out.")
    ] = None,
    table: Annotated[str, typer.Option(help="For .sql: the table of the risks to price.")] = "quotes",
) -> Answer:
    """Write the multiplicative tariff that is closest to the discrimination-free premium.

    The suffix of the output decides what is written: a workbook with live formulas, a table, a query, or a file for
    Tariff.load in Python. The output says how far the tariff is from the premium, and how much proxy discrimination
    it has.

    Example: fairpremium tariff model.json portfolio.csv -o tariff.xlsx
    """
    require_file(model)
    check_output(output, suffixes=tuple(_WRITERS), inputs=[model, portfolio])
    pricer = load_pricer(model)
    columns = pricer.design_.columns if pricer.design_.named else ()
    words = {c.name for c in columns if c.levels is not None and isinstance(c.levels[0], str)}
    with progress("Reading"):
        frame = read_table(portfolio, files, require=[*(c.name for c in columns), exposure], words=words)
        volume = None if exposure is None else require_numbers(frame, exposure, portfolio)
    with progress("Looking for the tariff"):
        made = pricer.to_tariff(frame, exposure=volume, **demands.settings(pricer.design_))
    _WRITERS[output.suffix.lower()](made, output, table)
    result = {
        "rows": len(frame),
        "model": str(model),
        "base": made.base,
        "minimum_premium": made.minimum_premium,
        "factors": {factor.name: {"kind": factor.kind, "rows": len(factor.labels)} for factor in made.factors},
        "deviation": made.deviation,
        "notes": list(made.notes),
        "output": str(output),
    }
    return Answer(result, _facts(result))


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    found = result["deviation"]
    factors = (
        f"{name} (formula)" if each["kind"] == "formula" else f"{name} ({each['rows']} {each['kind']})"
        for name, each in result["factors"].items()
    )
    least = result["minimum_premium"]
    return {
        "Tariff": f"of {result['model']} for {result['rows']:,} rows",
        "Factors": ", ".join(factors),
        "Base": f"{result['base']:.6g}",
        "Minimum": None if least is None else f"{least:g}",
        "Deviation": "median {median:.2%}, 99th percentile {p99:.2%}, largest {largest:.2%}".format(**found),
        "Proxies": "{proxy_discrimination_after:.4f} of the tariff, {proxy_discrimination_unaware:.4f} of the unaware "
        "price (0: no proxy discrimination)".format(**found),
        "Note": next((note for note in result["notes"] if note.startswith("No bands")), None),
        "Written": result["output"],
    }


def _bands(given: list[str] | None) -> Any:
    if given is None:
        return None
    if len(given) == 1 and "=" not in given[0]:
        return _wish(given[0])
    return {name: _wish(text) for name, text in split_pairs(given, "--bands", "age=25,40,65").items()}


def _wish(text: str) -> Any:
    if text in ("formula", "bands"):
        return text
    parts = split_list(text, "--bands") or []
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise ValueError(
            f'Got --bands with {text!r}, but expected limits such as 25,40,65, a number of bands, "bands" or "formula".'
        ) from None
    return int(text) if len(parts) == 1 and text.isdigit() else numbers


def _monotone(given: list[str] | None, design: Design) -> dict[str, Any] | None:
    if given is None:
        return None
    found: dict[str, Any] = {}
    for name, text in split_pairs(given, "--monotone", "age=up").items():
        known = _levels(design, name)
        found[name] = [known.get(part, part) for part in split_list(text, "--monotone") or []] if known else text
    return found


def _fixed(given: list[str] | None, design: Design) -> dict[str, dict[Any, float]] | None:
    if given is None:
        return None
    found: dict[str, dict[Any, float]] = {}
    for each in given:
        ((name, text),) = split_pairs([each], "--fixed", "region=rural:0.9").items()
        level, colon, number = text.rpartition(":")
        try:
            value = float(number)
        except ValueError:
            colon = ""
        if not colon:
            raise ValueError(f"Got --fixed with {each!r}, but expected a level and a number: region=rural:0.9.")
        found.setdefault(name, {})[_levels(design, name).get(level, level)] = value
    return found


def _levels(design: Design, name: str) -> dict[str, Any]:
    """Return the levels of a column by how they are written on the command line."""
    return {str(level): level for c in design.columns if c.name == name for level in c.levels or ()}

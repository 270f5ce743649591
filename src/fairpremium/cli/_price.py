"""``fairpremium price``: a model and features in, premiums out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fairpremium.cli._files import check_output, read_table, require_columns, write_table
from fairpremium.cli._large import is_large
from fairpremium.cli._output import JsonOption, print_facts, progress, show
from fairpremium.pricing import DiscriminationFreePricer

_DEFAULT_LEVEL = 0.95


def price(
    model: Annotated[Path, typer.Argument(help="Model file that fit wrote.")],
    new: Annotated[Path, typer.Argument(help="CSV or Parquet file, or folder, with the features.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV or Parquet file to write.")],
    level: Annotated[float | None, typer.Option(help="Confidence level of low and high; 0.95.")] = None,
    key: Annotated[str | None, typer.Option(help="Column to put in front, such as policy.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Add the unaware price and one best estimate per group.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compute premiums with confidence limits, in the order of the rows.

    The output has the columns premium, low and high; only premium if the model was fitted with
    --no-intervals. The sensitive attribute is not needed and not read. Folders and large Parquet files are
    read piece by piece; the output is then a Parquet file, or a folder of them if its name has no suffix.

    Example: fairpremium price model.json new.csv -o premiums.csv
    """
    if not model.is_file():
        raise ValueError(f"There is no file {model}.")
    if is_large(new):
        show(_price_large(model, new, output, level, key, every), as_json, render_prices)
        return
    check_output(output, inputs=[model, new])
    pricer = DiscriminationFreePricer.load(model)
    show(price_table(pricer, str(model), new, output, level, key, every), as_json, render_prices)


def price_table(
    pricer: DiscriminationFreePricer,
    source: str,
    new: Path,
    output: Path,
    level: float | None,
    key: str | None,
    every: bool,
) -> dict[str, Any]:
    """Price a table that fits into memory; `source` says where the model comes from."""
    with progress("Pricing"):
        frame = _read(pricer, new, key)
        table = _premiums(pricer, frame, level, every)
        if key is not None:
            _prepend(table, frame, key)
        write_table(table, output)
    premium = table["premium"]
    return {
        "rows": len(table),
        "model": source,
        "level": (level or _DEFAULT_LEVEL) if "low" in table else None,
        "premium": {"mean": premium.mean(), "min": premium.min(), "max": premium.max()},
        "columns": list(table.columns),
        "output": str(output),
    }


def _price_large(
    model: Path, new: Path, output: Path, level: float | None, key: str | None, every: bool
) -> dict[str, Any]:
    """Price without ever holding the table."""
    if every:
        raise ValueError(f"--all needs a table that is read at once, but {new} is read piece by piece. Leave it out.")
    if output.suffix.lower() not in ("", ".parquet"):
        raise ValueError(
            f"{new} is read piece by piece, so the output is a .parquet file or a folder. Got {str(output)!r}."
        )
    pricer = DiscriminationFreePricer.load(model)
    if level is None and pricer.intervals:
        level = _DEFAULT_LEVEL
    columns = [] if key is None else [key]
    with progress("Pricing"):
        priced = pricer.predict_to(new, output, columns=columns, level=level)
    return {
        "rows": priced.rows,
        "model": str(model),
        "level": level,
        "premium": {"mean": priced.mean, "min": priced.smallest, "max": priced.largest},
        "columns": [*columns, "premium", *(["low", "high"] if level is not None else [])],
        "output": str(output),
    }


def render_prices(result: dict[str, Any]) -> None:
    """Print what was priced."""
    premium, level = result["premium"], result["level"]
    print_facts(
        {
            "Priced": f"{result['rows']:,} rows with {result['model']}",
            "Premium": f"mean {premium['mean']:.6g}, from {premium['min']:.6g} to {premium['max']:.6g}",
            "Intervals": f"{100 * level:g} %" if level else "none (the model was fitted with --no-intervals)",
            "Columns": ", ".join(result["columns"]),
            "Written": result["output"],
        }
    )


def _read(pricer: DiscriminationFreePricer, new: Path, key: str | None) -> pd.DataFrame:
    columns = pricer.design_.columns
    words = {c.name for c in columns if c.levels is not None and isinstance(c.levels[0], str)}
    frame = read_table(new, text=set() if key is None else {key}, words=words)
    features = [c.name for c in columns] if pricer.design_.named else []
    require_columns(frame, [*features, key], new)
    return frame


def _premiums(pricer: DiscriminationFreePricer, frame: pd.DataFrame, level: float | None, every: bool) -> pd.DataFrame:
    table = pd.DataFrame({"premium": pricer.predict(frame)})
    if pricer.intervals or level is not None:
        table["low"], table["high"] = pricer.predict_interval(frame, _DEFAULT_LEVEL if level is None else level)
    if every:
        table["unaware"] = pricer.predict_unaware(frame)
        best = pricer.predict_best_estimate(frame)
        for k, group in enumerate(pricer.groups_):
            table[f"best_estimate_{group}"] = best.iloc[:, k].to_numpy()
    return table


def _prepend(table: pd.DataFrame, frame: pd.DataFrame, key: str) -> None:
    if key in table.columns:
        raise ValueError(f"--key {key} is the name of an output column. Rename the column of the input.")
    table.insert(0, key, frame[key].to_numpy())

"""``fairpremium price``: a model and features in, premiums out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pandas as pd
import typer

from fairpremium.cli._command import Answer, command
from fairpremium.cli._terminal import progress
from fairpremium.cli.tables import TableFormat, check_output, read_table, require_file, write_table
from fairpremium.progress import listening

if TYPE_CHECKING:
    from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer

    Pricer = DiscriminationFreePricer | FrequencySeverityPricer

_DEFAULT_LEVEL = 0.95


@dataclass(frozen=True)
class PriceOptions:
    """The options of pricing, wherever the model comes from."""

    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, Parquet or Excel file to write.")]
    level: Annotated[float | None, typer.Option(help="Confidence level of low and high; 0.95.")] = None
    every: Annotated[bool, typer.Option("--all", help="Add the unaware price and one best estimate per group.")] = False


@command
def price(
    model: Annotated[Path, typer.Argument(help="Model file that fit wrote.")],
    new: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, or folder, with the features.")],
    options: PriceOptions,
    files: TableFormat,
    key: Annotated[str | None, typer.Option(help="Column to put in front, such as policy.")] = None,
) -> Answer:
    """Compute premiums with confidence limits, in the order of the rows.

    The output has the columns premium, low and high; only premium if the model was fitted with
    --no-intervals. The sensitive attribute is not needed and not read. Folders and large Parquet files are
    read piece by piece; the output is then a Parquet file, or a folder of them if its name has no suffix.

    Example: fairpremium price model.json new.csv -o premiums.csv
    """
    require_file(model)
    from fairpremium.cli._large_portfolio import is_large
    from fairpremium.pricing import load_pricer

    if is_large(new):
        return _price_large(model, new, options, key)
    check_output(options.output, inputs=[model, new])
    return price_rows(load_pricer(model), str(model), new, options, files, key)


def price_rows(
    pricer: Pricer,
    source: str,
    new: Path,
    options: PriceOptions,
    files: TableFormat,
    key: str | None,
) -> Answer:
    """Price a table that fits into memory; `source` says where the model comes from."""
    with progress("Pricing"):
        frame = _read(pricer, new, files, key)
        table = _premiums(pricer, frame, options)
        if key is not None:
            if key in table.columns:
                raise ValueError(f"--key {key} is the name of an output column. Rename the column of the input.")
            table.insert(0, key, frame[key].to_numpy())
        write_table(table, options.output)
    level = (options.level or _DEFAULT_LEVEL) if "low" in table else None
    premium = {name: getattr(table["premium"], name)() for name in ("mean", "min", "max")}
    return _answer(len(table), source, level, premium, list(table.columns), options.output)


def _price_large(model: Path, new: Path, options: PriceOptions, key: str | None) -> Answer:
    """Price without ever holding the table."""
    from fairpremium.pricing import load_pricer

    output, level = options.output, options.level
    if options.every:
        raise ValueError(f"--all needs a table that is read at once, but {new} is read piece by piece. Leave it out.")
    if output.suffix.lower() not in ("", ".parquet"):
        raise ValueError(
            f"{new} is read piece by piece, so the output is a .parquet file or a folder. Got {str(output)!r}."
        )
    pricer = load_pricer(model)
    if level is None and pricer.intervals:
        level = _DEFAULT_LEVEL
    columns = [] if key is None else [key]
    with progress("Pricing", bar=True) as show, listening(show):
        priced = pricer.predict_to(new, output, columns=columns, level=level)
    columns += ["premium", *(["low", "high"] if level is not None else [])]
    premium = {"mean": priced.mean, "min": priced.smallest, "max": priced.largest}
    return _answer(priced.rows, str(model), level, premium, columns, output)


def _answer(
    rows: int, source: str, level: float | None, premium: dict[str, float], columns: list[str], output: Path
) -> Answer:
    result = {
        "rows": rows,
        "model": source,
        "level": level,
        "premium": premium,
        "columns": columns,
        "output": str(output),
    }
    facts = {
        "Priced": f"{rows:,} rows with {source}",
        "Premium": "mean {mean:.6g}, from {min:.6g} to {max:.6g}".format(**premium),
        "Intervals": f"{100 * level:g} %" if level else "none (the model was fitted with --no-intervals)",
        "Columns": ", ".join(columns),
        "Written": str(output),
    }
    return Answer(result, facts)


def _read(pricer: Pricer, new: Path, files: TableFormat, key: str | None) -> pd.DataFrame:
    design = pricer.design_
    words = {c.name for c in design.columns if c.levels is not None and isinstance(c.levels[0], str)}
    features = [c.name for c in design.columns] if design.named else []
    return read_table(new, files, require=[*features, key], text={key}, words=words)


def _premiums(pricer: Pricer, frame: pd.DataFrame, options: PriceOptions) -> pd.DataFrame:
    table = pd.DataFrame({"premium": pricer.predict(frame)})
    if pricer.intervals or options.level is not None:
        level = _DEFAULT_LEVEL if options.level is None else options.level
        table["low"], table["high"] = pricer.predict_interval(frame, level)
    if options.every:
        table["unaware"] = pricer.predict_unaware(frame)
        best = pricer.predict_best_estimate(frame)
        for k, group in enumerate(pricer.groups_):
            table[f"best_estimate_{group}"] = best.iloc[:, k].to_numpy()
    return table

"""``fairpremium audit``: any price list with noisy reports in, an audit report about who pays what out."""

import hashlib
import textwrap
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fairpremium.audit import MAX_GROUPS, limit_changes, save_report, summarize_prices
from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.cli._model_options import make_family
from fairpremium.cli._parsing import split_list
from fairpremium.cli._portfolio import Data, Roles, column_option, load_data
from fairpremium.cli._report_source import ReportSource
from fairpremium.cli._terminal import progress, stdout_console
from fairpremium.cli.tables import (
    TableFormat,
    check_output,
    read_table,
    require_file,
    require_filled,
    require_numbers,
    write_table,
)
from fairpremium.models import check_volume
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, load_pricer
from fairpremium.privacy import Channel

_MAX_CLASSES = 50
_LIMITED = "limited_premium"
_FORMATS = (".html", ".md", ".json")
_option = option_panel("Report")
_limit = option_panel("Limits on the change")


@command
def audit(
    prices: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy.")],
    premium: Annotated[str, column_option(help="Column with the prices to audit.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Report to write: .html, .md or .json.")],
    roles: Roles,
    source: ReportSource,
    files: TableFormat,
    features: Annotated[
        str | None, column_option(help="Columns that a tariff may use: adds what proxies do in this list.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file that fit wrote, instead of a fit to these rows, for the same.")
    ] = None,
    current: Annotated[
        str | None, column_option(help="Column with the premiums in force: adds who moves how much from them.")
    ] = None,
    cap: Annotated[float | None, _limit(help="Largest relative change from --current, such as 0.2.")] = None,
    floor: Annotated[float | None, _limit(help="Smallest relative change, such as -0.2.")] = None,
    limited: Annotated[
        Path | None, _limit(help="CSV or Parquet file to write: the rows with the limited premiums.")
    ] = None,
    by: Annotated[str | None, column_option(help="Column with classes to look into one by one.")] = None,
    cluster: Annotated[str | None, column_option(help="Column that says whose row it is.")] = None,
    family: Annotated[str, _option(help="Whose deviance measures the premium's error.")] = "normal",
    power: Annotated[float | None, _option(help="Variance power of tweedie; 1.5.")] = None,
    level: Annotated[float, _option(help="Confidence level.")] = 0.95,
    title: Annotated[str, _option(help="Title of the audit report.")] = "Who pays what, and is it fair?",
    unit: Annotated[str, _option(help="What an amount is measured in, such as 'EUR a year'.")] = "",
    interactive: Annotated[bool, _option("--interactive", help="Charts that answer to the mouse.")] = False,
) -> Answer:
    """Audit a price list of any origin from noisy reports alone: who pays what, and is it fair?

    Writes one page with tables, charts and a summary in plain words, or the same as Markdown or JSON. Say
    how the reports were drawn as for fit; reports that privatize wrote say it themselves.

    With --features, or with --model, the audit report also says what proxies do in this list and what a
    discrimination-free list with the same total would charge. With --current it says who moves how much from the
    premiums in force. --cap and --floor limit that change; new premiums are multiplied so that their total stays.

    Example: fairpremium audit prices.csv --premium premium --outcome y --sensitive report --keep 0.8
    -o report.html
    """
    check_output(output, suffixes=_FORMATS, inputs=[prices, roles.reports, source.channel, model])
    if limited is not None:
        check_output(limited, inputs=[prices, roles.reports, source.channel, model])
    _check_limits(current, cap, floor, limited)
    pricer, chosen = _features(features, model)
    estimator = source.estimator(files=files)
    law = make_family(family, power)
    with progress("Reading"):
        named = (premium, by, cluster, current, *chosen)
        columns = list(dict.fromkeys(name for name in named if name is not None))
        data = load_data(prices, roles, columns, files)
        _check_groups(data, roles.sensitive, source)
        found, reported, said_by = source.resolve(data, estimator)
        premiums = require_numbers(data.X, premium, prices)
        classes = None if by is None else _classes(data.X[by], prices)
        in_force = None if current is None else require_numbers(data.X, current, prices)
        table = _as_learned(data.X[chosen], pricer) if chosen else None
    with progress("Auditing"):
        channel, said_by = _channel(found, data, reported, said_by)
        summary = summarize_prices(
            premiums,
            data.y,
            sensitive=reported,
            channel=channel,
            **data.volume,
            cluster=None if cluster is None else data.X[cluster],
            by=classes,
            level=level,
            family=law,
            title=title,
            unit=unit,
            hashes={
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (prices, roles.reports)
                if path is not None
            },
            channel_source=said_by,
            channel_estimated=estimator is not None,
            X=table,
            pricer=pricer,
            current=in_force,
            cap=cap,
            floor=floor,
        )
        if limited is not None:
            found_limits = limit_changes(in_force, premiums, cap=cap, floor=floor, **data.volume)
            rows = read_table(prices, all_text=True)  # as they are
            if _LIMITED in rows:
                raise ValueError(f"{prices} has a column {_LIMITED!r} already, which --limited writes. Rename it.")
            write_table(rows.assign(**{_LIMITED: found_limits.premiums}), limited)
        save_report(summary, output, interactive=interactive)
    return Answer({**summary, "output": str(output)}, _render)


def _check_limits(current: str | None, cap: float | None, floor: float | None, limited: Path | None) -> None:
    """Raise if something is missing to limit a change."""
    given = {"--cap": cap, "--floor": floor, "--limited": limited}
    named = [name for name, value in given.items() if value is not None]
    if named and current is None:
        raise ValueError(f"{named[0]} needs --current, the column with the premiums in force.")
    if limited is not None and cap is None and floor is None:
        raise ValueError("--limited needs --cap or --floor, the limits of the change.")


def _features(
    features: str | None, model: Path | None
) -> tuple[DiscriminationFreePricer | FrequencySeverityPricer | None, list[str]]:
    """Return the given model, and the columns that it or a new one prices with; none if neither is asked for."""
    if model is None:
        return None, split_list(features, "--features") or []
    if features is not None:
        raise ValueError("Got --features and --model, but expected one of them: a model has its own features.")
    pricer = load_pricer(require_file(model))
    if not pricer.design_.named:
        raise ValueError(f"{model} was fitted to an array; expected a model whose features have names.")
    return pricer, list(pricer.design_.names)


def _as_learned(table: pd.DataFrame, pricer: DiscriminationFreePricer | FrequencySeverityPricer | None) -> pd.DataFrame:
    """Return levels that look like numbers as the text that the model has learned."""
    columns = () if pricer is None else pricer.design_.columns
    texts = [c.name for c in columns if c.levels is not None and isinstance(c.levels[0], str)]
    return table.astype(dict.fromkeys(texts, str))


def _check_groups(data: Data, sensitive: str, source: ReportSource) -> None:
    """Raise if there are more groups than an audit report can show, before a channel of that size is made."""
    declared = data.described or source.given
    number = len(declared.channel.groups) if declared else len(source.labels or ()) or data.reports.nunique()
    if number > MAX_GROUPS:
        raise ValueError(
            f"Column {sensitive!r} of {data.reports_path} has {number} different groups; expected at most "
            f"{MAX_GROUPS}. Merge them first, such as ages to bands (before reports are drawn), or name another "
            "column with --sensitive."
        )


def _classes(column: pd.Series, path: Path) -> pd.Series:
    number = require_filled(column, path, "a class").nunique()
    if number > _MAX_CLASSES:
        raise ValueError(
            f"Column {column.name!r} of {path} has {number} different values; expected at most {_MAX_CLASSES} classes. "
            "Group them first, such as ages in bands."
        )
    labels = {value: f"{column.name}: {value}" for value in sorted(column.unique())}
    return pd.Series(pd.Categorical(column.map(labels), categories=list(labels.values())))


def _channel(
    found: Channel | NoiseEstimator | None, data: Data, reported: pd.Series, source: str
) -> tuple[Channel | None, str]:
    """Return the channel, estimated if need be, and who says so."""
    if not isinstance(found, NoiseEstimator):
        return found, "" if found is None else source
    y, volume = check_volume(data.y, len(data.y), data.weight, data.exposure)
    found.fit(data.X, y, sensitive=reported, sample_weight=volume)
    return found.require_channel(), f"estimated, not declared. {found.message_}"


def _render(result: dict[str, Any]) -> None:
    console = stdout_console()
    for finding in result["findings"]:
        mark = "! " if finding["tone"] == "attention" else "  "
        heading = finding["heading"]
        text = f"{heading}{'' if heading.endswith('?') else ':'} {finding['text']}"
        lines = textwrap.wrap(text, max(40, console.width - 2), break_on_hyphens=False)
        print("\n".join((mark if i == 0 else "  ") + line for i, line in enumerate(lines)))
    print(f"\nWritten  {result['output']}")

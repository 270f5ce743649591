"""``fairpremium audit``: any price list with noisy reports in, a report about who pays what out."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fairpremium.audit import MAX_GROUPS, save_report, summarize_prices
from fairpremium.cli._arguments import (
    COLUMNS,
    ChannelOption,
    EpsilonOption,
    FirstColumnOption,
    GroupsOption,
    KeepOption,
    KeyOption,
    MarginOption,
    OutcomeOption,
    ReportColumnOption,
    ReportsOption,
    RetestOption,
    SecondColumnOption,
    SensitiveOption,
    TrueAttributeOption,
    TrueColumnOption,
    ValidationOption,
    WeightOption,
)
from fairpremium.cli._channels import Described, load_channel
from fairpremium.cli._files import check_output, require_numbers
from fairpremium.cli._fit import make_family
from fairpremium.cli._noise import NoiseOptions, make_estimator
from fairpremium.cli._options import split_list, split_weights
from fairpremium.cli._output import JsonOption, progress, show, stdout_console
from fairpremium.cli._portfolio import Data, Roles, load_data
from fairpremium.cli._source import check_one_source, resolve_channel
from fairpremium.noise import NoiseEstimator
from fairpremium.privacy import Channel

_REPORT = "Report"
_MAX_CLASSES = 50
_FORMATS = (".html", ".md", ".json")


def audit(
    prices: Annotated[Path, typer.Argument(help="CSV or Parquet file, one row per policy.")],
    premium: Annotated[str, typer.Option(help="Column with the prices to audit.", rich_help_panel=COLUMNS)],
    outcome: OutcomeOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Report to write: .html, .md or .json.")],
    sensitive: SensitiveOption = "report",
    weight: WeightOption = None,
    by: Annotated[
        str | None, typer.Option(help="Column with classes to look into one by one.", rich_help_panel=COLUMNS)
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Column that says whose row it is.", rich_help_panel=COLUMNS)
    ] = None,
    reports: ReportsOption = None,
    key: KeyOption = None,
    keep: KeepOption = None,
    epsilon: EpsilonOption = None,
    channel: ChannelOption = None,
    groups: GroupsOption = None,
    true_attribute: TrueAttributeOption = False,
    margin: MarginOption = None,
    validation: ValidationOption = None,
    true_column: TrueColumnOption = "true",
    report_column: ReportColumnOption = "report",
    retest: RetestOption = None,
    first_column: FirstColumnOption = "first",
    second_column: SecondColumnOption = "second",
    family: Annotated[
        str, typer.Option(help="Whose deviance measures the premium's error.", rich_help_panel=_REPORT)
    ] = "normal",
    power: Annotated[
        float | None, typer.Option(help="Variance power of tweedie; 1.5.", rich_help_panel=_REPORT)
    ] = None,
    level: Annotated[float, typer.Option(help="Confidence level.", rich_help_panel=_REPORT)] = 0.95,
    title: Annotated[str, typer.Option(help="Title of the report.", rich_help_panel=_REPORT)] = (
        "Who pays what, and is it fair?"
    ),
    unit: Annotated[
        str, typer.Option(help="What an amount is measured in, such as 'EUR a year'.", rich_help_panel=_REPORT)
    ] = "",
    interactive: Annotated[
        bool, typer.Option("--interactive", help="Charts that answer to the mouse.", rich_help_panel=_REPORT)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Audit a price list of any origin from noisy reports alone: who pays what, and is it fair?

    Writes one page with tables, charts and a summary in plain words, or the same as Markdown or JSON. Say
    how the reports were drawn as for fit; reports that privatize wrote say it themselves.

    Example: fairpremium audit prices.csv --premium premium --outcome y --sensitive report --keep 0.8
    -o report.html
    """
    check_output(output, suffixes=_FORMATS, inputs=[prices, reports, channel])
    labels = split_list(groups, "--groups")
    options = NoiseOptions(
        None, split_weights(margin, "--margin"), validation, true_column, report_column, retest, first_column,
        second_column,
    )  # fmt: skip
    estimator = make_estimator(options, labels, None)
    check_one_source(keep, epsilon, channel, true_attribute, options.names())
    law = make_family(family, power)
    with progress("Reading"):
        data = load_data(prices, Roles(outcome, sensitive, weight, key), _extra(premium, by, cluster), reports)
        given = None if channel is None else load_channel(channel)
        _check_groups(data, sensitive, given, labels)
        found, reported, source = resolve_channel(
            data, labels, (keep, epsilon), given, true_attribute, estimator, options.names()
        )
        premiums = require_numbers(data.X, premium, prices)
        classes = None if by is None else _classes(data, by, prices)
    with progress("Auditing"):
        used, source = _channel(found, data, reported, source)
        summary = summarize_prices(
            premiums,
            data.y,
            sensitive=reported,
            channel=used,
            sample_weight=data.weight,
            cluster=None if cluster is None else data.X[cluster],
            by=classes,
            level=level,
            family=law,
            title=title,
            unit=unit,
            hashes={path.name: _sha256(path) for path in (prices, reports) if path is not None},
            channel_source=source,
            channel_estimated=estimator is not None,
        )
        save_report(summary, output, interactive=interactive)
    show({**summary, "output": str(output)}, as_json, _render)


def _extra(premium: str, by: str | None, cluster: str | None) -> list[str]:
    """Return the columns to read besides those that every command has."""
    return list(dict.fromkeys(name for name in (premium, by, cluster) if name is not None))


def _check_groups(data: Data, sensitive: str, given: Described | None, labels: list[str] | None) -> None:
    """Raise if there are more groups than a report can show, before a channel of that size is made."""
    declared = data.described or given
    number = len(declared.channel.groups) if declared else len(labels or ()) or data.reports.nunique()
    if number > MAX_GROUPS:
        raise ValueError(
            f"Column {sensitive!r} of {data.reports_path} has {number} different groups; expected at most "
            f"{MAX_GROUPS}. Merge them first, such as ages to bands (before reports are drawn), or name another "
            "column with --sensitive."
        )


def _classes(data: Data, by: str, path: Path) -> pd.Series:
    column = data.X[by]
    if column.isna().any():
        raise ValueError(
            f"Column {by!r} of {path} is empty in {int(column.isna().sum())} rows; expected a class in each."
        )
    number = column.nunique()
    if number > _MAX_CLASSES:
        raise ValueError(
            f"Column {by!r} of {path} has {number} different values; expected at most {_MAX_CLASSES} classes. Group "
            "them first, such as ages in bands."
        )
    labels = {value: f"{by}: {value}" for value in sorted(column.unique())}
    return pd.Series(pd.Categorical(column.map(labels), categories=list(labels.values())))


def _channel(
    found: Channel | NoiseEstimator | None, data: Data, reported: pd.Series, source: str
) -> tuple[Channel | None, str]:
    """Return the channel, estimated if need be, and who says so."""
    if not isinstance(found, NoiseEstimator):
        return found, "" if found is None else source
    found.fit(data.X, data.y, sensitive=reported, sample_weight=data.weight)
    return found.require_channel(), f"estimated, not declared. {found.message_}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _render(result: dict[str, Any]) -> None:
    console = stdout_console()
    for finding in result["findings"]:
        mark = "! " if finding["tone"] == "attention" else "  "
        heading = finding["heading"]
        text = f"{heading}{'' if heading.endswith('?') else ':'} {finding['text']}"
        lines = textwrap.wrap(text, max(40, console.width - 2), break_on_hyphens=False)
        print("\n".join((mark if i == 0 else "  ") + line for i, line in enumerate(lines)))
    print(f"\nWritten  {result['output']}")

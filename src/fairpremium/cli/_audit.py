"""``fairpremium audit``: any price list with noisy reports in, an audit report about who pays what out."""

import hashlib
import textwrap
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

from fairpremium.audit import MAX_GROUPS, check_pdf, limit_changes, save_report, summarize_prices
from fairpremium.cli._channel_file import load_channel, noise_option
from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.cli._model_options import make_family
from fairpremium.cli._parsing import split_list, split_numbers, split_pairs
from fairpremium.cli._portfolio import Data, Roles, column_option, load_data
from fairpremium.cli._report_options import ReportOptions, report_option
from fairpremium.cli._report_source import Found, ReportSource, ask_twice
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
from fairpremium.labels import first_column
from fairpremium.models import check_volume
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, load_pricer
from fairpremium.privacy import Channel

_MAX_CLASSES = 50
_LIMITED = "limited_premium"
_FORMATS = (".html", ".pdf", ".md", ".json")
_option = report_option
_limit = option_panel("Limits on the change")
_asked = option_panel("What supervisors ask")


@command
def audit(
    prices: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy.")],
    premium: Annotated[str, column_option(help="Column with the prices to audit, per unit of exposure.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Report to write: .html, .pdf, .md or .json.")],
    roles: Roles,
    source: ReportSource,
    files: TableFormat,
    about: ReportOptions,
    features: Annotated[
        str | None, column_option(help="Columns that a tariff may use: adds what proxies do in this list.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="Model file that fit wrote, instead of a fit to these rows, for the same.")
    ] = None,
    current: Annotated[
        str | None,
        column_option(
            help="Column with the premiums in force, per unit of exposure: adds who moves how much from them."
        ),
    ] = None,
    cap: Annotated[float | None, _limit(help="Largest relative change from --current, such as 0.2.")] = None,
    floor: Annotated[float | None, _limit(help="Smallest relative change, such as -0.2.")] = None,
    limited: Annotated[
        Path | None, _limit(help="CSV or Parquet file to write: the rows with the limited premiums.")
    ] = None,
    decision: Annotated[
        str | None, _asked(help="Column with decisions: adds adverse impact and denial odds ratio.")
    ] = None,
    favourable: Annotated[str | None, _asked(help="The decision that is good for a person, or several: a,b.")] = None,
    control: Annotated[
        str | None, _asked(help="Columns to hold equal: adds the regression of the premium on group and these.")
    ] = None,
    against: Annotated[str | None, _asked(help="Group that others are compared with; by default the largest.")] = None,
    threshold: Annotated[
        float | None, _asked(help="Smallest ratio between groups that is within limits, such as 0.8.")
    ] = None,
    keep_range: Annotated[
        list[str] | None,
        noise_option(
            help="Values of keep that are possible, such as 0.75,0.9: adds a band over them. With --channel-key by "
            "source, app=0.75,0.9; may be repeated."
        ),
    ] = None,
    possible_channel: Annotated[
        list[str] | None,
        noise_option(
            help="JSON file of a channel that is possible instead: adds a band over them. With --channel-key by "
            "source, app=other.json; may be repeated."
        ),
    ] = None,
    by: Annotated[str | None, column_option(help="Column with classes to look into one by one.")] = None,
    cluster: Annotated[str | None, column_option(help="Column that says whose row it is.")] = None,
    family: Annotated[str, _option(help="Whose deviance measures the premium's error.")] = "normal",
    power: Annotated[float | None, _option(help="Variance power of tweedie; 1.5.")] = None,
    level: Annotated[float, _option(help="Confidence level.")] = 0.95,
    title: Annotated[str, _option(help="Title of the audit report.")] = "Who pays what, and is it fair?",
    interactive: Annotated[bool, _option("--interactive", help="Charts that answer to the mouse.")] = False,
) -> Answer:
    """Audit a price list of any origin from noisy reports alone: who pays what, and is it fair?

    Writes one page that opens with answers, numbers and what to decide, with tables and charts behind them; or the
    same as PDF (extra pdf), Markdown or JSON. Say how the reports were drawn as for fit; reports that privatize wrote
    say it themselves.

    With --features, or with --model, the audit report also says what proxies do in this list and what a
    discrimination-free list with the same total would charge. With --current it says who moves how much from the
    premiums in force. --cap and --floor limit that change; new premiums are multiplied so that their total stays.

    With --keep-range or --possible-channel it has the lowest and highest group means over channels that are possible,
    and with --features also those of the discrimination-free premium of five policies.

    With --decision and --favourable it says how often each group gets a favourable decision, with --control what groups
    pay more where these columns are equal, and with --threshold whether ratios between groups keep it.

    Example: fairpremium audit prices.csv --premium premium --outcome y --sensitive report --keep 0.8
    -o report.html
    """
    inputs = [prices, roles.reports, model, *source.files(roles.channel_key)]
    check_output(output, suffixes=_FORMATS, inputs=inputs)
    if output.suffix.lower() == ".pdf":
        check_pdf()  # before any work is done
    if limited is not None:
        check_output(limited, inputs=inputs)
    _check_limits(current, cap, floor, limited)
    controls = split_list(control, "--control") or []
    if (decision is None) != (favourable is None):
        raise ValueError("--decision and --favourable need each other: a column, and the decision that is good.")
    pricer, chosen = _features(features, model)
    estimator = source.estimator(files=files, channel_key=roles.channel_key)
    law = make_family(family, power)
    keeps, possible = _keep_range(keep_range, roles.channel_key), _possible(possible_channel, roles)
    with progress("Reading"):
        named = (premium, by, cluster, current, decision, *controls, *chosen)
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
            channel_key=data.channel_key,
            **data.volume,
            cluster=None if cluster is None else data.X[cluster],
            by=classes,
            level=level,
            family=law,
            title=title,
            unit=about.unit,
            details=about.details(),
            hashes={
                path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in (prices, roles.reports)
                if path is not None
            },
            channel_source=said_by,
            channel_estimated=bool(estimator),
            X=table,
            pricer=pricer,
            current=in_force,
            cap=cap,
            floor=floor,
            decisions=None if decision is None else require_filled(data.X[decision], prices, "a decision").astype(str),
            favourable=split_list(favourable, "--favourable"),
            controls=data.X[controls] if controls else None,
            against=against,
            threshold=threshold,
            keep=keeps,
            channels=possible,
        )
        if limited is not None:
            found_limits = limit_changes(in_force, premiums, cap=cap, floor=floor, **data.volume)
            rows = read_table(prices, all_text=True)  # as they are
            if _LIMITED in rows:
                raise ValueError(f"{prices} has a column {_LIMITED!r} already, which --limited writes. Rename it.")
            write_table(rows.assign(**{_LIMITED: found_limits.premiums}), limited)
        save_report(summary, output, interactive=interactive)
    return Answer({**summary, "output": str(output)}, _render)


def _keep_range(texts: list[str] | None, channel_key: str | None) -> Any:
    """Return the interval of keeps, or those of several sources by key."""
    if not texts:
        return None
    if channel_key is not None and any("=" in text for text in texts):
        pairs = split_pairs(texts, "--keep-range", "app=0.75,0.9")
        return {key: _ends(text) for key, text in pairs.items()}
    if len(texts) > 1:
        raise ValueError(
            "Got --keep-range more than once, but expected it once, or once for each source: app=0.75,0.9."
        )
    return _ends(texts[0])


def _ends(text: str) -> tuple[float, float]:
    ends = split_numbers(text, "--keep-range")
    if not isinstance(ends, list) or len(ends) != 2:
        raise ValueError(f"Got --keep-range {text}, but expected its two ends, such as 0.75,0.9.")
    return ends[0], ends[1]


def _possible(texts: list[str] | None, roles: Roles) -> Any:
    """Return the channels that are possible by the names of their files, those of several sources by key."""
    if not texts:
        return None
    found: dict[str, dict[str, Channel]] = {}
    for text in texts:
        key, equals, name = text.partition("=") if roles.channel_key is not None else ("", "=", text)
        if not (equals and name):
            raise ValueError(
                f"Got --possible-channel {text}, but expected the source that it is of, such as app=other.json."
            )
        own, path = found.setdefault(key, {}), Path(name)
        if path.name in own:
            raise ValueError("Got --possible-channel with two files of one name, but expected a name for each channel.")
        channel = load_channel(path).channel
        own[path.name] = channel if roles.second_report is None else ask_twice(channel)
    return found if roles.channel_key is not None else found[""]


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
    declared = None if data.channel_key is not None else data.described or source.given
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
    found: Found, data: Data, reported: pd.Series | pd.DataFrame, source: str
) -> tuple[Channel | dict[str, Channel | None] | None, str]:
    """Return the channel, or those of several sources, estimated if need be, and who says so."""
    y, volume = check_volume(data.y, len(data.y), data.weight, data.exposure)

    def estimate(noise: NoiseEstimator, rows: Any) -> tuple[Channel, str]:
        weight = None if volume is None else volume[rows]
        noise.fit(data.X[rows], y[rows], sensitive=first_column(reported)[rows], sample_weight=weight)
        return noise.require_channel(), f"estimated, not declared. {noise.message_}"

    if isinstance(found, NoiseEstimator):
        return estimate(found, np.ones(len(y), dtype=bool))
    if not isinstance(found, dict):
        return found, "" if found is None else source
    channels: dict[str, Channel | None] = {}
    for key, each in found.items():
        if isinstance(each, NoiseEstimator):
            assert data.channel_key is not None
            channels[key], said = estimate(each, (data.channel_key == key).to_numpy())
            source = source.replace(f"{key}: ", f"{key}: {said} ", 1)
        else:
            channels[key] = each
    return channels, source


def _render(result: dict[str, Any]) -> None:
    for row in result["panel"]:
        number = f" {row['number'][:1].upper()}{row['number'][1:]}." if row["number"] else ""
        _print_marked(row["tone"], f"{row['question']} {row['answer']}.{number}")
    print()
    for finding in result["findings"]:
        heading = finding["heading"]
        _print_marked(finding["tone"], f"{heading}{'' if heading.endswith('?') else ':'} {finding['text']}")
    print(f"\nWritten  {result['output']}")


def _print_marked(tone: str, text: str) -> None:
    """Print a paragraph, with a mark before what needs attention or has no answer."""
    mark = {"attention": "! ", "unclear": "? "}.get(tone, "  ")
    lines = textwrap.wrap(text, max(40, stdout_console().width - 2), break_on_hyphens=False)
    print("\n".join((mark if i == 0 else "  ") + line for i, line in enumerate(lines)))

"""``fairpremium monitor``: one more period of renewals in, alarms and a chart out; an exit code for schedulers."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from fairpremium.audit.drawing import choose_places, format_price
from fairpremium.cli._channel_file import describe_channel
from fairpremium.cli._command import Answer, command, option_panel
from fairpremium.cli._parsing import split_list
from fairpremium.cli._portfolio import Roles, column_option, load_data
from fairpremium.cli._report_source import ReportSource
from fairpremium.cli._terminal import new_table, print_facts, print_table, progress
from fairpremium.cli.tables import TableFormat, as_text, check_output, read_table, require_filled, require_numbers
from fairpremium.monitoring import Monitor, plot_monitor
from fairpremium.privacy import Channel

ALARM = 3  # exit code
_CHARTS = (".svg", ".png", ".html", ".json")
_watch = option_panel("What is watched")
_MOST_PLACES = 4
_OPTIONS = {"limits": "--limit"}  # of settings whose option has another name


@dataclass(frozen=True)
class RenewalRoles(Roles):
    """The columns of a period: losses may be left out."""

    outcome: Annotated[
        str,
        column_option(help="Column with losses per unit of volume, or with --exposure totals; for loss_ratio."),
    ] = ""

    @property
    def columns(self) -> dict[str, str]:
        """The columns that are given, by role."""
        return {role: name for role, name in super().columns.items() if name}


@command
def monitor(
    renewals: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file: the rows of one period.")],
    period: Annotated[str, typer.Option(help="Name of the period, such as 2026-Q1: later ones sort behind it.")],
    state: Annotated[Path, typer.Option(help="JSON file that keeps the monitor; begun where there is none.")],
    premium: Annotated[str, column_option(help="Column with the premiums.")],
    person: Annotated[str, column_option(help="Column that says whose row it is, the same in every period.")],
    roles: RenewalRoles,
    source: ReportSource,
    files: TableFormat,
    decision: Annotated[str | None, column_option(help="Column with decisions, for the adverse impact ratio.")] = None,
    favourable: Annotated[str | None, column_option(help="The favourable decision, or several: a,b.")] = None,
    free: Annotated[str | None, column_option(help="Column with discrimination-free premiums: adds proxies.")] = None,
    level: Annotated[float | None, _watch(help="Probability of no false alarm at any look; 0.95.")] = None,
    against: Annotated[str | None, _watch(help="Group to compare with; the largest if left out.")] = None,
    measures: Annotated[str | None, _watch(help="Some measures, such as premium_difference,loss_ratio.")] = None,
    limit: Annotated[
        list[str] | None, _watch(help="Limits of a measure, such as adverse_impact_ratio=0.8:1.25; may be repeated.")
    ] = None,
    baseline: Annotated[int | None, _watch(help="Number of first periods to compare later ones with; 1.")] = None,
    start: Annotated[float | None, _watch(help="Effective reports per group before intervals begin; 200.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Chart: .svg, .png, .html or .json.")] = None,
    unit: Annotated[str, typer.Option(help="What an amount is measured in, such as 'EUR a year'.")] = "",
) -> Answer:
    """Watch the prices of groups over renewals, from reports, with few false alarms however often you look.

    Call it once for each period with the same options. The exit code is 0 if nothing is wrong, 3 if there is an alarm
    and 2 for a mistake. A period that comes again with the same rows changes nothing and has the same exit code.

    Example: fairpremium monitor 2026-Q1.csv --period 2026-Q1 --state monitor.json --premium premium --outcome y
    --person policy --sensitive report --keep 0.8 -o monitor.svg
    """
    if (decision is None) != (favourable is None):
        raise ValueError("Expected both --decision, a column, and --favourable, one of its values, or neither.")
    if roles.channel_key is not None:
        raise ValueError("A monitor needs one channel for all rows, but got --channel-key.")
    inputs = [renewals, roles.reports, *source.files(None)]
    check_output(state, suffixes=(".json",), inputs=inputs)
    if output is not None:
        check_output(output, suffixes=_CHARTS, inputs=[*inputs, state])
    given = {
        "level": level,
        "against": against,
        "measures": split_list(measures, "--measures"),
        "limits": _limits(limit),
        "baseline": baseline,
        "start": start,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if source.estimator(files=files) is not None:
        raise ValueError("A monitor needs one channel for all periods. Give --keep, --epsilon or --channel.")
    if roles.second_report is not None:
        raise ValueError("A monitor counts one report of each person. Leave out --second-report.")
    with progress("Reading"):
        columns = list(dict.fromkeys(name for name in (premium, decision, free) if name is not None))
        data = load_data(renewals, roles, columns, files)
        channel, reported, _ = source.resolve(data, None)
        assert channel is None or isinstance(channel, Channel)
        persons = read_table(renewals, files, require=[person], text={person})[person]
        rows = {
            "premiums": require_numbers(data.X, premium, renewals),
            "y": data.y if roles.outcome else None,
            "sensitive": reported,
            "person": require_filled(as_text(persons, renewals), renewals, "a person"),
            "favourable": None
            if decision is None
            else _is(data.X[decision], split_list(favourable, "--favourable"), renewals),
            "free": None if free is None else require_numbers(data.X, free, renewals),
            **data.volume,
        }
    with progress("Looking"):
        watch = _open(state, channel, given)
        known = period.strip() in watch.periods
        look = watch.append(period, **rows)
        if not known:
            beside = state.with_name(f".{state.name}.new")
            watch.save(beside)
            beside.replace(state)
        if output is not None:
            plot_monitor(watch, unit=unit).save(str(output))
    alarms = look[look["alarm"] != ""]
    result = {
        "period": period.strip(),
        "known_already": known,
        "periods": len(watch.periods),
        "rows": len(data.X),
        "channel": describe_channel(channel),
        "level": watch.level,
        "measures": look.to_dict("records"),
        "alarms": alarms.to_dict("records"),
        "state": str(state),
        "output": None if output is None else str(output),
    }
    return Answer(result, _render, exit_code=ALARM if len(alarms) else 0)


def _open(state: Path, channel: Channel | None, given: dict[str, Any]) -> Monitor:
    """Return the monitor of a state, or a new one; raise if the options are not those that it began with."""
    if not state.exists():
        return Monitor(channel=channel, **given)
    found = Monitor.load(state)
    asked = Monitor(channel=channel, **given)  # a mistake in an option is named as such
    if found.channel != channel:
        raise ValueError(
            f"The reports went through another channel than those of {state}. Reports of two channels are not one "
            "series: start a new monitor with another --state."
        )
    for name, value in given.items():
        has = getattr(found, name)
        same = str(has) == str(value) if name == "against" else has in (value, getattr(asked, name))
        if not same:
            raise ValueError(
                f"Got {_OPTIONS.get(name, f'--{name}')} {_written(value)}, but the monitor of {state} began with "
                f"{_written(has)}. What is watched cannot change between looks; start a new monitor with another "
                "--state."
            )
    return found


def _written(value: Any) -> str:
    """Write a setting as the command line takes it."""
    if isinstance(value, dict):
        ends = {name: ["" if end is None else f"{end:g}" for end in pair] for name, pair in value.items()}
        return " ".join(f"{name}={low}:{high}" for name, (low, high) in ends.items()) or "none"
    return ",".join(map(str, value)) if isinstance(value, list) else "none" if value is None else str(value)


def _limits(texts: list[str] | None) -> dict[str, tuple[float | None, float | None]] | None:
    """Return the limits of ``measure=low:high``, where either number may be left out."""
    if not texts:
        return None
    found: dict[str, tuple[float | None, float | None]] = {}
    for text in texts:
        name, _, pair = text.partition("=")
        low, colon, high = pair.partition(":")
        try:
            if not colon or name.strip() in found:
                raise ValueError
            found[name.strip()] = (float(low) if low.strip() else None, float(high) if high.strip() else None)
        except ValueError:
            raise ValueError(
                f"Got --limit {text!r}, but expected a measure with a lower and an upper limit, such as "
                "loss_ratio=0.9:1.1 or premium_difference=:20, each measure once."
            ) from None
    return found


def _is(column: pd.Series, favourable: list[str] | None, path: Path) -> pd.Series:
    """Return whether decisions are favourable ones, 1 or 0."""
    texts = require_filled(as_text(column, path), path, "a decision")
    wanted = favourable or []
    if not wanted or not set(wanted) & set(texts):
        raise ValueError(
            f"No row of {path} has the decision {', '.join(map(repr, wanted))}; column {column.name!r} holds "
            f"{', '.join(map(repr, sorted(set(texts))[:5]))}."
        )
    return texts.isin(wanted).astype(float)


def _render(result: dict[str, Any]) -> None:
    table = new_table()
    for name in ("measure", "group", "value", "interval", "change", "interval", "alarm"):
        table.add_column(name, justify="left" if name in ("measure", "group", "alarm") else "right", no_wrap=True)
    for row in result["measures"]:
        who = f"{row['group']}" if pd.isna(row["against"]) else f"{row['group']} against {row['against']}"
        table.add_row(
            row["measure"], who, *_with_interval(row["value"], row["low"], row["high"]),
            *_with_interval(row["change"], row["change_low"], row["change_high"]), row["alarm"],
        )  # fmt: skip
    print_table(table)
    notes = list(dict.fromkeys(row["note"] for row in result["measures"] if row["note"]))
    alarms = [f"{row['measure']} of {row['group']}: {row['alarm']}" for row in result["alarms"]]
    print_facts(
        {
            "Alarm": "; ".join(alarms) if alarms else "none",
            "Note": "; ".join(notes) or None,
            "Period": f"{result['period']}, number {result['periods']}"
            + (" (seen before: nothing was added)" * result["known_already"]),
            "Level": f"{100 * result['level']:g} % for all intervals at all looks",
            "State": result["state"],
            "Written": result["output"],
        }
    )


def _with_interval(value: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    """Write a number and its interval with the same places, two digits of the standard error.

    Examples
    --------
    >>> _with_interval(77.4812, 56.53, 98.44), _with_interval(0.0, -4.7e-10, 4.7e-10), _with_interval(None, None, None)
    (('77.5', '56.5 to 98.4'), ('0.0000', '0.0000 to 0.0000'), ('', ''))
    """
    known = [number for number in (value, low, high) if number is not None and math.isfinite(number)]
    if not known or value is None or not math.isfinite(value):
        return "", ""
    width = [(high - low) / 4] if low is not None and high is not None else []
    places = min(choose_places(known, width) + 1, _MOST_PLACES)
    written = [format_price(number, places=places) for number in (low, high)]
    return format_price(value, places=places), " to ".join(written) if all(written) else ""

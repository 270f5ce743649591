"""``fairpremium privatize``: true attributes in, reports out."""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from fairpremium.cli._channel_file import channel_text, describe_channel
from fairpremium.cli._command import Answer, command
from fairpremium.cli._parsing import Mechanism, split_list
from fairpremium.cli._terminal import progress
from fairpremium.cli.tables import TableFormat, as_text, check_output, find_told, read_table, require_filled
from fairpremium.privacy import (
    Channel,
    MemoizedReports,
    PrivacyLedger,
    RandomizedResponse,
    SubsetSelection,
    write_reports,
)


@command
def privatize(
    people: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per person.")],
    column: Annotated[str, typer.Option(help="Column with the true attribute.")],
    groups: Annotated[str, typer.Option(help="All values of the attribute, such as F,M.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, Parquet or Excel file to write.")],
    files: TableFormat,
    keep: Annotated[float | None, typer.Option(help="Probability that a report is the truth.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy parameter, instead of keep.")] = None,
    mechanism: Annotated[
        Mechanism,
        typer.Option(help="What a report names: one group, or a set of groups, which suits more than five groups."),
    ] = Mechanism.randomized_response,
    subset_size: Annotated[
        int | None, typer.Option(help="Groups in a report, with --mechanism subset-selection; the best if left out.")
    ] = None,
    not_reported: Annotated[
        bool, typer.Option("--not-reported", help="Leave the report of people without the attribute empty.")
    ] = False,
    report_column: Annotated[str, typer.Option(help="Name of the new column.")] = "report",
    person: Annotated[str | None, typer.Option(help="Column that identifies the person.")] = None,
    memo_key: Annotated[
        Path | None,
        typer.Option(help="File with a secret: the same person and answer get the same report again."),
    ] = None,
    campaign: Annotated[str | None, typer.Option(help="Name of the collection, with --memo-key.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="File that records what each person has spent.")] = None,
    budget: Annotated[float | None, typer.Option(help="Most epsilon a person may spend, with --ledger.")] = None,
) -> Answer:
    """Replace a sensitive attribute by noisy reports of it.

    The output has all other columns as they are and, in the place of the attribute, a report that is the
    truth with probability keep and another group otherwise. With --mechanism subset-selection it is a JSON list
    of groups, among which the truth is more often than any other. Chance comes from the operating system; there is
    no seed. A description of the channel is written with the reports, so that fit needs no --keep.

    Only the attribute is protected. Leave out columns that give it away, such as first names.

    Example: fairpremium privatize people.csv --column sex --groups F,M --keep 0.8 -o reports.csv
    """
    channel = _channel(split_list(groups, "--groups") or [], mechanism, keep, epsilon, subset_size)
    check_output(output, inputs=[people, memo_key, ledger])
    _check_repeats(person, memo_key, campaign, ledger, budget)
    with progress("Drawing reports"):
        frame = _read(people, files, column, report_column, person, output)
        values = as_text(frame[column], people)
        told = find_told(values, people, not_reported)
        _refuse_copies(frame[told], column, values[told])
        if memo_key is not None:
            if not memo_key.is_file():
                raise ValueError(f"There is no file {memo_key}. Make a secret with: openssl rand -out {memo_key} 32")
            memo = MemoizedReports(channel, memo_key.read_bytes(), attribute=column, campaign=campaign or "")
            drawn = memo.privatize(_persons(frame[told], person, people), values[told])
        else:
            drawn = channel.privatize(values[told])
        if ledger is not None and budget is not None:
            with PrivacyLedger(ledger, budget=budget) as spent:
                spent.charge_many((who, column, channel.epsilon) for who in _persons(frame[told], person, people))
        reports = pd.Series(None, index=frame.index, dtype=object)
        reports[told] = np.asarray(drawn, dtype=object)
        table = frame.assign(**{column: reports}).rename(columns={column: report_column})
        write_reports(output, table, channel, column=report_column)
    described = describe_channel(channel)
    descriptor = str(output) if output.suffix.lower() == ".parquet" else f"{output}.channel.json"
    result = {
        "rows": len(frame),
        "not_reported": int((~told).sum()),
        "column": column,
        "report_column": report_column,
        "channel": described,
        "memoized": memo_key is not None,
        "charged": None if ledger is None else channel.epsilon,
        "output": str(output),
        "descriptor": descriptor,
    }
    facts = {
        "Reports": f"{told.sum():,}, column {report_column!r} in the place of {column!r}",
        **({"Not reported": f"{(~told).sum():,} rows without the attribute"} if not_reported else {}),
        "Groups": ", ".join(described["groups"]),
        "Channel": channel_text(described),
        "Repeats": None if memo_key is None else "the same person and answer get the same report",
        "Charged": None if ledger is None else f"epsilon {channel.epsilon:.4g} for every report",
        "Written": str(output),
        "Described": None if descriptor == str(output) else descriptor,
    }
    return Answer(result, facts)


def _channel(
    groups: list[str], mechanism: Mechanism, keep: float | None, epsilon: float | None, subset_size: int | None
) -> Channel:
    if mechanism == Mechanism.randomized_response:
        if subset_size is not None:
            raise ValueError("--subset-size needs --mechanism subset-selection: randomized response names one group.")
        return RandomizedResponse(groups, keep=keep, epsilon=epsilon)
    if epsilon is None or keep is not None:
        raise ValueError(
            "--mechanism subset-selection needs --epsilon and has no --keep, the probability of one group."
        )
    return SubsetSelection(groups, epsilon, size=subset_size)


def _check_repeats(
    person: str | None, memo_key: Path | None, campaign: str | None, ledger: Path | None, budget: float | None
) -> None:
    if (memo_key is None) != (campaign is None):
        raise ValueError("--memo-key and --campaign belong together: give both or none.")
    if (ledger is None) != (budget is None):
        raise ValueError("--ledger and --budget belong together: give both or none.")
    if memo_key is not None and ledger is not None:
        raise ValueError(
            "Give --memo-key or --ledger, not both: a memoized report is the same again and costs nothing, while "
            "the ledger would charge every run."
        )
    if person is None and (memo_key is not None or ledger is not None):
        raise ValueError("--memo-key and --ledger need --person, the column that identifies the person.")


def _read(
    people: Path, files: TableFormat, column: str, report_column: str, person: str | None, output: Path
) -> pd.DataFrame:
    # CSV to CSV copies fields as they are; CSV to Parquet has to give them a type.
    unchanged = output.suffix.lower() == ".csv"
    frame = read_table(people, files, require=[column, person], text={column, person}, all_text=unchanged)
    if report_column != column and report_column in frame.columns:
        raise ValueError(f"{people} already has a column {report_column!r}. Choose another --report-column.")
    return frame


def _refuse_copies(frame: pd.DataFrame, column: str, values: pd.Series) -> None:
    """Raise if another column holds the attribute too, in the same words."""
    truth = values.tolist()
    for name in frame.columns.drop(column):
        if len(frame) > 1 and [str(value) for value in frame[name]] == truth:
            raise ValueError(
                f"Column {name!r} holds the same values as {column!r}, so that the output would show what is to be "
                "protected. Leave it out of the input."
            )


def _persons(frame: pd.DataFrame, person: str | None, people: Path) -> list[str]:
    return [str(key) for key in require_filled(as_text(frame[person], people), people, "a key")]

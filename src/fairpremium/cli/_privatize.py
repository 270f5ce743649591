"""``fairpremium privatize``: true attributes in, reports out."""

import hashlib
import os
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from fairpremium.cli._account import DrawOptions
from fairpremium.cli._channel_file import channel_text, describe_channel
from fairpremium.cli._command import Answer, command
from fairpremium.cli._parsing import Mechanism, split_list
from fairpremium.cli._terminal import progress
from fairpremium.cli.tables import (
    TableFormat,
    as_text,
    check_output,
    find_told,
    note_formulas,
    read_table,
    require_filled,
)
from fairpremium.csv_cells import escape_formulas
from fairpremium.privacy import (
    Channel,
    DrawnReports,
    MemoizedReports,
    PrivacyLedger,
    RandomizedResponse,
    SubsetSelection,
    write_reports,
)

_UMASK = 0o077  # reports and ledgers are for their owner


@command
def privatize(
    people: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per person or per policy.")],
    column: Annotated[str, typer.Option(help="Column with the true attribute.")],
    groups: Annotated[str, typer.Option(help="All values of the attribute, such as F,M.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV, Parquet or Excel file to write.")],
    files: TableFormat,
    account: DrawOptions,
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
    attribute: Annotated[
        str | None, typer.Option(help="Name of the attribute in the ledger, the same every year; that of the column.")
    ] = None,
    campaign: Annotated[
        str | None, typer.Option(help="Name of a collection of its own: another one is another draw.")
    ] = None,
) -> Answer:
    """Replace a sensitive attribute by noisy reports of it.

    The output has all other columns as they are and, in the place of the attribute, a report that is the
    truth with probability keep and another group otherwise. With --mechanism subset-selection it is a JSON list
    of groups, among which the truth is more often than any other. A description of the channel is written with the
    reports, so that fit needs no --keep.

    Whoever is drawn again gets the same report again, from the memo key, and a ledger records what each person has
    spent. A new draw of people who have reported before costs epsilon again: it is refused unless you confirm it. With
    --person a person may have several rows. Without it each row counts as a person.

    Only the attribute is protected. Leave out columns that give it away, such as first names.

    Example: fairpremium privatize people.csv --column sex --groups F,M --keep 0.8 -o reports.csv
    """
    channel = _channel(split_list(groups, "--groups") or [], mechanism, keep, epsilon, subset_size)
    check_output(output, inputs=[people, account.memo_key, account.ledger])
    os.umask(_UMASK)
    with progress("Drawing reports"):
        frame = _read(people, files, column, report_column, account.person, output)
        values = as_text(frame[column], people)
        told = find_told(values, people, not_reported)
        _refuse_copies(frame[told], column, values[told])
        memo = account.make_memo(channel, column if attribute is None else attribute, campaign)
        with account.open_ledger() as ledger:
            if account.person is None:
                drawn, charged = _draw_rows(memo, frame[told], values[told], ledger, account)
                persons = int(told.sum())
            else:
                names = [str(key) for key in require_filled(as_text(frame[account.person], people), people, "a key")]
                named = [name for name, has_told in zip(names, told, strict=True) if has_told]
                with account.drawing(memo, ledger, account.person):
                    drawn, charged = memo.draw(
                        named, values[told], ledger, named_by=account.person, confirm_new_draw=account.confirm_new_draw
                    )
                persons = len(set(named))
        reports = pd.Series(None, index=frame.index, dtype=object)
        reports[told] = np.asarray(drawn, dtype=object)
        table = frame.assign(**{column: reports}).rename(columns={column: report_column})
        write_reports(output, table, channel, column=report_column)
        output.chmod(0o600)
        if output.suffix.lower() == ".csv":
            note_formulas(escape_formulas(table)[1], output)
    described = describe_channel(channel)
    descriptor = str(output) if output.suffix.lower() == ".parquet" else f"{output}.channel.json"
    result = {
        "rows": len(frame),
        "not_reported": int((~told).sum()),
        "column": column,
        "report_column": report_column,
        "channel": described,
        "attribute": memo.attribute,
        "persons": persons,
        "charged": channel.epsilon if charged else None,
        "persons_charged": charged,
        "ledger": str(account.ledger_path),
        "memo_key": str(account.memo_key_path),
        "output": str(output),
        "descriptor": descriptor,
    }
    facts = {
        "Reports": f"{told.sum():,}, column {report_column!r} in the place of {column!r}",
        **({"Not reported": f"{(~told).sum():,} rows without the attribute"} if not_reported else {}),
        "Groups": ", ".join(described["groups"]),
        "Channel": channel_text(described),
        "Persons": f"{persons:,}, each with one report" if account.person else "one per row (--person names a column)",
        "Charged": f"epsilon {channel.epsilon:.4g} to {charged:,} persons" if charged else "nothing: drawn before",
        "Account": account.files_text(),
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


def _draw_rows(
    memo: MemoizedReports, frame: pd.DataFrame, values: pd.Series, ledger: PrivacyLedger, account: DrawOptions
) -> DrawnReports:
    """Draw a table in which nothing identifies people: the same table gets the same reports, any other is a new draw.

    A row has its place in the table and the whole content of the other columns as its key.
    """
    content = hashlib.sha256()
    for column in frame.columns.drop(values.name):
        for cell in frame[column].astype(str):
            content.update(hashlib.sha256(cell.encode("utf-8", "surrogatepass")).digest())
    rows = [content.digest() + place.to_bytes(8, "big") for place in range(len(frame))]
    draw = hashlib.sha256(b"".join(memo.draw_ids(rows, values))).digest()
    confirm = account.confirm_new_draw
    with account.drawing(memo, ledger, draw.hex()):
        charged = ledger.charge_draws(
            None, [draw], attribute=memo.attribute, epsilon=memo.channel.epsilon, confirm_new_draw=confirm
        )
    return DrawnReports(memo.privatize(rows, values), len(frame) if charged else 0)


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

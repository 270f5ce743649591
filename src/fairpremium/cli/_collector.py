"""``fairpremium collector``: the attribute is privatized here, and only reports leave."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from fairpremium.cli._channels import channel_text, describe_channel
from fairpremium.cli._files import as_text, check_output, read_table, require_columns, write_table
from fairpremium.cli._group import make_group
from fairpremium.cli._output import JsonOption, print_facts, progress, progress_bar, show
from fairpremium.cli._service import (
    SERVICE,
    KeyFileOption,
    SecretOption,
    ServiceOption,
    StudyOption,
    check_ids,
    connect,
    require_service,
)
from fairpremium.privacy import Channel, PrivacyLedger

if TYPE_CHECKING:
    from fairpremium.parties.protocol import CollectorStudy

_REPORTS = "What is kept here"


def submit(
    people: Annotated[Path, typer.Argument(help="CSV or Parquet file, one row per policy. It stays here.")],
    study: StudyOption,
    policy: Annotated[str, typer.Option(help="Column with the policy number.")],
    column: Annotated[str, typer.Option(help="Column with the true attribute.")],
    secret: SecretOption,
    reports: Annotated[
        Path,
        typer.Option(
            help="CSV or Parquet file that keeps the drawn reports: nobody is drawn twice.", rich_help_panel=_REPORTS
        ),
    ],
    ledger: Annotated[
        Path | None, typer.Option(help="File that records what each person has spent.", rich_help_panel=_REPORTS)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Most epsilon a person may spend, with --ledger.", rich_help_panel=_REPORTS)
    ] = None,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Send the column as it stands; only for a study that asks for it.")
    ] = False,
    service: ServiceOption = SERVICE,
    key: KeyFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a noisy report for every policyholder, here, and send the reports to the service.

    The study says through which channel. What leaves is one key per policy (made with the study's secret) and one
    report. Run it again after an interruption, or when people have joined: reports that were drawn stay what they are.

    Example: fairpremium collector submit people.csv --study motor --policy policy --column sex --secret motor.secret
    --reports reports.parquet --key collector.key
    """
    require_service()
    from fairpremium.parties.clients import Collector, plan_parts
    from fairpremium.parties.protocol import read_secret

    if (ledger is None) != (budget is None):
        raise ValueError("--ledger and --budget belong together: give both or none.")
    check_output(reports, inputs=[people, secret, ledger])
    check_ids(study=study)
    shared = read_secret(secret)
    with connect(Collector, service, key) as collector, _alone(reports):
        seen = collector.study(study)
        channel = _check_study(seen, as_is)
        with progress("Drawing reports"):
            frame = _read(people, policy, column, seen)
            if channel is None:
                table = frame.rename(columns={policy: "policy", column: "report"})
                kept, drawn = _keep_as_is(table, reports, _labels(seen))
            else:
                kept, drawn = _keep(frame, reports, policy, column, channel, study, (ledger, budget))
        steps = plan_parts(reports, study, len(kept))
        with progress_bar("Sending reports") as tell:
            collector.submit(
                kept, study=study, secret=shared, channel=channel, steps=steps,
                tell=lambda done, total: tell(done / total, f"part {done} of {total}"),
            )  # fmt: skip
    result = {
        "study": study,
        "people": len(frame),
        "reports": len(kept),
        "drawn": drawn,
        "parts": sum(parts for _, parts in steps),
        "channel": describe_channel(channel),
        "epsilon": None if channel is None else channel.epsilon,
        "charged": None if ledger is None or channel is None or not drawn else channel.epsilon,
        "file": str(reports),
    }
    show(result, as_json, _render)


@contextmanager
def _alone(reports: Path) -> Iterator[None]:
    """Let one process at a time draw into a file: two would draw different reports for the same people."""
    import fcntl

    with reports.with_name(f".{reports.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"Another process is drawing reports into {reports}. Wait until it has ended.") from None
        yield


def _check_study(seen: CollectorStudy, as_is: bool) -> Channel | None:
    """Return the channel of an open study; one without a channel gets the column as it stands, if that was said."""
    from fairpremium.parties.protocol import Problem

    attribute = seen.attribute
    if seen.state != "open":  # before anything is drawn and paid for
        raise Problem("study-not-open")
    if attribute.kind == "known":
        if as_is:
            raise ValueError(f"Study {seen.id} asks for reports through a channel. Leave --as-is out.")
        return Channel.from_descriptor(attribute.channel)
    if not as_is:
        what = "the true attribute" if attribute.kind == "true" else "reports that are noisy already"
        raise ValueError(f"Study {seen.id} asks for {what}. Say --as-is to send the column as it stands.")
    return None


def _read(people: Path, policy: str, column: str, seen: CollectorStudy) -> pd.DataFrame:
    frame = read_table(people, text={policy, column})
    require_columns(frame, [policy, column], people)
    numbers = as_text(frame[policy], people)
    if numbers.isna().any():
        raise ValueError(f"Column {policy!r} of {people} is empty in {int(numbers.isna().sum())} rows.")
    if numbers.duplicated().any():
        raise ValueError(f"Column {policy!r} of {people} names {int(numbers.duplicated().sum())} policies again.")
    return pd.DataFrame({policy: numbers, column: _as_labels(frame[column], _labels(seen), people)})


def _labels(seen: CollectorStudy) -> Sequence[Any]:
    attribute = seen.attribute
    return Channel.from_descriptor(attribute.channel).groups if attribute.kind == "known" else attribute.groups


def _as_labels(column: pd.Series, labels: Sequence[Any], path: Path) -> pd.Series:
    """Return a column in the type of the study's labels, or raise without a word about what it holds."""
    texts = as_text(column, path)
    known = {str(label): label for label in labels}
    unknown = int((~texts.isin(list(known))).sum())
    if unknown:
        raise ValueError(
            f"Column {column.name!r} of {path} has {unknown} of {len(texts)} rows with none of the study's groups "
            f"{', '.join(known)}. People who prefer not to say need a group of their own."
        )
    return texts.map(known)


def _keep(
    frame: pd.DataFrame,
    reports: Path,
    policy: str,
    column: str,
    channel: Channel,
    study: str,
    account: tuple[Path | None, float | None],
) -> tuple[pd.DataFrame, int]:
    """Return all reports that are kept in the file, in the order in which they came, and how many are new."""
    from fairpremium.parties.clients import draw_reports, read_drawn

    before = len(read_drawn(reports, channel)) if reports.exists() else 0
    path, budget = account
    options: dict[str, Any] = {"policy": policy, "column": column, "channel": channel, "study": study}
    if path is None or budget is None:
        draw_reports(frame, reports, **options)
    else:
        with PrivacyLedger(path, budget=budget) as ledger:
            draw_reports(frame, reports, **options, ledger=ledger)
    kept = read_drawn(reports, channel)
    return kept, len(kept) - before


def _keep_as_is(table: pd.DataFrame, reports: Path, labels: Sequence[Any]) -> tuple[pd.DataFrame, int]:
    if not reports.exists():
        _replace(table, reports)
        return table, len(table)
    kept = read_table(reports, text={"policy", "report"})
    require_columns(kept, ["policy", "report"], reports)
    kept["report"] = _as_labels(kept["report"], labels, reports)
    both = kept.merge(table, on="policy", suffixes=("", "_now"))
    if (both["report"] != both["report_now"]).any():
        raise ValueError(
            f"{reports} holds other reports for some policies than the table of people now. A report that was sent "
            "stays what it is."
        )
    new = table[~table["policy"].isin(kept["policy"])]
    if len(new):
        kept = pd.concat([kept[["policy", "report"]], new], ignore_index=True)
        _replace(kept, reports)
    return kept, len(new)


def _replace(table: pd.DataFrame, path: Path) -> None:
    draft = path.with_name(f".{path.stem}.draft{path.suffix}")
    write_table(table, draft)
    draft.replace(path)


def _render(result: dict[str, Any]) -> None:
    epsilon, charged = result["epsilon"], result["charged"]
    print_facts(
        {
            "Study": result["study"],
            "Drawn": f"{result['drawn']:,} reports now, {result['reports'] - result['drawn']:,} before",
            "Channel": "none: the column as it stands" if epsilon is None else channel_text(result["channel"]),
            "Spent": None if epsilon is None else f"epsilon {epsilon:.4g} per person, once",
            "Charged": None if charged is None else f"epsilon {charged:.4g} for every new report",
            "Sent": f"{result['reports']:,} reports in {result['parts']} part(s)",
            "Kept": f"{result['file']}  (never send it: it has the policy numbers)",
        }
    )


collector = make_group("The collector's side: reports leave, the attribute stays.", {"submit": submit})

"""``fairpremium collector``: the attribute is privatized here, and only reports leave."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import pandas as pd
import typer

from fairpremium.cli._account import DrawOptions, LedgerOptions
from fairpremium.cli._channel_file import channel_text, describe_channel
from fairpremium.cli._command import Answer, make_group, option_panel
from fairpremium.cli._parsing import split_list, split_pairs
from fairpremium.cli._terminal import progress
from fairpremium.cli.parties._invitations import invite, page, status
from fairpremium.cli.parties._service import Connection, SecretOption, StudyOption, check_ids, party_command
from fairpremium.cli.tables import (
    TableFormat,
    as_labels,
    as_text,
    check_output,
    find_told,
    read_table,
    require_filled,
    write_table,
)
from fairpremium.privacy import Channel, PrivacyLedger

if TYPE_CHECKING:
    from fairpremium.parties.clients import Collector
    from fairpremium.parties.protocol import CollectorStudy, LinkageSecret

_option = option_panel("What is stored here")


@party_command
def submit(
    people: Annotated[Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy. It stays here.")],
    study: StudyOption,
    policy: Annotated[str, typer.Option(help="Column with the policy number.")],
    column: Annotated[
        str, typer.Option(help="Column with the true attribute; of several: sex,age, or sex=gender,age=band.")
    ],
    secret: SecretOption,
    reports: Annotated[Path, _option(help="CSV or Parquet file that stores the drawn reports: nobody is drawn twice.")],
    connection: Connection,
    files: TableFormat,
    account: DrawOptions,
    attribute: Annotated[
        str | None,
        typer.Option(help="Name of the attribute in the ledger, the same in every study; that of the column."),
    ] = None,
    not_reported: Annotated[
        bool, typer.Option("--not-reported", help="Send no report of people without the attribute.")
    ] = False,
    as_is: Annotated[
        bool, typer.Option("--as-is", help="Send the column as it stands; only for a study that asks for it.")
    ] = False,
) -> Answer:
    """Draw a noisy report for every policyholder, here, and send the reports to the service.

    The study says through which channel. What leaves is one key per policy (made with the study's secret) and one
    report of each attribute. Run it again after an interruption, or when people have joined: reports that were drawn
    stay what they are. Of several attributes each has a file of its own, such as reports-sex.parquet.

    With --person all policies of a person get the same report, and the person is charged once. Without it each policy
    counts as a person. A new draw of people who have reported before is refused unless you confirm it.

    Example: fairpremium collector submit people.csv --study motor --policy policy --column sex --secret motor.secret
    --reports reports.parquet --key collector.key
    """
    from fairpremium.parties.clients import Collector
    from fairpremium.parties.protocol import Problem, read_secret

    inputs = [people, secret, account.ledger, account.memo_key]
    check_output(reports, suffixes=(".csv", ".parquet"), inputs=inputs)
    check_ids(study=study)
    shared = read_secret(secret)
    with connection.open(Collector) as collector, _alone(reports):
        seen = collector.study(study)
        if seen.state != "open":  # before anything is drawn and paid for
            raise Problem("study-not-open")
        sendings = _sendings(seen, column, attribute, reports)
        for sending in sendings:
            check_output(sending.reports, suffixes=(".csv", ".parquet"), inputs=inputs)
        found = [
            _submit(collector, sending, people, files, study, policy, shared, account, not_reported, as_is)
            for sending in sendings
        ]
    linkage = {"linkage_secret": shared.fingerprint}
    same = {"Linkage secret": f"{shared.fingerprint}  (the insurer's must be the same)"}
    if len(found) == 1 and found[0].result["attribute"] is None:
        result = {name: value for name, value in found[0].result.items() if name != "attribute"}
        return Answer({**result, **linkage}, {**found[0].facts, **same})
    results = [one.result for one in found]
    total = math.fsum(result["epsilon"] for result in results)
    facts: dict[str, Any] = {"Study": study}
    for one in found:
        name = one.result["attribute"]
        facts |= {f"{what} {name}": fact for what, fact in one.facts.items() if what != "Study"}
    facts["Spent in all"] = f"epsilon {total:.4g} per person who reports all of them, once"
    return Answer({"study": study, "attributes": results, "epsilon": total, **linkage}, {**facts, **same})


@party_command
def withdraw(
    policies: Annotated[list[str] | None, typer.Argument(help="Policy numbers.", show_default=False)] = None,
    *,
    study: StudyOption,
    secret: SecretOption,
    people: Annotated[Path | None, typer.Option(help="CSV, Parquet or Excel file, one row per policy.")] = None,
    policy: Annotated[str, typer.Option(help="With --people: column with the policy number.")] = "policy",
    ledger: Annotated[
        Path | None, _option(help="File that knows whose the policies are; ledger.sqlite in the collector's folder.")
    ] = None,
    connection: Connection,
    files: TableFormat,
) -> Answer:
    """Withdraw the reports of policyholders, those that you sent and those that they gave on the page.

    The report of a person stands under all policies of the person: those that the ledger knows are withdrawn too. The
    service takes reports out with the next epoch and does not say whether there were any. A report that is sent again
    later counts again. Take these people out of your table of people, and leave the file of reports as it is.

    Example: fairpremium collector withdraw P-1007 P-2038 --study motor --secret motor.secret --key collector.key
    """
    from fairpremium.parties.clients import Collector
    from fairpremium.parties.protocol import read_secret

    check_ids(study=study)
    if (people is None) == (not policies):
        raise ValueError("Say who withdraws in one way: policy numbers, or a table with --people.")
    named = list(policies or [])
    if people is not None:
        table = read_table(people, files, require=[policy], text={policy})
        named = require_filled(table[policy], people, "a policy number").tolist()
    named = list(dict.fromkeys(named))
    shared = read_secret(secret)
    every = _add_policies_of_the_same(named, ledger)
    with connection.open(Collector) as collector:
        count = collector.withdraw(study, shared, every)
    more = count - len(named)
    told = f", {more:,} of them not named: the ledger knows the same persons with them" if more else ""
    result = {"study": study, "policies": count, "not_named": more}
    return Answer(result, {"Study": study, "Withdrawn": f"{count:,} policies{told}"})


def _add_policies_of_the_same(policies: list[str], ledger: Path | None) -> list[str]:
    """Return the policies, and all others of the same persons that the ledger knows; no ledger knows none."""
    path = LedgerOptions(ledger=ledger).ledger_path
    if not path.is_file():
        if ledger is not None:
            raise ValueError(f"There is no file {ledger}. Name the ledger of collector submit, or leave --ledger out.")
        return policies
    with PrivacyLedger(path) as known:
        return known.find_policies(policies)


class _Sending(NamedTuple):
    """One attribute, the column that has it, and the file of its reports; `name` is None in a study with one.

    - `account`: The name of the attribute in the ledger.
    - `declared`: The names of all attributes of the study.
    """

    name: str | None
    attribute: Any
    column: str
    reports: Path
    account: str
    declared: Sequence[str] = ()


class _Sent(NamedTuple):
    result: dict[str, Any]
    facts: dict[str, Any]


def _sendings(seen: CollectorStudy, column: str, attribute: str | None, reports: Path) -> list[_Sending]:
    """Return what is sent: of several attributes those that --column names, each from a file of its own."""
    from fairpremium.parties.protocol import names_of, one_attribute

    if seen.attribute.kind != "several":
        return [_Sending(None, seen.attribute, column, reports, attribute or column)]
    known = [str(name) for name in names_of(seen.attribute)]
    if attribute is not None:
        raise ValueError(f"Study {seen.id} names its attributes: {', '.join(known)}. Leave --attribute out.")
    parts = [part if "=" in part else f"{part}={part}" for part in split_list(column, "--column") or []]
    columns = split_pairs(parts, "--column", "sex=gender,age=age_band")
    unknown = [name for name in columns if name not in known]
    if unknown:
        names = ", ".join(known)
        raise ValueError(
            f"Got --column with {unknown[0]!r}, but expected attributes of study {seen.id}: {names}. "
            "Where a column has another name, say attribute=column."
        )
    _refuse_repeated(columns)
    return [
        _Sending(
            name, one_attribute(seen.attribute, name), column, reports.with_stem(f"{reports.stem}-{name}"), name, known
        )
        for name, column in columns.items()
    ]


def _refuse_repeated(columns: dict[str, str]) -> None:
    """Refuse a column for two attributes: each has an account of its own, and the column would be drawn twice."""
    names = list(columns.values())
    for first, column in columns.items():
        if names.count(column) > 1:
            second = [name for name in columns if columns[name] == column][1]
            raise ValueError(
                f"Got --column with {column!r} for {first!r} and for {second!r}, but expected a column of its own for "
                "each attribute. A column that is drawn twice tells more than the budget of one attribute allows."
            )


def _submit(
    collector: Collector,
    sending: _Sending,
    people: Path,
    files: TableFormat,
    study: str,
    policy: str,
    shared: LinkageSecret,
    account: DrawOptions,
    not_reported: bool,
    as_is: bool,
) -> _Sent:
    """Draw and send the reports of one attribute."""
    from fairpremium.parties.clients import draw_reports, plan_batches, read_drawn

    name, attribute, column, reports = sending[:4]
    channel = _check_study(study, attribute, as_is)
    told = f" of {name}" if name else ""
    with progress(f"Drawing reports{told}"):
        frame, silent = _read(people, files, policy, column, account.person, attribute, not_reported)
        charged = 0
        if channel is None:
            table = frame[[policy, column]].set_axis(["policy", "report"], axis=1)
            stored, drawn = _store_as_is(table, reports, _labels(attribute))
        else:
            before = len(read_drawn(reports, channel)) if reports.exists() else 0
            memo = account.make_memo(channel, sending.account)
            people_named_by = account.person or policy
            with account.open_ledger() as ledger, account.drawing(memo, ledger, people_named_by):
                charged = draw_reports(
                    frame, reports, policy=policy, column=column, person=account.person, memo=memo, ledger=ledger,
                    declared=sending.declared, confirm_new_draw=account.confirm_new_draw,
                ).charged  # fmt: skip
            stored = read_drawn(reports, channel)
            drawn = len(stored) - before
    steps = plan_batches(reports, study, len(stored))
    with progress(f"Sending reports{told}", bar=True) as tell:
        collector.submit(
            stored, study=study, secret=shared, channel=channel, steps=steps, attribute=name,
            tell=lambda done, total: tell(done / total, f"batch {done} of {total}"),
        )  # fmt: skip
    epsilon = None if channel is None else channel.epsilon
    batches = sum(batches for _, batches in steps)
    described = describe_channel(channel)
    result = {
        "study": study,
        "attribute": name,
        "people": len(frame) + silent,
        "not_reported": silent,
        "reports": len(stored),
        "drawn": drawn,
        "parts": batches,
        "channel": described,
        "epsilon": epsilon,
        "charged": epsilon if charged else None,
        "persons_charged": charged,
        "ledger": None if channel is None else str(account.ledger_path),
        "file": str(reports),
    }
    facts = {
        "Study": study,
        **({"Not reported": f"{silent:,} people without the attribute"} if not_reported else {}),
        "Drawn": f"{drawn:,} reports now, {len(stored) - drawn:,} before",
        "Channel": "none: the column as it stands" if described is None else channel_text(described),
        "Spent": None if epsilon is None else f"epsilon {epsilon:.4g} per person, once",
        "Charged": f"epsilon {epsilon:.4g} to {charged:,} persons" if charged else None,
        "Ledger": None if channel is None else str(account.ledger_path),
        "Sent": f"{len(stored):,} reports in {batches} batch(es)",
        "Stored": f"{reports}  (never send it: it has the policy numbers)",
    }
    return _Sent(result, facts)


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


def _check_study(study: str, attribute: Any, as_is: bool) -> Channel | None:
    """Return the channel of a study; one without a channel gets the column as it stands, if that was said."""
    if attribute.kind == "known":
        if as_is:
            raise ValueError(f"Study {study} asks for reports through a channel. Leave --as-is out.")
        return Channel.from_descriptor(attribute.channel)
    if not as_is:
        what = "the true attribute" if attribute.kind == "true" else "reports that are noisy already"
        raise ValueError(f"Study {study} asks for {what}. Say --as-is to send the column as it stands.")
    return None


def _read(
    people: Path,
    files: TableFormat,
    policy: str,
    column: str,
    person: str | None,
    attribute: Any,
    not_reported: bool,
) -> tuple[pd.DataFrame, int]:
    """Return the people who told their attribute, and the number of those who did not."""
    frame = read_table(people, files, require=[policy, column, person], text={policy, column, person})
    numbers = require_filled(as_text(frame[policy], people), people, "a policy number")
    if numbers.duplicated().any():
        raise ValueError(f"Column {policy!r} of {people} names {int(numbers.duplicated().sum())} policies again.")
    told = find_told(as_text(frame[column], people), people, not_reported)
    labels = _as_labels(frame.loc[told, column], _labels(attribute), people)
    table = pd.DataFrame({policy: numbers[told], column: labels})
    if person is not None:
        table[person] = require_filled(as_text(frame[person], people), people, "a key")[told]
    return table.reset_index(drop=True), int((~told).sum())


def _labels(attribute: Any) -> Sequence[Any]:
    return Channel.from_descriptor(attribute.channel).groups if attribute.kind == "known" else attribute.groups


def _as_labels(column: pd.Series, labels: Sequence[Any], path: Path) -> pd.Series:
    wrong = (
        f"with none of the study's groups {', '.join(map(str, labels))}. People who prefer not to say need a group of "
        "their own"
    )
    return as_labels(as_text(column, path), labels, path, wrong, missing=False)


def _store_as_is(table: pd.DataFrame, reports: Path, labels: Sequence[Any]) -> tuple[pd.DataFrame, int]:
    from fairpremium.parties.clients import restrict_reports

    if not reports.exists():
        _replace(table, reports)
        return table, len(table)
    restrict_reports(reports)
    stored = read_table(reports, require=["policy", "report"], text={"policy", "report"})
    stored["report"] = _as_labels(stored["report"], labels, reports)
    both = stored.merge(table, on="policy", suffixes=("", "_now"))
    if (both["report"] != both["report_now"]).any():
        raise ValueError(
            f"{reports} holds other reports for some policies than the table of people now. A report that was sent "
            "stays what it is."
        )
    new = table[~table["policy"].isin(stored["policy"])]
    if len(new):
        stored = pd.concat([stored[["policy", "report"]], new], ignore_index=True)
        _replace(stored, reports)
    return stored, len(new)


def _replace(table: pd.DataFrame, path: Path) -> None:
    draft = path.with_name(f".{path.stem}.draft{path.suffix}")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # it has the policy numbers and the attribute
    write_table(table, draft)
    draft.replace(path)


collector = make_group(
    "The collector's side: reports leave, the attribute stays.",
    {"submit": submit, "withdraw": withdraw, "invite": invite, "status": status, "page": page},
)

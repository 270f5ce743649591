"""``fairpremium collector invite``, ``status`` and ``page``: people draw their reports on their own devices."""

from __future__ import annotations

import io
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import pandas as pd
import typer

from fairpremium.cli._account import LedgerOptions
from fairpremium.cli._command import Answer
from fairpremium.cli._terminal import progress
from fairpremium.cli.parties._service import (
    Connection,
    SecretOption,
    StudyOption,
    check_ids,
    message_fields,
    party_command,
)
from fairpremium.cli.tables import TableFormat, as_text, check_output, note_formulas, read_table, require_filled
from fairpremium.csv_cells import escape_formulas
from fairpremium.privacy import Channel

_DAYS = 30
_LOCAL = ("localhost", "127.0.0.1", "::1")


@party_command
def invite(
    people: Annotated[
        Path, typer.Argument(help="CSV, Parquet or Excel file, one row per policy; no attribute is needed.")
    ],
    study: StudyOption,
    secret: SecretOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV or Parquet file for the links; a new one.")],
    attribute: Annotated[
        str, typer.Option(help="Name of the attribute in the ledger, the same in every study and for submit.")
    ],
    connection: Connection,
    files: TableFormat,
    account: LedgerOptions,
    policy: Annotated[str, typer.Option(help="Column with the policy number.")] = "policy",
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long the links are open.")] = _DAYS,
    page: Annotated[
        str | None, typer.Option(help="Address of the page; that of the service (serve --collect) if left out.")
    ] = None,
) -> Answer:
    """Make a personal link for every policyholder, with which one answer can be given.

    The report is drawn on the person's own device, so that the attribute is not even known here. A link has no policy
    number in it, and only the third party can read it. Send each link to its person and to nobody else: who has it can
    answer. A person can be invited again; one answer is taken, and the ledger is charged once. With --person each
    person gets one link, for one of the policies; without it each policy counts as a person.

    Example: fairpremium collector invite people.csv --study motor --attribute sex --secret motor.secret -o links.csv
    --key collector.key
    """
    from fairpremium.parties.clients import Collector, charge_invitations, make_links
    from fairpremium.parties.protocol import Problem, read_key, read_secret

    check_output(output, inputs=[people, secret, account.ledger])
    if output.exists():
        raise ValueError(f"{output} exists and is not overwritten: links in it may be with people already.")
    check_ids(study=study)
    address = _page_address(page, connection.service)
    shared = read_secret(secret)
    frame = read_table(people, files, require=[policy, account.person], text={policy, account.person})
    numbers = require_filled(as_text(frame[policy], people), people, "a policy number")
    if numbers.duplicated().any():
        raise ValueError(f"Column {policy!r} of {people} names {int(numbers.duplicated().sum())} policies again.")
    persons = None
    if account.person is not None:
        persons = require_filled(as_text(frame[account.person], people), people, "a key").tolist()
    with connection.open(Collector) as collector:
        seen = collector.study(study)
    if seen.state != "open":  # before anything is paid for
        raise Problem("study-not-open")
    if seen.invitation_key is None or seen.attribute.kind != "known":
        raise ValueError(
            f"Study {study} has no question for a page. Its operator declares one: study create --question."
        )
    channel = Channel.from_descriptor(seen.attribute.channel)
    with account.open_ledger() as ledger:
        invited, charged = charge_invitations(
            ledger, numbers.tolist(), persons=persons, study=study, secret=shared, attribute=attribute,
            channel=channel, named_by=account.person or policy, confirm_new_draw=account.confirm_new_draw,
        )  # fmt: skip
    expires = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    assert connection.key is not None  # `open` has read it
    with progress("Making links", bar=True) as tell:
        links = make_links(
            invited, study=seen, secret=shared, key=read_key(connection.key), page=address, expires=expires,
            tell=lambda done, total: tell(done / total, f"link {done:,} of {total:,}"),
        )  # fmt: skip
    _write_private(pd.DataFrame({"policy": invited, "link": links, "expires": expires.isoformat()}), output)
    result = {
        "study": study,
        "people": len(links),
        "page": address,
        "expires": expires.isoformat(),
        "epsilon": channel.epsilon,
        "charged": charged,
        "ledger": str(account.ledger_path),
        "file": str(output),
        "linkage_secret": shared.fingerprint,
    }
    facts = {
        "Study": study,
        "Invited": f"{len(links):,} people, until {expires:%Y-%m-%d %H:%M} UTC",
        "Page": address,
        "Spent": f"epsilon {channel.epsilon:.4g} by each person who answers, once",
        "Charged": f"epsilon {channel.epsilon:.4g} to {charged:,} persons" if charged else "nothing: invited before",
        "Ledger": str(account.ledger_path),
        "Stored": f"{output}  (each link is for one person alone)",
        "Linkage secret": f"{shared.fingerprint}  (the insurer's must be the same)",
    }
    return Answer(result, facts)


@party_command
def status(study: StudyOption, connection: Connection) -> Answer:
    """Tell how many of the people that you invited have answered, never who.

    The number has noise, so that nobody's answer shows in it, and it moves once in the time step of the study. Asked
    again before that, it is the same.

    Example: fairpremium collector status --study motor --key collector.key
    """
    from fairpremium.parties.clients import Collector

    check_ids(study=study)
    with connection.open(Collector) as collector:
        seen = collector.answers(study)
    facts = {
        "Study": study,
        "Answered": f"about {seen.answered:,} people (standard error {seen.standard_error:.1f})",
        "Released": f"{seen.released[:19].replace('T', ' ')} UTC, number {seen.releases}",
        "Privacy": f"epsilon {seen.epsilon:g} at delta {seen.delta:g} for whether a person has answered, all numbers "
        "together",
    }
    return Answer(message_fields(seen), facts)


@party_command
def page(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")],
    service: Annotated[str, typer.Option(help="Address of the third party's service, as browsers reach it.")],
) -> Answer:
    """Write the page on which invited people answer, for your own web server.

    Its files need nothing but a web server that sends them as they are. The service must name your origin
    (serve --collect --collect-origin), and links must name your page (invite --page). Publish the hashes: they tell
    people that the script is the one of this package.

    Example: fairpremium collector page -o public/answer --service https://third.example
    """
    from fairpremium.parties.collect import write_page

    address = _checked_address(service, "--service", "https://third.example").rstrip("/")
    if urlsplit(address).path:
        raise ValueError(f"Got --service {service!r}, but expected an address without a path.")
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file, but expected a folder.")
    written = write_page(output, address)
    facts = {"Service": address, "Written": f"{len(written)} files to {output}"}
    return Answer({"service": address, "folder": str(output), "sha256": written}, {**facts, **written})


def _page_address(page: str | None, service: str) -> str:
    if page is None:
        return f"{service.rstrip('/')}/collect/"
    return _checked_address(page, "--page", "https://app.example/answer/")


def _checked_address(address: str, option: str, example: str) -> str:
    """Return an address that is encrypted, unless it is on this machine."""
    parts = urlsplit(address)
    is_local = parts.scheme == "http" and parts.hostname in _LOCAL
    if not (parts.scheme == "https" or is_local) or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"Got {option} {address!r}, but expected an address such as {example}.")
    return address


def _write_private(table: pd.DataFrame, path: Path) -> None:
    """Write a new table that only its owner can read."""
    buffer = io.BytesIO()
    if path.suffix.lower() == ".parquet":
        table.to_parquet(buffer, index=False)
    else:
        safe, count = escape_formulas(table)
        note_formulas(count, path)
        buffer.write(safe.to_csv(index=False).encode())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(buffer.getvalue())
        file.flush()
        os.fsync(file.fileno())

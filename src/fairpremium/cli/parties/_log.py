"""``fairpremium log``: what the service did, and whether anybody changed the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fairpremium.cli._command import Answer, make_group
from fairpremium.cli._terminal import new_table, print_facts, print_table, progress
from fairpremium.cli.parties._service import Connection, ServiceFolder, party_command

if TYPE_CHECKING:
    from fairpremium.parties.protocol import Checkpoint

_LONGEST = 60


@party_command
def show_log(
    connection: Connection,
    after: Annotated[int, typer.Option(min=0, help="Show entries after this number.")] = 0,
) -> Answer:
    """Show the events of your party; operator and auditor see those of all.

    Example: fairpremium log show --key insurer.key
    """
    from fairpremium.parties.clients import Client

    with progress("Reading the log"), connection.open(Client) as client:
        pages = list(client.log(after))
    entries = [entry.model_dump() for page in pages for entry in page.entries]
    return Answer({"entries": entries, "checkpoint": pages[-1].checkpoint.model_dump()}, _render)


@party_command
def verify(
    folder: ServiceFolder,
    bundle: Annotated[
        list[Path] | None, typer.Option(help="A bundle whose checkpoint the log must contain; may be repeated.")
    ] = None,
) -> Answer:
    """Check the whole log, its hashes and its signed checkpoints; exit code 1 if something is wrong.

    A bundle carries the log's signed state of its time, out of the third party's reach: with --bundle a log that was
    rewritten as a whole is found too.

    Example: fairpremium log verify --folder third-party --bundle bundle.zip
    """
    with progress("Verifying"), folder.open() as service:
        known = _checkpoints(bundle or [], service.public_key)
        found = service.verify_log(known)
    result = {**found._asdict(), "bundles": len(known), "folder": str(folder.folder)}
    return Answer(result, _render_check, exit_code=0 if found.intact else 1)


def _checkpoints(bundles: list[Path], public_key: str) -> tuple[Checkpoint, ...]:
    """Return the checkpoints of bundles, which must be signed by the service."""
    if not bundles:
        return ()
    from fairpremium.parties.bundle import load_bundle
    from fairpremium.parties.protocol import Checkpoint, VerifyKey

    trusted = [VerifyKey(public_key)]
    return tuple(Checkpoint.model_validate(load_bundle(path, keys=trusted).manifest["log"]) for path in bundles)


def _render(result: dict[str, Any]) -> None:
    table = new_table()
    table.add_column("no.", justify="right")
    for name in ("time", "party", "event", "details"):
        table.add_column(name, no_wrap=name != "details")
    for entry in result["entries"]:
        table.add_row(
            str(entry["seq"]), entry["time"][:19], entry["party"], entry["event"], escape(_details(entry["body"]))
        )
    print_table(table)
    point = result["checkpoint"]
    print_facts({"Checkpoint": f"{point['seq']} {point['hash']}", "Signed by": point["key_id"]})


def _details(body: dict[str, Any]) -> str:
    """Write the body of an entry in a few words; digests and settings by their beginning."""
    words = []
    for name, value in body.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        text = text[:12] if name.endswith("sha256") else text
        words.append(f"{name} {text if len(text) <= _LONGEST else text[: _LONGEST - 1] + '…'}")
    return ", ".join(words)


def _render_check(result: dict[str, Any]) -> None:
    if result["intact"]:
        also = f", and {result['bundles']} checkpoint(s) from outside agree" if result["bundles"] else ""
        print(f"The log is intact: {result['entries']:,} entries{also}.")
    else:
        print(f"The log is NOT intact: entry {result['first_bad']}: {result['reason']}.")


log = make_group(
    "The log of the service: read it, and check that nobody changed it.",
    {"show": show_log, "verify": verify},
)

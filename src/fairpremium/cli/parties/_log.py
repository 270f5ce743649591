"""``fairpremium log``: what the service did, and whether anybody changed the record."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fairpremium.cli._command import Answer, make_group, option_panel
from fairpremium.cli._terminal import new_table, print_facts, print_table, progress
from fairpremium.cli.parties._service import (
    AuthorityOption,
    Connection,
    ServiceFolder,
    check_address,
    make_message,
    party_command,
)

if TYPE_CHECKING:
    from fairpremium.parties.protocol import ChainCheckpoint, Checkpoint, KeyChain

_LONGEST = 60
_outside = option_panel("From outside")


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
    service: Annotated[
        str | None, _outside(help="Address of a service to check from outside, instead of its folder.")
    ] = None,
    trust: Annotated[
        list[Path] | None, _outside(help="Public key of the service, needed the first time; may be repeated.")
    ] = None,
    state: Annotated[
        Path | None, _outside(help="File with what was found last time, made the first time; the log must continue it.")
    ] = None,
    key: Annotated[
        Path | None, _outside(help="Key of an auditor or the operator: read all entries and compare them, too.")
    ] = None,
    own: Annotated[
        bool, _outside("--own", help="With --key of another party: compare its own entries, those that it sees.")
    ] = False,
    authority: AuthorityOption = None,
) -> Answer:
    """Check the whole log, its hashes and its signed checkpoints; exit code 1 if something is wrong.

    A bundle carries the log's signed state of its time, out of the third party's reach: with --bundle a log that was
    rewritten as a whole is found too. With --service the check runs from outside, over HTTP: the service must prove
    that the log it signs now continues the one that it signed last time (--state).

    Example: fairpremium log verify --folder third-party --bundle bundle.zip
    """
    if service is not None:
        return _verify_from_outside(service, bundle or [], trust or [], state, key, own, authority)
    for name, given in (("trust", trust), ("state", state), ("key", key), ("own", own)):
        if given:
            raise ValueError(f"Got --{name} without --service, but expected the address of the service to check.")
    with progress("Verifying"), folder.open() as opened:
        known = _checkpoints(bundle or [], [opened.context.key.chain])
        found = opened.verify_log(known)
    result = {**found._asdict(), "bundles": len(known), "folder": str(folder.folder)}
    return Answer(result, _render_check, exit_code=0 if found.intact else 1)


def _verify_from_outside(
    service: str,
    bundles: list[Path],
    trust: list[Path],
    state: Path | None,
    key: Path | None,
    own: bool,
    authority: Path | None,
) -> Answer:
    from fairpremium.parties.clients import AuditState, Client, audit_log
    from fairpremium.parties.protocol import KeyChain, read_key, read_trusted_keys, replace_file

    check_address(service)
    if own and key is None:
        raise ValueError("Got --own without --key, but expected the key of the party whose entries are compared.")
    trusted = [read_trusted_keys(path) for path in trust]
    last = None
    if state is not None and state.exists():
        last = make_message(AuditState, state.read_bytes(), str(state))
        trusted.append(KeyChain.read(last.keys))
    known = _checkpoints(bundles, trusted)
    if key is None and any(not hasattr(point, "root") for point in known):
        raise ValueError("Got a bundle of 0.1.0, whose checkpoint needs all entries; expected --key of an auditor too.")
    entries = "none" if key is None else "own" if own else "all"
    caller = None if key is None else read_key(key)
    with progress("Verifying"), Client(service, caller, authority=authority) as client:
        found, kept = audit_log(client, trusted=trusted, state=last, known=known, entries=entries)
    if state is not None and kept is not None:
        replace_file(state, kept.model_dump_json(indent=1).encode(), 0o600)
    result = {**asdict(found), "bundles": len(known), "service": service}
    return Answer(result, _render_check, exit_code=0 if found.intact else 1)


def _checkpoints(bundles: list[Path], trusted: list[KeyChain]) -> tuple[Checkpoint | ChainCheckpoint, ...]:
    """Return the checkpoints of bundles, which must be signed by the service."""
    if not bundles:
        return ()
    from fairpremium.parties.bundle import load_bundle
    from fairpremium.parties.protocol import ChainCheckpoint, Checkpoint

    manifests = [load_bundle(path, keys=trusted).manifest["log"] for path in bundles]
    return tuple((Checkpoint if "root" in log else ChainCheckpoint).model_validate(log) for log in manifests)


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
    print_facts({"Checkpoint": f"{point['size']} {point['root']}", "Signed by": point["key_id"]})


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
        if result.get("before") is not None:
            also += f"; it continues the log of {result['before']:,} entries that was checked before"
        if result.get("read"):
            also += f"; the content of {result['read']:,} entries is what was signed"
        print(f"The log is intact: {result['entries']:,} entries{also}.")
    else:
        print(f"The log is NOT intact: entry {result['first_bad']}: {result['reason']}.")


log = make_group(
    "The log of the service: read it, and check that nobody changed it.",
    {"show": show_log, "verify": verify},
)

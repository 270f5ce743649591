"""Checking the log of a service from outside: what it signs now must continue what it signed before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fairpremium.parties.protocol import (
    EMPTY_ROOT,
    ChainCheckpoint,
    Checkpoint,
    Entry,
    KeyChain,
    LogProof,
    Message,
    Problem,
    PublicKey,
    VerifyKey,
    append_leaf,
    as_chains,
    chain_hash,
    check_consistency,
    check_inclusion,
    leaf_of,
    read_root,
    what_is_wrong,
)

from ._client import Client

AnyCheckpoint = Checkpoint | ChainCheckpoint
_KEYS = TypeAdapter(list[PublicKey])


class AuditState(Message):
    """What an auditor keeps from one check to the next: the keys of the service, and the log that it signed.

    - `keys`: The chain of keys, as in ``service.key.pub``.
    """

    keys: str
    checkpoint: Checkpoint


@dataclass(frozen=True)
class LogAudit:
    """What a check found.

    - `entries`: Of the log, as the service signed it.
    - `read`: Entries whose content was checked.
    - `before`: Entries when the log was checked last; None the first time.
    - `first_bad`: The first bad entry, or the number of entries up to which the service signed something else.
    - `signed`: Checkpoints that contradict each other, each signed by the service: the evidence.
    """

    entries: int
    read: int = 0
    before: int | None = None
    intact: bool = True
    first_bad: int | None = None
    reason: str = ""
    signed: list[dict[str, Any]] = field(default_factory=list)


class _Fault(Exception):  # noqa: N818 (found, not failed)
    def __init__(self, entry: int, reason: str, *signed: AnyCheckpoint):
        super().__init__(reason)
        self.entry, self.reason, self.signed = entry, reason, signed


def audit_log(
    client: Client,
    *,
    trusted: Sequence[VerifyKey | KeyChain] = (),
    state: AuditState | None = None,
    known: Sequence[AnyCheckpoint] = (),
    entries: str = "none",
) -> tuple[LogAudit, AuditState | None]:
    """Check the log of a service over HTTP; return what was found, and what to keep, None if the log is not intact.

    Parameters
    ----------
    client : Client
        Without a key it can do all but read entries.
    trusted : sequence of VerifyKey or KeyChain
        Keys of the service, from its operator (`read_trusted_keys`); needed the first time. The service must continue
        every chain in which it has a key.
    state : AuditState or None
        What the last check returned.
    known : sequence of Checkpoint or ChainCheckpoint
        From bundles. Those of 0.1.0 need all entries.
    entries : {"none", "all", "own"}
        Which entries to read and compare with what was signed: all of them, as auditor or operator, or one's own.
    """
    before = None if state is None else state.checkpoint.size
    now: Checkpoint | None = None
    read = 0
    try:
        chain = _read_keys(client, as_chains(trusted), state)
        now = client.get("/v1/checkpoint", Checkpoint)
        for point in [now, *known]:
            wrong = what_is_wrong(point, chain)
            if wrong is not None:
                raise _Fault(_size(point), wrong, point)
        for point in sorted([*([] if state is None else [state.checkpoint]), *_of_tree(known)], key=_size):
            _check_continues(client, point, now)
        if entries == "own":
            read = _check_own(client, now)
        elif entries == "all":
            read = now.size
            _check_all(client, now, [point for point in known if isinstance(point, ChainCheckpoint)])
    except _Fault as fault:
        signed = [point.model_dump() for point in fault.signed]
        size = 0 if now is None else now.size
        return LogAudit(size, read, before, False, fault.entry, fault.reason, signed), None
    return LogAudit(now.size, read, before), AuditState(keys=chain.text(), checkpoint=now)


def _read_keys(client: Client, trusted: Sequence[KeyChain], state: AuditState | None) -> KeyChain:
    """Return the chain of the service's keys; it must continue what is trusted, and lead on from there."""
    try:
        chain = KeyChain.of_public_keys(_KEYS.validate_json(client.send("GET", "/v1/keys").content))
    except ValueError:
        raise ValueError("Got keys of the service that do not sign each other; expected a chain of keys.") from None
    before = None if state is None else KeyChain.read(state.keys)
    anchors = [*trusted, *(() if before is None else (before,))]
    if not anchors:
        raise ValueError("Got no key to trust, but expected the service's public key from its operator (--trust).")
    related = [anchor for anchor in anchors if not set(anchor.keys).isdisjoint(chain.keys)]
    if related and state is not None and before is not None and not chain.continues(before):
        raise _Fault(state.checkpoint.size, "the service shows other keys than those it had", state.checkpoint)
    if not all(chain.contains(anchor) for anchor in related):
        raise ValueError(
            f"The service signs with {chain.current.key_id}, and its keys do not continue those that you trust. Ask "
            "its operator: it may be another service, with a former key that was stolen."
        )
    if all(anchor.follow(chain).current != chain.current for anchor in related):
        raise ValueError(
            f"The service signs with {chain.current.key_id}, and no key that you trust leads to it. Ask its operator "
            "for its public keys, and whether a key was lost."
        )
    return chain


def _of_tree(points: Sequence[AnyCheckpoint]) -> list[Checkpoint]:
    return [point for point in points if isinstance(point, Checkpoint)]


def _size(point: AnyCheckpoint) -> int:
    return point.size if isinstance(point, Checkpoint) else point.seq


def _check_continues(client: Client, old: Checkpoint, new: Checkpoint) -> None:
    """Insist that the log of now begins with the log of then."""
    if old.size > new.size:
        raise _Fault(new.size + 1, f"the log is shorter than it was: {old.size} entries were signed", old, new)
    proof: list[bytes] = []
    if 0 < old.size < new.size:
        proof = _prove(client, "/v1/log/consistency", {"from": old.size, "to": new.size}, old, new)
    if not check_consistency(old.size, new.size, bytes.fromhex(old.root), bytes.fromhex(new.root), proof):
        raise _Fault(old.size, "the log up to it is not what the service signed before", old, new)


def _prove(client: Client, path: str, about: dict[str, int], *signed: Checkpoint) -> list[bytes]:
    try:
        proof = client.get(path, LogProof, **about)
        return [bytes.fromhex(one) for one in proof.hashes]
    except (Problem, ValidationError, ValueError) as error:
        if isinstance(error, Problem) and error.code != "not-found":
            raise
        raise _Fault(min(about.values()), "the service has no proof for what it signed", *signed) from None


def _entries(client: Client, size: int) -> Iterator[Entry]:
    for page in client.log():
        for entry in page.entries:
            if entry.seq > size:  # newer than the checkpoint
                return
            yield entry


def _check_own(client: Client, now: Checkpoint) -> int:
    """Insist that all entries that a party sees are in the log."""
    read, root = 0, bytes.fromhex(now.root)
    for entry in _entries(client, now.size):
        path = _prove(client, "/v1/log/inclusion", {"entry": entry.seq, "size": now.size}, now)
        if not check_inclusion(leaf_of(entry.model_dump()), entry.seq - 1, now.size, root, path):
            raise _Fault(entry.seq, "it is not in the log that the service signed", now)
        read += 1
    return read


def _check_all(client: Client, now: Checkpoint, of_chain: Sequence[ChainCheckpoint]) -> None:
    """Insist that the entries are what was signed, and name the first that is not."""
    nodes: list[list[bytes]] = []
    peaks: list[bytes] = []
    digest, hashes = "0" * 64, {0: "0" * 64}
    for entry in _entries(client, now.size):
        if entry.seq != len(nodes) + 1:
            break
        peaks, made = append_leaf(len(nodes), peaks, leaf_of(entry.model_dump()))
        nodes.append(made)
        if of_chain:
            hashes[entry.seq] = digest = chain_hash(entry, digest)
    if len(nodes) < now.size:
        if not _sees_all(client, now):
            raise ValueError("Got a key that does not see all entries. Say --own to compare those that it sees.")
        raise _Fault(len(nodes) + 1, "an entry is missing", now)

    def root(size: int) -> bytes:
        return read_root(size, lambda level, end: nodes[end - 1][level]) if size else EMPTY_ROOT

    if root(now.size).hex() != now.root:
        raise _Fault(_find_first_bad(client, now, root), "its content is not what the service signed", now)
    for point in of_chain:
        if hashes.get(point.seq) != point.hash:
            raise _Fault(point.seq, "it is not what the service signed", point, now)


def _sees_all(client: Client, now: Checkpoint) -> bool:
    """May the client's key see all entries? No if the log says so: in an entry that is proved to be in it."""
    for entry in _entries(client, now.size):
        if entry.event == "key.added" and entry.body.get("key_id") == client.key_id:
            path = _prove(client, "/v1/log/inclusion", {"entry": entry.seq, "size": now.size}, now)
            is_in = check_inclusion(leaf_of(entry.model_dump()), entry.seq - 1, now.size, bytes.fromhex(now.root), path)
            return not is_in or entry.body.get("role") in ("auditor", "operator")
    return True


def _find_first_bad(client: Client, now: Checkpoint, root: Any) -> int:
    """Return the first entry that differs from what was signed: the first so many entries are, and no more."""
    signed, good, bad = bytes.fromhex(now.root), 0, now.size
    while bad - good > 1:
        middle = (good + bad) // 2
        proof = _prove(client, "/v1/log/consistency", {"from": middle, "to": now.size}, now)
        if check_consistency(middle, now.size, root(middle), signed, proof):
            good = middle
        else:
            bad = middle
    return bad

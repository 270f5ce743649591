"""The third party in process: the commands that the service offers, for notebooks, tests and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from inspect import Parameter, signature
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from fairpremium.parties.clock import service_time
from fairpremium.parties.protocol import (
    ChainCheckpoint,
    Checkpoint,
    LogPage,
    LogProof,
    OperatorStudy,
    PartTaken,
    Portfolio,
    PortfolioSpec,
    Problem,
    PublicKey,
    Report,
    ReportsTaken,
    Role,
    ServiceKey,
    VerifyKey,
    check_batch,
    check_portfolio_keys,
    check_portfolio_part,
    descriptor_of,
    labels_of,
    one_attribute,
)
from fairpremium.parties.store import Incoming, Write, Writer
from fairpremium.parties.store import log as _log

from . import _access, _fits, _portfolios, _studies, answers, erasure, keys, operations, reports
from ._context import Party, ServiceContext, ServiceLimits, check_name, open_context
from ._housekeeping import referenced
from ._restored import finish_restore

T = TypeVar("T")
P = ParamSpec("P")
Command = Callable[Concatenate[Connection, ServiceContext, Party, P], T]
Method = Callable[Concatenate["ThirdParty", Party, P], T]


def _checked(method: Method[P, T], *, uses_nonce: bool = False) -> Method[P, T]:
    """Check the right of the caller and the form of ids, and use up the nonce of its request; then run a method.

    - `uses_nonce`: The method itself uses up the nonce, in its own transaction.
    """

    @wraps(method)
    def run(self: ThirdParty, who: Party, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if who.signed is None:  # the right to a signed request was checked before its body was read
            self.check_right(who, method.__name__)
        for value in (*args, *kwargs.values()):
            if isinstance(value, str):
                check_name(value)
        if who.signed is not None and not uses_nonce:
            self._write_signed(who, lambda _: None)
        return method(self, who, *args, **kwargs)

    return run


def _transaction(command: Command[P, T], *, reads: bool = False, stores: bool = False) -> Method[P, T]:
    """Make a method of a command: it runs in a transaction, perhaps in one that only reads, or that stores files."""

    @wraps(command)
    def run(self: ThirdParty, who: Party, /, *args: P.args, **kwargs: P.kwargs) -> T:
        execute = self._read if reads else partial(self._write_signed, who)
        with self.context.files.hold() if stores else nullcontext():  # nobody deletes what is not referred to yet
            return execute(lambda c: command(c, self.context, who, *args, **kwargs))

    shown = signature(command)
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *list(shown.parameters.values())[2:]]
    run.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    return _checked(run, uses_nonce=not reads)


def _as_proof(hashes: list[bytes]) -> LogProof:
    return LogProof(hashes=tuple(one.hex() for one in hashes))


class ThirdParty:
    """A third party in a folder.

    Parameters
    ----------
    folder : str or path
        Holds the private key, the database and all files; made when it does not exist.
    database : str or None
        Address of a PostgreSQL database instead of the SQLite file in the folder.
    clock : callable or None
        Returns the time in seconds; None for the system's clock.
    limits : ServiceLimits or None

    Notes
    -----
    Each method that takes `who` first is one command of one party, for instance
    ``third_party.put_study(who, "motor", spec)``; over HTTP the signature tells who asks. Rights are checked here only.
    Secrets are stored encrypted where the environment gives a storage key (``FAIRPREMIUM_STORAGE_KEY_FILE``).
    All coordination goes through the database, so that any number of processes may open the same folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        database: str | None = None,
        clock: Callable[[], float] | None = None,
        limits: ServiceLimits | None = None,
    ):
        self.context = open_context(folder, database=database, clock=clock or service_time, limits=limits)
        finish_restore(self.context)
        self._read = self.context.database.read
        self._write: Write = self.context.database.write
        self._writer: Writer | None = None
        self._answers_taken = reports.CompactionTrigger(self.context, lambda command: self._write(command))

    def start_writer(self) -> None:
        """Commit the commands of many threads together from now on, and let reports be queued."""
        if self._writer is None:
            self._writer = Writer(self.context.database)
            self._write = self._writer.write
            self._queue = reports.ReportQueue(self.context, self._writer)

    def stop_writer(self) -> None:
        """Finish what is queued; each command is a commit of its own again."""
        if self._writer is not None:
            self._writer.close()
        self._writer, self._write = None, self.context.database.write

    def close(self) -> None:
        """Finish what is queued, and close the database."""
        self.stop_writer()
        self.context.database.close()

    def _write_signed(self, who: Party, command: Callable[[Connection], T]) -> T:
        """Use up the nonce of a request and run a command, in one transaction; a refused command leaves it used."""
        signed = who.signed
        if signed is None:
            return self._write(command)

        def run(connection: Connection) -> T | Problem:
            if _access.use_nonces(connection, self.context, [signed]) != [True]:
                return Problem("replayed")
            try:
                with connection.begin_nested():
                    return command(connection)
            except Problem as problem:
                return problem

        result = self._write(run)
        if isinstance(result, Problem):
            raise result
        return result

    # --- keys ---

    @property
    def public_key(self) -> str:
        """The service's public key as text."""
        return self.context.key.public_key

    def public_keys(self) -> list[PublicKey]:
        """Return the keys by which the service signs or signed, the oldest first, as it shows them to everybody."""
        return self.context.key.chain.public_keys()

    def rotate_service_key(self) -> ServiceKey:
        """Sign with a new key from now on; the old one signs it and nothing else any more."""
        return self.context.keys.rotate()

    def rotate_study_secret(self, study: str) -> None:
        """Give a study a new secret, as long as nothing was drawn with the old one."""
        self._write(lambda c: keys.rotate_study_secret(c, self.context.now(), study))

    def rotate_party_key(self, public_key: str, *, party: str, ends: float) -> list[keys.RegisteredKey]:
        """Register a new key of a party and let its other keys end, in seconds; return those in force."""
        key = VerifyKey(public_key)
        return self._write(lambda c: keys.rotate_party_key(c, self.context.now(), key, party, ends))

    def add_key(self, public_key: str, *, party: str, role: Role) -> None:
        """Register a public key of a party."""
        key = VerifyKey(public_key)
        self._write(lambda c: keys.add_key(c, self.context.now(), key, party, role))

    def revoke_key(self, key_id: str) -> None:
        """Refuse a key from now on."""
        self._write(lambda c: keys.revoke_key(c, self.context.now(), key_id))

    def list_keys(self) -> list[keys.RegisteredKey]:
        """Return all keys that were registered."""
        return self._read(keys.list_keys)

    def known_keys(self) -> dict[str, keys.KnownKey]:
        """Return all registered keys by their id, and whether each is in force."""
        return self._read(lambda c: keys.known_keys(c, self.context.now()))

    check_right = staticmethod(_access.check_right)

    def delete_old_nonces(self) -> None:
        """Delete the nonces of requests that would be too old by now, and close batches that may be gone."""
        self._write(lambda c: _access.delete_old_nonces(c, self.context))
        self.context.forget_batches()

    # --- studies ---

    put_study = _transaction(_studies.put_study)
    open_study = _transaction(_studies.open_study)
    close_study = _transaction(_studies.close_study)
    begin_epoch = _transaction(reports.begin_epoch, stores=True)
    get_study = _transaction(_studies.get_study, reads=True)
    list_studies = _transaction(_studies.list_studies, reads=True)

    # --- reports ---

    put_report = _transaction(reports.put_report)
    withdraw_report = _transaction(reports.withdraw_report)
    _withdraw_now = _transaction(erasure.withdraw_now, stores=True)

    def withdraw_now(self, who: Party, study: str) -> OperatorStudy:
        """Take out at once what was withdrawn, which insurers see: their fits are cancelled, and an epoch begins."""
        seen = self._withdraw_now(who, study)
        erasure.finish_withdrawals(self.context, referenced)
        return seen

    def queue_report(
        self, who: Party, study: str, key: bytes, report: Report, attribute: str | None = None
    ) -> Future[Problem | None]:
        """Take one report of a signed request, in one commit with all others that wait (see `start_writer`)."""
        return self._queue.put(reports.SingleReport(who, study, key, report, attribute))

    @_checked
    def put_report_batch(
        self, who: Party, study: str, n: int, body: bytes | Incoming, attribute: str | None = None
    ) -> ReportsTaken:
        """Take a batch of reports: its bytes, or a file that has arrived; in a study of several, of one attribute."""
        row = self._read(lambda c: _studies.find_study(c, who, study))
        one = one_attribute(_studies.spec_of(row).attribute, attribute)
        with self._received(body) as incoming:
            with incoming.syncing():  # on its way to the disk while it is checked
                batch = check_batch(incoming.path, labels_of(one), descriptor_of(one), attribute)
            with self.context.files.hold():
                taken = self._write(
                    lambda c: reports.put_report_batch(c, self.context, who, study, n, incoming, batch, attribute)
                )
        reports.compact(self.context, study, _studies.source_of(who.name, attribute), self._write)
        return taken

    @contextmanager
    def _received(self, body: bytes | Incoming) -> Iterator[Incoming]:
        if isinstance(body, Incoming):
            yield body
            return
        with self.context.files.receive(self.context.limits.part_bytes) as incoming:
            incoming.write(body)
            yield incoming

    # --- answers of people who were invited ---

    count_answers = _transaction(answers.count_answers)

    def find_invitation(self, token: str) -> answers.OpenInvitation | None:
        """Return what a token invites to, None if it cannot be used (any more)."""
        return self._read(lambda c: answers.find_invitation(c, self.context, token))

    def take_answer(self, token: str, report: str | bool | int | None, sha256: str, channel: str | None = None) -> bool:
        """Take the one answer of an invitation, None for no report; see `answers.take_answer`."""
        checked = self._read(lambda c: answers.check_answer(c, self.context, token, report, sha256, channel))
        if checked is None or checked.is_known:  # only what is new waits for the disk: no refusal takes longer
            return checked is not None
        taken = self._write(lambda c: answers.take_answer(c, self.context, token, report, sha256, channel))
        if taken is not None and report is not None:
            self._answers_taken.count([(taken.study, reports.page_of(taken.collector))])
        return taken is not None

    # --- portfolios ---

    _put_portfolio = _transaction(_portfolios.put_portfolio)

    def put_portfolio(self, who: Party, portfolio: str, spec: PortfolioSpec) -> Portfolio:
        """Declare a portfolio; one that was erased before it was sealed begins anew."""
        if self._read(lambda c: _portfolios.is_dropped(c, who, portfolio)):
            erasure.finish_erasures(self.context, (who.name, portfolio))  # before the digests of its files are gone
        return self._put_portfolio(who, portfolio, spec)

    get_portfolio = _transaction(_portfolios.get_portfolio, reads=True)

    @_checked
    def put_part(self, who: Party, portfolio: str, n: int, body: bytes | Incoming) -> PartTaken:
        """Take a part of a portfolio as Parquet: its bytes, or a file that has arrived."""
        known = self._read(lambda c: _portfolios.get_portfolio(c, self.context, who, portfolio))
        if known.state == "deleted":  # rows that were erased must not come back
            raise Problem("portfolio-deleted")
        with self._received(body) as incoming:
            with incoming.syncing():  # on its way to the disk while it is checked
                rows = check_portfolio_part(incoming.path, known.spec)
            part = PartTaken(n=n, rows=rows, sha256=incoming.sha256)
            try:
                with self.context.files.hold():
                    incoming.commit()
                    put = partial(_portfolios.put_part, part=part, size=incoming.size)
                    return self._write(lambda c: put(c, self.context, who, portfolio))
            except Problem:
                self._delete_unneeded(part.sha256)
                raise

    @_checked
    def seal_portfolio(self, who: Party, portfolio: str) -> Portfolio:
        """Make a portfolio immutable."""
        seen = self._read(lambda c: _portfolios.see_before_sealing(c, self.context, who, portfolio))
        if seen.files:
            paths = [self.context.files.path(digest) for digest in seen.files]
            check_portfolio_keys(paths, seen.key, seen.rows)
        return self._write(lambda c: _portfolios.seal_portfolio(c, self.context, who, portfolio, seen.digest))

    @_checked
    def delete_portfolio(self, who: Party, portfolio: str) -> None:
        """Erase the rows of a portfolio, and the bundles of its fits."""
        self._write(lambda c: _portfolios.delete_portfolio(c, self.context, who, portfolio))
        erasure.finish_erasures(self.context, (who.name, portfolio))

    def _delete_unneeded(self, digest: str) -> None:
        """Delete rows that no portfolio has, or has any more."""
        self.context.files.delete(digest, lambda: self._read(lambda c: _portfolios.is_needed(c, digest)))

    # --- fits ---

    put_fit = _transaction(_fits.put_fit)
    get_fit = _transaction(_fits.get_fit, reads=True)
    list_fits = _transaction(_fits.list_fits, reads=True)
    cancel_fit = _transaction(_fits.cancel_fit)
    get_bundle = _transaction(_fits.get_bundle)

    def work(self) -> int:
        """Do the fits that wait, in this process, and return how many: instead of a worker, in notebooks and tests."""
        from ._worker import work_once

        done = 0
        while work_once(self.context):
            done += 1
        return done

    # --- log ---

    @_checked
    def get_log(self, who: Party, after: int = 0) -> LogPage:
        """Return events after a position: all for auditor and operator, otherwise the party's own."""
        own = None if who.role in ("auditor", "operator") else who.name
        return self._read(lambda c: _log.read_page(c, after, own, self.context.keys.current(c)))

    @_checked
    def get_inclusion(self, who: Party, entry: int, size: int) -> LogProof:
        """Prove that an entry that the party may see is in the log with so many entries."""
        own = None if who.role in ("auditor", "operator") else who.name

        def prove(connection: Connection) -> LogProof:
            party = _log.party_of(connection, entry)
            is_there = party is not None and entry <= size <= _log.count_entries(connection)
            if not is_there or own not in (None, party):
                raise Problem("not-found")
            return _as_proof(_log.read_inclusion(connection, entry, size))

        return self._read(prove)

    def get_consistency(self, first: int, second: int) -> LogProof:
        """Prove that the log with `first` entries is the beginning of that with `second`."""

        def prove(connection: Connection) -> LogProof:
            if not first <= second <= _log.count_entries(connection):
                raise Problem("not-found")
            return _as_proof(_log.read_consistency(connection, first, second))

        return self._read(prove)

    def get_checkpoint(self) -> Checkpoint:
        """Sign the end of the log."""
        return self._read(lambda c: _log.sign_checkpoint(c, self.context.keys.current(c)))

    def verify_log(self, known: tuple[Checkpoint | ChainCheckpoint, ...] = ()) -> _log.Verification:
        """Check the log, the tree of hashes over it, and all checkpoints."""
        return self._read(lambda c: _log.verify_log(c, self.context.keys.current(c).chain, known))

    # --- operations ---

    def check_writes(self) -> None:
        """Write to the database and to the folder of files, or raise why that fails."""
        operations.check_writes(self.context, self._write)

    def fit_states(self) -> dict[tuple[str, str], _fits.Progress]:
        """Return how far all fits are, by insurer and id."""
        return self._read(_fits.fit_states)

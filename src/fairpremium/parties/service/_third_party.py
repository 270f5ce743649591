"""The third party in process: the same commands that the service offers, for notebooks, tests and the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import (
    Checkpoint,
    Fit,
    FitSpec,
    LogPage,
    OperatorStudy,
    PartTaken,
    Portfolio,
    PortfolioSpec,
    Problem,
    Report,
    ReportsTaken,
    Role,
    StudySpec,
    VerifyKey,
    check_id,
    check_portfolio_part,
    check_report_part,
    descriptor_of,
    labels_of,
)
from fairpremium.parties.store import Incoming, Write
from fairpremium.parties.store import log as _log

from . import _fits, _portfolios, _reports, _studies
from ._access import Registered, add_key, check_right, list_keys, revoke_key
from ._compaction import compact
from ._context import Party, ServiceContext, ServiceLimits, open_context

__all__ = ["ThirdParty"]

T = TypeVar("T")
P = ParamSpec("P")


class ThirdParty:
    """A third party in a folder.

    Parameters
    ----------
    folder : str or path
        Holds the private key, the database and all files; made when it does not exist.
    database : str or None
        Address of a PostgreSQL database instead of the SQLite file in the folder.
    clock : callable
        Returns the time in seconds.
    limits : ServiceLimits or None

    Notes
    -----
    Each method is one command for one party, `who`; over HTTP the signature tells who asks. All coordination goes
    through the database, so that any number of processes may open the same folder.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        database: str | None = None,
        clock: Callable[[], float] | None = None,
        limits: ServiceLimits | None = None,
    ):
        extra = {} if clock is None else {"clock": clock}
        self.context: ServiceContext = open_context(folder, database=database, limits=limits, **extra)

    def close(self) -> None:
        """Close the database."""
        self.context.store.close()

    @property
    def public_key(self) -> str:
        """The service's public key as text."""
        return self.context.key.public_key

    # --- keys ---

    def add_key(self, public_key: str, *, party: str, role: Role) -> None:
        """Register a public key of a party."""
        key = VerifyKey(public_key)
        self.context.store.write(lambda c: add_key(c, self.context, key, party, role))

    def revoke_key(self, key_id: str) -> None:
        """Refuse a key from now on."""
        self.context.store.write(lambda c: revoke_key(c, self.context, key_id))

    def list_keys(self) -> list[Registered]:
        """Return all keys that were registered."""
        return self.context.store.read(list_keys)

    # --- studies ---

    def put_study(self, who: Party, study: str, spec: StudySpec) -> OperatorStudy:
        """Declare a study."""
        return self._write(who, "put_study", _studies.put_study, _id(study), spec)

    def open_study(self, who: Party, study: str) -> OperatorStudy:
        """Take reports from now on."""
        return self._write(who, "open_study", _studies.set_state, _id(study), "open")

    def close_study(self, who: Party, study: str) -> OperatorStudy:
        """Take no more reports."""
        return self._write(who, "close_study", _studies.set_state, _id(study), "closed")

    def get_study(self, who: Party, study: str) -> _studies.StudyView:
        """Return a study as the party may see it."""
        check_right(who, "get_study")
        return self.context.store.read(lambda c: _studies.get_study(c, who, _id(study)))

    def list_studies(self, who: Party) -> list[_studies.StudyView]:
        """Return the studies that the party takes part in."""
        check_right(who, "list_studies")
        return list(self.context.store.read(lambda c: _studies.list_studies(c, who)))

    # --- reports ---

    def put_report(self, who: Party, study: str, key: bytes, report: Report) -> None:
        """Take one report."""
        self._write(who, "put_report", _reports.put_report, _id(study), check_key(key), report)

    def put_report_part(self, who: Party, study: str, n: int, body: bytes) -> ReportsTaken:
        """Take a batch of reports (`write_report_part`)."""
        with self.context.blobs.receive(self.context.limits.part_bytes) as incoming:
            incoming.write(body)
            return self.take_report_part(who, study, n, incoming, self.context.store.write)

    def take_report_part(self, who: Party, study: str, n: int, incoming: Incoming, write: Write) -> ReportsTaken:
        """Take a batch whose file has arrived; `write` runs the command."""
        check_right(who, "put_report_part")
        attribute = _studies.spec_of(
            self.context.store.read(lambda c: _studies.find_study(c, who, _id(study)))
        ).attribute
        with incoming.syncing():  # on its way to the disk while it is checked
            run = check_report_part(incoming.path, labels_of(attribute), descriptor_of(attribute))
        with self.context.blobs.hold():
            taken = write(lambda c: _reports.put_report_part(c, self.context, who, study, n, incoming, run))
        compact(self.context, study, who.name, write)
        return taken

    # --- portfolios ---

    def put_portfolio(self, who: Party, portfolio: str, spec: PortfolioSpec) -> Portfolio:
        """Declare a portfolio."""
        return self._write(who, "put_portfolio", _portfolios.put_portfolio, _id(portfolio), spec)

    def get_portfolio(self, who: Party, portfolio: str) -> Portfolio:
        """Return a portfolio of this insurer."""
        check_right(who, "get_portfolio")
        return self.context.store.read(lambda c: _portfolios.get_portfolio(c, who, _id(portfolio)))

    def put_part(self, who: Party, portfolio: str, n: int, body: bytes) -> PartTaken:
        """Take a part of a portfolio as Parquet."""
        with self.context.blobs.receive(self.context.limits.part_bytes) as incoming:
            incoming.write(body)
            return self.take_part(who, portfolio, n, incoming, self.context.store.write)

    def take_part(self, who: Party, portfolio: str, n: int, incoming: Incoming, write: Write) -> PartTaken:
        """Take a part whose file has arrived; `write` runs the command."""
        known = self.get_portfolio(who, portfolio)
        check_right(who, "put_part")
        if known.state == "deleted":  # rows that were erased must not come back
            raise Problem("portfolio-deleted")
        with incoming.syncing():  # on its way to the disk while it is checked
            rows = check_portfolio_part(incoming.path, known.spec)
        digest, size = incoming.sha256, incoming.size
        try:
            with self.context.blobs.hold():
                incoming.keep()
                return write(lambda c: _portfolios.put_part(c, self.context, who, portfolio, n, digest, rows, size))
        except Problem:
            self._drop_file(digest)
            raise

    def seal_portfolio(self, who: Party, portfolio: str) -> Portfolio:
        """Make a portfolio immutable."""
        check_right(who, "seal_portfolio")
        checked = self.context.store.read(
            lambda c: _portfolios.check_before_sealing(c, self.context, who, _id(portfolio))
        )
        return self._write(who, "seal_portfolio", _portfolios.seal, portfolio, checked)

    def delete_portfolio(self, who: Party, portfolio: str) -> None:
        """Erase the rows of a portfolio."""
        for digest in self._write(who, "delete_portfolio", _portfolios.delete_portfolio, _id(portfolio)):
            point("portfolio.erasing", writes=False)
            self._drop_file(digest)

    def _drop_file(self, digest: str) -> None:
        """Remove rows that no portfolio has, or has any more."""
        needed = partial(_portfolios.is_needed, sha256=digest)
        self.context.blobs.delete(digest, lambda: self.context.store.read(needed))

    # --- fits ---

    def put_fit(self, who: Party, fit: str, spec: FitSpec) -> Fit:
        """Ask for a fit."""
        return self._write(who, "put_fit", _fits.put_fit, _id(fit), spec)

    def get_fit(self, who: Party, fit: str) -> Fit:
        """Return a fit of this insurer."""
        check_right(who, "get_fit")
        return self.context.store.read(lambda c: _fits.get_fit(c, who, _id(fit)))

    def list_fits(self, who: Party) -> list[Fit]:
        """Return all fits of this insurer."""
        check_right(who, "list_fits")
        return self.context.store.read(lambda c: _fits.list_fits(c, who))

    def cancel_fit(self, who: Party, fit: str) -> Fit:
        """Ask a fit to stop."""
        return self._write(who, "cancel_fit", _fits.cancel_fit, _id(fit))

    def get_bundle(self, who: Party, fit: str) -> tuple[Path, str]:
        """Return file and digest of the bundle of a finished fit."""
        return self._write(who, "get_bundle", _fits.bundle_of, _id(fit))

    def work(self) -> int:
        """Do the fits that wait, in this process, and return how many: instead of a worker, in notebooks and tests."""
        from ._worker import work_once

        done = 0
        while work_once(self.context):
            done += 1
        return done

    # --- log ---

    def get_log(self, who: Party, after: int = 0) -> LogPage:
        """Return events after a position: all for auditor and operator, otherwise the party's own."""
        check_right(who, "get_log")
        own = None if who.role in ("auditor", "operator") else who.name
        return self.context.store.read(lambda c: _log.read_page(c, after, own, self.context.key))

    def verify_log(self, known: tuple[Checkpoint, ...] = ()) -> _log.Verification:
        """Check the chain of the log and all checkpoints."""
        key = VerifyKey(self.public_key)
        return self.context.store.read(lambda c: _log.verify_log(c, key, known))

    def _write(
        self,
        who: Party,
        right: str,
        command: Callable[Concatenate[Connection, ServiceContext, Party, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        check_right(who, right)
        return self.context.store.write(lambda c: command(c, self.context, who, *args, **kwargs))


def check_key(key: bytes) -> bytes:
    """Return a key of a policy, or say what one looks like."""
    if not isinstance(key, bytes) or len(key) != 16:
        raise Problem("bad-key")
    return key


def _id(value: str) -> str:
    try:
        return check_id(value)
    except ValueError:
        raise Problem("bad-id") from None

"""What is told of the epochs of a study.

An epoch begins, lasts a time that the study declares, and has one snapshot of the reports (`reports.take_snapshots`).
"""

import hmac
from typing import Any

from sqlalchemy import Connection, select, update

from fairpremium.parties.protocol import CountedEpoch, Epoch, StudySpec
from fairpremium.parties.store.log import iso
from fairpremium.parties.store.schema import epochs


def epoch_key(secret: bytes, salt: bytes | None) -> bytes:
    """Return the key of all that is drawn in an epoch.

    - `secret`: That of the study.
    - `salt`: Random bytes that the epoch began with. Two copies of a database, such as a restored one and its original,
      can both begin an epoch with the same number and the same secret; their draws are independent all the same.
      Epochs of earlier versions have none.
    """
    return secret if salt is None else hmac.digest(secret, b"fairpremium epoch" + salt, "sha256")


def newest_epoch(connection: Connection, study: str) -> Any | None:
    """Return the row of the newest epoch of a study, None before the first one."""
    mine = select(epochs).where(epochs.c.study == study)
    return connection.execute(mine.order_by(epochs.c.number.desc()).limit(1)).one_or_none()


def newest_snapshot(connection: Connection, study: str) -> Any | None:
    """Return the row of the newest epoch of a study whose snapshot was taken, None before the first one."""
    mine = select(epochs).where(epochs.c.study == study, epochs.c.taken.is_not(None))
    return connection.execute(mine.order_by(epochs.c.number.desc()).limit(1)).one_or_none()


def released_number(connection: Connection, study: str) -> int:
    """Return the number of reports that the newest snapshot told; zero before the first one, and where it told none."""
    newest = newest_snapshot(connection, study)
    return 0 if newest is None else int(newest.reports or 0)


def uncount_reports(connection: Connection, study: str, removed: int) -> None:
    """Take reports that were deleted out of those that the next released number is counted from.

    No number goes down for them: a report is in one increment of all numbers at most, also one that is withdrawn.
    """
    newest = newest_snapshot(connection, study)
    if newest is not None:
        this = (epochs.c.study == study, epochs.c.number == newest.number)
        connection.execute(update(epochs).where(*this).values(counted=epochs.c.counted - removed))


def forget_counts(connection: Connection, study: str, before: int) -> None:
    """Forget the exact numbers of reports of the epochs before one."""
    earlier = (epochs.c.study == study, epochs.c.number < before)
    connection.execute(update(epochs).where(*earlier).values(counted=0))


def end_of(row: Any, spec: StudySpec) -> float:
    """Return when an epoch ends."""
    return float(row.closed + spec.epoch_seconds)


def describe_epoch(row: Any, spec: StudySpec) -> Epoch:
    """Return what an insurer sees of an epoch."""
    return Epoch(number=row.number, closed=iso(row.closed), ends=iso(end_of(row, spec)))


def count_epochs(connection: Connection, study: str, spec: StudySpec) -> tuple[CountedEpoch, ...]:
    """Return all epochs of a study as operator and auditor see them, the newest last."""
    rows = connection.execute(select(epochs).where(epochs.c.study == study).order_by(epochs.c.number))
    return tuple(
        CountedEpoch(
            **describe_epoch(row, spec).model_dump(),
            counted=row.taken is not None,
            reports=row.reports,
            standard_error=row.standard_error,
        )
        for row in rows
    )

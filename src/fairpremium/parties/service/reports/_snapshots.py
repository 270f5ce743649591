"""Snapshots of the reports, one for each epoch of a study: when they are taken, and how long their files are kept.

The first fit that is asked for after the end of an epoch begins the next one, or the operator does. Neither depends on
a report: what is released in an epoch changes with nothing that comes in meanwhile, and every epoch is paid for anew.

How long a snapshot takes depends on the reports that wait for it. Whoever asks for a fit must not be able to measure
that: the request gives the epoch its number, and the process of its first fit takes the snapshot.
"""

import hmac
import json
import math
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, insert, select, update

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import ENDED, OperatorStudy, Problem, StudySpec, match, names_of, round_count
from fairpremium.parties.release import CountNoise
from fairpremium.parties.store.log import append, lock_log
from fairpremium.parties.store.schema import batch_files, epochs, fits

from .._context import Party, ServiceContext
from .._epochs import end_of, epoch_key, forget_counts, newest_epoch, newest_snapshot
from .._studies import (
    count_reports,
    describe_to_operator,
    find_study,
    keeps_no_reports,
    lock_study,
    spec_of,
    study_row,
)
from ._compaction import write_singles
from ._reports import sources_of
from ._withdrawals import apply_withdrawals

Keys = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]


def choose_epoch(connection: Connection, context: ServiceContext, who: Party, study: str, wanted: int | None) -> int:
    """Return the number of the epoch of a new fit, which begins now if the one before is over.

    - `wanted`: The number that the fit names, if it does.
    """
    lock_study(connection, study)
    row = newest_epoch(connection, study)
    is_over = row is None or context.now() >= end_of(row, spec_of(study_row(connection, study)))
    number = (0 if row is None else row.number) + is_over
    if wanted not in (None, number):
        raise Problem("epoch-over", f"{number}, or none")
    if is_over:
        _begin(connection, context, who.name, study, number)
    return int(number)


def begin_epoch(connection: Connection, context: ServiceContext, who: Party, study: str, number: int) -> OperatorStudy:
    """Begin the next epoch of a study and take its snapshot; the number of the newest one takes a missing snapshot."""
    row = find_study(connection, who, study)
    lock_log(connection)
    lock_study(connection, study)
    before = newest_epoch(connection, study)
    newest = 0 if before is None else before.number
    if number == newest + 1:
        _begin(connection, context, who.name, study, number)
    elif number != newest or not number:
        raise Problem("epoch-over", str(newest + 1))
    take_snapshots(connection, context, who.name, study)
    return describe_to_operator(connection, row)


def _begin(connection: Connection, context: ServiceContext, who: str, study: str, number: int) -> None:
    """Begin an epoch; its snapshot is taken later."""
    nothing = {"standard_error": 0.0, "counted": 0, "steps": 0}
    connection.execute(insert(epochs).values(study=study, number=number, closed=context.now(), **nothing))
    append(connection, context.now(), who, "epoch.begun", study=study, epoch=number)


def take_snapshots(connection: Connection, context: ServiceContext, who: str, study: str) -> None:
    """Take the snapshots of all epochs of a study that have begun and have none. Hold the store meanwhile.

    They are taken in order: each number of reports grows from the one before.
    """
    lock_log(connection)
    lock_study(connection, study)
    for number in waits_for_snapshot(connection, study):
        _take_snapshot(connection, context, who, study, number)


def waits_for_snapshot(connection: Connection, study: str) -> list[int]:
    """Return the numbers of the epochs of a study that have begun and have no snapshot."""
    waiting = select(epochs.c.number).where(epochs.c.study == study, epochs.c.taken.is_(None))
    return list(connection.execute(waiting.order_by(epochs.c.number)).scalars())


def prepare_snapshot(connection: Connection, context: ServiceContext, study: str) -> None:
    """Do what takes long in a snapshot, so that little is left for it. Hold the store meanwhile."""
    apply_withdrawals(connection, context, study)
    _write_files(connection, context, study, spec_of(study_row(connection, study)))


def _take_snapshot(connection: Connection, context: ServiceContext, who: str, study: str, number: int) -> None:
    """Take a snapshot of the reports of a study, from which all in an epoch is computed.

    The epoch gets random bytes of its own, on which all of its draws depend: its number alone would repeat in two
    copies of a database.
    """
    apply_withdrawals(connection, context, study)
    row = study_row(connection, study)
    files = _write_files(connection, context, study, spec_of(row))
    if keeps_no_reports(spec_of(row), context.now()):  # they are about to be erased
        files = {source: [] for source in files}
    salt = secrets.token_bytes(32)
    key = epoch_key(bytes(row.secret), salt)
    count = _release_count(count_reports(connection, study), row, key, number, newest_snapshot(connection, study))
    values = {"taken": context.now(), "files": json.dumps(files), "salt": salt}
    this = (epochs.c.study == study, epochs.c.number == number)
    connection.execute(update(epochs).where(*this).values(**values, **count))
    forget_counts(connection, study, before=number)
    # A plain digest would tell whoever knows all reports but one what that one is, and one without the number whether
    # nobody reported since the epoch before.
    sealed = hmac.digest(key, canonical_json({"epoch": number, "files": files}), "sha256").hex()
    append(connection, context.now(), who, "epoch.sealed", study=study, epoch=number, sealed=sealed)


def _write_files(connection: Connection, context: ServiceContext, study: str, spec: StudySpec) -> dict[str, list[str]]:
    """Make files of all reports of a study, and return their digests by source."""
    found = {}
    for source in all_sources(spec):
        write_singles(connection, context, study, source)
        mine = (batch_files.c.study == study, batch_files.c.collector == source)
        found[source] = sorted(connection.execute(select(batch_files.c.sha256).where(*mine)).scalars())
    return found


def _release_count(count: int, study: Any, key: bytes, number: int, before: Any | None) -> dict[str, Any]:
    """Return how many reports were taken so far with noise, and its standard error; where rule 9 is off, those left.

    The number grows by released increments: what was taken since the epoch before, plus noise. A report is in one
    increment at most, whether it is withdrawn later or not (`uncount_reports`), so that the numbers of all epochs
    together cost what one does, however many there are.
    """
    spec = spec_of(study)
    if spec.release is None:
        return {"reports": round_count(count, spec.rules), "standard_error": 0.0, "counted": count, "steps": 0}
    noise = CountNoise(spec.release.count_epsilon, spec.release.delta, most=len(all_sources(spec)))
    counted, steps = (0, 0) if before is None else (before.counted, before.steps)
    steps += noise.add(count - counted, key, b"reports", study.id.encode(), b"%d" % number)
    error = math.hypot(noise.sigma, 0.0 if before is None else before.standard_error)
    told = {"reports": max(round(steps * noise.grid), 0), "standard_error": error}
    return {**told, "counted": count, "steps": steps}


def all_sources(spec: StudySpec) -> list[str]:
    """Return the sources of the reports of all attributes; a person can have one report from each."""
    return [source for name in names_of(spec.attribute) for source in sources_of(spec, name)]


def open_snapshot(
    connection: Connection, context: ServiceContext, study: str, epoch: int, source: str
) -> Callable[[Keys], Codes]:
    """Return the function from keys to the codes of their reports from a source in a snapshot, -1 for none."""
    this = (epochs.c.study == study, epochs.c.number == epoch)
    files = connection.execute(select(epochs.c.files).where(*this)).scalar_one()
    if files is None:
        raise Problem("reports-erased")
    batches = [context.open_batch(digest) for digest in json.loads(files)[source]]
    return lambda keys: match(keys, batches)


def files_of_epochs(connection: Connection, *which: Any) -> set[str]:
    """Return the digests of the files of all snapshots that are kept, or of some: conditions on `epochs`."""
    kept = connection.execute(select(epochs.c.files).where(epochs.c.files.is_not(None), *which)).scalars()
    return {digest for text in kept for digests in json.loads(text).values() for digest in digests}


def forget_old_snapshots(connection: Connection) -> None:
    """Let go of the files of snapshots that were followed by another one, unless a fit still needs them."""
    other = epochs.alias()
    newest = select(func.max(other.c.number)).where(other.c.study == epochs.c.study).scalar_subquery()
    needs = select(fits.c.id).where(fits.c.study == epochs.c.study, fits.c.epoch == epochs.c.number)
    is_over = (epochs.c.number < newest, epochs.c.files.is_not(None), ~needs.where(fits.c.state.not_in(ENDED)).exists())
    connection.execute(update(epochs).where(*is_over).values(files=None))

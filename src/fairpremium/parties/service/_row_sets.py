"""The rows of a fit as rule 5 remembers them: keyed hashes of their keys, without any report.

Rule 5 needs to know which rows two fits have in common, also after a portfolio was erased or a report withdrawn. The
hashes tell that much. Neither keys nor reports can be read from them without the study's secret.
"""

import hashlib
import hmac
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select, update

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import NO_MEANING, LinkageSecret, sort_batch
from fairpremium.parties.store import store_batch
from fairpremium.parties.store.schema import releases

from ._context import ServiceContext
from ._studies import lock_study, study_row

MEANING = hashlib.sha256(b"fairpremium rows of a fit: hashed keys, no reports").digest()
_AT_ONCE = 1 << 20  # keys that are hashed at a time

Keys = npt.NDArray[Any]


def hash_keys(keys: Keys, secret: bytes, purpose: bytes = b"rows of fits") -> Keys:
    """Return a keyed hash of each key, in order: HMAC-SHA-256, its first 16 bytes.

    - `secret`: That of the study.
    - `purpose`: Hashes for different purposes cannot be compared.
    """
    hash_of = LinkageSecret(hmac.digest(secret, b"fairpremium " + purpose, "sha256")).hasher()
    hashed = [
        b"".join([hash_of(bytes(key)) for key in keys[start : start + _AT_ONCE]])
        for start in range(0, len(keys), _AT_ONCE)
    ]
    return np.frombuffer(b"".join(hashed), dtype=keys.dtype)


def store_row_set(context: ServiceContext, hashed: Keys) -> str:
    """Store the rows of a fit, given as hashes, and return the digest of the file."""
    return store_batch(context.files, sort_batch(hashed, np.zeros(len(hashed), dtype=np.uint8), MEANING))


def read_row_set(context: ServiceContext, digest: str, secret: bytes) -> Keys:
    """Return the rows of an earlier fit as hashes, also from a file that has keys and reports still (0.1.0)."""
    batch = context.open_batch(digest)
    return batch.keys if batch.meaning == MEANING else hash_keys(batch.keys, secret)


def hash_old_row_sets(context: ServiceContext) -> None:
    """Replace the files of 0.1.0, which have keys and reports, by those with hashes."""
    old = context.database.read(lambda c: _old_row_sets(c, context))
    for study, digest in sorted(old):
        with context.files.hold():
            context.database.write(partial(_replace, context=context, study=study, digest=digest))
        point("rows.hashed", writes=False)
        context.files.delete(digest, partial(context.database.read, partial(_is_used, digest=digest)))


def _old_row_sets(connection: Connection, context: ServiceContext) -> set[tuple[str, str]]:
    rows = connection.execute(select(releases.c.study, releases.c.keys_sha256).distinct())
    return {
        (row.study, row.keys_sha256)
        for row in rows
        if row.keys_sha256 in context.files and context.open_batch(row.keys_sha256).meaning == NO_MEANING
    }


def _replace(connection: Connection, context: ServiceContext, study: str, digest: str) -> None:
    lock_study(connection, study)  # a fit may be reading the file for rule 5
    secret = bytes(study_row(connection, study).secret)
    hashed = store_row_set(context, hash_keys(context.open_batch(digest).keys, secret))
    mine = (releases.c.study == study, releases.c.keys_sha256 == digest)
    connection.execute(update(releases).where(*mine).values(keys_sha256=hashed))


def _is_used(connection: Connection, digest: str) -> bool:
    return connection.execute(select(releases.c.fit).where(releases.c.keys_sha256 == digest)).first() is not None

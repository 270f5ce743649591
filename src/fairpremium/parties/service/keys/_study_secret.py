"""A new secret for a study, as long as nothing was drawn with the old one."""

import secrets

from sqlalchemy import Connection, select, update

from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import answer_counts, answers, epochs, fits, releases, sent_batches, studies

_WITHDRAWN = "withdrawn"  # stands in `answers` for the digest of one whose report was withdrawn


def rotate_study_secret(connection: Connection, now: float, study: str) -> None:
    """Give a study a new secret, unless something may have been drawn with the old one.

    The secret draws the noise of releases and the second randomization, the same for the same question. A new one
    would draw both anew: what was released could not be computed again, and two draws tell more than was charged.
    It also hashes the keys of answers that were withdrawn, and the digests of batches: with a new one their invitations
    could be used again, and a batch that is sent again would not be known.
    """
    row = connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update()).one_or_none()
    if row is None:
        raise ValueError(f"Got {study}, but expected the id of a study. They are listed by: study list.")
    for table in (epochs, fits, releases, answer_counts):
        if connection.execute(select(table.c.study).where(table.c.study == study).limit(1)).first() is not None:
            raise ValueError(
                f"The secret of {study} draws the noise of what was released, the same for the same question; a new "
                "one would draw it a second time, and the two tell more than was charged. Close the study, and "
                "declare another one."
            )
    withdrawn = (answers.c.study == study, answers.c.sha256 == _WITHDRAWN)
    if connection.execute(select(answers.c.study).where(*withdrawn).limit(1)).first() is not None:
        raise ValueError(
            f"The secret of {study} tells that the links of withdrawn answers are used; with a new one they could be "
            "used again. Close the study, and declare another one."
        )
    if connection.execute(select(sent_batches.c.n).where(sent_batches.c.study == study).limit(1)).first() is not None:
        raise ValueError(
            f"The secret of {study} tells that a batch of reports that is sent again was taken. Change the secret "
            "before collectors send batches, or declare another study."
        )
    connection.execute(update(studies).where(studies.c.id == study).values(secret=secrets.token_bytes(32)))
    append(connection, now, "service", "study.secret.rotated", study=study)

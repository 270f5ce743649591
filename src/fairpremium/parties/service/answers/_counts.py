"""How many people have answered, as a released number.

The number grows by released increments, each the number of answers since the one before plus discrete Gaussian noise.
An answer is in exactly one increment, also one that is withdrawn or erased later, so that all increments together cost
what one does, however many there are; the squares of their standard errors add up. There is at most one increment in a
time step, and when it is drawn depends on who asks and never on an answer.
"""

import math
import secrets
from typing import Any

from sqlalchemy import Connection, func, select, update

from fairpremium.parties.protocol import Answered, Problem, Question
from fairpremium.parties.release import CountNoise
from fairpremium.parties.store.log import append, iso, upsert
from fairpremium.parties.store.schema import answer_counts, answers

from .._context import Party, ServiceContext
from .._studies import find_study, spec_of, study_row


def count_answers(connection: Connection, context: ServiceContext, who: Party, study: str) -> Answered:
    """Return how many of the people that a collector invited have answered; within a time step it is the same."""
    row = find_study(connection, who, study)
    question = spec_of(row).question
    if question is None:
        raise Problem("not-allowed-here", "it asks nobody on a page")
    place = {"study": study, "collector": who.name}
    nothing = upsert(connection, answer_counts).values(**place, counted=0, steps=0, releases=0, at=0.0)
    connection.execute(nothing)
    mine = (answer_counts.c.study == study, answer_counts.c.collector == who.name)
    last = connection.execute(select(answer_counts).where(*mine).with_for_update()).one()
    now = context.now()
    if not last.releases or now // question.count_seconds > last.at // question.count_seconds:
        these = (answers.c.study == study, answers.c.collector == who.name)
        total = int(connection.execute(select(func.count()).select_from(answers).where(*these)).scalar_one())
        noise = CountNoise(question.count_epsilon, question.count_delta)
        # Fresh for each number, which is stored: of two copies of a database none must repeat the noise of the other.
        about = (b"answers", study.encode(), who.name.encode(), b"%d" % last.releases, secrets.token_bytes(32))
        steps = last.steps + noise.add(total - last.counted, row.secret, *about)
        values = {"counted": total, "steps": steps, "releases": last.releases + 1, "at": now}
        connection.execute(update(answer_counts).where(*mine).values(**values))
        last = connection.execute(select(answer_counts).where(*mine)).one()
        told = _answered(study, question, last)
        append(connection, now, who.name, "answers.released", study=study, answered=told.answered)
    return _answered(study, question, last)


def read_answered(connection: Connection, study: str, collector: str) -> Answered | None:
    """Return the number that was released last, None if there is none."""
    question = spec_of(study_row(connection, study)).question
    mine = (answer_counts.c.study == study, answer_counts.c.collector == collector, answer_counts.c.releases > 0)
    last = connection.execute(select(answer_counts).where(*mine)).one_or_none()
    return None if question is None or last is None else _answered(study, question, last)


def _answered(study: str, question: Question, last: Any) -> Answered:
    noise = CountNoise(question.count_epsilon, question.count_delta)
    return Answered(
        study=study,
        answered=max(round(last.steps * noise.grid), 0),
        standard_error=noise.sigma * math.sqrt(last.releases),
        releases=last.releases,
        released=iso(last.at),
        epsilon=question.count_epsilon,
        delta=question.count_delta,
    )

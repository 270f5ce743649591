"""Commands on answers: an invitation is used once, by a person and not by a token.

Nothing here writes to the log: an entry with its time for every answer would tell the collector, who knows when a link
was sent, who has answered. The log gets the released numbers (`_counts`).
"""

import hmac
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, insert, select

from fairpremium.parties.protocol import Invitation, Question, StudySpec, VerifyKey, descriptor_of, read_token
from fairpremium.parties.store.log import upsert
from fairpremium.parties.store.schema import answers, keys, participants, reports, studies

from .._context import ServiceContext
from .._studies import spec_of, takes_reports
from ..keys import in_force
from ..reports import code_of_label, hashed_key, page_of, waits_for_withdrawal

# What stands for a token that cannot be read, so that it takes the same look-ups as one that can.
_NOBODY = Invitation("ed25519-" + "0" * 16, "-", bytes(16), 0, b"", bytes(64))
_NO_KEY = VerifyKey("ed25519:" + "58" + "66" * 31)  # the base point: verifying with it takes as long as with any other


@dataclass(frozen=True)
class OpenInvitation:
    """An invitation that can be used: whose it is, and what is asked."""

    study: str
    collector: str
    key: bytes
    expires: int
    spec: StudySpec
    question: Question


def find_invitation(
    connection: Connection, context: ServiceContext, token: str, *, used: bool = False
) -> OpenInvitation | None:
    """Return what a token invites to; None if it is forged, expired, used, revoked, or the study takes no reports.

    - `used`: Return a used one, too.

    All kinds of None take the same steps.
    """
    invitation = read_token(token, context.keys.current(connection)) or _NOBODY
    registered = select(keys.c.party, keys.c.public_key).where(
        keys.c.key_id == invitation.key_id, in_force(context.now()), keys.c.role == "collector"
    )
    collector = connection.execute(registered).one_or_none()
    signer = _NO_KEY if collector is None else VerifyKey(collector.public_key)
    is_signed = signer.verify(invitation.signature, invitation.signed) and collector is not None
    name = "" if collector is None else collector.party
    of_collector = (participants.c.party == name, participants.c.role == "collector")
    query = select(studies).join(participants, participants.c.study == studies.c.id)
    row = connection.execute(query.where(studies.c.id == invitation.study, *of_collector)).one_or_none()
    withdrawn = hashed_key(invitation.key, bytes(32) if row is None else bytes(row.secret))
    place = (answers.c.study == invitation.study, answers.c.collector == name)
    either = answers.c.key.in_((invitation.key, withdrawn))
    found = [bytes(key) for key in connection.execute(select(answers.c.key).where(*place, either)).scalars()]
    now = context.now()
    if not is_signed or now >= invitation.expires or row is None or not takes_reports(row, now):
        return None
    spec = spec_of(row)
    if spec.question is None or withdrawn in found or (found and not used):
        return None
    return OpenInvitation(invitation.study, name, invitation.key, invitation.expires, spec, spec.question)


@dataclass(frozen=True)
class CheckedAnswer:
    """An answer that can be taken: the code of its report, None for no report, and whether it has been taken before."""

    invitation: OpenInvitation
    code: int | None
    is_known: bool


def check_answer(
    connection: Connection,
    context: ServiceContext,
    token: str,
    report: str | bool | int | None,
    sha256: str,
    channel: str | None = None,
) -> CheckedAnswer | None:
    """Look at an answer without taking it; None if it is refused.

    - `report`: None if the person prefers not to say; the invitation is used then, and no report is stored.
    - `sha256`: Of the whole request. The same request again is taken again and changes nothing.
    - `channel`: Hash of the channel that drew the report, None if it was not said. A page that was given
      another channel than the study's has drawn a report that the study cannot use.
    """
    found = find_invitation(connection, context, token, used=True)
    if found is None:
        return None
    if found.key in waits_for_withdrawal(connection, found.study, found.collector):
        return None  # it would be taken, and deleted
    code = None if report is None else code_of_label(found.spec.attribute, report)
    if report is not None and code is None:
        return None
    described = descriptor_of(found.spec.attribute)
    if channel is not None and (described is None or channel != described["sha256"]):
        return None
    first = connection.execute(select(answers.c.sha256).where(*_place(found))).scalar_one_or_none()
    if first is not None and not hmac.compare_digest(first, sha256):
        return None
    return CheckedAnswer(found, code, is_known=first is not None)


def take_answer(
    connection: Connection,
    context: ServiceContext,
    token: str,
    report: str | bool | int | None,
    sha256: str,
    channel: str | None = None,
) -> OpenInvitation | None:
    """Take an answer, and return whose it was; None if it is refused, and then nothing has changed.

    The arguments are those of `check_answer`.
    """
    study = (read_token(token, context.keys.current(connection)) or _NOBODY).study
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update(read=True))
    checked = check_answer(connection, context, token, report, sha256, channel)
    if checked is None or checked.is_known:
        return None if checked is None else checked.invitation
    found = checked.invitation
    place = {"study": found.study, "collector": found.collector, "key": found.key}
    new = upsert(connection, answers).values(**place, sha256=sha256).returning(answers.c.key)
    if connection.execute(new).first() is None:  # another process was faster: this waited for its end
        first = connection.execute(select(answers.c.sha256).where(*_place(found))).scalar_one()
        return found if hmac.compare_digest(first, sha256) else None
    if checked.code is not None:
        values = {**place, "collector": page_of(found.collector), "code": checked.code}
        connection.execute(insert(reports).values(**values))
    return found


def _place(found: OpenInvitation) -> tuple[ColumnElement[bool], ...]:
    return answers.c.study == found.study, answers.c.collector == found.collector, answers.c.key == found.key

"""Invitations of a collector: personal links, and what they cost the people who get them."""

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from fairpremium.parties.protocol import CollectorStudy, LinkageSecret, Problem, SigningKey, make_keys, write_token
from fairpremium.privacy import PrivacyLedger

_TOLD_EVERY = 256  # links between two calls of `tell`


def make_links(
    policies: Any,
    *,
    study: CollectorStudy,
    secret: LinkageSecret,
    key: SigningKey,
    page: str,
    expires: datetime,
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Make a personal link for each policyholder, with which one answer can be given.

    Parameters
    ----------
    policies : list, array or column of str or int
        Policy numbers, none missing and none twice. They are not in the links.
    study : CollectorStudy
        As `Collector.study` returns it; it must ask a question.
    secret : LinkageSecret
        Of the study.
    key : SigningKey
        The collector's key.
    page : str
        Address of the page, without a fragment.
    expires : datetime
        With a time zone. From then on the links are worth nothing.
    tell : callable
        Gets the number of links that were made, and that of all.

    Returns
    -------
    list of str
        In the order of `policies`. What follows the number sign is in no request that a browser sends for the page,
        and can be read by the third party alone. Links that are made again are other ones; whichever of them a person
        uses, one answer is taken.
    """
    if study.invitation_key is None:
        raise Problem("not-allowed-here", "it asks nobody on a page")
    if expires.tzinfo is None:
        raise ValueError("Got expires without a time zone, but expected one. UTC will do.")
    if "#" in page:
        raise ValueError(f"Got {page!r} as the address of the page, but expected one without a fragment (#).")
    keys = make_keys(secret, policies).to_pylist()
    until = int(expires.astimezone(UTC).timestamp())
    links = []
    for n, person in enumerate(keys, start=1):
        links.append(f"{page}#{write_token(key, study.invitation_key, study=study.id, key=person, expires=until)}")
        if n % _TOLD_EVERY == 0 or n == len(keys):
            tell(n, len(keys))
    return links


def charge_invitations(
    ledger: PrivacyLedger, people: Iterable[str], *, study: str, attribute: str, epsilon: float
) -> int:
    """Charge people for the one report that an invitation lets them send; return for how many it was the first one.

    An invitation is charged when it is made, because nobody tells the collector who uses it. However many links a
    person gets for one study, one report can come of them, and it is charged once.

    - `attribute`: As other charges of the ledger name it.
    - `epsilon`: Of the study's channel.
    """

    def name(person: str) -> str:
        fields = "\n".join(["invitation", study, attribute, person])
        return hashlib.sha256(fields.encode()).hexdigest()

    return ledger.charge_each((name(person), (person, attribute, epsilon)) for person in people)

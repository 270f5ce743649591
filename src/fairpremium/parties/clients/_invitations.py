"""Invitations of a collector: personal links, and what they cost the people who get them."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import compress
from typing import Any, NamedTuple

from fairpremium.parties.protocol import CollectorStudy, LinkageSecret, Problem, SigningKey, make_keys, write_token
from fairpremium.privacy import Channel, PrivacyLedger

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


class Invited(NamedTuple):
    """What `charge_invitations` returns: the policies that get a link, and the number of persons who were charged."""

    policies: list[str]
    charged: int


def charge_invitations(
    ledger: PrivacyLedger,
    policies: Sequence[str],
    *,
    persons: Sequence[str] | None = None,
    study: str,
    secret: LinkageSecret,
    attribute: str,
    channel: Channel,
    named_by: str,
    confirm_new_draw: bool = False,
) -> Invited:
    """Charge people for the one report that an invitation lets them send.

    An invitation is charged when it is made, because nobody tells the collector who uses it. However many links a
    person gets for one policy in one study, one report can come of them, and it is charged once. A person gets a link
    for one policy: the one that was invited before or, at first, the smallest number.

    - `persons`: The person beside each policy; without it a policy counts as a person, unless the ledger knows whose it
      is.
    - `secret`: Of the study. Another third party may have a study of the same name, where people draw again.
    - `attribute`: As other charges of the ledger name it.
    - `channel`: Of the study.
    - `named_by`: By what people are named: the column of `persons` or, without them, that of `policies`.
    - `confirm_new_draw`: Whether to invite people who have reported before, and charge them again.
    """
    who = ledger.find_persons(policies, policies=True) if persons is None else list(persons)
    scheme = str(channel.descriptor()["sha256"])
    hash_of = secret.hasher()  # another secret, another draw

    def draw(person: str, policy: str) -> bytes:
        return hash_of(json.dumps(["invitation", study, attribute, scheme, person, policy]).encode())

    draws = {policy: draw(person, policy) for person, policy in zip(who, policies, strict=True)}
    before = ledger.find_draws(draws.values())
    chosen: dict[str, str] = {}
    for policy, person in sorted(
        zip(policies, who, strict=True), key=lambda pair: (draws[pair[0]] not in before, pair)
    ):
        chosen.setdefault(person, policy)
    is_chosen = [chosen[person] == policy for policy, person in zip(policies, who, strict=True)]
    invited = list(compress(policies, is_chosen))
    charged = ledger.charge_draws(
        who, [draws[policy] if here else None for policy, here in zip(policies, is_chosen, strict=True)],
        attribute=attribute, epsilon=channel.epsilon, policies=None if persons is None else policies,
        named_by=named_by, confirm_new_draw=confirm_new_draw,
    )  # fmt: skip
    return Invited(invited, charged)

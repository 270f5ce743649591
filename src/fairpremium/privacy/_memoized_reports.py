"""Reports that do not change when the same person is asked again."""

import hmac
from typing import Any, NoReturn

import numpy as np

from ..documents import canonical_json
from ..labels import encode_labels, label_to_json
from ._channel import Channel
from ._containers import labels_like
from ._ledger import check_key
from ._sampling import WORD

_PROTOCOL = b"fairpremium memoized report 1"
_SHORTEST_SECRET = 16


class MemoizedReports:
    """Draw reports from a keyed hash, so that the same person and answer always give the same report.

    Parameters
    ----------
    channel : Channel
        With finite epsilon.
    secret : bytes
        At least 16 bytes from ``secrets.token_bytes``, held where the person answers and by nobody who sees
        the reports: whoever knows the secret can undo the noise. It is never printed and never pickled.
    attribute : str
        Name of the attribute, for instance "sex".
    campaign : str
        Name of the collection. Another campaign draws afresh and spends epsilon again.

    Notes
    -----
    The integer u of the channel comes from HMAC-SHA-256 under the secret, over the length-prefixed fields
    person, hash of the channel's descriptor, attribute, campaign, answer, component and a counter. 32-bit
    words of the digest are accepted or thrown away as in :meth:`Channel.privatize`, so that the weights are
    exact if the hash is a random function. A majority vote over a thousand reports of one person learns what
    one report tells.

    **A changed answer leaks.** It draws a new, independent report: whoever sees both learns twice epsilon,
    and that the report changed proves that the answer did. Charge the ledger for it.

    Examples
    --------
    >>> from fairpremium.privacy import RandomizedResponse
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> reports = MemoizedReports(channel, b"sixteen bytes or more", attribute="sex", campaign="2025")
    >>> reports.report("policy 17", "F") == reports.report("policy 17", "F")
    True
    """

    def __init__(self, channel: Channel, secret: bytes, *, attribute: str, campaign: str) -> None:
        if not isinstance(channel, Channel):
            raise TypeError(f"Got channel of type {type(channel).__name__}, but expected a Channel.")
        channel._refuse_if_unprotected()
        if not isinstance(secret, (bytes, bytearray)):
            raise TypeError(f"Got secret of type {type(secret).__name__}, but expected bytes (secrets.token_bytes).")
        if len(secret) < _SHORTEST_SECRET:
            raise ValueError(f"Got secret with {len(secret)} bytes, but expected at least {_SHORTEST_SECRET}.")
        self.channel = channel
        self.attribute = check_key(attribute, "attribute")
        self.campaign = check_key(campaign, "campaign")
        self.__secret = bytes(secret)
        scheme = bytes.fromhex(channel.descriptor()["sha256"])
        self._prefix = _fields(_PROTOCOL, scheme, self.attribute.encode(), self.campaign.encode())
        self._answers = [_fields(canonical_json(label_to_json(group))) for group in channel.groups]

    def report(self, person: Any, value: Any) -> Any:
        """Return the report of one person; see :meth:`privatize`.

        Parameters
        ----------
        person : str, int or bytes
            A key of the person.
        value : label
            The true value.

        Returns
        -------
        report : label
        """
        return self.privatize([person], [value]).tolist()[0]

    def privatize(self, persons: Any, values: Any) -> Any:
        """Return one report per person; the same person and value give the same report in every call.

        Parameters
        ----------
        persons : sequence of str, int or bytes, length n
            Keys of the persons.
        values : array-like of shape (n,), or a table with one column per attribute
            True values; every one must be a declared group.

        Returns
        -------
        reports : as :meth:`Channel.privatize` returns them
        """
        codes = encode_labels(values, self.channel.groups, name="values", missing="error")
        keys = [_person_bytes(person) for person in persons]
        if len(keys) != len(codes):
            raise ValueError(f"Got {len(keys)} persons, but expected one key per value, {len(codes)} in all.")
        rows = list(zip(keys, codes.tolist(), strict=True))
        u = [
            np.array([self._uniform(key, code, j, component.total) for key, code in rows], dtype=np.int64)
            for j, component in enumerate(self.channel.components)
        ]
        return labels_like(values, self.channel._choose_all(codes, u), self.channel.reports)

    def _uniform(self, person: bytes, code: int, component: int, total: int) -> int:
        """Return the integer in range(total) that belongs to a person, an answer and a component."""
        limit = WORD - WORD % total
        message = self._prefix + _fields(person) + self._answers[code] + component.to_bytes(4, "big")
        counter = 0
        while True:
            digest = hmac.digest(self.__secret, message + counter.to_bytes(8, "big"), "sha256")
            for start in range(0, len(digest), 4):
                word = int.from_bytes(digest[start : start + 4], "big")
                if word < limit:
                    return word % total
            counter += 1

    def __repr__(self) -> str:
        return (
            f"MemoizedReports({self.channel!r}, secret=..., attribute={self.attribute!r}, campaign={self.campaign!r})"
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("MemoizedReports holds a secret and is not pickled; build it again where it is needed.")


def _fields(*values: bytes) -> bytes:
    """Join fields so that no two different lists give the same bytes: each after its length."""
    return b"".join(len(value).to_bytes(8, "big") + value for value in values)


def _person_bytes(person: Any) -> bytes:
    if isinstance(person, str):
        return b"s" + person.encode("utf-8", "surrogatepass")
    if isinstance(person, bytes):
        return b"b" + person
    if isinstance(person, (int, np.integer)) and not isinstance(person, bool):
        return b"i" + str(int(person)).encode()
    raise TypeError(f"Got a person of type {type(person).__name__}, but expected a key of type str, int or bytes.")

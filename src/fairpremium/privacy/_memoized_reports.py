"""Reports that do not change when the same person is asked again."""

import hmac
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..documents import canonical_json
from ..labels import encode_labels, label_to_json
from ._channel import Channel
from ._containers import labels_like
from ._ledger import PrivacyLedger, check_key
from ._sampling import WORD

_PROTOCOL = b"fairpremium memoized report 1"
_DRAW = b"fairpremium draw 1"
_ID_BYTES = 16
_SHORTEST_SECRET = 16


class DrawnReports(NamedTuple):
    """What :meth:`MemoizedReports.draw` returns: reports, and the number of persons who were charged for them."""

    reports: Any
    charged: int


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
        Name of the attribute, for instance "sex"; always the same, whatever columns are called.
    campaign : str
        Name of the collection. Another campaign draws afresh and spends epsilon again. Leave it out: then the same
        people give the same reports year after year.

    Notes
    -----
    The integer u of the channel comes from HMAC-SHA-256 under the secret, over the length-prefixed fields
    person, hash of the channel's descriptor, attribute, campaign, answer, component and a counter. 32-bit
    words of the digest are accepted or thrown away as in :meth:`Channel.privatize`, so that the weights are
    exact if the hash is a random function. A majority vote over a thousand reports of one person learns what
    one report tells.

    **A changed answer leaks.** It draws a new, independent report: whoever sees both learns twice epsilon,
    and that the report changed proves that the answer did. So does another secret. :meth:`draw` charges a ledger and
    asks for confirmation first.

    Examples
    --------
    >>> from fairpremium.privacy import RandomizedResponse
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> reports = MemoizedReports(channel, b"sixteen bytes or more", attribute="sex", campaign="2025")
    >>> reports.report("person 17", "F") == reports.report("person 17", "F")
    True
    >>> ledger = PrivacyLedger(":memory:")
    >>> three, charged = reports.draw(["ann", "bob", "ann"], ["F", "M", "F"], ledger)  # ann has two policies
    >>> bool(three[0] == three[2]), charged, round(ledger.spent("ann", "sex"), 3)
    (True, 2, 1.386)
    """

    def __init__(self, channel: Channel, secret: bytes, *, attribute: str, campaign: str = "reports") -> None:
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
        rows = self._rows(persons, values)
        u = [
            np.array([self._uniform(key, code, j, component.total) for key, code in rows], dtype=np.int64)
            for j, component in enumerate(self.channel.components)
        ]
        codes = np.array([code for _, code in rows], dtype=np.int64)
        return labels_like(values, self.channel._choose_all(codes, u), self.channel.reports)

    def draw(
        self,
        persons: Sequence[str],
        values: Any,
        ledger: PrivacyLedger,
        *,
        policies: Sequence[str] | None = None,
        declared: Collection[str] = (),
        named_by: str | None = None,
        confirm_new_draw: bool = False,
    ) -> DrawnReports:
        """Charge every person for the report, once and for all, and return the reports.

        Parameters
        ----------
        persons : sequence of str, length n
            Keys of the persons; a person with several policies is named several times and has one report.
        values : array-like of shape (n,), or a table with one column per attribute
            True values, one and the same wherever a person is named.
        ledger : PrivacyLedger
        policies : sequence of str, optional
            A policy number beside each person, which the ledger remembers: see :meth:`PrivacyLedger.charge_draws`.
        declared : collection of str
            Names of attributes that are known to be others than this one.
        named_by : str, optional
            By what `persons` are named, such as a column of a table: see :meth:`PrivacyLedger.charge_draws`.
        confirm_new_draw : bool
            Whether to draw people afresh who have reported before: with another secret, channel, campaign or answer, or
            an attribute of another name.

        Returns
        -------
        DrawnReports
            The reports, as :meth:`privatize` returns them, and how many persons were charged.

        Raises
        ------
        NewDrawError
            If somebody has reported before, and `confirm_new_draw` does not allow another draw; nothing is charged.
        """
        if policies is None:
            persons = ledger.find_persons(persons, policies=False)
        charged = ledger.charge_draws(
            persons,
            self.draw_ids(persons, values),
            attribute=self.attribute,
            epsilon=self.channel.epsilon,
            policies=policies,
            declared=declared,
            named_by=named_by,
            confirm_new_draw=confirm_new_draw,
        )
        return DrawnReports(self.privatize(persons, values), charged)

    def draw_ids(self, persons: Any, values: Any) -> list[bytes]:
        """Return a name for the draw of each person, the same for the same report and for no other.

        Parameters
        ----------
        persons, values : as in :meth:`privatize`

        Returns
        -------
        ids : list of bytes
            16 bytes of an HMAC-SHA-256 over all that a report depends on. Without the secret they say nothing.
        """
        prefix = _fields(_DRAW) + self._prefix
        known: dict[tuple[bytes, int], bytes] = {}
        for row in (rows := self._rows(persons, values)):
            if row not in known:
                message = prefix + _fields(row[0]) + self._answers[row[1]]
                known[row] = hmac.digest(self.__secret, message, "sha256")[:_ID_BYTES]
        return [known[row] for row in rows]

    def _rows(self, persons: Any, values: Any) -> list[tuple[bytes, int]]:
        """Return key and code of each row; raise if a person has several values."""
        codes = encode_labels(values, self.channel.groups, name="values", missing="error").tolist()
        keys = [_person_bytes(person) for person in persons]
        if len(keys) != len(codes):
            raise ValueError(f"Got {len(keys)} persons, but expected one key per value, {len(codes)} in all.")
        rows = list(zip(keys, codes, strict=True))
        first = dict(reversed(rows))
        differ = len({key for key, code in rows if first[key] != code})
        if differ:
            raise ValueError(
                f"Got several values of {self.attribute!r} for {differ} of {len(first)} persons, but expected one of "
                "each. Correct the table: a person has one report."
            )
        return rows

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

"""A second randomized response by the third party: whatever is computed from the new reports tells little of the old.

Each stored report S is drawn once more, through a channel T2 with epsilon_r, from a keyed hash of the person's key. The
same person has the same new report S' in every fit of the study, so that repeating, differencing and reshaping fits
learns nothing more. S' came from D through T2 T, and every correction undoes that channel as it would undo T.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fairpremium._labels import decode_labels, encode_labels
from fairpremium.privacy import Channel, MemoizedReports, RandomizedResponse
from fairpremium.privacy._exact import MAX_TOTAL

_FEWEST_BITS = 16  # of the second channel's weights, so that epsilon_r is met closely


class Randomized(NamedTuple):
    """Reports after the second draw, and the channel from D to them."""

    reports: npt.NDArray[Any]  # labels, None where there is no report
    channel: Channel
    second: RandomizedResponse


def second_channel(reports: Sequence[Any], epsilon: float, total: int = 1) -> RandomizedResponse:
    """Return T2: randomized response among the reports, with at most this epsilon.

    Parameters
    ----------
    reports : sequence
        The values of S.
    epsilon : float
        epsilon_r.
    total : int
        Total of the first channel's weights; T2 gets weights so small that T2 T is exact, if that leaves it enough.
    """
    bits = max(_FEWEST_BITS, 32 - (total - 1).bit_length())
    return RandomizedResponse(reports, epsilon=epsilon, _bits=bits)


def compose(second: Channel, first: Channel) -> Channel:
    """Return the channel T2 T of reports that are drawn through `first` and then through `second`.

    Examples
    --------
    >>> channel = RandomizedResponse(["F", "M"], keep=0.75)
    >>> compose(channel, channel).matrix.tolist()
    [[0.625, 0.375], [0.375, 0.625]]
    """
    if second.groups != first.reports:
        raise ValueError("The second channel must start from the reports of the first.")
    T2 = [[Fraction(int(w), second.total) for w in row] for row in second._weight_rows]
    T1 = [[Fraction(int(w), first.total) for w in row] for row in first._weight_rows]
    product = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*T1, strict=True)] for row in T2]
    both = Channel(product, groups=first.groups, reports=second.reports)
    if np.isnan(both.keep) or both.total > MAX_TOTAL:
        return both
    a, b = both._weight_rows[0][0], both._weight_rows[0][1]
    return RandomizedResponse._from_integers(first.groups, a, b)


def randomize_reports(
    keys: Any,
    reports: Any,
    channel: Channel | None,
    epsilon: float,
    secret: bytes,
    *,
    groups: Sequence[Any] | None = None,
) -> Randomized:
    """Draw every report once more, the same for the same key in every call.

    Parameters
    ----------
    keys : sequence of str, int or bytes, length n
        One key per person, none twice.
    reports : array of shape (n,)
        S; None stands for a person who did not report, which stays so.
    channel : Channel or None
        Of the reports; None if they are the true attribute.
    epsilon : float
        epsilon_r of the second draw.
    secret : bytes
        Secret of the study, at least 16 bytes, held by the third party alone: whoever has it can undo the draw.
    groups : sequence, optional
        The groups, if `channel` is None.

    Returns
    -------
    Randomized
    """
    labels = tuple(groups or ()) if channel is None else channel.reports
    if not labels:
        raise ValueError("Got channel=None without groups=..., but expected the groups of the true attribute.")
    second = second_channel(labels, epsilon, 1 if channel is None else channel.total)
    codes = encode_labels(reports, labels, name="reports", missing="code")
    persons = list(keys)
    if len(persons) != len(codes):
        raise ValueError(f"Got {len(persons)} keys for {len(codes)} reports, but expected one each.")
    if len(set(persons)) < len(persons):
        raise ValueError("Got keys that are repeated, but expected each person once: one person has one report.")
    memo = MemoizedReports(second, secret, attribute="stored report", campaign="release")
    there = np.flatnonzero(codes >= 0)
    values = decode_labels(codes[there], labels)
    drawn = encode_labels(memo.privatize([persons[i] for i in there], values), labels, name="reports")
    new = np.full(len(codes), -1, dtype=np.int64)
    new[there] = drawn
    fresh = decode_labels(new, labels)
    return Randomized(fresh, second if channel is None else compose(second, channel), second)

"""A second randomized response by the third party: whatever is computed from the new reports says little about the old.

Each stored report S is drawn once more, through a channel T2 with epsilon_r, from a keyed hash of the person's key. The
same person has the same new report S' in every fit of an epoch, so that repeating, differencing and reshaping fits
learns nothing more. Reports change between epochs only, and each epoch has draws of its own, which are paid for anew.
S' came from D through T2 T, and every correction undoes that channel as it would undo T.

Whether a person reported at all is hidden in the same draw: "no report" is one more value among those that T2 mixes up.
Some who reported then count as if they had not, and some who did not are given a report at random. The first costs
rows. The second dilutes the channel: among those with a report S', a share j has one that says nothing, and

    P(S' = s given D, there is one) = (1 - j) (T2 T)[s, D] + j / R.

j follows from how many S' are missing. It is taken to be the same everywhere; where reporting depends on the features,
the differences between groups are shrunk a little more or less than is undone, by the order of j.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fairpremium.labels import decode_labels, encode_labels
from fairpremium.privacy import MAX_TOTAL, Channel, MemoizedReports, RandomizedResponse

from ._released_reports import DRAWN, ReleasedReports

if TYPE_CHECKING:
    import numpy.typing as npt

_FEWEST_BITS = 16  # of the second channel's weights, so that epsilon_r is met closely


def second_channel(
    reports: Sequence[Any], epsilon: float, total: int = 1, *, hidden: bool = True
) -> RandomizedResponse:
    """Return T2: randomized response among the reports, with at most this epsilon.

    - `reports` (sequence): The values of S.
    - `epsilon`: epsilon_r.
    - `total`: Total of the first channel's weights; T2 gets weights so small that T2 T is exact, if that leaves it
      enough.
    - `hidden`: Whether to mix in "no report" as well.
    """
    if hidden:
        return RandomizedResponse(range(len(reports) + 1), epsilon=epsilon)
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
        raise ValueError("Got other groups of the second channel, but expected the reports of the first.")
    T2 = [[Fraction(int(w), second.total) for w in row] for row in second.weights]
    T1 = [[Fraction(int(w), first.total) for w in row] for row in first.weights]
    product = [[sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*T1, strict=True)] for row in T2]
    both = Channel(product, groups=first.groups, reports=second.reports)
    if np.isnan(both.keep) or both.total > MAX_TOTAL:
        return both
    a, b = int(both.weights[0, 0]), int(both.weights[0, 1])
    return RandomizedResponse.from_integers(first.groups, a, b)


def seen_channel(drawn: ReleasedReports, first: Channel | None, labels: Sequence[Any] | None = None) -> Channel:
    """Return the channel from D to reports that went through the second draw.

    - `first`: Of the stored reports; None if they are the true attribute.
    - `labels` (sequence, optional): The values of the stored reports, if `first` is None.
    """
    return mixed_channel(drawn.one_draw, first, drawn.missing_share, labels)


def mixed_channel(
    second: RandomizedResponse, first: Channel | None, share: float, labels: Sequence[Any] | None = None
) -> Channel:
    """Return the same channel from the channel of the second draw and the share that has no report after it."""
    names = tuple(labels or ()) if first is None else first.reports
    R = len(names)
    if len(second.groups) == R:
        return second if first is None else compose(second, first)
    among = RandomizedResponse.from_integers(names, second.a, second.b)  # T2, given that there is a report
    whole = among if first is None else compose(among, first)
    j = _empty_share(second, share)
    if not j:
        return whole
    if j == 1:
        raise ValueError("Got no reports, or too few to tell that there are any; expected some.")
    mixed = [[(1 - j) * Fraction(int(w), whole.total) + j / R for w in row] for row in whole.weights]
    return Channel(mixed, groups=whole.groups, reports=whole.reports)


def missing_share(second: RandomizedResponse, share: float) -> float:
    """Estimate the share of persons without a stored report from the share that has none after the second draw."""
    keep, other = second.keep, float(second.matrix[0, 1])
    return float(np.clip((share - other) / (keep - other), 0.0, 1.0))


def _empty_share(second: RandomizedResponse, share: float) -> Fraction:
    """Estimate j, the share of reports after the second draw that stand for no stored one."""
    missing, b = missing_share(second, share), float(second.matrix[0, 1])
    empty = missing * (len(second.groups) - 1) * b
    return Fraction(round(1000 * empty / (empty + (1 - missing) * (1 - b))), 1000)


def randomize_reports(
    keys: Any,
    reports: Any,
    channel: Channel | None,
    epsilon: float,
    secret: bytes,
    *,
    groups: Sequence[Any] | None = None,
    hidden: bool = True,
    attribute: str | None = None,
    epoch: int = 0,
) -> ReleasedReports:
    """Draw every report once more, the same for the same key in every call of an epoch.

    - `keys` (sequence of str, int or bytes, length n): One key per person, none twice.
    - `reports` (array of shape (n,)): S; None stands for a person who did not report.
    - `channel`: Of the reports; None if they are the true attribute.
    - `epsilon`: epsilon_r of the second draw.
    - `secret`: Secret of the study, at least 16 bytes, held by the third party alone: whoever has it can undo the draw.
    - `groups` (sequence, optional): The groups, if `channel` is None.
    - `hidden`: Whether to hide who reported; otherwise a missing report stays missing, and no other becomes so.
    - `attribute`: The name of the attribute, if the study has several: each has draws of its own.
    - `epoch`: Number of the snapshot that has the reports. The next one has draws of its own for everybody, or a draw
      that changed would tell that a report did.
    """
    labels = tuple(groups or ()) if channel is None else channel.reports
    if not labels:
        raise ValueError("Got channel=None without groups=..., but expected the groups of the true attribute.")
    second = second_channel(labels, epsilon, 1 if channel is None else channel.total, hidden=hidden)
    codes = encode_labels(reports, labels, name="reports", missing="code")
    persons = list(keys)
    if len(persons) != len(codes):
        raise ValueError(f"Got {len(persons)} keys for {len(codes)} reports, but expected one each.")
    if len(set(persons)) < len(persons):
        raise ValueError("Got keys that are repeated, but expected each person once: one person has one report.")
    about = "stored report" if attribute is None else f"stored report of {attribute}"
    campaign = f"release {epoch}" if epoch else "release"
    memo = MemoizedReports(second, secret, attribute=about, campaign=campaign)
    new = np.full(len(codes), -1, dtype=np.int64)
    if hidden:
        drawn = np.asarray(memo.privatize(persons, np.where(codes < 0, len(labels), codes)), dtype=np.int64)
        new[:] = np.where(drawn == len(labels), -1, drawn)
    else:
        there = np.flatnonzero(codes >= 0)
        values = decode_labels(codes[there], labels)
        new[there] = encode_labels(memo.privatize([persons[i] for i in there], values), labels, name="reports")
    return _drawn(decode_labels(new, labels), second, channel, labels)


def join_pieces(
    pieces: Sequence[ReleasedReports], channel: Channel | None, *, groups: Sequence[Any] | None = None
) -> ReleasedReports:
    """Return reports that were drawn piece by piece, with the channel that all of them tell.

    - `channel`, `groups`: As for `randomize_reports`.
    """
    labels = tuple(groups or ()) if channel is None else channel.reports
    return _drawn(np.concatenate([piece.reports for piece in pieces]), pieces[0].one_draw, channel, labels)


def _drawn(
    reports: npt.NDArray[Any], second: RandomizedResponse, first: Channel | None, labels: Sequence[Any]
) -> ReleasedReports:
    """Return reports that went through the second draw; their channel is None where they are too few to know it."""
    share = float(np.mean([report is None for report in reports.tolist()]))
    known = len(second.groups) == len(labels) or _empty_share(second, share) < 1
    return ReleasedReports(reports, mixed_channel(second, first, share, labels) if known else None, second, DRAWN)

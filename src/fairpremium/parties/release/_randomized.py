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

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.labels import decode_labels, encode_labels
from fairpremium.privacy import MAX_TOTAL, Channel, MemoizedReports, RandomizedResponse

_FEWEST_BITS = 16  # of the second channel's weights, so that epsilon_r is met closely


class Randomized(NamedTuple):
    """Reports after the second draw, the channel from D to them, and the channel of the second draw.

    If participation is hidden, the second channel's groups are the codes of the reports, and one more for none.
    """

    reports: npt.NDArray[Any]  # labels, None where there is no report
    channel: Channel | None  # None where there are too few reports to know it
    second: RandomizedResponse


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


def seen_channel(
    second: RandomizedResponse, first: Channel | None, reports: Any, labels: Sequence[Any] | None = None
) -> Channel:
    """Return the channel from D to reports that went through the second draw.

    - `second`: Of the second draw.
    - `first`: Of the stored reports; None if they are the true attribute.
    - `reports` (array of shape (n,), or a share): Reports after the second draw, None where there is none; or the share
      that has none.
    - `labels` (sequence, optional): The values of the stored reports, if `first` is None.
    """
    names = tuple(labels or ()) if first is None else first.reports
    R = len(names)
    if len(second.groups) == R:
        return second if first is None else compose(second, first)
    share = reports if isinstance(reports, float) else float(np.mean(pd.isna(np.asarray(reports, dtype=object))))
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
) -> Randomized:
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
    share = float(np.mean(new < 0))
    known = not hidden or _empty_share(second, share) < 1
    return Randomized(
        decode_labels(new, labels), seen_channel(second, channel, share, labels) if known else None, second
    )

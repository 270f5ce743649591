"""Several attributes after the second draw: each is drawn by itself, and a row counts if all of them are there.

The reports of each attribute go through a second randomized response of their own (`_randomized`), which hides their
values and whether there are any. What is computed from some attributes therefore costs the epsilons of these alone, and
the same person has the same new report of an attribute in every fit, whatever the others in it.

A row has a report of all attributes after the draw for one of 2^m reasons: e says of which attributes a report was
stored. Of the others it was made up, and says nothing:

    P(S' given D, all are there) = sum over e of P(e given all are there) prod over a of M_a(e_a),

with M_a = T2_a T_a where a report was stored and 1 / R_a where none was. P(e) follows from how often which attributes
are there after the draw. For one attribute this is the channel of `seen_channel`. As there, P(e) is taken to be the
same everywhere.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.privacy import Channel, RandomizedResponse, project_to_simplex

from ._randomized import compose
from ._released_reports import DRAWN, ReleasedReports, check_released

_PATTERN_STEPS = 1000  # P(e given all are there) is rounded to so many parts


@dataclass(frozen=True)
class SecondDraws:
    """The second draws of several attributes.

    - `seconds`: T2 of each attribute; its groups are the codes of the reports, and one more for none.
    - `channel`: From the combinations of D to those of the reports, of rows that have all of them.
    - `missing`: Estimated share of the rows of which not all reports were stored.
    """

    seconds: tuple[RandomizedResponse, ...]
    channel: Channel
    missing: float

    @property
    def epsilon(self) -> float:
        """What all draws together tell about a person at most."""
        return math.fsum(second.epsilon for second in self.seconds)

    @property
    def noise(self) -> dict[str, Any]:
        """A summary, for the manifest."""
        return {"keep": [second.keep for second in self.seconds], "epsilon": self.epsilon}


def combine_draws(draws: Sequence[ReleasedReports], firsts: Sequence[Channel]) -> ReleasedReports:
    """Return the reports of several attributes as tuples, None where one of them is missing, and their channel.

    - `draws`: Of each attribute, after the second draw.
    - `firsts`: Of the stored reports of each attribute.
    """
    columns = [check_released(drawn).reports for drawn in draws]
    there = np.column_stack([[report is not None for report in column.tolist()] for column in columns])
    second = mix_draws([drawn.one_draw for drawn in draws], firsts, there)
    return ReleasedReports(join_columns(columns), second.channel, second, DRAWN)


def join_columns(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the reports of several attributes as tuples, None where one of them is missing."""
    if len(columns) == 1:
        return columns[0]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    joined = np.empty(len(columns[0]), dtype=object)
    joined[:] = [None if None in row else row for row in rows]
    return joined


def mix_draws(
    seconds: Sequence[RandomizedResponse], firsts: Sequence[Channel], there: npt.NDArray[np.bool_]
) -> SecondDraws:
    """Return what the draws of several attributes come to in rows that have a report of all of them.

    - `there`, shape (n, attributes): Whether there is a report after the second draw.
    """
    stored = _stored_patterns(seconds, there)
    patterns = list(itertools.product((False, True), repeat=len(seconds)))
    there = np.array([math.prod(map(_appears, seconds, pattern)) for pattern in patterns])  # P(all are there given e)
    joint = stored * there
    parts = np.round(_PATTERN_STEPS * joint / joint.sum()).astype(int)
    if not parts[-1]:
        raise ValueError("Got no reports of all attributes, or too few to tell that there are any; expected some.")
    kept = [
        compose(RandomizedResponse.from_integers(first.reports, second.a, second.b), first)
        for second, first in zip(seconds, firsts, strict=True)
    ]
    whole = Channel.product(*kept)
    if parts[-1] == parts.sum():
        return SecondDraws(tuple(seconds), whole, float(1 - stored[-1]))
    mixed: Any = 0.0
    for pattern, part in zip(patterns, parts, strict=True):
        if part:
            mixed = mixed + part / parts.sum() * _kron(
                [_law(c, is_kept) for c, is_kept in zip(kept, pattern, strict=True)]
            )
    channel = Channel(mixed, groups=whole.groups, reports=whole.reports)
    return SecondDraws(tuple(seconds), channel, float(1 - stored[-1]))


def recode(channel: Channel) -> Channel:
    """Return a channel whose reports are called by their codes, for files whose columns hold no tuples."""
    return Channel(channel.matrix, groups=channel.groups, reports=range(len(channel.reports)))


def recode_reports(reports: npt.NDArray[Any], channel: Channel) -> npt.NDArray[Any]:
    """Return the codes of reports of a channel, None where there is none."""
    codes = channel.encode(reports).astype(object)
    codes[codes < 0] = None
    return codes


def recode_draws(drawn: ReleasedReports, channel: Channel) -> ReleasedReports:
    """Return the same reports by their codes in a channel."""
    second, seen = drawn.second, None if drawn.channel is None else recode(drawn.channel)
    if isinstance(second, SecondDraws):
        second = replace(second, channel=recode(second.channel))
    return ReleasedReports(recode_reports(drawn.reports, channel), seen, second, DRAWN)


def _stored_patterns(seconds: Sequence[RandomizedResponse], there: npt.NDArray[np.bool_]) -> Array:
    """Estimate P(e), the distribution of which reports were stored, from which are there after the draw."""
    places = np.ravel_multi_index(there.T.astype(np.int64), (2,) * len(seconds))
    seen = np.bincount(places, minlength=2 ** len(seconds)) / len(there)
    # [is there, was stored]; columns sum to one
    steps = [
        np.array(
            [
                [1 - _appears(second, False), 1 - _appears(second, True)],
                [_appears(second, False), _appears(second, True)],
            ]
        )
        for second in seconds
    ]
    return np.asarray(project_to_simplex(_kron([np.linalg.inv(step) for step in steps]) @ seen))


def _appears(second: RandomizedResponse, was_stored: bool) -> float:
    """P(a report is there after the draw)."""
    other = float(second.matrix[0, 1])
    return 1 - other if was_stored else (len(second.groups) - 1) * other


def _law(kept: Channel, was_stored: bool) -> Array:
    """Return the law of a report that is there after the draw."""
    return kept.matrix if was_stored else np.full(kept.matrix.shape, 1 / len(kept.reports))


def _kron(arrays: Sequence[Array]) -> Array:
    product: Array = np.ones((1, 1))
    for array in arrays:
        product = np.kron(product, array).astype(np.float64)
    return product

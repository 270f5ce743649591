"""How many rows of an insurer have a report at all, as far as randomized reports tell.

Nothing but the reports after the second draw goes into it (`randomize_reports`), so that it costs nothing beyond what
that draw costs, once per epoch. After the draw a row without a report lacks one with probability `keep`, a row with a
report with the probability `other` of every other value, and

    rows with a report = rows (keep - share without one) / (keep - other)

is right on average. Its standard error where no row has a report follows from `keep` alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ._released_reports import ReleasedReports, check_released

_ERRORS = 3.0  # standard errors up to which a number is not told apart from none: one in 740 goes further by chance
_WIDEST = 0.1  # largest limit, as a part of the rows, at which the number tells anything


@dataclass(frozen=True)
class MatchCount:
    """The estimated part of the rows that have a report.

    - `rows`: Rows that were looked at.
    - `share`: Below zero by chance, where hardly any row has one.
    - `limit`: Three standard errors of the share where no row has a report.

    Examples
    --------
    >>> MatchCount(rows=20_000, share=0.002, limit=0.013).is_none
    True
    >>> MatchCount(rows=20_000, share=0.4, limit=0.013).is_none
    False
    """

    rows: int
    share: float
    limit: float

    @property
    def is_none(self) -> bool:
        """Whether the number is not told apart from none; never so where the noise would hide a tenth of the rows."""
        return self.limit <= _WIDEST and self.share < self.limit


def count_matches(drawn: ReleasedReports) -> MatchCount:
    """Estimate which part of the rows has a report, from reports whose second draw hides who reported."""
    second, rows = check_released(drawn).one_draw, len(drawn.reports)
    keep, other = second.keep, float(second.matrix[0, 1])
    error = math.sqrt(keep * (1 - keep) / rows) / (keep - other)
    return MatchCount(rows, (keep - drawn.missing_share) / (keep - other), _ERRORS * error)

"""What may leave the third party: disclosure rules, noised sums, randomized reports, and their accounting.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._accounting import *
    from ._checkpoint import *
    from ._disclosure import *
    from ._fit_data import *
    from ._match_count import *
    from ._number_range import *
    from ._randomized import *
    from ._release import *
    from ._released_counts import *
    from ._released_reports import *
    from ._released_sums import *
    from ._several_attributes import *

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_accounting": "ReleasePlan",
        "_checkpoint": "FileCheckpoint",
        "_disclosure": "RefusedError RuleResult check_overlap rarest_report",
        "_fit_data": "ClaimSettings Claims FitSettings",
        "_match_count": "MatchCount count_matches",
        "_number_range": "NUMBER_RANGE check_number_range find_outside_range",
        "_randomized": "join_pieces randomize_reports seen_channel",
        "_release": "Release ReleaseSettings check_fit_rows default_release fit_release",
        "_released_counts": "CountNoise",
        "_released_reports": "ReleasedReports without_protection",
        "_released_sums": "describe_arithmetic",
        "_several_attributes": "SecondDraws combine_draws join_columns recode recode_draws recode_reports",
    },
)

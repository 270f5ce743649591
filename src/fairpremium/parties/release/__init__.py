"""What may leave the third party: disclosure rules, noised sums, randomized reports, and their accounting.

Each name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._accounting import ReleasePlan as ReleasePlan
    from ._checkpoint import FileCheckpoint as FileCheckpoint
    from ._disclosure import RefusedError as RefusedError
    from ._disclosure import RuleResult as RuleResult
    from ._disclosure import check_overlap as check_overlap
    from ._disclosure import rarest_report as rarest_report
    from ._randomized import randomize_reports as randomize_reports
    from ._randomized import seen_channel as seen_channel
    from ._release import FitSettings as FitSettings
    from ._release import Release as Release
    from ._release import ReleaseSettings as ReleaseSettings
    from ._release import check_rows as check_rows
    from ._release import default_release as default_release
    from ._release import fit_release as fit_release

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_accounting": "ReleasePlan",
        "_checkpoint": "FileCheckpoint",
        "_disclosure": "RefusedError RuleResult check_overlap rarest_report",
        "_randomized": "randomize_reports seen_channel",
        "_release": "FitSettings Release ReleaseSettings check_rows default_release fit_release",
    },
)

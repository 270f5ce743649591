"""Reports that may leave the third party, as a type of their own: an array of stored reports is none.

Whatever is computed from reports and leaves takes this type, or adds noise to sums itself. It is made in this package
alone: by the second draw (`randomize_reports`), and by `without_protection`, for a study that switched rule 9 off.
"""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairpremium.privacy import Channel, RandomizedResponse

if TYPE_CHECKING:
    import numpy.typing as npt

    from ._several_attributes import SecondDraws

DRAWN = object()  # what the functions that make such reports show


@dataclass(frozen=True, eq=False)
class ReleasedReports:
    """Reports that may leave the third party.

    - `reports` (array of shape (n,)): Labels, None where there is no report; cannot be changed.
    - `channel`: From D to them; None where there are too few to know it, or where they are the true attribute.
    - `second`: The second draw; None where rule 9 is off. If participation is hidden, its groups are the codes of the
      reports, and one more for none.

    Raises
    ------
    TypeError
        They were not made by `randomize_reports`, `combine_draws` or `without_protection`.
    """

    reports: npt.NDArray[Any]
    channel: Channel | None
    second: RandomizedResponse | SecondDraws | None
    made_by: InitVar[object] = None

    def __post_init__(self, made_by: object) -> None:
        if made_by is not DRAWN:
            raise TypeError("Got reports from elsewhere, but expected those of randomize_reports: stored ones tell S.")
        object.__setattr__(self, "reports", np.array(self.reports, dtype=object))
        self.reports.flags.writeable = False

    @property
    def missing_share(self) -> float:
        """The share without a report."""
        return float(np.mean([report is None for report in self.reports.tolist()]))

    @property
    def one_draw(self) -> RandomizedResponse:
        """The second draw of one attribute."""
        if not isinstance(self.second, RandomizedResponse):
            raise ValueError("Got reports of several attributes, or as they were stored; expected one second draw.")
        return self.second


def without_protection(reports: npt.NDArray[Any], channel: Channel | None) -> ReleasedReports:
    """Return stored reports as they are, for a study that switched rule 9 off: what is computed from them tells S.

    - `channel`: Of the reports; None if they are the true attribute.
    """
    return ReleasedReports(reports, channel, None, DRAWN)


def check_released(drawn: object) -> ReleasedReports:
    """Return reports that may leave, or raise if they are anything else: an array, or the name of a column."""
    if not isinstance(drawn, ReleasedReports):
        raise TypeError(
            f"Got reports of type {type(drawn).__name__}, but expected those of randomize_reports. Draw them first."
        )
    return drawn

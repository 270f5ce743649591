"""What every model class is fitted to, and how."""

from dataclasses import dataclass
from typing import Any

from fairpremium.blocks import Rows, Stream, worth_merging
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.families import Family, Normal
from fairpremium.models import Design

_MERGE_FROM = 100_000  # rows from which merging is considered


@dataclass(frozen=True)
class FitInput:
    """Rows with coded reports, and the settings of the fit."""

    family: Family
    correction: str
    pooling: float | None  # None: empirical Bayes
    classifier: Any
    merge: bool | None  # whether the linear class merges rows; None: if that saves much
    rows: Rows | Stream
    design: Design
    channel: ReportChannel
    seed: int

    def rows_in_memory(self) -> Rows:
        """Return the rows, or say that this cannot be done with rows that are read piece by piece."""
        if isinstance(self.rows, Stream):
            raise ValueError(
                f'Got a source of {len(self.rows):,} rows, but only model="linear" prices claims of rows that are '
                "read piece by piece; for another model class, or a choice between several, pass a table in memory."
            )
        return self.rows

    def merges(self) -> bool:
        """Tell whether the linear class fits to merged rows."""
        if self.rows.clustered or isinstance(self.family, Normal):
            return False  # squared loss has its moments and needs no second pass
        if self.merge is not None:
            return self.merge
        return len(self.rows) >= _MERGE_FROM and worth_merging(self.rows)

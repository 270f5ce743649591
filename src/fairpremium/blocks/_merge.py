"""Equal rows merged: rating factors are mostly categories, and few combinations of them occur.

A risk that is linear in the volume and, given the prices, in the outcome does not change when rows with the same
features, report and cross-validation fold become one, with their volumes added up and their outcomes averaged by
volume (up to a term that no price moves).
"""

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from fairpremium.blocks._job import PIECE_ROWS
from fairpremium.blocks._rows import Rows
from fairpremium.blocks._stream import Stream

Merged: TypeAlias = Any  # a table, or _TOO_MANY

_TOO_MANY = "too many"
_GLANCE_ROWS = 4096
_WORTH = 4  # merge if at most one row in so many is left


def worth_merging(rows: Rows | Stream) -> bool:
    """Decide from a glance whether enough rows are equal."""
    some = rows.glance(_GLANCE_ROWS)
    distinct = np.unique(np.column_stack([some.X, some.report]), axis=0)
    return len(distinct) * 2 <= len(some)


def merge_rows(rows: Rows | Stream, most: int | None = None) -> Rows | None:
    """Merge rows that agree in features and report.

    Parameters
    ----------
    rows : Rows or Stream
    most : int, optional
        How many rows may be left; by default a quarter of them.

    Returns
    -------
    Rows or None
        In memory, in the order of their features; None if more than `most` would be left.
    """
    task = _Merge(max(1, len(rows) // _WORTH) if most is None else most)
    if isinstance(rows, Stream):
        found = list(rows.apply(task))
    else:
        found = [
            task(rows.take(np.arange(start, min(start + PIECE_ROWS, len(rows)))), start)
            for start in range(0, len(rows), PIECE_ROWS)
        ]
    merged = functools.reduce(task.join, found)
    return None if isinstance(merged, str) else _as_rows(merged)


@dataclass(frozen=True)
class _Merge:
    most: int

    def __call__(self, rows: Rows, start: int) -> Merged:
        columns: dict[str, Any] = {f"x{j}": np.ascontiguousarray(rows.X[:, j]) for j in range(rows.n_features)}
        columns["report"] = rows.report
        weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        columns["w"], columns["wy"] = weight, weight * rows.y
        return self._grouped(pa.table(columns))

    def join(self, a: Merged, b: Merged) -> Merged:
        if isinstance(a, str) or isinstance(b, str):
            return _TOO_MANY
        return self._grouped(pa.concat_tables([a, b]))

    def _grouped(self, table: pa.Table) -> Merged:
        keys = table.column_names[:-2]
        found = table.group_by(keys, use_threads=False).aggregate([("w", "sum"), ("wy", "sum")])
        found = found.select([*keys, "w_sum", "wy_sum"]).rename_columns([*keys, "w", "wy"])
        return _TOO_MANY if found.num_rows > self.most else found


def _as_rows(table: pa.Table) -> Rows:
    keys = table.column_names[:-2]
    table = table.sort_by([(name, "ascending") for name in keys])
    values = {name: table.column(name).to_numpy() for name in table.column_names}
    used = values["w"] > 0
    X = np.column_stack([values[name][used] for name in keys[:-1]])
    weight = values["w"][used]
    return Rows(X, values["wy"][used] / weight, weight, values["report"][used])

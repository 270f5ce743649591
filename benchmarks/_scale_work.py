"""What worker processes of benchmarks/scale.py have to import: the bare passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from fairpremium.blocks import Block, Rows


@dataclass(frozen=True)
class PlainReader:
    """Columns as they are, without checks; the codes of the reports where they are read."""

    numbers: tuple[str, ...]
    report: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return self.numbers if self.report is None else (*self.numbers, self.report)

    @property
    def n_features(self) -> int:
        return len(self.numbers) - 1

    def __call__(self, table: pa.Table) -> Rows:
        columns = np.empty((len(self.numbers), table.num_rows), dtype=np.float32)
        for values, name in zip(columns, self.numbers, strict=True):
            values[:] = table.column(name).chunk(0).to_numpy()
        report = np.zeros(table.num_rows, dtype=np.uint16)
        if self.report is not None:
            report[:] = table.column(self.report).chunk(0).indices.to_numpy()
        return Rows(columns[:-1].T, columns[-1].astype(np.float64), None, report)


@dataclass(frozen=True)
class Gram:
    """The sum of (1, x, y)(1, x, y)' in double precision, over all rows or over those of each report.

    The rows of a report are put together first, which takes less time than to leave others out of a product.
    """

    reports: int = 1
    rows: ClassVar[int] = 4096  # in a product: what a cache holds

    @property
    def block_rows(self) -> int:
        """Rows that are put in order at a time."""
        return self.rows if self.reports == 1 else 16 * self.rows

    def __call__(self, block: Block) -> tuple[np.ndarray]:
        X, p = block.X.T, block.X.shape[1]
        if self.reports == 1:
            return (self._product(X, block.y)[None],)
        order = np.argsort(block.report, kind="stable")
        stops = np.cumsum(np.bincount(block.report, minlength=self.reports))
        found = np.zeros((self.reports, p + 2, p + 2))
        for s, stop in enumerate(stops):
            for first in range(stops[s - 1] if s else 0, stop, self.rows):
                own = order[first : min(first + self.rows, stop)]
                found[s] += self._product(np.take(X, own, axis=1), block.y[own])
        return (found,)

    def _product(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        V = np.empty((len(X) + 2, len(y)))
        V[0], V[1:-1], V[-1] = 1.0, X, y
        return V @ V.T

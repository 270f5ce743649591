"""What worker processes of benchmarks/scale.py have to import: the bare passes."""

from __future__ import annotations

from dataclasses import dataclass

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
    """The sum of (1, x, y)(1, x, y)' in double precision, over all rows or over those of each report."""

    reports: int = 1

    def __call__(self, block: Block) -> tuple[np.ndarray, ...]:
        p = block.X.shape[1]
        V = np.empty((p + 2, len(block.y)))
        V[0] = 1.0
        V[1 : p + 1] = block.X.T
        V[p + 1] = block.y
        if self.reports == 1:
            return (V @ V.T,)
        rows = (V[:, block.report == s] for s in range(self.reports))
        return (np.array([own @ own.T for own in rows]),)

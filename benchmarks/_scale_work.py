"""What worker processes of benchmarks/scale.py have to import: the bare Gram pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fairpremium.blocks import Block, Rows


@dataclass(frozen=True)
class PlainReader:
    """Columns as they are, without checks."""

    columns: tuple[str, ...]

    @property
    def n_features(self) -> int:
        return len(self.columns) - 1

    def __call__(self, table: pa.Table) -> Rows:
        columns = np.empty((len(self.columns), table.num_rows), dtype=np.float32)
        for values, name in zip(columns, self.columns, strict=True):
            values[:] = table.column(name).chunk(0).to_numpy()
        n = table.num_rows
        return Rows(columns[:-1].T, columns[-1].astype(np.float64), None, np.zeros(n, dtype=np.uint16))


@dataclass(frozen=True)
class Gram:
    """The sum of (1, x, y)(1, x, y)' in double precision."""

    def __call__(self, block: Block) -> tuple[np.ndarray, ...]:
        p = block.X.shape[1]
        V = np.empty((p + 2, len(block.y)))
        V[0] = 1.0
        V[1 : p + 1] = block.X.T
        V[p + 1] = block.y
        return (V @ V.T,)

"""Sums of squares over rows, or over persons if rows are clustered."""

from functools import partial

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream


def _squares(block: Block, contributions: RowFunction) -> tuple[Array, ...]:
    U = contributions(block)
    return (U.T @ U,)


def sum_of_squares(rows: Rows | Stream, contributions: RowFunction) -> Array:
    """Compute sum_i u_i u_i', or the same over the persons' totals if rows are clustered."""
    if isinstance(rows, Stream) or rows.cluster is None:
        return rows.reduce(partial(_squares, contributions=contributions), block_rows=2048)[0]
    order = np.argsort(rows.cluster, kind="stable")
    ordered = rows.cluster[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where each person's rows begin
    total: Array | float = 0.0
    for persons in np.array_split(first, max(1, len(first) // 2048)):
        last = first[np.searchsorted(first, persons[-1], side="right") :]
        stop = last[0] if len(last) else len(order)
        block = rows.take(order[persons[0] : stop])
        per_person = np.add.reduceat(contributions(block.block(0, len(block))), persons - persons[0], axis=0)
        total = total + per_person.T @ per_person
    return np.asarray(total)

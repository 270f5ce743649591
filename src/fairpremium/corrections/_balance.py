"""Balance: best estimates that reproduce the portfolio's total.

With signed weights T^-1[k, s] the total of mu(x, D) under the true attribute can be estimated from the reports. Linear
fits with a canonical link and without pooling reproduce the total of the outcomes by themselves. All other prices
become balanced by one number, the same for every group, that is added to the linear predictors:

    sum_i w_i sum_k T^-1[k, s_i] (mu(eta_ik + c) - y_i) = 0.
"""

from functools import partial

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.families import Family, Link

_STEPS = 50
_CLOSE = 1e-12  # a gap this small, relative to the total, is none
_LARGEST_STEP = 2.0


def balance_shift(family: Family, rows: Rows | Stream, eta: Array | RowFunction, table: Array) -> float:
    """Find the shift c of the linear predictors with which best estimates reproduce the total of the outcomes.

    Parameters
    ----------
    family : Family
    rows : Rows or Stream
    eta : array of shape (n, K), or a function from a block to such an array
        Linear predictors of the rows. Rows that are read piece by piece need the function, and it must be picklable;
        identity and log link take one pass over them.
    table : array of shape (K, reports + 1)
        Weight of a report for each group: the inverse channel. Rows without a report are left out by a last column of
        zeros, as in a `ReportChannel`, or count with the shares that it holds.

    Returns
    -------
    float
        Zero if no shift gives balance: the signed total of the best estimates is not positive (log link), or the
        outcomes are all zeros or all ones (logit).
    """
    if not callable(eta):
        assert isinstance(rows, Rows)
        return balance_shift(family, Rows(eta, rows.y, rows.weight, rows.report), _columns, table)
    link, sums = family.link, partial(_sums, link=family.link, eta=eta, by_report=np.ascontiguousarray(table.T))
    outcome, price, slope = map(float, rows.reduce(partial(sums, shift=0.0)))
    if link.name == "log":
        return float(np.log(outcome / price)) if outcome > 0 and price > 0 else 0.0
    shift = 0.0
    for _ in range(_STEPS):
        gap = outcome - price
        if abs(gap) <= _CLOSE * max(abs(outcome), abs(price)):
            return shift
        if not slope > 0:
            return 0.0
        step = gap / slope
        if link.name == "identity":
            return step
        shift += float(np.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        outcome, price, slope = map(float, rows.reduce(partial(sums, shift=shift)))
    return 0.0


def _sums(block: Block, link: Link, eta: RowFunction, by_report: Array, shift: float) -> tuple[Array, ...]:
    """Signed sums of outcomes, of best estimates, and of their slopes in the shift."""
    weight = by_report[block.report]
    weight = weight if block.weight is None else weight * block.weight[:, None]
    at = eta(block) + shift
    sums = (weight * block.y[:, None]).sum(), (weight * link.mean_of(at)).sum(), (weight * link.slope(at)).sum()
    return tuple(np.asarray(value) for value in sums)


def _columns(block: Block) -> Array:
    """Return linear predictors that are the features."""
    return np.asarray(block.X, dtype=np.float64)

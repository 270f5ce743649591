"""Whether a price is right for every group at every level of the price: multicalibration, with a test of all cells."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.special import ndtr, ndtri

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, ErrorShape, frame_like_source, premium_bins
from fairpremium.corrections import describe_lack

from ._group_distributions import DRAWS, draw_normal
from ._parity_distance import signed_weights

_PRIOR = 4.0  # degrees of freedom of the variance that is common to all cells


def compute_multicalibration(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    bins: int = 5,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare loss and premium in every group and premium bin, with limits and p-values that hold for all together.

    Parameters
    ----------
    premiums, y, sensitive, channel, sample_weight, exposure, cluster, level
        As in `fairpremium.audit.compute_group_means`.
    bins : int
        Number of bins of the premium of about equal volume; equal premiums stay together.

    Returns
    -------
    DataFrame
        One row per bin (1 for the lowest premiums) and group:

        - `bin`, `group`, `share`: of the volume that reported;
        - `premium`, `loss`: means; `difference`: loss minus premium, with `difference_low` and `difference_high`, which
          contain all differences at once with probability `level`;
        - `z`: the difference over its standard error; `p_value`: adjusted for the number of cells;
        - `effective_reports`, `note`.

    Notes
    -----
    A price h is multicalibrated [HebertJohnson2018] if E[Y - h given D = k, h in B] = 0 for all groups k
    and bins B. The smallest p-value of the table is that of this hypothesis. With a_ik = w_i T^-1[k, s_i] and the
    ratio estimator d_kb = sum a_ik (y_i - h_i) / sum a_ik over the bin, the z-values of all cells are about jointly
    normal with the correlation of their rows' contributions. The largest |z| of draws of that law says how much
    smaller than 1 - `level` the probability of an error in one cell must be. The limits of a cell with that
    probability allow for the skewness of its losses, as those of the audit do. A cell that happens to have none of
    the large losses has a variance V that is too small: with f degrees of freedom it is taken as at least (f V + 4
    V') / (f + 4), where V' is that of losses which vary in all cells alike, in proportion to the premium to the power
    1.5. Cells with too few reports have a note instead of numbers and take no part.

    `compute_calibration` of the audit has the same differences with limits for one cell at a time.
    """
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(pair, sensitive, channel, sample_weight, cluster, None, level, exposure)
    h, losses, K = data["premiums"], data["y"], len(data.groups)
    codes = premium_bins(h, data.reports.weight, bins)
    present, code = np.unique(codes, return_inverse=True)
    signed = signed_weights(data)
    cell = code[:, None] * K + np.arange(K)  # (n, K)
    m = len(present) * K

    def totals(values: Array) -> Array:
        return np.asarray(np.bincount(cell.ravel(), (signed * values[:, None]).ravel(), m), dtype=np.float64)

    volume = totals(np.ones(len(h)))
    squares = np.bincount(cell.ravel(), weights=(signed**2).ravel(), minlength=m)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.where((volume > 0) & (squares > 0), volume**2 / squares, 0.0)
        premium, loss, difference = (totals(v) / volume for v in (h, losses, losses - h))
        influence = signed * ((losses - h)[:, None] - difference[cell]) / volume[cell]
    notes = [describe_lack(count) for count in effective]
    known = np.array([note == "" for note in notes])
    unit = np.arange(len(h)) if data.reports.cluster is None else data.reports.cluster
    use = known[cell]
    sums = csr_matrix(
        (influence[use], (np.broadcast_to(unit[:, None], use.shape)[use], cell[use])), shape=(int(unit.max()) + 1, m)
    )
    covariance = (sums.T @ sums).toarray()[np.ix_(known, known)]
    sup = draw_largest_z(covariance)
    shape = _shape_of(sums)
    shape = replace(shape, freedom=2 * shape.freedom)  # Satterthwaite's own: their half is for limits of one number
    error = np.full(m, np.nan)
    error[known] = np.sqrt(np.diag(covariance))
    wide = error * _widening(error**2, _pooled_variance(data, signed, cell, volume), shape.freedom)
    low, high = shape.critical(1 - 2 * ndtr(-np.quantile(sup, data.level)))  # of one cell, so that all hold
    with np.errstate(divide="ignore", invalid="ignore"):
        z = difference / error
        straight = -ndtri(shape.p_value(difference / wide) / 2)  # the normal value that is as rare
    p_value = (1 + (sup[:, None] >= straight).sum(axis=0)) / (1 + len(sup))
    numbers = {
        "share": volume / signed.sum(),
        "premium": premium,
        "loss": loss,
        "difference": difference,
        "difference_low": difference - high * wide,
        "difference_high": difference - low * wide,
        "z": z,
        "p_value": p_value,
    }
    numbers = {name: np.where(known, column, np.nan) for name, column in numbers.items()}
    labels = {"bin": np.repeat(present + 1, K), "group": pd.Series(list(data.groups) * len(present), dtype=object)}
    table = pd.DataFrame({**labels, **numbers, "effective_reports": effective, "note": notes})
    return frame_like_source(premiums, table)


def _pooled_variance(data: AuditData, signed: Array, cell: npt.NDArray[Any], volume: Array) -> Array:
    """Variance of each cell's difference if losses varied in all cells alike, in proportion to |premium|^1.5."""
    w, size = data.reports.weight, np.abs(data["premiums"]) ** 1.5
    scale = float((w**2) @ size)
    phi = float((w * (data["y"] - data["premiums"])) @ (w * (data["y"] - data["premiums"]))) / scale if scale else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.bincount(cell.ravel(), (signed**2 * size[:, None]).ravel(), len(volume))
        return np.asarray(phi * squares / volume**2)


def _widening(own: Array, pooled: Array, freedom: Array) -> Array:
    """Return by what standard errors are multiplied: the variance is at least its mean with the pooled one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        blend = (freedom + _PRIOR * pooled / own) / (freedom + _PRIOR)
    return np.asarray(np.sqrt(np.where(own > 0, np.maximum(blend, 1.0), 1.0)))


def _shape_of(sums: csr_matrix) -> ErrorShape:
    """Compute the shape of the errors of totals from what each unit adds to them."""
    powers = [np.asarray(sums.power(p).sum(axis=0)).ravel() for p in (2, 3, 4)]
    return ErrorShape.of(np.asarray(sums.getnnz(axis=0)), *powers)


def draw_largest_z(covariance: Array) -> Array:
    """Draw the largest |z| of jointly normal estimates with this covariance: shape (draws,). The seed is fixed."""
    if not len(covariance):
        return np.full(DRAWS, np.nan)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.where(scale > 0, scale, 1.0) / np.where(scale > 0, scale, 1.0)[:, None]
    return np.asarray(np.abs(draw_normal(correlation, 10 * DRAWS)).max(axis=1))

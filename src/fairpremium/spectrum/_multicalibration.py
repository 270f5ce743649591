"""Whether a price is right for every group at every level of the price: multicalibration, with a test of all cells."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_matrix

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, frame_like_source, premium_bins
from fairpremium.corrections import describe_lack

from ._group_distributions import DRAWS, draw_normal
from ._parity_distance import signed_weights


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
    A price h is multicalibrated [HebertJohnson2018] if E[Y - h given D = k, h in B] = 0 for all groups k and bins B.
    The smallest p-value of the table is that of this hypothesis. With a_ik = w_i T^-1[k, s_i] and the ratio estimator
    d_kb = sum a_ik (y_i - h_i) / sum a_ik over the bin, the z-values of all cells are about jointly normal with the
    correlation of their rows' contributions. The largest |z| of draws of that law gives limits and p-values. Cells
    with too few reports have a note instead of numbers and take no part.

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
    error = np.full(m, np.nan)
    error[known] = np.sqrt(np.diag(covariance))
    sup = draw_largest_z(covariance)
    critical = np.quantile(sup, data.level)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = difference / error
    p_value = (1 + (sup[:, None] >= np.abs(z)).sum(axis=0)) / (1 + len(sup))
    numbers = {
        "share": volume / signed.sum(),
        "premium": premium,
        "loss": loss,
        "difference": difference,
        "difference_low": difference - critical * error,
        "difference_high": difference + critical * error,
        "z": z,
        "p_value": p_value,
    }
    numbers = {name: np.where(known, column, np.nan) for name, column in numbers.items()}
    labels = {"bin": np.repeat(present + 1, K), "group": pd.Series(list(data.groups) * len(present), dtype=object)}
    table = pd.DataFrame({**labels, **numbers, "effective_reports": effective, "note": notes})
    return frame_like_source(premiums, table)


def draw_largest_z(covariance: Array) -> Array:
    """Draw the largest |z| of jointly normal estimates with this covariance: shape (draws,). The seed is fixed."""
    if not len(covariance):
        return np.full(DRAWS, np.nan)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.where(scale > 0, scale, 1.0) / np.where(scale > 0, scale, 1.0)[:, None]
    return np.asarray(np.abs(draw_normal(correlation, 10 * DRAWS)).max(axis=1))

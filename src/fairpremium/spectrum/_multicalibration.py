"""Whether a price is right for every group at every level of the price: multicalibration, with a test of all cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, ErrorShape, frame_like_source, premium_bins
from fairpremium.corrections import describe_lack

from ._group_distributions import DRAWS, draw_normal
from ._parity_distance import signed_weights

_PRIOR = 4.0  # degrees of freedom of the moments that are common to all cells
_POWERS = (2, 3, 4)
_STEPS = 60  # of a search for limits: 2^-60 of a standard error


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
    smaller than 1 - `level` the probability of an error in one cell must be.

    The limits of a cell are those differences d that a test with this probability does not reject. It compares sum
    a_ik (y_i - h_i - d) with its standard error if d is true, and allows for the skewness of the losses and for the
    error of the standard error, as the limits of the audit do. A cell that happens to have none of the large losses
    would look certain. Where its variance is below that of losses which vary in all cells alike, in proportion to the
    premium to the power 3/4, their second to fourth moments are mixed into its own: with the weight 4 / (f + 4) if it
    has f degrees of freedom, at most half its effective reports. With heavy tails limits are therefore wide, and hold
    more often than `level` says. Cells with too few reports have a note instead of numbers and take no part.

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
    notes = [describe_lack(count) for count in effective]
    known = np.array([note == "" for note in notes])
    errors = _CellErrors.of(data, signed, cell, np.where(known, volume, np.nan), np.where(known, difference, np.nan))
    sup = draw_largest_z(errors.covariance[np.ix_(known, known)])
    below, above = errors.limits(float(np.quantile(sup, data.level)))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = difference / np.sqrt(np.diag(errors.covariance))
    p_value = (1 + (sup[:, None] >= errors.rarity(-difference)).sum(axis=0)) / (1 + len(sup))
    numbers = {
        "share": volume / signed.sum(),
        "premium": premium,
        "loss": loss,
        "difference": difference,
        "difference_low": difference - below,
        "difference_high": difference + above,
        "z": z,
        "p_value": p_value,
    }
    numbers = {name: np.where(known, column, np.nan) for name, column in numbers.items()}
    labels = {"bin": np.repeat(present + 1, K), "group": pd.Series(list(data.groups) * len(present), dtype=object)}
    table = pd.DataFrame({**labels, **numbers, "effective_reports": effective, "note": notes})
    return frame_like_source(premiums, table)


@dataclass(frozen=True)
class _CellErrors:
    """What tests of the differences of cells need: sums of powers of the rows' influences.

    If the true difference is larger than the estimate by t, the estimate's error is the sum over rows, or persons, of
    psi - t delta, with psi = a (y - h - difference) / sum a and delta = a / sum a.
    """

    covariance: Array  # (m, m), of the estimates
    rows: Array  # (m,), how many count
    sums: dict[tuple[int, int], Array]  # of psi^i delta^j: (m,)
    pooled: tuple[Array, ...]  # sums of powers if losses varied in all cells alike: (m,) each

    @classmethod
    def of(
        cls, data: AuditData, signed: Array, cell: npt.NDArray[Any], volume: Array, difference: Array
    ) -> _CellErrors:
        """Sum them up; cells whose volume is nan take no part."""
        m, excess, size = len(volume), data["y"] - data["premiums"], np.abs(data["premiums"]) ** 0.75
        share = signed / volume[cell]
        use = np.isfinite(share)
        unit = np.arange(len(excess)) if data.reports.cluster is None else data.reports.cluster
        place = (np.broadcast_to(unit[:, None], use.shape)[use], cell[use])

        def by_unit(values: Array) -> csr_matrix:
            return csr_matrix((values[use], place), shape=(int(unit.max()) + 1, m))

        def by_cell(cells: npt.NDArray[Any], values: Array) -> Array:
            return np.asarray(np.bincount(cells, values, m), dtype=np.float64)

        psi, delta = by_unit(share * (excess[:, None] - difference[cell])), by_unit(share)
        x, d = _powers(psi.data), _powers(delta.data)
        exponents = [(power - j, j) for power in _POWERS for j in range(power + 1)]
        sums = {(i, j): by_cell(psi.indices, x[i] * d[j]) for i, j in exponents}
        weight = data.reports.weight
        scale, moment = ([float(v.sum()) for v in _powers(weight * column)] for column in (size, excess))
        alike = _powers((share * size[:, None])[use])
        ratio = [a / b if b else 0.0 for a, b in zip(moment, scale, strict=True)]
        pooled = tuple(by_cell(cell[use], ratio[p] * alike[p]) for p in _POWERS)
        rows = by_cell(delta.indices, (delta.data != 0).astype(np.float64))
        return cls((psi.T @ psi).toarray(), rows, sums, pooled)

    @property
    def effective(self) -> Array:
        """Effective reports of the cells: twice the degrees of freedom that normal losses would have."""
        with np.errstate(divide="ignore"):
            return np.asarray(1 / self.sums[0, 2])

    def rarity(self, shift: Array) -> Array:
        """Return the |z| of a normal law that is as rare as the estimate if the truth is larger than it by `shift`."""

        def moment(p: int) -> Array:
            terms = [comb(p, j) * (-shift) ** j * self.sums[p - j, j] for j in range(p + 1)]
            return np.asarray(np.sum(terms, axis=0))

        own = [moment(p) for p in _POWERS]
        freedom = np.minimum(ErrorShape.of(self.rows, *own).freedom, self.effective / 2)
        weight = np.where(self.pooled[0] > own[0], _PRIOR / (freedom + _PRIOR), 0.0)
        mixed = [(1 - weight) * mine + weight * common for mine, common in zip(own, self.pooled, strict=True)]
        shape = ErrorShape.of(self.rows, *mixed)
        shape = replace(shape, freedom=2 * shape.freedom)  # Satterthwaite's own: their half is for limits of one number
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(-ndtri(shape.p_value(-shift / np.sqrt(mixed[0])) / 2))

    def limits(self, largest: float) -> Array:
        """Return how far below and above the estimate the truth may be, so that it is not rarer than this |z|."""
        sign, near = np.array([[-1.0], [1.0]]), np.zeros((2, len(self.rows)))
        far = near + np.sqrt(np.maximum(np.diag(self.covariance), self.pooled[0]))
        for _ in range(_STEPS):
            inside = self.rarity(sign * far) < largest
            if not inside.any():
                break
            near, far = np.where(inside, far, near), np.where(inside, 2 * far, far)
        open_ended = inside
        for _ in range(_STEPS):
            middle = (near + far) / 2
            inside = self.rarity(sign * middle) < largest
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        return np.where(open_ended, np.inf, far)


def _powers(x: Array) -> list[Array]:
    """Return x to the powers 0 to 4."""
    square = x * x
    return [np.ones_like(x), x, square, square * x, square * square]


def draw_largest_z(covariance: Array) -> Array:
    """Draw the largest |z| of jointly normal estimates with this covariance: shape (draws,). The seed is fixed."""
    if not len(covariance):
        return np.full(DRAWS, np.nan)
    scale = np.sqrt(np.diag(covariance))
    correlation = covariance / np.where(scale > 0, scale, 1.0) / np.where(scale > 0, scale, 1.0)[:, None]
    return np.asarray(np.abs(draw_normal(correlation, 10 * DRAWS)).max(axis=1))

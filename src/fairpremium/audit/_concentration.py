"""How well a price separates low from high risks: concentration curves and their Gini index, by true group."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array

from ._audit_data import AuditData, Records, estimate_records, with_limits
from ._weighted_reports import EVERYONE, effective_reports

_REACH = 0.05  # the slope of a curve is taken over twice that fraction of the volume


def compute_gini(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate the Gini index of the premium, for everybody and for every true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; without `sensitive` the table is about everybody.

    Returns
    -------
    DataFrame
        One row for everybody (`group` is None, all rows) and one per group: `group`; `gini`, `gini_low`, `gini_high`;
        `effective_reports`, `note`.

    Notes
    -----
    The concentration curve L_k(u) of group k is the share of its losses that falls on the fraction u of its volume
    with the lowest premiums; the index is one minus twice the area below it,

    .. math:: G_k = 1 - 2 \int_0^1 L_k(u) du = \frac{2 E_k[Y F_k(h)]}{E_k[Y]} - 1,

    where F_k(p) = P_k(h < p) + P_k(h = p) / 2. It is 0 for a price that says nothing about the loss, and the larger
    the better the price orders risks. Means and distribution functions are weighted with a_ik = w_i T^-1[k, s_i] and
    not clipped. With M_k(p) = E_k[Y (1{h > p} + 1{h = p} / 2)], t = E_k[Y F_k(h)] and m = E_k[Y] the influence of
    row i on G_k is

    .. math:: \frac{2 a_{ik}}{\sum_j a_{jk}}
              \Big( \frac{y_i F_k(h_i) + M_k(h_i) - 2 t}{m} - \frac{t (y_i - m)}{m^2} \Big).

    References
    ----------
    [Frees2014], [Denuit2019] in the documentation.
    """
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair,
        sensitive,
        channel,
        sample_weight,
        cluster,
        by,
        level,
        exposure,
        need_groups=False,
        channel_key=channel_key,
    )
    return data.table(_gini)


def _gini(data: AuditData) -> Records:
    y, groups = data["y"], (EVERYONE, *range(len(data.groups)))
    place = np.unique(data["premiums"], return_inverse=True)[1]
    value, influence = np.empty(len(groups)), np.empty((len(y), len(groups)))
    for j, k in enumerate(groups):
        a = data.reports.signed_weight(k)
        total = a.sum()
        with np.errstate(divide="ignore", invalid="ignore"):
            volume = np.bincount(place, weights=a) / total
            losses = np.bincount(place, weights=a * y) / total
            m = losses.sum()
            F = (np.cumsum(volume) - volume / 2)[place]
            M = (m - np.cumsum(losses) + losses / 2)[place]
            t = float((a * y) @ F / total)
            value[j] = 2 * t / m - 1
            influence[:, j] = 2 * a / total * ((y * F + M - 2 * t) / m - t * (y - m) / m**2)
    gini = data.reports.from_influence(value, influence)
    effective = effective_reports(data.totals([], groups)["volume"])
    numbers = with_limits("gini", gini, gini.interval(data.level))
    return estimate_records({"group": (None, *data.groups)}, effective, numbers)


def compute_lorenz(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    points: int = 20,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate points of the concentration curve, for everybody and for every true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; without `sensitive` the table is about everybody.
    points : int
        Number of steps from 0 to 1.

    Returns
    -------
    DataFrame
        One row per group (everybody first, `group` is None) and point: `group`; `volume`, the fraction of volume with
        the lowest premiums; `losses`, `losses_low`, `losses_high`: the share of losses that falls on it;
        `effective_reports`, `note`.

    Notes
    -----
    With p_u the u-quantile of the premium in group k, L_k(u) = sum_i a_ik y_i 1{h_i <= p_u} / sum_i a_ik y_i,
    interpolated between premiums. The influence of row i is

    .. math:: \frac{a_{ik}}{\sum_j a_{jk} y_j}
              \Big( y_i (1\{h_i \le p_u\} - L_k(u)) - l_k(u) (1\{h_i \le p_u\} - u) \Big),

    with l_k(u) = E_k[Y given h = p_u], estimated by the slope of the curve over a tenth of the volume (over the rows
    with this very premium, if they are more); such rows count with the fraction of them that u takes in. The area
    between the diagonal and the curve is half the Gini index of `compute_gini`.
    """
    if isinstance(points, bool) or not isinstance(points, int | np.integer) or not 2 <= points <= 1000:
        raise ValueError(f"Got points={points!r}, but expected a whole number from 2 to 1000, such as 20.")
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair,
        sensitive,
        channel,
        sample_weight,
        cluster,
        by,
        level,
        exposure,
        need_groups=False,
        channel_key=channel_key,
    )
    return data.table(lambda piece: _lorenz(piece, np.linspace(0, 1, points + 1)))


def _lorenz(data: AuditData, u: Array) -> Records:
    place, groups = np.unique(data["premiums"], return_inverse=True)[1], (EVERYONE, *range(len(data.groups)))
    effective = effective_reports(data.totals([], groups)["volume"])
    records: Records = []
    for name, k, reports in zip((None, *data.groups), groups, effective, strict=True):
        curve, error = _curve(data, place, k, u)
        width = ndtri(0.5 + data.level / 2) * error
        columns = {"losses": curve, "losses_low": curve - width, "losses_high": curve + width}
        labels = {"group": [name] * len(u), "volume": u.tolist()}
        records += estimate_records(labels, np.full(len(u), reports), columns)
    return records


def _curve(data: AuditData, place: Any, group: int, u: Array) -> tuple[Array, Array]:
    """Return the points of one curve and their standard errors."""
    a, y = data.reports.signed_weight(group), data["y"]
    total, losses = (np.nan if x == 0 else x for x in (float(a.sum()), float(a @ y)))  # no curve of nothing

    def running(weights: Array) -> Array:
        return np.append(0, np.cumsum(np.bincount(place, weights=weights)))

    with np.errstate(divide="ignore", invalid="ignore"):
        # Signed weights make the volume rise and fall: its running maximum finds each quantile once.
        x = np.maximum.accumulate(running(a) / total)
        L = running(a * y) / losses
        curve = np.interp(u, x, L)
        last = np.minimum(np.searchsorted(x[1:], u, side="right"), len(x) - 2)  # distinct premiums below the quantile
        atom = x[last + 1] - x[last]  # volume at the quantile itself, and the fraction of it that counts
        fraction = np.where(atom > 0, (u - x[last]) / np.where(atom > 0, atom, 1), 0.0)
        wide = atom > 2 * _REACH
        before = np.where(wide, x[last], np.maximum(u - _REACH, 0))
        after = np.where(wide, x[last + 1], np.minimum(u + _REACH, 1))
        slope = (np.interp(after, x, L) - np.interp(before, x, L)) / (after - before)
    inner = np.stack([1 / losses + 0 * u, -slope / total])  # of (a y, a) where h <= p_u
    outer = np.stack([-curve / losses, slope * u / total])  # of (a y, a) everywhere
    if data.reports.cluster is None:
        squares = np.stack([running(a**2 * y**2), running(a**2 * y), running(a**2)])
        variance = _form(squares[:, last], inner, inner + 2 * outer) + _form(squares[:, [-1]], outer, outer)
        variance += _form(squares[:, last + 1] - squares[:, last], fraction * inner, fraction * inner + 2 * outer)
        return curve, np.sqrt(np.maximum(variance, 0))
    error = np.empty(len(u))
    for i in range(len(u)):
        below = (place < last[i]) + fraction[i] * (place == last[i])
        psi = a * y * (inner[0, i] * below + outer[0, i]) + a * (inner[1, i] * below + outer[1, i])
        error[i] = data.reports.from_influence(curve[[i]], psi[:, None]).standard_error[0]
    return curve, error


def _form(squares: Array, left: Array, right: Array) -> Array:
    """Compute sum (l_0 a y + l_1 a) (r_0 a y + r_1 a) from the sums of a^2 y^2, a^2 y and a^2."""
    cross = left[0] * right[1] + left[1] * right[0]
    return np.asarray(squares[0] * left[0] * right[0] + squares[1] * cross + squares[2] * left[1] * right[1])

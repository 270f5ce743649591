"""Direct and proxy discrimination of a price: the measures of the actuarial literature, from the reports alone."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.blocks import Rows as PortfolioRows
from fairpremium.corrections import Latent, describe_lack, fit_propensity, x_features
from fairpremium.models import Design, compute_moments, frame_like
from fairpremium.privacy import project_to_simplex
from fairpremium.tariffs import proxy_residual

from ._audit_data import AuditData, Records
from ._weighted_reports import EVERYONE, REPORTED, WeightedReports, effective_reports, read_channel

_NONE = (float("nan"), float("nan"), float("nan"))
_SAME = "the price is the same for all"
_ROUNDING = 1e-18  # a relative variance of less is rounding
_CLOSE = 1e-6  # probabilities in single precision sum to one this closely


def compute_propensities(
    X: Any, *, sensitive: Any, channel: Any = None, channel_key: Any = None, ridge: float = 1.0
) -> Any:
    r"""Estimate P(D given x), what the features reveal about the attribute, from the reports.

    Parameters
    ----------
    X : data frame or array of shape (n, features)
    sensitive, channel, channel_key
        As in `compute_group_means`; rows without a report get a probability like all others.
    ridge : float
        Weak penalty on the coefficients of the standardised features, in rows.

    Returns
    -------
    DataFrame
        In X's library, shape (n, K): one column per group, probabilities.

    Notes
    -----
    A multinomial logit q_k(x) = softmax_k(g_k'(1, x)) that maximises the likelihood of the reports through the channel,
    sum_i log sum_k T[s_i, k] q_k(x_i). Features that are constant or linear combinations of those before them say
    nothing more, and are left out.
    """
    _, matrix = Design.learn_transform(X)
    reports = WeightedReports.read(len(matrix), sensitive, channel, None, None, "X", channel_key=channel_key)
    K, n_reports = len(reports.groups), reports.table.shape[1] - 1
    T = read_channel(channel, sensitive).matrix
    rows = PortfolioRows(matrix, np.zeros(len(matrix)), None, reports.code.astype(np.uint16))
    features, q = x_features(compute_moments(rows, n_reports + 1))
    reported = rows.take(reports.code < n_reports)
    latent = Latent(reported, T, features, q, ridge=ridge)
    shares = np.array([reports.signed_weight(k).sum() for k in range(K)]) / len(reported)
    fitted = fit_propensity(latent, project_to_simplex(shares))
    block = rows.block(0, len(rows))
    return frame_like(X, np.exp(latent.log_propensity(features(block), fitted)), reports.groups)


def compute_discrimination(
    premiums: Any,
    *,
    best_estimate: Any,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    discrimination_free: Any = None,
    propensity: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Measure how far a price depends on the attribute: as a whole, directly, and through proxies.

    Parameters
    ----------
    premiums : array-like of shape (n,)
        The price pi to be judged, such as an unaware price.
    best_estimate : table of shape (n, K)
        mu(x, d), one column per group, such as from `predict_best_estimate`.
    sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.
    discrimination_free : array-like of shape (n,), optional
        h*(x); adds `proxy_shift` and, with `propensity`, `proxy_explained`.
    propensity : table of shape (n, K), optional
        P(D given x), such as from `compute_propensities`.

    Returns
    -------
    DataFrame
        One row per measure: `measure`, `value`, `value_low`, `value_high`, `note`.

        - `demographic_unfairness`, UF [Lindholm2026]: share of the price's variance that lies between groups,
          Var(E[pi given D]) / Var(pi); 0 is demographic parity of the mean.
        - `proxy_discrimination`, PD [Lindholm2026]: distance to the prices that infer nothing,
          min E[(pi - c - sum_d v_d mu(x, d))^2] / Var(pi) over numbers c and weights v >= 0 that sum to one; 0 if and
          only if pi avoids proxy discrimination, 1 if no such price explains it.
        - `proxy_explained`: what q = P(D given x) explains of the difference to h*, as a share of the price's
          variation: [Var(pi - h*) - Var(residual of pi - h* on 1, q)] / Var(pi). h* enters as it is: with a slope of
          its own it would take what q explains wherever h* and q move together. Above one if pi - h* varies more
          than pi.
        - `direct_spread` [Cote2025, risk spread]: mean of max_d mu(x, d) - min_d mu(x, d), what the attribute itself
          moves a best estimate by at equal features.
        - `proxy_shift` [Cote2025, proxy vulnerability]: root mean square of pi - h*, in money.

    Notes
    -----
    UF uses the reports: with shares p_k and means m_k of the groups (see `compute_group_means`) and m = sum p_k m_k,
    sum_k p_k (m_k - m)^2 less its bias sum_k p_k Var(m_k - m), over the variance of the price among those who
    reported. Its standard error is that of the quadratic form, sqrt(4 d'S d + 2 tr((PS)^2)) over that variance with
    d = p (m_k - m) and S the covariance of m_k - m, so that it does not vanish at zero; an interval that reaches below
    zero says that the data are compatible with none. The other measures need no report: their limits are of sampling
    alone, by the delta method on the log scale, with best estimates, h* and q taken as given. All of them are over all
    rows.

    References
    ----------
    [Lindholm2026], [Lindholm2024], [Cote2025] in the documentation.
    """
    columns = {"premiums": premiums, "best_estimate": best_estimate}
    given = {"discrimination_free": discrimination_free, "propensity": propensity}
    columns |= {name: values for name, values in given.items() if values is not None}
    tables = [name for name in ("best_estimate", "propensity") if name in columns]
    data = AuditData.read(
        columns, sensitive, channel, sample_weight, cluster, by, level, exposure, tables, channel_key=channel_key
    )
    if propensity is not None:
        q = data["propensity"]
        bad = int(np.count_nonzero((q < 0).any(axis=1) | (np.abs(q.sum(axis=1) - 1) > _CLOSE)))
        if bad:
            raise ValueError(
                f"Got propensity with {bad} of {len(q)} rows that are not probabilities; expected numbers from 0 to 1 "
                "that sum to one in each row, such as from compute_propensities."
            )
    return data.table(_measures)


def _measures(data: AuditData) -> Records:
    pi, mu, w = data["premiums"], data["best_estimate"], data.reports.weight / data.reports.weight.sum()
    squares = proxy_residual(pi, mu, w) ** 2
    records = [_unfairness(data), _row("proxy_discrimination", *_share_of_variance(data, squares))]
    h, q = data.columns.get("discrimination_free"), data.columns.get("propensity")
    if h is not None and q is not None:
        shift = pi - h - w @ (pi - h)
        Z, scale = np.column_stack([np.ones(len(pi)), q[:, 1:]]), np.sqrt(w)
        rest = shift - Z @ np.linalg.lstsq(Z * scale[:, None], shift * scale, rcond=None)[0]
        records.append(_row("proxy_explained", *_share_of_variance(data, shift**2 - rest**2)))
    totals = data.reports.totals({"spread": np.ptp(mu, axis=1)}, [EVERYONE])
    spread = totals["spread"] / totals["volume"]
    low, high = spread.interval(data.level)
    records.append(_row("direct_spread", float(spread.value[0]), float(low[0]), float(high[0])))
    if h is not None:
        root = float(np.sqrt(w @ (pi - h) ** 2))
        influence = w * ((pi - h) ** 2 - root**2) / (2 * root) if root else 0 * w
        records.append(_row("proxy_shift", *_log_limits(data, root, influence)))
    return records


def _row(measure: str, value: float, low: float, high: float, note: str = "") -> dict[str, Any]:
    return {"measure": measure, "value": value, "value_low": low, "value_high": high, "note": note}


def _unfairness(data: AuditData) -> dict[str, Any]:
    K = len(data.groups)
    centered = data["premiums"] - data["premiums"].mean()
    totals = data.reports.totals({"pi": centered, "square": centered**2}, [*range(K), REPORTED])
    volume = totals["volume"]
    note = describe_lack(float(effective_reports(volume[:K]).min()))
    if note:
        return _row("demographic_unfairness", *_NONE, note)
    mean, square, shares = totals["pi"] / volume, totals["square"] / volume, volume[:K] / volume[K]
    p, gap = shares.value, mean[:K] - mean[K]
    variance = square.value[K] - mean.value[K] ** 2
    if not variance > _ROUNDING * float(data["premiums"].mean()) ** 2:
        return _row("demographic_unfairness", *_NONE, _SAME)
    S, d = gap.gradient @ gap.covariance @ gap.gradient.T, p * gap.value
    value = float((d @ gap.value - p @ np.diag(S)) / variance)
    # The variance of the price moves the ratio too: to first order through its own gradient.
    slope = (2 * d) @ gap.gradient + gap.value**2 @ shares.gradient
    slope = (slope - value * (square.gradient[K] - 2 * mean.value[K] * mean.gradient[K])) / variance
    PS = p[:, None] * S
    error = float(np.sqrt(slope @ totals["pi"].covariance @ slope + 2 * np.trace(PS @ PS) / variance**2))
    width = ndtri(0.5 + data.level / 2) * error
    return _row("demographic_unfairness", value, value - width, value + width)


def _share_of_variance(data: AuditData, squares: Array) -> tuple[float, float, float, str]:
    """Return E[squares] / Var(pi), limits and a note; a fitted minimiser drops out of the influence (envelope)."""
    w, pi = data.reports.weight / data.reports.weight.sum(), data["premiums"]
    centered = pi - w @ pi
    variance = float(w @ centered**2)
    if not variance > _ROUNDING * float(w @ pi) ** 2:
        return (*_NONE, _SAME)
    value = float(w @ squares) / variance
    return (*_log_limits(data, value, w * (squares - value * centered**2) / variance), "")


def _log_limits(data: AuditData, value: float, influence: Array) -> tuple[float, float, float]:
    estimate = data.reports.from_influence(np.array([value]), influence[:, None])
    low, high = estimate.ratio_interval(data.level) if value > 0 else estimate.interval(data.level)
    return value, float(low[0]), float(high[0])

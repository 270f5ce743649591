"""Drivers of disparity: which rating factor carries how much of the difference between two groups' mean premiums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.models import Design

from .._audit_data import AuditData, Records, estimate_records, with_limits
from .._estimate import fieller
from ..tables import Factor, read_factors
from ._pairs import Pairs, on_scale, read_pairs

REMAINDER, TOTAL = "remainder", "total"
_ROUNDING = 1e-9  # of the largest premium


def compute_disparity_drivers(
    premiums: Any,
    X: Any,
    *,
    factors: Sequence[str] | None = None,
    against: Any = None,
    scale: str = "linear",
    bands: int = 10,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Divide the difference between groups' mean premiums among the rating factors.

    Parameters
    ----------
    premiums, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; with `by` everything is done within each class.
    X : data frame or array of shape (n, factors)
        Rating factors.
    factors : sequence of str, optional
        Columns of X to look at; all by default. What others do is in the remainder.
    against : label, optional
        The group that others are compared with; by default the largest, by estimated volume.
    scale : {"linear", "log"}
        "log" divides the difference of mean logarithms, for multiplicative tariffs: exp(contribution) is then a factor.
    bands : int
        A column of numbers enters as it is and, if it has more values than this, with a step for each of so many bands
        of about equal volume; one with fewer values with a step for each value.

    Returns
    -------
    DataFrame
        One row per group (other than the one it is compared with) and factor, then "remainder" and "total":

        - `group`, `against`, `factor`;
        - `contribution`, `contribution_low`, `contribution_high`: to the difference; contributions and remainder add up
          to the total;
        - `share`, `share_low`, `share_high`: of the total; no limits where the total may be zero;
        - `p_value`: two-sided, of no contribution;
        - `effective_reports`: of the rarer of the two; `note`.

    Notes
    -----
    The premium is approximated by a sum over factors, h(x) = c + sum_j f_j(x_j) + e, by weighted least squares over all
    rows; no attribute is needed for that. With the means m_k of `compute_group_means`,

    .. math:: m_k(h) - m_l(h) = \sum_j \big[m_k(f_j) - m_l(f_j)\big] + \big[m_k(e) - m_l(e)\big]

    holds exactly: Kitagawa's and Oaxaca's division for a premium that does not use the attribute itself. A tariff that
    is a sum (on the log scale: a product) of its factors has no remainder. For any other price the remainder has what
    the sum misses: products of factors, other shapes, factors not given. Limits contain the error of the means and of
    the f_j.

    The division is among factors as the price uses them. Factors that move together share what they explain in the way
    that fits the premium best; where one is a function of others the division between them is arbitrary.

    References
    ----------
    Kitagawa (1955), Components of a difference between two rates, Journal of the American Statistical Association
    50(272), 1168-1194. Oaxaca (1973), Male-female wage differentials in urban labor markets, International Economic
    Review 14(3), 693-709.

    Examples
    --------
    >>> import pandas as pd
    >>> D = np.array(["F", "M"])[np.arange(300) % 2]
    >>> X = pd.DataFrame({"age": 30.0 + np.arange(300) % 7, "town": np.where(np.arange(300) % 3 == 0, "a", "b")})
    >>> X["age"] += 2 * (D == "M")
    >>> h = 100 + 5 * X["age"] + 20 * (X["town"] == "a")
    >>> table = compute_disparity_drivers(h, X, sensitive=D, against="F")
    >>> table["factor"].tolist(), bool(abs(table["contribution"][2]) < 1e-8)
    (['age', 'town', 'remainder', 'total'], True)
    """
    transform = on_scale(scale)
    data = AuditData.read(
        {"premiums": premiums}, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    chosen = read_factors(X, factors, bands, data.reports.weight)
    reserved = [factor.name for factor in chosen if factor.name in (REMAINDER, TOTAL)]
    if reserved:
        raise ValueError(f"Got a factor named {reserved[0]!r}, which the table uses for itself. Rename the column.")
    columns, owner = _columns(X, chosen)
    pairs = read_pairs(data, against)
    data = data.with_columns(premiums=transform(data["premiums"]), columns=columns)
    names = [*(factor.name for factor in chosen), REMAINDER, TOTAL]
    return replace(data, source=premiums).table(lambda piece: _drivers(piece, pairs, names, owner))


def _columns(X: Any, chosen: Sequence[Factor]) -> tuple[Array, Array]:
    """Return the columns that each factor's f_j is a combination of, and the position of the factor of each."""
    design, matrix = Design.learn_transform(X)
    origins = list(design.origins) if design.named else [f"x{j}" for j in range(matrix.shape[1])]
    blocks, owner = [], []
    for j, factor in enumerate(chosen):
        steps = np.eye(len(factor.levels))[factor.codes]
        block = np.column_stack([matrix[:, [origin == factor.name for origin in origins]], steps])
        blocks.append(block)
        owner += [j] * block.shape[1]
    return np.column_stack(blocks), np.array(owner)


def _drivers(data: AuditData, pairs: Pairs, names: list[str], owner: Array) -> Records:
    K, P, J = len(data.groups), len(pairs.first), len(names) - 2
    w, h = data.reports.weight, data["premiums"]
    share = w / w.sum()
    Z = data["columns"] - share @ data["columns"]
    deviation = np.sqrt(share @ Z**2)
    Z = Z / np.where(deviation > 1e-9 * np.abs(data["columns"]).max(axis=0, initial=1e-300), deviation, np.inf)
    inverse = np.linalg.pinv(Z.T @ (share[:, None] * Z), rcond=1e-9, hermitian=True)
    centred = h - share @ h
    beta = inverse @ (Z.T @ (share * centred))
    parts = np.stack([Z[:, owner == j] @ beta[owner == j] for j in range(J)], axis=1)  # f_j(x_j)
    rest = centred - parts.sum(axis=1)
    if np.abs(rest).max(initial=0.0) <= _ROUNDING * np.abs(h).max(initial=0.0):
        rest = np.zeros(len(h))  # a sum of its factors: what is left is rounding
    values = np.column_stack([parts, rest, centred])  # (n, J + 2)
    volume = data.totals([], range(K))["volume"]
    a = np.column_stack([data.reports.signed_weight(k) for k in range(K)])
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (a.T @ values) / volume.value[:, None]
        moved = (a.T @ Z) / volume.value[:, None]  # means of the columns, (K, q)
    found, influence = [], []
    fitted = (share * rest)[:, None] * (Z @ inverse)  # what row i moves beta by, (n, q)
    belongs = (owner[:, None] == np.arange(J)).astype(float)  # (q, J)
    for k, other in zip(pairs.first, pairs.second, strict=True):
        found.append(means[k] - means[other])
        gap = moved[k] - moved[other]
        by_factor = fitted @ (gap[:, None] * belongs)  # through the error of the f_j, (n, J)
        through = np.column_stack([by_factor, -by_factor.sum(axis=1), np.zeros(len(h))])
        with np.errstate(divide="ignore", invalid="ignore"):
            own = [a[:, [g]] * (values - means[g]) / volume.value[g] for g in (k, other)]
        influence.append(own[0] - own[1] + through)
    contribution = data.reports.from_influence(np.concatenate(found), np.column_stack(influence))
    total = contribution[np.repeat(np.arange(P) * (J + 2) + J + 1, J + 2)]
    each = pairs.labels(data.groups).items()
    labels = {name: [label for label in column for _ in names] for name, column in each} | {"factor": names * P}
    numbers = {
        **with_limits("contribution", contribution, contribution.interval(data.level)),
        **with_limits("share", contribution / total, fieller(contribution, total, data.level)),
        "p_value": np.where((contribution.value == 0) & (contribution.variance == 0), 1.0, contribution.p_value()),
    }
    return estimate_records(labels, np.repeat(pairs.effective(volume), J + 2), numbers)

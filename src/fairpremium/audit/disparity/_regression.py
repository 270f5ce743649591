"""The premium regressed on the true group and on controls, from reports: the marginal effect of the group."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.models import Design

from .._audit_data import AuditData, Records, estimate_records, with_limits
from .._estimate import Estimate
from ._pairs import Pairs, on_scale, read_pairs

NOT_IDENTIFIED = "controls and reports do not identify the effect: fewer controls, or more rows"


def compute_marginal_effect(
    premiums: Any,
    X: Any,
    *,
    against: Any = None,
    scale: str = "linear",
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Regress the premium on the true group with controls: what a group pays more at equal controls.

    Parameters
    ----------
    premiums, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.
    X : data frame or array of shape (n, controls)
        Controls, such as the risk factors that a supervisor accepts: numbers enter as they are, text, categories and
        booleans by level. Controls that are combinations of others change nothing.
    against : label, optional
        The group that others are compared with; by default the largest, by estimated volume.
    scale : {"linear", "log"}
        "log" regresses the logarithm of the premium: exp(effect) - 1 is then the relative difference.

    Returns
    -------
    DataFrame
        One row for each group other than the one it is compared with:

        - `group`, `against`;
        - `effect`, `effect_low`, `effect_high`: coefficient of the group; `standard_error`;
        - `p_value`: two-sided, of no effect;
        - `effective_reports`: of the rarer of the two; `note`.

    Notes
    -----
    Of the regression h = b_D + z'c + e, weighted by volume, the normal equations need the attribute only in means that
    are linear in its indicator, since a row has one group:

    .. math:: \sum_i a_{ik} (h_i - b_k - z_i'c) = 0 \quad (k = 1, \dots, K), \qquad
              \sum_i w_i z_i \Big(h_i - \sum_k T^{-1}[k, s_i]\, b_k - z_i'c\Big) = 0,

    with a_ik = w_i T^-1[k, s_i], over the rows with a report. In expectation over the noise they are those of the true
    attribute. They are linear in (b, c), with the symmetric matrix

    .. math:: A = \begin{pmatrix} \mathrm{diag}(\sum_i a_{ik}) & \sum_i a_{ik} z_i' \\
                  \sum_i a_{ik} z_i & \sum_i w_i z_i z_i' \end{pmatrix},

    and row i moves (b, c) by A^-1 times its term: the sandwich, A^-1 (sum of outer products of the terms) A^-1, with
    terms summed per person if there are clusters. The effect is b_k - b_l. With the true attribute these are weighted
    least squares with White's standard errors (HC0). Limits and p values also take skewed rows into account. With
    noise A can lose its positive eigenvalues; the note then says so.

    Products of the reports, T^-1[k, s] T^-1[l, s], must not stand in the place of 1{D = k} 1{D = l}: their mean is
    another. A regression on the weights T^-1[k, s] as if they were features is therefore wrong.

    Examples
    --------
    >>> x = np.tile([0.0, 1.0, 2.0], 80)
    >>> D = np.array(["F", "M"])[(np.arange(240) // 7) % 2]
    >>> compute_marginal_effect(10 + 2 * x + 3 * (D == "F"), x[:, None], sensitive=D, against="M")[["group", "effect"]]
      group  effect
    0     F     3.0
    """
    transform = on_scale(scale)
    data = AuditData.read(
        {"premiums": premiums}, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    _, Z = Design.learn_transform(X)
    if len(Z) != len(data.reports):
        raise ValueError(f"Got X with {len(Z)} rows, but premiums has {len(data.reports)}; expected the same number.")
    data = data.with_columns(premiums=transform(data["premiums"]), controls=Z)
    pairs = read_pairs(data, against)
    return data.table(lambda piece: _effects(piece, pairs))


def _effects(data: AuditData, pairs: Pairs) -> Records:
    K, reports, h = len(data.groups), data.reports, data["premiums"]
    volume = data.totals([], range(K))["volume"]
    a = np.column_stack([reports.signed_weight(k) for k in range(K)])
    w = reports.weight * (reports.code < reports.table.shape[1] - 1)  # nobody without a report
    Z = span(data["controls"], w)
    A = np.block([[np.diag(a.sum(axis=0)), a.T @ Z], [Z.T @ a, Z.T @ (w[:, None] * Z)]])
    labels, effective = pairs.labels(data.groups), pairs.effective(volume)
    if not _smallest(A) > _SINGULAR:
        rows = estimate_records(labels, effective, dict.fromkeys(_COLUMNS, np.full(len(pairs.first), np.nan)))
        return [{**row, "note": row["note"] or NOT_IDENTIFIED} for row in rows]
    with_group = np.divide(a, w[:, None], out=np.zeros_like(a), where=w[:, None] > 0)  # T^-1[k, s]
    inverse = np.linalg.inv(A)
    solved = inverse @ np.concatenate([a.T @ h, Z.T @ (w * h)])
    b, c = solved[:K], solved[K:]
    rest = h - Z @ c
    terms = np.column_stack([a * (rest[:, None] - b), (w * (rest - with_group @ b))[:, None] * Z])
    level = reports.from_influence(b, (terms @ inverse)[:, :K])
    effect: Estimate = level[pairs.first] - level[pairs.second]
    numbers = {
        **with_limits("effect", effect, effect.interval(data.level)),
        "standard_error": effect.standard_error,
        "p_value": effect.p_value(),
    }
    return estimate_records(labels, effective, numbers)


def _smallest(A: Array) -> float:
    """Return the smallest eigenvalue of a matrix whose diagonal is scaled to one; zero if that is not possible."""
    diagonal = np.diag(A)
    return float(np.linalg.eigvalsh(A / np.sqrt(np.outer(diagonal, diagonal)))[0]) if (diagonal > 0).all() else 0.0


_SINGULAR = 1e-9
_COLUMNS = ("effect", "effect_low", "effect_high", "standard_error", "p_value")


def span(matrix: Array, weight: npt.NDArray[np.float64]) -> Array:
    """Return columns that are orthonormal under the weights and span those of a matrix beside a constant."""
    share = weight / weight.sum()
    centered = matrix - share @ matrix
    scale = np.sqrt(share @ centered**2)
    kept = scale > _SINGULAR * np.maximum(np.abs(share @ matrix), 1e-300)
    scaled = centered[:, kept] / scale[kept]
    values, vectors = np.linalg.eigh(scaled.T @ (share[:, None] * scaled))
    used = values > _SINGULAR
    return np.asarray(scaled @ (vectors[:, used] / np.sqrt(values[used])))

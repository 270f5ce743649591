"""What privacy costs: how many rows, with which channel, for a group mean of a wanted precision."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.labels import check_labels
from fairpremium.pricing._bounds import check_rows, resolve_inverse
from fairpremium.pricing._model_file import plain_data

_KNOWN = ("keep", "epsilon")  # numbers that a channel may have


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """What a channel tells about a person, and what it costs in rows.

    Attributes
    ----------
    table : DataFrame
        One row per group, see `plan`.
    keep : float
        P(S = D) of randomized response; nan for another channel.
    epsilon : float
        Privacy parameter of one report; inf when reports are the truth.
    rows : int or None
        The rows that were asked about.
    standard_error : float or None
        The standard error that was asked for.
    """

    table: pd.DataFrame
    keep: float
    epsilon: float
    rows: int | None = None
    standard_error: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python values, with None for what is not finite, ready for JSON."""
        return {
            "keep": plain_data(self.keep),
            "epsilon": plain_data(self.epsilon),
            "rows": self.rows,
            "standard_error": self.standard_error,
            "groups": plain_data(self.table.to_dict(orient="records")),
        }

    def __repr__(self) -> str:
        head = f"Plan(keep={self.keep:.4g}, epsilon={self.epsilon:.4g}"
        if self.rows is not None:
            head += f", rows={self.rows}"
        if self.standard_error is not None:
            head += f", standard_error={self.standard_error:g}"
        return f"{head})\n{self.table.to_string(index=False, float_format='{:.4g}'.format)}"


def plan(
    groups: int | Sequence[Any] | None = None,
    *,
    epsilon: float | None = None,
    keep: float | None = None,
    channel: Any = None,
    shares: Sequence[float] | Mapping[Any, float] | None = None,
    rows: int | None = None,
    standard_error: float | None = None,
    outcome_sd: float | Sequence[float] | Mapping[Any, float] = 1.0,
    outcome_means: Sequence[float] | Mapping[Any, float] | None = None,
) -> Plan:
    """Compute what a channel costs before anybody is asked: precision, effective rows, rows needed.

    The yardstick is the mean outcome of each group, estimated from reports with the inverse channel.

    Parameters
    ----------
    groups : int or sequence of labels, optional
        K, or the K groups; left out when `channel` is given.
    epsilon, keep : float
        Randomized response: exactly one of them.
    channel : object with ``matrix``, ``inverse`` and ``groups``, optional
        Any other channel, instead of the three above.
    shares : sequence or mapping, optional
        P(D), positive, with sum one. Default: equal shares.
    rows : int, optional
        Number of rows with a report; adds what they achieve.
    standard_error : float, optional
        Wanted standard error of a group mean; adds what it takes.
    outcome_sd : float, sequence or mapping, default 1
        Standard deviation of the outcome inside the groups, one for all or one per group.
    outcome_means : sequence or mapping, optional
        Mean outcome of each group. Default: equal. Differences between groups add to the cost.

    Returns
    -------
    Plan
        Its `table` has one row per group with the columns

        - `group`, `share`: P(D = k);
        - `posterior`: the largest P(D = k given S = s) over the reports s, what a report tells at most;
        - `c1`: the largest weight of a row in the group's sums, C1 for randomized response;
        - `inflation`: variance of the group mean, over its variance if D were known;

        with `rows` also

        - `effective_rows`: rows of this group with known D that would be as good;
        - `standard_error`: of the group mean;
        - `share_error`: standard error of the estimated share;

        and with a wanted `standard_error` also

        - `rows_needed`: total rows, all groups together, that reach it;
        - `rows_needed_known`: the same if D were known.

    Notes
    -----
    The estimate is a ratio of inverse-weighted sums::

        m_hat_k = sum_i T^-1[k, s_i] y_i / sum_i T^-1[k, s_i]

    Since S depends on D alone, T^-1 T = I makes sum_s T[s, j] T^-1[k, s] = 1{j = k}: the residuals
    T^-1[k, s] (y - m_k) have mean zero, rows of every group have a share in their variance, and as n grows

    ::

        var(m_hat_k)  = sum_j p_j C[j, k] (sd_j^2 + (m_j - m_k)^2) / (n p_k^2)
        C[j, k]       = sum_s T[s, j] T^-1[k, s]^2
        known D       : sd_k^2 / (n p_k)
        inflation_k   = sum_j p_j C[j, k] (sd_j^2 + (m_j - m_k)^2) / (p_k sd_k^2)
        share_error_k = sqrt((sum_j p_j C[j, k] - p_k^2) / n)
        posterior_k   = max_s T[s, k] p_k / sum_j T[s, j] p_j

    where p is `shares`, sd is `outcome_sd`, m is `outcome_means`, n is `rows`. With keep = 1 every inflation
    is one. For randomized response posterior_k = p_k e^eps / (p_k e^eps + 1 - p_k): one report multiplies the
    odds by e^eps at most, whatever else is known about the person.

    These are large-sample figures. They fail when the denominator is close to zero: distrust a group whose
    `share_error` is not small against its `share`. Models of x cost more than means, and the corrections
    `score`, `posterior` and `likelihood` cost less than the inverse weights: read the table as an order of
    magnitude that is exact for group means.

    Examples
    --------
    Two equal groups, keep = 0.75, so T^-1 is 1.5 and -0.5. C[k, k] = 0.75 * 1.5^2 + 0.25 * 0.5^2 = 1.75 and,
    for the other group's rows, 0.25 * 1.5^2 + 0.75 * 0.5^2 = 0.75; the inflation is 1.75 + 0.75 = 2.5:

    >>> result = plan(["F", "M"], keep=0.75, rows=10_000, standard_error=0.01)
    >>> result.table[["group", "share", "posterior", "c1", "inflation", "effective_rows"]]
      group  share  posterior   c1  inflation  effective_rows
    0     F    0.5       0.75  1.5        2.5          2000.0
    1     M    0.5       0.75  1.5        2.5          2000.0
    >>> result.table["rows_needed"].tolist()       # 2.5 / (0.5 * 0.01^2)
    [50000, 50000]
    """
    labels, T, inverse, pi, eps = _channel(groups, keep, epsilon, channel)
    K = len(labels)
    p = np.full(K, 1 / K) if shares is None else _per_group(shares, labels, "shares")
    if not (p > 0).all() or not math.isclose(p.sum(), 1.0, rel_tol=0, abs_tol=1e-9):
        raise ValueError(
            f"Got shares={shares}, but expected positive numbers that sum to one. Divide them by their sum, "
            "and leave out groups that do not occur."
        )
    one_sd = not isinstance(outcome_sd, Mapping) and np.ndim(outcome_sd) == 0
    sd = _per_group([outcome_sd] * K if one_sd else outcome_sd, labels, "outcome_sd")
    if not (np.isfinite(sd) & (sd > 0)).all():
        raise ValueError(f"Got outcome_sd={outcome_sd}, but expected positive finite numbers.")
    m = np.zeros(K) if outcome_means is None else _per_group(outcome_means, labels, "outcome_means")
    if not np.isfinite(m).all():
        raise ValueError(f"Got outcome_means={outcome_means}, but expected finite numbers.")

    C = (inverse**2 @ T).T  # (n_groups j, n_groups k): sum_s T[s, j] T^-1[k, s]^2
    residual = sd[:, None] ** 2 + (m[:, None] - m) ** 2  # (j, k): E[(y - m_k)^2 given D = j]
    unit_variance = (p[:, None] * C * residual).sum(axis=0) / p**2  # n var(m_hat_k)
    unit_known = sd**2 / p
    joint = (T * p)[T.any(axis=1)]  # P(S = s, D = k), of the reports that occur
    columns: dict[str, Any] = {
        "group": labels,
        "share": p,
        "posterior": (joint / joint.sum(axis=1, keepdims=True)).max(axis=0),
        "c1": inverse.max(axis=1),
        "inflation": unit_variance / unit_known,
    }
    if rows is not None:
        rows = check_rows(rows, "rows")
        columns["effective_rows"] = rows * p * unit_known / unit_variance
        columns["standard_error"] = np.sqrt(unit_variance / rows)
        columns["share_error"] = np.sqrt(np.maximum(p @ C - p**2, 0.0) / rows)
    if standard_error is not None:
        if not (math.isfinite(standard_error) and standard_error > 0):
            raise ValueError(f"Got standard_error={standard_error}, but expected a positive finite number.")
        columns["rows_needed"] = _ceil(unit_variance / standard_error**2)
        columns["rows_needed_known"] = _ceil(unit_known / standard_error**2)
    return Plan(pd.DataFrame(columns), keep=pi, epsilon=eps, rows=rows, standard_error=standard_error)


def _channel(
    groups: int | Sequence[Any] | None, keep: float | None, epsilon: float | None, channel: Any
) -> tuple[list[Any], Array, Array, float, float]:
    """Return labels, T (reports, groups), T^-1 (groups, reports), keep and epsilon."""
    inverse, pi = resolve_inverse(groups, keep, epsilon, channel)
    if channel is None:
        K = len(inverse)
        labels = list(range(1, K + 1)) if isinstance(groups, int | np.integer) else list(check_labels(groups))
        T = np.where(np.eye(K, dtype=bool), pi, (1 - pi) / (K - 1))
        if epsilon is None:
            epsilon = math.inf if pi == 1 else math.log(pi * (K - 1) / (1 - pi))
        return labels, T, inverse, pi, float(epsilon)
    T = np.asarray(channel.matrix, dtype=np.float64)
    if T.shape != inverse.shape[::-1] or not np.allclose(inverse @ T, np.eye(len(inverse)), rtol=0, atol=1e-8):
        raise ValueError(
            f"Got channel.matrix of shape {T.shape} and channel.inverse of shape {inverse.shape}, but expected "
            "(reports, groups) and its left inverse."
        )
    known = [math.nan if getattr(channel, name, None) is None else float(getattr(channel, name)) for name in _KNOWN]
    return list(channel.groups), T, inverse, known[0], known[1]


def _per_group(given: Any, labels: list[Any], name: str) -> Array:
    """Return one float per group from a sequence in the order of the groups, or from a mapping."""
    if isinstance(given, Mapping):
        if set(given) != set(labels):
            raise ValueError(f"Got {name} for {list(given)}, but expected one number for each of {labels}.")
        given = [given[label] for label in labels]
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (len(labels),):
        raise ValueError(
            f"Got {name} of shape {values.shape}, but expected {len(labels)} numbers, one for each of {labels}."
        )
    return values


def _ceil(rows: Array) -> list[int]:
    # The relative error of a few roundings is below 1e-12: at a whole number do not add a row for it.
    return [math.ceil(float(value) * (1 - 1e-12)) for value in rows]

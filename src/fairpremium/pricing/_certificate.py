"""A check of premiums that needs no law of the outcome and no model of it to be right: the level of h*, by segment.

    xi_i = sum_d P*(d) [mu_d(x_i) + T^-1[d, s_i] / e_d(x_i) (y_i - mu_d(x_i))]

has the mean E[h*(x)] if the best estimates mu are right **or** e_d(x) = P(D = d given x) is: it is doubly robust. The
mean of xi over a segment of the portfolio is therefore an honest estimate of what h* should be there on average, with a
standard error, for trees, nets and tariffs from elsewhere. The propensity e is learned on other rows than those it is
used for (cross-fitted); best estimates should come from a fit that has not seen these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections import GroupPropensity, ReportChannel
from fairpremium.families import Normal
from fairpremium.models import LinearModel, prepare

_FOLDS = 5
_LEAST = 0.005  # smallest P(D = d given x) that is divided by


def certify_prices(
    premium: Array,
    best_estimate: Array,
    reference: Array,
    X: npt.NDArray[Any],
    y: Array,
    report: npt.NDArray[Any],
    channel: ReportChannel,
    features: Sequence[str],
    *,
    weight: Array | None,
    segment: npt.NDArray[Any] | None,
    level: float,
) -> pd.DataFrame:
    """Estimate the level of h* overall and in each segment.

    Parameters
    ----------
    premium : array of shape (n,)
        Premiums to be judged.
    best_estimate : array of shape (n, K)
        mu(x, d).
    reference : array of shape (K,)
        P*.
    X : array of shape (n, features)
        Features, for P(D given x); `features` are their names.
    y, report, weight : arrays of shape (n,)
        Outcomes, codes of the reports, and volumes or None. Rows without a report tell only their best estimates.
    channel : ReportChannel
    segment : array of shape (n,), optional
        Which segment a row belongs to.
    level : float
        Confidence level.

    Returns
    -------
    pandas.DataFrame
        One row for the portfolio ("all") and one per segment: rows, volume, premium (its mean), level (the estimate of
        the mean of h*), its standard error, interval, and whether the premium lies inside.
    """
    propensity = _cross_fitted(X, y, report, channel, features, weight)
    signed = channel.table.T[report] / np.maximum(propensity, _LEAST)
    xi = (best_estimate + signed * (y[:, None] - best_estimate)) @ reference
    w = np.ones(len(y)) if weight is None else weight
    rows = [_level("all", premium, xi, w, level)]
    if segment is not None:
        for name in sorted(pd.unique(segment), key=str):
            here = segment == name
            rows.append(_level(name, premium[here], xi[here], w[here], level))
    return pd.DataFrame(rows)


def check_segments(by: Any, X: Any, n: int) -> npt.NDArray[Any] | None:
    """Return the segment of each row, from an array or from the name of a column of X."""
    if by is None:
        return None
    if isinstance(by, str):
        if by not in getattr(X, "columns", ()):
            raise ValueError(f"Got by={by!r}, but expected a column of X or an array with one segment per row.")
        by = X[by]
    segment = np.asarray(by, dtype=object)
    if segment.shape != (n,):
        raise ValueError(f"Got by with shape {segment.shape}, but expected one segment for each of the {n} rows.")
    return segment


def _level(name: Any, premium: Array, xi: Array, w: Array, level: float) -> dict[str, Any]:
    total = float(w.sum())
    mean = float(w @ xi) / total
    error = float(np.sqrt(np.sum((w * (xi - mean)) ** 2))) / total
    half = float(ndtri(0.5 + level / 2)) * error
    own = float(w @ premium) / total
    return {
        "segment": name,
        "rows": len(xi),
        "volume": total,
        "premium": own,
        "level": mean,
        "standard_error": error,
        "lower": mean - half,
        "upper": mean + half,
        "inside": bool(mean - half <= own <= mean + half),
    }


def _cross_fitted(
    X: npt.NDArray[Any],
    y: Array,
    report: npt.NDArray[Any],
    channel: ReportChannel,
    features: Sequence[str],
    weight: Array | None,
) -> Array:
    """Compute P(D = d given x) of each row by a logit that was learned on other rows: shape (n, K)."""
    rows = Rows(X, y, weight, report)
    missing = np.full(len(rows), channel.n_codes - 1)  # without its report a row's posterior is P(D given x)
    fold = rows.draw_folds(_FOLDS, np.random.default_rng(0))
    found = np.empty((len(rows), len(channel.groups)))
    for f in range(_FOLDS):
        train = rows.take(fold != f)
        problem = prepare(train, channel.n_codes, Normal(), LinearModel(ridge=1.0), list(features))
        learned = GroupPropensity.learn(problem, channel, always=True)
        held = Rows(X[fold == f], y[fold == f], None if weight is None else weight[fold == f], missing[fold == f])
        found[fold == f] = held.map(learned.propensity)
    return found

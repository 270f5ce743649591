"""A check of premiums that needs no law of the outcome and no model of it to be right: the level of h*, by segment.

    xi_i = sum_d P*(d) [mu_d(x_i) + T^-1[d, s_i] / (e_d(x_i) r(x_i)) (y_i - mu_d(x_i))]

has the mean h*(x_i) if the best estimates mu are right **or** e and r are: it is doubly robust. e_d(x) is
P(D = d given x) among those who reported, r(x) the probability of a report, and T^-1 of a missing report is zero. The
mean of xi over a segment of the portfolio is therefore an honest estimate of what h* is there on average, with a
standard error, for trees, nets and tariffs from elsewhere. e and r are learned on other rows than those they are used
for (cross-fitted); best estimates should come from a fit that has not seen these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections import (
    MIN_EFFECTIVE_REPORTS,
    GroupPropensity,
    ReportChannel,
    describe_lack,
    report_shares,
)
from fairpremium.families import Normal
from fairpremium.models import LinearModel, LinearProblem, prepare
from fairpremium.pricing._prices import marginal

_FOLDS = 5
_LEAST = 0.005  # smallest probability of a group that is divided by


def certify_prices(
    premium: Array,
    best_estimate: Array,
    rows: Rows,
    channel: ReportChannel,
    *,
    reference: Array | None,
    segment: npt.NDArray[Any] | None,
    level: float,
) -> pd.DataFrame:
    """Estimate the mean of h* over the rows, and over those of each segment.

    Parameters
    ----------
    premium : array of shape (n,)
        Premiums to be judged.
    best_estimate : array of shape (n, K)
        mu(x, d).
    rows : Rows
        Features, for P(D given x); outcomes, volumes, codes of the reports and of the persons. Rows without a report
        tell only their best estimates.
    channel : ReportChannel
    reference : array of shape (K,), optional
        P*; by default the distribution of the groups, estimated from these rows.
    segment : array of shape (n,), optional
        Which segment a row belongs to.
    level : float
        Confidence level.

    Returns
    -------
    pandas.DataFrame
        As `DiscriminationFreePricer.certificate` returns it.

    Notes
    -----
    Given x, the error of the mean of xi is that of its second part, and the variance of that within the segment is at
    least the conditional one. An estimated P* adds the error of the shares times the groups' levels in the segment.
    """
    n_reported = int(np.count_nonzero(rows.report < channel.n_codes - 1))
    if n_reported < MIN_EFFECTIVE_REPORTS:
        raise ValueError(f"Got {n_reported} rows with a report, but expected at least {MIN_EFFECTIVE_REPORTS:.0f}.")
    w = np.ones(len(rows)) if rows.weight is None else rows.weight
    if reference is None:
        shares, scores = report_shares(_problem(rows, channel).moments, channel.table)
        reference = marginal(shares, channel.groups)
        of_shares = rows.map(scores) * (w / w.sum())[:, None]
    else:
        of_shares = np.zeros((len(rows), len(reference)))
    signed = channel.table.T[rows.report] / np.maximum(_propensity(rows, channel), _LEAST)
    moved = signed * (rows.y[:, None] - best_estimate)  # (n, K), what xi adds to the best estimates
    use = w * np.abs(signed @ reference)
    table = []
    for name, here in _segments(segment, len(rows)):
        volume = float(w[here].sum())
        share = np.where(here, w, 0.0) / (volume or np.nan)
        theta = share @ (best_estimate + moved)
        mean = share @ moved @ reference
        error = share * (moved @ reference - mean) + of_shares @ theta
        if rows.cluster is not None:
            error = np.bincount(rows.cluster, weights=error)
        table.append(
            {
                "segment": name,
                "rows": int(here.sum()),
                "volume": volume,
                "premium": float(share @ premium),
                "level": float(theta @ reference),
                "standard_error": float(np.sqrt(error @ error)),
                "effective_reports": _effective(use[here]),
            }
        )
    return _with_limits(pd.DataFrame(table), level)


def check_segments(by: Any, X: Any, n: int) -> npt.NDArray[Any] | None:
    """Return the segment of each row, from an array or from the name of a column of X."""
    if by is None:
        return None
    if isinstance(by, str):
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame) or by not in frame.columns:
            raise ValueError(f"Got by={by!r}, but expected a column of X or an array with one segment per row.")
        by = frame[by].to_numpy()
    segment = np.asarray(by, dtype=object)
    if segment.shape != (n,):
        raise ValueError(f"Got by with shape {segment.shape}, but expected one segment for each of the {n} rows.")
    missing = int(pd.isna(segment).sum())
    if missing:
        raise ValueError(f"Got by with {missing} missing values; expected a segment for every row.")
    return segment


def _segments(segment: npt.NDArray[Any] | None, n: int) -> Iterator[tuple[Any, npt.NDArray[np.bool_]]]:
    yield "all", np.ones(n, dtype=bool)
    if segment is not None:
        codes, names = pd.factorize(segment)
        for code in sorted(range(len(names)), key=lambda code: str(names[code])):
            yield names[code], codes == code


def _effective(use: Array) -> float:
    """Compute how many rows a sum with these weights rests on: (sum of a)^2 / sum of a^2."""
    squares = float(use @ use)
    return float(use.sum()) ** 2 / squares if squares > 0 else 0.0


def _with_limits(table: pd.DataFrame, level: float) -> pd.DataFrame:
    """Add limits and whether the premium lies inside, or a note where the reports are too few."""
    note = table["effective_reports"].map(describe_lack)
    lacking = note != ""
    table.loc[lacking, ["level", "standard_error"]] = np.nan
    half = ndtri(0.5 + level / 2) * table["standard_error"]
    limits = {"lower": table["level"] - half, "upper": table["level"] + half}
    inside = table["premium"].between(limits["lower"], limits["upper"])
    if lacking.any():
        inside = inside.astype(object).mask(lacking, None)
    effective = table.pop("effective_reports")
    return table.assign(**limits, inside=inside, effective_reports=effective, note=note)


def _propensity(rows: Rows, channel: ReportChannel) -> Array:
    """Compute P(D = d and reported given x) of each row by logits that were learned on other rows: shape (n, K)."""
    silent = (rows.report == channel.n_codes - 1).astype(rows.report.dtype)
    reporting = ReportChannel.of(None, (True, False))
    fold = rows.draw_folds(_FOLDS, np.random.default_rng(0))
    found = np.empty((len(rows), len(channel.groups)))
    for f in range(_FOLDS):
        train, held = rows.take(fold != f), rows.take(fold == f)
        found[fold == f] = held.map(GroupPropensity.learn(_problem(train, channel), channel, always=True).propensity)
        if silent.any():
            train = replace(train, report=silent[fold != f])
            learned = GroupPropensity.learn(_problem(train, reporting), reporting, always=True)
            found[fold == f] *= held.map(learned.propensity)[:, :1]
    return found


def _problem(rows: Rows, channel: ReportChannel) -> LinearProblem:
    """Prepare rows for a model of P(D given x); features that say nothing more than others are left out silently."""
    names = [f"x{j}" for j in range(rows.n_features)]
    return prepare(rows, channel.n_codes, Normal(), LinearModel(ridge=1.0), names, redundant_told=False)

"""Linear predictors: the (generalised) linear model class, with row weights of any sign."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream, merge_rows, one_blas_thread
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Family, Normal
from fairpremium.models._checks import check_not_negative, check_setting, check_whole, is_number, mean_predictor
from fairpremium.models._moments import Moments, compute_moments
from fairpremium.models._signed_risk import (
    Minimum,
    Penalty,
    ReportSums,
    SampleRisk,
    SignedRisk,
    UnawareRisk,
    has_noise,
    make_risk,
    minimise,
)
from fairpremium.models._span import Span
from fairpremium.models._terms_language import parse_terms

_LOSSLESS_RIDGE = 1.0  # in rows, where the rows of a level have no loss
_SAMPLE_FROM = 200_000  # rows from which a first solution on a sample pays
_SAMPLE_SHARE = 20  # one row in so many is in that sample,
_SAMPLE_ROWS = 50_000, 500_000  # at least and at most so many


@dataclass(eq=False, repr=False)
class LinearModel(BaseEstimator):  # type: ignore[misc]
    """Linear model (normal family) or generalised linear model (all others).

    Parameters
    ----------
    ridge : float
        Adds ridge / 2 times the sum of squared coefficients of the standardised features (not the
        intercept) to each group's risk, which is half the deviance summed over rows. For the normal
        family it is scikit-learn's `Ridge(alpha=ridge)` on standardised features.
    max_iter : int
        Largest number of passes over the rows in one fit.
    tol : float
        Stop when a step changes the linear predictors by less than this, relative to their size, or with more than
        200,000 rows is expected to leave a third of it. The last step is taken, so that the error left is smaller by
        the factor that each step gains.
    slopes : {"own", "common"}
        Whether the features' effects differ between groups. With "common" groups differ by the intercept only,
        whatever the correction and the pooling; then, with a log link, the premium h*(x) is a base times one factor
        for each feature. A ridge counts the common coefficients once.
    terms : str, optional
        What the columns become, in a small language that is parsed and never evaluated, such as
        ``"bands(age, 25, 40, 65) + spline(power, 4) + rare(region, 50) + age:region"``; columns that it does not name
        are left out. Its functions are `bands`, `spline`, `poly`, `levels`, `rare`, `base` and `ordered`; "+"
        separates terms, ":" multiplies, and "." stands for every other column. By default each column is a term: a
        number as it is, text as levels.
    """

    ridge: float = 0.0
    max_iter: int = 100
    tol: float = 1e-7
    slopes: Literal["own", "common"] = "own"
    terms: str | None = None

    kind: ClassVar[str] = "linear"
    corrections: ClassVar[tuple[str, ...]] = ("inverse", "score", "posterior", "likelihood")

    def check(self) -> None:
        """Raise if a setting is out of range."""
        check_not_negative(self, "ridge")
        check_whole(self, max_iter=1)
        check_setting(self, "tol", is_number(self.tol) and 0 < self.tol < 1, "a number between 0 and 1")
        check_setting(self, "slopes", self.slopes in ("own", "common"), '"own" or "common"')
        if self.terms is not None:
            parse_terms(self.terms)


@dataclass(frozen=True)
class LinearProblem:
    """The rows prepared for any number of linear fits: moments, unaware price and metric.

    `metric` is the mean curvature of the portfolio (with the ridge), at the unaware price once that is known.
    """

    rows: Rows | Stream
    family: Family
    model: LinearModel
    moments: Moments
    metric: Array  # (q, q)
    unaware: Array  # (q, 1), coefficients of the unaware price
    origins: tuple[str, ...] = ()  # name of the column that each feature is from
    features: tuple[str, ...] = ()  # names of the features, for messages
    by_report: ReportSums | None = None  # sums over the rows near the unaware price

    @property
    def ridge(self) -> Array | None:
        """The ridge penalty in the coordinates of the moments."""
        if self.model.ridge == 0:
            return None
        total = self.moments.total_weight
        variance = np.diag(self.moments.gram) / total - (self.moments.gram[0] / total) ** 2
        return self.model.ridge * np.diag(np.where(np.arange(self.moments.q) > 0, variance, 0.0))

    def with_model(self, model: LinearModel) -> LinearProblem:
        """Return the problem with another ridge, and its metric before the unaware price is known."""
        other = replace(self, model=model)
        ridge = 0.0 if other.ridge is None else other.ridge
        return replace(other, metric=(self.moments.gram + ridge) / self.moments.total_weight)

    def penalty(self, strength: float, groups: int) -> Penalty:
        """Return the penalty of a pooling strength; the ridge counts coefficients that groups share once."""
        ridge = self.ridge
        if ridge is not None and self.model.slopes == "common":
            ridge = ridge / groups
        return Penalty(self.metric, strength, ridge)

    def span(self, groups: int) -> Span:
        """Return which coefficients so many groups may have."""
        return Span.of(self.moments.q, groups, common_slopes=self.model.slopes == "common")

    def start(self, groups: int) -> Array:
        """Return the unaware price for every group, shape (q, K)."""
        return np.repeat(self.unaware, groups, axis=1)

    def risk(self, table: Array) -> SignedRisk:
        """Return the risk whose row weights are table[k, s_i] w_i."""
        return make_risk(self.rows, self.moments, table, self.family)

    def on(self, rows: Rows | Stream) -> LinearProblem:
        """Return the problem of other rows of the same portfolio: its scale, metric and starting price stay."""
        n_codes = len(self.moments.counts)
        moments = compute_moments(rows, n_codes, like=self.moments)
        return replace(self, rows=rows, moments=moments, by_report=None)

    def solve(self, table: Array, strength: float, groups: tuple[object, ...]) -> Minimum:
        """Minimise the risk of the groups, pooled with a strength."""
        return self._minimise(self.risk(table), strength, groups, exact=False)

    def solve_unaware(self) -> Minimum:
        """Minimise the risk of the price that ignores the groups."""
        if isinstance(self.family, Normal):
            return self._minimise(self.risk(np.ones((1, len(self.moments.counts)))), 0.0, ("all rows",), exact=True)
        return self._minimise(UnawareRisk(self.rows, self.moments, self.family), 0.0, ("all rows",), exact=True)

    def _minimise(self, risk: SignedRisk, strength: float, groups: tuple[object, ...], *, exact: bool) -> Minimum:
        """Minimise a risk; a large problem is solved on a random sample first, so that most passes see few rows."""
        K, model = risk.n_groups, self.model
        start, span, penalty, hessian = self.start(K), self.span(K), self.penalty(strength, K), None
        n = len(self.rows)
        if n > _SAMPLE_FROM and not isinstance(self.family, Normal):
            least, most = _SAMPLE_ROWS
            rows = self.rows.draw(min(max(n // _SAMPLE_SHARE, least), most))
            some, part = make_risk(rows, self.moments, risk.table, self.family), len(rows) / n
            with suppress(RiskUnboundedError, ConvergenceError):
                found = minimise(SampleRisk(some, part, self.by_report), penalty, start, groups, span=span, tol=1e-4)
                start, hessian = found.B, found.hessian
        try:
            how: dict[str, Any] = {"max_iter": model.max_iter, "tol": model.tol, "hessian": hessian, "exact": exact}
            return minimise(risk, penalty, start, groups, span=span, **how)
        except RiskUnboundedError:
            self._name_lossless(risk.table, groups)
            raise

    def _name_lossless(self, table: Array, groups: tuple[object, ...]) -> None:
        """Raise with the levels that have no loss in a group, if that is why its risk has no minimum."""
        if has_noise(table) or not self.features:
            return
        for k, group in enumerate(groups):
            lossless = _without_losses(self.moments, self.family, self.features, table[k])
            if lossless:
                raise RiskUnboundedError(
                    f"The risk of group {group!r} has no minimum: the rows of {lossless} have no loss at all in this "
                    "group, so that no finite coefficient describes them. What helps: merge such a level with another, "
                    "more pooling, or a ridge (model=LinearModel(ridge=...)).",
                    group=group,
                    effective_rows=float(self.moments.effective_rows(table)[k]),
                )


@one_blas_thread()
def prepare(
    rows: Rows | Stream,
    n_codes: int,
    family: Family,
    model: LinearModel,
    features: Sequence[str],
    merge: bool = False,
    origins: Sequence[str] | None = None,
    redundant_told: bool = True,
) -> LinearProblem:
    """Collect the moments in one pass and fit the unaware price.

    `n_codes` counts the reports and the missing report. `features` names the columns for messages, `origins` the
    columns of the caller that they are from. With `merge` the rows are merged (see `merge_rows`) if few are left, which
    changes no estimate. With `redundant_told` a warning names features that say nothing more than others.
    """
    moments = compute_moments(rows, n_codes, collinear=model.ridge > 0)
    dropped = sorted(set(range(rows.n_features)) - set(moments.coordinates.used.tolist()))
    if dropped and redundant_told:
        warnings.warn(
            f"The features {[features[j] for j in dropped]} are constant or linear combinations of those before "
            "them; their coefficients are set to zero, which changes no price on rows like these.",
            UserWarning,
            stacklevel=6,
        )
    merged = merge_rows(rows) if merge else None
    if merged is not None:
        rows = merged
    origins = tuple(features if origins is None else origins)
    null = LinearProblem(
        rows, family, model, moments, moments.gram, _null_model(moments, family), origins, tuple(features)
    )
    null = null.with_model(model)
    try:
        unaware = null.solve_unaware()
    except (RiskUnboundedError, ConvergenceError) as error:
        lossless = _without_losses(moments, family, features, np.ones(n_codes))
        if not lossless or model.ridge > 0:
            raise ConvergenceError(f"The price that ignores the groups was not found. {error}") from error
        warnings.warn(
            f"The rows of {lossless} have no loss at all, so that no finite coefficient describes them. A ridge of "
            f"{_LOSSLESS_RIDGE:g} row is used for all features. Merge such a level with another, or choose the ridge "
            "yourself: model=LinearModel(ridge=...).",
            UserWarning,
            stacklevel=6,
        )
        null = null.with_model(replace(model, ridge=_LOSSLESS_RIDGE))
        unaware = null.solve_unaware()
    metric, risk = unaware.hessian / moments.total_weight, unaware.risk
    by_report = risk.by_report if isinstance(risk, UnawareRisk) else None
    return replace(null, unaware=unaware.B, metric=metric, by_report=by_report)


def _without_losses(moments: Moments, family: Family, features: Sequence[str], weights: Array) -> list[str]:
    """Name the features whose rows have no loss at all, as far as the moments show them.

    `weights` says how much each report counts: all the same, or those of one group.
    """
    if family.link.name not in ("log", "logit"):
        return []
    q, c = moments.q, moments.coordinates
    sums = np.einsum("s,sij->ij", weights, moments.by_report)
    if not sums[0, 0] > 0:
        return []
    cross = sums[:, q] + moments.y_center * sums[:, 0]
    raw = cross[1:q] * c.spread[c.used] + c.center[c.used] * cross[0]  # sum of w x y, and that of w y is cross[0]
    scale = (np.abs(c.center[c.used]) + c.spread[c.used]) * cross[0]
    return [features[c.used[j]] for j in np.flatnonzero(np.abs(raw) <= 1e-12 * scale)]


def _null_model(moments: Moments, family: Family) -> Array:
    """Coefficients of the price that is the same for all: the link of the mean outcome."""
    mean = moments.y_center + moments.by_report.sum(axis=0)[0, moments.q] / moments.total_weight
    B = np.zeros((moments.q, 1))
    B[0, 0] = mean_predictor(mean, family)
    return B

"""Five prices between accuracy and parity: best estimate, unaware, aware, hyperaware, corrective."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, effective_reports, name_of
from fairpremium.blocks import Rows
from fairpremium.corrections import (
    FAILURES,
    GroupPropensity,
    ReportChannel,
    describe_lack,
    fit_correction,
    with_missing_row,
)
from fairpremium.families import Normal, get_family
from fairpremium.models import LinearModel, frame_like, prepare
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer
from fairpremium.privacy import project_to_simplex

from ._group_distributions import GroupDistributions, make_monotone
from ._parity_distance import signed_weights
from ._transport import StepDistribution, learn_transport

_BAND = 0.95  # level of the band that the distribution functions stay in


@dataclass(eq=False)
class PriceSpectrum:
    r"""The spectrum of fair prices [Cote2025] of a fitted pricer, learned from reports.

    | price | formula | at quote time | what it is |
    | --- | --- | --- | --- |
    | best estimate | mu(x, d) | needs D | the expected loss, given everything |
    | unaware | mu(x) = sum_d mu(x, d) P(d given x) | x | the expected loss, given the features |
    | aware | h*(x) = sum_d mu(x, d) P*(d) | x | what the attribute does, and its proxies, taken out |
    | corrective | C_d(mu(x, d)) | needs D | every group has the same distribution of prices |
    | hyperaware | sum_d C_d(mu(x, d)) P(d given x) | x | the corrective price's mean, given the features |

    Parameters
    ----------
    pricer : DiscriminationFreePricer or FrequencySeverityPricer
        Fitted. Its best estimates mu(x, d), its unaware price and its premium h* are three of the five prices.
    distribution : {"auto", "reports"}
        How the distribution of mu(x, d) in group d is estimated. "reports": by T^-1 weights alone. "auto": weighted
        by P(d given x), a logit that is learned from the reports and shrunk by empirical Bayes, as far as that stays
        inside the simultaneous 95 % band of the T^-1-weighted function. With the true attribute both are the
        distribution of the rows.

    Attributes
    ----------
    groups_ : tuple
    maps_ : list
        C_d, one map of prices per group.
    shares_ : array of shape (K,)
        P(D), weights of the groups in the barycentre: of volume, among the rows that reported.

    Notes
    -----
    C_d is the optimal transport of the distribution of mu(X, d) in group d to the Wasserstein barycentre of all groups,

    .. math:: C_d(t) = Q(F_d(t)), \qquad Q(u) = \sum_l P(l) F_l^{-1}(u),

    with ties averaged. Among all prices with the same distribution in every group it is closest to the best
    estimate in mean square. Distribution functions from signed weights fall in places. They are put in order
    (rearranged), which never moves them away from the truth.

    What is guaranteed: on the rows of the fit, with the true attribute, all groups have the same mean corrective price
    and the same distribution but for ties. From reports both hold up to the error of F_d, which is of the order
    1 / sqrt(n) whatever the model of P(d given x). The hyperaware price needs no attribute when it is quoted. It does
    **not** have the same distribution in every group: averaging over P(d given x) keeps what the features say about D.
    It also depends on proxies, as the unaware price does.

    Examples
    --------
    >>> from fairpremium import DiscriminationFreePricer, RandomizedResponse
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=5000, rng=0)
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> S = channel.privatize(p.sensitive, rng=0)
    >>> pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(p.X, p.y, sensitive=S)
    >>> spectrum = PriceSpectrum(pricer).fit(p.X, p.y, sensitive=S)
    >>> list(spectrum.predict(p.X))[:3]
    ['unaware', 'aware', 'hyperaware']
    """

    pricer: DiscriminationFreePricer | FrequencySeverityPricer
    distribution: Literal["auto", "reports"] = "auto"

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        sensitive: Any,
        sample_weight: Any = None,
        exposure: Any = None,
        cluster: Any = None,
    ) -> Self:
        """Learn P(D given x) and the transport of every group's prices.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
            Features of a portfolio, as for the pricer.
        y : array of shape (n,), optional
            Outcomes, as for the pricer. Where the pricer's correction is a likelihood they help to tell the groups
            apart: its checks, repeated on these rows, say that the law of the outcome holds. They are not used
            otherwise, nor with volumes that vary.
        sensitive : array of shape (n,)
            Reports, or the true attribute if the pricer was fitted on it; None and NaN stand for "not reported".
        sample_weight, exposure : array of shape (n,), optional
            Volumes, one of the two: distributions are of volume.
        cluster : array of shape (n,), optional
            Who a row belongs to, if one person has several rows.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            A group has too few reports for a distribution function.
        """
        if self.distribution not in ("auto", "reports"):
            raise ValueError(f'Got distribution={self.distribution!r}, but expected "auto" or "reports".')
        channel, groups = self.pricer.channel_, tuple(self.pricer.groups_)
        if isinstance(channel, Mapping):
            raise ValueError("Got a pricer with reports of several sources, but the spectrum needs one channel.")
        best = self.pricer.predict_best_estimate(X)
        columns = {"best_estimate": best} if y is None else {"best_estimate": best, "y": y}
        roles = (sensitive, channel, sample_weight, cluster, None, 0.95, exposure)
        data = AuditData.read(columns, *roles, tables=["best_estimate"])
        if set(data.groups) != set(groups):
            raise ValueError(
                f"Got sensitive with the groups {list(data.groups)}, but expected those of the pricer, {list(groups)}."
            )
        self._check_reports(data)
        self.groups_ = data.groups
        self._exact = channel is None or np.array_equal(channel.matrix, np.eye(len(groups)))
        self._learned = self._learn_propensity(X, data, channel)
        signed = signed_weights(data)
        self.shares_ = np.asarray(project_to_simplex(signed.sum(axis=0) / signed.sum()))
        self.maps_ = learn_transport(self._distributions(X, data, signed), self.shares_)
        return self

    def predict(self, X: Any) -> Any:
        """Compute all prices.

        Returns
        -------
        DataFrame
            In X's library: ``unaware``, ``aware``, ``hyperaware``, then for every group ``best_estimate_<group>`` and
            ``corrective_<group>``.
        """
        prices = self.by_price(X)
        names = ["unaware", "aware", "hyperaware"]
        both = ["best_estimate", "corrective"]
        columns = (*names, *(f"{price}_{name_of(group)}" for price in both for group in self.groups_))
        return frame_like(X, np.column_stack([prices[name] for name in (*names, *both)]), columns)

    def predict_corrective(self, X: Any) -> Any:
        """Compute C_d(mu(x, d)): one column per group, what a person of that group would pay."""
        return frame_like(X, self._corrective(X), self.groups_)

    def predict_hyperaware(self, X: Any) -> Array:
        """Compute sum_d C_d(mu(x, d)) P(d given x), shape (n,): no attribute is needed."""
        return np.asarray((self._corrective(X) * self._propensity(X)).sum(axis=1))

    def predict_propensity(self, X: Any) -> Any:
        """Compute P(D given x): one column per group."""
        return frame_like(X, self._propensity(X), self.groups_)

    def by_price(self, X: Any) -> dict[str, Array]:
        """Compute the five prices by name: shape (n,), or (n, K) where the price depends on the group."""
        best, corrective = self._best(X), self._corrective(X)
        return {
            "best_estimate": best,
            "unaware": np.asarray(self.pricer.predict_unaware(X)),
            "aware": np.asarray(self.pricer.predict(X)),
            "hyperaware": np.asarray((corrective * self._propensity(X)).sum(axis=1)),
            "corrective": corrective,
        }

    def _best(self, X: Any) -> Array:
        self._require_fit()
        table = np.asarray(self.pricer.predict_best_estimate(X), dtype=np.float64)
        return table[:, [list(self.pricer.groups_).index(group) for group in self.groups_]]

    def _corrective(self, X: Any) -> Array:
        best = self._best(X)
        return np.column_stack([move(best[:, k]) for k, move in enumerate(self.maps_)])

    def _propensity(self, X: Any) -> Array:
        self._require_fit()
        return np.asarray(_rows(self._matrix(X)).map(self._learned.propensity))

    def _matrix(self, X: Any) -> Any:
        return self.pricer.design_.transform(X, unseen=getattr(self.pricer, "unseen_levels", "error"))

    def _require_fit(self) -> None:
        if not hasattr(self, "maps_"):
            raise ValueError("Got a PriceSpectrum that is not fitted. Call fit(X, sensitive=...) first.")

    def _check_reports(self, data: AuditData) -> None:
        effective = effective_reports(data.totals([], range(len(data.groups)))["volume"])
        for group, count in zip(data.groups, effective, strict=True):
            if describe_lack(count):
                raise ValueError(
                    f"Got {describe_lack(count)} of group {group!r}, but expected enough for a distribution function. "
                    "Merge small groups, or collect more reports."
                )

    def _learn_propensity(self, X: Any, data: AuditData, channel: Any) -> GroupPropensity:
        """Learn P(D given x) by a logit that may bend, through the channel; volumes play no part in it.

        Its coefficients are shrunk: the noise of the distributions is above all the noise of this logit.
        """
        found, reports = ReportChannel.of(channel, data.groups), data.reports
        pricer: Any = self.pricer
        by_law = "y" in data.columns and getattr(pricer, "correction_", "") == "likelihood"
        by_law = by_law and isinstance(pricer.model_, LinearModel) and not np.ptp(reports.weight)
        rows = _rows(self._matrix(X), reports.code)
        names = [f"x{j}" for j in range(rows.n_features)]
        origins = pricer.design_.origins if pricer.design_.named else names
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # features that say nothing more than others are left out
            if by_law:
                rows = replace(rows, y=data["y"], cluster=reports.cluster)
                problem = prepare(rows, found.n_codes, get_family(pricer.family), pricer.model_, names, origins=origins)
                with suppress(*FAILURES):  # then without the outcomes
                    chosen = fit_correction(problem, found, "auto", None).posterior
                    if chosen is not None:
                        T = with_missing_row(found.matrix)
                        return GroupPropensity(T, chosen.latent, chosen.parameters).shrunk(problem)
            problem = prepare(rows, found.n_codes, Normal(), LinearModel(ridge=1.0), names, origins=origins)
        return GroupPropensity.learn(problem, found, always=True).shrunk(problem)

    def _distributions(self, X: Any, data: AuditData, signed: Array) -> list[StepDistribution]:
        best = data["best_estimate"]
        smooth = self.distribution == "auto" and not self._exact
        modelled = self._propensity_weights(X, data) if smooth else None
        found = []
        for k in range(len(data.groups)):
            values, code = np.unique(best[:, k], return_inverse=True)
            own = _cumulative(code, signed[:, k])
            if modelled is not None:
                error = GroupDistributions.estimate(best[:, k], signed[:, [k]], data.reports.cluster).errors
                width = np.quantile(np.abs(error[:, 0]).max(axis=1), _BAND)
                own = np.clip(_cumulative(code, modelled[:, k]), own - width, own + width)
                own[-1] = 1.0
            found.append(StepDistribution(values, make_monotone(own)))
        return found

    def _propensity_weights(self, X: Any, data: AuditData) -> Array:
        """Return w_i P(d given x_i) of the rows that reported: shape (n, K)."""
        reported = data.reports.code < data.reports.table.shape[1] - 1
        q = np.asarray(_rows(self._matrix(X)).map(self._learned.propensity))
        return np.asarray(q * (data.reports.weight * reported)[:, None])


def _rows(matrix: Any, report: Any = None) -> Rows:
    code = np.zeros(len(matrix), dtype=np.uint16) if report is None else report.astype(np.uint16)
    return Rows(matrix, np.zeros(len(matrix)), None, code)


def _cumulative(code: Any, weight: Array) -> Array:
    return np.asarray(np.cumsum(np.bincount(code, weights=weight)) / weight.sum())

"""How well the three prices describe the outcomes of their fit: deviance, its share that is explained, and AIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.corrections import Chosen, GroupFit, ReportChannel
from fairpremium.families import Family, Gamma, Normal, ResidualLaw
from fairpremium.pricing._prices import Prices

UNAWARE, BEST_ESTIMATE, DISCRIMINATION_FREE = "unaware", "best_estimate", "discrimination_free"
PRICES = (UNAWARE, BEST_ESTIMATE, DISCRIMINATION_FREE)
_HAS_DENSITY = (Normal, Gamma)  # families with a dispersion whose density is cheap


@dataclass(frozen=True)
class PriceQuality:
    """How well one price describes the outcomes; numbers that do not exist are nan."""

    price: str
    group: Any  # None: all rows, or for the best estimates all rows with a report
    deviance: float
    null_deviance: float  # of the mean outcome
    aic: float = float("nan")

    @property
    def explained(self) -> float:
        """The share of the deviance that is explained."""
        return 1 - self.deviance / self.null_deviance if self.null_deviance > 0 else float("nan")


@dataclass(frozen=True)
class Outcomes:
    """Sums over the rows, by report: what the null models need."""

    weight: Array  # (codes,)
    total: Array  # (codes,), of w y
    counts: Array  # (codes,)

    @classmethod
    def of(cls, rows: Rows, n_codes: int) -> Outcomes:
        """Sum over rows in memory."""
        w = np.ones(len(rows)) if rows.weight is None else rows.weight
        member = rows.report[:, None] == np.arange(n_codes)  # (n, codes)
        return cls(w @ member, (w * rows.y) @ member, member.sum(axis=0).astype(np.float64))

    @classmethod
    def of_fit(cls, fit: GroupFit) -> Outcomes:
        """Take the sums from the moments of a linear fit."""
        moments = fit.problem.moments
        total = moments.by_report[:, 0, moments.q] + moments.y_center * moments.weights
        return cls(moments.weights, total, moments.counts)


def measure_fit(
    rows: Rows | Stream,
    channel: ReportChannel,
    prices: Prices,
    outcomes: Outcomes,
    parameters: tuple[float, float],
    fit: GroupFit | None = None,
) -> tuple[PriceQuality, ...]:
    """Measure the prices on the rows of their fit: one pass, and one more for the density of gamma outcomes.

    `parameters` are the numbers of free coefficients of the unaware price and of all groups together; nan where a
    penalty leaves none to count, which gives no AIC. With the linear `fit` of a normal family its moments suffice.

    Notes
    -----
    The deviance of the best estimates is the corrected one, sum_ik T^-1[k, s_i] w_i d(y_i, mu(x_i, k)): unbiased for
    that under the true attribute, so that by chance it may leave its range. With the true attribute of every row the
    best estimates have a likelihood and an AIC. The dispersion of a normal or gamma law is the mean deviance, which
    is the maximum likelihood estimate for the former, and counts as a parameter.
    """
    family, table = prices.family, channel.table
    mean = float(outcomes.total.sum() / outcomes.weight.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        group_means = (table @ outcomes.total) / (table @ outcomes.weight)
    known = family.mean.contains(group_means)  # the noise of the reports may leave a mean that no outcome has
    nulls = np.where(known, group_means, mean)
    if fit is not None and isinstance(family, Normal):
        sums = _squares(rows, fit, prices.reference, table, mean, nulls)
    else:
        sums = rows.reduce(
            partial(_deviances, prices=prices, table=table, mean=mean, nulls=nulls, truth=channel.truth),
            block_rows=2048,
        )
    whole, of_groups, null_groups, density = (np.asarray(value, dtype=float) for value in sums)
    null_groups = np.where(known, null_groups, np.nan)
    unaware, free, null, null_reported, n, log_weight = whole
    true_attribute = channel.truth and outcomes.counts[-1] == 0
    deviances = np.array([unaware, of_groups.sum()])
    log_likelihood = _log_likelihood(family, rows, prices, deviances, n, log_weight, density)
    aic = 2 * (np.array(parameters) + family.has_dispersion) - 2 * log_likelihood
    best = float(aic[1]) if true_attribute else float("nan")
    return (
        PriceQuality(UNAWARE, None, unaware, null, float(aic[0])),
        PriceQuality(DISCRIMINATION_FREE, None, free, null),
        PriceQuality(BEST_ESTIMATE, None, float(of_groups.sum()), null_reported, best),
        *(PriceQuality(BEST_ESTIMATE, g, *map(float, pair)) for g, *pair in zip(
            channel.groups, of_groups, null_groups, strict=True)),
    )  # fmt: skip


def with_joint_aic(qualities: Sequence[PriceQuality], chosen: Chosen, parameters: float) -> tuple[PriceQuality, ...]:
    """Add the AIC of a likelihood correction: that of reports and outcomes together, given the features.

    A law that was learned from the residuals has no number of parameters, and then there is none.
    """
    if chosen.fit.correction != "likelihood" or isinstance(chosen.posterior.latent.law, ResidualLaw):
        return tuple(qualities)
    latent, at = chosen.posterior.latent, chosen.posterior.parameters
    value = replace(latent, penalty=None, ridge=0.0, center_dispersion=None).value(at)
    if latent.law.name == "normal":
        value -= 0.5 * len(latent.rows) * np.log(2 * np.pi)  # which the law leaves out
    aic = 2 * (parameters + at.gamma.size + latent.n_dispersions) - 2 * value
    return tuple(replace(q, aic=float(aic)) if q.price == BEST_ESTIMATE and q.group is None else q for q in qualities)


def count_parameters(chosen: Chosen) -> tuple[float, float]:
    """Count the coefficients of the unaware price and of all groups; pooled ones by the trace of their shrinkage."""
    fit, q = chosen.fit, float(chosen.fit.problem.moments.q)
    if fit.problem.ridge is not None or (fit.strength or 0.0) > 0:
        return (float("nan") if fit.problem.ridge is not None else q), float("nan")
    if fit.posterior is None:
        return q, float(fit.B.size)
    return q, float(np.sum(fit.posterior.covariance * fit.posterior.evidence.precision))


def _deviances(block: Block, prices: Prices, table: Array, mean: float, nulls: Array, truth: bool) -> tuple[Array, ...]:
    """Sum deviances over a block: of all rows, by group with signed weights, and the log-likelihoods.

    That of the best estimates needs the true attribute.
    """
    family, y = prices.family, block.y
    w = np.ones(len(y)) if block.weight is None else block.weight
    signed = np.take(table, block.report, axis=1) * w  # (K, rows)
    best, unaware = np.ascontiguousarray(prices.best_estimate(block.X).T), prices.unaware_price(block.X)
    null, used = w * family.unit_deviance(y, np.full(len(y), mean)), w > 0
    whole = np.array([
        w @ family.unit_deviance(y, unaware),
        w @ family.unit_deviance(y, prices.reference @ best),
        null.sum(),
        null[block.report < table.shape[1] - 1].sum(),
        np.count_nonzero(used),
        np.log(w[used]).sum(),
    ])  # fmt: skip
    density = np.full(2, np.nan)
    if not family.has_dispersion:
        density[0] = family.log_likelihood(y, unaware, weight=w).sum()
        if truth:  # the column of each row's group; nothing where it is missing
            density[1] = (np.take(table, block.report, axis=1) * family.log_likelihood(y, best, weight=w)).sum()
    of_groups = np.vecdot(signed, family.unit_deviance(y, best))
    return whole, of_groups, np.vecdot(signed, family.unit_deviance(y, nulls[:, None])), density


def _squares(
    rows: Rows | Stream, fit: GroupFit, reference: Array, table: Array, mean: float, nulls: Array
) -> tuple[Array, ...]:
    """Compute the sums of `_deviances` for squared errors from the moments, without a pass.

    A log-likelihood with weights needs the sum of their logarithms, which is at hand for rows in memory only.
    """
    moments, level = fit.problem.moments, np.eye(fit.problem.moments.q)[:, :1]
    b = np.hstack([fit.problem.unaware + fit.unaware_shift * level, fit.B @ reference[:, None], mean * level])
    by_group = np.einsum("ks,sij->kij", table, moments.by_report)

    def sums(b: Array, second: Array) -> Array:  # of w (y - z'b)^2, a column of b for each
        v = np.vstack([level * moments.y_center - b, np.ones((1, b.shape[1]))])
        return np.asarray(np.einsum("ik,ij,jk->k" if second.ndim == 2 else "ik,kij,jk->k", v, second, v))

    log_weight = np.nan
    if isinstance(rows, Rows):
        used = np.ones(1) if rows.weight is None else rows.weight
        log_weight = float(np.log(used[used > 0]).sum())
    elif np.array_equal(moments.weights, moments.counts) and np.array_equal(moments.squared_weights, moments.counts):
        log_weight = 0.0
    n = moments.counts.sum()
    if isinstance(rows, Rows) and rows.weight is not None:
        n = np.count_nonzero(rows.weight > 0)
    reported = sums(mean * level, moments.by_report[:-1].sum(axis=0))
    whole = np.concatenate([sums(b, moments.by_report.sum(axis=0)), reported, [n, log_weight]])
    return whole, sums(fit.B, by_group), sums(level @ nulls[None], by_group), np.full(2, np.nan)


def _log_likelihood(
    family: Family, rows: Rows | Stream, prices: Prices, deviances: Array, n: float, log_weight: float, density: Array
) -> Array:
    """Compute the log-likelihoods of the unaware price and of the best estimates; nan where there is none."""
    if not family.has_dispersion or not isinstance(family, _HAS_DENSITY):
        return density
    with np.errstate(divide="ignore", invalid="ignore"):
        dispersion = np.where(deviances > 0, deviances / n, np.nan)
        if isinstance(family, Normal):
            return np.asarray(-0.5 * n * (1 + np.log(2 * np.pi * dispersion)) + 0.5 * log_weight)
    return np.asarray(rows.reduce(partial(_gamma_density, prices=prices, dispersion=dispersion))[0])


def _gamma_density(block: Block, prices: Prices, dispersion: Array) -> tuple[Array, ...]:
    w = np.ones(len(block.y)) if block.weight is None else block.weight
    used = w > 0
    y, w, best = block.y[used], w[used], prices.best_estimate(block.X[used])
    code = np.minimum(block.report[used], best.shape[1] - 1)
    own = best[np.arange(len(y)), code]
    both = zip((prices.unaware_price(block.X[used]), own), dispersion, strict=True)
    return (np.array([prices.family.log_likelihood(y, mu, phi, w).sum() for mu, phi in both]),)

"""From fitted parts to the prices of their products: one P*, and intervals from the joint influence of all parts.

A person's report and claims enter the frequency and the severity of every peril, so that their errors are not
independent. With u_i what row i adds to the estimating equations of all parts, to the shares of the groups and to the
totals, the covariance of everything that a premium rests on is L (sum_i u_i u_i') L' for a fixed matrix L; rows without
a claim add zeros to the equations of the severity. If a part is not linear, every part is fitted again without the same
fold of the rows instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream, at_once
from fairpremium.corrections import FAILURES, GroupFit, ModelFit, ReportChannel, sum_of_squares
from fairpremium.models import AddedPrices, GroupModel
from fairpremium.pricing._model_selection import ClassFit, LinearFit, NonlinearFit, near_channels
from fairpremium.pricing._prices import Formula, LinearPrices, ModelPrices, Reference
from fairpremium.pricing.claims._claim_rows import KINDS, ClaimLayout, Kind
from fairpremium.pricing.claims._product_prices import PerilPrices, ProductPrices

_ANY = (-float(np.finfo(np.float64).max), float(np.finfo(np.float64).max))  # linear parts have no bounds


@dataclass(frozen=True)
class Totals:
    """Sums over the portfolio; those of the claims by peril."""

    exposure: float
    amount: float
    claims: Array  # (P,), number of claims
    rows: Array  # (P,), rows with a claim
    large: Array  # (P,), rows above the cap
    capped: Array  # (P,), amounts up to the cap
    amounts: Array  # (P,)

    @classmethod
    def of(cls, rows: Rows | Stream, layout: ClaimLayout) -> Totals:
        """Compute them in one pass."""
        exposure, amount, *by_peril = rows.reduce(partial(_totals, layout=layout))
        return cls(float(exposure), float(amount), *by_peril)

    @property
    def loading(self) -> Array:
        """Factors that spread what is above the cap in proportion to the capped expected losses: (P,)."""
        return np.where(self.capped != 0, self.amounts / np.where(self.capped != 0, self.capped, 1.0), 1.0)


def _totals(block: Block, layout: ClaimLayout) -> tuple[Array, ...]:
    weight = float(len(block.y)) if block.weight is None else block.weight.sum()
    claims = [layout.claims(block.X, p) for p in range(len(layout.perils))]
    number, capped, amount = (np.array([c[i] for c in claims]) for i in range(3))  # (P, rows) each
    return (
        np.asarray(weight),
        np.asarray(block.y.sum()),
        number.sum(axis=1),
        np.count_nonzero(number, axis=1).astype(np.float64),
        np.count_nonzero(amount > capped, axis=1).astype(np.float64),
        capped.sum(axis=1),
        amount.sum(axis=1),
    )


@dataclass(frozen=True)
class JointFit:
    """The fits of all parts, peril after peril, frequency before severity."""

    rows: Rows | Stream  # see `ClaimLayout`
    layout: ClaimLayout
    fits: tuple[ClassFit, ...]
    reference: Reference
    totals: Totals
    seed: int

    @property
    def parts(self) -> list[tuple[int, Kind]]:
        """Peril and kind of each part."""
        return [(p, kind) for p in range(len(self.layout.perils)) for kind in KINDS]

    @property
    def channel(self) -> ReportChannel:
        """What the reports are, the same for all parts."""
        return self.fits[0].inputs.channel

    @property
    def shares(self) -> Array:
        """P(D) by exposure: that of the first frequency, whose rows are all rows."""
        return self.fits[0].fit.shares

    def prices(self, intervals: bool) -> ProductPrices:
        """Compute P*, the prices, and standard errors if wanted."""
        linear = all(isinstance(fit, LinearFit) for fit in self.fits)
        prices = self._linear(intervals) if linear else self._nonlinear(intervals)
        return self._with_quality(prices) if intervals else prices

    def _with_quality(self, prices: ProductPrices) -> ProductPrices:
        """Measure how well each part describes the outcomes of its own rows."""
        perils = []
        for p, peril in enumerate(prices.perils):
            own = []
            for part, fit in zip(peril.parts, self.fits[2 * p : 2 * p + 2], strict=True):
                assert isinstance(part, LinearPrices | ModelPrices)
                own.append(replace(part, quality=fit.quality(part)))
            perils.append(replace(peril, frequency=own[0], severity=own[1]))
        return replace(prices, perils=tuple(perils))

    # --- linear parts: a joint sandwich -------------------------------------------------------------------------------

    def _linear(self, intervals: bool) -> ProductPrices:
        fits = [fit.fit for fit in self.fits if isinstance(fit, LinearFit)]
        H, dH = self._mean_prices(fits) if self.reference.needs_means else (np.zeros(len(self.shares)), None)
        weights = self.reference.distribution(self.shares, H, self.totals.amount / self.totals.exposure)
        prices = self._linear_prices(fits, weights)
        if not intervals:
            return prices
        covariance, groups = self._covariance(fits, prices, H, dH, weights)
        perils, first, K = [], 0, len(weights)
        size = sum(fit.coefficients.size for fit in fits)
        for p, peril in enumerate(prices.perils):
            own = []
            for part, fit in zip(peril.parts, fits[2 * p : 2 * p + 2], strict=True):
                assert isinstance(part, LinearPrices)
                coefficients = np.arange(first, first := first + fit.coefficients.size)
                index = np.concatenate([coefficients, np.arange(size, size + K)])
                single = groups[np.ix_(coefficients, coefficients)]
                own.append(replace(part, covariance=covariance[np.ix_(index, index)], group_covariance=single))
            perils.append(replace(peril, frequency=own[0], severity=own[1]))
        return ProductPrices(tuple(perils), covariance, groups)

    def _linear_prices(self, fits: Sequence[GroupFit | ModelFit], weights: Array) -> ProductPrices:
        parts = []
        for fit, each in zip(fits, self.fits, strict=True):
            assert isinstance(fit, GroupFit)
            inputs, unaware = each.inputs, fit.unaware_coefficients[:, 0]
            groups = inputs.channel.groups
            parts.append(LinearPrices(inputs.family, inputs.design, groups, fit.coefficients, unaware, weights, None))
        return ProductPrices(self._perils(parts), None)

    def _perils(self, parts: Sequence[Any], replicates: Array | None = None) -> tuple[PerilPrices, ...]:
        return tuple(
            PerilPrices(
                peril.name,
                parts[2 * p],
                parts[2 * p + 1],
                float(self.totals.loading[p]),
                () if replicates is None else tuple(replicates[:, p].tolist()),
            )
            for p, peril in enumerate(self.layout.perils)
        )

    def _mean_prices(self, fits: Sequence[GroupFit | ModelFit]) -> tuple[Array, Array]:
        """Compute what the portfolio would pay by each group's prices, and its derivatives in all that is estimated."""
        K = len(self.shares)
        prices = self._linear_prices(fits, np.zeros(K))
        H, dH = self.rows.reduce(partial(_mean_prices, prices=prices, layout=self.layout), block_rows=2048)
        return H / self.totals.exposure, dH / self.totals.exposure

    def _covariance(
        self, fits: Sequence[Any], prices: ProductPrices, H: Array, dH: Array | None, weights: Array
    ) -> tuple[Array, Array]:
        """Compute the joint covariance of coefficients, P* and loadings, and that for single groups.

        The statistics are the coefficients part after part on the caller's scale, the shares, H, the mean loss and the
        loadings. Their influences are L u_i.
        """
        K, P, totals = len(weights), len(self.layout.perils), self.totals
        contributions = _Contributions(
            self.layout,
            tuple(
                (p, kind, fit.influence.scores, fit.influence.response.shape[1])
                for (p, kind), fit in zip(self.parts, fits, strict=True)
            ),
            fits[0].influence.share_scores,
            prices if self.reference.needs_means else None,
            H,
            totals,
        )
        meat = sum_of_squares(self.rows, contributions)
        scale = [np.kron(np.eye(K), fit.problem.moments.coordinates.jacobian()) for fit in fits]
        own = [fit.influence.response[fit.influence.first : fit.influence.first + fit.B.size] for fit in fits]
        of_coefficients = block_diag(*(J @ A for J, A in zip(scale, own, strict=True)))  # (size, scores)
        size, scores = of_coefficients.shape
        L = np.zeros((size + 2 * K + 1 + P, scores + 2 * K + 1 + P))
        L[:size, :scores] = of_coefficients
        first = fits[0].influence
        L[size : size + K, : first.response.shape[1]] = first.share_gradient @ first.response
        L[size:, scores:] = np.eye(2 * K + 1 + P)
        of_H = np.eye(len(L))  # derivative of the statistics in themselves: H follows coefficients and loadings, too
        if dH is not None:
            of_H[size + K : size + 2 * K, :size] = dH[:, :size]
            of_H[size + K : size + 2 * K, -P:] = dH[:, -P:]
        covariance = L @ meat @ L.T
        pooled = [fit.posterior for fit in fits]  # with empirical Bayes the prior may have moved the coefficients, too
        covariance[:size, :size] += block_diag(
            *(J @ _or_zero(p, "left", J) @ J.T for J, p in zip(scale, pooled, strict=True))
        )
        covariance = of_H @ covariance @ of_H.T
        wide = [A if p is None else p.widening @ A for A, p in zip(own, pooled, strict=True)]
        L[:size, :scores] = block_diag(*(J @ A for J, A in zip(scale, wide, strict=True)))
        L[size : size + K] = 0.0  # for single groups the weights are given
        single = L @ meat @ L.T
        single[:size, :size] += block_diag(
            *(J @ _or_zero(p, "hidden", J) @ J.T for J, p in zip(scale, pooled, strict=True))
        )
        for moved in self._channel_slopes(size, H):
            covariance += np.outer(moved, moved)
            moved[size:] = 0.0
            single += np.outer(moved, moved)
        reduce = np.zeros((size + K + P, len(L)))
        reduce[:size, :size] = np.eye(size)
        reduce[size : size + K, size : size + 2 * K + 1] = self.reference.jacobian(weights, self.shares, H)
        reduce[size + K :, -P:] = np.eye(P)
        covariance = reduce @ covariance @ reduce.T
        reduce[size : size + K] = 0.0
        return np.asarray(covariance), np.asarray(reduce @ single @ reduce.T)

    def _channel_slopes(self, size: int, H: Array) -> Iterator[Array]:
        """Differentiate the statistics in each estimated keep, times its standard error."""
        K = len(self.channel.groups)

        def stacked(channel: ReportChannel) -> Array:
            near = [_with_channel(fit, channel) for fit in self.fits]
            means = self._mean_prices(near)[0] if self.reference.needs_means else H
            return np.concatenate([*(fit.coefficients.T.ravel() for fit in near), near[0].shares, means])  # type: ignore[union-attr]

        pairs, shift = near_channels(self.channel)
        for up, down in pairs:
            found = np.zeros(size + 2 * K + 1 + len(self.layout.perils))
            slope = shift * (stacked(up) - stacked(down))
            found[: len(slope)] = slope
            yield found

    # --- other model classes: a joint jackknife -------------------------------------------------------------------

    def _nonlinear(self, intervals: bool) -> ProductPrices:
        assert isinstance(self.rows, Rows)
        formulas = self._formulas([fit.fit for fit in self.fits], self.totals)
        replicates: list[list[Formula]] = []
        shifted: list[list[Formula]] = []
        loadings, shift = [], 0.0
        if intervals:
            try:
                models = [fit.model for fit in self.fits if isinstance(fit.model, GroupModel)]
                G = models[0].replicates
                fold = self.rows.draw_folds(G, np.random.default_rng(self.seed))
                refits = [partial(self._refit_without, fold == g) for g in range(G)]
                again = at_once(refits, several=all(model.several_at_once(len(self.rows)) for model in models))
                replicates, loadings = [formulas for formulas, _ in again], [totals.loading for _, totals in again]
                shifted, shift = self._shifted()
            except FAILURES as error:
                replicates, loadings = [], []
                warnings.warn(
                    "The prices have no intervals: the fit could not be repeated on other rows or for another keep. "
                    f"{error}",
                    UserWarning,
                    stacklevel=5,
                )
        parts = []
        for j, (formula, fit) in enumerate(zip(formulas, self.fits, strict=True)):
            inputs = fit.inputs
            without = tuple(each[j] for each in replicates)
            moved = tuple(each[j] for each in shifted)
            groups = inputs.channel.groups
            parts.append(ModelPrices(inputs.family, inputs.design, groups, formula, without, moved, shift))
        return ProductPrices(self._perils(parts, np.array(loadings) if loadings else None), None)

    def _formulas(self, fits: Sequence[GroupFit | ModelFit], totals: Totals) -> list[Formula]:
        """Turn fits of all parts into formulas with one P*."""
        shares = fits[0].shares
        found = [_formula(fit) for fit in fits]
        H, loss = np.zeros(len(shares)), totals.amount / totals.exposure
        if self.reference.needs_means:
            assert isinstance(self.rows, Rows)
            X = self.layout.features(self.rows.X)
            mean = [fit.inputs.family.link.mean_of(f.predictor(X)) for fit, f in zip(self.fits, found, strict=True)]
            mu = sum(c * mean[2 * p] * mean[2 * p + 1] for p, c in enumerate(totals.loading))
            H = np.average(np.asarray(mu), axis=0, weights=self.rows.weight)
            loss = self.totals.amount / self.totals.exposure  # H is that of all rows, too
        weights = self.reference.distribution(shares, H, loss)
        return [replace(formula, reference=weights) for formula in found]

    def _refit_without(self, fold: npt.NDArray[np.bool_]) -> tuple[list[Formula], Totals]:
        """Fit every part again without a fold of the rows."""
        assert isinstance(self.rows, Rows)
        totals = Totals.of(self.rows.take(~fold), self.layout)
        found: list[GroupFit | ModelFit] = []
        for (p, kind), fit in zip(self.parts, self.fits, strict=True):
            own = fold if kind == "frequency" else fold[self.layout.claims(self.rows.X, p)[0] > 0]
            if isinstance(fit, LinearFit):
                problem = fit.chosen.fit.problem.on(fit.inputs.rows_in_memory().take(~own))
                found.append(fit.chosen.refit(fit.inputs.channel, problem).fit)
            else:
                assert isinstance(fit, NonlinearFit)
                found.append(fit.fit.without(own))
        return self._formulas(found, totals), totals

    def _shifted(self) -> tuple[list[list[Formula]], float]:
        """Fit with each estimated keep a little higher and lower, and what their difference is in standard errors."""
        pairs, shift = near_channels(self.channel)
        near = [channel for pair in pairs for channel in pair]
        return [self._formulas([_with_channel(fit, c) for fit in self.fits], self.totals) for c in near], shift


def _or_zero(posterior: Any, name: str, J: Array) -> Array:
    return np.zeros((J.shape[1], J.shape[1])) if posterior is None else getattr(posterior, name)


def _with_channel(fit: ClassFit, channel: ReportChannel) -> GroupFit | ModelFit:
    """Fit a part again for another channel."""
    if isinstance(fit, LinearFit):
        return fit.chosen.refit(channel).fit
    assert isinstance(fit, NonlinearFit)
    return fit.fit.with_channel(channel)


def _formula(fit: GroupFit | ModelFit) -> Formula:
    """Return the prices of a part as a formula whose P* is not known yet."""
    if isinstance(fit, ModelFit):
        return Formula(fit.unaware, fit.groups, np.empty(0), fit.bounds)
    best = np.vstack([fit.coefficients, np.zeros((1, len(fit.shares)))])  # a linear part does not follow u(x)
    return Formula(AddedPrices(fit.unaware_coefficients), AddedPrices(best), np.empty(0), _ANY)


def _mean_prices(block: Block, prices: ProductPrices, layout: ClaimLayout) -> tuple[Array, ...]:
    """Sums of e mu(x, d) and of its derivatives: shapes (K,) and (K, coefficients + K + P)."""
    X = layout.features(block.X)
    w = np.ones(len(X)) if block.weight is None else block.weight
    K = len(prices.groups)
    return w @ prices.best_estimate(X), np.array([w @ prices.gradient(X, np.eye(K)[k]) for k in range(K)])


@dataclass(frozen=True)
class _Contributions:
    """What each row adds to the equations of all parts, to shares, H and the mean loss, and to the loadings."""

    layout: ClaimLayout
    parts: tuple[tuple[int, Kind, RowFunction, int], ...]  # peril, kind, scores and their number
    share_scores: RowFunction
    prices: ProductPrices | None  # None: P* does not follow the means
    group_means: Array
    totals: Totals

    def __call__(self, block: Block) -> Array:
        """Compute them for the rows of a block."""
        n, layout, totals = len(block.y), self.layout, self.totals
        volume = np.ones(n) if block.weight is None else block.weight
        columns = []
        for peril, kind, scores, size in self.parts:
            some, own = layout.part_of_block(block, peril, kind)
            found = np.zeros((n, size))
            if some.any():
                found[some] = scores(own)
            columns.append(found)
        _, everyone = layout.part_of_block(block, 0, "frequency")
        K = len(self.group_means)
        means = np.zeros((n, 2 * K + 1))
        means[:, :K] = self.share_scores(everyone)
        if self.prices is not None:
            means[:, K : 2 * K] = self.prices.best_estimate(everyone.X) - self.group_means
            means[:, 2 * K] = block.y / volume - totals.amount / totals.exposure
        columns.append(means * (volume / totals.exposure)[:, None])
        for p, loading in enumerate(totals.loading):
            _, capped, amount = layout.claims(block.X, p)
            columns.append(((amount - loading * capped) / (totals.capped[p] or 1.0))[:, None])
        return np.concatenate(columns, axis=1)

"""The corrections of a model class beyond the linear one, each as one way to go on from the linear start."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._candidates import NamedCorrection
from fairpremium.corrections._model_start import ModelStart, UnawarePrice, one_block
from fairpremium.corrections._objectives import MixtureObjective, Propensity
from fairpremium.corrections._propensity import estimate_shares
from fairpremium.families import Law
from fairpremium.models import GroupPrices

_SETTLE = 5  # rounds that bring dispersion and propensity to their values at the final prices


@dataclass(frozen=True)
class ModelFit:
    """Group prices of a model class: a start that is linear in (1, x, u(x)), and what the class adds to it."""

    start: ModelStart
    correction: str
    pooling: float | dict[str, Any]  # of the start
    coefficients: Array  # (2 + features, K), of (1, x, u(x))
    prices: GroupPrices | None  # None: nothing is added
    shares: Array  # (K,)
    log_loss: Any = None  # callable from lifted rows and predictors to -log P(s given x, y), or None

    @property
    def unaware(self) -> UnawarePrice:
        """The unaware price."""
        return self.start.unaware

    def predictor(self, rows: Rows) -> Array:
        """Compute f_k(x) of rows that carry u(x) as their last feature: shape (n, K)."""
        linear = _linear(rows, self.coefficients)
        return linear if self.prices is None else self.prices.predictor(rows.X[:, :-1], linear)

    def report_log_loss(self, rows: Rows) -> Array | None:
        """Compute -log P(s given x, y) of such rows; None if the correction has no posterior."""
        return None if self.log_loss is None else self.log_loss(rows, self.predictor(rows))


class Entry(NamedCorrection):
    """One way to correct; how long to train is found on held-out rows, or taken over from earlier prices."""

    @abstractmethod
    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Fit on the rows of a start."""


class LinearEntry(Entry):
    """The start alone, with the correction that the checks choose for the linear problem."""

    correction = "linear start"

    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Fit the linear problem."""
        chosen = start.linear("auto")
        fit = chosen.fit
        loss = None if chosen.posterior is None else _report_log_loss(chosen.posterior)
        return ModelFit(start, fit.correction, fit.pooling, fit.coefficients, None, fit.shares, loss)


class TrueGroupsEntry(Entry):
    """The true attribute: every row trains its own group."""

    correction = "inverse"

    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Fit with weights 0 and 1."""
        fit = start.linear("inverse").fit
        return _fit_weighted(start, "inverse", fit, start.settings.channel.table.T[start.rows.report], None, like)


class PosteriorEntry(Entry):
    """Posterior weights of the classifier that predicts held-out reports best."""

    correction = "posterior"

    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Fit with the classifier's weights."""
        chosen = start.linear("posterior")
        rows = start.problem.rows
        assert isinstance(rows, Rows)
        weights = rows.map(chosen.posterior.weights)
        return _fit_weighted(start, "posterior", chosen.fit, weights, _report_log_loss(chosen.posterior), like)


class InverseEntry(Entry):
    """The paper's corrected risk, from a constant: signed weights, for model classes that can bear them."""

    correction = "inverse"

    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Fit with the weights T^-1[k, s]."""
        table = start.settings.channel.table
        shares = estimate_shares(start.problem.moments, table)
        coefficients = np.zeros((start.rows.n_features + 2, len(table)))
        coefficients[0] = start.center
        rows = start.rows
        reported = rows.report < table.shape[1] - 1
        weights = table.T[rows.report] if rows.weight is None else table.T[rows.report] * rows.weight[:, None]
        constant = np.full((int(reported.sum()), len(table)), start.center)
        prices = start.train(rows.take(reported), weights[reported], constant, like)
        return ModelFit(start, "inverse", 0.0, coefficients, prices, shares)


@dataclass(frozen=True)
class LikelihoodEntry(Entry):
    """The mixture likelihood with one law, by generalised EM."""

    law: Law
    correction = "likelihood"

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The law."""
        return self.law.name

    def fit(self, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
        """Climb the likelihood from its linear maximum."""
        chosen = start.likelihood(self.law)
        latent, at = chosen.posterior.latent, chosen.posterior.parameters
        coefficients = start.coefficients(chosen.fit)
        rows = start.lifted
        rows = rows.take(rows.report < len(latent.T) - 1)
        guide = None
        if start.settings.model.begin != "linear":
            guide = start.linear("posterior").posterior.weights(one_block(rows))
        U = latent.features(one_block(rows))
        last: list[MixtureObjective] = []

        def objective(t: npt.NDArray[Any], h: npt.NDArray[Any]) -> MixtureObjective:
            train, held = (rows.take(t), U[t]), (rows.take(h), U[h]) if len(h) else None
            made = MixtureObjective(self.law, latent.T, Propensity(at.gamma), train, held, float(at.log_dispersion[0]))
            made.guide = None if guide is None else guide[t]
            last.append(made)
            return made

        prices = start.train_objective(_without_lift(rows), objective, _linear(rows, coefficients), like)
        final = last[-1]
        final.guide = None
        for _ in range(_SETTLE):
            final.weights(prices.predictor(final.train[0].X[:, :-1], _linear(final.train[0], coefficients)))

        def loss(held: Rows, eta: Array) -> Array:
            return final.report_log_loss(held, latent.features(one_block(held)), eta)

        made = ModelFit(start, "likelihood", chosen.fit.pooling, coefficients, prices, chosen.fit.shares, loss)
        everyone = start.lifted  # those who did not report too: their report says nothing, their outcome does
        r = final.responsibilities(everyone, latent.features(one_block(everyone)), made.predictor(everyone))
        return replace(made, shares=np.average(r, axis=0, weights=everyone.weight))


def _fit_weighted(
    start: ModelStart, correction: str, fit: Any, weights: Array, loss: Any, like: GroupPrices | None
) -> ModelFit:
    """Train on fixed weights per group, from a linear fit; rows without any weight (no report) take no part."""
    rows = start.lifted
    use = np.asarray(weights.any(axis=1))
    rows, weights = rows.take(use), weights[use]
    if rows.weight is not None:
        weights = weights * rows.weight[:, None]
    coefficients = start.coefficients(fit)
    prices = start.train(_without_lift(rows), weights, _linear(rows, coefficients), like)
    return ModelFit(start, correction, fit.pooling, coefficients, prices, fit.shares, loss)


def _report_log_loss(posterior: Any) -> Any:
    return lambda rows, _: np.asarray(posterior.report_log_loss(one_block(rows)))


def _linear(rows: Rows, coefficients: Array) -> Array:
    return np.asarray(rows.X @ coefficients[1:] + coefficients[0])


def _without_lift(rows: Rows) -> Rows:
    return replace(rows, X=rows.X[:, :-1])

"""Where the prices of a model class begin: linear in the features and in the class's own unaware price.

The unaware price u(x) needs no attribute, so all rows teach it what the features do. How the groups differ is hard to
see through the noise, and a linear predictor in (x, u(x)), to which every correction applies with all its safeguards,
is the best first guess. A model class then adds what the rows say beyond it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows
from fairpremium.corrections._candidates import LikelihoodCandidate
from fairpremium.corrections._choice import Chosen, fit_base, fit_correction
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._objectives import WeightedObjective
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError
from fairpremium.families import Family, Law
from fairpremium.models import Design, GroupModel, GroupPrices, LinearModel, LinearProblem, TrainingData, prepare

_STOP_FOLDS = 5  # one fold in so many decides when training stops
_RIDGE = 1.0  # of the linear start, in rows: a rare level must not stop it


@dataclass(frozen=True)
class ModelFitSettings:
    """With what a model class is fitted: family, channel, model class, and how."""

    family: Family
    channel: ReportChannel
    model: GroupModel
    design: Design
    pooling: float | None
    classifier: Any
    seed: int


@dataclass(frozen=True)
class UnawarePrice:
    """u(x): what the model class adds to the mean outcome."""

    center: float
    prices: GroupPrices

    def predictor(self, X: npt.NDArray[Any]) -> Array:
        """Compute the linear predictor: shape (n, 1)."""
        return self.prices.predictor(X, np.full((len(X), 1), self.center))


class ModelStart:
    """What all candidates of a model class share on the same rows, each piece computed when it is first used."""

    def __init__(
        self,
        settings: ModelFitSettings,
        rows: Rows,
        like: ModelStart | None = None,
        taken: npt.NDArray[np.bool_] | None = None,
    ):
        self.settings, self.rows = settings, rows
        self._like = like  # another start whose numbers of rounds and choices are taken over
        self._taken = taken  # which of its rows these are, if they are the same fit without some of them
        self.rng = np.random.default_rng(settings.seed)
        self._chosen: dict[str, Chosen] = {}

    @cached_property
    def center(self) -> float:
        """Link of the mean outcome."""
        family, mean = self.settings.family, np.asarray(np.average(self.rows.y, weights=self.rows.weight))
        if not family.mean.contains(mean):
            raise (ValueError if self._like is None else ConvergenceError)(
                f"Got y with the mean {mean:g}, but the {family.name} family needs a mean {family.mean}; "
                "are all outcomes zero, or all one?"
            )
        return float(family.link.predictor(mean))

    @property
    def _volumes(self) -> Array:
        return np.ones((len(self.rows), 1)) if self.rows.weight is None else self.rows.weight[:, None]

    @cached_property
    def unaware(self) -> UnawarePrice:
        """The unaware price on all rows."""
        if self._taken is not None and self._like is not None and self.settings.model.begin == "constant":
            return self._like.unaware
        fewer = self._like is not None and len(self.rows) <= len(self._like.rows)
        like = self._like.unaware.prices if self._like is not None and fewer else None
        start = np.full((len(self.rows), 1), self.center)
        return UnawarePrice(self.center, self.train(self.rows, self._volumes, start, like))

    @cached_property
    def lift(self) -> Array:
        """u(x) of each row by a fit that did not see it: shape (n,)."""
        if self._taken is not None and self._like is not None and self.settings.model.begin == "constant":
            return self._like.lift[self._taken]  # prices do not build on it: it only helps to tell the groups apart
        folds = self.settings.model.lift_folds
        fold = self.rows.draw_folds(folds, self.rng)
        lift = np.empty(len(self.rows))
        for f in range(folds):
            train, held = self.rows.take(fold != f), self.rows.take(fold == f)
            start = np.full((len(train), 1), self.center)
            prices = self.train(train, self._volumes[fold != f], start, self.unaware.prices)
            lift[fold == f] = UnawarePrice(self.center, prices).predictor(held.X)[:, 0]
        return lift

    @cached_property
    def lifted(self) -> Rows:
        """The rows with u(x) as a further feature."""
        return replace(self.rows, X=np.column_stack([self.rows.X, self.lift]))

    @cached_property
    def problem(self) -> LinearProblem:
        """The linear problem in (x, u(x))."""
        settings = self.settings
        names = (*settings.design.features, "the unaware price")
        with warnings.catch_warnings():  # u(x) may be linear in x: that is no news for the user
            warnings.filterwarnings("ignore", message="The features", category=UserWarning)
            return prepare(
                self.lifted,
                settings.channel.n_codes,
                settings.family,
                LinearModel(ridge=_RIDGE),
                names,
                origins=(*settings.design.origins, names[-1]),
            )

    def lift_rows(self, rows: Rows) -> Rows:
        """Add u(x) to rows that this start did not see."""
        return replace(rows, X=np.column_stack([rows.X, self.unaware.predictor(rows.X)]))

    def linear(self, correction: str) -> Chosen:
        """Fit a correction of the linear problem."""
        if correction not in self._chosen:
            settings = self.settings
            if self._like is not None:
                found = self._like.linear(correction).refit(settings.channel, self.problem)
            else:
                found = fit_correction(
                    self.problem, settings.channel, correction, settings.pooling, settings.classifier
                )
            self._chosen[correction] = found
        return self._chosen[correction]

    def likelihood(self, law: Law) -> Chosen:
        """Fit the likelihood of the linear problem with a law."""
        key = f"likelihood {law.name}"
        if key not in self._chosen:
            settings = self.settings
            if self._like is not None:
                self._chosen[key] = self._like.likelihood(law).refit(settings.channel, self.problem)
            else:
                base = fit_base(self.problem, settings.channel, settings.pooling)
                candidate = LikelihoodCandidate(law)
                found = candidate.fit(self.problem, base, settings.pooling)
                self._chosen[key] = Chosen(candidate, found.fit, found.posterior, [])
        return self._chosen[key]

    def coefficients(self, fit: GroupFit) -> Array:
        """Return the coefficients of (1, x, u(x)) that prices start from: shape (2 + features, K).

        A model class that must keep a shape (monotone prices) starts from the unaware price alone, one that learns
        shapes best without a guess from a constant.
        """
        begin = self.settings.model.begin
        if begin == "linear":
            return fit.coefficients
        alone = np.zeros_like(fit.coefficients)
        if begin == "unaware":
            alone[-1] = 1.0
        else:
            alone[0] = self.center
        return alone

    def train(self, rows: Rows, weights: Array, start: Array, like: GroupPrices | None) -> GroupPrices:
        """Train the model class on fixed weights, for as long as it helps or as earlier prices were trained."""

        def objective(train: npt.NDArray[Any], held: npt.NDArray[Any]) -> WeightedObjective:
            return WeightedObjective(self.settings.family, weights[train], rows.y[held], weights[held])

        return self.train_objective(rows, objective, start, like)

    def train_objective(self, rows: Rows, objective: Any, start: Array, like: GroupPrices | None) -> GroupPrices:
        """Train the model class with held-out rows, or as the prices `like` were trained.

        `objective` makes an `Objective` from the positions of the training rows and of the held-out rows. `start` has
        shape (n, K).
        """
        family, model, design = self.settings.family, self.settings.model, self.settings.design
        everything = np.arange(len(rows))
        if like is None:
            held = rows.draw_folds(_STOP_FOLDS, self.rng) == 0  # these rows decide when training stops
            t, h = everything[~held], everything[held]
            data = TrainingData(design, family, rows.take(t), start[t], objective(t, h), rows.take(h), start[h])
            like = model.train(data, self.rng)
            if not model.refit:
                return like
        whole = objective(everything, everything[:0])
        return model.train(TrainingData(design, family, rows, start, whole), self.rng, like)


def one_block(rows: Rows) -> Block:
    """Return all rows as one block."""
    return rows.block(0, len(rows))

"""What a model class adds to linear predictors: how it is trained, judged on rows that it did not see, and stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, at_once
from fairpremium.errors import ConvergenceError
from fairpremium.families import Family
from fairpremium.models._design import Design
from fairpremium.models._group_model import Features, GroupModel, GroupPrices, Objective, TrainingData
from fairpremium.progress import tell

_STOP_FOLDS = 5  # one fold in so many decides when training stops
_PROMISING_FOLDS = 2  # folds after which prices that improve nothing are given up

Positions = npt.NDArray[np.intp]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class AddedPrices:
    """Linear predictors of one or more groups: a linear start, what a model class adds to it, and a shift."""

    coefficients: Array  # (1 + features of the start, K)
    prices: GroupPrices | None = None  # None: nothing is added
    shift: float = 0.0

    def predictor(self, X: npt.NDArray[Any], start: npt.NDArray[Any]) -> Array:
        """Compute the linear predictors from the class's features and those of the start: shape (n, K)."""
        eta = start @ self.coefficients[1:] + self.coefficients[0]
        return np.asarray((eta if self.prices is None else self.prices.predictor(X, eta)) + self.shift)


@dataclass(frozen=True)
class TrainingTask:
    """What a model class is to learn: rows, linear predictors to add to, and what the rows weigh."""

    rows: Rows
    start: Array  # (n, K)
    objective: Callable[[Positions, Positions], Objective]  # of the training rows and the held-out rows
    features: Features | None = None  # of the rows; see `GroupModel.read`


@dataclass(frozen=True)
class Trainer:
    """A model class at work; nothing but `rng` is a source of chance."""

    model: GroupModel
    design: Design
    family: Family
    rng: np.random.Generator

    def train(self, task: TrainingTask, like: GroupPrices | None = None) -> GroupPrices:
        """Train on all rows for as long as it helps some of them that are held out, or as earlier prices were."""
        everyone = np.ones(len(task.rows), dtype=bool)
        if like is None:
            held = task.rows.draw_folds(_STOP_FOLDS, self.rng) == 0
            like = self._train(task, ~held, held, self.rng)
            if not self.model.refit:
                return like
        return self._train(task, everyone, ~everyone, self.rng, like)

    def cross_fit(
        self,
        task: TrainingTask,
        like: GroupPrices | None = None,
        gain: Callable[[Mask, Array], float] | None = None,
        words: str = "prices",
    ) -> tuple[GroupPrices, Array, Mask]:
        """Train without each fold in turn, which decides when training stops unless earlier prices do.

        Returns the prices of a fold that are typical of all, the linear predictors of each row by the prices that did
        not see it, of shape (n, K), and which rows have them: not all if `gain`, by how much the predictors of such
        rows are better than the start, is not above zero after some folds. `words` say what the prices are.
        """
        fold = task.rows.draw_folds(self.model.folds, self.rng)
        folds = np.unique(fold)
        if len(folds) < 2:
            raise ConvergenceError("There are fewer than two persons with a report, and no fit is without one of them.")
        eta, seen = task.start.copy(), np.zeros(len(fold), dtype=bool)

        def before(i: int) -> None:
            tell(i / len(folds), f"{self.model.adds} of {words}, fold {i + 1} of {len(folds)}")

        def without(f: int, rng: np.random.Generator) -> GroupPrices:
            held = fold == f
            prices = self._train(task, ~held, held, rng, like)
            eta[held] = prices.predictor(task.rows.X[held], task.start[held])
            seen[held] = True
            return prices

        def without_each(folds: npt.NDArray[Any]) -> list[GroupPrices]:
            several, sources = self.model.several_at_once(len(task.rows)), [self.rng] * len(folds)
            if several:
                sources = [np.random.default_rng(seed) for seed in self.rng.integers(2**31, size=len(folds))]
            fits = [partial(without, f, source) for f, source in zip(folds, sources, strict=True)]
            return at_once(fits, lambda i: before(len(found) + i), several)

        found: list[GroupPrices] = []
        found += without_each(folds if gain is None else folds[:_PROMISING_FOLDS])
        if gain is not None and gain(seen, eta) > 0:
            found += without_each(folds[_PROMISING_FOLDS:])
        return sorted(found, key=lambda prices: prices.extent)[len(found) // 2], eta, seen

    def _train(
        self,
        task: TrainingTask,
        use: npt.NDArray[np.bool_],
        held: npt.NDArray[np.bool_],
        rng: np.random.Generator,
        like: GroupPrices | None = None,
    ) -> GroupPrices:
        """Train on some rows; others decide when to stop, unless earlier prices do."""
        rows, start, features = task.rows, task.start, task.features
        t, h = np.flatnonzero(use), np.flatnonzero(held if like is None else np.zeros_like(held))
        data = TrainingData(self.design, self.family, rows.take(t), start[t], task.objective(t, h))
        if like is None:
            data = data._replace(held=rows.take(h), held_start=start[h])
        if features is not None:
            data = data._replace(features=features.take(t), held_features=features.take(h))
        return self.model.train(data, rng, like)

"""What a model class beyond the linear one offers: the prices of all groups, fitted together to weighted rows.

A correction says what the rows weigh (`Objective`), a model class says what prices look like (`GroupModel`). The
unaware price is the case of one group. Prices build on a start: a constant, or prices that are linear in the
features and the unaware price.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.families import Family
from fairpremium.models._design import Design

Begin = Literal["linear", "unaware", "constant"]  # linear in (x, u(x)), the unaware price u(x), the mean outcome


class Start(NamedTuple):
    """Linear predictors that prices build on: of the training rows (n, K) and of the held-out rows (m, K)."""

    train: Array
    held: Array


class Objective(Protocol):
    """What group prices are fitted to: the sum over rows and groups of weight times loss.

    Weights may follow the prices: those of the likelihood correction are the responsibilities under the current
    prices, which makes every round of training a step of a generalised EM algorithm.
    """

    signed: bool  # whether weights may be negative

    def weights(self, eta: Array) -> Array:
        """Return the weight of each training row for each group, volumes included: shape (n, K).

        Parameters
        ----------
        eta : array of shape (n, K)
            Current linear predictors of the training rows. Called once a round, in order.
        """

    def held_loss(self, eta: Array) -> float:
        """Return the mean loss of linear predictors (m, K) on the held-out rows, after a call of `weights`."""


class GroupPrices(ABC):
    """Fitted linear predictors of one or more groups."""

    kind: ClassVar[str]
    rounds: int  # rounds of training (epochs, boosting rounds) that the prices are from

    @abstractmethod
    def predictor(self, X: npt.NDArray[Any], start: Array) -> Array:
        """Compute the linear predictors f_k(x), on the scale of the link, from those of the start: shape (n, K)."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the prices as plain data (numbers, text, lists) for a model file."""

    @classmethod
    @abstractmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build prices from the data of `to_dict`, checking every field."""


class Learner(ABC):
    """A model class bound to the columns of a portfolio and a family."""

    begin: Begin = "linear"  # what the prices build on

    @abstractmethod
    def fit(
        self,
        train: Rows,
        held: Rows | None,
        objective: Objective,
        start: Start,
        rng: np.random.Generator,
        *,
        like: GroupPrices | None = None,
    ) -> GroupPrices:
        """Fit the prices of all groups.

        Parameters
        ----------
        train : Rows
            Rows to learn from.
        held : Rows or None
            Rows that decide when to stop, by the objective's `held_loss`; None trains as long as `like` was.
        objective : Objective
        start : Start
            What the prices build on; it also says how many groups there are.
        rng : Generator
        like : GroupPrices, optional
            Earlier prices whose number of rounds, and whatever else held-out rows decided, is taken over.
        """


class GroupModel(BaseEstimator, ABC):  # type: ignore[misc]
    """Settings of a model class, in the manner of scikit-learn."""

    kind: ClassVar[str]  # name in tables and model files
    corrections: ClassVar[tuple[str, ...]]  # that the class can serve
    judge_folds: ClassVar[int]  # folds in which the referees divide the rows
    lift_folds: ClassVar[int]  # folds over which the unaware price is cross-fitted
    refit: ClassVar[bool]  # whether to fit again on all rows once the number of rounds is known
    replicates: int  # fits behind the intervals

    @abstractmethod
    def check(self) -> None:
        """Raise if a setting is out of range."""

    @abstractmethod
    def learner(self, design: Design, family: Family) -> Learner:
        """Bind the settings to columns and family."""

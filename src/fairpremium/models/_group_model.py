"""What a model class beyond the linear one offers: the prices of all groups, fitted together to weighted rows.

A correction says what the rows weigh (`Objective`), a model class says what prices look like (`GroupModel`). The
unaware price is the case of one group. Prices are added to a start: a constant, or prices that are linear in the
features and the unaware price.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.families import Family
from fairpremium.models._design import Design


class Objective(Protocol):
    """What group prices are fitted to: the sum over rows and groups of weight times loss.

    Weights may follow the prices: those of the likelihood correction are the responsibilities under the current
    prices, which makes every round of training a step of a generalised EM algorithm.
    """

    @property
    def signed(self) -> bool:
        """Whether a weight is negative."""

    def weights(self, eta: Array) -> Array:
        """Return the weight of each training row for each group, volumes included: shape (n, K).

        `eta`, of shape (n, K), holds the current linear predictors of the training rows. Called once a round, in order.
        """

    def held_loss(self, eta: Array) -> float:
        """Return the mean loss of linear predictors (m, K) on the held-out rows, after a call of `weights`."""


class Features(Protocol):
    """The features of rows in the form that a class learns from, made once for all fits on some of these rows."""

    def take(self, index: npt.NDArray[Any]) -> Self:
        """Return those of the rows with these positions, in ascending order, or where a mask is true."""


class TrainingData(NamedTuple):
    """What the prices of K groups are trained on."""

    design: Design
    family: Family
    train: Rows  # n rows to learn from
    start: Array  # (n, K), linear predictors to which prices are added
    objective: Objective
    held: Rows | None = None  # m rows that decide when to stop, by the objective's `held_loss`
    held_start: Array = np.empty((0, 0))  # (m, K)
    features: Features | None = None  # of the n rows, as `GroupModel.read` made them
    held_features: Features | None = None


class GroupPrices(ABC):
    """Fitted linear predictors of one or more groups."""

    kind: ClassVar[str]
    rounds: int  # rounds of training (epochs, boosting rounds) that the prices are from

    @property
    def extent(self) -> float:
        """How far the prices are from their start, as held-out rows decided it."""
        return self.rounds

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


class GroupModel(BaseEstimator, ABC):  # type: ignore[misc]
    """Settings of a model class, in the manner of scikit-learn."""

    kind: ClassVar[str]  # name in tables and model files
    adds: ClassVar[str]  # what it adds to a start, in words
    corrections: ClassVar[tuple[str, ...]]  # that the class can serve
    folds: ClassVar[int]  # over which additions are cross-fitted
    refit: ClassVar[bool]  # whether to fit again on all rows once the number of rounds is known
    replicates: int  # fits behind the intervals

    @property
    def begin(self) -> Literal["linear", "unaware", "constant"]:
        """What prices are added to: a price linear in (x, u(x)), the unaware price u(x), or the mean outcome."""
        return "linear"

    @abstractmethod
    def check(self) -> None:
        """Raise if a setting is out of range."""

    def several_at_once(self, rows: int) -> bool:
        """Tell whether several fits of so many rows are faster at once than one after the other."""
        return False

    def read(self, design: Design, X: npt.NDArray[Any]) -> Features | None:
        """Make of features what all fits on some of these rows share; None if there is no such thing."""
        return None

    @abstractmethod
    def train(self, data: TrainingData, rng: np.random.Generator, like: GroupPrices | None = None) -> GroupPrices:
        """Fit the prices of all groups to `data`; nothing but `rng` is a source of chance.

        With earlier prices `like`, their number of rounds is taken over, and whatever else held-out rows decided.
        """


def plausible_bounds(family: Family, y: Array, center: float, *starts: Array) -> tuple[float, float]:
    """Return the range that linear predictors of such outcomes cannot plausibly leave.

    Means lie between the smallest and the largest outcome. Estimates of them may lie outside by the width of that
    range (identity), by a factor of ten above and e^20 below the mean (log), by 20 on the scale of the logit; and as
    far as the linear predictors `starts` do. `center` is the link of the mean outcome.
    """
    low, high = float(y.min()), float(y.max())
    if family.link.name == "identity":
        width = high - low or 1.0
        low, high = low - width, high + width
    elif family.link.name == "log":
        low, high = center - 20.0, math.log(high) + math.log(10.0)
    else:
        low, high = center - 20.0, center + 20.0
    for start in starts:
        if start.size:
            low, high = min(low, float(start.min())), max(high, float(start.max()))
    return low, high

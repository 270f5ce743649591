"""Any scikit-learn regressor that takes non-negative sample weights, as a model class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_regressor
from sklearn.utils.validation import has_fit_parameter

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError, ModelFileError
from fairpremium.families import Family
from fairpremium.models._checks import check_whole
from fairpremium.models._group_model import GroupModel, GroupPrices, TrainingData

_BLENDS = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)  # weights of the regressor's prices against the start
_ROUNDS = 5


@dataclass(eq=False, repr=False)
class RegressorModel(GroupModel):
    """A scikit-learn regressor per group, blended with the start on the scale of the mean.

    Parameters
    ----------
    regressor : scikit-learn regressor
        With `fit(X, y, sample_weight)`; it is cloned. It predicts means, so its loss should fit the family (for
        example ``HistGradientBoostingRegressor(loss="poisson")``).
    replicates : int
        Number of fits behind the intervals.

    Notes
    -----
    The mean of group k is a g_k(x) + (1 - a) times that of the start, which is linear in the features and the unaware
    price. The weight a < 1 is the best one on held-out rows: it shrinks a group whose rows are few, and means stay
    positive where a leaf of a forest holds no claim. Weights that follow the prices (the likelihood correction) cost a
    new fit of all groups in each round.
    """

    regressor: Any
    replicates: int = 5

    kind: ClassVar[str] = "regressor"
    corrections: ClassVar[tuple[str, ...]] = ("posterior", "likelihood")
    adds: ClassVar[str] = "regressors"
    folds: ClassVar[int] = 3
    refit: ClassVar[bool] = True

    def check(self) -> None:
        """Raise if this is not a regressor with sample weights."""
        if not is_regressor(self.regressor):
            raise TypeError(
                f"Got a model of type {type(self.regressor).__name__}, but expected a scikit-learn regressor."
            )
        if not has_fit_parameter(self.regressor, "sample_weight"):
            raise TypeError(
                f"Got the regressor {type(self.regressor).__name__}, whose fit takes no sample_weight; expected one "
                "that does, because each row counts for every group with a weight."
            )
        check_whole(self, replicates=2)

    def train(self, data: TrainingData, rng: np.random.Generator, like: GroupPrices | None = None) -> RegressorPrices:
        """Fit the regressor to each group; see `GroupModel.train`."""
        objective, held = data.objective, data.held
        if objective.signed:
            raise ValueError("A scikit-learn regressor needs row weights >= 0.")
        best = RegressorPrices((), 0.0, 0, data.family)
        weights = objective.weights(data.start)
        best_loss = np.inf if held is None else objective.held_loss(data.held_start)
        blends = (like.blend,) if isinstance(like, RegressorPrices) else _BLENDS
        for done in range(1, (_ROUNDS if like is None else like.rounds) + 1):
            fitted = tuple(self._fit_one(data.train, weights[:, k], rng) for k in range(weights.shape[1]))
            trials = [RegressorPrices(fitted, a, done, data.family) for a in blends]
            if held is None:
                best = trials[0]
            else:
                losses = [objective.held_loss(trial.predictor(held.X, data.held_start)) for trial in trials]
                if min(losses) >= best_loss:
                    break
                best, best_loss = trials[int(np.argmin(losses))], min(losses)
            again = objective.weights(best.predictor(data.train.X, data.start))
            if again is weights:  # fixed weights: one round is all
                break
            weights = again
        return best

    def _fit_one(self, train: Rows, weight: Array, rng: np.random.Generator) -> Any:
        regressor = clone(self.regressor)
        if "random_state" in regressor.get_params() and regressor.get_params()["random_state"] is None:
            regressor.set_params(random_state=int(rng.integers(2**31)))
        use = weight > 0
        if not use.any():
            raise ConvergenceError("No row carries weight for one of the groups: its price cannot be learned.")
        return regressor.fit(train.X[use], train.y[use], sample_weight=weight[use])


@dataclass(frozen=True)
class RegressorPrices(GroupPrices):
    """Fitted regressors with their weight against the start."""

    fitted: tuple[Any, ...]
    blend: float
    rounds: int
    family: Family

    kind: ClassVar[str] = "regressor"

    @property
    def extent(self) -> float:
        """The weight of the regressors' prices."""
        return self.blend

    def predictor(self, X: npt.NDArray[Any], start: Array) -> Array:
        """Compute the linear predictor of the blended means."""
        if not self.fitted or not len(X):
            return start
        link = self.family.link
        means = np.column_stack([regressor.predict(X) for regressor in self.fitted])
        with np.errstate(over="ignore"):  # a start far from every row of the fit, which the range of prices refuses
            blended = self.blend * means + (1 - self.blend) * link.mean_of(start)
        outside = int(np.count_nonzero(np.isfinite(blended) & ~self.family.mean.contains(blended)))
        if outside:
            raise ValueError(
                f"Got a {type(self.fitted[0]).__name__} that predicts {outside} means outside the domain of the "
                f"{self.family.name} family; expected every mean to be {self.family.mean}. Use a regressor whose loss "
                "fits the family."
            )
        return link.predictor(blended)

    def to_dict(self) -> dict[str, Any]:
        """Refuse: only pickle could hold an arbitrary regressor, and loading that would execute code."""
        raise ModelFileError(
            "A pricer with a scikit-learn regressor cannot be saved: a model file is plain data that never executes "
            'code. Use model="boosted" or model="neural", or save the premiums.'
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Refuse; see `to_dict`."""
        raise ValueError("model files hold no scikit-learn regressors")

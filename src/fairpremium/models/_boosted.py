"""Boosted trees: one LightGBM booster whose K outputs are the groups' linear predictors.

Every round computes the gradient and curvature of the family's loss at the current prices, times the row weights of
the correction, and adds one tree to each group. Because the weights are asked for anew in every round, boosting the
likelihood correction is a generalised EM algorithm with one tree as its M-step.

Trees see numbers as bins between quantiles. All fits of a portfolio, those without some rows included, share the bins
of all its rows, which are made once: they know the features, and nothing about outcomes and reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import checkpoint, count_workers, has_share
from fairpremium.errors import ConvergenceError, MissingExtraError
from fairpremium.models._checks import check_not_negative, check_setting, check_whole, is_number
from fairpremium.models._design import Design
from fairpremium.models._group_model import GroupModel, GroupPrices, TrainingData
from fairpremium.models._trees import Tree, compact_trees, read_trees

Slopes = Callable[[Array], tuple[Array, Array]]

_ONE_THREAD = 30_000  # rows below which threads cost more than they bring
_MANY_ROWS = 100_000  # rows from which LightGBM's own threads have enough to do
_LARGEST = 1e30  # LightGBM computes in single precision
_LEAST_LEAF = 1e-3  # rows; with none LightGBM may split off a leaf that rounding makes of nothing, and fail
_RESERVED = {
    "objective", "objective_type", "app", "application", "loss", "num_class", "num_classes", "metric", "metrics",
    "metric_types",
}  # fmt: skip
_OWNED = {
    "learning_rate", "shrinkage_rate", "eta", "num_leaves", "num_leaf", "max_leaves", "max_leaf", "max_leaf_nodes",
    "min_sum_hessian_in_leaf", "min_sum_hessian_per_leaf", "min_sum_hessian", "min_hessian", "min_child_weight",
    "min_data_in_leaf", "min_data_per_leaf", "min_data", "min_child_samples", "min_samples_leaf", "lambda_l2",
    "reg_lambda", "lambda", "l2_regularization", "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees",
    "num_round", "num_rounds", "nrounds", "num_boost_round", "n_estimators", "max_iter", "early_stopping_round",
    "early_stopping_rounds", "early_stopping", "n_iter_no_change", "categorical_feature", "cat_feature", "seed",
    "random_seed", "random_state",
}  # fmt: skip
_CONSTRAINTS = {"monotone_constraints", "mc", "monotone_constraint", "monotonic_cst"}
_OTHER_TREES = {"boosting", "boosting_type", "boost", "linear_tree", "linear_trees"}
_REFUSED = (
    (_RESERVED, "which the family and the groups decide."),
    (
        _OWNED,
        "but expected the settings of BoostedModel for these: learning_rate, num_leaves, group_leaves, min_leaf, l2, "
        "max_rounds, patience, categorical; the seed is the pricer's random_state.",
    ),
    (
        _CONSTRAINTS,
        "but expected monotone={column: +1 or -1}: constraints by position do not fit the encoded columns, and prices "
        "must start from a monotone price.",
    ),
    (
        _OTHER_TREES,
        "but expected plain boosting with constant leaves: the number of rounds is found on held-out rows, and later "
        "trees must not change earlier ones.",
    ),
)
_DAMPED = {"poisson": np.exp(0.7), "negative_binomial": np.exp(0.7)}  # LightGBM's poisson_max_delta_step


@dataclass(eq=False, repr=False)
class BoostedModel(GroupModel):
    """Gradient boosted trees (LightGBM) for the corrections whose row weights lie in [0, 1].

    Parameters
    ----------
    max_rounds : int
        Largest number of boosting rounds; held-out rows tell how many help.
    learning_rate : float
        Fraction of each tree that is added.
    num_leaves : int
        Largest number of leaves of a tree of the unaware price.
    group_leaves : int
        Largest number of leaves of a tree of a group's price: groups differ in simpler ways than risks do.
    min_leaf : float
        Smallest weight of a leaf, in rows: a row that belongs to a group with probability r counts r for it.
    l2 : float
        Shrinkage of a leaf's value towards zero, that is of a group's price towards the start, in rows.
    patience : int
        Stop after so many rounds without progress on the held-out rows.
    monotone : mapping, optional
        From column name to +1 or -1: the price of every group, and so the premium, must rise or fall with it.
    categorical : bool
        Whether text columns are split by sets of levels (LightGBM's categorical features) or level by level.
    replicates : int
        Number of fits behind the intervals, each without one fold of the rows.
    params : mapping, optional
        Further LightGBM parameters.
    """

    max_rounds: int = 500
    learning_rate: float = 0.1
    num_leaves: int = 15
    group_leaves: int = 8
    min_leaf: float = 10.0
    l2: float = 1.0
    patience: int = 30
    monotone: Mapping[str, int] | None = None
    categorical: bool = True
    replicates: int = 10
    params: Mapping[str, Any] | None = None

    kind: ClassVar[str] = "boosted"
    corrections: ClassVar[tuple[str, ...]] = ("posterior", "likelihood")
    adds: ClassVar[str] = "trees"
    folds: ClassVar[int] = 5
    refit: ClassVar[bool] = True

    @property
    def begin(self) -> Literal["linear", "unaware"]:
        """Trees with monotone constraints preserve the shape of a monotone start alone."""
        return "unaware" if self.monotone else "linear"

    def check(self) -> None:
        """Raise if a setting is out of range, or LightGBM is not installed."""
        _lightgbm()
        check_whole(self, max_rounds=1, num_leaves=2, group_leaves=2, patience=1, replicates=2)
        check_not_negative(self, "min_leaf", "l2")
        rate = self.learning_rate
        check_setting(self, "learning_rate", is_number(rate) and 0 < rate <= 1, "a number in (0, 1]")
        for name, sign in (self.monotone or {}).items():
            if sign not in (-1, 1):
                raise ValueError(f"Got monotone with {sign!r} for {name!r}, but expected +1 or -1.")
        for names, message in _REFUSED:
            found = sorted(names & set(self.params or {}))
            if found:
                raise ValueError(f"Got params with {found}, {message}")

    def several_at_once(self, rows: int) -> bool:
        """Tell whether rows are few: then LightGBM's own threads have little to do, and copies take little memory."""
        return rows < _MANY_ROWS

    def read(self, design: Design, X: npt.NDArray[Any]) -> BinnedRows:
        """Sort the features of all rows into bins."""
        return BinnedRows.of(TreeEncoding.of(design, categorical=self.categorical), X, dict(self.params or {}))

    def train(self, data: TrainingData, rng: np.random.Generator, like: GroupPrices | None = None) -> BoostedPrices:
        """Boost all groups together; see `GroupModel.train`."""
        if data.objective.signed:
            raise ValueError("Boosted trees need row weights >= 0.")
        features, held_features = data.features, data.held_features
        if features is None:
            n, held_X = len(data.train), [] if data.held is None else [data.held.X]
            every = self.read(data.design, np.concatenate([data.train.X, *held_X]))
            features, held_features = every.take(np.arange(n)), every.take(np.arange(n, len(every)))
        assert isinstance(features, BinnedRows)
        assert isinstance(held_features, BinnedRows)
        encoding = features.encoding
        rows, held, family, objective, groups = data.train, data.held, data.family, data.objective, data.start.shape[1]
        settings = self._lightgbm_settings(data.design, encoding, groups, rng)
        y = rows.y[:, None]
        curvature = family.loss_terms(y, data.start)[2].mean(axis=1)
        unit = 1 / float(np.mean(curvature if rows.weight is None else curvature * rows.weight))  # count rows
        damping = unit * _DAMPED.get(family.name, 1.0)

        def slopes(scores: Array) -> tuple[Array, Array]:
            eta = data.start + scores
            weight = objective.weights(eta)
            _, slope, curvature = family.loss_terms(y, eta)
            return weight * slope * unit, weight * curvature * damping

        booster, best = boost(
            features,
            slopes,
            groups,
            settings,
            rounds=self.max_rounds if like is None else like.rounds,
            held=None if held is None else (held_features, lambda s: objective.held_loss(data.held_start + s)),
            patience=self.patience,
        )
        text = booster.model_to_string(num_iteration=max(best, 1))
        return BoostedPrices(compact_trees(text, groups, len(encoding.names)), groups, best, encoding)

    def _lightgbm_settings(
        self, design: Design, encoding: TreeEncoding, groups: int, rng: np.random.Generator
    ) -> dict[str, Any]:
        monotone = self.monotone or {}
        unknown = sorted(set(monotone) - set(design.names))
        if unknown:
            raise ValueError(f"Got monotone for {unknown}, but the columns are {list(design.names)}.")
        text = sorted(c.name for c in design.columns if c.name in monotone and c.levels is not None)
        if text:
            raise ValueError(f"Got monotone for {text}, which hold levels; expected numeric columns.")
        signs = [monotone.get(name, 0) for name in encoding.names]
        return {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves if groups == 1 else self.group_leaves,
            "min_sum_hessian_in_leaf": max(self.min_leaf, _LEAST_LEAF),
            "min_data_in_leaf": max(1, int(self.min_leaf)),
            "lambda_l2": self.l2,
            "seed": int(rng.integers(2**31)),
            **({"monotone_constraints": signs} if monotone else {}),
            **(self.params or {}),
        }


@dataclass(frozen=True)
class TreeEncoding:
    """From the features of a design to the columns that trees see: indicators of one text column become one code."""

    names: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]  # (first feature, one past the last)
    categorical: tuple[bool, ...]

    @classmethod
    def of(cls, design: Design, *, categorical: bool) -> Self:
        """Learn from a design."""
        names: list[str] = []
        spans: list[tuple[int, int]] = []
        at = 0
        for column in design.columns:
            stop = at + len(column.features)
            step = max(stop - at, 1) if categorical and column.levels is not None else 1
            spans += [(start, start + step) for start in range(at, stop, step)]
            names += [column.name] * (len(spans) - len(names))
            at = stop
        return cls(tuple(names), tuple(spans), tuple(b - a > 1 for a, b in spans))

    @property
    def n_features(self) -> int:
        """Number of features of the design."""
        return self.spans[-1][1]

    def __call__(self, X: npt.NDArray[Any]) -> Array:
        """Encode a matrix of features."""
        if not any(self.categorical):
            return np.asarray(X, dtype=np.float64)
        columns = [
            X[:, a] if b - a == 1 else X[:, a:b] @ np.arange(1, b - a + 1)  # zero is the base level
            for a, b in self.spans
        ]
        return np.column_stack(columns).astype(np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        spans = [list(span) for span in self.spans]
        return {"names": list(self.names), "spans": spans, "categorical": list(self.categorical)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        spans = tuple((int(a), int(b)) for a, b in data["spans"])
        found = cls(tuple(map(str, data["names"])), spans, tuple(map(bool, data["categorical"])))
        starts, stops = [a for a, _ in spans], [b for _, b in spans]
        wide = tuple(b - a > 1 for a, b in spans)
        if not spans or starts != [0, *stops[:-1]] or wide != found.categorical or len(spans) != len(found.names):
            raise ValueError("the columns of the trees do not follow each other")
        if any(b <= a for a, b in spans):
            raise ValueError("a column of the trees has no feature")
        return found


@dataclass(frozen=True)
class BinnedRows:
    """Some of the rows that LightGBM has sorted into bins."""

    encoding: TreeEncoding
    whole: Any  # lightgbm.Dataset of all rows
    places: npt.NDArray[np.intp]  # of these rows in it, in ascending order

    @classmethod
    def of(cls, encoding: TreeEncoding, X: npt.NDArray[Any], params: dict[str, Any]) -> Self:
        """Sort features of a design into bins, with LightGBM's own parameters."""
        lgb = _lightgbm()
        kinds = [j for j, kind in enumerate(encoding.categorical) if kind]
        params = {**_common_params(len(X)), **params}
        whole = lgb.Dataset(encoding(X), label=np.zeros(len(X)), categorical_feature=kinds, params=params)
        try:
            whole.construct()
        except lgb.basic.LightGBMError as error:
            raise _refused(error) from error
        return cls(encoding, whole, np.arange(len(X)))

    def __len__(self) -> int:
        return len(self.places)

    def take(self, index: npt.NDArray[Any]) -> Self:
        """Return fewer rows; see `Features.take`."""
        return replace(self, places=self.places[index])

    def dataset(self) -> Any:
        """Return them as a lightgbm.Dataset, which copies no more than the bins."""
        return self.whole.subset(self.places)


@dataclass(frozen=True)
class BoostedPrices(GroupPrices):
    """Fitted boosters, stored as LightGBM's own text."""

    text: str
    groups: int
    rounds: int
    encoding: TreeEncoding

    kind: ClassVar[str] = "boosted"

    @cached_property
    def _booster(self) -> Any:
        return _lightgbm().Booster(model_str=self.text)

    def predictor(self, X: npt.NDArray[Any], start: Array) -> Array:
        """Compute the linear predictors: the start plus the trees."""
        if X.shape[1] != self.encoding.n_features or start.shape[1] != self.groups:
            raise ValueError(f"the trees are for {self.encoding.n_features} features and {self.groups} groups")
        if self.rounds == 0 or not len(X):
            return start
        scores = self._booster.predict(self.encoding(X), raw_score=True, num_iteration=self.rounds)
        return np.asarray(start + scores.reshape(len(X), self.groups))

    def trees(self) -> list[Tree]:
        """Return the trees that are used: those of all groups, round after round."""
        return read_trees(self.text)[: self.rounds * self.groups]

    def to_dict(self) -> dict[str, Any]:
        """Return the prices as plain data."""
        return {"groups": self.groups, "rounds": self.rounds, "encoding": self.encoding.to_dict(), "trees": self.text}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build prices from the data of `to_dict`."""
        groups, rounds, encoding = int(data["groups"]), int(data["rounds"]), TreeEncoding.from_dict(data["encoding"])
        if groups < 1:
            raise ValueError("the trees are those of no group")
        found = cls(compact_trees(str(data["trees"]), groups, len(encoding.names)), groups, rounds, encoding)
        try:
            known = found._booster.current_iteration()
        except _lightgbm().basic.LightGBMError as error:
            raise ValueError(f"the trees cannot be read: {error}") from error
        if not 0 <= rounds <= known:
            raise ValueError(f"the trees have {known} rounds, but {rounds} should be used")
        return found


def boost(
    rows: BinnedRows,
    slopes: Slopes,
    outputs: int,
    settings: dict[str, Any],
    *,
    rounds: int,
    held: tuple[BinnedRows, Callable[[Array], float]] | None = None,
    patience: int = 30,
) -> tuple[Any, int]:
    """Boost trees with several outputs by given derivatives.

    `slopes` turns the current scores (n, outputs), which start at zero, into gradient and curvature of the loss;
    `held` are held-out rows with the loss of their scores, by which training stops before `rounds` after `patience`
    rounds without progress. The booster is returned with the number of its rounds that are best on the held-out rows
    (zero: no tree helps).
    """
    lgb = _lightgbm()
    params = {
        **_common_params(len(rows)),
        "objective": "none",
        "metric": "none",
        "boost_from_average": False,
        **({"num_class": outputs} if outputs > 1 else {}),
        **settings,
    }
    try:
        booster = lgb.Booster(params, rows.dataset())
    except lgb.basic.LightGBMError as error:
        raise _refused(error) from error

    def derivatives(scores: Array, _: Any) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            gradient, curvature = slopes(scores.reshape(len(rows), outputs))
        if not all(values.max() < _LARGEST and values.min() > -_LARGEST for values in (gradient, curvature)):
            raise ConvergenceError(
                "Boosting diverged; a larger min_leaf, a larger l2 or a smaller learning_rate helps."
            )
        return (gradient[:, 0], curvature[:, 0]) if outputs == 1 else (gradient, curvature)

    def grow() -> None:
        checkpoint()
        try:
            booster.update(fobj=derivatives)
        except lgb.basic.LightGBMError as error:
            raise ConvergenceError(f"LightGBM could not grow a tree; a larger min_leaf may help. {error}") from error

    if held is None:
        for _ in range(rounds):
            grow()
        return booster, booster.current_iteration()
    held_rows, loss = held
    booster.add_valid(held_rows.dataset(), "held")

    def held_loss(scores: Array, _: Any) -> tuple[str, float, bool]:
        return "loss", loss(scores.reshape(len(held_rows), outputs)), False

    slopes(np.zeros((len(rows), outputs)))  # weights at the start, which the held-out loss may need
    best, best_at, best_round = loss(np.zeros((len(held_rows), outputs))), 0, 0
    for done in range(1, rounds + 1):
        grow()
        value = booster.eval_valid(held_loss)[0][2]
        if value < best:  # a round in which no leaf can be split adds no tree
            best, best_at, best_round = value, done, booster.current_iteration()
        if done - best_at >= patience:
            break
    return booster, best_round


def _common_params(rows: int) -> dict[str, Any]:
    """Return the parameters of bins and of trees."""
    params = {"verbosity": -1, "deterministic": True, "force_row_wise": True, "feature_pre_filter": False}
    threads = 1 if rows < _ONE_THREAD else count_workers() if has_share() else None
    return params if threads is None else {**params, "num_threads": threads}


def _refused(error: Exception) -> ValueError:
    return ValueError(f"Got params that LightGBM refuses: {error}")


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError(
            'Boosted trees need LightGBM. Install it with: pip install "fairpremium[boosted]"'
        ) from error
    return lightgbm

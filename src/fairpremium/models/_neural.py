"""Nets as group prices: one net for each group, trained together, whatever the correction says the rows weigh."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError, OutOfRangeError, RiskUnboundedError
from fairpremium.families import Family
from fairpremium.models._design import Design
from fairpremium.models._groups import Begin, GroupModel, GroupPrices, Learner, Objective, Start
from fairpremium.models._nets import ACTIVATIONS, Nets, check_numbers
from fairpremium.models._plausible import plausible_bounds
from fairpremium.models._settings import check_not_negative, check_whole, is_number, is_whole
from fairpremium.models._training import Schedule, Units, train_nets


class NeuralModel(GroupModel):
    """Feed-forward nets, one for each group, trained together.

    Parameters
    ----------
    hidden : tuple of int
        Units of the hidden layers.
    activation : {"relu", "tanh"}
        Of the hidden layers.
    shared : int
        How many of the first hidden layers all groups share.
    learning_rate : float
        Largest step of Adam; it falls to zero along half a cosine over `max_epochs`.
    batch_size : int or "auto"
        Rows in a step; "auto" takes a thirty-second of the rows, but 32 at least and 256 at most (4,096
        on a GPU).
    max_epochs : int
        Most passes over the rows.
    patience : int
        Stop after so many epochs without a better held-out loss; the best epoch is kept.
    weight_decay : float
        Pulls weights towards zero (AdamW).
    averaging : float
        Prices are those of a running average of the weights, which keeps this share of itself at each step; 0: none.
    nonnegative : bool
        Safeguard for weights of either sign (`correction="inverse"`). A group's deviance is never negative in truth;
        where its estimate from a mini-batch is, the net has found rows with negative weights to get wrong, and the
        step is taken backwards. Off by default: the paper has none.
    replicates : int
        Number of fits behind the intervals, each without one fold of the rows.
    device : str
        "auto" (CUDA if there is one and there are 20,000 rows or more; a CPU is faster below), or a device of torch
        such as "cpu" or "cuda:1".

    Notes
    -----
    Inputs are standardised (a constant column has no effect); the net's output is added to what prices build on, in
    standard deviations of the outcome for the identity link. All groups start from the same weights.
    Training on a CPU gives the same prices for the same seed.

    References
    ----------
    Kiryo, Niu, du Plessis and Sugiyama (2017), "Positive-Unlabeled Learning with Non-Negative Risk Estimator", and
    Lu, Zhang, Niu and Sugiyama (2020), "Mitigating Overfitting in Supervised Classification from Two Unlabeled
    Datasets": the safeguard.
    """

    kind: ClassVar[str] = "neural"
    corrections: ClassVar[tuple[str, ...]] = ("inverse", "posterior", "likelihood")
    judge_folds: ClassVar[int] = 1
    lift_folds: ClassVar[int] = 2
    refit: ClassVar[bool] = False

    def __init__(
        self,
        hidden: tuple[int, ...] = (64, 64),
        activation: str = "relu",
        shared: int = 0,
        learning_rate: float = 0.02,
        batch_size: int | Literal["auto"] = "auto",
        max_epochs: int = 200,
        patience: int = 50,
        weight_decay: float = 0.0,
        averaging: float = 0.99,
        nonnegative: bool = False,
        replicates: int = 5,
        device: str = "auto",
    ):
        self.hidden = hidden
        self.activation = activation
        self.shared = shared
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.weight_decay = weight_decay
        self.averaging = averaging
        self.nonnegative = nonnegative
        self.replicates = replicates
        self.device = device

    @classmethod
    def paper(cls, **settings: Any) -> Self:
        """Return the architecture of the paper's experiments: three hidden layers of five neurons.

        Parameters
        ----------
        **settings
            Other settings; the paper states none.
        """
        return cls(**{"hidden": (5, 5, 5), "shared": 0, **settings})

    def check(self) -> None:
        """Raise if a setting is out of range."""
        check_layers("hidden", self.hidden)
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"Got activation={self.activation!r}, but expected one of {sorted(ACTIVATIONS)}.")
        if not is_whole(self.shared, 0) or self.shared > len(self.hidden):
            raise ValueError(
                f"Got shared={self.shared!r}, but expected a number of layers from 0 to {len(self.hidden)}."
            )
        check_whole(self, max_epochs=1, patience=1, replicates=2)
        if self.batch_size != "auto" and not is_whole(self.batch_size, 1):
            raise ValueError(f'Got batch_size={self.batch_size!r}, but expected "auto" or an integer >= 1.')
        if not is_number(self.learning_rate) or not 0 < self.learning_rate < np.inf:
            raise ValueError(f"Got learning_rate={self.learning_rate!r}, but expected a finite number > 0.")
        check_not_negative(self, "weight_decay")
        if not is_number(self.averaging) or not 0 <= self.averaging < 1:
            raise ValueError(f"Got averaging={self.averaging!r}, but expected a number from 0 to below 1.")
        if not isinstance(self.nonnegative, bool):
            raise ValueError(f"Got nonnegative={self.nonnegative!r}, but expected True or False.")
        if not isinstance(self.device, str):
            raise ValueError(f'Got device={self.device!r}, but expected "auto" or a device such as "cpu" or "cuda".')

    def learner(self, design: Design, family: Family) -> NeuralLearner:
        """Bind the settings to columns and family."""
        self.check()
        return NeuralLearner(self, family)


@dataclass(frozen=True)
class NeuralPrices(GroupPrices):
    """Trained nets: the linear predictor of group k is start_k(x) + scale * net_k(x).

    Parameters
    ----------
    nets : Nets
    scale : float
    bounds : tuple of float
        The range that linear predictors did not leave in training.
    rounds : int
        The epoch that the nets are from; 0 if the start was best, and the nets add nothing.
    history : dict of lists
        `train_loss` (mean weighted loss after each epoch) and `held_loss` (empty without held-out rows).
    """

    kind: ClassVar[str] = "neural"

    nets: Nets
    scale: float
    bounds: tuple[float, float]
    rounds: int
    history: dict[str, list[float]] = field(default_factory=lambda: {"train_loss": [], "held_loss": []})

    def predictor(self, X: npt.NDArray[Any], start: Array) -> Array:
        """Compute the linear predictors f_k(x), on the scale of the link: shape (n, K).

        Raises
        ------
        OutOfRangeError
            A row is so far from those of the fit that its predictor leaves the range of training by more than the
            width of that range. Nets say nothing there, and a price would be made up.
        """
        if X.shape[1] != len(self.nets.center):
            raise ValueError(f"Got X with {X.shape[1]} features, but the nets were trained on {len(self.nets.center)}.")
        eta = start + self.scale * self.nets.output(X)
        low, high = self.bounds
        width = high - low
        bad = int(np.count_nonzero(~((eta >= low - width) & (eta <= high + width)).all(axis=1)))
        if bad:
            raise OutOfRangeError(
                f"Got X with {bad} of {len(X)} rows that the nets cannot price: what they give is far outside the "
                "range of the outcomes they learned from. Expected rows like those of the fit; check the units, and "
                "take the logarithm of a column with a long tail."
            )
        return np.asarray(eta)

    def to_dict(self) -> dict[str, Any]:
        """Return the prices as plain data."""
        return {
            "nets": self.nets.to_dict(),
            "scale": self.scale,
            "bounds": list(self.bounds),
            "rounds": self.rounds,
            "history": {name: list(values) for name, values in self.history.items()},
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Build prices from the data of `to_dict`, checking every field."""
        scale = float(check_numbers(data["scale"], (), "scale"))
        low, high = check_numbers(data["bounds"], (2,), "bounds").tolist()
        if scale <= 0 or low >= high:
            raise ValueError(f"Got scale={scale} and bounds {low, high}, but expected a scale > 0 and bounds in order.")
        rounds = data["rounds"]
        if not is_whole(rounds, 0):
            raise ValueError(f"Got rounds={rounds!r}, but expected an integer >= 0.")
        curves = data["history"]
        history = {
            name: check_numbers(curves[name], (len(curves[name]),), name).tolist()
            for name in ("train_loss", "held_loss")
        }
        return cls(Nets.from_dict(data["nets"]), scale, (low, high), rounds, history)


class NeuralLearner(Learner):
    """Nets bound to a family."""

    begin: Begin = "constant"  # nets find shapes better from a constant than from lines they have to bend

    def __init__(self, model: NeuralModel, family: Family):
        self.model = model
        self.family = family

    def fit(
        self,
        train: Rows,
        held: Rows | None,
        objective: Objective,
        start: Start,
        rng: np.random.Generator,
        *,
        like: GroupPrices | None = None,
    ) -> NeuralPrices:
        """Train the nets of all groups together; see `Learner.fit`. Rounds are epochs.

        Raises
        ------
        RiskUnboundedError
            Weights of either sign made the prices leave every plausible range.
        ConvergenceError
            Non-negative weights did.
        """
        model, family = self.model, self.family
        nets = Nets.draw(train.X, model.hidden, model.activation, model.shared, start.train.shape[1], rng)
        units = Units.learn(train.y, train.weight, family)
        held_X = None if held is None else held.X
        rounds = None if like is None else like.rounds
        rows = (train.X, train.y)
        trained = train_nets(nets, units, self._schedule(), rows, held_X, objective, start, rng, rounds)
        if trained.nets is None:
            raise self._diverged(objective)
        bounds = plausible_bounds(family, train.y, units.center, start.train, start.held)
        return NeuralPrices(trained.nets, units.scale, bounds, trained.rounds, trained.history)

    def _schedule(self) -> Schedule:
        names = ("learning_rate", "weight_decay", "batch_size", "max_epochs", "patience", "averaging", "nonnegative")
        return Schedule(**{name: getattr(self.model, name) for name in names}, device=self.model.device)

    def _diverged(self, objective: Objective) -> Exception:
        if not objective.signed:
            return ConvergenceError(
                "The nets' prices left every plausible range in training. A smaller learning_rate helps, and so do a "
                "larger batch_size and weight_decay."
            )
        return RiskUnboundedError(
            "The nets' prices left every plausible range: with weights of either sign, nets of this size can make the "
            'corrected risk of a group as small as they like. What helps: correction="posterior" or "likelihood", '
            "whose weights are never negative; NeuralModel(nonnegative=True); fewer hidden units; or more rows."
        )


def check_layers(name: str, layers: Any) -> None:
    """Raise if a setting does not say how many units each hidden layer has."""
    if not isinstance(layers, tuple | list) or not layers or not all(is_whole(units, 1) for units in layers):
        raise ValueError(f"Got {name}={layers!r}, but expected the units of each hidden layer, such as (64, 64).")

"""Nets as group prices: one net for each group, trained together with the row weights of any correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.errors import ConvergenceError, OutOfRangeError, RiskUnboundedError
from fairpremium.models._checks import check_not_negative, check_setting, check_whole, is_number, is_whole
from fairpremium.models._group_model import GroupModel, GroupPrices, TrainingData, plausible_bounds
from fairpremium.models._nets import ACTIVATIONS, Nets, check_numbers
from fairpremium.models._training import Units, train_nets


@dataclass(eq=False, repr=False)
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
        Stop after so many epochs without a better held-out loss; the best epoch is used.
    weight_decay : float
        Pulls weights towards zero (AdamW).
    averaging : float
        Prices are those of a running average of the weights, which retains this share of itself at each step; 0: none.
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
    Inputs are standardised (a constant column has no effect); the net's output is added to the start, in
    standard deviations of the outcome for the identity link. All groups start from the same weights.
    Training on a CPU gives the same prices for the same seed.

    References
    ----------
    Kiryo, Niu, du Plessis and Sugiyama (2017), "Positive-Unlabeled Learning with Non-Negative Risk Estimator", and
    Lu, Zhang, Niu and Sugiyama (2020), "Mitigating Overfitting in Supervised Classification from Two Unlabeled
    Datasets": the safeguard.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    shared: int = 0
    learning_rate: float = 0.02
    batch_size: int | Literal["auto"] = "auto"
    max_epochs: int = 200
    patience: int = 50
    weight_decay: float = 0.0
    averaging: float = 0.99
    nonnegative: bool = False
    replicates: int = 5
    device: str = "auto"

    kind: ClassVar[str] = "neural"
    corrections: ClassVar[tuple[str, ...]] = ("inverse", "posterior", "likelihood")
    adds: ClassVar[str] = "nets"
    folds: ClassVar[int] = 2
    refit: ClassVar[bool] = False

    @property
    def begin(self) -> Literal["constant"]:
        """Nets find shapes better from a constant than from lines they have to bend."""
        return "constant"

    @classmethod
    def paper(cls, **settings: Any) -> Self:
        """Return the architecture of the paper's experiments: three hidden layers of five neurons.

        Parameters
        ----------
        **settings
            Other settings of the class; the paper states none.
        """
        return cls(**{"hidden": (5, 5, 5), "shared": 0, **settings})

    def check(self) -> None:
        """Raise if a setting is out of range."""
        check_layers(self, "hidden")
        depth, batch, rate, average = len(self.hidden), self.batch_size, self.learning_rate, self.averaging
        check_whole(self, max_epochs=1, patience=1, replicates=2)
        check_not_negative(self, "weight_decay")
        for name, fits, expected in (
            ("activation", self.activation in ACTIVATIONS, f"one of {sorted(ACTIVATIONS)}"),
            ("shared", is_whole(self.shared, 0) and self.shared <= depth, f"a number of layers from 0 to {depth}"),
            ("batch_size", batch == "auto" or is_whole(batch, 1), '"auto" or an integer >= 1'),
            ("learning_rate", is_number(rate) and 0 < rate < np.inf, "a finite number > 0"),
            ("averaging", is_number(average) and 0 <= average < 1, "a number from 0 to below 1"),
            ("nonnegative", isinstance(self.nonnegative, bool), "True or False"),
            ("device", isinstance(self.device, str), '"auto" or a device such as "cpu" or "cuda"'),
        ):
            check_setting(self, name, fits, expected)

    def train(self, data: TrainingData, rng: np.random.Generator, like: GroupPrices | None = None) -> NeuralPrices:
        """Train the nets of all groups together; see `GroupModel.train`. Rounds are epochs.

        Raises
        ------
        RiskUnboundedError
            Weights of either sign made the prices leave every plausible range.
        ConvergenceError
            Non-negative weights did.
        """
        rows, family = data.train, data.family
        nets = Nets.draw(rows.X, self.hidden, self.activation, self.shared, data.start.shape[1], rng)
        units = Units.learn(rows.y, rows.weight, family)
        trained, epoch, history = train_nets(nets, units, self, data, rng, None if like is None else like.rounds)
        if trained is not None:
            bounds = plausible_bounds(family, rows.y, units.center, data.start, data.held_start)
            return NeuralPrices(trained, units.scale, bounds, epoch, history)
        if not data.objective.signed:
            raise ConvergenceError(
                "The nets' prices left every plausible range in training. A smaller learning_rate helps, and so do a "
                "larger batch_size and weight_decay."
            )
        raise RiskUnboundedError(
            "The nets' prices left every plausible range: with weights of either sign, nets of this size can make the "
            'corrected risk of a group as small as they like. What helps: correction="posterior" or "likelihood", '
            "whose weights are never negative; NeuralModel(nonnegative=True); fewer hidden units; or more rows."
        )


@dataclass(frozen=True)
class NeuralPrices(GroupPrices):
    """Trained nets: the linear predictor of group k is start_k(x) + scale * net_k(x)."""

    kind: ClassVar[str] = "neural"

    nets: Nets
    scale: float
    bounds: tuple[float, float]  # the range that linear predictors did not leave in training
    rounds: int  # the epoch that the nets are from; 0 if the start was best, and the nets add nothing
    history: dict[str, list[float]]  # mean weighted `train_loss` after each epoch, and `held_loss` (if rows were held)

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


def check_layers(model: Any, name: str) -> None:
    """Raise if a setting does not say how many units each hidden layer has."""
    layers = getattr(model, name)
    fits = isinstance(layers, tuple | list) and bool(layers) and all(is_whole(units, 1) for units in layers)
    check_setting(model, name, fits, "the units of each hidden layer, such as (64, 64)")

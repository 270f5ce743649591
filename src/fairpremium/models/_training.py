"""Training of nets with torch, all groups at once: one batched product per layer, one optimiser.

torch is imported when training begins, and nothing else needs it: prices are computed with numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fairpremium.errors import MissingExtraError
from fairpremium.families import Bernoulli, Family, Normal
from fairpremium.models._groups import Objective
from fairpremium.models._nets import Nets

Array = npt.NDArray[np.float64]
Tensor = Any  # torch.Tensor

_WARM_UP = 50  # steps until the learning rate is at its full height
_CLIP = 1.0  # longest gradient of a group


@dataclass(frozen=True)
class Units:
    """The scale that nets are trained on: outcomes and linear predictors near one, whatever the currency.

    A net's output u stands for the linear predictor eta = center + scale * u: the link of the mean outcome, and the
    outcome's standard deviation (identity link) or one (log and logit).
    """

    family: Family
    center: float
    scale: float

    @classmethod
    def learn(cls, y: Array, weight: Array | None, family: Family) -> Units:
        """Learn the scale of outcomes with volumes."""
        mean = np.average(y, weights=weight)
        if not family.mean.contains(mean):
            raise ValueError(
                f"Got y with the mean {mean:g}, but the {family.name} family needs a mean {family.mean}; "
                "are all outcomes zero, or all one?"
            )
        sd = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) if family.link.name == "identity" else 1.0
        return cls(family, float(family.link.predictor(mean)), sd if sd > 0 else 1.0)

    def outcome(self, y: Array) -> Array:
        """Return the outcome in these units; a power family's loss changes by a constant factor only."""
        if self.family.link.name == "identity":
            return np.asarray((y - self.center) / self.scale)
        return np.asarray(y / math.exp(self.center)) if self.family.link.name == "log" else y

    @property
    def offset(self) -> float:
        """What a net's output lacks to be a linear predictor of these units."""
        return self.center if self.family.link.name == "logit" else 0.0

    def predictor(self, output: Array) -> Array:
        """Compute the linear predictor."""
        return np.asarray(self.center + self.scale * output)

    def bounds(self, y: Array) -> tuple[float, float]:
        """Return the range that linear predictors of such outcomes cannot plausibly leave.

        Means lie between the smallest and the largest outcome. Estimates of them may lie outside by the width of that
        range (identity), by a factor of ten above and e^20 below the mean (log), by 20 on the scale of the logit.
        """
        low, high = float(y.min()), float(y.max())
        if self.family.link.name == "identity":
            width = max(high - low, self.scale)
            return low - width, high + width
        if self.family.link.name == "log":
            return self.center - 20.0, math.log(high) + math.log(10.0)
        return self.center - 20.0, self.center + 20.0

    def saturated(self, unit_y: Array) -> Array:
        """Compute the loss of a price that equals the outcome, so that loss - saturated is half the deviance."""
        mu = np.full_like(unit_y, {"identity": 0.0, "log": 1.0, "logit": 0.5}[self.family.link.name])
        loss = self.family.loss_terms(unit_y, self.family.link.predictor(mu))[0]
        return np.asarray(loss - 0.5 * self.family.unit_deviance(unit_y, mu))


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; see `NeuralModel` for the settings."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int
    averaging: float
    nonnegative: bool
    device: str

    def rates(self, steps: int) -> Iterator[float]:
        """Yield the learning rate of each step: a short rise, then half a cosine over all epochs."""
        total = self.max_epochs * steps
        for step in range(total):
            rise = min(1.0, (step + 1) / _WARM_UP)
            yield self.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / total))


class Trained(NamedTuple):
    """What training gave."""

    nets: Nets | None  # of the best epoch; None if no epoch gave plausible prices
    rounds: int
    history: dict[str, list[float]]


def import_torch() -> Any:
    """Import torch, or say how to get it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError('Nets need torch. Install it with: pip install "fairpremium[neural]"') from error
    return torch


def torch_loss(family: Family) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the loss in the linear predictor as `Family.loss_terms` has it, for tensors y and eta."""
    torch = import_torch()
    if isinstance(family, Normal):
        return lambda y, eta: eta * (0.5 * eta - y)
    if isinstance(family, Bernoulli):
        return lambda y, eta: torch.nn.functional.softplus(eta) - y * eta
    p = float(family.power)  # type: ignore[attr-defined]
    if p == 1:
        return lambda y, eta: torch.exp(eta) - y * eta
    if p == 2:
        return lambda y, eta: y * torch.exp(-eta) + eta
    return lambda y, eta: y * torch.exp((1 - p) * eta) / (p - 1) + torch.exp((2 - p) * eta) / (2 - p)


class _Leaves:
    """The numbers of the nets as two tensors, that of the shared layers (1, P) and that of the groups (K, P)."""

    def __init__(self, nets: Nets, torch: Any, device: Any):
        self.torch = torch
        self.nets = nets
        self.sigma = {"relu": torch.relu, "tanh": torch.tanh}[nets.activation]
        kinds = [1 if len(W) == 1 else nets.groups for W in nets.weights]
        self.leaf_of = [0 if kind == kinds[0] else 1 for kind in kinds]
        self.values = []
        for leaf in sorted(set(self.leaf_of)):
            parts = [part.reshape(len(part), -1) for part in self._parts(leaf)]
            tensor = torch.tensor(np.concatenate(parts, axis=1), dtype=torch.float32, device=device)
            self.values.append(tensor)

    def _parts(self, leaf: int) -> list[Array]:
        """Weights and biases of the layers of one leaf, in turn."""
        layers = [layer for layer, own in enumerate(self.leaf_of) if own == leaf]
        return [part for layer in layers for part in (self.nets.weights[layer], self.nets.biases[layer])]

    def layers(self, values: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Cut the tensors into weights (G, inputs, outputs) and biases (G, 1, outputs)."""
        pieces = []
        for leaf, value in enumerate(values):
            parts = self._parts(leaf)
            pieces.append(iter(zip(value.split([part[0].size for part in parts], dim=1), parts, strict=True)))
        found = []
        for leaf in self.leaf_of:
            (W, like_w), (b, like_b) = next(pieces[leaf]), next(pieces[leaf])
            found.append((W.reshape(like_w.shape), b.reshape(len(like_b), 1, -1)))
        return found

    def output(self, values: list[Tensor], Z: Tensor) -> Tensor:
        """Compute the outputs (n, K) of standardised inputs."""
        h, layers = Z[None], self.layers(values)
        for W, b in layers[:-1]:
            h = self.sigma(self.torch.baddbmm(b, h.expand(len(W), -1, -1), W))
        W, b = layers[-1]
        return self.torch.baddbmm(b, h.expand(len(W), -1, -1), W)[:, :, 0].T

    def to_nets(self, values: list[Tensor]) -> Nets:
        """Return the nets as arrays."""
        layers = [(W.cpu().numpy().astype(float), b.cpu().numpy().astype(float)) for W, b in self.layers(values)]
        return replace(self.nets, weights=tuple(W for W, _ in layers), biases=tuple(b[:, 0] for _, b in layers))


def train_nets(
    nets: Nets,
    units: Units,
    schedule: Schedule,
    X: npt.NDArray[Any],
    y: Array,
    held_X: npt.NDArray[Any] | None,
    objective: Objective,
    rng: np.random.Generator,
    rounds: int | None = None,
) -> Trained:
    """Train nets of K groups together.

    Parameters
    ----------
    nets : Nets
        Where to start.
    units : Units
    schedule : Schedule
    X, y : arrays of shape (n, features) and (n,)
        Rows to learn from.
    held_X : array of shape (m, features) or None
        Rows that decide when to stop.
    objective : Objective
        Asked for the rows' weights before each epoch, and for the held-out loss after it.
    rng : Generator
        Draws the mini-batches; no other source of chance is used.
    rounds : int, optional
        Train so many epochs and return the last; by default the best by held-out loss.

    Notes
    -----
    The prices of an epoch are those of a running average of the weights over the last steps, which is what the
    objective sees and what is returned: it does for the noise of mini-batches what a smaller step would, at once.
    """
    torch = import_torch()
    device = _device(torch, schedule.device)
    leaves, loss_of = _Leaves(nets, torch, device), torch_loss(units.family)
    values = [value.clone().requires_grad_() for value in leaves.values]
    average = leaves.values
    optimiser = torch.optim.AdamW(values, lr=schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True)

    def tensor(array: npt.NDArray[Any]) -> Tensor:
        return torch.tensor(np.asarray(array), dtype=torch.float32, device=device)

    def predictors(Z: Tensor) -> Array:
        with torch.no_grad():
            outputs = [leaves.output(average, part).cpu().numpy() for part in Z.split(65_536)]
        return units.predictor(np.concatenate(outputs).astype(float))

    unit_y = units.outcome(y)
    Z, held_Z = tensor(nets.standardise(X)), None if held_X is None else tensor(nets.standardise(held_X))
    target, floor = tensor(unit_y), tensor(units.saturated(unit_y))
    low, high = units.bounds(y)
    steps = math.ceil(len(y) / schedule.batch_size)
    rates = schedule.rates(steps)
    history: dict[str, list[float]] = {"train_loss": [], "held_loss": []}
    best: tuple[float, int, list[Tensor]] | None = None
    eta, done = predictors(Z), 0
    for epoch in range(1, (rounds or schedule.max_epochs) + 1):
        weights = objective.weights(eta)  # (n, K)
        if not np.isfinite(weights).all():
            break
        share = tensor(weights / np.maximum(np.abs(weights).mean(axis=0), np.finfo(float).tiny))
        order = torch.from_numpy(rng.permutation(len(y))).to(device)
        batches = zip(*(values.tensor_split(steps) for values in (Z[order], target[order], share[order], floor[order])))
        for batch_Z, batch_y, batch_share, batch_floor in batches:
            for group in optimiser.param_groups:
                group["lr"] = next(rates, 0.0)
            risk = loss_of(batch_y[:, None], leaves.output(values, batch_Z) + units.offset)
            risks = (batch_share * (risk - batch_floor[:, None])).mean(dim=0)  # (K,)
            if schedule.nonnegative:
                risks = risks.abs()
            optimiser.zero_grad()
            risks.sum().backward()
            for value in values:
                value.grad.mul_((_CLIP / value.grad.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0))
            optimiser.step()
            done += 1
            with torch.no_grad():
                for slow, value in zip(average, values, strict=True):
                    slow.lerp_(value, max(1 - schedule.averaging, 1 / (done + 1)))
        eta = predictors(Z)
        held_eta = None if held_Z is None else predictors(held_Z)
        if not np.isfinite(eta).all() or (held_eta is not None and not np.isfinite(held_eta).all()):
            break
        losses = units.family.loss_terms(y[:, None], eta)[0]
        history["train_loss"].append(float((weights * losses).sum() / weights.sum()))
        every = eta if held_eta is None else np.concatenate([eta, held_eta])
        plausible = bool((every >= low).all() and (every <= high).all())
        score = -float(epoch)  # the last epoch is the best, unless held-out rows say otherwise
        if held_eta is not None:
            held_loss = objective.held_loss(held_eta)
            history["held_loss"].append(float(held_loss))
            if rounds is None:
                score = held_loss
        if rounds is not None or held_eta is None:
            best = (score, epoch, [slow.clone() for slow in average]) if plausible else None
        elif plausible and math.isfinite(score) and (best is None or score < best[0]):
            best = (score, epoch, [slow.clone() for slow in average])
        elif (best is not None and epoch - best[1] >= schedule.patience) or (
            best is None and epoch >= schedule.patience
        ):
            break
    if best is None:
        return Trained(None, 0, history)
    return Trained(leaves.to_nets(best[2]), best[1], history)


def _device(torch: Any, device: str) -> Any:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)

"""Training of nets with torch, all groups at once: one batched product per layer, one optimiser.

torch is imported when training begins, and nothing else needs it: prices are computed with numpy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.errors import MissingExtraError
from fairpremium.families import Bernoulli, Family, Normal
from fairpremium.models._checks import mean_predictor
from fairpremium.models._group_model import TrainingData, plausible_bounds
from fairpremium.models._nets import Nets

if TYPE_CHECKING:
    from fairpremium.models._neural import NeuralModel

Tensor = Any  # torch.Tensor

_WARM_UP = 50  # steps until the learning rate is at its full height
_AUTO_BATCH = (32, 32)  # rows in a mini-batch at least, and mini-batches in an epoch
_MOST = {"cpu": 256, "cuda": 4096}  # rows in a mini-batch at most: what a cache holds, what a GPU needs to be busy
_GPU_ROWS = 20_000  # rows from which a GPU is faster than the CPU
_CLIP = 1.0  # longest gradient of a group


@dataclass(frozen=True)
class Units:
    """The scale that nets are trained on: outcomes and linear predictors near one, whatever the currency.

    The center is the link of the mean outcome. Prices are start + scale * output, where the scale is the outcome's
    standard deviation (identity link) or one (log and logit).
    """

    family: Family
    center: float
    scale: float

    @classmethod
    def learn(cls, y: Array, weight: Array | None, family: Family) -> Units:
        """Learn the scale of outcomes with volumes."""
        mean = np.average(y, weights=weight)
        center = mean_predictor(mean, family)
        sd = float(np.sqrt(np.average((y - mean) ** 2, weights=weight))) if family.link.name == "identity" else 1.0
        return cls(family, center, sd if sd > 0 else 1.0)

    def outcome(self, y: Array) -> Array:
        """Return the outcome in these units; a power family's loss changes by a constant factor only."""
        if self.family.link.name == "identity":
            return np.asarray((y - self.center) / self.scale)
        return np.asarray(y / math.exp(self.center)) if self.family.link.name == "log" else y

    def predictor(self, eta: Array) -> Array:
        """Return a linear predictor in these units."""
        return np.asarray(eta if self.family.link.name == "logit" else (eta - self.center) / self.scale)

    def saturated(self, unit_y: Array) -> Array:
        """Compute the loss of a price that equals the outcome, so that loss - saturated is half the deviance."""
        mu = np.full_like(unit_y, {"identity": 0.0, "log": 1.0, "logit": 0.5}[self.family.link.name])
        loss = self.family.loss_terms(unit_y, self.family.link.predictor(mu))[0]
        return np.asarray(loss - 0.5 * self.family.unit_deviance(unit_y, mu))


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


class _Network:
    """Nets in torch: the numbers of all layers in two tensors, shared (1, P) and by group (K, P).

    The optimiser and the average of the weights then work on whole tensors, whatever the number of layers and groups.
    """

    def __init__(self, nets: Nets, torch: Any, device: Any):
        self.nets, self.torch = nets, torch
        self.sigma = {"relu": torch.relu, "tanh": torch.tanh}[nets.activation]
        self.tensor_of = [int(len(W) != len(nets.weights[0])) for W in nets.weights]  # which tensor holds a layer
        self.values = []
        for tensor in sorted(set(self.tensor_of)):
            flat = [array.reshape(len(array), -1) for array in self._arrays(tensor)]
            self.values.append(torch.tensor(np.concatenate(flat, axis=1), dtype=torch.float32, device=device))

    def _arrays(self, tensor: int) -> list[Array]:
        """Weights and biases of the layers of one tensor, in turn."""
        layers = zip(self.tensor_of, self.nets.weights, self.nets.biases, strict=True)
        return [array for own, W, b in layers if own == tensor for array in (W, b)]

    def layers(self, values: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Cut the tensors into weights (G, inputs, outputs) and biases (G, 1, outputs)."""
        pieces = [
            iter(value.split([array[0].size for array in self._arrays(tensor)], dim=1))
            for tensor, value in enumerate(values)
        ]
        return [
            (next(pieces[tensor]).reshape(W.shape), next(pieces[tensor]).reshape(len(W), 1, -1))
            for tensor, W in zip(self.tensor_of, self.nets.weights, strict=True)
        ]

    def output(self, values: list[Tensor], Z: Tensor) -> Tensor:
        """Compute the outputs (n, K) of standardised inputs."""
        h, (*hidden, last) = Z[None], self.layers(values)
        for W, b in hidden:
            h = self.sigma(self.torch.baddbmm(b, h.expand(len(W), -1, -1), W))
        W, b = last
        # one column: a sum of products is faster than a matrix product
        return ((h * W.transpose(1, 2)).sum(dim=2) + b[:, 0]).T

    def to_nets(self, values: list[Tensor]) -> Nets:
        """Return the nets as arrays."""
        layers = [(W.cpu().numpy().astype(float), b.cpu().numpy().astype(float)) for W, b in self.layers(values)]
        return replace(self.nets, weights=tuple(W for W, _ in layers), biases=tuple(b[:, 0] for _, b in layers))


class _Adam:
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019), and a running average of where it has been.

    Written out because it is five lines on one tensor, and the first step of torch's own costs seconds of imports.
    """

    def __init__(self, values: list[Tensor], model: NeuralModel, steps: int, torch: Any):
        self.torch, self.model, self.steps = torch, model, steps  # steps in an epoch
        self.average = [value.detach().clone() for value in values]
        self.values = [value.detach().clone().requires_grad_() for value in values]
        self.first = [torch.zeros_like(value) for value in values]
        self.second = [torch.zeros_like(value) for value in values]
        self.done = 0

    def step(self, loss: Tensor) -> None:
        """Take one step down a loss, the gradient of each group cut to a length of one."""
        self.done += 1
        a, b, rate = 0.9, 0.999, self._rate()
        retained = min(self.model.averaging, self.done / (self.done + 1))
        gradients = self.torch.autograd.grad(loss, self.values)
        with self.torch.no_grad():
            for value, gradient, first, second, average in zip(
                self.values, gradients, self.first, self.second, self.average, strict=True
            ):
                length = gradient.norm(dim=1, keepdim=True)
                gradient = gradient / length.clamp(min=_CLIP) * _CLIP
                first.lerp_(gradient, 1 - a)
                second.mul_(b).addcmul_(gradient, gradient, value=1 - b)
                scale = (second / (1 - b**self.done)).sqrt_().add_(1e-8)
                value.mul_(1 - rate * self.model.weight_decay)
                value.addcdiv_(first, scale, value=-rate / (1 - a**self.done))
                average.lerp_(value, 1 - retained)

    def _rate(self) -> float:
        """Compute the learning rate: a short rise, then half a cosine over `max_epochs`."""
        rise = min(1.0, self.done / _WARM_UP)
        progress = min(1.0, self.done / (self.model.max_epochs * self.steps))
        return self.model.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * progress))


class _Training:
    """Rows, nets and objective at work; `epoch` is one pass."""

    def __init__(self, nets: Nets, units: Units, model: NeuralModel, data: TrainingData):
        torch = self.torch = import_torch()
        X, self.y, held = data.train.X, data.train.y, data.held
        self.units, self.model, self.data, self.objective = units, model, data, data.objective
        self.device = _device(torch, model.device, len(self.y))
        self.block = 2048 if self.device.type == "cpu" else 262_144  # rows priced at a time: what a cache holds
        self.network = _Network(nets, torch, self.device)
        self.loss = torch_loss(units.family)
        self.steps = _steps(model.batch_size, len(self.y), self.device.type)
        self.adam = _Adam(self.network.values, model, self.steps, torch)
        unit_y = units.outcome(self.y)
        self.Z = self._tensor(nets.standardise(X))
        self.held_Z = None if held is None else self._tensor(nets.standardise(held.X))
        self.target, self.saturated = self._tensor(unit_y), self._tensor(units.saturated(unit_y))
        self.offset = self._tensor(units.predictor(data.start))
        self.bounds = plausible_bounds(units.family, self.y, units.center, data.start, data.held_start)
        self.eta, self.held_eta = data.start, None if held is None else data.held_start
        self.start_loss = math.inf
        self.history: dict[str, list[float]] = {"train_loss": [], "held_loss": []}

    def _tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return self.torch.tensor(np.asarray(array), dtype=self.torch.float32, device=self.device)

    def _predictors(self, Z: Tensor, start: Array) -> Array:
        with self.torch.no_grad():
            pieces = [self.network.output(self.adam.average, piece).cpu().numpy() for piece in Z.split(self.block)]
        return np.asarray(start + self.units.scale * np.concatenate(pieces).astype(float))

    def epoch(self, rng: np.random.Generator) -> bool:
        """Make one pass over the rows; False if numbers left the finite ones, and training is over."""
        weights = self.objective.weights(self.eta)  # (n, K)
        if not np.isfinite(weights).all():
            return False
        if self.held_eta is not None and not self.history["held_loss"]:
            self.start_loss = float(self.objective.held_loss(self.held_eta))
        share = self._tensor(weights / np.maximum(np.abs(weights).mean(axis=0), np.finfo(float).tiny))
        order = self.torch.from_numpy(rng.permutation(len(self.y))).to(self.device)
        rows = (self.Z, self.target, self.offset, share, self.saturated)
        for Z, y, a, w, c in zip(*(values[order].tensor_split(self.steps) for values in rows), strict=True):
            eta = a + self.network.output(self.adam.values, Z)
            risks = (w * (self.loss(y[:, None], eta) - c[:, None])).mean(dim=0)  # (K,), half the deviance
            self.adam.step((risks.abs() if self.model.nonnegative else risks).sum())
        self.eta = self._predictors(self.Z, self.data.start)
        self.held_eta = None if self.held_Z is None else self._predictors(self.held_Z, self.data.held_start)
        if not np.isfinite(self.eta).all() or (self.held_eta is not None and not np.isfinite(self.held_eta).all()):
            return False
        loss = self.units.family.loss_terms(self.y[:, None], self.eta)[0]
        self.history["train_loss"].append(float((weights * loss).sum() / weights.sum()))
        if self.held_eta is not None:
            self.history["held_loss"].append(float(self.objective.held_loss(self.held_eta)))
        return True

    @property
    def plausible(self) -> bool:
        """Whether all prices are in the range that means can have."""
        low, high = self.bounds
        every = [self.eta] if self.held_eta is None else [self.eta, self.held_eta]
        return all(bool((eta >= low).all() and (eta <= high).all()) for eta in every)


def _device(torch: Any, name: str, rows: int) -> Any:
    """Find a device by name, and try it."""
    if name == "auto":
        name = "cuda" if rows >= _GPU_ROWS and torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f'Got device={name!r}, which torch cannot use here; expected "auto", "cpu", or "cuda" where there is one.'
        ) from error
    return device


def _steps(batch_size: int | str, rows: int, device: str) -> int:
    """Compute the number of mini-batches of equal size in an epoch."""
    if isinstance(batch_size, str):
        least, steps = _AUTO_BATCH
        return math.ceil(rows / min(max(rows / steps, least), _MOST.get(device, _MOST["cuda"])))
    return math.ceil(rows / batch_size)


def train_nets(
    nets: Nets, units: Units, model: NeuralModel, data: TrainingData, rng: np.random.Generator, rounds: int | None
) -> tuple[Nets | None, int, dict[str, list[float]]]:
    """Train the nets of K groups, whose output is zero at first, together; return nets, their epoch, and all losses.

    The mini-batches are drawn by `rng`; no other source of chance is used. The nets are those of the last of `rounds`
    epochs, or with None those with the least held-out loss (epoch 0 if the start has less); None if no epoch gave
    plausible prices.

    The prices of an epoch are those of a running average of the weights over the last steps: it is what the
    objective sees and what is returned, and takes the noise of the mini-batches out of both.
    """
    if rounds == 0:
        return nets, 0, {"train_loss": [], "held_loss": []}
    training = _Training(nets, units, model, data)
    choose = rounds is None and data.held is not None
    best, chosen, values = math.inf, 0, None
    for epoch in range(1, (rounds or model.max_epochs) + 1):
        finite = training.epoch(rng)
        if choose and epoch == 1 and math.isfinite(training.start_loss):
            best, values = training.start_loss, training.network.values
        if not finite:
            break
        held_loss = training.history["held_loss"][-1] if choose else -math.inf
        if training.plausible and (held_loss < best or not choose):
            best, chosen = held_loss, epoch
            values = [value.clone() for value in training.adam.average]
        elif not choose:
            chosen, values = 0, None  # a price of the last epoch is wanted, and it is not plausible
        elif epoch - chosen >= model.patience:
            break
    return None if values is None else training.network.to_nets(values), chosen, training.history

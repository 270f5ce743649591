"""Feed-forward nets of one or more groups as plain arrays: computed with numpy, written as numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array

_BLOCK_ROWS = 8192
_LEAST_SPREAD = 0.1  # of a column's range: a rare level or a far value is at most ten units from the mean


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"relu": lambda x: np.maximum(x, 0.0), "tanh": np.tanh}


@dataclass(frozen=True)
class Nets:
    """The nets of K groups, layer by layer.

    G is K, or 1 for a layer that all groups share; shared layers come first. Inputs enter as (x - center) / spread; a
    spread of zero (a constant column) takes the column out.
    """

    activation: str  # of the hidden layers: a key of `ACTIVATIONS`
    center: Array  # (features,)
    spread: Array  # (features,)
    weights: tuple[Array, ...]  # (G, inputs, outputs) each
    biases: tuple[Array, ...]  # (G, outputs) each

    @classmethod
    def draw(
        cls,
        X: npt.NDArray[Any],
        hidden: Sequence[int],
        activation: str,
        shared: int,
        groups: int,
        rng: np.random.Generator,
    ) -> Nets:
        """Draw starting weights, the same for all groups, so that only the data make groups differ.

        Hidden weights are normal with variance 2 / inputs (He et al., 2015; 1 / inputs for tanh), biases spread
        the kinks over the data, and the output layer is zero, so that prices start where they are told to.
        """
        X = np.asarray(X, dtype=np.float64)
        center, spread = X.mean(axis=0), X.std(axis=0)
        spread = np.maximum(spread, _LEAST_SPREAD * np.ptp(X, axis=0))
        spread = np.where(spread > 1e-10 * np.abs(center), spread, 0.0)
        sizes = [X.shape[1], *hidden, 1]
        weights, biases = [], []
        for layer, (a, b) in enumerate(pairwise(sizes)):
            last = layer == len(hidden)
            gain = 0.0 if last else np.sqrt(2.0 if activation == "relu" else 1.0)
            W = rng.normal(size=(1, a, b)) * gain / np.sqrt(a)
            c = rng.uniform(-1, 1, size=(1, b)) / np.sqrt(a) * (not last)
            weights.append(W if layer < shared else np.repeat(W, groups, axis=0))
            biases.append(c if layer < shared else np.repeat(c, groups, axis=0))
        return cls(activation, center, spread, tuple(weights), tuple(biases))

    @property
    def groups(self) -> int:
        """Number of groups K."""
        return len(self.weights[-1])

    def standardise(self, X: npt.NDArray[Any]) -> Array:
        """Return (x - center) / spread."""
        return np.asarray((X - self.center) * np.divide(1.0, self.spread, where=self.spread > 0, out=self.spread * 0))

    def output(self, X: npt.NDArray[Any]) -> Array:
        """Compute the outputs of all groups: shape (n, K)."""
        return self._blocks(X, lambda h: (np.matmul(h, self.weights[-1]) + self.biases[-1][:, None])[:, :, 0].T)

    def last_hidden(self, X: npt.NDArray[Any], group: int = 0) -> Array:
        """Compute the last hidden layer of one group: shape (n, units)."""
        return self._blocks(X, lambda h: h[min(group, len(h) - 1)])

    def _blocks(self, X: npt.NDArray[Any], read: Callable[[Array], Array]) -> Array:
        """Compute the last hidden layer block by block, shape (G, rows, units), and read something off it."""
        sigma, pieces = ACTIVATIONS[self.activation], []
        for first in range(0, max(len(X), 1), _BLOCK_ROWS):
            h = self.standardise(X[first : first + _BLOCK_ROWS])[None]
            for W, b in zip(self.weights[:-1], self.biases[:-1], strict=True):
                h = sigma(np.matmul(h, W) + b[:, None])
            pieces.append(read(h))
        return np.concatenate(pieces)

    def to_dict(self) -> dict[str, Any]:
        """Return the nets as plain data."""
        plain = {name: getattr(self, name).tolist() for name in ("center", "spread")}
        layers = {name: [array.tolist() for array in getattr(self, name)] for name in ("weights", "biases")}
        return {"activation": self.activation, **plain, **layers}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read back what `to_dict` returned, checking every field."""
        activation = data["activation"]
        if activation not in ACTIVATIONS:
            raise ValueError(f"Got activation={activation!r}, but expected one of {sorted(ACTIVATIONS)}.")
        center = check_numbers(data["center"], (None,), "center")
        spread = check_numbers(data["spread"], center.shape, "spread")
        if (spread < 0).any():
            raise ValueError("Got spread with negative numbers, but expected none.")
        weights = [check_numbers(W, (None, None, None), "weights") for W in data["weights"]]
        if not weights or len(data["biases"]) != len(weights):
            raise ValueError(
                f"Got {len(weights)} weights and {len(data['biases'])} biases; expected as many, at least 1."
            )
        groups, inputs, before = len(weights[-1]), len(center), 1
        for W in weights:
            if W.shape[1] != inputs or len(W) not in (1, groups) or len(W) < before:
                raise ValueError(
                    f"Got weights of shape {W.shape}, but expected (1 or {groups}, {inputs}, units), shared ones first."
                )
            before, inputs = len(W), W.shape[2]
        if inputs != 1:
            raise ValueError(f"Got nets with {inputs} outputs, but expected one.")
        biases = [
            check_numbers(b, (len(W), W.shape[2]), "biases") for b, W in zip(data["biases"], weights, strict=True)
        ]
        return cls(activation, center, spread, tuple(weights), tuple(biases))


def check_numbers(values: Any, shape: tuple[int | None, ...], name: str) -> Array:
    """Return values as finite numbers of a shape, in which None stands for any positive length."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except OverflowError as error:
        raise ValueError(f"Got {name} with a number that is too large.") from error
    fits = array.ndim == len(shape) and all(
        have > 0 if want is None else have == want for have, want in zip(array.shape, shape, strict=True)
    )
    if not fits or not np.isfinite(array).all():
        wanted = tuple("any" if size is None else size for size in shape)
        raise ValueError(f"Got {name} of shape {array.shape}, but expected finite numbers of shape {wanted}.")
    return array

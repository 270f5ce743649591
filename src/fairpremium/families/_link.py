"""Links between the mean of an outcome and the linear predictor: g(mu) = eta."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, logit

from fairpremium.arrays import Array
from fairpremium.families._domain import POSITIVE, REAL, UNIT_INTERVAL, Domain


class Link(ABC):
    """A smooth increasing map g from the domain of the mean to the real line."""

    name: ClassVar[str]
    mean: ClassVar[Domain]

    @abstractmethod
    def predictor(self, mu: Array) -> Array:
        """Compute eta = g(mu)."""

    @abstractmethod
    def mean_of(self, eta: Array) -> Array:
        """Compute mu = g^-1(eta)."""

    @abstractmethod
    def slope(self, eta: Array) -> Array:
        """Compute d mu / d eta."""


@dataclass(frozen=True)
class Identity(Link):
    """g(mu) = mu."""

    name = "identity"
    mean = REAL

    def predictor(self, mu: Array) -> Array:
        """Compute eta = mu."""
        return np.asarray(mu)

    def mean_of(self, eta: Array) -> Array:
        """Compute mu = eta."""
        return np.asarray(eta)

    def slope(self, eta: Array) -> Array:
        """Compute d mu / d eta = 1."""
        return np.ones_like(eta)


@dataclass(frozen=True)
class Log(Link):
    """g(mu) = log(mu)."""

    name = "log"
    mean = POSITIVE

    def predictor(self, mu: Array) -> Array:
        """Compute eta = log(mu)."""
        return np.asarray(np.log(mu))

    def mean_of(self, eta: Array) -> Array:
        """Compute mu = exp(eta)."""
        return np.asarray(np.exp(eta))

    def slope(self, eta: Array) -> Array:
        """Compute d mu / d eta = exp(eta)."""
        return np.asarray(np.exp(eta))


@dataclass(frozen=True)
class Logit(Link):
    """g(mu) = log(mu / (1 - mu))."""

    name = "logit"
    mean = UNIT_INTERVAL

    def predictor(self, mu: Array) -> Array:
        """Compute eta = log(mu / (1 - mu))."""
        return np.asarray(logit(mu))

    def mean_of(self, eta: Array) -> Array:
        """Compute mu = 1 / (1 + exp(-eta))."""
        return np.asarray(expit(eta))

    def slope(self, eta: Array) -> Array:
        """Compute d mu / d eta = mu (1 - mu)."""
        return np.asarray(expit(eta) * expit(-eta))

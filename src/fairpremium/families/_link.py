"""Links between the mean of an outcome and the linear predictor: g(mu) = eta."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit

from fairpremium.arrays import Array
from fairpremium.families._domain import POSITIVE, REAL, UNIT_INTERVAL, Domain


class Link:
    """A smooth increasing map g from the domain of the mean to the real line, given by three functions of arrays."""

    name: ClassVar[str]
    mean: ClassVar[Domain]
    _predictor: ClassVar[Any]  # g
    _mean_of: ClassVar[Any]  # its inverse
    _slope: ClassVar[Any]  # the derivative of the inverse

    def predictor(self, mu: Array) -> Array:
        """Compute eta = g(mu)."""
        return np.asarray(self._predictor(mu))

    def mean_of(self, eta: Array) -> Array:
        """Compute mu = g^-1(eta)."""
        return np.asarray(self._mean_of(eta))

    def slope(self, eta: Array) -> Array:
        """Compute d mu / d eta."""
        return np.asarray(self._slope(eta))

    def mean_and_slope(self, eta: Array) -> tuple[Array, Array]:
        """Compute mu and d mu / d eta, at the cost of one of them where they are the same."""
        mean = self.mean_of(eta)
        return mean, mean if self._slope is self._mean_of else self.slope(eta)


@dataclass(frozen=True)
class Identity(Link):
    """g(mu) = mu, with slope 1."""

    name = "identity"
    mean = REAL
    _predictor, _mean_of, _slope = np.asarray, np.asarray, staticmethod(np.ones_like)


@dataclass(frozen=True)
class Log(Link):
    """g(mu) = log(mu), with slope exp(eta) = mu."""

    name = "log"
    mean = POSITIVE
    _predictor, _mean_of, _slope = np.log, np.exp, np.exp


@dataclass(frozen=True)
class Logit(Link):
    """g(mu) = log(mu / (1 - mu)), with slope mu (1 - mu)."""

    name = "logit"
    mean = UNIT_INTERVAL
    _predictor, _mean_of, _slope = logit, expit, staticmethod(lambda eta: expit(eta) * expit(-eta))

"""Outcome distributions: exponential dispersion models with mean mu and variance phi V(mu) / w.

Each family knows its domain, its variance function V, its unit deviance d(y, mu), its
log-likelihood, and the loss that a solver minimises in the linear predictor eta.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, log_expit, logsumexp, xlogy

from fairpremium.arrays import Array
from fairpremium.families._domain import NON_NEGATIVE, POSITIVE, REAL, UNIT_INTERVAL, ZERO_OR_ONE, Domain
from fairpremium.families._link import Identity, Link, Log, Logit


class Family(ABC):
    """An outcome distribution with its link.

    Notes
    -----
    A row with volume w (exposure, claim count) has E[Y] = mu and Var[Y] = phi V(mu) / w. The loss is
    half the unit deviance without the terms that depend on y alone,

        loss(y, eta) = d(y, g^-1(eta)) / 2 - c(y),

    and every loss here is convex in eta, so that non-negative weights always give a convex problem.
    """

    name: ClassVar[str]
    link: ClassVar[Link]
    outcome: ClassVar[Domain]
    mean: ClassVar[Domain]
    has_dispersion: ClassVar[bool] = True
    _outcome_hint: ClassVar[str] = ""

    @abstractmethod
    def variance(self, mu: Array) -> Array:
        """Compute the unit variance V(mu)."""

    @abstractmethod
    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute d(y, mu) >= 0, which is zero if and only if y = mu."""

    @abstractmethod
    def loss_terms(self, y: Array, eta: Array) -> tuple[Array, Array, Array]:
        """Compute the loss in eta with its first and second derivative."""

    @abstractmethod
    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute log p(y; mu, dispersion / weight) for each row."""

    def check_outcome(self, y: Array, name: str = "y") -> None:
        """Raise if an outcome lies outside the family's domain.

        Raises
        ------
        ValueError
            Names the rule and how many rows break it.
        """
        bad = int(np.count_nonzero(~self.outcome.contains(y)))
        if bad:
            raise ValueError(
                f"Got {name} with {bad} of {len(y)} rows outside the domain of the {self.name} family: "
                f"expected every value to be {self.outcome}.{self._outcome_hint}"
            )

    def _check_dispersion(self, dispersion: float) -> None:
        if dispersion != 1.0:
            raise ValueError(f"Got dispersion={dispersion}, but the {self.name} family has dispersion 1.")

    def to_dict(self) -> dict[str, Any]:
        """Return the family as plain data; `get_family` reads it back."""
        return {"name": self.name}


@dataclass(frozen=True)
class Normal(Family):
    """Normal outcomes: V(mu) = 1, identity link, deviance (y - mu)^2."""

    name: ClassVar[str] = "normal"
    link: ClassVar[Link] = Identity()
    outcome: ClassVar[Domain] = REAL
    mean: ClassVar[Domain] = REAL

    def variance(self, mu: Array) -> Array:
        """Compute V(mu) = 1."""
        return np.ones_like(mu)

    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute (y - mu)^2."""
        return np.asarray((y - mu) ** 2)

    def loss_terms(self, y: Array, eta: Array) -> tuple[Array, Array, Array]:
        """Compute eta^2 / 2 - y eta with its derivatives."""
        return eta * (0.5 * eta - y), eta - y, np.ones_like(eta)

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute the log-density of N(mu, dispersion / weight)."""
        variance = dispersion / np.asarray(weight, dtype=float)
        return np.asarray(-0.5 * ((y - mu) ** 2 / variance + np.log(2 * np.pi * variance)))


class _PowerFamily(Family):
    """V(mu) = mu^p with the log link; Poisson (p = 1), Tweedie (1 < p < 2) and gamma (p = 2)."""

    link: ClassVar[Link] = Log()
    mean: ClassVar[Domain] = POSITIVE
    power: float

    def variance(self, mu: Array) -> Array:
        """Compute V(mu) = mu^power."""
        return np.asarray(mu**self.power)

    def loss_terms(self, y: Array, eta: Array) -> tuple[Array, Array, Array]:
        """Compute y e^((1-p) eta) / (p-1) + e^((2-p) eta) / (2-p) with its derivatives.

        The limits are e^eta - y eta at p = 1 and y e^-eta + eta at p = 2.
        """
        p = self.power
        with np.errstate(over="ignore", invalid="ignore"):
            if p == 1:
                mu = np.exp(eta)
                return mu - y * eta, mu - y, mu
            if p == 2:
                ratio = y * np.exp(-eta)
                return ratio + eta, 1.0 - ratio, ratio
            a, b = y * np.exp((1 - p) * eta), np.exp((2 - p) * eta)
            return a / (p - 1) + b / (2 - p), b - a, (p - 1) * a + (2 - p) * b


@dataclass(frozen=True)
class Poisson(_PowerFamily):
    """Counts, or claim frequencies y = count / exposure with the exposure as weight: V(mu) = mu."""

    name: ClassVar[str] = "poisson"
    outcome: ClassVar[Domain] = NON_NEGATIVE
    power: ClassVar[float] = 1.0  # type: ignore[misc]
    has_dispersion: ClassVar[bool] = False

    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute 2 (y log(y / mu) - y + mu)."""
        return np.asarray(2 * (xlogy(y, y / mu) - y + mu))

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute the log-probability of weight * y claims at rate mu; the dispersion must be one."""
        self._check_dispersion(dispersion)
        w = np.asarray(weight, dtype=float)
        return np.asarray(xlogy(w * y, w * mu) - w * mu - gammaln(w * y + 1))


@dataclass(frozen=True)
class NegativeBinomial(Poisson):
    """Overdispersed counts: weight * y claims with mean m = weight * mu and variance m + dispersion * m^2.

    Prices are fitted by the Poisson deviance, which is right for the mean whatever the dispersion; the
    likelihood correction uses the negative binomial law and estimates the dispersion.
    """

    name: ClassVar[str] = "negative_binomial"
    has_dispersion: ClassVar[bool] = True

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute the log-probability of weight * y claims, gamma-mixed Poisson with variance `dispersion`."""
        w = np.asarray(weight, dtype=float)
        N, m, r = w * y, w * mu, 1 / dispersion
        return np.asarray(
            gammaln(N + r) - gammaln(r) - gammaln(N + 1) - r * np.log1p(m / r) + xlogy(N, m) - N * np.log(r + m)
        )


@dataclass(frozen=True)
class Gamma(_PowerFamily):
    """Positive severities: V(mu) = mu^2, log link; the shape is weight / dispersion."""

    name: ClassVar[str] = "gamma"
    _outcome_hint: ClassVar[str] = " Zero losses need the tweedie family, or a frequency and a severity model."
    outcome: ClassVar[Domain] = POSITIVE
    power: ClassVar[float] = 2.0  # type: ignore[misc]

    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute 2 (log(mu / y) + y / mu - 1)."""
        return np.asarray(2 * (np.log(mu / y) + y / mu - 1))

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute the log-density of the gamma law with mean mu and shape weight / dispersion."""
        shape = np.asarray(weight, dtype=float) / dispersion
        return np.asarray(shape * np.log(shape * y / mu) - np.log(y) - shape * y / mu - gammaln(shape))


@dataclass(frozen=True)
class Tweedie(_PowerFamily):
    """Pure premiums, zero with positive probability: V(mu) = mu^power, 1 < power < 2, log link.

    Parameters
    ----------
    power : float
        The variance power, strictly between 1 (Poisson) and 2 (gamma).
    """

    name: ClassVar[str] = "tweedie"
    outcome: ClassVar[Domain] = NON_NEGATIVE
    power: float = 1.5

    def __post_init__(self) -> None:
        if isinstance(self.power, bool) or not 1 < self.power < 2:
            raise ValueError(
                f"Got power={self.power!r}, but expected a number strictly between 1 and 2; "
                "use Poisson() for 1 and Gamma() for 2."
            )

    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute 2 (y^(2-p) / ((1-p)(2-p)) - y mu^(1-p) / (1-p) + mu^(2-p) / (2-p))."""
        p = self.power
        saturated = y ** (2 - p) / ((1 - p) * (2 - p))
        return np.asarray(2 * (saturated - y * mu ** (1 - p) / (1 - p) + mu ** (2 - p) / (2 - p)))

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute the log-density of the compound Poisson-gamma law.

        Notes
        -----
        With phi = dispersion / weight and alpha = (2 - p) / (p - 1) the law has an atom
        exp(-mu^(2-p) / (phi (2-p))) at zero and, for y > 0, the density

            1 / y * sum_j z^j / (j! Gamma(alpha j)) * exp((y mu^(1-p) / (1-p) - mu^(2-p) / (2-p)) / phi),
            z = y^alpha / ((p-1)^alpha (2-p) phi^(1+alpha)),

        where j counts the claims (Dunn and Smyth, 2005, equation 3). The terms are summed in logarithms around the
        largest one, j = y^(2-p) / (phi (2-p)).
        """
        p = self.power
        phi = dispersion / np.asarray(weight, dtype=float)
        y, mu, phi = np.broadcast_arrays(np.asarray(y, dtype=float), mu, phi)
        exponent = (y * mu ** (1 - p) / (1 - p) - mu ** (2 - p) / (2 - p)) / phi
        positive = y > 0
        result = np.array(exponent)
        result[positive] += _log_tweedie_series(y[positive], phi[positive], p) - np.log(y[positive])
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the family as plain data; `get_family` reads it back."""
        return {"name": self.name, "power": self.power}


@dataclass(frozen=True)
class Bernoulli(Family):
    """Claim or no claim: y in {0, 1}, V(mu) = mu (1 - mu), logit link."""

    name: ClassVar[str] = "bernoulli"
    link: ClassVar[Link] = Logit()
    outcome: ClassVar[Domain] = ZERO_OR_ONE
    mean: ClassVar[Domain] = UNIT_INTERVAL
    has_dispersion: ClassVar[bool] = False

    def variance(self, mu: Array) -> Array:
        """Compute V(mu) = mu (1 - mu)."""
        return np.asarray(mu * (1 - mu))

    def unit_deviance(self, y: Array, mu: Array) -> Array:
        """Compute -2 (y log(mu) + (1 - y) log(1 - mu)): twice the cross-entropy."""
        return np.asarray(-2 * (xlogy(y, mu) + xlogy(1 - y, 1 - mu)))

    def loss_terms(self, y: Array, eta: Array) -> tuple[Array, Array, Array]:
        """Compute log(1 + e^eta) - y eta with its derivatives."""
        mu = Logit().mean_of(eta)
        return -log_expit(-eta) - y * eta, mu - y, mu * (1 - mu)

    def log_likelihood(self, y: Array, mu: Array, dispersion: float = 1.0, weight: Any = 1.0) -> Array:
        """Compute weight * log P(y); the dispersion must be one."""
        self._check_dispersion(dispersion)
        return np.asarray(-0.5 * np.asarray(weight, dtype=float) * self.unit_deviance(y, mu))


def _log_tweedie_series(y: Array, phi: Array, p: float) -> Array:
    """Compute log sum_j z^j / (j! Gamma(alpha j)) for y > 0, one-dimensional arrays."""
    if not len(y):
        return np.empty(0)
    alpha = (2 - p) / (p - 1)
    log_z = alpha * np.log(y) - alpha * np.log(p - 1) - np.log(2 - p) - (1 + alpha) * np.log(phi)
    peak = np.maximum(1.0, y ** (2 - p) / (phi * (2 - p)))
    # around the peak the terms fall like a normal density with variance peak / (1 + alpha)
    width = np.ceil(11 * np.sqrt(peak / (1 + alpha)) + 20)
    if (far := width > 2000).any():  # so many claims in one row that the saddlepoint is exact to six digits
        result = np.empty(len(y))
        result[~far] = _log_tweedie_series(y[~far], phi[~far], p)
        saturated = y[far] ** (2 - p) * (1 / (1 - p) - 1 / (2 - p)) / phi[far]
        result[far] = np.log(y[far]) - 0.5 * np.log(2 * np.pi * phi[far] * y[far] ** p) - saturated
        return result
    first = np.maximum(1.0, np.floor(peak - width))
    result = np.empty(len(y))
    order = np.argsort(width)
    for rows in np.array_split(order, max(1, len(y) // 256)):  # rows with windows of like width together
        j = first[rows, None] + np.arange(2 * int(width[rows].max()) + 1)
        terms = j * log_z[rows, None] - gammaln(j + 1) - gammaln(alpha * j)
        result[rows] = logsumexp(terms, axis=1)
    return result


FAMILIES: dict[str, type[Family]] = {f.name: f for f in (Normal, Poisson, NegativeBinomial, Gamma, Tweedie, Bernoulli)}


def get_family(family: str | Family | dict[str, Any]) -> Family:
    """Return the family that a name, a family object or the data of `Family.to_dict` stands for.

    Examples
    --------
    >>> get_family("tweedie")
    Tweedie(power=1.5)
    """
    if isinstance(family, Family):
        return family
    settings = dict(family) if isinstance(family, dict) else {"name": family}
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"Got family={name!r}, but expected one of {sorted(FAMILIES)} or a family object.")
    return FAMILIES[name](**settings)

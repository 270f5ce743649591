"""The law of one outcome given its mean, as the likelihood correction needs it: log-density and derivatives.

A law has at most one parameter besides the mean, the log-dispersion lambda.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.special import digamma, gammaln, polygamma, xlogy

from fairpremium.arrays import Array
from fairpremium.families._domain import POSITIVE, REAL, Domain
from fairpremium.families._family import Family, NegativeBinomial, Normal, Poisson

_NORMAL_CONSTANT = 0.5 * np.log(2 * np.pi)  # that the normal law leaves out
_STEP = 1e-3  # of lambda, for central differences of the part of a density that does not depend on the mean


class LawTerms(NamedTuple):
    """Log-density and its derivatives in the linear predictor eta and the log-dispersion lambda."""

    log_density: Array
    d_eta: Array
    d_eta_eta: Array
    d_lambda: Array
    d_lambda_lambda: Array
    d_eta_lambda: Array


class Law(ABC):
    """Distribution of y given the linear predictor, the volume and the log-dispersion."""

    name: str
    has_dispersion: bool
    outcomes: Domain = REAL  # that it can give, where these are fewer than the family's

    @abstractmethod
    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives.

        Parameters
        ----------
        y, weight : arrays of shape (n, 1)
        eta : array of shape (n, K)
        log_dispersion : array of shape (K,)
            Ignored by laws without dispersion.
        """

    def log_density(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> Array:
        """Compute log p(y) alone; parameters as for `terms`."""
        return self.terms(y, weight, eta, log_dispersion).log_density

    def unit(self, log_dispersion: Array) -> float:
        """Scale of the linear predictor: one on a log or logit scale, a standard deviation on the outcome's."""
        return 1.0

    @abstractmethod
    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Guess the log-dispersion from means that ignore the groups, all of shape (n,)."""


class DispersionLaw(Law):
    """Exponential dispersion model: log p = -(w / phi) loss(y, eta) + c(y, w, phi), phi = exp(lambda)."""

    def __init__(self, family: Family):
        self.family = family
        self.name = family.name
        self.has_dispersion = family.has_dispersion

    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives."""
        loss, slope, curvature = self.family.loss_terms(y, eta)
        if not self.has_dispersion:
            zero = np.zeros_like(loss)
            value = self._constant(y, weight) - weight * loss
            return LawTerms(value, -weight * slope, -weight * curvature, zero, zero, zero)
        precision = weight * np.exp(-log_dispersion)  # (n, K)
        c, dc, ddc = self._normalizer(y, weight, log_dispersion)
        scaled = precision * loss
        return LawTerms(
            c - scaled, -precision * slope, -precision * curvature, scaled + dc, ddc - scaled, precision * slope
        )

    def unit(self, log_dispersion: Array) -> float:
        """Scale of the linear predictor."""
        return float(np.exp(0.5 * np.max(log_dispersion))) if self.family.link.name == "identity" else 1.0

    def _constant(self, y: Array, weight: Array) -> Array | float:
        """Compute what does not depend on the mean; laws are compared by their likelihoods."""
        if not isinstance(self.family, Poisson):
            return 0.0
        return np.asarray(xlogy(weight * y, weight) - gammaln(weight * y + 1))

    def _normalizer(self, y: Array, weight: Array, log_dispersion: Array) -> tuple[Array, Array, Array]:
        """Compute c(y, w, phi) and its first two derivatives in lambda."""
        if isinstance(self.family, Normal):
            c = -0.5 * (y**2 * weight * np.exp(-log_dispersion) + log_dispersion - np.log(weight))
            half = 0.5 * y**2 * weight * np.exp(-log_dispersion)
            return c, half - 0.5, -half
        values = np.unique(log_dispersion)
        columns = values if len(values) == 1 else log_dispersion  # one dispersion for all groups: compute once
        low, mid, high = (
            np.column_stack([self._c(y, weight, float(v) + step) for v in columns]) for step in (-_STEP, 0.0, _STEP)
        )
        return mid, (high - low) / (2 * _STEP), (high - 2 * mid + low) / _STEP**2

    def _c(self, y: Array, weight: Array, log_dispersion: float) -> Array:
        """Compute c(y, w, phi) from the log-likelihood at any mean; y itself is the most accurate one."""
        phi = float(np.exp(log_dispersion))
        mu = np.where(y > 0, y, 1.0)
        loss = self.family.loss_terms(y, self.family.link.predictor(mu))[0]
        return np.asarray(self.family.log_likelihood(y, mu, phi, weight) + weight / phi * loss)

    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Take Pearson's estimate of the dispersion around means that ignore the groups."""
        if not self.has_dispersion:
            return 0.0
        pearson = float(np.mean(weight * (y - mu) ** 2 / self.family.variance(mu)))
        return float(np.log(max(pearson, 1e-30)))  # all outcomes may be equal


class NegativeBinomialLaw(Law):
    """Counts w y with mean w mu and variance w mu + alpha (w mu)^2, alpha = exp(lambda)."""

    name = "negative_binomial"
    has_dispersion = True

    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives."""
        N = weight * y
        with np.errstate(over="ignore"):
            m = weight * np.exp(eta)
        alpha = np.exp(log_dispersion)
        r = 1 / alpha
        am = alpha * m
        log_density = self.log_density(y, weight, eta, log_dispersion)
        d_eta = (N - m) / (1 + am)
        d_r = digamma(N + r) - digamma(r) - np.log1p(am) + 1 - (r + N) / (r + m)
        d_rr = polygamma(1, N + r) - polygamma(1, r) + 1 / r - 1 / (r + m) - (m - N) / (r + m) ** 2
        return LawTerms(
            log_density,
            d_eta,
            -m * (1 + alpha * N) / (1 + am) ** 2,
            -r * d_r,
            r * d_r + r**2 * d_rr,
            -d_eta * am / (1 + am),
        )

    def log_density(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> Array:
        """Compute log p(y) alone, the part that does not depend on eta once for all groups if they share alpha."""
        N = weight * y
        shared = np.unique(log_dispersion)
        r = np.exp(-(shared if len(shared) == 1 else log_dispersion))
        with np.errstate(over="ignore"):
            am = weight * np.exp(eta) / r
        return np.asarray(
            gammaln(N + r) - gammaln(r) - gammaln(N + 1) - r * np.log1p(am) + N * (np.log(am) - np.log1p(am))
        )

    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Match the variance of the counts."""
        return _excess_variance(y, weight, mu)


class ZeroInflatedPoissonLaw(Law):
    """Counts N = w y that are zero for a share pi of the rows, otherwise Poisson; pi / (1 - pi) = exp(lambda).

    N has mean m = w mu and variance m + exp(lambda) m^2.
    """

    name = "zero-inflated Poisson"
    has_dispersion = True

    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives; r is P(not of the share given N), one unless N = 0."""
        N = np.asarray(weight * y)
        c = np.exp(log_dispersion)
        pi = c / (1 + c)
        with np.errstate(over="ignore"):
            m = weight * np.exp(eta) * (1 + c)  # mean of the other rows
        none = np.exp(-m)
        r = np.where(N == 0, none / (c + none), 1.0)
        doubt, both = r * (1 - r), m * pi
        positive = N * (np.log(weight) + eta + np.log1p(c)) - m - gammaln(N + 1)
        d_eta = N - m * r
        return LawTerms(
            np.where(N == 0, np.log(c + none), positive) - np.log1p(c),
            d_eta,
            -m * r + m**2 * doubt,
            (1 - r) + pi * d_eta - pi,
            doubt * (1 + both) ** 2 - r * both + pi * (1 - pi) * (N - 1),
            m * doubt * (1 + both) - r * both,
        )

    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Match the variance of the counts."""
        return _excess_variance(y, weight, mu)


def _excess_variance(y: Array, weight: Array, mu: Array) -> float:
    """Compute the logarithm of a in: variance of the counts = m + a m^2."""
    m = weight * mu
    return float(np.log(max(np.sum((weight * y - m) ** 2 - m) / np.sum(m**2), 1e-2)))


class PositiveLaw(Law):
    """Positive outcomes with mean eta and variance exp(lambda) / w: a gamma law, skewed more where the mean is small.

    Its terms are not numbers where a mean is not positive.
    """

    name = "positive, constant variance"
    has_dispersion = True
    outcomes = POSITIVE

    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives; shape a = eta^2 / variance, rate b = eta / variance."""
        variance = np.exp(log_dispersion) / weight
        a, b = eta**2 / variance, eta / variance
        with np.errstate(invalid="ignore", divide="ignore"):
            log_by = np.log(b) + np.log(y)
        gap, curvature = log_by - digamma(a), polygamma(1, a)
        d_eta = 2 * b * gap + (eta - y) / variance
        return LawTerms(
            a * log_by - gammaln(a) - np.log(y) - b * y + _NORMAL_CONSTANT,
            d_eta,
            (2 * gap + 3) / variance - (2 * b) ** 2 * curvature,
            b * y - a * (gap + 1),
            a * (gap + 2) - a**2 * curvature - b * y,
            2 * b * (a * curvature - 1) - d_eta,
        )

    def unit(self, log_dispersion: Array) -> float:
        """Scale of the linear predictor."""
        return float(np.exp(0.5 * np.max(log_dispersion)))

    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Take the variance around means that ignore the groups."""
        return float(np.log(max(float(np.mean(weight * (y - mu) ** 2)), 1e-30)))  # all outcomes may be equal


def law_of(family: Family) -> Law:
    """Return the law that a family assumes."""
    if isinstance(family, NegativeBinomial):
        return NegativeBinomialLaw()
    return DispersionLaw(family)


def other_laws(family: Family) -> list[Law]:
    """Return further laws worth trying: more variance than Poisson's, skewed outcomes with a normal's mean."""
    if type(family) is Poisson:
        return [NegativeBinomialLaw(), ZeroInflatedPoissonLaw()]
    return [PositiveLaw()] if isinstance(family, Normal) else []

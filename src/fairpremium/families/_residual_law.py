"""A law that nobody wrote down: the density of standardised residuals, learned from weighted residuals.

    y = eta + sigma e / sqrt(w)        additive noise
    log y = eta + sigma e / sqrt(w)    multiplicative noise, for positive outcomes with a log link

with sigma^2 = exp(lambda) and a density g of e. It is a kernel estimate on the scale asinh(e), so that heavy tails are
smoothed more than the middle, with a little of a t density, so that it is positive everywhere. Its logarithm is a cubic
spline with straight ends.

The density need not be centred. It serves to tell the groups apart; prices are means, which it does not give.
"""

from __future__ import annotations

import numpy as np

from fairpremium.arrays import Array
from fairpremium.families._law import Law, LawTerms

_POINTS = 1024
_PARTS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12)  # of Silverman's bandwidth that are tried
_TAILS = 0.01  # share of the t density
_CONSTANT = 0.5 * np.log(2 * np.pi)  # that the normal law leaves out


class ResidualLaw(Law):
    """Noise with a learned density: `values` are log g at increasing points `grid`."""

    name = "learned from residuals"
    has_dispersion = True

    def __init__(self, grid: Array, values: Array, multiplicative: bool = False):
        from scipy.interpolate import CubicSpline

        self.grid, self.multiplicative = grid, multiplicative
        self._spline = CubicSpline(grid, values, bc_type="natural")

    @classmethod
    def learn(cls, e: Array, weight: Array, multiplicative: bool = False) -> ResidualLaw:
        """Estimate g from standardised residuals and weights, which may be negative: both of shape (n,).

        The bandwidth is the part of Silverman's under which each residual is most likely given the others.
        """
        from scipy.ndimage import gaussian_filter1d

        v = np.arcsinh(e)
        edges = np.linspace(float(v.min()) - 1.0, float(v.max()) + 1.0, _POINTS + 1)
        step = edges[1] - edges[0]
        middle = 0.5 * (edges[1:] + edges[:-1])
        counts, plain = (np.histogram(v, edges, weights=w)[0] for w in (weight, np.abs(weight)))
        quartiles = middle[np.searchsorted(np.cumsum(plain) / plain.sum(), (0.25, 0.75))]
        spread = max(float(quartiles[1] - quartiles[0]) / 1.34, 4 * step)
        silverman = 0.9 * spread * float(plain.sum()) ** -0.2
        tails = 6 * np.sqrt(3) / (np.pi * (3 + np.sinh(middle) ** 2) ** 2) * np.cosh(middle)  # Student, 3 degrees
        best, best_fit = tails, -np.inf
        for width in (max(part * silverman, 0.7 * step) for part in _PARTS):
            smooth, whole = (gaussian_filter1d(c, width / step, mode="constant") for c in (counts, plain))
            density = np.maximum(smooth / counts.sum(), 0.05 * whole / plain.sum()) / step  # signed: may be negative
            own = 1 / (width * np.sqrt(2 * np.pi) * counts.sum())
            fit = float(plain @ np.log((1 - _TAILS) * np.maximum(density - own, 0.0) + _TAILS * tails))
            if fit > best_fit:
                best, best_fit = (1 - _TAILS) * density + _TAILS * tails, fit
        grid = np.sinh(middle)
        density = best / np.cosh(middle)
        return cls(grid, np.log(density / (density * np.gradient(grid)).sum()), multiplicative)

    def residual(self, y: Array, eta: Array) -> Array:
        """Compute the residuals before they are standardised."""
        return np.asarray((np.log(y) if self.multiplicative else y) - eta)

    def terms(self, y: Array, weight: Array, eta: Array, log_dispersion: Array) -> LawTerms:
        """Compute log p(y) and derivatives."""
        sigma = np.exp(0.5 * log_dispersion) / np.sqrt(weight)
        e = self.residual(y, eta) / sigma
        inside = np.clip(e, self.grid[0], self.grid[-1])
        beyond = e - inside
        value, slope, bend = (self._spline(inside, order) for order in (0, 1, 2))
        bend = np.where(beyond == 0, bend, 0.0)
        constant = -np.log(y) if self.multiplicative else _CONSTANT
        return LawTerms(
            value + slope * beyond - np.log(sigma) + constant,
            -slope / sigma,
            bend / sigma**2,
            -0.5 * (slope * e + 1),
            0.25 * (bend * e**2 + slope * e),
            0.5 * (bend * e + slope) / sigma,
        )

    def unit(self, log_dispersion: Array) -> float:
        """Scale of the linear predictor."""
        return 1.0 if self.multiplicative else float(np.exp(0.5 * np.max(log_dispersion)))

    def start(self, y: Array, weight: Array, mu: Array) -> float:
        """Take the variance around means that ignore the groups."""
        eta = np.log(mu) if self.multiplicative else mu
        return float(np.log(np.mean(weight * self.residual(y, eta) ** 2)))

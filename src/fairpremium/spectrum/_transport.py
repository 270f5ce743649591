"""The corrective price: group prices are moved to a distribution that all groups share, as little as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairpremium.arrays import Array


@dataclass(frozen=True)
class StepDistribution:
    """A distribution with finitely many values."""

    values: Array  # (m,), in increasing order
    probability: Array  # (m,), distribution function at the values; the last is one

    def quantile_integral(self, u: Array) -> Array:
        """Compute the integral of the quantile function from 0 to u."""
        mass = np.diff(self.probability, prepend=0.0)
        knots, heights = np.append(0.0, self.probability), np.append(0.0, np.cumsum(mass * self.values))
        use = np.append(True, mass > 0)
        return np.asarray(np.interp(u, knots[use], heights[use]))


@dataclass(frozen=True)
class TransportMap:
    """What a price of one group becomes; linear between the prices of the fit, and with slope one beyond them."""

    prices: Array  # (m,)
    moved: Array  # (m,)

    def __call__(self, price: Array) -> Array:
        """Move prices."""
        inside = np.clip(price, self.prices[0], self.prices[-1])
        return np.asarray(np.interp(inside, self.prices, self.moved) + (price - inside))


def learn_transport(distributions: list[StepDistribution], shares: Array) -> list[TransportMap]:
    r"""Find the optimal transport of every distribution to their Wasserstein barycentre.

    Notes
    -----
    The quantile function of the barycentre is Q(u) = sum_l p_l Q_l(u). A value t of group k with
    F_k(t-) = a < b = F_k(t) becomes

        C_k(t) = 1 / (b - a) int_a^b Q(u) du,

    the mean of what a continuous distribution would be moved to. With it all groups have exactly the same mean, the
    integral of Q, whatever the ties; without ties their distributions are equal but for steps of one row.
    """
    maps = []
    for own in distributions:
        high = own.probability
        low = np.append(0.0, high[:-1])
        use = high > low
        integral = sum(
            p * (each.quantile_integral(high[use]) - each.quantile_integral(low[use]))
            for p, each in zip(shares, distributions, strict=True)
        )
        maps.append(TransportMap(own.values[use], np.asarray(integral / (high - low)[use])))
    return maps

"""The limits that an estimate stays within at every look: the boundary of a Gaussian mixture."""

import math

from scipy.special import ndtr, stdtrit

_TIGHTEST = 10.0  # times the information of the first look: where the boundary is narrowest, relative to the error


def critical_value(alpha: float, information: float, degrees: int) -> float:
    r"""Return how many standard errors an estimate may be from the truth, at every look.

    - `alpha`: Probability that the estimate leaves the limits at any look, on either side.
    - `information`: The variance of the sum of errors up to now, over that at the first look.
    - `degrees`: Number of independent terms that the variance was estimated from.

    Notes
    -----
    For a Brownian motion W and rho > 0 the half-normal mixture

    .. math:: M(s, v) = 2 \sqrt{\frac{\rho^2}{v + \rho^2}} \exp\Big(\frac{s^2}{2 (v + \rho^2)}\Big)
              \Phi\Big(\frac{s}{\sqrt{v + \rho^2}}\Big)

    is a nonnegative martingale in (W_v, v) with mean one. It reaches 2 / alpha with probability at most alpha / 2
    (Ville). The critical value is s / sqrt(v) where it does. rho is chosen so that the limits are narrowest at
    `_TIGHTEST` times the information of the first look, the unit of v.

    The variance has an error of its own: the normal quantile becomes Student's with the same tail probability.

    References
    ----------
    Howard, Ramdas, McAuliffe and Sekhon (2021), Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals
    of Statistics 49(2): the one-sided normal mixture.
    Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024), Time-uniform central limit theory and asymptotic confidence
    sequences, Annals of Statistics 52(6): Gaussian mixtures, and the choice of rho.

    Examples
    --------
    >>> round(critical_value(0.05, 1.0, 512), 2), round(critical_value(0.05, 10.0, 512), 2)
    (3.79, 3.05)
    """
    rho2 = _TIGHTEST / (-2 * math.log(alpha) + math.log(-2 * math.log(alpha)) + 1)
    total = information + rho2
    tail = 1.0  # Phi(s / sqrt(v + rho^2)), which is nearly one: a few rounds are exact
    for _ in range(5):
        root = math.sqrt(-2 * math.log(alpha * tail) + math.log(total / rho2))  # s / sqrt(v + rho^2)
        tail = float(ndtr(root))
    z = root * math.sqrt(total / information)
    return -float(stdtrit(degrees, ndtr(-z))) if z < 30 else math.inf

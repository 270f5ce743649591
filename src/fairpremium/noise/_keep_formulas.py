"""The formulas: C1 and keep, agreement and keep, the exact binomial interval."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv


def keep_to_c1(keep: ArrayLike, n_groups: int) -> Any:
    r"""Return the diagonal of the inverse channel, C1 >= 1, from pi and K; inf for pi <= 1/K, the limit from above.

    .. math:: C_1 = \frac{\pi + K - 2}{K \pi - 1}, \qquad
              \pi = \frac{C_1 + K - 2}{K C_1 - 1}, \qquad \frac{d\pi}{dC_1} = -\frac{(K - 1)^2}{(K C_1 - 1)^2}

    The map is its own inverse, so that the same function returns pi from C1; an infinite C1 gives 1/K.

    At or below 1/K the formula gives infinity or a negative number, and neither means anything: reports that keep the
    truth with probability 1/K say nothing about it. Infinity is the honest value, because an average over splits is
    then infinite, too, and turns back into 1/K.

    Examples
    --------
    >>> float(keep_to_c1(0.75, 2)), float(keep_to_c1(1.0, 5)), float(keep_to_c1(0.5, 2))
    (1.5, 1.0, inf)
    >>> float(c1_to_keep(1.5, 2)), float(c1_to_keep(float("inf"), 4))
    (0.75, 0.25)
    """
    x, K = np.asarray(keep, dtype=float), n_groups
    proper = (K * x > 1) & np.isfinite(x)
    value = np.where(proper, x, 1.0)
    limit = np.where(K * x > 1, 1 / K, np.inf)
    return np.where(proper, (value + K - 2) / (K * value - 1), limit)[()]


c1_to_keep = keep_to_c1


def agreement_to_keep(agreement: ArrayLike, n_groups: int) -> Any:
    r"""Return pi in [1/K, 1] from alpha, the probability that two reports of a person agree.

    Given D the reports are independent, so alpha = pi^2 + (K - 1) pi_bar^2 with pi_bar = (1 - pi)/(K - 1). The larger
    root is

    .. math:: \pi = \frac{1 + \sqrt{(K - 1)(K \alpha - 1)}}{K}, \qquad \frac{d\alpha}{d\pi} = 2\pi - 2\bar\pi,

    and nan where alpha < 1/K, which no randomized response can have.

    Examples
    --------
    >>> float(agreement_to_keep(0.68, 2))
    0.8
    """
    alpha, K = np.asarray(agreement, dtype=float), n_groups
    square = (K - 1) * (K * alpha - 1)
    return np.where(square >= 0, (1 + np.sqrt(np.maximum(square, 0))) / K, np.nan)[()]


def binomial_interval(hits: int, n: int, level: float) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a probability from successes and trials; 0 trials give (0, 1).

    Its coverage is at least `level` for every n and probability; each limit errs with probability at most
    (1 - level)/2.

    Examples
    --------
    >>> low, high = binomial_interval(8, 10, 0.95)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    tail = (1 - level) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high

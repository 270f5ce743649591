"""Linear prices by gradient descent on the corrected risk, for many weightings of the same rows at once."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from fairpremium.arrays import Array


def record_epochs(epochs: int) -> tuple[int, ...]:
    """Return the epochs at which losses are recorded: evenly spaced on a logarithmic scale, with first and last.

    Examples
    --------
    >>> record_epochs(20)
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 18, 20)
    """
    points = np.geomspace(1, epochs, max(2, round(8 * np.log(epochs))))
    return tuple(int(e) for e in sorted(set(np.rint(points).astype(int))))


def descend(X: Array, y: Array, weights: Array, *, family: str, epochs: int) -> Array:
    r"""Minimise the weighted risk of one linear price for each column of weights by gradient descent.

    - `X`, shape (n, p): Features, with the intercept among them.
    - `y`, shape (n,): Outcome.
    - `weights`, shape (n, m): What a row counts in each of the m risks: T^-1[k, s_i] for the paper's correction, 0 or 1
      for a known or believed group. May be negative.
    - `family`: Squared loss, or cross-entropy of the logistic price.
    - `epochs`: Number of steps.

    Returns the coefficients after each recorded epoch.

    Notes
    -----
    A step is

    .. math:: \beta \leftarrow \beta - \frac{1}{L n} \sum_i w_i (\mu(x_i'\beta) - y_i) x_i

    where L is the largest eigenvalue of X'X/n, a quarter of it for cross-entropy, whose curvature is at most 1/4.
    A risk with negative curvature lets the coefficients grow; nothing stops them.
    """
    n = len(y)
    mean = MEANS[family]
    curvature = np.linalg.eigvalsh(X.T @ X / n)[-1] * (0.25 if family == "bernoulli" else 1.0)
    beta = np.zeros((X.shape[1], weights.shape[1]))
    wanted, recorded = set(record_epochs(epochs)), []
    with np.errstate(over="ignore", invalid="ignore"):
        for epoch in range(1, epochs + 1):
            residual = mean(X @ beta)
            residual -= y[:, None]
            residual *= weights
            beta = beta - X.T @ residual / (n * curvature)
            if epoch in wanted:
                recorded.append(beta)
    return np.stack(recorded)


def held_out_loss(X: Array, y: Array, group: npt.NDArray[np.intp], beta: Array, *, family: str) -> Array:
    """Return the mean loss of the best estimate on test rows, the true group of which is known.

    X, y and family are those of `descend`; `group` is the true group of each row, 0 to K - 1. Coefficients `beta` of
    shape (..., p, K) give losses of shape (...).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        own = np.moveaxis(beta, -1, 0)[group]  # (n, ..., p): the coefficients of each row's own group
        eta = np.einsum("ip,i...p->i...", X, own)
        y = y.reshape((-1,) + (1,) * (eta.ndim - 1))
        return np.asarray(LOSSES[family](y, eta).mean(axis=0))


MEANS = {"normal": lambda eta: eta, "bernoulli": expit}
LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "normal": lambda y, eta: (y - eta) ** 2,
    "bernoulli": lambda y, eta: np.logaddexp(0.0, eta) - y * eta,
}

"""Projection of an estimated distribution onto the probability simplex, for callers who ask for it."""

import numpy as np
import numpy.typing as npt


def project_to_simplex(p: npt.ArrayLike) -> npt.NDArray[np.float64]:
    r"""Return the probability vector closest to p.

    Parameters
    ----------
    p : array-like of float, shape (K,)
        For instance the unbiased estimate of :meth:`Channel.group_distribution`, which may leave [0, 1].

    Returns
    -------
    q : ndarray of float, shape (K,)
        Non-negative, sums to one.

    Notes
    -----
    .. math:: q = \arg\min \{ \|q - p\|_2 : q \ge 0, \sum_k q_k = 1 \},
              \qquad q_k = \max(p_k - \tau, 0),

    with the one tau for which q sums to one (Duchi et al. 2008, Figure 1). The projection is biased where the
    estimate is not; that is why it is a step of its own.

    Examples
    --------
    >>> project_to_simplex([0.5, 0.75, -0.25])
    array([0.375, 0.625, 0.   ])
    """
    x = np.asarray(p, dtype=np.float64)
    if x.ndim != 1 or x.size == 0 or not np.all(np.isfinite(x)):
        raise ValueError(f"Got p of shape {x.shape}, but expected one dimension with finite numbers.")
    x = x - x.max()  # a constant changes nothing, and small numbers are summed without rounding
    descending = np.sort(x)[::-1]
    excess = np.cumsum(descending) - 1.0
    size = np.arange(1, x.size + 1)
    active = int(np.nonzero(descending * size > excess)[0][-1]) + 1
    tau = excess[active - 1] / active
    q: npt.NDArray[np.float64] = np.maximum(x - tau, 0.0)
    q /= q.sum()
    return q

"""A third look: do an efficient fit and a robust one agree?

If both are consistent their difference is only noise, whose covariance the rows' influences give (Hausman, 1978, in the
robust form that needs neither fit to be efficient).
"""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2

from fairpremium.arrays import Array
from fairpremium.blocks import Block
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._sandwich import sum_of_squares


def agreement(fit: GroupFit, robust: GroupFit) -> float:
    """Compute the p-value of the hypothesis that two fits of the same rows estimate the same coefficients.

    Parameters
    ----------
    fit, robust : GroupFit
        Fits of the same problem, without pooling.

    Returns
    -------
    float
    """
    size = fit.B.size
    maps = [np.linalg.inv(f.influence.bread)[f.influence.first : f.influence.first + size] for f in (fit, robust)]

    def difference(block: Block) -> Array:
        return np.asarray(fit.influence.scores(block) @ maps[0].T - robust.influence.scores(block) @ maps[1].T)

    covariance = sum_of_squares(fit.problem.rows, difference)  # a person's rows together
    gap = (fit.B - robust.B).T.ravel()
    statistic = float(gap @ np.linalg.lstsq(covariance, gap, rcond=1e-10)[0])
    return float(chi2.sf(statistic, size))

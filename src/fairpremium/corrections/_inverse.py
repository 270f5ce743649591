"""The paper's correction: every row counts for every group, with the weights of the inverse channel.

    min over f_1..f_K of  sum_i sum_k T^-1[k, s_i] w_i L(f_k(x_i), y_i)

is an unbiased estimate of the risk under the true attribute for every f (Lemma 4.2 in its corrected
form; Algorithms MPTP with T the identity, MPTP-LDP otherwise).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairpremium.corrections._pooling import Judged, judge_strengths
from fairpremium.corrections._shares import estimate_shares
from fairpremium.errors import RiskUnboundedError
from fairpremium.models._linear import LinearProblem
from fairpremium.models._newton import Minimum

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroupFit:
    """Group prices of the linear class, in the coordinates of the problem's moments."""

    problem: LinearProblem
    table: Array  # (K, codes), row weights by report
    minimum: Minimum
    shares: Array  # (K,), unbiased estimate of P(D)
    strength: float
    judged: list[Judged]

    @property
    def coefficients(self) -> Array:
        """Coefficients of (1, x) on the caller's scale: shape (1 + features, K)."""
        return self.problem.moments.coordinates.to_raw(self.minimum.B)

    @property
    def unaware_coefficients(self) -> Array:
        """Coefficients of the unaware price on the caller's scale: shape (1 + features, 1)."""
        return self.problem.moments.coordinates.to_raw(self.problem.unaware)


def pad_missing(inverse: Array) -> Array:
    """Append a zero column for the missing report: such rows count for no group."""
    return np.hstack([inverse, np.zeros((len(inverse), 1))])


def fit_inverse(
    problem: LinearProblem,
    table: Array,
    groups: tuple[object, ...],
    pooling: float | None,
    rng: np.random.Generator,
) -> GroupFit:
    """Fit all groups with the inverse correction.

    Parameters
    ----------
    problem : LinearProblem
    table : array of shape (K, codes)
        The inverse channel with a zero column for missing reports.
    groups : tuple
        Labels, for messages.
    pooling : float or None
        Pooling strength in rows; None chooses it by the cross-validated corrected risk.
    rng : Generator
        Draws the sample of rows that judge the strengths, if there are too many.
    """
    judged: list[Judged] = []
    if pooling is None:
        judged = judge_strengths(problem, table, groups, rng)
        usable = [j for j in judged if not j.problem]
        if not usable:
            problem.solve(table, 0.0, groups)  # says which group, and what helps
            raise RiskUnboundedError("No pooling strength gives a corrected risk with a minimum in every part.")
        pooling = min(usable, key=lambda j: j.risk).strength
    minimum = problem.solve(table, pooling, groups)
    return GroupFit(problem, table, minimum, estimate_shares(problem.moments, table), pooling, judged)

"""The paper's correction: every row counts for every group, with the weights of the inverse channel.

    min over f_1..f_K of  sum_i sum_k T^-1[k, s_i] w_i L(f_k(x_i), y_i)

is an unbiased estimate of the risk under the true attribute for every f (Lemma 4.2 in its corrected
form; Algorithms MPTP with T the identity, MPTP-LDP otherwise).
"""

from __future__ import annotations

import numpy as np

from fairpremium.arrays import Array
from fairpremium.corrections._fit import GroupFit, Influence, TableScores, report_shares
from fairpremium.corrections._pooling import Judged, choose_strength, judge_strengths
from fairpremium.models._linear import LinearProblem


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
        if all(j.problem for j in judged):
            problem.solve(table, 0.0, groups)  # says which group, and what helps
        pooling = choose_strength(judged)
    minimum = problem.solve(table, pooling, groups)
    B, q, K = minimum.B, problem.moments.q, len(table)
    shares, share_scores = report_shares(problem, table)
    scores = TableScores(problem, B, np.ascontiguousarray(table.T))
    influence = Influence(scores, minimum.hessian, 0, share_scores, np.zeros((K, K * q)))
    return GroupFit(problem, "inverse", table, B, shares, pooling, influence, judged)

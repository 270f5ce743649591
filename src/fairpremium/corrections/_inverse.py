"""The paper's correction: every row counts for every group, with the weights of the inverse channel.

    min over f_1..f_K of  sum_i sum_k T^-1[k, s_i] w_i L(f_k(x_i), y_i)

is an unbiased estimate of the risk under the true attribute for every f (Lemma 4.2 in its corrected
form; Algorithms MPTP with T the identity, MPTP-LDP otherwise). With several sources T is that of the row's source,
and the weights are unbiased row by row. With empirical Bayes the moments of each channel are evidence of their own.
"""

from dataclasses import replace
from functools import partial

from fairpremium.arrays import Array
from fairpremium.corrections._fit import GroupFit, table_fit
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.corrections._signed_moments import SignedMoments
from fairpremium.models import LinearProblem, Minimum, Span


def fit_inverse(problem: LinearProblem, channel: ReportChannel, pooling: float | None) -> GroupFit:
    """Fit all groups with the inverse correction.

    Parameters
    ----------
    problem : LinearProblem
    channel : ReportChannel
    pooling : float or None
        Pooling strength in rows; None pools by empirical Bayes.
    """
    if pooling is not None:
        minimum = problem.solve(channel.table, pooling, channel.groups)
        respond = partial(_response, problem.span(len(channel.groups)), minimum)
        return table_fit(problem, "inverse", channel, minimum.B, respond, pooling)
    moments = SignedMoments.of(problem, channel)
    posterior, sums = moments.shrink()
    response = posterior.covariance @ sums.gain  # the mean of a posterior moves with its evidence by its covariance
    scores = moments.scores(posterior.B)
    fit = table_fit(problem, "inverse", channel, posterior.B, response, None, posterior, scores)
    return replace(fit, moments=moments)


def _response(span: Span, minimum: Minimum) -> Array:
    """Invert the Hessian, which standard errors alone need, and many rows must be read for."""
    return span.inverse(minimum.hessian)

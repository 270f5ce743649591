"""Balance: best estimates that reproduce the portfolio's total.

With weights a_ik whose mean is P(D = k given x_i, y_i, s_i), the total of mu(x, D) under the true attribute can be
estimated from the reports. Linear fits with a canonical link and without pooling reproduce the total of the outcomes by
themselves, with the signed weights T^-1[k, s_i]. All other prices become balanced by one number, the same for every
group, that is added to the linear predictors:

    sum_i w_i sum_k a_ik (mu(eta_ik + c) - y_i) = 0.

Pooled linear fits take P(D = k given x_i, y_i, s_i), or P(D = k given x_i, s_i) if they have no model of the former.
Signed weights are so noisy that they would undo what pooling and likelihoods gain.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._posterior import GroupPosterior
from fairpremium.corrections._propensity import GroupPropensity
from fairpremium.families import Bernoulli, Family, Link, Normal, Poisson

_STEPS = 50
_CLOSE = 1e-12  # a gap this small, relative to the total, is none
_LARGEST_STEP = 2.0
_SLOPE_ROWS = 200_000  # rows of a sample from which the derivatives of the total are computed


def balance_shift(family: Family, rows: Rows | Stream, eta: Array | RowFunction, weights: Array | RowFunction) -> float:
    """Find the shift c of the linear predictors with which best estimates reproduce the total of the outcomes.

    Parameters
    ----------
    family : Family
    rows : Rows or Stream
    eta : array of shape (n, K), or a function from a block to such an array
        Linear predictors of the rows. Rows that are read piece by piece need the function, and it must be picklable;
        identity and log link take one pass over them.
    weights : array of shape (K, reports + 1), or a function from a block to an array (rows, K)
        Weight of a report for each group: the inverse channel. Rows without a report are left out by a last column of
        zeros, as in a `ReportChannel`, or count with the shares that it holds. Or the rows' own weights.

    Returns
    -------
    float
        Zero if no shift gives balance: the signed total of the best estimates is not positive (log link), or the
        outcomes are all zeros or all ones (logit).
    """
    if not callable(eta):
        assert isinstance(rows, Rows)
        return balance_shift(family, Rows(eta, rows.y, rows.weight, rows.report), _columns, weights)
    if not callable(weights):
        weights = partial(_by_report, table=np.ascontiguousarray(weights.T))
    link, sums = family.link, partial(_sums, link=family.link, eta=eta, weights=weights)
    outcome, price, slope = map(float, rows.reduce(partial(sums, shift=0.0)))
    if link.name == "log":
        return float(np.log(outcome / price)) if outcome > 0 and price > 0 else 0.0
    shift = 0.0
    for _ in range(_STEPS):
        gap = outcome - price
        if abs(gap) <= _CLOSE * max(abs(outcome), abs(price)):
            return shift
        if not slope > 0:
            return 0.0
        step = gap / slope
        if link.name == "identity":
            return step
        shift += float(np.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        outcome, price, slope = map(float, rows.reduce(partial(sums, shift=shift)))
    return 0.0


def _sums(block: Block, link: Link, eta: RowFunction, weights: RowFunction, shift: float) -> tuple[Array, ...]:
    """Signed sums of outcomes, of best estimates, and of their slopes in the shift."""
    weight = weights(block)
    weight = weight if block.weight is None else weight * block.weight[:, None]
    mu, slope = link.mean_and_slope(eta(block) + shift)
    sums = (weight * block.y[:, None]).sum(), (weight * mu).sum(), (weight * slope).sum()
    return tuple(np.asarray(value) for value in sums)


def _columns(block: Block) -> Array:
    """Return linear predictors that are the features."""
    return np.asarray(block.X, dtype=np.float64)


def _by_report(block: Block, table: Array) -> Array:
    return np.asarray(table[block.report])


def _is_canonical(family: Family) -> bool:
    """Tell whether fits without a penalty reproduce the total by themselves."""
    return type(family) in (Normal, Poisson, Bernoulli)


def _ones(block: Block) -> Array:
    return np.ones((len(block.y), 1))


def balanced(fit: GroupFit, base: GroupFit, posterior: Any = None) -> GroupFit:
    """Shift the intercepts of all groups until the best estimates reproduce the portfolio's total.

    The weights are those of `posterior`, if the fit has one, else those of the base's moments. The total has its own
    error, which the fit's influence then holds: with u_i the row's imbalance, G its derivative in the parameters and
    D that in the shift, the shift moves by (u_i + G (influence of the parameters)) / D. The unaware price gets a
    shift of its own.

    A strength that was given is left as it is: then the fit is exactly what was asked for.
    """
    problem = fit.problem
    if fit.posterior is None:
        return fit
    assert base.moments is not None
    influence, first, size = fit.influence, fit.influence.first, fit.B.size
    learned, model = base.moments.propensity, None
    if posterior is None and learned.latent is not None and learned.parameters is not None:
        model = GroupPosterior(learned.latent, learned.parameters)
    own = _Imbalance(fit, posterior or model or learned)
    shift = balance_shift(problem.family, problem.rows, own.predictor, own.weights)
    B = fit.B + shift * np.eye(len(fit.B))[:, :1]
    own = replace(own, B=B)
    some = problem.rows.spaced(_SLOPE_ROWS)
    factor = len(problem.rows) / len(some)
    slope, of_B, of_weights = (factor * each for each in some.reduce(own.derivatives, block_rows=2048))
    response = influence.response
    G = np.zeros(len(response))
    G[first : first + size] -= of_B.T.ravel()
    if model is not None:  # its parameters matter for the imbalance alone
        own = replace(own, follow=model.latent.sampled_covariance(model.parameters) @ of_weights)
    else:
        G[: len(of_weights)] += of_weights  # the weights' parameters are the first ones of the fit
    level = np.kron(np.ones(fit.B.shape[1]), np.eye(len(fit.B))[0]) / float(slope)
    moved = response[first : first + size] + np.outer(level, G @ response)
    # the parameters as they were, from which the shares follow, and after them the balanced coefficients
    response = np.block([[response, np.zeros((len(G), 1))], [moved, level[:, None]]])
    gradient = np.hstack([influence.share_gradient, np.zeros((len(fit.shares), size))])
    extended = replace(influence, scores=own.scores, respond=response, first=len(G), share_gradient=gradient)
    unaware = 0.0
    if not _is_canonical(problem.family) or problem.ridge is not None:
        unaware = balance_shift(problem.family, problem.rows, own.unaware_predictor, _ones)
    return replace(fit, B=B, influence=extended, unaware_shift=unaware)


@dataclass(frozen=True)
class _Imbalance:
    """What each row adds to outcomes minus best estimates, and its derivatives."""

    fit: GroupFit
    posterior: Any  # that gives the weights
    B: Array | None = None  # (q, K), after the shift
    follow: Array | None = None  # how the sum moves with the scores of the weights' own model: (parameters,)

    def weights(self, block: Block) -> Array:
        if isinstance(self.posterior, GroupPosterior):  # those who did not report count by what else is known
            return self.posterior.latent.responsibilities(block, self.posterior.parameters)
        found = self.posterior.posterior if isinstance(self.posterior, GroupPropensity) else self.posterior.weights
        return np.asarray(found(block))

    def predictor(self, block: Block) -> Array:
        B = self.fit.B if self.B is None else self.B
        return np.asarray(np.dot(B.T, self.fit.problem.moments.coordinates.matrix(block.X).T).T)

    def unaware_predictor(self, block: Block) -> Array:
        return np.asarray(np.dot(self.fit.problem.moments.coordinates.matrix(block.X), self.fit.problem.unaware))

    def scores(self, block: Block) -> Array:
        mu = self.fit.problem.family.link.mean_of(self.predictor(block))
        follows: Array | float = 0.0
        if self.follow is None:
            weights = self.weights(block)
        else:
            model = self.posterior
            weights, follows = model.latent.responsibilities_and_scores(block, model.parameters, self.follow)
        gap = (self._volumes(block) * weights * (block.y[:, None] - mu)).sum(axis=1)
        return np.concatenate([self.fit.influence.scores(block).T, (gap + follows)[None]]).T

    def derivatives(self, block: Block) -> tuple[Array, ...]:
        """Slope in the shift, in B (q, K), and in the parameters of the weights."""
        link = self.fit.problem.family.link
        eta, w = self.predictor(block), self._volumes(block)
        slope = w * self.weights(block) * link.slope(eta)
        of_weights = np.zeros(0)
        if isinstance(self.posterior, GroupPosterior):
            gap = w * (block.y[:, None] - link.mean_of(eta))
            of_weights = self.posterior.weight_gradient(block, np.ones((len(eta), 1)), gap).sum(axis=0)
        Z = self.fit.problem.moments.coordinates.matrix(block.X)
        return np.asarray(slope.sum()), np.dot(Z.T, slope), of_weights

    def _volumes(self, block: Block) -> Array:
        return np.ones((len(block.y), 1)) if block.weight is None else block.weight[:, None]

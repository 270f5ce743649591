"""The likelihood of the reports when the attribute is latent: one engine for propensities and mixtures.

Row i has a report s_i, features u_i of the propensity q_k(u) = softmax_k(u' gamma_k), and possibly an outcome
with density p(y_i; z_i' b_k, lambda_k) in group k. The log-likelihood is

    sum_i log sum_k T[s_i, k] q_k(u_i) p_k(y_i).

Without the outcome part it fits a propensity through the channel; with it, the mixture of group models. Newton's
method with the observed information is used where that is positive definite; where it is not, the information of
the complete data takes its place (in whole: the EM gradient algorithm of Lange, 1995), so that every step goes up.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections._empirical_bayes import GaussianPenalty
from fairpremium.errors import ConvergenceError
from fairpremium.families import Law, LawTerms
from fairpremium.models import Penalty, Span

_MAX_CHANGE = 3.0  # largest change of a parameter in one step, in its natural unit
SAMPLE_ROWS = 50_000  # rows that give a large problem its starting point
INFORMATION_ROWS = 200_000  # rows of a sample from which the information of all is computed
_LED_ON = 0.3  # of what is left to gain, a step with the information of a sample leaves at most so much
_DISPERSION_ROWS = 5.0  # weight of the prior that holds a group's dispersion near the start, in rows


@dataclass(frozen=True)
class Parameters:
    """Of the propensity, and of the outcome if it takes part."""

    gamma: Array  # (K - 1, features); the first group is the base
    B: Array = field(default_factory=lambda: np.empty((0, 0)))  # (q, K)
    log_dispersion: Array = field(default_factory=lambda: np.empty(0))  # (K,)


@dataclass(frozen=True)
class Latent:
    """A likelihood to be maximised.

    The ridge is a penalty of ridge / 2 * |gamma_kj|^2 on all but the intercepts, in rows, around zero and symmetric
    over groups; it may be one number for each feature. A weak prior holds the log-dispersions at `center_dispersion`,
    if that is given, so that a group of few rows cannot take its own to zero.
    """

    rows: Rows | Stream  # that take part
    T: Array  # (codes, K), P(report given group)
    features: RowFunction  # u: (rows, m); the first column is one
    n_features: int  # m
    ridge: float | Array = 1.0  # or (m,)
    law: Law | None = None  # of the outcome; without it the outcome takes no part
    predictors: RowFunction | None = None  # z for the law's means: (rows, q)
    penalty: Penalty | GaussianPenalty | None = None  # pooling and ridge of B
    common_dispersion: bool = True  # whether all groups share one dispersion
    center_dispersion: float | None = None
    span: Span = field(default_factory=Span)  # of B
    everyone: bool = False  # whether rows without a report take part: their row of T is one for every group

    def takes_part(self, block: Block) -> npt.NDArray[np.bool_]:
        """Tell which rows of a block take part: shape (rows,)."""
        return np.asarray((block.report != len(self.T) - 1) | self.everyone)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.T.shape[1])

    @property
    def n_dispersions(self) -> int:
        """Number of free dispersion parameters."""
        if self.law is None or not self.law.has_dispersion:
            return 0
        return 1 if self.common_dispersion else self.n_groups

    def on(self, rows: Rows | Stream) -> Latent:
        """Return the same likelihood of other rows."""
        return replace(self, rows=rows)

    def log_propensity(self, U: Array, at: Parameters) -> Array:
        """Compute log q_k for rows with features U: shape (rows, K)."""
        return log_softmax(np.dot(at.gamma, U.T).T)

    def _log_channel(self, block: Block) -> Array:
        """Compute log T[s, k]: shape (rows, K)."""
        with np.errstate(divide="ignore"):
            return np.take(np.log(self.T.T), block.report, axis=1).T

    def log_terms(self, block: Block, at: Parameters) -> tuple[Array, Array, Array]:
        """Compute log q_k(u), log T[s, k] and log p_k(y) for the rows of a block: each (rows, K)."""
        log_q = self.log_propensity(self.features(block), at)
        log_t = self._log_channel(block)
        _, terms = self._law_terms(block, at)
        return log_q, log_t, np.zeros_like(log_q) if terms is None else terms.log_density

    def _law_terms(self, block: Block, at: Parameters) -> tuple[Array, LawTerms | None]:
        """Compute z and the law's terms; nothing and None without a law."""
        if self.law is None or self.predictors is None:
            return np.empty((len(block.y), 0)), None
        Z = self.predictors(block)
        return Z, self.law.terms(block.y[:, None], _weights(block), np.dot(at.B.T, Z.T).T, at.log_dispersion)

    def share_sums(self, block: Block, at: Parameters) -> tuple[Array, Array]:
        """Sum w r_k over a block, and its derivative in the parameters: (K,) and (K, parameters).

        r_k = P(D = k given x, y, s) moves by r_k (c_k - sum_l r_l c_l) with the complete-data scores c.
        """
        w, one = _weights(block), np.ones((len(block.y), 1))
        slopes = self.weight_gradient(block, at, one, np.broadcast_to(w, (len(w), self.n_groups)))
        return (w * self.responsibilities(block, at)).sum(axis=0), slopes

    def weight_gradient(self, block: Block, at: Parameters, Z: Array, by_group: Array) -> Array:
        """Sum by_group[i, k] z_i times the derivative of r_k in the parameters: (K columns of Z, parameters)."""
        row = self._row_terms(block, at)
        r, K = row.r, self.n_groups
        found = []
        for k in range(K):
            move = (by_group[:, k] * r[:, k])[:, None] * (np.eye(K)[k] - r)  # (rows, j)
            columns = [np.dot((Z * move[:, [j]]).T, row.U) for j in range(1, K)]
            if row.terms is not None:
                columns += [np.dot((Z * (move * row.terms.d_eta)[:, [j]]).T, row.Z) for j in range(K)]
                if self.n_dispersions:
                    own = np.dot(Z.T, move * row.terms.d_lambda)
                    columns.append(own if self.n_dispersions == K else own.sum(axis=1, keepdims=True))
            found.append(np.concatenate(columns, axis=1))
        return np.concatenate(found)

    def pack(self, at: Parameters) -> Array:
        """Flatten: gamma group by group, B group by group, the free log-dispersions."""
        return np.concatenate([at.gamma.ravel(), at.B.T.ravel(), at.log_dispersion[: self.n_dispersions]])

    def unpack(self, flat: Array) -> Parameters:
        """Undo `pack`."""
        m, K = self.n_features, self.n_groups
        gamma = flat[: (K - 1) * m].reshape(K - 1, m)
        if self.law is None:
            return Parameters(gamma)
        rest = flat[(K - 1) * m :]
        d = self.n_dispersions
        B = (rest[:-d] if d else rest).reshape(K, -1).T
        dispersion = np.broadcast_to(rest[-d:], K).copy() if d else np.zeros(K)
        return Parameters(gamma, B, dispersion)

    def expand(self, at: Parameters) -> tuple[float, Array, Array]:
        """Compute the penalised log-likelihood, its gradient, and the observed information.

        The observed information is that of the complete data minus the missing one (Louis, 1982).
        """
        value, gradient, observed = self.rows.reduce(partial(self._expansion, at=at), block_rows=2048)
        p_value, p_gradient, p_hessian = self._penalty(at, len(self.pack(at)))
        return float(value) - p_value, gradient - p_gradient, observed + p_hessian

    def _complete_information(self, at: Parameters) -> Callable[[], Array]:
        """Return what computes the information of the complete data, which few steps ask for: once, if at all."""

        @functools.cache
        def compute() -> Array:
            complete = self.rows.reduce(partial(self._complete_expansion, at=at), block_rows=2048)[0]
            return np.asarray(complete + self._penalty(at, len(self.pack(at)))[2])

        return compute

    def _expand_without_information(self, at: Parameters) -> tuple[float, Array]:
        """Compute the penalised log-likelihood and its gradient."""
        value, gradient = self.rows.reduce(partial(self._expansion, at=at, information=False), block_rows=2048)
        p_value, p_gradient, _ = self._penalty(at, len(self.pack(at)))
        return float(value) - p_value, gradient - p_gradient

    def _expansion(self, block: Block, at: Parameters, information: bool = True) -> tuple[Array, ...]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step too far is not taken
            row = self._row_terms(block, at)
            found = np.array(row.log_likelihood.sum()), self._score_sums(row)
            return (*found, self._information(row)) if information else found

    def _complete_expansion(self, block: Block, at: Parameters) -> tuple[Array]:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return (self._information(self._row_terms(block, at), observed=False),)

    def value(self, at: Parameters) -> float:
        """Compute the penalised log-likelihood."""
        total = float(self.rows.reduce(partial(self._log_likelihood, at=at), block_rows=8192)[0])
        return total - self._penalty(at, len(self.pack(at)))[0]

    def _log_likelihood(self, block: Block, at: Parameters) -> tuple[Array, ...]:
        return (np.array(log_sum_exp(np.add.reduce(self.log_terms(block, at))).sum()),)

    def scores(self, block: Block, at: Parameters) -> Array:
        """Compute each row's gradient of its log-likelihood: shape (rows, parameters)."""
        return self._scores(self._row_terms(block, at))

    def responsibilities(self, block: Block, at: Parameters) -> Array:
        """Compute P(D = k given x, y, s) for the rows of a block: shape (rows, K)."""
        joint = np.add.reduce(self.log_terms(block, at))
        return np.asarray(np.exp(joint - log_sum_exp(joint)[:, None]))

    def responsibilities_and_scores(self, block: Block, at: Parameters, along: Array) -> tuple[Array, Array]:
        """Compute P(D = k given x, s) without a law, and the scores' products with a vector: (rows, K) and (rows,)."""
        row = self._row_terms(block, at)
        moves = np.dot(along.reshape(self.n_groups - 1, -1), row.U.T)  # (K - 1, rows)
        return row.r, ((row.r - row.q).T[1:] * moves).sum(axis=0)

    def report_log_loss(self, block: Block, at: Parameters) -> Array:
        """Compute -log P(s given x, y) for the rows of a block."""
        log_q, log_t, log_p = self.log_terms(block, at)
        return np.asarray(log_sum_exp(log_q + log_p) - log_sum_exp(log_q + log_t + log_p))

    def held_out_report_loss(self, at: Parameters, fold: npt.NDArray[np.integer[Any]]) -> float:
        """Compute the mean of -log P(s given x, y), each row's by parameters that were found without its fold.

        `at` is a maximum. One of Newton's steps leaves a fold out, which is exact up to squares of what it moves.
        """
        rows = self.rows
        assert isinstance(rows, Rows)
        _, gradient, observed = self.expand(at)
        complete = self._complete_information(at)
        total, span = 0.0, self._whole_span(at)
        for f in np.unique(fold):
            held = rows.take(fold == f)
            own = held.reduce(partial(self._expansion, at=at, information=False))[1]
            left = 1 - len(held) / len(rows)
            step = _ascent(span, (gradient - own) / left, observed, complete)
            without = self.unpack(self.pack(at) + step)
            total += float(self.report_log_loss(held.block(0, len(held)), without).sum())
        return total / len(rows)

    def _sampled_information(self, at: Parameters, size: int = INFORMATION_ROWS) -> tuple[Array, Callable[[], Array]]:
        """Compute the observed information, and what computes the complete one, from some rows, which speak for all."""
        some = self.on(self.rows.spaced(size))
        part = len(some.rows) / len(self.rows)
        complete = some._complete_information(at)
        return some.expand(at)[2] / part, lambda: complete() / part

    def sampled_covariance(self, at: Parameters) -> Array:
        """Invert the observed information of some rows, where that is exact enough: shape (parameters, parameters)."""
        return self._whole_span(at).inverse(self._sampled_information(at)[0])

    def covariance(self, at: Parameters) -> Array:
        """Invert the observed information: shape (parameters, parameters)."""
        return self._whole_span(at).inverse(self.expand(at)[2])

    def step(self, at: Parameters, gradient: Array) -> Array:
        """Compute how the maximum moves with the gradient; a LinAlgError says that there is none."""
        span = self._whole_span(at)
        factor = cho_factor(span.restrict(self.expand(at)[2]))
        return span.extend(np.asarray(cho_solve(factor, span.restrict(gradient))))

    def _whole_span(self, at: Parameters) -> Span:
        """The span of all parameters."""
        return Span() if self.law is None else self.span.between(at.gamma.size, self.n_dispersions)

    def dimension(self, at: Parameters) -> int:
        """Number of free parameters."""
        return self._whole_span(at).dimension(len(self.pack(at)))

    def maximise(self, start: Parameters, *, max_iter: int = 200, tol: float = 1e-6) -> Parameters:
        """Climb from a start to a maximum, or raise a ConvergenceError if `max_iter` passes were not enough.

        Many rows are climbed with the information of a sample, and propensities with that of an earlier step, as long
        as its steps lead on: a pass for the gradient alone is many times cheaper.
        """
        return self._with_features_at_hand()._climb(start, max_iter, tol)

    def _with_features_at_hand(self) -> Latent:
        """Return the same likelihood with features that are computed once, if they take little memory."""
        if self.law is not None or not isinstance(self.rows, Rows) or len(self.rows) > SAMPLE_ROWS:
            return self
        return replace(self, rows=replace(self.rows, X=self.rows.map(self.features)), features=_columns)

    def _climb(self, start: Parameters, max_iter: int, tol: float) -> Parameters:
        at, flat, span = start, self.pack(start), self._whole_span(start)
        size = INFORMATION_ROWS if len(self.rows) > 4 * INFORMATION_ROWS else SAMPLE_ROWS
        is_large = len(self.rows) >= 4 * size
        keeps = is_large or self.law is None  # whether the information is kept
        if is_large:
            observed, complete = self._sampled_information(at, size)
            value, gradient = self._expand_without_information(at)
        else:
            value, gradient, observed = self.expand(at)
            complete = self._complete_information(at)
        if not _finite(value, gradient, observed):
            raise ConvergenceError("The likelihood of the reports is not finite at its start.")
        last = np.inf
        for _ in range(max_iter):
            step = _ascent(span, gradient, observed, complete)
            gain = float(gradient @ step)
            if gain <= 2 * tol**2 * len(self.rows):
                return at if is_large or not keeps else self._newton(at)  # as exact as if it had been Newton's method
            if keeps and gain > _LED_ON * last:  # the information is that of too few rows, or of another place
                value, gradient, observed = self.expand(at)
                complete = self._complete_information(at)
                last = np.inf
                continue
            step *= min(1.0, _MAX_CHANGE / float(np.abs(step / self._units(at, len(flat))).max()))
            for _halving in range(30):
                trial = self.unpack(flat + step)
                new = (*self._expand_without_information(trial), observed) if keeps else self.expand(trial)
                if _finite(*new) and new[0] >= value - 1e-10 * abs(value):
                    break
                step /= 2
            else:
                if gain <= 1e-6 * len(self.rows):
                    return at  # rounding forbids to go higher
                break
            flat, at, last = flat + step, trial, gain
            value, gradient, observed = new
            if not keeps:
                complete = self._complete_information(at)
        raise ConvergenceError(f"The likelihood of the reports did not converge in {max_iter} passes.")

    def _newton(self, at: Parameters) -> Parameters:
        """Take one of Newton's steps, from near a maximum."""
        _, gradient, observed = self.expand(at)
        step = _ascent(self._whole_span(at), gradient, observed, self._complete_information(at))
        return self.unpack(self.pack(at) + step)

    def _units(self, at: Parameters, size: int) -> Array:
        """Natural scale of each parameter: the coefficients B of a normal law are in units of the outcome."""
        units = np.ones(size)
        if self.law is not None:
            first = at.gamma.size
            units[first : first + at.B.size] = self.law.unit(at.log_dispersion)
        return units

    def _row_terms(self, block: Block, at: Parameters) -> _RowTerms:
        U = self.features(block)
        log_q = self.log_propensity(U, at)
        joint = log_q + self._log_channel(block)
        Z, terms = self._law_terms(block, at)
        if terms is not None:
            joint = joint + terms.log_density
        log_likelihood = log_sum_exp(joint)
        return _RowTerms(U, Z, np.exp(log_q), np.exp(joint - log_likelihood[:, None]), log_likelihood, terms)

    def _scores(self, row: _RowTerms) -> Array:
        K = row.r.shape[1]
        columns = [row_products((row.r - row.q)[:, 1:], row.U)]
        if row.terms is not None:
            columns.append(row_products(row.r * row.terms.d_eta, row.Z))
            if self.n_dispersions:
                by_group = row.r * row.terms.d_lambda
                columns.append(by_group if self.n_dispersions == K else by_group.sum(axis=1, keepdims=True))
        return np.concatenate(columns, axis=1)

    def _score_sums(self, row: _RowTerms) -> Array:
        """Sum the scores of a block."""
        sums = [np.dot((row.r - row.q)[:, 1:].T, row.U)]
        if row.terms is not None:
            sums.append(np.dot((row.r * row.terms.d_eta).T, row.Z))
            if self.n_dispersions:
                by_group = (row.r * row.terms.d_lambda).sum(axis=0)
                sums.append(by_group if self.n_dispersions == self.n_groups else by_group.sum(keepdims=True))
        return np.concatenate([one.ravel() for one in sums])

    def _information(self, row: _RowTerms, *, observed: bool = True) -> Array:
        """Sum the information of the complete data over the rows of a block; if `observed`, less what is missing."""
        K = self.n_groups
        m, U, q, r = self.n_features, row.U, row.q, row.r
        g = (K - 1) * m
        size_z = K * row.Z.shape[1]
        d = K if self.n_dispersions else 0
        found = np.zeros((g + size_z + d, g + size_z + d))  # the upper triangle

        def cov(p: Array, j: int, k: int) -> Array:
            return (p[:, j] if j == k else 0.0) - p[:, j] * p[:, k]

        for j in range(1, K):
            for k in range(j, K):
                weight = cov(q, j, k) - cov(r, j, k) if observed else cov(q, j, k)
                found[(j - 1) * m : j * m, (k - 1) * m : k * m] = np.dot(U.T * weight, U)
        if row.terms is not None:
            Z, t = row.Z, row.terms
            width = Z.shape[1]
            for k in range(K):
                cols = slice(g + k * width, g + (k + 1) * width)
                own = -r[:, k] * t.d_eta_eta[:, k]
                if observed:
                    for j in range(1, K):
                        found[(j - 1) * m : j * m, cols] = -np.dot(U.T * (cov(r, j, k) * t.d_eta[:, k]), Z)
                    for j in range(k):
                        weight = cov(r, j, k) * t.d_eta[:, j] * t.d_eta[:, k]
                        found[g + j * width : g + (j + 1) * width, cols] = -np.dot(Z.T * weight, Z)
                    own -= cov(r, k, k) * t.d_eta[:, k] ** 2
                found[cols, cols] = np.dot(Z.T * own, Z)
            for k in range(d):
                at_k = g + size_z + k
                own, alone = -r[:, k] * t.d_eta_lambda[:, k], -r[:, k] * t.d_lambda_lambda[:, k]
                if observed:
                    for j in range(1, K):
                        found[(j - 1) * m : j * m, at_k] = -np.dot(U.T, cov(r, j, k) * t.d_lambda[:, k])
                    for j in range(K):
                        weight = cov(r, j, k) * t.d_lambda[:, k]
                        found[g + j * width : g + (j + 1) * width, at_k] = -np.dot(Z.T, weight * t.d_eta[:, j])
                        found[g + size_z + j, at_k] = -(weight * t.d_lambda[:, j]).sum()
                found[g + k * width : g + (k + 1) * width, at_k] += np.dot(Z.T, own)
                found[at_k, at_k] += alone.sum()
        found = _symmetric(found)
        if d and self.n_dispersions == 1:
            merge = np.zeros((g + size_z + 1, g + size_z + d))
            merge[: g + size_z, : g + size_z] = np.eye(g + size_z)
            merge[-1, g + size_z :] = 1.0
            found = merge @ found @ merge.T
        return found

    def _penalty(self, at: Parameters, size: int) -> tuple[float, Array, Array]:
        """Value, gradient and Hessian of the penalties; gamma's is symmetric over groups, the base included."""
        m, K = self.n_features, self.n_groups
        gradient, hessian = np.zeros(size), np.zeros((size, size))
        slopes = np.array(at.gamma)
        slopes[:, 0] = 0.0
        centering = np.eye(K - 1) - 1.0 / K
        pull = self.ridge * (centering @ slopes)
        value = 0.5 * float(np.sum(slopes * pull))
        g = (K - 1) * m
        gradient[:g] = pull.ravel()
        hessian[:g, :g] = np.kron(centering, np.diag(self.ridge * (np.arange(m) > 0)))
        if self.penalty is not None:
            cut = slice(g, g + at.B.size)
            value += self.penalty.value(at.B)
            gradient[cut] = self.penalty.gradient(at.B).T.ravel()
            hessian[cut, cut] = self.penalty.hessian(K)
        d = self.n_dispersions
        if d and self.center_dispersion is not None:
            gap = at.log_dispersion[:d] - self.center_dispersion
            value += 0.5 * _DISPERSION_ROWS * float(gap @ gap)
            gradient[-d:] = _DISPERSION_ROWS * gap
            hessian[-d:, -d:] += _DISPERSION_ROWS * np.eye(d)
        return value, gradient, hessian


@dataclass(frozen=True)
class _RowTerms:
    U: Array
    Z: Array
    q: Array
    r: Array
    log_likelihood: Array
    terms: LawTerms | None


def log_sum_exp(values: Array) -> Array:
    """Compute log sum_k exp(values[:, k]) for each row, column by column: numpy reduces short rows slowly."""
    columns = values.T
    top = functools.reduce(np.maximum, columns)
    return np.asarray(top + np.log(functools.reduce(np.add, (np.exp(column - top) for column in columns))))


def log_softmax(logits: Array) -> Array:
    """Log-probabilities of K groups from K - 1 logits against the first group."""
    full = np.zeros((logits.shape[1] + 1, len(logits)))  # stored group by group
    full[1:] = logits.T
    full -= log_sum_exp(full.T)
    return full.T


def softmax(logits: Array) -> Array:
    """Probabilities of K groups from K - 1 logits against the first group: (K, rows) from (K - 1, rows)."""
    found = np.zeros((len(logits) + 1, logits.shape[1]))
    found[1:] = logits
    found -= found.max(axis=0)
    np.exp(found, out=found)
    found /= found.sum(axis=0)
    return found


def row_products(values: Array, Z: Array) -> Array:
    """Multiply each row of Z by each value of the row, stored column by column: shape (rows, values times columns)."""
    found = np.empty((values.shape[1], Z.shape[1], len(Z)))
    np.multiply(values.T[:, None, :], Z.T, out=found)
    return found.reshape(-1, len(Z)).T


def _ascent(span: Span, gradient: Array, observed: Array, complete: Callable[[], Array]) -> Array:
    """Newton's step; where the observed information is indefinite, with as much of the missing part as possible."""
    gradient, observed = span.restrict(gradient), span.restrict(observed)
    for fraction in (1.0, 0.97, 0.9, 0.7, 0.0):  # of what is missing
        information = observed if fraction == 1 else fraction * observed + (1 - fraction) * span.restrict(complete())
        try:
            return span.extend(np.asarray(cho_solve(cho_factor(information), gradient)))
        except LinAlgError:
            continue
    # a dispersion far from its estimate can be concave the wrong way: follow the gradient
    return span.extend(np.asarray(gradient / np.maximum(np.abs(np.diag(information)), 1.0)))


def _finite(*values: Array | float) -> bool:
    return all(bool(np.isfinite(value).all()) for value in values)


def _columns(block: Block) -> Array:
    return np.asarray(block.X)


def _weights(block: Block) -> Array:
    return np.ones((len(block.y), 1)) if block.weight is None else block.weight[:, None]


def _symmetric(upper: Array) -> Array:
    return np.asarray(np.triu(upper) + np.triu(upper, 1).T)

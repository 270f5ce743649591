"""The signed risk of K linear predictors, and the Newton method that finds its minimum or raises if there is none.

    R(b_1, ..., b_K) = sum_i sum_k  table[k, s_i] w_i loss(y_i, z_i' b_k)

where table[k, s] is the weight that a row with report s has for group k (the inverse channel for the
paper's estimator, an indicator for the true attribute, ones for the unaware price). Weights may be
negative. Two implementations give the same `Expansion`: squared loss from the moments, without a pass,
and any other family by one pass over the rows.

Signed weights make the risk non-convex in a finite sample, and for most families even unbounded below far
away from the data. The estimator is the local minimum that descends from the unaware price. The
solver therefore starts there, bounds its steps, checks that the Hessian is positive definite where it
stops, and raises otherwise. It never changes a weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigh, eigvalsh, solve_triangular

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream, count_codes
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Family, Normal
from fairpremium.models._moments import Moments
from fairpremium.models._span import Span

_DEFINITE = 1e-10  # smallest curvature, relative to that of the whole portfolio, that counts as a minimum
_MAX_STEP = 2.0  # largest root mean square change of a linear predictor in one step (log and logit links)
_NEAR = 5e-3  # a Hessian computed within this distance of the minimum, root mean square, counts as the minimum's
_LITTLE = 0.3  # of the tolerance that the last step is expected to leave
_BLOCK_CELLS = 8192 * 20  # numbers in a block, so that it stays in the cache
_WHOLE = Span()
_FAR_AWAY = 30.0  # a linear predictor this far from the unaware one has left every sensible price


@dataclass(frozen=True)
class Expansion:
    """Value, gradient and Hessian of the risk at one point, per group."""

    value: Array  # (K,)
    gradient: Array  # (q, K)
    hessian: Array  # (K, q, q); empty if it was not asked for


class SignedRisk(ABC):
    """The risk of K linear predictors under signed row weights."""

    moments: Moments
    table: Array  # (K, codes)
    family: Family

    @property
    def n_groups(self) -> int:
        """Number of linear predictors."""
        return len(self.table)

    @property
    def q(self) -> int:
        """Number of coefficients of one predictor."""
        return self.moments.q

    @abstractmethod
    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at coefficients B of shape (q, K), for all groups in one pass."""


class SquaredRisk(SignedRisk):
    """Half the squared error; a quadratic function, so that one expansion is exact everywhere."""

    def __init__(self, moments: Moments, table: Array):
        self.moments, self.table, self.family = moments, table, Normal()
        q = moments.q
        weighted = np.einsum("ks,sij->kij", table, moments.by_report)
        self._gram = weighted[:, :q, :q]  # (K, q, q)
        self._cross = weighted[:, :q, q]  # (K, q)
        self._square = weighted[:, q, q]  # (K,)

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        b = np.array(B.T, dtype=np.float64)  # (K, q)
        b[:, 0] -= self.moments.y_center  # the moments hold y - y_center
        product = np.einsum("kij,kj->ki", self._gram, b)
        value = 0.5 * (self._square + np.einsum("ki,ki->k", b, product - 2 * self._cross))
        return Expansion(value, (product - self._cross).T, self._gram)


class GlmRisk(SignedRisk):
    """Half the deviance of any family, summed over the rows."""

    def __init__(self, rows: Rows | Stream, moments: Moments, table: Array, family: Family):
        self.rows, self.moments, self.table, self.family = rows, moments, table, family
        self.coordinates = moments.coordinates

    def row_weights(self, block: Block) -> Array:
        """Compute table[k, s_i] w_i, or the rows' own shares times w_i, for each group: shape (K, rows)."""
        weights = np.take(self.table, block.report, axis=1) if block.share is None else block.share.T
        return weights if block.weight is None else weights * block.weight

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        A = self.coordinates.from_features
        value, gradient, second = self._reduce(partial(self._expansion, b=A.T @ B, hessian=hessian))
        return Expansion(value, A @ gradient, A @ second @ A.T)

    def _reduce(self, function: Callable[[Block], tuple[Array, ...]]) -> tuple[Array, ...]:
        return self.rows.reduce(function, block_rows=int(np.clip(_BLOCK_CELLS // self.q, 512, 8192)))

    def _expansion(self, block: Block, b: Array, hessian: bool) -> tuple[Array, ...]:
        """Sum over a block; b and the results belong to (1, features), see `Coordinates.features`."""
        X = self.coordinates.features(block.X)
        a = self.row_weights(block)  # (K, rows), like all that follows: operations on few long vectors are fast
        loss, slope, curvature = self.family.loss_terms(block.y, np.dot(b[1:].T, X.T) + b[0, :, None])
        second = np.empty((self.n_groups if hessian else 0, self.q, self.q))
        if hessian:
            for k, bent in enumerate(a * curvature):
                second[k] = _second_moments(X, bent)
        steep = a * slope
        return np.vecdot(a, loss), np.vstack([steep.sum(axis=1), np.dot(X.T, steep.T)]), second


class UnawareRisk(GlmRisk):
    """The risk of one price for all, which counts every row: with its Hessian it collects all sums by report."""

    by_report: ReportSums | None = None  # at the last point where the Hessian was computed

    def __init__(self, rows: Rows | Stream, moments: Moments, family: Family):
        super().__init__(rows, moments, np.ones((1, len(moments.counts))), family)

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        if not hessian:
            return super().expand(B, hessian=False)
        A = self.coordinates.from_features
        sums = self._reduce(partial(self._by_report, b=A.T @ B))
        found = Expansion(sums[0], A @ sums[1], A @ sums[2] @ A.T)
        self.by_report = ReportSums(B, found)
        return self.by_report.combine(self.table)

    def _by_report(self, block: Block, b: Array) -> tuple[Array, ...]:
        """Sum over a block, for each report; its rows are put together first."""
        codes, q = self.table.shape[1], self.q
        order = np.argsort(block.report.astype(np.uint16 if codes <= 2**16 else np.int64), kind="stable")
        ends = np.cumsum(count_codes(block.report, codes))
        X = self.coordinates.features(np.take(block.X, order, axis=0))
        w = np.ones(len(X)) if block.weight is None else block.weight[order]
        terms = self.family.loss_terms(block.y[order], np.dot(X, b[1:, 0]) + b[0, 0])
        value, gradient, second = np.zeros(codes), np.zeros((q, codes)), np.zeros((codes, q, q))
        loss, slope, curvature = (w * each for each in terms)
        for s, (start, stop) in enumerate(zip(np.append(0, ends), ends, strict=False)):
            own = slice(start, stop)
            if stop > start:
                value[s], gradient[0, s], gradient[1:, s] = (
                    loss[own].sum(),
                    slope[own].sum(),
                    np.dot(slope[own], X[own]),
                )
                second[s] = _second_moments(X[own], curvature[own])
        return value, gradient, second


def _second_moments(X: Array, weight: Array) -> Array:
    """Sum weight (1, x)(1, x)' over rows."""
    q = 1 + X.shape[1]
    found = np.empty((q, q))
    found[0, 0] = weight.sum()
    found[0, 1:] = found[1:, 0] = np.dot(weight, X)
    found[1:, 1:] = np.dot(X.T * weight, X)
    return found


@dataclass(frozen=True)
class ReportSums:
    """The loss of one price for all around a point, by report: whatever a table says, no row is needed again."""

    at: Array  # (q, 1)
    expansion: Expansion  # of each report: (codes,), (q, codes), (codes, q, q)

    def combine(self, table: Array) -> Expansion:
        """Expand the risk of a table where all groups have the price."""
        own = self.expansion
        return Expansion(table @ own.value, own.gradient @ table.T, np.tensordot(table, own.hessian, 1))


class SampleRisk(SignedRisk):
    """The risk of some rows in place of that of all rows.

    With `sums`, the `ReportSums` of all rows, a quadratic function is added that makes gradient and Hessian agree with
    those of all rows where every group has the price of `sums`. What chance does to the sample is then left in the
    third order of the groups' deviations from it, so that the minimum is far closer to that of all rows.
    """

    def __init__(self, some: SignedRisk, part: float, sums: ReportSums | None):
        self.some, self.part = some, part
        self.moments, self.table, self.family = some.moments, some.table, some.family
        q, K = some.q, some.n_groups
        self._at, self._gradient, self._hessian = np.zeros((q, 1)), np.zeros((q, K)), np.zeros((K, q, q))
        if sums is not None:
            own, everyone = some.expand(np.repeat(sums.at, K, axis=1)), sums.combine(some.table)
            self._at, self._gradient = sums.at, everyone.gradient - own.gradient / part
            self._hessian = everyone.hessian - own.hessian / part

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        own, move = self.some.expand(B, hessian=hessian), B - self._at
        bent = np.einsum("kij,jk->ik", self._hessian, move)
        value = own.value / self.part + np.einsum("ik,ik->k", self._gradient + 0.5 * bent, move)
        second = own.hessian / self.part + self._hessian if hessian else own.hessian
        return Expansion(value, own.gradient / self.part + self._gradient + bent, second)


def make_risk(rows: Rows | Stream, moments: Moments, table: Array, family: Family) -> SignedRisk:
    """Choose the implementation: squared loss needs the moments alone."""
    if isinstance(family, Normal):
        return SquaredRisk(moments, table)
    return GlmRisk(rows, moments, table, family)


# --- its minimum -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Penalty:
    """Ridge and partial pooling.

    Adds  strength / 2 * sum_k |b_k - mean(b)|^2_metric  +  1/2 * sum_k b_k' ridge b_k  to the risk, where
    |d|^2_metric = d' metric d is the mean square of the deviation z'd over the portfolio, weighted by the
    curvature of the loss, so that a strength counts in rows.
    """

    metric: Array  # (q, q), positive definite
    strength: float = 0.0
    ridge: Array | None = None  # (q, q)

    def scaled(self, by: float) -> Penalty:
        """Return the penalty for a risk that was multiplied by a number."""
        return Penalty(self.metric * by, self.strength, None if self.ridge is None else self.ridge * by)

    def value(self, B: Array) -> float:
        """Compute the penalty at B of shape (q, K)."""
        deviation = B - B.mean(axis=1, keepdims=True)
        value = 0.5 * self.strength * float(np.sum(deviation * (self.metric @ deviation)))
        return value if self.ridge is None else value + 0.5 * float(np.sum(B * (self.ridge @ B)))

    def gradient(self, B: Array) -> Array:
        """Compute the gradient of the penalty, shape (q, K)."""
        gradient = self.strength * (self.metric @ (B - B.mean(axis=1, keepdims=True)))
        return np.asarray(gradient if self.ridge is None else gradient + self.ridge @ B)

    def hessian(self, groups: int) -> Array:
        """Compute the Hessian of the penalty, shape (K q, K q), groups outermost."""
        centering = np.eye(groups) - 1.0 / groups
        hessian = self.strength * np.kron(centering, self.metric)
        return np.asarray(hessian if self.ridge is None else hessian + np.kron(np.eye(groups), self.ridge))


@dataclass(frozen=True)
class Minimum:
    """Where the solver stopped."""

    B: Array  # (q, K)
    risk: SignedRisk
    penalty: Penalty
    known: Array | None = None  # the Hessian, if it was computed on the way

    @cached_property
    def hessian(self) -> Array:
        """Hessian of risk plus penalty, shape (K q, K q): a pass over the rows if it is not known."""
        return joint_hessian(self.risk.expand(self.B), self.penalty) if self.known is None else self.known


def joint_hessian(expansion: Expansion, penalty: Penalty) -> Array:
    """Assemble the Hessian of risk plus penalty for all groups, shape (K q, K q)."""
    blocks = expansion.hessian
    K, q = blocks.shape[:2]
    joint = penalty.hessian(K)
    for k in range(K):
        joint[k * q : (k + 1) * q, k * q : (k + 1) * q] += blocks[k]
    return joint


def smallest_curvature(joint: Array, metric: Array, total_weight: float) -> float:
    """Compute the smallest eigenvalue of a Hessian relative to the portfolio's curvature, of the same shape."""
    return float(eigvalsh(_whiten(joint, _root(metric)), subset_by_index=[0, 0])[0]) / total_weight


def minimise(
    risk: SignedRisk,
    penalty: Penalty,
    start: Array,
    groups: tuple[object, ...],
    *,
    span: Span = _WHOLE,
    max_iter: int = 100,
    tol: float = 1e-7,
    hessian: Array | None = None,
    exact: bool = True,
) -> Minimum:
    """Minimise risk plus penalty from a start of shape (q, K): the unaware price in every column, or a nearby solution.

    It stops when a step changes the linear predictors by less than `tol`, root mean square, relative to their own
    size; `groups` are labels for messages. The coefficients stay in the `span`, where the start is.

    `hessian` is about the one at the start: that of a sample, where passes are long. It gives the first steps, which
    correct it. The last step then is the one that is expected to leave a third of `tol`, if the next one is shorter by
    the same factor. The Hessian of the minimum is computed all the same, unless it need not be `exact`: steps that
    shrink by the factor 0.2 say that the one of all rows, H, is close (I - hessian^-1 H has a norm of about 0.2), and
    definite as well.

    Raises
    ------
    RiskUnboundedError
        There is no minimum near the start.
    ConvergenceError
        `max_iter` passes were not enough.
    """
    total = risk.moments.total_weight
    metric = span.restrict(np.asarray(np.kron(np.eye(risk.n_groups), penalty.metric), dtype=np.float64))
    quadratic = isinstance(risk.family, Normal)
    B, damping, last = np.array(start), 1.0, np.inf
    expansion = risk.expand(B, hessian=hessian is None)
    joint_at: Array | None = None  # where the Hessian was computed; None: on other rows
    if hessian is None:
        joint, joint_at = joint_hessian(expansion, penalty), B
    else:
        joint = hessian
    value = float(expansion.value.sum()) + penalty.value(B)
    for _ in range(max_iter):
        gradient = expansion.gradient + penalty.gradient(B)
        step, definite = _step(span, joint, gradient, metric, total)
        if quadratic and not definite:
            raise _unbounded(risk, start, penalty, groups)
        length, size = _rms(step, risk), 1.0 + _rms(B, risk)
        expected = length**2 / last if hessian is not None and np.isfinite(last) else length  # to be left, at most
        if length <= tol * size or expected <= _LITTLE * tol * size:
            known: Array | None = joint
            if joint_at is None and not exact and np.isfinite(last):
                known = None
            elif joint_at is None or (not quadratic and _rms(B - joint_at, risk) > _NEAR):
                expansion = risk.expand(B)
                joint = known = joint_hessian(expansion, penalty)
                step, _ = _step(span, joint, expansion.gradient + penalty.gradient(B), metric, total)
            if not smallest_curvature(span.restrict(joint), metric, total) > _DEFINITE:
                raise _unbounded(risk, start, penalty, groups)
            return Minimum(B + step, risk, penalty, known)
        if not quadratic:
            step *= damping * min(1.0, _MAX_STEP / length)
        candidate = B + step
        # one Hessian serves several steps while each is at most a tenth of the one before (of a sample, a fifth); the
        # last one is computed next to the minimum, where it is needed
        if joint_at is None:
            arriving = exact and length <= 20 * _NEAR
        else:
            arriving = length <= 10 * _NEAR < 10 * _rms(candidate - joint_at, risk)
        slow = length > (0.1 if joint_at is not None else 0.2) * last
        refresh = not quadratic and (not definite or slow or arriving)
        trial = risk.expand(candidate, hessian=refresh)
        trial_value = float(trial.value.sum()) + penalty.value(candidate)
        rounding = 1e-12 * max(abs(value), abs(trial_value))
        lower = trial_value <= value + 1e-4 * float(np.sum(gradient * step)) + rounding
        if not lower and joint_at is not B:  # an old Hessian misled us: look again from here
            expansion = risk.expand(B)
            joint, joint_at, last = joint_hessian(expansion, penalty), B, np.inf
            continue
        if not lower:
            damping /= 2
            continue
        B, value, last, damping = candidate, trial_value, length, min(1.0, 4 * damping)
        if joint_at is None:
            joint = _corrected(joint, penalty.hessian(risk.n_groups), step, trial.gradient - expansion.gradient)
        if refresh:
            expansion, last = trial, last if joint_at is not None else np.inf
            joint, joint_at = joint_hessian(trial, penalty), B
        else:
            expansion = Expansion(trial.value, trial.gradient, expansion.hessian)
        if not quadratic and _rms(B - start, risk) > _FAR_AWAY:
            raise _unbounded(risk, start, penalty, groups)
    if not smallest_curvature(span.restrict(joint), metric, total) > _DEFINITE:
        raise _unbounded(risk, start, penalty, groups)
    raise ConvergenceError(
        f"The solver did not converge in {max_iter} passes. Scale extreme features down, or add pooling or ridge."
    )


def _whiten(joint: Array, root: Array) -> Array:
    """Turn to coordinates in which the portfolio's curvature is the identity.

    `root` is the inverse of the lower Cholesky factor of the metric.
    """
    white = root @ joint @ root.T
    return np.asarray((white + white.T) / 2)


def _root(metric: Array) -> Array:
    return np.asarray(solve_triangular(cholesky(metric, lower=True), np.eye(len(metric)), lower=True))


def _step(span: Span, joint: Array, gradient: Array, metric: Array, total: float) -> tuple[Array, bool]:
    """Compute a descent step in the span; where the Hessian is not positive definite, bend it until it is."""
    joint, g = span.restrict(joint), span.restrict(gradient.T.ravel())
    try:
        step, definite = -cho_solve(cho_factor(joint), g), True
    except LinAlgError:
        root = _root(metric)
        values, vectors = eigh(_whiten(joint, root))
        bent = np.maximum(np.abs(values), 1e-3 * total)
        step = -(root.T @ (vectors @ ((vectors.T @ (root @ g)) / bent)))
        definite = False
    return span.extend(step).reshape(gradient.shape[::-1]).T, definite


def _corrected(joint: Array, pull: Array, step: Array, change: Array) -> Array:
    """Correct the Hessian of each group in the direction of its step by how its gradient changed (BFGS).

    `pull` is the Hessian of the penalty, `change` that of the gradient of the risk.
    """
    joint, q = joint.copy(), len(step)
    for k, (s, y) in enumerate(zip(step.T, change.T, strict=True)):
        own = slice(k * q, (k + 1) * q)
        y, Hs = y + pull[own, own] @ s, joint[own, own] @ s
        if y @ s > 0 and s @ Hs > 0:
            joint[own, own] += np.outer(y, y / (y @ s)) - np.outer(Hs, Hs / (s @ Hs))
    return joint


def _rms(B: Array, risk: SignedRisk) -> float:
    """Root mean square of the linear predictors z'b over the portfolio, the largest over groups."""
    gram = risk.moments.gram / risk.moments.total_weight
    return float(np.sqrt(np.maximum(np.einsum("ik,ij,jk->k", B, gram, B), 0).max()))


def _unbounded(risk: SignedRisk, start: Array, penalty: Penalty, groups: tuple[object, ...]) -> RiskUnboundedError:
    """Name the group whose own Hessian at the start is least definite."""
    blocks = risk.expand(start).hessian
    total = risk.moments.total_weight
    curvature = [smallest_curvature(block, penalty.metric, total) for block in blocks]
    k = int(np.argmin(curvature))
    rows = float(risk.moments.effective_rows(risk.table)[k])
    why = f"for {risk.q} coefficients (smallest relative curvature {curvature[k]:.2g})"
    helps = "fewer features, more pooling, or a ridge (model=LinearModel(ridge=...))."
    if has_noise(risk.table):
        message = (
            f"The corrected risk of group {groups[k]!r} has no minimum: after undoing the noise the group is worth "
            f"{rows:,.0f} effective rows, too few {why}. What helps: more data, a less noisy channel, {helps}"
        )
    else:
        message = (
            f"The risk of group {groups[k]!r} has no minimum: its {rows:,.0f} effective rows say too little {why}. "
            f"What helps: more data, {helps}"
        )
    return RiskUnboundedError(message, group=groups[k], effective_rows=rows)


def has_noise(table: Array) -> bool:
    """Tell whether row weights undo some noise: those of the true attribute are zeros and ones."""
    return not bool(np.isin(table, (0.0, 1.0)).all())

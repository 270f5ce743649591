"""What a model class is trained on: fixed row weights, or responsibilities that follow the prices."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._latent import log_softmax, log_sum_exp
from fairpremium.families import Family, Law

_LARGEST_MOVE = 0.5  # of the log-dispersion in one round
_FIRST_ROUNDS = 60  # that use the first weights
_INFORMATION_ROUNDS = 8  # that use the information of the propensity before it is computed again
_PRIOR_ROWS = 1.0  # ridge of the propensity's coefficients


@dataclass(frozen=True)
class WeightedObjective:
    """Rows with fixed weights: true groups (0 or 1), posterior weights (in [0, 1]), T^-1 (signed)."""

    family: Family
    train: Array  # (n, K), volumes included
    y_held: Array  # (m,)
    held: Array  # (m, K)

    @property
    def signed(self) -> bool:
        """Whether a weight is negative."""
        return bool((self.train < 0).any())

    def weights(self, eta: Array) -> Array:
        """Return the weights, whatever the prices."""
        return self.train

    def held_loss(self, eta: Array) -> float:
        """Return the weighted loss per row; for T^-1 weights it is the corrected risk up to a constant."""
        with np.errstate(over="ignore", invalid="ignore"):
            loss = float(np.sum(self.held * self.family.loss_terms(self.y_held[:, None], eta)[0])) / len(eta)
        return loss if np.isfinite(loss) else np.inf


class Propensity:
    """P(D = k given x) as a logit that follows the responsibilities, one step of its M-step a round.

    A step is Newton's with the information of one of the last rounds: prices move little from round to round.
    """

    def __init__(self, gamma: Array):
        self.gamma = gamma.copy()  # (K - 1, m)
        self._inverse: Array = np.empty(0)  # of the information
        self._age = 0  # for how many rounds it has been used

    def log(self, U: Array) -> Array:
        """Compute log q_k for features U: shape (rows, K)."""
        return log_softmax(np.dot(self.gamma, U.T).T)

    def update(self, U: Array, log_q: Array, r: Array) -> None:
        """Move towards the maximum of sum_i sum_k r_ik log q_k(u_i), from log q_k at the present coefficients."""
        q = np.exp(log_q[:, 1:])
        prior = np.full(U.shape[1], _PRIOR_ROWS)
        prior[0] = 0.0
        gradient = (r[:, 1:] - q).T @ U - prior * self.gamma
        if self._age % _INFORMATION_ROUNDS == 0:
            information = self._information(U, q, prior)
            self._inverse = np.asarray(np.linalg.pinv(information, rcond=1e-10, hermitian=True), dtype=np.float64)
        self._age += 1
        step = self._inverse @ gradient.ravel()
        step *= min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-300))
        self.gamma += step.reshape(self.gamma.shape)

    def _information(self, U: Array, q: Array, prior: Array) -> Array:
        m, k = U.shape[1], q.shape[1]
        information = np.zeros((k, m, k, m))
        for a in range(k):
            for b in range(a, k):
                weight = q[:, a] * ((a == b) - q[:, b])
                information[a, :, b, :] = (U * weight[:, None]).T @ U + (a == b) * np.diag(prior)
                information[b, :, a, :] = information[a, :, b, :].T
        return information.reshape(k * m, k * m)


@dataclass
class MixtureObjective:
    """The mixture likelihood of reports and outcomes: weights are P(D = k given x, y, s) under the current prices.

    One round is a step of a generalised EM algorithm: it computes responsibilities (E), moves the dispersion and the
    propensity of x towards their maximum given these (M), and leaves a step of the prices to the model class. The
    held-out loss is minus the log-likelihood of reports and outcomes, -log sum_k T[s, k] q_k(x) p(y; f_k(x)).

    Prices that begin all alike would be told apart by chance: a row far from the others goes to the group that is
    ahead, for good. `first_weights`, the posterior weights (n, K) of a classifier, take the place of the
    responsibilities in the first rounds.
    """

    law: Law
    T: Array  # (codes, K)
    propensity: Propensity
    train: tuple[Rows, Array]
    held: tuple[Rows, Array] | None
    log_dispersion: float | Array  # one number for all groups, or one for each: (K,)
    first_weights: Array | None = None
    round: int = 0
    signed: ClassVar[bool] = False

    def log_joint(self, rows: Rows, log_q: Array, eta: Array) -> Array:
        """Compute log T[s, k] q_k p_k(y): shape (rows, K)."""
        w = np.ones((len(rows), 1)) if rows.weight is None else rows.weight[:, None]
        dispersion = np.broadcast_to(self.log_dispersion, eta.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            joint = log_q + self.law.log_density(rows.y[:, None], w, eta, dispersion)
        with np.errstate(divide="ignore"):
            return np.asarray(joint + np.log(self.T)[rows.report])

    def responsibilities(self, rows: Rows, log_q: Array, eta: Array) -> Array:
        """Compute P(D = k given x, y, s) from log q_k(x): shape (rows, K)."""
        joint = self.log_joint(rows, log_q, eta)
        return np.asarray(np.exp(joint - log_sum_exp(joint)[:, None]))

    def weights(self, eta: Array) -> Array:
        """Do the E-step and the M-step of dispersion and propensity."""
        rows, U = self.train
        follow = self.first_weights is not None and self.round < _FIRST_ROUNDS
        log_q = self.propensity.log(U)
        r = self.first_weights if follow else self.responsibilities(rows, log_q, eta)
        self.round += 1
        assert r is not None
        if self.law.has_dispersion:
            w = np.ones((len(rows), 1)) if rows.weight is None else rows.weight[:, None]
            terms = self.law.terms(rows.y[:, None], w, eta, np.broadcast_to(self.log_dispersion, eta.shape[1]))
            over = None if np.ndim(self.log_dispersion) == 0 else 0  # all groups together, or each alone
            slope, curvature = (np.sum(r * d, axis=over) for d in (terms.d_lambda, terms.d_lambda_lambda))
            move = slope / np.maximum(-curvature, 0.1 * np.sum(r, axis=over))
            self.log_dispersion = self.log_dispersion + np.clip(move, -_LARGEST_MOVE, _LARGEST_MOVE)
        self.propensity.update(U, log_q, r)
        return r if rows.weight is None else r * rows.weight[:, None]

    def held_loss(self, eta: Array) -> float:
        """Return minus the mean log-likelihood of the held-out rows."""
        assert self.held is not None
        rows, U = self.held
        loss = -float(np.mean(log_sum_exp(self.log_joint(rows, self.propensity.log(U), eta))))
        return loss if np.isfinite(loss) else np.inf

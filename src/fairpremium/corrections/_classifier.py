"""P(D given x, y) by any scikit-learn classifier, trained through the channel by EM.

    E step:  r_k proportional to T[s, k] q_k(x, y)
    M step:  fit the classifier to every row K times, as a member of group k with weight r_k

It is used like the built-in logits. A classifier has no score function, so standard errors come from the
inverse-weighted moments of the final fit, T^-1[k, s] w loss'(y, f_k) z, which need no model of q. Of a source that is
read piece by piece it is trained on evenly spaced rows; its predictions are made for all.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows
from fairpremium.corrections._fit import GroupFit, table_fit
from fairpremium.corrections._posterior import weighted_prices
from fairpremium.corrections._propensity import OutcomeFeatures, reported_rows, with_missing_row
from fairpremium.models import LinearProblem

_PASSES = 12
_TRAIN_ROWS = 100_000  # at least so many rows of a source, and less than twice as many


@dataclass(frozen=True)
class ClassifierFeatures:
    """The classifier's columns: features, standardised residual of the outcome, volume."""

    residual: OutcomeFeatures

    def __call__(self, block: Block) -> Array:
        """Compute them for the rows of a block."""
        e, _, Z = self.residual.residual(block)
        columns = [Z[:, 1:], e[:, None] / self.residual.knots[-1]]
        return np.column_stack(columns if block.weight is None else [*columns, block.weight])


@dataclass(frozen=True)
class FittedClassifier:
    """A classifier of the groups that was trained on reports."""

    classifier: Any  # fitted, with `predict_proba` over the codes of the groups
    features: RowFunction  # see `ClassifierFeatures`
    T: Array  # (codes, K), P(report given group), with a row of ones for a missing report
    everyone: bool = False  # whether rows without a report take part

    def propensity(self, block: Block) -> Array:
        """Compute P(D = k given x, y): shape (rows, K)."""
        found = self.classifier.predict_proba(self.features(block))
        q = np.full((len(found), self.T.shape[1]), 1e-12)
        q[:, np.asarray(self.classifier.classes_, dtype=int)] = np.maximum(found, 1e-12)
        return np.asarray(q / q.sum(axis=1, keepdims=True))

    def weights(self, block: Block) -> Array:
        """Compute P(D = k given x, y, s), zero for rows that do not take part."""
        joint = self.propensity(block) * self.T[block.report]
        taking = (block.report != len(self.T) - 1) | self.everyone
        return np.asarray(joint / joint.sum(axis=1, keepdims=True) * taking[:, None])

    def report_log_loss(self, block: Block) -> Array:
        """Compute -log P(s given x, y)."""
        return np.asarray(-np.log((self.propensity(block) * self.T[block.report]).sum(axis=1)))


def train_classifier(classifier: Any, problem: LinearProblem, matrix: Array) -> FittedClassifier:
    """Train a scikit-learn classifier, which is cloned, on the problem's rows that reported; `matrix` is T."""
    every = reported_rows(problem, len(matrix))
    rows = every if isinstance(every, Rows) else every.spaced(_TRAIN_ROWS)
    T = with_missing_row(matrix)
    features = ClassifierFeatures(OutcomeFeatures.learn(problem, every, spline=False, products=False))
    block = rows.block(0, len(rows))
    n, K = len(rows), T.shape[1]
    U = np.tile(features(block), (K, 1))
    target = np.repeat(np.arange(K), n)
    r = T[block.report] / T[block.report].sum(axis=1, keepdims=True)
    fitted = FittedClassifier(None, features, T)
    for _ in range(_PASSES):
        model = clone(classifier).fit(U, target, sample_weight=r.T.ravel())
        fitted = replace(fitted, classifier=model)
        r = fitted.weights(block)
    return fitted


def classifier_fit(problem: LinearProblem, fitted: FittedClassifier, base: GroupFit, pooling: float | None) -> GroupFit:
    """Fit all groups with a classifier's posterior weights; see `posterior_fit`."""
    prices = weighted_prices(problem, fitted.weights, base, pooling)
    return table_fit(problem, "posterior", base.channel, prices.B, prices.response, pooling, prices.posterior)

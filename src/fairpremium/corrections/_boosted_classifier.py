"""P(D given x, y) by boosted trees that learn from the reports through the channel.

Where the logits of `_propensity` have to be told how the features work together with the outcome, trees find out. The
loss is that of the reports, -log sum_k T[s, k] q_k(x, y); its gradient in the score of group k is q_k - r_k with the
responsibility r_k = T[s, k] q_k / sum_l T[s, l] q_l, and q_k (1 - q_k) bounds its curvature.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from fairpremium.arrays import Array
from fairpremium.models._boosted import boost
from fairpremium.models._settings import check_learning_rate, check_not_negative, check_whole


class BoostedClassifier(BaseEstimator):  # type: ignore[misc]
    """Boosted trees for `DiscriminationFreePricer(classifier=...)`, trained on reports rather than on groups.

    Parameters
    ----------
    max_rounds, patience : int
        Largest number of rounds, and how many without progress on held-out reports end training.
    learning_rate : float
    num_leaves : int
    min_leaf : float
        Smallest curvature q (1 - q) of a leaf, in rows.
    """

    def __init__(
        self,
        max_rounds: int = 300,
        patience: int = 20,
        learning_rate: float = 0.1,
        num_leaves: int = 8,
        min_leaf: float = 5.0,
    ):
        self.max_rounds = max_rounds
        self.patience = patience
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.min_leaf = min_leaf

    def check(self) -> None:
        """Raise if a setting is out of range."""
        check_whole(self, max_rounds=1, patience=1, num_leaves=2)
        check_not_negative(self, "min_leaf")
        check_learning_rate(self)

    def fit_reports(self, U: Array, report: npt.NDArray[Any], T: Array) -> BoostedClassifier:
        """Train on features U (n, m) and report codes; T holds P(report given group), one row per code."""
        self.check()
        held = np.arange(len(U)) % 5 == 4
        order = np.random.default_rng(0).permutation(len(U))
        t, h = order[~held], order[held]
        K = T.shape[1]
        counts = np.bincount(report, minlength=len(T))[: len(T)] / len(report)
        shares = np.maximum(np.linalg.lstsq(T[:-1], counts[:-1], rcond=None)[0], 0.02)
        self._base = np.log(shares / shares.sum())

        def train(index: npt.NDArray[Any], rounds: int, judge: Any) -> tuple[Any, int]:
            def slopes(scores: Array) -> tuple[Array, Array]:
                q = self._probabilities(scores)
                joint = q * T[report[index]]
                return q - joint / joint.sum(axis=1, keepdims=True), q * (1 - q)

            settings = {
                "learning_rate": self.learning_rate,
                "num_leaves": self.num_leaves,
                "min_sum_hessian_in_leaf": self.min_leaf,
                "lambda_l2": 1.0,
                "seed": 0,
            }
            return boost(U[index], slopes, K, settings, [], rounds=rounds, held=judge, patience=self.patience)

        def loss(scores: Array) -> float:
            return -float(np.mean(np.log((self._probabilities(scores) * T[report[h]]).sum(axis=1))))

        _, self.rounds_ = train(t, self.max_rounds, (U[h], loss))
        self._booster, _ = train(np.arange(len(U)), self.rounds_, None)
        self.classes_ = np.arange(K)
        return self

    def predict_proba(self, U: Array) -> Array:
        """Compute P(D = k given x, y): shape (n, K)."""
        if self.rounds_ == 0:
            return self._probabilities(np.zeros((len(U), len(self._base))))
        return self._probabilities(self._booster.predict(U, raw_score=True))

    def _probabilities(self, scores: Array) -> Array:
        logits = scores + self._base
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

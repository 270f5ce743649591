"""Random portfolios for the model tests, drawn without the package's own channel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.families import Family


@dataclass
class Drawn:
    """Rows with what they were drawn from."""

    rows: Rows
    table: np.ndarray  # (K, K + 1), inverse channel with a zero column for the missing report
    groups: np.ndarray  # true D
    K: int

    @property
    def weight(self) -> np.ndarray:
        return np.ones(len(self.rows)) if self.rows.weight is None else self.rows.weight

    @property
    def signed(self) -> np.ndarray:
        """table[k, s_i] w_i, shape (n, K)."""
        return self.table.T[self.rows.report] * self.weight[:, None]

    @property
    def design(self) -> np.ndarray:
        return np.column_stack([np.ones(len(self.rows)), self.rows.X])


def draw_outcome(family: Family, mu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if family.name == "normal":
        return mu + rng.normal(size=mu.shape)
    if family.name == "poisson":
        return rng.poisson(mu).astype(float)
    if family.name == "gamma":
        return rng.gamma(3.0, mu / 3)
    if family.name == "tweedie":
        return rng.gamma(np.maximum(2.0 * rng.poisson(mu), 1e-12), 0.5) * (rng.random(mu.shape) < 0.99)
    return (rng.random(mu.shape) < mu).astype(float)


@pytest.fixture
def draw() -> Callable[..., Drawn]:
    """draw(family, seed, n, K, features, keep, weights, missing): a portfolio with randomized response."""

    def draw(
        family: Family,
        seed: int,
        n: int = 2000,
        K: int = 2,
        features: int = 2,
        keep: float = 0.85,
        weights: bool = True,
        missing: float = 0.1,
    ) -> Drawn:
        rng = np.random.default_rng(seed)
        T = np.full((K, K), (1 - keep) / (K - 1))
        np.fill_diagonal(T, keep)
        X = rng.normal(size=(n, features))
        if features > 1:
            X[:, 1] = rng.random(n) < 0.4
        D = rng.choice(K, size=n, p=np.arange(2, K + 2) / np.arange(2, K + 2).sum())
        eta = -0.3 + 0.3 * D + X @ (0.3 * rng.normal(size=features)) + 0.2 * D * X[:, :1].sum(axis=1)
        y = draw_outcome(family, family.link.mean_of(np.clip(eta, -3, 3)), rng)
        report = (rng.random(n)[:, None] > np.cumsum(T, axis=0).T[D]).sum(axis=1)
        report = np.where(rng.random(n) < missing, K, np.minimum(report, K - 1))
        rows = Rows(
            X,
            y,
            rng.uniform(0.2, 2, n) if weights else None,
            report,
        )
        return Drawn(rows, np.hstack([np.linalg.inv(T), np.zeros((K, 1))]), D, K)

    return draw

"""The two public packages that implement the paper, behind one signature: rows to fit in, prices of other rows out."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairpremium import RandomizedResponse

LDP, FAIRNESS = "insurance-fairness-ldp 0.1.1", "insurance-fairness 1.2.2"


def price_by_peer(
    name: str,
    family: str,
    channel: RandomizedResponse,
    rows: tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray | None],
    fresh: pd.DataFrame,
) -> tuple[np.ndarray | None, np.ndarray]:
    """Fit one of them to rows (X, y, reports, weights); returns mu(x, d), if it has one, and h*(x) of fresh rows.

    They know the true noise. Text columns are one-hot encoded. Families other than the Poisson are fitted by least
    squares, because neither package has them.
    """
    X, y, S, w = rows
    fit = _ldp if name == LDP else _fairness
    return fit(family == "poisson", channel, (_numbers(X, X), y, S, w), _numbers(fresh, X))


def _ldp(counts, channel, rows, fresh):
    from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
    from sklearn.linear_model import LinearRegression, PoissonRegressor

    X, y, S, w = rows
    estimator = PoissonRegressor(alpha=0, max_iter=1000) if counts else LinearRegression()
    mechanism = KaryRandomisedResponse(epsilon=channel.epsilon, categories=list(channel.groups))
    model = LDPDiscriminationFreePrice(base_estimator=estimator, mechanism=mechanism).fit(X, S, y, exposure=w)
    return np.column_stack([model.group_models_[g].predict(fresh) for g in channel.groups]), model.predict(fresh)


def _fairness(counts, channel, rows, fresh):
    from insurance_fairness import PrivatizedFairPricer

    X, y, S, w = rows
    model = PrivatizedFairPricer(
        pi=channel.keep,
        n_groups=len(channel.groups),
        reference_distribution="empirical",
        base_estimator="poisson_glm" if counts else "ridge",
    )
    model.fit(X, y, np.array([channel.groups.index(s) for s in S]), exposure=w)
    return None, model.predict(fresh)


def _numbers(X: pd.DataFrame, like: pd.DataFrame) -> np.ndarray:
    columns = pd.get_dummies(like, drop_first=True).columns
    return pd.get_dummies(X).reindex(columns=columns, fill_value=0).to_numpy(dtype=float)

"""The certificate: its estimate of the level of h* is right if either the best estimates or P(D given x) are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import SimulatedPortfolio, zhang_liu_shi_2025

N = 3000


def portfolio(seed: int) -> SimulatedPortfolio:
    return zhang_liu_shi_2025(n=N, rng=seed, age_band=True)


def certificate(seed: int, features: list[str], keep: float = 0.8, **extra: object) -> tuple[pd.DataFrame, np.ndarray]:
    """Certify a fit on other rows, with the true levels of h* overall and for each answer to the smoking question."""
    train, test = portfolio(seed), portfolio(1000 + seed)
    channel = RandomizedResponse(train.groups, keep=keep)
    pricer = DiscriminationFreePricer(
        channel=channel, correction="inverse", pooling=0.0, reference=train.group_distribution, intervals=False
    )
    pricer.fit(train.X[features], train.y, sensitive=channel.privatize(train.sensitive, rng=seed))
    smoker = test.X["smoker"].to_numpy()
    reports = channel.privatize(test.sensitive, rng=5000 + seed)
    table = pricer.certificate(test.X[features], test.y, sensitive=reports, by=smoker, **extra)
    h = test.discrimination_free(test.X)
    return table, np.array([h.mean(), *(h[smoker == name].mean() for name in sorted(set(smoker), key=str))])


def test_it_covers_the_truth_although_the_best_estimates_are_wrong() -> None:
    """Without the age band the prices miss a jump, but P(D given x) is still good: 20 portfolios, three levels each."""
    gaps, inside = [], []
    for seed in range(20):
        table, truth = certificate(seed, ["age", "smoker"])
        gaps.append((table["level"] - truth) / table["standard_error"])
        inside.append(table["inside"].to_numpy())
    z = np.array(gaps)
    assert (np.abs(z) < 1.96).mean() >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 20)
    assert np.abs(z.mean(axis=0)).max() < 4 / np.sqrt(20)
    assert not np.array(inside)[:, 2].all()  # and it shows that the smokers' premium is wrong


def test_the_columns_and_the_segments() -> None:
    table, _ = certificate(0, ["age", "smoker", "age_20_40"])
    assert table["segment"].tolist() == ["all", False, True]
    assert table.loc[0, "rows"] == N == table.loc[1:, "rows"].sum()
    assert ((table["lower"] < table["level"]) & (table["level"] < table["upper"])).all()
    weighted = (table.loc[1:, "level"] @ table.loc[1:, "volume"]) / table.loc[1:, "volume"].sum()
    assert table.loc[0, "level"] == pytest.approx(weighted)
    narrow, _ = certificate(0, ["age", "smoker", "age_20_40"], level=0.5)
    assert ((narrow["upper"] - narrow["lower"]) < (table["upper"] - table["lower"])).all()


def test_the_true_attribute_and_missing_reports() -> None:
    p = portfolio(3)
    truth = p.discrimination_free(p.X)
    sensitive = p.sensitive.copy()
    sensitive[:300] = None
    pricer = DiscriminationFreePricer(intervals=False).fit(p.X, p.y, sensitive=p.sensitive)
    table = pricer.certificate(p.X, p.y, sensitive=sensitive)
    assert len(table) == 1
    assert abs(table.loc[0, "level"] - truth.mean()) < 4 * table.loc[0, "standard_error"]


def test_segments_that_do_not_fit_are_refused() -> None:
    p = portfolio(4)
    pricer = DiscriminationFreePricer(intervals=False).fit(p.X, p.y, sensitive=p.sensitive)
    with pytest.raises(ValueError, match="Got by='region', but expected a column of X"):
        pricer.certificate(p.X, p.y, sensitive=p.sensitive, by="region")
    with pytest.raises(ValueError, match=r"Got by with shape \(3,\)"):
        pricer.certificate(p.X, p.y, sensitive=p.sensitive, by=[1, 2, 3])
    by_name = pricer.certificate(p.X, p.y, sensitive=p.sensitive, by="smoker")
    assert len(by_name) == 3

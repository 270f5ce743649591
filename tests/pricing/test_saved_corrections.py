"""Whatever correction made the prices, the model file gives them back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025


@pytest.mark.parametrize("correction", ["auto", "inverse", "score", "posterior", "likelihood"])
def test_round_trip(correction, tmp_path):
    portfolio = zhang_liu_shi_2025(n=1000, rng=0, age_band=True)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, correction=correction, random_state=0)
    pricer.fit(portfolio.X, portfolio.y, sensitive=channel.privatize(portfolio.sensitive, rng=0))
    pricer.save(tmp_path / "model.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "model.json")
    assert loaded.correction_ == pricer.correction_
    assert loaded.pooling_ == pricer.pooling_
    pd.testing.assert_frame_equal(loaded.candidates_, pricer.candidates_)
    np.testing.assert_array_equal(loaded.predict(portfolio.X), pricer.predict(portfolio.X))
    np.testing.assert_array_equal(loaded.predict_interval(portfolio.X), pricer.predict_interval(portfolio.X))

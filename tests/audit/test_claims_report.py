"""The audit report of claims: frequency and severity where one model has its family and correction."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse
from fairpremium.audit import render_markdown, render_report, summarize_pricer
from fairpremium.models import LinearModel

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture(scope="module")
def book():
    rng = np.random.default_rng(2)
    n = 2000
    sex, years = rng.choice(["F", "M"], n), rng.uniform(0.5, 1, n)
    X = pd.DataFrame({"age": rng.uniform(20, 70, n), "street": [f"street {i % 300}" for i in range(n)]})
    counts = rng.poisson(years * np.where(sex == "M", 0.9, 0.6))
    return X, counts, rng.gamma(2.0 * counts, 100.0), years, CHANNEL.privatize(sex, rng=3)


def test_claims_are_described_by_their_parts(book):
    X, counts, amounts, years, reports = book
    pricer = FrequencySeverityPricer(channel=CHANNEL, correction="inverse", cap=500.0, random_state=0)
    pricer.fit(X[["age"]], counts, amounts, sensitive=reports, exposure=years)
    summary = summarize_pricer(pricer, X[["age"]], amounts, sensitive=reports, exposure=years)
    assert [part["part"] for part in summary["model"]["parts"]] == ["frequency", "severity"]
    assert summary["model"]["parts"][1]["loading"] == pricer.excess_.loc["all", "loading"] > 1
    means = next(s for s in summary["sections"] if s["id"] == "group_means")["records"]
    assert [row["group"] for row in means] == ["F", "M"]
    assert "group_deviance" in {s["id"] for s in summary["sections"]}  # of amounts with many zeros
    factor = f"{pricer.excess_.loc['all', 'loading']:.4f}"
    for page in (render_report(summary), render_markdown(summary)):
        assert "frequency times severity, fitted on 2,000 policies" in page
        assert "poisson family" in page
        assert "gamma family" in page
        assert f"claims above 500 are spread in proportion to the premium, a factor of {factor}" in page


def test_columns_that_terms_leave_out_play_no_part(book):
    """300 streets are refused as a feature; of prices without them they are nobody's concern."""
    X, counts, _, years, reports = book
    pricer = DiscriminationFreePricer(
        "poisson", model=LinearModel(terms="bands(age, 30, 50)"), channel=CHANNEL, correction="inverse"
    )
    pricer.fit(X, counts, sensitive=reports, exposure=years)
    summary = summarize_pricer(pricer, X, counts, sensitive=reports, exposure=years)
    without = summarize_pricer(pricer, X[["age"]], counts, sensitive=reports, exposure=years)
    assert summary["sections"] == without["sections"]

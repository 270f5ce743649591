"""spectrum and alternatives: the numbers of Python, files that can be read again, and a line for every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.alternatives import search_alternatives
from fairpremium.spectrum import PriceSpectrum, compute_spectrum


@pytest.fixture
def book():
    rng = np.random.default_rng(0)
    n = 1500
    d = rng.integers(0, 2, n)
    X = pd.DataFrame(
        {"age": rng.integers(18, 80, n), "region": rng.choice(["1", "2"], n), "proxy": d + rng.normal(size=n)}
    )
    years = rng.uniform(0.3, 1, n)
    claims = rng.poisson(years * np.exp(-1 - 0.01 * X["age"] + 0.5 * d))
    channel = RandomizedResponse(["F", "M"], keep=0.85)
    S = channel.privatize(np.array(["F", "M"])[d], rng=0)
    pricer = DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0)
    pricer.fit(X, claims, sensitive=S, exposure=years).save("model.json")
    X.assign(claims=claims, years=years, report=S, town="x").to_csv("book.csv", index=False)
    return pricer, X, claims, S, years


ROLES = ["model.json", "book.csv", "--outcome", "claims", "--exposure", "years"]


def test_spectrum_writes_the_prices_of_python(book, call_json):
    pricer, X, claims, S, years = book
    result = call_json("spectrum", *ROLES, "-o", "prices.csv", "--plot", "spectrum.svg")
    spectrum = PriceSpectrum(pricer).fit(X, claims, sensitive=S, exposure=years)
    pd.testing.assert_frame_equal(pd.read_csv("prices.csv"), spectrum.predict(X), rtol=1e-9)
    expected = compute_spectrum(spectrum, X, claims, sensitive=S, exposure=years)
    for row, found in zip(expected.to_dict("records"), result["prices"], strict=True):
        assert found["kolmogorov"] == pytest.approx(row["kolmogorov"])
        assert found["deviance"] == pytest.approx(row["deviance"])
    assert Path("spectrum.svg").read_text(encoding="utf-8").startswith("<svg")


def test_spectrum_says_which_prices_need_the_attribute(book, call):
    text = call("spectrum", *ROLES, "-o", "prices.csv").stdout
    lines = {line.strip().split(" ")[0]: line for line in text.splitlines()}
    assert "needed" in lines["corrective"]
    assert "needed" not in lines["hyperaware"]


def test_alternatives_are_those_of_python(book, call_json, call):
    pricer, X, claims, S, years = book
    words = ["alternatives", *ROLES, "--drop", "proxy", "--coarsen", "age=30,50", "--mixtures", "0,1", "--folds", "2",
             "--disparity", "kolmogorov"]  # fmt: skip
    result = call_json(*words, "-o", "found.csv", "--plot", "frontier.svg")
    expected = search_alternatives(
        pricer, X, claims, sensitive=S, exposure=years, drop=["proxy"], coarsen={"age": [30.0, 50.0]}, mixtures=(0, 1),
        folds=2, disparity="kolmogorov",
    )  # fmt: skip
    found = pd.read_csv("found.csv")
    assert found["candidate"].tolist() == expected.table["candidate"].tolist()
    for column in ("deviance", "disparity", "disparity_change_high"):
        np.testing.assert_allclose(found[column], expected.table[column], rtol=1e-6, atol=1e-12)
    assert [row["candidate"] for row in result["frontier"]] == expected.frontier["candidate"].tolist()
    assert Path("frontier.svg").read_text(encoding="utf-8").startswith("<svg")
    text = call(*words, "-o", "found.csv").stdout
    assert "6 tariffs were tried on 1,500 rows; the frontier:" in text
    assert not re.search(r"\de[-+]\d", text)  # no powers of ten
    assert len({len(line) for line in text.splitlines()[1:-1]}) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["alternatives", *ROLES, "--drop", "income", "-o", "a.csv"], "expected columns of X"),
        (["alternatives", *ROLES, "--mixtures", "a=1", "-o", "a.csv"], "numbers from 0 to 1"),
        (["alternatives", *ROLES, "--coarsen", "age", "-o", "a.csv"], "expected every name once"),
        (["alternatives", *ROLES, "--coarsen", "age=x", "-o", "a.csv"], "expected numbers, the limits of its bands"),
        (["alternatives", *ROLES, "--plot", "a.png", "-o", "a.csv"], ".svg"),
        (["spectrum", "model.json", "none.csv", "--outcome", "claims", "-o", "a.csv"], "none.csv"),
        (
            ["spectrum", "model.json", "book.csv", "--outcome", "claims", "--sensitive", "town", "-o", "a.csv"],
            "report",
        ),
    ],
)
def test_mistakes_are_one_line(book, refuse, words, message):
    assert message in refuse(*words)

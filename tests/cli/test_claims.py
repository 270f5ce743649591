"""fit --claims --amount --exposure, and price with the model: the numbers of the Python interface, and its mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import FrequencySeverityPricer, RandomizedResponse
from fairpremium.audit import compute_list_discrimination
from fairpremium.diagnostics import hold_out

FIT = ["fit", "claims.csv", "--sensitive", "report", "--keep", 0.8, "--correction", "inverse", "--pooling", 0]
ONE = ["--claims", "n", "--amount", "paid", "--exposure", "years"]
TWO = ["--claims", "fire=n,theft=m", "--amount", "fire=paid,theft=stolen", "--exposure", "years"]
OUT = ["-o", "model.json"]


@pytest.fixture
def book():
    rng = np.random.default_rng(0)
    sex = rng.choice(["F", "M"], 2000)
    frame = pd.DataFrame({"age": rng.uniform(20, 70, 2000), "region": rng.choice(["north", "south"], 2000)})
    years = rng.uniform(0.3, 1.0, 2000)
    n, m = (rng.poisson(years * rate * np.where(sex == "M", 1.3, 1.0)) for rate in (0.5, 0.3))
    paid, stolen = (rng.gamma(2.0 * number, np.where(sex == "M", 500, 400)) for number in (n, m))
    report = RandomizedResponse(["F", "M"], keep=0.8).privatize(sex, rng=rng)
    frame.assign(years=years, n=n, paid=paid, m=m, stolen=stolen, report=report).to_csv("claims.csv", index=False)
    return pd.read_csv("claims.csv")


def fitted(frame, counts, amounts, **settings):
    pricer = FrequencySeverityPricer(
        channel=RandomizedResponse(["F", "M"], keep=0.8), correction="inverse", pooling=0, **settings
    )
    X = frame[["age", "region"]]
    return pricer.fit(X, counts, amounts, sensitive=frame["report"], exposure=frame["years"])


def test_one_peril_equals_the_python_interface(call, call_json, book):
    features = ["--features", "age,region"]
    told = call(*FIT, *ONE, *features, "--cap", 900, *OUT).stdout
    assert "Frequency" in told
    assert "Large claims" in told
    call("price", "model.json", "claims.csv", "--all", "-o", "premiums.csv")
    pricer = fitted(book, book["n"], book["paid"], cap=900.0)
    expected = pd.DataFrame({"premium": pricer.predict(book)})
    expected["low"], expected["high"] = pricer.predict_interval(book)
    expected["unaware"] = pricer.predict_unaware(book)
    best = pricer.predict_best_estimate(book)
    expected["best_estimate_F"], expected["best_estimate_M"] = best["F"], best["M"]
    pd.testing.assert_frame_equal(pd.read_csv("premiums.csv"), expected, rtol=1e-9)
    result = call_json(*FIT, *ONE, *features, "--cap", 900, *OUT)
    assert [part["part"] for part in result["parts"]] == ["frequency", "severity"]
    assert result["excess"][0]["loading"] == pytest.approx(pricer.excess_.loc["all", "loading"])


def test_several_perils_and_a_file_read_piece_by_piece(call, call_json, book):
    counts, amounts = book[["n", "m"]], book[["paid", "stolen"]]
    counts.columns = amounts.columns = ["fire", "theft"]
    options = ["--cap", "theft=800", "--reference", "balanced", "--severity", "tweedie", "--power", 1.8]
    result = call_json(*FIT, *TWO, *options, *OUT)
    assert result["features"] == ["age", "region"]  # claims and exposure are not features
    assert [row["cap"] for row in result["excess"]] == [None, 800.0]
    call("price", "model.json", "claims.csv", "-o", "premiums.csv")
    from fairpremium.families import Tweedie

    pricer = fitted(book, counts, amounts, cap={"theft": 800.0}, reference="balanced", severity=Tweedie(1.8))
    premiums = pd.read_csv("premiums.csv")
    np.testing.assert_allclose(premiums["premium"], pricer.predict(book), rtol=1e-9)
    Path("folder").mkdir()
    book.to_parquet("folder/one.parquet", index=False)
    call("fit", "folder", *FIT[2:], *TWO, *options, "-o", "large.json")
    call("price", "large.json", "folder", "-o", "large.parquet")
    np.testing.assert_allclose(pd.read_parquet("large.parquet")["low"], premiums["low"], rtol=1e-6)


def test_mistakes_are_one_line(refuse, book):
    base = [*FIT, *OUT]
    assert "expected both" in refuse(*base, "--claims", "n")
    assert "neither --outcome nor --claims" in refuse(*base)
    assert "Got --outcome with --claims" in refuse(*base, *ONE, "--outcome", "paid")
    assert "Got --weight with --claims" in refuse(*base, *ONE, "--weight", "m")
    assert "Got --cap without --claims" in refuse(*base, "--outcome", "paid", "--cap", 10)
    assert "--frequency and --severity" in refuse(*base, *ONE, "--family", "poisson")
    assert "both --claims and --amount" in refuse(*base, "--claims", "n", "--amount", "n")
    assert "--amount for fire" in refuse(*base, "--claims", "fire=n,theft=m", "--amount", "fire=paid")
    assert "every peril once" in refuse(*base, "--claims", "n,m", "--amount", "paid,stolen")
    assert "one amount" in refuse(*base, *ONE, "--cap", "10,20")
    assert "no column 'years2'" in refuse(*base, "--claims", "n", "--amount", "paid", "--exposure", "years2")
    wrong = book.assign(
        paid=np.where(np.arange(2000) == 7, 10.0, book["paid"]), n=np.where(np.arange(2000) == 7, 0, book["n"])
    )
    wrong.to_csv("claims.csv", index=False)
    assert "amounts without a claim in 1 of 2000 rows (counted from 0: 7)" in refuse(*base, *ONE)


def test_claims_are_tried_on_rows_that_a_first_fit_did_not_see(call, call_json, book):
    """The first fit and the deviance of the amounts, Tweedie with power 1.5, computed here again."""
    features = ["--features", "age,region"]
    tested = call_json(*FIT, *ONE, *features, "--test", 0.25, *OUT)["test"]
    held = hold_out(len(book), 0.25, random_state=0)
    seen, new = book[~held], book[held]
    pricer = fitted(seen, seen["n"], seen["paid"])
    mu, y, w = pricer.predict(new), (new["paid"] / new["years"]).to_numpy(), new["years"].to_numpy()
    unit = 2 * (y**0.5 / (0.5 * -0.5) - y * mu**-0.5 / -0.5 + mu**0.5 / 0.5)
    row = tested["prices"][0]
    assert (tested["rows"], row["price"]) == (500, "discrimination_free")
    assert row["deviance"] == pytest.approx(np.average(unit, weights=w))
    assert row["ratio"] == pytest.approx(new["paid"].sum() / (w @ mu))
    assert [row["price"] for row in tested["prices"]] == ["discrimination_free", "unaware", "best_estimate"]


def test_an_audit_takes_a_model_of_claims(call, call_json, book):
    call(*FIT, *ONE, "--features", "age,region", *OUT)
    pricer = FrequencySeverityPricer.load("model.json")
    book.assign(premium=2 * pricer.predict_unaware(book)).to_csv("prices.csv", index=False)
    words = ["audit", "prices.csv", "--premium", "premium", "--outcome", "paid", "--exposure", "years"]
    result = call_json(*words, "--sensitive", "report", "--keep", 0.8, "--model", "model.json", "-o", "report.html")
    table = compute_list_discrimination(
        2 * pricer.predict_unaware(book),
        book[["age", "region"]],
        sensitive=book["report"],
        channel=pricer.channel_,
        pricer=pricer,
        exposure=book["years"],
    )
    found = next(section for section in result["sections"] if section["id"] == "list_discrimination")
    np.testing.assert_allclose([row["value"] for row in found["records"]], table["value"], rtol=1e-6, atol=1e-12)
    assert any("all: frequency linear, poisson family, severity linear, gamma family" in n for n in result["notes"])

"""``fit --terms`` and ``--slopes``, and columns that are no features, on the command line."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse

FIT = ("--outcome", "y", "--keep", 0.8, "--family", "poisson", "--correction", "inverse", "--pooling", 10)


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    n = 1000
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    found = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "region": rng.choice(["north", "south", "isle"], n, p=[0.5, 0.48, 0.02]),
            "y": rng.poisson(0.4, n),
            "report": channel.privatize(rng.choice(["F", "M"], n), rng=rng),
            "nobody": rng.normal(size=n),
        }
    )
    found.to_csv("portfolio.csv", index=False)
    return found


@pytest.mark.parametrize("folder", [False, True])
def test_terms_and_slopes(call_json, table, folder):
    path = "portfolio.csv"
    if folder:
        Path("parts").mkdir()
        table.to_parquet("parts/a.parquet")
        path = "parts"
    terms = "bands(age, 25, 65) + rare(region, 50)"
    found = call_json("fit", path, *FIT, "--terms", terms, "--slopes", "common", "-o", "model.json")
    assert found["terms"] == terms
    assert found["features"] == ["age", "region"]
    loaded = DiscriminationFreePricer.load("model.json")
    assert loaded.model_.slopes == "common"
    own = DiscriminationFreePricer(
        "poisson", LinearModel(terms=terms, slopes="common"), RandomizedResponse(["F", "M"], keep=0.8), "inverse", 10.0
    ).fit(table, table["y"], sensitive=table["report"])
    np.testing.assert_allclose(loaded.predict(table), own.predict(table), rtol=1e-9)
    call_json("price", "model.json", "portfolio.csv", "-o", "premiums.csv")
    np.testing.assert_allclose(pd.read_csv("premiums.csv")["premium"], own.predict(table), rtol=1e-9)
    design = json.loads(Path("model.json").read_text(encoding="utf-8"))["design"]
    assert design["terms"][0]["text"] == "bands(age, 25, 65)"


def test_wrong_terms_are_one_line(refuse, table):
    assert "'bnads' at position 1" in refuse("fit", "portfolio.csv", *FIT, "--terms", "bnads(age, 3)", "-o", "m.json")
    assert "no column 'speed'" in refuse("fit", "portfolio.csv", *FIT, "--terms", "speed", "-o", "m.json")
    assert "--outcome already" in refuse("fit", "portfolio.csv", *FIT, "--terms", "age + y", "-o", "m.json")
    assert '"own" or "common"' in refuse("fit", "portfolio.csv", *FIT, "--slopes", "none", "-o", "m.json")
    words = ("--model", "boosted", "--correction", "posterior", "--terms", "age")
    assert "--terms with --model boosted" in refuse("fit", "portfolio.csv", *FIT, *words, "-o", "m.json")


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (lambda t: pd.date_range("2024-01-01", periods=len(t)).strftime("%Y-%m-%d"), "look like dates"),
        (lambda t: t["age"].astype(str) + " yrs", "look like numbers with 'yrs'"),
        (lambda t: [f"street {i % 150} {'ab'[i % 2]}" for i in range(len(t))], "150 different texts"),
        (lambda t: [f"P{i}" for i in range(len(t))], "looks like a key"),
        (lambda t: np.where(t["y"] > 0, 1234.5 * t["y"] + 1, 0), "part of the outcome"),
        (lambda t: np.where(t["y"] > 0, "yes", "no"), "part of the outcome"),
        (lambda t: t["y"] > 0, "part of the outcome"),
    ],
)
def test_columns_that_are_no_features(refuse, call, table, column, found):
    table.assign(column=column(table)).to_csv("odd.csv", index=False)
    message = refuse("fit", "odd.csv", *FIT, "-o", "model.json")
    assert found in message
    assert "'column'" in message
    assert "--features" in message
    call("fit", "odd.csv", *FIT, "--features", "age,region", "-o", "model.json")


@pytest.mark.parametrize("folder", [False, True])
def test_dates_of_their_own_type(refuse, table, folder):
    path = Path("parts" if folder else ".")
    path.mkdir(exist_ok=True)
    table.assign(start=pd.to_datetime("2024-01-01")).to_parquet(path / "rows.parquet")
    message = refuse("fit", path if folder else path / "rows.parquet", *FIT, "-o", "model.json")
    assert "'start'" in message
    assert "make it a number" in message

"""Columns that are no features as they stand are recognised, with a message that names them and what helps."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from fairpremium.models import Design, describe_texts, find_outcome

DAYS = [str(dt.date(2024, 1, 1) + dt.timedelta(days=i)) for i in range(365)]

MONTHS = pd.date_range("2021-01-01", periods=36, freq="MS")


def column(values, n=2000, name="column"):
    values = list(values)
    return pd.DataFrame({"age": np.arange(n) % 70, name: [values[i % len(values)] for i in range(n)]})


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (DAYS, "365 different texts that look like dates"),
        ([f"{d[8:]}.{d[5:7]}.{d[:4]}" for d in DAYS], "dates"),
        ([f"{d[5:7]}/{d[8:]}/{d[2:4]}" for d in DAYS], "dates"),
        ([d + " 12:30:00" for d in DAYS], "dates"),
        ([f"{age} yrs" for age in range(18, 60)], "42 different texts that look like numbers with 'yrs'"),
        ([f"{age}yrs" for age in range(18, 30)], "12 different texts that look like numbers with 'yrs'"),
        ([f"€ {amount},50" for amount in range(30)], "look like numbers with '€'"),
        ([f"{x / 8:.3f}" for x in range(40)], "look like numbers with decimals"),
        ([f"{x},{x % 10}" for x in range(40)], "look like numbers with decimals"),
        ([*map(str, range(18, 80)), "unknown"], "look like numbers, but for 'unknown'"),
        ([*map(str, range(18, 80)), *(f"{age} yrs" for age in range(40, 50))], "look like numbers, but for '40 yrs', "),
        ([*map(str, range(18, 80)), "46yrs"], "look like numbers, but for '46yrs'"),
        ([*map(str, range(18, 80)), "n/a", "?"], "look like numbers, but for "),
        (MONTHS.strftime("%d-%b-%Y"), "36 different texts that look like dates"),
        (MONTHS.strftime("%b %d, %Y"), "dates"),
        (MONTHS.strftime("%B %Y"), "dates"),
        (MONTHS.strftime("%d%b%y"), "dates"),
        ([f"{i + 1}. {name} 2024" for name in ("Mai", "März") for i in range(20)], "dates"),
        ([f"P{i:05}" for i in range(2000)], "looks like a key"),
        ([f"street {chr(65 + i // 26)}{chr(65 + i % 26)}" for i in range(300)], "300 different texts, too many"),
    ],
)
def test_texts_that_are_no_levels(values, found):
    with pytest.raises(ValueError, match=r"column 'column' of X with ") as error:
        Design.learn(column(values))
    assert found in str(error.value)
    assert "terms" in str(error.value)
    if found != "looks like a key":  # who says that levels are meant gets them
        design, _ = Design.learn_transform(column(values), terms="levels(column)")
        assert len(design.features) == len(set(values)) - 1


@pytest.mark.parametrize(
    "values",
    [
        [f"{i:02}" for i in range(1, 96)],  # departments
        ["2A", "2B", *map(str, range(1, 96))],
        ["2A", "2B", "unknown", *(f"{i:02}" for i in range(1, 96))],
        [*map(str, range(1, 40))],
        [*map(str, range(1, 8)), "unknown"],
        ["low", "middle", "high", *map(str, range(1, 10))],
        [f"Mars {i}" for i in range(100, 130)],
        [
            f"{name}"
            for name in ("Marche", "Mayenne", "Jura", "Var", "Aude", "Julia", "Ain", "Nord", "Oise", "Lot", "Gers")
        ],
        [f"Z{i}" for i in range(80)],
        ["3 doors", "5 doors"],
        DAYS[:3],
        [f"{d[:7]}" for d in DAYS[::31]][:8],
        [True, False],
        ["north", "south"],
    ],
)
def test_levels_stay_levels(values):
    assert Design.learn(column(values)).columns[1].levels is not None


def test_dates_of_their_own_type_say_what_helps():
    X = pd.DataFrame({"start": pd.to_datetime(DAYS)})
    with pytest.raises(TypeError, match=r"'start' of X with type Datetime.*months since"):
        Design.learn(X)


def test_what_is_said_counts_rows():
    assert describe_texts(dict.fromkeys(map(str, range(30)), 1)) is not None
    assert describe_texts(dict.fromkeys(map(str, range(30)), 10)) is None


# --- parts of the outcome ---------------------------------------------------------------------------------------------


def outcomes(n=4000, share=0.1, seed=0):
    rng = np.random.default_rng(seed)
    return rng, rng.poisson(share, n).astype(float)


@pytest.mark.parametrize("paid", [0.3, 0.5, 0.7, 0.75, 0.79, 1.0])
def test_an_amount_is_recognised_however_many_claims_cost_nothing(paid):
    rng, y = outcomes(40_000)
    amount = y * rng.gamma(2, 500, len(y)) * (rng.random(len(y)) < paid)
    columns = {"age": rng.integers(18, 80, len(y)).astype(float), "amount": amount}
    assert find_outcome(columns, y) == "amount"


@pytest.mark.parametrize("n", [60, 400, 4000])
def test_what_happened_is_recognised_as_a_level(n):
    _, y = outcomes(n, share=0.2)
    claimed = (y > 0).astype(int)
    for codes in (claimed, 1 - claimed, np.minimum(y, 2).astype(int)):
        assert find_outcome({"claim": codes}, y, {"claim"}) == "claim"
    assert find_outcome({"claim_free": 1.0 - claimed}, y) == "claim_free"


@pytest.mark.parametrize("seed", range(20))
def test_features_stay_features_though_they_are_zero_where_the_outcome_is(seed):
    """By chance, or because a few rows with a strong effect all have a loss."""
    rng, y = outcomes(300, seed=seed)
    lost = np.flatnonzero(y)
    rare = np.zeros(len(y))
    rare[rng.choice(lost, 3, replace=False)] = 1.0
    columns = {
        "rare": rare,
        "many": np.arange(len(y)),  # a level of its own for each row
        "street": rng.integers(0, 100, len(y)),
        "constant": np.ones(len(y)),
        "age": rng.integers(18, 80, len(y)).astype(float),
    }
    assert find_outcome(columns, y, {"many", "street"}) is None
    one = (np.arange(60) == 7).astype(float)
    assert find_outcome({"taxi": one}, one) is None
    strong = (rng.random(4000) < 0.05).astype(float)  # four claims a year
    assert find_outcome({"taxi": strong}, rng.poisson(np.where(strong, 4.0, 0.1)).astype(float)) is None
    usual = (rng.random(4000) < 0.7).astype(float)  # nearly every row has a loss
    assert find_outcome({"garage": usual}, rng.poisson(5.0, 4000).astype(float)) is None

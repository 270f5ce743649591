"""Columns that are no features as they stand are recognised, with a message that names them and what helps."""

import datetime as dt

import numpy as np
import pandas as pd
import pytest

from fairpremium.models import Design, describe_texts

DAYS = [str(dt.date(2024, 1, 1) + dt.timedelta(days=i)) for i in range(365)]


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

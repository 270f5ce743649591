"""From tables of any library to numbers."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.models import Design

DATA = {
    "age": [30.5, 41.0, 22.0, 60.0, 35.0],
    "region": ["south", "north", "north", "west", "south"],
    "smoker": [True, False, False, False, True],
    "children": [0, 2, 1, 3, 0],
}
# base of region: south and north tie, the first in sorted order is north; base of smoker: False
EXPECTED = np.array(
    [
        [30.5, 1, 0, 1, 0],
        [41.0, 0, 0, 0, 2],
        [22.0, 0, 0, 0, 1],
        [60.0, 0, 1, 0, 3],
        [35.0, 1, 0, 1, 0],
    ]
)
FRAMES = {
    "pandas": pd.DataFrame(DATA),
    "pandas categories": pd.DataFrame(DATA).astype({"region": "category", "smoker": "category"}),
    "pandas ordered with unused": pd.DataFrame(DATA).assign(
        region=pd.Categorical(DATA["region"], categories=["east", "west", "south", "north"], ordered=True)
    ),
    "pandas objects": pd.DataFrame(DATA).astype({"region": object, "smoker": object}),
    "pandas nullable": pd.DataFrame(DATA).convert_dtypes(),
    "pandas arrow": pd.DataFrame(DATA).convert_dtypes(dtype_backend="pyarrow"),
    "pandas other index": pd.DataFrame(DATA, index=[7, 7, 1, 0, -1]),
    "polars": pl.DataFrame(DATA),
    "polars categories": pl.DataFrame(DATA).with_columns(pl.col("region").cast(pl.Categorical)),
    "polars enum": pl.DataFrame(DATA).with_columns(pl.col("region").cast(pl.Enum(["west", "east", "south", "north"]))),
    "arrow": pa.table(DATA),
    "arrow dictionary": pa.table(DATA | {"region": pa.array(DATA["region"]).dictionary_encode()}),
    "arrow chunks": pa.concat_tables([pa.table(DATA).slice(0, 2), pa.table(DATA).slice(2)]),
}
every_frame = pytest.mark.parametrize("name", FRAMES)


@every_frame
def test_all_libraries_and_types_give_the_same_matrix(name: str) -> None:
    design = Design.learn(FRAMES[name])
    assert design == Design.learn(FRAMES["pandas"])
    assert design.named
    assert design.names == tuple(DATA)
    assert design.features == ("age", "region=south", "region=west", "smoker=True", "children")
    matrix = design.transform(FRAMES[name])
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, EXPECTED)


@every_frame
def test_learned_in_one_library_used_in_another(name: str) -> None:
    np.testing.assert_array_equal(Design.learn(FRAMES["polars"]).transform(FRAMES[name]), EXPECTED)


def test_numeric_frames_of_all_libraries_agree_with_an_array() -> None:
    data = {k: DATA[k] for k in ("age", "children")}
    array = np.column_stack(list(data.values()))
    design = Design.learn(array)
    assert design.features == ("x0", "x1")
    np.testing.assert_array_equal(design.transform(array), array)
    for frame in (pd.DataFrame(data), pl.DataFrame(data), pa.table(data), pd.DataFrame(data).convert_dtypes()):
        named = Design.learn(frame)
        np.testing.assert_array_equal(named.transform(frame), array)
        np.testing.assert_array_equal(named.transform(array), array)  # by position
        np.testing.assert_array_equal(design.transform(frame), array)


def test_arrays_of_every_kind() -> None:
    values = [[1, 2], [3, 4]]
    for X in (values, np.array(values), np.array(values, dtype=bool), np.asfortranarray(values)):
        np.testing.assert_array_equal(Design.learn(X).transform(X), np.asarray(X, dtype=float))
    single = np.array(values, dtype=np.float32)
    assert Design.learn(single).transform(single) is single  # no copy
    unnamed = pd.DataFrame(values)  # integer column names: positions
    assert not Design.learn(unnamed).named
    np.testing.assert_array_equal(Design.learn(unnamed).transform(unnamed), values)


def test_column_order_and_other_columns_do_not_matter() -> None:
    design = Design.learn(FRAMES["pandas"])
    shuffled = FRAMES["pandas"][["children", "smoker", "region", "age"]].assign(extra="x")
    np.testing.assert_array_equal(design.transform(shuffled), EXPECTED)
    np.testing.assert_array_equal(design.transform(pl.from_pandas(shuffled)), EXPECTED)
    numeric = Design.learn(FRAMES["pandas"][["age", "children"]])
    np.testing.assert_array_equal(numeric.transform(shuffled), EXPECTED[:, [0, 4]])


def test_base_is_the_most_frequent_level_and_ties_go_to_the_first() -> None:
    def levels(values: list[object]) -> tuple[object, ...] | None:
        return Design.learn(pd.DataFrame({"c": values})).columns[0].levels

    assert levels(["b", "a", "c", "c"]) == ("c", "a", "b")
    assert levels(["b", "a", "c", "b", "c"]) == ("b", "a", "c")
    assert levels([True, False]) == (False, True)
    assert levels([True, False, True]) == (True, False)
    assert levels(["only"]) == ("only",)


def test_categories_of_integers_are_levels_and_integers_are_numbers() -> None:
    zones = [3, 1, 3, 2, 1, 3]
    frame = pd.DataFrame({"zone": pd.Categorical(zones, categories=[3, 2, 1, 99])})
    design = Design.learn(frame)
    assert design.columns[0].levels == (3, 1, 2)
    assert design.features == ("zone=1", "zone=2")
    np.testing.assert_array_equal(design.transform(frame), [[z == 1, z == 2] for z in zones])
    assert Design.learn(pd.DataFrame({"zone": zones})).columns[0].levels is None


def test_a_column_with_one_level_has_no_feature() -> None:
    frame = pd.DataFrame({"c": ["x", "x"], "n": [1, 2]})
    np.testing.assert_array_equal(Design.learn(frame).transform(frame), [[1], [2]])
    assert Design.learn(frame[["c"]]).transform(frame).shape == (2, 0)


@every_frame
def test_unseen_levels_are_refused_or_priced_at_the_base(name: str) -> None:
    design = Design.learn(FRAMES[name])
    new = pd.DataFrame(DATA).assign(region=["east", "south", "east", "west", "north"])
    for frame in (new, pl.from_pandas(new), new.astype({"region": "category"}), pa.Table.from_pandas(new)):
        with pytest.raises(ValueError, match=r"2 rows of X with a level of column 'region' .*\['north', "):
            design.transform(frame)
        matrix = design.transform(frame, unseen="base")
        np.testing.assert_array_equal(matrix[:, 1:3], [[0, 0], [1, 0], [0, 0], [0, 1], [0, 0]])


MISSING = {
    "float": pd.DataFrame({"income": [1.0, np.nan]}),
    "Int64": pd.DataFrame({"income": pd.array([1, None], dtype="Int64")}),
    "arrow dtype": pd.DataFrame({"income": pd.array([1, None], dtype="int64[pyarrow]")}),
    "polars": pl.DataFrame({"income": [1, None]}),
    "arrow": pa.table({"income": [None, 2]}),
}


@pytest.mark.parametrize("kind", MISSING)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_missing_number_names_its_column(kind: str, mixed: bool) -> None:
    frame = MISSING[kind]
    if mixed:  # a text column beside it: the other code path
        frame = (
            frame.append_column("c", pa.array(["a", "b"]))
            if isinstance(frame, pa.Table)
            else frame.with_columns(c=pl.Series(["a", "b"]))
            if isinstance(frame, pl.DataFrame)
            else frame.assign(c=["a", "b"])
        )
    with pytest.raises(ValueError, match=r"1 missing \(NaN\) values in column 'income'"):
        Design.learn(frame).transform(frame)


def test_infinite_numbers_name_their_column() -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [np.inf, -np.inf]})
    with pytest.raises(ValueError, match=r"2 infinite \(inf\) values in column 'b'"):
        Design.learn(frame).transform(frame)
    with pytest.raises(ValueError, match=r"2 infinite \(inf\) values in column 1"):
        Design.learn(frame.to_numpy())
    huge = np.full((4, 1), 1e308)  # finite although its sum is not
    np.testing.assert_array_equal(Design.learn(huge).transform(huge), huge)


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["a", None]),
        pd.Series(["a", np.nan], dtype=object),
        pd.Series(pd.Categorical(["a", None])),
        pd.Series(pd.array([True, None], dtype="boolean")),
        pl.Series(["a", None]),
        pl.Series(["a", None], dtype=pl.Categorical),
        pl.Series([True, None]),
    ],
    ids=lambda c: f"{type(c).__module__} {c.dtype}",
)
def test_missing_text_names_its_column(column: object) -> None:
    make = pl.DataFrame if isinstance(column, pl.Series) else pd.DataFrame
    with pytest.raises(ValueError, match="1 missing values in column 'job'"):
        Design.learn(make({"job": column}))
    design = Design.learn(make({"job": ["a", "b"]}))
    with pytest.raises(ValueError, match="1 missing values in column 'job'"):
        design.transform(make({"job": column}), unseen="base")


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), ValueError, r"duplicate columns \['a'\]"),
        (pa.table([[1], [2]], names=["a", "a"]), ValueError, r"duplicate columns \['a'\]"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), TypeError, "'when'.*Datetime"),
        (pl.DataFrame({"when": [1]}).cast(pl.Date), TypeError, "'when'.*Date"),
        (pd.DataFrame({"when": pd.to_timedelta([1])}), TypeError, "'when'.*Duration"),
        (pl.DataFrame({"list": [[1], [2]]}), TypeError, "'list'.*List"),
        (pd.DataFrame({"mix": ["a", 1]}), TypeError, r"'mix'.*\['int', 'str'\]"),
        (pd.DataFrame({"mix": pd.Categorical([1.5, 2.5])}), TypeError, r"'mix'.*\['float'\]"),
        (pl.LazyFrame({"a": [1]}), TypeError, "lazy frame; call .collect"),
        (pd.DataFrame(index=[0, 1]), ValueError, "no columns"),
        (pd.DataFrame([[1, 2]], columns=[0, "a"]), TypeError, "string names"),
        (np.array([["a", "b"]]), ValueError, "array of text; pass a data frame"),
        (np.array([["a", 1.0]], dtype=object), ValueError, "text|data frame"),
        (np.ones(3), ValueError, "2D"),
        (pd.DataFrame({"c": pd.Series([], dtype=str)}), ValueError, r"0 (rows|sample)|no rows|[Ee]mpty X"),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, str) else v,
)
def test_what_cannot_be_encoded_is_named(X: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Design.learn(X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (FRAMES["pandas"].drop(columns=["region", "age"]), r"without the columns \['age', 'region'\]"),
        (FRAMES["pandas"].assign(age="old"), "'age' of X with type String, but .* fitted on numbers"),
        (FRAMES["pandas"].assign(region=3), r"'region' of X with type Int64, but .* levels \['north'"),
        (np.ones((2, 4)), r"as an array.*data frame with the columns \['age', 'region'"),
    ],
)
def test_transform_says_what_differs_from_fit(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Design.learn(FRAMES["pandas"]).transform(X)


def test_transform_refuses_another_width_or_text_for_numbers() -> None:
    design = Design.learn(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"X has 3 features, but .* expecting 2 features"):
        design.transform(np.ones((3, 3)))
    numeric = Design.learn(FRAMES["pandas"][["age", "children"]])
    with pytest.raises(ValueError, match="'age' of X with type String"):
        numeric.transform(FRAMES["pandas"].assign(age="old"))


@pytest.mark.parametrize("others", [{}, {"region": ["north", "south"]}], ids=["numbers", "mixed"])
def test_true_is_one_where_numbers_were_learned(others: dict[str, object]) -> None:
    numbers, booleans = (pd.DataFrame({"smoker": values, "age": [30.0, 40.0], **others}) for values in
                         ([1, 0], [True, False]))  # fmt: skip
    design = Design.learn(numbers)
    np.testing.assert_array_equal(design.transform(booleans), design.transform(numbers))


def test_no_rows_can_be_priced() -> None:
    assert Design.learn(FRAMES["pandas"]).transform(FRAMES["pandas"].iloc[:0]).shape == (0, 5)


@pytest.mark.parametrize("X", [*FRAMES.values(), np.ones((2, 3))], ids=[*FRAMES, "array"])
def test_plain_data_round_trip(X: object) -> None:
    design = Design.learn(X)
    again = Design.from_dict(json.loads(json.dumps(design.to_dict())))
    assert again == design
    np.testing.assert_array_equal(again.transform(X), design.transform(X))


labels = st.text(min_size=1, max_size=3).filter(lambda t: "\x00" not in t)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    text=st.lists(labels, min_size=1, max_size=12),
    zone=st.lists(st.integers(-5, 5), min_size=12, max_size=12),
    flag=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_levels_can_be_read_back_from_the_matrix(text: list[str], zone: list[int], flag: list[bool]) -> None:
    n = len(text)
    values = {"text": text, "zone": zone[:n], "flag": flag[:n]}
    frame = pd.DataFrame({"text": text, "zone": pd.Categorical(values["zone"]), "flag": values["flag"]})
    design = Design.learn(frame)
    matrix = design.transform(frame)
    at = 0
    for column in design.columns:
        assert column.levels is not None
        width = len(column.levels) - 1
        block = matrix[:, at : at + width]
        at += width
        decoded = [column.levels[0] if not row.any() else column.levels[1 + int(row.argmax())] for row in block]
        assert decoded == values[column.name]
        assert np.all(block.sum(axis=1) <= 1)
        counts = [values[column.name].count(level) for level in column.levels]
        assert counts[0] == max(counts)
    assert at == matrix.shape[1]

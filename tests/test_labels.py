"""Which value is which label, for every kind of column, strictly and fast."""

from __future__ import annotations

import enum
import json
import math
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.labels import (
    check_labels,
    decode_labels,
    encode_labels,
    infer_labels,
    label_from_json,
    label_to_json,
)

SEX = ["F", "M"]


def same(values):
    return values


def kind_of(value):
    """A name for a case that is the same in every process: no addresses, no order of a set."""
    return value.__name__ if isinstance(value, type) else type(value).__name__


STRING_COLUMNS = {
    "list": list,
    "tuple": tuple,
    "object": lambda v: np.array(v, dtype=object),
    "series": pd.Series,
    "series object": lambda v: pd.Series(v, dtype=object),
    "series string": lambda v: pd.Series(v, dtype="string"),
    "series string python": lambda v: pd.Series(v, dtype=pd.StringDtype("python")),
    "series arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string())),
    "category": lambda v: pd.Series(v, dtype="category"),
    "category with spare levels": lambda v: pd.Series(pd.Categorical(v, categories=["X", "M", "F", "Y"])),
    "categorical": pd.Categorical,
    "index": pd.Index,
    "extension array": lambda v: pd.array(v, dtype="string"),
    "polars": lambda v: pl.Series("s", v),
    "polars categorical": lambda v: pl.Series("s", v, dtype=pl.Categorical),
    "polars enum": lambda v: pl.Series("s", v, dtype=pl.Enum(["X", "F", "M"])),
    "arrow": pa.array,
    "arrow large": lambda v: pa.array(v, pa.large_string()),
    "arrow view": lambda v: pa.array(v, pa.string_view()),
    "arrow chunked": lambda v: pa.chunked_array([pa.array(v[:2], pa.string()), pa.array(v[2:], pa.string())]),
    "arrow dictionary": lambda v: pa.array(v, pa.string()).dictionary_encode(),
    "arrow chunked dictionary": lambda v: pa.chunked_array(
        [pa.array(v[:2], pa.string()).dictionary_encode(), pa.array(v[2:], pa.string()).dictionary_encode()]
    ),
}


@pytest.mark.parametrize("make", STRING_COLUMNS.values(), ids=STRING_COLUMNS.keys())
def test_strings(make):
    assert encode_labels(make(["M", "F", "F", "M"]), SEX).tolist() == [1, 0, 0, 1]
    column = make(["M", None, "F", None])
    codes = encode_labels(column, SEX, missing="code")
    assert codes.tolist() == [1, -1, 0, -1]
    assert codes.dtype == np.int32
    with pytest.raises(ValueError, match="Got sensitive with 2 rows of 4 without a value"):
        encode_labels(column, SEX)
    with pytest.raises(ValueError, match=r"Got report with 1 row of 4 .*\['F'\]") as caught:
        encode_labels(make(["M", "F", "F", "F"]), ["F"], name="report")
    assert "'M'" not in str(caught.value)
    assert infer_labels(column) == ("F", "M")


@pytest.mark.parametrize(
    "values",
    [
        np.array(["M", "F", "M"]),
        np.array(["M", "F", "M"], dtype="U7"),
        np.array(["M", "F", "M"], dtype=">U3"),
        np.array(["M", "x", "F", "x", "M", "x"])[::2],
        np.array(["M", "F", "M"], dtype=np.dtypes.StringDType()),
    ],
    ids=kind_of,
)
def test_numpy_strings(values):
    assert encode_labels(values, SEX).tolist() == [1, 0, 1]
    assert infer_labels(values) == ("F", "M")


def test_numpy_strings_of_mixed_length():
    labels = ["", "a", "ab", "b", "ba", "prefer not to say", "prefer not to sag"]
    codes = np.random.default_rng(0).integers(0, len(labels), 5000)
    assert encode_labels(np.array(labels)[codes], labels).tolist() == codes.tolist()
    # labels longer than the column is wide cannot match and do no harm
    assert encode_labels(np.array(["a", "b"]), labels).tolist() == [1, 3]


INTEGER_COLUMNS = {
    "list": same,
    "int64": np.array,
    "int8": lambda v: np.array(v, dtype=np.int8),
    "uint64": lambda v: np.array(v, dtype=np.uint64),
    "big endian": lambda v: np.array(v, dtype=">i4"),
    "object": lambda v: np.array(v, dtype=object),
    "series": pd.Series,
    "nullable": lambda v: pd.Series(v, dtype="Int64"),
    "category": lambda v: pd.Series(v, dtype="category"),
    "arrow": pa.array,
    "pandas arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.int64())),
    "polars": pl.Series,
    "float": lambda v: np.array(v, dtype=float),
    "float32": lambda v: np.array(v, dtype=np.float32),
    "float16": lambda v: np.array(v, dtype=np.float16),
    "long double": lambda v: np.array(v, dtype=np.longdouble),
    "numpy scalars": lambda v: [np.int16(x) for x in v],
    "mixed numbers": lambda v: [float(v[0]), *v[1:]],
}


@pytest.mark.parametrize("make", INTEGER_COLUMNS.values(), ids=INTEGER_COLUMNS.keys())
def test_integers(make):
    assert encode_labels(make([3, 0, 1, 3]), [0, 1, 3]).tolist() == [2, 0, 1, 2]
    assert infer_labels(make([3, 0, 1, 3])) == (0, 1, 3)
    assert all(type(x) is int for x in infer_labels(make([3, 0, 1, 3])))
    for wrong in ([False, True, 3], ["0", "1", "3"]):
        with pytest.raises(ValueError, match="not among the declared"):
            encode_labels(make([3, 0, 1, 3]), wrong)


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 0],
        [1, math.nan, 0],
        np.array([1, np.nan, 0]),
        pd.Series([1, None, 0]),
        pd.Series([1, None, 0], dtype="Int64"),
        pd.Series([1, pd.NA, 0], dtype="Float64"),
        pl.Series([1, None, 0]),
        pl.Series([1.0, math.nan, 0.0]),
        pa.array([1, None, 0]),
        pa.array([1.0, math.nan, 0.0]),
        [1, pd.NA, 0],
        [1, pd.NaT, 0],
        [1, np.datetime64("NaT"), 0],
        np.ma.array([1, 9, 0], mask=[0, 1, 0]),
    ],
    ids=kind_of,
)
def test_missing_numbers(values):
    assert encode_labels(values, [0, 1], missing="code").tolist() == [1, -1, 0]
    assert infer_labels(values) == (0, 1)


@pytest.mark.parametrize(
    "values",
    [
        [True, False, None],
        np.array([True, False, None], dtype=object),
        pd.Series([True, False, None]),
        pd.Series([True, False, None], dtype="boolean"),
        pl.Series([True, False, None]),
        pa.array([True, False, None]),
    ],
    ids=kind_of,
)
def test_booleans(values):
    assert encode_labels(values, [False, True], missing="code").tolist() == [1, 0, -1]
    assert infer_labels(values) == (False, True)
    with pytest.raises(ValueError, match="2 rows of 3"):
        encode_labels(values, [0, 1], missing="code")


def test_all_missing():
    for values in (
        [None, None],
        [],
        np.array([np.nan, np.nan]),
        pd.Series([None, None]),
        pl.Series([None, None]),
        pa.nulls(2),
        pd.Series([pd.NaT, pd.NaT]),
        np.array([], dtype="U1"),
    ):
        assert set(encode_labels(values, SEX, missing="code").tolist()) <= {-1}
        assert infer_labels(values) == ()


def test_kinds_do_not_mix():
    values = [1, True, "1", 1.0, 0, False, None]
    with pytest.raises(ValueError, match="2 rows of 7"):
        encode_labels(values, ["1", 1, False], missing="code")  # True and 0 are not declared
    assert encode_labels([1, "1", 1.0, False, None], ["1", 1, False], missing="code").tolist() == [1, 0, 1, 2, -1]


class Sex(str, enum.Enum):  # noqa: UP042
    F = "F"
    M = "M"


def test_string_subclasses_are_strings():
    assert encode_labels([Sex.M, np.str_("F")], SEX).tolist() == [1, 0]
    assert check_labels([Sex.F, np.str_("M")]) == ("F", "M")
    assert all(type(x) is str for x in check_labels([Sex.F, np.str_("M")]))


@pytest.mark.parametrize("wrong", ["f", "F ", "Ｆ", "F\u200b", "Ϝ", "F\ufe0e", ""])
def test_look_alikes_do_not_match(wrong):
    for make in (list, np.array, pd.Series, pl.Series):
        with pytest.raises(ValueError, match="1 row of 2"):
            encode_labels(make(["F", wrong]), SEX)


def test_lone_surrogates():
    assert encode_labels(["F", "\ud800"], ["F", "\ud800"]).tolist() == [0, 1]


@pytest.mark.parametrize(
    "values",
    [
        "FM",
        b"FM",
        None,
        3,
        {"F", "M"},
        {"F": 1},
        np.array("F"),
        np.array(["F"], dtype="S1"),
        np.array([1j]),
        iter("FM"),
        pd.Series(pd.to_datetime(["2020-01-01"])),
        pa.array([[1]]),
        pa.array([b"F"]),
    ],
    ids=kind_of,
)
def test_things_that_are_no_columns_of_labels(values):
    with pytest.raises(TypeError, match=r"^Got sensitive.*but expected"):
        encode_labels(values, SEX)


def test_shapes():
    with pytest.raises(ValueError, match="expected one column"):
        encode_labels(np.array([["F", "M"]]), SEX)
    with pytest.raises(ValueError, match="expected one column"):
        encode_labels(pd.DataFrame({"a": ["F"]}), SEX)
    with pytest.raises(ValueError, match="one dimension"):
        encode_labels(np.zeros((1, 1, 1)), SEX)
    with pytest.raises(ValueError, match='"error" or "code"'):
        encode_labels(["F"], SEX, missing="drop")


# --- several attributes ---

PAIRS = [("F", 0), ("F", 1), ("M", 0), ("M", 1)]
FRAME = pd.DataFrame({"sex": ["M", "F", "M", None], "smoker": [0, 1, 1, 0]})
ROWS = [("M", 0), ("F", 1), ("M", 1), None]


@pytest.mark.parametrize(
    "values",
    [
        FRAME,
        FRAME.to_numpy(),
        pl.from_pandas(FRAME),
        pa.Table.from_pandas(FRAME),
        ROWS,
        tuple(ROWS),
        pd.Series(ROWS),
        [list(r) if r else r for r in ROWS],
        ROWS[:3] + [("M", None)],
        ROWS[:3] + [math.nan],
        pd.MultiIndex.from_frame(FRAME),
    ],
    ids=lambda v: type(v).__name__,
)
def test_tuples(values):
    assert encode_labels(values, PAIRS, missing="code").tolist() == [2, 1, 3, -1]
    with pytest.raises(ValueError, match="1 row of 4 without"):
        encode_labels(values, PAIRS)


def test_infer_tuples():
    assert infer_labels(FRAME) == (("F", 1), ("M", 0), ("M", 1))
    assert infer_labels(ROWS) == (("F", 1), ("M", 0), ("M", 1))


def test_tuples_are_strict():
    for wrong in ([("F", "0")], [("F", True)], [("F", 2)], [("X", 0)]):
        with pytest.raises(ValueError, match="1 row of 1"):
            encode_labels(wrong, PAIRS)
    for shape in ([("F",)], ["F0"], ["F"], [("F", 0, 1)], [5]):
        with pytest.raises(ValueError, match="expected 2 values in each"):
            encode_labels(shape, PAIRS)
    with pytest.raises(ValueError, match="but expected 2, one per attribute"):
        encode_labels(FRAME[["sex"]], PAIRS)
    with pytest.raises(TypeError, match="sequence of tuples"):
        encode_labels("F0", PAIRS)


# --- back ---


@pytest.mark.parametrize(
    "labels, dtype",
    [
        (["a", "much longer"], object),
        ([1, 2], np.int64),
        ([True, False], bool),
        ([0.5, 1.0], np.float64),
        ([1, 2.5], object),
        ([1, "a"], object),
        ([("a", 1), ("b", 2)], object),
        ([1, 2**64], object),
    ],
    ids=repr,
)
def test_decode(labels, dtype):
    values = decode_labels([1, 0, 1], labels)
    assert values.dtype == dtype
    assert values.tolist() == [labels[1], labels[0], labels[1]]
    assert encode_labels(values, labels).tolist() == [1, 0, 1]
    gaps = decode_labels([1, -1], labels)
    assert gaps.tolist() == [labels[1], None]
    assert decode_labels([], labels).shape == (0,)


@pytest.mark.parametrize("label", ["F", 1, True, 0.5, ("F", 1), (("a", 1), "b")], ids=repr)
def test_labels_return_from_json(label):
    assert label_from_json(json.loads(json.dumps(label_to_json(label)))) == label


@pytest.mark.parametrize("codes", [[2], [-2], [[0]], [0.5], ["0"], [True]])
def test_codes_are_checked(codes):
    with pytest.raises(ValueError, match="codes must"):
        decode_labels(codes, SEX)


@pytest.mark.parametrize(
    "labels, kind",
    [
        ("FM", TypeError),
        ({"F"}, TypeError),
        (5, TypeError),
        (["F", "F"], ValueError),
        ([1, 1.0], ValueError),
        ([1, True], ValueError),
        ([math.nan], ValueError),
        ([math.inf], ValueError),
        ([None], TypeError),
        ([b"F"], TypeError),
        ([()], TypeError),
        ([["F"]], TypeError),
        ([pd.NA], TypeError),
        (range(5000), ValueError),
    ],
    ids=kind_of,
)
def test_labels_are_checked(labels, kind):
    with pytest.raises(kind, match=r"^Got labels.*but expected"):
        check_labels(labels)


def test_infer_labels():
    assert infer_labels([2, 1, 2]) == (1, 2)
    assert infer_labels(["b", "a", None]) == ("a", "b")
    assert infer_labels([0.5, 1.0]) == (0.5, 1.0)
    assert infer_labels(["a", 2, True]) == (True, 2, "a")
    assert infer_labels(pd.Series(["a"], dtype=pd.CategoricalDtype(["b", "a"]))) == ("a",)
    with pytest.raises(ValueError, match="Got age with 5000 distinct values"):
        infer_labels(np.arange(5000), "age")


# --- any column against the definition ---

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(["a", "b", "", "1", "True"]),
    st.just(math.nan),
    st.sampled_from([0.0, -0.0, 1.0, 0.5]),
)


def slow_reference(values, labels):
    def matches(value, label):
        if isinstance(value, bool) or isinstance(label, bool):
            return type(value) is type(label) and value == label
        if isinstance(value, str) or isinstance(label, str):
            return type(value) is type(label) and value == label
        return value == label

    codes = []
    for value in values:
        if value is None or value != value:
            codes.append(-1)
        else:
            codes.append(next((k for k, label in enumerate(labels) if matches(value, label)), -2))
    return codes


@settings(max_examples=300, deadline=None)
@given(st.lists(scalars, max_size=12))
def test_against_the_definition(values):
    labels = [0, 1, "a", "1", "True", 0.5]
    expected = slow_reference(values, labels)
    for column in (values, np.array([*values, None], dtype=object)[:-1], pd.Series(values, dtype=object)):
        if -2 in expected:
            with pytest.raises(ValueError, match=f"{expected.count(-2)} row"):
                encode_labels(column, labels, missing="code")
        else:
            assert encode_labels(column, labels, missing="code").tolist() == expected


# --- speed ---


def best_of(f, times=5):
    found = []
    for _ in range(times):
        start = time.process_time()  # not the clock on the wall: others may use the machine
        f()
        found.append(time.process_time() - start)
    return min(found)


def test_speed():
    # 200,000 rows, a tenth of what the target of 60 ms is about; five times the target, for slow machines.
    n = 200_000
    codes = np.random.default_rng(0).integers(0, 3, n)
    names = np.array(["female", "male", "not said"])
    series = pd.Series(names[codes])
    for values, labels in (
        (series, names.tolist()),
        (series.astype("category"), names.tolist()),
        (pd.Series(codes), [0, 1, 2]),
        (names[codes], names.tolist()),
        (names[codes].astype(object), names.tolist()),
    ):
        assert encode_labels(values, labels).tolist() == codes.tolist()
        assert best_of(lambda v=values, names=labels: encode_labels(v, names)) < 5 * 0.006


def test_a_long_column_of_few_objects_is_encoded_by_reference():
    """The fast and the general way agree, also with missing values, equal but distinct objects, late surprises."""
    labels = ("F", "M", "other")
    rng = np.random.default_rng(0)
    column = np.array(["F", "M", None, "".join(["o", "ther"]), "other", float("nan")], dtype=object)[
        rng.integers(6, size=20_000)
    ]
    expected = [labels.index(v) if isinstance(v, str) else -1 for v in column]
    assert encode_labels(column, labels, missing="code").tolist() == expected
    assert encode_labels(column[::2], labels, missing="code").tolist() == expected[::2]
    late = column.copy()
    late[-1] = "".join(["F", ""])
    assert encode_labels(late, labels, missing="code")[-1] == 0
    late[-1] = "unknown"
    with pytest.raises(ValueError, match="1"):
        encode_labels(late, labels, missing="code")


def test_a_label_that_appears_late_among_many_references():
    labels = np.array(["a", "b", "late"], dtype=object)
    expected = np.random.default_rng(0).integers(2, size=20_000)
    expected[15_000:] = 2
    np.testing.assert_array_equal(encode_labels(labels[expected], ["a", "b", "late"]), expected)


@pytest.mark.parametrize("count", [2, 8, 9, 64, 65])  # compared with each, hashed, or factorized as values
@pytest.mark.parametrize("first", [0, 1])
def test_references_to_any_number_of_objects(count, first):
    labels = [f"label {i}" for i in range(count)]
    expected = np.random.default_rng(count).integers(-first, count, size=20_000)  # -1: no report
    values = np.fromiter([*labels, None], dtype=object)[expected]
    np.testing.assert_array_equal(encode_labels(values, labels, missing="code"), expected)
    twins = np.fromiter(["".join(label) for label in labels], dtype=object)  # equal labels, other objects
    values[::2] = np.fromiter([*twins, None], dtype=object)[expected[::2]]
    np.testing.assert_array_equal(encode_labels(values, labels, missing="code"), expected)

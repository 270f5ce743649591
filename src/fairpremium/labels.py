"""Labels to codes and back: one place that decides which value is which group.

A label is a Python ``str``, ``int``, ``bool`` or ``float``, or a tuple of these when there are several
attributes. Values match labels by value *and* kind: ``True`` is not ``1`` and ``"1"`` is not ``1``;
``1.0`` is ``1``, because a column of integers with gaps becomes a column of floats.

Every input is first reduced to *codes* and the list of its *distinct* values (:func:`_factorize`), so that
the strict comparison runs over a handful of distinct values and never over the rows.
"""

from __future__ import annotations

import ctypes
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Label", "check_labels", "decode_labels", "encode_labels", "infer_labels", "label_key"]

Label: TypeAlias = Any  # str | int | bool | float | tuple of these
Codes: TypeAlias = npt.NDArray[np.int32]

_MISSING = -1
_MANY_ROWS, _FEW_OBJECTS = 10_000, 64
_UNKNOWN = -2
_MAX_LABELS = 4096
# Object arrays whose values are all of one kind, so that hashing cannot confuse True with 1.
_PURE_KINDS = frozenset({"string", "integer", "boolean", "floating", "mixed-integer-float", "integer-na"})


def encode_labels(
    values: Any,
    labels: Sequence[Label],
    *,
    name: str = "sensitive",
    missing: Literal["error", "code"] = "error",
) -> Codes:
    """Replace each value by the position of its label.

    Parameters
    ----------
    values : array-like of shape (n,), or a table of shape (n, attributes)
        List, tuple, numpy array, pandas, polars or Arrow column. With tuple labels also a sequence of tuples,
        a data frame or a two-dimensional array with one column per attribute.
    labels : sequence of str, int, bool, float or tuple
        The declared labels, in order.
    name : str
        What the values are called in error messages.
    missing : {"error", "code"}
        Whether a missing value (None, NaN, NA, NaT, null) is an error or gets the code -1. A row of a table
        is missing when any of its attributes is.

    Returns
    -------
    codes : ndarray of int32, shape (n,)
        ``codes[i] = k`` if ``values[i]`` is ``labels[k]``, and -1 if it is missing.

    Notes
    -----
    An unknown value is an error that says how many rows are concerned and never what they hold.

    Examples
    --------
    >>> encode_labels(["M", "F", None], ["F", "M"], missing="code").tolist()
    [1, 0, -1]
    """
    if missing not in ("error", "code"):
        raise ValueError(f'Got missing={missing!r}, but expected "error" or "code".')
    declared = check_labels(labels, "labels")
    codes, distinct = _factorize(values, declared, name)
    position = {label_key(label): k for k, label in enumerate(declared)}
    table = np.full(len(distinct) + 1, _MISSING, dtype=np.int32)  # the last entry serves the code -1
    for i, value in enumerate(distinct):
        table[i] = position.get(label_key(value), _UNKNOWN)
    result = table[codes]
    if np.any(table == _UNKNOWN):
        unknown = int(np.count_nonzero(result == _UNKNOWN))
        if unknown:
            raise ValueError(
                f"{name} has {_rows(unknown)} of {len(result)} with a value that is not among the declared "
                f"labels {_show(declared)}. Labels match by value and type (True is not 1, '1' is not 1); "
                "declare every label, or correct the column."
            )
    if missing == "error":
        absent = int(np.count_nonzero(result == _MISSING))
        if absent:
            raise ValueError(
                f"{name} has {_rows(absent)} of {len(result)} without a value, but expected one of "
                f"{_show(declared)} in every row. Leave those rows out, or declare a group of its own for "
                "people who prefer not to say."
            )
    return result


def decode_labels(codes: npt.ArrayLike, labels: Sequence[Label]) -> npt.NDArray[Any]:
    """Replace each code by its label, in an array whose dtype holds every declared label.

    Parameters
    ----------
    codes : array-like of int, shape (n,)
        Positions in ``labels``; -1 stands for a missing value.
    labels : sequence of str, int, bool, float or tuple
        The declared labels, in order.

    Returns
    -------
    values : ndarray of shape (n,)
        ``int64`` when all labels are integers, ``bool`` when all are bool, ``float64`` when all are float,
        else ``object``; ``object`` with None wherever a code is -1.

    Examples
    --------
    >>> decode_labels([0, 1, 1], [10, 20])
    array([10, 20, 20])
    >>> decode_labels([1, -1], ["no", "prefer not to say"])
    array(['prefer not to say', None], dtype=object)
    """
    declared = check_labels(labels, "labels")
    index = np.asarray(codes)
    if index.ndim != 1 or (index.size and index.dtype.kind not in "iu"):
        raise ValueError("codes must be a one-dimensional array of integers.")
    index = index.astype(np.int64, copy=False)
    if index.size and (index.min() < _MISSING or index.max() >= len(declared)):
        raise ValueError(f"codes must lie between -1 and {len(declared) - 1}, the position of the last label.")
    if index.size and index.min() == _MISSING:
        return _object_array([*declared, None]).take(index)
    return _label_array(declared).take(index)


def infer_labels(values: Any, name: str = "sensitive") -> tuple[Label, ...]:
    """Return the distinct labels of a column, sorted, as Python scalars; missing values do not count.

    Parameters
    ----------
    values : array-like of shape (n,), or a table of shape (n, attributes)
        As for :func:`encode_labels`; the rows of a table become tuples.
    name : str
        What the values are called in error messages.

    Returns
    -------
    labels : tuple
        Sorted by kind and value. Floats that are all whole numbers become integers (a column of integers with
        gaps is a column of floats).

    Examples
    --------
    >>> infer_labels(["M", None, "F", "M"])
    ('F', 'M')
    >>> infer_labels([2.0, float("nan"), 1.0])
    (1, 2)
    """
    codes, distinct = _factorize(values, None, name)
    seen = np.unique(codes)
    found = [distinct[i] for i in seen if i >= 0]
    if len(found) > _MAX_LABELS:
        raise ValueError(
            f"{name} has {len(found)} distinct values, but expected at most {_MAX_LABELS} groups. "
            "Is this the column of the sensitive attribute?"
        )
    if all(type(v) is int or (type(v) is float and v.is_integer()) for v in found):
        found = [int(v) for v in found]
    return tuple(sorted(check_labels(found, name), key=_sort_key))


def check_labels(labels: Any, name: str = "labels") -> tuple[Label, ...]:
    """Return the labels as a tuple of Python scalars, or raise with a sentence.

    Parameters
    ----------
    labels : sequence
        Distinct labels of type str, int, bool or finite float, or tuples of these.
    name : str
        What the labels are called in error messages.

    Returns
    -------
    labels : tuple

    Examples
    --------
    >>> check_labels(np.array([1, 2]))
    (1, 2)
    """
    if isinstance(labels, (str, bytes, dict, set, frozenset)) or not isinstance(labels, Iterable):
        raise TypeError(f"{name} must be a list or tuple of labels. Got {type(labels).__name__}.")
    found = tuple(_plain_label(label, name) for label in labels)
    if len(found) > _MAX_LABELS:
        raise ValueError(f"{name} must have at most {_MAX_LABELS} labels. Got {len(found)}.")
    if len(set(found)) != len(found):
        raise ValueError(f"{name} must be distinct (and True counts as 1 here). Got {_show(found)}.")
    return found


def label_key(label: Label) -> tuple[Any, ...]:
    """Return what makes two labels the same: their kind and their value.

    Examples
    --------
    >>> label_key(1) == label_key(1.0), label_key(1) == label_key(True), label_key(1) == label_key("1")
    (True, False, False)
    """
    if isinstance(label, tuple):
        return ("tuple", *(label_key(part) for part in label))
    if isinstance(label, (bool, np.bool_)):
        return ("bool", bool(label))
    if isinstance(label, str):
        return ("str", str.__str__(label))
    if isinstance(label, numbers.Real):
        return ("number", label)
    return ("other", type(label).__name__)


# --- labels ---


def _plain_label(label: Any, name: str) -> Label:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple) and label:
        return tuple(_plain_label(part, name) for part in label)
    if type(label) is float and not math.isfinite(label):
        raise ValueError(f"{name} must be finite. Got {label}; a missing value is not a label.")
    if type(label) in (bool, int, float):
        return label
    if isinstance(label, str):
        return str.__str__(label)
    raise TypeError(
        f"{name} must be str, int, bool or float, or tuples of these for several attributes. "
        f"Got {type(label).__name__}."
    )


def _sort_key(label: Label) -> tuple[Any, ...]:
    if isinstance(label, tuple):
        return ("tuple", *(_sort_key(part) for part in label))
    return label_key(label)


def _label_array(labels: tuple[Label, ...]) -> npt.NDArray[Any]:
    kinds = {type(label) for label in labels}
    if kinds == {bool}:
        return np.array(labels, dtype=bool)
    if kinds == {float}:
        return np.array(labels, dtype=np.float64)
    if kinds == {int} and all(-(2**63) <= label < 2**63 for label in labels):
        return np.array(labels, dtype=np.int64)
    return _object_array(labels)


def _object_array(values: Iterable[Any]) -> npt.NDArray[np.object_]:
    return np.fromiter(values, dtype=object)


def _show(labels: tuple[Label, ...]) -> str:
    head = ", ".join(repr(label) for label in labels[:12])
    return f"[{head}, ... {len(labels)} in all]" if len(labels) > 12 else f"[{head}]"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


# --- any column to codes and distinct values ---


def _factorize(values: Any, labels: tuple[Label, ...] | None, name: str) -> tuple[Codes, list[Any]]:
    """Return codes (-1: missing) and the distinct values they point to, as Python scalars or tuples."""
    if labels and all(isinstance(label, tuple) for label in labels):
        return _factorize_tuples(values, labels, name)
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not _has_rows(values):
        raise TypeError(f"{name} must be a column of values. Got {type(values).__name__}.")
    columns = _columns(values, name)
    if columns is not None:
        if labels:
            raise ValueError(
                f"{name} must be one column, because the labels are single values. Got a table with "
                f"{len(columns)} columns; for several attributes declare tuples."
            )
        return _combine([_factorize_column(column, name) for column in columns])
    return _factorize_column(values, name)


def _has_rows(values: Any) -> bool:
    return hasattr(values, "__len__") and getattr(values, "shape", None) != ()


def _factorize_column(values: Any, name: str) -> tuple[Codes, list[Any]]:
    if isinstance(values, (pd.Series, pd.Index)):
        return _factorize_pandas(values, name)
    if isinstance(values, (list, tuple)):
        return _factorize_object(np.fromiter(values, dtype=object, count=len(values)), name)
    if isinstance(values, np.ndarray):
        return _factorize_numpy(values, name)
    if isinstance(values, pd.api.extensions.ExtensionArray):
        return _factorize_pandas(pd.Series(values), name)
    arrow = _as_arrow(values)
    if arrow is not None:
        return _factorize_arrow(arrow, name)
    if hasattr(values, "__array__"):
        return _factorize_numpy(np.asarray(values), name)
    raise TypeError(
        f"{name} must be a list, a numpy array, or a pandas, polars or Arrow column. Got {type(values).__name__}."
    )


def _factorize_pandas(values: Any, name: str) -> tuple[Codes, list[Any]]:
    dtype = values.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        categories = _python_scalars(values.array.categories)
        return values.array.codes.astype(np.int32), categories
    if isinstance(dtype, pd.ArrowDtype) or (
        isinstance(dtype, pd.StringDtype) and getattr(dtype, "storage", "") == "pyarrow"
    ):
        import pyarrow as pa

        return _factorize_arrow(pa.array(values.array), name)
    if isinstance(dtype, np.dtype):
        return _factorize_numpy(values.to_numpy(), name)
    codes, distinct = pd.factorize(values.array)  # nullable integer, float, boolean; strings kept in Python
    return codes.astype(np.int32), _python_scalars(distinct)


def _factorize_numpy(values: npt.NDArray[Any], name: str) -> tuple[Codes, list[Any]]:
    if isinstance(values, np.ma.MaskedArray):
        plain = values.data.astype(object)
        plain[np.ma.getmaskarray(values)] = None
        values = plain
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional. Got an array of shape {values.shape}.")
    kind = values.dtype.kind
    if kind == "O":
        return _factorize_object(values, name)
    if kind == "U":
        return _factorize_unicode(values, name)
    if kind == "T":
        return _factorize_object(values.astype(object), name)
    if kind in "biuf":
        if values.dtype == np.float16 or values.dtype.itemsize > 8 or not values.dtype.isnative:
            values = values.astype(np.float64 if kind == "f" else values.dtype.newbyteorder("="))
        codes, distinct = pd.factorize(values)
        return codes.astype(np.int32), distinct.tolist()
    if kind in "mM" and np.isnat(values).all():
        return np.full(len(values), _MISSING, dtype=np.int32), []
    cure = " Decode the bytes to str first, values.astype(str) for ASCII." if kind == "S" else ""
    raise TypeError(f"{name} must hold str, int, bool or float. Got dtype {values.dtype}.{cure}")


def _factorize_unicode(values: npt.NDArray[Any], name: str) -> tuple[Codes, list[Any]]:
    """Hash the fixed-width strings as machine words, then verify every row exactly."""
    width = values.dtype.itemsize // 4
    if width == 0 or len(values) == 0 or not values.dtype.isnative:
        return _factorize_object(values.astype(object), name)
    letters = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), width)
    multiplier = np.uint64(0x9E3779B97F4A7C15)
    hashes = letters[:, 0].astype(np.uint64)
    with np.errstate(over="ignore"):
        for j in range(1, width):
            hashes *= multiplier
            hashes += letters[:, j]
    codes, distinct = pd.factorize(hashes)
    first = np.empty(len(distinct), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(values) - 1, -1, -1)
    if not np.array_equal(letters[first][codes], letters):  # two strings share a hash: take the slow road
        return _factorize_object(values.astype(object), name)
    return codes.astype(np.int32), values[first].tolist()


def _factorize_object(values: npt.NDArray[np.object_], name: str) -> tuple[Codes, list[Any]]:
    shared = _factorize_shared(values, name)
    if shared is not None:
        return shared
    kind = pd.api.types.infer_dtype(values, skipna=True)
    if kind in _PURE_KINDS:
        codes, distinct = pd.factorize(values)
        return codes.astype(np.int32), _python_scalars(distinct)
    found: dict[tuple[Any, ...], int] = {}
    distinct = []
    codes = np.empty(len(values), dtype=np.int32)
    for i, value in enumerate(values.tolist()):
        if _is_missing(value):
            codes[i] = _MISSING
            continue
        key = label_key(value)
        if key not in found:
            found[key] = len(distinct)
            distinct.append(value)
        codes[i] = found[key]
    return codes, _python_scalars(distinct)


def _factorize_shared(values: npt.NDArray[np.object_], name: str) -> tuple[Codes, list[Any]] | None:
    """Factorize a long column whose rows refer to a few Python objects, by comparing references; else None.

    Reports come back from `privatize` like this. Equal references are the same object, so that the rows of each object
    get the code that the general way gives that object, in a tenth of the time.
    """
    if len(values) < _MANY_ROWS or not values.flags.c_contiguous:
        return None
    addresses = np.ctypeslib.as_array((ctypes.c_ssize_t * len(values)).from_address(values.ctypes.data))
    kinds, first = np.unique(addresses[:1000], return_index=True)
    if len(kinds) > _FEW_OBJECTS:
        return None
    position = np.full(len(values), -1, dtype=np.int32)
    for i, address in enumerate(kinds):
        position[addresses == address] = i
    if (position < 0).any():
        return None
    codes, distinct = _factorize_object(values[first], name)
    return codes[position], distinct


def _is_missing(value: Any) -> bool:
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, tuple):
        return any(_is_missing(part) for part in value)
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def _as_arrow(values: Any) -> Any:
    """Return an Arrow array for Arrow and polars columns, else None; imports neither without need."""
    module = type(values).__module__.partition(".")[0]
    if module == "pyarrow" and hasattr(values, "type"):
        return values
    if module == "polars" and hasattr(values, "to_arrow"):
        return values.to_arrow()
    return None


def _factorize_arrow(array: Any, name: str) -> tuple[Codes, list[Any]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
        if isinstance(array, pa.ChunkedArray):  # older pyarrow with no or several chunks
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    kind = array.type
    if pa.types.is_dictionary(kind):
        indices = pc.fill_null(array.indices.cast(pa.int32()), _MISSING).to_numpy(zero_copy_only=False)
        distinct = array.dictionary.to_pylist()
        gone = [i for i, value in enumerate(distinct) if _is_missing(value)]
        codes = indices.astype(np.int32)
        return (np.where(np.isin(codes, gone), np.int32(_MISSING), codes) if gone else codes), distinct
    if pa.types.is_null(kind):
        return np.full(len(array), _MISSING, dtype=np.int32), []
    if not (_is_arrow_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        if not pa.types.is_floating(kind):
            raise TypeError(f"{name} must hold str, int, bool or float. Got the Arrow type {kind}.")
        return _factorize_numpy(array.to_numpy(zero_copy_only=False), name)  # nulls become NaN
    if _is_arrow_string(kind):  # string views have no dictionary kernel
        array = array.cast(pa.large_string())
    return _factorize_arrow(pc.dictionary_encode(array), name)


def _is_arrow_string(kind: Any) -> bool:
    import pyarrow as pa

    view = getattr(pa.types, "is_string_view", lambda _: False)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or view(kind))


def _python_scalars(values: Any) -> list[Any]:
    return [v.item() if isinstance(v, np.generic) else v for v in list(values)]


# --- several attributes ---


def _columns(values: Any, name: str) -> list[Any] | None:
    """Return the columns of a table, or None when the values are a single column."""
    if isinstance(values, pd.MultiIndex):
        return [values.get_level_values(j) for j in range(values.nlevels)]
    if isinstance(values, pd.DataFrame):
        return [values.iloc[:, j] for j in range(values.shape[1])]
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return [values[:, j] for j in range(values.shape[1])]
    module = type(values).__module__.partition(".")[0]
    if module == "polars" and hasattr(values, "get_columns"):
        return list(values.get_columns())
    if module == "pyarrow" and hasattr(values, "columns"):
        return list(values.columns)
    return None


def _factorize_tuples(values: Any, labels: tuple[Label, ...], name: str) -> tuple[Codes, list[Any]]:
    width = len(labels[0])
    columns = _columns(values, name)
    if columns is None:
        columns = _columns_of_tuples(values, width, name)
    if len(columns) != width:
        raise ValueError(f"{name} must have {width} columns, one per attribute. Got {len(columns)}.")
    return _combine([_factorize_column(column, name) for column in columns])


def _columns_of_tuples(values: Any, width: int, name: str) -> list[Any]:
    if isinstance(values, (str, bytes, dict, set, frozenset)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of tuples or a table. Got {type(values).__name__}.")
    nothing = (None,) * width
    rows = [nothing if _is_missing(row) else row for row in values]
    if not all(isinstance(row, (tuple, list)) and len(row) == width for row in rows):
        raise ValueError(
            f"{name} must hold tuples of {width} values, one per attribute, or be a table of {width} columns."
        )
    return [[row[j] for row in rows] for j in range(width)]


def _combine(parts: list[tuple[Codes, list[Any]]]) -> tuple[Codes, list[Any]]:
    """Combine the codes of several columns into codes of tuples; a row with any gap is missing."""
    total = np.zeros(len(parts[0][0]), dtype=np.int64)
    gap = np.zeros(len(total), dtype=bool)
    for codes, distinct in parts:
        if len(codes) != len(total):
            raise ValueError("The columns of a table must have the same length.")
        total = total * (len(distinct) + 1) + codes + 1
        if total.size and total.max() > 2**52:
            raise ValueError("The columns hold too many distinct values to be sensitive attributes.")
        gap |= codes == _MISSING
    total[gap] = _MISSING
    short, seen = pd.factorize(total)
    rows = []
    for code in seen.tolist():
        row: list[Any] = []
        rest = code
        for _, distinct in reversed(parts):
            rest, digit = divmod(rest, len(distinct) + 1)
            row.append(distinct[digit - 1] if code != _MISSING else None)
        rows.append(tuple(reversed(row)))
    result = short.astype(np.int32)
    result[gap] = _MISSING
    return result, rows

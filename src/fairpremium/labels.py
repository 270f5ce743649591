"""Labels to codes and back: one place that decides which value is which group.

A label is a Python ``str``, ``int``, ``bool`` or ``float``, or a tuple of these when there are several
attributes. Values match labels by value *and* kind: ``True`` is not ``1`` and ``"1"`` is not ``1``;
``1.0`` is ``1``, because a column of integers with gaps becomes a column of floats.

Every input is first reduced to *codes* and the list of its *distinct* values by pandas or Arrow (:func:`_factorize`).
The strict comparison then runs over a handful of distinct values and never over the rows.
"""

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "MAX_LABELS",
    "Codes",
    "Label",
    "check_labels",
    "decode_labels",
    "distinct_rows",
    "encode_labels",
    "first_column",
    "infer_labels",
    "label_from_json",
    "label_key",
    "label_to_json",
]

Label: TypeAlias = Any  # str | int | bool | float | tuple of these
Codes: TypeAlias = npt.NDArray[np.int32]
Factorized: TypeAlias = tuple[npt.NDArray[np.integer[Any]], list[Any]]

_MISSING, _UNKNOWN = -1, -2
MAX_LABELS = 4096
_MANY_ROWS, _FEW_OBJECTS = 10_000, 64
_VERY_FEW_OBJECTS, _COMPARED_ROWS = 8, 32_768  # compared with each of them, so many rows at a time
_NO_COLUMNS = (str, bytes, dict, set, frozenset)  # iterable, but without rows in order
# Object arrays whose values are all of one kind, so that hashing cannot confuse True with 1.
_PURE_KINDS = frozenset({"string", "integer", "boolean", "floating", "mixed-integer-float", "integer-na"})
_ARROW_KINDS = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_dictionary,
)


def encode_labels(
    values: Any, labels: Sequence[Label], *, name: str = "sensitive", missing: Literal["error", "code"] = "error"
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
    # the last entry of the table serves the code -1
    table = np.array([*(position.get(label_key(value), _UNKNOWN) for value in distinct), _MISSING], dtype=np.int32)
    result = np.take(table, codes)
    if np.any(table == _UNKNOWN) and (unknown := np.count_nonzero(result == _UNKNOWN)):
        raise ValueError(
            f"Got {name} with {_rows(unknown)} of {len(result)} that are not among the declared labels, but expected "
            f"{_show(declared)}. Labels match by value and type (True is not 1, '1' is not 1); "
            "declare every label, or correct the column."
        )
    if missing == "error" and (absent := np.count_nonzero(result == _MISSING)):
        raise ValueError(
            f"Got {name} with {_rows(absent)} of {len(result)} without a value, but expected one of "
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
        return np.fromiter([*declared, None], dtype=object).take(index)
    kinds = {type(label) for label in declared}
    if kinds in ({bool}, {float}) or (kinds == {int} and all(-(2**63) <= label < 2**63 for label in declared)):
        return np.array(declared).take(index)
    return np.fromiter(declared, dtype=object).take(index)


def distinct_rows(values: Any, name: str = "sensitive") -> Factorized:
    """Return a code for each row, and the distinct rows that the codes point to, as tuples with None for a gap.

    Parameters
    ----------
    values : a table of shape (n, columns), or a sequence of tuples and single values
        A single value is a row with gaps behind it.
    name : str
        What the values are called in error messages.

    Examples
    --------
    >>> codes, rows = distinct_rows([("F", "M"), "F", None, ("F", None)])
    >>> [rows[code] for code in codes]
    [('F', 'M'), ('F', None), (None, None), ('F', None)]
    """
    columns = _columns(values)
    if columns is None:
        if isinstance(values, _NO_COLUMNS) or not isinstance(values, Iterable):
            raise TypeError(f"Got {name} of type {type(values).__name__}, but expected tuples or a table.")
        rows = [tuple(row) if isinstance(row, (tuple, list)) else (row,) for row in values]
        width = max(map(len, rows), default=1)
        columns = [[row[j] if j < len(row) else None for row in rows] for j in range(width)]
    return _combine_columns([_factorize_column(column, name) for column in columns])


def first_column(values: Any) -> Any:
    """Return the first column of a table, and a single column as it is."""
    columns = _columns(values)
    return values if columns is None else columns[0]


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
    seen = np.bincount(codes + 1, minlength=len(distinct) + 1)[1:]  # a category may have no rows
    found = [value for value, count in zip(distinct, seen, strict=True) if count]
    if len(found) > MAX_LABELS:
        raise ValueError(
            f"Got {name} with {len(found)} distinct values, but expected at most {MAX_LABELS} groups. "
            "Is this the column of the sensitive attribute?"
        )
    if all(type(v) is int or (type(v) is float and v.is_integer()) for v in found):
        found = [int(v) for v in found]
    return tuple(sorted(check_labels(found, name), key=label_key))


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
    if isinstance(labels, _NO_COLUMNS) or not isinstance(labels, Iterable):
        raise TypeError(f"Got {name} of type {type(labels).__name__}, but expected a list or tuple of labels.")
    found = tuple(_plain_label(label, name) for label in labels)
    if len(found) > MAX_LABELS:
        raise ValueError(f"Got {name} with {len(found)} labels, but expected at most {MAX_LABELS}.")
    if len(set(found)) != len(found):
        raise ValueError(f"Got {name}={_show(found)}, but expected distinct labels (True counts as 1 here).")
    return found


def label_key(label: Label) -> tuple[Any, ...]:
    """Return what makes two labels the same: their kind and their value.

    Examples
    --------
    >>> label_key(1) == label_key(1.0), label_key(1) == label_key(True), label_key(1) == label_key("1")
    (True, False, False)
    """
    if isinstance(label, tuple):
        return ("tuple", *(label_key(value) for value in label))
    if isinstance(label, (bool, np.bool_)):
        return ("bool", bool(label))
    if isinstance(label, str):
        return ("str", str.__str__(label))
    if isinstance(label, numbers.Real):
        return ("number", label)
    return ("other", type(label).__name__)


def label_to_json(label: Label) -> Any:
    """Return a label as JSON has it; a tuple becomes a list."""
    return [label_to_json(value) for value in label] if isinstance(label, tuple) else label


def label_from_json(label: Any) -> Label:
    """Return the label that `label_to_json` turned into plain data."""
    return tuple(label_from_json(value) for value in label) if isinstance(label, list) else label


def _plain_label(label: Any, name: str) -> Label:
    if isinstance(label, np.generic):
        label = label.item()
    if isinstance(label, tuple) and label:
        return tuple(_plain_label(value, name) for value in label)
    if type(label) is float and not math.isfinite(label):
        raise ValueError(f"Got {name} with {label}, but expected finite numbers; a missing value is not a label.")
    if type(label) in (bool, int, float):
        return label
    if isinstance(label, str):
        return str.__str__(label)
    raise TypeError(
        f"Got {name} with a {type(label).__name__}, but expected str, int, bool or float, or tuples of these."
    )


def _show(labels: tuple[Label, ...]) -> str:
    head = ", ".join(repr(label) for label in labels[:12])
    return f"[{head}, ... {len(labels)} in all]" if len(labels) > 12 else f"[{head}]"


def _rows(count: int | np.intp) -> str:
    return "1 row" if count == 1 else f"{count} rows"


# --- any column to codes and distinct values ---


def _factorize(values: Any, labels: tuple[Label, ...] | None, name: str) -> Factorized:
    """Return codes (-1: missing) and the distinct values they point to, as Python scalars or tuples."""
    width = len(labels[0]) if labels and all(isinstance(label, tuple) for label in labels) else None
    columns = _columns(values)
    if columns is None and width is None:
        if isinstance(values, _NO_COLUMNS) or not hasattr(values, "__len__") or getattr(values, "shape", None) == ():
            raise TypeError(f"Got {name} of type {type(values).__name__}, but expected a column of values.")
        return _factorize_column(values, name)
    if columns is None:
        assert width is not None
        columns = _columns_of_tuples(values, width, name)
    elif labels and width is None:
        raise ValueError(
            f"Got {name} with {len(columns)} columns, but expected one column of single labels. For several attributes "
            "declare tuples."
        )
    elif width not in (None, len(columns)):
        raise ValueError(f"Got {name} with {len(columns)} columns, but expected {width}, one per attribute.")
    return _combine([_factorize_column(column, name) for column in columns])


def _columns(values: Any) -> list[Any] | None:
    """Return the columns of a table, or None when the values are a single column."""
    if isinstance(values, pd.MultiIndex):
        return [values.get_level_values(j) for j in range(values.nlevels)]
    if isinstance(values, pd.DataFrame):
        return [values.iloc[:, j] for j in range(values.shape[1])]
    if isinstance(values, np.ndarray):
        return list(values.T) if values.ndim == 2 else None
    if hasattr(values, "get_columns"):  # polars
        return list(values.get_columns())
    return list(values.columns) if isinstance(values, (pa.Table, pa.RecordBatch)) else None


def _columns_of_tuples(values: Any, width: int, name: str) -> list[list[Any]]:
    if isinstance(values, _NO_COLUMNS) or not isinstance(values, Iterable):
        raise TypeError(f"Got {name} of type {type(values).__name__}, but expected a sequence of tuples or a table.")
    nothing = (None,) * width
    rows = [row if isinstance(row, (tuple, list)) or not _is_missing(row) else nothing for row in values]
    if not all(isinstance(row, (tuple, list)) and len(row) == width for row in rows):
        raise ValueError(
            f"Got {name} with rows of another length, but expected {width} values in each, one per attribute."
        )
    return [[row[j] for row in rows] for j in range(width)]


def _combine(columns: list[Factorized]) -> Factorized:
    """Combine the codes of several columns into codes of tuples; a row with any gap is missing."""
    return _mark_missing(*_combine_columns(columns))


def _combine_columns(columns: list[Factorized]) -> Factorized:
    """Combine the codes of several columns into codes of tuples, with None where a column has a gap."""
    sizes = [len(distinct) + 1 for _, distinct in columns]
    if math.prod(sizes) > 2**52:
        raise ValueError("The columns hold too many distinct values to be sensitive attributes.")
    # mode="wrap" turns the code -1 into the last position, that of None
    total = np.ravel_multi_index([codes for codes, _ in columns], sizes, mode="wrap")
    codes, seen = pd.factorize(total)
    values = [
        np.fromiter([*distinct, None], dtype=object)[position].tolist()
        for (_, distinct), position in zip(columns, np.unravel_index(seen, sizes), strict=True)
    ]
    return codes, list(zip(*values, strict=True))


def _mark_missing(codes: npt.NDArray[Any], distinct: list[Any]) -> Factorized:
    """Give the code -1 to rows whose distinct value is missing (NaN, or a tuple with a gap)."""
    table = np.array([*(_MISSING if _is_missing(value) else i for i, value in enumerate(distinct)), _MISSING])
    return (table[codes] if _MISSING in table[:-1] else codes), distinct


def _factorize_column(values: Any, name: str) -> Factorized:
    if isinstance(values, pd.api.extensions.ExtensionArray):
        values = pd.Series(values)
    if isinstance(values, (pd.Series, pd.Index)):
        dtype = values.dtype
        if isinstance(dtype, pd.CategoricalDtype):
            return values.array.codes, _python_scalars(values.array.categories)
        if isinstance(dtype, np.dtype):
            values = values.to_numpy()
        elif isinstance(dtype, pd.ArrowDtype) or getattr(dtype, "storage", "") == "pyarrow":
            values = pa.array(values.array)
        else:  # nullable integer, float, boolean; strings held as Python objects
            codes, distinct = pd.factorize(values.array)
            return codes, _python_scalars(distinct)
    elif isinstance(values, (list, tuple)):
        values = np.fromiter(values, dtype=object, count=len(values))
    elif hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _factorize_arrow(values, name)
    if not hasattr(values, "__array__"):
        raise TypeError(
            f"Got {name} of type {type(values).__name__}, but expected a list, an array or a column of a data frame."
        )
    return _factorize_numpy(np.asanyarray(values), name)


def _factorize_numpy(values: npt.NDArray[Any], name: str) -> Factorized:
    if isinstance(values, np.ma.MaskedArray):
        plain = values.data.astype(object)
        plain[np.ma.getmaskarray(values)] = None
        values = plain
    if values.ndim != 1:
        raise ValueError(f"Got {name} of shape {values.shape}, but expected one dimension.")
    kind = values.dtype.kind
    if kind in "biuf":
        native = np.dtype(np.float64) if kind == "f" else values.dtype.newbyteorder("=")
        codes, distinct = pd.factorize(values.astype(native, copy=False))
        return codes, distinct.tolist()
    if kind == "U" and values.dtype.itemsize:  # strings of one width: Arrow compares their bytes
        width = values.dtype.itemsize
        buffer = pa.py_buffer(np.ascontiguousarray(values))
        encoded = pa.Array.from_buffers(pa.binary(width), len(values), [None, buffer]).dictionary_encode()
        distinct = np.frombuffer(b"".join(encoded.dictionary.to_pylist()), dtype=values.dtype).tolist()
        return encoded.indices.to_numpy(), distinct
    if kind in "OUT":
        return _factorize_object(values.astype(object, copy=False))
    if kind in "mM" and np.isnat(values).all():
        return np.full(len(values), _MISSING), []
    cure = " Decode the bytes to str first, values.astype(str) for ASCII." if kind == "S" else ""
    raise TypeError(f"Got {name} of dtype {values.dtype}, but expected str, int, bool or float.{cure}")


def _factorize_object(values: npt.NDArray[np.object_]) -> Factorized:
    if len(values) >= _MANY_ROWS and values.flags.c_contiguous:
        # Reports come back from `privatize` as references to a few objects: equal references are the same object.
        references = np.ndarray(len(values), dtype=np.intp, buffer=values)
        seen, first = np.unique(references[:1000], return_index=True)
        if len(seen) <= _FEW_OBJECTS:
            position: npt.NDArray[Any] | None = None
            if len(seen) <= _VERY_FEW_OBJECTS:
                position = _find_references(references, seen)
            if position is None:
                position, found = pd.factorize(references)  # numbered as they appear
                first = np.unique(position[:1000], return_index=True)[1]
                if len(first) < len(found):
                    first = np.flatnonzero(~pd.Series(references).duplicated())
            codes, distinct = _factorize_object(values[first])
            return (position if np.array_equal(codes, np.arange(len(codes))) else codes[position]), distinct
    if pd.api.types.infer_dtype(values, skipna=True) in _PURE_KINDS:
        codes, distinct = pd.factorize(values)
        return codes, _python_scalars(distinct)
    known: dict[tuple[Any, ...], int] = {}
    distinct = []
    codes = np.full(len(values), _MISSING)
    for i, value in enumerate(values.tolist()):
        if not _is_missing(value):
            codes[i] = known.setdefault(label_key(value), len(distinct))
            if codes[i] == len(distinct):
                distinct.append(value)
    return codes, _python_scalars(distinct)


def _find_references(references: npt.NDArray[np.intp], among: npt.NDArray[np.intp]) -> npt.NDArray[np.uint8] | None:
    """Return the position of each reference among a few, or None if there are others."""
    found = np.zeros(len(references), dtype=np.uint8)  # positions from 1
    for first in range(0, len(found), _COMPARED_ROWS):
        some = slice(first, first + _COMPARED_ROWS)
        for i, each in enumerate(among, 1):
            found[some] += (references[some] == each) * np.uint8(i)
    return found - np.uint8(1) if found.all() else None


def _factorize_arrow(array: Any, name: str) -> Factorized:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    kind = array.type
    if pa.types.is_floating(kind):
        return _factorize_numpy(array.to_numpy(zero_copy_only=False), name)  # nulls become NaN
    if pa.types.is_string_view(kind):  # has no dictionary kernel
        array = array.cast(pa.large_string())
    elif not any(test(kind) for test in _ARROW_KINDS):
        raise TypeError(f"Got {name} of the Arrow type {kind}, but expected str, int, bool or float.")
    if not pa.types.is_dictionary(kind):
        array = pc.dictionary_encode(array)
    codes = pc.fill_null(array.indices.cast(pa.int32()), _MISSING).to_numpy(zero_copy_only=False)
    return _mark_missing(codes, array.dictionary.to_pylist())


def _is_missing(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_is_missing(x) for x in value)
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return isinstance(value, (np.datetime64, np.timedelta64)) and bool(np.isnat(value))


def _python_scalars(values: Any) -> list[Any]:
    return [value.item() if isinstance(value, np.generic) else value for value in values]

"""Labels handed back in the kind of container they came in, so that tables stay tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..labels import Label, decode_labels


def labels_like(template: Any, codes: npt.NDArray[Any], labels: tuple[Label, ...]) -> Any:
    """Decode codes into a container like the template.

    Parameters
    ----------
    template : list, array, Series, data frame, Arrow or polars object
        What the caller handed in.
    codes : ndarray of int, shape (n,)
    labels : tuple

    Returns
    -------
    values : ndarray for lists and arrays; a Series, frame or Arrow object like the template for those

    Examples
    --------
    >>> labels_like(pd.Series(["x", "y"], index=[7, 8], name="sex"), np.array([1, 0]), ("F", "M")).to_dict()
    {7: 'M', 8: 'F'}
    """
    if _is_table(template):
        return _table_like(template, codes, labels)
    values = decode_labels(codes, labels)
    if isinstance(template, pd.Series):
        return pd.Series(values, index=template.index, name=template.name)
    module = type(template).__module__.partition(".")[0]
    if module == "polars":
        import polars as pl

        return pl.Series(template.name, values.tolist())
    if module == "pyarrow":
        import pyarrow as pa

        return pa.array(values.tolist())
    return values


def _is_table(template: Any) -> bool:
    if isinstance(template, pd.MultiIndex):
        return False
    if isinstance(template, np.ndarray):
        return template.ndim == 2
    if isinstance(template, pd.DataFrame):
        return True
    module = type(template).__module__.partition(".")[0]
    return module in ("polars", "pyarrow") and hasattr(template, "columns")


def _table_like(template: Any, codes: npt.NDArray[Any], labels: tuple[Label, ...]) -> Any:
    columns = [_column(codes, labels, j) for j in range(len(labels[0]))]
    if isinstance(template, np.ndarray):
        return np.column_stack([column.astype(object) for column in columns])
    if isinstance(template, pd.DataFrame):
        frame = pd.DataFrame(dict(enumerate(columns)), index=template.index)
        frame.columns = template.columns
        return frame
    if type(template).__module__.startswith("polars"):
        import polars as pl

        return pl.DataFrame({name: column.tolist() for name, column in zip(template.columns, columns, strict=True)})
    import pyarrow as pa

    return pa.table({name: column.tolist() for name, column in zip(template.column_names, columns, strict=True)})


def _column(codes: npt.NDArray[Any], labels: tuple[Label, ...], j: int) -> npt.NDArray[Any]:
    distinct = tuple(dict.fromkeys(label[j] for label in labels))
    position = np.array([distinct.index(label[j]) for label in labels])
    return decode_labels(position[codes], distinct)

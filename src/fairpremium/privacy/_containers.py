"""Labels returned in the kind of container they came in, so that tables stay tables."""

from collections.abc import Iterator
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from ..labels import Label, decode_labels


def labels_like(template: Any, codes: npt.NDArray[Any], labels: tuple[Label, ...]) -> Any:
    """Decode codes into a container like the template, which the caller passed.

    Lists and arrays give an ndarray; a Series, a frame or an Arrow or polars object gives one of its kind.

    Examples
    --------
    >>> labels_like(pd.Series(["x", "y"], index=[7, 8], name="sex"), np.array([1, 0]), ("F", "M")).to_dict()
    {7: 'M', 8: 'F'}
    """
    module: Any = type(template).__module__.partition(".")[0]
    if isinstance(template, np.ndarray) and template.ndim == 2:
        return np.column_stack([column.astype(object) for column in _columns(codes, labels)])
    if isinstance(template, pd.DataFrame):
        frame = pd.DataFrame(dict(enumerate(_columns(codes, labels))), index=template.index)
        return frame.set_axis(template.columns, axis=1)
    if module in ("polars", "pyarrow") and hasattr(template, "columns"):
        names = template.columns if module == "polars" else template.column_names
        columns = dict(zip(names, [column.tolist() for column in _columns(codes, labels)], strict=True))
        return nw.from_dict(columns, backend=module).to_native()
    values = decode_labels(codes, labels)
    if isinstance(template, pd.Series):
        return pd.Series(values, index=template.index, name=template.name)
    if module == "polars":
        return nw.new_series(template.name, values.tolist(), backend=module).to_native()
    return pa.array(values.tolist()) if module == "pyarrow" else values


def _columns(codes: npt.NDArray[Any], labels: tuple[Label, ...]) -> Iterator[npt.NDArray[Any]]:
    """Decode codes of tuples into one column per attribute."""
    for own in zip(*labels, strict=True):
        distinct = tuple(dict.fromkeys(own))
        position = np.array([distinct.index(value) for value in own])
        yield decode_labels(position[codes], distinct)

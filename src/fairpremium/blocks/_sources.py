"""Recognise what kind of source the caller gave, and open it."""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

from fairpremium.blocks._dask import DaskSource
from fairpremium.blocks._files import open_files
from fairpremium.blocks._job import Source
from fairpremium.blocks._spark import SparkSource

_OPENERS: dict[str, Callable[[Any], Source]] = {"files": open_files, "dask": DaskSource}


def source_kind(X: Any) -> str | None:
    """Return "files", "dask" or "spark" for a source of rows; None for a table or an array in memory."""
    if isinstance(X, str | PathLike):
        return "files"
    module = type(X).__module__
    if module.startswith("pyarrow") and hasattr(X, "get_fragments"):
        return "files"
    if module.startswith("dask") and hasattr(X, "to_delayed") and hasattr(X, "dtypes"):
        return "dask"
    if module.startswith("pyspark.sql") and hasattr(X, "mapInArrow"):
        return "spark"
    return None


def open_source(X: Any, columns: Sequence[str] | None = None) -> Source:
    """Open a source of rows.

    Parameters
    ----------
    X : str, path, pyarrow.dataset.Dataset, dask.dataframe.DataFrame or pyspark.sql.DataFrame
    columns : sequence of str, optional
        The columns that will be read, where that is known: Spark hands over no others.

    Returns
    -------
    Source

    Raises
    ------
    ValueError
        If a file cannot be read; the message names it.
    TypeError
        If X is none of these.
    """
    kind = source_kind(X)
    if kind == "spark":
        return SparkSource(X, columns)
    if kind is not None:
        return _OPENERS[kind](X)
    raise TypeError(
        f"Got a source of type {type(X).__name__}, but expected a Parquet file or folder, a pyarrow.dataset, "
        "a Dask or a Spark data frame."
    )

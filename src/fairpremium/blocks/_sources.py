"""Recognise what kind of source the caller gave, and open it."""

from os import PathLike
from typing import Any

from fairpremium.blocks._stream import Source


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


def open_source(X: Any) -> Source:
    """Open a Parquet file or folder, a `pyarrow.dataset`, a Dask or a Spark data frame.

    Raises
    ------
    ValueError
        If a file cannot be read; the message names it.
    TypeError
        If X is none of these.
    """
    kind = source_kind(X)
    if kind == "files":
        from fairpremium.blocks._files import open_files

        return open_files(X)
    if kind == "dask":
        from fairpremium.blocks._dask import DaskSource

        return DaskSource(X)
    if kind == "spark":
        from fairpremium.blocks._spark import SparkSource

        return SparkSource(X)
    raise TypeError(
        f"Got a source of type {type(X).__name__}, but expected a Parquet file or folder, a pyarrow.dataset, "
        "a Dask or a Spark data frame."
    )

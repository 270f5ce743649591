"""Portfolio and reports joined by a key, out of core: DuckDB sorts and spills to disk what memory does not hold."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds

from fairpremium.blocks._files import open_files
from fairpremium.blocks._threads import count_workers
from fairpremium.errors import MissingExtraError

_MEMORY = "1GiB"  # that the join may use; the rest goes to disk
_ROW_GROUP = 122_880


class Joined(NamedTuple):
    """Counts of a join: rows of the portfolio, those that found a report, and reports that no row asked for."""

    rows: int
    matched: int
    unused_reports: int


def join_reports(
    portfolio: str | os.PathLike[str],
    reports: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    key: str,
    sensitive: str | Sequence[str] = "report",
) -> Joined:
    """Write the portfolio with the report of each row beside it, missing where there is none.

    Parameters
    ----------
    portfolio, reports : str or path
        Parquet files or folders that share the column `key`; each key occurs once among the reports, and as often as
        it likes in the portfolio.
    path : str or path
        Parquet file to write; rows stay in the order of the portfolio.
    key : str
        Column that identifies a policy or a person.
    sensitive : str or list of str
        Columns to take from the reports.

    Returns
    -------
    Joined
        Named tuple: ``rows``, ``matched``, ``unused_reports``.

    Raises
    ------
    ValueError
        If a column is not there, a key is missing or repeated among the reports, or nothing matches.

    Notes
    -----
    Needs the extra `distributed` (DuckDB). Keys are compared as text, so that 7 and "7" are the same policy. Memory
    stays at about 1 GiB however large the files are; what does not fit goes to a folder beside `path` for a while.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingExtraError(
            'Joining files needs DuckDB: pip install "fairpremium[distributed]". Or join a table in memory.'
        ) from None
    target = Path(path)
    columns = [sensitive] if isinstance(sensitive, str) else list(sensitive)
    left, right = _files(portfolio, [key]), _files(reports, [key, *columns])
    for name in columns:
        if name in left.schema.names:
            raise ValueError(f"Got {portfolio} with a column {name!r}, but expected it among the reports alone.")
    with tempfile.TemporaryDirectory(dir=target.absolute().parent, prefix=".join-") as folder:
        with duckdb.connect(":memory:") as db:
            settings = {"memory_limit": _MEMORY, "threads": count_workers(), "temp_directory": folder}
            for name, value in {**settings, "enable_progress_bar": False}.items():
                db.execute(f"SET {name} = ?", [value])
            draft = Path(folder) / "joined.parquet"
            joined = _join(db, left.files, right.files, draft, key, columns, (str(portfolio), str(reports)))
        draft.replace(target)
    return joined


def _join(
    db: Any, left: list[str], right: list[str], draft: Path, key: str, columns: list[str], names: tuple[str, str]
) -> Joined:
    k, taken = _quoted(key), ", ".join(f"r.{name} AS {name}" for name in map(_quoted, columns))
    db.read_parquet(left, hive_partitioning=True, filename=True, file_row_number=True).create_view("portfolio")
    db.read_parquet(right, hive_partitioning=True).create_view("reports")
    for table, name in zip(("portfolio", "reports"), names, strict=True):
        empty = _one(db, f"SELECT count(*) FROM {table} WHERE {k} IS NULL")
        if empty:
            raise ValueError(f"Column {key!r} of {name} is empty in {empty} rows; expected a key in each.")
    repeated = _one(db, f"SELECT count(*) - count(DISTINCT {k}::VARCHAR) FROM reports")
    if repeated:
        raise ValueError(f"Column {key!r} of {names[1]} repeats a key in {repeated} rows; expected one report per key.")
    same_key = f"p.{k}::VARCHAR = r.{k}::VARCHAR"
    order = ", ".join(map(_text, left))
    db.execute(
        f"""
        COPY (
            SELECT p.* EXCLUDE (filename, file_row_number), {taken}
            FROM portfolio p LEFT JOIN reports r ON {same_key}
            ORDER BY list_position([{order}], p.filename), p.file_row_number
        ) TO {_text(str(draft))} (FORMAT parquet, ROW_GROUP_SIZE {_ROW_GROUP})
        """
    )
    matched = _one(db, f"SELECT count(*) FROM portfolio p SEMI JOIN reports r ON {same_key}")
    if not matched:
        raise ValueError(f"No key of {names[0]} occurs in {names[1]}. Do both files use the same {key!r}?")
    unused = _one(db, f"SELECT count(*) FROM reports r ANTI JOIN portfolio p ON {same_key}")
    return Joined(_one(db, "SELECT count(*) FROM portfolio"), matched, unused)


def _files(path: str | os.PathLike[str], columns: list[str]) -> Any:
    with open_files(path) as source:  # checks every file
        absent = [name for name in columns if name not in source.names]
        if absent:
            raise ValueError(f"Got {path} with the columns {list(source.names)}, but expected {absent} among them.")
    return ds.dataset(Path(path), format="parquet", partitioning="hive")


def _one(db: Any, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"

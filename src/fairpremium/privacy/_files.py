"""Files of reports that say which channel made them: Parquet metadata, or a JSON file beside a CSV."""

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..csv_cells import escape_formula, escape_formulas, unescape_formula, unescape_formulas
from ..labels import Label, decode_labels, encode_labels
from ..workbooks import read_workbook, write_workbook
from ._channel import Channel

_FORMAT = "fairpremium reports 1"
_METADATA_KEY = b"fairpremium.channel"


def write_reports(
    path: str | os.PathLike[str], frame: Any, channel: Channel, *, column: str | Sequence[str] = "report"
) -> None:
    """Write a table of reports together with the description of their channel.

    Parameters
    ----------
    path : str or Path
        A ``.csv`` or ``.xlsx`` file (the description goes to ``<path>.channel.json``) or a ``.parquet`` file (it goes
        into the metadata of the schema). In a .csv file text that a spreadsheet program would run as a formula gets an
        apostrophe in front, which `read_reports` takes away again.
    frame : data frame
        pandas, polars or Arrow.
    channel : Channel
        The channel that drew the reports.
    column : str or list of str
        Where the reports are; one name per attribute for a product of channels. Every report must be one of
        ``channel.reports`` or missing.

    Examples
    --------
    >>> import tempfile
    >>> from fairpremium.privacy import RandomizedResponse
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> table = pd.DataFrame({"policy": [1, 2], "report": channel.privatize(["F", "M"])})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_reports(f"{folder}/reports.csv", table, channel)
    ...     again, its_channel = read_reports(f"{folder}/reports.csv")
    >>> again.equals(table), its_channel == channel
    (True, True)
    """
    path = Path(path)
    kind = _check_suffix(path)
    table = frame if isinstance(frame, pd.DataFrame) else nw.from_native(frame, eager_only=True).to_pandas()
    columns = _check_columns(column, table, channel)
    if kind == "parquet":
        try:
            arrow = pa.Table.from_pandas(table, preserve_index=False)
        except pa.ArrowException:
            raise ValueError(
                "The table does not fit into Parquet, whose columns hold one type each. Write CSV instead."
            ) from None
        pq.write_table(attach_descriptor(arrow, channel, column=columns), path)
        return
    written = table.copy(deep=False)
    for name, labels in zip(columns, _labels_by_column(channel), strict=True):
        written[name] = decode_labels(encode_labels(table[name], labels, missing="code"), _texts(labels))
    sidecar = _sidecar(path)
    sidecar.unlink(missing_ok=True)  # a crash must not leave new data beside an old description
    if kind == "xlsx":
        write_workbook(written, path)
    else:
        escape_formulas(written)[0].to_csv(path, index=False)
    sidecar.write_text(json.dumps(_envelope(channel, columns), indent=1) + "\n", encoding="utf-8")


def read_reports(path: str | os.PathLike[str]) -> tuple[pd.DataFrame, Channel | None]:
    """Read a table of reports and the channel that made them.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.xlsx`` or ``.parquet`` file.

    Returns
    -------
    frame : pandas DataFrame
        The reports have the declared type of their labels again.
    channel : Channel or None
        None when the file comes without a description. A description that does not parse, or that the data
        contradict, is a ``ValueError``.
    """
    path = Path(path)
    described = describe_reports(path)
    kind = _check_suffix(path)
    if kind == "parquet":
        frame = pq.read_table(path).to_pandas()
    elif described is not None:
        frame = _read_texts(path, kind, *described)
    else:
        frame = read_workbook(path)[0] if kind == "xlsx" else unescape_formulas(pd.read_csv(path))
    if described is None:
        return frame, None
    channel, columns = described
    _check_columns(columns, frame, channel)
    return frame, channel


def describe_reports(path: str | os.PathLike[str]) -> tuple[Channel, list[str]] | None:
    """Return the channel that a file of reports says it was made by, and the columns of its reports.

    Parameters
    ----------
    path : str or Path
        A ``.csv``, ``.xlsx`` or ``.parquet`` file.

    Returns
    -------
    (Channel, list of str) or None
        None when the file comes without a description.
    """
    path = Path(path)
    if _check_suffix(path) == "parquet":
        return _read_envelope(pq.read_schema(path))
    sidecar = _sidecar(path)
    return _open_envelope(sidecar.read_bytes()) if sidecar.exists() else None


def attach_descriptor(table: Any, channel: Channel, *, column: str | Sequence[str] = "report") -> Any:
    """Return an Arrow table whose schema metadata describe the channel of its reports.

    Parameters
    ----------
    table : pyarrow.Table
    channel : Channel
    column : str or list of str
        Where the reports are.

    Returns
    -------
    table : pyarrow.Table
    """
    columns = [column] if isinstance(column, str) else list(column)
    text = json.dumps(_envelope(channel, columns)).encode()
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _METADATA_KEY: text})


def read_descriptor(table: Any) -> dict[str, Any] | None:
    """Return the descriptor in the metadata of an Arrow table or schema.

    Parameters
    ----------
    table : pyarrow.Table or pyarrow.Schema

    Returns
    -------
    descriptor : dict or None
        As :meth:`Channel.descriptor` returns it; None when there is none.
    """
    described = _read_envelope(table)
    return None if described is None else described[0].descriptor()


# --- the description ---


def _envelope(channel: Channel, columns: list[str]) -> dict[str, Any]:
    return {"format": _FORMAT, "columns": columns, "channel": channel.descriptor()}


def _read_envelope(table: Any) -> tuple[Channel, list[str]] | None:
    metadata = getattr(table, "schema", table).metadata or {}
    return _open_envelope(metadata[_METADATA_KEY]) if _METADATA_KEY in metadata else None


def _open_envelope(text: bytes) -> tuple[Channel, list[str]]:
    try:
        envelope = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("The description of the channel is not JSON. Ask the sender for a fresh file.") from None
    if not isinstance(envelope, dict) or set(envelope) != {"format", "columns", "channel"}:
        raise ValueError("The description of the channel must have the fields format, columns and channel.")
    if envelope["format"] != _FORMAT:
        raise ValueError(f"The description of the channel must have the format {_FORMAT!r}.")
    columns = envelope["columns"]
    if not (isinstance(columns, list) and columns and all(isinstance(name, str) for name in columns)):
        raise ValueError("The description of the channel must name the columns of the reports.")
    return Channel.from_descriptor(envelope["channel"]), columns


# --- columns and texts ---


def _check_suffix(path: Path) -> str:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("csv", "xlsx", "parquet"):
        raise ValueError(f"Got path={path.name!r}, but expected a name that ends in .csv, .xlsx or .parquet.")
    return kind


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".channel.json")


def _check_columns(column: str | Sequence[str], table: pd.DataFrame, channel: Channel) -> list[str]:
    """Return the report columns as a list, after a look at every report in them."""
    columns = [column] if isinstance(column, str) else list(column)
    absent = [name for name in columns if name not in table.columns]
    if absent:
        raise ValueError(f"Got a table with the columns {list(table.columns)}, but expected {absent} among them.")
    channel.encode(table[columns] if _is_tuple(channel) else table[columns].squeeze(axis=1))
    return columns


def _is_tuple(channel: Channel) -> bool:
    return isinstance(channel.reports[0], tuple)


def _labels_by_column(channel: Channel) -> list[tuple[Label, ...]]:
    if not _is_tuple(channel):
        return [channel.reports]
    return [tuple(dict.fromkeys(own)) for own in zip(*channel.reports, strict=True)]


def _texts(labels: tuple[Label, ...]) -> list[str]:
    """Return what stands for each label in a CSV or Excel file; an empty field means missing."""
    texts = [label if isinstance(label, str) else repr(label) for label in labels]
    if "" in texts or len(set(texts)) < len(texts):
        raise ValueError(
            "reports cannot be told apart in a file of text, because a label is empty or two are written alike. "
            "Write Parquet instead."
        )
    return texts


def _code_of(codes: dict[str, int], field: str) -> int:
    return codes[unescape_formula(field)]


def _read_texts(path: Path, kind: str, channel: Channel, columns: list[str]) -> pd.DataFrame:
    """Read the report columns as codes, so that pandas never takes a label such as "NA" for missing."""
    labels = dict(zip(columns, _labels_by_column(channel), strict=False))  # _check_columns compares the lengths
    codes = {name: {"": -1, **{text: k for k, text in enumerate(_texts(known))}} for name, known in labels.items()}
    try:
        if kind == "xlsx":
            frame = read_workbook(path, columns)[0]
            for name, own in codes.items():
                frame[name] = [own["" if pd.isna(cell) else str(cell)] for cell in frame[name]]
        else:
            read = {escape_formula(name): partial(_code_of, own) for name, own in codes.items()}
            frame = unescape_formulas(pd.read_csv(path, converters=read))
    except KeyError:
        raise ValueError(
            "The file holds a report that its channel cannot make. It was edited, or its description "
            "belongs to another file."
        ) from None
    for name, known in labels.items():
        if name in frame:
            frame[name] = decode_labels(np.asarray(frame[name], dtype=np.int64), known)
    return frame

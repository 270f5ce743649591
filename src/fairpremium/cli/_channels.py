"""Which channel drew the reports: what the options say, what the file says, and whether they agree."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fairpremium.cli._files import as_text
from fairpremium.labels import infer_labels
from fairpremium.privacy import Channel, RandomizedResponse

_FORMAT = "fairpremium reports 1"
_METADATA_KEY = b"fairpremium.channel"
_CLOSE = 1e-3  # an option is typed with a few digits


@dataclass(frozen=True)
class Described:
    """A channel, the columns of its reports if it was found with a file, and where it was found."""

    channel: Channel
    columns: tuple[str, ...]
    source: str


def load_channel(path: Path) -> Described:
    """Read a channel from JSON: a descriptor, or the file that stands beside a CSV file of reports."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    return _parse(path.read_bytes(), str(path))


def find_channel(path: Path, column: str) -> Described | None:
    """Return the channel that a file of reports says its column went through, if it says so.

    Parameters
    ----------
    path : Path
        ``reports.csv`` with ``reports.csv.channel.json`` beside it, or ``reports.parquet`` with metadata.
    column : str
        The column of the reports.
    """
    found: Described | None = None
    if path.suffix.lower() == ".parquet":
        import pyarrow.parquet as pq

        metadata = pq.read_schema(path).metadata or {}
        if _METADATA_KEY in metadata:
            found = _parse(metadata[_METADATA_KEY], f"the metadata of {path}")
    else:
        sidecar = path.with_name(path.name + ".channel.json")
        found = load_channel(sidecar) if sidecar.is_file() else None
    return found if found is not None and column in found.columns else None


def _parse(text: bytes, source: str) -> Described:
    try:
        content = json.loads(text)
    except ValueError:
        raise ValueError(f"The description of the channel in {source} is not JSON.") from None
    columns: list[str] = []
    if isinstance(content, dict) and "format" in content:
        if content["format"] != _FORMAT:
            raise ValueError(f"The description of the channel in {source} must have the format {_FORMAT!r}.")
        columns, content = list(content.get("columns", [])), content.get("channel")
    try:
        channel = Channel.from_descriptor(content)
    except ValueError as error:
        raise ValueError(f"In {source}: {error}") from None
    return Described(channel, tuple(columns), source)


def require_single(channel: Channel) -> None:
    """Raise for a channel of several attributes, which the command line does not price."""
    if isinstance(channel.reports[0], tuple):
        raise ValueError(
            "The reports are of several attributes at once, and the command line prices one. Use the Python "
            "interface: DiscriminationFreePricer(channel=channel).fit(X, y, sensitive=frame)."
        )


def decode_reports(column: pd.Series, channel: Channel | None, path: Path) -> pd.Series:
    """Return the reports in the type of the channel's labels; as text if no channel is known."""
    texts = as_text(column, path)
    if channel is None or all(isinstance(label, str) for label in channel.reports):
        return texts
    known = {label if isinstance(label, str) else repr(label): label for label in channel.reports}
    unknown = int((texts.notna() & ~texts.isin(list(known))).sum())
    if unknown:
        raise ValueError(
            f"Column {column.name!r} of {path} has {unknown} of {len(texts)} rows with a report that the channel "
            f"cannot make; expected one of {list(known)}."
        )
    return texts.map(known, na_action="ignore")


def known_channel(
    found: Described | None,
    given: Described | None,
    keep: float | None,
    epsilon: float | None,
    groups: list[str] | None,
    reports: pd.Series,
) -> tuple[Channel, str]:
    """Return the channel and where it comes from; raise if options and file contradict each other."""
    declared = found or given
    if declared is None:
        labels = groups or list(infer_labels(reports, "sensitive"))
        return RandomizedResponse(labels, keep=keep, epsilon=epsilon), _source_of_groups(groups)
    channel = declared.channel
    if found is not None and given is not None and found.channel != given.channel:
        raise ValueError(f"--channel {given.source} contradicts {found.source}: they describe other channels.")
    _check_number("--keep", keep, channel.keep, declared.source)
    _check_number("--epsilon", epsilon, channel.epsilon, declared.source)
    if groups is not None and sorted(groups) != sorted(map(str, channel.groups)):
        raise ValueError(
            f"--groups {','.join(groups)} contradicts {declared.source}, which has the groups "
            f"{', '.join(map(str, channel.groups))}."
        )
    return channel, declared.source


def _source_of_groups(groups: list[str] | None) -> str:
    return "the options" if groups else "the options; its groups are the distinct reports"


def _check_number(option: str, given: float | None, declared: float, source: str) -> None:
    if given is not None and not math.isclose(given, declared, rel_tol=_CLOSE):
        raise ValueError(
            f"{option} {given:g} contradicts {source}, which says {declared:.6g}. Leave the option out if the "
            "file is right."
        )


def describe_channel(channel: Channel | None) -> dict[str, Any] | None:
    """Return what a summary says about a channel."""
    if channel is None:
        return None
    return {
        "groups": [str(group) for group in channel.groups],
        "keep": channel.keep,
        "epsilon": channel.epsilon,
        "sha256": channel.descriptor()["sha256"],
    }


def channel_text(described: dict[str, Any]) -> str:
    """Write a description as ``keep 0.8, epsilon 1.386``."""
    keep = described["keep"]
    start = "general channel" if math.isnan(keep) else f"randomized response, keep {keep:.4g}"
    return f"{start}, epsilon {described['epsilon']:.4g}"

"""Channels as files describe them, and what a summary says about a channel."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairpremium.cli._tables import require_file
from fairpremium.privacy import Channel

_FORMAT = "fairpremium reports 1"
_METADATA_KEY = b"fairpremium.channel"


@dataclass(frozen=True)
class Described:
    """A channel, the columns of its reports if it was found with a file, and where it was found."""

    channel: Channel
    columns: tuple[str, ...]
    source: str


def load_channel(path: Path) -> Described:
    """Read a channel from JSON: a descriptor, or the file that stands beside a CSV file of reports."""
    return _parse(require_file(path).read_bytes(), str(path))


def find_channel(path: Path, column: str) -> Described | None:
    """Return the channel that a file of reports says its column went through, if it says so.

    - `path`: ``reports.csv`` with ``reports.csv.channel.json`` beside it, or ``reports.parquet`` with metadata.
    - `column`: The column of the reports.
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


def describe_channel(channel: Channel | None) -> Any:
    """Return what a summary says about a channel: a dict, or None without a channel."""
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

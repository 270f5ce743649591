"""Channels as options and files describe them, and what a summary says about a channel."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fairpremium.cli._command import option_panel
from fairpremium.cli.tables import require_file
from fairpremium.privacy import Channel, KeyedChannels, SubsetSelection, describe_reports

noise_option = option_panel("How the reports were drawn")
KeepOption = Annotated[float | None, noise_option(help="Probability that a report is the truth.")]
EpsilonOption = Annotated[float | None, noise_option(help="Privacy parameter, instead of keep.")]
ChannelOption = Annotated[Path | None, noise_option(help="JSON file that describes the channel.")]


@dataclass(frozen=True)
class Described:
    """A channel, and where its description was found."""

    channel: Channel
    source: str


def load_channel(path: Path) -> Described:
    """Read a channel from JSON: a descriptor, or the file that stands beside a CSV file of reports."""
    text = require_file(path).read_bytes()
    try:
        content = json.loads(text)
        beside_reports = isinstance(content, dict) and "format" in content
        channel = Channel.from_descriptor(content.get("channel") if beside_reports else content)
    except json.JSONDecodeError:
        raise ValueError(f"The description of the channel in {path} is not JSON.") from None
    except ValueError as error:
        raise ValueError(f"In {path}: {error}") from None
    return Described(channel, str(path))


def find_channel(path: Path, column: str) -> Described | None:
    """Return the channel that a file of reports says its column went through, if it says so."""
    source = f"the metadata of {path}" if path.suffix.lower() == ".parquet" else f"{path}.channel.json"
    try:
        found = describe_reports(path)
    except ValueError as error:
        raise ValueError(f"In {source}: {error}") from None
    return Described(found[0], source) if found is not None and column in found[1] else None


def describe_channel(channel: Channel | KeyedChannels | None) -> Any:
    """Return what a summary says about a channel, or those of several sources: a dict, or None without a channel."""
    if channel is None:
        return None
    if isinstance(channel, KeyedChannels):
        return {
            "groups": [str(group) for group in channel.groups],
            "sources": {str(key): describe_channel(each) for key, each in channel.items()},
            "sha256": channel.descriptor()["sha256"],
        }
    return {
        "groups": [str(group) for group in channel.groups],
        "keep": channel.keep,
        **({"subset_size": channel.size} if isinstance(channel, SubsetSelection) else {}),
        "epsilon": channel.epsilon,
        "sha256": channel.descriptor()["sha256"],
    }


def channel_text(described: dict[str, Any]) -> str:
    """Write a description as ``keep 0.8, epsilon 1.386``."""
    if "sources" in described:
        sources = described["sources"].items()
        return "; ".join(
            f"{key}: {'the true attribute' if each is None else channel_text(each)}" for key, each in sources
        )
    keep = described["keep"]
    if "subset_size" in described:
        start = f"subset selection, {described['subset_size']} of {len(described['groups'])} groups in a report"
    else:
        start = "general channel" if math.isnan(keep) else f"randomized response, keep {keep:.4g}"
    return f"{start}, epsilon {described['epsilon']:.4g}"

"""What a study says about the sensitive attribute: its channel, and the reports that can come."""

import json
from functools import lru_cache
from typing import Any

from fairpremium.documents import canonical_json
from fairpremium.privacy import Channel

from ._messages import EstimatedChannel, KnownChannel, TrueAttribute

Attribute = KnownChannel | EstimatedChannel | TrueAttribute


def channel_of(attribute: Attribute) -> Channel | None:
    """Return the known channel of a study, or None."""
    return _read_channel(canonical_json(attribute.channel)) if isinstance(attribute, KnownChannel) else None


@lru_cache(maxsize=128)
def _read_channel(descriptor: bytes) -> Channel:
    return Channel.from_descriptor(json.loads(descriptor))


def descriptor_of(attribute: Attribute) -> dict[str, Any] | None:
    """Return the description of the known channel of a study, or None."""
    return attribute.channel if isinstance(attribute, KnownChannel) else None


def labels_of(attribute: Attribute) -> tuple[Any, ...]:
    """Return the values that a report can take, in the order of their codes."""
    channel = channel_of(attribute)
    return tuple(channel.reports) if channel is not None else tuple(getattr(attribute, "groups", ()))

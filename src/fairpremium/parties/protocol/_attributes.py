"""What a study says about sensitive attributes: their channels, and the reports that can come."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fairpremium.documents import canonical_json
from fairpremium.privacy import Channel

from ._messages import EstimatedChannel, KnownChannel, SeveralAttributes, TrueAttribute
from ._problems import Problem, list_allowed

Attribute = KnownChannel | EstimatedChannel | TrueAttribute | SeveralAttributes


def channel_of(attribute: Attribute) -> Channel | None:
    """Return the known channel of a study, the product of those of several attributes, or None."""
    if isinstance(attribute, SeveralAttributes):
        return Channel.product(*(_read_channel(canonical_json(one.channel)) for one in attribute.attributes))
    return _read_channel(canonical_json(attribute.channel)) if isinstance(attribute, KnownChannel) else None


@lru_cache(maxsize=128)
def _read_channel(descriptor: bytes) -> Channel:
    return Channel.from_descriptor(json.loads(descriptor))


def descriptor_of(attribute: Attribute) -> dict[str, Any] | None:
    """Return the description of the known channel of a study, or None."""
    if isinstance(attribute, KnownChannel):
        return attribute.channel
    channel = channel_of(attribute)
    return None if channel is None else channel.descriptor()


def labels_of(attribute: Attribute) -> tuple[Any, ...]:
    """Return the values that a report can take, in the order of their codes."""
    channel = channel_of(attribute)
    return tuple(channel.reports) if channel is not None else tuple(getattr(attribute, "groups", ()))


def names_of(attribute: Attribute) -> tuple[str | None, ...]:
    """Return the names of several attributes; the attribute of a study that has one is called None."""
    if isinstance(attribute, SeveralAttributes):
        return tuple(one.name for one in attribute.attributes)
    return (None,)


def choose_attributes(attribute: Attribute, names: Sequence[str | None] | None = None) -> Attribute:
    """Return some of the attributes of a study, in its order; all of them by default.

    Raises
    ------
    Problem
        The study does not have an attribute of such a name.
    """
    if names is None:
        return attribute
    known = names_of(attribute)
    if not set(names) <= set(known):
        allowed = list_allowed(name for name in known if name is not None)
        raise Problem("not-allowed-here", f"an attribute that it does not name; allowed: {allowed}")
    if not isinstance(attribute, SeveralAttributes):
        return attribute
    chosen = tuple(one for one in attribute.attributes if one.name in names)
    if len(chosen) == 1:
        return KnownChannel(channel=chosen[0].channel)
    return SeveralAttributes(attributes=chosen)


def one_attribute(attribute: Attribute, name: str | None) -> Attribute:
    """Return the attribute of a report; a study of several wants its name, and one with a single attribute none."""
    if name is None and isinstance(attribute, SeveralAttributes):
        allowed = list_allowed(names_of(attribute))
        raise Problem("not-allowed-here", f"a report without the name of its attribute; allowed: {allowed}")
    return choose_attributes(attribute, [name])

"""The description that travels with reports: scheme, labels, integers, epsilon and a hash of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..documents import canonical_json
from ..labels import label_from_json

if TYPE_CHECKING:
    from ._channel import Channel

RANDOMIZED_RESPONSE = "randomized-response/1"
GENERAL = "channel/1"
PRODUCT = "product/1"
SUBSET_SELECTION = "subset-selection/1"
REPEATED = "repeated/1"


def channel_from_descriptor(descriptor: Mapping[str, Any]) -> Channel:
    """Rebuild a channel and insist that it describes itself exactly as given.

    Every deviation (unknown scheme, missing or extra field, an epsilon that the integers do not give, a wrong
    hash) makes the two descriptions differ, so that one comparison finds them all.
    """
    if not isinstance(descriptor, Mapping):
        raise ValueError(f"Got descriptor of type {type(descriptor).__name__}, but expected a dict.")
    try:
        given = canonical_json(dict(descriptor))
        channel = _build(descriptor)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"descriptor does not describe a channel: {reason}") from None
    expected = channel.descriptor()
    if canonical_json(expected) != given:
        wrong = sorted(
            str(name)
            for name in {*expected, *descriptor}
            if canonical_json(expected.get(name)) != canonical_json(descriptor.get(name))
            or (name in expected) != (name in descriptor)
        )
        raise ValueError(
            f"descriptor contradicts itself in the fields {wrong}. It was damaged or edited on the way; "
            "ask the sender for a fresh one."
        )
    return channel


def _build(descriptor: Mapping[str, Any]) -> Channel:
    from ._channel import Channel
    from ._randomized_response import RandomizedResponse
    from ._subset_selection import SubsetSelection

    scheme = descriptor["scheme"]
    if scheme == PRODUCT:
        return Channel.product(*(channel_from_descriptor(component) for component in descriptor["components"]))
    if scheme == REPEATED:
        return Channel.repeated(*(channel_from_descriptor(each) for each in descriptor["repeats"]))
    if scheme == RANDOMIZED_RESPONSE:
        groups = label_from_json(descriptor["groups"])
        return RandomizedResponse.from_integers(groups, _integer(descriptor["a"]), _integer(descriptor["b"]))
    if scheme == SUBSET_SELECTION:
        groups = label_from_json(descriptor["groups"])
        size, a, b = (_integer(descriptor[name]) for name in ("size", "a", "b"))
        return SubsetSelection.from_integers(groups, size, a, b)
    if scheme == GENERAL:
        groups, reports = label_from_json(descriptor["groups"]), label_from_json(descriptor["reports"])
        weights = tuple(tuple(_integer(w) for w in row) for row in descriptor["weights"])
        return Channel._from_weights(weights, groups, reports)
    raise ValueError(
        f"scheme must be one of {[RANDOMIZED_RESPONSE, SUBSET_SELECTION, GENERAL, PRODUCT, REPEATED]}; a newer "
        "fairpremium may know more"
    )


def _integer(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("weights must be non-negative integers")
    return value

"""Descriptors travel through JSON, and nothing but the truth comes back from them."""

from __future__ import annotations

import copy
import hashlib
import json

import numpy as np
import pytest

from fairpremium.documents import seal
from fairpremium.privacy import Channel, RandomizedResponse

SEX = RandomizedResponse(["F", "M"], keep=0.8)
GENERAL = Channel([[0.5, 0.125], [0.25, 0.25], [0.25, 0.625]], groups=[False, True], reports=["-", "?", 1.5])
PRODUCT = Channel.product(SEX, GENERAL, RandomizedResponse([1, 2, 3], epsilon=0.7))
TUPLES = RandomizedResponse([("a", 1), ("b", 2)], keep=0.75)
ALL = [SEX, GENERAL, PRODUCT, TUPLES, Channel(np.eye(2), groups=["a", "b"])]


@pytest.mark.parametrize("channel", ALL, ids=repr)
def test_round_trip_through_json(channel):
    text = json.dumps(channel.descriptor(), allow_nan=False)
    again = Channel.from_descriptor(json.loads(text))
    assert again == channel
    assert again.groups == channel.groups
    assert list(map(type, again.groups)) == list(map(type, channel.groups))
    assert channel.matches(json.loads(text))
    assert again.descriptor() == channel.descriptor()


def test_the_fields():
    assert SEX.descriptor() == {
        "scheme": "randomized-response/1",
        "groups": ["F", "M"],
        "reports": ["F", "M"],
        "epsilon": 1.3862943611198908,
        "a": 4,
        "b": 1,
        "sha256": SEX.descriptor()["sha256"],
    }
    rest = {k: v for k, v in SEX.descriptor().items() if k != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    assert SEX.descriptor()["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_the_hash_does_not_drift():
    # Reports in the field carry this; a change of the format needs a new scheme version.
    assert SEX.descriptor()["sha256"] == "6a1e01568e540eb43c9dfbe22661b15c2b32dbdbf6e77baae58c01eceb5f1299"


def test_other_studies_do_not_match():
    for other in (
        RandomizedResponse(["F", "M"], keep=0.81),
        RandomizedResponse(["M", "F"], keep=0.8),
        RandomizedResponse(["F", "M", "X"], keep=0.8),
        PRODUCT,
    ):
        assert not SEX.matches(other.descriptor())
    for nonsense in (None, 1, "x", [], {}, {"scheme": "x"}, {"scheme": ["x"]}):
        assert not SEX.matches(nonsense)


def tampered(descriptor, **changes):
    """Changed fields under a fresh, valid hash; None removes a field."""
    fields = {**descriptor, **changes}
    del fields["sha256"]
    return seal({k: v for k, v in fields.items() if v is not None})


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "randomized-response/2"},
        {"scheme": "channel/1"},
        {"groups": None},
        {"a": None},
        {"extra": 1},
        {"epsilon": 0.1},
        {"epsilon": 2},
        {"a": 8, "b": 2},
        {"a": 1, "b": 4},
        {"a": 1, "b": 0},
        {"a": -4, "b": -1},
        {"a": 4.0},
        {"a": "4"},
        {"a": True},
        {"a": 2**40},
        {"groups": ["F"]},
        {"groups": ["F", "F"]},
        {"groups": "FM"},
        {"groups": [["F"], {}]},
        {"groups": 3},
        {"reports": ["M", "F"]},
        {"reports": [0, 1]},
    ],
    ids=repr,
)
def test_false_descriptions_are_refused(changes):
    with pytest.raises(ValueError, match="descriptor"):
        Channel.from_descriptor(tampered(SEX.descriptor(), **changes))


@pytest.mark.parametrize(
    "weights",
    [
        [[1, 1], [1, 1], [2, 2]],
        [[4, 1], [2, 2], [2, 6]],
        [[8, 2], [4, 4], [4, 10]],
        [[4, 1], [2, 2]],
        [[4], [2], [2]],
        [],
        [[4, 1], [2], [2, 5]],
        [[-4, 1], [10, 2], [2, 5]],
        [[4.0, 1], [2, 2], [2, 5]],
        "weights",
        None,
    ],
    ids=repr,
)
def test_false_weights_are_refused(weights):
    with pytest.raises(ValueError, match="descriptor"):
        Channel.from_descriptor(tampered(GENERAL.descriptor(), weights=weights))


def test_a_damaged_hash_is_refused():
    for channel in ALL:
        descriptor = channel.descriptor()
        descriptor["sha256"] = "0" * 64
        with pytest.raises(ValueError, match=r"contradicts itself in the fields \['sha256'\]"):
            Channel.from_descriptor(descriptor)
        del descriptor["sha256"]
        with pytest.raises(ValueError, match="contradicts itself"):
            Channel.from_descriptor(descriptor)


def test_damaged_components_are_refused():
    descriptor = copy.deepcopy(PRODUCT.descriptor())
    descriptor["components"][0]["a"] = 5
    with pytest.raises(ValueError, match="contradicts itself"):
        Channel.from_descriptor(descriptor)
    for parts in ([], [SEX.descriptor()], [1, 2], "ab"):
        with pytest.raises(ValueError, match="descriptor"):
            Channel.from_descriptor(tampered(PRODUCT.descriptor(), components=parts))


def test_errors_in_descriptors_are_sentences():
    with pytest.raises(ValueError, match=r"Got descriptor of type list, but expected a dict"):
        Channel.from_descriptor([])
    with pytest.raises(ValueError, match="field 'scheme' is missing"):
        Channel.from_descriptor({})
    deep = json.loads("[" * 500 + "]" * 500)
    with pytest.raises(ValueError, match="descriptor"):
        Channel.from_descriptor({"scheme": "randomized-response/1", "groups": deep, "a": 4, "b": 1})

"""Several sources as one channel: stacked matrices, row weights that are unbiased row by row, codes, files."""

import json
import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.stats import norm

from fairpremium.privacy import Channel, KeyedChannels, RandomizedResponse

GROUPS = ("a", "b", "c")
APP = RandomizedResponse(GROUPS, epsilon=1.0)
BROKER = RandomizedResponse(("c", "a", "b"), keep=0.9)
SURVEY = Channel(
    [[0.4, 0.1, 0.1], [0.2, 0.5, 0.1], [0.2, 0.2, 0.5], [0.2, 0.2, 0.3]], groups=GROUPS, reports=["a", "b", "c", "?"]
)
MIXED = KeyedChannels({"app": APP, "broker": BROKER, "survey": SURVEY, "consent": None})


def test_stacks_the_sources_in_one_order_of_groups():
    assert MIXED.groups == GROUPS
    assert MIXED.reports[3:6] == (("broker", "c"), ("broker", "a"), ("broker", "b"))
    assert MIXED.matrix.shape == (13, 3)
    assert MIXED.inverse.shape == (3, 13)
    T = dict(zip(MIXED.reports, MIXED.matrix, strict=True))
    assert T["broker", "c"] == pytest.approx([0.05, 0.05, 0.9])
    for w in range(4):  # a law within each source, undone within each source
        own = w == MIXED.source_of
        np.testing.assert_allclose(MIXED.matrix[own].sum(axis=0), 1)
        np.testing.assert_allclose(MIXED.inverse[:, own] @ MIXED.matrix[own], np.eye(3), atol=1e-12)


def test_is_the_mapping_it_was_made_from():
    plain = {"app": APP, "broker": BROKER, "survey": SURVEY, "consent": None}
    assert plain == MIXED
    assert MIXED == plain  # noqa: SIM300
    assert dict(MIXED) == plain
    assert MIXED["consent"] is None
    assert MIXED.epsilon == np.inf
    assert KeyedChannels({1: APP, 2: BROKER}).epsilon == BROKER.epsilon


def test_travels_to_workers():
    again = pickle.loads(pickle.dumps(MIXED))
    assert again == MIXED
    assert np.array_equal(again.inverse, MIXED.inverse)


def test_codes():
    keys, reports = ["app", "broker", "survey", "consent", "app", None], ["b", "b", "?", "c", None, None]
    expected = [MIXED.reports.index(pair) for pair in zip(keys[:4], reports[:4], strict=True)] + [-1, -1]
    assert MIXED.encode(reports, keys).tolist() == expected
    assert MIXED.encode(pd.Series(reports), pd.Categorical(keys)).tolist() == expected
    assert MIXED.encode(pa.array(reports), pa.array(keys)).tolist() == expected


@pytest.mark.parametrize(
    "reports, keys, message",
    [
        (["a"], ["web"], r"channel_key with \['web'\].*one of \['app', 'broker', 'survey', 'consent'\]"),
        ([None], ["web"], r"channel_key with \['web'\]"),
        (["a", "b"], ["app", None], "channel_key without a value in 1 of the rows that have a report"),
        (["a", "?", "?"], ["app", "app", "survey"], "1 rows of the source 'app' that are not among its reports"),
        (["x"], ["app"], "not among the declared labels"),
        (["a", "b"], ["app"], "channel_key with 1 rows, but sensitive has 2"),
        (["a"], None, "Got no channel_key"),
    ],
)
def test_refuses_codes(reports, keys, message):
    with pytest.raises(ValueError, match=message):
        MIXED.encode(reports, keys)


@pytest.mark.parametrize(
    "sources, message",
    [
        ({"a": APP, "b": RandomizedResponse(("a", "b"), keep=0.8)}, "key 'b' with the groups.*same attribute"),
        ({"a": APP, "b": 0.8}, "Got a float for the key 'b'"),
        ({}, "no mapping or empty"),
        ({"a": None}, "expected the groups if every source holds D"),
    ],
)
def test_refuses_sources(sources, message):
    with pytest.raises((ValueError, TypeError), match=message):
        KeyedChannels(sources)


def test_row_weights_are_unbiased_however_people_choose_their_source():
    """P(D) and each group's mean of a function of x: the plain means of the signed weights."""
    rng, n = np.random.default_rng(0), 60_000
    D = rng.choice(3, n, p=[0.1, 0.3, 0.6])
    keys = np.array(["app", "broker", "survey", "consent"])[(rng.random(n) < 0.3 + 0.2 * D).astype(int) * (1 + D)]
    S = MIXED.privatize(np.array(GROUPS)[D], keys, rng=1)
    a = MIXED.inverse.T[MIXED.encode(S, keys)]
    assert a.mean(axis=0) == pytest.approx(MIXED.group_distribution(S, keys), abs=1e-12)
    z = np.sqrt(n) * (a - np.eye(3)[D]).mean(axis=0) / (a - np.eye(3)[D]).std(axis=0)
    assert np.abs(z).max() < norm.isf(1e-4)
    assert (S[keys == "consent"] == np.array(GROUPS)[D][keys == "consent"]).all()


def test_one_source_is_its_channel():
    one = KeyedChannels({"app": APP})
    assert np.array_equal(one.matrix, APP.matrix)
    assert np.array_equal(one.inverse, APP.inverse)
    S = APP.privatize(["a", "b", "c"] * 50, rng=0)
    assert np.array_equal(one.encode(S, ["app"] * 150), APP.encode(S))
    assert np.array_equal(one.group_distribution(S, ["app"] * 150), APP.group_distribution(S))


def test_descriptor_survives_json_and_finds_damage():
    text = json.dumps(MIXED.descriptor())
    again = KeyedChannels.from_descriptor(json.loads(text))
    assert again == MIXED
    assert again.groups == MIXED.groups
    assert list(again) == list(MIXED)
    for damaged in ({**MIXED.descriptor(), "groups": ["b", "a", "c"]}, {"scheme": "sources/1"}, {"sources": [None]}):
        with pytest.raises(ValueError, match="descriptor"):
            KeyedChannels.from_descriptor(damaged)


def test_known_everywhere():
    known = KeyedChannels({"app": None, 7: None}, groups=["F", "M"])
    assert known.encode(["F", "M"], ["app", 7]).tolist() == [0, 3]
    assert known.matrix.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]

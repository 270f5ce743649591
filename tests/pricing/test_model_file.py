"""Model files: exact round trips, and refusal of everything else."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest

from fairpremium import Channel, DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.errors import ModelFileError
from fairpremium.families import Tweedie


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    n = 800
    X = pd.DataFrame(
        {"age": rng.integers(18, 80, n), "area": rng.choice(["u", "r", "ü – x"], n), "new": rng.random(n) < 0.3}
    )
    return X, rng.poisson(0.5, n).astype(float), rng.choice([1, 2], n)


@pytest.mark.parametrize(
    "settings",
    [
        {"family": "normal", "channel": None},
        {"family": "poisson", "channel": RandomizedResponse([1, 2], keep=0.9), "reference": {1: 0.3, 2: 0.7}},
        {"family": Tweedie(1.3), "channel": Channel([[0.8, 0.3], [0.2, 0.7]], groups=[1, 2]), "reference": "uniform"},
        {"family": "poisson", "model": LinearModel(ridge=3.0), "intervals": False, "unseen_levels": "base"},
    ],
)
def test_round_trip_is_exact(rows, settings, tmp_path):
    X, y, S = rows
    pricer = DiscriminationFreePricer(**settings, correction="inverse", random_state=0).fit(X, y, sensitive=S)
    path = tmp_path / "model.json"
    pricer.save(path)
    loaded = DiscriminationFreePricer.load(path)
    np.testing.assert_array_equal(loaded.predict(X), pricer.predict(X))
    np.testing.assert_array_equal(loaded.predict_unaware(X), pricer.predict_unaware(X))
    pd.testing.assert_frame_equal(loaded.predict_best_estimate(X), pricer.predict_best_estimate(X))
    pd.testing.assert_frame_equal(loaded.candidates_, pricer.candidates_)
    pd.testing.assert_frame_equal(loaded.coefficients_, pricer.coefficients_)
    assert loaded.score(X, y, sensitive=S) == pricer.score(X, y, sensitive=S)
    if settings.get("intervals", True):
        np.testing.assert_array_equal(loaded.predict_interval(X), pricer.predict_interval(X))
    for name in ("groups_", "channel_", "correction_", "pooling_", "n_rows_", "n_missing_reports_"):
        assert getattr(loaded, name) == getattr(pricer, name)
    again = tmp_path / "again.json"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_the_version_says_whether_an_old_reader_can_read_the_file(rows, tmp_path):
    """Version 1 is that of 0.1.0, where `pooling` is a number; with an object in its place the file has version 2."""
    X, y, S = rows
    for pooling, version in ((3.0, 1), (0, 1), ("auto", 2)):
        pricer = DiscriminationFreePricer(pooling=pooling).fit(X, y, sensitive=S)
        pricer.save(tmp_path / "m.json")
        document = json.loads((tmp_path / "m.json").read_text())
        assert document["version"] == version
        loaded = DiscriminationFreePricer.load(tmp_path / "m.json").pooling_
        assert loaded == pricer.pooling_ == document["pooling"]
        assert type(loaded) is type(pricer.pooling_) is (float if version == 1 else dict)
    assert set(document["pooling"]) == {"main", "slopes"}
    assert set(document["pooling"]["slopes"]) == set(X.columns)
    for wrong in (
        {"version": 1},
        {"pooling": 3.0},
        {"pooling": {"main": 1.0}},
        {"pooling": {"main": -1.0, "slopes": {}}},
        {"pooling": {"main": 1.0, "slopes": {"age": "wide"}}},
        {"pooling": {"main": None, "slopes": {}}},
        {"pooling": {"main": 1.0, "slopes": {}, "hook": 1.0}},
        {"pooling": [1.0, {}]},
    ):
        refuse(signed({**document, **wrong}), tmp_path, "pooling|not a valid fairpremium model")


def test_groups_of_two_attributes(tmp_path):
    rng = np.random.default_rng(1)
    channel = Channel.product(RandomizedResponse(["F", "M"], keep=0.9), RandomizedResponse([1, 2], keep=0.9))
    X = rng.normal(size=(2000, 1))
    S = pd.DataFrame({"sex": rng.choice(["F", "M"], 2000), "area": rng.choice([1, 2], 2000)})
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, random_state=0).fit(
        X, rng.normal(size=2000), sensitive=S
    )
    pricer.save(tmp_path / "m.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "m.json")
    assert loaded.groups_ == channel.groups
    np.testing.assert_array_equal(loaded.predict(X), pricer.predict(X))


@pytest.fixture
def document(rows, tmp_path):
    X, y, S = rows
    DiscriminationFreePricer(correction="inverse", pooling=0, channel=RandomizedResponse([1, 2], keep=0.9)).fit(
        X, y, sensitive=S
    ).save(tmp_path / "m.json")
    return json.loads((tmp_path / "m.json").read_text())


def refuse(document, tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    with pytest.raises(ModelFileError, match=text):
        DiscriminationFreePricer.load(path)


def signed(document):
    """Recompute the hash, as a careful forger would: what follows must be caught by the field checks."""
    from fairpremium.documents import digest

    body = {key: value for key, value in document.items() if key != "sha256"}
    return {**body, "sha256": digest(body)}


def test_other_files_are_refused(document, tmp_path):
    refuse("not json", tmp_path, "not JSON")
    refuse("[]", tmp_path, "not a fairpremium model")
    refuse({**document, "format": "other"}, tmp_path, "format")
    refuse(signed({**document, "version": 4}), tmp_path, "version 4, but this fairpremium reads version 1 or 2 or 3")
    refuse(signed({**document, "version": 3}), tmp_path, "version is not that of its pooling, slopes and terms")
    refuse({**document, "pooling": 3.0}, tmp_path, "sha256")
    refuse("[" * 100_000, tmp_path, "not JSON")
    (tmp_path / "p.json").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelFileError, match="not JSON"):
        DiscriminationFreePricer.load(tmp_path / "p.json")
    with pytest.raises(FileNotFoundError):
        DiscriminationFreePricer.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "field, value",
    [
        ("coefficients", [[1.0]]),
        ("coefficients", "text"),
        ("unaware", []),
        ("reference_distribution", [0.5, None]),
        ("covariance", [[0.0]]),
        ("groups", ["F"]),
        ("groups", [2, 1]),
        ("family", {"name": "evil"}),
        ("family", {"name": "tweedie", "power": 7}),
        ("model", {"kind": "neural"}),
        ("model", {"kind": "linear", "hook": "os.system"}),
        ("design", {}),
        ("channel", {"scheme": "none"}),
        ("candidates", 3),
        ("rows", "many"),
    ],
)
def test_wrong_fields_are_refused(document, tmp_path, field, value):
    refuse(signed({**document, field: value}), tmp_path, "model|shape|groups")


@pytest.mark.parametrize("field", ["coefficients", "groups", "design", "sha256", "covariance", "channel"])
def test_missing_fields_are_refused(document, tmp_path, field):
    del document[field]
    if field == "sha256":
        refuse(document, tmp_path, "sha256")
    else:
        refuse(signed(document), tmp_path, "not a valid fairpremium model")

"""What all noise estimators promise."""

from __future__ import annotations

import importlib
import inspect
import math
import pickle
from pkgutil import iter_modules

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fairpremium.noise
from fairpremium.errors import NotIdentifiedError
from fairpremium.noise import AnchorNoise, MarginNoise, NoiseEstimator, RetestNoise, ValidationNoise
from fairpremium.privacy import RandomizedResponse

N = 3000


@pytest.fixture
def data(flip):
    rng = np.random.default_rng(0)
    x = rng.choice(3, size=N, p=[0.15, 0.15, 0.7])
    D = np.where((x == 2) | (rng.random(N) < 0.2), "F", "M")
    return (
        pd.DataFrame({"region": np.array(["north", "south", "west"])[x]}),
        D,
        flip(D, 0.85, rng),
        flip(D, 0.85, rng),
    )


def make(kind, data):
    _, D, S, S2 = data
    return {
        "anchor": lambda: AnchorNoise(group="F", anchor_share=0.5, random_state=0),
        "validation": lambda: ValidationNoise(D[:500], S[:500]),
        "matrix": lambda: ValidationNoise(D[:500], S[:500], symmetric=False),
        "retest": lambda: RetestNoise(S[:900], S2[:900]),
        "margin": lambda: MarginNoise({"F": float(np.mean(D == "F")), "M": float(np.mean(D == "M"))}),
    }[kind]()


KINDS = ["anchor", "validation", "matrix", "retest", "margin"]


def test_exports():
    modules = [importlib.import_module(f"fairpremium.noise.{m.name}") for m in iter_modules(fairpremium.noise.__path__)]
    found = {
        name
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, NoiseEstimator) and not inspect.isabstract(value)
    }
    others = {"DeclaredChannelCheck", "SourceCheck", "check_declared_channel", "check_sources"}
    assert set(fairpremium.noise.__all__) - others == {*found, "NoiseEstimator"}


@pytest.mark.parametrize("kind", KINDS)
def test_interface(kind, data):
    X, _, S, _ = data
    noise = clone(make(kind, data))
    assert noise.fit(X, np.zeros(N), sensitive=S, sample_weight=np.ones(N)) is noise
    assert tuple(noise.groups_) == ("F", "M")
    assert noise.identified_ is True
    assert noise.require_channel() is noise.channel_
    assert tuple(noise.channel_.groups) == ("F", "M")
    assert isinstance(noise.message_, str)
    assert "rests on" in noise.message_
    if kind == "matrix":
        assert math.isnan(noise.keep_)
        assert np.diag(noise.channel_.matrix) == pytest.approx([0.85, 0.85], abs=0.12)
        return
    assert isinstance(noise.channel_, RandomizedResponse)
    assert noise.channel_.keep == pytest.approx(noise.keep_, abs=1e-6)
    assert isinstance(noise.keep_, float)
    assert noise.keep_ == pytest.approx(0.85, abs=5 * noise.standard_error_)
    assert noise.interval_[0] < noise.keep_ < noise.interval_[1] <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_before_fit_and_when_not_identified(kind, data):
    noise = make(kind, data)
    with pytest.raises(NotFittedError):
        noise.require_channel()
    noise.fit(data[0], None, sensitive=data[2])
    noise.channel_, noise.identified_, noise.message_ = None, False, "no telling"
    with pytest.raises(NotIdentifiedError, match="no telling"):
        noise.require_channel()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("container", [list, pd.Series, pl.Series, np.asarray])
def test_any_container_gives_the_same(kind, container, data):
    X, _, S, _ = data
    expected = make(kind, data).fit(X, None, sensitive=S)
    frame = pl.from_pandas(X) if container is pl.Series else X
    found = make(kind, data).fit(frame, None, sensitive=container(S.tolist()))
    assert found.message_ == expected.message_
    assert found.interval_ == pytest.approx(expected.interval_, nan_ok=True)


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_labels_are_an_error_that_does_not_echo(kind, data):
    X, _, S, _ = data
    odd = S.astype(object)
    odd[7] = "secret value"
    noise = make(kind, data)
    if kind == "anchor":
        noise.set_params(groups=["F", "M"])
    with pytest.raises(ValueError, match="sensitive") as caught:
        noise.fit(X, None, sensitive=odd)
    assert "secret value" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0, 1, -0.5, float("nan"), "0.95", True, None])
def test_level_is_checked(kind, level, data):
    with pytest.raises(ValueError, match="level="):
        make(kind, data).set_params(level=level).fit(data[0], None, sensitive=data[2])


@pytest.mark.parametrize("kind", ["validation", "retest", "margin"])
def test_wider_level_wider_interval(kind, data):
    X, _, S, _ = data
    low, high = make(kind, data).fit(X, None, sensitive=S).interval_
    wide = make(kind, data).set_params(level=0.99).fit(X, None, sensitive=S).interval_
    assert wide[0] < low < high < wide[1]


@pytest.mark.parametrize("kind", ["validation", "matrix", "retest"])
def test_answers_of_people_are_not_printed(kind, data):
    noise = make(kind, data)
    assert "'F'" not in repr(noise)
    assert "values>" in repr(noise)
    assert "'F'" not in noise._repr_html_()


@pytest.mark.parametrize("kind", ["validation", "matrix", "retest"])
def test_own_sample_needs_no_reports_but_checks_their_labels(kind, data):
    assert make(kind, data).fit(None, None, sensitive=None).identified_
    with pytest.raises(ValueError, match="own sample"):
        make(kind, data).fit(None, None, sensitive=["F", "M", "X"])


@pytest.mark.parametrize("kind", KINDS)
def test_pickle(kind, data):
    noise = make(kind, data).fit(data[0], None, sensitive=data[2])
    copy = pickle.loads(pickle.dumps(noise))
    assert copy.message_ == noise.message_
    assert copy.require_channel().groups == noise.channel_.groups

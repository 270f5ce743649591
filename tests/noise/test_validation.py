from __future__ import annotations

import numpy as np
import pytest

from fairpremium.errors import NotIdentifiedError
from fairpremium.noise import ValidationNoise


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 3, 4, 5])
@pytest.mark.parametrize("keep", [0.6, 0.9])
def test_recovers_and_covers(K, keep, draw, shares, repetitions, assert_covers):
    rng = np.random.default_rng([K, int(100 * keep)])
    keeps, covered, errors = [], [], []
    for _ in range(repetitions(200, 5000)):
        D, S = draw(300, keep, shares(K), rng)
        noise = ValidationNoise(D, S).fit(sensitive=None)
        keeps.append(noise.keep_)
        errors.append(noise.standard_error_)
        covered.append(noise.interval_[0] <= keep <= noise.interval_[1])
    assert_covers(covered, 0.95)
    # Five standard errors of the mean: false alarm 6e-7.
    assert abs(np.mean(keeps) - keep) < 5 * np.std(keeps) / np.sqrt(len(keeps))
    # The standard deviation itself has relative error 1/sqrt(2 r).
    assert np.mean(errors) == pytest.approx(np.std(keeps), rel=5 / np.sqrt(2 * len(keeps)))


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 3, 5])
def test_recovers_any_matrix(K, repetitions):
    rng = np.random.default_rng(K)
    T = 0.5 * np.eye(K) + 0.5 * rng.dirichlet(np.ones(K), size=K).T  # columns sum to one
    d = rng.integers(K, size=4000)
    labels = np.array(["a", "b", "c", "d", "e"])
    found = []
    for _ in range(repetitions(40, 400)):
        s = (rng.random(len(d)) > np.cumsum(T, axis=0)[:, d]).sum(axis=0)
        noise = ValidationNoise(labels[d], labels[s], symmetric=False).fit(sensitive=None)
        assert noise.identified_
        assert noise.channel_.matrix.sum(axis=0) == pytest.approx(np.ones(K))
        found.append(np.asarray(noise.channel_.matrix))
    z = (np.mean(found, axis=0) - T) / (noise.matrix_standard_error_ / np.sqrt(len(found)))
    assert np.abs(z).max() < 6  # 25 entries at most: false alarm 5e-8


def test_matrix_that_has_no_inverse_is_not_identified():
    rng = np.random.default_rng(0)
    D, S = rng.choice(["F", "M"], size=(2, 400))
    noise = ValidationNoise(D, S, symmetric=False).fit(sensitive=None)
    assert not noise.identified_
    assert "no inverse" in noise.message_
    with pytest.raises(NotIdentifiedError, match="no inverse"):
        noise.require_channel()


def test_matrix_needs_every_group():
    with pytest.raises(ValueError, match="every group"):
        ValidationNoise(["F", "F"], ["F", "M"], symmetric=False).fit(sensitive=None)


@pytest.mark.parametrize("keep", [0.5, 0.52])
def test_pure_noise_is_not_identified(keep, draw):
    D, S = draw(200, keep, [0.5, 0.5], np.random.default_rng(1))
    noise = ValidationNoise(D, S).fit(sensitive=None)
    assert not noise.identified_
    assert noise.channel_ is None
    assert noise.interval_[0] <= 0.5
    assert "pure noise" in noise.message_


@pytest.mark.parametrize("symmetric", [True, False])
def test_no_noise_seen(symmetric):
    D = ["F", "M"] * 50
    noise = ValidationNoise(D, D, symmetric=symmetric).fit(sensitive=None)
    assert not noise.identified_
    assert "channel=None" in noise.message_


def test_missing_people_are_left_out_and_counted():
    noise = ValidationNoise(["F"] * 20 + [None, "M"] + ["M"] * 20, ["F"] * 19 + ["M"] + ["F", None] + ["M"] * 20).fit(
        sensitive=None
    )
    assert noise.n_people_ == 40
    assert noise.keep_ == 39 / 40
    assert "2 people were left out" in noise.message_


def test_groups_declare_one_that_the_sample_lacks():
    D, S = ["a", "b"] * 50, ["a", "b"] * 45 + ["b", "a"] * 5
    with pytest.raises(ValueError, match="groups="):
        ValidationNoise(D, S).fit(sensitive=["a", "b", "c"])
    noise = ValidationNoise(D, S, groups=["c", "a", "b"]).fit(sensitive=["a", "b", "c"])
    assert tuple(noise.groups_) == ("c", "a", "b")
    assert noise.keep_ == 0.9


@pytest.mark.parametrize(
    "true, report, groups, match",
    [
        (["F", "M"], ["F"], None, "same people"),
        (["F", "F"], ["F", "F"], None, "at least two"),
        ([], [], None, "at least two"),
        ([], [], ["F", "M"], "at least one"),
        ([None, "M"], ["F", None], None, "at least one"),
        (["F", "x"], ["F", "M"], ["F", "M"], "true"),
        (["F", "M"], ["F", "x"], ["F", "M"], "report"),
        (["F", "M"], ["F", "M"], ["F"], "at least two"),
        (["F", "M"], ["F", "M"], ["F", "F", "M"], "distinct"),
    ],
)
def test_bad_input(true, report, groups, match):
    with pytest.raises(ValueError, match=match):
        ValidationNoise(true, report, groups).fit(sensitive=None)

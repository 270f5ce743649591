from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, kstest

from fairpremium.noise import MarginNoise


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 3, 4, 5])
@pytest.mark.parametrize("keep", [0.65, 0.9])
@pytest.mark.parametrize("weighted", [False, True])
def test_recovers_and_covers(K, keep, weighted, draw, shares, repetitions, assert_covers):
    rng = np.random.default_rng([K, int(100 * keep), weighted])
    labels = np.array(["a", "b", "c", "d", "e"][:K])
    volume = np.arange(1, K + 1) if weighted else np.ones(K)  # groups differ in volume
    p = shares(K) * volume / (shares(K) @ volume)
    keeps, covered, errors = [], [], []
    for _ in range(repetitions(200, 5000)):
        D, S = draw(4000, keep, shares(K), rng)
        w = rng.gamma(2, volume[np.searchsorted(labels, D)]) if weighted else None
        noise = MarginNoise(dict(zip(labels.tolist(), p.tolist(), strict=True)))
        noise.fit(sensitive=S, sample_weight=w)
        keeps.append(noise.keep_)
        errors.append(noise.standard_error_)
        covered.append(noise.keep_ - 1.96 * noise.standard_error_ <= keep <= noise.keep_ + 1.96 * noise.standard_error_)
        assert noise.interval_[0] == pytest.approx(
            np.clip(noise.keep_ - 1.959964 * noise.standard_error_, 0, 1), abs=1e-6
        )
    assert_covers(covered, 0.94)  # a normal approximation: .01 is granted to it
    assert np.sum(covered) <= binom.ppf(1 - 1e-6, len(covered), 0.96)
    assert abs(np.mean(keeps) - keep) < 5 * np.std(keeps) / np.sqrt(len(keeps))
    assert np.mean(errors) == pytest.approx(np.std(keeps), rel=5 / np.sqrt(2 * len(keeps)))


@pytest.mark.simulation
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", [3, 5])
def test_fit_pvalue_is_uniform_under_the_truth(K, weighted, draw, shares, repetitions):
    rng = np.random.default_rng([K, weighted])
    margin = dict(zip("abcde", shares(K).tolist(), strict=False))
    pvalues = []
    for _ in range(repetitions(300, 3000)):
        _, S = draw(2000, 0.8, shares(K), rng)
        w = rng.gamma(2, size=2000) if weighted else None
        pvalues.append(MarginNoise(margin).fit(sensitive=S, sample_weight=w).fit_pvalue_)
    assert kstest(pvalues, "uniform").pvalue > 1e-6


def test_wrong_margin_is_refuted_with_three_groups(draw):
    _, S = draw(20000, 0.8, [0.2, 0.3, 0.5], np.random.default_rng(0))
    noise = MarginNoise({"a": 0.5, "b": 0.1, "c": 0.4}).fit(sensitive=S)
    assert noise.fit_pvalue_ < 1e-6
    assert not noise.identified_
    assert "declared shares are wrong" in noise.message_


def test_mild_misfit_is_mentioned_and_used():
    # P(S) = (.28, .32, .40) against a line through (.2, .3, .5): a p-value between .001 and .05.
    noise = MarginNoise({"a": 0.2, "b": 0.3, "c": 0.5})
    noise.fit(sensitive=["a"] * 292 + ["b"] * 288 + ["c"] * 420)
    assert 0.001 < noise.fit_pvalue_ < 0.05
    assert noise.identified_
    assert "check the declared shares" in noise.message_


def test_two_groups_have_no_test_of_fit(draw):
    _, S = draw(1000, 0.8, [0.2, 0.8], np.random.default_rng(0))
    assert math.isnan(MarginNoise({"a": 0.2, "b": 0.8}).fit(sensitive=S).fit_pvalue_)


def test_uniform_margin_says_nothing(draw):
    _, S = draw(1000, 0.8, [0.5, 0.5], np.random.default_rng(0))
    noise = MarginNoise({"a": 0.5, "b": 0.5}).fit(sensitive=S)
    assert math.isnan(noise.keep_)
    assert noise.interval_ == (0.0, 1.0)
    assert not noise.identified_
    assert "uniform" in noise.message_


def test_nearly_uniform_margin_is_not_identified(draw):
    _, S = draw(1000, 0.8, [0.49, 0.51], np.random.default_rng(0))
    noise = MarginNoise({"a": 0.49, "b": 0.51}).fit(sensitive=S)
    assert not noise.identified_
    assert 0 <= noise.interval_[0] <= 0.5 < noise.interval_[1] <= 1


def test_reports_more_uneven_than_the_margin():
    noise = MarginNoise({"F": 0.4, "M": 0.6}).fit(sensitive=["F"] * 200 + ["M"] * 800)
    assert noise.keep_ == pytest.approx(2.0)  # the number as it came out
    assert noise.interval_[1] == 1
    assert not noise.identified_
    assert "no noise can do" in noise.message_


def test_hardly_any_noise():
    noise = MarginNoise({"F": 0.2, "M": 0.8}).fit(sensitive=["F"] * 195 + ["M"] * 805)
    assert noise.keep_ > 1
    assert not noise.identified_
    assert "hardly any noise" in noise.message_


def test_weights_equal_repeated_rows_in_the_estimate():
    S, w = ["F", "M", "M"], [20, 50, 30]
    repeated = ["F"] * 20 + ["M"] * 80
    margin = {"F": 0.1, "M": 0.9}
    a = MarginNoise(margin).fit(sensitive=S, sample_weight=w)
    b = MarginNoise(margin).fit(sensitive=repeated)
    assert a.keep_ == pytest.approx(b.keep_)
    assert a.report_distribution_ == pytest.approx(b.report_distribution_)


def test_missing_reports_are_left_out_and_counted():
    S = ["F"] * 26 + ["M"] * 74
    a = MarginNoise({"F": 0.2, "M": 0.8}).fit(sensitive=[*S, None, None], sample_weight=np.ones(102))
    b = MarginNoise({"F": 0.2, "M": 0.8}).fit(sensitive=S)
    assert a.keep_ == b.keep_
    assert a.interval_ == b.interval_
    assert "2 reports were left out" in a.message_


@pytest.mark.parametrize(
    "margin, error, match",
    [
        ({"F": 0.5, "M": 0.4}, ValueError, "sum to 0.9"),
        ({"F": 1.2, "M": -0.2}, ValueError, "between 0 and 1"),
        ({"F": 1.0}, ValueError, "at least two"),
        ({"F": "0.5", "M": 0.5}, ValueError, "between 0 and 1"),
        ({"F": float("nan"), "M": 0.5}, ValueError, "between 0 and 1"),
        ([0.5, 0.5], TypeError, "mapping"),
    ],
)
def test_bad_margin(margin, error, match):
    with pytest.raises(error, match=match):
        MarginNoise(margin).fit(sensitive=["F", "M"])


@pytest.mark.parametrize(
    "sensitive, weight, match",
    [
        (None, None, "sensitive=None"),
        ([None, None], None, "without any report"),
        ([], None, "without any report"),
        (["F", "M"], [1.0], "same number"),
        (["F", "M"], [1.0, -1.0], "negative"),
        (["F", "M"], [1.0, float("nan")], "NaN"),
        (["F", "M"], [0.0, 0.0], "every weight zero"),
    ],
)
def test_bad_reports(sensitive, weight, match):
    with pytest.raises(ValueError, match=match):
        MarginNoise({"F": 0.4, "M": 0.6}).fit(sensitive=sensitive, sample_weight=weight)

"""Channels as objects: construction, refusals, immutability, sampling and correcting."""

from __future__ import annotations

import copy
import math
import pickle
import random
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from fairpremium.labels import decode_labels, encode_labels
from fairpremium.privacy import Channel, RandomizedResponse, project_to_simplex

T2 = [[0.75, 0.25], [0.25, 0.75]]
SEX = RandomizedResponse(["F", "M"], keep=0.8)
SMOKER = Channel([[0.9, 0.3], [0.1, 0.7]], groups=[False, True])
SURVEY = Channel([[0.5, 0.125], [0.25, 0.25], [0.25, 0.625]], groups=["no", "yes"], reports=["-", "?", "+"])
ALL = [SEX, SMOKER, SURVEY, RandomizedResponse(range(5), epsilon=1.0), Channel.product(SEX, SMOKER, SURVEY)]


# --- construction ---


@pytest.mark.parametrize(
    "matrix, groups, reports, message",
    [
        ([0.5, 0.5], ["a", "b"], None, "two dimensions"),
        ([[0.5], [0.5, 1]], ["a", "b"], None, "rectangular table of numbers"),
        ("matrix", ["a", "b"], None, "rectangular table of numbers"),
        ([[0.5, math.nan], [0.5, 1]], ["a", "b"], None, "expected finite numbers"),
        ([[0.5, math.inf], [0.5, 1]], ["a", "b"], None, "expected finite numbers"),
        ([[1.5, 0], [-0.5, 1]], ["a", "b"], None, r"the entry -0\.5.*at least 0"),
        ([[0.8, 0.3], [0.3, 0.7]], ["a", "b"], None, r"a sum of 1\.1 in column 0"),
        ([[0.8, 0.2], [0.4, 0.6]], ["a", "b"], None, "pass the transpose"),
        ([[0.8, 0.2], [0.2, 0.8 + 2e-9]], ["a", "b"], None, "in column 1, but expected 1 in each"),
        (T2, ["a", "b", "c"], None, "expected 3 columns, one per group"),
        (T2, ["a", "a"], None, "Got groups=.*distinct"),
        (T2, [1, True], None, "Got groups=.*distinct"),
        ([[1.0]], ["a"], None, "at least two labels"),
        (T2, ["a", ("b", "c")], None, "single labels, or tuples of one length"),
        (T2, ["a", "b"], ["x"], "one row per report"),
        (T2, ["a", "b"], ["x", "x"], "Got reports=.*distinct"),
        ([[0.5, 0.5], [0.5, 0.5]], ["a", "b"], None, "full column rank"),
        ([[0.5, 0.5 + 1e-12], [0.5, 0.5 - 1e-12]], ["a", "b"], None, "full column rank"),
        ([[1.0, 1.0]], ["a", "b"], ["x"], "at least as many reports"),
        ([[0.75, 0.25], [0.25, 0.75], [0, 0]], ["a", "b"], ["x", "y", "z"], "only zeros in the row of report 'z'"),
        ([[0.5, 0.1], [0.25, 0.1], [0.25, 0.8]], ["a", "b"], None, "Got no reports for a matrix"),
    ],
)
def test_refusals(matrix, groups, reports, message):
    with pytest.raises(ValueError, match=message):
        Channel(matrix, groups=groups, reports=reports)


@pytest.mark.parametrize(
    "groups", ["FM", {"F", "M"}, {"F": 1, "M": 2}, 2, None, [b"F", b"M"], ["F", None], [(), ("a",)]]
)
def test_groups_of_the_wrong_type(groups):
    with pytest.raises((TypeError, ValueError), match=r"^Got groups.*but expected"):
        Channel(T2, groups=groups)


def test_float_noise_in_the_columns_is_forgiven():
    channel = Channel([[0.8 + 1e-10, 0.1], [0.2, 0.9]], groups=["a", "b"])
    assert set(channel.weights.sum(axis=0).tolist()) == {channel.total}
    np.testing.assert_allclose(channel.matrix, [[0.8, 0.1], [0.2, 0.9]], atol=1e-9)


def test_fractions_are_taken_as_they_are():
    third = Fraction(1, 3)
    channel = Channel([[2 * third, third], [third, 2 * third]], groups=["a", "b"])
    assert channel.total == 3
    assert channel == RandomizedResponse(["a", "b"], keep=Fraction(2, 3))


def test_no_privacy_has_infinite_epsilon():
    channel = Channel(np.eye(2), groups=["a", "b"])
    assert channel.epsilon == math.inf
    assert channel.descriptor()["epsilon"] is None
    with pytest.raises(ValueError, match="infinite epsilon"):
        channel.privatize(["a"])
    assert channel.privatize(["a", "b"], rng=0).tolist() == ["a", "b"]
    half = Channel([[1.0, 0.5], [0.0, 0.5]], groups=["a", "b"])
    assert half.epsilon == math.inf
    assert Channel.product(SEX, half).epsilon == math.inf
    with pytest.raises(ValueError, match="infinite epsilon"):
        Channel.product(SEX, half).privatize([("F", "a")])


def test_keep():
    assert Channel(T2, groups=["a", "b"]).keep == 0.75
    assert math.isnan(SMOKER.keep)
    assert math.isnan(SURVEY.keep)
    assert math.isnan(Channel(T2, groups=["a", "b"], reports=["x", "y"]).keep)
    assert math.isnan(Channel(T2, groups=[0, 1], reports=[False, True]).keep)


def test_condition_number():
    for channel in ALL:
        assert channel.condition_number == pytest.approx(np.linalg.cond(channel.matrix), rel=1e-9)


@pytest.mark.parametrize(
    "arguments, kind, message",
    [
        ({}, ValueError, "exactly one"),
        ({"epsilon": 1.0, "keep": 0.8}, ValueError, "exactly one"),
        ({"keep": 1}, ValueError, "channel=None"),
        ({"keep": 1.0}, ValueError, "channel=None"),
        ({"keep": 0.5}, ValueError, "1/2 < keep < 1"),
        ({"keep": 0.2}, ValueError, "1/2 < keep < 1"),
        ({"keep": 1.5}, ValueError, "1/2 < keep < 1"),
        ({"keep": -0.0}, ValueError, "1/2 < keep < 1"),
        ({"keep": math.nan}, ValueError, "keep=nan"),
        ({"keep": math.inf}, ValueError, "keep=inf"),
        ({"keep": True}, TypeError, "bool"),
        ({"keep": "0.8"}, TypeError, "str"),
        ({"keep": math.nextafter(0.5, 1)}, ValueError, "too close to pure chance"),
        ({"epsilon": 0}, ValueError, "positive finite"),
        ({"epsilon": -0.0}, ValueError, "positive finite"),
        ({"epsilon": -1}, ValueError, "epsilon=-1"),
        ({"epsilon": math.nan}, ValueError, "epsilon=nan"),
        ({"epsilon": np.float64("nan")}, ValueError, "epsilon=nan"),
        ({"epsilon": math.inf}, ValueError, "epsilon=inf"),
        ({"epsilon": True}, TypeError, "bool"),
        ({"epsilon": np.True_}, TypeError, "bool"),
        ({"epsilon": "1"}, TypeError, "str"),
        ({"epsilon": 1 + 0j}, TypeError, "complex"),
        ({"epsilon": [1.0]}, TypeError, "list"),
        ({"epsilon": pd.NA}, TypeError, "NAType"),
    ],
)
def test_randomized_response_fails_closed(arguments, kind, message):
    with pytest.raises(kind, match=message):
        RandomizedResponse(["F", "M"], **arguments)


@pytest.mark.parametrize("epsilon", [1, np.int8(1), np.float32(1), np.float64(1), Fraction(1)])
def test_numpy_scalars_are_numbers(epsilon):
    assert RandomizedResponse(["F", "M"], epsilon=epsilon) == RandomizedResponse(["F", "M"], epsilon=1.0)


# --- an immutable value ---


@pytest.mark.parametrize("channel", ALL, ids=repr)
def test_value_semantics(channel):
    for twin in (pickle.loads(pickle.dumps(channel)), copy.copy(channel), copy.deepcopy(channel)):
        assert twin == channel
        assert hash(twin) == hash(channel)
        assert type(twin) is type(channel)
        np.testing.assert_array_equal(twin.inverse, channel.inverse)
    for array in (channel.matrix, channel.inverse, channel.weights):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    with pytest.raises(AttributeError, match="immutable"):
        channel.epsilon = 0.1
    with pytest.raises(AttributeError, match="immutable"):
        channel.total = 7
    with pytest.raises(AttributeError, match="immutable"):
        del channel.groups
    assert (channel == 1) is False


def test_equality_is_about_labels_types_and_weights():
    assert Channel([[0.8, 0.2], [0.2, 0.8]], groups=["F", "M"]) == SEX
    assert RandomizedResponse(["M", "F"], keep=0.8) != SEX
    assert RandomizedResponse([0, 1], keep=0.8) != RandomizedResponse([False, True], keep=0.8)
    assert RandomizedResponse(["F", "M"], keep=0.81) != SEX
    assert len({SEX, RandomizedResponse(("F", "M"), keep=0.8), SMOKER}) == 2


def test_repr():
    assert repr(SEX) == "RandomizedResponse(['F', 'M'], keep=0.8)  # epsilon=1.38629"
    assert eval(repr(SEX)) == SEX
    assert repr(SURVEY) == "Channel(groups=('no', 'yes'), reports=('-', '?', '+'), epsilon=1.38629)"
    assert repr(Channel.product(SEX, SEX)).startswith("Channel.product(RandomizedResponse(['F', 'M'], keep=0.8), ")


# --- products ---


def test_product_facts():
    both = Channel.product(SEX, SURVEY)
    assert both.groups == (("F", "no"), ("F", "yes"), ("M", "no"), ("M", "yes"))
    assert both.reports[:3] == (("F", "-"), ("F", "?"), ("F", "+"))
    np.testing.assert_allclose(both.matrix, np.kron(SEX.matrix, SURVEY.matrix))
    np.testing.assert_allclose(both.weights / both.total, both.matrix)
    np.testing.assert_allclose(both.inverse @ both.matrix, np.eye(4), atol=1e-14)
    np.testing.assert_allclose(np.array(both.inverse_exact, dtype=float), both.inverse, rtol=1e-14)
    assert both.epsilon == pytest.approx(SEX.epsilon + SURVEY.epsilon, rel=1e-15)
    # the Kronecker product of left inverses is the left inverse of the product
    flat = Channel(both.matrix, groups=both.groups, reports=both.reports)
    np.testing.assert_allclose(flat.inverse, both.inverse, atol=1e-7)
    assert flat.epsilon == pytest.approx(both.epsilon, rel=1e-7)


def test_products_are_flat():
    three = Channel.product(SEX, SMOKER, SURVEY)
    assert three == Channel.product(Channel.product(SEX, SMOKER), SURVEY)
    assert three.components == (SEX, SMOKER, SURVEY)
    assert three.groups[0] == ("F", False, "no")


def test_products_of_many_large_channels():
    parts = [RandomizedResponse(range(4), epsilon=0.1) for _ in range(4)]
    product = Channel.product(*parts)
    assert product.total > 2**64
    assert product.weights.dtype == object
    assert product.inverse.shape == (256, 256)
    np.testing.assert_allclose(product.inverse @ product.matrix, np.eye(256), atol=1e-9)
    with pytest.raises(ValueError, match="at most 4096"):
        Channel.product(product, product)
    with pytest.raises(TypeError, match="product expected channels"):
        Channel.product(SEX, "smoker")


# --- sampling ---


def slow_reference(channel, values, rng):
    """One value at a time, by walking down the column of the weights with Python integers."""
    drawn = []
    for value in values:
        d = channel.groups.index(value)
        u = rng.randrange(channel.total)
        s = 0
        while u >= channel.weights[s, d]:
            u -= int(channel.weights[s, d])
            s += 1
        drawn.append(channel.reports[s])
    return drawn


@pytest.mark.parametrize("channel", ALL, ids=repr)
def test_privatize_and_its_slow_reference_have_one_law(channel):
    # Two samples of 20,000 per channel, compared by a chi-square test at 1e-7.
    n = 20_000
    values = [channel.groups[i % len(channel.groups)] for i in range(n)]
    ours = encode_labels(channel.privatize(values), channel.reports)
    twin = encode_labels(slow_reference(channel, values, random.Random(3)), channel.reports)
    d = encode_labels(values, channel.groups)
    cells = len(channel.reports) * len(channel.groups)
    x = np.bincount(d * len(channel.reports) + ours, minlength=cells)
    y = np.bincount(d * len(channel.reports) + twin, minlength=cells)
    used = x + y > 0
    statistic = ((x - y)[used] ** 2 / (x + y)[used]).sum()
    assert statistic < chi2.isf(1e-7, used.sum() - len(channel.groups))


def test_the_slow_sampler_word_for_word(monkeypatch):
    words = np.random.default_rng(1).integers(0, 2**32, 4000, dtype=np.uint64).astype("<u4")
    for channel in ALL[:4]:
        values = [channel.groups[i % len(channel.groups)] for i in range(3000)]
        limit = 2**32 - 2**32 % channel.total
        accepted = iter([int(w) % channel.total for w in words if w < limit])
        position = [0]

        def urandom(n, position=position):
            start = position[0]
            position[0] += n
            return words.tobytes()[start : start + n]

        monkeypatch.setattr("os.urandom", urandom)
        ours = channel.privatize(values).tolist()
        twin = type("R", (), {"randrange": lambda self, n, it=accepted: next(it)})()
        if isinstance(channel, RandomizedResponse):
            # another order of the reports within range(N), the same weights: compare through the definition
            expected = []
            for value in values:
                d, u = channel.groups.index(value), twin.randrange(0)
                others = [g for g in channel.groups if g != channel.groups[d]]
                expected.append(value if u < channel.a else others[(u - channel.a) // channel.b])
        else:
            expected = slow_reference(channel, values, twin)
        assert ours == expected


def test_simulations_repeat_and_production_does_not():
    values = ["F", "M"] * 200
    assert SEX.privatize(values, rng=1).tolist() == SEX.privatize(values, rng=1).tolist()
    assert SEX.privatize(values, rng=1).tolist() != SEX.privatize(values, rng=2).tolist()
    assert SEX.privatize(values).tolist() != SEX.privatize(values).tolist()  # alike with probability 0.68^400


def test_a_seed_does_not_repeat_the_draws_of_a_portfolio_with_the_same_seed():
    """The usual slip: simulate a portfolio with seed 0 and privatize it with seed 0."""
    uniform = np.random.default_rng(0).random(20_000)
    reports = SEX.privatize(["F"] * 20_000, rng=0)
    kept, changed = uniform[reports == "F"], uniform[reports != "F"]
    # the difference of two means of uniforms, beyond 5 standard errors with probability 6e-7
    standard_error = np.sqrt(1 / 12 * (1 / len(kept) + 1 / len(changed)))
    assert abs(kept.mean() - changed.mean()) < 5 * standard_error


def test_numpy_seeds_do_not_reach_production():
    values = ["F", "M"] * 200
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    first = SEX.privatize(values).tolist()
    np.random.seed(0)  # noqa: NPY002
    random.seed(0)
    assert first != SEX.privatize(values).tolist()


@pytest.mark.parametrize("rng", [True, "0", 1.0, np.random.RandomState(0), np.random])
def test_rng_of_the_wrong_type(rng):
    with pytest.raises((TypeError, ValueError), match="rng"):
        SEX.privatize(["F"], rng=rng)


def test_containers_stay_what_they_are():
    values = ["F", "M", "M", "F"]
    for container in (values, tuple(values), np.array(values), np.array(values, dtype=object)):
        drawn = SEX.privatize(container)
        assert isinstance(drawn, np.ndarray)
        assert drawn.dtype == object
        assert drawn.shape == (4,)
    series = pd.Series(values, index=[5, 6, 7, 8], name="sex")
    for column in (series, series.astype("category"), series.astype(object), series.astype("string")):
        drawn = SEX.privatize(column)
        pd.testing.assert_index_equal(drawn.index, series.index)
        assert drawn.name == "sex"
        assert set(drawn) <= {"F", "M"}
    drawn = SEX.privatize(pl.Series("sex", values))
    assert isinstance(drawn, pl.Series)
    assert (drawn.name, drawn.dtype, len(drawn)) == ("sex", pl.String, 4)
    assert SEX.privatize(pa.array(values)).type == pa.string()
    assert SEX.privatize([]).tolist() == []


def test_tables_stay_tables():
    both = Channel.product(SEX, RandomizedResponse([1, 2], keep=0.9))
    frame = pd.DataFrame({"sex": ["F", "M", "M"], "class": [1, 2, 1]}, index=[3, 4, 5])
    drawn = both.privatize(frame)
    assert list(drawn.columns) == ["sex", "class"]
    assert list(drawn.index) == [3, 4, 5]
    assert drawn["class"].dtype == np.int64
    assert both.privatize(pl.from_pandas(frame)).schema == {"sex": pl.String, "class": pl.Int64}
    assert both.privatize(pa.Table.from_pandas(frame, preserve_index=False)).column_names == ["sex", "class"]
    assert both.privatize(frame.to_numpy()).shape == (3, 2)
    rows = list(frame.itertuples(index=False, name=None))
    assert set(both.privatize(rows)) <= set(both.groups)
    assert both.group_distribution(frame).shape == (4,)


@pytest.mark.parametrize(
    "groups, dtype",
    [
        (["no", "prefer not to say"], object),
        ([1, 200_000_000_000], np.int64),
        ([1, 2**70], object),
        ([True, False], bool),
        ([1, "one"], object),
        ([0.5, 1.5], np.float64),
    ],
)
def test_labels_come_back_in_the_declared_type(groups, dtype):
    channel = RandomizedResponse(groups, keep=0.6)
    drawn = channel.privatize([groups[0]] * 200)
    assert drawn.dtype == dtype
    assert set(drawn.tolist()) == set(groups)
    assert {type(x) for x in drawn.tolist()} == {type(g) for g in groups}


# --- fail closed ---

SECRET = "Zz-secret-value"


@pytest.mark.parametrize(
    "values",
    [
        ["F", SECRET],
        np.array(["F", SECRET]),
        pd.Series(["F", SECRET]),
        pd.Series(["F", SECRET], dtype="category"),
        pl.Series(["F", SECRET]),
        ["F", None],
        ["F", math.nan],
        ["F", pd.NA],
        ["F", pd.NaT],
        pd.Series(["F", None]),
        pd.Series(["F", None], dtype="string"),
        pl.Series(["F", None]),
        ["F", "f"],
        ["F", "F "],
        ["F", "F\0"],
        ["F", "Ϝ"],  # a Greek digamma
        ["F", "\uff26"],  # fullwidth F
        ["F", "F\u200b"],  # zero-width space
        ["F", b"F"],
        ["F", 0],
        [0, 1],
        [True, False],
        [("F",)],
    ],
    ids=repr,
)
def test_unknown_and_missing_values_release_nothing(values):
    with pytest.raises((ValueError, TypeError)) as caught:
        SEX.privatize(values)
    text = str(caught.value)
    assert SECRET not in text
    assert "values" in text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("values", ["F", b"F", None, 1, {"F"}, {"F": 1}, np.array("F"), np.array(["F"], dtype="S1")])
def test_things_that_are_no_columns(values):
    with pytest.raises(TypeError, match=r"^Got values.*but expected"):
        SEX.privatize(values)


def test_numbers_at_the_edge():
    channel = RandomizedResponse([0, 1], keep=0.8)
    assert set(channel.privatize([0.0, -0.0, 1.0, np.int8(1), np.float32(0)]).tolist()) <= {0, 1}
    for wrong in (1e308, 0.5, math.nan, True, "0", np.True_, math.inf, 1 + 1e-15):
        with pytest.raises(ValueError, match="1 row of 2"):
            channel.privatize([0, wrong])


@pytest.mark.parametrize("failure", [OSError("no entropy"), NotImplementedError("no source")])
def test_entropy_failure_releases_nothing(monkeypatch, failure):
    def urandom(n):
        raise failure

    monkeypatch.setattr("os.urandom", urandom)
    with pytest.raises(type(failure)):
        SEX.privatize(["F", "M"])


def test_short_entropy_releases_nothing(monkeypatch):
    calls = []

    def urandom(n):
        calls.append(n)
        return bytes(n // 2)

    monkeypatch.setattr("os.urandom", urandom)
    for channel in ALL:
        with pytest.raises(OSError, match="too little entropy"):
            channel.privatize([channel.groups[0]] * 10)


def test_entropy_that_fails_on_the_second_read_releases_nothing(monkeypatch):
    answers = iter([b"\xff" * 40])  # N = 5 rejects all-ones words, so that a second read follows

    def urandom(n):
        try:
            return next(answers)
        except StopIteration:
            raise OSError("no entropy") from None

    monkeypatch.setattr("os.urandom", urandom)
    with pytest.raises(OSError, match="no entropy"):
        SEX.privatize(["F"] * 10)


# --- correcting ---


def test_group_distribution_by_hand():
    np.testing.assert_allclose(SEX.group_distribution(["F", "F", "M", None, "F"]), [11 / 12, 1 / 12])
    np.testing.assert_allclose(SEX.group_distribution(["F", "F"]), [4 / 3, -1 / 3])  # not repaired
    p = SEX.group_distribution(["F", "M"], sample_weight=[3, 1])
    np.testing.assert_allclose(p, SEX.group_distribution(["F", "F", "F", "M"]))


def test_the_covariance_is_the_sandwich():
    reports = ["F", "M", None, "M", "F", "F"]
    weight = np.array([1.0, 2.0, 9.0, 0.5, 0.0, 3.0])
    p, covariance = SEX.group_distribution(reports, sample_weight=weight, return_covariance=True)
    seen = [i for i, s in enumerate(reports) if s is not None]
    a = SEX.inverse[:, SEX.encode([reports[i] for i in seen])].T
    w = weight[seen]
    np.testing.assert_allclose(p, w @ a / w.sum())
    expected = sum(w_i**2 * np.outer(a_i - p, a_i - p) for w_i, a_i in zip(w, a, strict=True)) / w.sum() ** 2
    np.testing.assert_allclose(covariance, expected, atol=1e-15)


@pytest.mark.parametrize("channel", ALL, ids=repr)
def test_the_estimate_is_unbiased_and_its_covariance_covers(channel):
    # 400 samples of 500 people. The mean error of each share is compared with its standard error, and the
    # coverage of 95 % intervals with its binomial law; each check alone fails by chance with probability 1e-6.
    rng = np.random.default_rng(11)
    K, n, samples = len(channel.groups), 500, 400
    truth = rng.dirichlet(np.full(K, 5.0))
    errors, covered = np.empty((samples, K)), np.empty((samples, K), dtype=bool)
    weight = rng.uniform(0.5, 1.5, n)
    for i in range(samples):
        d = rng.choice(K, size=n, p=truth)
        reports = decode_labels(channel._draw(d, rng), channel.reports)
        p, covariance = channel.group_distribution(reports, sample_weight=weight, return_covariance=True)
        errors[i] = p - truth
        covered[i] = np.abs(errors[i]) <= norm.isf(0.025) * np.sqrt(np.diag(covariance))
    z = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(samples))
    level = norm.isf(0.5e-6 / K)
    assert np.abs(z).max() < level
    # Normal intervals at n = 500 may be off by a percentage point; beyond that, chance.
    spread = level * math.sqrt(0.95 * 0.05 / samples) + 0.01
    assert np.abs(covered.mean(axis=0) - 0.95).max() < spread


@pytest.mark.parametrize(
    "weight, message",
    [
        ([1.0], "one entry per report"),
        ([1, -1], "not negative"),
        ([1, math.nan], "finite"),
        ([0, 0], "Got reports without volume"),
    ],
)
def test_weights_are_checked(weight, message):
    with pytest.raises(ValueError, match=message):
        SEX.group_distribution(["F", "M"], sample_weight=weight)


def test_reports_are_checked():
    with pytest.raises(ValueError, match="Got reports without volume"):
        SEX.group_distribution([None, math.nan])
    with pytest.raises(ValueError, match="Got sensitive with 1 row"):
        SEX.group_distribution(["F", "x"])
    with pytest.raises(ValueError, match="without a value"):
        SEX.encode(["F", None], missing="error")


# --- projection ---


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_the_projection_is_the_closest_distribution(p):
    p = np.array(p)
    q = project_to_simplex(p)
    assert q.min() >= 0
    assert q.sum() == pytest.approx(1, abs=1e-12)
    # optimality: (p - q)'(v - q) <= 0 for every vertex v
    residual = p - q
    assert (residual - residual @ q).max() <= 1e-6 * (1 + np.abs(p).max())
    np.testing.assert_allclose(project_to_simplex(q), q, atol=1e-12)


@pytest.mark.parametrize("p", [[], [[0.5, 0.5]], [math.nan, 1], [math.inf, 0], 0.5])
def test_the_projection_refuses(p):
    with pytest.raises(ValueError, match="one dimension with finite numbers"):
        project_to_simplex(p)

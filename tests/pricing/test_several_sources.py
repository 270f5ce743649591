"""Rows of several sources, each with a channel of its own, in one fit: constructed truths and equivalences."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.stats import chi2, norm
from sklearn.base import clone
from sklearn.model_selection import cross_validate

from fairpremium import (
    Channel,
    DiscriminationFreePricer,
    FrequencySeverityPricer,
    RandomizedResponse,
    RetestNoise,
    ValidationNoise,
)
from fairpremium.errors import ChannelRefutedWarning, NotIdentifiedError
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import KeyedChannels

GROUPS = ["a", "b", "c"]
APP = RandomizedResponse(GROUPS, epsilon=1.5)
BROKER = RandomizedResponse(["c", "a", "b"], keep=0.9)
MIXED = KeyedChannels({"app": APP, "broker": BROKER, "consent": None})
B = np.array([[1.0, 2.0, 4.0], [0.5, -0.5, 1.0], [0.3, 0.3, 0.3]])  # (intercept, x1, x2) by group


def portfolio(n=3000, seed=0, missing=0.1, channels=MIXED):
    """Unbalanced groups that depend on x, volumes, and sources that depend on x."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x1": rng.normal(size=n), "x2": rng.normal(size=n)})
    logits = np.column_stack([np.zeros(n), 0.8 * X["x1"], -1.2 + 0.5 * X["x2"]])
    D = (logits + rng.gumbel(size=(n, 3))).argmax(axis=1)
    w = rng.uniform(0.5, 2.0, n)
    Z = np.column_stack([np.ones(n), X])
    y = (Z * B[:, D].T).sum(axis=1) + rng.normal(size=n) / np.sqrt(w)
    keys = np.array(list(channels), dtype=object)[
        np.minimum((rng.random(n) * len(channels) + 0.5 * (X["x1"] > 0)).astype(int), len(channels) - 1)
    ]
    S = np.array(channels.privatize(np.array(GROUPS)[D], keys, rng=seed), dtype=object)
    S[rng.random(n) < missing] = None
    return X, y, w, D, keys, S


def test_inverse_is_the_hand_computed_estimator():
    """The weighted least squares with row weights T_w^-1[k, s] w, group by group, and their means for P(D)."""
    X, y, w, _, keys, S = portfolio(missing=0.0)
    pricer = DiscriminationFreePricer(channel=MIXED, correction="inverse", pooling=0)
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    inverse = {"app": APP.inverse, "broker": BROKER.inverse[[1, 2, 0]], "consent": np.eye(3)}
    labels = {"app": GROUPS, "broker": ["c", "a", "b"], "consent": GROUPS}
    a = np.array([inverse[key][:, labels[key].index(s)] for key, s in zip(keys, S, strict=True)])  # (n, K)
    Z = np.column_stack([np.ones(len(X)), X])
    for k, group in enumerate(GROUPS):
        own = np.linalg.solve((Z * (a[:, k] * w)[:, None]).T @ Z, Z.T @ (a[:, k] * w * y))
        np.testing.assert_allclose(pricer.coefficients_[group], own, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pricer.group_distribution_, w @ a / w.sum(), atol=1e-12)
    loss = (a * (y[:, None] - Z @ pricer.coefficients_[GROUPS].to_numpy()) ** 2).sum(axis=1)
    score = pricer.score(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    assert score == pytest.approx(-(w @ loss) / w.sum(), rel=1e-9)
    assert pricer.channel_ == {"app": APP, "broker": BROKER, "consent": None}


@pytest.mark.parametrize(
    "correction, pooling",
    [
        ("inverse", "auto"),
        ("inverse", 30.0),
        ("score", 30.0),
        ("posterior", 30.0),
        ("likelihood", 30.0),
        ("auto", "auto"),
    ],
)
def test_one_source_gives_the_numbers_of_no_mapping(correction, pooling):
    one = KeyedChannels({"app": APP})
    X, y, w, _, keys, S = portfolio(900, channels=one)
    settings = {"correction": correction, "pooling": pooling, "random_state": 0}
    plain = DiscriminationFreePricer(channel=APP, **settings).fit(X, y, sensitive=S, sample_weight=w)
    keyed = DiscriminationFreePricer(channel={"app": APP}, **settings)
    keyed.fit(X, y, sensitive=S, sample_weight=w, channel_key=keys)
    assert_same(plain, keyed, X)
    more = {"sensitive": S, "sample_weight": w}
    assert keyed.score(X, y, channel_key=keys, **more) == plain.score(X, y, **more)
    pd.testing.assert_frame_equal(keyed.candidates_, plain.candidates_)


def assert_same(first, second, X):
    assert np.array_equal(first.predict(X), second.predict(X))
    assert np.array_equal(np.array(first.predict_interval(X)), np.array(second.predict_interval(X)))
    assert np.array_equal(np.array(first.predict_best_estimate(X)), np.array(second.predict_best_estimate(X)))
    assert np.array_equal(first.group_distribution_, second.group_distribution_)
    assert first.correction_ == second.correction_


@pytest.mark.parametrize("correction", ["inverse", "auto"])
def test_an_identity_channel_is_the_known_attribute(correction):
    X, y, w, D, _, _ = portfolio(1200)
    truth = np.array(GROUPS)[D]
    identity = Channel(np.eye(3), groups=GROUPS)
    known = DiscriminationFreePricer(correction=correction).fit(X, y, sensitive=truth, sample_weight=w)
    keys = np.where(X["x1"] > 0, "one", "two")
    for channel, more in ((identity, {}), ({"one": identity, "two": None}, {"channel_key": keys})):
        again = DiscriminationFreePricer(channel=channel, correction=correction)
        again.fit(X, y, sensitive=truth, sample_weight=w, **more)
        assert again.correction_ == "none"
        np.testing.assert_allclose(again.predict(X), known.predict(X), rtol=1e-9)
        np.testing.assert_allclose(np.array(again.predict_interval(X)), np.array(known.predict_interval(X)), rtol=1e-7)


def test_two_keys_of_one_channel_are_one_source():
    X, y, w, _, keys, S = portfolio(1500, channels=KeyedChannels({1: APP, 2: APP}))
    plain = DiscriminationFreePricer(channel=APP, correction="score", pooling=30.0)
    plain.fit(X, y, sensitive=S, sample_weight=w)
    keyed = DiscriminationFreePricer(channel={1: APP, 2: APP}, correction="score", pooling=30.0)
    keyed.fit(X, y, sensitive=S, sample_weight=w, channel_key=keys)
    np.testing.assert_allclose(keyed.predict(X), plain.predict(X), rtol=1e-8)
    np.testing.assert_allclose(np.array(keyed.predict_interval(X)), np.array(plain.predict_interval(X)), rtol=1e-6)


@pytest.mark.parametrize("correction", ["inverse", "score", "posterior", "likelihood"])
def test_every_correction_recovers_the_truth(correction):
    """K = 3, unbalanced, weights, missing reports; limits from the fit's own standard errors."""
    X, y, w, _, keys, S = portfolio(6000, seed=3)
    pricer = DiscriminationFreePricer(channel=dict(MIXED), correction=correction, pooling=0)
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    table = pricer.summary()
    table = table[(table["price"] == "best_estimate") & table["feature"].notna()]
    truth = np.concatenate([B[:, GROUPS.index(g)] for g in table["group"].unique()])
    z = (table["coefficient"].to_numpy() - truth) / table["standard_error"].to_numpy()
    assert np.abs(z).max() < norm.isf(1e-4 / len(z))
    assert np.sum(z**2) < chi2.isf(1e-4, len(z))


def test_known_rows_help_and_noisy_rows_do_no_harm():
    """With empirical Bayes each channel is evidence of its own: a pooled sum would drown the known rows."""
    mixed = KeyedChannels({"noisy": RandomizedResponse(GROUPS, keep=0.45), "known": None})
    X, y, w, _, keys, S = portfolio(4000, seed=1, missing=0.0, channels=mixed)
    widths = {}
    for name, use in (("both", keys != ""), ("known", keys == "known")):
        pricer = DiscriminationFreePricer(channel=mixed, correction="inverse")
        pricer.fit(X[use], y[use], sensitive=S[use], channel_key=keys[use], sample_weight=w[use])
        low, high = pricer.predict_interval(X, group="c")
        widths[name] = np.mean(high - low)
    assert widths["both"] < widths["known"]


def test_rows_that_tell_the_attribute_find_a_wrong_law():
    """Without the age band all means are wrong; noisy reports alone do not refute the likelihood, known ones do."""
    p = zhang_liu_shi_2025(n=5000, rng=3)
    channels = {"known": None, "app": RandomizedResponse(["F", "M"], epsilon=1.0)}
    keys = np.where(np.random.default_rng([3, 17]).random(5000) < 0.2, "known", "app")
    S = KeyedChannels(channels).privatize(p.sensitive, keys, rng=3)
    pricer = DiscriminationFreePricer(channel=channels, intervals=False, random_state=0)
    pricer.fit(p.X, p.y, sensitive=S, channel_key=keys)
    assert pricer.correction_ == "inverse"
    assert pricer.candidates_["reason"].str.contains("contradict the distribution-free moments").sum() >= 2


def test_sources_with_few_rows_join_the_largest():
    X, y, w, _, keys, S = portfolio(1500, missing=0.0)
    keys[:] = np.where(np.arange(1500) < 12, "consent", "app")
    S = MIXED.privatize(np.array(GROUPS)[portfolio(1500, missing=0.0)[3]], keys, rng=0)
    pricer = DiscriminationFreePricer(channel=dict(MIXED), correction="inverse")
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    assert np.isfinite(pricer.predict_interval(X)).all()


def test_noise_estimators_by_key():
    """Each is fitted to the rows of its key; its error widens the intervals; one that says nothing is named."""
    rng = np.random.default_rng(0)
    people = rng.choice(GROUPS, 1500)
    survey = RandomizedResponse(GROUPS, keep=0.75)
    retest = RetestNoise(survey.privatize(people, rng=1), survey.privatize(people, rng=2))
    true = KeyedChannels({"survey": survey, "app": APP})
    X, y, w, _, keys, S = portfolio(3000, channels=true)
    settings = {"correction": "inverse", "pooling": 0}
    pricer = DiscriminationFreePricer(channel={"survey": retest, "app": APP}, **settings)
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    assert pricer.channel_["survey"].keep == pytest.approx(0.75, abs=4 * pricer.noise_["survey"].standard_error_)
    assert pricer.channel_["app"] == APP
    given = DiscriminationFreePricer(channel=pricer.channel_, **settings)
    given.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    np.testing.assert_allclose(given.predict(X), pricer.predict(X))
    assert (np.diff(pricer.predict_interval(X), axis=0) > np.diff(given.predict_interval(X), axis=0)).all()
    assert "1500 values" in repr(pricer)
    first = rng.choice(GROUPS, 400)
    nothing = RetestNoise(first, rng.permutation(first))
    with pytest.raises(NotIdentifiedError, match="source 'survey'"):
        clone(pricer).set_params(channel={"survey": nothing, "app": APP}).fit(X, y, sensitive=S, channel_key=keys)
    both = {"survey": ValidationNoise(people, survey.privatize(people, rng=3)), "app": retest}
    two = clone(pricer).set_params(channel=both).fit(X, y, sensitive=S, channel_key=keys)
    assert set(two.noise_) == {"survey", "app"}


@pytest.mark.filterwarnings("ignore::fairpremium.errors.SourcesDependWarning")  # the reports are not those of D either
def test_a_refuted_source_is_named():
    wrong = KeyedChannels({"app": RandomizedResponse(GROUPS, keep=0.4), "consent": None})
    X, y, _, D, keys, _ = portfolio(4000, missing=0.0, channels=wrong)
    sharp = np.where(X["x1"] > 0, "a", "b")  # reports that the features tell exactly
    S = np.where(keys == "app", sharp, np.array(GROUPS)[D])
    pricer = DiscriminationFreePricer(channel=wrong, correction="inverse", intervals=False, reference="uniform")
    with pytest.warns(ChannelRefutedWarning, match="source 'app'"):
        pricer.fit(X, y, sensitive=S, channel_key=keys)


def test_wrong_arguments():
    X, y, _, _, keys, S = portfolio(300)
    with pytest.raises(ValueError, match="Got no channel_key"):
        DiscriminationFreePricer(channel=MIXED).fit(X, y, sensitive=S)
    with pytest.raises(ValueError, match="channel_key with one channel for all rows"):
        DiscriminationFreePricer(channel=APP).fit(X, y, sensitive=S, channel_key=keys)
    with pytest.raises(ValueError, match=r"channel_key with \['web'\]"):
        DiscriminationFreePricer(channel=MIXED).fit(X, y, sensitive=S, channel_key=np.where(keys == "app", "web", keys))
    with pytest.raises(TypeError, match="Got a float for the key 'app'"):
        DiscriminationFreePricer(channel={"app": 0.8}).fit(X, y, sensitive=S, channel_key=keys)
    pricer = DiscriminationFreePricer(channel=MIXED, correction="inverse").fit(X, y, sensitive=S, channel_key=keys)
    with pytest.raises(ValueError, match="Got no channel_key"):
        pricer.score(X, y, sensitive=S)


def test_certificate_and_sensitivity():
    X, y, w, _, keys, S = portfolio(2500, seed=5)
    data = {"sensitive": S, "channel_key": keys, "sample_weight": w}
    pricer = DiscriminationFreePricer(channel=MIXED, correction="inverse", pooling=30.0).fit(X, y, **data)
    row = pricer.certificate(X, y, **data).iloc[0]
    assert abs(row["level"] - row["premium"]) < 4 * row["standard_error"]
    band = pricer.sensitivity(X, y, rows=[0, 1], keeps={"broker": [0.8, 1.0]}, **data)
    assert band.columns.tolist() == ["row", "source", "keep", "premium", "unaware", "used"]
    assert band["keep"].tolist() == [0.8, BROKER.keep, 1.0] * 2
    both = pricer.sensitivity(X, y, rows=[0], keeps=[0.95], **data)
    assert both["source"].tolist() == ["app"] * 2 + ["broker"] * 2 + ["together"]
    assert both["combination"].tolist() == [""] * 4 + ["app 0.95, broker 0.95"]
    assert len(set(both.loc[both["used"], "premium"])) == 1
    truth = {"app": APP, "broker": None, "consent": None}
    again = clone(pricer).set_params(channel=truth).fit(X, y, **data)
    assert band["premium"][2] == pytest.approx(again.predict(X[:1])[0])
    with pytest.raises(ValueError, match="keeps for \\['consent'\\]"):
        pricer.sensitivity(X, y, rows=[0], keeps={"consent": [0.9]}, **data)


def test_files(tmp_path: Path):
    X, y, _, _, keys, S = portfolio(600)
    pricer = DiscriminationFreePricer(channel=MIXED, correction="inverse").fit(X, y, sensitive=S, channel_key=keys)
    pricer.save(tmp_path / "model.json")
    again = DiscriminationFreePricer.load(tmp_path / "model.json")
    assert again.channel_ == pricer.channel_
    assert_same(pricer, again, X)
    assert again.score(X, y, sensitive=S, channel_key=keys) == pricer.score(X, y, sensitive=S, channel_key=keys)
    assert "consent: the true attribute" in again._repr_html_()


def test_sources_larger_than_memory(tmp_path: Path, monkeypatch):
    from fairpremium.pricing import _source_portfolio

    X, y, w, _, keys, S = portfolio(1200)
    X.assign(y=y, S=S, w=w, where=keys).to_parquet(tmp_path / "p.parquet", row_group_size=300)
    settings = {"correction": "inverse", "pooling": "auto", "intervals": True}
    memory = DiscriminationFreePricer(channel=MIXED, **settings)
    memory.fit(X, y, sensitive=S, sample_weight=w, channel_key=keys)
    monkeypatch.setattr(_source_portfolio, "is_small", lambda rows, features: False)
    source = DiscriminationFreePricer(channel=MIXED, **settings)
    source.fit(tmp_path / "p.parquet", y="y", sensitive="S", sample_weight="w", channel_key="where")
    np.testing.assert_allclose(source.predict(X), memory.predict(X), rtol=1e-6)
    np.testing.assert_allclose(np.array(source.predict_interval(X)), np.array(memory.predict_interval(X)), rtol=1e-4)
    with pytest.raises(ValueError, match="Got no channel_key"):
        DiscriminationFreePricer(channel=MIXED, **settings).fit(
            tmp_path / "p.parquet", y="y", sensitive="S", features=["x1", "x2"]
        )


def test_claims(tmp_path: Path):
    rng = np.random.default_rng(0)
    X, _, w, D, keys, S = portfolio(2500)
    counts = rng.poisson(w * np.array([0.5, 0.8, 1.2])[D])
    amounts = rng.gamma(2.0 * counts, np.array([300, 400, 500])[D])
    settings = {"correction": "inverse", "pooling": 30.0}
    pricer = FrequencySeverityPricer(channel=dict(MIXED), **settings)
    pricer.fit(X, counts, amounts, sensitive=S, exposure=w, channel_key=keys)
    assert pricer.channel_ == dict(MIXED)
    low, high = pricer.predict_interval(X)
    truth = np.array([0.5, 0.8, 1.2]) * 2 * np.array([300, 400, 500]) @ pricer.reference_distribution_
    assert np.mean((low < truth) & (truth < high)) > 0.5
    pricer.save(tmp_path / "claims.json")
    np.testing.assert_allclose(FrequencySeverityPricer.load(tmp_path / "claims.json").predict(X), pricer.predict(X))
    X.assign(n=counts, a=amounts, S=S, w=w, where=keys).to_parquet(tmp_path / "p.parquet")
    source = FrequencySeverityPricer(channel=dict(MIXED), **settings)
    source.fit(tmp_path / "p.parquet", "n", "a", sensitive="S", exposure="w", channel_key="where")
    np.testing.assert_allclose(source.predict(X), pricer.predict(X), rtol=1e-6)


def test_cross_validation_passes_the_keys_on():
    X, y, _, _, keys, S = portfolio(900)
    with sklearn.config_context(enable_metadata_routing=True):
        pricer = DiscriminationFreePricer(channel=MIXED, correction="inverse", pooling=0, intervals=False)
        found = cross_validate(pricer, X, y, params={"sensitive": S, "channel_key": keys}, cv=3)
    assert np.isfinite(found["test_score"]).all()


def test_boosted_trees():
    pytest.importorskip("lightgbm")
    X, y, w, _, keys, S = portfolio(1200)
    pricer = DiscriminationFreePricer(model="boosted", channel=MIXED, correction="posterior", intervals=False)
    pricer.fit(X, y, sensitive=S, channel_key=keys, sample_weight=w)
    truth = np.column_stack([np.ones(len(X)), X]) @ B @ pricer.group_distribution_
    assert np.corrcoef(pricer.predict(X), truth)[0, 1] > 0.9

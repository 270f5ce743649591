"""People who were asked twice, some of whom answered once: each counts with the reports that it gave."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import Channel, DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse
from fairpremium.audit import compute_group_means
from fairpremium.corrections import ReportChannel
from fairpremium.errors import SourcesDependWarning
from fairpremium.privacy import KeyedChannels

GROUPS = ["a", "b", "c"]
ONCE, SHARP = RandomizedResponse(GROUPS, epsilon=1.5), RandomizedResponse(GROUPS, keep=0.9)
TWICE = Channel.repeated(ONCE, SHARP)
# the sources that the gaps stand for
BY_HAND = KeyedChannels({"both": TWICE, "first": ONCE, "second": SHARP})


def portfolio(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x1": rng.normal(size=n), "x2": rng.normal(size=n)})
    D = (np.column_stack([np.zeros(n), 0.8 * X["x1"], -0.7 + 0 * X["x2"]]) + rng.gumbel(size=(n, 3))).argmax(axis=1)
    y = np.array([1.0, 2.0, 4.0])[D] + 0.5 * X["x1"] + rng.normal(size=n)
    truth = np.array(GROUPS, dtype=object)[D]
    table = pd.DataFrame({"first": ONCE.privatize(truth, rng=rng), "second": SHARP.privatize(truth, rng=rng)})
    which = rng.choice(["both", "first", "second", "none"], n, p=[0.4, 0.3, 0.2, 0.1])
    table.loc[which == "second", "first"] = None
    table.loc[which == "first", "second"] = None
    table.loc[which == "none"] = None
    single = [
        {"both": (s, t), "first": s, "second": t, "none": None}[w]
        for s, t, w in zip(table["first"], table["second"], which, strict=True)
    ]
    return X, y, D, table, np.where(which == "none", None, which), single


@pytest.mark.parametrize("correction", ["inverse", "score", "likelihood", "posterior"])
def test_gaps_are_sources(correction):
    X, y, _, table, which, single = portfolio()
    pricer = DiscriminationFreePricer(channel=TWICE, correction=correction, random_state=0).fit(X, y, sensitive=table)
    right = DiscriminationFreePricer(channel=BY_HAND, correction=correction, random_state=0)
    right.fit(X, y, sensitive=single, channel_key=which)
    np.testing.assert_allclose(pricer.predict(X), right.predict(X), rtol=1e-8)
    for found, wanted in zip(pricer.predict_interval(X), right.predict_interval(X), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7)
    assert pricer.n_missing_reports_ == np.count_nonzero(which == None)  # noqa: E711
    assert pricer.channel_ == TWICE


def test_rows_of_every_kind_count_as_they_should():
    coded = ReportChannel.of(TWICE)
    given = [("a", "b"), ("a", None), (None, "b"), (None, None), "a", None]
    table = pd.DataFrame([row if isinstance(row, tuple) else (row, None) for row in given])
    codes = coded.encode(given)
    assert codes.tolist() == coded.encode(table).tolist()
    expected = [TWICE.inverse[:, 1], ONCE.inverse[:, 0], SHARP.inverse[:, 1], np.zeros(3), ONCE.inverse[:, 0]]
    np.testing.assert_allclose(coded.table[:, codes].T, [*expected, np.zeros(3)], atol=1e-12)
    # likelihoods are those of what was said, and sum to one within each source
    np.testing.assert_allclose(coded.matrix[codes[2]], SHARP.matrix[1])
    assert [each.name for each in coded.sources] == ["reported", "report 1 only", "report 2 only"]
    for each in coded.sources:
        np.testing.assert_allclose(coded.matrix[each.codes].sum(axis=0), 1)


def test_three_reports_and_two_attributes():
    thrice = ReportChannel.of(Channel.repeated(ONCE, SHARP, ONCE))
    codes = thrice.encode([("a", None, "c"), (None, "b", None)])
    np.testing.assert_allclose(thrice.matrix[codes], [ONCE.matrix[0] * ONCE.matrix[2], SHARP.matrix[1]])
    pair = Channel.product(RandomizedResponse(["x", "y"], keep=0.8), RandomizedResponse(["u", "v"], keep=0.7))
    crossed = ReportChannel.of(Channel.repeated(pair, pair))
    codes = crossed.encode(
        [("x", "u", "y", "v"), (None, None, "y", "v"), ("x", None, "y", "v"), ("x", None, None, None)]
    )
    np.testing.assert_allclose(
        crossed.matrix[codes[:3]], [pair.matrix[0] * pair.matrix[3], pair.matrix[3], pair.matrix[3]]
    )
    assert codes[3] == crossed.n_codes - 1  # half a report is none


def test_in_a_mapping_and_an_audit():
    X, y, D, table, which, single = portfolio()
    rng = np.random.default_rng(5)
    where = rng.choice(["app", "staff"], len(X)).astype(object)
    table.loc[where == "staff", "first"] = np.array(GROUPS, dtype=object)[D[where == "staff"]]
    table.loc[where == "staff", "second"] = None
    sources = {"app": TWICE, "staff": None}
    by_hand = KeyedChannels({**BY_HAND, "staff": None})
    single = [g if w == "staff" else s for g, w, s in zip(table["first"], where, single, strict=True)]
    keys = np.where(where == "staff", "staff", which)
    means = compute_group_means(y, y, sensitive=table, channel=sources, channel_key=where)
    right = compute_group_means(y, y, sensitive=single, channel=by_hand, channel_key=keys)
    pd.testing.assert_frame_equal(means, right)
    pricer = DiscriminationFreePricer(channel=sources, correction="inverse", pooling=0)
    pricer.fit(X, y, sensitive=table, channel_key=where)
    same = DiscriminationFreePricer(channel=by_hand, correction="inverse", pooling=0)
    same.fit(X, y, sensitive=single, channel_key=keys)
    np.testing.assert_allclose(pricer.predict(X), same.predict(X), rtol=1e-9)


def test_sources_larger_than_memory(tmp_path: Path, monkeypatch):
    X, y, _, table, _, _ = portfolio()
    frame = X.assign(y=y, first=table["first"], second=table["second"])
    for j, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(tmp_path / f"{j}.parquet", index=False)
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_CELLS", 0)
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_ROWS", 0)
    for correction in ("inverse", "score"):
        pricer = DiscriminationFreePricer(channel=TWICE, correction=correction, pooling=1.0)
        right = pricer.fit(X, y, sensitive=table).predict(X)
        pricer.fit(tmp_path, "y", sensitive=["first", "second"], features=["x1", "x2"])
        np.testing.assert_allclose(pricer.predict(X), right, rtol=1e-7)
    with pytest.raises(ValueError, match="one with the true attribute"):
        DiscriminationFreePricer().fit(tmp_path, "y", sensitive=["first", "second"])
    with pytest.raises(ValueError, match="without the columns \\['third'\\]"):
        pricer.fit(tmp_path, "y", sensitive=["first", "third"])
    # claims
    counts = np.random.default_rng(0).poisson(1.0, len(X))
    frame.assign(n=counts, paid=counts * 10.0 * (1 + (y > 2))).to_parquet(tmp_path / "claims.parquet", index=False)
    claims = FrequencySeverityPricer(channel=TWICE, correction="inverse", pooling=1.0)
    right = claims.fit(X, counts, counts * 10.0 * (1 + (y > 2)), sensitive=table).predict(X)
    claims.fit(tmp_path / "claims.parquet", "n", "paid", sensitive=["first", "second"], features=["x1", "x2"])
    np.testing.assert_allclose(claims.predict(X), right, rtol=1e-7)


def test_who_answers_once_because_of_the_loss_is_noticed():
    X, y, D, _, _, _ = portfolio(n=4000)
    truth = np.array(GROUPS, dtype=object)[D]
    table = pd.DataFrame({"first": ONCE.privatize(truth, rng=1), "second": SHARP.privatize(truth, rng=2)})
    table.loc[y > np.median(y), "second"] = None
    with pytest.warns(SourcesDependWarning, match="report 1 only"):
        DiscriminationFreePricer(channel=TWICE, correction="inverse", pooling=0).fit(X, y, sensitive=table)


def test_wrong_reports():
    coded = ReportChannel.of({"app": Channel.repeated(ONCE, ONCE), "staff": None})
    assert coded.encode([("a", "b"), "c", None], ["app", "staff", None])[-1] == coded.n_codes - 1
    for rows, keys in (
        ([("a", "q")], ["app"]),
        ([("a", "b", "c")], ["app"]),
        ([("a", "b")], ["staff"]),
        ([("a", "b")], [None]),
    ):
        with pytest.raises(ValueError, match="1 of 1 rows whose reports the channel cannot make"):
            coded.encode(rows, keys)

"""fit and audit with reports from several sources."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse, SubsetSelection
from fairpremium.audit import compute_channel_band, compute_group_means
from fairpremium.cli import _large_portfolio
from fairpremium.privacy import KeyedChannels, write_reports

APP, BROKER = RandomizedResponse(["F", "M"], epsilon=1.0), RandomizedResponse(["F", "M"], keep=0.9)
SOURCES = {"app": APP, "broker": BROKER, "consent": None}
WORDS = ["--channel-key", "where", "--channel", "app=app.json", "--channel", "broker=broker.json"]
ALL = [*WORDS, "--channel", "consent=none"]
MODEL = ["--correction", "inverse", "--pooling", 0]


@pytest.fixture
def book(portfolio):
    rng = np.random.default_rng(2)
    where = rng.choice(list(SOURCES), size=len(portfolio))
    frame = portfolio.X.assign(
        policy=[f"p{i}" for i in range(len(portfolio))],
        y=portfolio.y,
        where=where,
        report=KeyedChannels(SOURCES).privatize(portfolio.sensitive, where, rng=rng),
        premium=300 + 2 * portfolio.X["age"],
    )
    frame.to_csv("book.csv", index=False)
    for name, channel in (("app", APP), ("broker", BROKER)):
        Path(f"{name}.json").write_text(json.dumps(channel.descriptor()))
    return frame


def expected(book, features):
    pricer = DiscriminationFreePricer(channel=SOURCES, correction="inverse", pooling=0)
    return pricer.fit(book[features], book["y"], sensitive=book["report"], channel_key=book["where"])


def fit(call_json, path, *words):
    features = ["--features", "age,smoker"]
    return call_json("fit", path, "--outcome", "y", *features, *ALL, *MODEL, *words, "-o", "model.json")


def test_fit_is_the_library_s(call, call_json, book):
    said = fit(call_json, "book.csv")
    model = DiscriminationFreePricer.load("model.json")
    right = expected(book, ["age", "smoker"])
    np.testing.assert_allclose(model.predict(book[["age", "smoker"]]), right.predict(book[["age", "smoker"]]))
    assert list(said["channel"]["sources"]) == list(SOURCES)
    assert said["channel"]["sources"]["consent"] is None
    text = call("fit", "book.csv", "--outcome", "y", "--features", "age", *ALL, *MODEL, "-o", "model.json").stdout
    assert "app: randomized response, keep 0.7311, epsilon 1" in " ".join(text.split())
    assert "consent: the true attribute" in " ".join(text.split())


def test_the_key_may_stand_beside_the_reports(call_json, book):
    fit(call_json, "book.csv")
    wanted = DiscriminationFreePricer.load("model.json").predict(book[["age", "smoker"]])
    book.drop(columns="report").to_csv("in_portfolio.csv", index=False)
    book[["policy", "report"]].to_csv("r.csv", index=False)
    book.drop(columns=["report", "where"]).to_csv("bare.csv", index=False)
    book[["policy", "report", "where"]].to_csv("both.csv", index=False)
    for portfolio, reports in (("in_portfolio.csv", "r.csv"), ("bare.csv", "both.csv")):
        fit(call_json, portfolio, "--reports", reports, "--key", "policy")
        model = DiscriminationFreePricer.load("model.json")
        np.testing.assert_allclose(model.predict(book[["age", "smoker"]]), wanted)


def test_a_held_out_test_and_parquet_read_in_pieces(call_json, book, monkeypatch):
    tested = fit(call_json, "book.csv", "--test", 0.3)["test"]
    assert [row["price"] for row in tested["prices"]] == ["discrimination_free", "unaware", "best_estimate"]
    wanted = expected(book, ["age", "smoker"]).predict(book[["age", "smoker"]])
    book.to_parquet("book.parquet", index=False)
    monkeypatch.setattr(_large_portfolio, "LARGE_BYTES", 0)
    fit(call_json, "book.parquet")
    model = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(model.predict(book[["age", "smoker"]]), wanted, rtol=1e-8)
    # keys that are numbers
    number = {"app": 1, "broker": 2, "consent": 3}
    book.assign(where=book["where"].map(number)).to_parquet("book.parquet", index=False)
    words = ["--channel", "1=app.json", "--channel", "2=broker.json", "--channel", "3=none", *MODEL, "-o", "model.json"]
    call_json("fit", "book.parquet", "--outcome", "y", "--features", "age,smoker", "--channel-key", "where", *words)
    model = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(model.predict(book[["age", "smoker"]]), wanted, rtol=1e-8)


def test_audit_is_the_library_s(call, call_json, book):
    summary = call_json("audit", "book.csv", "--premium", "premium", "--outcome", "y", *ALL, "-o", "report.json")
    found = next(s["records"] for s in summary["sections"] if s["id"] == "group_means")
    table = compute_group_means(
        book["premium"], book["y"], sensitive=book["report"], channel=SOURCES, channel_key=book["where"]
    )
    assert [row["loss"] for row in found] == pytest.approx(table["loss"].tolist())
    assert list(summary["privacy"]["sources"]) == list(SOURCES)


def test_a_sample_for_one_source(call_json, book, portfolio):
    truth = portfolio.sensitive
    pairs = pd.DataFrame({"true": truth, "report": BROKER.privatize(truth, rng=5)})
    pairs.to_csv("pairs.csv", index=False)
    words = [*ALL[:4], "--channel", "broker=validation", "--channel", "consent=none", "--validation", "pairs.csv"]
    said = call_json("fit", "book.csv", "--outcome", "y", "--features", "age", *words, *MODEL, "-o", "model.json")
    keep = (pairs["true"] == pairs["report"]).mean()
    assert said["noise"]["broker"]["keep"] == pytest.approx(keep, abs=1e-6)
    assert said["channel"]["sources"]["broker"]["keep"] == pytest.approx(keep, abs=1e-6)
    audited = call_json("audit", "book.csv", "--premium", "premium", "--outcome", "y", *words, "-o", "report.json")
    assert audited["privacy"]["sources"]["broker"]["keep"] == pytest.approx(keep, abs=1e-6)
    assert audited["privacy"]["estimated"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--channel-key", "where"], "--channel-key needs --channel for each source"),
        (["--channel-key", "where", "--channel", "app.json"], "such as app=channel.json"),
        ([*ALL, "--keep", 0.8], "Got --keep with --channel-key"),
        ([*ALL, "--true-attribute"], "Got --true-attribute with --channel-key"),
        ([*ALL, "--noise", "anchor"], "Got --noise with --channel-key"),
        (WORDS, "Got channel_key with ['consent']"),
        ([*ALL, "--channel", "app=broker.json"], "expected every name once"),
        ([*WORDS, "--channel", "consent=nowhere.json"], "nowhere.json"),
        ([*WORDS, "--channel", "consent=retest"], "needs --retest"),
        ([*ALL, "--retest", "pairs.csv"], "--channel source=retest"),
        ([*ALL, "--groups", "F,M,X"], "--groups F,M,X contradicts --channel app=app.json"),
        (["--channel", "app.json", "--channel", "broker.json"], "expected --channel-key"),
        (["--channel-key", "report", *ALL[2:]], "cannot be both --sensitive and --channel-key"),
        (["--channel-key", "nothing", *ALL[2:]], "no column 'nothing'"),
    ],
)
def test_mistakes_are_one_line(refuse, book, words, expected):
    common = ["fit", "book.csv", "--outcome", "y", "--features", "age", *words, "-o", "model.json"]
    assert expected in refuse(*common)


def test_a_file_that_describes_one_channel_is_not_contradicted(refuse, call_json, book):
    own = book[book["where"] == "app"]
    write_reports("app.csv", own, APP)
    assert "--channel-key contradicts app.csv.channel.json" in refuse(
        "fit", "app.csv", "--outcome", "y", "--features", "age", *ALL, "-o", "model.json"
    )


def test_sets_of_groups_beside_single_ones(call_json, portfolio):
    sources = {"sets": SubsetSelection(["F", "M"], 2.0), "staff": None}
    where = np.where(np.arange(len(portfolio)) % 2, "sets", "staff")
    S = KeyedChannels(sources).privatize(portfolio.sensitive, where, rng=1)
    frame = portfolio.X.assign(y=portfolio.y, where=where, report=S)
    frame.to_csv("book.csv", index=False)
    Path("sets.json").write_text(json.dumps(sources["sets"].descriptor()))
    words = ["--channel-key", "where", "--channel", "sets=sets.json", "--channel", "staff=none", *MODEL]
    said = call_json("fit", "book.csv", "--outcome", "y", "--features", "age", *words, "-o", "model.json")
    assert said["channel"]["sources"]["sets"]["subset_size"] == 1


def test_rows_without_a_report_may_take_part(call_json, refuse, book):
    book.loc[::3, "report"] = None
    book.to_csv("book.csv", index=False)
    words = ["fit", "book.csv", "--outcome", "y", "--features", "age,smoker", *ALL, "--correction", "likelihood"]
    call_json(*words, "--unreported", "include", "--no-intervals", "-o", "model.json")
    table = book[["age", "smoker"]]
    pricer = DiscriminationFreePricer(
        channel=SOURCES, correction="likelihood", unreported="include", intervals=False
    ).fit(table, book["y"], sensitive=book["report"], channel_key=book["where"])
    model = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(model.predict(table), pricer.predict(table), rtol=1e-6)
    assert "unreported" in refuse(*words, "--unreported", "some", "-o", "model.json")


# --- channels that are possible, by source ---


def section(summary, name):
    return next(s["records"] for s in summary["sections"] if s["id"] == name)


def test_a_band_over_possible_channels_by_source(call, call_json, refuse, book):
    words = ["audit", "book.csv", "--premium", "premium", "--outcome", "y", *ALL]
    others = {"app": RandomizedResponse(["F", "M"], keep=0.7), "broker": RandomizedResponse(["F", "M"], keep=0.95)}
    for key, channel in others.items():
        Path(f"{key}_other.json").write_text(json.dumps(channel.descriptor()))
    options = [x for key in others for x in ("--possible-channel", f"{key}={key}_other.json")]
    summary = call_json(*words, *options, "--features", "age,smoker", "-o", "report.json")
    roles = {"sensitive": book["report"], "channel": SOURCES, "channel_key": book["where"]}
    named = {key: {f"{key}_other.json": channel} for key, channel in others.items()}
    band = compute_channel_band(book["premium"], book["y"], channels=named, **roles)
    assert [row["loss_lowest"] for row in section(summary, "channel_band")] == pytest.approx(
        band["loss_lowest"].tolist()
    )
    assert all(row["together"] for row in section(summary, "channel_band"))
    risks = section(summary, "premium_band")
    assert len(risks) == 5
    assert [row["premium"] for row in risks] == sorted(row["premium"] for row in risks)  # from cheap to dear
    assert all(row["premium_lowest"] <= row["premium"] <= row["premium_highest"] for row in risks)
    assert all(row["premium_low"] < row["premium_lowest"] for row in risks)
    assert any(row["premium_highest"] > row["premium_lowest"] + 1e-6 for row in risks)
    call(*words, *options, "--features", "age,smoker", "-o", "report.html")
    html = Path("report.html").read_text(encoding="utf-8")
    assert "Over the channels that are possible: premiums" in html
    by_keep = call_json(*words, "--keep-range", "broker=0.85,0.95", "-o", "report.json")
    band = compute_channel_band(book["premium"], book["y"], keep={"broker": (0.85, 0.95)}, **roles)
    assert section(by_keep, "channel_band")[0]["loss_high"] == pytest.approx(band["loss_high"][0])
    out = ["-o", "report.json"]
    assert "such as app=other.json" in refuse(*words, "--possible-channel", "app_other.json", *out)
    assert "expected some of the sources" in refuse(*words, "--possible-channel", "x=app_other.json", *out)
    assert "app=0.75,0.9" in refuse(*words, "--keep-range", "0.7,0.8", "--keep-range", "0.8,0.9", *out)


# --- two reports of one person ---


@pytest.fixture
def asked_twice(portfolio):
    rng = np.random.default_rng(4)
    frame = portfolio.X.assign(
        policy=[f"p{i}" for i in range(len(portfolio))],
        y=portfolio.y,
        report=APP.privatize(portfolio.sensitive, rng=rng),
        again=APP.privatize(portfolio.sensitive, rng=rng),
        premium=300 + 2 * portfolio.X["age"],
    )
    frame.loc[rng.random(len(frame)) < 0.4, "again"] = None
    frame.loc[rng.random(len(frame)) < 0.2, "report"] = None
    frame.to_csv("book.csv", index=False)
    Path("app.json").write_text(json.dumps(APP.descriptor()))
    return frame


SECOND = ["--second-report", "again", "--channel", "app.json"]


def test_two_reports_are_the_library_s(call_json, asked_twice, monkeypatch):
    X, pairs = asked_twice[["age", "smoker"]], asked_twice[["report", "again"]]
    twice = Channel.repeated(APP, APP)
    right = DiscriminationFreePricer(channel=twice, correction="inverse", pooling=0).fit(
        X, asked_twice["y"], sensitive=pairs
    )
    common = ["--outcome", "y", "--features", "age,smoker", *SECOND, *MODEL, "-o", "model.json"]
    bare, reports = asked_twice.drop(columns=["report", "again"]), asked_twice[["policy", "report", "again"]]
    asked_twice.to_parquet("book.parquet", index=False)
    bare.to_parquet("bare.parquet", index=False)
    bare.to_csv("bare.csv", index=False)
    reports.to_csv("reports.csv", index=False)
    joined = ["--reports", "reports.csv", "--key", "policy"]
    for large, words in (
        (False, ["book.csv"]),
        (False, ["bare.csv", *joined]),
        (True, ["book.parquet"]),
        (True, ["bare.parquet", *joined]),
    ):
        if large:
            monkeypatch.setattr(_large_portfolio, "LARGE_BYTES", 0)
        said = call_json("fit", *words, *common)
        model = DiscriminationFreePricer.load("model.json")
        np.testing.assert_allclose(model.predict(X), right.predict(X), rtol=1e-8)
        assert said["reports_missing"] == int(pairs.isna().all(axis=1).sum())
        assert model.channel_ == twice
    summary = call_json("audit", "book.csv", "--premium", "premium", "--outcome", "y", *SECOND, "-o", "report.json")
    means = compute_group_means(asked_twice["premium"], asked_twice["y"], sensitive=pairs, channel=twice)
    assert [row["loss"] for row in section(summary, "group_means")] == pytest.approx(means["loss"].tolist())
    assert summary["privacy"]["epsilon"] == pytest.approx(2 * APP.epsilon)


def test_two_reports_without_a_file(call_json, asked_twice):
    words = ["--second-report", "again", "--keep", APP.keep, *MODEL, "-o", "model.json"]
    call_json("fit", "book.csv", "--outcome", "y", "--features", "age", "--test", 0.3, *words)
    assert DiscriminationFreePricer.load("model.json").channel_.repeats[1].keep == pytest.approx(APP.keep)
    # a file that describes both
    other = Channel.repeated(APP, BROKER)
    Path("pair.json").write_text(json.dumps(other.descriptor()))
    call_json(
        "fit", "book.csv", "--outcome", "y", "--features", "age", *SECOND[:2], "--channel", "pair.json", *words[4:]
    )
    assert DiscriminationFreePricer.load("model.json").channel_ == other


def test_two_reports_of_some_sources(call_json, portfolio, asked_twice):
    rng = np.random.default_rng(0)
    asked_twice["where"] = rng.choice(["app", "broker"], len(asked_twice))
    own = asked_twice["where"] == "broker"
    for name in ("report", "again"):
        drawn = own & asked_twice[name].notna()
        asked_twice.loc[drawn, name] = BROKER.privatize(portfolio.sensitive[drawn], rng=rng)
    asked_twice.to_csv("book.csv", index=False)
    Path("broker.json").write_text(json.dumps(BROKER.descriptor()))
    words = [*WORDS, "--second-report", "again", *MODEL, "-o", "model.json"]
    call_json("fit", "book.csv", "--outcome", "y", "--features", "age", *words)
    twice = {"app": Channel.repeated(APP, APP), "broker": Channel.repeated(BROKER, BROKER)}
    right = DiscriminationFreePricer(channel=twice, correction="inverse", pooling=0)
    right.fit(
        asked_twice[["age"]], asked_twice["y"], sensitive=asked_twice[["report", "again"]],
        channel_key=asked_twice["where"],
    )  # fmt: skip
    model = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(model.predict(asked_twice[["age"]]), right.predict(asked_twice[["age"]]), rtol=1e-8)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--second-report", "again", "--true-attribute"], "--second-report needs a channel that is known"),
        (["--second-report", "again", "--margin", "F=0.5,M=0.5"], "--second-report needs a channel that is known"),
        (["--second-report", "report", "--channel", "app.json"], "both --sensitive and --second-report"),
        (["--second-report", "nothing", "--channel", "app.json"], "no column 'nothing'"),
        (["--channel", "pair.json"], "Name the second one with --second-report"),
    ],
)
def test_mistakes_with_a_second_report(refuse, asked_twice, words, expected):
    Path("pair.json").write_text(json.dumps(Channel.repeated(APP, APP).descriptor()))
    assert expected in refuse("fit", "book.csv", "--outcome", "y", "--features", "age", *words, "-o", "model.json")

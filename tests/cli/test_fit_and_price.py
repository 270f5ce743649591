"""fit and price: the same numbers as the Python interface on the same files, and a line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.privacy import Channel, read_reports, write_reports

FIT = ["fit", "portfolio.csv", "--outcome", "y", "--features", "age,smoker,age_20_40", "--random-state", 0]
JOIN = ["--reports", "reports.csv", "--key", "policy"]


@pytest.fixture
def privatized(files):
    """reports.csv beside portfolio.csv, and both.csv with the reports in a column; seeded, so that fits are fixed."""
    people = pd.read_csv("people.csv", dtype=str)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    people["report"] = channel.privatize(people["sex"], rng=0)
    write_reports("reports.csv", people[["policy", "report"]], channel)
    both = pd.read_csv("portfolio.csv", dtype={"policy": str}).assign(report=read_reports("reports.csv")[0]["report"])
    both.to_csv("both.csv", index=False)
    return files


def in_python(**settings):
    frame = pd.read_csv("both.csv")
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, random_state=0, **settings)
    return pricer.fit(frame[["age", "smoker", "age_20_40"]], frame["y"], sensitive=frame["report"])


def test_the_round_trip_equals_the_python_interface(call, files):
    call("privatize", "people.csv", "--column", "sex", "--groups", "F,M", "--keep", 0.8, "-o", "reports.csv")
    reports = read_reports("reports.csv")[0]["report"]
    pd.read_csv("portfolio.csv", dtype={"policy": str}).assign(report=reports).to_csv("both.csv", index=False)
    call(*FIT, *JOIN, "-o", "model.json")
    call("price", "model.json", "portfolio.csv", "-o", "premiums.csv")
    pricer, frame = in_python(), pd.read_csv("both.csv")
    low, high = pricer.predict_interval(frame)
    expected = pd.DataFrame({"premium": pricer.predict(frame), "low": low, "high": high})
    pd.testing.assert_frame_equal(pd.read_csv("premiums.csv"), expected, rtol=1e-9)


def test_a_column_of_the_portfolio_gives_the_same_model(call, privatized):
    call(*FIT, *JOIN, "-o", "joined.json")
    call(FIT[0], "both.csv", *FIT[2:], "--sensitive", "report", "--keep", 0.8, "-o", "model.json")
    assert Path("joined.json").read_text() == Path("model.json").read_text()


def test_parquet_all_the_way(call, privatized):
    for name in ("people", "portfolio"):
        pd.read_csv(f"{name}.csv", dtype={"policy": str}).to_parquet(f"{name}.parquet")
    write_reports("reports.parquet", *read_reports("reports.csv"))
    frame = pd.read_csv("reports.csv", dtype=str)
    write_reports("reports.parquet", frame, RandomizedResponse(["F", "M"], keep=0.8))
    words = ["--reports", "reports.parquet", "--key", "policy"]
    call(FIT[0], "portfolio.parquet", *FIT[2:], *words, "-o", "parquet.json")
    call(*FIT, *JOIN, "-o", "csv.json")
    assert Path("parquet.json").read_text() == Path("csv.json").read_text()
    call("price", "csv.json", "portfolio.parquet", "--key", "policy", "-o", "premiums.parquet")
    out = pd.read_parquet("premiums.parquet")
    assert out.columns.tolist() == ["policy", "premium", "low", "high"]
    np.testing.assert_allclose(out["premium"], in_python().predict(pd.read_csv("both.csv")))


def test_what_fit_says(call, call_json, privatized):
    result = call_json(*FIT, *JOIN, "-o", "model.json")
    assert result["rows"] == 2000
    assert result["join"] == {"matched": 2000, "rows": 2000, "unused_reports": 0}
    assert result["reports_missing"] == 0
    assert list(result["groups"]) == ["F", "M"]
    assert result["channel"]["keep"] == 0.8
    assert result["channel_source"] == "reports.csv.channel.json"
    assert sum(result["reference"]["weights"].values()) == pytest.approx(1)
    text = call(*FIT, *JOIN, "-o", "model.json").stdout
    assert "keep 0.8, epsilon 1.386 (from reports.csv.channel.json)" in text
    assert "2,000 of 2,000 rows have a report" in text
    assert f"F {result['groups']['F']:.3f}" in text
    assert f"Correction  {result['correction']}: {result['reason']}\n" in text
    assert "Pooling     empirical Bayes; standard deviation of the groups' levels" in text
    assert (
        call_json(*FIT, *JOIN, "--correction", "inverse", "--pooling", 0, "-o", "model.json")["reason"] == "asked for"
    )


def test_the_join_counts_what_does_not_match(call_json, privatized):
    table, channel = read_reports("reports.csv")
    table["policy"] = [f"{i:05d}" for i in range(100, 2100)]
    write_reports("reports.csv", table, channel)
    result = call_json(*FIT, *JOIN, "-o", "model.json")
    assert result["join"] == {"matched": 1900, "rows": 2000, "unused_reports": 100}
    assert result["reports_missing"] == 100


def test_settings_reach_the_pricer(call, privatized):
    words = ["--pooling", 5, "--ridge", 2, "--reference", "F=0.3,M=0.7", "--no-intervals", "--weight", "exposure"]
    call(FIT[0], "both.csv", *FIT[2:], "--keep", 0.8, *words, "--unseen-levels", "base", "-o", "model.json")
    pricer = DiscriminationFreePricer.load("model.json")
    assert pricer.pooling_ == 5
    assert pricer.model.ridge == 2
    assert pricer.reference_distribution_.tolist() == [0.3, 0.7]
    assert not pricer.intervals
    assert pricer.unseen_levels == "base"
    call("price", "model.json", "both.csv", "-o", "premiums.csv")
    assert pd.read_csv("premiums.csv").columns.tolist() == ["premium"]


@pytest.mark.parametrize("reference", ["uniform", "balanced"])
def test_named_references(call, privatized, reference):
    call(FIT[0], "both.csv", *FIT[2:], "--keep", 0.8, "--reference", reference, "-o", "model.json")
    expected = in_python(reference=reference).reference_distribution_
    np.testing.assert_allclose(DiscriminationFreePricer.load("model.json").reference_distribution_, expected)


def test_tweedie_with_its_power(call, files):
    rng = np.random.default_rng(0)
    n = 3000
    frame = pd.DataFrame({"x": rng.normal(size=n), "report": rng.choice(["a", "b"], n)})
    frame["y"] = np.where(rng.random(n) < 0.3, rng.gamma(2.0, 1.0, n), 0.0)
    frame.to_csv("t.csv", index=False)
    call("fit", "t.csv", "--outcome", "y", "--true-attribute", "--family", "tweedie", "--power", 1.6, "-o", "m.json")
    assert json.loads(Path("m.json").read_text())["family"] == {"name": "tweedie", "power": 1.6}


def test_the_true_attribute(call, call_json, files):
    people = pd.read_csv("people.csv", dtype=str)
    pd.read_csv("portfolio.csv").assign(sex=people["sex"]).to_csv("known.csv", index=False)
    words = [FIT[0], "known.csv", *FIT[2:], "--sensitive", "sex", "--true-attribute"]
    result = call_json(*words, "-o", "model.json")
    assert result["channel"] is None
    assert "Channel     the true attribute" in call(*words, "-o", "model.json").stdout


def test_a_channel_file(call, files, portfolio):
    channel = Channel([[0.7, 0.2], [0.3, 0.8]], groups=["F", "M"])
    reports = channel.privatize(portfolio.sensitive, rng=0)
    pd.read_csv("portfolio.csv").assign(report=reports).to_csv("both.csv", index=False)
    Path("channel.json").write_text(json.dumps(channel.descriptor()))
    call(FIT[0], "both.csv", *FIT[2:], "--channel", "channel.json", "-o", "model.json")
    assert DiscriminationFreePricer.load("model.json").channel_ == channel


def test_labels_that_are_not_text_come_back_through_the_description(call, files, portfolio):
    channel = RandomizedResponse([0, 1], keep=0.8)
    reports = channel.privatize((portfolio.sensitive == "M").astype(int), rng=0)
    frame = portfolio.X.assign(y=portfolio.y, report=reports)
    for suffix in ("csv", "parquet"):
        write_reports(f"coded.{suffix}", frame, channel)
        call("fit", f"coded.{suffix}", "--outcome", "y", "-o", f"{suffix}.json")
        assert DiscriminationFreePricer.load(f"{suffix}.json").groups_ == (0, 1)


# --- unknown noise ---


@pytest.fixture
def simulated(portfolio):
    """noisy.csv with one woman in ten, and two fresh reports of everybody; seeded, so that intervals are fixed."""
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    rare = np.flatnonzero(portfolio.sensitive == "M").tolist()
    chosen = rare + np.flatnonzero(portfolio.sensitive == "F").tolist()[: len(rare) // 9]
    true = portfolio.sensitive[chosen]
    first, second = (channel.privatize(true, rng=seed) for seed in (1, 2))
    portfolio.X.iloc[chosen].assign(y=portfolio.y[chosen], report=first).to_csv("noisy.csv", index=False)
    pd.DataFrame({"true": true, "report": first}).to_csv("validation.csv", index=False)
    pd.DataFrame({"first": first, "second": second}).to_csv("retest.csv", index=False)
    return ["fit", "noisy.csv", "--outcome", "y", "--random-state", 0, "-o", "model.json"]


@pytest.mark.parametrize(
    "words", [["--margin", "F=0.1,M=0.9"], ["--validation", "validation.csv"], ["--retest", "retest.csv"]]
)
def test_estimated_noise(call, call_json, simulated, words):
    result = call_json(*simulated, *words)
    low, high = result["noise"]["interval"]
    assert low < 0.8 < high
    assert result["channel"]["keep"] == pytest.approx(result["noise"]["keep"])
    assert result["noise"]["message"] in call(*simulated, "--noise", words[0][2:], *words).stdout


def test_noise_that_the_data_do_not_tell(refuse, simulated):
    assert "not identified" in refuse(*simulated, "--noise", "margin", "--margin", "F=0.5,M=0.5")
    assert "No anchor is declared" in refuse(*simulated, "--noise", "anchor")
    assert "belong to --noise anchor" in refuse(*simulated, "--keep", 0.8, "--anchor-group", "F")


def test_a_declared_anchor(call_json, portfolio):
    """A column that gives the men of one region away."""
    region = np.where((portfolio.sensitive == "M") & (np.arange(len(portfolio)) % 3 == 0), "north", "south")
    reports = RandomizedResponse(["F", "M"], keep=0.8).privatize(portfolio.sensitive, rng=1)
    table = portfolio.X.assign(region=region, y=portfolio.y, report=reports)
    table.to_csv("anchored.csv", index=False)
    words = ["--noise", "anchor", "--anchor-group", "M", "--anchor-share", 0.15, "--random-state", 0]
    noise = call_json("fit", "anchored.csv", "--outcome", "y", *words, "-o", "model.json")["noise"]
    error = np.sqrt(0.8 * 0.2 / (0.15 * len(portfolio)))
    assert abs(noise["keep"] - 0.8) < 4 * error
    assert "your declaration" in noise["message"]


@pytest.mark.filterwarnings("always::fairpremium.errors.ChannelRefutedWarning")
def test_the_true_attribute_with_a_keep_is_seen(call, portfolio):
    portfolio.X.assign(y=portfolio.y, report=portfolio.sensitive).to_csv("true.csv", index=False)
    said = call("fit", "true.csv", "--outcome", "y", "--keep", 0.8, "-o", "model.json").stderr
    assert said.startswith("Warning: The declared keep of 0.800 is rejected")
    assert "--true-attribute" in said
    assert said.count("\n") == 1


# --- contradictions and mistakes ---


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--keep", 0.9], "contradicts reports.csv.channel.json, which says 0.8"),
        (["--epsilon", 1], "contradicts reports.csv.channel.json, which says 1.38629"),
        (["--groups", "F,M,X"], "--groups F,M,X contradicts"),
        (["--true-attribute"], "--true-attribute contradicts"),
        (["--noise", "anchor"], "--noise contradicts"),
        (["--keep", 0.8, "--epsilon", 1], "Got --keep and --epsilon"),
        (["--noise", "margin"], "--noise margin needs --margin"),
        (["--noise", "anchor", "--margin", "F=0.5,M=0.5"], "one way to estimate"),
        (["--noise", "magic"], "--noise"),
        (["--margin", "F,M"], "F=0.45,M=0.55"),
        (["--family", "cauchy"], "expected one of"),
        (["--power", 1.5], "--family tweedie"),
        (["--pooling", "much"], "Got --pooling much, but expected"),
        (["--pooling", -1], "pooling"),
        (["--correction", "magic"], "correction"),
        (["--reference", "fair"], "reference"),
        (["--reference", "F=0.5,M=0.6"], "sum to one"),
        (["--channel", "none.json"], "no file none.json"),
        (["--weight", "volume"], "no column 'volume'"),
        (["--features", "age,weight"], "no column 'weight'"),
        (["--features", "age,y"], "--outcome already"),
        (["--outcome", "losses"], "no column 'losses'"),
        (["--sensitive", "sex"], "no column 'sex'"),
        (["--key", "number"], "no column 'number'"),
    ],
)
def test_options_that_do_not_fit(refuse, privatized, words, expected):
    assert expected in refuse(*FIT, *JOIN, *words, "-o", "model.json")
    assert not Path("model.json").exists()


@pytest.mark.parametrize(
    "words", [["--keep", 0.8], ["--epsilon", 1.386], ["--groups", "M,F"], ["--channel", "reports.csv.channel.json"]]
)
def test_agreeing_options_are_welcome(call, call_json, privatized, words):
    """They change neither the channel nor a coefficient."""
    plain = call_json(*FIT, *JOIN, "-o", "plain.json")
    found = call_json(*FIT, *JOIN, *words, "-o", "model.json")
    assert found["channel"] == plain["channel"]
    assert found["channel"]["keep"] == pytest.approx(0.8, abs=1e-6)
    a, b = (DiscriminationFreePricer.load(name) for name in ("plain.json", "model.json"))
    assert a.groups_ == b.groups_
    np.testing.assert_array_equal(a.coefficients_, b.coefficients_)


def test_nothing_says_how_the_reports_were_drawn(refuse, privatized):
    assert "Give one of --keep" in refuse(FIT[0], "both.csv", *FIT[2:], "-o", "model.json")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda t: t.assign(y=t["y"].where(t.index != 3)), "1 of 50 values that are NaN"),
        (lambda t: t.assign(y="a lot"), "Column 'y' of bad.csv holds text"),
        (lambda t: t.assign(age=t["age"].where(t.index != 3)), "missing"),
        (lambda t: t.assign(report=t["report"].replace("F", "Q")), "not among the declared labels"),
        (lambda t: t.assign(report=None), "sensitive"),
        (lambda t: t.assign(exposure=-1.0), "negative"),
        (lambda t: t.drop(columns="report"), "no column 'report'"),
        (lambda t: t.head(0), "has no rows"),
    ],
)
def test_data_that_do_not_fit(refuse, privatized, change, expected):
    change(pd.read_csv("both.csv").head(50)).to_csv("bad.csv", index=False)
    words = [FIT[0], "bad.csv", *FIT[2:], "--groups", "F,M", "--keep", 0.8, "--weight", "exposure"]
    message = refuse(*words, "-o", "model.json")
    assert expected in message
    assert "Q" not in message
    assert "a lot" not in message


def test_a_key_is_not_taken_for_a_feature(refuse, privatized):
    pd.read_csv("both.csv", dtype={"policy": str}).assign(policy=lambda t: "P" + t["policy"]).to_csv(
        "k.csv", index=False
    )
    assert "looks like a key" in refuse("fit", "k.csv", "--outcome", "y", "--keep", 0.8, "-o", "model.json")


def test_joins_that_cannot_be(refuse, privatized):
    assert "--reports needs --key" in refuse(*FIT, "--reports", "reports.csv", "-o", "m.json")
    assert "too. Leave out --reports" in refuse(FIT[0], "both.csv", *FIT[2:], *JOIN, "-o", "m.json")
    table = pd.read_csv("reports.csv", dtype=str)
    pd.concat([table, table.head(3)]).to_csv("twice.csv", index=False)
    words = ["--keep", 0.8, "--key", "policy", "-o", "m.json"]
    assert "repeats a key in 3 rows" in refuse(*FIT, "--reports", "twice.csv", *words)
    table.assign(policy="x" + table["policy"]).to_csv("other.csv", index=False)
    assert "No key of portfolio.csv" in refuse(*FIT, "--reports", "other.csv", *words)
    table.assign(policy=table["policy"].where(table.index > 0)).to_csv("gap.csv", index=False)
    assert "is empty in 1 rows" in refuse(*FIT, "--reports", "gap.csv", *words)


# --- price ---


@pytest.fixture
def model(call, privatized):
    call(*FIT, *JOIN, "-o", "model.json")


def test_all_prices(call, model):
    call("price", "model.json", "portfolio.csv", "--all", "--level", 0.9, "-o", "out.csv")
    out, pricer, frame = pd.read_csv("out.csv"), in_python(), pd.read_csv("both.csv")
    assert out.columns.tolist() == [
        "premium", "low", "high", "unaware", "best_estimate_F", "best_estimate_M",
    ]  # fmt: skip
    np.testing.assert_allclose(out["unaware"], pricer.predict_unaware(frame))
    np.testing.assert_allclose(out["best_estimate_M"], pricer.predict_best_estimate(frame)["M"])
    np.testing.assert_allclose(out["low"], pricer.predict_interval(frame, 0.9).lower)


def test_the_key_comes_first_and_stays_text(call, call_json, model):
    result = call_json("price", "model.json", "portfolio.csv", "--key", "policy", "-o", "out.csv")
    assert result["columns"] == ["policy", "premium", "low", "high"]
    assert pd.read_csv("out.csv", dtype=str)["policy"].iloc[7] == "00007"
    assert "2,000 rows" in call("price", "model.json", "portfolio.csv", "-o", "out.csv").stdout


def test_levels_that_look_like_numbers(call, files):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"zone": rng.choice(["1", "2", "A"], 500), "report": rng.choice(["a", "b"], 500)})
    frame["y"] = rng.normal(size=500)
    frame.to_csv("zones.csv", index=False)
    call("fit", "zones.csv", "--outcome", "y", "--true-attribute", "-o", "m.json")
    Path("new.csv").write_text("zone\n1\n2\n")
    call("price", "m.json", "new.csv", "-o", "out.csv")
    assert len(pd.read_csv("out.csv")) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model.json", "none.csv", "-o", "x.csv"], "no file none.csv"),
        (["none.json", "portfolio.csv", "-o", "x.csv"], "no file none.json"),
        (["people.csv", "portfolio.csv", "-o", "x.csv"], "not a fairpremium model"),
        (["model.json", "people.csv", "-o", "x.csv"], "Its columns are 'policy', 'sex', 'town'"),
        (["model.json", "portfolio.csv", "-o", "portfolio.csv"], "would overwrite"),
        (["model.json", "portfolio.csv", "-o", "model.json"], "ends in .csv or .parquet"),
        (["model.json", "portfolio.csv", "-o", "no/x.csv"], "There is no folder no"),
        (["model.json", "portfolio.csv", "--level", "1.5", "-o", "x.csv"], "level=1.5"),
        (["model.json", "portfolio.csv", "--key", "number", "-o", "x.csv"], "no column 'number'"),
    ],
)
def test_price_mistakes(refuse, model, words, expected):
    assert expected in refuse("price", *words)


def test_an_edited_model_is_refused(refuse, model):
    Path("model.json").write_text(Path("model.json").read_text().replace('"rows": 2000', '"rows": 2001'))
    assert "damaged or was edited" in refuse("price", "model.json", "portfolio.csv", "-o", "x.csv")


def test_another_model_class_from_the_command_line(call, call_json, privatized):
    words = ["--model", "boosted", "--correction", "likelihood", "--no-intervals"]
    result = call_json(*FIT, *JOIN, *words, "-o", "boosted.json")
    assert (result["model"], result["correction"]) == ("boosted", "likelihood")
    call("price", "boosted.json", "portfolio.csv", "-o", "premiums.csv")
    pricer = in_python(model="boosted", correction="likelihood", intervals=False)
    np.testing.assert_allclose(
        pd.read_csv("premiums.csv")["premium"], pricer.predict(pd.read_csv("both.csv")), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "forest"], "model='forest'"),
        (["--model", "boosted", "--ridge", 1], "Got --ridge with --model boosted, but expected --model linear"),
        (["--model", "boosted", "--correction", "inverse"], "negative"),
    ],
)
def test_a_wrong_model_is_one_line(refuse, privatized, words, said):
    assert said in refuse(*FIT, *JOIN, *words, "-o", "model.json")


def test_rows_are_held_out_and_the_model_is_fitted_to_all(call, call_json, refuse, privatized):
    from fairpremium.diagnostics import evaluate, hold_out

    words = [*FIT, *JOIN, "--correction", "inverse", "--pooling", 0]
    call(*words, "-o", "model.json")
    tested = call_json(*words, "--test", 0.25, "-o", "tested.json")["test"]
    assert Path("tested.json").read_text() == Path("model.json").read_text()
    frame, held = pd.read_csv("both.csv"), hold_out(2000, 0.25, random_state=0)
    X, channel = frame[["age", "smoker", "age_20_40"]], RandomizedResponse(["F", "M"], keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, random_state=0)
    pricer.fit(X[~held], frame["y"][~held], sensitive=frame["report"][~held])
    expected = evaluate(pricer, X[held], frame["y"][held], sensitive=frame["report"][held])
    assert tested["rows"] == 500
    pd.testing.assert_frame_equal(pd.DataFrame(tested["prices"]).astype(expected.dtypes), expected)
    text = call(*words, "--test", 0.25, "-o", "tested.json").stdout
    assert "500 rows that the first fit did not see; the model is fitted to all rows" in text
    assert "observed over expected" in text
    assert "share strictly between 0 and 1" in refuse(*words, "--test", 1, "-o", "tested.json")

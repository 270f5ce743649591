"""The whole story in one process: collector, insurer, third party, over the same routes that HTTP has."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fairpremium import Channel, RandomizedResponse
from fairpremium.errors import ExposureWarning
from fairpremium.parties import (
    DeclaredAnchor,
    EstimatedChannel,
    Feature,
    FitSpec,
    KnownChannel,
    Portfolio,
    PortfolioSpec,
    Problem,
    StudySpec,
    TrueAttribute,
)
from fairpremium.parties.clients._collector import draw_reports
from fairpremium.parties.protocol._keys import VerifyKey, new_key
from fairpremium.parties.protocol._linkage import make_keys
from fairpremium.parties.protocol._messages import PartTaken
from fairpremium.parties.protocol._portfolio_part import PORTFOLIO_TYPE, check_portfolio_part, write_portfolio_part
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.service.reports import open_snapshot
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import MemoizedReports, PrivacyLedger

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
# Of the number of rows with a report among 2,000, estimated from second draws among three values with epsilon 2.
MATCHED_ERROR = np.sqrt(2000 * 0.25) / ((np.exp(2) - 1) / (np.exp(2) + 2))


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=2000, rng=1, age_band=True)


@pytest.fixture
def table(portfolio):
    frame = portfolio.X.copy()
    frame["policy"] = [f"P{i}" for i in range(len(frame))]
    frame["y"] = portfolio.y
    frame["sex"] = portfolio.sensitive
    return frame


def declare(parties, **changes):
    spec = StudySpec(
        title="Motor 2026",
        attribute=changes.pop("attribute", KnownChannel(channel=CHANNEL.descriptor())),
        collectors=("app",),
        insurers=("acme",),
        **changes,
    )
    parties.operator.put_study("motor", spec)
    parties.operator.set_state("motor", "open")


def collect(parties, table, path):
    memo = MemoizedReports(CHANNEL, b"a secret of the tests", attribute="sex")
    with PrivacyLedger(path.with_suffix(".sqlite")) as ledger:
        reports, _ = draw_reports(table, path, policy="policy", column="sex", memo=memo, ledger=ledger)
    parties.collector.submit(reports, study="motor", secret=parties.secret, channel=CHANNEL)
    return reports


def upload(parties, table, name="p1", **options):
    return parties.insurer.upload(
        table.drop(columns="sex"), study="motor", portfolio=name, secret=parties.secret, policy="policy",
        outcome="y", **options,
    )  # fmt: skip


def test_from_reports_to_premiums(parties, table, portfolio, tmp_path):
    declare(parties)
    collect(parties, table[:1900], tmp_path / "reports.parquet")
    uploaded = upload(parties, table, rows_per_part=700)
    assert (uploaded.state, uploaded.rows, [part.n for part in uploaded.parts]) == ("sealed", 2000, [0, 1, 2])
    parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1"))
    assert work_once(parties.context)
    done = parties.insurer.watch("f1")
    assert done.state == "succeeded", done
    assert done.epoch == 1
    assert abs(done.matched - 1900) < 4 * MATCHED_ERROR
    trusted = [VerifyKey(parties.third_party.public_key)]
    bundle = parties.insurer.fetch("f1", tmp_path / "bundle.zip", trusted=trusted)
    premiums = bundle.pricer.predict(portfolio.X)
    truth = portfolio.discrimination_free(portfolio.X)
    assert np.sqrt(np.mean((premiums - truth) ** 2)) < 0.1 * np.mean(truth)
    written = bundle.premiums.to_pandas()
    assert list(written.columns) == ["key", "premium", "low", "high", "unaware", "group F", "group M"]
    assert len(written) == 2000  # with and without a report
    np.testing.assert_allclose(written["premium"], premiums, rtol=1e-12)
    assert (written["low"] < written["premium"]).all()
    assert parties.third_party.verify_log().intact


def test_totals_over_an_exposure_are_sent_as_rates(parties, table, tmp_path):
    declare(parties)
    years = np.linspace(0.25, 1, len(table))
    totals = table.assign(y=np.arange(len(table)) % 3, years=years)
    by_hand = totals.assign(y=totals["y"] / years)
    mine = upload(parties, totals, "p1", exposure="years")
    other = upload(parties, by_hand, "p2", weight="years")
    assert mine.spec == other.spec
    assert [part.sha256 for part in mine.parts] == [part.sha256 for part in other.parts]
    with pytest.warns(ExposureWarning):
        upload(parties, totals, "p3", weight="years")
    with pytest.raises(ValueError, match="expected one of them"):
        upload(parties, totals, "p4", weight="years", exposure="y")
    with pytest.raises(ValueError, match="0 in row 7 "):
        upload(parties, totals.assign(years=np.where(np.arange(len(years)) == 7, 0, years)), "p5", exposure="years")


def test_the_true_attribute_is_told_in_the_manifest(parties, table, tmp_path):
    declare(parties, attribute=TrueAttribute(groups=("F", "M")))
    people = table[["policy", "sex"]].rename(columns={"sex": "report"})
    parties.collector.submit(people, study="motor", secret=parties.secret, channel=None)
    upload(parties, table)
    parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1", correction="inverse", pooling=0.0))
    assert work_once(parties.context)
    assert parties.insurer.watch("f1").state == "succeeded"
    trusted = [VerifyKey(parties.third_party.public_key)]
    bundle = parties.insurer.fetch("f1", tmp_path / "bundle.zip", trusted=trusted)
    assert bundle.manifest["true_attribute"] is True


def test_unknown_noise_needs_a_declared_anchor(parties, table, tmp_path):
    table["club"] = np.where((table["sex"] == "M") & (np.arange(len(table)) % 3 == 0), "yes", "no")
    reports = table[["policy"]].assign(report=CHANNEL.privatize(table["sex"], rng=0))
    for study, anchor in (("motor", None), ("home", DeclaredAnchor(group="M", share=0.15))):
        attribute = EstimatedChannel(groups=("F", "M"), anchor=anchor)
        spec = StudySpec(title="t", attribute=attribute, collectors=("app",), insurers=("acme",), release=None)
        parties.operator.put_study(study, spec)
        parties.operator.set_state(study, "open")
        parties.collector.submit(reports, study=study, secret=parties.secret, channel=None)
        parties.insurer.upload(
            table.drop(columns="sex"), study=study, portfolio=study, secret=parties.secret, policy="policy", outcome="y"
        )
        parties.insurer.fit(study, FitSpec(study=study, portfolio=study))
        assert work_once(parties.context)
    failed = parties.insurer.watch("motor")
    assert failed.state == "failed"
    assert "declares no anchor" in str(failed.problem)
    assert parties.insurer.watch("home").state == "succeeded"
    trusted = [VerifyKey(parties.third_party.public_key)]
    used = parties.insurer.fetch("home", tmp_path / "bundle.zip", trusted=trusted).pricer.channel_.keep
    assert abs(used - 0.8) < 4 * np.sqrt(0.8 * 0.2 / (0.15 * len(table)))


@pytest.mark.parametrize("anchor", [{"group": "X", "share": 0.1}, {"group": "F", "share": 0.0}, {"group": "F"}])
def test_an_anchor_is_one_of_the_groups_and_has_a_share(anchor):
    fields = {"kind": "estimated", "groups": ["F", "M"], "anchor": anchor}
    with pytest.raises(Problem):
        EstimatedChannel.parse(json.dumps(fields).encode())


def test_a_fit_that_breaks_a_rule_is_refused_by_name(parties, table, tmp_path):
    declare(parties)
    collect(parties, table, tmp_path / "reports.parquet")
    table["spike"] = 0.0
    table.loc[5, "spike"] = 1.0
    upload(parties, table)
    parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1"))
    work_once(parties.context)
    seen = parties.insurer.watch("f1")
    assert seen.state == "refused"
    assert seen.refusal.rule == 2
    with pytest.raises(Problem, match="not ended with a result"):
        parties.insurer.fetch("f1", tmp_path / "bundle.zip", trusted=[])


def test_everything_can_be_sent_again(parties, table, tmp_path):
    declare(parties)
    collect(parties, table, tmp_path / "reports.parquet")
    collect(parties, table, tmp_path / "reports.parquet")  # the stored reports
    first, again = upload(parties, table), upload(parties, table)
    assert first == again
    spec = FitSpec(study="motor", portfolio="p1")
    assert parties.insurer.fit("f1", spec) == parties.insurer.fit("f1", spec)
    with pytest.raises(Problem, match="another content"):
        parties.insurer.fit("f1", spec.model_copy(update={"level": 0.9}))


def test_a_second_answer_with_another_value_is_refused(parties, table, tmp_path):
    declare(parties)
    people = table[:200]
    reports = collect(parties, people, tmp_path / "reports.parquet")
    first = reports.iloc[0]
    other = "M" if first["report"] == "F" else "F"
    parties.collector.report("motor", parties.secret, first["policy"], first["report"], CHANNEL)
    with pytest.raises(Problem, match="reported before"):
        parties.collector.report("motor", parties.secret, first["policy"], other, CHANNEL)
    parties.collector.report("motor", parties.secret, "new one", other, CHANNEL)
    with pytest.raises(Problem, match="reported before"):
        parties.collector.report("motor", parties.secret, "new one", first["report"], CHANNEL)
    batch = pd.DataFrame({"policy": ["new one"], "report": [first["report"]]})
    with pytest.raises(Problem, match="another content"):  # part 0 was another one
        parties.collector.submit(batch, study="motor", secret=parties.secret, channel=CHANNEL)


def test_reports_of_another_channel_are_refused(parties, table):
    declare(parties)
    other = RandomizedResponse(["F", "M"], keep=0.9)
    batch = pd.DataFrame({"policy": table["policy"], "report": other.privatize(table["sex"])})
    with pytest.raises(Problem, match="another channel"):
        parties.collector.submit(batch, study="motor", secret=parties.secret, channel=other)
    with pytest.raises(Problem, match="another channel"):
        parties.collector.report("motor", parties.secret, "P1", "F", other)


def test_a_study_that_is_not_open_takes_no_reports(parties, table, tmp_path):
    declare(parties)
    parties.operator.set_state("motor", "close")
    with pytest.raises(Problem, match="does not take reports now"):
        collect(parties, table, tmp_path / "reports.parquet")


def test_an_erased_portfolio_is_gone(parties, table, tmp_path):
    declare(parties)
    collect(parties, table, tmp_path / "reports.parquet")
    upload(parties, table)
    before = set(parties.context.files)
    parties.insurer.erase("p1")
    assert len(set(parties.context.files)) < len(before)
    with pytest.raises(Problem, match="erased"):
        parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1"))


def test_a_waiting_fit_is_cancelled_at_once(parties, table, tmp_path):
    declare(parties)
    collect(parties, table, tmp_path / "reports.parquet")
    upload(parties, table)
    parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1"))
    assert parties.insurer.cancel("f1").state == "cancelled"
    assert not work_once(parties.context)


def test_strangers_see_nothing(parties, table, tmp_path):
    declare(parties)
    collect(parties, table, tmp_path / "reports.parquet")
    upload(parties, table)
    stranger = parties.add("other", "insurer", new_key())
    for path in ("/v1/studies/motor", "/v1/portfolios/p1", "/v1/fits/f1"):
        with pytest.raises(Problem, match="not yours"):
            stranger.send("GET", path)


def test_keys_that_are_repeated_across_parts_are_found_at_the_seal(parties, table, tmp_path):
    declare(parties)
    spec = PortfolioSpec(study="motor", features=(Feature(name="age"),), outcome="y")
    parties.insurer.put("/v1/portfolios/p1", spec, Portfolio)
    for n, rows in enumerate((slice(0, 100), slice(99, 200))):
        some = (
            table[["age", "y"]].iloc[rows].assign(key=make_keys(parties.secret, table["policy"].iloc[rows]).to_pylist())
        )
        parties.insurer.put_file(
            f"/v1/portfolios/p1/parts/{n}", write_portfolio_part(some, spec), PORTFOLIO_TYPE, PartTaken
        )
    with pytest.raises(Problem, match="repeated"):
        parties.insurer.post("/v1/portfolios/p1/seal", Portfolio)


def test_a_study_asks_for_one_attribute(parties):
    both = Channel.product(CHANNEL, RandomizedResponse(["a", "b"], keep=0.7))
    with pytest.raises(ValueError, match="one attribute"):
        declare(parties, attribute=KnownChannel(channel=both.descriptor()))


def test_what_one_collector_sends_tells_it_nothing_about_another(parties, table, tmp_path):
    other = parties.add("web", "collector", new_key())
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    spec = StudySpec(title="t", attribute=attribute, collectors=("web", "app"), insurers=("acme",))
    parties.operator.put_study("motor", spec)
    parties.operator.set_state("motor", "open")
    reports = collect(parties, table, tmp_path / "reports.parquet")
    flipped = reports.assign(report=reports["report"].map({"F": "M", "M": "F"}))
    for policy, report in zip(flipped["policy"][:20], flipped["report"][:20], strict=True):
        other.report("motor", parties.secret, policy, report, CHANNEL)  # neither a conflict nor a different answer
    some = flipped[10:30].reset_index(drop=True)
    other.submit(some, study="motor", secret=parties.secret, channel=CHANNEL)
    upload(parties, table)
    parties.insurer.fit("f1", FitSpec(study="motor", portfolio="p1"))
    assert work_once(parties.context)
    assert parties.insurer.watch("f1").state == "succeeded"
    keys = np.frombuffer(make_keys(parties.secret, table["policy"]).buffers()[1], dtype="V16")
    context, used = parties.context, np.full(len(keys), None, dtype=object)
    for source in ("app", "web"):  # the later one has the last word
        find = context.database.read(lambda c, s=source: open_snapshot(c, context, "motor", 1, s))
        codes = find(keys)
        used = np.where(codes >= 0, np.array(["F", "M"], dtype=object)[codes], used)
    expected = np.where(np.arange(len(table)) < 30, flipped["report"], reports["report"])
    np.testing.assert_array_equal(used, expected)  # the collector that is listed first counts


def test_a_part_is_found_from_another_working_directory(tmp_path, monkeypatch):
    spec = PortfolioSpec(study="s", features=(Feature(name="x"),), outcome="y")
    rows = pa.table({"key": pa.array([bytes(16), b"k" * 16], pa.binary(16)), "x": [1.0, 2.0], "y": [0.0, 1.0]})
    for name in ("first", "second"):  # the process that reads parts starts in the first
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.parquet").write_bytes(write_portfolio_part(rows, spec))
        monkeypatch.chdir(folder)
        assert check_portfolio_part(f"{name}.parquet", spec) == 2


def test_a_folder_does_not_move_with_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    third_party = ThirdParty("third-party")
    assert third_party.context.files.folder.is_absolute()
    third_party.close()

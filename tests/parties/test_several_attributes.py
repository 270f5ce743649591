"""A study of several attributes, through the whole service: reports, prices free of all or of some, ledger, audit."""

from __future__ import annotations

import html
import json
import re

import httpx
import numpy as np
import pandas as pd
import pytest
from sqlalchemy import select

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import render_markdown
from fairpremium.parties import FitSpec, KnownChannel, NamedAttribute, Problem, SeveralAttributes, StudySpec
from fairpremium.parties.protocol import (
    BATCH_TYPE,
    Question,
    QuestionText,
    ReleaseRules,
    ReportsTaken,
    VerifyKey,
    as_keys,
    make_keys,
    new_key,
    write_batches,
)
from fairpremium.parties.release import ReleasePlan, combine_draws, randomize_reports, seen_channel
from fairpremium.parties.service import ServiceLimits, _fit_inputs, _run_fit
from fairpremium.parties.service._epochs import epoch_key
from fairpremium.parties.service._fit_inputs import find_reports, read_job
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import batch_files, epochs, fits, log, releases, reports, studies

from .conftest import Parties

SEX = RandomizedResponse(["F", "M"], keep=0.85)
AREA = RandomizedResponse(["N", "S", "W"], keep=0.8)
CHANNELS = {"sex": SEX, "area": AREA}
BOTH = SeveralAttributes(
    attributes=tuple(NamedAttribute(name=name, channel=channel.descriptor()) for name, channel in CHANNELS.items())
)
SHARES = np.array([0.25, 0.12, 0.08, 0.2, 0.15, 0.2])  # F and N, S, W; M and N, S, W
EFFECTS = np.array([0.0, 2.0, 4.0, 3.0, 5.0, 8.5])
N = 4000


@pytest.fixture(scope="module")
def people():
    """Two attributes that belong together and shape the feature; all the rest is noise of standard deviation one."""
    rng = np.random.default_rng(8)
    cell = rng.choice(6, N, p=SHARES)
    age = rng.uniform(0, 1, N) + 0.3 * (cell // 3)
    frame = pd.DataFrame({"age": age, "policy": [f"P{i}" for i in range(N)]})
    frame["y"] = 10 + 4 * age + EFFECTS[cell] + rng.normal(0, 1, N)
    frame["sex"], frame["area"] = np.array(SEX.groups)[cell // 3], np.array(AREA.groups)[cell % 3]
    return frame


@pytest.fixture
def no_page(monkeypatch):
    """Leave the page of the audit out: its drawings take longer than the fit."""
    monkeypatch.setattr(_run_fit, "render_report", lambda summary: "<html></html>")


def declare(parties, study="motor", attribute=BOTH, **changes):
    spec = StudySpec(title="Motor", attribute=attribute, collectors=("app", "web"), insurers=("acme",), **changes)
    parties.operator.put_study(study, spec)
    parties.operator.set_state(study, "open")


def collect(parties, people, study="motor", **rows):
    """Draw and send the reports of each attribute, of all rows or of some; return them beside all rows."""
    table = pd.DataFrame(None, index=people.index, columns=list(CHANNELS), dtype=object)
    for name, some in rows.items():
        channel, given = CHANNELS[name], people.iloc[some]
        drawn = pd.DataFrame({"policy": given["policy"], "report": channel.privatize(given[name], rng=len(name))})
        parties.collector.submit(drawn, study=study, secret=parties.secret, channel=channel, attribute=name)
        table.loc[given.index, name] = drawn["report"]
    return table


def upload(parties, people, name="p", study="motor", **options):
    parties.insurer.upload(
        people.drop(columns=["sex", "area"]), study=study, portfolio=name, secret=parties.secret, policy="policy",
        outcome="y", **options,
    )  # fmt: skip


def ask(parties, fit, **fields):
    fields = {"study": "motor", "portfolio": "p", "correction": "inverse", "pooling": 0.0, **fields}
    parties.insurer.fit(fit, FitSpec(**fields))
    assert work_once(parties.context)
    return parties.insurer.watch(fit)


def fetch(parties, fit, folder):
    return parties.insurer.fetch(fit, folder / f"{fit}.zip", trusted=[VerifyKey(parties.third_party.public_key)])


def rows_of(parties, table):
    return parties.context.database.read(lambda c: c.execute(select(table)).all())


# --- prices and audit ---


@pytest.fixture(scope="module")
def served(tmp_path_factory, people):
    """A study in which some told their sex only, some their area only, some both and some nothing."""
    folder = tmp_path_factory.mktemp("several")
    parties = Parties(folder / "third-party")
    declare(parties)
    parties.stored = collect(parties, people, sex=slice(0, 3600), area=slice(300, 3900))
    upload(parties, people)
    parties.folder = folder
    parties.fits = {
        "all": ask(parties, "all", release="randomized", pooling="auto"),
        "area": ask(parties, "area", attributes=("area",), release="randomized", pooling="auto"),
    }
    assert [fit.state for fit in parties.fits.values()] == ["succeeded", "succeeded"]
    yield parties
    parties.close()


def released(parties, people):
    """The reports that may be shown, drawn again from the stored ones and the study's secret, by a slow way."""
    secret = epoch_key(bytes(rows_of(parties, studies)[0].secret), rows_of(parties, epochs)[0].salt)
    keys = [bytes(key) for key in make_keys(parties.secret, people["policy"]).to_pylist()]
    found = {}
    for name, channel in CHANNELS.items():
        found[name] = randomize_reports(keys, parties.stored[name], channel, 2.0, secret, attribute=name, epoch=1)
    return found


def test_prices_free_of_some_are_a_library_fit_to_the_released_reports(served, people):
    bundle = fetch(served, "area", served.folder)
    drawn = released(served, people)["area"]
    pricer = DiscriminationFreePricer("normal", channel=seen_channel(drawn, AREA), correction="inverse", random_state=0)
    pricer.fit(people[["age"]], people["y"], sensitive=drawn.reports)
    np.testing.assert_allclose(bundle.pricer.predict(people[["age"]]), pricer.predict(people[["age"]]), rtol=1e-9)
    assert bundle.pricer.groups_ == ("N", "S", "W")
    assert [one["name"] for one in bundle.manifest["attributes"]] == ["area"]
    assert bundle.manifest["epsilon"] == AREA.epsilon
    assert bundle.manifest["disclosure"]["epsilon"] == pytest.approx(2.0, abs=1e-6)


def test_prices_free_of_all_are_a_library_fit_to_the_combinations(served, people):
    bundle = fetch(served, "all", served.folder)
    drawn = released(served, people)
    columns = [drawn[name].reports for name in CHANNELS]
    together = combine_draws([drawn[name] for name in CHANNELS], list(CHANNELS.values()))
    table = pd.DataFrame(dict(zip(CHANNELS, columns, strict=True)))  # a row with a gap is a row without a report
    pricer = DiscriminationFreePricer("normal", channel=together.channel, correction="inverse", random_state=0)
    pricer.fit(people[["age"]], people["y"], sensitive=table)
    X = people[["age"]]
    np.testing.assert_allclose(bundle.pricer.predict(X), pricer.predict(X), rtol=1e-9)
    assert bundle.pricer.groups_ == Channel.product(SEX, AREA).groups
    assert bundle.manifest["epsilon"] == pytest.approx(SEX.epsilon + AREA.epsilon)
    assert bundle.manifest["disclosure"]["epsilon"] == pytest.approx(4.0, abs=1e-6)
    assert "told of sex and area together" in bundle.manifest["disclosure"]["statement"]
    assert "group ('F', 'N')" in bundle.premiums.column_names
    # Who told both, estimated from second draws of each attribute with epsilon 2, of which a quarter tells nothing.
    assert abs(served.fits["all"].matched - 3300) < 5 * np.sqrt(2 * len(people) * 0.25) / 0.5


def test_the_truth_is_within_the_intervals(served, people):
    """Premiums free of both are 10 + 4 age + the mean effect; without pooling the intervals are much wider."""
    X = pd.DataFrame({"age": [0.4, 0.65, 0.9]})
    truth = 10 + 4 * X["age"] + SHARES @ EFFECTS
    pricer = fetch(served, "all", served.folder).pricer
    low, high = pricer.predict_interval(X, level=0.999)
    assert (low < truth).all()
    assert (truth < high).all()
    assert (high - low < 1.5).all()
    unaware = pricer.predict_unaware(X)
    assert not ((low < unaware) & (unaware < high)).all()  # age tells the sex, and the price does not use it


def test_the_audit_is_by_attribute_and_crossed(served, people):
    summary = served.context.database.read(
        lambda c: json.loads(c.exec_driver_sql("SELECT summary FROM fits WHERE id = 'all'").scalar_one())
    )
    sections = {section["id"]: section["records"] for section in summary["sections"]}
    assert len([row for row in sections["group_means"] if row["group"] is not None]) == 6
    each = {row["group"]: row for row in sections["group_means_by_attribute"]}
    for group, expected in (("sex: F", 0.45), ("area: W", 0.28)):
        assert each[group]["share"] == pytest.approx(expected, abs=0.09)
    loss = people["y"][people["area"] == "W"].mean()
    middle = (each["area: W"]["loss_low"] + each["area: W"]["loss_high"]) / 2
    width = each["area: W"]["loss_high"] - each["area: W"]["loss_low"]
    assert abs(loss - middle) < 5 * width / (2 * 1.96)  # five standard errors: the draws of an epoch are random
    page = fetch(served, "all", served.folder).report
    for title in ("Premium and loss by attribute", "Difference of premiums by attribute", "Loss ratio by attribute"):
        assert title in page
    assert "by attribute" not in fetch(served, "area", served.folder).report


def test_the_ledger_counts_each_attribute_and_the_total(served):
    spent = served.insurer.study("motor").spent
    assert spent.by_attribute == {"sex": 2.0, "area": 2.0}
    assert spent.epsilon == 4.0
    made = {row.fit: (json.loads(row.attributes), row.epsilon) for row in rows_of(served, releases)}
    assert made == {"all": (["sex", "area"], 4.0), "area": (["area"], 2.0)}


def test_the_console_shows_attributes_and_accounts(served):
    console = httpx.Client(base_url="http://127.0.0.1", transport=served.transport)
    pages = {}
    for path in ("/", "/console/budgets", "/console/studies/motor", "/console/studies/motor/fits/acme/area"):
        answer = console.get(path)
        assert answer.status_code == 200
        pages[path] = " ".join(html.unescape(re.sub("<[^>]+>", " ", answer.text)).split())
    study = pages["/console/studies/motor"]
    for text in ("Attribute sex F, M epsilon 1.73", "Attribute area N, S, W epsilon 2.08", "sex: 2 area: 2"):
        assert text in study
    assert f"each attribute by itself; epsilon {SEX.epsilon + AREA.epsilon:.3g}" in study
    assert "4 once" in study  # what the fit of both paid, and the other one nothing
    assert "nothing more" in study
    assert "4.00 of 4" in study
    assert "sex F, M area N, S, W Randomized response" in pages["/"]
    assert "sex 2.00 area 2.00" in pages["/console/budgets"]
    assert "Free of area" in pages["/console/studies/motor/fits/acme/area"]
    assert "sex: F" in console.get("/console/studies/motor/fits/acme/all").text


def test_rows_larger_than_memory_have_the_same_prices(tmp_path, people, no_page):
    parties = Parties(tmp_path / "third-party")
    object.__setattr__(parties.context, "limits", ServiceLimits(memory_rows=1000))
    declare(parties, release=None)
    table = collect(parties, people, sex=slice(0, 3600), area=slice(300, 3900))
    upload(parties, people, rows_per_part=1500)
    assert ask(parties, "file").state == "succeeded"
    bundle = fetch(parties, "file", tmp_path)
    pricer = DiscriminationFreePricer(
        "normal", channel=Channel.product(SEX, AREA), correction="inverse", pooling=0, random_state=0
    )
    pricer.fit(people[["age"]], people["y"], sensitive=table)
    X = people[["age"]]
    np.testing.assert_allclose(bundle.pricer.predict(X), pricer.predict(X), rtol=1e-6)
    assert bundle.pricer.groups_ == pricer.groups_
    parties.close()


# --- noised sums ---


def test_noised_sums_cover_the_tuple_and_count_once_in_the_total(tmp_path, people, monkeypatch):
    shown = []
    monkeypatch.setattr(_run_fit, "render_report", lambda summary: shown.append(summary) or "<html></html>")
    parties = Parties(tmp_path / "third-party")
    declare(parties, release=ReleaseRules(epsilon=6.0, fit_epsilon=1.0, randomized_epsilon=1.0))
    collect(parties, people, sex=slice(0, N), area=slice(0, N))
    upload(parties, people)
    assert ask(parties, "sex", attributes=("sex",), release="gaussian").state == "succeeded"
    spent = parties.insurer.study("motor").spent
    assert spent.by_attribute == {"sex": pytest.approx(2.0), "area": 0.0}
    assert spent.epsilon == pytest.approx(2.0)
    assert ask(parties, "both", release="gaussian").state == "succeeded"
    plan = ReleasePlan(6.0, 1e-6).after("gaussian", 1.0)
    twice = plan.after("gaussian", 1.0)
    spent = parties.insurer.study("motor").spent
    assert spent.by_attribute == {"sex": pytest.approx(1 + twice.spent), "area": pytest.approx(1 + plan.spent)}
    assert spent.epsilon == pytest.approx(2 + twice.spent)
    X = people[["age"]]
    bundle = fetch(parties, "both", tmp_path)
    assert bundle.manifest["disclosure"]["mechanism"] == "gaussian"
    assert "epsilon 2 on top, paid once" in bundle.manifest["disclosure"]["statement"]
    said = "to the prices, and randomized the reports of this audit once more, with epsilon"
    assert [f"{said} {epsilon};" in render_markdown(one) for one, epsilon in zip(shown, (1, 2), strict=True)] == [
        True
    ] * 2
    truth = 10 + 4 * X["age"].mean() + SHARES @ EFFECTS
    assert abs(bundle.pricer.predict(X).mean() - truth) < 1.0
    named = ask(parties, "again", attributes=("area", "sex"), release="gaussian")  # the same, in other words
    assert named.state == "succeeded"
    assert parties.insurer.study("motor").spent == spent
    np.testing.assert_array_equal(fetch(parties, "again", tmp_path).pricer.predict(X), bundle.pricer.predict(X))
    parties.close()


def test_what_the_budget_does_not_allow_is_refused_before_it_is_charged(tmp_path, people, no_page):
    parties = Parties(tmp_path / "third-party")
    declare(parties, release=ReleaseRules(epsilon=4.0, fit_epsilon=2.0, randomized_epsilon=2.0))
    collect(parties, people, sex=slice(0, N), area=slice(0, N))
    upload(parties, people)
    assert ask(parties, "sex", attributes=("sex",), release="gaussian").state == "succeeded"
    before = rows_of(parties, releases)
    refused = ask(parties, "area", attributes=("area",), release="randomized")
    assert (refused.state, refused.refusal.rule) == ("refused", 9)
    assert rows_of(parties, releases) == before
    parties.close()


def test_small_combinations_are_refused_and_large_subsets_are_not(tmp_path, people, no_page):
    parties = Parties(tmp_path / "third-party")
    declare(parties, release=None)
    few = people[:700]  # about 100 of the smallest report, and 700 x .12 of the smallest combination
    collect(parties, few, sex=slice(0, 700), area=slice(0, 700))
    upload(parties, few)
    refused = ask(parties, "both")
    assert (refused.state, refused.refusal.rule) == ("refused", 1)
    assert ask(parties, "sex", attributes=("sex",)).state == "succeeded"
    parties.close()


# --- reports ---


def test_reports_of_attributes_are_kept_apart(parties, people, tmp_path):
    same = RandomizedResponse(["no", "yes"], keep=0.8)  # labels and channel of two attributes can be the same
    twins = SeveralAttributes(
        attributes=tuple(NamedAttribute(name=name, channel=same.descriptor()) for name in ("smoker", "driver"))
    )
    declare(parties, attribute=twins)
    keys = as_keys([bytes([i]) * 16 for i in range(40)])
    (body,) = write_batches(keys, ["yes"] * 40, same.reports, same, batches=1, attribute="smoker")
    target = "/v1/studies/motor/report-parts/0"
    for query, code in (
        ("", "not-allowed-here"),
        ("?attribute=driver", "wrong-channel"),
        ("?attribute=other", "not-allowed-here"),
        ("?attribute=No%20Id", "bad-query"),
    ):
        with pytest.raises(Problem) as refused:
            parties.collector.put_file(target + query, body, BATCH_TYPE, ReportsTaken)
        assert refused.value.code == code
    taken = parties.collector.put_file(f"{target}?attribute=smoker", body, BATCH_TYPE, ReportsTaken)
    assert taken.rows == 40
    for value, name in (("no", "driver"), ("no", "driver"), ("yes", "smoker")):  # the same again is taken again
        parties.collector.report("motor", parties.secret, "P1", value, same, attribute=name)
    with pytest.raises(Problem, match="another value"):
        parties.collector.report("motor", parties.secret, "P1", "yes", same, attribute="driver")
    with pytest.raises(Problem, match="without the name"):
        parties.collector.report("motor", parties.secret, "P1", "yes", same)
    assert {row.collector for row in rows_of(parties, reports)} == {"app/smoker", "app/driver"}
    assert [(row.collector, row.rows) for row in rows_of(parties, batch_files)] == [("app/smoker", 40)]
    seen = parties.collector.study("motor")
    assert (seen.accepted, seen.accepted_by_attribute) == (40, {"smoker": 40, "driver": None})
    assert not [row for row in rows_of(parties, log) if row.event.startswith("report")]
    assert parties.third_party.verify_log().intact
    declare(parties, "one", attribute=KnownChannel(channel=same.descriptor()))
    with pytest.raises(Problem, match="does not name"):  # a study with one attribute has no names
        parties.collector.report("one", parties.secret, "P1", "yes", same, attribute="smoker")


def test_each_attribute_counts_at_the_first_collector_that_has_it(parties, people, tmp_path):
    declare(parties, release=None)
    web = parties.add("web", "collector", new_key())
    parties.collector.report("motor", parties.secret, "P0", "F", SEX, attribute="sex")
    web.report("motor", parties.secret, "P0", "M", SEX, attribute="sex")
    web.report("motor", parties.secret, "P0", "W", AREA, attribute="area")
    web.report("motor", parties.secret, "P1", "M", SEX, attribute="sex")
    upload(parties, people[:3])
    parties.insurer.fit("f", FitSpec(study="motor", portfolio="p"))
    lease = parties.context.database.write(lambda c: acquire_lease(c, parties.context))
    parties.operator.send("POST", "/v1/studies/motor/epochs/1")  # takes the snapshot
    job = parties.context.database.read(lambda c: read_job(c, parties.context, lease))
    joined = find_reports(parties.context, job)
    assert joined.codes.tolist() == [[0, 2], [1, -1], [-1, -1]]
    assert joined.reports().tolist() == [("F", "W"), None, None]


def test_every_key_is_looked_up_at_every_collector_whoever_reported(parties, people, monkeypatch):
    """How long a fit looks for reports does not tell how many rows have one at the first collector."""
    declare(parties, release=None)
    web = parties.add("web", "collector", new_key())
    upload(parties, people[:3])
    asked = []
    open_one = _fit_inputs.open_snapshot

    def spy(*args):
        look_up = open_one(*args)
        return lambda keys: asked[-1].append((args[-1], len(keys))) or look_up(keys)

    monkeypatch.setattr(_fit_inputs, "open_snapshot", spy)
    for number in (1, 2):
        parties.operator.send("POST", f"/v1/studies/motor/epochs/{number}")
        parties.insurer.fit(f"f{number}", FitSpec(study="motor", portfolio="p"))
        lease = parties.context.database.write(lambda c: acquire_lease(c, parties.context))
        job = parties.context.database.read(lambda c, lease=lease: read_job(c, parties.context, lease))
        asked.append([])
        found = find_reports(parties.context, job).codes
        assert (found >= 0).any() == (number == 2)
        for policy in ("P0", "P1", "P2"):
            for collector in (parties.collector, web):
                collector.report("motor", parties.secret, policy, "F", SEX, attribute="sex")
    assert asked[0] == asked[1]
    assert {rows for _, rows in asked[0]} == {3}


# --- declarations ---


def test_fits_name_attributes_of_the_study(tmp_path, people):
    parties = Parties(tmp_path / "third-party")
    declare(parties)
    upload(parties, people[:5])
    for attributes in (("age",), ("sex", "age")):
        with pytest.raises(Problem, match="does not name"):
            parties.insurer.fit("f", FitSpec(study="motor", portfolio="p", attributes=attributes))
    many = RandomizedResponse([str(i) for i in range(8)], keep=0.8)
    wide = (*BOTH.attributes, NamedAttribute(name="job", channel=many.descriptor()))
    declare(parties, "wide", attribute=SeveralAttributes(attributes=wide), release=ReleaseRules(epsilon=6.0))
    upload(parties, people[:5], "w", "wide")
    with pytest.raises(Problem, match="combinations of groups in one fit; at most 20"):
        parties.insurer.fit("f", FitSpec(study="wide", portfolio="w"))
    assert parties.insurer.fit("f", FitSpec(study="wide", portfolio="w", attributes=("sex", "job"))).state == "queued"
    declare(parties, "one", attribute=KnownChannel(channel=SEX.descriptor()))
    upload(parties, people[:5], "o", "one")
    with pytest.raises(Problem):
        parties.insurer.fit("g", FitSpec(study="one", portfolio="o", attributes=("sex",)))
    parties.close()


def test_wrong_declarations_are_refused():
    sex, area = BOTH.attributes
    with pytest.raises(ValueError, match="repeated"):
        SeveralAttributes(attributes=(sex, sex))
    with pytest.raises(ValueError, match="at least 2"):
        SeveralAttributes(attributes=(sex,))
    with pytest.raises(ValueError, match="by name"):
        KnownChannel(channel=Channel.product(SEX, AREA).descriptor())
    many = NamedAttribute(name="job", channel=RandomizedResponse(range(40), keep=0.8).descriptor())
    with pytest.raises(ValueError, match="at most 100 combinations"):
        SeveralAttributes(attributes=(sex, area, many))
    fields = {"title": "t", "attribute": BOTH, "collectors": ("app",), "insurers": ()}
    with pytest.raises(ValueError, match="of 2 attributes costs more"):
        StudySpec(**fields, release=ReleaseRules(epsilon=3.0, randomized_epsilon=2.0))
    with pytest.raises(ValueError, match="63 characters together"):
        StudySpec(**(fields | {"collectors": ("a" * 61,)}))
    text = QuestionText(question="Which?", groups=("a", "b", "c", "d", "e", "f"), purpose="To know.")
    with pytest.raises(ValueError, match="the page asks for one attribute"):
        StudySpec(**fields, question=Question(collector="App", texts={"en": text}))


def test_a_fit_of_one_attribute_has_the_text_that_it_always_had(tmp_path, people):
    """By its text a fit that was asked for before this version is known again."""
    parties = Parties(tmp_path / "third-party")
    declare(parties, attribute=KnownChannel(channel=SEX.descriptor()))
    upload(parties, people[:5])
    parties.insurer.fit("f", FitSpec(study="motor", portfolio="p"))
    (row,) = rows_of(parties, fits)
    assert "attributes" not in row.spec
    parties.close()

"""The rules over the service: distinct fits, the budget across fits and in a race, overlap, and repeated fits."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
from functools import partial

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select

from fairpremium.parties import FitSpec
from fairpremium.parties.protocol._linkage import new_secret
from fairpremium.parties.protocol._messages import NamedAttribute, ReleaseRules, SeveralAttributes, stored_fields
from fairpremium.parties.release._accounting import ReleasePlan
from fairpremium.parties.release._disclosure import Rules
from fairpremium.parties.release._randomized import randomize_reports, second_channel
from fairpremium.parties.service import _run_fit
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._fits import cancel_fit
from fairpremium.parties.service._leases import LeaseLost, acquire_lease, release_lease
from fairpremium.parties.service._run_fit import run_fit
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import releases
from helpers import wire

ROWS, REPORTED = 1500, 1300
# Two Gaussian fits with epsilon 1 are within this budget, a third one is not.
RELEASE = ReleaseRules(epsilon=3.6, fit_epsilon=1.0, randomized_epsilon=2.0)


@pytest.fixture
def world(tmp_path, database_url):
    with wire.World(tmp_path / "third-party", database_url) as world:
        world.declare(release=RELEASE)
        world.secret = new_secret()
        rng = np.random.default_rng(5)
        frame = pd.DataFrame({"age": rng.uniform(-1, 1, ROWS), "region": rng.choice(["a", "b"], ROWS)})
        group = rng.choice(["F", "M"], ROWS)
        frame["y"] = 3 + frame["age"] + (group == "F") + rng.normal(size=ROWS)
        frame["policy"] = [f"P{i}" for i in range(ROWS)]
        world.frame = frame
        world.reports = pd.DataFrame({"policy": frame["policy"], "report": wire.CHANNEL.privatize(group)})
        report(world, slice(0, REPORTED))
        upload(world, "p1")
        yield world


def report(world, rows, first_part=0):
    keys = wire.make_keys(world.secret, world.reports["policy"].iloc[rows])
    body = wire.write_batch(keys.to_pylist(), world.reports["report"].iloc[rows], ["F", "M"], wire.CHANNEL)
    target = f"/v1/studies/motor/report-parts/{first_part}"
    assert world.ask("app", "PUT", target, body, wire.BATCH).status == 200


def upload(world, name, rows=slice(None)):
    roles = {"study": "motor", "secret": world.secret, "policy": "policy", "outcome": "y"}
    return world.client("acme").upload(world.frame.iloc[rows], portfolio=name, **roles)


def fit(world, name, portfolio="p1", **more):
    world.fit("acme", name, portfolio, **{"release": "gaussian", **more})
    assert work_once(world.context)
    return see(world, name)


def see(world, name):
    return world.ask("acme", "GET", f"/v1/fits/{name}").json()


def premiums(world, name):
    body = world.ask("acme", "GET", f"/v1/fits/{name}/bundle").body
    with zipfile.ZipFile(io.BytesIO(body)) as bundle:
        return bundle.read("premiums.parquet"), bundle.read("model.json")


def test_the_budget_allows_what_the_accountant_says(world):
    plan = ReleasePlan(RELEASE.epsilon, RELEASE.delta).after("randomized", RELEASE.randomized_epsilon)
    assert plan.fits_left(RELEASE.fit_epsilon) == 2


def test_the_budget_holds_across_fits_and_a_repeat_is_free_and_the_same(world):
    assert fit(world, "a")["state"] == "succeeded"
    assert fit(world, "again")["state"] == "succeeded"  # the same fit under another name
    assert premiums(world, "a") == premiums(world, "again")
    assert fit(world, "b", level=0.9)["state"] == "succeeded"
    assert premiums(world, "b")[0] != premiums(world, "a")[0]
    refused = fit(world, "c", level=0.8)
    assert refused["state"] == "refused"
    assert refused["refusal"] == {
        "rule": 9, "title": "the privacy budget of the study is used up", "limit": "epsilon 3.6 at delta 1e-06",
        "column": None,
    }  # fmt: skip
    assert refused["matched"] is None
    assert fit(world, "more", level=0.9)["state"] == "succeeded"  # what was paid stays paid
    assert premiums(world, "more") == premiums(world, "b")
    assert fit(world, "r", release="randomized")["state"] == "succeeded"  # paid once for the whole study
    entries = world.ask("aud", "GET", "/v1/log").json()["entries"]
    told = next(e for e in entries if e["event"] == "fit.refused")
    assert told["body"]["refusal"] == refused["refusal"]
    assert "spent" not in json.dumps(entries)


def test_a_repeat_after_an_upgrade_is_paid(world, monkeypatch):
    """Another version may give other noise: for free it would average out."""
    assert fit(world, "a")["state"] == "succeeded"
    monkeypatch.setattr(_run_fit, "__version__", "99")
    assert fit(world, "again")["state"] == "succeeded"
    assert premiums(world, "a")[0] != premiums(world, "again")[0]
    assert fit(world, "b", level=0.9)["state"] == "refused"  # the budget allows two


def report_page(world, name):
    body = world.ask("acme", "GET", f"/v1/fits/{name}/bundle").body
    with zipfile.ZipFile(io.BytesIO(body)) as bundle:
        return bundle.read("report.html").decode()


@pytest.mark.usefixtures("reports_with_charts")
def test_what_a_report_shows_costs_nothing_and_changes_no_price(world):
    about = {"by": "region", "insurer": "Acme & Co", "tariff_version": "Motor 7", "unit": "EUR"}
    assert fit(world, "a")["state"] == "succeeded"
    assert fit(world, "b", report=about)["state"] == "succeeded"
    assert fit(world, "c", report=about | {"by": "age"})["state"] == "succeeded"
    assert premiums(world, "a")[0] == premiums(world, "b")[0] == premiums(world, "c")[0]
    paid = world.context.database.read(lambda c: {r.identity for r in c.execute(select(releases))})
    assert len(paid) == 1
    plain, page, bands = (report_page(world, name) for name in "abc")
    assert "Acme &amp; Co, Motor 7" in page
    assert "region: a" in page
    assert 'id="group_means_by_class"' in page
    assert 'id="group_means_by_class"' not in plain
    assert len(set(re.findall(r"age: [-.\d]+ to [-.\d]+", bands))) == 5
    assert "epsilon 1, delta 1e-06" in plain.replace("1.0e-06", "1e-06")  # what the third party added
    assert "acme, tariff version not given" in plain


def test_classes_are_features_and_need_the_noise_of_rule_9(world):
    spec = FitSpec(study="motor", portfolio="p1", report={"by": "policy"})
    answer = world.ask("acme", "PUT", "/v1/fits/x", spec.model_dump_json().encode(), wire.JSON)
    assert answer.status >= 400
    assert "by: not a feature" in answer.body.decode()


def test_what_is_not_allowed_is_said_with_what_is(world):
    world.declare("narrow", families=("poisson", "gamma"), models=("linear", "boosted"))
    world.declare("several", attribute=SeveralAttributes(attributes=(named("sex"), named("origin"))))

    def ask(study="motor", **spec):
        body = FitSpec(study=study, portfolio="p1", **spec).model_dump_json().encode()
        answer = world.ask("acme", "PUT", "/v1/fits/x", body, wire.JSON)
        assert answer.status >= 400
        return answer.json()["title"]

    assert "family normal; allowed: poisson, gamma" in ask("narrow")
    assert "model neural; allowed: linear, boosted" in ask("narrow", family="gamma", model="neural")
    assert "allowed: sex, origin" in ask("several", attributes=("age",))
    assert "the portfolio's features: age, region" in ask(terms="age + town")
    assert "allowed: age, region" in ask(report={"by": "town"})
    assert "that is allowed: 1, or none" in ask(epoch=7)
    for title in (ask(terms="age + town"), ask(report={"by": "town"}), ask("several", attributes=("age",))):
        assert "town" not in title  # what came with the request is not repeated
    assert fit(world, "r", reference={"F": 1.0})["problem"]["title"].endswith("a weight to each group: F, M.")


def named(name):
    return NamedAttribute(name=name, channel=wire.CHANNEL.descriptor())


def test_a_fit_without_a_word_about_its_report_is_written_as_before():
    assert "report" not in stored_fields(FitSpec(study="motor", portfolio="p1"))
    asked = FitSpec(study="motor", portfolio="p1", report={"unit": "EUR"})
    assert FitSpec.model_validate_json(asked.model_dump_json()) == asked


def begin_epoch(world, number):
    assert world.ask("op", "POST", f"/v1/studies/motor/epochs/{number}").status == 200


def test_in_an_epoch_nothing_changes_with_what_is_reported_meanwhile(world):
    first = fit(world, "a")
    report(world, slice(REPORTED, ROWS), 1)
    second = fit(world, "b")
    assert [seen["epoch"] for seen in (first, second)] == [1, 1]
    assert first["matched"] == second["matched"]
    assert premiums(world, "a") == premiums(world, "b")
    paid = world.context.database.read(lambda c: {r.identity for r in c.execute(select(releases))})
    assert len(paid) == 1


def test_where_a_repeat_may_have_other_noise_it_is_paid(world, monkeypatch):
    """Another processor may add up in another order: two answers to one question tell more than one."""
    from fairpremium.parties.service import _run_fit

    assert fit(world, "a", release="randomized")["state"] == "succeeded"
    before = world.ask("acme", "GET", "/v1/studies/motor").json()["spent"]["epsilon"]
    spent = []
    for name, arithmetic in (("b", {"blas": "Haswell"}), ("c", {"blas": "Haswell"}), ("d", {"blas": "SkylakeX"})):
        monkeypatch.setattr(_run_fit, "describe_arithmetic", lambda arithmetic=arithmetic: arithmetic)
        seen = fit(world, name)
        spent.append(world.ask("acme", "GET", "/v1/studies/motor").json()["spent"]["epsilon"])
    assert before < spent[0] == spent[1]
    assert spent[2] > spent[1] or seen["refusal"]["rule"] == 9


@pytest.mark.parametrize("more", [False, True], ids=["no report more", "more reports"])
def test_the_next_epoch_has_noise_of_its_own_and_is_paid_whether_reports_changed_or_not(world, more):
    """What it costs, and that prices change, tell nothing about the reports."""
    assert fit(world, "a", release="randomized")["state"] == "succeeded"
    if more:
        report(world, slice(REPORTED, ROWS), 1)
    begin_epoch(world, 2)
    refused = fit(world, "b", release="randomized")  # the second randomization again: 2 and 2 of 3.6
    assert refused["refusal"]["rule"] == 9
    spent = world.ask("acme", "GET", "/v1/studies/motor").json()["spent"]["epsilon"]
    assert spent == pytest.approx(RELEASE.randomized_epsilon)


def test_epochs_last_as_long_as_the_study_says_and_a_fit_may_name_its_own(world):
    assert fit(world, "a", epoch=1)["epoch"] == 1
    world.clock.now += 30 * 86_400 - 1
    assert fit(world, "b", level=0.9)["epoch"] == 1
    spec = FitSpec(study="motor", portfolio="p1", level=0.85, epoch=2)
    ask = partial(world.ask, "acme", "PUT", "/v1/fits/c", wire.text(spec))
    assert ask().code == "epoch-over"
    world.clock.now += 1
    assert ask().json()["epoch"] == 2
    assert world.ask("acme", "GET", "/v1/studies/motor").json()["epoch"]["number"] == 2
    late = spec.model_copy(update={"epoch": 1})
    assert world.ask("acme", "PUT", "/v1/fits/d", wire.text(late)).code == "epoch-over"


def test_draws_of_two_epochs_have_nothing_in_common():
    """Else a draw that stayed the same would tell that a report did."""
    keys, reports = [f"P{i}" for i in range(4000)], np.array(["F", "M"] * 2000, dtype=object)
    drawn = [randomize_reports(keys, reports, wire.CHANNEL, 2.0, bytes(32), epoch=epoch).reports for epoch in (1, 2)]
    second = second_channel(wire.CHANNEL.reports, 2.0)
    same = np.mean([a == b for a, b in zip(*drawn, strict=True)])
    expected = np.sum(second.matrix[:, 0] ** 2)  # of independent draws of the same report
    assert abs(same - expected) < 5 * np.sqrt(expected * (1 - expected) / len(keys))


def test_two_fits_that_race_for_the_rest_of_the_budget(world):
    """Both see enough budget when they begin; one of them gets it."""
    assert fit(world, "a")["state"] == "succeeded"
    for name, level in (("b", 0.9), ("c", 0.8)):
        world.fit("acme", name, "p1", release="gaussian", level=level)
    leases = [world.context.database.write(lambda c: acquire_lease(c, world.context)) for _ in range(2)]
    meet = threading.Barrier(2, timeout=120)
    errors = []

    def run(lease):
        try:
            meet.wait()
            run_fit(world.context, lease)
        except Exception as error:  # shown by the assertion below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(lease,)) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    states = sorted((see(world, name)["state"], (see(world, name)["refusal"] or {}).get("rule")) for name in "bc")
    assert states == [("refused", 9), ("succeeded", None)]
    assert world.third_party.verify_log().intact


def test_a_fit_pays_before_it_looks_at_the_reports(world, monkeypatch):
    """What is left when a fit begins is not spent by another one that overtakes it."""
    from fairpremium.parties.service import _run_fit

    assert fit(world, "a")["state"] == "succeeded"
    world.fit("acme", "late", "p1", release="gaussian", level=0.7)
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    real = _run_fit.write_manifest
    done = []

    def meanwhile(*args, **kwargs):
        if not done:
            done.append(True)
            quick = fit(world, "quick", level=0.9)
            assert (quick["state"], quick["refusal"]["rule"]) == ("refused", 9)
        return real(*args, **kwargs)

    monkeypatch.setattr(_run_fit, "write_manifest", meanwhile)
    run_fit(world.context, lease)
    assert see(world, "late")["state"] == "succeeded"
    assert done


def test_what_is_charged_stays_charged_whether_a_fit_is_refused_or_cancelled(world, monkeypatch):
    from fairpremium.parties.release._disclosure import RefusedError, RuleResult
    from fairpremium.parties.service import _run_fit

    def paid():
        return {row.fit for row in world.context.database.read(lambda c: c.execute(select(releases)).all())}

    def refuses(*args, **kwargs):
        raise RefusedError([RuleResult(1, False, "limit", "measured")])

    with monkeypatch.context() as patched:
        patched.setattr(_run_fit, "fit_release", refuses)
        assert fit(world, "a")["state"] == "refused"
    assert paid() == {"a"}

    def cancels(*args, **kwargs):
        world.context.database.write(lambda c: cancel_fit(c, world.context, Party("acme", "insurer"), "b"))
        raise LeaseLost

    world.fit("acme", "b", "p1", release="gaussian", level=0.7)
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    with monkeypatch.context() as patched:
        patched.setattr(_run_fit, "fit_release", cancels)
        with pytest.raises(LeaseLost):
            run_fit(world.context, lease)
    assert paid() == {"a", "b"}
    world.context.database.write(lambda c: release_lease(c, world.context, lease))
    assert see(world, "b")["state"] == "cancelled"
    assert paid() == {"a", "b"}  # a rule has looked at the reports: who cancels then has learned something
    world.fit("acme", "c", "p1", release="gaussian", level=0.6)
    world.context.database.write(lambda c: cancel_fit(c, world.context, Party("acme", "insurer"), "c"))
    assert see(world, "c")["state"] == "cancelled"
    assert paid() == {"a", "b"}  # nobody had looked


def test_overlap_across_the_portfolios_of_an_insurer(world):
    """One row less, or one more, or many: rule 5 looks at all fits of the insurer."""
    assert fit(world, "a", release="randomized")["state"] == "succeeded"
    upload(world, "one-less", slice(1, None))
    refused = fit(world, "b", "one-less", release="randomized")
    assert refused["state"] == "refused"
    assert refused["refusal"]["rule"] == 5
    assert refused["refusal"]["limit"] == "no row or at least 50"
    upload(world, "without-reports", slice(0, ROWS - 7))  # the rows that differ have no report, which must not show
    assert fit(world, "c", "without-reports", release="randomized")["refusal"]["rule"] == 5
    upload(world, "many-less", slice(60, None))
    assert fit(world, "d", "many-less", release="randomized")["state"] == "succeeded"
    upload(world, "in-between", slice(30, None))  # far from neither
    assert fit(world, "e", "in-between", release="randomized")["refusal"]["rule"] == 5
    world.third_party.delete_portfolio(wire.Party("acme", "insurer"), "p1")  # erasing it does not help
    upload(world, "one-less-again", slice(1, None))
    assert fit(world, "f", "one-less-again", release="randomized")["refusal"]["rule"] == 5


def test_overlap_is_per_insurer(world):
    other = wire.study_spec(insurers=("acme", "other"))
    assert world.ask("op", "PUT", "/v1/studies/motor", other.model_dump_json().encode()).code == "study-frozen"
    world.declare("motor-2", ("app",), ("acme", "other"), release=RELEASE)
    keys = wire.make_keys(world.secret, world.reports["policy"])
    body = wire.write_batch(keys.to_pylist(), world.reports["report"], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/motor-2/report-parts/0", body, wire.BATCH).status == 200
    roles = {"study": "motor-2", "secret": world.secret, "policy": "policy", "outcome": "y"}
    world.client("acme").upload(world.frame, portfolio="q", **roles)
    world.client("other").upload(world.frame.iloc[1:], portfolio="q", **roles)
    for who in ("acme", "other"):
        world.fit(who, "x", "q", "motor-2", release="randomized")
        assert work_once(world.context)
        assert world.ask(who, "GET", "/v1/fits/x").json()["state"] == "succeeded"


def test_twenty_distinct_fits_and_no_more(world):
    assert Rules().fits == 20
    seen = []
    for i in range(20):
        world.fit("acme", f"f{i}", "p1", level=0.51 + i / 100)
        seen.append(world.ask("acme", "GET", "/v1/studies/motor").json()["fits_left"])
    assert seen == list(range(19, -1, -1))
    body = FitSpec(study="motor", portfolio="p1", level=0.99).model_dump_json().encode()
    answer = world.ask("acme", "PUT", "/v1/fits/one-more", body)
    assert (answer.status, answer.code) == (409, "quota")
    world.fit("acme", "again", "p1", level=0.51)  # asked for before
    for i in range(20):  # cancelling gives nothing back
        world.ask("acme", "POST", f"/v1/fits/f{i}/cancel")
    assert world.ask("acme", "PUT", "/v1/fits/one-more", body).code == "quota"


def test_premiums_of_all_rows_come_back_whether_they_reported_or_not(world):
    fit(world, "a")
    table = pq.read_table(io.BytesIO(premiums(world, "a")[0]))
    assert table.num_rows == ROWS

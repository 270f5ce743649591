"""Claims through the service: numbers and amounts leave the insurer, frequency times severity comes back."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from sqlalchemy import select

from fairpremium import FrequencySeverityPricer, RandomizedResponse
from fairpremium.documents import canonical_json
from fairpremium.models import LinearModel
from fairpremium.parties import (
    ClaimFit,
    DeclaredAnchor,
    EstimatedChannel,
    Feature,
    FitSpec,
    KnownChannel,
    PerilColumns,
    PortfolioSpec,
    Problem,
    StudySpec,
    new_secret,
)
from fairpremium.parties.bundle import load_bundle
from fairpremium.parties.bundle._bundle import write_bundle
from fairpremium.parties.bundle._selftest import price_columns
from fairpremium.parties.protocol import Rules, VerifyKey, make_keys, stored_fields
from fairpremium.parties.protocol._portfolio_part import check_portfolio_part, write_portfolio_part
from fairpremium.parties.release import (
    Claims,
    ClaimSettings,
    RefusedError,
    ReleaseSettings,
    fit_release,
    randomize_reports,
    without_protection,
)
from fairpremium.parties.release._fit_data import ClaimData
from fairpremium.parties.release._release import check_reports
from fairpremium.parties.service._budget import plan_of
from fairpremium.parties.service._context import ServiceLimits
from fairpremium.parties.service._epochs import epoch_key
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import epochs, metadata, releases, studies
from helpers import wire

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
N = 4000
QUICK = {"correction": "inverse"}


class Book:
    """Compound Poisson-gamma claims whose frequency and severity depend on the group, as does a proxy for it."""

    def __init__(self, n=N, seed=5):
        rng = np.random.default_rng(seed)
        self.sex = rng.choice(["F", "M"], n)
        self.X = pd.DataFrame(
            {"age": rng.uniform(20, 70, n), "car": np.where(rng.random(n) < 0.3 + 0.4 * (self.sex == "M"), "b", "a")}
        )
        self.years = rng.uniform(0.5, 1.0, n)
        frequency, severity = self.parts(self.X)
        group = (self.sex == "M").astype(int)
        own = frequency[np.arange(n), group], severity[np.arange(n), group]
        self.counts = rng.poisson(self.years * own[0])
        self.amounts = rng.gamma(2.0 * self.counts, own[1] / 2.0)

    @staticmethod
    def parts(X):
        """True frequency and severity of each group: shapes (n, 2)."""
        base = 0.01 * (X["age"].to_numpy() - 45) + 0.3 * (X["car"] == "b").to_numpy()
        frequency = np.exp(-0.7 - base[:, None] + np.array([-0.2, 0.2]))
        severity = np.exp(6.0 + 0.5 * base[:, None] + np.array([-0.25, 0.25]))
        return frequency, severity

    def premium(self, X):
        """True h*(x): both groups are equally likely."""
        frequency, severity = self.parts(X)
        return (frequency * severity).mean(axis=1)

    @property
    def table(self):
        return self.X.assign(
            policy=[f"policycanary{i}" for i in range(len(self.X))], n=self.counts, paid=self.amounts, years=self.years
        )


@pytest.fixture(scope="module")
def book():
    return Book()


def open_world(folder, **options):
    """A service on one file, with a client of each party."""
    world = wire.World(folder, **options)
    world.secret = new_secret()
    world.insurer, world.collector, world.operator = world.client("acme"), world.client("app"), world.client("op")
    return world


@pytest.fixture
def local(tmp_path):
    with open_world(tmp_path / "third-party") as world:
        yield world


def declare(parties, **changes):
    channel = KnownChannel(channel=CHANNEL.descriptor())
    spec = StudySpec(title="Claims", attribute=channel, collectors=("app",), insurers=("acme",), **changes)
    parties.operator.put_study("motor", spec)
    parties.operator.set_state("motor", "open")


def submit(parties, book, rows=N):
    reports = CHANNEL.privatize(book.sex, rng=11)
    people = pd.DataFrame({"policy": book.table["policy"], "report": reports})[:rows]
    parties.collector.submit(people, study="motor", secret=parties.secret, channel=CHANNEL)
    return np.where(np.arange(len(reports)) < rows, reports, None)


def upload(parties, table, name="p1", **options):
    roles = {"policy": "policy", "claims": "n", "amount": "paid", "exposure": "years", **options}
    return parties.insurer.upload(table, study="motor", portfolio=name, secret=parties.secret, **roles)


def ask(parties, fit="f1", portfolio="p1", **options):
    options = {"claims": ClaimFit(), **QUICK, **options}
    parties.insurer.fit(fit, FitSpec(study="motor", portfolio=portfolio, **options))
    while work_once(parties.context):
        pass
    return parties.insurer.watch(fit)


def fetch(parties, path, fit="f1"):
    return parties.insurer.fetch(fit, path, trusted=[VerifyKey(parties.third_party.public_key)])


def charged(parties):
    return parties.context.database.read(lambda c: list(c.execute(select(releases))))


def seen_reports(parties, table, reports):
    """The reports after the study's second randomization, drawn here once more, and their channel."""
    kept = select(studies.c.secret, epochs.c.salt).join_from(studies, epochs, epochs.c.study == studies.c.id)
    secret, salt = parties.context.database.read(lambda c: c.execute(kept).one())
    keys = make_keys(parties.secret, table["policy"]).to_pylist()
    return randomize_reports(keys, reports, CHANNEL, 2.0, epoch_key(secret, salt), epoch=1)


@pytest.mark.usefixtures("reports_with_charts")
def test_from_claims_to_a_tariff(parties, book, tmp_path):
    """The bundle holds the fit to reports after one second randomization, and it finds the true premium."""
    declare(parties)
    reports = submit(parties, book, rows=3900)
    table = book.table
    sent = upload(parties, table, rows_per_part=1500)
    assert (sent.state, sent.rows, len(sent.parts)) == ("sealed", N, 3)
    assert sent.spec.losses == ("n", "paid", "years")
    done = ask(parties, claims=ClaimFit(cap=2000.0), correction="auto")
    assert done.state == "succeeded", done
    bundle = fetch(parties, tmp_path / "bundle.zip")
    pricer = bundle.pricer
    assert isinstance(pricer, FrequencySeverityPricer)

    drawn = seen_reports(parties, table, reports)
    own = FrequencySeverityPricer(channel=drawn.channel, cap=2000.0, random_state=0)
    own.fit(book.X, book.counts, book.amounts, sensitive=drawn.reports, exposure=book.years)
    np.testing.assert_allclose(pricer.predict(book.X), own.predict(book.X), rtol=1e-9)
    np.testing.assert_allclose(pricer.predict_interval(book.X), own.predict_interval(book.X), rtol=1e-6)
    assert pricer.excess_.loc["all", "loading"] == pytest.approx(own.excess_.loc["all", "loading"])
    written = bundle.premiums.to_pandas()
    assert list(written.columns) == ["key", "premium", "low", "high", "unaware", "group F", "group M"]
    np.testing.assert_allclose(written["premium"], own.predict(book.X), rtol=1e-9)
    np.testing.assert_allclose(written["group M"], own.predict_best_estimate(book.X)["M"], rtol=1e-9)

    corners = pd.DataFrame({"age": [30.0, 30.0, 60.0, 60.0], "car": ["a", "b", "a", "b"]})
    low, high = np.log(pricer.predict_interval(corners, level=0.9999))  # on the scale on which it is symmetric
    assert ((low < np.log(book.premium(corners))) & (np.log(book.premium(corners)) < high)).all()
    assert (high - low < 1.5).all()  # and it says something

    assert "frequency times severity" in bundle.report
    assert "Severity" in bundle.report
    assert bundle.manifest["fit"]["spec"]["claims"] == {"frequency": "poisson", "severity": "gamma", "cap": 2000.0}
    passed = [v["limit"] for v in bundle.manifest["disclosure"]["passed"]]
    assert sum("rows with claims" in limit for limit in passed) == 4 == sum("all rows" in limit for limit in passed)
    for part in (*pricer.parts_["all"], pricer):  # of reports that may be shown, rounded
        assert (part.n_rows_ - part.n_missing_reports_) % 5 == 0
    tariff = pricer.to_tariff(book.X, exposure=book.years)
    assert np.median(np.abs(tariff.predict(book.X) / pricer.predict(book.X) - 1)) < 0.05
    pricer.save(tmp_path / "model.json")
    again = FrequencySeverityPricer.load(tmp_path / "model.json")
    np.testing.assert_array_equal(again.predict(book.X), pricer.predict(book.X))


def test_one_randomization_is_charged_once_for_both_parts(local, book, tmp_path):
    declare(local)
    submit(local, book)
    upload(local, book.table)
    upload(local, book.table.assign(y=book.amounts).drop(columns=["n", "paid"]), "p2", claims=None, amount=None,
           outcome="y")  # fmt: skip
    assert ask(local).state == "succeeded"
    (row,) = charged(local)
    assert (row.mechanism, row.epsilon) == ("randomized", 2.0)
    bundle = fetch(local, tmp_path / "bundle.zip")
    disclosure = bundle.manifest["disclosure"]
    assert disclosure["mechanism"] == "randomized"
    assert disclosure["epsilon"] <= 2.0  # not twice of it
    before = local.insurer.study("motor").fits_left
    assert ask(local, "f2", "p2", claims=None, family="tweedie", release="randomized").state == "succeeded"
    costs = [(row.mechanism, row.epsilon) for row in charged(local)]
    assert costs == [("randomized", 2.0)] * 2  # the reports were drawn once, whatever is fitted to them
    rule = local.insurer.study("motor").release
    assert plan_of(rule, charged(local)).spent == pytest.approx(rule.randomized_epsilon)
    assert local.insurer.study("motor").fits_left == before - 1


def test_noised_sums_refuse_claims_before_any_charge(local, book):
    declare(local)
    submit(local, book)
    upload(local, book.table)
    with pytest.raises(Problem, match="claims need the release randomized"):
        ask(local, release="gaussian")
    assert charged(local) == []
    keep = {"keys": list(range(N)), "groups": ["F", "M"]}
    with pytest.raises(ValueError, match='expected mechanism="randomized"'):
        fit_release(
            ClaimSettings(), book.X, Claims({"all": book.counts}, {"all": book.amounts}), book.years,
            CHANNEL.privatize(book.sex, rng=0), CHANNEL, ReleaseSettings("gaussian", secret=bytes(16)), **keep,
        )  # fmt: skip


def test_what_portfolio_study_and_fit_do_not_have_in_common(local, book):
    declare(local, families=("poisson", "gamma", "normal"))
    upload(local, book.table)
    upload(local, book.table.drop(columns=["n"]), "p2", claims=None, amount=None, outcome="paid")
    for options, words in [
        ({"claims": None}, "ask for a fit of claims"),
        ({"portfolio": "p2"}, "upload their number and amount"),
        ({"claims": ClaimFit(severity="tweedie")}, "does not allow this: family"),
        ({"claims": ClaimFit(frequency="negative_binomial")}, "does not allow this: family"),
        ({"claims": ClaimFit(cap={"fire": 1.0})}, "another peril than those of the portfolio"),
        ({"terms": "poly(paid, 2)"}, "another column than the portfolio's features: "),
    ]:
        with pytest.raises(Problem, match=words):
            ask(local, "f9", **options)
    assert charged(local) == []


def test_rules_hold_for_the_rows_with_claims(local, book):
    """Few rows with claims, and a claim that stands out, are refused by the rule's name and before any charge."""
    declare(local)
    submit(local, book)
    few = book.table
    few.loc[150:, ["n", "paid"]] = 0
    upload(local, few, "few")
    done = ask(local, "f1", "few")
    assert (done.state, done.refusal.rule) == ("refused", 1)
    assert done.refusal.limit.endswith("in the rows with claims")
    planted = book.table
    planted.loc[planted.index[planted["n"] > 0][:1], "paid"] = 1e7
    upload(local, planted, "planted")
    done = ask(local, "f2", "planted")
    assert (done.state, done.refusal.rule) == ("refused", 4)
    assert "rows with claims" in done.refusal.limit
    assert ask(local, "f3", "planted", claims=ClaimFit(cap=3000.0)).state == "succeeded"
    marked, few = book.table.assign(mark=0.0), book.counts > 0
    marked.loc[np.flatnonzero(~few)[:300], "mark"] = 1.0  # many of all rows, but of those with claims
    marked.loc[np.flatnonzero(few)[:15], "mark"] = 1.0
    upload(local, marked, "marked")
    done = ask(local, "f4", "marked")
    assert (done.state, done.refusal.rule) == ("refused", 2)
    assert "rows with claims" in done.refusal.limit
    upload(local, book.table.assign(n=0, paid=0.0), "none")
    assert ask(local, "f5", "none").problem["title"].endswith("a peril has no claims.")
    assert [row.fit for row in charged(local)] == ["f3"]


def test_the_rules_see_severity_only_through_randomized_reports(book):
    """Rows of each report among the claims are counted after the second draw: so a refusal tells no more than it."""
    claims = Claims({"all": book.counts}, {"all": book.amounts})
    reports = np.where(book.counts > 0, "F", "M").astype(object)  # nobody with a claim reported M
    settings, options = ClaimSettings(), {"groups": ["F", "M"], "keys": list(range(N))}
    with pytest.raises(RefusedError, match="100 rows and 50 effective rows, in the rows with claims"):
        fit_release(
            settings,
            book.X,
            claims,
            book.years,
            None,
            CHANNEL,
            ReleaseSettings("none"),
            rules=Rules(),
            drawn=without_protection(reports, CHANNEL),
            **options,
        )
    drawn = randomize_reports(range(N), reports, CHANNEL, 2.0, bytes(range(16))).reports
    data = ClaimData(book.X, claims, book.years, drawn)
    results = check_reports(settings, data, ("F", "M"), Rules(n_min=5))
    assert [v.rule for v in results] == [1, 2, 3, 4] * 2
    assert all(v.passed for v in results)


def test_several_perils_terms_and_rows_beyond_memory(tmp_path, book):
    """Read piece by piece it is the same fit; a cap may be that of one peril."""
    rng = np.random.default_rng(8)
    table = book.table.assign(m=rng.poisson(0.5, N))
    table["stolen"] = rng.gamma(2.0 * table["m"], 100.0)
    prices = []
    for name, limits in (("memory", None), ("pieces", ServiceLimits(memory_rows=1000))):
        with open_world(tmp_path / name, limits=limits) as world:
            declare(world, release=None)
            submit(world, book)
            upload(world, table, claims={"crash": "n", "theft": "m"}, amount={"crash": "paid", "theft": "stolen"},
                   rows_per_part=1500)  # fmt: skip
            options = {"terms": "bands(age, 30, 50) + car", "claims": ClaimFit(cap={"theft": 300.0})}
            assert ask(world, **options).state == "succeeded"
            bundle = fetch(world, tmp_path / f"{name}.zip")
            assert bundle.manifest["fit"]["spec"]["terms"] == options["terms"]
            prices.append(bundle.pricer.predict(book.X))
            limits = [v["limit"] for v in bundle.manifest["disclosure"]["passed"]]
            assert sum(limit.endswith("in the rows with claims of peril 2") for limit in limits) == 4
    np.testing.assert_allclose(*prices, rtol=1e-7)
    own = FrequencySeverityPricer(
        channel=CHANNEL, cap={"theft": 300.0}, model=LinearModel(terms=options["terms"]), random_state=0, **QUICK
    )
    counts, amounts = (table[list(c)].set_axis(["crash", "theft"], axis=1) for c in (("n", "m"), ("paid", "stolen")))
    own.fit(book.X, counts, amounts, sensitive=CHANNEL.privatize(book.sex, rng=11), exposure=book.years)
    np.testing.assert_allclose(prices[0], own.predict(book.X), rtol=1e-9)


def test_unknown_noise_is_estimated_from_columns_of_its_own(local, book, tmp_path):
    """Of claims and of one outcome alike: `star` gives some of group M away."""
    attribute = EstimatedChannel(groups=("F", "M"), anchor=DeclaredAnchor(group="M", share=0.05))
    spec = StudySpec(title="Claims", attribute=attribute, collectors=("app",), insurers=("acme",))
    local.operator.put_study("motor", spec)
    local.operator.set_state("motor", "open")
    people = pd.DataFrame({"policy": book.table["policy"], "report": CHANNEL.privatize(book.sex, rng=11)})
    local.collector.submit(people, study="motor", secret=local.secret, channel=None)
    star = ((book.sex == "M") & (np.random.default_rng(0).random(N) < 0.4)).astype(float)
    upload(local, book.table.assign(star=star), x_star=["star"])
    assert ask(local).state == "succeeded"
    pricer = fetch(local, tmp_path / "bundle.zip").pricer
    assert "star" not in pricer.design_.names
    assert 0.5 < pricer.channel_.keep < 0.85  # of the reports after the second randomization
    one = book.table.assign(star=star, y=np.log1p(book.amounts)).drop(columns=["n", "paid", "years"])
    upload(local, one, "p2", claims=None, amount=None, exposure=None, outcome="y", x_star=["star"])
    assert ask(local, "f2", "p2", claims=None).state == "succeeded"


def test_terms_are_bounded_and_obey_the_rules(local, book):
    declare(local)
    submit(local, book)
    table = book.table.assign(zone=[f"z{i % 400:03}" for i in range(N)])
    with pytest.warns(UserWarning, match="'zone' has 400 different texts"):
        upload(local, table)
    done = ask(local, "f1", terms="levels(zone):levels(zone):car + age")
    assert (done.state, done.problem["title"]) == (
        "failed", "The data do not give a model of this kind: its terms make more than 2000 features.",
    )  # fmt: skip
    assert ask(local, "f2", terms="levels(zone) + age").refusal.rule in (2, 3)  # a column for each few rows
    assert ask(local, "f3", terms="spline(car, 4)").problem["title"].endswith("its terms do not fit its columns.")
    done = ask(local, "f4", terms='poly(age, 2) + base(car, "b")')
    assert done.state == "succeeded", done
    assert [row.fit for row in charged(local)] == ["f4"]
    losses = table.assign(y=np.log1p(book.amounts)).drop(columns=["n", "paid", "years"])
    roles = {"claims": None, "amount": None, "exposure": None, "outcome": "y"}
    with pytest.warns(UserWarning, match="'zone' has 400 different texts"):
        upload(local, losses, "p2", **roles)
    options = {"claims": None, "release": "gaussian", "terms": "bands(age, 30, 50) + car"}
    assert ask(local, "f5", "p2", **options).state == "succeeded"  # terms with noised sums
    assert charged(local)[-1].mechanism == "gaussian"
    for bad in ("__import__('os')", "age +", "age\n+ car", "x" * 10_001, ""):
        with pytest.raises(ValidationError):
            FitSpec(study="motor", portfolio="p1", terms=bad)
    with pytest.raises(ValidationError, match="belong to a linear model"):
        FitSpec(study="motor", portfolio="p1", terms="age", model="boosted")


def test_messages(book):
    with pytest.raises(ValidationError, match="frequency and a severity"):
        FitSpec(study="motor", portfolio="p1", family="gamma", claims=ClaimFit())
    for cap in (0.0, -1.0, float("nan"), float("inf"), {}, {"a": 0.0}):
        with pytest.raises(ValidationError):
            ClaimFit(cap=cap)
    common = {"study": "motor", "features": (Feature(name="age"),)}
    one = PerilColumns(count="n", amount="paid")
    for wrong, words in [
        ({}, "an outcome, or claims"),
        ({"outcome": "y", "claims": (one,)}, "an outcome, or claims"),
        ({"claims": (one,), "weight": "w"}, "claims have an exposure"),
        ({"outcome": "y", "exposure": "e"}, "belongs to claims"),
        ({"claims": (one, one)}, "peril is repeated"),
        ({"claims": (one,), "exposure": "paid"}, "two roles"),
        ({"claims": (PerilColumns(count="n", amount="n"),)}, "two roles"),
    ]:
        with pytest.raises(ValidationError, match=words):
            PortfolioSpec(**common, **wrong)


def test_what_was_stored_before_claims_stays_the_same():
    """Texts, digests and identities of portfolios and fits that have no claims are those of 0.1."""
    spec = PortfolioSpec(study="motor", features=(Feature(name="age"),), outcome="y", weight="w")
    assert canonical_json(stored_fields(spec)) == (
        b'{"features":[{"kind":"number","name":"age"}],"key":"key","outcome":"y","study":"motor","weight":"w",'
        b'"x_star":[]}'
    )
    assert set(stored_fields(FitSpec(study="motor", portfolio="p1"))) == {
        "study", "portfolio", "family", "power", "model", "correction", "pooling", "reference", "level", "release",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("n", 1.5, "a number of claims is not a whole number from 0 on"),
        ("n", -1.0, "a number of claims is not a whole number from 0 on"),
        ("paid", 7.0, "an amount is not zero where the number of claims is"),
        ("years", 0.0, "an exposure is not above zero"),
        ("years", -2.0, "an exposure is not above zero"),
        ("n", np.nan, "a value is missing"),
    ],
)
def test_columns_of_claims_are_checked_on_both_sides(book, tmp_path, column, value, words):
    spec = PortfolioSpec(
        study="motor", features=(Feature(name="age"),), claims=(PerilColumns(count="n", amount="paid"),),
        exposure="years",
    )  # fmt: skip
    table = book.table[:50].astype({"n": float}).reset_index(drop=True)
    table["key"] = [bytes([i] * 16) for i in range(len(table))]
    path = tmp_path / "part.parquet"
    path.write_bytes(write_portfolio_part(table, spec))
    assert check_portfolio_part(path, spec) == 50
    table.loc[int(np.flatnonzero(table["n"] == 0)[0]), column] = value
    with pytest.raises(ValueError, match=f"(?s)'{column}'.*cannot be sent: {words}"):
        write_portfolio_part(table, spec)
    lax = PortfolioSpec(study="motor", features=tuple(Feature(name=c) for c in ("age", "n", "paid")), outcome="years")
    if not np.isnan(value):
        path.write_bytes(write_portfolio_part(table, lax))
        with pytest.raises(Problem, match=words):
            check_portfolio_part(path, spec)


def test_upload_says_what_is_wrong(local, book):
    declare(local)
    for options, words in [
        ({"amount": None}, "expected outcome, or claims and amount"),
        ({"outcome": "paid"}, "Got outcome and claims"),
        ({"claims": None, "amount": None}, "Got no losses"),
        ({"exposure": None, "weight": "years"}, "expected exposure"),
        ({"claims": {"a": "n"}, "amount": {"b": "paid"}}, "the same perils"),
        ({"claims": "nr"}, "expected \\['nr'\\], too"),
        ({"exposure": "paid"}, "'paid' with two roles"),
    ]:
        with pytest.raises(ValueError, match=words):
            upload(local, book.table, **options)
    with pytest.raises(ValueError, match=r"Columns 'n' and 'paid' cannot be sent: an amount is not zero"):
        upload(local, book.table.assign(n=0))


def test_single_claims_and_keys_are_nowhere_but_in_the_rows(tmp_path, book):
    """A marked amount, number of claims and exposure are in no answer, no table and no member of the bundle."""
    table = book.table.astype({"n": float})
    marked = int(np.flatnonzero(table["n"] == 1)[0])
    table.loc[marked, ["n", "paid", "years"]] = [3.0, 1234.5678912345, 0.8765432109876]
    marks = [form for value in table.loc[marked, ["paid", "years"]] for form in written(value)]
    marks += [form for value in (1234.5678912345 / 3, 3 / 0.8765432109876, 1234.5678912345 / 0.8765432109876)
              for form in written(value)]  # fmt: skip
    with open_world(tmp_path / "third-party") as world:
        declare(world)
        submit(world, book)
        upload(world, table)
        assert ask(world, claims=ClaimFit(cap=5000.0)).state == "succeeded"
        few = table.copy()
        few.loc[150:, ["n", "paid"]] = 0.0
        upload(world, few, "p2")
        assert ask(world, "f2", "p2").state == "refused"
        seen = {}
        for who in world.roles:
            for path in ("/v1/studies/motor", "/v1/log", "/v1/fits", "/v1/fits/f1", "/v1/fits/f2", "/v1/portfolios/p1"):
                answer = world.ask(who, "GET", path)
                seen[f"{who} {path}"] = answer.body + json.dumps(answer.headers).encode()
        for path in ("/metrics", "/", "/console/log", "/console/studies/motor",
                     "/console/studies/motor/fits/acme/f1", "/console/studies/motor/fits/acme/f2"):  # fmt: skip
            answer = world.send(wire.Wire("GET", path.encode(), ((b"host", b"127.0.0.1"),)))
            assert answer.status == 200, path
            seen[path] = answer.body
        assert b"poisson frequency, gamma severity" in seen["/console/studies/motor"]
        assert b"above 5000" in seen["/console/studies/motor/fits/acme/f1"]
        for each in metadata.sorted_tables:
            rows = world.context.database.read(lambda c, t=each: [repr(tuple(r)) for r in c.execute(select(t))])
            seen[f"table {each.name}"] = "\n".join(rows).encode()
        with zipfile.ZipFile(io.BytesIO(world.ask("acme", "GET", "/v1/fits/f1/bundle").body)) as archive:
            for name in archive.namelist():
                content = archive.read(name)
                if name.endswith(".parquet"):
                    content += repr(pq.read_table(io.BytesIO(content)).to_pydict()).encode()
                seen[f"bundle {name}"] = content
        (part,) = {p.sha256 for p in world.insurer.get("/v1/portfolios/p1", type(upload(world, table))).parts}
        raw = pq.read_table(world.context.files.path(part)).to_pandas()
    assert 1234.5678912345 in set(raw["paid"])  # the marks are where they belong
    for place, content in seen.items():
        assert b"policycanary" not in content, place
        for mark in marks:
            assert mark not in content, (place, mark)


def written(value):
    """The ways in which a number may be written down."""
    return [repr(float(value)).encode(), f"{value:.8g}".encode(), struct.pack("<d", value), struct.pack(">d", value)]


def test_the_kind_of_a_bundles_model_is_what_the_model_says(local, book, tmp_path):
    declare(local)
    submit(local, book)
    upload(local, book.table)
    assert ask(local).state == "succeeded"
    bundle = fetch(local, tmp_path / "bundle.zip")
    with zipfile.ZipFile(tmp_path / "bundle.zip") as archive:
        assert json.loads(archive.read("model.json"))["format"] == "fairpremium-frequency-severity"
    key, path = local.keys["op"], tmp_path / "again.zip"
    options = {"manifest": {}, "report_html": None, "sign": key}
    frequency = bundle.pricer.parts_["all"].frequency
    names = ["key", *price_columns(frequency)]
    prices = dict(zip(names, bundle.premiums.columns, strict=False))
    for pricer, premiums in ((bundle.pricer, bundle.premiums), (frequency, pa.table(prices).select(names))):
        write_bundle(path, pricer=pricer, premiums=premiums, **options)
        again = load_bundle(path, keys=[VerifyKey(key.public_key)])
        assert type(again.pricer) is type(pricer)
        np.testing.assert_array_equal(again.pricer.predict(book.X), pricer.predict(book.X))

"""The contest between the corrections of a model class: its rule, wrong laws, failures, and the boosted classifier."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fairpremium import RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import ModelFitSettings, ReportChannel, fit_model, paired_z
from fairpremium.corrections import _contest as contest_module
from fairpremium.corrections._checks import held_risk
from fairpremium.corrections._contest import Contest, entries_for
from fairpremium.corrections._model_start import ModelStart
from fairpremium.corrections._tournament_entries import LikelihoodEntry, LinearEntry, PosteriorEntry
from fairpremium.errors import ConvergenceError
from fairpremium.families import Normal, Poisson, law_of
from fairpremium.families._law import DispersionLaw
from fairpremium.models import BoostedModel, Design

QUICK = BoostedModel(max_rounds=30, learning_rate=0.3, patience=5)


def make(n: int = 600, seed: int = 0, keep: float = 0.85, model: BoostedModel = QUICK, family=None):
    """Settings with two groups, and rows for them."""
    family = family or Normal()
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    D = (rng.random(n) < 0.4 + 0.2 * X[:, 0]).astype(int)
    eta = X[:, 0] ** 2 + D * (1 + X[:, 1])
    y = eta + 0.5 * rng.normal(size=n) if family.name == "normal" else rng.poisson(np.exp(eta)).astype(float)
    channel = RandomizedResponse([0, 1], keep=keep)
    S = np.asarray(channel.privatize(D, rng=seed), dtype=int)
    report_channel = ReportChannel.of(channel)
    settings = ModelFitSettings(family, report_channel, model, Design.learn(X), 0.0, None, 0)
    return settings, Rows(X, y, None, S)


class Broken(DispersionLaw):
    """A law whose density cannot be computed."""

    def terms(self, y, weight, eta, log_dispersion):
        raise FloatingPointError("overflow in a density")


@pytest.fixture(scope="module")
def arena():
    return make(n=60)


def rank(arena, report: dict[str, float], risk: dict[str, float], *, poisson: bool = False, monotone: bool = False):
    """Apply the rule to given mean losses, each with a paired standard error of one hundredth."""
    settings, rows = arena
    if poisson:
        settings, rows = make(n=60, family=Poisson())
    contest = Contest(settings, rows)
    rng = np.random.default_rng(0)
    n = len(contest.weight)
    entries = [e for e in entries_for(settings, "auto") if not (monotone and isinstance(e, LinearEntry))]

    def losses(mean: float) -> np.ndarray:
        noise = rng.normal(size=n)
        noise = (noise - noise.mean()) / noise.std()
        return mean + 0.01 * np.sqrt(n / 2) * noise

    contest.report = {name: losses(mean) for name, mean in report.items()}
    contest.risk = {name: losses(mean) for name, mean in risk.items()}
    known = set(contest.risk)
    contest.trouble = {e.name: "failed" for e in entries if e.name not in known}
    return (*contest.rank(entries), contest, entries)


LIKELIHOOD, POSTERIOR, START = "likelihood (normal)", "posterior", "linear start"


@pytest.mark.parametrize(
    ("report", "risk", "expected"),
    [
        # the law is right, or as good as the classifier: the likelihood
        ((0.50, 0.52), (1.0, 1.0, 1.0), [LIKELIHOOD, POSTERIOR, START]),
        ((0.5001, 0.50), (1.0, 1.0, 1.0), [LIKELIHOOD, POSTERIOR, START]),
        # the classifier predicts reports clearly better: the law is wrong
        ((0.55, 0.50), (0.9, 1.0, 1.0), [POSTERIOR, START]),
        # the likelihood's prices are clearly worse than the start's
        ((0.50, 0.52), (1.1, 1.0, 1.0), [POSTERIOR, START]),
        # nothing improves on the start
        ((0.50, 0.52), (1.1, 1.1, 1.0), [START]),
        # prices that are not numbers
        ((0.50, 0.52), (np.inf, 1.0, 1.0), [POSTERIOR, START]),
    ],
)
def test_rule(arena, report, risk, expected) -> None:
    order, reasons, *_ = rank(
        arena,
        dict(zip([LIKELIHOOD, POSTERIOR], report, strict=True)),
        dict(zip([LIKELIHOOD, POSTERIOR, START], risk, strict=True)),
    )
    assert order == expected
    assert set(order[1:]) | set(reasons) == {LIKELIHOOD, POSTERIOR, START} - {order[0]}


def test_of_two_laws_the_one_that_predicts_reports_better_stands(arena) -> None:
    poisson, negative = "likelihood (poisson)", "likelihood (negative_binomial)"
    order, reasons, *_ = rank(
        arena,
        {poisson: 0.50, negative: 0.48, POSTERIOR: 0.49},
        {poisson: 1.0, negative: 1.0, POSTERIOR: 1.0, START: 1.0},
        poisson=True,
    )
    assert order == [negative, POSTERIOR, START]
    assert reasons[poisson] == f"report log-loss above {negative}"


def test_without_a_classifier_or_a_start_the_rest_is_judged(arena) -> None:
    order, *_ = rank(arena, {LIKELIHOOD: 0.5}, {LIKELIHOOD: 1.0, START: 1.0})
    assert order == [LIKELIHOOD, START]
    order, *_ = rank(arena, {LIKELIHOOD: 0.5}, {LIKELIHOOD: 1.0})
    assert order == [LIKELIHOOD]


def test_without_a_start_a_wrong_law_leaves_the_posterior(arena) -> None:
    """Monotone trees have no linear start, and whatever its risk there is nothing to compare the posterior with."""
    order, reasons, *_ = rank(
        arena, {LIKELIHOOD: 0.55, POSTERIOR: 0.5}, {LIKELIHOOD: 1.0, POSTERIOR: 2.0}, monotone=True
    )
    assert order == [POSTERIOR]
    assert "standard errors above a classifier's" in reasons[LIKELIHOOD]


def test_the_corrected_risk_of_a_row_against_a_slow_loop() -> None:
    settings, rows = make(n=40, family=Poisson())
    eta = np.random.default_rng(1).normal(size=(40, 2))
    slow = [
        sum(
            settings.channel.table[k, s] * 2 * ((y * np.log(y / m) if y else 0.0) - y + m)
            for k, m in enumerate(np.exp(eta[i]))
        )
        for i, (s, y) in enumerate(zip(rows.report, rows.y, strict=True))
    ]
    np.testing.assert_allclose(held_risk(Poisson(), rows, eta, settings.channel.table), slow)


def test_one_failure_does_not_stop_the_others(monkeypatch) -> None:
    settings, rows = make()
    broken = LikelihoodEntry(Broken(Normal()))
    entries = [broken, PosteriorEntry()]
    monkeypatch.setattr(contest_module, "entries_for", lambda *_: entries)
    chosen = fit_model(settings, rows, "auto")
    assert [v.chosen for v in chosen.results].count(True) == 1
    assert not chosen.results[0].chosen
    assert "overflow in a density" in chosen.results[0].reason
    assert np.isnan(chosen.results[0].risk)
    assert np.isfinite([v.risk for v in chosen.results[1:]]).all()


def test_when_all_fail_the_message_says_why(monkeypatch) -> None:
    settings, rows = make(n=200)
    broken = [LikelihoodEntry(Broken(Normal())), LikelihoodEntry(Broken(Poisson()))]
    monkeypatch.setattr(contest_module, "entries_for", lambda *_: broken)
    with pytest.raises(ConvergenceError, match=r"No candidate could be fitted.*overflow in a density"):
        fit_model(settings, rows, "auto")


@pytest.mark.parametrize(("noise", "accepted"), [("normal", True), ("skewed", False)])
def test_a_wrong_law_is_rejected_by_the_reports(noise: str, accepted: bool) -> None:
    """Two groups 1.5 apart, a bent effect of x, noise of standard deviation one: normal, or gamma with shape 0.2.

    Over seeds the skewed noise gives 4.2 to 5.2 standard errors.
    """
    rng = np.random.default_rng(1)
    n = 2500
    X = rng.uniform(-1, 1, (n, 2))
    D = (rng.random(n) < 0.5 + 0.2 * X[:, 0]).astype(int)
    e = rng.normal(size=n) if noise == "normal" else (rng.gamma(0.2, 1, n) - 0.2) / np.sqrt(0.2)
    truth = np.abs(2 * X[:, [0]]) + 1.5 * np.outer(1 + X[:, 1], [0, 1])
    y = truth[np.arange(n), D] + e
    settings, _ = make(n=60, keep=0.75)
    channel = RandomizedResponse([0, 1], keep=0.75)
    rows = Rows(X, y, None, np.asarray(channel.privatize(D, rng=0), dtype=int))
    contest = Contest(settings, rows)
    entries = [LikelihoodEntry(law_of(Normal())), PosteriorEntry()]
    for entry in entries:
        contest.measure(entry)
    order, reasons = contest.rank(entries)
    gap = paired_z(contest.report[LIKELIHOOD] - contest.report[POSTERIOR])
    if accepted:
        assert gap < 1
        assert order[0] == LIKELIHOOD
    else:
        assert gap > 2.5
        assert order == [POSTERIOR]
        assert "its law of y or its P(D given x) is wrong" in reasons[LIKELIHOOD]
    fit = next(e for e in entries if e.name == order[0]).fit(ModelStart(settings, rows))
    # taking reports for groups leaves a quarter of the distance between them, which is 1.73 in root mean square: .43
    assert np.sqrt(np.mean((fit.predictor(fit.start.lift_rows(rows)) - truth) ** 2)) < 0.35


def test_rows_of_one_person_count_once() -> None:
    """Each row twice, as two rows of one person: every check finds what it finds for each row once."""
    settings, rows = make(n=200)
    rng = np.random.default_rng(1)
    known = {name: rng.normal(1 + 0.1 * i, 1, 200) for i, name in enumerate((START, POSTERIOR, LIKELIHOOD))}
    entries = entries_for(settings, "auto")
    stories, errors = [], []
    for times in (1, 2):
        person = np.repeat(np.arange(200), times)
        contest = Contest(settings, replace(rows.take(person), cluster=person))
        contest.report = {name: losses[contest.cluster] for name, losses in known.items()}
        contest.risk = dict(contest.report)
        order, reasons = contest.rank(entries)
        fit = SimpleNamespace(pooling=0.0)
        results = contest.results(entries, order[0], fit, reasons)
        stories.append((order, reasons))
        errors.append([(v.risk, v.risk_error, v.report_loss, v.report_loss_error) for v in results])
    assert stories[0] == stories[1]
    assert any("standard errors above" in reason for reason in stories[0][1].values())
    np.testing.assert_allclose(errors[0], errors[1], rtol=1e-10)


def test_a_fit_can_be_repeated_on_other_rows() -> None:
    """The jackknife's fits: the same candidate with the same number of rounds, on the rows it is given alone."""
    settings, rows = make()
    chosen = fit_model(settings, rows, "likelihood")
    again = chosen.refit(rows)
    np.testing.assert_allclose(
        again.predictor(again.start.lifted), chosen.fit.predictor(chosen.fit.start.lifted), atol=0.2
    )
    some = chosen.refit(rows.take(np.arange(0, 600, 2)))
    assert len(some.start.rows) == 300
    assert some.prices.rounds <= chosen.fit.prices.rounds
    assert some.correction == chosen.fit.correction == "likelihood"


def test_law_of_the_family_is_the_only_likelihood_that_is_asked_for() -> None:
    settings, _ = make(n=60, family=Poisson())
    assert [e.name for e in entries_for(settings, "likelihood")] == [f"likelihood ({law_of(Poisson()).name})"]
    assert [e.name for e in entries_for(settings, "auto")] == [
        "likelihood (poisson)",
        "likelihood (negative_binomial)",
        "posterior",
        "linear start",
    ]

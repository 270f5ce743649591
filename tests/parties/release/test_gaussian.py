"""Noised sums: exact sensitivities, the guarantee, the estimate behind the noise, intervals, fits that were killed."""

from __future__ import annotations

import copy
import itertools
import json
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fairpremium.parties.release._gaussian as gaussian
import fairpremium.parties.release._released_sums as releaser
from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.corrections import ReportChannel
from fairpremium.families import get_family
from fairpremium.models import Design
from fairpremium.parties.release._accounting import mu_of
from fairpremium.parties.release._disclosure import RefusedError, Rules
from fairpremium.parties.release._expected_reports import (
    learn_phi,
    release_expected_reports,
    sums_by_report,
    weighted_length,
)
from fairpremium.parties.release._keyed_noise import FINENESS, grid_for
from fairpremium.parties.release._noised_newton import Solver, Step
from fairpremium.parties.release._public_data import largest, public_problem, read_rows
from fairpremium.parties.release._release import FitSettings, ReleaseSettings, fit_release
from fairpremium.parties.release._released_sums import Releaser
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025
from fairpremium.pricing import to_document

SECRET = b"a secret of the study, 32 bytes."
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
ALMOST_NONE = 1e5  # so large an epsilon that the noise does not matter


def privacy(epsilon=1.0, secret=SECRET):
    return ReleaseSettings("gaussian", epsilon, secret=secret)


def settings(family="normal", **more):
    return FitSettings(family, **({"correction": "inverse", "pooling": 0.0} | more))


def some_missing(reports, share, seed):
    reports = np.array(reports, dtype=object)
    reports[np.random.default_rng([seed, 9]).random(len(reports)) < share] = None
    return reports


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=4000, rng=1)


@pytest.fixture(scope="module")
def reports(portfolio):
    return CHANNEL.privatize(portfolio.sensitive, rng=2)


# --- what one report can change ---


def codes_of(channel, reports):
    codes = channel.encode(reports)
    return np.where(codes < 0, len(channel.reports), codes)


def small_problem(seed, family="poisson", K=3, n=60):
    p = unbalanced_poisson(n, (0.5, 0.3, 0.2)[:K] if K == 3 else (0.6, 0.4), rng=seed)
    channel = RandomizedResponse(p.groups, epsilon=1.5)
    S = some_missing(channel.privatize(p.sensitive, rng=seed), 0.2, seed)
    y = p.y if family == "poisson" else (p.y > 0).astype(float) if family == "bernoulli" else p.y + 0.5
    rows, design = read_rows(
        p.X[["log_mileage", "driving_score"]], y, p.sample_weight, get_family(family), codes_of(channel, S)
    )
    problem = public_problem(rows, design, get_family(family), LinearModel())
    return rows, problem, ReportChannel.of(channel).table


def all_neighbours(rows, codes):
    """Every data set in which one row has another report, or none."""
    for i in range(len(rows)):
        for s in range(codes):
            if s != rows.report[i]:
                report = rows.report.copy()
                report[i] = s
                yield replace(rows, report=report)


@pytest.mark.parametrize("family, K", [("poisson", 3), ("normal", 2), ("gamma", 3), ("bernoulli", 2)])
def test_no_report_moves_a_gradient_further_than_its_sensitivity(family, K):
    """By brute force over all neighbours of several data sets: never beyond, and attained up to a little."""
    nearest = 0.0
    for seed in range(3):
        rows, problem, table = small_problem(seed, family, K)
        releaser = Releaser(SECRET, b"", {})
        expected = release_expected_reports(rows, problem, table, releaser.release, 5.0)
        solver = Solver(rows, problem, expected, 0.0, releaser)
        rng = np.random.default_rng(seed)
        B = problem.start(K) + 0.3 * rng.normal(size=(problem.moments.q, K)) * (1 if family != "normal" else 1.0)
        raw = rng.normal(size=(K, K))
        step = Step(problem, B, solver.root, expected, raw @ raw.T + np.eye(K))
        furthest = largest(problem.rows, step.moves)
        for limit in (np.inf, furthest / 3):
            at = replace(step, limit=limit)
            base = rows.reduce(at.gradient)[0]
            moves = [
                np.linalg.norm(other.reduce(at.gradient)[0] - base) for other in all_neighbours(rows, table.shape[1])
            ]
            assert max(moves) <= min(furthest, limit) * (1 + 1e-9)
            nearest = max(nearest, max(moves) / min(furthest, limit))
    assert nearest > 0.9


def exact_sums(label, context, sensitivity, mu, shape, compute):
    """Release sums as they are."""
    return np.asarray(compute()).reshape(shape), 0.0


def exact_move(step, rows):
    """The furthest that a report moves the gradient, squared: of the slopes and features of each row, in fractions."""
    Z, a, _ = step.terms(rows.block(0, len(rows)))
    (p, q), (r, s) = [[Fraction(x) for x in row] for row in step.shape.tolist()]
    inverse = [[x / (p * s - q * r) for x in row] for row in ((s, -q), (-r, p))]
    table = [[Fraction(x) for x in column] for column in step.reports.table.T.tolist()]
    furthest = Fraction(0)
    for slopes, u in zip(a.tolist(), (Z @ step.root.T).tolist(), strict=True):
        length = sum(Fraction(x) ** 2 for x in u)
        for one, other in itertools.combinations(table, 2):
            v = [Fraction(x) * (c - d) for x, c, d in zip(slopes, one, other, strict=True)]
            furthest = max(furthest, length * sum(v[i] * inverse[i][j] * v[j] for i in range(2) for j in range(2)))
    return furthest


@pytest.mark.parametrize("what", ["y", "weight"])
@pytest.mark.parametrize("unit", [1.0, 1e-155, 1e-162, 3e-163, 1e-200, 1e150])
def test_no_sensitivity_is_rounded_away(what, unit):
    """Outcomes or volumes whose squares are zero, or infinite, as floats: by exact arithmetic."""
    rows, _, table = small_problem(0, "normal", 2)
    rows = replace(rows, **{what: getattr(rows, what) * unit})
    problem = public_problem(rows, Design.learn(rows.X), get_family("normal"), LinearModel())
    expected = release_expected_reports(rows, problem, table, exact_sums, 5.0)
    solver = Solver(rows, problem, expected, 0.0, None)
    step = Step(problem, problem.start(2), solver.root, expected, np.array([[1.0, 0.3], [0.3, 0.5]]))
    furthest = largest(problem.rows, step.moves)
    assert furthest > 0
    assert float(Fraction(furthest) ** 2 / exact_move(step, rows)) == pytest.approx(1.0, rel=1e-12)
    assert grid_for(furthest, 0.5, 4) > 0.99 * furthest / (0.5 * FINENESS)
    phi = learn_phi(problem)
    block = rows.block(0, len(rows))
    weighted = (phi(block) * block.weight[:, None]).tolist()
    longest = max(sum(Fraction(x) ** 2 for x in row) for row in weighted)
    found = largest(problem.rows, partial(weighted_length, phi=phi))
    assert float(Fraction(found) ** 2 / longest) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("what", ["y", "sample_weight"])
@pytest.mark.parametrize("unit", [2.2e-163, 1e-60, 1e60])
def test_numbers_that_cannot_be_computed_with_are_refused(portfolio, reports, what, unit):
    columns = {"y": portfolio.y, "sample_weight": np.ones(len(portfolio))}
    columns[what] = columns[what] * unit
    with pytest.raises(ValueError, match=f"Got {what} with 4000 numbers outside") as refused:
        fit_release(settings(), portfolio.X, *columns.values(), reports, CHANNEL, privacy())
    assert str(unit) not in str(refused.value)


@pytest.mark.parametrize("unit", [1e-45, 1e45])
def test_the_unit_of_outcomes_does_not_matter(monkeypatch, portfolio, reports, unit):
    """Sums and their noise are in proportion to it, as far as numbers are taken at all."""
    scaled = replace(portfolio, y=portfolio.y * unit)
    _, log, given = spied(monkeypatch, portfolio, reports)
    _, scaled_log, scaled_given = spied(monkeypatch, scaled, reports)
    for label in ("reports", "gradient 1"):
        factor = unit if label == "gradient 1" else 1.0
        assert scaled_given[label][1] == pytest.approx(given[label][1] * factor, rel=1e-9)
    assert len(log) == len(scaled_log)


def test_what_extreme_rows_do_not_count_with_is_their_expectation():
    """The gradient of a step, slowly: the part within the limit with the report, the rest with what is expected."""
    rows, problem, table = small_problem(1, "poisson", 3)
    expected = release_expected_reports(rows, problem, table, exact_sums, 5.0)

    class Exact:
        release = staticmethod(exact_sums)

    solver = Solver(rows, problem, expected, 0.0, Exact())
    steps, choose = [], solver._limit
    solver._limit = lambda step, furthest, mu: steps.append(step) or choose(step, furthest, mu) / 4
    B = problem.start(3)
    point = solver.point(B, 5.0, "gradient 1")
    block = rows.block(0, len(rows))
    (step,) = steps
    limit = choose(step, largest(problem.rows, step.moves), 5.0) / 4
    part = np.minimum(1.0, limit / step.moves(block))[:, None]
    assert 0 < (part < 1).sum() < len(rows)
    Z, a, _ = step.terms(block)
    weights = part * table.T[block.report] + (1 - part) * expected.groups(block)
    np.testing.assert_allclose(point.gradient, Z.T @ (a * weights), rtol=1e-9)


def test_a_row_counts_with_the_sensitivity_at_most_however_it_is_rounded():
    """Where sums are added up rows are cut to the length that noise hides, whatever it was computed from."""
    rows, problem, table = small_problem(5)
    phi, codes = learn_phi(problem), table.shape[1]
    limit = largest(problem.rows, partial(weighted_length, phi=phi)) / 3
    sums = partial(sums_by_report, phi=phi, codes=codes, limit=limit)
    base = rows.reduce(sums)[0]
    moves = [np.linalg.norm(other.reduce(sums)[0] - base) for other in all_neighbours(rows, codes)]
    assert max(moves) <= np.sqrt(2) * limit * (1 + 1e-9)


def test_no_report_moves_the_sums_per_report_further_than_their_sensitivity():
    rows, problem, table = small_problem(5)
    phi = learn_phi(problem)
    sensitivity = np.sqrt(2) * largest(problem.rows, partial(weighted_length, phi=phi))
    codes = table.shape[1]
    sums = partial(sums_by_report, phi=phi, codes=codes)
    base = rows.reduce(sums)[0]
    moves = [np.linalg.norm(other.reduce(sums)[0] - base) for other in all_neighbours(rows, codes)]
    assert 0.999999 * sensitivity <= max(moves) <= sensitivity * (1 + 1e-9)


class Spy(Releaser):
    """Records what is asked and answers as told, or honestly."""

    answers: dict | None = None
    log: list

    def release(self, label, context, sensitivity, mu, shape, compute):
        exact = np.asarray(compute())
        self.log.append((label, sensitivity, mu, exact))
        if self.answers is not None:
            return self.answers[label]
        answer = super().release(label, context, sensitivity, mu, shape, lambda: exact)
        self.given[label] = answer
        return answer


def spied(monkeypatch, p, S, answers=None, epsilon=1.0, **more):
    Spy.answers, Spy.log, Spy.given = answers, [], {}
    monkeypatch.setattr(gaussian, "Releaser", Spy)
    release = fit_release(
        settings(**more), p.X, p.y, p.sample_weight, S, RandomizedResponse(p.groups, keep=0.8), privacy(epsilon)
    )
    monkeypatch.undo()
    return release, Spy.log, Spy.given


@pytest.mark.parametrize("family, pooling", [("normal", "auto"), ("poisson", 0.0)])
def test_all_but_the_noised_sums_is_free_of_reports(monkeypatch, portfolio, reports, family, pooling):
    """Given the same answers, entirely different reports lead to the same bytes and the same noise scales."""
    p = portfolio if family == "normal" else unbalanced_poisson(3000, (0.6, 0.4), rng=3)
    rng = np.random.default_rng(4)
    S = reports if family == "normal" else rng.choice(p.groups, len(p))
    first, log, answers = spied(monkeypatch, p, S, family=family, pooling=pooling)
    shuffled = some_missing(rng.permutation(S), 0.5, 5)
    second, other_log, _ = spied(monkeypatch, p, shuffled, answers, family=family, pooling=pooling)
    assert [entry[:3] for entry in log] == [entry[:3] for entry in other_log]
    assert all(not np.allclose(a[3], b[3]) for a, b in zip(log, other_log, strict=True))
    assert json.dumps(to_document(first.pricer)) == json.dumps(to_document(second.pricer))


def test_the_parts_add_up_to_the_promise(monkeypatch, portfolio, reports):
    release, log, _ = spied(monkeypatch, portfolio, reports, epsilon=0.7)
    assert sum(mu**2 for _, _, mu, _ in log) == pytest.approx(mu_of(0.7, 1e-6) ** 2, rel=1e-12)
    assert len(log) == 4
    assert (release.epsilon, release.delta) == (0.7, 1e-6)
    assert "(0.7, 1e-06)-differentially private" in release.statement


def test_neighbours_are_as_far_apart_as_the_accounting_says(monkeypatch):
    """The sums that two neighbours would release at the same public point differ by at most mu standard deviations."""
    p = unbalanced_poisson(1500, (0.6, 0.4), rng=6)
    channel = RandomizedResponse(p.groups, keep=0.8)
    S = channel.privatize(p.sensitive, rng=7)
    _, log, answers = spied(monkeypatch, p, S, family="poisson", epsilon=2.0, reference="uniform")
    promised, worst = mu_of(2.0, 1e-6) ** 2, 0.0
    for i in np.argsort(-p.y * p.sample_weight)[:20]:
        other = np.array(S, dtype=object)
        for value in (None, *(g for g in p.groups if g != S[i])):
            other[i] = value
            _, other_log, _ = spied(monkeypatch, p, other, answers, family="poisson", epsilon=2.0, reference="uniform")
            loss = sum(
                (np.linalg.norm(a[3] - b[3]) / answers[a[0]][1]) ** 2 for a, b in zip(log, other_log, strict=True)
            )
            worst = max(worst, loss / promised)
    assert 0.2 < worst <= 1.0


# --- the estimate ---


@pytest.mark.parametrize("family", ["normal", "poisson", "gamma", "bernoulli", "tweedie"])
def test_with_hardly_any_noise_it_is_the_inverse_correction(family, monkeypatch):
    """More steps than usual: they converge to the pricer's own estimate, shares and premiums."""
    monkeypatch.setattr(gaussian, "_MU_SHARES", (0.1,) + (0.09,) * 10)
    p = unbalanced_poisson(20_000, (0.6, 0.4), rng=8)
    rng = np.random.default_rng(9)
    mean = p.best_estimate(p.X).to_numpy()[np.arange(len(p)), [p.groups.index(g) for g in p.sensitive]]
    y = {
        "poisson": p.y,
        "tweedie": p.y,
        "normal": mean + 0.1 * rng.normal(size=len(p)),
        "gamma": mean * rng.gamma(4, 0.25, len(p)),
        "bernoulli": (rng.random(len(p)) < mean / (1 + mean)).astype(float),
    }[family]
    channel = RandomizedResponse(p.groups, keep=0.85)
    S = some_missing(channel.privatize(p.sensitive, rng=10), 0.1, 10)
    exact = DiscriminationFreePricer(family, channel=channel, correction="inverse", pooling=0.0)
    exact.fit(p.X, y, sensitive=S, sample_weight=p.sample_weight)
    found = fit_release(settings(family), p.X, y, p.sample_weight, S, channel, privacy(ALMOST_NONE)).pricer
    low, high = exact.predict_interval(p.X)
    error = (high - low) / (2 * 1.96)
    gap = found.predict_best_estimate(p.X).to_numpy() - exact.predict_best_estimate(p.X).to_numpy()
    assert np.sqrt(np.mean((gap / error[:, None]) ** 2)) < 0.05
    np.testing.assert_allclose(found.group_distribution_, exact.group_distribution_, atol=0.002)
    np.testing.assert_allclose(found.predict_unaware(p.X), exact.predict_unaware(p.X), rtol=1e-6)
    own_low, own_high = found.predict_interval(p.X)
    assert np.mean(own_high - own_low) == pytest.approx(np.mean(high - low), rel=0.25)  # reports are only expected


def test_it_is_unbiased_with_unequal_groups_weights_and_missing_reports():
    """Mean error of the group prices over seeds, within its standard error."""
    gaps, shares = [], []
    for seed in range(12):
        p = unbalanced_poisson(20_000, (0.5, 0.3, 0.2), rng=seed)
        channel = RandomizedResponse(p.groups, epsilon=3.0)
        S = some_missing(channel.privatize(p.sensitive, rng=seed), 0.15, seed)
        release = fit_release(settings("poisson"), p.X, p.y, p.sample_weight, S, channel, privacy(2.0))
        truth = p.best_estimate(p.X).to_numpy()
        ratio = np.log(release.pricer.predict_best_estimate(p.X).to_numpy() / truth)
        gaps.append(ratio.mean(axis=0))
        d = np.array([p.groups.index(g) for g in p.sensitive])
        shares.append(release.pricer.group_distribution_ - np.bincount(d, p.sample_weight) / p.sample_weight.sum())
    for values in (np.array(gaps), np.array(shares)):
        error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
        assert (np.abs(values.mean(axis=0)) < 4.5 * error + 0.01).all()


@pytest.mark.parametrize("K", [2, 3])
def test_intervals_cover_the_truth_with_the_noise_in_them(K, repetitions):
    n_seeds = repetitions(40, 200)
    covered, naive = [], []
    for seed in range(n_seeds):
        if K == 2:
            p = zhang_liu_shi_2025(n=3000, rng=seed, age_band=True)
            channel = RandomizedResponse(p.groups, keep=0.8)
        else:
            p = unbalanced_poisson(12_000, (0.5, 0.3, 0.2), rng=seed)
            channel = RandomizedResponse(p.groups, epsilon=3.0)
        S = channel.privatize(p.sensitive, rng=1000 + seed)
        release = fit_release(settings(p.family), p.X, p.y, p.sample_weight, S, channel, privacy(1.0))
        low, high = release.pricer.predict_interval(p.X)
        truth = p.discrimination_free(p.X)
        covered.append(np.mean((low < truth) & (truth < high)))
        exact = DiscriminationFreePricer(p.family, channel=channel, correction="inverse", pooling=0.0)
        exact.fit(p.X, p.y, sensitive=S, sample_weight=p.sample_weight)
        low, high = exact.predict_interval(p.X)
        half = (high - low) / 2
        naive.append(np.mean(np.abs(release.pricer.predict(p.X) - truth) < half))
    error = np.std(covered, ddof=1) / np.sqrt(n_seeds)
    assert abs(np.mean(covered) - 0.95) < 4 * error + 0.02
    assert np.mean(naive) < np.mean(covered) - 0.05  # without the noise they would not


def test_pooling_helps_where_groups_do_not_differ():
    worse, better = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        p = zhang_liu_shi_2025(n=2000, rng=seed)
        y = 100 + 10 * rng.normal(size=len(p))
        S = CHANNEL.privatize(p.sensitive, rng=seed)
        for pooling, into in ((0.0, worse), ("auto", better)):
            release = fit_release(settings(pooling=pooling), p.X, y, None, S, CHANNEL, privacy(1.0))
            into.append(np.sqrt(np.mean((release.pricer.predict_best_estimate(p.X).to_numpy() - 100) ** 2)))
    assert np.median(better) < 0.8 * np.median(worse)


def test_extreme_rows_do_not_set_the_noise():
    """A hundred times the usual loss in one row of 4000: the others' prices survive, the tempered row is known."""
    p = zhang_liu_shi_2025(n=4000, rng=11)
    S = CHANNEL.privatize(p.sensitive, rng=12)
    plain = fit_release(settings(pooling="auto"), p.X, p.y, None, S, CHANNEL, privacy(1.0))
    y = p.y.copy()
    y[0] = p.y.mean() + 30 * p.y.std()
    release = fit_release(settings(pooling="auto"), p.X, y, None, S, CHANNEL, privacy(1.0))
    sigma = [r.noise["sums"][-1]["sigma"] for r in (plain, release)]
    assert sigma[1] < 4 * sigma[0]


# --- the release as an object ---


def test_it_is_saved_and_loaded_as_any_pricer(portfolio, reports, tmp_path):
    release = fit_release(settings(), portfolio.X, portfolio.y, None, reports, CHANNEL, privacy(), rules=Rules())
    release.pricer.save(tmp_path / "model.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(portfolio.X), release.pricer.predict(portfolio.X))
    for a, b in zip(loaded.predict_interval(portfolio.X), release.pricer.predict_interval(portfolio.X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert release.reports_used is None
    assert json.loads(json.dumps(release.noise)) == release.noise


def test_the_same_fit_again_is_the_same_to_the_last_bit(portfolio, reports):
    documents = [
        json.dumps(
            to_document(fit_release(settings(), portfolio.X, portfolio.y, None, reports, CHANNEL, privacy()).pricer)
        )
        for _ in range(2)
    ]
    assert documents[0] == documents[1]


@pytest.mark.parametrize("change", ["report", "outcome", "epsilon", "pooling", "secret"])
def test_any_other_fit_has_other_noise(monkeypatch, portfolio, reports, change):
    """Noise that two different questions share would cancel in their difference and show a report."""
    S, y, more = np.array(reports, dtype=object), portfolio.y.copy(), {"epsilon": 1.0}
    secret = SECRET
    if change == "report":
        S[3] = "M" if S[3] == "F" else "F"
    if change == "outcome":
        y[3] += 1.0
    if change == "epsilon":
        more["epsilon"] = 1.001
    if change == "secret":
        secret = SECRET[::-1]
    notes = []
    for arguments in (
        (reports, portfolio.y, 0.0, 1.0, SECRET),
        (S, y, 1.0 if change == "pooling" else 0.0, more["epsilon"], secret),
    ):
        Spy.answers, Spy.log, Spy.given = None, [], {}
        monkeypatch.setattr(gaussian, "Releaser", Spy)
        fit_release(
            settings(pooling=arguments[2]),
            portfolio.X,
            arguments[1],
            None,
            arguments[0],
            CHANNEL,
            privacy(arguments[3], arguments[4]),
        )
        notes.append(
            [
                (Spy.given[label][0] - exact.reshape(Spy.given[label][0].shape)) / Spy.given[label][1]
                for label, _, _, exact in Spy.log
            ]
        )
        monkeypatch.undo()
    for a, b in zip(*notes, strict=True):
        assert np.abs(a - b).min() > 1e-6


def test_a_killed_fit_goes_on_without_new_noise(portfolio, reports, monkeypatch):
    """After each released sum: the rest is computed from the checkpoint, and what was released is not asked again."""
    whole: dict = {}
    rows = (portfolio.X, portfolio.y, None, reports, CHANNEL)
    expected = to_document(fit_release(settings(), *rows, privacy(), checkpoint=whole).pricer)
    assert list(whole) == ["reports", "gradient 1", "gradient 2", "gradient 3"]
    whole = json.loads(json.dumps(whole))
    for count in range(len(whole) + 1):
        part = dict(itertools.islice(copy.deepcopy(whole).items(), count))
        drawn = []
        original = releaser.noised_steps
        monkeypatch.setattr(releaser, "noised_steps", lambda *a, f=original, d=drawn: d.append(1) or f(*a))
        again = fit_release(settings(), *rows, privacy(), checkpoint=part)
        monkeypatch.undo()
        assert to_document(again.pricer) == expected
        assert len(drawn) == len(whole) - count
        assert part == whole


def test_a_checkpoint_of_another_fit_is_not_used(portfolio, reports):
    whole: dict = {}
    fit_release(settings(), portfolio.X, portfolio.y, None, reports, CHANNEL, privacy(), checkpoint=whole)
    other = fit_release(settings(), portfolio.X, portfolio.y + 1, None, reports, CHANNEL, privacy())
    mixed = fit_release(settings(), portfolio.X, portfolio.y + 1, None, reports, CHANNEL, privacy(), checkpoint=whole)
    assert to_document(other.pricer) == to_document(mixed.pricer)


def test_progress_is_told(portfolio, reports):
    seen = []
    fit_release(
        settings(), portfolio.X, portfolio.y, None, reports, CHANNEL, privacy(), progress=lambda *a: seen.append(a)
    )
    fractions = [fraction for _, fraction in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
    assert {"reports", "step", "standard errors"} <= {phase for phase, _ in seen}


def test_a_source_gives_what_the_table_gives(tmp_path, monkeypatch):
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_ROWS", 0)  # read it piece by piece
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_CELLS", 0)
    p = unbalanced_poisson(20_000, (0.6, 0.4), rng=13)
    channel = RandomizedResponse(p.groups, keep=0.8)
    S = some_missing(channel.privatize(p.sensitive, rng=14), 0.1, 14)
    X = p.X
    table = X.assign(frequency=p.y, exposure=p.sample_weight, report=S)
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=7_000)
    rules = Rules()
    asked = (settings("poisson", intervals=False), privacy(ALMOST_NONE))
    one = fit_release(
        asked[0], tmp_path / "rows.parquet", "frequency", "exposure", "report", channel, asked[1], rules=rules
    )
    two = fit_release(asked[0], X, p.y, p.sample_weight, S, channel, asked[1], rules=rules)
    np.testing.assert_allclose(one.pricer.predict(X), two.pricer.predict(X), rtol=2e-3)  # the noise differs
    assert [v.passed for v in one.rule_results] == [v.passed for v in two.rule_results]


def test_the_true_attribute_may_be_what_is_protected(portfolio):
    release = fit_release(
        settings(), portfolio.X, portfolio.y, None, portfolio.sensitive, None, privacy(2.0), groups=["F", "M"]
    )
    truth = portfolio.discrimination_free(portfolio.X)
    unaware = release.pricer.predict_unaware(portfolio.X)
    assert np.std(release.pricer.predict(portfolio.X) - truth) < np.std(unaware - truth)
    assert release.pricer.correction_ == "none"


def test_a_refusal_comes_from_noised_counts(portfolio):
    S = np.array(["F"] * 3900 + ["M"] * 100)
    with pytest.raises(RefusedError, match="Rule"):
        fit_release(settings(), portfolio.X, portfolio.y, None, S, CHANNEL, privacy(), rules=Rules(rows=1000))


def test_what_it_cannot_do_is_said(portfolio, reports):
    rows = (portfolio.X, portfolio.y, None, reports)
    common = settings(model=LinearModel(slopes="common"))
    for wrong in (FitSettings(model="boosted"), FitSettings(correction="likelihood"), common):
        with pytest.raises(ValueError, match="randomized"):
            fit_release(wrong, *rows, CHANNEL, privacy())
    with pytest.raises(ValueError, match="groups"):
        fit_release(settings(), *rows, None, privacy())


# --- the same question, computed elsewhere ---


def test_noise_does_not_depend_on_the_number_of_threads():
    """Otherwise a worker with more processors gives the same sums other noise, and two answers average it out."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1500, 40))
    y = rng.poisson(np.exp(0.1 * X[:, 0])).astype(float)
    reports = rng.choice(CHANNEL.groups, 1500)
    answers = []
    for threads in (1, 2):
        steps = {}
        with threadpool_limits(threads):
            fit_release(
                settings("poisson", reference="uniform"), X, y, None, reports, CHANNEL, privacy(4.0), checkpoint=steps
            )
        answers.append(json.dumps(steps, sort_keys=True))
    assert answers[0] == answers[1]

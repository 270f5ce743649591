"""What leaves the third party: fits from randomized reports, refusals, defaults and mistakes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fairpremium import AnchorNoise, DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.parties.release._disclosure import RefusedError, Rules
from fairpremium.parties.release._randomized import randomize_reports
from fairpremium.parties.release._release import FitSettings, ReleaseSettings, default_release, fit_release
from fairpremium.parties.release._released_reports import without_protection
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025
from fairpremium.pricing import to_document

SECRET = b"a secret of the study, 32 bytes."
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


def randomized(epsilon=1.0):
    return ReleaseSettings("randomized", epsilon, secret=SECRET)


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=3000, rng=1)


@pytest.fixture(scope="module")
def reports(portfolio):
    return CHANNEL.privatize(portfolio.sensitive, rng=2)


@pytest.fixture(scope="module")
def keys(portfolio):
    return [f"{i:032x}" for i in range(len(portfolio))]


def test_the_fit_is_the_fit_of_the_new_reports_and_of_nothing_else(portfolio, reports, keys):
    release = fit_release(
        FitSettings(correction="inverse", pooling=0.0),
        portfolio.X,
        portfolio.y,
        None,
        reports,
        CHANNEL,
        randomized(),
        keys=keys,
        rules=Rules(),
    )
    drawn = randomize_reports(keys, reports, CHANNEL, 1.0, SECRET)
    again = DiscriminationFreePricer(channel=drawn.channel, correction="inverse", pooling=0.0, random_state=0).fit(
        portfolio.X, portfolio.y, sensitive=drawn.reports
    )
    np.testing.assert_array_equal(release.pricer.predict(portfolio.X), again.predict(portfolio.X))
    assert release.reports_used.reports.tolist() == drawn.reports.tolist()
    assert release.channel_used == drawn.channel
    assert release.epsilon == drawn.second.epsilon <= 1.0
    assert release.delta == 0.0
    assert "differentially private" in release.statement
    assert all(v.passed for v in release.rule_results)


def test_stored_reports_that_lead_to_the_same_new_ones_give_the_same_bytes(portfolio, reports, keys):
    """Nothing but S' enters: change stored reports where the draw happens to give the same, and nothing changes."""
    flipped = np.where(reports == "F", "M", "F").astype(object)
    first = randomize_reports(keys, reports, CHANNEL, 1.0, SECRET).reports
    second = randomize_reports(keys, flipped, CHANNEL, 1.0, SECRET).reports
    mixed = np.where(first == second, flipped, reports)
    assert (mixed != reports).sum() > 500
    settings = FitSettings(correction="inverse")
    a, b = (
        fit_release(settings, portfolio.X, portfolio.y, None, S, CHANNEL, randomized(), keys=keys, rules=Rules())
        for S in (reports, mixed)
    )
    assert json.dumps(to_document(a.pricer)) == json.dumps(to_document(b.pricer))


def test_the_release_is_saved_and_loaded_as_any_pricer(portfolio, reports, keys, tmp_path):
    release = fit_release(FitSettings(), portfolio.X, portfolio.y, None, reports, CHANNEL, randomized(), keys=keys)
    release.pricer.save(tmp_path / "model.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "model.json")
    np.testing.assert_allclose(loaded.predict(portfolio.X), release.pricer.predict(portfolio.X), rtol=1e-12)
    assert loaded.channel_ == release.channel_used


def test_it_finds_the_truth_with_three_unequal_groups_weights_and_missing_reports():
    """Unbiased with K = 3: mean over portfolios within its standard error, and closer than the unaware price."""
    errors, unaware = [], []
    for seed in range(8):
        p = unbalanced_poisson(40_000, (0.5, 0.3, 0.2), rng=seed)
        channel = RandomizedResponse(p.groups, epsilon=3.0)
        S = np.array(channel.privatize(p.sensitive, rng=seed), dtype=object)
        S[np.random.default_rng([seed, 7]).random(len(p)) < 0.1] = None
        settings = FitSettings("poisson", correction="inverse", pooling=0.0, intervals=False)
        keys = list(range(len(p)))
        release = fit_release(settings, p.X, p.y, p.sample_weight, S, channel, randomized(3.0), keys=keys)
        log_ratio = np.log(release.pricer.predict(p.X) / p.discrimination_free(p.X))
        errors.append(log_ratio.mean())
        unaware.append(np.log(release.pricer.predict_unaware(p.X) / p.discrimination_free(p.X)).std())
        assert log_ratio.std() < unaware[-1]
    assert abs(np.mean(errors)) < 4 * np.std(errors, ddof=1) / np.sqrt(len(errors)) + 1e-3


def test_a_refusal_comes_before_the_fit_and_from_the_new_reports(portfolio, reports, keys):
    X = portfolio.X.assign(planted=(np.arange(len(portfolio)) == 5).astype(float))
    with pytest.raises(RefusedError, match="Rule 2"):
        fit_release(FitSettings(), X, portfolio.y, None, reports, CHANNEL, randomized(), keys=keys, rules=Rules())


def test_counts_of_missing_reports_are_rounded(portfolio, reports, keys):
    S = np.array(reports, dtype=object)
    S[:13] = None
    settings = FitSettings(correction="inverse", intervals=False)
    drawn = randomize_reports(keys, S, CHANNEL, 1.0, SECRET, hidden=False)
    release = fit_release(settings, portfolio.X, portfolio.y, None, None, CHANNEL, randomized(), drawn=drawn)
    assert release.pricer.n_missing_reports_ == 15
    assert release.reported == 2985


def test_who_reported_is_hidden_and_how_many_is_estimated(portfolio, reports, keys):
    S = np.array(reports, dtype=object)
    S[np.random.default_rng(5).random(len(S)) < 0.3] = None
    settings = FitSettings(correction="inverse", intervals=False)
    release = fit_release(settings, portfolio.X, portfolio.y, None, S, CHANNEL, randomized(), keys=keys)
    assert "whether there is one" in release.statement
    second = randomize_reports(keys, S, CHANNEL, 1.0, SECRET).second
    error = np.sqrt(len(S) / 4) / (second.keep - second.matrix[0, 1])
    truth = sum(r is not None for r in S)
    assert abs(release.reported - truth) < 5 * error
    assert release.reported + release.pricer.n_missing_reports_ == pytest.approx(len(S), abs=5)
    changed = sum((a is None) != (b is None) for a, b in zip(S, release.reports_used.reports, strict=True))
    assert 0.15 * len(S) < changed < 0.5 * len(S)


def test_premiums_stay_right_where_reporting_depends_on_the_features():
    """Half of one class reports and nine in ten of the other: group differences are off by the documented order,
    the premium is not.
    """
    gaps, premiums = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = 15_000
        smoker = (rng.random(n) < 0.4).astype(float)
        D = rng.choice(["F", "M"], n)
        y = 500 + 100 * (D == "F") + 50 * smoker + 40 * rng.normal(size=n)
        S = np.array(CHANNEL.privatize(D, rng=seed), dtype=object)
        S[rng.random(n) > np.where(smoker == 1, 0.9, 0.5)] = None
        X = pd.DataFrame({"smoker": smoker, "x": rng.normal(size=n)})
        settings = FitSettings(correction="inverse", pooling=0.0, reference="uniform", intervals=False)
        release = fit_release(settings, X, y, None, S, CHANNEL, randomized(2.0), keys=range(n))
        rows = pd.DataFrame({"smoker": [0.0, 1.0], "x": [0.0, 0.0]})
        best = release.pricer.predict_best_estimate(rows).to_numpy()
        gaps.append(best[:, 0] - best[:, 1])
        premiums.append(release.pricer.predict(rows) - [550, 600])
    error = np.std(premiums, axis=0, ddof=1) / np.sqrt(len(premiums))
    assert (np.abs(np.mean(premiums, axis=0)) < 4.5 * error).all()
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(len(gaps))
    assert (np.abs(np.mean(gaps, axis=0) - [90, 110]) < 4.5 * error + 2).all()


def test_an_unknown_channel_is_estimated_from_the_new_reports(portfolio, reports, keys):
    anchor = AnchorNoise(group="F", anchor_share=0.1, random_state=0)  # declared, if not true
    release = fit_release(
        FitSettings(correction="inverse", intervals=False),
        portfolio.X,
        portfolio.y,
        None,
        reports,
        anchor,
        randomized(3.0),
        keys=keys,
        groups=["F", "M"],
    )
    drawn = randomize_reports(keys, reports, None, 3.0, SECRET, groups=["F", "M"])
    noise = anchor.fit(portfolio.X, portfolio.y, sensitive=drawn.reports)
    assert release.channel_used.keep == noise.channel_.keep


def test_the_true_attribute_is_randomized_too(portfolio, keys):
    settings = FitSettings(correction="inverse", intervals=False)
    release = fit_release(
        settings, portfolio.X, portfolio.y, None, portfolio.sensitive, None, randomized(), keys=keys, groups=["F", "M"]
    )
    assert release.channel_used.epsilon <= 1.0


def test_a_source_is_fitted_from_a_column_that_was_randomized_before(portfolio, reports, keys, tmp_path):
    drawn = randomize_reports(keys, reports, CHANNEL, 1.0, SECRET)
    table = portfolio.X.assign(loss=portfolio.y, report=drawn.reports)
    table.to_parquet(tmp_path / "rows.parquet")
    settings = FitSettings(correction="inverse", pooling=0.0, intervals=False)
    release = fit_release(
        settings,
        tmp_path / "rows.parquet",
        "loss",
        None,
        "report",
        CHANNEL,
        randomized(),
        drawn=drawn,
        rules=Rules(),
    )
    direct = fit_release(
        settings, portfolio.X, portfolio.y, None, reports, CHANNEL, randomized(), keys=keys, rules=Rules()
    )
    np.testing.assert_allclose(release.pricer.predict(portfolio.X), direct.pricer.predict(portfolio.X), rtol=1e-9)
    assert release.rule_results == direct.rule_results
    with pytest.raises(ValueError, match="randomize_reports"):
        fit_release(settings, tmp_path / "rows.parquet", "loss", None, "report", CHANNEL, randomized())


def test_without_a_mechanism_the_prices_are_exact_and_the_statement_says_so(portfolio, reports):
    release = fit_release(
        FitSettings(correction="inverse", pooling=0.0),
        portfolio.X,
        portfolio.y,
        None,
        None,
        CHANNEL,
        ReleaseSettings("none"),
        drawn=without_protection(reports, CHANNEL),
    )
    plain = DiscriminationFreePricer(channel=CHANNEL, correction="inverse", pooling=0.0, random_state=0)
    plain.fit(portfolio.X, portfolio.y, sensitive=reports)
    np.testing.assert_array_equal(release.pricer.predict(portfolio.X), plain.predict(portfolio.X))
    assert release.epsilon == np.inf
    assert "read single reports" in release.statement


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"mechanism": "laplace"}, "mechanism"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"secret": b""}, "secret"),
        ({"secret": "a text that is long enough"}, "secret"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    given = {"mechanism": "randomized", "epsilon": 1.0, "secret": SECRET} | arguments
    with pytest.raises((ValueError, TypeError), match=message):
        ReleaseSettings(**given)


def test_the_secret_is_not_shown():
    assert "secret" not in repr(randomized())


def test_keys_and_groups_are_needed(portfolio, reports, keys):
    rows = (portfolio.X, portfolio.y, None, reports)
    with pytest.raises(ValueError, match="keys"):
        fit_release(FitSettings(), *rows, CHANNEL, randomized())
    with pytest.raises(ValueError, match="groups"):
        fit_release(FitSettings(), *rows, None, randomized(), keys=keys)
    weaker = randomize_reports(keys, reports, CHANNEL, 2.0, SECRET)
    with pytest.raises(ValueError, match="larger epsilon"):
        fit_release(FitSettings(), *rows, CHANNEL, randomized(1.0), drawn=weaker)


def test_the_default_mechanism():
    assert default_release("boosted", "auto", 10**6) == "randomized"
    assert default_release("linear", "posterior", 10**6) == "randomized"
    assert default_release("linear", "inverse", 5_000) == "gaussian"
    assert default_release(LinearModel(ridge=1.0), "inverse", 5_000) == "gaussian"
    assert default_release("linear", "inverse", 500) == "randomized"
    assert default_release("linear", "auto", 5_000) == "randomized"
    assert default_release("linear", "auto", 5_000_000) == "gaussian"


def test_frames_of_other_kinds_work(portfolio, reports, keys):
    X = pd.DataFrame(portfolio.X).astype({"smoker": "str"})
    release = fit_release(
        FitSettings(correction="inverse", intervals=False),
        X,
        portfolio.y,
        None,
        reports,
        CHANNEL,
        randomized(),
        keys=keys,
        rules=Rules(),
    )
    assert np.isfinite(release.pricer.predict(X)).all()


def test_a_fit_tells_how_much_is_done_and_nothing_else(portfolio, reports, keys):
    """In steps of 5 % at least: every one is a row that the service writes."""
    seen = []
    columns = (portfolio.X, portfolio.y, None, reports, CHANNEL, randomized())
    fit_release(
        FitSettings(correction="auto"), *columns, keys=keys, progress=lambda phase, done: seen.append((phase, done))
    )
    assert {phase for phase, _ in seen} == {"randomize", "rules", "fit", "done"}
    fit = [done for phase, done in seen if phase == "fit"]
    assert fit[0] == 0.2
    assert len(fit) >= 4
    assert (np.diff(fit) > 0.7 * 0.05 - 1e-9).all()
    assert fit[-1] <= 0.9

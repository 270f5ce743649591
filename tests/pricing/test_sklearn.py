"""The pricer is a scikit-learn estimator: its checks, pipelines, searches and cloning."""

import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.errors import ExposureWarning, GroupsNotScoredWarning
from fairpremium.portfolios import zhang_liu_shi_2025


def groups_from_content(X):
    """Two groups that depend on a row's content alone, so that repeated rows share theirs."""
    matrix = np.asarray(X)
    if matrix.ndim != 2 or not len(matrix):
        return None
    if matrix.dtype.kind in "if":
        content = np.ascontiguousarray(matrix, dtype=float)
        groups = np.array([zlib.crc32(row.tobytes()) % 2 for row in content])
        if 0 < groups.mean() < 1:
            return groups
    return np.arange(len(matrix)) % 2


class PricerWithGroups(DiscriminationFreePricer):
    """The checks of scikit-learn know no sensitive attribute: this subclass supplies one."""

    def fit(self, X, y=None, *, sensitive=None, sample_weight=None):
        sensitive = groups_from_content(X) if sensitive is None else sensitive
        return super().fit(X, y, sensitive=sensitive, sample_weight=sample_weight)

    def score(self, X, y, *, sensitive=None, sample_weight=None):
        return super().score(X, y, sensitive=groups_from_content(X), sample_weight=sample_weight)


def expected_failures(estimator):
    if estimator.pooling == "auto":
        return {
            "check_sample_weight_equivalence_on_dense_data": "a row of weight two is one person in the scatter "
            "of the moments, two equal rows are two"
        }
    return {}


def without_array_api(mark):
    """Drop the array-API checks: they need SCIPY_ARRAY_API=1 before the first import, as the next test has it."""
    names, params = mark.args
    kept = [p for p in params if "check_array_api_input" not in str(getattr(p, "values", p))]
    assert len(kept) == len(params) - 2
    return pytest.mark.parametrize(names, kept, **mark.kwargs)


@without_array_api(
    parametrize_with_checks(
        [PricerWithGroups(random_state=0), PricerWithGroups(pooling=0, model=LinearModel(ridge=1.0))],
        expected_failed_checks=expected_failures,
    ).mark
)
@pytest.mark.filterwarnings("ignore:The features:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_scikit_learn_array_api_check():
    program = (
        f"import runpy; module = runpy.run_path({__file__!r})\n"
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        "pricer = module['PricerWithGroups'](pooling=0)\n"
        "check_array_api_input('Pricer', pricer, 'numpy', expect_only_array_outputs=False)"
    )
    env = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def portfolio():
    p = zhang_liu_shi_2025(n=3000, rng=3)
    channel = RandomizedResponse(["F", "M"], keep=0.85)
    return p, channel, channel.privatize(p.sensitive, rng=np.random.default_rng(99))


def test_clone_and_params(portfolio):
    _, channel, _ = portfolio
    pricer = DiscriminationFreePricer(
        correction="inverse", channel=channel, model=LinearModel(ridge=2.0), reference={"F": 0.5, "M": 0.5}
    )
    copy = clone(pricer)
    assert copy.get_params()["model__ridge"] == 2.0
    assert copy.channel == channel
    assert copy.set_params(model__ridge=3.0).model.ridge == 3.0
    assert pricer.model.ridge == 2.0


def test_sensitive_is_routed_through_pipeline_and_searches(portfolio):
    """Enabling routing is all that a user does: nothing is requested here."""
    p, channel, reports = portfolio
    with config_context(enable_metadata_routing=True):
        pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0, intervals=False)
        X = p.X.astype(float).to_numpy()
        pipeline = make_pipeline(StandardScaler(), pricer).fit(X, p.y, sensitive=reports)
        direct = clone(pricer).fit(X, p.y, sensitive=reports)
        np.testing.assert_allclose(pipeline.predict(X), direct.predict(X), rtol=1e-9)

        search = GridSearchCV(pricer, {"pooling": [0.0, 1e9]}, cv=3).fit(X, p.y, sensitive=reports)
        # one price for all groups is much worse than prices by group, and the reports alone show it
        assert search.best_params_ == {"pooling": 0.0}
        scores = cross_validate(pricer, X, p.y, cv=3, params={"sensitive": reports})["test_score"]
        # unbiased: minus the variance of the noise (40^2) plus the lack of fit of two lines through a band of ages
        truth = clone(pricer).set_params(channel=None)
        oracle = cross_validate(truth, X, p.y, cv=3, params={"sensitive": p.sensitive})["test_score"]
        standard_error = scores.std(ddof=1) / np.sqrt(3)
        assert abs(scores.mean() - oracle.mean()) < 6 * standard_error


def test_volumes_and_persons_are_routed(portfolio):
    p, channel, reports = portfolio
    weight, person = np.linspace(0.5, 2, len(p)), np.arange(len(p)) // 2
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0, intervals=False)
    rows = np.arange(len(p)) % 2 == 0
    expected = clone(pricer).fit(p.X[rows], p.y[rows], sensitive=reports[rows], sample_weight=weight[rows])
    by_hand = expected.score(p.X[~rows], p.y[~rows], sensitive=reports[~rows], sample_weight=weight[~rows])
    split = [(np.flatnonzero(rows), np.flatnonzero(~rows))]
    with config_context(enable_metadata_routing=True):
        params = {"sensitive": reports, "sample_weight": weight, "cluster": person}
        found = cross_validate(pricer, p.X, p.y, cv=split, params=params, error_score="raise")["test_score"]
        totals = {"sensitive": reports, "exposure": weight, "cluster": person}
        again = cross_validate(pricer, p.X, p.y * weight, cv=split, params=totals, error_score="raise")["test_score"]
    assert found[0] == pytest.approx(by_hand, rel=1e-9)
    assert again[0] == pytest.approx(by_hand, rel=1e-9)


def test_without_routing_a_search_compares_unaware_prices_and_says_so(portfolio):
    """The mistake: every score was NaN, and the first candidate won."""
    p, channel, reports = portfolio
    X = p.X.astype(float).to_numpy()
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0, intervals=False)
    grid = {"model": [LinearModel(ridge=1e6), LinearModel(ridge=0.0)]}
    with pytest.warns(GroupsNotScoredWarning, match="enable_metadata_routing") as said:
        search = GridSearchCV(pricer, grid, cv=3, error_score="raise").fit(X, p.y, sensitive=reports)
    assert any(w.category is GroupsNotScoredWarning for w in said)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_index_ == 1
    with pytest.warns(GroupsNotScoredWarning):  # a second search says it again
        again = cross_validate(clone(pricer), X, p.y, cv=3, params={"sensitive": reports}, error_score="raise")
    assert again["test_score"].mean() == pytest.approx(scores[1], rel=1e-9)
    # what the score cannot see is the same for all
    with pytest.warns(GroupsNotScoredWarning):
        blind = GridSearchCV(pricer, {"pooling": [0.0, 1e9]}, cv=3, error_score="raise").fit(X, p.y, sensitive=reports)
    assert np.ptp(blind.cv_results_["mean_test_score"]) < 1e-6 * abs(scores[1])


def test_the_fallback_score_is_minus_the_deviance_of_the_unaware_price(portfolio):
    p, channel, reports = portfolio
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0).fit(p.X, p.y, sensitive=reports)
    weight = np.linspace(0.5, 2, len(p))
    expected = -sum(w * (y - u) ** 2 for w, y, u in zip(weight, p.y, pricer.predict_unaware(p.X), strict=True))
    with pytest.warns(GroupsNotScoredWarning):
        assert pricer.score(p.X, p.y, sample_weight=weight) == pytest.approx(expected / weight.sum(), rel=1e-9)
    with pytest.warns(GroupsNotScoredWarning):
        pricer.score(p.X, p.y)  # a second one says it, too


def test_a_score_of_totals_needs_their_exposure(portfolio):
    p, channel, reports = portfolio
    exposure = np.linspace(0.5, 2, len(p))
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0, intervals=False)
    pricer.fit(p.X, p.y * exposure, sensitive=reports, exposure=exposure)
    with pytest.raises(ValueError, match=r"fitted with an exposure.*enable_metadata_routing"):
        pricer.score(p.X, p.y * exposure, sensitive=reports)
    rates = pricer.score(p.X, p.y, sensitive=reports, sample_weight=exposure)
    assert pricer.score(p.X, p.y * exposure, sensitive=reports, exposure=exposure) == pytest.approx(rates, rel=1e-12)
    with pytest.warns(GroupsNotScoredWarning), pytest.warns(ExposureWarning, match="mean exposure"):
        rough = pricer.score(p.X, p.y * exposure)
    mean = exposure.mean()
    expected = -np.mean((p.y * exposure / mean - pricer.predict_unaware(p.X)) ** 2)
    assert rough == pytest.approx(expected, rel=1e-9)
    params = {"sensitive": reports, "exposure": exposure}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = cross_validate(pricer, p.X, p.y * exposure, cv=2, params=params, error_score="raise")["test_score"]
    assert np.isfinite(scores).all()


def test_score_is_minus_the_corrected_risk(portfolio):
    p, channel, reports = portfolio
    pricer = DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0).fit(p.X, p.y, sensitive=reports)
    mu = pricer.predict_best_estimate(p.X)
    slow = 0.0
    for i in range(len(p.y)):
        for k, group in enumerate(channel.groups):
            slow += channel.inverse[k, channel.reports.index(reports[i])] * (p.y[i] - mu[group].iloc[i]) ** 2
    assert pricer.score(p.X, p.y, sensitive=reports) == pytest.approx(-slow / len(p.y), rel=1e-9)
    weight = np.full(len(p.y), 2.5)
    assert pricer.score(p.X, p.y, sensitive=reports, sample_weight=weight) == pytest.approx(-slow / len(p.y), rel=1e-9)

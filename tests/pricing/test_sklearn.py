"""The pricer is a scikit-learn estimator: its checks, pipelines, searches and cloning."""

import os
import subprocess
import sys
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
    p, channel, reports = portfolio
    with config_context(enable_metadata_routing=True):
        pricer = (
            DiscriminationFreePricer(correction="inverse", channel=channel, pooling=0, intervals=False)
            .set_fit_request(sensitive=True, sample_weight=False)
            .set_score_request(sensitive=True, sample_weight=False)
        )
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

"""Posterior weights of any scikit-learn classifier, trained through the channel."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import _candidates as candidates
from fairpremium.corrections._classifier import classifier_fit, train_classifier
from fairpremium.families import Normal
from fairpremium.models import LinearModel, prepare


def portfolio(n, seed, keep=0.8, missing=0.0):
    """Two groups, three standard deviations apart where x = 0, so that y says much about the group."""
    rng = np.random.default_rng(seed)
    channel = RandomizedResponse(["F", "M"], keep=keep)
    d = rng.choice(["F", "M"], n, p=[0.3, 0.7])
    x = rng.normal(np.where(d == "F", 0.5, 0.0), 1.0)
    y = np.where(d == "F", 3 + x, 0.5 * x) + rng.normal(size=n)
    S = channel.privatize(d, rng=rng)
    if missing:
        S[rng.random(n) < missing] = None
    return x[:, None], y, d, S, channel


def test_weights_and_log_loss_equal_plain_loops():
    X, y, _, S, channel = portfolio(400, 0, missing=0.1)
    code = channel.encode(S)
    report = np.where(code < 0, 2, code)
    problem = prepare(Rows(X, y, None, report), 3, Normal(), LinearModel(), ["x"])
    fitted = train_classifier(LogisticRegression(), problem, channel.matrix)
    block = problem.rows.block(0, 400)
    q = fitted.propensity(block)
    np.testing.assert_allclose(q.sum(axis=1), 1.0)
    weights, loss = fitted.weights(block), fitted.report_log_loss(block)
    for i in range(400):
        if report[i] == 2:
            assert (weights[i] == 0).all()
            continue
        joint = [channel.matrix[report[i], k] * q[i, k] for k in range(2)]
        np.testing.assert_allclose(weights[i], np.array(joint) / sum(joint))
        assert loss[i] == pytest.approx(-np.log(sum(joint)))


def test_em_undoes_the_noise_of_the_reports():
    """Trained on reports the classifier still comes near P(D given x, y); trained on S as if D it would not."""
    X, y, d, S, channel = portfolio(20_000, 1)
    problem = prepare(Rows(X, y, None, channel.encode(S)), 3, Normal(), LinearModel(), ["x"])
    fitted = train_classifier(LogisticRegression(), problem, channel.matrix)
    q = fitted.propensity(problem.rows.block(0, 20_000))[:, 0]
    sure = q > 0.95
    share = np.mean(d[sure] == "F")
    # calibrated: 0.95 < q on these rows; S taken as D could not go beyond keep = 0.8
    assert sure.sum() > 1000
    assert share > 0.95 - 4.5 * np.sqrt(0.05 / sure.sum())


@pytest.mark.parametrize("classifier", [LogisticRegression(), HistGradientBoostingClassifier(max_iter=30)])
def test_a_pricer_takes_any_classifier(classifier, monkeypatch):
    trained = []

    def record(given, problem, matrix):
        trained.append(train_classifier(given, problem, matrix))
        return trained[-1]

    monkeypatch.setattr(candidates, "train_classifier", record)
    X, y, _d, S, channel = portfolio(4000, 2)
    pricer = DiscriminationFreePricer(
        channel=channel, correction="posterior", classifier=classifier, pooling=0, random_state=0
    )
    pricer.fit(X, y, sensitive=S)
    assert {type(fitted.classifier) for fitted in trained} == {type(classifier)}
    assert len(trained) >= 5  # without each fold
    assert pricer.candidates_["chosen"].sum() == 1
    used = type(classifier).__name__ if len(trained) > 5 else "logit"  # trained on all rows only if it is used
    assert pricer.candidates_["detail"].item().startswith(used)
    error = np.sqrt(np.diag(pricer._prices.covariance))[:4]
    # a classifier is never quite right: within sampling error and a tenth of the groups' distance
    assert (np.abs(pricer._prices.coefficients.T.ravel() - [3, 1, 0, 0.5]) < 5 * error + 0.3).all()
    assert pricer.correction_ == "posterior"


def test_a_chosen_classifier_gives_prices_with_intervals(monkeypatch):
    """Groups that take turns along x: no logit in x, y and their products sees them, a tree does."""
    rng = np.random.default_rng(3)
    n = 3000
    channel = RandomizedResponse(["in", "out"], keep=0.9)
    x = rng.uniform(-1, 1, n)
    d = np.where((np.sin(12 * x) > 0) == (rng.random(n) < 0.95), "in", "out")
    y = x + (d == "in") + rng.normal(size=n)
    pricer = DiscriminationFreePricer(
        channel=channel,
        correction="posterior",
        classifier=DecisionTreeClassifier(min_samples_leaf=50),
        pooling=0,
        random_state=0,
    )
    used = []

    def record(problem, fitted, base, pooling):
        used.append(fitted.classifier)
        return classifier_fit(problem, fitted, base, pooling)

    monkeypatch.setattr(candidates, "classifier_fit", record)
    pricer.fit(x[:, None], y, sensitive=channel.privatize(d, rng=rng))
    lower, upper = pricer.predict_interval(x[:5, None])
    assert np.isfinite(lower).all()
    assert (lower < upper).all()
    assert [type(classifier) for classifier in used] == [DecisionTreeClassifier]

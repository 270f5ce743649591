"""P(D given x), learned from reports: ridges that the reports ask for."""

import numpy as np
import pytest
from scipy.special import softmax

from fairpremium import RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import GroupPropensity, ReportChannel
from fairpremium.families import Normal
from fairpremium.models import LinearModel, prepare


def learn(eta, X, keep, seed, origins=None):
    """Draw groups from a logit and reports from a channel; return the truth, the fit and the shrunk fit."""
    rng = np.random.default_rng(seed)
    q = softmax(eta, axis=1)
    groups = list("abcd"[: q.shape[1]])
    d = (rng.random(len(q))[:, None] > q.cumsum(axis=1)).sum(axis=1)
    channel = RandomizedResponse(groups, keep=keep)
    report = np.searchsorted(groups, channel.privatize(np.array(groups)[d], rng=seed))
    rows = Rows(X, np.zeros(len(X)), None, report.astype(np.uint16))
    known = ReportChannel.of(channel, tuple(groups))
    names = [f"x{j}" for j in range(X.shape[1])]
    problem = prepare(rows, known.n_codes, Normal(), LinearModel(), names, origins=origins)
    fit = GroupPropensity.learn(problem, known)
    block = rows.block(0, len(X))
    return q, fit.propensity(block), fit.shrunk(problem).propensity(block)


def distances(truth, *found):
    return [np.sqrt(np.mean((q - truth) ** 2)) for q in found]


@pytest.mark.parametrize("K", [2, 3])
def test_features_that_say_nothing_are_left_out(K):
    """One of four features tells the groups apart: the other coefficients and all products are noise."""
    errors = []
    for seed in range(5):
        X = np.random.default_rng(100 + seed).normal(size=(3000, 4))
        eta = np.outer(X[:, 0], 0.8 * np.arange(K))
        errors.append(distances(*learn(eta, X, 0.75, seed)))
    plain, shrunk = np.mean(errors, axis=0)
    assert shrunk < 0.6 * plain


def test_the_levels_of_a_column_are_kept_together():
    """Twelve levels, each with a small effect that alone is within chance: as one column they are beyond it."""
    errors = []
    for seed in range(4):
        rng = np.random.default_rng(300 + seed)
        X = np.eye(12)[rng.integers(0, 12, 8000)][:, 1:]
        eta = np.outer(X @ rng.normal(0, 0.5, 11), [0, 1])
        errors.append([distances(*learn(eta, X, 0.8, seed, origins=names)) for names in (["x"] * 11, None)])
    (plain, together), (_, alone) = np.mean(errors, axis=0)
    assert together < 1.02 * plain
    assert together < alone


def test_what_bends_may_bend():
    """The groups differ by a square and a product: with 20,000 reports shrinking takes nothing away."""
    errors = []
    for seed in range(3):
        X = np.random.default_rng(200 + seed).normal(size=(20_000, 2))
        eta = np.column_stack([0 * X[:, 0], 0.6 * (np.minimum(X[:, 0] ** 2, 9) - 1) + 0.8 * X[:, 0] * X[:, 1]])
        errors.append(distances(*learn(eta, X, 0.8, seed)))
    plain, shrunk = np.mean(errors, axis=0)
    assert shrunk < 1.05 * plain


def test_reports_that_are_the_truth_and_were_not_modelled_stay_so():
    rows = Rows(np.arange(6.0)[:, None], np.zeros(6), None, np.array([0, 1, 0, 1, 0, 1], dtype=np.uint16))
    fit = GroupPropensity(np.eye(2))
    assert fit.shrunk(prepare(rows, 3, Normal(), LinearModel(), ["x"])) is fit

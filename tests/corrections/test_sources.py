"""What the corrections do with several sources: evidence by channel, Omega by source, and intervals that cover."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import ReportChannel, fit_inverse
from fairpremium.corrections._score import _factor, _Instruments, _omega, _solve_factored
from fairpremium.corrections._signed_moments import SignedMoments
from fairpremium.families import Poisson
from fairpremium.models import LinearModel, prepare
from fairpremium.privacy import KeyedChannels

GROUPS = ["a", "b"]
ONCE = RandomizedResponse(GROUPS, epsilon=1.0)
SOURCES = KeyedChannels({"app": ONCE, "again": ONCE, "twice": Channel.repeated(ONCE, ONCE), "known": None, "few": None})
CHANNEL = ReportChannel.of(SOURCES)


def problem(n=900, seed=0):
    rng = np.random.default_rng(seed)
    d = rng.choice(2, n, p=[0.7, 0.3])
    X = rng.normal(size=(n, 2))
    keys = rng.choice(["app", "again", "twice", "known"], n)
    y = rng.poisson(np.exp(0.2 * d + 0.3 * X[:, 0])).astype(float)
    S = np.array(SOURCES.privatize(np.array(GROUPS)[d], keys, rng=seed), dtype=object)
    S[:50] = None
    rows = Rows(X, y, rng.uniform(0.5, 1.5, n), CHANNEL.encode(S, keys))
    return prepare(rows, CHANNEL.n_codes, Poisson(), LinearModel(), ["x0", "x1"])


def test_keys_with_one_channel_are_one_source():
    assert CHANNEL.source.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, *[0] * 4, 0]
    assert not CHANNEL.truth
    assert ReportChannel.of({"x": None, "y": Channel(np.eye(2), groups=GROUPS)}).truth


def test_the_evidence_is_that_of_each_channel_alone_added_up():
    """A slow twin: the moments of rows whose other reports are taken for missing."""
    moments = SignedMoments.of(problem(), CHANNEL)
    B = np.array([[0.1, 0.3], [0.3, 0.2], [0.0, 0.1]])
    phi = np.linspace(0.8, 1.2, 5)
    sums, _ = moments.sums_and_dispersion(B, phi)
    assert len(sums.parts) == 3  # one, two and no noise
    precision, shift = 0.0, 0.0
    for p, part in enumerate(sums.parts):
        rows = moments.rows
        own = moments.part[rows.report] == p
        alone = replace(rows, report=np.where(own, rows.report, CHANNEL.n_codes - 1), share=rows.share * own[:, None])
        twin, _ = replace(moments, part=None, rows=alone).sums_and_dispersion(B, phi)
        for name in "UJV":
            np.testing.assert_allclose(getattr(part, name), getattr(twin, name), rtol=1e-9, atol=1e-9)
        evidence = twin.evidence(B)
        precision, shift = precision + evidence.precision, shift + evidence.shift
    np.testing.assert_allclose(sums.evidence(B).precision, precision, rtol=1e-7)
    np.testing.assert_allclose(sums.evidence(B).shift, shift, rtol=1e-7)
    np.testing.assert_allclose(sums.U, sum(part.U for part in sums.parts))


def test_the_equations_alone_are_those_of_the_sums():
    moments = SignedMoments.of(problem(), CHANNEL)
    B = moments.problem.start(2) + 0.1
    sums, before = moments.sums(B), moments.sums(B + 0.05)
    found = before.with_equations(moments._equations(B))
    np.testing.assert_allclose(found.U, sums.U, rtol=1e-9)
    assert len(found.parts) == len(sums.parts) > 1
    for part, own, old in zip(found.parts, sums.parts, before.parts, strict=True):
        np.testing.assert_allclose(part.U, own.U, rtol=1e-9)
        np.testing.assert_array_equal(part.V, old.V)


def test_few_rows_have_no_evidence_of_their_own():
    own = SignedMoments.of(problem(120), CHANNEL).part
    assert own is None
    part = SignedMoments.of(problem(450), CHANNEL).part
    assert part[0] == part[-1] == 0
    assert len(set(part)) == 3


def test_scores_of_parts_answer_as_the_whole_does():
    """The response to the moments by channel: the prices move with a row's weight as a second fit does."""
    given = problem(600)
    fit = fit_inverse(given, CHANNEL, None)
    scores = given.rows.map(fit.influence.scores)
    assert scores.shape == (600, 3 * fit.B.size)
    assert fit.influence.response.shape == (fit.B.size, 3 * fit.B.size)
    silent = given.rows.report == CHANNEL.n_codes - 1
    assert not scores[silent].any()
    assert (np.count_nonzero(scores.reshape(600, 3, -1).any(axis=2), axis=1)[~silent] == 1).all()


def test_omega_is_that_of_the_source():
    given = problem(200)
    B, gamma = np.array([[0.1, 0.3], [0.3, 0.2], [0.0, 0.1]]), np.array([[-0.8, 0.1, 0.0]])
    mixed = _Instruments(given, CHANNEL, gamma, B, 1.0)
    Z = given.moments.coordinates.matrix(given.rows.X)
    report = given.rows.report
    found = mixed.terms(given.rows.block(0, 200), (Z @ B).T, (Z @ gamma.T).T)
    upper = np.triu_indices(2)
    for channel, codes in ((ONCE, (0, 1, 2, 3)), (SOURCES["twice"], (4, 5, 6, 7)), (None, (8, 9, 10, 11))):
        alone = _Instruments(given, ReportChannel.of(channel, tuple(GROUPS)), gamma, B, 1.0)
        here = np.isin(report, codes)
        rows = given.rows.take(here)
        block = replace(rows, report=np.zeros(len(rows), dtype=int)).block(0, len(rows))
        expected = alone.terms(block, (Z[here] @ B).T, (Z[here] @ gamma.T).T)
        np.testing.assert_allclose(found.factor[:, here], expected.factor, rtol=1e-9)
        np.testing.assert_allclose(found.omega[upper][:, here], expected.omega[upper], rtol=1e-9)


@pytest.mark.parametrize("K", [2, 4])
def test_omega_is_the_covariance_of_the_moments(K):
    """By its definition, a sum over groups and reports for each row."""
    rng = np.random.default_rng(K)
    T = 0.6 * np.eye(K) + 0.4 / K
    inverse, q = np.linalg.inv(T), rng.dirichlet(np.ones(K), 5)
    f, V = rng.gamma(2.0, size=(5, K)), rng.gamma(2.0, size=(5, K))
    C = np.einsum("sj,ds,es->jde", T, inverse, inverse)
    expected = np.zeros((5, K, K))
    for i, j, d, e in product(range(5), *[range(K)] * 3):
        expected[i, d, e] += q[i, j] * C[j, d, e] * (V[i, j] + (f[i, j] - f[i, d]) * (f[i, j] - f[i, e]))
    d, e = np.triu_indices(K)  # the upper triangle counts
    np.testing.assert_allclose(_omega(C, q.T, f.T, V.T)[d, e], expected[:, d, e].T, rtol=1e-9)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_elimination_in_all_rows_solves_every_row(K):
    rng = np.random.default_rng(K)
    root, vectors = rng.normal(size=(50, K, 2 * K)), rng.normal(size=(K, 50))
    matrices = root @ root.transpose(0, 2, 1)  # positive definite
    expected = np.linalg.solve(matrices, vectors.T[:, :, None])[:, :, 0]
    given = np.where(np.tri(K, k=-1)[:, :, None], np.nan, matrices.transpose(1, 2, 0))  # the lower triangle is not read
    np.testing.assert_allclose(_solve_factored(_factor(given), vectors), expected.T, rtol=1e-8)


def test_intervals_cover():
    """h* with three kinds of reports, with the paper's estimator and with empirical Bayes; the script has the rest."""
    channels = KeyedChannels({"app": RandomizedResponse(GROUPS, keep=0.75), "known": None})
    quotes = np.array([[0.0], [1.0]])
    beta = np.array([[0.5, 1.0], [1.5, 0.5]])  # by group
    truth = np.column_stack([np.ones(2), quotes]) @ beta.T @ [0.6, 0.4]
    hits = []
    for seed in range(50):
        rng = np.random.default_rng(seed)
        d = rng.choice(2, 800, p=[0.6, 0.4])
        x = rng.normal(size=(800, 1))
        keys = np.where(rng.random(800) < 1 / (1 + np.exp(1 - x[:, 0])), "known", "app")
        y = beta[d, 0] + beta[d, 1] * x[:, 0] + rng.normal(size=800)
        S = channels.privatize(np.array(GROUPS)[d], keys, rng=seed)
        pricer = DiscriminationFreePricer(channel=channels, correction="inverse", pooling="auto" if seed % 2 else 0)
        low, high = pricer.fit(x, y, sensitive=S, channel_key=keys).predict_interval(quotes)
        hits.append((low < truth) & (truth < high))
    covered = np.sum(hits, axis=0)
    assert (covered >= binom.ppf(5e-4, 50, 0.95)).all()

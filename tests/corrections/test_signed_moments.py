"""The signed moments as evidence: against loops over rows, simulated portfolios, merged and streamed rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Block, Rows
from fairpremium.corrections import _signed_moments as signed_moments
from fairpremium.corrections._propensity import GroupPropensity
from fairpremium.corrections._signed_moments import SignedMoments
from fairpremium.families import Family, Gamma, Normal, Poisson
from fairpremium.models import LinearModel, LinearProblem, prepare
from fairpremium.pricing import _source_portfolio

WIDE = np.array([[0.6, 0.1, 0.1], [0.1, 0.6, 0.1], [0.1, 0.2, 0.6], [0.2, 0.1, 0.2]])  # four reports of three groups


def truth(K: int) -> np.ndarray:
    """Coefficients of (1, x0, x1), one column per group."""
    k = np.arange(K)
    return np.array([-0.5 + 0.3 * k, 0.3 - 0.15 * k, 0.2 * (-1.0) ** k])


def propensity(X: np.ndarray, K: int) -> np.ndarray:
    """P(D = k given x): unbalanced, and far from the same for all x."""
    logits = np.column_stack([0.6 * X[:, 0] * k - 0.4 * k for k in range(K)])
    weight = np.exp(logits)
    return weight / weight.sum(axis=1, keepdims=True)


class Portfolio:
    """Fixed features, volumes and non-response; groups, outcomes and reports are drawn anew each time."""

    def __init__(self, family: Family, T: np.ndarray, n: int, seed: int, phi: np.ndarray | None = None):
        rng = np.random.default_rng([seed, T.shape[1]])
        self.family, self.T, self.n, self.rng = family, T, n, rng
        self.X = np.column_stack([rng.uniform(-1.5, 1.5, n), rng.random(n) < 0.4])
        self.w = rng.uniform(0.5, 2, n)
        self.silent = rng.random(n) < 0.1 * (1 + self.X[:, 1])
        self.phi = np.ones(n) if phi is None else phi

    def draw(self) -> Rows:
        K, rng, w = self.T.shape[1], self.rng, self.w
        D = (rng.random(self.n)[:, None] > np.cumsum(propensity(self.X, K), axis=1)[:, :-1]).sum(axis=1)
        eta = np.einsum("ij,ji->i", np.column_stack([np.ones(self.n), self.X]), truth(K)[:, D])
        y = {
            "normal": lambda: rng.normal(eta, np.sqrt(self.phi / w)),
            "poisson": lambda: rng.poisson(w * np.exp(eta)) / w,
            "gamma": lambda: rng.gamma(w / self.phi, np.exp(eta) * self.phi / w),
        }[self.family.name]()
        S = (rng.random(self.n)[:, None] > np.cumsum(self.T, axis=0)[:-1].T[D]).sum(axis=1)
        return Rows(self.X, y, w, np.where(self.silent, len(self.T), S))

    def known_posterior(self, block: Block) -> np.ndarray:
        """P(D = k given x, s) of the rows of a block, as they were drawn."""
        K = self.T.shape[1]
        joint = propensity(block.X, K) * np.vstack([self.T, np.zeros(K)])[block.report]
        return joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)


def problem_of(rows: Rows, reports: int, family: Family, **settings: float) -> LinearProblem:
    return prepare(rows, reports + 1, family, LinearModel(**settings), ["x0", "x1"])


def to_problem(problem: LinearProblem, coefficients: np.ndarray) -> np.ndarray:
    """Coefficients of (1, x) in the coordinates of a problem."""
    return np.linalg.solve(problem.moments.coordinates.jacobian(), coefficients)


def slow_sums(moments: SignedMoments, B: np.ndarray, phi: np.ndarray) -> tuple[np.ndarray, ...]:
    """U, J, V and the dispersions by loops over rows and groups, straight from the docstring."""
    problem, table = moments.problem, moments.channel.table
    rows, family = problem.rows, problem.family
    K, n, missing = len(table), len(rows), table.shape[1] - 1
    Z = problem.moments.coordinates.matrix(rows.X)
    r = moments.propensity.posterior(rows.block(0, n))
    q = Z.shape[1]
    U, J, V = np.zeros((K, q)), np.zeros((K, q, K, q)), np.zeros((K, q, K, q))
    level = (Z @ problem.unaware)[:, 0]
    edges = np.quantile(level, [0.2, 0.4, 0.6, 0.8])
    pearson, counts = np.zeros(5), np.zeros(5)
    for i in range(n):
        if rows.report[i] == missing:
            continue
        w = 1.0 if rows.weight is None else rows.weight[i]
        c = int((level[i] > edges).sum())
        eta = Z[i] @ B
        mu, slope, v = family.link.mean_of(eta), family.link.slope(eta), family.variance(family.link.mean_of(eta))
        W = w * slope / v
        zz = np.outer(Z[i], Z[i])
        spread = sum(r[i, j] * v[j] for j in range(K))
        for k in range(K):
            U[k] += table[k, rows.report[i]] * W[k] * (rows.y[i] - mu[k]) * Z[i]
            J[k, :, k] += r[i, k] * W[k] * slope[k] * zz
            for m in range(K):
                between = sum(r[i, j] * (mu[j] - mu[k]) * (mu[j] - mu[m]) for j in range(K))
                a = table[k, rows.report[i]] * table[m, rows.report[i]]
                V[k, :, m] += a * W[k] * W[m] * (phi[c] * spread / w + between) * zz
        mixed = sum(r[i, j] * mu[j] for j in range(K))
        within = (rows.y[i] - mixed) ** 2 - sum(r[i, j] * (mu[j] - mixed) ** 2 for j in range(K))
        pearson[c] += w * within / spread
        counts[c] += 1
    return U.ravel(), J.reshape(K * q, K * q), V.reshape(K * q, K * q), pearson / counts


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Normal()], ids=repr)
def test_of_many_rows_a_sample_tells_what_the_equations_are_worth(
    family: Family, randomized_response: Callable, channel_of: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    T = randomized_response(3, 0.8)
    rows = Portfolio(family, T, 12_000, 4).draw()
    moments = SignedMoments.of(problem_of(rows, len(T), family), channel_of(T))
    exact, exact_sums = moments.shrink()
    full: list[int] = []
    plain = SignedMoments._block_sums

    def count(self: SignedMoments, block: Block, **at: np.ndarray) -> tuple[np.ndarray, ...]:
        full.append(len(block.y) if len(self.rows) == len(rows) else 0)
        return plain(self, block, **at)

    monkeypatch.setattr(SignedMoments, "_block_sums", count)
    monkeypatch.setattr(signed_moments, "_SAMPLE_FROM", 10_000)
    monkeypatch.setattr(signed_moments, "_SAMPLE_ROWS", 4000)
    found, sums = moments.shrink()
    assert sum(full) == 0  # J and V of all rows are never computed
    np.testing.assert_allclose(sums.U, moments.sums(found.B).U, atol=0.05 * np.sqrt(np.diag(exact_sums.V)).max())
    error = np.sqrt(np.diag(exact.covariance))
    # J and V of 4,000 rows with kurtosis of up to 9 are known to 5 %: weights of that kind move B by a small part of
    # its error, and its standard error by half of that
    np.testing.assert_array_less(np.abs(found.B - exact.B).T.ravel(), 0.2 * error)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), error, rtol=0.05)


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Normal()], ids=repr)
@pytest.mark.parametrize("shape", ["square", "wide"])
def test_sums_equal_loops_over_rows(
    family: Family, shape: str, randomized_response: Callable, channel_of: Callable
) -> None:
    T = randomized_response(3, 0.75) if shape == "square" else WIDE
    rows = Portfolio(family, T, 500, 1).draw()
    problem = problem_of(rows, len(T), family)
    moments = SignedMoments.of(problem, channel_of(T))
    B = to_problem(problem, truth(3) + 0.1)
    phi = np.array([0.5, 1.0, 1.5, 2.0, 3.0])
    sums, dispersion = moments.sums_and_dispersion(B, phi)
    U, J, V, slow_dispersion = slow_sums(moments, B, phi)
    np.testing.assert_allclose(sums.U, U, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.J, J, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(sums.V, V, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(dispersion, slow_dispersion, rtol=1e-9)
    evidence = sums.evidence(B)
    precision = J @ np.linalg.inv(V) @ J
    np.testing.assert_allclose(evidence.precision, precision, rtol=1e-5, atol=1e-6 * precision.max())
    shift = J @ np.linalg.inv(V) @ (U + J @ B.T.ravel())
    np.testing.assert_allclose(evidence.shift, shift, rtol=1e-5, atol=1e-6 * np.abs(shift).max())


# dispersion of a row of volume one: the same for all, or by the level of the unaware price
DISPERSIONS = {"same": np.full(5, 1.0), "by level": np.array([0.3, 0.6, 1.0, 2.0, 4.0])}


@pytest.mark.parametrize(
    ("family", "dispersion"),
    [(Poisson(), "same"), (Gamma(), "by level"), (Normal(), "by level")],
    ids=["poisson", "gamma, dispersion by level", "normal, dispersion by level"],
)
def test_the_covariance_is_that_of_the_moments_over_portfolios(
    family: Family, dispersion: str, randomized_response: Callable, channel_of: Callable, sigmas: Callable
) -> None:
    """At the true prices, P(D given x) and dispersion: U has mean zero, U U' has the mean of V, and phi is unbiased."""
    T, R, phi = randomized_response(3, 0.75), 700, DISPERSIONS[dispersion]
    portfolio = Portfolio(family, T, 250, 2)
    problem = problem_of(portfolio.draw(), 3, family)
    channel = channel_of(T)
    learned = SignedMoments.of(problem, channel)
    level = np.searchsorted(learned.edges, (problem.moments.coordinates.matrix(portfolio.X) @ problem.unaware)[:, 0])
    portfolio.phi = phi[level]
    B = to_problem(problem, truth(3))
    U, excess, dispersions = [], [], []
    for _ in range(R):
        rows = portfolio.draw().with_shares(portfolio.known_posterior)
        sums, found = replace(learned, rows=rows).sums_and_dispersion(B, phi)
        U.append(sums.U)
        excess.append(np.outer(sums.U, sums.U) - sums.V)
        dispersions.append(found)
    for values, expected in ((U, 0.0), (excess, 0.0), (dispersions, phi)):
        error = np.std(values, axis=0, ddof=1) / np.sqrt(R)
        z = (np.mean(values, axis=0) - expected) / error
        assert np.abs(z).max() < sigmas(z.size)
    # the comparison has power: a covariance that is a third too large would be seen
    V = np.mean([np.outer(u, u) for u in U], axis=0)
    error = np.std(excess, axis=0, ddof=1) / np.sqrt(R)
    assert (np.abs(V) / 3 / error).max() > sigmas(V.size)


def test_the_slope_is_minus_the_derivative_of_the_moments_in_the_mean(
    randomized_response: Callable, channel_of: Callable, sigmas: Callable
) -> None:
    """J models the mean of -dU/db: at the true P(D given x), both have the same mean over portfolios."""
    T, R = randomized_response(2, 0.75), 200
    portfolio = Portfolio(Poisson(), T, 250, 3)
    problem = problem_of(portfolio.draw(), 2, Poisson())
    learned = SignedMoments.of(problem, channel_of(T))
    B = to_problem(problem, truth(2))
    gaps = []
    for _ in range(R):
        moments = replace(learned, rows=portfolio.draw().with_shares(portfolio.known_posterior))
        J, slope = moments.sums(B).J, np.empty((6, 6))
        for j in range(6):
            step = np.zeros(6)
            step[j] = 1e-5
            move = step.reshape(2, 3).T
            slope[:, j] = (moments.sums(B - move).U - moments.sums(B + move).U) / 2e-5
        gaps.append(slope - J)
    error = np.std(gaps, axis=0, ddof=1) / np.sqrt(R) + 1e-6
    assert np.abs(np.mean(gaps, axis=0) / error).max() < sigmas(36)


def test_the_propensity_is_learned_from_the_reports(randomized_response: Callable, channel_of: Callable) -> None:
    """A logit linear in x is among those that are fitted: with 20,000 rows its error is a few per cent."""
    T = randomized_response(3, 0.75)
    portfolio = Portfolio(Poisson(), T, 20_000, 4)
    rows = portfolio.draw()
    learned = GroupPropensity.learn(problem_of(rows, 3, Poisson()), channel_of(T))
    block = rows.block(0, 20_000)
    gap = learned.posterior(block) - portfolio.known_posterior(block)
    naive = T[np.minimum(rows.report, 2)] - portfolio.known_posterior(block)
    assert np.sqrt(np.mean(gap**2)) < 0.03
    assert np.sqrt(np.mean(naive[rows.report < 3] ** 2)) > 0.1


# --- the same evidence, otherwise stored ---


@pytest.mark.parametrize("family", [Poisson(), Normal()], ids=repr)
def test_rows_of_one_person_count_once(family: Family, randomized_response: Callable, channel_of: Callable) -> None:
    """Three equal rows of each person are as much evidence as one.

    U and J are three times as large and V nine times. Only the ridge of P(D given x) counts rows, which changes r by
    less than a thousandth. Without the persons the evidence would be three times as strong.
    """
    T = randomized_response(3, 0.8)
    once = Portfolio(family, T, 1500, 7).draw()
    person = np.repeat(np.arange(1500), 3)
    thrice = replace(once.take(person), cluster=person)
    channel = channel_of(T)
    found = []
    for rows in (once, thrice, replace(thrice, cluster=None)):
        problem = problem_of(rows, 3, family)
        found.append(SignedMoments.of(problem, channel).sums(to_problem(problem, truth(3))))
    B = to_problem(problem, truth(3))
    single, persons, loose = (sums.evidence(B) for sums in found)
    scale = np.abs(single.precision).max()
    np.testing.assert_allclose(persons.precision, single.precision, atol=3e-3 * scale)
    np.testing.assert_allclose(persons.shift, single.shift, atol=3e-3 * np.abs(single.shift).max())
    np.testing.assert_allclose(loose.precision, 3 * single.precision, atol=1e-2 * scale)


def test_persons_with_independent_rows_have_the_evidence_of_their_rows(
    randomized_response: Callable, channel_of: Callable
) -> None:
    """Two independent rows per person: the factor is one, within the error of 1,500 sums of two."""
    T = randomized_response(2, 0.8)
    rows = Portfolio(Poisson(), T, 3000, 8).draw()
    clustered = replace(rows, cluster=np.arange(3000) // 2)
    factor = SignedMoments.of(problem_of(clustered, 2, Poisson()), channel_of(T)).repeats
    assert 1 <= factor < 1 + 5 / np.sqrt(1500)


@pytest.mark.parametrize("correction", ["inverse", "auto"])
def test_a_source_gives_the_fit_of_the_same_rows_in_memory(
    correction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)  # small enough to be read at once; forbid it
    monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)
    rng = np.random.default_rng(9)
    n, channel = 3000, RandomizedResponse(["A", "B", "C"], keep=0.75)
    d = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    frame = pd.DataFrame({"age": rng.integers(18, 80, n), "area": rng.choice(["city", "land", "sea"], n)})
    frame["exposure"] = rng.uniform(0.2, 1, n)
    rate = np.exp(-0.5 + 0.01 * frame["age"] + 0.3 * d)
    frame["claims"] = rng.poisson(rate * frame["exposure"]) / frame["exposure"]
    report = np.array(channel.privatize(np.array(["A", "B", "C"])[d], rng=0), dtype=object)
    report[rng.random(n) < 0.05] = None
    frame["report"] = report
    for i, part in enumerate((frame[:700], frame[700:2900], frame[2900:])):
        part.to_parquet(tmp_path / f"part-{i}.parquet", index=False, row_group_size=500)
    settings = {"family": "poisson", "channel": channel, "correction": correction, "random_state": 0}
    features = ["age", "area"]
    memory = DiscriminationFreePricer(**settings).fit(
        frame[features], frame["claims"], sensitive=frame["report"], sample_weight=frame["exposure"]
    )
    stream = DiscriminationFreePricer(**settings).fit(
        tmp_path, "claims", sensitive="report", sample_weight="exposure", features=features
    )
    assert stream.correction_ == memory.correction_
    np.testing.assert_allclose(stream.predict(frame[features]), memory.predict(frame[features]), rtol=1e-6)
    for a, b in zip(stream.predict_interval(frame[features]), memory.predict_interval(frame[features]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


# --- where there is little to learn from ---


@pytest.mark.parametrize("correction", ["inverse", "auto"])
@pytest.mark.parametrize("seed", range(2))
def test_a_tiny_group_has_prices_near_the_others(correction: str, seed: int) -> None:
    """One per cent of the policies, a claim in ten years: its own rows say nothing, so that it is pooled."""
    rng = np.random.default_rng([seed, 10])
    n, channel = 4000, RandomizedResponse(["A", "B", "C"], keep=0.8)
    d = rng.choice(3, n, p=[0.6, 0.39, 0.01])
    X = pd.DataFrame({"age": rng.normal(45, 15, n), "area": rng.choice(["city", "land"], n)})
    y = rng.poisson(0.1 * np.exp(0.2 * (d == 1)), n).astype(float)
    pricer = DiscriminationFreePricer(family="poisson", channel=channel, correction=correction, random_state=0)
    pricer.fit(X, y, sensitive=channel.privatize(np.array(["A", "B", "C"])[d], rng=rng))
    ratio = pricer.predict_best_estimate(X).to_numpy() / np.asarray(pricer.predict_unaware(X))[:, None]
    assert np.isfinite(ratio).all()
    assert ratio.min() > 0.25
    assert ratio.max() < 4
    lower, upper = pricer.predict_interval(X)
    assert np.isfinite(lower).all()
    assert np.isfinite(upper).all()


@pytest.mark.parametrize("family", ["poisson", "tweedie"])
def test_a_level_without_a_claim_is_named_and_priced(family: str) -> None:
    rng = np.random.default_rng(11)
    n, channel = 1500, RandomizedResponse(["F", "M"], keep=0.8)
    d = rng.integers(2, size=n)
    X = pd.DataFrame(
        {"age": rng.normal(45, 15, n), "area": rng.choice(["city", "land", "moon"], n, p=[0.6, 0.38, 0.02])}
    )
    y = np.where(X["area"] == "moon", 0, rng.poisson(0.3 + 0.1 * d)).astype(float)
    pricer = DiscriminationFreePricer(family=family, channel=channel, random_state=0)
    with pytest.warns(UserWarning, match="moon.*have no loss at all"):
        pricer.fit(X, y, sensitive=channel.privatize(np.array(["F", "M"])[d], rng=rng))
    price = np.asarray(pricer.predict(X))
    assert np.isfinite(price).all()
    moon = (X["area"] == "moon").to_numpy()
    assert price.min() > 0
    assert price[moon].mean() < 0.5 * price[~moon].mean()

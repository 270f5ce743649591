"""What the paper prints and what is right: each erratum that can be computed, computed.

numpy only, and T is written here: these tests do not depend on the library. See docs/guide/errata.md. All of
them are exact (populations are enumerated, nothing is sampled from them); tolerances are those of double
precision.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

CASES = [(K, keep) for K in (2, 3, 4, 5) for keep in (0.95, 0.7, 0.55)]
RNG_SEED = 20250


def randomized_response(K, keep):
    """T[s, d] = P(S = s given D = d)."""
    T = np.full((K, K), (1 - keep) / (K - 1))
    np.fill_diagonal(T, keep)
    return T


def constants(K, keep):
    return (keep + K - 2) / (K * keep - 1), (keep - 1) / (K * keep - 1)


def group_shares(K, how_many=20):
    """Random P(D), every group at least 2 %."""
    draws = np.random.default_rng([RNG_SEED, K]).dirichlet(np.ones(K), size=how_many)
    return 0.02 + (1 - 0.02 * K) * draws


def pi_matrix(T, p):
    """Pi[j, k] = P(D = k given S = j), as the proof of Lemma 4.2 defines it."""
    joint = T * p
    return joint / joint.sum(axis=1, keepdims=True)


def printed_pi_inverse(K, keep, p):
    """Lemma 4.2 as printed."""
    other = (1 - keep) / (K - 1)
    C1, C2 = constants(K, keep)
    out = np.empty((K, K))
    for i in range(K):
        for j in range(K):
            if i == j:
                out[i, j] = C1 * (keep * p[i] + other * (1 - p[i])) / p[i]
            else:
                out[i, j] = C2 * (other * p[i] + keep * (1 - p[i])) / p[i]
    return out


def correct_pi_inverse(T, p):
    """Pi^-1[k, j] = T^-1[k, j] P(S = j) / P(D = k)."""
    return np.linalg.inv(T) * (T @ p) / p[:, None]


# --- Lemma 4.2: T^-1 and Pi^-1 -----------------------------------------------------------------------------


@pytest.mark.parametrize("K, keep", CASES)
def test_the_inverse_channel_of_lemma_4_2_is_right(K, keep):
    T = randomized_response(K, keep)
    C1, C2 = constants(K, keep)
    printed = np.full((K, K), C2)
    np.fill_diagonal(printed, C1)
    np.testing.assert_allclose(printed @ T, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(printed.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("K, keep", CASES)
def test_the_corrected_inverse_of_pi_is_the_inverse(K, keep):
    T = randomized_response(K, keep)
    for p in group_shares(K):
        np.testing.assert_allclose(correct_pi_inverse(T, p), np.linalg.inv(pi_matrix(T, p)), rtol=1e-8)
        np.testing.assert_allclose(correct_pi_inverse(T, p).sum(axis=1), 1, atol=1e-9)


@pytest.mark.parametrize("keep", [0.95, 0.7, 0.55])
def test_the_printed_inverse_of_pi_is_right_for_two_groups(keep):
    T = randomized_response(2, keep)
    for p in group_shares(2):
        np.testing.assert_allclose(printed_pi_inverse(2, keep, p), correct_pi_inverse(T, p), rtol=1e-10)


@pytest.mark.parametrize("K, keep", [case for case in CASES if case[0] >= 3])
def test_the_printed_inverse_of_pi_is_wrong_for_more(K, keep):
    # It would need 1 - p_i = p_j for every i and j, which more than two groups cannot satisfy. Its rows sum
    # to 1 - (1 - pi) (K - 2) / (K - 1) (1 - p_i) / p_i instead of one.
    T = randomized_response(K, keep)
    for p in group_shares(K):
        printed = printed_pi_inverse(K, keep, p)
        gap = (1 - keep) * (K - 2) / (K - 1) * (1 - p) / p
        np.testing.assert_allclose(printed.sum(axis=1), 1 - gap, rtol=1e-9, atol=1e-9)
        assert gap.max() >= (1 - keep) * (K - 2) * (1 - 1e-9)  # the smallest p_i is at most 1/K
        assert np.abs(printed @ pi_matrix(T, p) - np.eye(K)).max() > 0.02


def test_the_printed_inverse_is_wrong_for_equal_groups_too():
    p = np.full(3, 1 / 3)
    printed = printed_pi_inverse(3, 0.7, p)
    np.testing.assert_allclose(printed.sum(axis=1), 0.7)  # 1 - .3 * (1/2) * 2
    np.testing.assert_allclose(correct_pi_inverse(randomized_response(3, 0.7), p).sum(axis=1), 1)


def test_the_proof_lost_an_inverse():
    # "P(D = k) = sum_j T_kj P(S = j)": one more layer of noise instead of one less.
    T, p = randomized_response(3, 0.7), np.array([0.7, 0.2, 0.1])
    s = T @ p
    np.testing.assert_allclose(np.linalg.inv(T) @ s, p, atol=1e-12)
    np.testing.assert_allclose(s, [0.535, 0.26, 0.205], atol=1e-12)
    np.testing.assert_allclose(T @ s, [0.44425, 0.293, 0.26275], atol=1e-12)
    assert np.abs(T @ s - p).max() > np.abs(s - p).max()


def test_the_proof_of_theorem_4_3_transposes_pi():
    # "Pi_kj = P(D = k given S = j)" has Pi_kj^-1 = T^-1_kj P(S = j) / P(D = k) only when read as Pi_jk.
    T, p = randomized_response(3, 0.7), np.array([0.7, 0.2, 0.1])
    claimed = correct_pi_inverse(T, p)
    np.testing.assert_allclose(claimed @ pi_matrix(T, p), np.eye(3), atol=1e-12)
    assert np.abs(claimed @ pi_matrix(T, p).T - np.eye(3)).max() > 0.2


# --- the risk, over a small population in which everything can be enumerated -------------------------------


def population(K, seed):
    """P(X = x, Y = y, D = d) over 3 values of x and 4 of y, and one arbitrary f_k(x) per group."""
    rng = np.random.default_rng([RNG_SEED, K, seed])
    joint = rng.dirichlet(np.full(12 * K, 0.7)).reshape(3, 4, K)
    joint = 0.9 * joint + 0.1 / joint.size  # no group is empty
    y = np.array([0.0, 1.0, 3.0, 10.0])
    f = rng.normal(2, 3, size=(K, 3))
    loss = (f[:, :, None] - y) ** 2  # (k, x, y)
    return joint, loss


def true_risk(joint, loss):
    """sum_k E[1{D = k} L(f_k(X), Y)]."""
    return np.einsum("xyk,kxy->", joint, loss)


@pytest.mark.parametrize("K, keep", CASES)
def test_the_inverse_weighted_risk_is_unbiased_for_every_f(K, keep):
    T = randomized_response(K, keep)
    for seed in range(5):
        joint, loss = population(K, seed)
        observed = np.einsum("sd,xyd->xys", T, joint)  # P(X, Y, S)
        risk = np.einsum("ks,xys,kxy->", np.linalg.inv(T), observed, loss)
        assert risk == pytest.approx(true_risk(joint, loss), rel=1e-10)


def risk_with(pi_inverse, T, joint, loss):
    """Equation (Risk-LDP): sum_kj Pi^-1_kj E[L(f_k(X), Y) given S = j] P(D = k)."""
    observed = np.einsum("sd,xyd->xys", T, joint)
    given_s = np.einsum("xys,kxy->ks", observed, loss) / observed.sum(axis=(0, 1))
    return (pi_inverse * given_s * joint.sum(axis=(0, 1))[:, None]).sum()


@pytest.mark.parametrize("K, keep", CASES)
def test_the_risk_of_lemma_4_2_holds_with_the_corrected_inverse_only(K, keep):
    T = randomized_response(K, keep)
    joint, loss = population(K, 0)
    p, truth = joint.sum(axis=(0, 1)), true_risk(joint, loss)
    assert risk_with(correct_pi_inverse(T, p), T, joint, loss) == pytest.approx(truth, rel=1e-10)
    printed = risk_with(printed_pi_inverse(K, keep, p), T, joint, loss)
    if K == 2:
        assert printed == pytest.approx(truth, rel=1e-10)
    else:
        assert abs(printed - truth) > 0.02 * truth


def test_the_printed_risk_prefers_the_wrong_price():
    # Three groups that all cost 1 or 3 with equal chances, so every f_k should be 2. With squared loss the
    # printed risk of group k is a (2 - f_k)^2 + const, where a has the sign of its row sum. At keep = .5 and
    # p_1 = .1 the row sum is 1 - .5 * .5 * 9 = -1.25: the printed risk has no minimum at all.
    p = np.array([0.1, 0.45, 0.45])
    rows = printed_pi_inverse(3, 0.5, p).sum(axis=1)
    assert rows[0] == pytest.approx(-1.25)
    joint = np.array([0.5, 0.0, 0.5])[None, :, None] * p  # y = 1, 2, 3

    def risk(f1, matrix):
        loss = (np.array([f1, 2.0, 2.0])[:, None, None] - np.array([1.0, 2.0, 3.0])) ** 2
        return risk_with(matrix, randomized_response(3, 0.5), joint, loss)

    printed = printed_pi_inverse(3, 0.5, p)
    right = correct_pi_inverse(randomized_response(3, 0.5), p)
    assert risk(100, printed) < risk(10, printed) < risk(2, printed)
    assert risk(2, right) < min(risk(1.9, right), risk(2.1, right))


# --- Theorem 4.3 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("K, keep", CASES)
def test_the_constant_printed_in_theorem_4_3(K, keep):
    C1, C2 = constants(K, keep)
    printed = (keep + K - 2) / (K * keep) - 1
    assert np.linalg.inv(randomized_response(K, keep))[0, 0] == pytest.approx(C1)
    assert printed < 0.5
    assert C1 >= 1  # the diagonal of T^-1 is never below one
    assert pytest.approx(1) == C1 + (K - 1) * C2
    assert C1 + (K - 1) * abs(C2) == pytest.approx(2 * C1 - 1)


def test_the_bound_grows_with_the_groups_at_fixed_epsilon_only():
    # The remark says "linearly with the number of groups". Yes at fixed epsilon, where
    # C1 = (e^eps + K - 2)/(e^eps - 1); at fixed keep C1 tends to 1/keep.
    K = np.array([2, 3, 4, 5, 50])
    e = math.e
    keep = e / (K - 1 + e)
    np.testing.assert_allclose((keep + K - 2) / (K * keep - 1), (e + K - 2) / (e - 1))
    assert constants(10**9, 0.5)[0] == pytest.approx(2)


def binomial_tail(n, probability, at_least):
    """P(|N/n - probability| > at_least), exact, for N binomial."""
    k = np.arange(n + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    log_pmf = log_factorial[n] - log_factorial[k] - log_factorial[n - k]
    log_pmf = log_pmf + k * math.log(probability) + (n - k) * math.log(1 - probability)
    return np.exp(log_pmf)[np.abs(k / n - probability) > at_least].sum()


def test_the_deviation_needs_its_square_root():
    # The last line of the proof has log(1/delta)/(2n) without the root. Take one function with losses 0 and 1
    # and no privacy noise, so M = 1 and A = 1: P(Delta > 2 Rad + term) must be at most delta.
    # Rad <= sqrt(E[h^2]/n) = sqrt(.5/n).
    n, delta = 10_000, 1e-3
    rademacher = math.sqrt(0.5 / n)
    term = math.log(1 / delta) / (2 * n)
    assert binomial_tail(n, 0.5, 2 * rademacher + math.sqrt(term)) <= delta
    assert binomial_tail(n, 0.5, 2 * rademacher + term) > 3 * delta


# --- Procedure 4.5 and Theorem 4.6 -------------------------------------------------------------------------


def keep_of(C1, K):
    """The keep that belongs to C1: C1 (K pi - 1) = pi + K - 2."""
    return (C1 + K - 2) / (K * C1 - 1)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_averaging_c1_gives_a_lower_keep_than_averaging_keep(K):
    rng = np.random.default_rng([RNG_SEED, K])
    for _ in range(200):
        keeps = rng.uniform(1 / K + 0.02, 1, size=4)
        C1 = np.array([constants(K, keep)[0] for keep in keeps])
        np.testing.assert_allclose(keep_of(C1, K), keeps)
        assert keep_of(C1.mean(), K) < keeps.mean()  # C1 is convex and falls with keep


def test_how_much_lower_the_average_of_c1_is():
    keeps = np.array([0.55, 0.65, 0.75, 0.85])
    C1 = np.array([constants(2, keep)[0] for keep in keeps])
    assert keeps.mean() == pytest.approx(0.70)
    assert keep_of(C1.mean(), 2) == pytest.approx(0.619, abs=5e-4)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_c1_has_a_pole_at_one_over_the_number_of_groups(K):
    just_above, below = constants(K, 1 / K + 1e-6)[0], constants(K, 1 / K - 0.05)[0]
    assert just_above > 1e4
    assert below < 0
    # A rare j* gives a largest P(S = j* given x) below 1/K; the average is then nonsense although three of
    # the four parts are perfect. Clipping at C1 >= 1, as the proof does, at least keeps it a channel.
    C1 = np.array([constants(K, 0.9)[0]] * 3 + [below])
    assert C1.mean() < 1
    assert not 1 / K < keep_of(C1.mean(), K) <= 1
    assert 1 / K < keep_of(np.maximum(C1, 1).mean(), K) <= 1


@pytest.mark.parametrize("keep, reached", [(0.9, 0.74), (0.8, 0.68), (0.7, 0.62)])
def test_the_synthetic_portfolio_has_no_anchor_point(keep, reached):
    # P(F given smoker) = .8, P(F given non-smoker) = (.45 - .3 * .8) / .7 = .3; age says nothing about D.
    non_smoker = (0.45 - 0.3 * 0.8) / 0.7
    assert non_smoker == pytest.approx(0.3)
    q = np.array([[0.8, 0.2], [non_smoker, 1 - non_smoker]])  # P(D given x), F first
    reports = q @ randomized_response(2, keep)
    assert q.max() == 0.8
    assert reports[:, 0].max() == pytest.approx(reached)  # what the anchor method converges to: below keep
    assert reports[:, 0].max() < keep


def test_two_or_four_splits_are_far_from_what_theorem_4_6_asks():
    # Most favourable reading: no bias, estimates that do not vary (M_g = C1 / ln 2), c = 1.
    C1, error, delta = constants(2, 0.8)[0], 0.1, 0.05
    norm = 2 * C1 / math.log(2)
    assert math.ceil(norm**2 * math.log(2 / delta) / error**2) == 5460

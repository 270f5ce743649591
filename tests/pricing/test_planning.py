"""The plan's variances against drawing, its limits, and its errors.

Drawn variances are compared in units of their standard error, variance * sqrt(2 / (repeats - 1)); the limit 5
has a false-alarm probability of 6e-7 per comparison. There are about 60 comparisons here.
"""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fairpremium.pricing._planning import plan
from fairpremium.privacy import Channel, RandomizedResponse, SubsetSelection

LIMIT = 5.0


def randomized_response(K, keep):
    T = np.full((K, K), (1 - keep) / (K - 1))
    np.fill_diagonal(T, keep)
    return T


def draw(T, inverse, p, sd, m, n, repeats, rng):
    """Group means and shares estimated from reports, by drawing the counts and sums per (report, group)."""
    counts = rng.multinomial(n, (T * p).ravel(), size=repeats).reshape(repeats, *T.shape)  # (r, s, j)
    sums = counts * m + np.sqrt(counts) * sd * rng.standard_normal(counts.shape)
    shares = counts.sum(axis=2) @ inverse.T / n
    return sums.sum(axis=2) @ inverse.T / n / shares, shares


SETTINGS = {
    "two equal": (2, 0.75, [0.5, 0.5], [1, 1], [0, 0]),
    "two, one rare": (2, 0.8, [0.9, 0.1], [1, 2], [0, 1.5]),
    "three equal": (3, 0.6, [1 / 3] * 3, [1, 1, 1], [0, 1, 2]),
    "three": (3, 0.8, [0.7, 0.2, 0.1], [1, 3, 0.5], [1, 1, 1]),
    "four equal": (4, 0.475, [0.25] * 4, [1, 1, 1, 1], [0, 0, 0, 3]),
    "four": (4, 0.7, [0.4, 0.3, 0.2, 0.1], [0.5, 1, 1.5, 2], [-1, 0, 1, 2]),
    "five equal": (5, 0.6, [0.2] * 5, [1] * 5, [0, 1, 0, 1, 0]),
    "five": (5, 0.8, [0.5, 0.2, 0.15, 0.1, 0.05], [1, 1, 2, 2, 1], [0, 1, 2, 3, 4]),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_standard_errors_are_those_of_drawn_portfolios(setting):
    K, keep, p, sd, m = SETTINGS[setting]
    T = randomized_response(K, keep)
    n, repeats = 1_000_000, 40_000
    rng = np.random.default_rng(list(setting.encode()))
    means, shares = draw(T, np.linalg.inv(T), np.array(p), np.array(sd), np.array(m), n, repeats, rng)
    table = plan(K, keep=keep, shares=p, rows=n, outcome_sd=sd, outcome_means=m).table
    for drawn, claimed, centre in ((means, table["standard_error"], m), (shares, table["share_error"], p)):
        ratio = drawn.var(axis=0, ddof=1) / claimed.to_numpy() ** 2
        assert np.abs(ratio - 1).max() < LIMIT * math.sqrt(2 / (repeats - 1))
        z = (drawn.mean(axis=0) - centre) / (claimed / math.sqrt(repeats))
        assert np.abs(z).max() < LIMIT


def test_any_channel_against_drawing():
    # more reports than groups
    T = np.array([[0.7, 0.1, 0.2], [0.1, 0.6, 0.1], [0.1, 0.2, 0.6], [0.1, 0.1, 0.1]])
    channel = SimpleNamespace(matrix=T, inverse=np.linalg.pinv(T), groups=("a", "b", "c"), epsilon=1.9)
    p, sd, m = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 1.0]), np.array([0.0, 1.0, 3.0])
    n, repeats = 1_000_000, 40_000
    result = plan(channel=channel, shares=p, rows=n, outcome_sd=sd, outcome_means=m)
    means, _ = draw(T, channel.inverse, p, sd, m, n, repeats, np.random.default_rng(0))
    ratio = means.var(axis=0, ddof=1) / result.table["standard_error"].to_numpy() ** 2
    assert np.abs(ratio - 1).max() < LIMIT * math.sqrt(2 / (repeats - 1))
    assert result.table["group"].tolist() == ["a", "b", "c"]
    assert math.isnan(result.keep)
    assert result.epsilon == 1.9


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_a_channel_object_gives_the_same_plan(K):
    T = randomized_response(K, 0.7)
    channel = SimpleNamespace(matrix=T, inverse=np.linalg.inv(T), groups=range(1, K + 1), keep=0.7, epsilon=2)
    a, b = plan(K, keep=0.7, rows=100), plan(channel=channel, rows=100)
    np.testing.assert_allclose(a.table, b.table)


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_without_noise_nothing_is_lost(K):
    p = np.arange(1, K + 1) / (K * (K + 1) / 2)
    sd = np.linspace(1, 2, K)
    table = plan(K, keep=1.0, shares=p, rows=1000, outcome_sd=sd, outcome_means=p * 9, standard_error=0.1).table
    np.testing.assert_allclose(table["inflation"], 1)
    np.testing.assert_allclose(table["effective_rows"], 1000 * p)
    np.testing.assert_allclose(table["standard_error"], sd / np.sqrt(1000 * p))
    np.testing.assert_allclose(table["share_error"], np.sqrt(p * (1 - p) / 1000))
    assert table["rows_needed"].tolist() == table["rows_needed_known"].tolist()
    assert (table["posterior"] == 1).all()
    nearly = plan(K, keep=1 - 1e-9, shares=p, outcome_sd=sd, outcome_means=p * 9).table
    np.testing.assert_allclose(nearly["inflation"], 1, atol=1e-6)


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_more_privacy_costs_more(K):
    inflations = [plan(K, epsilon=e).table["inflation"][0] for e in (4, 2, 1, 0.5, 0.25)]
    assert inflations == sorted(inflations)
    assert inflations[0] > 1
    # rows are as C1^2 when privacy is strong: halving a small epsilon takes four times the rows
    small = [plan(K, epsilon=e).table["inflation"][0] for e in (0.01, 0.005)]
    assert small[1] / small[0] == pytest.approx(4, rel=0.02)


def test_differences_between_groups_cost():
    equal = plan(2, keep=0.8).table["inflation"]
    apart = plan(2, keep=0.8, outcome_means=[0, 2]).table["inflation"]
    assert (apart > equal).all()


@pytest.mark.parametrize("K, epsilon", [(2, 1.0), (3, 0.5), (5, 2.0)])
def test_what_a_report_tells(K, epsilon):
    p = np.arange(1, K + 1) / (K * (K + 1) / 2)
    result = plan(K, epsilon=epsilon, shares=p)
    odds = p / (1 - p) * math.exp(epsilon)
    np.testing.assert_allclose(result.table["posterior"], odds / (1 + odds))
    T = randomized_response(K, result.keep)
    worst = max(T[s, k] * p[k] / (T[s] @ p) for s in range(K) for k in range(K))
    assert result.table["posterior"].max() == pytest.approx(worst)
    assert result.epsilon == epsilon
    assert plan(K, keep=result.keep).epsilon == pytest.approx(epsilon)


def test_rows_needed_by_substitution():
    options = {"groups": 3, "epsilon": 1.0, "shares": [0.7, 0.2, 0.1], "outcome_means": [1, 2, 3]}
    needed = plan(standard_error=0.02, **options).table["rows_needed"]
    for k, n in enumerate(needed):
        assert plan(rows=n, **options).table["standard_error"][k] <= 0.02
        assert plan(rows=n - 1, **options).table["standard_error"][k] > 0.02
        one = plan(rows=int(n), **options).table.loc[k]
        assert one["effective_rows"] == pytest.approx(n * one["share"] / one["inflation"])


def test_labels_mappings_and_columns():
    a = plan(["x", "y"], keep=0.8, shares={"y": 0.3, "x": 0.7}, outcome_sd={"y": 2.0, "x": 1.0})
    b = plan(2, keep=0.8, shares=(0.7, 0.3), outcome_sd=np.array([1.0, 2.0]))
    assert a.table["group"].tolist() == ["x", "y"]
    assert b.table["group"].tolist() == [1, 2]
    np.testing.assert_array_equal(a.table.drop(columns="group"), b.table.drop(columns="group"))
    base = ["group", "share", "posterior", "c1", "inflation"]
    assert a.table.columns.tolist() == base
    full = plan(2, keep=0.8, rows=10, standard_error=1.0).table.columns.tolist()
    assert full[5:] == ["effective_rows", "standard_error", "share_error", "rows_needed", "rows_needed_known"]


def test_the_plan_for_people_and_for_machines():
    result = plan(["F", "M"], keep=1.0, rows=1000, standard_error=0.1)
    said = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert said["epsilon"] is None  # no privacy: infinite
    assert said["rows"] == 1000
    assert said["groups"][1]["group"] == "M"
    assert said["groups"][1]["rows_needed"] == 200
    text = repr(plan(["F", "M"], epsilon=1.0, rows=1000, standard_error=0.1))
    assert text.startswith("Plan(keep=0.7311, epsilon=1, rows=1000, standard_error=0.1)\n")
    assert "inflation" in text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"keep": None}, "exactly one"),
        ({"epsilon": 1.0}, "exactly one"),
        ({"keep": 0.5}, "at 1/2 a report says nothing"),
        ({"groups": None}, "neither groups nor channel"),
        ({"groups": 1}, r"Got 1 group\(s\)"),
        ({"shares": [0.5, 0.4]}, "Divide them by their sum"),
        ({"shares": [1.0, 0.0]}, "leave out groups"),
        ({"shares": [math.nan, 1.0]}, "Got shares="),
        ({"shares": [0.5, 0.3, 0.2]}, "expected 2 numbers"),
        ({"shares": {"F": 0.5, "M": 0.5}}, "one number for each of"),
        ({"rows": 0}, "Got rows=0"),
        ({"standard_error": 0.0}, "Got standard_error=0"),
        ({"outcome_sd": 0.0}, "Got outcome_sd=0"),
        ({"outcome_sd": [1.0, -1.0]}, "Got outcome_sd="),
        ({"outcome_sd": [1.0, 1.0, 1.0]}, "expected 2 numbers"),
        ({"outcome_means": [1.0, math.inf]}, "Got outcome_means="),
        ({"channel": SimpleNamespace(inverse=np.eye(2))}, "expected the channel alone"),
    ],
)
def test_mistakes(change, message):
    with pytest.raises(ValueError, match=message):
        plan(**{"groups": 2, "keep": 0.8, **change})


def test_mistakes_of_type_and_channel():
    with pytest.raises(TypeError, match=r"Got rows=10.5"):
        plan(2, keep=0.8, rows=10.5)
    with pytest.raises(TypeError, match="expected an object with `inverse`"):
        plan(channel=0.8)
    T = randomized_response(2, 0.8)
    with pytest.raises(ValueError, match="its left inverse"):
        plan(channel=SimpleNamespace(matrix=T, inverse=T, groups=("F", "M")))


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_the_library_s_own_channels(K):
    channel = RandomizedResponse([f"g{k}" for k in range(K)], keep=0.7)
    a, b = plan(channel=channel, rows=100), plan(list(channel.groups), keep=0.7, rows=100)
    np.testing.assert_allclose(a.table.drop(columns="group"), b.table.drop(columns="group"))
    assert (a.keep, a.epsilon) == (pytest.approx(0.7), pytest.approx(b.epsilon))


def test_two_attributes_multiply_what_they_cost():
    one = RandomizedResponse(["F", "M"], keep=0.8)
    both = plan(channel=Channel.product(one, one))
    assert both.table["group"][1] == ("F", "M")
    assert both.table["inflation"][0] == pytest.approx(plan(channel=one).table["inflation"][0] ** 2)
    assert both.epsilon == pytest.approx(2 * one.epsilon)
    assert json.loads(json.dumps(both.to_dict(), allow_nan=False))["groups"][1]["group"] == ["F", "M"]


# --- people choose their epsilon ---

CHOSEN = {1.0: 0.5, 2.0: 0.3, 4.0: 0.2}


def test_choices_against_drawn_portfolios():
    p, sd, m = np.array([0.6, 0.3, 0.1]), np.array([1.0, 2.0, 1.0]), np.array([0.0, 1.0, 3.0])
    n, repeats = 1_000_000, 20_000
    result = plan(3, epsilon=CHOSEN, shares=p, rows=n, outcome_sd=sd, outcome_means=m)
    rng = np.random.default_rng(5)
    means, totals, volumes = [], 0, 0
    for epsilon, q in CHOSEN.items():
        T = randomized_response(3, plan(3, epsilon=epsilon).keep)
        mean, share = draw(T, np.linalg.inv(T), p, sd, m, int(n * q), repeats, rng)
        means.append(mean)
        totals, volumes = totals + q * mean * share, volumes + q * share
    precision = np.array([q / source.var(axis=0) for source, q in zip(means, [1, 1, 1], strict=True)])
    best = sum(w * mean for w, mean in zip(precision / precision.sum(axis=0), means, strict=True))
    known = sd**2 / p / n
    for drawn, claimed in ((best, "inflation"), (totals / volumes, "inflation_inverse")):
        ratio = drawn.var(axis=0, ddof=1) / known / result.table[claimed]
        assert np.abs(ratio - 1).max() < LIMIT * math.sqrt(2 / (repeats - 1))
    np.testing.assert_allclose(result.table["standard_error"] ** 2, known * result.table["inflation"])


def test_what_each_choice_is_worth():
    settings = {"shares": [0.7, 0.3], "rows": 10_000, "standard_error": 0.02}
    result = plan(["F", "M"], epsilon=CHOSEN, **settings)
    assert result.choices["epsilon"].tolist() == [1, 1, 2, 2, 4, 4]
    np.testing.assert_allclose(result.choices.groupby("group")["part"].sum(), 1)
    for epsilon, part in result.choices.groupby("epsilon"):
        alone = plan(["F", "M"], epsilon=epsilon, **settings).table
        for name in ("inflation", "standard_error", "rows_needed"):
            np.testing.assert_allclose(part[name], alone[name])
        np.testing.assert_allclose(part["worth"], 1 / alone["inflation"])
    # rows needed are the harmonic mean of those of the choices
    harmonic = 1 / sum(q / result.choices.query("epsilon == @e")["rows_needed"].to_numpy() for e, q in CHOSEN.items())
    np.testing.assert_allclose(result.table["rows_needed"], harmonic, rtol=1e-3)
    assert (result.table["inflation_inverse"] > result.table["inflation"]).all()
    assert result.epsilon == 4
    assert result.mechanisms is None
    assert result.recommended is None
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["choices"][0]["chosen"] == 0.5


def test_one_choice_is_no_choice():
    one, plain = plan(3, epsilon={1.0: 1.0}, rows=10), plan(3, epsilon=1.0, rows=10)
    np.testing.assert_allclose(one.table, plain.table)
    np.testing.assert_allclose(plan(2, epsilon=[1, 3]).table, plan(2, epsilon={1: 0.5, 3: 0.5}).table)


@pytest.mark.parametrize(
    "epsilon", [{}, [], {1: 0.5}, {1: 0.5, 2: 0.6}, {1: 1.5, 2: -0.5}, [1, 1], {1: math.nan, 2: 0.5}]
)
def test_other_choices(epsilon):
    with pytest.raises(ValueError, match="Got epsilon="):
        plan(2, epsilon=epsilon)


# --- the mechanism ---


@pytest.mark.parametrize(
    ("K", "epsilon", "recommended"),
    [(2, 1.0, "randomized"), (5, 1.0, "randomized"), (6, 1.0, "subset"), (12, 1.0, "subset"), (12, 4.0, "randomized")],
)
def test_the_recommended_mechanism(K, epsilon, recommended):
    result = plan(K, epsilon=epsilon)
    assert result.recommended.startswith(recommended)
    one, several = result.mechanisms["inflation"]
    assert one == pytest.approx(result.table["inflation"].max())
    chosen = plan(K, epsilon=epsilon, mechanism="subset-selection").table
    assert several == pytest.approx(chosen["inflation"].max())
    channel = SubsetSelection(range(1, K + 1), epsilon)
    np.testing.assert_allclose(chosen["inflation"], plan(channel=channel).table["inflation"])


def test_twelve_groups():
    table = plan(12, epsilon=1.0).mechanisms.set_index("mechanism")
    assert table["inflation"].astype(int).tolist() == [58, 37]
    assert table["size"].tolist() == [1, 3]
    assert table["reports"].tolist() == [12, 220]


def test_where_the_best_size_has_too_many_reports_a_smaller_one_is_planned():
    result = plan(20, epsilon=0.5)
    assert result.recommended == "subset-selection"
    assert result.mechanisms["size"].tolist() == [1, 3]
    assert plan(20, epsilon=0.5, mechanism="subset-selection").table["inflation"][0] == pytest.approx(
        result.mechanisms["inflation"][1]
    )
    assert plan(100, epsilon=0.5).mechanisms["mechanism"].tolist() == ["randomized-response"]


@pytest.mark.parametrize("more", [{"keep": 0.8, "epsilon": None}, {"mechanism": "unary"}, {"epsilon": None}])
def test_other_mechanisms(more):
    with pytest.raises(ValueError, match="mechanism="):
        plan(**{"groups": 4, "epsilon": 1.0, "mechanism": "subset-selection", **more})

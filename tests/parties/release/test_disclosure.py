"""Rules 1 to 5 and 7: what they measure, what they refuse, and that they do not look at reports."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from fairpremium import LinearModel, RandomizedResponse
from fairpremium.families import get_family
from fairpremium.parties.release._disclosure import (
    RefusedError,
    RuleResult,
    Rules,
    cell_sizes,
    check_overlap,
    rarest_report,
    refuse,
    round_count,
)
from fairpremium.parties.release._fit_data import FitData
from fairpremium.parties.release._public_data import (
    largest_leverage,
    largest_score_share,
    public_problem,
    read_rows,
)
from fairpremium.parties.release._release import FitSettings, check_reports
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=2000, rng=3)


@pytest.fixture(scope="module")
def reports(portfolio):
    return CHANNEL.privatize(portfolio.sensitive, rng=4)


def check_fit(X, y, weight, reports, channel, family, model, rules=None):
    settings = FitSettings(family, model)
    return check_reports(settings, FitData(X, y, weight, reports), channel.reports, rules or Rules())


def broken(X, y, reports, *, weight=None, family="normal", rules=None, channel=CHANNEL):
    rule_results = check_fit(X, y, weight, reports, channel, family, "linear", rules)
    assert [v.rule for v in rule_results] == [1, 2, 3, 4]
    return {v.rule for v in rule_results if not v.passed}


@pytest.mark.parametrize("what", ["y", "weight"])
@pytest.mark.parametrize("unit", [1e-155, 3e-163, 1e-200, 1e150])
def test_no_share_depends_on_units(what, unit):
    """Also where squares are zero, or infinite, as floats."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 3))
    X[:, 2] = np.arange(400) < 20
    y, weight = X[:, 0] + rng.normal(size=400), rng.uniform(0.5, 1, 400)
    y[0] = 30.0
    family, found = get_family("normal"), []
    for scale in (1.0, unit):
        columns = {"y": y, "weight": weight}
        columns[what] = columns[what] * scale
        rows, design = read_rows(X, columns["y"], columns["weight"], family)
        problem = public_problem(rows, design, family, LinearModel())
        found.append([largest_leverage(problem, design), largest_score_share(problem, design)])
    assert found[0][1].share > 0.5
    for one, other in zip(*found, strict=True):
        assert other.share == pytest.approx(one.share, rel=1e-6)
        assert other.column == one.column


def test_an_honest_fit_passes(portfolio, reports):
    assert broken(portfolio.X, portfolio.y, reports) == set()


def test_an_honest_fit_of_counts_with_exposure_passes():
    p = unbalanced_poisson(5000, (0.6, 0.3, 0.1), rng=5)
    channel = RandomizedResponse(p.groups, epsilon=1.0)
    reports = channel.privatize(p.sensitive, rng=6)
    assert broken(p.X, p.y, reports, weight=p.sample_weight, family="poisson", channel=channel) == set()


def test_too_few_rows_of_a_report_are_refused(portfolio):
    reports = np.array(["F"] * 1901 + ["M"] * 99)
    assert 1 in broken(portfolio.X, portfolio.y, reports)
    reports[0] = "M"
    assert 1 not in broken(portfolio.X, portfolio.y, reports)


def test_missing_reports_do_not_count(portfolio, reports):
    few = np.array(reports, dtype=object)
    few[150:] = None
    assert 1 in broken(portfolio.X, portfolio.y, few)


def test_a_few_heavy_rows_are_few_effective_rows(portfolio, reports):
    weight = np.ones(len(portfolio))
    weight[:60] = 1e6
    assert 1 in broken(portfolio.X, portfolio.y, reports, weight=weight)


@pytest.mark.parametrize("rows", [1, 3, 15])
def test_a_column_that_singles_out_few_rows_is_refused(portfolio, reports, rows):
    X = portfolio.X.assign(planted=(np.arange(len(portfolio)) < rows).astype(float))
    assert 2 in broken(X, portfolio.y, reports)


def refusal_of(X, y, reports, **more):
    with pytest.raises(RefusedError) as caught:
        refuse(check_fit(X, y, None, reports, CHANNEL, "normal", more.get("model", "linear")))
    return next(v for v in caught.value.rule_results if not v.passed), str(caught.value)


def test_rules_2_and_4_name_the_column_and_no_level_or_value(portfolio, reports):
    X, first = portfolio.X, np.arange(len(portfolio))
    planted, said = refusal_of(X.assign(planted=(first < 3).astype(float)), portfolio.y, reports)
    assert (planted.rule, planted.column) == (2, "planted")
    assert "A row stands out most by planted." in said
    town = np.where(first < 3, "a town of three", "elsewhere")
    level, said = refusal_of(X.assign(town=town), portfolio.y, reports)
    assert (level.rule, level.column) == (2, "town")
    assert "three" not in said
    age = X["age"].to_numpy(dtype=float)
    age[7] += 1e4
    assert refusal_of(X.assign(age=age), portfolio.y, reports)[0].column == "age"
    y = portfolio.y.copy()
    y[0] += 1000 * y.std()
    cell, _ = refusal_of(X.assign(cell=(first < 80).astype(float)), y, reports)
    assert (cell.rule, cell.column) == (4, "the outcome")  # it stands out by every column that it has
    rng = np.random.default_rng(2)
    x, inside = rng.normal(size=2000), first < 80
    quiet = x + np.where(inside, 0.001, 1.0) * rng.normal(size=2000)  # in the cell nothing happens but one claim
    quiet[0] += 1.0
    cell, _ = refusal_of(pd.DataFrame({"x": x, "cell": inside.astype(float)}), quiet, reports)
    assert (cell.rule, cell.column) == (4, "cell")


def test_the_column_is_the_same_whatever_was_reported(portfolio, reports):
    """It comes from rows that have no reports: all of them, none, or others give the same."""
    X = portfolio.X.assign(planted=(np.arange(len(portfolio)) < 3).astype(float))
    rng = np.random.default_rng(1)
    few = rng.choice(["F", "M"], 2000, p=[0.2, 0.8])
    others = (reports, np.array(["F", "M"] * 1000), rng.permutation(reports), few)
    found = {tuple(v.column for v in check_fit(X, portfolio.y, None, r, CHANNEL, "normal", "linear")) for r in others}
    assert len(found) == 1


def test_a_column_that_many_rows_share_is_allowed(portfolio, reports):
    X = portfolio.X.assign(level=(np.arange(len(portfolio)) < 50).astype(float))
    assert broken(X, portfolio.y, reports) == set()


def test_a_spike_hidden_in_an_honest_column_is_refused(portfolio, reports):
    age = portfolio.X["age"].to_numpy(dtype=float)
    age[7] += 1e4
    assert 2 in broken(portfolio.X.assign(age=age), portfolio.y, reports)


def test_a_combination_of_honest_looking_columns_is_seen():
    """Two columns that differ in one row alone: neither stands out, their difference does."""
    rng = np.random.default_rng(7)
    a = rng.normal(size=2000)
    b = a.copy()
    b[11] += 1e-3
    X = pd.DataFrame({"a": a, "b": b})
    reports = CHANNEL.privatize(rng.choice(["F", "M"], 2000), rng=8)
    assert 2 in broken(X, rng.normal(size=2000), reports)


def test_parameters_need_rows(portfolio, reports):
    rng = np.random.default_rng(9)
    wide = pd.DataFrame(rng.normal(size=(2000, 105)))
    wide.columns = [f"x{j}" for j in range(105)]
    assert 3 in broken(wide, portfolio.y, reports)
    assert 3 not in broken(wide.iloc[:, :50], portfolio.y, reports)


def test_a_planted_outcome_is_refused_where_leverage_is_not(portfolio, reports):
    cell = (np.arange(len(portfolio)) < 80).astype(float)
    y = portfolio.y.copy()
    y[0] += 1000 * y.std()
    assert broken(portfolio.X.assign(cell=cell), y, reports) == {4}
    assert broken(portfolio.X.assign(cell=cell), portfolio.y, reports) == set()


def test_skewed_losses_pass():
    """Log-normal losses with a coefficient of variation of 2 and no planted row."""
    p = zhang_liu_shi_2025(n=5000, rng=10)
    rng = np.random.default_rng(11)
    sigma = np.sqrt(np.log(5.0))
    y = p.best_estimate(p.X).mean(axis=1).to_numpy() * rng.lognormal(-(sigma**2) / 2, sigma, len(p))
    reports = CHANNEL.privatize(p.sensitive, rng=12)
    assert broken(p.X, y, reports, family="gamma") == set()
    assert broken(p.X, y, reports) == set()


def test_leverage_and_score_share_are_what_they_say():
    """Against the definition, row by row."""
    p = unbalanced_poisson(400, (0.7, 0.3), rng=13)
    family = get_family("poisson")
    rows, design = read_rows(p.X, p.y, p.sample_weight, family)
    problem = public_problem(rows, design, family, LinearModel())
    Z = np.column_stack([np.ones(len(p)), rows.X])
    w, b = p.sample_weight, problem.moments.coordinates.to_raw(problem.unaware)[:, 0]
    G = np.linalg.inv((Z * w[:, None]).T @ Z)
    leverages = [w[i] * Z[i] @ G @ Z[i] for i in range(len(p))]
    found = largest_leverage(problem, design)
    assert found.share == pytest.approx(max(leverages), rel=1e-8)
    i, names = int(np.argmax(leverages)), list(design.origins)
    left = {}  # leverage of that row, without one feature after the other
    for j in range(1, Z.shape[1]):
        fewer = np.delete(Z, j, axis=1)
        left[j] = w[i] * fewer[i] @ np.linalg.solve((fewer * w[:, None]).T @ fewer, fewer[i])
    assert found.without == pytest.approx(min(left.values()), rel=1e-6)
    assert found.column == names[min(left, key=left.get) - 1]
    U = Z * (w * (np.exp(Z @ b) - p.y))[:, None]
    M = np.linalg.inv(U.T @ U)
    assert largest_score_share(problem, design).share == pytest.approx(max(u @ M @ u for u in U), rel=1e-6)


def test_verdicts_depend_on_reports_through_their_counts_alone(portfolio, reports):
    """The rules are no oracle: who reported what does not matter."""
    rng = np.random.default_rng(14)
    X = portfolio.X.assign(planted=(np.arange(len(portfolio)) < 30).astype(float))
    first = check_fit(X, portfolio.y, None, reports, CHANNEL, "normal", "linear")
    for _ in range(5):
        assert check_fit(X, portfolio.y, None, rng.permutation(reports), CHANNEL, "normal", "linear") == first


def test_a_refusal_tells_rule_and_limit_and_no_number_of_its_own(portfolio):
    reports = np.array(["F"] * 1987 + ["M"] * 13)
    rule_results = check_fit(portfolio.X, portfolio.y, None, reports, CHANNEL, "normal", "linear")
    with pytest.raises(RefusedError, match="Rule 1") as caught:
        refuse(rule_results)
    shown = str(caught.value) + json.dumps([(v.rule, v.title, v.limit) for v in caught.value.rule_results])
    assert "13" not in shown
    assert "about 15 rows" in rule_results[0].measured


def test_rules_are_plain_data_and_checked():
    rules = Rules(n_min=20, score_share=0.2)
    assert Rules(**json.loads(json.dumps(rules.to_dict()))) == rules
    for wrong in (0, -1, True, "10", 2.5, float("nan")):
        with pytest.raises(ValueError, match="n_min"):
            Rules(n_min=wrong)


def test_counts_are_rounded_to_five_and_small_ones_suppressed():
    assert [round_count(n) for n in range(8)] == [None] * 8
    told = [round_count(n) for n in range(8, 300)]
    assert all(value % 5 == 0 and abs(value - n) <= 2 for n, value in zip(range(8, 300), told, strict=True))


# --- rule 5 ---


def keys(*ranges):
    return np.concatenate([np.arange(*r) for r in ranges]).astype(str)


RAREST = rarest_report(CHANNEL)  # 0.2: a cell needs 50 rows


def test_equal_sets_and_far_sets_pass():
    base = keys((0, 1000))
    assert check_overlap([base, base], rarest=RAREST).passed
    assert check_overlap([base, base[::-1]], rarest=RAREST).passed
    assert check_overlap([base, keys((0, 950))], rarest=RAREST).passed
    assert check_overlap([base, keys((5000, 6000))], rarest=RAREST).passed


@pytest.mark.parametrize("other", [keys((1, 1000)), keys((0, 1001)), keys((1, 1001)), keys((0, 951)), keys((0, 1049))])
def test_sets_that_differ_by_few_rows_are_refused(other):
    assert not check_overlap([keys((0, 1000)), other], rarest=RAREST).passed


def test_a_swap_of_many_rows_that_hides_one_is_refused():
    """Each set differs from the first by enough rows, but two of them differ from each other by one."""
    base, one, two = keys((0, 1000)), keys((100, 1000)), keys((101, 1000))
    assert check_overlap([base, one], rarest=RAREST).passed
    assert check_overlap([base, two], rarest=RAREST).passed
    assert not check_overlap([base, one, two], rarest=RAREST).passed


def test_a_combination_of_three_fits_is_refused():
    """A and B are far from A + B + one row in every pair; their sum is not."""
    A, B, both = keys((0, 500)), keys((500, 1000)), keys((0, 1001))
    for pair in itertools.combinations([A, B, both], 2):
        assert check_overlap(list(pair), rarest=RAREST).passed
    assert not check_overlap([A, B, both], rarest=RAREST).passed


def test_cells_match_a_slow_count():
    rng = np.random.default_rng(15)
    sets = [rng.choice(60, size=rng.integers(5, 50), replace=False).astype(str) for _ in range(6)]
    slow: dict[tuple[bool, ...], int] = {}
    for key in {k for s in sets for k in s}:
        where = tuple(key in set(s) for s in sets)
        slow[where] = slow.get(where, 0) + 1
    assert sorted(cell_sizes(sets)) == sorted(slow.values())


def test_keys_may_be_bytes():
    sets = [[bytes([i]) * 16 for i in range(100)], [bytes([i]) * 16 for i in range(99)]]
    assert sorted(cell_sizes(sets)) == [1, 99]


def test_a_result_of_a_rule_has_its_title():
    assert "leverage" in RuleResult(2, False, "leverage at most 1/10", "1").title

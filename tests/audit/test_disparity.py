"""What supervisors ask for, from reports: the numbers of fairlearn and statsmodels, known truths, honest limits."""

from __future__ import annotations

import inspect
import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import statsmodels.api as sm
from fairlearn.metrics import MetricFrame, demographic_parity_difference, demographic_parity_ratio, selection_rate
from scipy import stats

from fairpremium import Channel, RandomizedResponse
from fairpremium import audit as fa
from fairpremium.audit import drawing
from helpers.limits import difference, limits, p_value

NAMES = ("adverse_impact", "standardized_difference", "marginal_effect", "disparity_drivers", "threshold_check")


@pytest.fixture(scope="module")
def study():
    from benchmarks import disparity

    return disparity


@pytest.fixture(scope="module", params=[2, 3, 4])
def known(request, study):
    """Rows with the true attribute, unequal exposures, and persons with several rows."""
    rng = np.random.default_rng(5)
    data = study.Population.with_groups(request.param).sample(3000, 0.8, rng)
    person = rng.integers(0, 2000, 3000)
    D = data["D"][np.unique(person, return_index=True)[1]][np.unique(person, return_inverse=True)[1]]
    e = data["e"] * rng.uniform(0.5, 1.5, 3000)
    noisy = data["premium"] + rng.normal(0, 20, 3000)  # so that the regression has something left
    return {**data, "D": D, "S": D, "channel": None, "e": e, "person": person, "premium": noisy}


# --- the true attribute: fairlearn and statsmodels ---


def test_decisions_are_those_of_fairlearn(known):
    good, D, e = (known["decision"] == "accepted").astype(int), known["D"], known["e"]
    roles = {"sensitive": D, "sample_weight": e}
    tables = [
        fa.compute_adverse_impact(known["decision"], favourable="accepted", against=group, **roles)
        for group in np.unique(D)
    ]
    table = pd.concat(tables)
    frame = MetricFrame(
        metrics=selection_rate, y_true=good, y_pred=good, sensitive_features=D, sample_params={"sample_weight": e}
    ).by_group
    np.testing.assert_allclose(table["rate"], frame.loc[table["group"]].astype(float), rtol=1e-9)
    fair = {"y_true": good, "y_pred": good, "sensitive_features": D, "sample_weight": e}
    assert table["ratio"].min() == pytest.approx(demographic_parity_ratio(**fair), rel=1e-9)
    assert table["difference"].max() == pytest.approx(demographic_parity_difference(**fair), rel=1e-9)


def test_the_denial_odds_ratio_is_that_of_statsmodels(known):
    a, other = np.unique(known["D"])[:2]
    rows = np.isin(known["D"], [a, other])
    good, D = known["decision"][rows] == "accepted", known["D"][rows]
    table = fa.compute_adverse_impact(known["decision"][rows], favourable="accepted", against=a, sensitive=D)
    counts = np.array([[np.sum((g == D) & (good == w)) for w in (False, True)] for g in (other, a)])
    two = sm.stats.Table2x2(counts.astype(float))
    row = table.iloc[0]
    assert row["denial_odds_ratio"] == pytest.approx(two.oddsratio, rel=1e-9)
    error = math.log(row["denial_odds_ratio_high"] / row["denial_odds_ratio_low"]) / 2
    assert error / stats.norm.ppf(0.975) == pytest.approx(two.log_oddsratio_se, rel=0.01)  # Student's t is wider


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_marginal_effect_is_that_of_statsmodels(known, clustered, scale):
    h, X, D, e = (known[name] for name in ("premium", "X", "D", "e"))
    v = np.log(h) if scale == "log" else h
    groups = list(np.unique(D))
    dummies = np.column_stack([g == D for g in groups[1:]]).astype(float)
    Z = sm.add_constant(np.column_stack([dummies, X["age"], X["town"] == "u"]))
    kwargs = {"groups": known["person"], "use_correction": False, "df_correction": False}
    robust = {"cov_type": "cluster", "cov_kwds": kwargs} if clustered else {"cov_type": "HC0"}
    fit = sm.WLS(v, Z, weights=e).fit(**robust)
    K = len(groups)
    table = fa.compute_marginal_effect(
        h, X.assign(twice=2 * X["age"], same=1.0), against=groups[0], sensitive=D, exposure=e, scale=scale,
        cluster=known["person"] if clustered else None,
    )  # fmt: skip
    assert table["group"].tolist() == groups[1:]
    np.testing.assert_allclose(table["effect"], fit.params[1:K], rtol=1e-9)
    np.testing.assert_allclose(table["standard_error"], fit.bse[1:K], rtol=1e-9)
    # limits and p values follow from the rows' influences, here those of statsmodels' equations
    terms = (e * fit.resid)[:, None] * Z
    if clustered:
        terms = pd.DataFrame(terms).groupby(known["person"]).sum().to_numpy()
    psi = terms @ np.linalg.inv(Z.T @ (e[:, None] * Z))
    for j, (_, row) in enumerate(table.iterrows(), start=1):
        assert (row["effect_low"], row["effect_high"]) == pytest.approx(limits(row["effect"], psi[:, j]), rel=1e-8)
        assert row["p_value"] == pytest.approx(p_value(row["effect"], psi[:, j]), rel=1e-6)


def test_with_symmetric_rows_p_values_are_those_of_statsmodels():
    n = 20_000
    rng = np.random.default_rng(1)
    D = np.where(rng.random(n) < 0.5, "F", "M")
    x, e = rng.choice([-1.0, 1.0], n), rng.choice([-1.0, 1.0], n)
    D, x, e = np.tile(D, 2), np.tile(x, 2), np.concatenate([e, -e])  # skewness zero, and no kurtosis
    h = 100 + 2 * x + 0.03 * (D == "F") + e
    fit = sm.OLS(h, sm.add_constant(np.column_stack([D == "F", x]).astype(float))).fit(cov_type="HC0")
    row = fa.compute_marginal_effect(h, x[:, None], against="M", sensitive=D).iloc[0]
    assert row["effect"] == pytest.approx(fit.params[1], rel=1e-9)
    assert row["p_value"] == pytest.approx(fit.pvalues[1], rel=1e-3)  # Student's t with thousands of degrees of freedom
    assert [row["effect_low"], row["effect_high"]] == pytest.approx(list(fit.conf_int()[1]), rel=1e-4)


def test_standardized_differences_are_those_of_statsmodels(known):
    h, y, D, e = (known[name] for name in ("premium", "y", "D", "e"))
    for spread in ("population", "groups"):
        table = fa.compute_standardized_difference(h, y, against="a", spread=spread, sensitive=D, exposure=e)
        for quantity, v, u in (("premium", h, e), ("loss_ratio", y / e / h, e * h)):
            rows = table[table["quantity"] == quantity]
            own = {g: sm.stats.DescrStatsW(v[g == D], weights=u[g == D]) for g in np.unique(D)}
            everyone = sm.stats.DescrStatsW(v, weights=u)
            for _, row in rows.iterrows():
                first, second = own[row["group"]], own[row["against"]]
                sd = everyone.std if spread == "population" else math.sqrt((first.var + second.var) / 2)
                assert row["difference"] == pytest.approx(first.mean - second.mean, rel=1e-9)
                assert row["standardized"] == pytest.approx((first.mean - second.mean) / sd, rel=1e-9)
    gap = fa.compute_loss_ratio_gap(h, y, sensitive=D, exposure=e).set_index("group")["loss_ratio"]
    rows = table[table["quantity"] == "loss_ratio"].set_index("group")["difference"]
    np.testing.assert_allclose(rows, gap[rows.index] - gap["a"], rtol=1e-9)


# --- reports with their exact probabilities give the numbers of the true attribute ---


@pytest.mark.parametrize("kind", ["uneven", "more reports than groups"])
@pytest.mark.parametrize("K", [2, 4])
def test_in_expectation_the_reports_tell_the_truth(study, K, kind):
    population = study.Population.with_groups(K)
    if kind == "uneven":
        channel = Channel(
            0.6 * np.eye(K) + 0.4 * np.arange(1, K + 1)[:, None] / (K * (K + 1) / 2), groups=population.groups
        )
    else:
        T = np.vstack([0.7 * np.eye(K), np.full((1, K), 0.1), np.linspace(0.05, 0.15, K)[None]])
        T[-1] += 1 - T.sum(axis=0)
        channel = Channel(T, groups=population.groups, reports=[*population.groups, "?", "!"])
    whole = population.itself()
    n, R = len(whole["D"]), len(channel.reports)
    row, s = np.repeat(np.arange(n), R), np.tile(np.arange(R), n)
    d = np.searchsorted(population.groups, whole["D"].astype(str))
    possible = channel.matrix[s, d[row]] > 0
    row, s = row[possible], s[possible]
    noisy = {k: v[row] if isinstance(v, np.ndarray) else v for k, v in whole.items()}
    part = channel.matrix[s, d[row]]
    noisy |= {
        "X": whole["X"].iloc[row].reset_index(drop=True), "S": np.array(channel.reports, dtype=object)[s],
        "channel": channel, "e": whole["e"][row] * part, "y": whole["y"][row] * part,
    }  # fmt: skip
    for name, (table, columns) in study.TABLES.items():
        true, found = table(whole, study.roles(whole)), table(noisy, study.roles(noisy))
        assert (found["note"] == "").all()
        np.testing.assert_allclose(found[columns], true[columns], rtol=1e-7, atol=1e-9, err_msg=name)


# --- drivers ---


def test_contributions_of_a_linear_tariff_are_exact_and_add_up(known):
    X, D = known["X"], known["D"]
    h = 100 + 8 * X["age"] + 30 * (X["town"] == "u")
    table = fa.compute_disparity_drivers(h, X, against="a", sensitive=D, bands=4)
    for group, rows in table.groupby("group"):
        found = rows.set_index("factor")["contribution"]
        both = [(group == D), (D == "a")]
        for factor, v in (("age", 8 * X["age"]), ("town", 30.0 * (X["town"] == "u")), ("total", h)):
            assert found[factor] == pytest.approx(v[both[0]].mean() - v[both[1]].mean(), rel=1e-8)
        assert found["remainder"] == pytest.approx(0, abs=1e-8)
        assert rows["share"].iloc[:-1].sum() == pytest.approx(1)
    effect = fa.compute_demographic_disparity(h, sensitive=D)
    pair = effect[(effect["group"] == "a") & (effect["against"] == "b")].iloc[0]
    total = table[(table["group"] == "b") & (table["factor"] == "total")].iloc[0]
    assert total["contribution_high"] == pytest.approx(-pair["difference_low"], rel=1e-9)


def test_contributions_of_a_product_tariff_are_exact_on_the_log_scale(known):
    X, D = known["X"], known["D"]
    h = 100 * np.exp(0.05 * X["age"]) * np.where(X["town"] == "u", 1.3, 1.0)
    table = fa.compute_disparity_drivers(h, X, against="a", sensitive=D, scale="log")
    assert table.loc[table["factor"] == "remainder", "contribution"].abs().max() < 1e-9
    linear = fa.compute_disparity_drivers(h, X, against="a", sensitive=D)
    assert linear.loc[linear["factor"] == "remainder", "contribution"].abs().max() > 1e-3


def test_the_error_of_the_approximation_is_in_the_limits(study):
    """Moving the weight of one row after the other moves a contribution by its influence."""
    data = study.Population.with_groups(2).sample(300, 0.95, np.random.default_rng(3))
    S = np.where(pd.isna(data["S"]), "a", data["S"])
    roles = {"against": "a", "sensitive": S, "channel": data["channel"]}
    h = data["premium"] + 5 * np.sin(np.arange(300))

    def contributions(w):
        return fa.compute_disparity_drivers(h, data["X"], sample_weight=w, **roles)

    whole = contributions(np.ones(300))
    psi = []
    for i in range(300):
        w = np.ones(300)
        w[i] += 1e-5
        psi.append((contributions(w)["contribution"] - whole["contribution"]).to_numpy() / 1e-5)
    for j, row in whole.iterrows():
        expected = limits(row["contribution"], np.array(psi)[:, j])
        assert (row["contribution_low"], row["contribution_high"]) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_the_regression_needs_more_than_weights_as_features(study):
    """The regression on T^-1[k, s] as features is biased; the estimating equations are not."""
    rng = np.random.default_rng(0)
    data = study.Population.with_groups(2).sample(40_000, 0.7, rng)
    x = data["X"][["age"]]
    h = 3.0 * (data["D"] == "b") + x["age"].to_numpy()
    row = fa.compute_marginal_effect(h, x, against="a", sensitive=data["S"], channel=data["channel"]).iloc[0]
    assert abs(row["effect"] - 3) < 4 * row["standard_error"]
    assert row["effect_low"] > 2.5


# --- limits ---


@pytest.mark.parametrize("keep", [0.9, 0.7])
def test_intervals_cover_the_truth(study, keep):
    R = 30
    for row in study.simulate(3, 3000, keep, R, seed=int(10 * keep)):
        slack = 4 * math.sqrt(0.95 * 0.05 / R)  # the cells of a table may move as one
        assert row["coverage"] >= 0.95 - slack, row


def test_heavy_tails_have_wider_limits_and_light_ones_the_normal_ones(study):
    heavy = study.simulate_heavy(3, 0.7, "claims 5 %, lognormal 1.5", 40, seed=3)
    assert heavy["coverage"] >= 0.94 - 3 * math.sqrt(0.95 * 0.05 / (3 * 40))
    assert heavy["coverage"] > heavy["normal_limits"]
    light = study.simulate_heavy(3, 0.7, "exponential", 20, seed=3)
    assert 1 <= light["wider"] < 1.02


# --- thresholds ---


def test_the_answer_to_a_threshold():
    table = pd.DataFrame({
        "group": list("abcdef"), "against": "z", "note": ["", "", "", "", "", "too few"],
        "standardized": [0.0, 0.08, 0.3, -0.05, 0.1, np.nan],
        "standardized_low": [-0.05, 0.04, 0.2, -0.2, 0.0, np.nan],
        "standardized_high": [0.05, 0.12, 0.4, 0.1, 0.2, np.nan],
    })  # fmt: skip
    found = fa.compute_threshold_check(table, "standardized", at_least=-0.1, at_most=0.1, rows=2000)
    answers = ["within", "cannot tell", "beyond", "cannot tell", "cannot tell", "cannot tell"]
    assert found["answer"].tolist() == answers
    # b needs its upper half of 0.04 to be 0.02; d its lower half of 0.15 to be 0.05; e stands on the threshold
    np.testing.assert_allclose(found["times_rows"], [1, 4, 1, 9, np.inf, np.nan])
    np.testing.assert_allclose(found["rows_needed"], [2000, 8000, 2000, 18000, np.inf, np.nan])
    assert found["note"].iloc[-1] == "too few"
    both = fa.compute_threshold_check(pl.from_pandas(table), "standardized", at_most=0.1)
    assert isinstance(both, pl.DataFrame)
    assert both["at_least"].is_null().all() or both["at_least"].is_nan().all()


def test_so_many_rows_do_tell(study):
    """A portfolio of the size that the table asks for gives an answer, if the estimate stays where it is."""
    population, rng = study.Population.with_groups(2), np.random.default_rng(8)
    whole = population.itself()
    true = fa.compute_adverse_impact(whole["decision"], favourable="accepted", **study.roles(whole))["ratio"].iloc[0]
    data = population.sample(2000, 0.7, rng)
    table = fa.compute_adverse_impact(data["decision"], favourable="accepted", **study.roles(data))
    middle = table.assign(ratio_low=true * table["ratio_low"] / table["ratio"],
                          ratio_high=true * table["ratio_high"] / table["ratio"], ratio=true)  # fmt: skip
    needed = fa.compute_threshold_check(middle, rows=2000)["rows_needed"].iloc[0]
    assert needed > 2000
    data = population.sample(int(1.5 * needed), 0.7, rng)
    large = fa.compute_adverse_impact(data["decision"], favourable="accepted", **study.roles(data))
    width = (large["ratio"] - large["ratio_low"]).iloc[0]
    assert width < abs(true - 0.8)


# --- tables ---


def test_tables_are_in_the_callers_library_and_within_classes(study):
    data = study.Population.with_groups(3).sample(4000, 0.9, np.random.default_rng(2))
    roles = {"sensitive": data["S"], "channel": data["channel"], "by": data["X"]["town"]}
    frame = pl.DataFrame({"h": data["premium"], "decision": data["decision"], "y": data["y"], "age": data["X"]["age"]})
    tables = {
        "adverse_impact": fa.compute_adverse_impact(frame["decision"], favourable=["accepted"], **roles),
        "standardized": fa.compute_standardized_difference(frame["h"], frame["y"], **roles),
        "marginal_effect": fa.compute_marginal_effect(frame["h"], frame.select("age"), **roles),
        "drivers": fa.compute_disparity_drivers(frame["h"], frame.select("age"), **roles),
    }
    for name, table in tables.items():
        assert isinstance(table, pl.DataFrame), name
        assert set(table["risk_class"]) == {"r", "u"}
        assert set(table["against"]) == {"a"}, "the largest group"
        assert set(table["group"]) == {"b", "c"}
    part = (data["X"]["town"] == "u").to_numpy()
    own = fa.compute_marginal_effect(
        data["premium"][part], data["X"].loc[part, ["age"]], sensitive=data["S"][part], channel=data["channel"]
    )
    got = tables["marginal_effect"].filter(pl.col("risk_class") == "u")
    np.testing.assert_allclose(got["effect"], own["effect"])


def test_groups_of_several_attributes_and_few_reports():
    channel = Channel.product(RandomizedResponse(["F", "M"], keep=0.9), RandomizedResponse(["x", "y"], keep=0.9))
    rng = np.random.default_rng(0)
    S = pd.DataFrame({"sex": rng.choice(["F", "M"], 600), "other": rng.choice(["x", "y"], 600, p=[0.97, 0.03])})
    X = pd.DataFrame({"age": rng.normal(size=600)})
    table = fa.compute_disparity_drivers(100 + X["age"], X, sensitive=S, channel=channel)
    assert set(table["group"]) | set(table["against"]) == set(channel.groups)
    few = table[table["note"] != ""]
    assert len(few)
    assert few["contribution"].isna().all()
    effect = fa.compute_marginal_effect(100 + X["age"], X, sensitive=S, channel=channel)
    assert (effect["note"] != "").any()


@pytest.mark.parametrize("name", NAMES)
def test_every_table_has_a_drawing_with_its_arguments(study, name):
    compute, plot = getattr(fa, f"compute_{name}"), getattr(fa, f"plot_{name}")
    assert list(inspect.signature(plot).parameters) == [*inspect.signature(compute).parameters, "unit"]
    data = study.Population.with_groups(3).sample(3000, 0.9, np.random.default_rng(2))
    roles = {"sensitive": data["S"], "channel": data["channel"]}
    if name == "adverse_impact":
        chart = plot(data["decision"], favourable="accepted", by=data["X"]["town"], **roles)
    elif name == "standardized_difference":
        chart = plot(data["premium"], data["y"], **roles)
    elif name == "threshold_check":
        table = fa.compute_adverse_impact(data["decision"], favourable="accepted", **roles)
        chart = plot(table, at_least=0.8, at_most=1.25)
    else:
        chart = plot(data["premium"], data["X"], unit="EUR", **roles)
    assert drawing.to_svg(chart).startswith("<svg")


GOOD = {"decisions": ["yes", "no"] * 50, "favourable": "yes", "sensitive": ["a", "b", "a", "b", "a"] * 20}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"favourable": "maybe"}, "favourable='maybe', but expected decisions that occur, such as 'yes', 'no'"),
        ({"favourable": []}, "favourable=[]"),
        ({"decisions": ["yes", None] * 50}, "decisions with 50 of 100 missing"),
        ({"against": "z"}, "against='z', but expected one of the groups ['a', 'b']"),
        ({"sensitive": ["a"] * 100}, "one group, 'a'"),
        ({"sensitive": ["a"]}, "sensitive with 1 rows, but decisions has 100"),
    ],
)
def test_wrong_decisions(change, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        fa.compute_adverse_impact(**{**GOOD, **change})


def test_wrong_arguments():
    h, D, X = np.arange(100.0), ["a", "b", "a", "b", "a"] * 20, pd.DataFrame({"total": np.arange(100) % 7})
    cases = [
        (lambda: fa.compute_standardized_difference(h, h, sensitive=D), "premiums with 1 of 100 values not above zero"),
        (lambda: fa.compute_standardized_difference(h, spread="x", sensitive=D), "spread='x'"),
        (lambda: fa.compute_marginal_effect(h, X, scale="log", sensitive=D), "premiums with 1 of 100 values not above"),
        (lambda: fa.compute_marginal_effect(h, X[:50], sensitive=D), "X with 50 rows, but premiums has 100"),
        (lambda: fa.compute_marginal_effect(h, X, scale="cube", sensitive=D), "scale='cube'"),
        (lambda: fa.compute_disparity_drivers(h, X, sensitive=D), "a factor named 'total'"),
        (lambda: fa.compute_disparity_drivers(h, X, factors=["b"], sensitive=D), "factors=['b']"),
        (lambda: fa.compute_threshold_check(pd.DataFrame({"effect": [1.0]}), "effect"), "measure='effect'"),
    ]
    for call, expected in cases:
        with pytest.raises(ValueError, match=re.escape(expected)):
            call()
    table = pd.DataFrame({"effect": [1.0], "effect_low": [0.0], "effect_high": [2.0]})
    for arguments, expected in (
        ({}, "without thresholds"), ({"at_least": 1.0, "at_most": 0.5}, "at_least below at_most"),
        ({"at_least": "x"}, "at_least='x'"), ({"at_least": 1.0, "rows": 0}, "rows=0"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(expected)):
            fa.compute_threshold_check(table, "effect", **arguments)


# --- the audit report ---


def test_the_audit_report_has_what_is_asked_for(study):
    data = study.Population.with_groups(3).sample(4000, 0.8, np.random.default_rng(4))
    roles = {"sensitive": data["S"], "channel": data["channel"], "exposure": data["e"]}
    plain = fa.summarize_prices(data["premium"], data["y"], **roles)
    assert not {s["id"] for s in plain["sections"]} & set(NAMES)
    asked = {"decisions": data["decision"], "favourable": "accepted", "controls": data["X"], "threshold": 0.7}
    summary = fa.summarize_prices(data["premium"], data["y"], against="b", **asked, **roles)
    sections = {s["id"]: s for s in summary["sections"]}
    own = fa.compute_adverse_impact(data["decision"], favourable="accepted", against="b", **roles)
    assert [r["ratio"] for r in sections["adverse_impact"]["records"]] == own["ratio"].tolist()
    assert {r["against"] for r in sections["marginal_effect"]["records"]} == {"b"}
    checks = sections["threshold_check"]["records"]
    assert {r["quantity"] for r in checks} == {"decision", "premium"}
    assert {r["answer"] for r in checks} <= {"within", "beyond", "cannot tell"}
    assert "Ratios between groups" in [f["heading"] for f in summary["findings"]]
    text = fa.render_markdown(summary)
    assert "Denial odds ratio" in text
    assert "Rows that would tell" in text
    for name in ("adverse_impact", "threshold_check", "standardized_difference", "marginal_effect"):
        assert sections[name]["title"]
        assert fa.render_chart(sections[name]).startswith("<svg")


def test_wrong_requests_for_an_audit_report():
    h, D = np.ones(100), ["a", "b"] * 50
    for arguments, expected in (
        ({"decisions": D}, "decisions without favourable"), ({"threshold": 1.5}, "threshold=1.5"),
        ({"against": "z"}, "against='z'"), ({"threshold": 0.8, "sensitive": ["a"] * 100}, "one group"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=re.escape(expected)):
            fa.summarize_prices(h, h, **{"sensitive": D, **arguments})


# --- rates near 0 and 1 ---


def test_limits_of_rates_at_the_edge_are_wilsons():
    D = np.repeat(["F", "M"], 500)
    decisions = np.where((D == "M") & (np.arange(1000) % 5 > 0), "yes", "no")
    row = fa.compute_adverse_impact(decisions, favourable="yes", sensitive=D, against="M").iloc[0]
    z2 = 1.959963984540054**2
    assert row["rate_high"] == pytest.approx(z2 / (500 + z2))
    assert (row["ratio"], row["ratio_low"]) == (0.0, 0.0)
    assert 0 < row["ratio_high"] < 0.011
    assert row["denial_odds_ratio"] == row["denial_odds_ratio_high"] == np.inf
    assert row["denial_odds_ratio_low"] > 100
    assert row["note"] == "no favourable decision is seen in F"
    turned = fa.compute_adverse_impact(decisions, favourable="yes", sensitive=D, against="F").iloc[0]
    assert turned["ratio"] == turned["ratio_high"] == np.inf
    assert turned["ratio_low"] > 50
    check = fa.compute_threshold_check(pd.DataFrame([turned]), at_least=0.8, at_most=1.25)
    assert check["answer"].tolist() == ["beyond"]


def test_ratio_limits_cover_when_rates_are_small():
    channel, true, inside, samples = RandomizedResponse(["F", "M"], keep=0.8), np.array([0.01, 0.3]), 0, 300
    rng = np.random.default_rng(0)
    for seed in range(samples):
        d = rng.choice(2, 3000)
        decisions = (rng.random(3000) < true[d]).astype(int)
        S = channel.privatize(np.array(["F", "M"])[d], rng=seed)
        row = fa.compute_adverse_impact(decisions, favourable=1, sensitive=S, channel=channel, against="M").iloc[0]
        inside += row["ratio_low"] <= true[0] / true[1] <= row["ratio_high"]
    assert 0.93 <= inside / samples <= 0.985


@pytest.mark.parametrize("spread", ["population", "groups"])
def test_standardized_loss_ratios_have_limits_from_those_of_both_groups_and_of_the_deviation(spread):
    rng = np.random.default_rng(1)
    n, names = 2000, np.array(["a", "b"], dtype=object)
    channel = RandomizedResponse(list(names), keep=0.8)
    d, h = rng.integers(0, 2, n), rng.uniform(1, 2, n)
    y, S = h * (1 + 0.5 * d) * rng.lognormal(-0.5, 1.0, n), channel.privatize(names[d], rng=1)
    table = fa.compute_standardized_difference(
        h, y, spread=spread, sensitive=S, channel=channel, against="a"
    ).set_index("quantity")
    row = table.loc["loss_ratio"]
    u = h[:, None] * channel.inverse.T[(names[1] == S).astype(int)]  # what a row's premium counts for each group
    v, U = (y / h)[:, None], u.sum(axis=0)
    mean = (u * v).sum(axis=0) / U
    of_mean = u * (v - mean) / U
    if spread == "population":
        whole = h / h.sum()
        square = whole @ (y / h - whole @ (y / h)) ** 2
        of_square = whole * ((y / h - whole @ (y / h)) ** 2 - square)
    else:
        squares = (u * (v - mean) ** 2).sum(axis=0) / U
        square, of_square = squares.mean(), (u * ((v - mean) ** 2 - squares) / U).mean(axis=1)
    s, gap = np.sqrt(square), mean[1] - mean[0]
    both = mean[1], of_mean[:, 1], mean[0], of_mean[:, 0]
    low, high = difference(*both)
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([low, high], abs=1e-9)
    assert difference(*both, level=1 - row["p_value"])[0] == pytest.approx(0, abs=1e-9)
    everyone, of_everyone = y.sum() / h.sum(), (y - y.sum() / h.sum() * h) / h.sum()
    gap_row = fa.compute_loss_ratio_gap(h, y, sensitive=S, channel=channel).set_index("group").loc["b"]
    expected = difference(mean[1], of_mean[:, 1], everyone, of_everyone)
    assert [gap_row["gap_low"], gap_row["gap_high"]] == pytest.approx(list(expected), abs=1e-9)
    largest = np.sqrt(limits(square, of_square)[1])
    error = np.sqrt(np.sum(of_square**2)) / (2 * square)
    x = gap / s
    assert x > 0
    assert row["standardized"] == pytest.approx(x, abs=1e-9)
    below, above = (
        np.hypot(x - low / s, x * (1 - s / largest)),
        np.hypot(high / s - x, x * math.expm1(1.959964 * error)),
    )
    assert row["standardized_low"] == pytest.approx(x - below, abs=1e-6)
    assert row["standardized_high"] == pytest.approx(x + above, abs=1e-6)


@pytest.mark.parametrize(
    ("groups", "keep", "law"),
    [(4, 0.9, "claims 5 %, lognormal 1.5"), (3, 0.7, "Pareto, index 2.5"), (3, 0.9, "Burr, index 2.4")],
)
def test_heavy_tails_are_covered_in_all_cells_and_in_standard_deviations(groups, keep, law):
    from benchmarks import disparity

    rows = {row["table"]: row for row in disparity.simulate_measures(groups, keep, law, 100, seed=5)}
    for name in ("loss ratio, gap", "loss ratio, standardized", "multicalibration, all cells"):
        assert rows[name]["coverage"] >= 0.95 - 2 * math.sqrt(0.95 * 0.05 / 100), (name, rows[name])


def test_a_sum_of_its_factors_has_no_remainder():
    rng = np.random.default_rng(0)
    D = rng.choice(["F", "M"], 400)
    X = pd.DataFrame({"age": rng.uniform(20, 70, 400), "town": rng.choice(["u", "r"], 400)})
    prices = 100 + 3.1 * X["age"] + 20 * (X["town"] == "u")
    rest = fa.compute_disparity_drivers(prices, X, sensitive=D).set_index("factor").loc["remainder"]
    assert rest[["contribution", "contribution_low", "contribution_high", "share"]].tolist() == [0, 0, 0, 0]
    assert rest["p_value"] == 1


def test_a_group_that_is_everybody_has_no_gap():
    rng = np.random.default_rng(2)
    h = rng.uniform(1, 2, 300)
    row = fa.compute_loss_ratio_gap(h, h * rng.lognormal(0, 1.5, 300), sensitive=["a"] * 300).iloc[0]
    assert [row["gap"], row["gap_low"], row["gap_high"]] == pytest.approx([0, 0, 0], abs=1e-9)

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from fairpremium.noise import AnchorNoise
from fairpremium.noise._anchor import estimate_keep
from fairpremium.portfolios import load_belgian_motor
from fairpremium.privacy import RandomizedResponse

LABELS = np.array(["a", "b", "c", "d", "e"])


def anchored(n, K, keep, rng):
    """One region per group where only that group lives (an anchor), and a mixed region; unbalanced."""
    region = rng.choice(K + 1, size=n, p=np.append(np.arange(1, K + 1), K) / (K * (K + 1) / 2 + K))
    mixed = rng.choice(K, size=n)
    d = np.where(region < K, region, mixed)
    lie = rng.random(n) > keep
    s = np.where(lie, (d + rng.integers(1, K, size=n)) % K, d)
    return pd.DataFrame({"region": np.array(list("uvwxyz"))[region], "noise": rng.normal(size=n)}), LABELS[s]


def slow_reference(X, S, n_splits, seed, aggregate):
    """Procedure 4.5 in plain loops; X has the columns age and smoker ("no"/"yes")."""
    groups = sorted(set(S))
    K = len(groups)
    order = np.random.default_rng(seed).permutation(len(S))
    sizes = [len(S) // n_splits + (1 if k < len(S) % n_splits else 0) for k in range(n_splits)]
    best = None
    for group in groups:
        total, start = 0.0, 0
        for size in sizes:
            rows = [int(i) for i in order[start : start + size]]
            start += size
            columns = [
                [float(X["age"].iloc[i]) for i in rows],
                [1.0 if X["smoker"].iloc[i] == "no" else 0.0 for i in rows],
                [1.0 if X["smoker"].iloc[i] == "yes" else 0.0 for i in rows],
            ]
            design = np.array([[(v - np.mean(c)) / np.std(c) for v in c] for c in columns]).T
            model = LogisticRegression(max_iter=1000).fit(design, [S[i] for i in rows])
            position = list(model.classes_).index(group)
            pi = max(row[position] for row in model.predict_proba(design))
            total += (pi + K - 2) / (K * pi - 1) if aggregate == "c1" else pi
        mean = total / n_splits
        keep = (mean + K - 2) / (K * mean - 1) if aggregate == "c1" else mean
        if best is None or keep > best[1]:
            best = (group, keep)
    return best


@pytest.mark.parametrize("aggregate", ["c1", "keep"])
@pytest.mark.parametrize("n_splits", [1, 2, 4])
def test_slow_reference(aggregate, n_splits, portfolio, flip):
    rng = np.random.default_rng(3)
    X, D = portfolio(1502, rng)
    S = flip(D, 0.9, rng)
    noise = AnchorNoise(n_splits, aggregate=aggregate, random_state=5).fit(X, None, sensitive=S)
    group, keep = slow_reference(X, S.tolist(), n_splits, 5, aggregate)
    assert noise.group_ == group
    assert noise.keep_ == pytest.approx(keep, abs=1e-4)


@pytest.mark.simulation
@pytest.mark.parametrize("keep, expected", [(0.9, 0.757), (0.8, 0.693), (0.7, 0.632)])
def test_bias_without_anchor(keep, expected, portfolio, flip, repetitions):
    found, low = [], []
    for seed in range(repetitions(10, 200)):
        rng = np.random.default_rng([seed, int(100 * keep)])
        X, D = portfolio(5000, rng)
        noise = AnchorNoise(random_state=seed).fit(X, None, sensitive=flip(D, keep, rng))
        found.append(noise.keep_)
        low.append(noise.interval_[0])
        assert not noise.identified_  # no anchor is declared
        assert noise.anchor_interval_ == noise.interval_
    # The expected value is itself a mean over some seeds, given to three digits: .005 for that.
    assert abs(np.mean(found) - expected) < 5 * np.std(found) / np.sqrt(len(found)) + 0.005
    assert np.mean(found) < keep - 0.05  # errs low
    assert max(low) < keep  # the interval is honest
    assert "lower bound only" in noise.message_
    assert f"keep is at least {noise.interval_[0]:.3f}" in noise.message_


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 3, 4, 5])
@pytest.mark.parametrize("aggregate", ["c1", "keep"])
def test_the_procedure_recovers_an_anchor(K, aggregate, repetitions, assert_covers):
    keep, found, covered = 0.8, [], []
    for seed in range(repetitions(8, 200)):
        X, S = anchored(6000, K, keep, np.random.default_rng([seed, K]))
        noise = AnchorNoise(features=["region"], aggregate=aggregate, random_state=seed)
        noise.fit(X, None, sensitive=S)
        found.append(noise.keep_)
        covered.append(noise.interval_[0] <= keep <= noise.interval_[1])
        assert not noise.identified_
    assert_covers(covered, 0.95)
    # The largest of several fitted probabilities, and of K groups, errs high by about its standard error.
    assert abs(np.mean(found) - keep) < 5 * np.std(found) / np.sqrt(len(found)) + 0.03


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("keep", [0.818, 0.6])
def test_a_declared_anchor_is_estimated_without_bias(K, keep, repetitions, assert_covers):
    # The rarest group has the anchor, one row in 5 (K = 2) to one in 20 (K = 5); a share of 3 % is declared.
    found, errors, covered, accepted = [], [], [], []
    for seed in range(repetitions(12, 400)):
        X, S = anchored(6000, K, keep, np.random.default_rng([seed, K, 1]))
        noise = AnchorNoise(n_splits=1, group="a", anchor_share=0.03, features=["region"], random_state=seed)
        noise.fit(X, None, sensitive=S)
        found.append(noise.keep_)
        errors.append(noise.standard_error_)
        covered.append(noise.anchor_interval_[0] <= keep <= noise.anchor_interval_[1])
        accepted.append(noise.identified_)
        if accepted[-1]:
            assert noise.channel_.keep == pytest.approx(noise.keep_, abs=1e-6)
            assert noise.interval_[1] == 1
    error = np.sqrt(keep * (1 - keep) / 180)
    assert abs(np.mean(found) - keep) < 5 * error / np.sqrt(len(found))
    assert np.mean(errors) == pytest.approx(error, rel=0.1)
    assert_covers(covered, 0.95)
    assert_covers(accepted, 0.9)  # two tests at level .95 stand between
    assert "rests on your declaration that all of these rows belong to 'a'" in noise.message_


def levelling(n, rng):
    """P(D = F | x) rises to .9 at x = 1 and stays there, while a logit goes on rising: no anchor, x has a long tail."""
    x = rng.exponential(size=n)
    return x[:, None], np.where(rng.random(n) < 0.3 + 0.6 * np.minimum(x, 1), "F", "M")


@pytest.mark.simulation
def test_a_classifier_that_extrapolates_errs_high_and_is_not_believed(flip, repetitions, assert_covers):
    keep, found, covered, covered_anyway = 0.818, [], [], []
    for seed in range(repetitions(10, 400)):
        rng = np.random.default_rng(seed)
        x, D = levelling(6000, rng)
        S = flip(D, keep, rng)
        noise = AnchorNoise(random_state=seed).fit(x, None, sensitive=S)
        found.append(noise.keep_)
        covered.append(noise.interval_[0] <= keep <= noise.interval_[1])
        assert not noise.identified_
        assert noise.anchor_interval_ == noise.interval_
        # Declared against the truth, the share of F there is .9 keep + .1 (1 - keep): it errs low only.
        wrong = AnchorNoise(n_splits=1, group="F", anchor_share=0.1, random_state=seed).fit(x, None, sensitive=S)
        covered_anyway.append(abs(wrong.keep_ - (0.9 * keep + 0.1 * (1 - keep))) < 1.96 * wrong.standard_error_)
    assert np.mean(found) > keep + 0.05
    assert_covers(covered, 0.95)
    assert_covers(covered_anyway, 0.95)
    assert "too high where the classifier extrapolates" in noise.message_
    assert "If some do not, keep is higher" in wrong.message_


def test_an_anchor_that_the_declared_rows_go_beyond_is_refuted(flip):
    # Declared for half of the rows, of which only the first tenth of all is certain: S depends on x inside.
    rng = np.random.default_rng(0)
    x = rng.random(12000)
    D = np.where(rng.random(12000) < np.clip(1.1 - x, 0, 1), "F", "M")
    S = flip(D, 0.9, rng)
    noise = AnchorNoise(n_splits=1, group="F", anchor_share=0.5, random_state=0).fit(x[:, None], None, sensitive=S)
    assert not noise.identified_
    assert noise.anchor_interval_ == noise.interval_
    assert "still depend on the features" in noise.message_ or "not all of this group" in noise.message_
    noise = AnchorNoise(n_splits=1, group="F", anchor_share=0.08, random_state=0).fit(x[:, None], None, sensitive=S)
    assert noise.identified_
    assert noise.anchor_interval_[0] < 0.9 < noise.anchor_interval_[1]


def test_real_features(shared_data):
    """Belgian motor: men are 74 %, and no features give them away; Procedure 4.5 calls keep far too high."""
    p = load_belgian_motor(shared_data)
    rows = np.random.default_rng(0).permutation(len(p))[:20000]
    X, D = p.X.iloc[rows], np.asarray(p.sensitive)[rows]
    channel = RandomizedResponse(p.groups, keep=0.818)
    for seed in range(3):
        noise = AnchorNoise(random_state=seed).fit(X, None, sensitive=channel.privatize(D, rng=seed))
        assert noise.keep_ > 0.87
        assert not noise.identified_
        assert noise.interval_[0] < 0.818 < noise.interval_[1]
        assert noise.anchor_interval_ == noise.interval_
    # Where everybody under 24 is a man, they are an anchor, and can be declared.
    young = X["ageph"].to_numpy() < 24
    D = np.where(young, "male", D)
    found, errors = [], []
    for seed in range(5):
        noise = AnchorNoise(
            n_splits=1,
            group="male",
            anchor_share=0.9 * float(young.mean()),
            features=["ageph"],
            classifier=DecisionTreeClassifier(max_depth=3, min_samples_leaf=50),
            random_state=seed,
        ).fit(X, None, sensitive=channel.privatize(D, rng=seed))
        found.append(noise.keep_)
        errors.append(noise.standard_error_)
    assert abs(np.mean(found) - 0.818) < 4 * np.mean(errors) / np.sqrt(len(found))
    assert noise.identified_


@pytest.mark.simulation
@pytest.mark.parametrize("K", [2, 4])
@pytest.mark.parametrize("anchor", [True, False])
def test_interval_covers_with_and_without_anchor(K, anchor, repetitions, assert_covers):
    keep, covered = 0.7, []
    for seed in range(repetitions(30, 1000)):
        rng = np.random.default_rng([seed, K, anchor])
        if anchor:
            X, S = anchored(900, K, keep, rng)
        else:  # nothing depends on x
            X = pd.DataFrame(rng.normal(size=(900, 2)), columns=["u", "v"])
            _, S = anchored(900, K, keep, rng)
        noise = AnchorNoise(random_state=seed).fit(X, None, sensitive=S)
        assert noise.interval_[1] == 1.0
        covered.append(noise.interval_[0] <= keep)
    assert_covers(covered, 0.95)


def test_interval_holds_for_an_overfitted_classifier(portfolio, flip):
    rng = np.random.default_rng(0)
    X, D = portfolio(3000, rng)
    X["noise"] = rng.normal(size=3000)
    forest = RandomForestClassifier(n_estimators=20)
    noise = AnchorNoise(n_splits=2, classifier=forest, random_state=0)
    noise.fit(X, None, sensitive=flip(D, 0.8, rng))
    assert noise.keep_ > 0.9  # the largest in-sample probability of a forest is near one
    assert noise.interval_[0] < 0.8


@pytest.mark.simulation
def test_reports_that_do_not_depend_on_x_are_not_identified(flip, repetitions, assert_covers):
    # As in the health data: the features say nothing about the group.
    refused = []
    for seed in range(repetitions(40, 1000)):
        rng = np.random.default_rng(seed)
        X = pd.DataFrame({"bmi": rng.normal(size=1338), "region": rng.choice(list("nesw"), size=1338)})
        noise = AnchorNoise(random_state=seed)
        noise.fit(X, None, sensitive=flip(rng.choice(["F", "M"], size=1338), 0.9, rng))
        assert 0.5 <= noise.keep_ < 0.75  # still given, but it means nothing
        refused.append(not noise.identified_)
        if refused[-1]:
            assert noise.channel_ is None
            assert "not identified" in noise.message_
    assert "hardly depend on the features" in noise.message_
    assert_covers(refused, 0.95)  # at most 5 % are accepted by chance


def test_average_of_c1_is_never_above_the_average_of_keep():
    keeps = np.array([0.7, 0.8, 0.9])
    for K in (2, 3, 5):
        assert estimate_keep(keeps, K, "c1")[0] < estimate_keep(keeps, K, "keep")[0]


def test_estimate_keep_standard_error_by_difference_quotient():
    # Delta method: spread of C1 times |d keep / d C1|; equal to the spread of keep when the spread is tiny.
    keeps = np.array([0.8, 0.8001, 0.7999])
    for K in (2, 4):
        c1, keep = (estimate_keep(keeps, K, how) for how in ("c1", "keep"))
        assert c1[1] == pytest.approx(keep[1], rel=1e-3)


def test_one_part_has_no_standard_error():
    keep, error = estimate_keep(np.array([0.8]), 2, "c1")
    assert keep == pytest.approx(0.8)
    assert math.isnan(error)


def test_part_without_information_makes_c1_infinite():
    keeps = np.array([0.8, 0.3])
    assert estimate_keep(keeps, 3, "c1")[0] == 1 / 3
    assert estimate_keep(keeps, 3, "keep")[0] == pytest.approx(0.55)


def test_rare_group_carries_no_information():
    rng = np.random.default_rng(0)
    X, S = anchored(3000, 3, 0.8, rng)
    keep_rows = rng.random(3000) < np.where(S == "a", 0.1, 1)
    X, S = X.assign(region="same")[keep_rows], S[keep_rows]
    noise = AnchorNoise(group="a", random_state=0).fit(X, None, sensitive=S)
    assert noise.keep_ == pytest.approx(1 / 3)
    assert not noise.identified_
    assert noise.channel_ is None
    assert "carries no information" in noise.message_
    noise = AnchorNoise(group="a", anchor_share=0.1, random_state=0).fit(X, None, sensitive=S)
    assert not noise.identified_
    assert "not above 1/K" in noise.message_


def test_held_out_reports_refute_a_group_without_anchor():
    rng = np.random.default_rng(0)
    x = rng.choice(2, size=8000)
    d = np.where(x == 1, 0, np.where(rng.random(8000) < 0.4, 0, 1))  # anchor of 0, none of 1
    s = np.where(rng.random(8000) < 0.9, d, 1 - d)
    S = np.array(["F", "M"])[s]
    assert AnchorNoise(group="F", anchor_share=0.4, random_state=0).fit(x[:, None], None, sensitive=S).identified_
    noise = AnchorNoise(group="M", anchor_share=0.4, random_state=0).fit(x[:, None], None, sensitive=S)
    assert not noise.identified_
    assert "Held-out reports show" in noise.message_
    assert noise.group_keeps_["F"] > noise.interval_[0] > noise.keep_


def test_three_groups_bound_beats_the_anchor_value():
    # No anchor, but group c is impossible where x = 1: pi_L is exact there, the anchor value is not.
    rng = np.random.default_rng(0)
    n, keep = 30000, 0.8
    x = rng.choice(2, size=n)
    d = np.where(x == 1, rng.choice(2, size=n), rng.choice(3, size=n))
    s = np.where(rng.random(n) < keep, d, (d + rng.integers(1, 3, size=n)) % 3)
    noise = AnchorNoise(random_state=0).fit(x[:, None], None, sensitive=LABELS[s])
    assert noise.keep_ < 0.5
    assert noise.lower_bound_ == pytest.approx(keep, abs=0.02)
    assert keep - 0.05 < noise.interval_[0] <= keep
    assert not noise.identified_


def test_features_and_containers(portfolio, flip):
    rng = np.random.default_rng(1)
    X, D = portfolio(2000, rng)
    S = flip(D, 0.9, rng)
    X["policy"] = [f"P{i}" for i in range(2000)]
    fit = lambda X, features: AnchorNoise(features=features, random_state=0).fit(X, None, sensitive=S)  # noqa: E731
    expected = fit(X, ["smoker"]).keep_
    assert fit(pl.from_pandas(X), ["smoker"]).keep_ == pytest.approx(expected)
    assert fit(X.to_numpy(), [1]).keep_ == pytest.approx(expected)
    assert fit(X.astype({"smoker": "category"}), ["smoker"]).keep_ == pytest.approx(expected)
    assert fit(X.set_index("policy"), ["smoker"]).keep_ == pytest.approx(expected)
    boolean = X.assign(smoker=(X["smoker"] == "yes"))
    assert fit(boolean, ["smoker"]).keep_ == pytest.approx(expected, abs=0.005)  # the ridge penalty differs
    with pytest.raises(ValueError, match="'policy'"):
        fit(X, None)
    with pytest.raises(ValueError, match="columns"):
        fit(X, ["sex"])
    with pytest.raises(TypeError, match="list of columns"):
        fit(X, "smoker")


def test_own_classifier_with_text_and_gaps(portfolio, flip):
    rng = np.random.default_rng(1)
    X, D = portfolio(3000, rng)
    S = flip(D, 0.9, rng)
    X["age"] = X["age"].where(X.index % 7 > 0)
    X["smoker"] = X["smoker"].where(X.index % 11 > 0)
    with pytest.raises(ValueError, match="HistGradientBoostingClassifier"):
        AnchorNoise().fit(X, None, sensitive=S)
    classifier = HistGradientBoostingClassifier(max_iter=5)
    noise = AnchorNoise(classifier=classifier, random_state=0).fit(X, None, sensitive=S)
    assert 0.6 < noise.keep_ < 1
    assert not hasattr(classifier, "classes_")  # cloned


def test_random_state(portfolio, flip):
    rng = np.random.default_rng(1)
    X, D = portfolio(900, rng)
    S = flip(D, 0.9, rng)

    def fit(random_state):
        forest = RandomForestClassifier(n_estimators=5, max_depth=2)
        return AnchorNoise(classifier=forest, random_state=random_state).fit(X, None, sensitive=S).message_

    assert fit(0) == fit(0) == fit(np.random.default_rng(0))
    assert fit(0) != fit(1)
    assert fit(np.random.RandomState(3)) == fit(np.random.RandomState(3))


def test_missing_reports_are_left_out_and_counted(portfolio, flip):
    rng = np.random.default_rng(1)
    X, D = portfolio(1000, rng)
    S = flip(D, 0.9, rng).astype(object)
    S[::10] = None
    known = [value is not None for value in S]
    a = AnchorNoise(random_state=0).fit(X, None, sensitive=S)
    b = AnchorNoise(random_state=0).fit(X[known], None, sensitive=S[known])
    assert a.n_reports_ == 900
    assert a.keep_ == b.keep_
    assert a.interval_ == b.interval_
    assert "100 reports were left out" in a.message_


def test_volume_does_not_matter(portfolio, flip):
    rng = np.random.default_rng(1)
    X, D = portfolio(1000, rng)
    S = flip(D, 0.9, rng)
    a = AnchorNoise(random_state=0).fit(X, None, sensitive=S)
    b = AnchorNoise(random_state=0).fit(X, None, sensitive=S, sample_weight=rng.gamma(2, size=1000))
    assert a.message_ == b.message_


def test_declared_group_without_a_report():
    X, S = anchored(3000, 3, 0.8, np.random.default_rng(0))
    noise = AnchorNoise(groups=["a", "b", "c", "d"], random_state=0).fit(X, None, sensitive=S)
    assert noise.groups_ == ("a", "b", "c", "d")
    assert noise.group_keeps_["d"] == 0.25


@pytest.mark.parametrize(
    "parameters, error, match",
    [
        ({"n_splits": 0}, ValueError, "n_splits=0"),
        ({"n_splits": 2.5}, ValueError, "n_splits=2.5"),
        ({"n_splits": True}, ValueError, "n_splits=True"),
        ({"n_splits": 60}, ValueError, "fewer n_splits"),
        ({"aggregate": "mean"}, ValueError, "aggregate='mean'"),
        ({"group": "z"}, ValueError, "group"),
        ({"anchor_share": 0.1}, ValueError, "without a group"),
        ({"group": "F", "anchor_share": 0}, ValueError, "anchor_share=0"),
        ({"group": "F", "anchor_share": True}, ValueError, "anchor_share=True"),
        ({"group": float("nan")}, ValueError, "group"),
        ({"classifier": LinearSVC()}, TypeError, "predict_proba"),
        ({"classifier": LogisticRegression}, TypeError, "predict_proba"),
    ],
)
def test_bad_parameters(parameters, error, match):
    rng = np.random.default_rng(0)
    with pytest.raises(error, match=match):
        AnchorNoise(**parameters).fit(rng.normal(size=(100, 2)), None, sensitive=rng.choice(["F", "M"], 100))


@pytest.mark.parametrize(
    "X, S, match",
    [
        (None, ["F", "M"] * 20, "X=None"),
        (np.zeros((40, 1)), None, "sensitive=None"),
        (np.zeros((39, 1)), ["F", "M"] * 20, "same rows"),
        (np.zeros(40), ["F", "M"] * 20, "two-dimensional"),
        (np.zeros((40, 0)), ["F", "M"] * 20, "without columns"),
        (np.zeros((40, 1)), ["F"] * 40, "at least two"),
        (np.zeros((4, 1)), ["F", "M"] * 2, "more rows"),
        (np.zeros((40, 1)), ["F"] + ["M"] * 39, "all the same"),
        (np.full((40, 1), np.nan), ["F", "M"] * 20, "missing"),
    ],
)
def test_bad_data(X, S, match):
    with pytest.raises(ValueError, match=match):
        AnchorNoise(random_state=0).fit(X, None, sensitive=S)


def test_dates_are_refused():
    X = pd.DataFrame({"start": pd.to_datetime(["2024-01-01", "2024-02-01"] * 20)})
    with pytest.raises(TypeError, match="dates"):
        AnchorNoise().fit(X, None, sensitive=["F", "M"] * 20)

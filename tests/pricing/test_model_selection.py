"""Pricers with boosted trees and regressors, end to end: truths, choices, intervals, files, explanations."""

from __future__ import annotations

import hashlib
import json
import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fairpremium import DiscriminationFreePricer, RandomizedResponse, ValidationNoise
from fairpremium.errors import FairPremiumError, ModelFileError, OutOfRangeError, RiskUnboundedError
from fairpremium.families import get_family
from fairpremium.models import BoostedModel, LinearModel, NeuralModel, RegressorModel
from fairpremium.portfolios import nonlinear_poisson, zhang_liu_shi_2025
from fairpremium.pricing import _model_selection

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
QUICK = BoostedModel(max_rounds=40, learning_rate=0.2, patience=8, replicates=3)
QUIET: dict[str, Any] = {"intervals": False, "pooling": 0.0, "random_state": 0}


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    """The paper's portfolio with raw age and smoker."""
    p = zhang_liu_shi_2025(n=5000, rng=0)
    return {"X": p.X, "y": p.y, "D": p.sensitive, "S": CHANNEL.privatize(p.sensitive, rng=0), "p": p}


def error_of_mu(pricer: DiscriminationFreePricer, data: dict[str, Any]) -> float:
    """Root mean square error of mu(x, d) under P(x, d)."""
    found, truth = pricer.predict_best_estimate(data["X"]), data["p"].best_estimate(data["X"])
    gaps = [(found[g] - truth[g])[data["D"] == g] for g in pricer.groups_]
    return float(np.sqrt(np.mean(np.concatenate(gaps) ** 2)))


def small(n: int = 700, seed: int = 0, *, text: bool = False) -> dict[str, Any]:
    """A bent normal portfolio with two groups, small and quick."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"age": rng.integers(18, 80, n), "new": rng.random(n) < 0.3})
    if text:
        X["area"] = rng.choice(["city", "land", "üb – er"], n)
    D = np.where(rng.random(n) < 0.3 + 0.005 * X["age"], "F", "M")
    y = 5 + np.abs(X["age"] - 45) / 10 + (D == "F") * (1 + X["new"]) + rng.normal(size=n)
    return {"X": X, "y": y.to_numpy(), "D": D, "S": CHANNEL.privatize(D, rng=seed)}


def fit(data: dict[str, Any], model: Any = QUICK, **options: Any) -> DiscriminationFreePricer:
    chosen = {"channel": CHANNEL, "correction": "likelihood", **QUIET, **options}
    extra = {name: chosen.pop(name) for name in ("sample_weight", "cluster") if name in chosen}
    S = data["D"] if chosen["channel"] is None else data["S"]
    return DiscriminationFreePricer(model=model, **chosen).fit(data["X"], data["y"], sensitive=S, **extra)


# -- constructed truths ----------------------------------------------------------------------------------------------


def test_the_papers_portfolio_with_raw_columns(paper) -> None:
    """Below 12 with the referees' choice and with either correction; a line errs by about 43, the true D by about 7."""
    linear = error_of_mu(fit(paper, "linear", correction="auto", pooling="auto"), paper)
    auto = fit(paper, "boosted", correction="auto", pooling="auto")
    errors = {c: error_of_mu(fit(paper, "boosted", correction=c), paper) for c in ("posterior", "likelihood")}
    errors |= {"auto": error_of_mu(auto, paper), "none": error_of_mu(fit(paper, "boosted", channel=None), paper)}
    assert max(errors.values()) < 12, errors
    assert max(errors.values()) < linear / 3
    assert errors["none"] <= min(errors.values()) + 0.5  # seeing D is not worse
    table = auto.candidates_
    assert table["chosen"].sum() == 1
    assert set(table["correction"]) <= {"inverse", "likelihood", "posterior"}
    assert table["correction"].tolist()[0] == "inverse"
    assert table.loc[table["chosen"], "detail"].item().endswith("start and trees")
    assert "standard errors below the start's" in table.loc[table["chosen"], "reason"].item()
    assert auto.correction_ == table.loc[table["chosen"], "correction"].item()


def test_three_unequal_groups_with_exposure_and_missing_reports() -> None:
    p = nonlinear_poisson(n=6000, rng=1, frequency=0.6, group_effect=1.5)
    channel = RandomizedResponse(list(p.groups), keep=0.8)
    S = np.asarray(channel.privatize(p.sensitive, rng=1), dtype=object)
    S[np.random.default_rng(0).random(6000) < 0.15] = None
    data = {"X": p.X, "y": p.y, "D": p.sensitive, "S": S, "p": p}
    options = {"family": "poisson", "channel": channel, "sample_weight": p.sample_weight}
    boosted, linear = (fit(data, model, **options) for model in (QUICK, "linear"))
    assert boosted.n_missing_reports_ == sum(s is None for s in S)
    assert error_of_mu(boosted, data) < 0.9 * error_of_mu(linear, data)
    shares = pd.Series(p.sensitive).map(dict(zip(p.groups, range(3), strict=True)))
    by_volume = np.bincount(shares, weights=p.sample_weight) / p.sample_weight.sum()
    # multinomial error of 6,000 rows through this channel and 15 % silence: about .012
    np.testing.assert_allclose(boosted.group_distribution_, by_volume, atol=6 * 0.012)
    np.testing.assert_array_equal(boosted.reference_distribution_, boosted.group_distribution_)


def test_the_true_attribute() -> None:
    data = small()
    pricer = fit(data, channel=None)
    assert pricer.correction_ == "none"
    # given the unaware price, groups differ by lines: trees have nothing to add
    assert pricer.candidates_[["model", "correction", "detail", "chosen"]].to_numpy().tolist() == [
        ["boosted", "none", "", True],
        ["boosted", "none", "start and trees", False],
    ]
    shares = pd.Series(data["D"]).value_counts(normalize=True)[list(pricer.groups_)]
    np.testing.assert_allclose(pricer.group_distribution_, shares, rtol=1e-9)
    # no noise at all is the same as a channel that almost never lies
    near = {**data, "S": data["D"]}
    other = fit(near, channel=RandomizedResponse(["F", "M"], keep=1 - 1e-9), correction="posterior")
    gap = np.asarray(other.predict_best_estimate(data["X"])) - np.asarray(pricer.predict_best_estimate(data["X"]))
    assert np.sqrt(np.mean(gap**2)) < 0.1  # the starts differ a little; the noise has standard deviation one


@pytest.mark.parametrize("reference", ["marginal", "uniform", "balanced", {"F": 0.2, "M": 0.8}])
def test_references(reference) -> None:
    data = small()
    weight = np.random.default_rng(0).uniform(0.5, 2, len(data["y"]))
    pricer = fit(data, reference=reference, sample_weight=weight)
    P = pricer.reference_distribution_
    np.testing.assert_allclose(
        pricer.predict(data["X"]), np.asarray(pricer.predict_best_estimate(data["X"])) @ P, rtol=1e-12
    )
    if reference == "balanced":
        mean = np.average(pricer.predict(data["X"]), weights=weight)
        assert mean == pytest.approx(np.average(data["y"], weights=weight), rel=1e-9)
        assert not np.allclose(P, pricer.group_distribution_, atol=1e-4)
    else:
        expected = {"marginal": pricer.group_distribution_, "uniform": [0.5, 0.5]}
        np.testing.assert_allclose(P, expected[reference] if isinstance(reference, str) else [0.2, 0.8])


# -- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("correction", "why"), [("inverse", "negative"), ("score", "linear predictor")])
@pytest.mark.parametrize("model", ["boosted", QUICK, ["linear", "boosted"]])
def test_corrections_with_signed_weights_are_refused(model, correction: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"Got correction='{correction}' with a boosted model, but .*{why}"):
        fit(small(60), model, correction=correction)


def test_the_true_attribute_needs_no_correction() -> None:
    assert fit(small(300), channel=None, correction="inverse").correction_ == "none"


def test_models_side_by_side(paper) -> None:
    data = {**paper, "X": paper["X"][:2000], "y": paper["y"][:2000], "D": paper["D"][:2000], "S": paper["S"][:2000]}
    pricer = fit(data, ["linear", QUICK], intervals=True)
    table = pricer.candidates_
    assert table["model"].tolist() == ["linear", "boosted"]
    assert table["chosen"].tolist() == [False, True]
    assert isinstance(pricer.model_, BoostedModel)
    assert np.isfinite(table[["corrected_risk", "corrected_risk_se"]]).all(axis=None)
    assert table["corrected_risk"].argmin() == 1
    assert "smallest corrected risk of all model classes" in table.loc[1, "reason"]
    assert "standard errors above that of the boosted model" in table.loc[0, "reason"]
    assert pricer.predict_interval(data["X"][:5]).lower.shape == (5,)


def test_a_line_wins_where_the_truth_is_one() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(800, 2))
    D = rng.choice(["F", "M"], 800)
    y = X @ [1.0, -2.0] + (D == "F") * (1 + X[:, 0]) + 0.3 * rng.normal(size=800)
    pricer = fit({"X": X, "y": y, "D": D}, ["linear", RandomForestRegressor(10)], channel=None)
    assert isinstance(pricer.model_, LinearModel)
    assert pricer.candidates_["model"].tolist() == ["linear", "regressor", "regressor"]
    assert pricer.candidates_["chosen"].tolist() == [True, False, False]
    assert hasattr(pricer, "coefficients_")


def test_a_class_that_fails_does_not_stop_the_others(monkeypatch) -> None:
    """In the fit, and without a fold of the rows."""
    data = small(400)

    def unbounded(*_: Any) -> None:
        raise RiskUnboundedError("no minimum here")

    for place in ("of", "without"):
        with monkeypatch.context() as patch:
            patch.setattr(_model_selection.LinearFit, place, unbounded)
            pricer = fit(data, ["linear", QUICK])
            table = pricer.candidates_.set_index("model")
            assert isinstance(pricer.model_, BoostedModel)
            assert table["chosen"].to_dict() == {"linear": False, "boosted": True}
            assert "no minimum here" in table.loc["linear", "reason"]
            with pytest.raises(RiskUnboundedError):
                fit(data, ["linear", "linear"])


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        ([], ValueError, r"Got model=\[\], but expected at least one"),
        ("forest", ValueError, "Got model='forest', but expected one of"),
        (3, TypeError, "Got model of type int"),
    ],
)
def test_what_is_no_model(model, error, message) -> None:
    with pytest.raises(error, match=message):
        fit(small(60), model)


# -- intervals -------------------------------------------------------------------------------------------------------


def test_intervals_contain_the_premium_and_shrink_with_rows() -> None:
    widths = []
    for n in (400, 6400):
        data = small(n)
        pricer = fit(data, BoostedModel(max_rounds=40, learning_rate=0.2, replicates=5), intervals=True)
        risks = small(200, seed=9)["X"]
        premium, (lower, upper) = pricer.predict(risks), pricer.predict_interval(risks)
        assert ((lower <= premium) & (premium <= upper)).all()
        wide = pricer.predict_interval(risks, level=0.99)
        assert ((wide.lower <= lower) & (wide.upper >= upper)).all()
        widths.append(np.median(upper - lower))
    # sixteen times the rows: a quarter of the width for a parametric fit, somewhat more for trees
    assert widths[1] < 0.6 * widths[0]


def test_the_jackknife_against_a_slow_reference() -> None:
    """Log link, three parts: variance (G - 1) / G sum (h_g - mean)^2 and Student's quantile with two degrees."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(600, 2))
    D = rng.choice(["F", "M"], 600)
    data = {"X": X, "y": rng.poisson(np.exp(X[:, 0] > 0.5) * (1 + (D == "F"))).astype(float), "D": D}
    data["S"] = CHANNEL.privatize(D, rng=0)
    pricer = fit(data, family="poisson", intervals=True)
    assert len(pricer._prices.replicates) == 3
    lower, upper = pricer.predict_interval(X[:20], level=0.9)
    for i in range(20):
        h = [np.log(np.exp(f.predictor(X[[i]])[0]) @ f.reference) for f in pricer._prices.replicates]
        width = 2.9199855803537251 * np.sqrt(2 / 3 * np.sum((np.array(h) - np.mean(h)) ** 2))
        center = np.log(pricer.predict(X[[i]])[0])
        assert np.log([lower[i], upper[i]]) == pytest.approx([center - width, center + width], rel=1e-9)


def test_without_intervals_there_are_none() -> None:
    pricer = fit(small(300))
    with pytest.raises(ValueError, match="fitted with intervals=False"):
        pricer.predict_interval(small(5)["X"])


def test_an_estimated_channel_widens_intervals() -> None:
    """Fifty people with a known attribute say little about keep; ten thousand say almost all."""
    data = small(900)
    rng = np.random.default_rng(0)
    risks = data["X"][:200]

    def widths(people: int) -> tuple[np.ndarray, DiscriminationFreePricer]:
        true = rng.choice(["F", "M"], people)
        report = np.where(np.arange(people) % 5 > 0, true, np.where(true == "F", "M", "F"))  # exactly four fifths
        noise = ValidationNoise(true, report, groups=["F", "M"])
        pricer = fit(data, channel=noise, intervals=True, correction="posterior", reference={"F": 1.0, "M": 0.0})
        assert pricer.channel_.keep == pytest.approx(0.8, abs=1e-6)
        lower, upper = pricer.predict_interval(risks)
        return upper - lower, pricer

    (wide, vague), (narrow, sure) = widths(50), widths(10_000)
    assert np.mean(wide >= narrow) > 0.8  # trees jump a little when keep moves a little
    assert np.sqrt(np.mean(wide**2)) > np.sqrt(np.mean(narrow**2))

    def channel_error(pricer: DiscriminationFreePricer) -> np.ndarray:
        """The derivative of the premium in keep times the standard error of keep."""
        up, down = (
            pricer._prices._mean(f.predictor(pricer._matrix(risks))) @ f.reference for f in pricer._prices.shifted
        )
        return pricer._prices.shift * (up - down)

    assert np.sqrt(np.mean(channel_error(vague) ** 2)) > 2 * np.sqrt(np.mean(channel_error(sure) ** 2))
    G = len(vague._prices.replicates)
    h = np.array(
        [vague._prices._mean(f.predictor(vague._matrix(risks))) @ f.reference for f in vague._prices.replicates]
    )
    scatter = (G - 1) / G * np.sum((h - h.mean(axis=0)) ** 2, axis=0)
    np.testing.assert_allclose((wide / 2 / 4.302652729696142) ** 2, scatter + channel_error(vague) ** 2, rtol=1e-8)


@pytest.mark.parametrize("model", [QUICK, NeuralModel(hidden=(4,), max_epochs=3, replicates=3)], ids=["trees", "nets"])
def test_threads_change_no_price_and_no_interval(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    data, found = small(400, text=True), []
    for workers in ("1", "2", "5"):
        monkeypatch.setenv("FAIRPREMIUM_WORKERS", workers)
        pricer = fit(data, model, correction="auto", intervals=True)
        found.append((pricer.predict(data["X"]), *pricer.predict_interval(data["X"])))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_intervals_are_given_up_as_a_whole(monkeypatch) -> None:
    data = small(300)
    noise = ValidationNoise(["F", "M"] * 40, ["F", "M"] * 32 + ["M", "F"] * 8, groups=["F", "M"])

    def unbounded(*_: Any) -> None:
        raise RiskUnboundedError("no minimum for that keep")

    monkeypatch.setattr(_model_selection.NonlinearFit, "_shifted", unbounded)
    with pytest.warns(UserWarning, match=r"The prices have no intervals.*no minimum for that keep"):
        pricer = fit(data, channel=noise, intervals=True)
    with pytest.raises(ValueError, match="intervals"):
        pricer.predict_interval(data["X"])


def test_rows_of_a_person_stay_together() -> None:
    """Every person's row four times over: with `cluster` the interval is about twice as wide as without."""
    data = small(250)
    four = {
        "X": pd.concat([data["X"]] * 4, ignore_index=True),
        **{name: np.tile(data[name], 4) for name in ("y", "D", "S")},
    }
    person = np.tile(np.arange(250), 4)
    model = BoostedModel(max_rounds=30, learning_rate=0.2, replicates=8, min_leaf=20.0)
    loose, tied = (fit(four, model, intervals=True, **extra) for extra in ({}, {"cluster": person}))
    ratio = [np.subtract(*p.predict_interval(data["X"])[::-1]) for p in (tied, loose)]
    assert np.median(ratio[0] / ratio[1]) > 1.4


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[DiscriminationFreePricer, dict[str, Any], dict[str, Any]]:
    """A boosted pricer with text columns, intervals and an estimated channel; its data; its file as plain data."""
    data = small(500, text=True)
    noise = ValidationNoise(["F", "M"] * 100, ["F", "M"] * 80 + ["M", "F"] * 20, groups=["F", "M"])
    model = BoostedModel(
        max_rounds=np.int64(8), learning_rate=np.float64(0.3), replicates=2, monotone={"age": 1}, params={"max_bin": 63}
    )
    pricer = fit(data, model, channel=noise, intervals=True, correction="posterior")
    path = tmp_path_factory.mktemp("saved") / "model.json"
    pricer.save(path)
    return pricer, data, json.loads(path.read_text(encoding="utf-8"))


def write(document: dict[str, Any], path, *, sign: bool = True) -> Any:
    """Write a document, with the hash that belongs to it."""
    body = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest() if sign else document["sha256"]
    path.write_text(json.dumps({**body, "sha256": digest}), encoding="utf-8")
    return path


def test_round_trip(saved, tmp_path) -> None:
    pricer, data, document = saved
    X = data["X"]
    loaded = DiscriminationFreePricer.load(write(document, tmp_path / "a.json"))
    np.testing.assert_array_equal(loaded.predict(X), pricer.predict(X))
    np.testing.assert_array_equal(loaded.predict_unaware(X), pricer.predict_unaware(X))
    np.testing.assert_array_equal(loaded.predict_interval(X), pricer.predict_interval(X))
    pd.testing.assert_frame_equal(loaded.predict_best_estimate(X), pricer.predict_best_estimate(X))
    pd.testing.assert_frame_equal(loaded.candidates_, pricer.candidates_)
    pd.testing.assert_frame_equal(loaded.explain(X, points=3), pricer.explain(X, points=3))
    assert loaded.score(X, data["y"], sensitive=data["S"]) == pricer.score(X, data["y"], sensitive=data["S"])
    assert loaded.model_.get_params() == pricer.model_.get_params()
    loaded.save(tmp_path / "b.json")
    pricer.save(tmp_path / "c.json")
    assert (tmp_path / "b.json").read_bytes() == (tmp_path / "c.json").read_bytes()


def test_a_file_holds_no_rows(saved) -> None:
    """LightGBM's own text counts the rows of each leaf and gives the range of each column."""
    text = json.dumps(saved[2]["formula"])
    for word in ("leaf_count", "leaf_weight", "internal_count", "[18:79]", "parameters"):
        assert word not in text


def test_an_edited_file_is_refused(saved, tmp_path) -> None:
    document = json.loads(json.dumps(saved[2]))
    document["formula"]["unaware"]["shift"] += 1
    with pytest.raises(ModelFileError, match="does not match its sha256"):
        DiscriminationFreePricer.load(write(document, tmp_path / "m.json", sign=False))


@pytest.mark.parametrize("where", ["formula", "replicates", "shifted"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("left_child=", "left_child=99999 "),
        ("num_leaves=", "num_leaves=9"),
        ("split_feature=", "split_feature=-7 "),
        ("leaf_value=", "leaf_value=nan "),
        ("tree\n", "#!/bin/sh\n"),
        ("Tree=0", "Tree=0\nTree=0"),
    ],
)
def test_hostile_trees_are_refused(saved, tmp_path, where: str, old: str, new: str) -> None:
    """With a hash that fits: whoever writes a file can compute it."""
    document = json.loads(json.dumps(saved[2]))
    formula = document[where] if where == "formula" else document[where][0]
    prices = formula["best"]["prices"]
    before = prices["trees"]
    prices["trees"] = before.replace(old, new, 1)
    assert prices["trees"] != before
    with pytest.raises(ModelFileError, match="tree"):
        DiscriminationFreePricer.load(write(document, tmp_path / "m.json"))


@pytest.mark.parametrize(
    "damage",
    [
        {"model": {"kind": "boosted", "max_rounds": -5}},
        {"model": {"kind": "boosted", "made_up": 1}},
        {"model": {"kind": "pickle"}},
        {"model": {"kind": ["boosted"]}},
        {"formula": None},
        {"formula": {}},
        {"replicates": [None]},
        {"shift": "much"},
        {"shift": None},
        {"design": {"named": True, "columns": [{"name": "age", "levels": None}]}},
    ],
)
def test_damaged_fields_are_refused(saved, tmp_path, damage) -> None:
    with pytest.raises(ModelFileError):
        DiscriminationFreePricer.load(write({**saved[2], **damage}, tmp_path / "m.json"))


def test_prices_beyond_any_number_at_zero_do_not_stop_loading(tmp_path) -> None:
    """A calendar year as a feature: at year zero the linear start of a good model is astronomical."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(2000, 2020, 500), rng.uniform(size=500)]).astype(float)
    D = rng.choice(["F", "M"], 500)
    data = {"X": X, "y": rng.poisson(np.exp(-0.8 * (X[:, 0] - 2010) / 2)).astype(float), "D": D}
    pricer = fit(data, channel=None, family="poisson")
    with pytest.raises(OutOfRangeError, match="1 of 1 rows whose price would be far outside"):
        pricer.predict(np.zeros((1, 2)))
    pricer.save(tmp_path / "m.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(X), pricer.predict(X))


def test_a_loaded_pricer_can_be_fitted_again_and_moved(tmp_path) -> None:
    """Also when the choice was the linear start, by a correction that trees cannot serve themselves."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(500, 1))
    D = rng.choice(["F", "M"], 500)
    data = {"X": X, "y": X[:, 0] + (D == "F") + 3 * rng.exponential(size=500), "D": D, "S": CHANNEL.privatize(D, rng=1)}
    pricer = fit(data, correction="auto")
    pricer.correction_ = "score"  # as if the linear start had won
    pricer.save(tmp_path / "m.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "m.json")
    assert loaded.correction_ == "score"
    assert loaded.correction == "auto"
    table = pricer.set_params(model=["linear", QUICK]).sensitivity(
        X, data["y"], sensitive=data["S"], rows=[0, 1], keeps=[0.8, 1.0]
    )
    assert np.isfinite(table["premium"]).all()


def test_the_sensitivity_band_keeps_the_class_that_was_chosen(paper) -> None:
    data = {name: paper[name][:1500] for name in ("X", "y", "D", "S")}
    pricer = fit(data, ["linear", QUICK])
    assert isinstance(pricer.model_, BoostedModel)
    band = pricer.sensitivity(data["X"], data["y"], sensitive=data["S"], rows=[0, 1], keeps=[0.75, 0.8])
    direct = fit(data, QUICK, channel=RandomizedResponse(["F", "M"], keep=0.75)).predict(data["X"][:2])
    np.testing.assert_allclose(band.loc[band["keep"] == 0.75, "premium"], direct, rtol=1e-12)


# -- explanations ----------------------------------------------------------------------------------------------------


def test_slopes_of_a_linear_pricer_are_its_coefficients() -> None:
    data = small(400, text=True)
    pricer = fit(data, "linear")
    B, P = pricer.coefficients_, pricer.reference_distribution_
    groups = list(pricer.groups_)
    premium = B[groups].to_numpy() @ P
    for points in (5, 20):
        table = pricer.explain(data["X"], points=points)
        assert table.columns.tolist() == ["feature", "value", "premium", "unaware", "gap F", "gap M"]
        age = table[table["feature"] == "age"].astype({"value": float})
        assert 2 <= len(age) <= points
        slope = B.index.get_loc("age")
        steps = np.diff(age["value"])
        np.testing.assert_allclose(np.diff(age["premium"]) / steps, premium[slope], rtol=1e-9)
        np.testing.assert_allclose(np.diff(age["unaware"]) / steps, B["unaware"].iloc[slope], rtol=1e-9)
        for g in groups:
            gap = (B[g] - B["unaware"]).iloc[slope]
            np.testing.assert_allclose(np.diff(age[f"gap {g}"]) / steps, gap, rtol=1e-8)
    new = table[table["feature"] == "new"].set_index("value")
    assert set(new.index) == {False, True}
    level = next(name for name in B.index if name.startswith("new="))
    sign = 1 if level == "new=True" else -1
    assert sign * (new["premium"][True] - new["premium"][False]) == pytest.approx(premium[B.index.get_loc(level)])
    area = table[table["feature"] == "area"]
    assert set(area["value"]) == {"city", "land", "üb – er"}


def test_explanations_of_trees_are_means_over_the_portfolio() -> None:
    data = small(300, text=True)
    pricer = fit(data, family="normal")
    table = pricer.explain(data["X"], points=4)
    for _, row in table.iterrows():
        moved = data["X"].assign(**{row["feature"]: row["value"]})
        assert row["premium"] == pytest.approx(pricer.predict(moved).mean(), rel=1e-12)
        assert row["unaware"] == pytest.approx(pricer.predict_unaware(moved).mean(), rel=1e-12)
        gaps = pricer.predict_best_estimate(moved).sub(pricer.predict_unaware(moved), axis=0).mean()
        assert [row["gap F"], row["gap M"]] == pytest.approx(gaps[["F", "M"]].tolist(), rel=1e-9, abs=1e-9)
    sample = pricer.explain(data["X"], points=4, max_rows=50)
    assert sample["feature"].tolist()[:2] == ["age", "age"]
    assert not hasattr(pricer, "coefficients_")


@pytest.mark.parametrize("bad", [{"points": 1}, {"points": True}, {"max_rows": 0}])
def test_explain_checks_its_settings(bad) -> None:
    data = small(200)
    with pytest.raises(ValueError, match="expected integers, points >= 2 and rows >= 1"):
        fit(data, "linear").explain(data["X"], **bad)


# -- scikit-learn and tables -----------------------------------------------------------------------------------------


def test_clone_and_params() -> None:
    pricer = DiscriminationFreePricer(model=["linear", BoostedModel(max_rounds=7)], channel=CHANNEL)
    copy = clone(pricer)
    assert copy.model[1].max_rounds == 7
    assert copy.model[1] is not pricer.model[1]
    forest = clone(DiscriminationFreePricer(model=RandomForestRegressor(3)))
    assert forest.set_params(model__n_estimators=9).model.n_estimators == 9
    own = DiscriminationFreePricer(model=RegressorModel(RandomForestRegressor(3)))
    assert own.get_params()["model__regressor__n_estimators"] == 3
    assert clone(DiscriminationFreePricer(model=QUICK)).get_params()["model__learning_rate"] == 0.2


def test_pipelines_and_searches() -> None:
    data = small(450)
    X = data["X"].to_numpy(dtype=float)
    with config_context(enable_metadata_routing=True):
        pricer = (
            DiscriminationFreePricer(model=clone(QUICK), channel=CHANNEL, correction="likelihood", **QUIET)
            .set_fit_request(sensitive=True)
            .set_score_request(sensitive=True)
        )
        piped = make_pipeline(StandardScaler(), clone(pricer)).fit(X, data["y"], sensitive=data["S"])
        direct = clone(pricer).fit(X, data["y"], sensitive=data["S"])
        # trees are the same on any scale; bins and the linear start differ in the last digits
        assert np.corrcoef(piped.predict(X), direct.predict(X))[0, 1] > 0.99
        grid = {"model__max_rounds": [1, 30], "model__learning_rate": [0.2]}
        search = GridSearchCV(pricer, grid, cv=3, error_score="raise").fit(X, data["y"], sensitive=data["S"])
        assert search.best_estimator_.model.max_rounds in (1, 30)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_tables_of_any_library_give_the_same_premiums() -> None:
    data = small(300, text=True)
    pandas = fit(data)
    polars = fit({**data, "X": pl.from_pandas(data["X"])})
    premium = pandas.predict(data["X"])
    np.testing.assert_allclose(polars.predict(pl.from_pandas(data["X"])), premium, rtol=1e-12)
    np.testing.assert_allclose(pandas.predict(pl.from_pandas(data["X"][["area", "new", "age"]])), premium, rtol=1e-12)
    assert isinstance(polars.predict_best_estimate(pl.from_pandas(data["X"])), pl.DataFrame)


def test_a_seed_makes_a_fit_repeatable() -> None:
    data = small(300)
    one, same = (fit(data, intervals=True) for _ in range(2))
    np.testing.assert_array_equal(one.predict_interval(data["X"]), same.predict_interval(data["X"]))


@pytest.mark.parametrize("correction", ["posterior", "likelihood"])
def test_reports_that_say_little_are_enough_where_they_are_for_a_line(correction: str) -> None:
    """A group of three per cent behind keep 0.6: the inverse correction has no minimum, these two need none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    D = np.where(rng.random(400) < 0.03, "F", "M")
    channel = RandomizedResponse(["F", "M"], keep=0.6)
    data = {"X": X, "y": np.sin(X[:, 0]) + (D == "F") + rng.normal(size=400), "D": D, "S": channel.privatize(D, rng=0)}
    with pytest.raises(RiskUnboundedError):
        fit(data, "linear", channel=channel, correction="inverse")
    for model in ("linear", QUICK):
        pricer = fit(data, model, channel=channel, correction=correction, reference="uniform")
        assert np.abs(pricer.predict(X)).max() < 10 * np.abs(data["y"]).max()


@pytest.mark.parametrize("n", [2, 3, 6, 12])
def test_tiny_portfolios_are_priced_or_refused(n: int) -> None:
    data = small(n, seed=4)
    data["D"] = np.array(["F", "M"] * n)[:n]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            pricer = fit(data, channel=None, pooling=1.0)
        except FairPremiumError:
            return
    assert np.isfinite(pricer.predict(data["X"])).all()


# -- properties ------------------------------------------------------------------------------------------------------

FAMILIES = ["normal", "poisson", "gamma", "tweedie", "bernoulli"]


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 10_000),
    K=st.integers(2, 3),
    above=st.sampled_from([0.03, 0.1, 0.3, 0.6, 0.9]),
    rare=st.sampled_from([0.02, 0.1, 0.3]),
    correction=st.sampled_from(["posterior", "likelihood"]),
    least=st.sampled_from([0.0, 5.0]),
)
def test_no_price_ever_explodes(
    family: str, seed: int, K: int, above: float, rare: float, correction: str, least: float
) -> None:
    """Keeps from just above 1 / K, groups of two per cent: every number is a price, or an error says why there is none.

    A premium far outside the outcomes' range would be an explosion; ten times the range is generous.
    """
    rng = np.random.default_rng(seed)
    n = 500
    X = pd.DataFrame({"x": rng.normal(size=n), "t": rng.choice(list("abc"), n)})
    shares = np.array([rare, *np.full(K - 1, (1 - rare) / (K - 1))])
    D = rng.choice(K, n, p=shares)
    law = get_family(family)
    eta = -0.5 + np.sin(2 * X["x"]) * 0.7 + 0.8 * D + (X["t"] == "b") * 0.5
    mu = law.link.mean_of(eta.to_numpy())
    y = {
        "normal": lambda: mu + rng.normal(size=n),
        "poisson": lambda: rng.poisson(mu),
        "gamma": lambda: rng.gamma(1.0, mu),
        "tweedie": lambda: rng.poisson(mu) * rng.gamma(2.0, 0.5, n),
        "bernoulli": lambda: rng.random(n) < mu,
    }[family]().astype(float)
    channel = RandomizedResponse(list(range(K)), keep=1 / K + above * (1 - 1 / K))
    model = BoostedModel(max_rounds=30, learning_rate=0.3, patience=4, min_leaf=least, l2=min(least, 1.0), replicates=5)
    pricer = DiscriminationFreePricer(law, model, channel, correction, pooling=5.0, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The prices have no intervals", category=UserWarning)
        try:
            pricer.fit(X, y, sensitive=channel.privatize(D, rng=seed))
        except FairPremiumError:
            return
    numbers = [pricer.predict(X), pricer.predict_unaware(X), np.asarray(pricer.predict_best_estimate(X)).ravel()]
    spread = np.ptp(y)
    for found in numbers:
        assert np.isfinite(found).all()
        assert law.mean.contains(found).all()
        assert found.max() <= y.max() + 10 * spread
        assert found.min() >= y.min() - 10 * spread
    if pricer._prices.has_intervals:
        lower, upper = pricer.predict_interval(X, level=0.8)
        assert np.isfinite([lower, upper]).all()
        assert (lower <= upper).all()
        assert law.mean.contains(lower).all()


def poisson_rows(n: int = 400, seed: int = 3) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"x": rng.normal(size=n), "u": rng.uniform(size=n)})
    D = rng.choice(["F", "M"], n)
    return X, rng.poisson(np.exp(-0.5 + 0.5 * X["x"] + 0.4 * (D == "F"))).astype(float), D


@pytest.mark.parametrize(
    "model",
    [
        BoostedModel(max_rounds=20),
        NeuralModel(hidden=(8,), max_epochs=20),
        RandomForestRegressor(20, min_samples_leaf=20),
    ],
    ids=["boosted", "neural", "forest"],
)
def test_a_row_far_from_the_fit_is_refused_and_never_gets_an_astronomic_price(model) -> None:
    X, y, D = poisson_rows()
    pricer = DiscriminationFreePricer("poisson", model, intervals=False, random_state=0).fit(X, y, sensitive=D)
    for far in (10.0, 30.0, 100.0, 1e5):
        row = pd.DataFrame({"x": [far], "u": [0.5]})
        try:
            price = pricer.predict(row)[0]
        except OutOfRangeError:
            continue
        assert 0 < price <= 10 * y.max()
    with pytest.raises(OutOfRangeError):
        pricer.predict(pd.DataFrame({"x": [1e5], "u": [0.5]}))


def test_nets_of_a_calendar_year_can_be_loaded_with_their_learning_curve(tmp_path) -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"year": rng.integers(2000, 2020, 400).astype(float), "u": rng.uniform(size=400)})
    y = rng.poisson(np.exp(-0.3 * (X["year"] - 2010) / 2)).astype(float)
    model = NeuralModel(hidden=(8,), max_epochs=40)
    pricer = DiscriminationFreePricer(
        "poisson", model, CHANNEL, correction="posterior", intervals=False, random_state=0
    )
    pricer.fit(X, y, sensitive=rng.choice(["F", "M"], 400)).save(tmp_path / "m.json")
    loaded = DiscriminationFreePricer.load(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(X), pricer.predict(X))
    assert loaded.history_ == pricer.history_
    assert len(loaded.history_["held_loss"]) > 0


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"monotone_constraints": [1]}, "monotone="),
        ({"n_estimators": 3}, "settings of BoostedModel"),
        ({"eta": 9}, "eta"),
    ],
)
def test_parameters_that_are_settings_are_refused(params, said) -> None:
    X, y, D = poisson_rows(100)
    with pytest.raises(ValueError, match=said):
        DiscriminationFreePricer("poisson", BoostedModel(params=params)).fit(X, y, sensitive=D)


def test_a_column_with_a_long_tail_ends_in_prices_or_in_a_reason() -> None:
    X, y, D = poisson_rows()
    X["x"] = np.exp(3 * np.random.default_rng(0).normal(size=len(X)))
    model = NeuralModel(hidden=(8,), max_epochs=20)
    pricer = DiscriminationFreePricer("poisson", model, CHANNEL, intervals=False, random_state=0)
    try:
        pricer.fit(X, y, sensitive=CHANNEL.privatize(D, rng=0))
    except FairPremiumError:
        return  # not a ValueError from deep inside
    assert pricer.predict(X).max() <= 10 * y.max()

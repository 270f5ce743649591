"""Outcomes that are totals over an exposure: y / exposure with the exposure as volume, wherever an outcome is taken."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, MarginNoise, RandomizedResponse, audit
from fairpremium.errors import ExposureWarning
from fairpremium.families import Tweedie
from fairpremium.pricing import _source_portfolio

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
N = 4000


@pytest.fixture(scope="module")
def book():
    """Counts of policies that are insured for a part of the year; the young leave early, so that exposure matters."""
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 80, size=N)
    city = rng.random(N) < 0.4
    group = np.where(rng.random(N) < 0.45, "F", "M")
    exposure = np.where(age < 40, rng.uniform(0.1, 0.6, size=N), 1.0)
    rate = np.exp(-1.5 - 0.02 * (age - 45) + 0.3 * city + 0.3 * (group == "M"))
    counts = rng.poisson(exposure * rate)
    return pd.DataFrame(
        {
            "age": age,
            "city": np.where(city, "city", "land"),
            "count": counts,
            "amount": [float(rng.gamma(2.0, 500.0, size=c).sum()) for c in counts],
            "exposure": exposure,
            "group": group,
            "report": CHANNEL.privatize(group, rng=1),
        }
    )


def features(book):
    return book[["age", "city"]]


def make_pricer(**settings):
    return DiscriminationFreePricer(
        **{"family": "poisson", "channel": CHANNEL, "correction": "inverse", "pooling": 0.0, **settings}
    )


def fit_with_offset(X, counts, offset):
    """Fit a Poisson regression with the log link and an offset by Newton's method: an independent implementation."""
    beta = np.zeros(X.shape[1])
    beta[0] = np.log(counts.sum() / np.exp(offset).sum())
    for _ in range(50):
        mu = np.exp(X @ beta + offset)
        step = np.linalg.solve(X.T @ (X * mu[:, None]), X.T @ (counts - mu))
        beta = beta + step
        if np.abs(step).max() < 1e-14:
            break
    return beta


def test_exposure_is_the_offset_of_a_poisson_regression(book):
    pricer = make_pricer(channel=None, intervals=False)
    pricer.fit(features(book), book["count"], sensitive=book["group"], exposure=book["exposure"])
    X = np.column_stack([np.ones(N), book["age"], book["city"] == "city"])
    offset = np.log(book["exposure"].to_numpy())
    order = ["intercept", "age", *[name for name in pricer.coefficients_.index if "city" in name]]
    found = pricer.coefficients_.loc[order]
    if "land" in order[-1]:  # the base level is the other one
        X[:, 2] = 1 - X[:, 2]
    for name, rows in (("unaware", np.full(N, True)), ("F", book["group"] == "F"), ("M", book["group"] == "M")):
        expected = fit_with_offset(X[rows], book["count"].to_numpy()[rows], offset[rows])
        np.testing.assert_allclose(found[name], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("family", ["normal", "poisson", "tweedie"])
def test_exposure_is_the_rate_with_the_exposure_as_weight(book, family):
    y = book["amount"] if family == "tweedie" else book["count"]
    given = make_pricer(family=family).fit(features(book), y, sensitive=book["report"], exposure=book["exposure"])
    rate = y / book["exposure"]
    by_hand = make_pricer(family=family)
    by_hand.fit(features(book), rate, sensitive=book["report"], sample_weight=book["exposure"])
    np.testing.assert_array_equal(given.predict(features(book)), by_hand.predict(features(book)))
    for method, more in (("score", {}), ("sensitivity", {"rows": [0, 1], "keeps": [0.75, 0.8]}), ("certificate", {})):
        mine = getattr(given, method)(features(book), y, sensitive=book["report"], exposure=book["exposure"], **more)
        other = getattr(by_hand, method)(
            features(book), rate, sensitive=book["report"], sample_weight=book["exposure"], **more
        )
        if method == "score":
            assert mine == other
        else:
            pd.testing.assert_frame_equal(mine, other)


def test_counts_with_their_exposure_as_weight_are_wrong_and_warn(book):
    """The mistake: counts taken for rates gave premiums far too low, and nothing said so."""
    truth = float(book["count"].sum() / book["exposure"].sum())
    with pytest.warns(ExposureWarning, match="exposure"):
        wrong = make_pricer().fit(
            features(book), book["count"], sensitive=book["report"], sample_weight=book["exposure"]
        )
    right = make_pricer().fit(features(book), book["count"], sensitive=book["report"], exposure=book["exposure"])
    level = {
        name: float(np.average(pricer.predict_unaware(features(book)), weights=book["exposure"]))
        for name, pricer in (("wrong", wrong), ("right", right))
    }
    assert level["right"] == pytest.approx(truth, rel=1e-6)  # the balance of a Poisson regression
    assert level["wrong"] < 0.95 * truth


@pytest.mark.parametrize("family", ["normal", "poisson", "negative_binomial", "tweedie"])
def test_counts_warn_in_every_family_that_takes_them(book, family):
    pricer = make_pricer(family=family, channel=None)
    with pytest.warns(ExposureWarning, match="sample_weight"):
        pricer.fit(features(book), book["count"], sensitive=book["group"], sample_weight=book["exposure"])


@pytest.mark.parametrize("what", ["score", "certificate"])
def test_counts_warn_where_a_pricer_is_measured(book, what):
    """The mistake: the level of rates was certified with counts, and nothing was said."""
    pricer = make_pricer(channel=None)
    rows = {"X": features(book), "sensitive": book["group"]}
    pricer.fit(**rows, y=book["count"], exposure=book["exposure"])
    with pytest.warns(ExposureWarning, match="sample_weight"):
        getattr(pricer, what)(**rows, y=book["count"], sample_weight=book["exposure"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(pricer, what)(**rows, y=book["count"], exposure=book["exposure"])
        getattr(pricer, what)(**rows, y=book["count"] / book["exposure"], sample_weight=book["exposure"])


def test_no_warning_where_nothing_is_wrong(book):
    X, S = features(book), book["group"]
    ones, varying = np.ones(N), book["exposure"]
    indicator = (book["count"] > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ExposureWarning)
        make_pricer(channel=None).fit(X, book["count"], sensitive=S, sample_weight=ones)  # equal weights
        make_pricer(channel=None).fit(X, book["count"], sensitive=S)
        make_pricer(channel=None).fit(X, book["count"] / varying, sensitive=S, sample_weight=varying)
        make_pricer(channel=None, family="bernoulli").fit(X, indicator, sensitive=S, sample_weight=varying)
        make_pricer(channel=None, family="normal").fit(X, 100 * book["count"] + 7, sensitive=S, sample_weight=varying)
        times = 1 + np.arange(N) % 3  # how many equal rows a row stands for
        make_pricer(channel=None, family="normal").fit(X, book["count"], sensitive=S, sample_weight=times)
        whole = np.where(np.arange(N) % 2, 1.0, 0.5)  # counts over half a year are whole, too
        make_pricer(channel=None).fit(X, book["count"], sensitive=S, exposure=whole)
        audit.compute_group_means(np.ones(N), book["count"], sensitive=S, exposure=whole)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_an_exposure_that_is_not_positive_names_the_first_row(book, bad):
    exposure = book["exposure"].to_numpy().copy()
    exposure[[17, 40]] = bad
    message = rf"exposure with 2 of {N} values .* the first of them {bad:g} in row 17 .*expected"
    with pytest.raises(ValueError, match=message):
        make_pricer().fit(features(book), book["count"], sensitive=book["report"], exposure=exposure)
    with pytest.raises(ValueError, match=message):
        audit.compute_group_means(np.ones(N), book["count"], sensitive=book["group"], exposure=exposure)


def test_exposure_and_weight_together_are_an_error(book, tmp_path):
    both = {"sample_weight": book["exposure"], "exposure": book["exposure"]}
    expected = "both exposure and sample_weight, but expected one"
    with pytest.raises(ValueError, match=expected):
        make_pricer().fit(features(book), book["count"], sensitive=book["report"], **both)
    with pytest.raises(ValueError, match=expected):
        audit.compute_gini(np.arange(N), book["count"], sensitive=book["group"], **both)
    book.to_parquet(tmp_path / "book.parquet")
    with pytest.raises(ValueError, match=expected):
        make_pricer().fit(
            tmp_path / "book.parquet", y="count", sensitive="report", sample_weight="exposure", exposure="age"
        )


def test_an_indicator_has_no_exposure(book):
    with pytest.raises(ValueError, match=r"exposure with the bernoulli family.*Use poisson"):
        make_pricer(family="bernoulli").fit(
            features(book), (book["count"] > 0) * 1, sensitive=book["report"], exposure=book["exposure"]
        )


class SeenNoise(MarginNoise):
    """Keeps what the pricer shows a noise estimator."""

    def fit(self, X=None, y=None, *, sensitive, sample_weight=None):
        SEEN.append((np.asarray(y, dtype=float), np.asarray(sample_weight, dtype=float)))
        return super().fit(X, y, sensitive=sensitive, sample_weight=sample_weight)


SEEN: list[tuple[np.ndarray, np.ndarray]] = []


def test_a_noise_estimator_sees_rates(book, tmp_path):
    SEEN.clear()
    book.to_parquet(tmp_path / "book.parquet")
    noise = SeenNoise({"F": 0.4, "M": 0.6})
    pricer = DiscriminationFreePricer("poisson", channel=noise, correction="inverse", pooling=0.0, intervals=False)
    pricer.fit(features(book), book["count"], sensitive=book["report"], exposure=book["exposure"])
    pricer.fit(tmp_path / "book.parquet", exposure="exposure", **ROLES)
    for y, weight in SEEN:
        np.testing.assert_array_equal(y, book["count"] / book["exposure"])
        np.testing.assert_array_equal(weight, book["exposure"])
    assert len(SEEN) == 2


# --- sources --------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(book, tmp_path):
    folder = tmp_path / "book"
    folder.mkdir()
    for i, start in enumerate(range(0, N, 1500)):
        book.iloc[start : start + 1500].to_parquet(folder / f"{i}.parquet", index=False)
    return folder


ROLES = {"y": "count", "sensitive": "report", "features": ["age", "city"]}


@pytest.mark.parametrize("small", [True, False])
def test_a_source_gives_the_prices_of_the_table(book, stored, small, monkeypatch):
    if not small:
        monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)
        monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)
    table = make_pricer().fit(features(book), book["count"], sensitive=book["report"], exposure=book["exposure"])
    source = make_pricer().fit(stored, exposure="exposure", **ROLES)
    np.testing.assert_allclose(source.predict(features(book)), table.predict(features(book)), rtol=1e-9)
    with pytest.warns(ExposureWarning):
        make_pricer().fit(stored, sample_weight="exposure", **ROLES)


def test_the_column_of_the_exposure_is_no_feature(stored):
    some = pd.read_parquet(stored / "0.parquet").drop(columns="count")
    some.to_parquet(stored / "amounts.parquet", index=False)
    roles = {"y": "amount", "sensitive": "group", "exposure": "exposure"}
    pricer = make_pricer(channel=None).fit(stored / "amounts.parquet", **roles)
    assert pricer.design_.names == ("age", "city", "report")


def test_a_dask_frame(book):
    dask = pytest.importorskip("dask.dataframe")
    parts = dask.from_pandas(book[["age", "city", "count", "exposure", "report"]], npartitions=3)
    table = make_pricer().fit(features(book), book["count"], sensitive=book["report"], exposure=book["exposure"])
    source = make_pricer().fit(parts, exposure="exposure", **ROLES)
    np.testing.assert_allclose(source.predict(features(book)), table.predict(features(book)), rtol=1e-9)


def test_a_bad_exposure_of_a_source_names_its_row(book, stored):
    later = pd.read_parquet(stored / "1.parquet")
    later.loc[5, "exposure"] = 0.0
    later.to_parquet(stored / "1.parquet", index=False)
    with pytest.raises(ValueError, match=rf"1 of {N} values .* 0 in row 1505 "):
        make_pricer().fit(stored, exposure="exposure", **ROLES)
    later.assign(exposure="0,5").to_parquet(stored / "1.parquet", index=False)
    with pytest.raises((TypeError, ValueError), match="exposure"):
        make_pricer().fit(stored / "1.parquet", exposure="exposure", **ROLES)


# --- audit ----------------------------------------------------------------------------------------------------------


def test_every_table_of_the_audit_takes_totals(book):
    pricer = make_pricer(intervals=False).fit(
        features(book), book["count"], sensitive=book["report"], exposure=book["exposure"]
    )
    X = features(book)
    best, h, old = pricer.predict_best_estimate(X), pricer.predict(X), pricer.predict_unaware(X)
    y, e = book["count"].to_numpy(), book["exposure"].to_numpy()
    named = {
        "premiums": h, "y": y, "best_estimate": best, "best_estimates": best, "prices": {"old": old, "new": h},
        "old": old, "new": h, "current": old, "cap": 0.1, "pricer": pricer, "X": X, "sensitive": book["report"],
        "channel": CHANNEL, "decisions": y > 0, "favourable": False,
    }  # fmt: skip
    tables = [getattr(audit, name) for name in audit.__all__ if name.startswith("compute_") or name == "certify"]
    checked = 0
    for function in tables:
        wanted = inspect.signature(function).parameters
        if "sample_weight" not in wanted:
            continue
        assert "exposure" in wanted, function.__name__
        arguments = {name: value for name, value in named.items() if name in wanted}
        mine = function(**arguments, exposure=e)
        other = function(**{**arguments, **({"y": y / e} if "y" in wanted else {})}, sample_weight=e)
        pd.testing.assert_frame_equal(mine, other)
        checked += 1
    assert checked >= 13


def test_summaries_and_counts_that_warn(book):
    y, e, h = book["count"].to_numpy(), book["exposure"].to_numpy(), 0.2 + 0.001 * book["age"].to_numpy()
    settings = {"sensitive": book["report"], "channel": CHANNEL, "family": "poisson"}
    mine = audit.summarize_prices(h, y, exposure=e, **settings)
    other = audit.summarize_prices(h, y / e, sample_weight=e, **settings)
    assert mine["weighted"]
    assert mine["sections"] == other["sections"]
    with pytest.warns(ExposureWarning):
        audit.compute_loss_ratio_gap(h, y, sensitive=book["group"], sample_weight=e)


def test_a_price_cannot_have_the_name_of_the_losses(book):
    with pytest.raises(ValueError, match="name 'y'"):
        audit.compute_balance({"y": np.ones(N)}, book["count"], exposure=book["exposure"])


def test_tweedie_weighs_totals_as_sums_of_independent_years(book):
    """Two years of one policy in one row, or in two rows: the same prices, as for every sum of independent parts."""
    X, S = features(book), book["group"]
    law = Tweedie(1.4)
    one = make_pricer(family=law, channel=None).fit(X, book["amount"], sensitive=S, exposure=2 * book["exposure"])
    halves = pd.concat([book, book])
    two = make_pricer(family=law, channel=None).fit(
        features(halves), halves["amount"] / 2, sensitive=halves["group"], exposure=halves["exposure"]
    )
    np.testing.assert_allclose(one.predict(X), two.predict(X), rtol=1e-8)

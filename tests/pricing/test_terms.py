"""Feature terms from the table to the price: truth that bends, sources, files, and columns that are no features."""

import json
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from fairpremium import DiscriminationFreePricer, LikelihoodNoise, LinearModel, MarginNoise, RandomizedResponse
from fairpremium.documents import digest
from fairpremium.errors import ModelFileError, NotIdentifiedError
from fairpremium.parties.release import FitSettings, ReleaseSettings, fit_release

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
TERMS = 'bands(age, 25, 65) + spline(power, 4) + base(rare(region, 0.05), "south") + age:region'


def portfolio(n=4000, rng=0):
    rng = np.random.default_rng(rng)
    age, power = rng.integers(18, 90, n), rng.uniform(0, 10, n)
    region = rng.choice(["north", "south", "west", "isle", "rock"], n, p=[0.5, 0.3, 0.16, 0.02, 0.02])
    D = np.where(rng.random(n) < 0.5, "F", "M")
    mu = np.exp(-0.5 + 0.6 * (age < 25) + 0.4 * (age >= 65) + 0.3 * np.sin(power / 2) + 0.3 * (D == "M"))
    X = pd.DataFrame({"age": age, "power": power, "region": region})
    return X, rng.poisson(mu).astype(float), D, CHANNEL.privatize(D, rng=rng), mu


def pricer(terms=TERMS, channel=CHANNEL, **more):
    return DiscriminationFreePricer("poisson", LinearModel(terms=terms), channel, **more)


@pytest.mark.parametrize(
    ("correction", "pooling"), [("inverse", "auto"), ("score", 50.0), ("posterior", 50.0), ("likelihood", 50.0)]
)
def test_terms_find_what_a_line_cannot(correction, pooling):
    X, y, _, S, _ = portfolio(6000)
    terms = "bands(age, 25, 65) + spline(power, 4)"
    bent = pricer(terms, correction=correction, pooling=pooling).fit(X, y, sensitive=S)
    new, _, _, _, _ = portfolio(2000, 1)
    p = bent.reference_distribution_
    shape = -0.5 + 0.6 * (new["age"] < 25) + 0.4 * (new["age"] >= 65) + 0.3 * np.sin(new["power"] / 2)
    truth = np.exp(shape) * (p[0] + p[1] * np.exp(0.3))
    low, high = bent.predict_interval(new)
    error = (high - low) / 3.92
    within = np.abs(bent.predict(new) - truth) <= 4 * error
    assert within.mean() > 0.97  # a spline is close to a sine, not equal
    line = DiscriminationFreePricer("poisson", "linear", CHANNEL, "inverse", 50.0)
    line.fit(X[["age", "power"]], y, sensitive=S)
    assert np.mean((bent.predict(new) - truth) ** 2) < 0.3 * np.mean((line.predict(new) - truth) ** 2)


def test_frames_of_every_kind_price_the_same():
    X, y, _, S, _ = portfolio()
    own = pricer(correction="inverse").fit(X, y, sensitive=S)
    other = pricer(correction="inverse").fit(pl.from_pandas(X), y, sensitive=S)
    np.testing.assert_allclose(other.predict(pl.from_pandas(X)), own.predict(X), rtol=1e-9)
    np.testing.assert_allclose(own.predict(X.assign(nobody="uses this")), own.predict(X), rtol=1e-12)
    assert list(own.pooling_["slopes"]) == [
        "bands(age, 25, 65)",
        "spline(power, 4)",
        'base(rare(region, 0.05), "south")',
        "age:region",
    ]


def test_parquet_source_learns_the_same(tmp_path):
    X, y, _, S, _ = portfolio()
    table = X.assign(y=y, s=S, start="2024-01-01")
    table.to_parquet(tmp_path / "rows.parquet")
    own = pricer(correction="inverse", pooling=10.0).fit(X, y, sensitive=S)
    found = pricer(correction="inverse", pooling=10.0).fit(tmp_path / "rows.parquet", "y", sensitive="s")
    assert found.design_ == own.design_
    np.testing.assert_allclose(found.predict(X), own.predict(X), rtol=1e-6)
    found.predict_to(tmp_path / "rows.parquet", tmp_path / "out.parquet")
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "out.parquet")["premium"], own.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match=r"'wrong' at position 1"):
        pricer("wrong").fit(tmp_path / "rows.parquet", "y", sensitive="s")


def test_rows_that_are_read_piece_by_piece(tmp_path, monkeypatch):
    import fairpremium.pricing._source_portfolio as module

    monkeypatch.setattr(module, "_SMALL_CELLS", 0)
    monkeypatch.setattr(module, "_SMALL_ROWS", 0)
    X, y, _, S, _ = portfolio()
    X.assign(y=y, s=S).to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    terms = "bands(age, 25, 65) + spline(power, 3) + rare(region, 0.05)"
    own = pricer(terms, correction="inverse", pooling=10.0).fit(X, y, sensitive=S)
    found = pricer(terms, correction="inverse", pooling=10.0)
    found.fit(tmp_path / "rows.parquet", "y", sensitive="s")
    assert found.design_ == own.design_
    np.testing.assert_allclose(found.predict(X), own.predict(X), rtol=1e-6)


def test_dask_source():
    dask = pytest.importorskip("dask.dataframe")
    X, y, _, S, _ = portfolio(2000)
    source = dask.from_pandas(X.assign(y=y, s=S), npartitions=3)
    terms = "bands(age, 25, 65) + levels(region)"
    found = pricer(terms, correction="inverse", pooling=10.0).fit(source, "y", sensitive="s")
    own = pricer(terms, correction="inverse", pooling=10.0).fit(X, y, sensitive=S)
    np.testing.assert_allclose(found.predict(X), own.predict(X), rtol=1e-6)


def test_model_file_holds_terms_and_a_price_can_be_computed_from_it(tmp_path):
    X, y, _, S, _ = portfolio(2000)
    own = pricer("bands(age, 25, 65) + rare(region, 0.05)", correction="inverse", pooling=10.0).fit(X, y, sensitive=S)
    own.save(tmp_path / "model.json")
    document = json.loads((tmp_path / "model.json").read_text())
    assert document["version"] == 3
    assert document["model"]["terms"] == "bands(age, 25, 65) + rare(region, 0.05)"
    again = DiscriminationFreePricer.load(tmp_path / "model.json")
    assert again.design_ == own.design_
    new = pd.DataFrame({"age": [19, 40, 70], "power": 0.0, "region": ["isle", "south", "nowhere"]})
    np.testing.assert_array_equal(again.predict(new), own.predict(new))
    bands, levels = (term["factors"][0] for term in document["design"]["terms"])
    for row, premium in zip(new.itertuples(), own.predict(new), strict=True):
        band = sum(row.age >= cut for cut in bands["cuts"])
        x = [float(band == i) for i in range(len(bands["cuts"]) + 1) if i != bands["base"]]
        level = row.region if row.region in levels["levels"] else "other"
        x += [float(level == each) for each in levels["levels"][1:]]
        eta = [b[0] + np.dot(b[1:], x) for b in document["coefficients"]]
        assert np.dot(document["reference_distribution"], np.exp(eta)) == pytest.approx(premium, rel=1e-12)
    document["design"]["terms"][0]["factors"][0]["cuts"] = [65.0, 25.0]
    del document["sha256"]
    (tmp_path / "model.json").write_text(json.dumps({**document, "sha256": digest(document)}))
    with pytest.raises(ModelFileError, match="limits of the bands"):
        DiscriminationFreePricer.load(tmp_path / "model.json")


def test_a_model_without_terms_and_with_own_slopes_has_the_layout_of_before():
    from fairpremium.pricing import to_document

    X, y, D, _, _ = portfolio(300)
    plain = DiscriminationFreePricer("poisson", pooling=1.0).fit(X[["age", "power"]], y, sensitive=D)
    document = to_document(plain)
    assert document["version"] == 1
    assert set(document["model"]) == {"kind", "ridge", "max_iter", "tol"}
    assert "terms" not in document["design"]


def test_scikit_learn_sees_terms_as_a_parameter():
    X, y, D, _, _ = portfolio(1500)
    model = clone(LinearModel(terms=TERMS))
    assert model.get_params()["terms"] == TERMS
    search = GridSearchCV(
        DiscriminationFreePricer("poisson", LinearModel(), None, pooling=0.0, intervals=False),
        {"model__terms": ["age", "bands(age, 25, 65)"]},
        cv=2,
        error_score="raise",
        scoring=lambda estimator, X, y: -np.mean((estimator.predict(X) - y) ** 2),
    )
    search.fit(X, y, sensitive=D)
    assert search.best_params_ == {"model__terms": "bands(age, 25, 65)"}


def test_explain_moves_columns_not_features():
    X, y, _, S, _ = portfolio(2000)
    own = pricer("bands(age, 25, 65) + age:region + rare(region, 0.05)", correction="inverse").fit(X, y, sensitive=S)
    table = own.explain(X, max_rows=len(X))
    assert set(table["feature"]) == {"age", "region"}
    at = table[(table["feature"] == "region") & (table["value"] == "west")]
    assert at["premium"].item() == pytest.approx(own.predict(X.assign(region="west")).mean(), rel=1e-10)
    at = table[table["feature"] == "age"].iloc[-1]
    assert at["premium"] == pytest.approx(own.predict(X.assign(age=at["value"])).mean(), rel=1e-10)


def test_noise_estimator_and_release_know_terms():
    X, y, _, S, _ = portfolio(3000)
    noise = LikelihoodNoise("poisson", LinearModel(terms="bands(age, 25, 65)"), random_state=0)
    assert 0.5 <= noise.fit(X, y, sensitive=S).keep_ <= 1  # the outcome tells the groups apart too little for more
    settings = FitSettings("poisson", LinearModel(terms="bands(age, 25, 65)"), correction="inverse", pooling=0.0)
    privacy = ReleaseSettings("gaussian", 1e5, secret=b"a secret of the study, 32 bytes.")
    release = fit_release(settings, X, y, None, S, CHANNEL, privacy)
    own = pricer("bands(age, 25, 65)", correction="inverse", pooling=0.0).fit(X, y, sensitive=S)
    np.testing.assert_allclose(release.pricer.predict(X), own.predict(X), rtol=0.02)


def test_classes_that_are_compared_have_one_set_of_features():
    X, y, D, _, _ = portfolio(300)
    with pytest.raises(ValueError, match="same terms for all"):
        DiscriminationFreePricer("poisson", [LinearModel(terms="age"), "boosted"]).fit(X, y, sensitive=D)
    with pytest.raises(ValueError, match="position 1"):
        DiscriminationFreePricer("poisson", LinearModel(terms="nonsense(age)")).fit(X, y, sensitive=D)


def test_an_array_after_a_frame_has_the_order_of_the_frame():
    X, y, D, _, _ = portfolio(300)
    X = X[["age", "power"]]
    own = pricer("power + bands(age, 30)", channel=None, pooling=10.0).fit(X, y, sensitive=D)
    assert list(own.feature_names_in_) == ["age", "power"]
    np.testing.assert_array_equal(own.predict(X.to_numpy(float)), own.predict(X))


def test_only_the_columns_of_the_terms_have_to_be_features():
    X, y, _, S, _ = portfolio(1500)
    X["start"] = pd.to_datetime("2024-01-01")
    noise = MarginNoise({"F": 0.5, "M": 0.5})
    with pytest.raises(NotIdentifiedError):  # it gets as far as the estimate, and equal shares do not tell the noise
        pricer("age + region", channel=noise).fit(X, y, sensitive=S)
    own = pricer("bands(age, 30) + region", correction="inverse", pooling=10.0).fit(X, y, sensitive=S)
    table = own.certificate(X, y, sensitive=S)
    assert np.isfinite(table.select_dtypes("number").to_numpy()).all()


# --- columns that are no features ---


def test_hundreds_of_texts_are_refused_at_once():
    X, y, _, S, _ = portfolio(3000)
    streets = [f"street {chr(65 + i // 26)}{chr(65 + i % 26)}" for i in range(400)]
    X["street"] = np.random.default_rng(0).choice(streets, len(X))
    began = time.process_time()
    with pytest.raises(ValueError, match=r"'street' of X with 400 different texts.*rare\(street, 50\)"):
        DiscriminationFreePricer("poisson", channel=CHANNEL).fit(X, y, sensitive=S)
    assert time.process_time() - began < 5
    pricer("age + rare(street, 12)", correction="inverse", pooling=1e4).fit(X, y, sensitive=S)


def test_dates_and_ages_with_a_unit_in_a_source(tmp_path):
    X, y, _, S, _ = portfolio(1000)
    days = pd.Series(pd.date_range("2024-01-01", periods=365)).dt.strftime("%d.%m.%Y")
    for name, values in (("start", days), ("years", pd.Series([f"{a} yrs" for a in range(18, 60)]))):
        table = X.assign(y=y, s=S, **{name: values.iloc[np.arange(len(X)) % len(values)].to_numpy()})
        table.to_parquet(tmp_path / "rows.parquet")
        with pytest.raises(ValueError, match=f"'{name}' of X with .* that look like"):
            DiscriminationFreePricer("poisson", channel=CHANNEL).fit(tmp_path / "rows.parquet", "y", sensitive="s")


@pytest.mark.parametrize("stored", [False, True])
def test_the_claim_amount_is_not_a_feature(tmp_path, stored):
    X, y, _, S, _ = portfolio(1000)
    X["amount"] = np.where(
        (y > 0) & (np.arange(len(y)) % 10 != 3), 1000.0 * y + np.arange(len(y)), 0.0
    )  # closed at zero
    own, rows = DiscriminationFreePricer("poisson", channel=CHANNEL), {"X": X, "y": y, "sensitive": S}
    if stored:
        X.assign(y=y, s=S).to_parquet(tmp_path / "rows.parquet")
        rows = {"X": tmp_path / "rows.parquet", "y": "y", "sensitive": "s"}
    with pytest.raises(
        ValueError, match=r"'amount' of X with values that no row has whose y is zero.*part of the outcome"
    ):
        own.fit(**rows)
    for terms in ("spline(amount, 3)", "poly(amount, 2)", "bands(amount, 1)", "age + amount"):
        with pytest.raises(ValueError, match="'amount' of X with values"):
            pricer(terms, correction="inverse", pooling=10.0).fit(**rows)
    pricer("age", correction="inverse", pooling=10.0).fit(**rows)  # terms that do not name it


@pytest.mark.parametrize(
    ("texts", "looks"),
    [
        (["unknown", *(f"{a} yrs" for a in range(18, 60))], "numbers with 'yrs'"),
        ([f"{a} yrs" if a % 2 else str(a) for a in range(18, 60)], "numbers with 'yrs'"),
        ([f"{a} yrs" if a % 2 else f"{a} yr" for a in range(18, 60)], "numbers with 'yr' or 'yrs'"),
        (["", *(f"2024-01-{d:02}" for d in range(1, 29))], "dates"),
    ],
)
def test_most_texts_say_what_a_column_is(texts, looks):
    X, y, _, S, _ = portfolio(1000)
    column = np.array(texts, dtype=object)[np.arange(len(X)) % len(texts)]
    with pytest.raises(ValueError, match=f"'years' of X with .* that look like {looks}"):
        DiscriminationFreePricer("poisson", channel=CHANNEL).fit(X.assign(years=column), y, sensitive=S)


@pytest.mark.parametrize(
    ("values", "looks"),
    [
        (lambda n: np.random.default_rng(0).permutation(n) + 5000, "a different whole number in each row"),
        (lambda n: 20240101 + np.arange(n) % 28, "whole numbers that look like dates"),
    ],
)
def test_keys_and_dates_in_any_order_warn(values, looks):
    X, y, _, S, _ = portfolio(1200)
    own = DiscriminationFreePricer("poisson", channel=CHANNEL, correction="inverse", pooling=1e4)
    with pytest.warns(UserWarning, match=f"Column 'number' of X has {looks}"):
        own.fit(X.assign(number=values(len(X))), y, sensitive=S)


def test_a_numeric_key_warns():
    X, y, _, S, _ = portfolio(600)
    with pytest.warns(UserWarning, match="Column 'policy' of X has a larger whole number in each row"):
        DiscriminationFreePricer("poisson", channel=CHANNEL, correction="inverse", pooling=1e4).fit(
            X.assign(policy=np.arange(len(X)) * 3 + 1000), y, sensitive=S
        )

"""The summary of a fit: standard errors, tests of features, deviance explained and AIC, against slow computations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn import config_context
from sklearn.metrics import d2_tweedie_score
from sklearn.tree import DecisionTreeRegressor

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse, ValidationNoise
from fairpremium.errors import ModelFileError

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


def portfolio(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """Features, the linear predictor, the attribute and volumes; `idle` has no effect, `area` has three levels."""
    rng = np.random.default_rng(seed)
    D = rng.choice(["F", "M"], n, p=[0.45, 0.55])
    X = pd.DataFrame({
        "age": rng.normal(40 + 5 * (D == "M"), 10),
        "area": rng.choice(["a", "b", "c"], n),
        "idle": rng.normal(size=n),
    })  # fmt: skip
    eta = 0.4 * (D == "M") + 0.02 * (X["age"] - 40) + 0.5 * (X["area"] == "c")
    return X, eta.to_numpy(), D, rng.uniform(0.5, 2.0, n)


def outcomes(family: str, eta: np.ndarray, w: np.ndarray, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if family == "normal":
        return eta + rng.normal(size=len(eta)) / np.sqrt(w)
    if family == "poisson":
        return rng.poisson(w * np.exp(eta - 1)) / w
    return rng.gamma(3 * w, np.exp(eta) / (3 * w))


def design(X: pd.DataFrame, pricer: DiscriminationFreePricer) -> np.ndarray:
    return np.column_stack([np.ones(len(X)), pricer.design_.transform(X)])


def slow_sandwich(Z, y, w, b, link) -> np.ndarray:
    """HC0 of a generalised linear model with canonical link, written as in a textbook."""
    mu = Z @ b if link == "identity" else np.exp(Z @ b)
    bent = np.ones(len(y)) if link == "identity" else mu
    bread = np.linalg.inv(Z.T @ (Z * (w * bent)[:, None]))
    return bread @ (Z.T @ (Z * (w**2 * (y - mu) ** 2)[:, None])) @ bread


@pytest.mark.parametrize("family", ["normal", "poisson"])
def test_standard_errors_and_tests_are_those_of_the_textbook(family):
    X, eta, D, w = portfolio()
    y = outcomes(family, eta, w)
    pricer = DiscriminationFreePricer(family, pooling=0).fit(X, y, sensitive=D, sample_weight=w)
    table, tests, Z = pricer.summary(), pricer.feature_tests(), design(X, pricer)
    link = "identity" if family == "normal" else "log"
    close = 1e-6 if family == "normal" else 2e-3  # a Hessian within 1e-3 of the minimum's linear predictors is taken
    for price, group in (("best_estimate", "F"), ("best_estimate", "M"), ("unaware", None)):
        rows = group == D if group else np.ones(len(D), bool)
        part = table[(table["price"] == price) & (table["group"].map(lambda g, want=group: g == want))]
        part = part[part["feature"].notna()]
        assert list(part["feature"]) == ["intercept", *pricer.design_.features]
        b = part["coefficient"].to_numpy()
        V = slow_sandwich(Z[rows], y[rows], w[rows], b, link)
        np.testing.assert_allclose(part["standard_error"], np.sqrt(np.diag(V)), rtol=close)
        half = stats.norm.ppf(0.975) * np.sqrt(np.diag(V))
        np.testing.assert_allclose(part["upper"] - b, half, rtol=close)
        area = [1 + i for i, name in enumerate(pricer.design_.origins) if name == "area"]
        statistic = b[area] @ np.linalg.solve(V[np.ix_(area, area)], b[area])
        found = tests[(tests["price"] == price) & (tests["feature"] == "area")]
        found = found[found["group"].map(lambda g, want=group: g == want)].iloc[0]
        assert found["degrees_of_freedom"] == 2
        np.testing.assert_allclose(found["statistic"], statistic, rtol=2 * close)
        np.testing.assert_allclose(found["p_value"], stats.chi2.sf(statistic, 2), rtol=2 * close * max(1.0, statistic))
    assert len(tests) == 3 * (2 + 1 + 1)


def test_terms_are_tested_one_by_one():
    """Bands of a column are the same test as the levels that they make."""
    X, eta, D, w = portfolio()
    y = outcomes("normal", eta, w)
    cuts = np.quantile(X["age"], [0.3, 0.6]).round(3).tolist()
    levels = pd.DataFrame({"age": np.digitize(X["age"], cuts).astype(str), "area": X["area"]})
    terms = f"bands(age, {cuts[0]}, {cuts[1]}) + area"
    made = DiscriminationFreePricer(model=LinearModel(terms=terms), pooling=0).fit(X, y, sensitive=D).feature_tests()
    expected = DiscriminationFreePricer(pooling=0).fit(levels, y, sensitive=D).feature_tests()
    assert list(made["feature"].unique()) == [terms.removesuffix(" + area"), "area"]
    numbers = ["statistic", "degrees_of_freedom", "p_value"]
    np.testing.assert_allclose(made[numbers].astype(float), expected[numbers].astype(float), rtol=1e-5, atol=1e-12)


def test_equality_of_groups_is_tested_as_an_interaction():
    """Groups that are fitted apart are independent: the difference of their slopes has the sum of their variances."""
    X, eta, D, w = portfolio()
    pricer = DiscriminationFreePricer(pooling=0).fit(X, outcomes("normal", eta, w), sensitive=D)
    table, tests = pricer.summary(), pricer.feature_tests().set_index(["price", "feature"])
    age = table[(table["feature"] == "age") & (table["price"] == "best_estimate")]
    gap = np.diff(age["coefficient"])[0] ** 2 / (age["standard_error"] ** 2).sum()
    np.testing.assert_allclose(tests.loc[("between_groups", "age"), "statistic"], gap, rtol=1e-6)


def test_a_feature_without_effect_is_found_in_one_of_twenty_portfolios():
    """From noisy reports too: the covariance contains their noise."""
    hits = []
    for seed in range(60):
        X, eta, D, w = portfolio(400, seed)
        S = CHANNEL.privatize(D, rng=seed)
        pricer = DiscriminationFreePricer(channel=CHANNEL, correction="inverse", pooling=0)
        pricer.fit(X[["age", "idle"]], outcomes("normal", eta, w, seed + 1000), sensitive=S)
        tests = pricer.feature_tests()
        hits.append(tests.loc[tests["feature"] == "idle", "p_value"].to_numpy() < 0.05)
    rate = np.mean(hits, axis=0)
    # a row of the table each; sandwich tests reject a little too often in small samples
    assert (rate < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60) + 0.02).all()
    assert rate.mean() > 0.02


def test_the_unaware_price_of_a_gamma_fit_has_the_error_of_its_shift():
    """Its log link is not canonical: the fit is shifted to the total, which has an error of its own."""
    X, eta, D, w = portfolio(400)
    y = outcomes("gamma", eta, w)
    pricer = DiscriminationFreePricer("gamma").fit(X, y, sensitive=D, sample_weight=w)
    Z = design(X, pricer)
    unaware = pricer.summary().query("price == 'unaware'")
    shifted = unaware["coefficient"].to_numpy()

    def equations(theta):
        mu = np.exp(Z @ theta[:-1])
        return np.column_stack([(w * (y / mu - 1))[:, None] * Z, w * (y - mu * np.exp(theta[-1]))])

    theta = np.append(shifted, 0.0)
    for _ in range(30):  # Newton with numerical slopes
        slope = approx_fprime(theta, lambda t: equations(t).sum(axis=0), 1e-7)
        theta = theta - np.linalg.solve(slope, equations(theta).sum(axis=0))
    np.testing.assert_allclose(theta[0] + theta[-1], shifted[0], atol=1e-5)
    move = np.linalg.inv(approx_fprime(theta, lambda t: equations(t).sum(axis=0), 1e-7))
    move = np.vstack([move[0] + move[-1], move[1:-1]])
    U = equations(theta)
    np.testing.assert_allclose(unaware["standard_error"], np.sqrt(np.diag(move @ U.T @ U @ move.T)), rtol=1e-3)


@pytest.mark.parametrize("family", ["normal", "poisson", "gamma"])
@pytest.mark.parametrize("weighted", [True, False])
def test_deviance_explained_and_aic(family, weighted):
    X, eta, D, w = portfolio()
    w = w if weighted else np.ones(len(w))
    y = outcomes(family, eta, w)
    pricer = DiscriminationFreePricer(family, pooling=0).fit(X, y, sensitive=D, sample_weight=w if weighted else None)
    table = pricer.summary()
    power = {"normal": 0, "poisson": 1, "gamma": 2}[family]
    best = pricer.predict_best_estimate(X).to_numpy()[np.arange(len(D)), (D == "M").astype(int)]
    prices = {
        "unaware": (pricer.predict_unaware(X), 5),
        "discrimination_free": (pricer.predict(X), None),
        "best_estimate": (best, 10),
    }
    for price, (mu, coefficients) in prices.items():
        row = table[(table["price"] == price) & table["group"].isna()].iloc[0]
        explained = d2_tweedie_score(y, mu, sample_weight=w, power=power)
        np.testing.assert_allclose(row["deviance_explained"], explained, rtol=1e-8)
        if coefficients is None:
            assert np.isnan(row["aic"])
            continue
        if family == "poisson":
            log_likelihood = stats.poisson.logpmf(np.round(w * y), w * mu).sum()
        elif family == "normal":
            phi = np.average((y - mu) ** 2, weights=w) * w.sum() / len(y)
            log_likelihood = stats.norm.logpdf(y, mu, np.sqrt(phi / w)).sum()
        else:
            phi = (w * 2 * (np.log(mu / y) + y / mu - 1)).sum() / len(y)
            log_likelihood = stats.gamma.logpdf(y, w / phi, scale=mu * phi / w).sum()
        parameters = coefficients + (family != "poisson")
        np.testing.assert_allclose(row["aic"], 2 * parameters - 2 * log_likelihood, rtol=1e-9)
    for group in ("F", "M"):
        row = table[table["group"] == group].iloc[0]
        rows = group == D
        explained = d2_tweedie_score(y[rows], best[rows], sample_weight=w[rows], power=power)
        np.testing.assert_allclose(row["deviance_explained"], explained, rtol=1e-8)


def test_noisy_reports_estimate_the_deviance_that_the_attribute_would_explain():
    """The corrected deviance of given prices is unbiased: over many draws of reports it averages to the true one."""
    X, eta, D, _ = portfolio(2000)
    y = outcomes("poisson", eta, np.ones(2000))
    explained = []
    for seed in range(12):
        S = CHANNEL.privatize(D, rng=seed)
        pricer = DiscriminationFreePricer("poisson", channel=CHANNEL, correction="inverse", pooling=0)
        pricer.fit(X, y, sensitive=S)
        best = pricer.predict_best_estimate(X).to_numpy()[np.arange(len(D)), (D == "M").astype(int)]
        table = pricer.summary()
        row = table[(table["price"] == "best_estimate") & table["group"].isna()].iloc[0]
        assert np.isnan(row["aic"])
        explained.append((row["deviance_explained"], d2_tweedie_score(y, best, power=1)))
    ours, truth = np.array(explained).T
    error = np.std(ours - truth, ddof=1) / np.sqrt(len(ours))
    # prices that are fitted to the reports look better by about ten parameters in 2000 rows
    assert abs(np.mean(ours - truth)) < 4 * error + 10 / 2000 * 4


def test_pooled_groups_count_fewer_parameters_and_a_likelihood_has_an_aic():
    X, eta, D, w = portfolio()
    y = outcomes("normal", eta, w)
    null = {"pooled": DiscriminationFreePricer(), "apart": DiscriminationFreePricer(pooling=0)}
    aic = {}
    for name, pricer in null.items():
        table = pricer.fit(X, y, sensitive=D).summary()
        aic[name] = table[(table["price"] == "best_estimate") & table["group"].isna()]["aic"].item()
    assert aic["pooled"] < aic["apart"]  # the slopes do not differ
    fitted = DiscriminationFreePricer(channel=CHANNEL, correction="likelihood", pooling=0)
    table = fitted.fit(X, y, sensitive=CHANNEL.privatize(D, rng=0)).summary()
    assert np.isfinite(table[(table["price"] == "best_estimate") & table["group"].isna()]["aic"].item())
    ridge = DiscriminationFreePricer(model=LinearModel(ridge=1.0)).fit(X, y, sensitive=D).summary()
    assert ridge["aic"].isna().all()


def test_the_premium_has_coefficients_where_it_is_linear():
    X, eta, D, w = portfolio()
    pricer = DiscriminationFreePricer().fit(X, outcomes("normal", eta, w), sensitive=D)
    own = pricer.summary().query("price == 'discrimination_free'")
    np.testing.assert_allclose(design(X, pricer) @ own["coefficient"], pricer.predict(X), rtol=1e-9)
    at_zero = pd.DataFrame({"age": [0.0], "area": [pricer.design_.columns[1].levels[0]], "idle": [0.0]})
    interval = pricer.predict_interval(at_zero)
    np.testing.assert_allclose(own[["lower", "upper"]].iloc[0], np.ravel(interval), rtol=1e-9)


def test_without_intervals_there_are_coefficients_alone():
    X, eta, D, w = portfolio(200)
    pricer = DiscriminationFreePricer(intervals=False).fit(X, outcomes("normal", eta, w), sensitive=D)
    table = pricer.summary()
    assert table["coefficient"].notna().sum() == 20
    assert table[["standard_error", "lower", "upper", "deviance_explained", "aic"]].isna().all(axis=None)
    with pytest.raises(ValueError, match="has no intervals"):
        pricer.feature_tests()
    with pytest.raises(ValueError, match="Got level=2"):
        pricer.summary(level=2)


def test_other_model_classes_have_a_deviance_and_no_coefficients():
    X, eta, D, w = portfolio(400)
    model = DecisionTreeRegressor(max_depth=2, random_state=0)
    pricer = DiscriminationFreePricer(model=model, pooling=0, random_state=0).fit(
        X, outcomes("normal", eta, w), sensitive=D
    )
    table = pricer.summary()
    assert len(table) == 5
    assert table["feature"].isna().all()
    assert table["deviance_explained"].notna().all()
    with pytest.raises(AttributeError, match="no coefficients to test"):
        pricer.feature_tests()


def test_a_file_with_numbers_about_other_prices_is_refused(tmp_path):
    from fairpremium.documents import digest
    from fairpremium.pricing import from_document, to_document

    X, eta, D, w = portfolio(200)
    pricer = DiscriminationFreePricer().fit(X, outcomes("normal", eta, w), sensitive=D)
    body = {name: value for name, value in to_document(pricer).items() if name != "sha256"}
    for wrong in ({"price": "net"}, {"group": "X"}, {"deviance": "large"}, {"more": 1.0}):
        bad = {**body, "quality": [{**body["quality"][0], **wrong}]}
        with pytest.raises(ModelFileError):
            from_document(DiscriminationFreePricer, {**bad, "sha256": digest(bad)})
    old = {name: value for name, value in body.items() if name not in ("quality", "unaware_covariance")}
    loaded = from_document(DiscriminationFreePricer, {**old, "sha256": digest(old)})
    assert loaded.summary().query("price == 'unaware'")["standard_error"].isna().all()
    assert set(loaded.feature_tests()["price"]) == {"best_estimate", "between_groups"}


# --- what a notebook shows ---


def test_a_notebook_shows_the_essentials_of_a_fit():
    X, eta, D, _ = portfolio(300)
    pricer = DiscriminationFreePricer("poisson")
    assert "Deviance explained" not in pricer._repr_html_()
    y = outcomes("poisson", eta, np.ones(300))
    pricer.fit(X.rename(columns={"age": "<age>"}), y, sensitive=np.where(D == "M", "<M>", D))
    page = pricer._repr_html_()
    for said in ("Deviance explained", "300 rows", "&lt;M&gt;", "&lt;age&gt;", "DiscriminationFreePricer", "poisson"):
        assert said in page
    assert "<M>" not in page
    assert pricer._repr_mimebundle_()["text/html"].startswith("<div")
    with config_context(display="text"):
        assert not hasattr(pricer, "_repr_html_")
        assert "text/html" not in pricer._repr_mimebundle_()


def test_what_is_shown_holds_nobody_of_the_sample_of_a_noise_estimator():
    X, eta, D, w = portfolio(2000)
    truth = [f"secret-{d}" for d in D]
    channel = RandomizedResponse(["secret-F", "secret-M"], keep=0.8)
    noise = ValidationNoise(truth, channel.privatize(truth, rng=0))
    pricer = DiscriminationFreePricer(channel=noise, correction="inverse", pooling=0)
    for shown in (repr(pricer), pricer._repr_html_()):
        assert "2000 values" in shown
        assert "secret" not in shown
    pricer.fit(X, outcomes("normal", eta, w), sensitive=channel.privatize(truth, rng=1))
    assert "array(" not in repr(pricer)
    page = pricer._repr_html_()
    shares = page.count("secret-F") + page.count("secret-M")
    assert 0 < shares < 20, "groups are named, rows are not"

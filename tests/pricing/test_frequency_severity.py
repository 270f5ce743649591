"""Frequency times severity: one P*, products group by group, joint intervals, large claims, and what is refused."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from sklearn.base import clone

from fairpremium import (
    BoostedModel,
    DiscriminationFreePricer,
    FrequencySeverityPricer,
    LinearModel,
    RandomizedResponse,
    ValidationNoise,
)
from fairpremium.errors import ModelFileError

SHARES = {2: np.array([0.75, 0.25]), 3: np.array([0.5, 0.35, 0.15])}
QUOTES = pd.DataFrame({"a": [0.0, 1.0, -1.0, 0.5], "b": [0.0, -0.5, 1.0, 0.5]})
PLAIN = {"correction": "inverse", "pooling": 0}


def frequency(X, d):
    return np.exp(-0.6 + 0.25 * X["a"] - 0.2 * X["b"] + 0.25 * d - 0.1 * d * X["b"]).to_numpy()


def severity(X, d):
    return np.exp(6.0 + 0.2 * X["a"] + 0.1 * X["b"] + 0.2 * d).to_numpy()


def theft(X, d):
    return np.exp(-0.8 - 0.1 * X["a"] + 0.3 * X["b"] - 0.1 * d).to_numpy()


class Portfolio:
    """Claims with a known truth: unbalanced groups, a feature that depends on the group, exposures."""

    def __init__(self, n, seed=0, K=2, keep=0.8, missing=0.0):
        rng = np.random.default_rng([seed, K])
        self.d = rng.choice(K, n, p=SHARES[K])
        self.X = pd.DataFrame({"a": rng.normal(0.4 * self.d, 1.0), "b": rng.normal(size=n)})
        self.exposure = rng.uniform(0.3, 1.0, n)
        self.counts = rng.poisson(self.exposure * frequency(self.X, self.d))
        self.amounts = rng.gamma(2.0 * self.counts, severity(self.X, self.d) / 2.0)
        self.thefts = rng.poisson(self.exposure * theft(self.X, self.d))
        self.stolen = rng.gamma(2.0 * self.thefts, 2 * severity(self.X, self.d) / 2.0)
        self.channel = RandomizedResponse([f"g{k}" for k in range(K)], keep=keep)
        self.group = np.array(self.channel.groups, dtype=object)[self.d]
        self.reports = np.array(self.channel.privatize(self.group, rng=rng), dtype=object)
        self.reports[rng.random(n) < missing] = None
        self.K = K

    @property
    def claims(self):
        return self.X, self.counts, self.amounts

    @property
    def both(self):
        return {"collision": self.counts, "theft": self.thefts}, {"collision": self.amounts, "theft": self.stolen}

    def premium(self, X, perils=1):
        found = np.zeros(len(X))
        for k, share in enumerate(SHARES[self.K]):
            found += share * severity(X, k) * (frequency(X, k) + (2 * theft(X, k) if perils == 2 else 0))
        return found

    def fit(self, *data, known=False, **settings):
        pricer = FrequencySeverityPricer(channel=None if known else self.channel, **settings)
        sensitive = self.group if known else self.reports
        return pricer.fit(*(data or self.claims), sensitive=sensitive, exposure=self.exposure)


@pytest.fixture(scope="module")
def book():
    return Portfolio(3000)


@pytest.fixture(scope="module")
def pricer(book):
    return book.fit(reference="balanced", cap=1000.0, correction="inverse")


def test_the_premium_is_the_mean_over_one_distribution_of_products(book, pricer):
    part = pricer.parts_["all"]
    frequencies, severities = (each.predict_best_estimate(QUOTES).to_numpy() for each in part)
    loading = pricer.excess_.loc["all", "loading"]
    best = pricer.predict_best_estimate(QUOTES)
    assert list(best.columns) == ["g0", "g1"]
    np.testing.assert_allclose(best, loading * frequencies * severities, rtol=1e-12)
    np.testing.assert_allclose(pricer.predict(QUOTES), best.to_numpy() @ pricer.reference_distribution_, rtol=1e-12)
    product = loading * part.frequency.predict(QUOTES) * part.severity.predict(QUOTES)
    assert (np.abs(product / pricer.predict(QUOTES) - 1) > 1e-3).any()  # the product of two prices is another number
    unaware = loading * part.frequency.predict_unaware(QUOTES) * part.severity.predict_unaware(QUOTES)
    np.testing.assert_allclose(pricer.predict_unaware(QUOTES), unaware, rtol=1e-12)


@pytest.mark.parametrize("settings", [PLAIN, {"correction": "inverse"}], ids=["paper", "pooled"])
def test_the_parts_are_those_of_separate_fits_but_for_the_weights(settings, book):
    pricer = book.fit(**settings)
    e, n, some = book.exposure, book.counts, book.counts > 0
    alone = DiscriminationFreePricer("poisson", channel=book.channel, **settings)
    alone.fit(book.X, n / e, sensitive=book.reports, sample_weight=e)
    claims = DiscriminationFreePricer("gamma", channel=book.channel, **settings)
    claims.fit(book.X[some], book.amounts[some] / n[some], sensitive=book.reports[some], sample_weight=n[some])
    part = pricer.parts_["all"]
    pd.testing.assert_frame_equal(part.frequency.coefficients_, alone.coefficients_)
    pd.testing.assert_frame_equal(part.severity.coefficients_, claims.coefficients_)
    np.testing.assert_allclose(pricer.reference_distribution_, alone.group_distribution_)
    for each in part:
        np.testing.assert_array_equal(each.reference_distribution_, pricer.reference_distribution_)
    np.testing.assert_allclose(part.frequency.predict_interval(QUOTES), alone.predict_interval(QUOTES), rtol=1e-9)
    for group in ("g0", "g1"):
        ours, theirs = (p.predict_interval(QUOTES, group=group) for p in (part.severity, claims))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def standard_errors(pricer, quotes):
    lower, upper = pricer.predict_interval(quotes, level=0.5)
    return np.log(upper / lower) / (2 * 0.6744897501960817)


class Equations:
    """The estimating equations of two perils written down row by row: an independent, slow way to standard errors."""

    def __init__(self, book, counts, amounts, cap):
        self.Z = np.column_stack([np.ones(len(book.X)), book.X])
        self.book, self.counts, self.amounts, self.cap = book, counts, amounts, cap
        self.codes = book.channel.inverse[:, [book.channel.reports.index(r) for r in book.reports]].T  # (n, K)

    def start(self, pricer):
        coefficients = [
            part.coefficients_[["g0", "g1"]].to_numpy().ravel() for pair in pricer.parts_.values() for part in pair
        ]
        mu = pricer.predict_best_estimate(self.book.X).to_numpy()
        e = self.book.exposure
        means = [pricer.group_distribution_, e @ mu / e.sum(), [sum(a.sum() for a in self.amounts) / e.sum()]]
        return np.concatenate([*coefficients, *means, pricer.excess_["loading"]])

    def split(self, theta):
        parts = theta[:24].reshape(2, 2, 3, 2)  # peril, kind, coefficient, group
        return parts, theta[24:26], theta[26:28], theta[28], theta[29:]

    def mu(self, theta, Z):
        parts, *_, loading = self.split(theta)
        return sum(c * np.exp(Z @ number + Z @ amount) for c, (number, amount) in zip(loading, parts, strict=True))

    def rows(self, theta):
        """What each row adds to the equations: (n, parameters)."""
        parts, shares, H, loss, loading = self.split(theta)
        e, columns, total = self.book.exposure[:, None], [], 0.0
        for (number, amount), n, a in zip(parts, self.counts, self.amounts, strict=True):
            capped = np.minimum(a, self.cap * n)
            gaps = n[:, None] - e * np.exp(self.Z @ number), capped[:, None] / np.exp(self.Z @ amount) - n[:, None]
            columns += [(self.Z[:, :, None] * (self.codes * gap)[:, None, :]).reshape(len(n), -1) for gap in gaps]
            total = total + a
        columns += [e * (self.codes - shares), e * (self.mu(theta, self.Z) - H), total[:, None] - e * loss]
        columns += [
            (a - c * np.minimum(a, self.cap * n))[:, None]
            for c, n, a in zip(loading, self.counts, self.amounts, strict=True)
        ]
        return np.concatenate(columns, axis=1)

    def premium(self, theta, Z, balanced):
        _, shares, H, loss, _ = self.split(theta)
        P = shares
        if balanced:

            def gap(t):
                tilted = shares * np.exp(t * (H - loss) / loss)
                return tilted @ (H - loss) / tilted.sum()

            P = shares * np.exp(brentq(gap, -50, 50, xtol=1e-14) * (H - loss) / loss)
            P = P / P.sum()
        return self.mu(theta, Z) @ P

    def standard_errors(self, theta, value, persons):
        scale = 1e-5 * np.maximum(np.abs(theta), 1e-2)
        steps = np.diag(scale)
        A = np.column_stack([(self.rows(theta + h) - self.rows(theta - h)).sum(axis=0) for h in steps]) / (2 * scale)
        G = np.column_stack([value(theta + h) - value(theta - h) for h in steps]) / (2 * scale)
        influence = np.linalg.solve(A, self.rows(theta).T).T
        influence = pd.DataFrame(influence).groupby(persons).sum().to_numpy()
        return np.sqrt(((influence @ G.T) ** 2).sum(axis=0))


@pytest.mark.parametrize("persons", [False, True], ids=["rows", "persons"])
@pytest.mark.parametrize("reference", ["marginal", "balanced"])
def test_joint_standard_errors_equal_those_of_equations_written_down(reference, persons):
    book, cap = Portfolio(3000), 900.0
    cluster = np.arange(3000) // 3 if persons else np.arange(3000)
    counts, amounts = book.both
    pricer = FrequencySeverityPricer(channel=book.channel, reference=reference, cap=cap, **PLAIN)
    pricer.fit(book.X, counts, amounts, sensitive=book.reports, exposure=book.exposure, cluster=cluster)
    equations = Equations(book, list(counts.values()), list(amounts.values()), cap)
    theta = equations.start(pricer)
    rows = equations.rows(theta)
    assert (np.abs(rows.sum(axis=0)) < 1e-3 * np.sqrt((rows**2).sum(axis=0))).all()  # they are solved
    Z = np.column_stack([np.ones(len(QUOTES)), QUOTES])
    premium = partial(equations.premium, Z=Z, balanced=reference == "balanced")
    np.testing.assert_allclose(premium(theta), pricer.predict(QUOTES), rtol=1e-9)
    expected = equations.standard_errors(theta, premium, cluster) / pricer.predict(QUOTES)
    np.testing.assert_allclose(
        standard_errors(pricer, QUOTES), expected, rtol=1e-3
    )  # a Hessian is computed that near the minimum
    single = equations.standard_errors(theta, lambda at: equations.mu(at, Z)[:, 1], cluster)
    lower, upper = pricer.predict_interval(QUOTES, level=0.5, group="g1")
    best = pricer.predict_best_estimate(QUOTES)["g1"].to_numpy()
    np.testing.assert_allclose(np.log(upper / lower) / (2 * 0.6744897501960817), single / best, rtol=1e-3)


def test_frequency_and_severity_are_not_independent():
    """All claims of a row share its report: leaving the covariance of the parts out changes the interval."""
    book = Portfolio(4000, keep=0.75)
    pricer = book.fit(**PLAIN)
    prices = pricer._fitted()
    size = prices.perils[0].frequency.coefficients.size
    cross = prices.covariance[:size, size : 2 * size]
    scale = np.sqrt(np.outer(np.diag(prices.covariance)[:size], np.diag(prices.covariance)[size : 2 * size]))
    assert np.abs(cross / scale).max() > 0.1


@pytest.mark.parametrize(("K", "missing", "perils"), [(2, 0.0, 1), (3, 0.2, 2)])
def test_intervals_cover_the_truth(K, missing, perils):
    inside, repeats = [], 100 if perils == 1 else 40
    for seed in range(repeats):
        book = Portfolio(2000 if perils == 1 else 5000, seed, K, keep=0.9, missing=missing)
        data = (book.X, *book.both) if perils == 2 else book.claims
        lower, upper = book.fit(*data, **PLAIN).predict_interval(QUOTES)
        truth = book.premium(QUOTES, perils)
        inside.append(np.mean((lower <= truth) & (truth <= upper)))
    assert abs(np.mean(inside) - 0.95) < 3.5 * np.std(inside) / np.sqrt(repeats) + 0.005


def test_reports_are_nearly_as_good_as_the_attribute():
    """A small version of benchmarks/frequency_severity.py: 1.2 over many portfolios there, one that scatters here."""
    book = Portfolio(5000, 3)
    truth = book.premium(book.X)
    ours, knowing = (
        np.sqrt(np.mean((book.fit(known=known, intervals=False).predict(book.X) / truth - 1) ** 2))
        for known in (False, True)
    )
    assert ours < 1.5 * knowing


def test_the_weights_are_those_of_the_portfolio_and_not_of_claimants():
    book = Portfolio(6000, 5)
    many = np.where(book.d == 1, 3, 1)  # group 1 has far more claims
    book.counts = book.counts * many
    book.amounts = book.amounts * many
    pricer = book.fit(known=True)
    share = np.average(book.d == 1, weights=book.exposure)
    assert pricer.reference_distribution_[1] == pytest.approx(share, abs=1e-12)
    assert pricer.parts_["all"].severity.group_distribution_[1] > 1.5 * share


def test_balanced_premiums_reproduce_the_amounts(book, pricer):
    total = np.sum(book.exposure * pricer.predict(book.X))
    assert total == pytest.approx(book.amounts.sum(), rel=1e-9)


def test_large_claims_are_capped_and_spread(book):
    cap = 800.0
    pricer = book.fit(cap=cap, **PLAIN)
    large = book.amounts > cap * book.counts
    excess = np.where(large, book.amounts - cap * book.counts, 0.0).sum()
    row = pricer.excess_.loc["all"]
    assert row["cap"] == cap
    assert row["large_rows"] == large.sum() > 0
    assert row["amount"] == pytest.approx(book.amounts.sum())
    assert row["excess"] == pytest.approx(excess)
    assert row["loading"] == pytest.approx(book.amounts.sum() / (book.amounts.sum() - excess))
    capped = book.fit(book.X, book.counts, np.minimum(book.amounts, cap * book.counts), **PLAIN)
    np.testing.assert_allclose(pricer.predict(QUOTES), row["loading"] * capped.predict(QUOTES), rtol=1e-9)
    assert (standard_errors(pricer, QUOTES) > 0).all()
    assert pricer.summary()["loading"].tolist() == [row["loading"]] * 2
    none = book.fit(cap=1e9, **PLAIN)
    assert none.excess_.loc["all", "loading"] == 1.0
    np.testing.assert_array_equal(none.predict(QUOTES), book.fit(**PLAIN).predict(QUOTES))


def test_perils_add_up():
    book = Portfolio(4000, 2, K=3, missing=0.1)
    counts, amounts = book.both
    pricer = FrequencySeverityPricer(
        {"collision": ("poisson", "gamma"), "theft": ("poisson", DiscriminationFreePricer("gamma", pooling=50.0))},
        channel=book.channel,
        correction="inverse",
        cap={"theft": 3000.0},
    )
    pricer.fit(book.X, pd.DataFrame(counts), pd.DataFrame(amounts), sensitive=book.reports, exposure=book.exposure)
    assert list(pricer.parts_) == ["collision", "theft"]
    assert pricer.parts_["theft"].severity.pooling_ == 50.0
    assert isinstance(pricer.parts_["theft"].frequency.pooling_, dict)
    P = pricer.reference_distribution_
    total = 0.0
    for name, (number, amount) in pricer.parts_.items():
        own = number.predict_best_estimate(QUOTES).to_numpy() * amount.predict_best_estimate(QUOTES).to_numpy()
        total = total + pricer.excess_.loc[name, "loading"] * own @ P
    np.testing.assert_allclose(pricer.predict(QUOTES), total, rtol=1e-12)
    assert np.isnan(pricer.excess_.loc["collision", "cap"])
    assert pricer.excess_.loc["theft", "loading"] > 1
    truth = book.premium(QUOTES, 2)
    assert (np.abs(np.log(pricer.predict(QUOTES) / truth)) < 4 * standard_errors(pricer, QUOTES)).all()
    assert pricer.n_missing_reports_ == sum(report is None for report in book.reports)
    assert set(pricer.candidates_["part"]) == {"frequency", "severity"}


def test_rows_without_a_report_take_part():
    book = Portfolio(3000, 1, missing=0.3)
    pricer = book.fit(**PLAIN)
    assert pricer.n_missing_reports_ > 700
    unaware = pricer.parts_["all"].frequency.predict_unaware(book.X)
    assert np.sum(book.exposure * unaware) == pytest.approx(book.counts.sum(), rel=1e-6)


def test_two_pricers_say_how_their_parts_are_fitted(book):
    number = DiscriminationFreePricer("negative_binomial", model=LinearModel(ridge=2.0), pooling=10.0)
    amount = DiscriminationFreePricer("gamma", correction="inverse", pooling=0)
    pricer = FrequencySeverityPricer(number, amount, channel=book.channel)
    pricer.fit(*book.claims, sensitive=book.reports, exposure=book.exposure)
    part = pricer.parts_["all"]
    assert part.frequency.model_.ridge == 2.0
    assert part.frequency.family.name == "negative_binomial"
    assert (part.frequency.pooling_, part.severity.pooling_) == (10.0, 0.0)
    other = RandomizedResponse(["g0", "g1"], keep=0.7)
    for wrong, text in (({"channel": other}, "channel of its own"), ({"reference": "uniform"}, "one P\\*")):
        part = DiscriminationFreePricer("gamma", **wrong)
        with pytest.raises(ValueError, match=text):
            FrequencySeverityPricer("poisson", part, channel=book.channel).fit(*book.claims, sensitive=book.reports)


def test_an_estimated_channel_widens_the_intervals(book):
    rng = np.random.default_rng(0)
    true = rng.choice(["g0", "g1"], 400)
    noise = ValidationNoise(true, book.channel.privatize(true, rng=rng))
    known = book.fit(**PLAIN)
    estimated = FrequencySeverityPricer(channel=noise, reference="balanced", **PLAIN)
    estimated.fit(*book.claims, sensitive=book.reports, exposure=book.exposure)
    assert estimated.noise_.keep_ == estimated.channel_.keep
    exact = FrequencySeverityPricer(channel=estimated.channel_, reference="balanced", **PLAIN)
    exact.fit(*book.claims, sensitive=book.reports, exposure=book.exposure)
    np.testing.assert_allclose(estimated.predict(QUOTES), exact.predict(QUOTES), rtol=1e-12)
    assert (standard_errors(estimated, QUOTES) > standard_errors(exact, QUOTES)).all()
    assert known.noise_ is None


def test_other_model_classes_have_a_joint_jackknife(tmp_path):
    pytest.importorskip("lightgbm")
    book = Portfolio(1500)
    boosted = BoostedModel(max_rounds=20, replicates=4)
    number = DiscriminationFreePricer("poisson", model=boosted, pooling=50.0)
    amount = DiscriminationFreePricer("gamma", **PLAIN)
    pricer = FrequencySeverityPricer(number, amount, channel=book.channel, cap=900.0, random_state=0)
    pricer.fit(*book.claims, sensitive=book.reports, exposure=book.exposure)
    lower, upper = pricer.predict_interval(QUOTES)
    premium = pricer.predict(QUOTES)
    assert (lower < premium).all()
    assert (premium < upper).all()
    # the linear part without a fold is an ordinary fit without these rows
    prices = pricer._fitted()
    assert len(prices.perils[0].loading_replicates) == 4
    pricer.save(tmp_path / "model.json")
    loaded = FrequencySeverityPricer.load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(QUOTES), premium)
    np.testing.assert_array_equal(
        loaded.predict_interval(QUOTES, group="g0"), pricer.predict_interval(QUOTES, group="g0")
    )
    np.testing.assert_array_equal(loaded.predict_interval(QUOTES).lower, lower)


def test_a_file_gives_everything_back(book, pricer, tmp_path):
    path = tmp_path / "model.json"
    pricer.save(path)
    loaded = FrequencySeverityPricer.load(path)
    np.testing.assert_array_equal(loaded.predict(QUOTES), pricer.predict(QUOTES))
    np.testing.assert_array_equal(loaded.predict_unaware(QUOTES), pricer.predict_unaware(QUOTES))
    np.testing.assert_array_equal(loaded.predict_interval(QUOTES), pricer.predict_interval(QUOTES))
    apart = {"group": "g1", "against": "g0"}
    np.testing.assert_array_equal(loaded.predict_interval(QUOTES, **apart), pricer.predict_interval(QUOTES, **apart))
    pd.testing.assert_frame_equal(loaded.predict_best_estimate(QUOTES), pricer.predict_best_estimate(QUOTES))
    pd.testing.assert_frame_equal(loaded.summary(), pricer.summary())
    pd.testing.assert_frame_equal(loaded.excess_, pricer.excess_)
    assert loaded.channel_ == pricer.channel_
    assert loaded.reference == "balanced"
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()
    refit = clone(loaded).fit(book.X, book.counts, book.amounts, sensitive=book.reports, exposure=book.exposure)
    np.testing.assert_allclose(refit.predict(QUOTES), pricer.predict(QUOTES), rtol=0.05)
    path.write_text(path.read_text().replace('"cap": 1000.0', '"cap": 1001.0'))
    with pytest.raises(ModelFileError, match="damaged"):
        FrequencySeverityPricer.load(path)
    with pytest.raises(ModelFileError, match="fairpremium-pricer"):
        DiscriminationFreePricer.load(tmp_path / "again.json")
    pricer.parts_["all"].severity.save(tmp_path / "severity.json")
    with pytest.raises(ModelFileError, match="fairpremium-frequency-severity"):
        FrequencySeverityPricer.load(tmp_path / "severity.json")


def test_a_source_gives_the_same_numbers(book, tmp_path, monkeypatch):
    counts, amounts = book.both
    table = book.X.assign(e=book.exposure, report=book.reports, policy=np.arange(len(book.X)))
    table = table.assign(n1=counts["collision"], a1=amounts["collision"], n2=counts["theft"], a2=amounts["theft"])
    folder = tmp_path / "book"
    folder.mkdir()
    for i in range(3):
        table.iloc[1000 * i : 1000 * (i + 1)].to_parquet(folder / f"{i}.parquet", index=False)
    settings = {"channel": book.channel, "cap": {"theft": 2000.0}, "reference": "balanced", "correction": "inverse"}
    expected = FrequencySeverityPricer(**settings).fit(
        book.X, counts, amounts, sensitive=book.reports, exposure=book.exposure
    )
    names = {"collision": "n1", "theft": "n2"}, {"collision": "a1", "theft": "a2"}
    roles = {"sensitive": "report", "exposure": "e", "features": ["a", "b"]}
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_ROWS", 0)
    monkeypatch.setattr("fairpremium.pricing._source_portfolio._SMALL_CELLS", 0)
    pricer = FrequencySeverityPricer(**settings).fit(folder, *names, **roles)
    np.testing.assert_allclose(pricer.predict(QUOTES), expected.predict(QUOTES), rtol=1e-8)
    np.testing.assert_allclose(pricer.predict_interval(QUOTES), expected.predict_interval(QUOTES), rtol=1e-6)
    pd.testing.assert_frame_equal(pricer.excess_, expected.excess_)
    priced = pricer.predict_to(folder, tmp_path / "premiums.parquet", columns=["policy"], level=0.9)
    assert priced.rows == 3000
    premiums = pd.read_parquet(tmp_path / "premiums.parquet")
    np.testing.assert_allclose(premiums["premium"], expected.predict(book.X), rtol=1e-8)
    with pytest.raises(TypeError, match="names of columns"):
        FrequencySeverityPricer(channel=book.channel).fit(folder, book.counts, book.amounts, **roles)
    with pytest.raises(ValueError, match="which is counts of all already"):
        FrequencySeverityPricer(channel=book.channel).fit(folder, "n1", "a1", **{**roles, "features": ["a", "n1"]})


def changed(values, **rows):
    found = np.array(values, dtype=float)
    for row, value in rows.items():
        found[int(row[1:])] = value
    return found


def test_claims_and_amounts_have_to_agree(book):
    none, some = int(np.flatnonzero(book.counts == 0)[2]), int(np.flatnonzero(book.counts > 0)[3])
    trouble = [
        ({"amounts": changed(book.amounts, **{f"r{none}": 10.0})}, f"amounts without a claim .*: {none}\\), but"),
        ({"amounts": changed(book.amounts, **{f"r{some}": 0.0})}, f"claims without an amount .*: {some}\\), but"),
        ({"amounts": changed(book.amounts, **{f"r{some}": -5.0})}, f"outside the domain .*: {some}\\), but"),
        ({"amounts": changed(book.amounts, **{f"r{none}": np.nan})}, "amounts with 1 .*Put zero where there is no"),
        ({"counts": changed(book.counts, **{f"r{some}": 0.5})}, f"not whole numbers .*: {some}\\), but"),
        ({"counts": changed(book.counts, **{f"r{none}": -1.0})}, f"not whole numbers .*: {none}\\), but"),
        ({"counts": np.zeros(3000), "amounts": np.zeros(3000)}, "without a single claim"),
        ({"exposure": np.zeros(3000)}, "exposure with 3000"),
        ({"counts": book.counts[:-1]}, "counts with 2999 rows"),
        ({"counts": {"fire": book.counts}}, "amounts of \\['all'\\]"),
    ]
    for wrong, text in trouble:
        data = {"counts": book.counts, "amounts": book.amounts, "exposure": book.exposure} | wrong
        with pytest.raises(ValueError, match=text):
            FrequencySeverityPricer(channel=book.channel).fit(book.X, sensitive=book.reports, **data)
    for cap in (0, -1.0, "high", {"fire": 10.0}):
        with pytest.raises(ValueError, match="cap"):
            book.fit(cap=cap)
    with pytest.raises(ValueError, match="pair"):
        book.fit(frequency={"all": "poisson"})
    with pytest.raises(ValueError, match="expected one of the groups"):
        book.fit(**PLAIN).predict_interval(QUOTES, group="g7")


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("column", ["amounts", "stolen", "total", "happened"])
def test_claims_of_every_peril_are_no_features(book, column, stored, tmp_path):
    """The mistake: the amount of the second peril, or of all, was priced with."""
    total = book.amounts + book.stolen
    values = {"amounts": book.amounts, "stolen": book.stolen, "total": total}
    found = np.where(total > 0, "yes", "no") if column == "happened" else values[column]
    X, counts, amounts = book.X.assign(odd=found), *book.both
    rows = {"sensitive": book.reports, "exposure": book.exposure}
    if stored:
        claims = {f"n {p}": v for p, v in counts.items()} | {f"a {p}": v for p, v in amounts.items()}
        X.assign(**claims, s=book.reports, e=book.exposure).to_parquet(tmp_path / "rows.parquet")
        X, rows = tmp_path / "rows.parquet", {"sensitive": "s", "exposure": "e"}
        counts, amounts = {p: f"n {p}" for p in counts}, {p: f"a {p}" for p in amounts}
    with pytest.raises(ValueError, match=r"'odd' of X with values .* part of the outcome"):
        FrequencySeverityPricer(channel=book.channel, intervals=False, **PLAIN).fit(X, counts, amounts, **rows)


def test_an_indicator_of_claims_has_neither_counts_nor_exposure(book):
    """The mistake: counts above one, over exposures, were taken for probabilities."""
    claims = {"sensitive": book.reports}
    pricer = FrequencySeverityPricer("bernoulli", channel=book.channel, intervals=False, **PLAIN)
    with pytest.raises(ValueError, match=r"exposure with frequency='bernoulli'.*poisson"):
        pricer.fit(*book.claims, **claims, exposure=book.exposure)
    with pytest.raises(ValueError, match="counts outside the domain of the bernoulli family in"):
        pricer.fit(*book.claims, **claims)
    once = np.minimum(book.counts, 1)
    assert (pricer.fit(book.X, once, book.amounts, **claims).parts_["all"].frequency.predict(QUOTES) < 1).all()


def test_amounts_that_are_not_there_are_named(book):
    with pytest.raises(ValueError, match="Got amounts=None, but expected one number for each row"):
        book.fit(book.X, book.counts, None)


def test_a_cap_below_every_claim_is_named(book):
    with pytest.raises(ValueError, match=r"Got cap=0.001 for peril 'all', .*Take a higher cap"):
        book.fit(cap=0.001, intervals=False, **PLAIN)


def test_parts_say_how_well_they_describe_their_outcomes(book, pricer, tmp_path):
    """The mistake: deviance explained and AIC of the parts were NaN, though a fit of the part by itself has them."""
    part = pricer.parts_["all"].frequency
    by_hand = DiscriminationFreePricer("poisson", channel=book.channel, correction="inverse")
    by_hand.fit(book.X, book.counts, sensitive=book.reports, exposure=book.exposure)
    expected = by_hand.summary().groupby("price")[["deviance_explained", "aic"]].first().loc["unaware"]
    found = part.summary().groupby("price")[["deviance_explained", "aic"]].first().loc["unaware"]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    severity = pricer.parts_["all"].severity.summary()
    assert severity["deviance_explained"].notna().all()
    pricer.save(tmp_path / "model.json")
    again = FrequencySeverityPricer.load(tmp_path / "model.json").parts_["all"].severity.summary()
    pd.testing.assert_frame_equal(again, severity)


def test_a_notebook_shows_the_essentials(book, pricer):
    shown = pricer._repr_html_()
    for words in (
        "Discrimination-free prices",
        "Frequency",
        "poisson",
        "gamma",
        "deviance explained",
        "1,000 per claim",
    ):
        assert words in shown
    assert "Discrimination-free prices" not in FrequencySeverityPricer()._repr_html_()
    noise = ValidationNoise(book.group[:200].tolist(), book.reports[:200].tolist())
    assert "g0" not in repr(FrequencySeverityPricer(channel=noise))


def test_claims_closed_without_payment_need_a_family_with_zeros(book):
    amounts = book.amounts.copy()
    amounts[np.flatnonzero(book.counts > 0)[:300]] = 0.0
    pricer = book.fit(book.X, book.counts, amounts, severity="tweedie", **PLAIN)
    all_paid = book.fit(severity="tweedie", **PLAIN)
    assert (pricer.predict(QUOTES) < all_paid.predict(QUOTES)).all()


def test_messages_say_which_part_they_are_about(book):
    X = book.X.assign(rare=np.where(np.arange(3000) == np.flatnonzero(book.counts == 0)[0], "yes", "no"))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        book.fit(X, book.counts, book.amounts, correction="inverse")
    assert any(str(each.message).startswith("Severity: The features ['rare") for each in told)
    first = np.arange(3000) == np.flatnonzero((book.counts > 0) & (book.reports == "g1"))[0]
    once, paid = np.where(first, book.counts, 0), np.where(first, book.amounts, 0.0)
    pair = DiscriminationFreePricer("poisson", model=LinearModel(ridge=10.0), pooling=1e3), "gamma"
    with pytest.raises(ValueError, match="Severity: Got sensitive without a single report of the group"):
        book.fit(book.X, once, paid, frequency=pair[0])

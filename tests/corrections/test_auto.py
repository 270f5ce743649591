"""The choice of a correction: right laws are used, wrong ones are caught, and every rejection has its reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import fairpremium.corrections._candidates as candidates_module
from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.corrections._auto import candidates_for
from fairpremium.corrections._candidates import PosteriorCandidate, ScoreCandidate
from fairpremium.corrections._latent import Latent
from fairpremium.errors import ConvergenceError
from fairpremium.families import Bernoulli, Gamma, NegativeBinomial, Normal, Poisson, Tweedie
from fairpremium.portfolios import zhang_liu_shi_2025

CHANNEL = RandomizedResponse(["F", "M"], keep=0.7)
BETA = np.array([[0.1, 0.3, 0.0], [0.7, 0.0, 0.3]])

# what is wrong with the likelihood, and the family that the insurer asks for
WRONG = {
    "skewed": "normal",
    "bimodal": "normal",
    "overdispersed": "poisson",
    "zero inflated": "poisson",
    "wrong propensity": "normal",
}


def draw(kind: str, seed: int, n: int = 5000) -> tuple:
    """X, y, mu(x, d) of shape (n, 2), the code of D, and the family's name."""
    rng = np.random.default_rng([seed, 4])
    if kind in ("right", "skewed", "bimodal"):
        p = zhang_liu_shi_2025(n=n, rng=rng, age_band=True)
        mu = p.best_estimate(p.X)[list(CHANNEL.groups)].to_numpy()
        D = (np.asarray(p.sensitive) == "M").astype(int)
        own = mu[np.arange(n), D]
        noise = {
            "right": lambda: rng.normal(0, 40, n),
            "skewed": lambda: 300 * (rng.exponential(size=n) - 1),  # gamma with sd 300
            "bimodal": lambda: rng.choice([-130.0, 130.0], n) + rng.normal(0, 30, n),
        }[kind]()
        return p.X, own + noise, mu, D, "normal"
    X = rng.normal(size=(n, 2))
    logit = 2.5 * X[:, 0] * X[:, 1] if kind == "wrong propensity" else 0.2 + 0.8 * X[:, 0]
    D = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)
    eta = np.column_stack([np.ones(n), X]) @ BETA.T
    own = eta[np.arange(n), D]
    if kind in ("right poisson", "overdispersed", "zero inflated"):
        rate = np.exp(own)
        if kind == "overdispersed":
            rate = rng.gamma(1.0, rate)
        if kind == "zero inflated":
            rate = np.where(rng.random(n) < 0.6, rate / 0.6, 0.0)
        return X, rng.poisson(rate).astype(float), np.exp(eta), D, "poisson"
    if kind == "no group effect":
        return X, X[:, 0] + rng.normal(size=n), np.repeat(X[:, :1], 2, axis=1), D, "normal"
    return X, own + rng.normal(size=n), eta, D, "normal"


def fit(X: object, y: np.ndarray, D: np.ndarray, seed: int, **settings: object) -> DiscriminationFreePricer:
    S = CHANNEL.privatize(np.array(CHANNEL.groups, dtype=object)[D], rng=seed)
    settings = {"channel": CHANNEL, "random_state": 0, "intervals": False, **settings}
    return DiscriminationFreePricer(**settings).fit(X, y, sensitive=S)


def error(pricer: DiscriminationFreePricer, X: object, mu: np.ndarray, D: np.ndarray) -> float:
    """RMSE of mu(x, d) under P(x, d)."""
    gap = np.asarray(pricer.predict_best_estimate(X)) - mu
    return float(np.sqrt(np.mean(gap[np.arange(len(D)), D] ** 2)))


@pytest.fixture(scope="module")
def candidates() -> Callable[[str], pd.DataFrame]:
    """candidates_ of one default fit per kind of portfolio, with 2,000 rows."""
    found: dict[str, pd.DataFrame] = {}

    def table(kind: str) -> pd.DataFrame:
        if kind not in found:
            X, y, _, D, family = draw(kind, 0, 2000)
            found[kind] = fit(X, y, D, 0, family=family).candidates_
        return found[kind]

    return table


@pytest.mark.parametrize("kind", ["right", "right poisson", "skewed", "no group effect"])
def test_the_table_of_candidates(kind: str, candidates: Callable) -> None:
    table = candidates(kind)
    assert len(table) >= 6
    assert table["chosen"].sum() == 1
    assert table["reason"].str.len().min() > 10
    assert set(table["correction"]) == {"likelihood", "posterior", "score", "inverse"}
    assert not table.duplicated(["correction", "detail"]).any()
    fitted = ~table["reason"].str.contains("could not be fitted")
    posteriors = table["correction"].isin(["likelihood", "posterior"])
    # a P(D given x, y) has a report log-loss; corrections by moments have no such posterior
    assert table.loc[posteriors & fitted, "report_log_loss"].notna().all()
    assert table.loc[~posteriors, "report_log_loss"].isna().all()
    assert (table.loc[posteriors & fitted, "report_log_loss_se"] > 0).all()
    assert table.loc[posteriors & fitted, "report_log_loss"].between(0.3, 0.8).all()
    # prices have a corrected risk: the chosen ones, the moments' and every likelihood that could be chosen
    priced = table["chosen"] | table["correction"].isin(["score", "inverse"])
    assert table.loc[priced & fitted, "corrected_risk"].notna().all()
    assert (table.loc[priced & fitted, "corrected_risk_se"] > 0).all()
    chosen = table[table["chosen"]].iloc[0]
    assert "passes every check" in chosen["reason"]
    # a rejected one does not carry the winner's reason
    assert (table["reason"] == chosen["reason"]).sum() == 1


@pytest.mark.parametrize("kind", ["right", "right poisson"])
def test_a_right_law_is_used(kind: str, candidates: Callable) -> None:
    table = candidates(kind)
    assert table.loc[table["chosen"], "correction"].item() == "likelihood"


@pytest.mark.simulation
@pytest.mark.parametrize("kind", sorted(WRONG))
def test_a_wrong_likelihood_is_caught_and_costs_little(kind: str, repetitions: Callable) -> None:
    """Never 1.6 times the paper's estimator on these portfolios, and at most 1.15 times on average."""
    ours, theirs, accepted = [], [], 0
    for seed in range(repetitions(2, 20)):
        X, y, mu, D, family = draw(kind, seed)
        assert family == WRONG[kind]
        auto = fit(X, y, D, seed, family=family)
        ours.append(error(auto, X, mu, D))
        theirs.append(error(fit(X, y, D, seed, family=family, correction="inverse", pooling=0), X, mu, D))
        chosen = auto.candidates_.set_index("chosen").loc[True]
        wrong_law = chosen["correction"] == "likelihood" and chosen["detail"] != "negative_binomial"
        accepted += int(wrong_law)
    ratio = np.array(ours) / np.array(theirs)
    assert accepted == 0, f"the wrong law was accepted in {accepted} of {len(ours)} portfolios"
    assert np.mean(ours) <= 1.15 * np.mean(theirs), f"mean ratio {np.mean(ours) / np.mean(theirs):.2f}, {ratio}"
    assert ratio.max() < 1.6, f"worst ratio {ratio.max():.2f}, {ratio}"


@pytest.mark.simulation
@pytest.mark.parametrize("kind", ["right", "right poisson"])
def test_where_the_law_is_right_the_choice_is_far_better_than_the_paper(kind: str, repetitions: Callable) -> None:
    ours, theirs = [], []
    for seed in range(repetitions(2, 20)):
        X, y, mu, D, family = draw(kind, 100 + seed)
        ours.append(error(fit(X, y, D, seed, family=family), X, mu, D))
        theirs.append(error(fit(X, y, D, seed, family=family, correction="inverse", pooling=0), X, mu, D))
    assert np.mean(ours) < (0.3 if kind == "right" else 0.85) * np.mean(theirs)


def test_overdispersed_counts_are_offered_the_right_law(candidates: Callable) -> None:
    table = candidates("overdispersed")
    poisson = table[(table["correction"] == "likelihood") & (table["detail"] == "poisson")].iloc[0]
    assert not poisson["chosen"]
    assert "law of y" in poisson["reason"]
    negative_binomial = table[table["detail"] == "negative_binomial"].iloc[0]
    assert negative_binomial["report_log_loss"] < poisson["report_log_loss"]


def test_no_group_effect_gives_nearly_one_price() -> None:
    """The outcome says nothing about D: no correction may invent a difference beyond the paper's own error."""
    X, y, mu, D, _ = draw("no group effect", 1)
    auto = fit(X, y, D, 1)
    paper = fit(X, y, D, 1, correction="inverse", pooling=0)
    assert error(auto, X, mu, D) < 1.15 * error(paper, X, mu, D)


def test_deterministic_given_random_state() -> None:
    X, y, _, D, _ = draw("skewed", 2, 1500)
    one, other = fit(X, y, D, 2), fit(X, y, D, 2)
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    pd.testing.assert_frame_equal(one.candidates_, other.candidates_)


def test_the_true_attribute_compares_nothing() -> None:
    X, y, _, D, _ = draw("right", 3, 1000)
    pricer = DiscriminationFreePricer(pooling=0).fit(X, y, sensitive=np.array(["F", "M"])[D])
    assert pricer.correction_ == "none"
    assert list(pricer.candidates_["correction"]) == ["none"]
    assert pricer.candidates_["chosen"].all()


@pytest.mark.parametrize("culprit", ["fit_score", "fit_mixture", "posterior_prices"])
def test_a_candidate_that_cannot_be_fitted_is_listed_and_breaks_nothing(
    culprit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ConvergenceError("it went wrong on purpose")

    monkeypatch.setattr(candidates_module, culprit, fail)
    X, y, _, D, _ = draw("skewed", 4, 1500)
    pricer = fit(X, y, D, 4)
    table = pricer.candidates_
    assert table["chosen"].sum() == 1
    failed = table["reason"].str.contains("it went wrong on purpose")
    expected = {"fit_score": "score", "fit_mixture": "likelihood", "posterior_prices": "posterior"}[culprit]
    assert failed.any()
    assert (table.loc[failed, "correction"] == expected).all()
    assert not (failed & table["chosen"]).any()
    assert np.isfinite(pricer.predict(X)).all()


def test_a_propensity_that_cannot_be_fitted_breaks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without P(D given x) there is neither likelihood nor score nor classifier, but the paper's correction stands."""

    def fail(*args: object, **kwargs: object) -> None:
        raise ConvergenceError("no propensity")

    monkeypatch.setattr(Latent, "maximise", fail)
    X, y, _, D, _ = draw("right", 5, 1000)
    pricer = fit(X, y, D, 5)
    assert pricer.correction_ == "inverse"
    assert pricer.candidates_["chosen"].sum() == 1


def test_who_is_a_candidate() -> None:
    for family in (Normal(), Poisson(), Gamma(), Tweedie(), Bernoulli(), NegativeBinomial()):
        assert [c.correction for c in candidates_for("likelihood", family, 3)] == ["likelihood"]
        assert [c.correction for c in candidates_for("score", family, 3)] == ["score"]
        assert {c.correction for c in candidates_for("posterior", family, 3)} == {"posterior"}
        names = [c.name for c in candidates_for("auto", family, 3)]
        assert len(set(names)) == len(names)
    details = [c.detail for c in candidates_for("auto", Poisson(), 3)]
    assert "negative_binomial" in details
    assert isinstance(candidates_for("score", Normal(), 3)[0], ScoreCandidate)
    assert PosteriorCandidate(spline=True, ridge=1.0).name == "posterior (spline logit, ridge 1)"


@pytest.mark.parametrize("correction", ["likelihood", "score"])
def test_a_given_correction_compares_nothing(correction: str) -> None:
    X, y, _, D, _ = draw("right", 6, 1500)
    pricer = fit(X, y, D, 6, correction=correction, pooling=0)
    assert pricer.correction_ == correction
    assert len(pricer.candidates_) == 1
    assert pricer.candidates_["reason"].item() == "asked for"


@pytest.mark.parametrize("correction", ["likelihood", "score", "posterior"])
def test_pooling_is_chosen_for_every_correction(correction: str) -> None:
    """Groups that do not differ, many features: "auto" must pool, as the pricer's documentation says."""
    rng = np.random.default_rng(7)
    n = 1500
    X = rng.normal(size=(n, 8))
    D = (rng.random(n) < 0.5).astype(int)
    y = X[:, 0] + rng.normal(size=n)
    pricer = fit(X, y, D, 7, correction=correction)
    assert pricer.pooling_ > 0


@pytest.mark.parametrize("seed", [2, 9])
def test_an_infinite_corrected_risk_is_not_a_numerical_warning(seed: int) -> None:
    """A small binary portfolio: prices of a training part that are zero or one have no finite held-out deviance."""
    rng = np.random.default_rng([3, seed])
    X, D = rng.normal(size=(100, 2)), rng.integers(0, 2, 100)
    y = (rng.random(100) < 0.4).astype(float)
    pricer = fit(X, y, D, seed, family="bernoulli")
    assert pricer.candidates_["chosen"].sum() == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_dispersion_that_runs_to_zero_does_not_take_forever(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows, a dispersion per group: a group that fits its rows exactly has no maximum likelihood.

    The Tweedie series has as many terms as sqrt(1 / dispersion); ten thousand and more for each row look like a hang.
    """
    import fairpremium.families._family as family_module

    plain = family_module._log_tweedie_series

    def bounded(y: np.ndarray, phi: np.ndarray, p: float) -> np.ndarray:
        if len(y):
            assert np.max(y ** (2 - p) / phi) < 1e6, f"dispersion {phi.min():.1e}"
        return plain(y, phi, p)

    monkeypatch.setattr(family_module, "_log_tweedie_series", bounded)
    rng = np.random.default_rng([seed, 40])
    n, K = 40, 4
    X, D = rng.normal(size=(n, 4)), rng.integers(0, K, n)
    y = np.where(rng.random(n) < 0.5, 0.0, rng.gamma(2, np.exp(0.3 * D + 0.3 * X[:, 0])))
    channel = RandomizedResponse(list(range(K)), keep=0.65)
    pricer = DiscriminationFreePricer(family="tweedie", channel=channel, random_state=0, intervals=False)
    pricer.fit(X, y, sensitive=channel.privatize(D, rng=seed))
    assert pricer.candidates_["chosen"].sum() == 1

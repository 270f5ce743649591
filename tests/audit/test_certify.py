"""certify: right if either the best estimates or P(D given x) are, and honest about its error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import certify
from fairpremium.pricing import _certificate

GROUPS = ("a", "b", "c")
CHANNEL = RandomizedResponse(GROUPS, keep=0.8)
REFERENCE = {"a": 0.6, "b": 0.25, "c": 0.15}
REGIONS = ("east", "north", "south")


class Sample(NamedTuple):
    """Policies of three unequal groups, with exposure and reports that are missing more often for some."""

    X: pd.DataFrame
    claims: np.ndarray
    exposure: np.ndarray
    reports: np.ndarray
    mu: np.ndarray  # the true best estimates, (n, 3)
    wrong: np.ndarray  # best estimates with wrong levels and a wrong slope
    shares: np.ndarray  # the true P(D = d given x), (n, 3)

    def roles(self, **changes: object) -> dict[str, object]:
        given = {
            "sensitive": self.reports, "channel": CHANNEL, "by": "region", "exposure": self.exposure,
            "reference": REFERENCE,
        }  # fmt: skip
        return given | changes


def draw(seed: int, n: int = 4000, *, jumps: bool = False) -> Sample:
    """`jumps`: P(D given x) jumps back and forth with x, as no logit in x and its square can tell."""
    rng = np.random.default_rng(seed)
    x, region = rng.uniform(-1, 1, n), rng.choice(REGIONS, n, p=[0.5, 0.3, 0.2])
    north = region == "north"
    lean = np.sign(np.sin(9 * x)) if jumps else x
    odds = np.exp([0.0, -1.5, -2.0] + np.outer(lean, [0.0, 0.8, -0.8]) + np.outer(north, [0.0, 0.5, 0.3]))
    shares = odds / odds.sum(axis=1, keepdims=True)
    d = (rng.random(n)[:, None] > shares.cumsum(axis=1)).sum(axis=1)
    exposure = rng.uniform(0.2, 1.0, n)
    mu = np.exp(-1 + 0.5 * x[:, None] + np.array([0.0, 0.5, -0.3]) + np.outer(north, [0.0, 0.3, 0.0]))
    claims = rng.poisson(exposure * mu[np.arange(n), d])
    reports = CHANNEL.privatize(np.array(GROUPS, dtype=object)[d], rng=rng).astype(object)
    reports[rng.random(n) < 0.1 + 0.3 * (x > 0) + 0.1 * (d == 1)] = None
    wrong = mu * np.exp(0.4 * x[:, None] + np.array([0.2, -0.3, 0.3]))
    return Sample(pd.DataFrame({"x": x, "region": region}), claims, exposure, reports, mu, wrong, shares)


@pytest.mark.parametrize(
    ("jumps", "best_estimates", "reference"),
    [(False, "wrong", "given"), (True, "mu", "given"), (False, "wrong", "marginal")],
    ids=["the best estimates are wrong", "P(D given x) is wrong", "the shares are estimated"],
)
def test_intervals_cover_the_mean_of_h(jumps, best_estimates, reference):
    """40 portfolios, each as a whole and in three regions, with 4,000 rows of which 30 % have no report."""
    repeats, scores = 40, []
    marginal = draw(999, 400_000, jumps=jumps)
    share = marginal.exposure @ marginal.shares / marginal.exposure.sum()
    for seed in range(100, 100 + repeats):
        p = draw(seed, jumps=jumps)
        weights = np.array(list(REFERENCE.values())) if reference == "given" else share
        given = REFERENCE if reference == "given" else "marginal"
        table = certify(p.mu @ weights, getattr(p, best_estimates), p.X, p.claims, **p.roles(reference=given))
        assert table["segment"].tolist() == ["all", *REGIONS]
        scores.append((table["level"] - table["premium"]) / table["standard_error"])
    z = np.array(scores)
    assert np.abs(z.mean(axis=0)).max() < 4 / np.sqrt(repeats)
    assert (np.abs(z) < 1.96).mean(axis=0).min() > 0.95 - 3 * np.sqrt(0.05 * 0.95 / repeats)
    assert z.std(axis=0).min() > 1 - 3 / np.sqrt(2 * repeats)  # and are not too wide


def test_prices_that_are_half_too_high_are_seen():
    p = draw(1)
    P = list(REFERENCE.values())
    right, high = (certify(factor * p.mu @ P, factor * p.mu, p.X, p.claims, **p.roles()) for factor in (1.0, 1.5))
    assert right["inside"].all()
    assert not high["inside"][0]
    gap = high["level"] - right["level"]  # of estimates that the wrong best estimates hardly move
    assert (np.abs(gap) < 2 * high["standard_error"]).all()


@pytest.mark.parametrize("reference", [REFERENCE, "marginal"], ids=["given", "marginal"])
def test_a_slow_second_computation(monkeypatch, reference):
    """With known probabilities, row by row and person by person; what the shares add is their linear response."""
    p = draw(3, 300)
    monkeypatch.setattr(_certificate, "_propensity", lambda rows, channel: 0.7 * p.shares)
    person, e = np.arange(300) // 2, 0.7 * p.shares
    roles = p.roles(reference=reference, cluster=person)
    table = certify(p.mu[:, 0], p.wrong, p.X, p.claims, **roles)
    reported = np.array([s is not None for s in p.reports])
    if reference == "marginal":
        # the shares: reports regressed on the features among those who reported, averaged over all
        Z = np.column_stack([np.ones(300), p.X["x"], p.X["region"] == "north", p.X["region"] == "south"])
        signed = np.array([CHANNEL.inverse[:, GROUPS.index(s)] if s else np.zeros(3) for s in p.reports])
        w, r = p.exposure, p.exposure * reported
        gram = (Z * r[:, None]).T @ Z
        slope = np.linalg.solve(gram, (Z * r[:, None]).T @ signed)
        P = w @ Z @ slope / w.sum()
        c = np.linalg.solve(gram, w @ Z)
        moves = (w[:, None] * (Z @ slope - P) + (r * (Z @ c))[:, None] * (signed - Z @ slope)) / w.sum()
    else:
        P, moves = np.array([REFERENCE[g] for g in GROUPS]), np.zeros((300, 3))
    for region, row in zip(["all", *REGIONS], table.itertuples(), strict=True):
        here = [i for i in range(300) if region in ("all", p.X["region"][i])]
        volume = sum(p.exposure[i] for i in here)
        correction, levels = np.zeros(300), np.zeros(3)
        for i in here:
            y = p.claims[i] / p.exposure[i]
            for k in range(3):
                a = CHANNEL.inverse[k, GROUPS.index(p.reports[i])] if reported[i] else 0.0
                term = a / max(e[i, k], 0.005) * (y - p.wrong[i, k])
                correction[i] += P[k] * term
                levels[k] += p.exposure[i] / volume * (p.wrong[i, k] + term)
        mean = sum(p.exposure[i] * correction[i] for i in here) / volume
        error = np.zeros(150)
        for i in range(300):
            own = p.exposure[i] / volume * (correction[i] - mean) if i in here else 0.0
            error[person[i]] += own + moves[i] @ levels
        assert row.rows == len(here)
        assert row.volume == pytest.approx(volume)
        assert row.premium == pytest.approx(sum(p.exposure[i] * p.mu[i, 0] for i in here) / volume)
        if not row.note:
            assert row.level == pytest.approx(levels @ P)
            assert row.standard_error == pytest.approx(np.sqrt((error**2).sum()))
            assert (row.lower + row.upper) / 2 == pytest.approx(row.level)
            assert row.upper - row.lower == pytest.approx(2 * 1.959964 * row.standard_error)
    assert not table["note"][0]


def test_it_is_the_certificate_of_a_pricer():
    p = draw(4)
    y = p.claims / p.exposure
    pricer = DiscriminationFreePricer(family="poisson", channel=CHANNEL, reference=REFERENCE, intervals=False)
    pricer.set_params(correction="inverse").fit(p.X, y, sensitive=p.reports, sample_weight=p.exposure)
    own = pricer.certificate(p.X, p.claims, sensitive=p.reports, by="region", exposure=p.exposure)
    same = certify(pricer.predict(p.X), pricer.predict_best_estimate(p.X), p.X, p.claims, **p.roles())
    pd.testing.assert_frame_equal(own, same)
    weighted = pricer.certificate(p.X, y, sensitive=p.reports, by=p.X["region"], sample_weight=p.exposure)
    pd.testing.assert_frame_equal(own, weighted)


def test_columns_follow_their_names_and_tables_their_library():
    p = draw(5)
    roles = p.roles(by=p.X["region"])
    expected = certify(p.mu[:, 0], p.mu, p.X, p.claims, **roles)
    turned = pd.DataFrame(p.mu, columns=list(GROUPS))[["c", "a", "b"]]
    pd.testing.assert_frame_equal(certify(p.mu[:, 0], turned, p.X, p.claims, **roles), expected)
    smoker = np.arange(len(p.X)) % 2 == 0
    table = certify(
        pl.Series(p.mu[:, 0]), pl.from_pandas(turned), pl.from_pandas(p.X), p.claims, **(roles | {"by": smoker})
    )
    assert isinstance(table, pl.DataFrame)
    assert table["segment"].to_list() == ["all", "False", "True"]
    assert table["level"][0] == pytest.approx(expected["level"][0])


def test_the_true_attribute_needs_no_channel():
    p = draw(6)
    known = p.reports.copy()
    table = certify(p.mu[:, 0], p.mu, p.X, p.claims, **p.roles(sensitive=known, channel=None))
    assert table["effective_reports"][0] > certify(p.mu[:, 0], p.mu, p.X, p.claims, **p.roles())["effective_reports"][0]


def test_segments_with_few_reports_get_a_note_instead_of_numbers():
    p = draw(7)
    few = np.where(np.arange(len(p.X)) < 60, "few", "many")
    reports = p.reports.copy()
    reports[20:60] = None
    table = certify(p.mu[:, 0], p.mu, p.X, p.claims, **p.roles(by=few, sensitive=reports))
    row = table.set_index("segment").loc["few"]
    assert row["rows"] == 60
    assert np.isnan([row["level"], row["standard_error"], row["lower"], row["upper"]]).all()
    assert row["inside"] is None
    assert row["note"].startswith("too few effective reports")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "colour"}, "Got by='colour', but expected a column of X"),
        ({"by": [None] * 400}, "Got by with 400 missing values; expected a segment for every row"),
        ({"sample_weight": np.ones(400)}, "Got both exposure and sample_weight, but expected one of them"),
        ({"exposure": np.zeros(400)}, "Got exposure with 400 of 400 values that are not positive and finite"),
        ({"exposure": np.ones(3)}, "Got exposure with 3 rows, but premiums has 400"),
        ({"reference": "balanced"}, "Got reference='balanced', but expected \"marginal\""),
        ({"reference": {"a": 1.0}}, "Got reference with weights for"),
        ({"level": 95}, "Got level=95"),
        ({"sensitive": [None] * 400}, "no report at all"),
        ({"sensitive": ["a"] * 49 + [None] * 351}, "Got 49 rows with a report, but expected at least 50"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    p = draw(8, 400)
    with pytest.raises(ValueError, match=message):
        certify(p.mu[:, 0], p.mu, p.X, p.claims, **p.roles(**change))


def test_tables_of_other_sizes_are_refused():
    p = draw(9, 400)
    with pytest.raises(ValueError, match="Got X with 399 rows, but premiums has 400"):
        certify(p.mu[:, 0], p.mu, p.X[1:], p.claims, **p.roles(by=None))
    with pytest.raises(ValueError, match=r"Got best_estimates of shape \(400, 2\), but expected one column for each"):
        certify(p.mu[:, 0], p.mu[:, :2], p.X, p.claims, **p.roles())

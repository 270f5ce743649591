"""fit warns where the reports are sharper than the channel permits, and hardly ever where the channel is right."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse, ValidationNoise
from fairpremium.blocks import Rows
from fairpremium.corrections import ReportChannel
from fairpremium.errors import ChannelRefutedWarning
from fairpremium.portfolios import load_ausprivauto, load_belgian_motor, zhang_liu_shi_2025
from fairpremium.pricing import _source_portfolio
from fairpremium.pricing._fit_arguments import warn_if_refuted

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


def pricer(channel=CHANNEL, **settings):
    settings = {"correction": "inverse", "pooling": 1e6, "intervals": False} | settings
    return DiscriminationFreePricer(channel=channel, **settings)


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=4000, rng=0, age_band=True)


def test_the_true_attribute_with_a_channel_warns(portfolio):
    with pytest.warns(ChannelRefutedWarning, match="declared keep of 0.800 is rejected") as caught:
        pricer().fit(portfolio.X, portfolio.y, sensitive=portfolio.sensitive)
    assert len(caught) == 1
    assert caught[0].filename == __file__  # it points at the call of fit
    assert issubclass(caught[0].category, UserWarning)
    for words in ("permits at", "What helps", "channel=None", "cluster"):
        assert words in str(caught[0].message)


@pytest.mark.parametrize("model", ["linear", "boosted"])
def test_every_model_class_checks(portfolio, model):
    few = portfolio.X.iloc[:1000], portfolio.y[:1000]
    with pytest.warns(ChannelRefutedWarning):
        pricer(model=model, correction="auto").fit(*few, sensitive=portfolio.sensitive[:1000])


def test_too_little_declared_noise_and_the_truth_do_not_warn(portfolio):
    S = CHANNEL.privatize(portfolio.sensitive, rng=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for channel in (CHANNEL, RandomizedResponse(["F", "M"], keep=0.9)):
            pricer(channel).fit(portfolio.X, portfolio.y, sensitive=S)
        pricer(None).fit(portfolio.X, portfolio.y, sensitive=portfolio.sensitive)
    assert not caught


def test_an_estimated_channel_is_not_checked_again(portfolio):
    S = CHANNEL.privatize(portfolio.sensitive, rng=1)
    noise = ValidationNoise(portfolio.sensitive[:50], S[:50])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pricer(noise).fit(portfolio.X, portfolio.y, sensitive=portfolio.sensitive)
    assert not caught


def test_a_group_that_is_rarer_than_the_noise_permits_warns():
    """Features and outcome that say nothing: the share of the reports does. Missing reports play no part."""
    rng = np.random.default_rng(0)
    D = np.where(rng.random(3000) < 0.1, "F", "M").astype(object)  # at keep .8 at least one report in five is F
    D[:500] = None
    with pytest.warns(ChannelRefutedWarning, match="report 'M', and the declared channel permits at most 80.0%"):
        pricer(reference="uniform").fit(rng.normal(size=(3000, 2)), rng.normal(size=3000), sensitive=D)


def test_few_reports_are_not_checked():
    rng = np.random.default_rng(0)
    D = np.where(np.arange(90) % 10 < 3, "F", "M")
    rows = Rows(rng.normal(size=(90, 1)), 1.0 * (D == "F"), None, 1 * (D == "M"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_refuted(rows, ReportChannel.of(CHANNEL))
    assert not caught


@pytest.mark.parametrize(
    "channel",
    [
        Channel([[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]], groups=["F", "M"], reports=["F", "no answer", "M"]),
        Channel([[0.9, 0.3], [0.1, 0.7]], groups=["F", "M"]),
    ],
    ids=["more reports than groups", "asymmetric"],
)
def test_other_channels(portfolio, channel):
    with pytest.warns(ChannelRefutedWarning, match="The declared channel is rejected"):
        pricer(channel).fit(portfolio.X, portfolio.y, sensitive=portfolio.sensitive)
    pricer(channel).fit(portfolio.X, portfolio.y, sensitive=channel.privatize(portfolio.sensitive, rng=0))


def test_a_source_is_checked_without_another_pass(portfolio, tmp_path, monkeypatch):
    monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)
    monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)
    table = portfolio.X.assign(y=portfolio.y, report=portfolio.sensitive)
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=500)
    with pytest.warns(ChannelRefutedWarning, match="keep of 0.800"):
        pricer().fit(tmp_path / "rows.parquet", "y", sensitive="report")


def test_a_band_over_keep_does_not_warn(portfolio):
    S = CHANNEL.privatize(portfolio.sensitive, rng=1)
    fitted = pricer().fit(portfolio.X, portfolio.y, sensitive=S)
    band = fitted.sensitivity(portfolio.X, portfolio.y, sensitive=S, rows=[0], keeps=[0.65])
    assert band["premium"].notna().all()


@pytest.mark.simulation
def test_a_right_channel_warns_in_one_fit_of_a_thousand_at_most(repetitions):
    """Where it is hardest: outcomes that tell the group, so that P(S | x, y) is at its bounds everywhere."""
    repeats, alarms = repetitions(400, 5000), 0
    for seed in range(repeats):
        rng = np.random.default_rng([seed, 11])
        K = 2 + seed % 3
        channel = RandomizedResponse(list(range(K)), keep=(0.9, 0.8, 0.7)[seed // 3 % 3])
        d = rng.choice(K, size=600, p=np.arange(1, K + 1) / np.arange(1, K + 1).sum())
        report = channel.privatize(d, rng=rng).astype(np.uint16)
        report[rng.random(600) < 0.1] = K  # missing
        person = rng.permutation(600)
        rows = Rows(rng.normal(size=(600, 2)), 10.0 * d + rng.normal(size=600), None, report, cluster=person)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_if_refuted(rows, ReportChannel.of(channel))
        alarms += len(caught)
    assert alarms <= binom.isf(1e-6, repeats, 0.001)


def test_persons_with_many_rows_count_once():
    rng = np.random.default_rng(5)
    people, each = 300, 20
    d = rng.random(people) < 0.5
    S = np.repeat(CHANNEL.privatize(np.where(d, "F", "M"), rng=2), each)
    x = np.repeat(rng.normal(size=people), each)  # tells the person, and with that the report
    X = pd.DataFrame(
        {f"x{j}": (x > q).astype(float) for j, q in enumerate(np.quantile(x, np.linspace(0.01, 0.99, 60)))}
    )
    y = rng.normal(size=people * each)
    with pytest.warns(ChannelRefutedWarning):
        pricer().fit(X, y, sensitive=S)
    pricer().fit(X, y, sensitive=S, cluster=np.repeat(np.arange(people), each))


def test_real_portfolios(shared_data):
    """In Belgium features tell men so well that the truth is seen behind keep .8; on ausprivauto nothing tells it."""
    for load, seen in ((load_belgian_motor, True), (load_ausprivauto, False)):
        p = load(shared_data)
        groups = list(p.groups)
        channel = RandomizedResponse(groups, keep=0.8)
        fit = pricer(channel, family=p.family)
        truth = np.asarray(p.sensitive)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ChannelRefutedWarning)
            fit.fit(p.X, p.y, sensitive=truth, sample_weight=p.sample_weight)
        assert [w.category for w in caught] == [ChannelRefutedWarning] * seen
        fit.fit(p.X, p.y, sensitive=channel.privatize(truth, rng=0), sample_weight=p.sample_weight)

"""Audits of reports from several sources: against sums by hand, one source, the true attribute, a known truth."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest

from benchmarks.audit import Population, judge, roles
from benchmarks.audit_sources import sample
from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse, SubsetSelection, diagnostics
from fairpremium import audit as fa
from fairpremium.errors import SourcesDependWarning
from fairpremium.privacy import KeyedChannels

GROUPS = ["a", "b", "c"]
APP, BROKER = RandomizedResponse(GROUPS, epsilon=1.0), SubsetSelection(GROUPS, 2.0, size=2)
SOURCES = {"app": APP, "broker": BROKER, "consent": None}
N = 6000


@pytest.fixture(scope="module")
def book():
    """People with high losses prefer the app: sources may depend on the loss, and group means stay right."""
    rng = np.random.default_rng(3)
    D = rng.choice(3, size=N, p=[0.5, 0.3, 0.2])
    x = rng.normal(size=N) + 0.5 * D
    y = np.array([1.0, 2.0, 4.0])[D] + 0.5 * x + rng.normal(size=N)
    w = rng.uniform(0.5, 1.5, size=N)
    key = np.where(rng.uniform(size=N) < 1 / (1 + np.exp(2 - y)), "app", rng.choice(["broker", "consent"], size=N))
    S = KeyedChannels(SOURCES).privatize(np.array(GROUPS)[D], key, rng=rng)
    S[rng.uniform(size=N) < 0.1] = None
    return {"X": pd.DataFrame({"x": x}), "y": y, "h": 2 + 0.5 * x, "w": w, "D": D, "S": S, "key": key}


@pytest.fixture(scope="module")
def pricer(book):
    pricer = DiscriminationFreePricer(channel=SOURCES, correction="inverse", pooling=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SourcesDependWarning)  # they do here, and the inverse weights do not mind
        return pricer.fit(book["X"], book["y"], sensitive=book["S"], channel_key=book["key"])


def test_group_means_are_the_sums_by_hand(book):
    table = fa.compute_group_means(
        book["h"], book["y"], sensitive=book["S"], channel=SOURCES, channel_key=book["key"], sample_weight=book["w"]
    )
    reported = np.array([s is not None for s in book["S"]])
    for k, group in enumerate(GROUPS):
        a = np.zeros(N)
        for i in np.flatnonzero(reported):
            s, source = book["S"][i], SOURCES[book["key"][i]]
            a[i] = s == group if source is None else source.inverse[k, source.reports.index(s)]
        a *= book["w"]
        mean = a @ book["y"] / a.sum()
        assert table["loss"][k] == pytest.approx(mean, rel=1e-9)
        assert table["share"][k] == pytest.approx(a.sum() / book["w"][reported].sum(), rel=1e-9)
        truth = np.average(book["y"][book["D"] == k], weights=book["w"][book["D"] == k])
        error = np.sqrt((a**2 * (book["y"] - mean) ** 2).sum()) / a.sum()
        assert abs(mean - truth) < 4.5 * error


def test_one_key_is_no_mapping(book):
    S = APP.privatize(np.array(GROUPS)[book["D"]], rng=1)
    pair = (book["h"], book["y"])
    one = fa.compute_group_means(*pair, sensitive=S, channel={"app": APP}, channel_key=["app"] * N)
    pd.testing.assert_frame_equal(one, fa.compute_group_means(*pair, sensitive=S, channel=APP))


def test_an_identity_and_none_are_the_true_attribute(book):
    D = np.array(GROUPS)[book["D"]]
    pair, key = (book["h"], book["y"]), np.where(book["key"] == "app", "x", "y")
    known = fa.compute_group_means(*pair, sensitive=D)
    for channel in ({"x": None, "y": None}, {"x": Channel(np.eye(3), groups=GROUPS), "y": None}):
        table = fa.compute_group_means(*pair, sensitive=D, channel=channel, channel_key=key)
        pd.testing.assert_frame_equal(table, known)


ARGUMENTS = {
    "premiums": lambda b: b["h"], "y": lambda b: b["y"], "X": lambda b: b["X"], "old": lambda b: b["h"],
    "new": lambda b: b["h"] + 20.5, "current": lambda b: b["h"] + 20, "prices": lambda b: {"one": b["h"]},
    "best_estimates": lambda b: np.tile(b["h"][:, None], 3), "best_estimate": lambda b: np.tile(b["h"][:, None], 3),
    "against": lambda b: b["h"] * 1.1 + 0.1, "decisions": lambda b: b["y"] > np.median(b["y"]),
    "favourable": lambda b: True,
}  # fmt: skip
TABLES = [
    function
    for module in (fa, diagnostics)
    for name, function in vars(module).items()
    if name.startswith("compute_") or name == "certify"
    if "channel" in inspect.signature(function).parameters
]


@pytest.mark.parametrize("function", TABLES, ids=lambda f: f.__name__)
def test_every_table_takes_the_sources(function, book, pricer):
    needed = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    given = {name: ARGUMENTS[name](book) for name in needed if name in ARGUMENTS}
    if function is fa.compute_list_discrimination or function is fa.compute_limit_effect:
        given |= {"pricer": pricer}
        given |= {"cap": 0.1} if function is fa.compute_limit_effect else {}
    if function in (fa.compute_keep_sensitivity, fa.compute_channel_band):
        given["keeps"] = [0.7]
    found = function(**given, sensitive=book["S"], channel=SOURCES, channel_key=book["key"])
    assert len(found)
    # a mapping to one channel for all keys gives the numbers of that channel
    S = APP.privatize(np.array(GROUPS)[book["D"]], rng=1)
    one = function(**given, sensitive=S, channel=APP)
    same = function(**given, sensitive=S, channel={"app": APP}, channel_key=["app"] * N)
    if "source" in same:
        same = same.drop(columns="source")
    pd.testing.assert_frame_equal(same, one, rtol=1e-6)


def test_the_report_names_every_source(book, pricer):
    pair = (book["h"], book["y"])
    roles = {"sensitive": book["S"], "channel_key": book["key"]}
    summary = fa.summarize_prices(*pair, channel=SOURCES, keep={"app": (0.5, 0.65)}, **roles)
    assert list(summary["privacy"]["sources"]) == ["app", "broker", "consent"]
    assert summary["privacy"]["epsilon"] is None
    text = fa.render_markdown(summary)
    assert "Reports of app: epsilon 1, the truth with probability 0.5761" in text
    assert "Reports of consent: the true attribute" in text
    assert "Those of consent are the true attribute" in text
    assert "Over the channels that are possible: groups" in text
    model = fa.summarize_pricer(pricer, book["X"], book["y"], **roles)
    assert model["privacy"]["sha256"] == summary["privacy"]["sha256"]


def test_mistakes(book):
    pair, S = (book["h"], book["y"]), book["S"]
    with pytest.raises(ValueError, match="Got no channel_key"):
        fa.compute_group_means(*pair, sensitive=S, channel=SOURCES)
    with pytest.raises(ValueError, match="one channel for all rows"):
        fa.compute_group_means(*pair, sensitive=S, channel=APP, channel_key=book["key"])
    with pytest.raises(ValueError, match="Add the source to the mapping"):
        fa.compute_group_means(*pair, sensitive=S, channel={"app": APP}, channel_key=book["key"])
    with pytest.raises(TypeError, match="Got channel of type int"):
        fa.compute_group_means(*pair, sensitive=S, channel=3)


def test_intervals_cover_though_sources_depend_on_group_and_loss():
    """The full study is benchmarks/audit_sources.py; here the group means of 300 samples."""
    population = Population.with_groups(3)
    whole = population.itself()
    truth = fa.compute_group_means(whole["unaware"], whole["y"], **roles(whole))
    covered = []
    for repeat in range(300):
        data = sample(population, 1500, np.random.default_rng([3, repeat]))
        table = fa.compute_group_means(data["unaware"], data["y"], **roles(data), channel_key=data["key"])
        covered.append(judge(table, truth, ["loss"])[:, 1])
    rate = np.nanmean(covered)
    # groups of one sample are dependent: the standard error is that of 300 samples
    assert abs(rate - 0.95) < 3.5 * np.sqrt(0.95 * 0.05 / 300)

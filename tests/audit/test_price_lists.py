"""Price lists with the features at hand: what proxies do in them, and the change from the list in force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium import audit as fa

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture(scope="module")
def book():
    """Costs differ by group and age; part-time work says nothing about the cost but much about the group."""
    rng = np.random.default_rng(0)
    n = 6000
    D = rng.choice(["F", "M"], n)
    part_time = rng.random(n) < np.where(D == "F", 0.75, 0.2)
    X = pd.DataFrame({"age": rng.integers(18, 80, n), "part_time": np.where(part_time, "yes", "no")})
    mu = np.column_stack([np.exp(5 + 0.01 * (X["age"] - 40) + shift) for shift in (0.0, 0.5)])
    y = rng.gamma(4.0, mu[np.arange(n), (D == "M").astype(int)] / 4)
    pricer = DiscriminationFreePricer("gamma", pooling=0).fit(X, y, sensitive=D)
    return {"X": X, "y": y, "D": D, "S": CHANNEL.privatize(D, rng=1), "mu": mu, "pricer": pricer}


def values(table, price):
    own = table[table["price"] == price]
    return dict(zip(own["measure"], own["value"], strict=True))


# --- proxies of a list ---


def test_a_loading_is_no_discrimination(book):
    """The unaware price of a list has the proxies of the unaware price, whatever the loading; h* has none."""
    X, pricer = book["X"], book["pricer"]
    for loading in (1.0, 1.4):
        unaware, free = loading * pricer.predict_unaware(X), loading * pricer.predict(X)
        table = fa.compute_list_discrimination({"list": unaware, "fair": free}, X, sensitive=book["D"], pricer=pricer)
        assert set(table["price"]) == {"list", "fair", "unaware", "discrimination_free"}
        found, same = values(table, "list"), values(table, "unaware")
        assert found == pytest.approx(same)
        direct = fa.compute_discrimination(
            unaware / loading, best_estimate=pricer.predict_best_estimate(X),
            discrimination_free=pricer.predict(X) * unaware.sum() / free.sum(), sensitive=book["D"],
        )  # fmt: skip
        assert found["demographic_unfairness"] == pytest.approx(direct["value"][0])
        assert found["proxy_explained"] > 0.5 * found["proxy_discrimination"] > 0.05
        assert values(table, "fair")["proxy_discrimination"] == pytest.approx(0, abs=1e-9)
        assert values(table, "fair")["proxy_shift"] == pytest.approx(0, abs=1e-9)


def test_the_free_list_has_the_same_total_and_is_near_the_truth(book):
    """Fitted from noisy reports: part-time work, which says nothing about the cost, moves no premium."""
    X, mu = book["X"], book["mu"]
    shares = np.array([np.mean(book["D"] == g) for g in ("F", "M")])
    unaware = 1.3 * book["pricer"].predict_unaware(X)
    w = np.random.default_rng(2).uniform(0.5, 1.5, len(X))
    found = fa.discrimination_free_list(
        unaware, X, book["y"], sensitive=book["S"], channel=CHANNEL, family="gamma", sample_weight=w
    )
    assert w @ found.premiums == pytest.approx(w @ unaware)
    np.testing.assert_allclose(found.premiums, found.loading * found.pricer.predict(X))
    low, high = found.pricer.predict_interval(X, 1 - 1e-5)
    assert ((low < mu @ shares) & (mu @ shares < high)).all()
    assert (high / low).max() < 1.6  # which says something: the groups differ by 65 per cent
    by_exposure = fa.discrimination_free_list(
        unaware, X, book["y"] * w, sensitive=book["S"], channel=CHANNEL, family="gamma", exposure=w
    )
    np.testing.assert_allclose(by_exposure.premiums, found.premiums)


def test_groups_are_matched_by_name(book):
    """A channel that lists the groups in another order than the pricer."""
    X, pricer = book["X"], book["pricer"]
    swapped = RandomizedResponse(["M", "F"], keep=0.8)
    lists = pricer.predict_unaware(X)
    one, two = (
        values(fa.compute_list_discrimination(lists, X, sensitive=book["S"], channel=c, pricer=pricer), "premiums")
        for c in (CHANNEL, swapped)
    )
    assert one == pytest.approx(two, rel=1e-4)
    other = {"sensitive": np.where(book["S"] == "F", "X", "Y"), "channel": RandomizedResponse(["X", "Y"], keep=0.8)}
    with pytest.raises(ValueError, match="Got a pricer of the groups"):
        fa.compute_list_discrimination(lists, X, **other, pricer=pricer)


def test_mistakes_about_lists_are_named(book):
    X, pricer = book["X"], book["pricer"]
    ones = np.ones(len(X))
    for change, said in (
        ({"premiums": {"unaware": ones}}, "expected one or more lists with other names"),
        ({"pricer": None}, "Got y=None"),
        ({"premiums": -ones}, "expected positive ones"),
        ({"X": X.head(9)}, "Got X with 9 rows"),
        ({"premiums": {"a": ones, "b": ones[:9]}}, "Got b with 9 rows"),
    ):
        with pytest.raises(ValueError, match=said):
            fa.compute_list_discrimination(
                **{"premiums": ones, "X": X, "sensitive": book["D"], "pricer": pricer, **change}
            )


# --- the change from the list in force ---


def test_every_policy_is_in_one_band():
    current = np.full(9, 100.0)
    new = np.array([70.0, 80.0, 85.0, 90.0, 97.0, 100.0, 105.0, 120.0, 121.0])
    table = fa.compute_dislocation(np.tile(current, 20), np.tile(new, 20))
    counts = (180 * table["share"]).round(6).tolist()
    assert dict(zip(table["band"], np.array(counts) / 20, strict=True)) == {
        "below -20 %": 1, "-20 % to -10 %": 2, "-10 % to -5 %": 1, "-5 % to 0 %": 1, "0 % to +5 %": 2,
        "+5 % to +10 %": 0, "+10 % to +20 %": 1, "above +20 %": 1,
    }  # fmt: skip
    assert table["share"].sum() == pytest.approx(1)
    for bands in ([], [0.1, 0.0], [np.nan]):
        with pytest.raises(ValueError, match="Got bands="):
            fa.compute_dislocation(current, new, bands=bands)
    with pytest.raises(ValueError, match="Got current with 1 of 9 values not above zero"):
        fa.compute_dislocation(np.append(0.0, current[1:]), new)


def test_bands_of_groups_are_seen_through_the_noise(book):
    current, new = book["pricer"].predict_unaware(book["X"]), book["pricer"].predict(book["X"])
    noisy = fa.compute_dislocation(current, new, sensitive=book["S"], channel=CHANNEL)
    truth = fa.compute_dislocation(current, new, sensitive=book["D"])
    assert list(noisy["group"].unique()) == [None, "F", "M"]
    error = (noisy["share_high"] - noisy["share_low"]) / (2 * 1.96)
    own = noisy["group"].notna()
    assert (np.abs(noisy["share"] - truth["share"])[own] <= 4 * error[own] + 1e-12).all()
    np.testing.assert_allclose(noisy["share"][~own], truth["share"][~own])
    assert np.abs(noisy["share"] - truth["share"])[own].max() > 0


def test_the_change_by_factor_is_that_of_every_level(book):
    X, D = book["X"], book["D"]
    current, new = book["pricer"].predict_unaware(X), book["pricer"].predict(X)
    table = fa.compute_change_by_factor(current, new, X, sensitive=D, bands=3)
    row = table[(table["factor"] == "part_time") & (table["level"] == "yes") & (table["group"] == "M")].iloc[0]
    rows = (X["part_time"] == "yes").to_numpy() & (D == "M")
    assert row["old"] == pytest.approx(current[rows].mean())
    assert row["relative"] == pytest.approx(new[rows].sum() / current[rows].sum() - 1)
    assert row["pays_more"] == pytest.approx(np.mean(new[rows] > current[rows]))
    by = fa.compute_premium_change(current, new, sensitive=D, by=X["part_time"])
    same = by[(by["risk_class"] == "yes") & (by["group"] == "M")].iloc[0]
    assert row["relative_low"] == pytest.approx(same["relative_low"])
    alone = fa.compute_change_by_factor(current, new, X, factors=["part_time"])
    assert len(alone) == 2


# --- limits ---


@pytest.mark.parametrize("seed", range(20))
def test_the_multiplier_is_that_of_a_root_finder(seed):
    rng = np.random.default_rng(seed)
    n = 200
    current, new, w = rng.gamma(5, 20, n), rng.gamma(5, 20, n), rng.uniform(0, 2, n) * (rng.random(n) < 0.9)
    cap, floor = (None if rng.random() < 0.2 else rng.uniform(0.05, 0.5)), rng.uniform(-0.5, -0.05)
    low, high = (1 + floor) * current, current * (np.inf if cap is None else 1 + cap)

    def total(m):
        return w @ np.clip(m * new, low, high)

    wanted = total(rng.uniform(0.6, 1.6))
    found = fa.limit_changes(current, new, cap=cap, floor=floor, total=wanted, sample_weight=w)
    assert total(found.multiplier) == pytest.approx(wanted, rel=1e-10)
    slow = brentq(lambda m: total(m) - wanted, 0, 100, xtol=1e-14, rtol=1e-14)
    np.testing.assert_allclose(found.premiums, np.clip(slow * new, low, high), rtol=1e-8)
    assert found.total == pytest.approx(wanted)
    change = found.premiums / current - 1
    assert change.min() >= floor - 1e-12
    assert change.max() <= (np.inf if cap is None else cap) + 1e-12
    assert found.at_cap == pytest.approx(w[found.multiplier * new > high].sum() / w.sum())
    assert found.at_floor == pytest.approx(w[found.multiplier * new < low].sum() / w.sum())


def test_limits_that_leave_no_room_are_refused():
    current, new = np.full(10, 100.0), np.full(10, 150.0)
    with pytest.raises(ValueError, match="at most, but expected a total of 1500"):
        fa.limit_changes(current, new, cap=0.2, floor=-0.2)
    found = fa.limit_changes(current, new, cap=0.5, floor=-0.2)  # all at the cap, exactly
    np.testing.assert_allclose(found.premiums, 150.0)
    assert fa.limit_changes(current, new).multiplier == pytest.approx(1.0)
    found = fa.limit_changes(current, new, cap=0.2, floor=-0.2, total=1000.0)
    np.testing.assert_allclose(found.premiums, 100.0)
    assert found.multiplier == pytest.approx(2 / 3)
    for wrong in ({"cap": -0.1}, {"floor": 0.1}, {"floor": -1.5}, {"cap": True}, {"cap": "much"}, {"cap": np.nan}):
        with pytest.raises(ValueError, match="but expected a number such as"):
            fa.limit_changes(current, new, **wrong)


def test_a_cap_in_per_cent_is_refused():
    """The mistake: 20 was taken for 2,000 per cent, and limited nothing."""
    with pytest.raises(ValueError, match=r"Got cap=20, but expected a number such as 0\.2 .*from 0 to 10"):
        fa.limit_changes([100.0, 100.0], [90.0, 300.0], cap=20)
    assert fa.limit_changes([100.0, 100.0], [90.0, 300.0], cap=5.0).at_cap == 0


def test_limits_give_back_a_part_of_the_proxy_effect(book):
    """From the unaware price to h*: the narrower the limits, the more comes back; without any, nothing does."""
    X, pricer = book["X"], book["pricer"]
    current, new = 1.2 * pricer.predict_unaware(X), 1.2 * pricer.predict(X)
    settings = {"sensitive": book["S"], "channel": CHANNEL, "pricer": pricer}
    backs = []
    for cap in (0.02, 0.05, 0.1, 5.0):
        table = fa.compute_limit_effect(current, new, X, cap=cap, floor=-min(cap, 0.9), **settings)
        lists = {name: values(table, name) for name in ("current", "new", "limited")}
        for measure in ("proxy_discrimination", "proxy_explained", "proxy_shift"):
            order = [lists[name][measure] for name in ("new", "limited", "current")]
            assert order[0] - 1e-9 <= order[1] <= order[2]
            own = table[(table["measure"] == measure) & (table["price"] == "limited")]["given_back"].item()
            assert own == pytest.approx((order[1] - order[0]) / (order[2] - order[0]), abs=1e-12)
        backs.append(own)
    assert (np.diff(backs) < 0).all()
    assert backs[-1] == pytest.approx(0, abs=1e-9)
    assert table.loc[table["price"] != "limited", "given_back"].isna().all()


# --- the audit report ---


def sections(summary):
    return {section["id"]: section["records"] for section in summary["sections"]}


def finding(summary, heading):
    return next(f for f in summary["findings"] if f["heading"] == heading)


def test_an_audit_report_with_features_says_what_proxies_do(book):
    X = book["X"]
    roles = {"sensitive": book["S"], "channel": CHANNEL}
    unaware, free = book["pricer"].predict_unaware(X), book["pricer"].predict(X)
    summary = fa.summarize_prices(unaware, book["y"], **roles, X=X, family="gamma")
    assert list(sections(summary))[:2] == ["list_discrimination", "premium_change_to_free"]
    said = finding(summary, "Does this list use proxies?")
    assert said["tone"] == "attention"
    assert all(word in said["text"] for word in ("F ", "less", "more"))
    assert any("fitted to these rows" in note for note in summary["notes"])
    assert {term for term, _ in summary["definitions"]} >= {"PD", "UF", "Proxy"}
    fair = fa.summarize_prices(free, book["y"], **roles, X=X, pricer=book["pricer"])
    assert finding(fair, "Does this list use proxies?")["tone"] == "plain"  # h* itself has an error
    assert fair["panel"][0]["value"] == pytest.approx(0, abs=1e-9)
    assert fair["panel"][0]["verdict"] != "beyond"
    assert any("model file" in name for name in fair["hashes"])
    plain = fa.summarize_prices(unaware, book["y"], **roles)
    assert "list_discrimination" not in sections(plain)
    with pytest.raises(ValueError, match="without X"):
        fa.summarize_prices(unaware, book["y"], **roles, pricer=book["pricer"])


def test_an_audit_report_with_the_list_in_force_says_who_moves(book):
    X, pricer = book["X"], book["pricer"]
    roles = {"sensitive": book["S"], "channel": CHANNEL}
    current, new = pricer.predict_unaware(X), pricer.predict(X)
    summary = fa.summarize_prices(
        new, book["y"], **roles, X=X, pricer=pricer, current=current, cap=0.05, floor=-0.05, unit="EUR"
    )
    found = sections(summary)
    for name in ("dislocation", "premium_change_from_current", "change_by_factor", "limited_change", "limit_effect"):
        assert found[name]
    limited = fa.limit_changes(current, new, cap=0.05, floor=-0.05)
    assert found["limited_change"][0]["multiplier"] == limited.multiplier
    assert "give back" in finding(summary, "Limits on the change")["text"]
    assert "than the list in force" in finding(summary, "From the list in force")["text"]
    page, text = fa.render_report(summary), fa.render_markdown(summary)
    for said in ("Limits on the change", "What the limits give back to proxies", "What a discrimination-free list"):
        assert said in page
        assert said in text
    bare = sections(fa.summarize_prices(new, book["y"], **roles, current=current, cap=0.05, floor=-0.05))
    assert "limited_change" in bare
    assert "limit_effect" not in bare
    own = sections(fa.summarize_pricer(pricer, X, book["y"], sensitive=book["D"], current=current, cap=0.2))
    assert "limit_effect" in own
    with pytest.raises(ValueError, match="without current"):
        fa.summarize_prices(new, book["y"], **roles, cap=0.1)

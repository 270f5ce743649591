"""The monitor: sums by person against a slow twin, measures against plain ones, false alarms, drifts, the state."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

from fairpremium import RandomizedResponse
from fairpremium.errors import ModelFileError
from fairpremium.monitoring import MEASURES, Monitor, plot_monitor
from fairpremium.monitoring._confidence_sequence import critical_value
from fairpremium.monitoring._measures import Layout, Watched
from fairpremium.monitoring._person_signs import SIGNS, Persons, person_signs

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


def people(n, rng, shift=20.0):
    sex = rng.choice(["F", "M"], n)
    return pd.DataFrame(
        {
            "person": np.arange(n),
            "sex": sex,
            "report": CHANNEL.privatize(sex, rng=rng),
            "premium": 300 + shift * (sex == "M") + rng.normal(0, 30, n),
            "loss": rng.gamma(1.0, 250.0, n),
            "accepted": (rng.random(n) < 0.9).astype(float),
        }
    )


def arguments(rows, **more):
    return {
        "premiums": rows["premium"], "y": rows["loss"], "sensitive": rows["report"], "person": rows["person"],
        "favourable": rows["accepted"], **more,
    }  # fmt: skip


class TestSums:
    def test_they_are_those_of_a_loop_over_persons_and_periods(self):
        rng = np.random.default_rng(0)
        person, rows = rng.integers(0, 40, 100), rng.normal(size=(100, 3))
        total, signed = Persons.read(person, len(rows)).total(rows)
        signs = {key: person_signs([str(key)])[0] for key in range(40)}
        slow = sum(np.outer(signs[key], row) for key, row in zip(person.tolist(), rows, strict=True))
        np.testing.assert_allclose(signed, slow, atol=1e-12)
        np.testing.assert_allclose(total, rows.sum(axis=0))
        first, second = (Persons.read(person[p], len(rows[p])).total(rows[p])[1] for p in (slice(30), slice(30, None)))
        np.testing.assert_allclose(first + second, slow, atol=1e-12)

    def test_their_squares_estimate_the_covariance_with_the_person_as_cluster(self):
        rng = np.random.default_rng(1)
        person = rng.integers(0, 500, 4000)
        rows = rng.normal(size=(500, 2))[person] + rng.normal(size=(4000, 2))
        sums = pd.DataFrame(rows).groupby(person).sum().to_numpy()
        estimate, truth = np.mean(Persons.read(person, len(rows)).total(rows)[1] ** 2, axis=0), (sums**2).sum(axis=0)
        assert (np.abs(estimate / truth - 1) < 4 * np.sqrt(2 / SIGNS)).all()
        assert (truth > 4 * (rows**2).sum(axis=0)).all()  # rows alone would claim far more information

    def test_signs_are_balanced_and_independent_between_persons(self):
        signs = person_signs([str(key) for key in range(2000)])
        assert set(np.unique(signs)) == {-1.0, 1.0}
        assert np.abs(signs.mean(axis=0)).max() < 5 / np.sqrt(2000)
        assert np.abs(signs[:-1] * signs[1:]).all()
        assert abs((signs[:-1] * signs[1:]).mean()) < 5 / np.sqrt(2000 * SIGNS)

    def test_a_key_is_the_same_as_number_and_as_text(self):
        for keys in ([17, 3], [17.0, 3.0], ["17", "3"], np.array([17, "3"], dtype=object)):
            assert Persons.read(keys, 2).keys == ["17", "3"]


class TestMeasures:
    def test_with_the_true_attribute_they_are_the_plain_ones(self):
        rows = people(3000, np.random.default_rng(2))
        free = rows["premium"] - 5 * (rows["sex"] == "M") - 1
        monitor = Monitor(channel=None, against="F")
        look = monitor.append(1, **arguments(rows, sensitive=rows["sex"], free=free)).set_index("measure")["value"]
        F, M = (rows[rows["sex"] == s] for s in "FM")
        gap = M["premium"].mean() - F["premium"].mean()
        pooled = np.sqrt((M["premium"].var(ddof=0) + F["premium"].var(ddof=0)) / 2)
        ratios = [g["loss"].sum() / g["premium"].sum() for g in (M, F)]
        assert look["premium_difference"] == pytest.approx(gap, rel=1e-9)
        assert look["standardized_difference"] == pytest.approx(gap / pooled, rel=1e-9)
        assert look["loss_ratio"] == pytest.approx(ratios[0] / ratios[1], rel=1e-9)
        assert look["adverse_impact_ratio"] == pytest.approx(M["accepted"].mean() / F["accepted"].mean(), rel=1e-9)
        assert look["proxy_effect"] == pytest.approx(5.0, rel=1e-6)
        assert look["report_share"] == pytest.approx((rows["sex"] == "F").mean(), rel=1e-9)

    def test_derivatives_are_those_of_differences(self):
        layout = Layout(("volume", "premium", "square", "loss", "favourable", "free"), 2, 3, 4.0)
        totals = np.array([10, 2, 30, 50, 8, 1.0, 20, -3, 70, 90, 15, 2.0, 9, 8, 13.0])
        names = list(MEASURES)
        for watched in [*(Watched(name, 0, 1) for name in names), Watched("report_share", 1, None)]:
            (value,), (gradient,) = layout.values_and_gradients([watched], totals)
            h = 1e-6
            both = [layout.values([watched], totals + s * h * np.eye(15))[:, 0] for s in (1, -1)]
            np.testing.assert_allclose(gradient, (both[0] - both[1]) / (2 * h), atol=1e-8)
            assert abs(gradient @ totals) < 1e-12, "twice the totals are the same measure"
            assert value == pytest.approx(float(layout.values([watched], totals)[0]))

    def test_reports_are_corrected(self):
        rows = people(40_000, np.random.default_rng(3))
        look = Monitor(channel=CHANNEL, against="F", measures=["premium_difference"]).append(1, **arguments(rows))
        assert look["low"][0] < 20 < look["high"][0]
        assert abs(look["value"][0] - 20) < 2  # the naive difference is 12


class TestEveryLook:
    def test_a_brownian_motion_leaves_the_limits_with_the_probability_that_is_stated(self):
        rng, alpha, paths = np.random.default_rng(4), 0.1, 4000
        steps = np.cumsum(rng.normal(size=(paths, 300)), axis=1)
        limits = np.array([critical_value(alpha, v, 10**9) * np.sqrt(v) for v in range(1, 301)])
        crossed = (np.abs(steps) > limits).any(axis=1).sum()
        assert crossed <= binom.isf(1e-4, paths, alpha)
        assert crossed >= 0.2 * alpha * paths  # and they are not far too wide

    def test_errors_that_persist_leave_them_less_often(self):
        rng, alpha, paths, looks, rate = np.random.default_rng(5), 0.1, 4000, 60, 0.9
        error = np.empty((paths, looks))  # of single periods: those who renew keep theirs
        error[:, 0] = rng.normal(size=paths)
        for j in range(1, looks):
            error[:, j] = rate * error[:, j - 1] + np.sqrt(1 - rate**2) * rng.normal(size=paths)
        lag = np.abs(np.subtract.outer(np.arange(looks), np.arange(looks)))
        variance = np.array([(rate ** lag[:j, :j]).sum() for j in range(1, looks + 1)])
        limits = np.array([critical_value(alpha, v, 10**9) * np.sqrt(v) for v in variance])
        assert (np.abs(np.cumsum(error, axis=1)) > limits).any(axis=1).sum() <= binom.isf(1e-4, paths, alpha)

    def test_a_person_who_renews_is_not_new_information(self):
        rng = np.random.default_rng(6)
        rows = people(3000, rng)
        same, fresh = (Monitor(channel=CHANNEL, measures=["premium_difference"]) for _ in range(2))
        widths = []
        for t in range(9):
            known = same.append(t, **arguments(rows))
            unknown = fresh.append(t, **arguments(rows.assign(person=rows["person"] + 3000 * t)))
            widths.append([float(look["high"][0] - look["low"][0]) for look in (known, unknown)])
        critical = [critical_value(0.05 / 2, v, SIGNS) for v in (81, 9)]
        assert widths[-1][0] / widths[0][0] == pytest.approx(critical[0] / critical_value(0.05 / 2, 1, SIGNS), rel=1e-6)
        ratio = widths[-1][0] / critical[0] / (widths[-1][1] / critical[1])  # of standard errors
        assert ratio == pytest.approx(3.0, rel=4 * np.sqrt(1 / SIGNS))  # sqrt(9): taken for new persons

    def test_nothing_changed_is_no_alarm_however_often_one_looks(self):
        rows = people(1000, np.random.default_rng(7))
        monitor = Monitor(channel=CHANNEL)
        for t in range(40):
            look = monitor.append(t, **arguments(rows))
        assert not look["alarm"].any()
        assert np.isfinite(look["change_low"]).all()

    @pytest.mark.simulation
    def test_false_alarms_with_memoized_reports(self):
        rng, monitors, looks, n, alarmed = np.random.default_rng(8), 30, 20, 600, 0
        for _ in range(monitors):
            rows, following = people(n, rng), n
            monitor = Monitor(channel=CHANNEL, limits={"premium_difference": (-20.0, 20.0)})
            found = False
            for t in range(looks):
                look = monitor.append(t, **arguments(rows))
                found |= bool(look["alarm"].any())
                new = people(n, rng).assign(person=np.arange(following, following + n))
                following += n
                leaves = rng.random(n) < 0.15  # others renew, with the report that they have
                rows = new.where(pd.Series(leaves), rows).assign(
                    loss=rng.gamma(1.0, 250.0, n), accepted=(rng.random(n) < 0.9).astype(float)
                )
            alarmed += found
        assert alarmed <= binom.isf(1e-3, monitors, 0.05)

    def test_a_drift_is_found_and_named(self):
        rng = np.random.default_rng(9)
        rows = people(6000, rng)
        monitor = Monitor(channel=CHANNEL, against="F", measures=["premium_difference", "report_share"])
        for t in range(3):
            assert not monitor.append(t, **arguments(rows))["alarm"].any()
        dearer = rows.assign(premium=rows["premium"] + 30 * (rows["sex"] == "M"))
        for t in range(3, 9):
            look = monitor.append(t, **arguments(dearer))
        assert look["alarm"].tolist() == ["changed", ""]
        assert look["change_low"][0] < 30 * 6 / 8 < look["change_high"][0]  # of the 8 periods since the first
        assert monitor.alarms()["measure"].tolist() == ["premium_difference"]

    def test_a_drift_of_the_mix_of_reports_is_found(self):
        rng = np.random.default_rng(10)
        monitor = Monitor(channel=CHANNEL, measures=["premium_difference", "report_share"])
        monitor.append(0, **arguments(people(6000, rng)))
        rows = people(6000, rng)
        moved = pd.concat([rows[rows["sex"] == "F"], rows[rows["sex"] == "M"].iloc[:1000]])
        look = monitor.append(1, **arguments(moved.assign(person=moved["person"] + 6000)))
        assert look.set_index("measure")["alarm"].to_dict() == {"premium_difference": "", "report_share": "changed"}

    def test_a_value_beyond_its_limits_is_an_alarm(self):
        rng = np.random.default_rng(11)
        rows = people(8000, rng)
        rows["accepted"] = (rng.random(8000) < np.where(rows["sex"] == "M", 0.9, 0.45)).astype(float)
        look = Monitor(channel=CHANNEL, against="M").append(1, **arguments(rows)).set_index("measure")
        assert look.loc["adverse_impact_ratio", "alarm"] == "beyond limit"
        assert look.loc["adverse_impact_ratio", "limit_low"] == 0.8
        assert not look.drop(index="adverse_impact_ratio")["alarm"].any()

    def test_there_are_no_intervals_before_the_start_size(self):
        rng = np.random.default_rng(12)
        monitor = Monitor(channel=CHANNEL, start=400)
        first = monitor.append(1, **arguments(people(500, rng)))
        assert first["low"].isna().all()
        assert "of 400 effective reports" in first["note"][0]
        later = monitor.append(2, **arguments(people(3000, rng).assign(person=lambda d: d["person"] + 500)))
        assert later["low"].notna().all()
        assert later["change"].isna().all()  # both periods are the baseline

    def test_later_periods_are_compared_with_the_whole_baseline(self):
        rng = np.random.default_rng(22)
        monitor = Monitor(channel=None, against="F", measures=["premium_difference"], baseline=2)
        rows = people(3000, rng)
        rows["premium"] = 300 + 20.0 * (rows["sex"] == "M")
        for t, factor in enumerate((1.0, 1.0, 4.0)):
            at = rows.assign(premium=300 + 20.0 * factor * (rows["sex"] == "M"))
            look = monitor.append(t, **arguments(at, sensitive=rows["sex"], favourable=None, y=None))
            assert look["low"].notna().all()
            assert look["change"].isna().all() == (t < 2)
        assert look["change"][0] == pytest.approx(60.0)


class TestState:
    def test_a_monitor_that_was_saved_goes_on_as_if_it_had_not_been(self, tmp_path):
        rng = np.random.default_rng(13)
        periods = [people(1500, rng) for _ in range(3)]
        path, whole, parts = tmp_path / "state.json", Monitor(channel=CHANNEL), Monitor(channel=CHANNEL)
        for t, rows in enumerate(periods):
            whole.append(t, **arguments(rows))
            parts.append(t, **arguments(rows))
            parts.save(path)
            parts = Monitor.load(path)
        pd.testing.assert_frame_equal(whole.history(), parts.history())
        assert path.stat().st_size < 400_000
        assert parts.periods == ["0", "1", "2"]
        assert "3 periods" in repr(parts)

    def test_the_same_period_again_changes_nothing_whatever_the_order_of_its_rows(self, tmp_path):
        rows = people(1500, np.random.default_rng(14))
        monitor = Monitor(channel=CHANNEL)
        look = monitor.append("2026-Q1", **arguments(rows))
        monitor.save(tmp_path / "a.json")
        again = monitor.append("2026-Q1", **arguments(rows.sample(frac=1, random_state=0)))
        monitor.save(tmp_path / "b.json")
        pd.testing.assert_frame_equal(look, again)
        assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()

    @pytest.mark.parametrize(
        ("period", "change", "message"),
        [
            ("2026-Q2", {"premium": 1.0}, "other rows than before"),
            ("2026-Q1", {}, "expected a later one"),
            ("", {}, "expected a name"),
        ],
    )
    def test_periods_are_final_and_in_order(self, period, change, message):
        rows = people(1500, np.random.default_rng(15))
        monitor = Monitor(channel=CHANNEL)
        monitor.append("2026-Q2", **arguments(rows))
        with pytest.raises((ValueError, TypeError), match=message):
            monitor.append(period, **arguments(rows.assign(**change)))
        assert monitor.periods == ["2026-Q2"]

    def test_numbers_are_in_the_order_of_numbers(self):
        rows = people(1500, np.random.default_rng(16))
        monitor = Monitor(channel=CHANNEL)
        for period in (9, 10):
            monitor.append(period, **arguments(rows))
        assert monitor.periods == ["9", "10"]

    def test_the_columns_are_the_same_in_every_period(self):
        rows = people(1500, np.random.default_rng(17))
        monitor = Monitor(channel=CHANNEL)
        monitor.append(1, **arguments(rows))
        with pytest.raises(ValueError, match="began with premium, y, favourable"):
            monitor.append(2, **arguments(rows, y=None))
        with pytest.raises(ValueError, match="with 1 missing"):
            monitor.append(2, **arguments(rows, person=[None, *rows["person"][1:]]))
        with pytest.raises(ValueError, match="other than 0 and 1"):
            monitor.append(2, **arguments(rows, favourable=rows["loss"]))

    def test_groups_of_a_true_attribute_are_the_same_in_every_period(self):
        rows = people(1500, np.random.default_rng(18))
        monitor = Monitor(channel=None)
        monitor.append(1, **arguments(rows, sensitive=rows["sex"]))
        with pytest.raises(ValueError, match="began with"):
            monitor.append(2, **arguments(rows, sensitive=rows["sex"] + "x"))

    def test_a_damaged_state_is_refused(self, tmp_path):
        monitor, path = Monitor(channel=CHANNEL), tmp_path / "state.json"
        with pytest.raises(ValueError, match="no period yet"):
            monitor.save(path)
        monitor.append(1, **arguments(people(1500, np.random.default_rng(19))))
        monitor.save(path)
        state = json.loads(path.read_text())
        path.write_text(json.dumps({**state, "level": 0.9}))
        with pytest.raises(ModelFileError, match="damaged or was edited"):
            Monitor.load(path)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"channel": 0.8}, "expected a Channel"),
            ({"baseline": 0}, "at least 1"),
            ({"start": 3}, "at least 50"),
            ({"measures": ["nothing"]}, "expected some of"),
            ({"measures": []}, "expected some of"),
            ({"limits": {"loss_ratio": 3}}, r"a pair \(low, high\)"),
            ({"limits": {"loss_ratio": (2, 1)}}, "lower one first"),
        ],
    )
    def test_wrong_settings_are_refused(self, settings, message):
        with pytest.raises((ValueError, TypeError), match=message):
            Monitor(**{"channel": CHANNEL, **settings})

    def test_what_a_measure_needs_is_asked_for(self):
        rows = people(1500, np.random.default_rng(20))
        with pytest.raises(ValueError, match="'loss_ratio' needs y"):
            Monitor(channel=CHANNEL, measures=["loss_ratio"]).append(1, **arguments(rows, y=None))
        with pytest.raises(ValueError, match="against='X'"):
            Monitor(channel=CHANNEL, against="X").append(1, **arguments(rows))


def test_the_chart_has_a_panel_for_every_number():
    rng = np.random.default_rng(21)
    monitor = Monitor(channel=CHANNEL)
    with pytest.raises(ValueError, match="nothing to draw"):
        plot_monitor(monitor)
    rows = people(1500, rng)
    for t in range(3):
        monitor.append(t, **arguments(rows))
    chart = plot_monitor(monitor, unit="EUR a year").to_dict()
    assert len(chart["concat"]) == len(monitor.history()) // 3 == 5
    *compared, mix = [panel["title"]["subtitle"] for panel in chart["concat"]]
    assert mix == "report F"
    assert all(" against " in subtitle for subtitle in compared)

"""No array of stored reports passes for reports that may leave: neither where types are checked nor where code runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.parties.release import (
    FitSettings,
    ReleasedReports,
    ReleaseSettings,
    combine_draws,
    count_matches,
    fit_release,
    join_pieces,
    randomize_reports,
    seen_channel,
    without_protection,
)

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
SECRET = bytes(range(16))
STORED = np.array(["F", "M", None] * 200, dtype=object)
SETTINGS = FitSettings(correction="inverse", pooling=1.0, intervals=False)
PRIVACY = ReleaseSettings("randomized", 1.0, secret=SECRET)


@pytest.fixture
def drawn():
    return randomize_reports(range(len(STORED)), STORED, CHANNEL, 1.0, SECRET)


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(len(STORED), 1))
    return X, X[:, 0] + rng.normal(size=len(STORED)), None


def test_stored_reports_do_not_become_released_ones(drawn):
    for made_by in ((), (None,), (object(),)):
        with pytest.raises(TypeError, match="Got reports from elsewhere"):
            ReleasedReports(STORED, CHANNEL, drawn.second, *made_by)
    with pytest.raises(ValueError, match="read-only"):
        drawn.reports[:] = STORED
    with pytest.raises(AttributeError):
        drawn.reports = STORED


@pytest.mark.parametrize("reports", [STORED, STORED.tolist(), "report"], ids=["array", "list", "column"])
def test_what_releases_takes_no_array(reports, rows):
    for release in (
        lambda: count_matches(reports),
        lambda: combine_draws([reports, reports], [CHANNEL, CHANNEL]),
        lambda: fit_release(SETTINGS, *rows, None, CHANNEL, PRIVACY, drawn=reports),
        lambda: fit_release(SETTINGS, *rows, reports, CHANNEL, ReleaseSettings("none")),
    ):
        with pytest.raises(TypeError, match="expected those of randomize_reports"):
            release()


def test_where_rule_9_is_off_it_is_said_and_passes_for_nothing_else(drawn, rows):
    plain = without_protection(STORED, CHANNEL)
    assert plain.second is None
    for refuses in (count_matches, lambda one: combine_draws([one, one], [CHANNEL, CHANNEL])):
        with pytest.raises(ValueError, match="as they were stored"):
            refuses(plain)
    for reports, mechanism in ((plain, "randomized"), (plain, "gaussian"), (drawn, "gaussian"), (drawn, "none")):
        privacy = ReleaseSettings(mechanism, secret=SECRET)
        with pytest.raises(ValueError, match=f"Got drawn=... with mechanism='{mechanism}'"):
            fit_release(SETTINGS, *rows, None, CHANNEL, privacy, drawn=reports)
    release = fit_release(SETTINGS, *rows, None, CHANNEL, ReleaseSettings("none"), drawn=plain)
    assert release.epsilon == np.inf
    assert "can read single reports" in release.statement


def test_a_column_with_other_reports_is_refused(drawn, rows, tmp_path):
    X, y, _ = rows
    table = pd.DataFrame({"x": X[:, 0], "y": y, "drawn": drawn.reports, "stored": STORED})
    table.to_parquet(tmp_path / "rows.parquet")
    source = (SETTINGS, tmp_path / "rows.parquet", "y", None)
    with pytest.raises(ValueError, match="a column with other reports"):
        fit_release(*source, "stored", CHANNEL, PRIVACY, features=["x"], drawn=drawn)
    release = fit_release(*source, "drawn", CHANNEL, PRIVACY, features=["x"], drawn=drawn)
    direct = fit_release(SETTINGS, X, y, None, None, CHANNEL, PRIVACY, drawn=drawn)
    assert release.channel_used == direct.channel_used


def test_the_type_checker_asks_for_them():
    hints = {
        each: get_type_hints(each) for each in (count_matches, combine_draws, seen_channel, join_pieces, fit_release)
    }
    assert hints[count_matches]["drawn"] is hints[seen_channel]["drawn"] is ReleasedReports
    assert hints[combine_draws]["draws"] == hints[join_pieces]["pieces"] == Sequence[ReleasedReports]
    assert hints[fit_release]["drawn"] == ReleasedReports | None

"""What people see while they wait."""

from __future__ import annotations

import pytest

from fairpremium.cli import _terminal


@pytest.mark.parametrize(
    ("bar", "times"), [(True, ["TimeElapsedColumn", "TimeRemainingColumn"]), (False, ["TimeElapsedColumn"])]
)
def test_a_bar_shows_the_time_that_is_left(bar, times, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any stream for a terminal
    shown = []

    class Recorder(_terminal.bars.Progress):
        def __init__(self, *columns, **settings):
            shown.extend(type(column).__name__ for column in columns)
            super().__init__(*columns, **settings)

    monkeypatch.setattr(_terminal.bars, "Progress", Recorder)
    with _terminal.progress("Running", bar=bar) as tell:
        tell(0.5, "1 of 2 tables")
    assert [name for name in shown if name.startswith("Time")] == times

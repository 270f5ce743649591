"""The drawing of the sensitivity band."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from fairpremium.audit import plot_sensitivity
from fairpremium.audit.drawing import PRICE_COLOURS, to_svg


def band(rows=2, premium=lambda keep, row: 500 - 100 * keep + 10 * row):
    keeps = [0.75, 0.8, 0.9, 1.0]
    return pd.DataFrame(
        [(row, keep, premium(keep, row), 450.0, keep == 0.8) for row in range(rows) for keep in keeps],
        columns=["row", "keep", "premium", "unaware", "used"],
    )


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_one_panel_per_risk(rows):
    spec = plot_sensitivity(band(rows), unit="EUR a year").to_dict()
    assert [panel["title"]["text"] for panel in spec["concat"]] == [f"row {row}" for row in range(rows)]
    text = json.dumps(spec)
    for colour in PRICE_COLOURS.values():
        assert colour in text
    assert "keep in use: 0.8" in text


def test_it_draws_and_names_the_lines():
    svg = to_svg(plot_sensitivity(band(2), labels={0: "30, smoker"}))
    for words in ("30, smoker", "row 1", "discrimination-free", "unaware", "keep in use: 0.8", "420", "430"):
        assert words in svg


def test_gaps_are_left_out():
    table = band(1)
    table.loc[0, "premium"] = np.nan
    assert "NaN" not in to_svg(plot_sensitivity(table))


def test_flat_lines_have_a_range():
    assert "450" in to_svg(plot_sensitivity(band(1, premium=lambda keep, row: 450.0)))


def test_bad_tables():
    with pytest.raises(ValueError, match="used"):
        plot_sensitivity(band().drop(columns="used"))
    with pytest.raises(ValueError, match="choose some rows"):
        plot_sensitivity(band(30))
    with pytest.raises(ValueError, match="no solution"):
        plot_sensitivity(band(1).assign(premium=np.nan, unaware=np.nan))

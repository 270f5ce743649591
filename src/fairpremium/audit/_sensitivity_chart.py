"""Drawing of the sensitivity band: one panel per risk, premium against keep."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from ._comparison import DISCRIMINATION_FREE, UNAWARE
from .drawing import GREY, INK, PRICE_COLOURS, apply_style, format_price, import_altair

_WIDTH, _HEIGHT, _COLUMNS = 230, 170, 3
_MAX_PANELS = 24


def plot_sensitivity(table: pd.DataFrame, *, unit: str = "", labels: dict[Any, str] | None = None) -> Any:
    """Draw how the premium of each risk moves with keep.

    Parameters
    ----------
    table : DataFrame
        From `DiscriminationFreePricer.sensitivity`: `row`, `keep`, `premium`, `unaware`, `used`.
    unit : str
        What a price is measured in: "EUR a year".
    labels : dict, optional
        Names of the risks by their `row`. Default: "row 3".

    Returns
    -------
    altair.Chart
        ``chart.save("sensitivity.svg")`` (or .png, .html) writes it.

    Raises
    ------
    MissingExtraError
        If Altair is not installed.
    """
    absent = [c for c in ("row", "keep", "premium", "unaware", "used") if c not in table]
    if absent:
        raise ValueError(f"Got a table without the columns {absent}; expected one of `sensitivity`.")
    risks = list(dict.fromkeys(table["row"]))
    if not 0 < len(risks) <= _MAX_PANELS:
        raise ValueError(f"Got a table with {len(risks)} risks, but expected 1 to {_MAX_PANELS}: choose some rows.")
    alt = import_altair()
    names = {row: (labels or {}).get(row, f"row {row}") for row in risks}
    panels = [_panel(alt, table[table["row"] == row], names[row], unit) for row in risks]
    keep = float(table.loc[table["used"], "keep"].iloc[0])
    title = alt.Title(
        f"keep in use: {keep:.3g} (grey line); at keep = 1 the reports are taken for the truth",
        anchor="start",
        fontSize=13,
        fontWeight="normal",
        color=INK,
        offset=12,
    )
    chart = alt.concat(*panels, columns=2 if len(panels) == 4 else _COLUMNS, spacing=28, title=title)
    return apply_style(chart)


def _panel(alt: Any, data: pd.DataFrame, name: str, unit: str) -> Any:
    values = data[["keep", "premium", "unaware", "used"]]
    y_scale = _scale(alt, values)
    keep_range = [float(values["keep"].min()), float(values["keep"].max())]
    x = alt.X("keep:Q", axis=alt.Axis(title="keep", tickCount=5, format=".2~f"), scale=alt.Scale(domain=keep_range))
    axis = alt.Axis(title=unit or None, tickCount=4)
    y, y_unaware = (alt.Y(f"{price}:Q", axis=axis, scale=y_scale) for price in ("premium", "unaware"))
    used = values[values["used"]].assign(label=values["premium"].map(format_price))
    # The two names stay apart: each on the outer side of its own line, at the right end.
    last = values.dropna(subset=["premium"]).tail(1)
    above = bool((last["premium"] >= last["unaware"]).all())
    base = alt.Chart(values.dropna(subset=["premium"]))
    layers = [
        alt.Chart(used).mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=x),
        base.mark_line(color=PRICE_COLOURS[UNAWARE], strokeDash=[6, 4], strokeWidth=2).encode(x=x, y=y_unaware),
        base.mark_line(color=PRICE_COLOURS[DISCRIMINATION_FREE], strokeWidth=3).encode(x=x, y=y),
        alt.Chart(used)
        .mark_point(filled=True, size=90, opacity=1, color=PRICE_COLOURS[DISCRIMINATION_FREE])
        .encode(x=x, y=y),
        _label(alt, used, "label:N", INK, above).encode(x=x, y=y),
        _name(alt, last, "discrimination-free", PRICE_COLOURS[DISCRIMINATION_FREE], -27 if above else 29).encode(
            x=x, y=y
        ),
        _name(alt, last, "unaware", PRICE_COLOURS[UNAWARE], 15 if above else -13).encode(x=x, y=y_unaware),
    ]
    title = alt.Title(name, anchor="start", fontSize=14, fontWeight="bold", color=INK)
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=title)


def _label(alt: Any, data: pd.DataFrame, text: str, colour: str, above: bool) -> Any:
    return (
        alt.Chart(data)
        .mark_text(dy=-13 if above else 14, dx=4, align="left", fontSize=13, color=colour)
        .encode(text=text)
    )


def _name(alt: Any, data: pd.DataFrame, text: str, colour: str, dy: int) -> Any:
    mark = alt.Chart(data).mark_text(dy=dy, dx=-2, align="right", fontSize=13, color=colour)
    return mark.encode(text=alt.value(text))


def _scale(alt: Any, values: pd.DataFrame) -> Any:
    """Leave room for labels above and below; a flat line stays in the middle of a sensible range."""
    low = float(values[["premium", "unaware"]].min().min())
    high = float(values[["premium", "unaware"]].max().max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("Got a risk without any premium: the fit has no solution at any of its keeps.")
    room = max(high - low, 0.02 * abs(high)) or 1.0
    return alt.Scale(domain=[low - 0.35 * room, high + 0.35 * room], zero=False, nice=False)

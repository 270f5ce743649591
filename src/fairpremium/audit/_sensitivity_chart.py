"""Drawing of the sensitivity band: one panel per risk, premium against keep."""

import math
from typing import Any

import pandas as pd

from .drawing import (
    DISCRIMINATION_FREE,
    GREY,
    INK,
    PRICE_COLOURS,
    UNAWARE,
    apply_style,
    format_price,
    import_altair,
    panel_title,
)

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
        raise ValueError(
            f"Got a table without the columns {absent}; expected one of `sensitivity` over values of keep."
        )
    if "source" in table and len(table["source"].unique()) > 1:
        raise ValueError(
            f"Got a table of the sources {list(table['source'].unique())}, but expected one of them: "
            'plot_sensitivity(table[table["source"] == key]).'
        )
    risks = list(dict.fromkeys(table["row"]))
    if not 0 < len(risks) <= _MAX_PANELS:
        raise ValueError(f"Got a table with {len(risks)} risks, but expected 1 to {_MAX_PANELS}: choose some rows.")
    alt = import_altair()
    names = {row: (labels or {}).get(row, f"row {row}") for row in risks}
    panels = [_panel(alt, table[table["row"] == row], names[row], unit) for row in risks]
    keep = float(table.loc[table["used"], "keep"].iloc[0])
    note = f"keep in use: {keep:.3g} (grey line); at keep = 1 the reports are taken for the truth"
    title = alt.Title(note, anchor="start", fontSize=13, fontWeight="normal", color=INK, offset=12)
    return apply_style(alt.concat(*panels, columns=2 if len(panels) == 4 else _COLUMNS, spacing=28, title=title))


def _panel(alt: Any, data: pd.DataFrame, name: str, unit: str) -> Any:
    values = data[["keep", "premium", "unaware", "used"]]
    prices = values[["premium", "unaware"]]
    low, high = float(prices.min().min()), float(prices.max().max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("Got a risk without any premium: the fit has no solution at any of its keeps.")
    # Labels need room above and below; a flat line stays in the middle of a sensible range.
    room = 0.35 * (max(high - low, 0.02 * abs(high)) or 1.0)
    y_scale = alt.Scale(domain=[low - room, high + room], zero=False, nice=False)
    keep_range = [float(values["keep"].min()), float(values["keep"].max())]
    x = alt.X("keep:Q", axis=alt.Axis(title="keep", tickCount=5, format=".2~f"), scale=alt.Scale(domain=keep_range))
    axis = alt.Axis(title=unit or None, tickCount=4)
    y, y_unaware = (alt.Y(f"{price}:Q", axis=axis, scale=y_scale) for price in ("premium", "unaware"))
    used = values[values["used"]].assign(label=values["premium"].map(format_price))
    # The two names stay apart: each on the outer side of its own line, at the right end.
    last = values.dropna(subset=["premium"]).tail(1)
    above = bool((last["premium"] >= last["unaware"]).all())
    base = alt.Chart(values.dropna(subset=["premium"]))
    unaware, free = PRICE_COLOURS[UNAWARE], PRICE_COLOURS[DISCRIMINATION_FREE]
    price = alt.Chart(used).mark_text(dy=-13 if above else 14, dx=4, align="left", fontSize=13, color=INK)
    layers = [
        alt.Chart(used).mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=x),
        base.mark_line(color=unaware, strokeDash=[6, 4], strokeWidth=2).encode(x=x, y=y_unaware),
        base.mark_line(color=free, strokeWidth=3).encode(x=x, y=y),
        alt.Chart(used).mark_point(filled=True, size=90, opacity=1, color=free).encode(x=x, y=y),
        price.encode(text="label:N", x=x, y=y),
        _line_name(alt, last, "discrimination-free", free, -27 if above else 29).encode(x=x, y=y),
        _line_name(alt, last, "unaware", unaware, 15 if above else -13).encode(x=x, y=y_unaware),
    ]
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=panel_title(name))


def _line_name(alt: Any, data: pd.DataFrame, text: str, colour: str, dy: int) -> Any:
    mark = alt.Chart(data).mark_text(dy=dy, dx=-2, align="right", fontSize=13, color=colour)
    return mark.encode(text=alt.value(text))

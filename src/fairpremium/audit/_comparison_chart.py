"""Drawing of the three prices: one panel per risk class, the prices one below the other."""

import functools
from typing import Any

import pandas as pd

from ._comparison import compute_price_comparison
from .drawing import (
    BEST_ESTIMATE,
    DISCRIMINATION_FREE,
    GROUP_COLOURS,
    GROUP_SHAPES,
    INK,
    LIGHT,
    PRICE_COLOURS,
    PRICE_NAMES,
    UNAWARE,
    apply_style,
    choose_places,
    cycle_to,
    format_price,
    import_altair,
    wrap,
)

_WIDTH, _LANE = 280, 40


def plot_price_comparison(
    pricer: Any,
    X: Any,
    *,
    by: Any = None,
    level: float = 0.95,
    truth: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    unit: str = "",
) -> Any:
    """Draw the three prices of every risk class, one below the other.

    Parameters
    ----------
    pricer, X, by, level, truth, sample_weight, exposure
        As in `compute_price_comparison`.
    unit : str
        What a price is measured in, for the axis: "EUR a year".

    Returns
    -------
    altair.Chart
        ``chart.save("prices.svg")`` (or .png, .html) writes it.

    Raises
    ------
    MissingExtraError
        If Altair is not installed.
    """
    table = compute_price_comparison(
        pricer, X, by=by, level=level, truth=truth, sample_weight=sample_weight, exposure=exposure
    )
    return draw_price_comparison(table, level=level, unit=unit)


def draw_classes(table: pd.DataFrame, *, level: float = 0.95, unit: str = "") -> list[Any]:
    """Draw the same as one chart for each class, so that a page can end between them."""
    return [
        draw_price_comparison(table[table["risk_class"] == name], level=level, unit=unit, whole=table)
        for name in dict.fromkeys(table["risk_class"])
    ]


def draw_price_comparison(
    table: pd.DataFrame, *, level: float = 0.95, unit: str = "", whole: pd.DataFrame | None = None
) -> Any:
    """Draw a table of `compute_price_comparison`, or a part of a whole one: with its scale, and the note on top."""
    whole = table if whole is None else whole
    alt = import_altair()
    lane, is_best = table["price"].map(PRICE_NAMES), table["price"] == BEST_ESTIMATE
    kind = table["group"].map(str).where(is_best, lane)
    places = choose_places(whole["mean"], (whole["high"] - whole["low"]) / 4)
    write = functools.partial(format_price, places=places)
    label = (kind + " ").where(is_best, "") + table["mean"].map(write)
    data = table.drop(columns="group").assign(
        risk_class=table["risk_class"].map(str).map(lambda name: wrap(name, 44)), lane=lane, kind=kind, label=label
    )
    numbers = whole[[c for c in ("mean", "low", "high", "truth") if c in whole]]
    low, high = float(numbers.min().min()), float(numbers.max().max())
    room = 0.1 * ((high - low) or abs(high) or 1.0)  # for half a label on both sides
    scale = alt.Scale(domain=[low - room, high + room], zero=False, nice=False)
    title = f"mean price, {unit}" if unit else "mean price"
    x = alt.X("mean:Q", axis=alt.Axis(title=title, tickCount=5), scale=scale)
    lanes = list(PRICE_NAMES.values())
    # A reader's font may be wider than the one that measured the labels: leave room for it.
    axis = alt.Axis(title=None, minExtent=136)
    y = alt.Y("lane:N", sort=lanes, axis=axis, scale=alt.Scale(domain=lanes))
    base = alt.Chart().encode(x=x, y=y)
    band = base.mark_rule(strokeWidth=14, opacity=0.35, color=PRICE_COLOURS[DISCRIMINATION_FREE])
    layers = [
        base.transform_filter(alt.datum.price == BEST_ESTIMATE)
        .mark_rule(color=LIGHT, strokeWidth=5)
        .encode(x=alt.X("min(mean):Q"), x2=alt.X2("max(mean):Q")),
        band.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
        _points(alt, base, data),
        base.mark_text(dy=-17, fontSize=13, color=INK).encode(text=alt.Text("label:N")),
    ]
    notes = [f"green band: {100 * level:g} % interval"] if data["low"].notna().any() else []
    if "truth" in data:
        layers.append(base.mark_tick(color=INK, thickness=1.5, size=18).encode(x=alt.X("truth:Q")))
        notes.append("black tick: the truth")
    header = alt.Header(
        title=None, labelOrient="top", labelAnchor="start", labelFontSize=14, labelFontWeight="bold",
        labelColor=INK, labelPadding=8, labelLimit=0,
    )  # fmt: skip
    rows = alt.Row("risk_class:N", sort=list(dict.fromkeys(data["risk_class"])), header=header)
    panels = alt.layer(*layers, data=data, width=_WIDTH, height=alt.Step(_LANE))
    is_first = table.index[0] == whole.index[0]
    title = alt.Title("; ".join(notes)) if notes and is_first else alt.Undefined
    chart = panels.facet(row=rows, spacing=10, title=title)
    heading = {"anchor": "start", "frame": "bounds", "fontSize": 13, "fontWeight": "normal", "color": INK, "offset": 12}
    return apply_style(chart, title=heading)


def _points(alt: Any, base: Any, data: pd.DataFrame) -> Any:
    """Draw every group in a colour and shape of its own, the unaware price as a diamond."""
    groups = list(dict.fromkeys(data.loc[data["price"] == BEST_ESTIMATE, "kind"]))
    kinds = [*groups, PRICE_NAMES[UNAWARE], PRICE_NAMES[DISCRIMINATION_FREE]]
    colours = [*cycle_to(GROUP_COLOURS, len(groups)), *PRICE_COLOURS.values()]
    shapes = [*cycle_to(GROUP_SHAPES, len(groups)), "diamond", "circle"]
    return base.mark_point(filled=True, size=110, opacity=1, stroke="white", strokeWidth=1).encode(
        color=alt.Color("kind:N", legend=None, scale=alt.Scale(domain=kinds, range=colours)),
        shape=alt.Shape("kind:N", legend=None, scale=alt.Scale(domain=kinds, range=shapes)),
    )

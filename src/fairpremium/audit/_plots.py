"""Drawings of the tables: Altair charts, readable in grey, with labels beside what they name."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from fairpremium.audit._comparison import BEST_ESTIMATE, DISCRIMINATION_FREE, UNAWARE, compute_price_comparison
from fairpremium.errors import MissingExtraError

# Okabe and Ito: told apart by all common kinds of colour vision.
GROUP_COLOURS = ["#e69f00", "#0072b2", "#cc79a7", "#56b4e9", "#f0e442"]
COLOURS = {UNAWARE: "#d55e00", DISCRIMINATION_FREE: "#009e73"}
NAMES = {
    BEST_ESTIMATE: "best estimate",
    UNAWARE: "unaware",
    DISCRIMINATION_FREE: "discrimination-free",
}
INK, GREY, LIGHT = "#222222", "#999999", "#dddddd"
FONT = "Helvetica, Arial, sans-serif"
WIDTH, LANE = 280, 40


def plot_price_comparison(
    pricer: Any,
    X: Any,
    *,
    by: Any = None,
    level: float = 0.95,
    truth: Any = None,
    sample_weight: Any = None,
    unit: str = "",
) -> Any:
    """Draw the three prices of every risk class, one below the other.

    Parameters
    ----------
    pricer, X, by, level, truth, sample_weight
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
    table = compute_price_comparison(pricer, X, by=by, level=level, truth=truth, sample_weight=sample_weight)
    return draw_price_comparison(table, level=level, unit=unit)


def draw_price_comparison(table: pd.DataFrame, *, level: float = 0.95, unit: str = "") -> Any:
    """Draw a table of `compute_price_comparison`."""
    alt = import_altair()
    data = _drawing_data(table)
    title = f"mean price, {unit}" if unit else "mean price"
    x = alt.X("mean:Q", axis=alt.Axis(title=title, tickCount=5), scale=_scale(alt, data))
    lanes = list(NAMES.values())
    # A reader's font may be wider than the one that measured the labels: keep room for it.
    axis = alt.Axis(title=None, minExtent=136)
    y = alt.Y("lane:N", sort=lanes, axis=axis, scale=alt.Scale(domain=lanes))
    base = alt.Chart().encode(x=x, y=y)
    layers = [
        base.transform_filter(alt.datum.price == BEST_ESTIMATE)
        .mark_rule(color=LIGHT, strokeWidth=5)
        .encode(x=alt.X("min(mean):Q"), x2="max(mean):Q"),
        base.mark_rule(strokeWidth=14, opacity=0.35, color=COLOURS[DISCRIMINATION_FREE]).encode(x="low:Q", x2="high:Q"),
        _points(alt, base, data),
        base.mark_text(dy=-17, fontSize=13, color=INK).encode(text="label:N"),
    ]
    if "truth" in data:
        layers.append(base.mark_tick(color=INK, thickness=1.5, size=18).encode(x="truth:Q"))
    classes = list(dict.fromkeys(data["risk_class"]))
    chart = (
        alt.layer(*layers, data=data)
        .properties(width=WIDTH, height=alt.Step(LANE))
        .facet(row=_rows(alt, classes), spacing=10, title=_title(alt, data, level))
    )
    return in_house_style(chart).configure_title(
        anchor="start", frame="bounds", fontSize=13, fontWeight="normal", color=INK, offset=12
    )


def in_house_style(chart: Any) -> Any:
    """Give a chart the fonts, colours and quiet axes that all drawings share."""
    return (
        chart.configure(font=FONT, background="white", padding=8)
        .configure_axis(
            labelFontSize=13,
            titleFontSize=13,
            titleFontWeight="normal",
            labelColor=INK,
            titleColor=INK,
            gridColor="#eeeeee",
            domain=False,
            ticks=False,
            labelLimit=200,
            labelPadding=6,
        )
        .configure_view(stroke=None)
    )


def to_svg(chart: Any) -> str:
    """Return a chart as SVG text, without a browser and without the network."""
    return str(import_vl_convert().vegalite_to_svg(chart.to_dict()))


def import_vl_convert() -> Any:
    """Return vl-convert, or say how to get it."""
    try:
        import vl_convert
    except ImportError as error:
        raise _missing("vl-convert-python") from error
    return vl_convert


def import_altair() -> Any:
    """Return Altair, or say how to get it."""
    try:
        import altair
    except ImportError as error:
        raise _missing("altair") from error
    return altair


def _missing(name: str) -> MissingExtraError:
    return MissingExtraError(f'Drawings need {name}. Install it with: pip install "fairpremium[report]"')


def _drawing_data(table: pd.DataFrame) -> pd.DataFrame:
    data = table.copy()
    data["risk_class"] = data["risk_class"].map(str)
    data["lane"] = data["price"].map(NAMES)
    is_best = data["price"] == BEST_ESTIMATE
    data["kind"] = data["group"].map(str).where(is_best, data["lane"])
    data["label"] = data["mean"].map(format_price)
    data["label"] = (data["kind"] + " " + data["label"]).where(is_best, data["label"])
    return data.drop(columns="group")


def format_price(value: float | None) -> str:
    """Write a price with as many digits as a reader wants.

    Examples
    --------
    >>> format_price(1234.56), format_price(0.04567), format_price(None)
    ('1,235', '0.0457', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _scale(alt: Any, data: pd.DataFrame) -> Any:
    """Leave room for half a label on both sides."""
    numbers = data[[c for c in ("mean", "low", "high", "truth") if c in data]]
    low, high = float(numbers.min().min()), float(numbers.max().max())
    room = (high - low) or abs(high) or 1.0
    return alt.Scale(domain=[low - 0.1 * room, high + 0.1 * room], zero=False, nice=False)


def _points(alt: Any, base: Any, data: pd.DataFrame) -> Any:
    """Draw every group in a colour and shape of its own, the unaware price as a diamond."""
    groups = list(dict.fromkeys(data.loc[data["price"] == BEST_ESTIMATE, "kind"]))
    shapes = ["circle", "square", "triangle-up", "cross", "triangle-down"]
    kinds = [*groups, NAMES[UNAWARE], NAMES[DISCRIMINATION_FREE]]
    colours = [GROUP_COLOURS[k % len(GROUP_COLOURS)] for k in range(len(groups))]
    forms = [shapes[k % len(shapes)] for k in range(len(groups))]
    return base.mark_point(filled=True, size=110, opacity=1, stroke="white", strokeWidth=1).encode(
        color=alt.Color(
            "kind:N",
            legend=None,
            scale=alt.Scale(domain=kinds, range=[*colours, *COLOURS.values()]),
        ),
        shape=alt.Shape("kind:N", legend=None, scale=alt.Scale(domain=kinds, range=[*forms, "diamond", "circle"])),
    )


def _rows(alt: Any, classes: list[str]) -> Any:
    header = alt.Header(
        title=None, labelOrient="top", labelAnchor="start", labelFontSize=14, labelFontWeight="bold",
        labelColor=INK, labelPadding=8,
    )  # fmt: skip
    return alt.Row("risk_class:N", sort=classes, header=header)


def _title(alt: Any, data: pd.DataFrame, level: float) -> Any:
    notes = []
    if data["low"].notna().any():
        notes.append(f"green band: {100 * level:g} % interval")
    if "truth" in data:
        notes.append("black tick: the truth")
    return alt.Title("; ".join(notes)) if notes else alt.Undefined

"""Drawings of the audit's tables: every ``plot_x`` takes the arguments of ``compute_x`` and draws its table.

Charts are Altair's: ``chart.save("x.svg")`` (or .png) writes a still picture, ``chart.save("x.html")`` one that answers
to the mouse. Colours are those of Okabe and Ito, and shapes or dashes tell the same as the colours.
"""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from ._audit_data import as_pandas
from ._calibration import compute_calibration
from ._channel_sensitivity import compute_channel_band, compute_keep_sensitivity
from ._concentration import compute_gini, compute_lorenz
from ._discrimination import compute_discrimination
from ._groups import compute_demographic_disparity, compute_group_deviance, compute_group_means, compute_loss_ratio_gap
from ._price_changes import compute_adverse_selection, compute_balance, compute_premium_change, compute_prices_by_group
from ._signatures import with_arguments_of
from .drawing import (
    GREY,
    GROUP_COLOURS,
    GROUP_SHAPES,
    INK,
    PRICE_COLOURS,
    PRICE_NAMES,
    apply_style,
    cycle_to,
    import_altair,
    name_pair,
    panel_title,
    wrap,
)

EVERYBODY = "everyone"
PREMIUM, LOSS = "premium", "loss"
MAX_CLASSES = 24
_KIND_COLOURS = {
    PREMIUM: "#0072b2",
    LOSS: "#d55e00",
    "loss ratio": "#d55e00",
    EVERYBODY: INK,
    "profit today": "#0072b2",
    "profit after": "#d55e00",
    **{PRICE_NAMES[price]: colour for price, colour in PRICE_COLOURS.items()},
    PRICE_NAMES["best_estimate"]: "#0072b2",
    "within": "#009e73",
    "cannot tell": GREY,
    "beyond": "#d55e00",
}
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]]
WIDTH, _LANE, _PANEL = 290, 15, 165
_LETTER, _TEXT_LINE = 8, 16  # pixels; a reader's font may be wider than the one that measured the labels
_LEGEND, _MARK = 500, 45  # widest row of a legend, and what a mark takes of it beside its letters
TOOLTIP = ("lane:N", "kind:N", "value:Q", "low:Q", "high:Q")
_DRAWINGS: dict[str, Callable[[pd.DataFrame, str], Any]] = {}


def draw(name: str, table: Any, *, unit: str = "") -> Any:
    """Draw the table of a `compute_*` function by its name."""
    return apply_style(_DRAWINGS[name](as_pandas(table), unit))


def draw_panels(name: str, table: Any, *, unit: str = "") -> list[Any]:
    """Draw the same as one chart for each panel, so that a page can end between them; the first has the legend."""
    alt, chart = import_altair(), _DRAWINGS[name](as_pandas(table), unit)
    panels = [chart]
    if isinstance(chart, alt.VConcatChart | alt.ConcatChart):
        panels = chart.vconcat if isinstance(chart, alt.VConcatChart) else chart.concat
    for panel in panels[1:]:
        _remove_legends(panel)
    return [apply_style(panel) for panel in panels]


def _remove_legends(chart: Any) -> None:
    """Take the legends off a chart and its layers or panels."""
    undefined = import_altair().Undefined
    for part in (*getattr(chart, "layer", ()), *getattr(chart, "concat", ())):
        _remove_legends(part)
    for channel in ("color", "shape", "strokeDash"):
        marks = getattr(getattr(chart, "encoding", undefined), channel, undefined)
        if marks is not undefined:
            marks.legend = None


def plots(
    compute: Callable[..., Any], *, in_report: bool = True
) -> Callable[[Callable[[pd.DataFrame, str], Any]], Callable[..., Any]]:
    """Give the drawing of a table the arguments of the function that computes it, and `unit`.

    Those of audit reports are found by name, see `draw`.
    """
    name = compute.__name__.removeprefix("compute_")

    def decorate(drawing: Callable[[pd.DataFrame, str], Any]) -> Callable[..., Any]:
        @with_arguments_of(compute)
        def plot(*data: Any, unit: str = "", **settings: Any) -> Any:
            return apply_style(drawing(as_pandas(compute(*data, **settings)), unit))

        if in_report:
            _DRAWINGS[name] = drawing
        plot.__name__, plot.__qualname__ = drawing.__name__, drawing.__qualname__
        plot.__doc__ = f"""{drawing.__doc__}

    Parameters
    ----------
    {", ".join(inspect.signature(compute).parameters)}
        As in `{compute.__name__}`.
    unit : str
        What an amount is measured in, for the axis: "EUR a year".

    Returns
    -------
    altair.Chart
    """
        return plot

    return decorate


@plots(compute_group_means)
def plot_group_means(table: pd.DataFrame, unit: str) -> Any:
    """Draw the mean premium and the mean loss of every group."""
    return dots(pd.concat([estimates(table, PREMIUM, PREMIUM), estimates(table, LOSS, LOSS)]), titled("mean", unit))


@plots(compute_demographic_disparity)
def plot_demographic_disparity(table: pd.DataFrame, unit: str) -> Any:
    """Draw the differences between the groups' mean premiums."""
    lane = name_pairs(table)
    data = estimates(table, "difference").assign(lane=lane, kind=lane)
    return dots(data, titled("difference of mean premiums", unit), reference=0.0)


@plots(compute_loss_ratio_gap)
def plot_loss_ratio_gap(table: pd.DataFrame, unit: str) -> Any:
    """Draw the loss ratio of every group."""
    return dots(estimates(table, "loss_ratio"), "losses for 1 of premium", reference=1.0)


@plots(compute_group_deviance)
def plot_group_deviance(table: pd.DataFrame, unit: str) -> Any:
    """Draw the mean deviance of every group."""
    return dots(estimates(table, "deviance"), "mean deviance")


@plots(compute_gini)
def plot_gini(table: pd.DataFrame, unit: str) -> Any:
    """Draw the Gini index of every group."""
    return dots(estimates(table, "gini"), "Gini index", reference=0.0)


@plots(compute_prices_by_group)
def plot_prices_by_group(table: pd.DataFrame, unit: str) -> Any:
    """Draw the mean of every price in every group."""
    return dots(estimates(table, "mean").assign(kind=_price_names(table)), titled("mean price", unit))


@plots(compute_balance)
def plot_balance(table: pd.DataFrame, unit: str) -> Any:
    """Draw premiums over losses for every price."""
    data = estimates(table.assign(group=_price_names(table)), "ratio")
    return dots(data, "premiums for 1 of losses", reference=1.0)


@plots(compute_adverse_selection)
def plot_adverse_selection(table: pd.DataFrame, unit: str) -> Any:
    """Draw the profit of every group today, and after a competitor has taken what it can."""
    data = pd.concat([estimates(table, "profit_now", "profit today"), estimates(table, "profit", "profit after")])
    return dots(data, titled("mean profit", unit), reference=0.0)


@plots(compute_discrimination)
def plot_discrimination(table: pd.DataFrame, unit: str) -> Any:
    """Draw the measures that are shares of the price's variation."""
    names = {
        "demographic_unfairness": "differs between groups",
        "proxy_discrimination": "proxy discrimination",
        "proxy_explained": "explained by proxies",
    }
    shares = table[table["measure"].isin(names)]
    data = estimates(shares.assign(group=shares["measure"].map(names)), "value")
    return dots(data, "share of the price's variation", reference=0.0, format="%")


@plots(compute_premium_change)
def plot_premium_change(table: pd.DataFrame, unit: str) -> Any:
    """Draw the mean change of every group's premium, over the bins of the old price if there are any."""
    whole, title = estimates(table, "change"), titled("mean change", unit)
    if "bin" not in table:
        return dots(whole, title, reference=0.0)
    alt = import_altair()
    data = whole.assign(bin=table["bin"])  # a line has a gap where a bin has no number
    x = alt.X("bin:O", axis=alt.Axis(title="old price, from the lowest tenth to the highest", labelAngle=0))
    y = alt.Y("value:Q", axis=number_axis(alt, title, tickCount=5))
    kinds = list(dict.fromkeys(whole["kind"]))
    base = alt.Chart(data).encode(x=x, color=group_colours(alt, kinds), tooltip=tooltips(alt, *TOOLTIP))
    shape = by_kind(alt.Shape, kinds, GROUP_SHAPES, top_legend(alt))
    layers = [
        alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=GREY).encode(y=alt.Y("zero:Q")),
        base.mark_rule(strokeWidth=2, opacity=0.4).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y, shape=shape),
    ]
    return alt.layer(*layers, width=WIDTH + 60, height=200)


@plots(compute_calibration)
def plot_calibration(table: pd.DataFrame, unit: str) -> Any:
    """Draw mean loss against mean premium by bin, one panel per group."""
    alt = import_altair()
    groups = table["group"].map(name_of)
    columns = {"bin": "bin", "premium": "premium", "loss": "value", "loss_low": "low", "loss_high": "high"}
    data = table[list(columns)].rename(columns=columns).assign(group=groups).dropna()
    low = float(min(data["premium"].min(), data["low"].min()))
    high = float(max(data["premium"].max(), data["high"].max()))
    room = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    x = alt.X("premium:Q", scale=scale, axis=alt.Axis(title="mean premium", tickCount=4))
    y = alt.Y("value:Q", scale=scale, axis=number_axis(alt, "mean loss", tickCount=4))
    panels = []
    for group in dict.fromkeys(groups):
        tooltip = tooltips(alt, "bin:O", "premium:Q", "value:Q", "low:Q", "high:Q")
        base = alt.Chart(data[data["group"] == group]).encode(x=x, tooltip=tooltip)
        colour = INK if group == EVERYBODY else _KIND_COLOURS[PREMIUM]
        layers = [
            _diagonal(alt, x, y, low, high),
            base.mark_rule(color=colour, strokeWidth=2, opacity=0.45).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
            base.mark_point(filled=True, size=45, opacity=1, color=colour).encode(y=y),
        ]
        if not (data["group"] == group).any():
            layers.append(_said(alt, table[groups == group].head(1), y=alt.value(14)))
        panels.append(alt.layer(*layers, width=_PANEL, height=_PANEL, title=panel_title(group)))
    return alt.concat(*panels, columns=2, spacing=24)


@plots(compute_lorenz)
def plot_lorenz(table: pd.DataFrame, unit: str) -> Any:
    """Draw the concentration curve of every group."""
    alt = import_altair()
    data = pd.DataFrame({"kind": table["group"].map(name_of), "volume": table["volume"], "value": table["losses"]})
    data = data.dropna()
    x = alt.X("volume:Q", axis=alt.Axis(title="share of volume, lowest premiums first", format="%", tickCount=5))
    y = alt.Y("value:Q", axis=number_axis(alt, "share of losses", format="%", tickCount=5))
    kinds = list(dict.fromkeys(data["kind"]))
    marks = {
        "color": group_colours(alt, kinds),
        "strokeDash": by_kind(alt.StrokeDash, kinds, _DASHES, top_legend(alt)),
        "tooltip": tooltips(alt, "kind:N", "volume:Q", "value:Q"),
    }
    curves = alt.Chart(data).mark_line(strokeWidth=2).encode(x=x, y=y, **marks)
    return alt.layer(_diagonal(alt, x, y, 0.0, 1.0), curves, width=WIDTH, height=240)


@plots(compute_keep_sensitivity)
def plot_keep_sensitivity(table: pd.DataFrame, unit: str) -> Any:
    """Draw the group means against keep, or for each of some channels."""
    alt = import_altair()
    if "combination" in table:  # these have no keep of their own; the band has them
        table = table[table["combination"] == ""]
    if "source" in table and len(table["source"].unique()) > 1:
        parts = [(key, part.drop(columns="source")) for key, part in table.groupby("source", sort=False)]
        return alt.vconcat(*(_keep_panels(alt, part, unit).properties(title=f"source {key}") for key, part in parts))
    return _keep_panels(alt, table, unit)


def _keep_panels(alt: Any, table: pd.DataFrame, unit: str) -> Any:
    """Draw the group means of one source."""
    if "keep" not in table:
        marks = [estimates(table, name).assign(kind=table["channel"]) for name in (PREMIUM, LOSS)]
        return alt.vconcat(
            *(dots(data, titled(f"mean {name}", unit)) for data, name in zip(marks, (PREMIUM, LOSS), strict=True))
        )
    panels = []
    used = table[table["used"]].head(1)
    x = alt.X("keep:Q", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(title="keep", tickCount=5))
    for name in (PREMIUM, LOSS):
        data = estimates(table, name).assign(keep=table["keep"]).dropna(subset=["value"])
        y = alt.Y("value:Q", scale=alt.Scale(zero=False), axis=number_axis(alt, f"mean {name}", tickCount=4))
        kinds, lines = list(dict.fromkeys(data["kind"])), {"symbolType": "stroke"}
        base = alt.Chart(data).encode(
            x=x, color=group_colours(alt, kinds, **lines), tooltip=tooltips(alt, "keep:Q", *TOOLTIP)
        )
        dash = by_kind(alt.StrokeDash, kinds, _DASHES, top_legend(alt, **lines))
        layers = [
            alt.Chart(used).mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=x),
            base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2=alt.Y2("high:Q")),
            base.mark_line(strokeWidth=2).encode(y=y, strokeDash=dash),
        ]
        panels.append(alt.layer(*layers, width=_PANEL, height=_PANEL))
    return alt.concat(*panels, columns=2, spacing=24)


@plots(compute_channel_band)
def plot_channel_band(table: pd.DataFrame, unit: str) -> Any:
    """Draw the group means with the channel in use, and from their lowest to their highest over all channels."""
    marks = [
        estimates(table, name, name).assign(low=table[f"{name}_lowest"], high=table[f"{name}_highest"])
        for name in (PREMIUM, LOSS)
    ]
    return dots(pd.concat(marks), titled("mean", unit))


# --- what the drawings share ---


def name_of(group: Any) -> str:
    """Return a group as text; a missing one stands for everybody."""
    if isinstance(group, tuple):
        return ", ".join(map(str, group))
    return EVERYBODY if group is None or group != group else str(group)


def name_pairs(table: pd.DataFrame) -> pd.Series:
    """Return the labels of the groups that a table compares."""
    pairs = zip(table["group"].map(name_of), table["against"].map(name_of), strict=True)
    return pd.Series([name_pair(*pair) for pair in pairs], index=table.index, dtype=object)


def _price_names(table: pd.DataFrame) -> pd.Series:
    return table["price"].map(lambda price: PRICE_NAMES.get(price, str(price)))


def estimates(table: pd.DataFrame, name: str, kind: str = "") -> pd.DataFrame:
    """Return one estimate of a table in long form; without a kind the groups tell the marks apart."""
    lane = table["group"].map(name_of)
    numbers = table[[name, f"{name}_low", f"{name}_high"]].set_axis(["value", "low", "high"], axis=1)
    data = numbers.assign(lane=lane, kind=kind or lane, note=table.get("note", ""))
    if "risk_class" in table:
        data["risk_class"] = table["risk_class"].map(str)
    return data


def dots(
    data: pd.DataFrame,
    title: str,
    *,
    reference: float | list[float] | None = None,
    own_lanes: bool = False,
    **axis: Any,
) -> Any:
    """Draw points with intervals, one lane per group and one mark per kind; one panel per class.

    A panel has the lanes of all classes, unless each has lanes of its own.
    """
    alt = import_altair()
    if set(data["kind"]) == set(data["lane"]):
        data = data.assign(kind="")
    data = data.assign(lane=data["lane"].map(wrap), kind=data["kind"].map(wrap))
    x_axis = alt.Axis(title=wrap(title, WIDTH // 7), tickCount=5, labelFlush=False, **axis)
    if "risk_class" not in data:
        return _panel(alt, data, data, x_axis, reference)
    classes = list(dict.fromkeys(data["risk_class"]))
    if len(classes) > MAX_CLASSES:
        raise ValueError(f"Got a table with {len(classes)} classes, but expected at most {MAX_CLASSES} in a drawing.")
    panels = []
    for name in classes:
        own = data[data["risk_class"] == name]
        panels.append(_panel(alt, own, data, x_axis, reference, own_lanes=own_lanes, title=panel_title(name)))
    return alt.vconcat(*panels, spacing=14, resolve={"scale": {"x": "shared"}})


def _panel(
    alt: Any,
    data: pd.DataFrame,
    whole: pd.DataFrame,
    x_axis: Any,
    reference: float | list[float] | None,
    *,
    own_lanes: bool = False,
    **more: Any,
) -> Any:
    """Draw one class; the scales are those of the whole table. `more` belongs to the panel, such as its title."""
    lanes = list(dict.fromkeys(data["lane"] if own_lanes else whole["lane"]))
    kinds = list(dict.fromkeys(whole["kind"]))
    x = alt.X("value:Q", scale=_common_scale(alt, whole, reference), axis=x_axis)
    texts = [lane.split("\n") for lane in lanes]
    lines = max(map(len, texts))
    extent = max(92, _LETTER * max(len(line) for text in texts for line in text))
    lane_axis = alt.Axis(title=None, minExtent=extent, labelOffset=_middle_of_lines(lines))
    y = alt.Y("lane:N", sort=lanes, axis=lane_axis, scale=alt.Scale(domain=lanes))
    others = cycle_to(GROUP_COLOURS, len(kinds))
    colours = [_KIND_COLOURS.get(kind or PREMIUM, other) for kind, other in zip(kinds, others, strict=True)]
    legend = top_legend(alt) if len(kinds) > 1 else None
    marks = len(kinds) if whole.duplicated([c for c in ("risk_class", "lane") if c in whole]).any() else 1
    offset = alt.YOffset("kind:N", sort=kinds, scale=alt.Scale(domain=kinds, paddingOuter=0.35))
    known = data[data["value"].notna()]
    base = alt.Chart(known).encode(
        y=y,
        yOffset=offset if marks > 1 else alt.Undefined,
        color=by_kind(alt.Color, kinds, colours, legend),
        tooltip=tooltips(alt, *TOOLTIP),
    )
    shape = by_kind(alt.Shape, kinds, GROUP_SHAPES, legend)
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=x, shape=shape),
    ]
    if reference is not None and len(known):
        rule = alt.Chart(pd.DataFrame({"reference": np.atleast_1d(reference)}))
        layers.insert(0, rule.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=alt.X("reference:Q")))
    unknown = data[data["value"].isna()].drop_duplicates("lane")
    if len(unknown):
        layers.append(_said(alt, unknown, y=y))
    height = max(28, _LANE * marks + 10, _TEXT_LINE * lines + 8) * len(lanes)
    return alt.layer(*layers, width=WIDTH, height=height, **more)


def _common_scale(alt: Any, whole: pd.DataFrame, reference: float | list[float] | None) -> Any:
    """Return one scale for all panels, also where they are drawn apart."""
    numbers = whole[["value", "low", "high"]].to_numpy(dtype=np.float64)
    known = np.append(numbers[np.isfinite(numbers)], [] if reference is None else reference)
    domain = [float(known.min()), float(known.max())] if len(known) else alt.Undefined
    return alt.Scale(zero=False, padding=8, nice=True, domain=domain)


def _middle_of_lines(most: int) -> Any:
    """Return the offset that puts the middle of a label of several lines beside its lane."""
    tests = [
        {"test": f"length(split(datum.label, '\\n')) === {lines}", "value": -_TEXT_LINE * (lines - 1) / 2}
        for lines in range(2, most + 1)
    ]
    return {"condition": tests, "value": 0} if tests else 0


def _said(alt: Any, rows: pd.DataFrame, **place: Any) -> Any:
    """Write why rows have no numbers at the left of a panel, readable across its lines."""
    text = rows.assign(said=rows["note"].str.split(" (", regex=False).str[0])
    words = alt.Chart(text).encode(x=alt.value(6), text="said:N", **place)
    mark = {"align": "left", "fontSize": 12}
    return words.mark_text(stroke="white", strokeWidth=4, **mark) + words.mark_text(color="#555555", **mark)


def _diagonal(alt: Any, x: Any, y: Any, low: float, high: float) -> Any:
    ends = pd.DataFrame({x.shorthand.removesuffix(":Q"): [low, high], "value": [low, high]})
    return alt.Chart(ends).mark_line(color=GREY, strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y)


def tooltips(alt: Any, *fields: str) -> list[Any]:
    """Return what the mouse shows; Altair takes long to make channels of texts."""
    return [alt.Tooltip(field) for field in fields]


def number_axis(alt: Any, title: str, **more: Any) -> Any:
    return alt.Axis(title=title, minExtent=44, titlePadding=8, **more)


def top_legend(alt: Any, **form: Any) -> Any:
    symbols = {"symbolSize": 90, "symbolStrokeWidth": 3, "symbolOpacity": 1}
    return alt.Legend(orient="top", title=None, labelFontSize=13, columnPadding=26, **symbols, **form)


def by_kind(channel: Any, kinds: list[str], values: list[Any], legend: Any) -> Any:
    """Return a colour, shape or dash for every kind, from the first again if there are more kinds than values."""
    scale = import_altair().Scale(domain=kinds, range=cycle_to(values, len(kinds)))
    if legend is not None:
        widths = [_MARK + _LETTER * max(map(len, kind.split("\n"))) for kind in kinds if kind]
        one_row = sum(widths) <= _LEGEND
        legend.columns = len(kinds) if one_row else max(1, _LEGEND // max(widths))
    return channel("kind:N", legend=legend, scale=scale)


def group_colours(alt: Any, kinds: list[str], **form: Any) -> Any:
    others = iter(cycle_to(GROUP_COLOURS, len(kinds)))
    colours = [INK if kind == EVERYBODY else next(others) for kind in kinds]
    return by_kind(alt.Color, kinds, colours, top_legend(alt, **form))


def titled(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit else words

"""Drawings of the audit's tables: points with their intervals, curves, and a sentence where there is no number."""

from __future__ import annotations

from typing import Any

import pandas as pd

from fairpremium.audit._book import as_pandas
from fairpremium.audit._plots import COLOURS, GREY, GROUP_COLOURS, INK, NAMES, import_altair, in_house_style

EVERYBODY = "everyone"
PREMIUM, LOSS = "premium", "loss"
_KIND_COLOURS = {
    PREMIUM: "#0072b2",
    LOSS: "#d55e00",
    "profit today": "#0072b2",
    "profit after": "#d55e00",
    **{NAMES[price]: colour for price, colour in COLOURS.items()},
    NAMES["best_estimate"]: "#0072b2",
}
_SHAPES = ["circle", "square", "triangle-up", "cross", "triangle-down"]
_WIDTH, _LANE, _PANEL = 290, 19, 165
MAX_CLASSES = 24


def draw_group_means(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw mean premium and mean loss of every group."""
    data = pd.concat([_part(table, PREMIUM, PREMIUM), _part(table, LOSS, LOSS)])
    return _finish(_dots(data, _titled("mean", unit)))


def draw_demographic_disparity(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the differences between mean premiums."""
    against = table["against"].map(_name)
    lane = table["group"].map(_name) + " against " + against
    data = _part(table, "difference", "").assign(lane=lane, kind=lane)
    return _finish(_dots(data, _titled("difference of mean premiums", unit), reference=0.0))


def draw_loss_ratio_gap(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the loss ratio of every group."""
    return _finish(_dots(_part(table, "loss_ratio", ""), "losses for 1 of premium", reference=1.0))


def draw_group_deviance(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the mean deviance of every group."""
    return _finish(_dots(_part(table, "deviance", ""), "mean deviance"))


def draw_gini(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the Gini index of every group."""
    return _finish(_dots(_part(table, "gini", ""), "Gini index", reference=0.0))


def draw_prices_by_group(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the mean of each price in every group."""
    data = _part(table, "mean", "").assign(kind=table["price"].map(lambda p: NAMES.get(p, str(p))))
    return _finish(_dots(data, _titled("mean price", unit)))


def draw_premium_change(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the mean change of every group, over the bins of the old price if there are bins."""
    if "bin" not in table:
        return _finish(_dots(_part(table, "change", ""), _titled("mean change", unit), reference=0.0))
    alt = import_altair()
    whole = _part(table, "change", "").assign(bin=table["bin"])
    data = whole.dropna(subset=["value"])
    x = alt.X("bin:O", axis=alt.Axis(title="old price, from the lowest tenth to the highest", labelAngle=0))
    y = alt.Y("value:Q", axis=_number_axis(alt, _titled("mean change", unit), tickCount=5))
    base = alt.Chart(data).encode(x=x, color=_group_colour(alt, whole), tooltip=_TOOLTIP)
    layers = [
        alt.Chart(pd.DataFrame({"zero": [0.0]})).mark_rule(color=GREY).encode(y="zero:Q"),
        base.mark_rule(strokeWidth=2, opacity=0.4).encode(y=alt.Y("low:Q"), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y),
        base.mark_point(filled=True, size=50, opacity=1).encode(y=y, shape=_group_shape(alt, whole)),
    ]
    return _finish(alt.layer(*layers).properties(width=_WIDTH + 60, height=200))


def draw_balance(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw premiums over losses for every price."""
    data = _part(table.assign(group=table["price"].map(lambda p: NAMES.get(p, str(p))), note=""), "ratio", "")
    return _finish(_dots(data, "premiums for 1 of losses", reference=1.0))


def draw_adverse_selection(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the profit of every group today and when the competitor has taken what it can."""
    data = pd.concat([_part(table, "profit_now", "profit today"), _part(table, "profit", "profit after")])
    return _finish(_dots(data, _titled("mean profit", unit), reference=0.0))


def draw_discrimination(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the measures that are shares of the price's variation."""
    names = {
        "demographic_unfairness": "differs between groups",
        "proxy_discrimination": "proxy discrimination",
        "proxy_explained": "explained by proxies",
    }
    part = table[table["measure"].isin(names)]
    data = _part(part.assign(group=part["measure"].map(names)), "value", "")
    return _finish(_dots(data, "share of the price's variation", reference=0.0, axis_format="%"))


def draw_calibration(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw mean loss against mean premium by bin, one panel per group."""
    alt = import_altair()
    data = pd.DataFrame(
        {
            "group": table["group"].map(_name),
            "bin": table["bin"],
            "premium": table["premium"],
            "value": table["loss"],
            "low": table["loss_low"],
            "high": table["loss_high"],
        }
    ).dropna()
    low = float(min(data["premium"].min(), data["low"].min()))
    high = float(max(data["premium"].max(), data["high"].max()))
    room = 0.04 * (high - low) or 1.0
    scale = alt.Scale(domain=[low - room, high + room], nice=False, zero=False)
    panels = []
    for group in dict.fromkeys(table["group"].map(_name)):
        part = data[data["group"] == group]
        x = alt.X("premium:Q", scale=scale, axis=alt.Axis(title="mean premium", tickCount=4))
        y = alt.Y("value:Q", scale=scale, axis=_number_axis(alt, "mean loss", tickCount=4))
        diagonal = pd.DataFrame({"premium": [low, high], "value": [low, high]})
        base = alt.Chart(part).encode(x=x, tooltip=["bin:O", "premium:Q", "value:Q", "low:Q", "high:Q"])
        colour = INK if group == EVERYBODY else _KIND_COLOURS[PREMIUM]
        layers = [
            alt.Chart(diagonal).mark_line(color=GREY, strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y),
            base.mark_rule(color=colour, strokeWidth=2, opacity=0.45).encode(y=alt.Y("low:Q"), y2="high:Q"),
            base.mark_point(filled=True, size=45, opacity=1, color=colour).encode(y=y),
        ]
        title = alt.Title(group, anchor="start", fontSize=14, fontWeight="bold", color=INK)
        panels.append(alt.layer(*layers).properties(width=_PANEL, height=_PANEL, title=title))
    return _finish(alt.concat(*panels, columns=2, spacing=24))


def draw_lorenz(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the concentration curve of every group."""
    alt = import_altair()
    data = pd.DataFrame(
        {"kind": table["group"].map(_name), "volume": table["volume"], "value": table["losses"]}
    ).dropna()
    x = alt.X("volume:Q", axis=alt.Axis(title="share of volume, lowest premiums first", format="%", tickCount=5))
    y = alt.Y("value:Q", axis=_number_axis(alt, "share of losses", format="%", tickCount=5))
    diagonal = pd.DataFrame({"volume": [0.0, 1.0], "value": [0.0, 1.0]})
    layers = [
        alt.Chart(diagonal).mark_line(color=GREY, strokeDash=[4, 3], strokeWidth=1).encode(x=x, y=y),
        alt.Chart(data)
        .mark_line(strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=_group_colour(alt, data),
            strokeDash=_group_dash(alt, data),
            tooltip=["kind:N", "volume:Q", "value:Q"],
        ),
    ]
    return _finish(alt.layer(*layers).properties(width=_WIDTH, height=240))


def draw_keep_sensitivity(table: pd.DataFrame, *, unit: str = "") -> Any:
    """Draw the group means against keep."""
    alt = import_altair()
    panels = []
    used = table[table["used"]].head(1)
    for name in (PREMIUM, LOSS):
        data = _part(table, name, "").assign(keep=table["keep"]).dropna(subset=["value"])
        x = alt.X("keep:Q", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(title="keep", tickCount=5))
        y = alt.Y("value:Q", scale=alt.Scale(zero=False), axis=_number_axis(alt, f"mean {name}", tickCount=4))
        base = alt.Chart(data).encode(
            x=x, color=_group_colour(alt, data, symbolType="stroke"), tooltip=["keep:Q", *_TOOLTIP]
        )
        layers = [
            alt.Chart(used).mark_rule(color=GREY, strokeDash=[2, 3]).encode(x=x),
            base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", scale=alt.Scale(zero=False)), y2="high:Q"),
            base.mark_line(strokeWidth=2).encode(y=y, strokeDash=_group_dash(alt, data, symbolType="stroke")),
        ]
        panels.append(alt.layer(*layers).properties(width=_PANEL, height=_PANEL))
    return _finish(alt.concat(*panels, columns=2, spacing=24))


# --- pieces ---

_TOOLTIP = ["lane:N", "kind:N", "value:Q", "low:Q", "high:Q"]


def _name(group: Any) -> str:
    """Return a group as text; a missing one stands for everybody."""
    if isinstance(group, tuple):
        return ", ".join(map(str, group))
    return EVERYBODY if group is None or group != group else str(group)


def _part(table: pd.DataFrame, name: str, kind: str) -> pd.DataFrame:
    """Return one estimate of a table in long form; without a kind the groups tell the marks apart."""
    lane = table["group"].map(_name) if "group" in table else pd.Series("", index=table.index)
    data = pd.DataFrame(
        {
            "lane": lane,
            "kind": kind or lane,
            "value": table[name],
            "low": table[f"{name}_low"],
            "high": table[f"{name}_high"],
            "note": table.get("note", ""),
        }
    )
    if "risk_class" in table:
        data["risk_class"] = table["risk_class"].map(str)
    return data


def _dots(data: pd.DataFrame, title: str, *, reference: float | None = None, axis_format: str = "") -> Any:
    """Draw points with intervals, one lane per group and one mark per kind; one panel per class."""
    alt = import_altair()
    if set(data["kind"]) == set(data["lane"]):
        data = data.assign(kind="")
    x_axis = alt.Axis(title=title, tickCount=5, labelFlush=False, **({"format": axis_format} if axis_format else {}))
    if "risk_class" not in data:
        return _panel(alt, data, data, x_axis, reference)
    classes = list(dict.fromkeys(data["risk_class"]))
    if len(classes) > MAX_CLASSES:
        raise ValueError(f"Got a table with {len(classes)} classes, but expected at most {MAX_CLASSES} in a drawing.")
    panels = [
        _panel(alt, data[data["risk_class"] == risk_class], data, x_axis, reference).properties(
            title=alt.Title(risk_class, anchor="start", fontSize=14, fontWeight="bold", color=INK)
        )
        for risk_class in classes
    ]
    return alt.vconcat(*panels, spacing=14).resolve_scale(x="shared")


def _panel(alt: Any, data: pd.DataFrame, whole: pd.DataFrame, x_axis: Any, reference: float | None) -> Any:
    """Draw one class; the scales are those of the whole table."""
    lanes, kinds = list(dict.fromkeys(whole["lane"])), list(dict.fromkeys(whole["kind"]))
    x = alt.X("value:Q", scale=alt.Scale(zero=False, padding=8), axis=x_axis)
    y = alt.Y("lane:N", sort=lanes, axis=_lane_axis(alt, lanes), scale=alt.Scale(domain=lanes))
    colours = [
        _KIND_COLOURS.get(kind or PREMIUM, GROUP_COLOURS[k % len(GROUP_COLOURS)]) for k, kind in enumerate(kinds)
    ]
    shapes = [_SHAPES[k % len(_SHAPES)] for k in range(len(kinds))]
    legend = _legend(alt) if len(kinds) > 1 else None
    colour = alt.Color("kind:N", legend=legend, scale=alt.Scale(domain=kinds, range=colours))
    shape = alt.Shape("kind:N", legend=legend, scale=alt.Scale(domain=kinds, range=shapes))
    offset = alt.YOffset("kind:N", sort=kinds, scale=alt.Scale(domain=kinds, paddingOuter=0.35))
    known = data[data["value"].notna()]
    base = alt.Chart(known).encode(y=y, yOffset=offset, color=colour, tooltip=_TOOLTIP)
    layers = [
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q"), x2="high:Q"),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=x, shape=shape),
    ]
    if reference is not None and len(known):
        rule = alt.Chart(known.assign(reference=reference).head(1))
        layers.insert(0, rule.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x="reference:Q"))
    unknown = data[data["value"].isna()].drop_duplicates("lane")
    if len(unknown):
        text = alt.Chart(unknown.assign(said=unknown["note"].str.split(" (", regex=False).str[0]))
        said = text.encode(y=y, x=alt.value(6), text="said:N")
        layers.append(said.mark_text(align="left", fontSize=12, color="#555555"))
    height = max(28, _LANE * len(kinds) + 10) * len(lanes)
    return alt.layer(*layers).properties(width=_WIDTH, height=height)


def _lane_axis(alt: Any, lanes: list[str]) -> Any:
    """Leave room for a reader's font that is wider than the one that measured the labels."""
    return alt.Axis(title=None, minExtent=max(92, 9 * max(map(len, lanes))))


def _number_axis(alt: Any, title: str, **more: Any) -> Any:
    return alt.Axis(title=title, minExtent=44, titlePadding=8, **more)


def _legend(alt: Any, **form: Any) -> Any:
    return alt.Legend(
        orient="top",
        title=None,
        labelFontSize=13,
        symbolSize=90,
        symbolStrokeWidth=3,
        symbolOpacity=1,
        columns=4,
        columnPadding=26,
        **form,
    )


def _groups(data: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(data["kind"]))


def _group_colour(alt: Any, data: pd.DataFrame, **form: Any) -> Any:
    kinds = _groups(data)
    rest = iter(range(len(kinds)))
    colours = [INK if kind == EVERYBODY else GROUP_COLOURS[next(rest) % len(GROUP_COLOURS)] for kind in kinds]
    return alt.Color("kind:N", scale=alt.Scale(domain=kinds, range=colours), legend=_legend(alt, **form))


def _group_shape(alt: Any, data: pd.DataFrame) -> Any:
    kinds = _groups(data)
    return alt.Shape(
        "kind:N", legend=_legend(alt), scale=alt.Scale(domain=kinds, range=[_SHAPES[k % 5] for k in range(len(kinds))])
    )


def _group_dash(alt: Any, data: pd.DataFrame, **form: Any) -> Any:
    kinds = _groups(data)
    dashes = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]]
    scale = alt.Scale(domain=kinds, range=[dashes[k % len(dashes)] for k in range(len(kinds))])
    return alt.StrokeDash("kind:N", legend=_legend(alt, **form), scale=scale)


def _titled(words: str, unit: str) -> str:
    return f"{words}, {unit}" if unit else words


def _finish(chart: Any) -> Any:
    return in_house_style(chart)


DRAWINGS = {
    "group_means": draw_group_means,
    "demographic_disparity": draw_demographic_disparity,
    "loss_ratio_gap": draw_loss_ratio_gap,
    "group_deviance": draw_group_deviance,
    "calibration": draw_calibration,
    "gini": draw_gini,
    "lorenz": draw_lorenz,
    "prices_by_group": draw_prices_by_group,
    "premium_change": draw_premium_change,
    "balance": draw_balance,
    "adverse_selection": draw_adverse_selection,
    "discrimination": draw_discrimination,
    "keep_sensitivity": draw_keep_sensitivity,
}


def draw(name: str, table: Any, *, unit: str = "") -> Any:
    """Draw the table of a `compute_*` function by its name."""
    return DRAWINGS[name](as_pandas(table), unit=unit)

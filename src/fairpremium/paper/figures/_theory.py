"""Bounds beside what they bound, and estimates of keep beside the truth."""

import math
from typing import Any

import pandas as pd

from fairpremium.paper.figures._style import GREY, axis, end_labels, finish, heading, import_altair

_WIDTH, _HEIGHT = 215, 215
_THEOREMS = {"4.3": "#0072b2", "4.6": "#d55e00"}
_PORTFOLIOS = {"synthetic": "Synthetic portfolio", "health": "Health data", "auto": "Auto data"}
_SPLITS = {"n1 = 2": ("#e69f00", "square"), "n1 = 4": ("#0072b2", "circle")}


def draw_bounds(table: pd.DataFrame, *, keeps: tuple[float, ...]) -> Any:
    """Draw both bounds and the excess risk that they bound, against the number of rows."""
    alt = import_altair()
    rows = []
    for keep in keeps:
        panels: list[Any] = []
        for K in sorted(set(table["groups"])):
            shown = table[(table["groups"] == K) & (table["keep"] == keep) & (table["value"] > 0)]
            panels.append(_bound_panel(alt, shown, f"K = {K}, keep {keep}", first=not panels))
        rows.append(alt.hconcat(*panels, spacing=20))
    subtitle = [
        "Solid: the bound with delta = 0.05. Dashed: the excess risk that 95 % of the samples stay below.",
        "Theorem 4.3: keep known. Theorem 4.6: keep estimated at an anchor, n1 = 4. "
        f"Mean of {table['seeds'].max()} populations.",
    ]
    return finish(alt.vconcat(*rows, spacing=26), "The bounds hold, and are loose", subtitle)


def _bound_panel(alt: Any, data: pd.DataFrame, title: str, *, first: bool) -> Any:
    domain = (1e-5, 3.0)
    ticks = [2000, 10_000, 100_000]
    x = axis("X", "n", (2000, 128_000), scale="log", title="rows", values=ticks, format="~s")
    title_y, ticks_y = "excess risk" if first else None, [1e-4, 1e-2, 1]
    y = axis("Y", "value", domain, scale="log", title=title_y, values=ticks_y, format="~g", minExtent=44)
    colour = alt.Color(
        "theorem:N", scale=alt.Scale(domain=list(_THEOREMS), range=list(_THEOREMS.values())), legend=None
    )
    dash = alt.StrokeDash("what:N", scale=alt.Scale(domain=["bound", "excess"], range=[[1, 0], [6, 3]]), legend=None)
    data = data.assign(theorem=data["theorem"].astype(str))
    drawn = alt.Chart(data).mark_line(strokeWidth=2.4, clip=True).encode(x=x, y=y, color=colour, strokeDash=dash)
    ends = data[data["n"] == data["n"].max()]
    labels = [
        (f"{what} {theorem}", math.log(value), _THEOREMS[theorem])
        for theorem, what, value in zip(ends["theorem"], ends["what"], ends["value"], strict=True)
    ]
    named = end_labels(alt, labels, [math.log(v) for v in domain], _WIDTH, _HEIGHT)
    return alt.layer(drawn, *named).properties(width=_WIDTH, height=_HEIGHT, title=heading(title))


def draw_estimates(table: pd.DataFrame) -> Any:
    """Draw the anchor estimates of keep against the true keep, in each portfolio."""
    alt = import_altair()
    panels: list[Any] = []
    for portfolio, title in _PORTFOLIOS.items():
        shown = table[(table["portfolio"] == portfolio) & (table["sample"] == "full")]
        shown = shown.assign(low=shown["estimate"] - shown["sd"], high=shown["estimate"] + shown["sd"])
        panels.append(_estimate_panel(alt, shown, title, first=not panels))
    subtitle = [
        "Anchor method (Procedure 4.5, average of keep). On the grey line the estimate would be right.",
        f"Points: mean of {table['seeds'].max()} runs; bars: one standard deviation. n1: number of splits.",
    ]
    return finish(alt.hconcat(*panels, spacing=20), "What the anchor method says about keep", subtitle)


def _estimate_panel(alt: Any, data: pd.DataFrame, title: str, *, first: bool) -> Any:
    domain = [0.5, 1.0]
    shift = {"n1 = 2": -0.008, "n1 = 4": 0.008}
    data = data.assign(at=data["keep"] + data["parts"].map(shift))
    x = axis("X", "at", (0.65, 0.95), title="true keep", values=[0.7, 0.8, 0.9])
    title_y = "estimated keep" if first else None
    y = axis("Y", "estimate", domain, title=title_y, tickCount=5, minExtent=44, format=".1f")
    colours = alt.Scale(domain=list(_SPLITS), range=[c for c, _ in _SPLITS.values()])
    shapes = alt.Scale(domain=list(_SPLITS), range=[s for _, s in _SPLITS.values()])
    base = alt.Chart(data).encode(x=x, color=alt.Color("parts:N", scale=colours, legend=None))
    diagonal = pd.DataFrame({"at": [0.65, 0.95], "estimate": [0.65, 0.95]})
    layers = [
        alt.Chart(diagonal).mark_line(color=GREY, strokeWidth=3, opacity=0.6).encode(x=x, y=y),
        base.mark_rule(strokeWidth=2.5, clip=True).encode(
            y=alt.Y("low:Q", scale=alt.Scale(domain=domain, nice=False)), y2="high:Q"
        ),
        base.mark_point(filled=True, size=110, opacity=1).encode(
            y=y, shape=alt.Shape("parts:N", scale=shapes, legend=None)
        ),
    ]
    ends = data[data["keep"] == data["keep"].max()]
    labels = [
        (f"{splits}: {estimate:.2f}", estimate, _SPLITS[splits][0])
        for splits, estimate in zip(ends["parts"], ends["estimate"], strict=True)
    ]
    layers += end_labels(alt, labels, domain, _WIDTH, _HEIGHT)
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=heading(title))
